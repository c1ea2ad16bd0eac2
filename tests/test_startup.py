"""Start-up stays instant: `headway --help` imports nothing heavy; `bench.versions` measures it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


def _environment() -> dict[str, str]:
    """This checkout, as a user starts it: no coverage inside what is measured, no debug modes."""
    ours = ("COV", "PYTHON")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    return kept | {"PYTHONPATH": str(ROOT / "src")}


def _python(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, *arguments]
    return subprocess.run(command, env=_environment(), capture_output=True, text=True, check=True)


@pytest.mark.parametrize("module", ["rich", "yaml", "headway.engine", "headway.cli.sim", "asyncio"])
def test_help_does_not_import(module: str) -> None:
    code = (
        "import sys; from headway.cli.main import main; main(['--help']);"
        f"sys.exit({module!r} in sys.modules)"
    )
    assert _python("-c", code).stdout.startswith("usage: headway")


@pytest.mark.parametrize("verb", ["", "status", "check plan.yaml", "logs", "timeline"])
def test_looking_at_runs_and_plans_loads_nothing_that_performs_them(
    verb: str, tmp_path: Path
) -> None:
    (tmp_path / "plan.yaml").write_text("headway: 1\ntasks: {a: {run: echo}}\n")
    code = (
        "import os, sys, headway; from headway.cli.main import main;"
        f"os.environ['HEADWAY_STATE_DIR'] = {str(tmp_path)!r}; os.chdir({str(tmp_path)!r});"
        f"main({verb.split()!r});"
        "print(*sorted(sys.modules), sep='\\n')"
    )
    loaded = set(_python("-c", code).stdout.splitlines())
    heavy = {"asyncio", "httpx2", "aiohttp", "headway.work", "headway.report.forecast"}
    assert not loaded & heavy
    assert not [name for name in loaded if name.startswith(("headway.pacing.", "headway.sim."))]


WITHOUT_EXTRAS = """
import importlib, pkgutil, re, sys, tomllib
from importlib import metadata
from importlib.machinery import PathFinder

def needed(names):
    seen, todo = set(), list(names)
    while todo:
        name = re.split(r"[^\\w.-]", todo.pop(), maxsplit=1)[0].lower().replace("_", "-")
        if name not in seen:
            seen.add(name)
            try:
                todo += [one for one in metadata.requires(name) or () if "extra ==" not in one]
            except metadata.PackageNotFoundError:
                pass
    return seen

project = tomllib.load(open("pyproject.toml", "rb"))["project"]
kept = needed(project["dependencies"]) | {"headway"}
barred = {
    top
    for top, owners in metadata.packages_distributions().items()
    if not {owner.lower().replace("_", "-") for owner in owners} & kept
}

class Barrier(PathFinder):
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        if name.partition(".")[0] not in barred:
            return PathFinder.find_spec(name, path, target)

sys.meta_path[:] = [Barrier if one is PathFinder else one for one in sys.meta_path]
import headway
for found in pkgutil.walk_packages(headway.__path__, "headway."):
    if not found.name.endswith("__main__"):
        try:
            importlib.import_module(found.name)
        except ModuleNotFoundError:
            print(found.name)
assert "httpx" in barred
"""


def test_only_three_modules_import_a_package_that_is_not_a_dependency() -> None:
    found = subprocess.run(
        [sys.executable, "-c", WITHOUT_EXTRAS],
        cwd=ROOT, env=_environment(), capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert found.returncode == 0, found.stderr
    assert set(found.stdout.split()) == {
        "headway.client.httpx_transport", "headway.mcp.server", "headway.pytest_plugin",
    }  # fmt: skip


def test_importing_headway_imports_none_of_its_layers() -> None:
    code = "import sys, headway; print(*sorted(m for m in sys.modules if m.startswith('headway')))"
    assert _python("-c", code).stdout.split() == ["headway"]


def test_a_reader_that_leaves_early_is_not_an_error() -> None:
    read_end, write_end = os.pipe()
    os.close(read_end)
    command = [sys.executable, "-m", "headway", "--help"]
    with os.fdopen(write_end, "w") as closed:
        ended = subprocess.run(
            command, env=_environment(), stdout=closed, stderr=subprocess.PIPE, text=True,
            check=False,
        )  # fmt: skip
    assert (ended.returncode, ended.stderr) == (141, "")
