"""Parser, Enricher and Validator over the same orders: loose, ordered, and with `needs` removed.

Loose is what "The Parallelization Trap" tells of: three agents that share a dictionary and start
together. The Enricher pulls the Parser's output while it is written, the Validator checks half an
answer, its corrections contradict what the Parser wrote, and everybody calculates again. The other
ways are headway itself: the real engine, with the same agents, on the same simulated provider.

Laws:
- Every way has the same orders, the same model and as many agents at once: three.
- A model answers what it is asked; who is wrong was shown something that was not so.
- What is wrong is judged against the orders, after the run; nobody in it knows the truth.
"""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal

from headway.core.digest import digest
from headway.core.engine.coherence import Coherence
from headway.core.engine.engine import Rules
from headway.core.engine.snapshot import Shared
from headway.core.engine.strategy import Fixed
from headway.core.foresight.draw import lognormal
from headway.core.foresight.provider import Call, Latency, ProviderSpec
from headway.core.plan.graph import Graph, Group, Need
from headway.core.plan.touches import ANYTHING
from headway.errors import InternalError
from headway.runtime.driver import Driver, Setup
from headway.runtime.keeping import Memory
from headway.runtime.lessons import Lesson, hints_for, lessons_of
from headway.runtime.work import Attempt, Needed, Result
from headway.simulator.clockwork import Clockwork, Live
from headway.simulator.orders import (
    ADDED,
    CORRECT,
    ENRICH,
    PARSE,
    VALIDATE,
    Flag,
    Order,
    answer_to,
    draw_orders,
    fields_of,
    flags_of,
)
from headway.simulator.tokens import count, pieces_of
from headway.testing import run_virtual

AGENTS: Final = 3
LATENCY: Final = Latency(first_byte_s=0.6, per_output_token_s=0.02)
LUCK_SIGMA: Final = 0.4
"""How much the time to the first byte varies from call to call."""
LUCK_STREAM: Final = 9001
LOOK_S: Final = 0.1
"""How often a loose agent looks whether there is something for it."""
LOOKS_MAX: Final = 20
"""How often the Validator looks for the Enricher's part of a record that is parsed."""
ROUNDS_MAX: Final = 3
"""How often a loose record is validated, corrected and calculated again."""
PARSES_MAX: Final = 2
"""How often the Parser writes a record that somebody else has changed meanwhile."""
LEARNING_RUNS: Final = 2
"""After the first: whoever reads what two others write is made to run again by one at a time."""
LAST: Final = 1 << 62
"""Behind the places of all tasks."""

