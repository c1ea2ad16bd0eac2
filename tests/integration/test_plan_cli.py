"""`headway plan` in the hands of strangers, against a scripted model on the simulated provider."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.integration.strangers_shell import Said, Stranger

GOOD = """\
headway: 1
name: greet
tasks:
  greet:
    each: [Ada, Grace]
    prompt: "Greet {{ item }}"
  card:
    reduce: greet
    context: 8k
    prompt: Put the greetings on a card
    output: out/card.md
"""
HOSTILE = "headway: 1\ntasks:\n  t: {run: touch canary; touch ../canary}\n"
ASK = "Write the plan."
AGAIN = "Your answer cannot be used"


class Scene(Stranger):
    """A stranger with a model that follows a script."""

    def script(self, first: str, second: str = "") -> None:
        """What it answers when it is asked for a plan, and when it is told what is wrong."""
        rules = [
            {"contains": AGAIN, "answer": f"```yaml\n{second or first}```"},
            {"contains": ASK, "answer": f"Sure!\n```yaml\n{first}```\n"},
            {"contains": "Put the greetings on a card", "answer": "a card"},
            {"answer": "hello"},
        ]
        self.write("script.yaml", json.dumps({"rules": rules}))

    def plan(self, *options: str, goal: str = "Greet Ada and Grace") -> Said:
        return self("plan", goal, "--sim", "script.yaml", *options)

    @property
    def files(self) -> list[str]:
        """What is there beside the script."""
        found = (str(path.relative_to(self.here)) for path in self.here.rglob("*"))
        return sorted(name for name in found if name != "script.yaml")


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(tmp_path)


def test_a_plan_is_written_and_told_and_not_run(scene: Scene) -> None:
    scene.script(GOOD)
    said = scene.plan()
    assert said.code == 0, said.err
    assert said.out == ""
    assert scene.files == ["plan.yaml"]
    written = (scene.here / "plan.yaml").read_text()
    assert written == GOOD.replace("headway: 1\n", "headway: 1\nmodel: openai/script\n")
    assert "3 tasks on 2 levels" in said.err
    assert "plan.yaml is written, in 1 calls" in said.err
    assert "headway run plan.yaml --budget" in said.err
    assert scene.runs() == []
    again = scene.plan()
    assert (again.code, "plan.yaml is there already" in again.err) == (2, True)
    assert scene("check", "plan.yaml").code == 0


def test_a_plan_can_be_run_at_once_within_a_budget(scene: Scene) -> None:
    scene.script(HOSTILE, GOOD)
    refused = scene.plan("--run")
    assert (refused.code, "within a budget" in refused.err) == (2, True)
    said = scene.plan("--run", "--budget", "1M", "-o", "cards.yaml")
    assert said.code == 0, said.err
    assert "refused: HW014" in said.err
    assert (scene.here / "out" / "card.md").read_text() == "a card"
    assert sorted(scene.results()) == ["card", "greet[Ada]", "greet[Grace]"]
    assert "canary" not in "".join(scene.files)
    status = scene.status()
    assert status["tasks"] == {"total": 3, "done": 3}


def test_a_model_that_never_gets_right_is_refused_and_its_draft_is_kept(scene: Scene) -> None:
    scene.script(HOSTILE)
    said = scene.plan("--run", "--budget", "1M")
    assert said.code == 3
    assert "error[HW015]: the model gave no plan that can be used, in 4 tries" in said.err
    assert "error[HW014]: `tasks.t.run` is a command to execute" in said.err
    assert scene.files == ["plan.refused.yaml"]
    kept = (scene.here / "plan.refused.yaml").read_text()
    assert kept.startswith("# A model wrote this, and it was refused:\n# HW014: `tasks.t.run`")
    assert kept.endswith(HOSTILE)
    assert not (scene.here.parent / "canary").exists()
    assert scene.runs() == []
    told = json.loads(scene.plan("--json").out)
    assert [one["code"] for one in told["refused"]] == ["HW015", "HW014"]


def test_what_would_be_asked_can_be_seen_without_asking(scene: Scene) -> None:
    scene.script(GOOD)
    scene.write("src/a.py", "the content")
    scene.write(".env", "a secret")
    said = scene("plan", "Explain", "--model", "openai/gpt-5-mini", "--dry-run", "--files", "src/*")
    assert said.code == 0, said.err
    assert '<files>\n"src/a.py"\n</files>' in said.out
    assert "- `reduce` (of a task)" in said.out
    assert "content" not in said.out
    assert "plan.yaml" not in scene.files


def test_a_plan_can_go_to_stdout_and_its_goal_come_from_stdin(scene: Scene) -> None:
    scene.script(GOOD)
    line = "echo 'Greet $(touch canary) them' | $headway plan - -o - --sim script.yaml"
    said = scene.shell(line)
    assert said.out.startswith("headway: 1\n")
    assert scene.files == []


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (("-o", "-", "--run", "--budget", "1M"), "need a file"),
        (("-o", "no/where.yaml"), "is no folder"),
        (("--budget", "much"), "is not an amount"),
        (("--files", "*.rs"), "matches no file"),
    ],
)
def test_what_makes_no_sense_is_refused_before_anything_is_asked(
    scene: Scene, options: tuple[str, ...], told: str
) -> None:
    said = scene("plan", "Greet Ada", "--model", "openai/m", *options)
    assert (said.code, told in said.err) == (2, True)
