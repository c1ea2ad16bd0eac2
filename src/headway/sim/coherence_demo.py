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
import re
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal

from headway.base.records import digest
from headway.engine.state import Rules
from headway.engine.strategy import Strategy
from headway.errors import InternalError
from headway.journal.memory import NullJournal
from headway.plans.graph import Graph, Need, TaskGroup
from headway.plans.resources import ANYTHING
from headway.run.driver import Driver, RunSetup
from headway.sim.delivery import Clockwork, Live
from headway.sim.draw import lognormal, uniform
from headway.sim.provider import Latency, ProviderSpec, SimulatedCall
from headway.sim.truth import count, pieces_of
from headway.state.coherence import Coherence
from headway.state.learned_edges import Lesson, hints_for, lessons_of
from headway.state.shared import Shared
from headway.testing import run_virtual
from headway.work import Attempt, Needed, Result

# Orders that three agents work on: what is written, what a good model makes of it, what is true.

PARSE: Final = "Parse this order into a record, one field a line."
ENRICH: Final = "Enrich this record: country, net, vat and gross, in cents."
VALIDATE: Final = "Validate this record: flag every field that is missing or wrong."
CORRECT: Final = "correct: "
"""Before each line that somebody else wants to be different."""

ADDED: Final = ("country", "net", "vat", "gross")
"""What the Enricher adds to a record."""
UNKNOWN: Final = "unknown"
VAT_PERCENT: Final = {"DE": 19, "FR": 20, "IT": 22, "ES": 21, "NL": 21, UNKNOWN: 0}
COUNTRIES: Final = {
    "Berlin": "DE", "Hamburg": "DE", "Paris": "FR", "Lyon": "FR", "Rome": "IT", "Turin": "IT",
    "Madrid": "ES", "Seville": "ES", "Utrecht": "NL", "Delft": "NL",
}  # fmt: skip
CUSTOMERS: Final = ("Acme Tools", "Blue Mill", "Corner Shop", "Dahl and Sons", "Elm Street Works")
GOODS: Final = ("drill", "saw", "glue", "hammer", "ladder", "paint", "rope", "screw", "tape")
MISSTATED_SHARE: Final = 0.2
"""Of orders whose sender has added up wrongly: the errors that are there to be found."""

_ORDER: Final = re.compile(
    r"Order (\d+) from (.+?) in (\w+): (.+)\. They say it is (\d+) cents\.", re.DOTALL
)
_ITEM: Final = re.compile(r"(\d+) (\w+) at (\d+)")
_LINE: Final = re.compile(r"(\w+): (.+)")
_FLAG: Final = re.compile(r"flag: (\w+) is (.+), should be (.+)")


@dataclass(frozen=True, slots=True)
class OrderItem:
    """So many of something, at a price each."""

    count: int
    what: str
    cents: int


@dataclass(frozen=True, slots=True)
class DemoOrder:
    """An order as it really is."""

    number: int
    customer: str
    city: str
    items: tuple[OrderItem, ...]
    stated_cents: int
    """What its sender says that it comes to."""

    @property
    def text(self) -> str:
        """As it arrives."""
        items = ", ".join(f"{item.count} {item.what} at {item.cents}" for item in self.items)
        return (
            f"Order {self.number} from {self.customer} in {self.city}: {items}. "
            f"They say it is {self.stated_cents} cents."
        )

    @property
    def record(self) -> dict[str, str]:
        """All that is to be known of it in the end."""
        parsed = {"order": f"{self.number}", "customer": self.customer}
        for place, item in enumerate(self.items):
            parsed[f"item{place}"] = f"{item.count} {item.what} {item.cents}"
        parsed |= {"stated": f"{self.stated_cents}", "city": self.city}
        return parsed | added(parsed)

    @property
    def flaws(self) -> frozenset[str]:
        """The fields in which there is an error to be found."""
        return (
            frozenset() if self.record["net"] == self.record["stated"] else frozenset(("stated",))
        )


@dataclass(frozen=True, slots=True)
class Flag:
    """What a Validator holds to be wrong."""

    field: str
    wanted: str
    """What it should be."""


def draw_orders(count: int, seed: int) -> list[DemoOrder]:
    """So many orders; the same for the same seed."""
    return [_drawn(number, seed) for number in range(count)]


def fields_of(text: str) -> dict[str, str]:
    """A record as fields; what is half written is taken as it is."""
    found = (_LINE.fullmatch(line) for line in text.splitlines())
    return {line[1]: line[2] for line in found if line is not None}


def flags_of(answer: str) -> list[Flag]:
    """What a Validator's answer flags."""
    found = (_FLAG.fullmatch(line) for line in answer.splitlines())
    return [Flag(line[1], line[3]) for line in found if line is not None]


def added(record: dict[str, str]) -> dict[str, str]:
    """What follows from the parsed part of a record."""
    country = COUNTRIES.get(record.get("city", ""), UNKNOWN)
    net = sum(_cents(text) for name, text in record.items() if name.startswith("item"))
    vat = round(net * VAT_PERCENT[country] / 100)
    return {"country": country, "net": f"{net}", "vat": f"{vat}", "gross": f"{net + vat}"}


def answer_to(prompt: str) -> str:
    """What a good model answers: right for what it is shown."""
    asked, _, text = prompt.partition("\n")
    return _ANSWERS[asked](text)


def _parsed(text: str) -> str:
    found = _ORDER.search(text)
    if found is None:
        return "nothing to parse\n"
    number, customer, city, items, stated = found.groups()
    lines = [f"order: {number}", f"customer: {customer}"]
    for place, (number_of, what, cents) in enumerate(_ITEM.findall(items)):
        lines.append(f"item{place}: {number_of} {what} {cents}")
    return _text([*lines, f"stated: {stated}", f"city: {city}"])


