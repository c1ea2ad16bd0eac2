"""Naive plans end with the serial result, or with exit code 1 and what was lost through whom."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.workspaces.cases import CASES, Case
from tests.workspaces.stage import Scene, staged

STYLES = {
    "agents, nothing said": ("agent", "", ()),
    "agents in copies": ("agent", "workspace: {mode: copy}", ()),
    "commands in workspaces": ("run", "workspace: on", ()),
    "commands, nothing said": ("run", "", ()),
    "commands, observed": ("run", "workspace: off", ("--observe", "warn")),
    "commands, enforced": ("run", "workspace: off", ("--observe", "enforce")),
    "agents in one folder, observed": ("agent", "workspace: off", ("--observe", "warn")),
}  # fmt: skip
"""Who performs the tasks, keys of the plan, and options of the run."""
SYSTEMS = {
    "": "",
    "no user namespaces": "sysctl",
    "a container": "container",
    "no mounts": "apparmor",
    "observed already": "listened",
}
"""What a system allows less, as `restricted.py` names it."""
RESTRICTED = Path(__file__).with_name("restricted.py")


def is_isolated(style: str) -> bool:
    way, top, _ = STYLES[style]
    return "off" not in top and (way == "agent" or bool(top))


def ends_as(case: Case, scene: Scene) -> str:
    """What is wrong in the checkout; empty if it is as after the serial run."""
    wrong = []
    for name, text in case.right.items():
        path = scene.folder / name
        found = path.read_text() if path.exists() else None
        if found != text:
            wrong.append(f"{name}: {found!r}, not {text!r}")
    return "\n".join(wrong)


def run_case(
    root: Path, case: Case, style: str, system: str = ""
) -> tuple[subprocess.CompletedProcess[str], str]:
    """Run it; how headway ended, and what is wrong in the checkout."""
    way, top, options = STYLES[style]
    with staged(root) as scene:
        if system:
            scene.user.around = (sys.executable, "-I", "-S", str(RESTRICTED), SYSTEMS[system])
        scene.user.env["SCRIPTS"] = str(scene.scripts)
        scene.repository(case.files, case.plan(scene, way, top))
        before = scene.tree()
        done = scene.run("-j", "10", *options)
        if is_isolated(style):
            assert scene.tree() == before, "the checkout has changed before `results --apply`"
            applied = scene.apply()
            assert applied.returncode == 0, applied.stderr
            starts = scene.gate.starts()
            assert max(starts.values(), default=0) <= 2, starts
        return done, ends_as(case, scene)


def judge(root: Path, case: Case, style: str, system: str = "") -> None:
    done, wrong = run_case(root, case, style, system)
    said = done.stdout + done.stderr
    if is_isolated(style):
        assert (done.returncode, wrong) == (0, ""), said
    elif system == "observed already" and not case.is_python:
        # What commands do cannot be observed: that is said before the run starts.
        assert "cannot be observed here" in done.stderr.splitlines()[0], said
    elif done.returncode == 0:
        assert not wrong, f"exit 0 with lost data: {wrong}\n{said}"
    else:
        assert done.returncode in (1, 3), said
        assert not wrong or is_named(case, said), f"not named: {wrong}\n{said}"


def is_named(case: Case, said: str) -> bool:
    """Whether a line names a file that is wrong and two tasks that touched it."""
    return any(
        any(file in line for file in case.right)
        and sum(bool(re.search(rf"{task}(?![\w-])", line)) for task in case.tasks) >= 2
        for line in said.splitlines()
    )


@pytest.mark.soak
@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_naive_plan_ends_right_or_says_what_was_lost(
    tmp_path: Path, case: Case, style: str
) -> None:
    judge(tmp_path, case, style)


@pytest.mark.soak
@pytest.mark.parametrize("system", [*SYSTEMS][1:])
@pytest.mark.parametrize(
    "style", ["agents, nothing said", "commands, nothing said", "commands in workspaces"]
)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_where_less_is_allowed_a_naive_plan_ends_as_well_or_that_is_said_before(
    tmp_path: Path, case: Case, style: str, system: str
) -> None:
    judge(tmp_path, case, style, system)


@pytest.mark.parametrize("style", ["agents, nothing said", "commands, nothing said"])
def test_ten_ticks_in_one_list_end_right_or_say_what_was_lost(tmp_path: Path, style: str) -> None:
    judge(tmp_path, CASES[0], style)
