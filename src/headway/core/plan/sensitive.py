"""Which files a plan may not touch that somebody else wrote, by their names alone.

Laws:
- What is hidden is the user's and his tools': no part of a path begins with a dot.
- What looks like a key or a password is never read into a prompt.
- What is written is text that people read: nothing that a program executes, imports or obeys
  because of its name.
"""

from __future__ import annotations

import re
from typing import Final

from headway.core.plan.paths import inside

ENDINGS: Final = (".md", ".txt", ".json", ".csv", ".yaml")
"""Of what may be written."""

_KEY: Final = re.compile(
    r".*\.(?:pem|key|p8|p12|pfx|der|jks|keystore|kdbx?|ppk|gpg|asc|age|ovpn|tfstate|tfvars)"
    r"|id_(?:rsa|dsa|ecdsa|ed25519).*"
    r"|_?(?:netrc|htpasswd|pgpass|shadow)",
    re.DOTALL,
)
_PASSWORD: Final = re.compile(
    r".*(?:secret|credential|password|passwd|service[-_]?account|private[-_]?key|api[-_]?key).*"
)
_DATA: Final = re.compile(
    r"[^.]*|.*\.(?:json|ya?ml|txt|ini|cfg|conf|toml|env|xml|csv|properties|bak)", re.DOTALL
)
"""A module about passwords is code; a text of that name may hold one."""

_OBEYED: Final = re.compile(
    r"(?:claude|agents?|gemini|skill|copilot-instructions|llms|warp|qwen|crush)(?:\..*)?\.(?:md|txt)"
    r"|(?:requirements|constraints).*\.txt|cmakelists\.txt"
    r"|(?:package|package-lock|npm-shrinkwrap|composer|bower|deno|jsr|[jt]sconfig.*|project|nx|lerna"
    r"|turbo|rush|vercel|now|firebase|app|manifest|mcp|hooks|settings|tasks|launch|devcontainer"
    r"|angular|[a-z-]+\.config|plugin|cdk|config|import_map|renovate|nodemon|global|vcpkg|wrangler"
    r"|appsettings.*|launchsettings|components|extensions|opencode|crush|gemini-extension|biome|lefthook"
    r"|railway|docker-bake|tslint|api-extractor)\.json"
    r"|(?:plan|.*compose.*|cloudbuild|serverless|skaffold|chart|values|action|.*pipelines?|appveyor"
    r"|buildspec|environment|pubspec|mkdocs|.*playbook.*|site|kustomization|pnpm-.*|main|config"
    r"|workflow|template|taskfile(?:\..*)?|app|stack|deployment|lefthook|dvc|devfile|helmfile|goreleaser"
    r"|meta|render|codemagic|amplify|okteto|garden|snapcraft|molecule|inventory|hosts)\.yaml",
    re.DOTALL,
)
"""What package managers, build tools, services and agents look for and follow."""


def unreadable(path: str) -> str:
    """Why a plan by somebody else may not read a path or a pattern; empty if it may."""
    if problem := _astray(path):
        return problem
    name = path.rpartition("/")[2].casefold()
    if _KEY.fullmatch(name) or (_PASSWORD.fullmatch(name) and _DATA.fullmatch(name)):
        return "may hold a key or a password"
    return ""


def unwritable(path: str) -> str:
    """Why a plan by somebody else may not write a path; empty if it may."""
    if problem := _astray(path):
        return problem
    name = path.rpartition("/")[2].casefold()
    if not name.endswith(ENDINGS):
        return f"does not end in {', '.join(ENDINGS[:-1])} or {ENDINGS[-1]}"
    return "is a file that programs obey" if _OBEYED.fullmatch(name) else ""


def _astray(path: str) -> str:
    if not path.isprintable() or "\\" in path:
        return "has characters that a path should not have"
    within = inside(path)
    if within is None:
        return "leads out of the project"
    return "is hidden" if within.startswith(".") or "/." in within else ""
