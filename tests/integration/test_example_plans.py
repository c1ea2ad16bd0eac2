"""The plans in `examples/plans`, performed as a user would, give what is true."""

from __future__ import annotations

import ast
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import headway

ROOT = Path(headway.__file__).resolve().parents[2]
PLANS = ROOT / "examples" / "plans"


def perform(name: str, folder: Path, *options: str) -> dict[str, object]:
    """Run a copy of an example to its end; its results by task."""
    here = folder / name
    shutil.copytree(PLANS / name, here, ignore=shutil.ignore_patterns("build", "__pycache__"))
    for arguments in (("run", "plan.yaml", "--quiet", *options), ("results", "--all", "--parse")):
        command = [sys.executable, "-m", "headway", *arguments]
        ended = subprocess.run(command, cwd=here, env=_environment(folder), check=False,
                               capture_output=True, text=True)  # fmt: skip
        assert ended.returncode == 0, ended.stderr
    lines = [json.loads(line) for line in ended.stdout.splitlines()]
    return {line["task"]: line["output"] for line in lines}


def _environment(folder: Path) -> dict[str, str]:
    """Where `python3` is this interpreter, whose modules are explored."""
    (folder / "bin").mkdir(exist_ok=True)
    python = folder / "bin" / "python3"
    if not python.exists():
        python.symlink_to(sys.executable)
    path = os.pathsep.join((str(python.parent), os.environ["PATH"]))
    return dict(os.environ) | {
        "PATH": path, "PYTHONPATH": str(ROOT / "src"), "HEADWAY_STATE_DIR": str(folder / "state"),
    }  # fmt: skip


def source_of(module: str) -> str:
    """What `source.py` prints for it."""
    program = PLANS / "explore" / "source.py"
    return subprocess.check_output([sys.executable, str(program), module], text=True)


def functions_of(source: str) -> list[str]:
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
    return sorted({node.name for node in ast.parse(source).body if isinstance(node, kinds)})


@pytest.fixture(scope="module")
def explored(tmp_path_factory: pytest.TempPathFactory) -> dict[str, object]:
    return perform("explore", tmp_path_factory.mktemp("explore"), "--sim", "script.yaml")


MODULES = (PLANS / "explore" / "modules.txt").read_text().split()


@pytest.mark.parametrize("module", MODULES)
def test_an_explored_module_has_the_functions_that_its_syntax_tree_has(
    explored: dict[str, object], module: str
) -> None:
    source = source_of(module)
    assert explored[f"explore[{module}]"] == {
        "module": module,
        "functions": functions_of(source),
        "lines": len(source.splitlines()),
    }


def test_the_merged_report_adds_up(explored: dict[str, object]) -> None:
    lines = [len(source_of(module).splitlines()) for module in MODULES]
    assert explored["merge"] == {
        "modules": 22, "names": sorted(MODULES), "lines": sum(lines), "longest": max(lines),
    }  # fmt: skip


def test_records_are_parsed_enriched_and_validated(tmp_path: Path) -> None:
    results = perform("records", tmp_path, "--sim", "script.yaml")
    records = (PLANS / "records" / "records.txt").read_text().splitlines()
    assert len(records) == 20
    valid = []
    for record in records:
        order, mail, country, items = record.split("; ")
        positions = [] if items == "nothing" else items.split(", ")
        numbers = [float(number) for text in positions for number in text.split(" x ")]
        assert results[f"enrich[{record}]"] == {
            "order": order, "mail": mail, "domain": mail.partition("@")[2], "country": country,
            "positions": len(positions), "highest": max(numbers, default=0),
        }  # fmt: skip
        is_valid = "." in mail.partition("@")[2] and len(country) == 2 and bool(positions)
        assert results[f"validate[{record}]"] == {"order": order, "valid": is_valid}
        valid += [order] if is_valid else []
    assert 0 < len(valid) < len(records)
    assert results["summary"] == {"valid": len(valid), "orders": valid}
    kept = (tmp_path / "records" / "build" / "summary.json").read_text()
    assert json.loads(kept) == results["summary"]
