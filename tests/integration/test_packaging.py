"""What comes with the package: workflows, the action, the plugin for pytest, what a wheel names."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import Any

import pytest
import yaml

import headway
from headway.pytest_plugin import SimulatedProvider

ROOT = Path(__file__).parents[2]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))


def test_workflows_and_the_action_are_what_their_schemas_ask_for() -> None:
    for schema, files in (("workflows", WORKFLOWS), ("actions", [ROOT / "action.yml"])):
        command = (sys.executable, "-m", "check_jsonschema", "--builtin-schema")
        judged = subprocess.run(
            [*command, f"vendor.github-{schema}", *map(str, files)],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert judged.returncode == 0, judged.stdout


def test_every_make_target_of_a_workflow_is_there() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.M))
    texts = "\n".join(path.read_text() for path in WORKFLOWS)
    asked = set(re.findall(r"run: make ([a-z-]+)", texts))
    assert {"test", "wheel", "docs"} == asked
    assert asked <= targets


@pytest.mark.parametrize(("tag", "code"), [(f"v{headway.__version__}", 0), ("v9.9", 1)])
def test_a_release_needs_the_tag_of_its_version(tag: str, code: int) -> None:
    release = yaml.safe_load((ROOT / ".github/workflows/release.yml").read_text())
    (step,) = (one for one in release["jobs"]["build"]["steps"] if one.get("name"))
    ended = subprocess.run(
        ["bash", "-eo", "pipefail", "-c", step["run"]], cwd=ROOT, check=False,
        env={**os.environ, "TAG": tag},
    )  # fmt: skip
    assert ended.returncode == code


def test_the_action_runs_a_plan_and_comments_its_report(tmp_path: Path) -> None:
    (tmp_path / "plan.yaml").write_text(
        "headway: 1\ntasks:\n  good: {run: echo hello}\n  bad: {run: exit 3}\n"
    )
    programs = tmp_path / "bin"
    programs.mkdir()
    _program(programs / "headway", f'exec "{sys.executable}" -m headway "$@"')
    _program(programs / "gh", 'echo "$*" > "$RUNNER_TEMP/said"; cat "$5" > "$RUNNER_TEMP/body"')
    steps = {one["name"]: one for one in _action()["steps"] if "name" in one}
    env = os.environ | {
        "PATH": f"{programs}:{os.environ['PATH']}", "RUNNER_TEMP": str(tmp_path),
        "GITHUB_STEP_SUMMARY": str(tmp_path / "summary"), "GITHUB_OUTPUT": str(tmp_path / "out"),
        "HEADWAY_RUNTIME_DIR": str(tmp_path / "r"), "HEADWAY_STATE_DIR": str(tmp_path / "s"),
        "HEADWAY_CONFIG_DIR": str(tmp_path / "c"), "PLAN": "plan.yaml", "BUDGET": "5M",
        "OPTIONS": "--quiet -j 2", "NUMBER": "7",
    }  # fmt: skip

    def perform(name: str, **more: str) -> int:
        words = ["bash", "-eo", "pipefail", "-c", steps[name]["run"]]
        return subprocess.run(words, cwd=tmp_path, env={**env, **more}, check=False).returncode

    assert perform("run") == 0
    outputs = dict(line.split("=", 1) for line in (tmp_path / "out").read_text().splitlines())
    assert outputs["exit-code"] == "1"
    assert perform("comment", REPORT=outputs["report"]) == 0
    body = (tmp_path / "body").read_text()
    assert "1 of 2" in body
    assert (tmp_path / "said").read_text().startswith("pr comment 7 --body-file")
    assert (tmp_path / "summary").read_text() == body
    assert perform("end", CODE=outputs["exit-code"]) == 1


def test_the_action_gives_values_to_its_scripts_as_variables_only() -> None:
    for step in _action()["steps"]:
        assert "${{" not in step.get("run", "")


@pytest.mark.headway_sim("--model", "echo")
def test_a_test_of_an_agent_calls_the_simulated_provider(headway_sim: SimulatedProvider) -> None:
    body = {"model": "echo", "messages": [{"role": "user", "content": "hello"}]}
    request = urllib.request.Request(
        f"{os.environ['OPENAI_BASE_URL']}/chat/completions", json.dumps(body).encode(),
        {"authorization": f"Bearer {os.environ['OPENAI_API_KEY']}",
         "content-type": "application/json"},
    )  # fmt: skip
    with urllib.request.urlopen(request) as answer:
        assert json.load(answer)["choices"][0]["message"]["content"] == "hello"
    assert (headway_sim.calls, headway_sim.accepted) == (1, 1)


def test_what_the_image_copies_is_there() -> None:
    copied = re.findall(r"^COPY (?!--from)(.+) \S+$", (ROOT / "Dockerfile").read_text(), re.M)
    assert all((ROOT / name).exists() for names in copied for name in names.split())


def _action() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((ROOT / "action.yml").read_text())["runs"]
    return found


def _program(path: Path, line: str) -> None:
    path.write_text(f"#!/bin/bash\n{line}\n")
    path.chmod(0o755)