Role = Literal["parse", "enrich", "validate"]
ROLES: Final[tuple[Role, ...]] = ("parse", "enrich", "validate")


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one way of running the three agents came to."""

    way: str
    false_errors: int
    """Flagged, and not there."""
    contradictory: int
    """Corrections that ask for something else than what the order says."""
    wrong_records: int
    """Records, or what is said of their errors, that are not as they should be in the end."""
    tokens: int
    seconds: float
    calls: int
    reran: int
    """Attempts that headway did again, because what they had read had changed."""


@dataclass(slots=True)
class Told:
    """What was left behind, and what was said on the way."""

    records: dict[int, str] = field(default_factory=dict)
    checks: dict[int, list[Flag]] = field(default_factory=dict)
    """By order: what the Validator said last."""
    flagged: list[tuple[int, Flag]] = field(default_factory=list)
    """Everything that was said to be wrong."""
    corrections: list[tuple[int, Flag]] = field(default_factory=list)
    """Everything that the Enricher was told to change."""
    reran: int = 0


class Model:
    """A simulated provider with a good model."""

    __slots__ = ("_clockwork", "_seed", "calls", "tokens")

    def __init__(self, seed: int) -> None:
        self._clockwork = Clockwork(ProviderSpec("demo", latency=LATENCY), seed)
        self._seed = seed
        self.calls = 0
        self.tokens = 0.0

    def __repr__(self) -> str:
        return f"<Model, {self.calls} calls, {self.tokens:.0f} tokens>"

    def statistics(self) -> tuple[int, float]:
        """Calls and tokens so far."""
        return self.calls, self.tokens

    @property
    def now_s(self) -> float:
        return self._clockwork.now()

    async def ask(self, prompt: str, told: Callable[[str], None] | None = None) -> str:
        """The answer; `told` is given what there is of it while it is written."""
        self.calls += 1
        answer = answer_to(prompt)
        pieces = pieces_of(answer)
        luck = lognormal(self._seed, LUCK_STREAM, self.calls, LUCK_SIGMA)
        call = Call(self.calls, count(prompt), len(pieces), len(pieces), luck)
        live = self._clockwork.submit(call, "demo", told is not None)
        if not isinstance(live, Live):
            raise InternalError("a provider without limits refused a call")
        try:
            while live.ended is None:
                await live.changed()
                if told is not None:
                    told("".join(pieces[: live.reached]))
        finally:
            # Whoever hangs up pays for what was written.
            ended = live.ended if live.ended is not None else self._clockwork.cancel(live)
            if ended is not None:
                self.tokens += ended.input_tokens + ended.output_tokens
        return answer

    def close(self) -> None:
        self._clockwork.stop()


def compare(records: int, seed: int) -> list[Outcome]:
    """Every way, with the same orders and the same luck."""
    orders = draw_orders(records, seed)
    one, ordered = Ordered(orders, agents=1), Ordered(orders)
    free = Ordered(orders, has_needs=False)
    first = performed("headway: `needs` removed", orders, seed, free.run)
    for _ in range(LEARNING_RUNS):
        learned = performed("headway: removed, edges learned", orders, seed, free.run)
    return [
        performed("one agent after another", orders, seed, one.run),
        performed("loose: one dict, started together", orders, seed, run_loose),
        performed("headway: `needs` declared", orders, seed, ordered.run),
        first,
        learned,
    ]


def judge(way: str, told: Told, orders: Sequence[Order], model: Model) -> Outcome:
    """What a run came to, against what is true."""
    false_errors = sum(flag.field not in orders[number].flaws for number, flag in told.flagged)
    contradictory = sum(
        orders[number].record[flag.field] != flag.wanted for number, flag in told.corrections
    )
    wrong = sum(
        fields_of(told.records.get(number, "")) != order.record
        or {flag.field for flag in told.checks.get(number, ())} != order.flaws
        for number, order in enumerate(orders)
    )
    return Outcome(
        way, false_errors, contradictory, wrong, round(model.tokens), round(model.now_s, 1),
        model.calls, told.reran,
    )  # fmt: skip


async def run_loose(orders: Sequence[Order], model: Model) -> Told:
    """Three agents, one dictionary, no order."""
    board = Board(orders, model)
    parser = asyncio.create_task(board.parse())
    enricher = asyncio.create_task(board.enrich())
    await board.validate()
    await parser
    enricher.cancel()
    await asyncio.gather(enricher, return_exceptions=True)
    return board.told


class Board:
    """The dictionary, and the agents around it."""

    __slots__ = ("_context", "_inbox", "_is_busy", "_model", "_orders", "_parsed", "told")

    def __init__(self, orders: Sequence[Order], model: Model) -> None:
        self._orders = orders
        self._model = model
        self.told = Told()
        self._inbox: deque[tuple[int, list[Flag]]] = deque()
        """Corrections that the Enricher has not come to."""
        self._is_busy = False
        self._parsed = 0
        """How many records the Parser is done with."""
        self._context: dict[int, str] = {}
        """Of the Enricher, by record: what it has read, said and been told. It does not read again
        what it has read: that is what a context is."""

    def __repr__(self) -> str:
        return f"<Board of {len(self._orders)} orders, {len(self._inbox)} corrections>"

    def statistics(self) -> int:
        """How many corrections wait."""
        return len(self._inbox)

    async def parse(self) -> None:
        """Writes each record; if it is not what he wrote when he is done, he writes it again."""
        for number, order in enumerate(self._orders):
            for _ in range(PARSES_MAX):
                said = await self._write(number, f"{PARSE}\n{order.text}")
                await asyncio.sleep(LOOK_S)
                if self.told.records[number] == said:
                    break
            self._parsed = number + 1

    async def enrich(self) -> None:
        """Takes each record as soon as there is something of it; corrections come first."""
        number = 0
        while True:
            await self._correct()
            if number < len(self._orders) and self.told.records.get(number):
                await self._add(number, self._text(number))
                number += 1
            else:
                await asyncio.sleep(LOOK_S)

    async def validate(self) -> None:
        """Checks each record as soon as there is something of the Enricher's in it."""
        again: deque[tuple[int, int]] = deque((number, 1) for number in range(len(self._orders)))
        while again:
            number, turn = again.popleft()
            looks = 0
            while looks < LOOKS_MAX and not self._is_enriched(number):
                looks += self._parsed > number
                await asyncio.sleep(LOOK_S)
            flags = flags_of(await self._model.ask(f"{VALIDATE}\n{self._text(number)}"))
            self.told.checks[number] = flags
            self.told.flagged += ((number, flag) for flag in flags)
            wanted = [flag for flag in flags if flag.field in ADDED]
            if wanted and turn < ROUNDS_MAX:
                self.told.corrections += ((number, flag) for flag in wanted)
                self._inbox.append((number, wanted))
                again.append((number, turn + 1))
        while self._inbox or self._is_busy:
            await asyncio.sleep(LOOK_S)

    async def _correct(self) -> None:
        while self._inbox:
            number, flags = self._inbox.popleft()
            self._is_busy = True
            wanted = "".join(f"{CORRECT}{flag.field}: {flag.wanted}\n" for flag in flags)
            await self._add(number, self._context.get(number) or self._text(number), wanted)
            self._is_busy = False

    async def _add(self, number: int, known: str, wanted: str = "") -> None:
        """The Enricher's part, from what it has in its context."""
        asked = f"{known}{wanted}"
        self._context[number] = asked + await self._write(number, f"{ENRICH}\n{asked}")

    async def _write(self, number: int, prompt: str) -> str:
        """Let an answer become the record, as it is written."""

        def write(text: str) -> None:
            self.told.records[number] = text

        return await self._model.ask(prompt, write)

    def _is_enriched(self, number: int) -> bool:
        return any(name in fields_of(self._text(number)) for name in ADDED)

    def _text(self, number: int) -> str:
        return self.told.records.get(number, "")


