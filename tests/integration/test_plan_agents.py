"""Agents that are programs, in plans: started, metered, killed, and gone on with, end to end.

The agents are small programs that speak as real ones do; the real ones are in tests/agents.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from shutil import rmtree
from time import monotonic, sleep
from typing import Any

import pytest

from bench.sharing_crowd import place_of_its_own
from headway.journal.file import CALL
from headway.journal.reader import JournalReader
from headway.sim.server import launched, truth_of
from tests.integration.user_scene import UserScene

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
WITHIN_S = 60.0

EDITS = """\
headway: 1
model: claude-haiku-4-5
tasks:
  edit:
    agent: claude
    each: [1, 2, 3]
    prompt: >-
      Run `echo first >> {{ item }}.txt`, then `sleep 0.2`, then `echo last >> {{ item }}.txt`.
"""

HERMES = """\
[agents.hermes]
command = "hermes --prompt {prompt_file} --model {model}"
result = "last-json:data.text"
"""


class Scene(UserScene, frozen=True):
    """A user's machine: a folder with a plan, agents on the PATH, a provider."""

    def plan(self, text: str) -> None:
        (self.folder / "plan.yaml").write_text(text)

    def headway(self, *words: str, code: int = 0) -> tuple[str, str]:
        process = self.start(*words)
        out, err = process.communicate(timeout=WITHIN_S)
        assert process.returncode == code, err + out
        return out, err

    def results(self) -> list[dict[str, Any]]:
        out, _ = self.headway("results", "--all")
        return [json.loads(line) for line in out.splitlines()]


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    with made(tmp_path) as found:
        yield found


@contextmanager
def made(tmp_path: Path, *limits: str) -> Iterator[Scene]:
    programs, folder = tmp_path / "bin", tmp_path / "plan"
    programs.mkdir()
    folder.mkdir()
    for name in ("claude", "hermes"):
        program = programs / name
        script = HERE / f"fake_{name}.py"
        program.write_text(f'#!/bin/sh\nexec {sys.executable} -S {script} "$@"\n')
        program.chmod(0o755)
    home = tmp_path / "home"
    (home / ".config" / "headway").mkdir(parents=True)
    (home / ".config" / "headway" / "config.toml").write_text(HERMES)
    provider = ("--model", "agent", "--first-byte-s", "0.1", "--per-token-s", "0.0001", *limits)
    with place_of_its_own() as place, launched(*provider) as url:
        env = {
            "PATH": f"{programs}:/usr/bin:/bin", "HOME": str(home), "LANG": "C.UTF-8",
            "PYTHONPATH": os.pathsep.join((str(ROOT / "src"), str(ROOT))),
            "HEADWAY_RUNTIME_DIR": place.runtime, "HEADWAY_STATE_DIR": place.state,
            "ANTHROPIC_BASE_URL": url, "ANTHROPIC_API_KEY": "dummy",
            "OPENAI_BASE_URL": f"{url}/v1", "OPENAI_API_KEY": "dummy",
        }  # fmt: skip
        yield Scene(folder, env, url)


def test_a_plan_of_agents_that_was_killed_goes_on_in_their_own_sessions(scene: Scene) -> None:
    """The provider's own count says what was paid twice."""
    scene.plan(EDITS)
    scene.killed_after(7, "run", "plan.yaml", "--yes")
    before = scene.calls
    _, err = scene.headway("resume")
    for task in ("edit[1]", "edit[2]", "edit[3]"):
        assert f"{task} goes on in its own session (claude" in err
        assert f"{task} went on in its own session (claude)" in err
    scene.headway("results", "--apply")
    for item in (1, 2, 3):
        assert (scene.folder / f"{item}.txt").read_text() == "first\nlast\n"
    needed = 3 * 4
    twice = int(err.split("calls paid twice: ")[1].split()[0])
    # Each of the three has one call in flight; one sent in the moment of the kill is not counted.
    assert twice <= before, err
    assert scene.calls - needed <= max(twice, 3), err
    rows = scene.results()
    assert [row["agent"]["how"] for row in rows] == ["session"] * 3
    for row in rows:
        told, seen = row["agent"]["told"], row["agent"]["metered"]
        assert min(row["usd"], seen["usd"]) > 0
        # The program tells what its last process took; the gateway knows of the killed one, too.
        assert told["input_tokens"] <= seen["input_tokens"] == row["input_tokens"]
        assert row["agent"]["turns"] <= seen["calls"]
    (truth,) = truth_of(scene.url, "?arrivals=0")["accounts"].values()
    given = sum(row["input_tokens"] for row in rows)
    assert needed <= sum(row["agent"]["metered"]["calls"] for row in rows) <= truth["whole"]
    assert given <= truth["reported"]["input_tokens"]
    out, _ = scene.headway("status")
    assert "went on in its own session" in out
    homes = list(Path(scene.env["HEADWAY_STATE_DIR"]).glob("runs/*/agents/*"))
    assert len(homes) == 3, "each session has a home of its own"
    assert all(os.listdir(home) == ["session.json"] for home in homes), "and leaves none behind"


def torn(home: Path) -> None:
    (session,) = home.glob("claude/projects/*/*.jsonl")
    session.write_bytes(session.read_bytes()[:-40])


