"""A disk that becomes full loses nothing that ended, says which disk it is, and lets a run end."""

from __future__ import annotations

import random
import signal
import subprocess
import time
from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import pytest

from tests.promises.disk import filled, mounted
from tests.promises.user import User, openai_at, provider, until, user

WITHIN_S: Final = 5.0
TASKS: Final = 12
PROMPTS: Final = 4
DISK_MB: Final = 24

COMMAND: Final = """\
#!/bin/sh
# Begins, takes its time, prints its size in letters, and says that it has ended.
echo "begin $1" >> "$2/ledger"
sleep "$3"
head -c "$4" /dev/zero | tr '\\0' a
echo " $1"
echo "end $1" >> "$2/ledger"
"""


def plan(someone: User, chance: random.Random) -> dict[str, str]:
    """Commands of all sizes and a few prompts: what each has to give."""
    someone.write("work.sh", COMMAND)
    lines = ["headway: 1", "model: openai/echo", "tasks:"]
    expected = {}
    for number in range(TASKS):
        size = chance.choice([10, 1_000, 15_000, 20_000, 100_000, 300_000])
        wait_s = chance.choice([0.0, 0.1, 0.3])
        lines += [f"  c{number}:", f"    run: sh work.sh c{number} . {wait_s} {size}"]
        expected[f"c{number}"] = "a" * size + f" c{number}\n"
    for number in range(PROMPTS):
        lines += [f"  p{number}:", f"    prompt: say p{number}", "    max_tokens: 50"]
        lines += [f"    needs: [c{number}]"]
    someone.write("plan.yaml", "\n".join(lines))
    return expected


def ledger(someone: User) -> Counter[str]:
    path = someone.folder / "ledger"
    return Counter(path.read_text().splitlines()) if path.exists() else Counter()


def count(someone: User, word: str) -> int:
    return sum(number for line, number in ledger(someone).items() if line.startswith(word))


def is_idle(someone: User) -> bool:
    """Whether no command runs: what has ended is reaped."""
    return not any("work.sh" in words for words in someone.processes("HOME").values())


@pytest.mark.parametrize(
    "seed",
    [seed if seed == 1 else pytest.param(seed, marks=pytest.mark.soak) for seed in range(20)],
)
def test_a_disk_that_becomes_full_loses_nothing(
    tmp_path: Path, seed: int, request: pytest.FixtureRequest
) -> None:
    """Even seeds: the run goes on by itself; odd ones: SIGTERM while it is full, then a resume."""
    chance = random.Random(seed)
    with ExitStack() as stack:
        disk = stack.enter_context(mounted(tmp_path / "disk", DISK_MB, request))
        sim = stack.enter_context(provider("--first-byte-s", "0.05"))
        more = {"HEADWAY_STATE_DIR": str(disk / "state"), **openai_at(sim, "key")}
        someone = stack.enter_context(user(tmp_path / "user", more))
        expected = plan(someone, chance)
        said = tmp_path / "said"
        with said.open("w") as file:
            process = someone.start(
                "run", "plan.yaml", "-j3", "--yes", stdout=subprocess.DEVNULL, stderr=file
            )
        moment = chance.randrange(TASKS)
        until(lambda: count(someone, "begin") > moment)
        time.sleep(chance.uniform(0.0, 0.2))
        code, err = 0, ""
        with filled(disk):
            until(lambda: str(disk) in said.read_text() or process.poll() is not None)
            if seed % 2 and process.poll() is None:
                # A call that is cut off may be paid again; one that has ended may not.
                until(lambda: is_idle(someone) and not sim.truth()["in_flight"])
                began_s = time.monotonic()
                process.send_signal(signal.SIGTERM)
                process.wait(60)
                took_s = time.monotonic() - began_s
                assert took_s <= WITHIN_S
                code = process.returncode
                assert code == 130, said.read_text()
        process.wait(60)
        err = said.read_text()
        done = set(ledger(someone))
        if process.returncode:
            again = someone.headway("resume", "-q")
            assert again.returncode == 0, (err, again.stderr)
        got = {one["task"]: one.get("output") for one in someone.json("results", "--all")}
        calls = sim.account("key") or {}
    print(f"seed {seed}: full after {moment} began, exit {code}: {err!r}")
    assert "Traceback" not in err
    assert "exit code" not in err
    if process.returncode != 0 or "held" in err:
        assert f"the disk of {disk}" in err
    assert {name: got.get(name) for name in expected} == expected
    twice = [line for line, number in ledger(someone).items() if number > 1]
    assert not [line for line in twice if line.startswith("end") and line in done], twice
    assert calls is not None
    assert calls["accepted"] == PROMPTS, "no finished prompt is paid again"


OWN_FILE: Final = """\
headway: 1
tasks:
  one:
    run: >-
      echo 1 >> "$PLACE/begun"; until [ -e "$PLACE/go" ]; do sleep .05; done;
      head -c 3000000 /dev/zero > big && echo done
"""
OUTPUT: Final = """\
headway: 1
tasks:
  one:
    run: >-
      echo 1 >> "$PLACE/begun"; until [ -e "$PLACE/go" ]; do sleep .05; done;
      head -c 3000000 /dev/zero
    output: answer.txt
"""


@pytest.mark.parametrize("text", [OWN_FILE, OUTPUT], ids=["own file", "output"])
def test_a_full_disk_of_the_project_is_no_failure_of_a_task(
    tmp_path: Path, text: str, request: pytest.FixtureRequest
) -> None:
    """What a command writes itself finds no room, or what the plan names as its output."""
    with mounted(tmp_path / "disk", 8, request) as disk, user(disk / "user") as someone:
        someone.env |= {"HEADWAY_STATE_DIR": str(tmp_path / "state"), "PLACE": str(tmp_path)}
        someone.write("plan.yaml", text)
        said = tmp_path / "said"
        with said.open("w") as file:
            process = someone.start("run", "plan.yaml", stdout=subprocess.DEVNULL, stderr=file)
        until(lambda: (tmp_path / "begun").exists() or process.poll() is not None)
        with filled(disk):
            (tmp_path / "go").touch()
            until(lambda: f"the disk of {disk}" in said.read_text() or process.poll() is not None)
            assert f"the disk of {disk}" in said.read_text()
        until(lambda: process.poll() is not None)
        if process.returncode:
            assert someone.headway("resume").returncode == 0
        (got,) = someone.json("results", "--all")
        assert got["state"] == "done"
        if text is OUTPUT:
            assert (someone.folder / "answer.txt").stat().st_size == 3_000_000
            assert (tmp_path / "begun").read_text() == "1\n", "it had finished"
    assert "failed after" not in said.read_text()


def test_a_run_that_waits_for_room_says_so_and_stays_readable(
    tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """Outputs too large for what is left: nothing more can be written down, the reason neither."""
    with ExitStack() as stack:
        disk = stack.enter_context(mounted(tmp_path / "disk", 12, request))
        more = {"HEADWAY_STATE_DIR": str(disk / "state")}
        someone = stack.enter_context(user(tmp_path / "user", more))
        said = tmp_path / "said"
        with said.open("w") as file:
            process = someone.start(
                "each", "-j2", "head -c 3000000 /dev/zero; echo {}", ":::", *"12345678",
                stdout=subprocess.DEVNULL, stderr=file,
            )  # fmt: skip
        until(lambda: f"held: the disk of {disk}" in said.read_text())
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 130
        status = someone.headway("status")
        assert "stopped: interrupted" in status.stdout, status.stderr
        again = someone.headway("resume")
        assert f"the disk of {disk}" in again.stderr
        assert "spoilt" not in again.stderr
