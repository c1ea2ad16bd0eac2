"""Runs a subject, kills it again and again, and starts it again until everything is done."""

from __future__ import annotations

import os
import random
import re
import signal
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from time import monotonic, sleep
from typing import Final, Literal

from msgspec import Struct

from tests.chaos.effect import say
from tests.chaos.judge import Kill, Verdict, judge
from tests.chaos.subject import MARK, ROOT, Home, Subject

Arm = Literal["group", "alone"]
"""Whom a kill takes: every process of the run, or only the one that was started."""

LOOK_S: Final = 0.002
START_S_MAX: Final = 0.3
"""A kill that meets a process before its first task does so within this time."""

QUIET_S_MAX: Final = 30.0
"""How long after a kill processes of the run may be left; then they are orphans."""

RUN_S_MAX: Final = 120.0


class At(Struct, frozen=True):
    """When to kill: so many lines after the start and a little later; or at a place in the code."""

    lines: int = 0
    later_s: float = 0.0
    point: str = ""
    count: int = 1


class Told(Struct, frozen=True):
    verdict: Verdict
    points: frozenset[str]
    """Places in the code that it died at."""
    exit_code: int
    """Of the first process that ended by itself and not well, or of the last one."""
    complaints: str = ""


def crash_points() -> list[str]:
    """All places in headway at which it can be made to die."""
    texts = [path.read_text() for path in sorted((ROOT / "src" / "headway").rglob("*.py"))]
    found = re.findall(r'^\s+crash_point\("([^"]+)"\)', "\n".join(texts), re.MULTILINE)
    return sorted(set(found))


def spread_over(tasks: int, kills: int, seed: int) -> list[At]:
    """Kills at random, all over a run: one in eight before the first task."""
    chance = random.Random(seed)
    most = max(1, 2 * tasks // kills)
    return [
        At(0, chance.uniform(0.0, START_S_MAX)) if chance.random() < 1 / 8
        else At(chance.randint(1, most), chance.uniform(0.0, 0.03))
        for _ in range(kills)
    ]  # fmt: skip


def campaign(subject: Subject, home: Home, arm: Arm, kills: Sequence[At]) -> Told:
    """One run to its end, killed as often as was asked for and as it lasts."""
    done: list[Kill] = []
    points: set[str] = set()
    home.folder.mkdir(parents=True, exist_ok=True)
    code: int | None = None
    for at in kills:
        code = _started_and_killed(subject, home, arm, at)
        if code is not None:
            if code != 0 or not at.point:
                break  # It failed, or it is done.
            continue
        orphans = _quiet(home, arm)
        subject.observe(home)
        say(str(home.log), "kill\n")
        where = at.point or f"{at.lines} lines"
        kept = subject.kept_outside(home)
        done.append(Kill(where, subject.durable(home), kept, orphans))
        points.update({at.point} - {""})
    if not code:
        code = _start(subject, home, At()).wait(RUN_S_MAX)
    subject.observe(home)
    verdict = judge(home.lines(), done, _results(subject, home))
    orphans = verdict.orphans + _quiet(home, "alone")
    _kill_all(home)
    complaints = (home.folder / "complaints").read_text()[-2000:]
    counts = verdict.counts() | {"orphans": orphans}
    return Told(Verdict(**counts), frozenset(points), code, complaints)


def _results(subject: Subject, home: Home) -> dict[str, str]:
    found = subject.results(home)
    return {name: found.get(name, "") for name in home.names}


def _start(subject: Subject, home: Home, at: At, arm: Arm = "alone") -> subprocess.Popen[bytes]:
    whom = ":group" if arm == "group" else ""
    more = {"HEADWAY_CRASH_AT": f"{at.point}:{at.count}{whom}"} if at.point else {}
    is_first = not (home.folder / "started").exists()
    with (home.folder / "complaints").open("ab") as complaints, \
            (home.folder / "said").open("ab") as said:  # fmt: skip
        process = subprocess.Popen(
            subject.command(home, is_first), cwd=home.folder, env=home.environment(**more),
            stdin=subprocess.DEVNULL, stdout=said, stderr=complaints, start_new_session=True,
        )  # fmt: skip
    (home.folder / "started").touch()
    return process


def _started_and_killed(subject: Subject, home: Home, arm: Arm, at: At) -> int | None:
    """None once it is killed; the exit code if it ended before that."""
    before = len(home.lines())
    process = _start(subject, home, at, arm)
    until_s = monotonic() + RUN_S_MAX
    while monotonic() < until_s:
        with suppress(subprocess.TimeoutExpired):
            code = process.wait(LOOK_S)
            return None if code == -signal.SIGKILL and at.point else code
        if not at.point and len(home.lines()) - before >= at.lines:
            sleep(at.later_s)
            break
    if process.poll() is not None:
        return process.returncode
    if arm == "group":
        os.killpg(process.pid, signal.SIGKILL)
        _kill_all(home)
    process.kill()
    process.wait()
    return None


def _quiet(home: Home, arm: Arm) -> int:
    """Wait until no process of the run is left; how many had to be killed."""
    if arm == "group":
        _kill_all(home)
    until_s = monotonic() + QUIET_S_MAX
    while left := processes(home.mark):
        if monotonic() > until_s:
            _kill_all(home)
            return len(left)
        sleep(LOOK_S)
    return 0


def _kill_all(home: Home) -> None:
    """Every process of the run at once, however it was started."""
    while left := processes(home.mark, with_broker=True):
        for pid in left:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def processes(mark: str, with_broker: bool = False) -> list[int]:
    """Whoever has the mark in its environment and is not merely waiting to be reaped.

    The broker belongs to the user, not to a run: it ends by itself when nobody needs it.
    """
    wanted, found = f"{MARK}={mark}".encode(), []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            with suppress(OSError):
                variables = (entry / "environ").read_bytes().split(b"\0")
                state = (entry / "stat").read_bytes().rpartition(b")")[2].split()[0]
                is_broker = b"headway.broker.process" in (entry / "cmdline").read_bytes()
                if wanted in variables and state not in b"ZX" and (with_broker or not is_broker):
                    found.append(int(entry.name))
    return found
