"""Commands and agents that do nothing: ended where the user says so, and never while they work."""

from __future__ import annotations

from pathlib import Path

from tests.integration.strangers_shell import Stranger
from tests.integration.test_plan_agents import Scene, made

NOTHING = "wrote, called and computed nothing"
WORKING = {
    "writes": "for i in 1 2 3 4 5 6 7 8 9 10; do echo $i; sleep 0.5; done",
    "computes": "timeout 5 sh -c 'while :; do :; done'; true",
}


def test_a_command_that_does_nothing_is_ended_and_those_that_work_are_not(
    stranger: Stranger,
) -> None:
    stranger.write("writes.sh", WORKING["writes"])
    stranger.write("computes.sh", WORKING["computes"])
    stranger.write("waits.sh", "echo began; sleep 600")
    said = stranger(
        "each", "--stuck", "3s", "-j3", "sh {}.sh", ":::", "writes", "computes", "waits"
    )
    assert said.code == 1
    assert stranger.status()["tasks"] == {"total": 3, "done": 2, "failed": 1, "stuck": 1}
    assert "2 of 3 done, 1 failed (1 of them stuck)" in said.err
    why = stranger("why", "last", "waits").out
    assert NOTHING in why
    assert "stuck" in why


def test_a_stuck_command_is_tried_again(stranger: Stranger) -> None:
    stranger.write(
        "plan.yaml",
        "headway: 1\nstuck: 2s\ntasks:\n  once:\n    retries: 1\n"
        "    run: test -e seen || { touch seen; sleep 600; }\n",
    )
    said = stranger("run", "plan.yaml")
    assert said.code == 0, said.err
    assert "stuck: ended after" in stranger("why", "last", "once").out


def test_a_stuck_agent_goes_on_in_its_own_session(tmp_path: Path) -> None:
    with made(tmp_path) as scene:
        _goes_on(scene)


def _goes_on(scene: Scene) -> None:
    scene.plan(
        "headway: 1\nmodel: claude-haiku-4-5\ntasks:\n  edit:\n    agent: claude\n    stuck: 3s\n"
        "    prompt: Run `echo first >> 1.txt`, then `test -e seen || { touch seen; sleep 600; }`, "
        "then `echo last >> 1.txt`.\n"
    )
    _, err = scene.headway("run", "plan.yaml", "--yes")
    assert "edit went on in its own session (claude)" in err
    scene.headway("results", "--apply")
    assert (scene.folder / "1.txt").read_text() == "first\nlast\n"
