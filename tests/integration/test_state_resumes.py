"""A durable run of functions that share a state, killed anywhere, goes on to the serial result."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import headway

PROGRAM = """
import asyncio, json, os, sys
import headway

WIDE = sys.argv[1]

def note(kind, name):
    with open("performed", "a") as file:
        file.write(f"{kind} {name}\\n")

async def count(number, ctx):
    seen = ctx.get("count", 0)
    await asyncio.sleep(0.002 * (number % 3))
    ctx.put("count", seen + 1)
    ctx.add("log", [number, seen])
    ctx.put(f"drawn/{number}", [ctx.random.random(), ctx.time_s])
    note("count", number)
    return seen

def look(item, ctx):
    found = ctx.scan("drawn/*")
    ctx.effect("mail", {"item": item, "found": len(found), "count": ctx["count"]})
    note("look", item)
    return len(found)

def send(payload, key):
    with open("sent", "a") as file:
        file.write(json.dumps([payload, key]) + "\\n")

plan = headway.Plan("books", state={"log": "append"}, effects={"mail": send})
plan.task("count", count, each=list(range(8)))
plan.task("look", look, each=["a", "b"])
run = plan.run(durable="books", strategy=WIDE)
created = {value[1] for key, value in run.state.items() if key.startswith("drawn/")}
state = {key: value[0] if key.startswith("drawn/") else value for key, value in run.state.items()}
told = {"state": state, "results": run.results, "reran": run.reran, "times": len(created)}
print(json.dumps(told))
"""


class Home:
    """A folder with the program, and a state of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(exist_ok=True)
        (folder / "program.py").write_text(PROGRAM)

    def run(self, strategy: str = "all-at-once", crash: str = "") -> tuple[int, str]:
        environment = {
            **os.environ,
            "PYTHONPATH": str(Path(headway.__file__).parents[1]),
            "HEADWAY_STATE_DIR": str(self.folder / "state"),
            **({"HEADWAY_CRASH_AT": crash} if crash else {}),
        }
        ended = subprocess.run(
            [sys.executable, "program.py", strategy], cwd=self.folder, env=environment, check=False,
            capture_output=True, text=True, timeout=60,
        )  # fmt: skip
        return ended.returncode, ended.stdout or ended.stderr

    def lines(self, name: str) -> list[str]:
        path = self.folder / name
        return path.read_text().splitlines() if path.exists() else []


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> dict[str, object]:
    code, said = Home(tmp_path_factory.mktemp("alone") / "home").run("fixed:1")
    assert code == 0, said
    found: dict[str, object] = json.loads(said)
    assert found["reran"] == 0
    return found


@pytest.mark.parametrize("crash", ["started:5", "written:4", "durable:9", "performed:1"])
def test_a_run_that_was_killed_goes_on_to_the_serial_result(
    crash: str, alone: dict[str, object], tmp_path: Path
) -> None:
    home = Home(tmp_path)
    code, said = home.run(crash=crash)
    assert code == -signal.SIGKILL, said
    code, said = home.run()
    assert code == 0, said
    found = json.loads(said)
    assert found["state"] == alone["state"]
    assert found["results"] == alone["results"]
    assert found["times"] == 1
    sent = [json.loads(line) for line in home.lines("sent")]
    by_key = {key: payload for payload, key in sent}
    assert list(by_key.values()) == [{"item": item, "found": 8, "count": 8} for item in ("a", "b")]
    # Only what was being done when it died, and of which nobody knows, is done again.
    assert len(sent) <= 2 + (crash == "performed:1")


def test_a_run_that_is_over_performs_nothing_again(tmp_path: Path) -> None:
    home = Home(tmp_path)
    code, said = home.run()
    assert code == 0, said
    performed, sent = home.lines("performed"), home.lines("sent")
    code, again = home.run()
    assert code == 0, again
    first, second = json.loads(said), json.loads(again)
    assert second["state"] == first["state"]
    assert second["results"] == first["results"]
    assert home.lines("performed") == performed
    assert home.lines("sent") == sent
