"""A model that adds up what it is shown, and somebody who lets it reduce results of plans."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from time import monotonic, sleep
from typing import Any

from msgspec import Struct, field

from headway.base.digest import DIGEST_BYTES, digest
from headway.engine.events import TaskFinished, TaskStarted
from headway.journal.reader import JournalReader
from headway.sim.account import Terms
from headway.sim.models import ModelReply, SimulatedModels, asked
from headway.sim.provider import Latency, ProviderSpec
from headway.sim.server import ServeOptions, serving, truth_of
from headway.sim.truth import pieces_of
from headway.wire.values import Conversation
from tests.integration.strangers_shell import Stranger

WAIT_S_MAX = 60.0
PROBE = re.compile(r"Look at i(\d+), (\d+) words")
TOTAL = re.compile(r"total=(\d+)")


def worth(number: int) -> int:
    """What the result of an item is worth."""
    return 7 * number + 1


class Adder(SimulatedModels, frozen=True):
    """Answers from what is in the prompt alone; every prompt is remembered."""

    prompts: list[str] = field(default_factory=list)

    def reply(self, conversation: Conversation) -> ModelReply:
        text = asked(conversation)
        self.prompts.append(text)
        found = PROBE.match(text)
        if found is not None:
            words = "We have seen all of this here many times.\n" * (int(found[2]) // 10)
            return ModelReply(pieces_of(f"{words}total={worth(int(found[1]))}\n"))
        head, _, results = text.partition("\n\n## ")
        total = sum(map(int, TOTAL.findall(results)))
        missing = " with some missing" if "Missing:" in head else ""
        return ModelReply(pieces_of(f"total={total}{missing}"))


class Scene(Struct):
    """Somebody who runs plans on a provider that can be asked what it was asked."""

    stranger: Stranger
    url: str
    model: Adder

    def told(self) -> dict[str, str]:
        return {"ANTHROPIC_BASE_URL": self.url, "ANTHROPIC_API_KEY": "k", "HEADWAY_CRASH_AT": ""}

    def __call__(self, *arguments: str, crash: str = "") -> Any:
        return self.stranger(*arguments, **self.told() | {"HEADWAY_CRASH_AT": crash})

    def begin(self, *arguments: str) -> subprocess.Popen[bytes]:
        """The same, and do not wait for it."""
        environment = self.stranger.environment | self.told()
        return subprocess.Popen(
            [sys.executable, "-m", "headway", *arguments], cwd=self.stranger.here, env=environment,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL,
        )  # fmt: skip

    def killed_at(self, calls: int, *arguments: str) -> None:
        """Kill it with its first so many calls sent, unless it is done before."""
        before, until_s = len(self.model.prompts), monotonic() + WAIT_S_MAX
        process = self.begin(*arguments)
        while len(self.model.prompts) < before + calls and process.poll() is None:
            assert monotonic() < until_s
            sleep(0.002)
        process.send_signal(signal.SIGKILL)
        process.wait()

    def visits(self) -> list[dict[str, Any]]:
        """Every call that came, with all that became of it."""
        until_s = monotonic() + WAIT_S_MAX
        while True:
            told = truth_of(self.url, "?arrivals=all")["arrivals"]
            if all(one["ended_s"] is not None for one in told):
                return list(told)
            assert monotonic() < until_s
            sleep(0.01)

    def rows(self) -> dict[str, str]:
        """States by the names of tasks."""
        with JournalReader(str(self.stranger.runs()[-1])) as reader:
            return {row.name: row.state for row in reader.rows()}

    def durable(self) -> set[bytes]:
        """The digests of prompts whose replies nobody may pay for again, by the last journal."""
        found: set[bytes] = set()
        with JournalReader(str(self.stranger.runs()[-1])) as reader:
            for row in reader.rows():
                bodies = [reader.body(one) or b"" for one in row.kept]
                found |= {body[DIGEST_BYTES : 2 * DIGEST_BYTES] for body in bodies}
                item = row.name.partition("[")[2][:-1]
                if row.state == "finished" and row.name.startswith("probe["):
                    found.add(digest(f"Look at {item}".encode()))
        return found

    def performed_twice(self) -> list[str]:
        """Tasks that started again after they had finished."""
        done: set[bytes] = set()
        again: list[str] = []
        with JournalReader(str(self.stranger.runs()[-1])) as reader:
            for one in reader.events(kinds=("task_started", "task_finished")):
                if isinstance(one.event, TaskFinished):
                    done.add(one.key)
                elif one.key in done:
                    row = reader.row(one.key)
                    again.append("" if row is None else row.name)
        return again

    def sent(self, since: int) -> set[bytes]:
        """The digests of prompts that came after the first so many."""
        return {digest(text.encode()) for text in self.model.prompts[since:]}

    def spans(self, name: str) -> list[tuple[float, float]]:
        """When tasks of a group started and finished."""
        found: dict[bytes, list[float]] = {}
        with JournalReader(str(self.stranger.runs()[-1])) as reader:
            keys = {row.key for row in reader.rows() if row.name.startswith(f"{name}[")}
            for one in reader.events():
                if one.key in keys and isinstance(one.event, TaskStarted | TaskFinished):
                    found.setdefault(one.key, []).append(one.event.at_s)
        return [(times[0], times[-1]) for times in found.values()]

    def plan(self, items: Sequence[tuple[int, int]], more: str) -> None:
        """A plan whose items have a number and a number of words each."""
        listed = ", ".join(f"'i{number}, {words} words'" for number, words in items)
        self.stranger.write(
            "plan.yaml",
            f"headway: 1\nmodel: anthropic/claude-add\ntasks:\n"
            f"  probe: {{each: [{listed}], prompt: 'Look at {{{{ item }}}}',"
            f" max_tokens: 40k}}\n"
            f"  verdict: {{reduce: probe, prompt: Add up all totals., {more}}}\n",
        )


@contextmanager
def scene(home: Path, first_byte_s: float = 0.005) -> Iterator[Scene]:
    """A provider in this process, and a folder to run plans in."""
    model = Adder()
    spec = ProviderSpec("t", Terms(), Latency(first_byte_s, 0.00002))
    with serving(spec, ServeOptions(models=model)) as url:
        yield Scene(Stranger(home), url, model)