def of_other_types(home: Path) -> None:
    known = json.loads((home / "session.json").read_text())
    (home / "session.json").write_text(json.dumps({**known, "repairs": "x", "attempt": None}))


@pytest.mark.parametrize("damage", [torn, of_other_types, rmtree])
def test_a_session_that_cannot_be_read_is_begun_again_from_what_was_recorded(
    scene: Scene, damage: Callable[[Path], object]
) -> None:
    scene.plan(EDITS.replace("[1, 2, 3]", "[1]"))
    scene.killed_after(3, "run", "plan.yaml", "--yes")
    (home,) = Path(scene.env["HEADWAY_STATE_DIR"]).glob("runs/*/agents/*")
    damage(home)
    _, err = scene.headway("resume")
    assert "edit[1] began again, its recorded calls replayed (claude)" in err
    (row,) = scene.results()
    assert row["agent"]["how"] == "replay"
    assert row["agent"]["metered"]["calls"] == 4, "each call is paid once, whoever was answered"


@pytest.mark.parametrize("how", [(), ("--no-gateway",)])
def test_an_answer_that_does_not_fit_is_repaired_in_the_same_session(
    scene: Scene, how: tuple[str, ...]
) -> None:
    scene.plan(
        "headway: 1\ntasks:\n  one:\n    agent: claude\n    prompt: 'Run `echo 1`.'\n"
        "    verify: |\n      test -e seen || { touch seen; echo 'Run `echo 2`.'; exit 1; }\n"
    )
    scene.headway("run", "plan.yaml", "--yes", *how)
    (row,) = scene.results()
    assert "2" in row["output"]
    assert row["attempts"] == 1
    assert scene.calls == 4
    told = row["agent"]["told"]["usd"]
    assert told == 4 * 0.0625, "what the session cost is told by each of its processes, and is once"
    assert (row["usd"] == told) is bool(how)


def replies(journal: Path) -> int:
    """How many answers of a run's agents are recorded."""
    with JournalReader(str(journal.parent)) as reader:
        return sum(b'"replied"' in line for _, line in reader.documents(CALL))


def test_an_agent_without_sessions_is_answered_from_the_recording(scene: Scene) -> None:
    scene.plan(
        "headway: 1\ntasks:\n  one:\n    agent: hermes\n    model: hash\n    prompt: 'Hello.'\n"
    )
    waits = scene.folder.parent / "waits"
    waits.touch()
    scene.env["HERMES_WAITS"] = str(waits)
    process = scene.start("run", "plan.yaml", "--yes")
    folder = Path(scene.env["HEADWAY_STATE_DIR"], "runs")
    until_s = monotonic() + WITHIN_S
    while not any(replies(path) == 2 for path in folder.glob("*/journal.db")):
        assert monotonic() < until_s
        assert process.poll() is None
        sleep(0.02)
    process.kill()
    process.communicate()
    waits.unlink()
    _, err = scene.headway("resume")
    assert "one begins again; its recorded calls are replayed" in err
    assert "one began again, its recorded calls replayed (hermes): 0 of 2 calls paid twice" in err
    assert scene.calls == 3
    (row,) = scene.results()
    assert row["agent"]["replayed"] == 2
    assert len(row["output"]) == 64
    (truth,) = truth_of(scene.url, "?arrivals=0")["accounts"].values()
    assert row["agent"]["metered"]["calls"] == truth["whole"] == 3, "what was killed is counted"
    for name in ("input_tokens", "output_tokens"):
        assert row[name] == row["agent"]["metered"][name] == truth["reported"][name]


def test_agents_that_nobody_knows_or_has_are_refused_before_anything_runs(scene: Scene) -> None:
    scene.plan(EDITS.replace("agent: claude", "agent: cluade"))
    for verb in ("check", "run"):
        _, err = scene.headway(verb, "plan.yaml", code=3)
        assert "plan.yaml:5:12" in err
        assert "did you mean `claude`?" in err
    out, _ = scene.headway("check", "plan.yaml", "--json", code=3)
    assert json.loads(out)["refused"][0]["where"] == "plan.yaml:5:12"
    scene.plan(EDITS.replace("agent: claude", "agent: codex"))
    scene.headway("check", "plan.yaml")
    _, err = scene.headway("run", "plan.yaml", code=2)
    assert "no `codex` on the PATH" in err
    assert "npm install -g @openai/codex" in err
    assert not Path(scene.env["HEADWAY_STATE_DIR"], "runs").exists()
    assert scene.calls == 0


def test_an_agent_that_met_an_empty_usage_window_goes_on_in_its_own_session(
    tmp_path: Path,
) -> None:
    with made(tmp_path, "--window", "5h=400/8s") as scene:
        scene.plan(EDITS.replace("[1, 2, 3]", "[1]"))
        _, err = scene.headway("run", "plan.yaml", "--yes", "--no-wait", code=75)
        assert "usage window" in err
        before = scene.calls
        _, err = scene.headway("resume")
        assert "edit[1] goes on in its own session (claude" in err
        assert "edit[1] went on in its own session (claude)" in err
        assert "calls paid twice: 0 of" in err
        scene.headway("results", "--apply")
        assert (scene.folder / "1.txt").read_text() == "first\nlast\n"
        (row,) = scene.results()
        assert row["agent"]["metered"]["calls"] >= 4
        assert before
