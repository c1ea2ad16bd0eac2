"""Performs reductions, level by level.

Laws:
- No call is above its context, by a count that is too high; nothing is cut off to reach that.
- What a call within a task gave is durable before anything is built on it, under the digest of its
  prompt: an attempt that takes over after a crash pays for none of them again.
- Missing results are named: to the last call, in the text that it gives, and in the trace.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from json import dumps
from typing import TYPE_CHECKING, Final

from msgspec import Struct, field
from msgspec.structs import replace

from headway.agents.gate import ParallelCalls
from headway.base import codec
from headway.base.digest import DIGEST_BYTES, digest
from headway.base.values import Fault
from headway.engine.reduction import (
    Cover,
    ReductionNode,
    ReductionText,
    batches,
    decoded,
    last_text,
    listed,
    merged,
    part_text,
    passes,
    total,
)
from headway.errors import ContextTooSmallError, HeadwayError, InternalError, StateError
from headway.plans.expand import ExpandedPlan, GroupPlan, items_digest, prompt_texts, used_variables
from headway.plans.fan_in import (
    ANSWER_TOKENS_MAX,
    CALL_TOKENS,
    CallOverhead,
    FanInShape,
    Fit,
    fit_of,
    is_tree,
    least_context,
    level_name,
    text_tokens,
    tokens_at_most,
)
from headway.plans.spec import Prompt
from headway.run.filling import Filling, text_in
from headway.run.revise import prompt_source
from headway.state.folder import in_a_line
from headway.work import (
    Attempt,
    AttemptError,
    Needed,
    OverBudgetError,
    Result,
    WindowEmptyError,
    Work,
    charged,
    with_spent,
)

if TYPE_CHECKING:
    from headway.agents.prompt import PromptAgent
    from headway.run.run_context import Crew
    from headway.run.tasks import Plans


# A user's function that combines values: what it raises is said of its key, in headway's words.


def reducer(
    target: str, function: Callable[[object, object], object]
) -> Callable[[object, object], object]:
    """The same function; StateError if it fails, which is a value's fault and not the run's."""

    def combined(one: object, other: object) -> object:
        try:
            return function(one, other)
        # The boundary to the user's code, which may raise anything; `sys.exit` ends no run.
        except (Exception, SystemExit) as error:
            raise StateError(
                f"`{target}` does not combine what was added: {type(error).__name__}: {error}",
                hint="let it take whatever tasks add, and what it gives itself",
            ) from error

    return combined


Shapes = Mapping[int, FanInShape]

ANSWER_TOKENS: Final = 1024
"""Room for an answer where all results are given in one call, and the plan does not say."""

KEY_VERSION: Final = "headway inner reduction 1"

CALLS_MAX: Final = 64
"""Calls of one task at a time: permits decide how many are sent, this how many are made ready."""

ROUNDS_MAX: Final = 40
"""Each halves what is left at least, if answers keep to their length: more are for nothing."""

NAMED_TOKENS: Final = 4000

NOTHING: Final = Result(b"")


class InnerWork(Work):
    """A level of a reduction, whose results are for the level above it."""

    is_idle_until_sent = True

    def __init__(
        self, shape: FanInShape, level: int, stem: bytes, plans: Plans, crew: Crew
    ) -> None:
        self.shape = shape
        self._level = level
        self._stem = stem
        self._plans = plans
        self._crew = crew
        spec, groups = plans.expanded.spec, plans.expanded.groups
        task = groups[shape.group].task
        self.name = level_name(task.name, level)
        self.timeout_s = spec.timeout_s if task.timeout_s is None else task.timeout_s
        self._below = below_name(plans.expanded, shape, level)

    @property
    def known_count(self) -> int:
        """The number of its tasks; 0 while it is unknown."""
        results = self._plans.expanded.groups[self.shape.source].count
        return 0 if results is None else self.shape.sizes(results)[self._level - 1]

    def label(self, member: int) -> str:
        return f"{self.name}[{member + 1}]"

    def key(self, member: int) -> bytes:
        """It covers what is asked, the place in the tree, and on the first level the items that
        are named there; not how many results there are."""
        named = b""
        if self._level == 1:
            members, fan = self._plans.expanded.groups[self.shape.source].known, self.shape.fit.fan
            last = min(members.count, (member + 1) * fan)
            named = items_digest(members, range(member * fan, last))
        return digest(self._stem + b"%d/%d" % (self._level, member) + named)

    def count(self, needed: Callable[[str], list[Needed]]) -> int:
        del needed
        raise InternalError(f"the members of `{self.name}` follow those of `{self._below}`")

    async def perform(self, attempt: Attempt) -> Result:
        expanded = self._plans.expanded
        group = expanded.groups[self.shape.group]
        filling = Filling(group, group.known.member(0), attempt, self._crew.run_folder)
        try:
            below = below_of(attempt, self._below, self._level == 1)
            asked = replace(asked_of(filling, expanded), shape=self.shape)
            fit = asked.fit()
            if passes(below.items, fit):
                return Result(codec.encode(ReductionNode(below.items, below.missing)))
            reducing = Reducing.of(await self._crew.prompts(), attempt, asked, fit)
            with reducing.accounted():
                items = await reducing.fitting(below.items, fit.room)
                whole = await reducing.answer(items, is_kept=False)
        except HeadwayError as error:
            raise AttemptError(Fault("request", detail=in_a_line(error))) from error
        node = ReductionNode((whole,), below.missing, tuple(reducing.parts), reducing.spent.calls)
        return replace(reducing.spent, body=codec.encode(node))


class ReductionPrompt(Struct, frozen=True):
    """What a reduction asks, with everything but results filled in."""

    name: str
    prompt: str
    model: str
    results: int
    context: int | None = None
    asked: CallOverhead = CallOverhead(0)
    shape: FanInShape | None = None

    def fit(self) -> Fit:
        """What its calls can hold. Raises ContextTooSmallError."""
        context = self.context or 0
        fit = fit_of(context, self.asked)
        if fit.fan < 2:
            least = least_context(self.asked)
            raise ContextTooSmallError(
                f"`{self.name}` cannot reduce within {context:,} tokens: its prompt alone has "
                f"{self.asked.text_tokens:,}, with what it is given of other tasks",
                hint=f"write `context: {least}`, or a smaller `max_tokens`",
            )
        return fit if self.shape is None else replace(fit, fan=self.shape.fit.fan)


class Reducing(Struct):
    """The calls that bring items together within one attempt."""

    agent: PromptAgent
    attempt: Attempt
    asked: ReductionPrompt
    fit: Fit
    kept: Mapping[bytes, bytes]
    """Replies that an interrupted attempt had kept, by the digest of their prompt."""
    spent: Result = NOTHING
    is_in_doubt: bool = False
    parts: list[ReductionText] = field(default_factory=list)
    voices: ParallelCalls = field(default_factory=ParallelCalls)
    places: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(CALLS_MAX))

    @classmethod
    def of(cls, agent: PromptAgent, attempt: Attempt, asked: ReductionPrompt, fit: Fit) -> Reducing:
        kept = {one[:DIGEST_BYTES]: one[DIGEST_BYTES:] for one in attempt.kept}
        return cls(agent, attempt, asked, fit, kept)

    async def fitting(self, items: Sequence[ReductionText], room: int) -> tuple[ReductionText, ...]:
        """The items, or what calls made of them, such that all fit into one call of this room."""
        rounds = 0
        while (found := batches(items, self.fit, room)) is not None:
            before, rounds = total(items), rounds + 1
            made = await _all([self.answer(batch) for batch, is_called in found if is_called])
            answers = iter(made)
            items = [
                item
                for batch, is_called in found
                for item in ((next(answers),) if is_called else batch)
            ]
            self.parts += made
            if total(items) >= before or rounds > ROUNDS_MAX:
                detail = "what its calls give is not shorter than what they are given: allow a "
                detail += "larger `context` or a smaller `max_tokens`"
                raise AttemptError(Fault("request", detail=detail))
        return tuple(items)

    async def answer(self, items: Sequence[ReductionText], is_kept: bool = True) -> ReductionText:
        """What an inner call makes of these, unless that was heard before."""
        from headway.agents.prompt import PromptCall

        text = part_text(self.asked.prompt, items, self.asked.results, self.fit)
        name = digest(text.encode("utf-8", "replace"))
        if name in self.kept:
            return merged(items, text_in(self.kept[name]))
        call = PromptCall(text, self.asked.model, self.fit.answer)
        async with self.places:
            with self.voices.joined(self.attempt) as become:
                try:
                    waits, goes = partial(become, "waiting"), partial(become, "going")
                    own = self.attempt.part(waits=waits, goes=goes, kept=())
                    result = await self.agent.perform(call, own)
                except AttemptError as lost:
                    self.spent = charged(self.spent, lost.result or NOTHING)
                    self.is_in_doubt |= lost.is_in_doubt
                    raise AttemptError(lost.fault) from lost
        self.spent = charged(self.spent, result)
        if not text_in(result.body).strip():
            # Taken as an answer it would silently lose everything that is below it.
            raise AttemptError(Fault("unfit", detail="the model gave no answer to an inner call"))
        if is_kept:
            await self.attempt.keep(name + result.body)
        return merged(items, text_in(result.body))

    @contextmanager
    def accounted(self) -> Iterator[None]:
        """Whatever is lost is reported with all that the attempt took."""
        try:
            yield
        except AttemptError as lost:
            taken = charged(self.spent, lost.result or NOTHING)
            taken = replace(taken, body=b"" if lost.result is None else lost.result.body)
            is_in_doubt = lost.is_in_doubt or self.is_in_doubt
            raise AttemptError(lost.fault, taken, is_in_doubt) from lost
        except WindowEmptyError as empty:
            raise with_spent(empty, charged(self.spent, empty.result or NOTHING)) from empty
        except OverBudgetError as over:
            if not self.spent.calls:
                raise
            # What its calls did not use of what was set aside comes back with this attempt's end;
            # the next one begins with what they gave, and is refused at once if that is all.
            detail = f"it goes on in another attempt: {over}"
            raise AttemptError(Fault("rate", detail=detail), self.spent) from over


def inner_works(plans: Plans, crew: Crew, shapes: Sequence[FanInShape]) -> tuple[InnerWork, ...]:
    """The works of all inner levels, in the order in which they stand in the graph."""
    works: list[InnerWork] = []
    seen: dict[str, int] = {}
    for shape in shapes:
        form = _form(plans.expanded, shape)
        number = seen[form] = seen.get(form, 0) + 1
        stem = digest(f"{form}#{number}".encode())
        works += (InnerWork(shape, n + 1, stem, plans, crew) for n in range(shape.levels))
    return tuple(works)


def inner_keys(plans: Plans) -> list[bytes]:
    """The keys of all tasks of inner levels, as far as they are known."""
    from headway.run.run_context import Crew

    works = inner_works(plans, Crew("", "", "", {}), tuple(plans.shapes.values()))
    return [work.key(n) for work in works for n in range(work.known_count)]


async def perform_reduction(
    filling: Filling, expanded: ExpandedPlan, crew: Crew, shapes: Shapes,
    ask: Callable[[str, int | None], Awaitable[Result]],
) -> Result:  # fmt: skip
    """Bring all results into one context by inner calls, and make the last call by `ask`.

    `ask` takes the prompt and the most tokens of its answer. Who is missing is added to a text
    that does not say it.
    """
    group, attempt = filling.group, filling.attempt
    asked = asked_of(filling, expanded)
    shape = shapes.get(group.index)
    levels = 0 if shape is None else shape.levels
    name = group.task.reduce if shape is None else below_name(expanded, shape, levels + 1)
    below = below_of(attempt, name, levels == 0)
    must_have_quorum(group, below.missing, asked.results)
    say_missing(group, below.missing, asked.results, crew)
    if not is_tree(expanded, group):
        text = last_text(asked.prompt, below.items, below.missing, asked.results)
        must_fit(asked, text)
        result = await ask(text, asked.asked.max_tokens)
        return replace(result, body=_with_missing(group, result.body, below.missing, asked.results))
    asked = replace(asked, shape=shape)
    fit = asked.fit()
    note = last_text("", (), below.missing, asked.results, fit.context)
    room = fit.room - tokens_at_most(note)
    reducing = Reducing.of(await crew.prompts(), attempt, asked, fit)
    with reducing.accounted():
        items = await reducing.fitting(below.items, room)
        text = last_text(asked.prompt, items, below.missing, asked.results, fit.context)
        result = await ask(text, _longest(asked, fit, text))
    body = _with_missing(group, result.body, below.missing, asked.results)
    return replace(charged(reducing.spent, result), body=body, value=result.value)


def _with_missing(group: GroupPlan, body: bytes, missing: Sequence[str], results: int) -> bytes:
    """The answer, which says who is missing unless it has to fit a schema."""
    if group.task.schema or all(label in text_in(body) for label in missing):
        return body
    return body + f"\n\n{missing_words(missing, results)}".encode()


def asked_of(filling: Filling, expanded: ExpandedPlan) -> ReductionPrompt:
    group, files = filling.group, expanded.sources.files
    task, work = group.task, group.task.work
    if not isinstance(work, Prompt):
        raise InternalError(f"`{group.name}` has no model to ask")
    prompt = filling.text(prompt_source(filling, files))
    schema = files[filling.text(task.schema)] if task.schema else ""
    repairs = task.repairs if task.schema or task.verify else 0
    tokens = text_tokens(prompt, schema)
    return ReductionPrompt(
        group.name, prompt, filling.text(work.model or expanded.spec.model),
        results_of(expanded, group), task.context_tokens,
        CallOverhead(tokens, work.max_tokens, repairs),
    )  # fmt: skip


def results_of(expanded: ExpandedPlan, group: GroupPlan) -> int:
    return expanded.groups[group.source].known.count


def below_name(expanded: ExpandedPlan, shape: FanInShape, level: int) -> str:
    if level == 1:
        return expanded.groups[shape.source].name
    return level_name(expanded.groups[shape.group].name, level - 1)


def below_of(attempt: Attempt, name: str, is_first: bool) -> ReductionNode:
    """What is below a node: results, or what the level below has made of them."""
    needed = attempt.needed(name)
    if is_first:
        items = (
            ReductionText(Cover(one.member, one.member), text_in(one.body), one.name)
            for one in needed
        )
        return ReductionNode(tuple(items), tuple(attempt.missing(name)))
    nodes = [decoded(one.body, one.name) for one in needed]
    return ReductionNode(
        tuple(item for node in nodes for item in node.items),
        tuple(label for node in nodes for label in node.missing),
    )


def must_have_quorum(group: GroupPlan, missing: Sequence[str], results: int) -> None:
    """Refuse to go on with fewer results than the plan allows, before the last call is paid."""
    quorum = group.task.quorum
    if quorum is None or not missing or results - len(missing) >= quorum.of(results):
        return
    there = results - len(missing)
    detail = f"{there} of {results} results are there, and its quorum is {quorum.of(results)}: "
    detail += f"{listed(missing, NAMED_TOKENS)} failed or were skipped"
    raise AttemptError(Fault("request", detail=detail))


def missing_of(filling: Filling, expanded: ExpandedPlan, crew: Crew) -> list[str]:
    """Whom a command or a function that reduces has to do without."""
    group = filling.group
    missing, results = filling.attempt.missing(group.task.reduce), results_of(expanded, group)
    must_have_quorum(group, missing, results)
    say_missing(group, missing, results, crew)
    return missing


def say_missing(group: GroupPlan, missing: Sequence[str], results: int, crew: Crew) -> None:
    """Who is missing is said when the run is over, whatever the answer says."""
    note = f"{group.name}: {missing_words(missing, results)}"
    if missing and note not in crew.notes:  # Another attempt has the same to say.
        crew.notes.append(note)


def must_fit(asked: ReductionPrompt, text: str) -> None:
    """Refuse what has to be one call and does not fit."""
    answer = asked.asked.max_tokens or ANSWER_TOKENS
    need = tokens_at_most(text) + asked.asked.text_tokens - tokens_at_most(asked.prompt) + answer
    if asked.context is not None and need > asked.context:
        raise ContextTooSmallError(
            f"`{asked.name}` needs up to {need:,} tokens; its context is {asked.context:,}",
            detail=f"with all results ({asked.results}) in one call and room for the answer",
            hint=f"set `context: {need}`, or let a prompt without agent reduce first",
        )


def missing_words(missing: Sequence[str], results: int) -> str:
    return f"Missing ({len(missing)} of {results} results): {listed(missing, NAMED_TOKENS)}"


def _longest(asked: ReductionPrompt, fit: Fit, text: str) -> int:
    """What is left of the context, where the plan does not say how long an answer may be."""
    if asked.asked.max_tokens is not None or asked.asked.repairs:
        return fit.answer
    others = asked.asked.text_tokens - tokens_at_most(asked.prompt)
    left = fit.context - tokens_at_most(text) - others - CALL_TOKENS
    return max(fit.answer, min(ANSWER_TOKENS_MAX, left))


def _form(expanded: ExpandedPlan, shape: FanInShape) -> str:
    group = expanded.groups[shape.group]
    task, work = group.task, group.task.work
    used = used_variables(expanded, group) | {name for name, _ in task.vars}
    values = {**dict(expanded.spec.vars), **dict(task.vars)}
    return dumps(
        {
            "version": KEY_VERSION,
            "texts": prompt_texts(expanded, group),
            "vars": {name: value for name, value in values.items() if name in used},
            "model": (work.model if isinstance(work, Prompt) else "") or expanded.spec.model,
            "answer": shape.fit.answer,
            "context": task.context_tokens,
            "fan": shape.fit.fan,
        },
        sort_keys=True,
    )


async def _all(calls: Sequence[Coroutine[None, None, ReductionText]]) -> list[ReductionText]:
    """All of them; one that fails is told when the others have ended, which are paid as well."""
    ended = await asyncio.gather(*calls, return_exceptions=True)
    errors = [one for one in ended if isinstance(one, BaseException)]
    if errors:
        # What stops the run comes before what stops this attempt.
        raise min(errors, key=lambda error: isinstance(error, AttemptError))
    return [one for one in ended if isinstance(one, ReductionText)]
