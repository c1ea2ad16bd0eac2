"""How a reduction fits the context that its plan gives it: room, fan, levels, or a refusal.

Laws:
- A call takes its prompt, what frames it, results up to its room, and its longest answer: together
  never more than the context, by a count that is too high.
- A member of an inner level has at most `fan` results below it and gives a share of the room, so
  that what comes together above it fits. An answer that is more by this count, as tables of digits
  are, costs the task above it a call more.
- The shape depends on how many results there are, on the prompt and on the context; never on who
  is done first, and not on what the results say.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import partial
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from headway.errors import ContextTooSmallError, Fix
from headway.plans.expand import ExpandedPlan, GroupPlan, prompt_texts, refs_of
from headway.plans.graph import Graph, Need, TaskGroup
from headway.plans.section import PlanFaults
from headway.plans.spec import Prompt, text_of
from headway.plans.template import Ref, Template, template_of

# The most tokens that a text can be, by a rule that needs no vocabulary.

_PIECE: Final = re.compile(
    r" ?[A-Z]?[a-z]{1,4}| ?[A-Z]{1,2}| ?[0-9]|\n{1,2}| {2,4}| ?[!-/:-@\[-^`{-~]|.", re.DOTALL
)
"""A word costs a token for every four letters, and a change of case begins another one, so that
base64 is as dear as it is to vocabularies; a space goes with what follows."""


def tokens_at_most(text: str) -> int:
    """A count of tokens that no large vocabulary exceeds for ordinary text."""
    pieces = len(_PIECE.findall(text))
    if text.isascii():
        return pieces
    # A character of n bytes costs n - 1: one is counted already, as a piece.
    size = len(text.encode("utf-8", "surrogatepass"))
    beyond = len(text) - len(text.encode("ascii", "ignore"))
    return pieces + size - len(text) - beyond


def cut_at_tokens(text: str, most: int) -> list[str]:
    """A text in pieces of at most so many tokens, wherever that is; at least 3 of them."""
    pieces: list[str] = []
    start = size = 0
    for found in _PIECE.finditer(text):
        piece = found[0]
        cost = 1 if piece.isascii() else len(piece.encode("utf-8", "surrogatepass")) - 1
        if size + cost > most and found.start() > start:
            pieces.append(text[start : found.start()])
            start, size = found.start(), 0
        size += cost
    pieces.append(text[start:])
    return pieces


FAN_MAX: Final = 4
"""Results below a member of an inner level. With more the first level starts later; with fewer
there are more levels to go through."""

FOUND_FAN_MAX: Final = 8
FOUND_MIN: Final = 512
"""Where the results are counted at run time, the levels are there before: for so many of them. More
only make the calls of the last level larger, which is made up for within a task."""

ANSWER_TOKENS_MAX: Final = 4096
"""The longest answer of a reduction where the plan does not say: as of any prompt."""

ANSWERS_PER_CONTEXT: Final = 8
"""In a smaller context an eighth is left for the answer, so that four of them come together."""

CALL_TOKENS: Final = 32
"""What formats add around a prompt; 3 to 8 tokens are usual for its one turn."""

PART_TOKENS: Final = 256
"""What a part of a reduction is told about that, and the line before every result."""

SCHEMA_TOKENS: Final = 32
"""The words around a schema in a prompt."""

REPAIR_TOKENS: Final = 384
"""What a model is told when its answer is not right."""

ROOM_TOKENS_MIN: Final = 320
"""A heading is shorter, however long names are: below it something of a result fits."""

SLACK: Final = 1.5
"""An answer of n tokens, counted by the rule that is too high, is so many times n at most."""

FIRST: Final = 0.5
"""What can come together does so before more results are asked for, among equals in priority."""

HEADING_TOKENS: Final = 24
"""The line before an inner result."""


class CallOverhead(Struct, frozen=True):
    """What takes room in a call beside results."""

    text_tokens: int
    """Of the prompt, and of the schema that its answer is to fit."""
    max_tokens: int | None = None
    repairs: int = 0
    """How often it may be told what is wrong with its answer, which stays before it."""


class Fit(Struct, frozen=True):
    """What a call of a reduction can hold."""

    context: int
    answer: int
    """The longest answer of an inner call."""
    room: int
    """Tokens of results."""
    fan: int
    """How many results come together at least; below 2 the context is too small."""

    @property
    def share(self) -> int:
        """What a member of an inner level may give its parent without a call."""
        return self.room // max(2, self.fan)


class FanInShape(Struct, frozen=True):
    """The inner levels of one reduction."""

    group: int
    """The reduction."""
    source: int
    """The group whose results it is given."""
    fit: Fit
    levels: int

    def sizes(self, results: int) -> tuple[int, ...]:
        """How many members each inner level has, from the results up."""
        sizes: list[int] = []
        for _ in range(self.levels):
            results = -(-results // self.fit.fan)
            sizes.append(results)
        return tuple(sizes)


def fit_of(context: int, asked: CallOverhead, fan_max: int = FAN_MAX) -> Fit:
    """What calls of this context can hold."""
    answer = asked.max_tokens or max(1, min(ANSWER_TOKENS_MAX, context // ANSWERS_PER_CONTEXT))
    again = asked.repairs * (answer + CALL_TOKENS + REPAIR_TOKENS)
    room = max(0, context - asked.text_tokens - CALL_TOKENS - PART_TOKENS - answer - again)
    fan = int(room / (answer * SLACK + HEADING_TOKENS)) if room >= ROOM_TOKENS_MIN else 0
    return Fit(context, answer, room, min(fan_max, fan))


def least_context(asked: CallOverhead) -> int:
    """The smallest context in which two answers come together, rounded up a little."""
    context = asked.text_tokens + CALL_TOKENS + PART_TOKENS
    while fit_of(context, asked).fan < 2:
        context += 1 + context // 64
    return context


def levels_for(results: int | None, fan: int) -> int:
    """Inner levels until at most `fan` results are left; None is a number found at run time."""
    left, levels = FOUND_MIN if results is None else results, 0
    least = 1 if results is None else fan
    while left > least:
        left, levels = -(-left // fan), levels + 1
    return levels


def shapes_of(expanded: ExpandedPlan) -> tuple[FanInShape, ...]:
    """The inner levels that a plan's reductions take, in declared order.

    A prompt that reads the shared state is one task, and does within it what others leave to inner
    levels: these would read the state too early. So is one of a loop, whose rounds may do nothing.
    """
    found: list[FanInShape] = []
    for group in expanded.groups:
        if not is_tree(expanded, group) or group.round is not None:
            continue
        if any(ref.names[0] == "state" for ref in refs_of(expanded, group)):
            continue
        results = expanded.groups[group.source].count
        fit = static_fit(expanded, group, FAN_MAX if results is not None else FOUND_FAN_MAX)
        fit = replace(fit, fan=max(2, fit.fan))
        found.append(FanInShape(group.index, group.source, fit, levels_for(results, fit.fan)))
    return tuple(found)


def is_tree(expanded: ExpandedPlan, group: GroupPlan) -> bool:
    """Whether results may come together in more than one call: not if one text holds all."""
    task = group.task
    if not task.reduce or task.context_tokens is None:
        return False
    if not isinstance(task.work, Prompt) or task.work.agent is not None:
        return False
    return all(ref.names[:2] != ("tasks", task.reduce) for ref in refs_of(expanded, group))


def static_fit(expanded: ExpandedPlan, group: GroupPlan, fan_max: int = FAN_MAX) -> Fit:
    """What is known of a reduction's calls before it runs.

    What other tasks' results add to its prompt is not counted yet.
    """
    return fit_of(group.task.context_tokens or 0, _asked(expanded, group), fan_max)


def check_contexts(expanded: ExpandedPlan) -> None:
    """Refuse reductions whose context cannot hold the prompt and two answers."""
    faults = PlanFaults(expanded.spec.file)
    for group in expanded.groups:
        if not is_tree(expanded, group):
            continue
        fit = static_fit(expanded, group)
        if fit.fan >= 2:
            continue
        spot, asked = group.task.spot("context"), _asked(expanded, group)
        least = least_context(asked)
        what = (
            f"the prompt {asked.text_tokens:,}, an answer {fit.answer:,}, and two answers to read"
        )
        message = f"`{group.name}` cannot reduce within {fit.context:,} tokens: {what}"
        hint = f"write `context: {least}`, or a smaller `max_tokens`"
        fix = Fix("source", spot.value, value=str(least))
        faults.add(ContextTooSmallError, spot.value, message, hint, fix)
    faults.check()


def _asked(expanded: ExpandedPlan, group: GroupPlan) -> CallOverhead:
    """With the values that are known; of several texts the longest."""
    task, work = group.task, group.task.work
    templates = map(template_of, prompt_texts(expanded, group))
    texts = [template.render(partial(_value, group)) for template in templates]
    schema = expanded.sources.files.get(task.schema, "")
    repairs = task.repairs if task.schema or task.verify else 0
    max_tokens = work.max_tokens if isinstance(work, Prompt) else None
    tokens = max((text_tokens(text, schema) for text in texts), default=0)
    return CallOverhead(tokens, max_tokens, repairs)


def text_tokens(prompt: str, schema: str) -> int:
    """What a prompt takes, with the schema that its answer is to fit, if there is one."""
    return tokens_at_most(prompt) + (tokens_at_most(schema) + SCHEMA_TOKENS if schema else 0)


def _value(group: GroupPlan, ref: Ref) -> str:
    if ref.names[0] != "vars":
        return ""
    found = group.vars.get(ref.names[1], "")
    return found.render(lambda _: "") if isinstance(found, Template) else text_of(found)


def with_levels(graph: Graph, expanded: ExpandedPlan, shapes: Sequence[FanInShape]) -> Graph:
    """The graph that is run: inner levels stand behind everything that is declared.

    A reduction needs its top level entirely, instead of the results that come together there. One
    with a quorum goes on when all whose results it brings together have ended, whatever came of it.
    """
    groups, inner = list(graph.groups), list[TaskGroup]()
    for plan in expanded.groups:
        if plan.task.quorum is not None:
            needs = groups[plan.index].needs
            lenient = (replace(one, is_lenient=one.group == plan.source) for one in needs)
            groups[plan.index] = replace(groups[plan.index], needs=tuple(lenient))
    for shape in shapes:
        reduction = groups[shape.group]
        others = tuple(need for need in reduction.needs if need.group != shape.source)
        lower = next(need for need in reduction.needs if need.group == shape.source)
        priority = max(reduction.priority, groups[shape.source].priority) + FIRST
        results = expanded.groups[shape.source].count
        counts = shape.sizes(results) if results is not None else (None,) * shape.levels
        for level, count in enumerate(counts, 1):
            needs = (replace(lower, block=shape.fit.fan), *others)
            name = level_name(reduction.name, level)
            inner.append(
                TaskGroup(name, count, needs, priority=priority, retries=reduction.retries)
            )
            lower = Need(len(groups) + len(inner) - 1)
        groups[shape.group] = replace(reduction, needs=(lower, *others))
    return Graph([*groups, *inner]) if groups != list(graph.groups) else graph


def level_name(reduction: str, level: int) -> str:
    """`verdict/1`: of an inner level; no declared task has a slash in its name."""
    return f"{reduction}/{level}"
