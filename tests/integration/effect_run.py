"""A run whose tasks ask for effects, as a program that can be killed and gone on with.

    python -m tests.integration.effect_run FOLDER

The tasks end in the opposite of their declared order. Every third one reads what the first writes
last of all, so that its first attempt is stale and asks for an effect that must never leave. Each
effect is a line in FOLDER/CHANNEL. What is in doubt when it begins is said on stdout.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Callable

from msgspec import Struct

from headway.base.clock import wall_s
from headway.base.digest import digest
from headway.engine.record import EFFECTS, Header
from headway.engine.state import Rules
from headway.engine.strategy import ALL_AT_ONCE
from headway.journal.journal import Journal
from headway.plans.graph import Graph, TaskGroup
from headway.plans.resources import Channel, Touches
from headway.run.driver import Driver, RunSetup
from headway.run.takeover import Saved
from headway.state.coherence import Coherence
from headway.state.outbox import Outbox, senders
from headway.state.shared import Act, Channels, Shared
from headway.work import Attempt, Needed, Result

TASKS = 6
CHANNELS = ("mail", "sms")
RUN = "20261116-0423-a7k"
SLOW_S = 0.03


def text_of(number: int, seen: object) -> str:
    """What a task says to the world."""
    return f"{number} saw {seen}" if number and number % 3 == 0 else f"{number}"


def serial() -> list[str]:
    """What each channel is to be told, in order."""
    return [text_of(number, "first") for number in range(TASKS)]


class Tasks(Struct):
    """What every task does."""

    name: str = "notify"
    is_local: bool = False
    is_idle_until_sent: bool = False
    publishes: bool = False
    timeout_s: float | None = None

    def label(self, member: int) -> str:
        return f"notify[{member}]"

    def key(self, member: int) -> bytes:
        return digest(b"notify %d" % member)

    def count(self, needed: Callable[[str], list[Needed]]) -> int:
        raise NotImplementedError

    def publish(self, member: int, body: bytes | None) -> None:
        raise NotImplementedError

    async def perform(self, attempt: Attempt) -> Result:
        number = attempt.member
        assert attempt.snapshot is not None
        with attempt.lock:
            data = attempt.snapshot.get("word") if number % 3 == 0 else None
        seen = None if data is None else json.loads(data)
        await asyncio.sleep(SLOW_S * (TASKS - number) / TASKS)
        with attempt.lock:
            if number == 0:
                attempt.snapshot.put("word", "first")
            for channel in CHANNELS:
                attempt.snapshot.act(Act(channel, json.dumps(text_of(number, seen)).encode()))
        return Result(b"%d" % number)


def setup(journal: Journal, outbox: Outbox) -> RunSetup:
    graph = Graph((TaskGroup("notify", TASKS, touches=Touches()),))
    rows = {row.key: row for row in journal.reader.rows()}
    saved = Saved(rows, journal.reader.body, True, journal.reader.bodies)
    return RunSetup(
        graph, (Tasks(),), Rules(ALL_AT_ONCE), journal, wall_s, saved,
        coherence=Coherence(graph, Shared()), outbox=outbox,
    )  # fmt: skip


def teller(folder: str, channel: str) -> Callable[[object, str], object]:
    """Writes each effect into a file, in one go."""

    def tell(payload: object, key: str) -> object:
        line = f"{key} {payload}\n".encode()
        file = os.open(os.path.join(folder, channel), os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        os.write(file, line)
        os.close(file)
        return {"taken": payload}

    return tell


async def run(folder: str) -> int:
    place = os.path.join(folder, "run")
    header = Header(RUN, "effects", "plan", "", folder, TASKS, 1.0)
    is_new = not os.path.isdir(place)
    journal = Journal.create(place, header) if is_new else Journal.open(place)
    channels = Channels({name: Channel("effect", name) for name in CHANNELS})
    functions = {name: teller(folder, name) for name in CHANNELS}
    outbox = Outbox(RUN, senders(channels, functions, functions.__getitem__), journal, wall_s)
    try:
        for recorded in journal.reader.events(kinds=EFFECTS):
            outbox.known.apply(recorded.key, recorded.event)
        for _, doubt in outbox.known.doubts.values():
            print(doubt.channel, doubt.key, flush=True)
        journal.start(asyncio.get_running_loop())
        outcome = await Driver(setup(journal, outbox)).run()
    finally:
        journal.close()
    is_complete = outcome.finished.finished == TASKS and not await outbox.drained()
    return 0 if is_complete else 1


if __name__ == "__main__":
    sys.exit(asyncio.run(run(sys.argv[1])))
