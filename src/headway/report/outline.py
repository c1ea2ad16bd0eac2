"""What a plan will do, as far as it is known before it runs.

An outline is drawn into a workload: every call with a size of its own, as it may really be.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate
from math import ceil
from typing import Final

from msgspec import Struct, field
from msgspec.structs import replace

from headway.base.values import Amounts, Demand
from headway.pacing.estimate import OUTPUT_TOKENS_PRIOR, Price
from headway.plans.expand import ExpandedPlan, GroupPlan, prompt_bytes, prompt_of
from headway.plans.fan_in import FanInShape, shapes_of
from headway.plans.graph import Graph, Need, Task
from headway.plans.spec import Prompt
from headway.report.sizes import Mood, Sizes, Speed, calls_drawn, draw, mood
from headway.sim.draw import lognormal
from headway.sim.provider import SimulatedCall
from headway.sim.rehearsal import GUESS_FIRST_BYTE_S, GUESS_PER_TOKEN_S, Workload

LUCK_STREAM: Final = 111
PART_SEED: Final = 7919
"""Parts are drawn apart: the same member of two parts has luck of its own in each."""

INPUT_DOUBT: Final = 1.2
"""The most that an input exceeds its estimate by."""


class OutlinePart(Struct, frozen=True):
    """Tasks of a plan that are alike."""

    name: str
    count: int
    needs: tuple[Need, ...] = ()
    """Of other parts, by their place in the outline."""
    model: str = ""
    """Empty for tasks that call none."""
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
    repairs: int = 0
    """How often a call may be asked again, with its answer in the prompt."""
    is_new: bool = False
    """Whether it runs on this machine, and nothing of it was measured before..."""
    is_agent: bool = False
    """...and asks a model in as many calls as it takes."""

    @property
    def asks(self) -> bool:
        return bool(self.model) and self.calls > 0.0

    def block(self, source: int) -> int:
        """Members of another part that each of its own needs; 0 for all of it."""
        return next((need.block for need in self.needs if need.group == source), 0)


class Outline(Struct, frozen=True):
    """All parts of a plan in declared order."""

    parts: tuple[OutlinePart, ...]

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


class DrawnPlan(Struct, frozen=True):
    """One way in which a plan may really go: the tasks of its parts, one after another."""

    outline: Outline
    calls: tuple[tuple[SimulatedCall, ...], ...]
    needs: tuple[tuple[int, ...], ...]
    amounts: Amounts
    seconds: tuple[float, ...]
    """Of every task, what it takes on this machine."""

    @property
    def count(self) -> int:
        return sum(map(len, self.calls))


def drawn(outline: Outline, known: Mapping[str, Sizes], speed: Speed, seed: int) -> DrawnPlan:
    """Draw every call of a plan."""
    calls: list[tuple[SimulatedCall, ...]] = []
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
    return DrawnPlan(outline, tuple(calls), needs_of(outline), amounts_of(calls), tuple(seconds))


def amounts_of(calls: Sequence[Sequence[SimulatedCall]]) -> Amounts:
    """What all calls of some tasks take."""
    every = [call for made in calls for call in made]
    return Amounts(
        sum(call.input_tokens for call in every), sum(call.output_tokens for call in every),
        round(sum(call.spend_microusd for call in every)),
    )  # fmt: skip


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


def workload_of(one: DrawnPlan) -> Workload:
    """The same as the engine and the simulated provider take it.

    Which task of a part will take long is unknown: all of them weigh the same.
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
            demands = tuple(
                Demand(amounts_of([[call]]),
                       Amounts(INPUT_DOUBT * call.input_tokens, call.max_tokens), part.name)
                for call in calls
            )  # fmt: skip
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
    part: OutlinePart, sizes: Sizes, own: Mood, member: int, answers: Sequence[Sequence[float]],
    speed: Speed,
) -> tuple[SimulatedCall, ...]:  # fmt: skip
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
        cost = 0.0
        if part.price is not None:
            cost = dearer * part.price.cost_microusd(Amounts(tokens_in, tokens_out))
        # A call's own luck is that of all of its time, carried by its first byte.
        luck = lognormal(own.seed, LUCK_STREAM, index, speed.luck) - 1.0
        latency = speed.latency
        factor = 1.0 + luck * latency.work_s(tokens_out) / max(1e-3, latency.first_byte_s)
        made.append(SimulatedCall(
            index, round(tokens_in), round(tokens_out), part.max_tokens, max(0.0, factor),
            cost,
        ))  # fmt: skip
    return tuple(made)


def _seconds(part: OutlinePart, seed: int) -> list[float]:
    """What each task takes here: as long as those that were seen, weighed anew in every draw."""
    if not part.seconds:
        return [0.0] * part.count
    weights = mood(Sizes(bare=part.seconds), seed)
    return [part.seconds[weights.pick(member)] for member in range(part.count)]


def _given(part: OutlinePart, member: int, source: int, answers: Sequence[float]) -> float:
    """Tokens of the answers that one task is given of another part."""
    block = part.block(source)
    return sum(answers[block * member : block * (member + 1)] if block else answers)


# A plan as an outline: what its tasks ask, how large their prompts are, who needs whom.

UNKNOWN_MEMBERS: Final = 10

MAX_TOKENS: Final = 4096.0
"""The longest answer that a call allows, unless it says otherwise."""

PROMPTS_MAX: Final = 400
"""Prompts of a group that are written to be measured; of more, these are spread over all."""


