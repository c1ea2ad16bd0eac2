"""What a wheel is given when it is built: the address of its repository, and completions.

The address is that of the repository that builds it, so that a copy never names another's.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from hatchling.metadata.plugin.interface import MetadataHookInterface

COMPLETIONS = {
    "headway.bash": "share/bash-completion/completions/headway",
    "_headway": "share/zsh/site-functions/_headway",
    "headway.fish": "share/fish/vendor_completions.d/headway.fish",
}
"""Made by `make wheel`, and where shells look for them."""


class RepositoryUrls(MetadataHookInterface):
    def update(self, metadata: dict[str, Any]) -> None:
        server = os.environ.get("GITHUB_SERVER_URL", "https://github.com")
        name = os.environ.get("GITHUB_REPOSITORY", "")
        metadata["urls"] = {}
        if name:
            home = f"{server}/{name}"
            metadata["urls"] = {
                "Homepage": home,
                "Documentation": f"{home}/tree/main/docs",
                "Changelog": f"{home}/blob/main/CHANGELOG.md",
                "Issues": f"{home}/issues",
                "Source": home,
            }


class Completions(BuildHookInterface[Any]):
    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if version == "editable":
            return
        folder = Path(self.root) / "build" / "completions"
        found = {name: place for name, place in COMPLETIONS.items() if (folder / name).exists()}
        build_data["shared_data"].update({str(folder / one): place for one, place in found.items()})
