"""Effects from a plan to the world: `headway run`, `status` and `resume`, and Python programs."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from msgspec import Struct

import headway
from headway.errors import EffectFailedError, StateError

PLAN = """\
headway: 1
name: notify
state:
  mail: effect(./send.sh)
  log: effect(helpers:log)
tasks:
  write:
    each: [c, a, b]
    run: |
      case $item in c) sleep 0.3;; esac
      echo "hello $item" > "$HEADWAY_PUT/mail"
      echo "wrote $item" > "$HEADWAY_PUT/log"
    reads: []
    writes: [effect:mail, effect:log]
"""
SEND = """\
test -e broken && { echo "no such host" >&2; exit 3; }
echo "$HEADWAY_EFFECT_KEY $(cat)" >> mail
"""
HELPERS = """\
def log(payload, key):
    with open("log", "a") as file:
        file.write(f"{key} {payload}\\n")
    return len(payload)
"""


class Home(Struct, frozen=True):
    """A folder with the plan, and its own state."""

    folder: Path

    def run(self, *words: str, crash_at: str = "") -> tuple[int, str, str]:
        (self.folder / "r").mkdir(exist_ok=True, mode=0o700)
        environment = {
            **os.environ,
            "PYTHONPATH": str(Path(headway.__file__).parents[1]),
            "HEADWAY_STATE_DIR": str(self.folder / "state"),
            "HEADWAY_RUNTIME_DIR": str(self.folder / "r"),
            "HEADWAY_CRASH_AT": crash_at,
        }
        ended = subprocess.run(
            [sys.executable, "-m", "headway", *words], cwd=self.folder, env=environment,
            capture_output=True, text=True, check=False, timeout=300, start_new_session=True,
        )  # fmt: skip
        return ended.returncode, ended.stdout, ended.stderr

    def sent(self, channel: str) -> list[tuple[str, str]]:
        path = self.folder / channel
        lines = path.read_text().splitlines() if path.exists() else []
        return [(line[:32], line[33:]) for line in lines]


@pytest.fixture
def home(tmp_path: Path) -> Home:
    (tmp_path / "plan.yaml").write_text(PLAN)
    (tmp_path / "helpers.py").write_text(HELPERS)
    (tmp_path / "send.sh").write_text(f"#!/bin/sh\n{SEND}")
    (tmp_path / "send.sh").chmod(0o755)
    return Home(tmp_path)


MAIL = ['"hello c"', '"hello a"', '"hello b"']
LOG = ["wrote c", "wrote a", "wrote b"]


def test_commands_and_functions_perform_effects_in_declared_order(home: Home) -> None:
    code, _, said = home.run("run", "plan.yaml")
    assert code == 0, said
    assert [text for _, text in home.sent("mail")] == MAIL
    assert [text for _, text in home.sent("log")] == LOG
    keys = [key for channel in ("mail", "log") for key, _ in home.sent(channel)]
    assert len(set(keys)) == 6
    assert "effects   6 performed" in home.run("status")[1]


def test_a_channel_that_fails_leaves_the_run_incomplete_and_resume_goes_on_there(
    home: Home,
) -> None:
    (home.folder / "broken").touch()
    code, _, said = home.run("run", "plan.yaml")
    assert code == 1
    assert "3 of 3 done; 3 effects were not performed" in said
    assert "exit 3: no such host; 2 more wait behind it" in said
    assert "next: headway resume " in said
    assert [text for _, text in home.sent("log")] == LOG
    status = home.run("status")[1]
    assert "stopped: 3 effects were not performed" in status
    assert "in doubt: mail of write[c], key " in status
    told = json.loads(home.run("status", "--json")[1])
    assert (told["state"], told["effects"]["done"], told["effects"]["in_doubt"]) == (
        "stopped",
        3,
        1,
    )

    (home.folder / "broken").unlink()
    code, _, said = home.run("resume")
    assert code == 0, said
    (key,) = told["effects"]["doubts"]
    assert (
        f"in doubt: mail of write[c], key {key}: it may have been sent; it is sent again with the "
        "same key\n"
    ) in said
    assert [text for _, text in home.sent("mail")] == MAIL
    assert home.sent("mail")[0][0] == key
    assert [text for _, text in home.sent("log")] == LOG
    assert "effects   6 performed" in home.run("status")[1]


@pytest.mark.parametrize("point", ["intended", "performed", "receipted"])
def test_after_a_kill_each_effect_is_seen_once_by_whoever_honours_its_key(
    home: Home, point: str
) -> None:
    assert home.run("run", "plan.yaml", crash_at=f"{point}:3")[0] == -signal.SIGKILL
    doubted = json.loads(home.run("status", "--json")[1])["effects"]["doubts"]
    assert doubted or point == "receipted"
    code, _, said = home.run("resume")
    assert code == 0, said
    assert all(f"key {key}: it may have been sent" in said for key in doubted)
    for channel, texts in (("mail", MAIL), ("log", LOG)):
        came = home.sent(channel)
        assert list(dict(came).values()) == texts
        keys = [key for key, _ in came]
        assert {key for key in keys if keys.count(key) > 1} <= set(doubted)


def test_a_program_is_told_of_an_effect_that_was_not_performed(tmp_path: Path) -> None:
    def send(payload: object, key: str) -> object:
        raise OSError("no route")

    plan = headway.Plan("notify", effects={"mail": send})
    plan.task("write", lambda ctx: ctx.effect("mail", "hello"))
    with pytest.raises(EffectFailedError, match=r"effect mail of write, .*: OSError: no route"):
        plan.run()


def test_an_effect_now_happens_at_once_and_is_refused_where_it_would_hold_up_others() -> None:
    came: list[tuple[object, str]] = []

    def send(payload: object, key: str) -> object:
        came.append((payload, key))
        return "taken"

    def first(ctx: headway.Context) -> int:
        ctx.effect("mail", "in order")
        ctx.now("mail", "at once")
        return len(came)

    async def second(ctx: headway.Context) -> str:
        with pytest.raises(StateError) as refused:
            ctx.now("mail", "never")
        assert "asyncio.to_thread(ctx.now" in str(refused.value.hint)
        await asyncio.to_thread(ctx.now, "mail", "beside")
        return "done"

    plan = headway.Plan("notify", effects={"mail": send})
    plan.task("first", first)
    plan.task("second", second)
    run = plan.run()
    assert run.results == {"first": run.results["first"], "second": "done"}
    assert sorted(str(text) for text, _ in came) == ["at once", "beside", "in order"]
    assert [text for text, _ in came].index("at once") < len(came) - 1