def _enriched(text: str) -> str:
    """The record with what follows from it; where a correction was sent, what that asks for."""
    lines = text.splitlines()
    corrections = fields_of("\n".join(_after(CORRECT, lines)))
    record = fields_of("\n".join(line for line in lines if not line.startswith(CORRECT)))
    parsed = {name: value for name, value in record.items() if name not in ADDED}
    whole = parsed | added(parsed) | corrections
    return _text([f"{name}: {value}" for name, value in whole.items()])


def _validated(text: str) -> str:
    record = fields_of(text)
    right = added({name: value for name, value in record.items() if name not in ADDED})
    flags = [
        f"flag: {name} is {record.get(name, 'missing')}, should be {right[name]}"
        for name in ADDED
        if record.get(name) != right[name]
    ]
    if record.get("stated") != right["net"]:
        flags.append(f"flag: stated is {record.get('stated', 'missing')}, should be {right['net']}")
    return _text(flags or ["everything is right"])


_ANSWERS: Final[dict[str, Callable[[str], str]]] = {
    PARSE: _parsed,
    ENRICH: _enriched,
    VALIDATE: _validated,
}


def _after(mark: str, lines: list[str]) -> Iterator[str]:
    return (line.removeprefix(mark) for line in lines if line.startswith(mark))


def _text(lines: list[str]) -> str:
    return "".join(f"{line}\n" for line in lines)


def _cents(text: str) -> int:
    """The price of an item; one that is not written to its end yet counts as far as it is."""
    parts = text.split()
    if len(parts) < 3 or not (parts[0].isdigit() and parts[2].isdigit()):
        return 0
    return int(parts[0]) * int(parts[2])


def _drawn(number: int, seed: int) -> DemoOrder:
    draws = (uniform(seed, 7000 + number, index) for index in range(1000))

    def pick(count: int) -> int:
        return int(next(draws) * count)

    cities = tuple(COUNTRIES)
    items = tuple(
        OrderItem(1 + pick(9), GOODS[pick(len(GOODS))], 100 + pick(9900))
        for _ in range(2 + pick(4))
    )
    net = sum(item.count * item.cents for item in items)
    stated = net + 100 * (1 + pick(50)) if next(draws) < MISSTATED_SHARE else net
    customer, city = CUSTOMERS[pick(len(CUSTOMERS))], cities[pick(len(cities))]
    return DemoOrder(1001 + number, customer, city, items, stated)


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
class DemoOutcome:
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
class DemoRecord:
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
        call = SimulatedCall(self.calls, count(prompt), len(pieces), len(pieces), luck)
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


def compare(records: int, seed: int) -> list[DemoOutcome]:
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


def judge(way: str, told: DemoRecord, orders: Sequence[DemoOrder], model: Model) -> DemoOutcome:
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
    return DemoOutcome(
        way, false_errors, contradictory, wrong, round(model.tokens), round(model.now_s, 1),
        model.calls, told.reran,
    )  # fmt: skip


async def run_loose(orders: Sequence[DemoOrder], model: Model) -> DemoRecord:
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

    def __init__(self, orders: Sequence[DemoOrder], model: Model) -> None:
        self._orders = orders
        self._model = model
        self.told = DemoRecord()
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
        self, orders: Sequence[DemoOrder], has_needs: bool = True, agents: int = AGENTS
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

    async def run(self, orders: Sequence[DemoOrder], model: Model) -> DemoRecord:
        """Perform it; what was seen is known the next time."""
        tasks = [DemoTask(role, number, order, model) for number, order in enumerate(orders)
                 for role in ROLES]  # fmt: skip
        groups = [self._group(place, task) for place, task in enumerate(tasks)]
        graph = Graph(groups)
        coherence = Coherence(graph, Shared(), hints_for(graph, self._lessons))
        clock = asyncio.get_running_loop().time
        rules = Rules(Strategy("fixed", self._agents))
        await Driver(RunSetup(graph, tasks, rules, NullJournal(), clock, coherence=coherence)).run()
        self._lessons += lessons_of(graph, coherence)
        return _told(orders, coherence)

    def _group(self, place: int, task: DemoTask) -> TaskGroup:
        needs = (Need(place - 1),) if self._has_needs and task.role != "parse" else ()
        return TaskGroup(task.name, 1, needs, touches=ANYTHING)


@dataclass(frozen=True, slots=True)
class DemoTask:
    """One agent and one order."""

    role: Role
    number: int
    order: DemoOrder
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
    way: str, orders: Sequence[DemoOrder], seed: int,
    run: Callable[[Sequence[DemoOrder], Model], Awaitable[DemoRecord]],
) -> DemoOutcome:  # fmt: skip
    """One way from its beginning to its end, in virtual time."""

    async def main() -> DemoOutcome:
        model = Model(seed)
        try:
            told = await run(orders, model)
        finally:
            model.close()
        return judge(way, told, orders, model)

    return run_virtual(main())


def _told(orders: Sequence[DemoOrder], coherence: Coherence) -> DemoRecord:
    """What headway committed."""
    told = DemoRecord(reran=coherence.reruns)
    for number in range(len(orders)):
        record, _ = coherence.shared.value(f"records/{number}", LAST)
        check, _ = coherence.shared.value(f"checks/{number}", LAST)
        told.records[number] = json.loads(record or b'""')
        flags = told.checks[number] = flags_of(json.loads(check or b'""'))
        told.flagged += ((number, flag) for flag in flags)
        told.corrections += ((number, flag) for flag in flags if flag.field in ADDED)
    return told