class Ordered:
    """The same agents as tasks of headway: one for each order and agent, in declared order."""

    __slots__ = ("_agents", "_has_needs", "_lessons", "_orders")

    def __init__(
        self, orders: Sequence[Order], has_needs: bool = True, agents: int = AGENTS
    ) -> None:
        self._orders = orders
        self._has_needs = has_needs
        self._agents = agents
        self._lessons: tuple[Lesson, ...] = ()
        """What earlier runs have taught."""

    def __repr__(self) -> str:
        return f"<Ordered {len(self._orders)} orders{', needs' if self._has_needs else ''}>"

    def statistics(self) -> int:
        """How many lessons were learned."""
        return len(self._lessons)

    async def run(self, orders: Sequence[Order], model: Model) -> Told:
        """Perform it; what was seen is known the next time."""
        tasks = [Task(role, number, order, model) for number, order in enumerate(orders)
                 for role in ROLES]  # fmt: skip
        groups = [self._group(place, task) for place, task in enumerate(tasks)]
        graph = Graph(groups)
        coherence = Coherence(graph, Shared(), hints_for(graph, self._lessons))
        clock = asyncio.get_running_loop().time
        rules = Rules(Fixed(self._agents))
        await Driver(Setup(graph, tasks, rules, Memory(), clock, coherence=coherence)).run()
        self._lessons += lessons_of(graph, coherence)
        return _told(orders, coherence)

    def _group(self, place: int, task: Task) -> Group:
        needs = (Need(place - 1),) if self._has_needs and task.role != "parse" else ()
        return Group(task.name, 1, needs, touches=ANYTHING)


@dataclass(frozen=True, slots=True)
class Task:
    """One agent and one order."""

    role: Role
    number: int
    order: Order
    model: Model
    is_local: bool = False
    is_idle_until_sent: bool = False
    publishes: bool = False
    timeout_s: float | None = None

    @property
    def name(self) -> str:
        return f"{self.role}-{self.order.number}"

    def label(self, member: int) -> str:
        del member
        return self.name

    def key(self, member: int) -> bytes:
        return digest(f"{self.name}/{member}".encode())

    def count(self, needed: Callable[[str], list[Needed]]) -> int:
        raise NotImplementedError

    def publish(self, member: int, body: bytes | None) -> None:
        raise NotImplementedError

    async def perform(self, attempt: Attempt) -> Result:
        """Read the record, ask, put the answer there: through the shared state and nowhere else."""
        snapshot, record = attempt.snapshot, f"records/{self.number}"
        assert snapshot is not None
        prompt = f"{PARSE}\n{self.order.text}"
        if self.role != "parse":
            with attempt.lock:
                text = json.loads(snapshot.get(record) or b'""')
            prompt = f"{ENRICH if self.role == 'enrich' else VALIDATE}\n{text}"
        answer = await self.model.ask(prompt)
        with attempt.lock:
            snapshot.prompted(prompt.encode())
            snapshot.put(record if self.role != "validate" else f"checks/{self.number}", answer)
        return Result(answer.encode())


def performed(
    way: str, orders: Sequence[Order], seed: int,
    run: Callable[[Sequence[Order], Model], Awaitable[Told]],
) -> Outcome:  # fmt: skip
    """One way from its beginning to its end, in virtual time."""

    async def main() -> Outcome:
        model = Model(seed)
        try:
            told = await run(orders, model)
        finally:
            model.close()
        return judge(way, told, orders, model)

    return run_virtual(main())


def _told(orders: Sequence[Order], coherence: Coherence) -> Told:
    """What headway committed."""
    told = Told(reran=coherence.statistics().stale)
    for number in range(len(orders)):
        record, _ = coherence.shared.value(f"records/{number}", LAST)
        check, _ = coherence.shared.value(f"checks/{number}", LAST)
        told.records[number] = json.loads(record or b'""')
        flags = told.checks[number] = flags_of(json.loads(check or b'""'))
        told.flagged += ((number, flag) for flag in flags)
        told.corrections += ((number, flag) for flag in flags if flag.field in ADDED)
    return told
