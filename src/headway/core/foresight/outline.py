"""What a plan will do, as far as it can be told before it runs: parts, sizes, who needs whom.

An outline is drawn into a workload: every call with a size of its own, as it may really be.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from math import ceil
from typing import Final

from headway.core.foresight.draw import lognormal
from headway.core.foresight.provider import Call
from headway.core.foresight.sample import GUESS_FIRST_BYTE_S, GUESS_PER_TOKEN_S, Workload
from headway.core.foresight.sizes import Mood, Sizes, calls_drawn, draw, mood
from headway.core.foresight.speed import Speed
from headway.core.plan.graph import Graph, Need, Task
from headway.core.quota.demand import Price
from headway.core.values import Amounts, Demand

LUCK_STREAM: Final = 111
PART_SEED: Final = 7919
"""Parts are drawn apart: the same member of two parts has luck of its own in each."""

INPUT_DOUBT: Final = 1.2
"""The most that an input exceeds its estimate by."""


@dataclass(frozen=True, slots=True)
class Part:
    """Tasks of a plan that are alike."""

    name: str
    count: int
    needs: tuple[Need, ...] = ()
    """Of other parts, by their place in the outline."""
    model: str = ""
    """Who is asked; empty for tasks that ask nobody."""
    sizes_bytes: tuple[float, ...] = ()
    """Of the prompts, as far as they can be written now; by turns, if fewer than tasks."""
    given: tuple[int, ...] = ()
    """Parts whose answers its prompts contain."""
    given_before: float = 0.0
    """Tokens of such answers in the inputs that its sizes were learned from, on average."""
    calls: float = 1.0
    """Of each task, where nothing was learned."""
    max_tokens: float = 4096.0
    seconds: tuple[float, ...] = ()
    """What tasks like these took on this machine, before their first call if they make any."""
    price: Price | None = None

    @property
    def asks(self) -> bool:
        return bool(self.model) and self.calls > 0.0


@dataclass(frozen=True, slots=True)
class Outline:
    """All parts of a plan in declared order."""

    parts: tuple[Part, ...]

    @property
    def tasks(self) -> int:
        return sum(part.count for part in self.parts)

    @property
    def calls(self) -> float:
        """About so many."""
        return sum(part.count * max(1.0, part.calls) for part in self.parts if part.asks)

    @property
    def steps(self) -> float:
        """What there is to draw: calls, and tasks that make none."""
        return self.calls + sum(part.count for part in self.parts if not part.asks)

    def times(self, part: Outline) -> float:
        """How many times as much as a cropped one it is."""
        if self.calls:
            return self.calls / part.calls
        return self.tasks / max(1, part.tasks)


@dataclass(frozen=True, slots=True)
class Drawn:
    """One way in which a plan may really go: the tasks of its parts, one after another."""

    outline: Outline
    calls: tuple[tuple[Call, ...], ...]
    """Of every task."""
    needs: tuple[tuple[int, ...], ...]
    """Of every task, the tasks that it needs, by number."""
    amounts: Amounts
    """Of all calls together."""
    seconds: tuple[float, ...]
    """Of every task, what it takes on this machine."""

    @property
    def count(self) -> int:
        return sum(map(len, self.calls))


def drawn(outline: Outline, known: Mapping[str, Sizes], speed: Speed, seed: int) -> Drawn:
    """Draw every call of a plan."""
    calls: list[tuple[Call, ...]] = []
    answers: list[list[float]] = []
    seconds: list[float] = []
    for place, part in enumerate(outline.parts):
        sizes = known.get(part.name) or known.get(part.model) or Sizes()
        own = mood(sizes, seed * PART_SEED + place)
        seconds += _seconds(part, seed * PART_SEED + place)
        mine: list[float] = []
        for member in range(part.count):
            made = _calls(part, sizes, own, member, answers, speed) if part.asks else ()
            calls.append(made)
            mine.append(made[-1].output_tokens if made else 0.0)
        answers.append(mine)
    every = [call for made in calls for call in made]
    amounts = Amounts(
        sum(call.input_tokens for call in every), sum(call.output_tokens for call in every),
        round(sum(call.spend_microusd for call in every)),
    )  # fmt: skip
    return Drawn(outline, tuple(calls), needs_of(outline), amounts, tuple(seconds))


def needs_of(outline: Outline) -> tuple[tuple[int, ...], ...]:
    """Of every task, the tasks that it needs, by number."""
    firsts = (0, *accumulate(part.count for part in outline.parts))
    found: list[tuple[int, ...]] = []
    for part in outline.parts:
        for member in range(part.count):
            mine: list[int] = []
            for need in part.needs:
                first, count = firsts[need.group], outline.parts[need.group].count
                low = min(count, need.block * member) if need.block else 0
                high = min(count, low + need.block) if need.block else count
                mine += range(first + low, first + high)
            found.append(tuple(mine))
    return tuple(found)


def workload_of(one: Drawn) -> Workload:
    """The same as the engine and the simulated provider take it.

    Nobody knows beforehand which task of a part will take long: all of them weigh the same.
    """
    tasks: list[Task] = []
    number = 0
    for part in one.outline.parts:
        alike = one.calls[number : number + part.count]
        tokens = sum(call.output_tokens for calls in alike for call in calls)
        each = GUESS_FIRST_BYTE_S * part.calls + GUESS_PER_TOKEN_S * tokens / max(1, part.count)
        here_s = sum(part.seconds) / max(1, len(part.seconds))
        weight_s = here_s + (each if part.asks else 0.0)
        for calls in alike:
            demands = tuple(_demand(call, part) for call in calls)
            needs = tuple(f"t{other}" for other in one.needs[number])
            tasks.append(Task(f"t{number}", needs, demands, weight_s, kind=part.name))
            number += 1
    return Workload("plan", Graph.of(tasks), one.calls, one.seconds)


def cropped(outline: Outline, steps_max: int) -> Outline:
    """The same plan with fewer tasks in its large parts, so that it has about so many steps."""
    share = steps_max / max(1.0, outline.steps)
    if share >= 1.0:
        return outline
    parts = []
    for part in outline.parts:
        count = min(part.count, max(1, ceil(part.count * share)))
        # Spread over all prompts, so that the few are like the many.
        sizes = part.sizes_bytes
        kept = tuple(sizes[len(sizes) * at // count] for at in range(count)) if sizes else ()
        parts.append(replace(part, count=count, sizes_bytes=kept))
    return Outline(tuple(parts))


def _calls(
    part: Part, sizes: Sizes, own: Mood, member: int, answers: Sequence[Sequence[float]],
    speed: Speed,
) -> tuple[Call, ...]:  # fmt: skip
    """The calls of one task, one after another."""
    count = calls_drawn(sizes, own, member, part.calls)
    size = part.sizes_bytes[member % len(part.sizes_bytes)] if part.sizes_bytes else 0.0
    dearer = sizes.dearer(part.price) if part.price is not None else 1.0
    made = []
    for number in range(count):
        index = member * 64 + number
        tokens_in, tokens_out = draw(sizes, own, index, size)
        given = sum(_given(part, member, source, answers[source]) for source in part.given)
        tokens_in = max(1.0, tokens_in + given - part.given_before)
        tokens_out = min(tokens_out, part.max_tokens)
        call = _call(part, tokens_in, tokens_out, speed, own.seed, index)
        made.append(replace(call, spend_microusd=dearer * call.spend_microusd))
    return tuple(made)


def _seconds(part: Part, seed: int) -> list[float]:
    """What each task takes here: as long as those that were seen, weighed anew in every draw."""
    if not part.seconds:
        return [0.0] * part.count
    weights = mood(Sizes(bare=part.seconds), seed)
    return [part.seconds[weights.pick(member)] for member in range(part.count)]


def _given(part: Part, member: int, source: int, answers: Sequence[float]) -> float:
    """Tokens of the answers that one task is given of another part."""
    blocks = [need.block for need in part.needs if need.group == source]
    block = blocks[0] if blocks else 0
    return sum(answers[block * member : block * (member + 1)] if block else answers)


def _call(
    part: Part, tokens_in: float, tokens_out: float, speed: Speed, seed: int, index: int
) -> Call:
    """A call whose own luck is that of all of its time, carried by its first byte."""
    latency = speed.latency
    luck = lognormal(seed, LUCK_STREAM, index, speed.luck)
    first_s = max(1e-3, latency.first_byte_s)
    factor = 1.0 + (luck - 1.0) * latency.work_s(tokens_out) / first_s
    price = part.price
    cost = price.cost_microusd(Amounts(tokens_in, tokens_out)) if price is not None else 0
    return Call(index, round(tokens_in), round(tokens_out), part.max_tokens, max(0.0, factor), cost)


def _demand(call: Call, part: Part) -> Demand:
    expected = Amounts(call.input_tokens, call.output_tokens, round(call.spend_microusd))
    return Demand(expected, Amounts(INPUT_DOUBT * call.input_tokens, call.max_tokens), part.name)