class OutlineFacts(Struct, frozen=True):
    """What an outline needs to know beside the plan."""

    price: Callable[[str], Price | None]
    """Of a model, as the plan names it."""
    seconds: Mapping[str, Sequence[float]] = field(default_factory=dict)
    """By part, what its tasks took on this machine before."""
    answers: Mapping[str, float] = field(default_factory=dict)
    """By part, the tokens of a usual answer."""
    calls: Mapping[str, float] = field(default_factory=dict)
    """By part, calls of a task that is no prompt."""
    counts: Mapping[str, int] = field(default_factory=dict)
    """By part, how many tasks there were when answers were learned."""


def outline_of(expanded: ExpandedPlan, facts: OutlineFacts) -> tuple[Outline, tuple[str, ...]]:
    """The outline of a plan, and what was assumed for it."""
    assumed: list[str] = []
    parts = [_part(expanded, group, facts) for group in expanded.groups]
    for group in expanded.groups:
        if group.count is None and group.leader == group.index:
            assumed.append(
                f"`{group.name}` is found at run time: it is taken to have {UNKNOWN_MEMBERS} tasks"
            )
    parts = [_with_before(parts, part, facts) for part in parts]
    for shape in shapes_of(expanded):
        _add_levels(parts, shape, facts)
    return Outline(in_order(parts)), tuple(assumed)


def in_order(parts: Sequence[OutlinePart]) -> tuple[OutlinePart, ...]:
    """Every part after those that it needs, otherwise as they stand."""
    order: list[int] = []
    waiting = list(range(len(parts)))
    while waiting:
        ready = (at for at in waiting if all(need.group in order for need in parts[at].needs))
        order.append(next(ready))
        waiting.remove(order[-1])
    at = {place: new for new, place in enumerate(order)}
    moved: list[OutlinePart] = []
    for part in (parts[place] for place in order):
        needs = tuple(replace(need, group=at[need.group]) for need in part.needs)
        given = tuple(sorted(at[one] for one in part.given))
        moved.append(replace(part, needs=needs, given=given))
    return tuple(moved)


def _part(expanded: ExpandedPlan, group: GroupPlan, facts: OutlineFacts) -> OutlinePart:
    count = UNKNOWN_MEMBERS if group.count is None else group.count
    needs = tuple(Need(edge.group, block=int(edge.memberwise)) for edge in group.edges)
    seconds = tuple(facts.seconds.get(group.name, ()))
    work = group.task.work
    is_agent = isinstance(work, Prompt) and work.agent is not None
    if not isinstance(work, Prompt) or group.task.is_command:
        calls = facts.calls.get(group.name, 0.0)
        model = expanded.spec.model if calls else ""
        return OutlinePart(
            group.name, count, needs, model, calls=calls, seconds=seconds,
            price=facts.price(model) if model else None, is_new=not seconds, is_agent=is_agent,
        )  # fmt: skip
    model = work.model or expanded.spec.model
    sizes: tuple[float, ...] = (float(len(work.text.encode())),)
    refs: frozenset[str] = frozenset()
    if group.members is not None:
        chosen = range(0, count, max(1, count // PROMPTS_MAX))
        sizes = tuple(prompt_bytes(expanded, group, chosen))
        refs = prompt_of(expanded, group, 0)[1]
    names = {one.name: one.index for one in expanded.groups}
    given = {names[ref] for ref in refs if ref in names}
    given |= {edge.group for edge in group.edges if edge.key == "reduce"}
    return OutlinePart(
        group.name, count, needs, model, sizes, tuple(sorted(given)),
        max_tokens=float(work.max_tokens or MAX_TOKENS), seconds=seconds, price=facts.price(model),
        repairs=group.task.repairs if group.task.schema else 0,
        is_new=is_agent and group.name not in facts.answers, is_agent=is_agent,
    )  # fmt: skip


def _with_before(
    parts: Sequence[OutlinePart], part: OutlinePart, facts: OutlineFacts
) -> OutlinePart:
    """A part whose sizes are known, with what other tasks' answers were of its inputs then."""
    if part.name not in facts.answers:
        return part
    before = 0.0
    for source in part.given:
        count = part.block(source) or facts.counts.get(parts[source].name, 0)
        before += count * facts.answers.get(parts[source].name, 0.0)
    return replace(part, given_before=before)


def _add_levels(parts: list[OutlinePart], shape: FanInShape, facts: OutlineFacts) -> None:
    """The inner calls of a reduction whose results do not fit one call, as parts of their own."""
    last, source = parts[shape.group], parts[shape.source]
    answer = facts.answers.get(source.name, min(OUTPUT_TOKENS_PRIOR, source.max_tokens))
    given, below = source.count * answer, shape.source
    count_below = source.count
    for level, members in enumerate(shape.sizes(source.count), 1):
        if given <= members * shape.fit.share:
            continue
        block = -(-count_below // members)
        parts.append(
            OutlinePart(
                f"{last.name}/{level}", members, (Need(below, block=block),), last.model,
                last.sizes_bytes, (below,), max_tokens=float(shape.fit.answer), price=last.price,
            )
        )  # fmt: skip
        below, count_below = len(parts) - 1, members
        given = members * min(float(shape.fit.answer), answer * 2.0)
    if below == shape.source:
        return
    needs = (*(need for need in last.needs if need.group != shape.source), Need(below))
    given_parts = tuple(below if one == shape.source else one for one in last.given)
    parts[shape.group] = replace(last, needs=needs, given=given_parts)
