"""Runs to look at: one with all that can happen, and large ones."""

from __future__ import annotations

import random
from pathlib import Path

from headway.base.digest import digest
from headway.base.values import Fault
from headway.engine.events import (
    CallAdmitted,
    CallWaited,
    Ending,
    RunBegan,
    RunFinished,
    TaskDelayed,
    TaskFailed,
    TaskFinished,
    TaskStarted,
)
from headway.engine.record import LimitsSeen, LimitUse
from tests.integration.written_runs import BEGAN_S, Writer

NAMES = ("review", "fix", "verify", "summarize")
LIMITS = ("input/60s", "output/60s", "requests/60s")


def busy_run(state: Path, tasks: int, width: int = 24) -> str:
    """Tasks that wait, are refused, are tried again and fail, and limits that change and reset."""
    chance = random.Random(3)
    names = [f"{NAMES[n % 4]}[src/module_{n:05d}.py]" for n in range(tasks)]
    writer = Writer(state, names)
    writer.tell(RunBegan(BEGAN_S, "adaptive"))
    free_s = [chance.random() for _ in range(width)]
    for number in range(tasks):
        lane = number % width
        now_s = BEGAN_S + free_s[lane]
        writer.tell(TaskStarted(number, 1, now_s, "there is room"))
        writer.tell(CallWaited(number, now_s + 0.2))
        now_s += 0.2 + chance.expovariate(0.5)
        writer.tell(CallAdmitted(number, now_s, LIMITS[number % 3]))
        if number % 37 == 5:
            writer.tell(CallWaited(number, now_s + 0.6, "rate: input"))
            now_s += 2.6
            writer.tell(CallAdmitted(number, now_s, LIMITS[0]))
        now_s += 1.0 + chance.expovariate(0.3)
        lost = Ending(input_tokens=900.0, spend_microusd=2000, calls=1)
        fault = Fault("server", detail="500 Internal Server Error")
        if number % 53 == 7:
            writer.tell(TaskDelayed(number, 1, now_s, now_s + 2.0, fault, lost))
            now_s += 2.0
            writer.tell(TaskStarted(number, 2, now_s, "its delay is over"))
            writer.tell(CallAdmitted(number, now_s + 0.1))
            now_s += 2.0
        attempt = 1 + (number % 53 == 7)
        if number % 101 == 11:
            writer.tell(TaskFailed(number, attempt, now_s, fault, lost))
        else:
            body = f"Module {number} has {number % 5} findings.\n".encode()
            spend = 4200 + 90 * (number % 100)
            ending = Ending(digest(body), b"", 1200.0 + number % 77, 240.0, spend, 1)
            writer.tell(TaskFinished(number, attempt, now_s, ending), body)
        free_s[lane] = now_s - BEGAN_S + 0.05
        if number % max(1, tasks // 300) == 0:
            share = number / tasks
            used = (0.7 + 0.3 * chance.random(), 0.5 + 0.2 * chance.random())
            seen = (
                LimitUse("acme sonnet", "input/60s", 400e3 * used[0], 400e3),
                LimitUse("acme sonnet", "requests/60s", 700 * used[1], 700 + 300 * (share > 0.6)),
                LimitUse("acme sonnet", "window 5h", (0.55 + share) % 1.0, 1.0,
                         BEGAN_S + (20.0 if share < 0.45 else 9000.0)),
            )  # fmt: skip
            writer.tell(LimitsSeen(BEGAN_S + min(free_s), seen))
    failed = len(range(11, tasks, 101))
    writer.tell(RunFinished(BEGAN_S + max(free_s), tasks - failed, failed))
    return writer.close()
