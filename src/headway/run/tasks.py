"""The tasks of a plan as work: a command, a prompt or a function.

Laws:
- A result is visible under `output` by one rename, after it is durable, or not at all.
- A member whose `output` leads out of the plan's folder, is another member's, or cannot be written
  fails before anything is done for it; no other member is affected.
"""

from __future__ import annotations

import errno
import pickle
import sys
from collections.abc import Awaitable, Callable, Mapping
from copy import deepcopy
from functools import partial
from importlib import import_module
from inspect import signature
from typing import TYPE_CHECKING, Final, cast

from msgspec import Struct, field
from msgspec.structs import replace

from headway.agents.metering import metered
from headway.base.digest import digest
from headway.base.values import Fault
from headway.errors import HeadwayError, InternalError, UsageError
from headway.files import within
from headway.plans.expand import (
    ExpandedPlan,
    GroupPlan,
    Keys,
    Member,
    found,
    items_of,
    keys_of,
    stakes_of,
)
from headway.plans.fan_in import REPAIR_TOKENS, FanInShape, cut_at_tokens, shapes_of
from headway.plans.resources import PATH_CHARS_MAX, inside
from headway.plans.rounds import with_rounds
from headway.plans.section import shown
from headway.plans.spec import CommandSpec, PlanSpec, Prompt, Python, TaskSpec, Value, texts_in
from headway.plans.template import Template
from headway.run.agent_tasks import ProgramCall, agent_of, perform_agent
from headway.run.filling import (
    Filling,
    filled,
    lines_of,
    publish_new,
    put_within,
    text_in,
    value_in,
)
from headway.run.reduce import missing_of, perform_reduction
from headway.run.revise import (
    judged,
    prompt_source,
    rejection_in,
    sent_back,
    shown_body,
    taken_from_before,
)
from headway.run.run_context import Crew
from headway.state.context import Lent, lent
from headway.state.folder import in_a_line, in_thread, share_of
from headway.work import Attempt, AttemptError, Needed, Result, Work, tell_waits_of

if TYPE_CHECKING:
    from headway.plans.references import Schema
    from headway.run.workspaces import OpenWorkspace


CALL: Final = "import sys; from headway.agents.worker import call_once; call_once(*sys.argv[1:])"
"""The program that calls a function in a workspace."""

AGAIN: Final = (
    "{} had ended when headway was killed, and runs again: what it changed in its view of the "
    "shared state is not there any more"
)

ZERO: Final = "its item has a zero byte, which no command, variable or name of a file can hold"

COMPLAINT_TOKENS: Final = REPAIR_TOKENS - 64
"""What `verify` may say of an answer where the context is counted."""


class Plans(Struct):
    """The plan of a run as far as it is expanded: groups become known while it runs."""

    expanded: ExpandedPlan
    """With a group for each round of work that may be sent back."""
    keys: tuple[Keys | None, ...]
    declared: ExpandedPlan
    """As it was before anything ran, without rounds."""
    shapes: Mapping[int, FanInShape] = field(default_factory=dict)
    """Of its reductions, by index: as they were before anything ran."""

    @classmethod
    def of(cls, expanded: ExpandedPlan) -> Plans:
        declared, expanded = expanded, with_rounds(expanded)
        shapes = {shape.group: shape for shape in shapes_of(expanded)}
        return cls(expanded, keys_of(expanded), declared, shapes)

    def grow(self, group: int, text: str) -> int:
        self.expanded = found(self.expanded, group, items_of(text))
        self.keys = keys_of(self.expanded)
        return self.expanded.groups[group].known.count


class TaskWork(Work):
    def __init__(self, index: int, plans: Plans, crew: Crew) -> None:
        self._index = index
        self._plans = plans
        self._crew = crew
        spec, task = plans.expanded.spec, plans.expanded.groups[index].task
        self.name = task.name
        self.is_local = task.is_command
        self.is_idle_until_sent = isinstance(task.work, Prompt) and not self.is_local
        self.publishes = bool(task.output)
        self._work_s = spec.timeout_s if task.timeout_s is None else task.timeout_s
        # Commands and loops with tools end themselves in time: they know what was written and paid.
        keeps_time = self.is_local or agent_of(task) is not None
        self.timeout_s = None if keeps_time else self._work_s
        self._schemas: dict[str, Schema] = {}
        self._outlets: dict[str, int] = {}
        self._function: Callable[..., object] | None = None
        self._workspace = spec.workspace_of(task)
        self._has_state = stakes_of(plans.expanded)[index] is not None

    @property
    def group(self) -> GroupPlan:
        return self._plans.expanded.groups[self._index]

    def label(self, member: int) -> str:
        return self.group.label(member)

    def key(self, member: int) -> bytes:
        keys = self._plans.keys[self._index]
        if keys is None:
            raise InternalError(f"the members of `{self.name}` are not known yet")
        return keys.key(member)

    def count(self, needed: Callable[[str], list[Needed]]) -> int:
        each = self.group.task.each
        if each is None:
            raise InternalError(f"`{self.name}` is not spread over anything")
        (source,) = needed(each.source)
        return self._plans.grow(self.group.leader, text_in(source.body))

    def publish(self, member: int, body: bytes | None) -> None:
        """Put a durable result under its path; without a body, only look whether that can work."""
        crew, path = self._crew, output_of(self.group, member, self._outlets)
        if body is not None:
            body = shown_body(self.group.round, body)
        try:
            if crew.is_foreign and body is not None:
                publish_new(crew.folder, crew.run_folder, path, body)
            else:
                put_within(crew.folder, path, body, crew.may_leave)
        except OSError as fault:
            reason = fault.strerror or str(fault)
            raise OSError(fault.errno, f"its output, `{shown(path)}`: {reason}") from None

    async def perform(self, attempt: Attempt) -> Result:
        with lent(attempt, self._crew.commons) as loan:
            return await self._performed(attempt, loan)

    async def _performed(self, attempt: Attempt, loan: Lent | None) -> Result:
        group, member = self.group, self.group.known.member(attempt.member)
        if (before := taken_from_before(group, attempt)) is not None:
            return before
        group = sent_back(group, attempt.needed)
        asked = Filling(group, member, attempt, self._crew.run_folder)
        if any("\0" in text for text in texts_in(member.item)):
            raise AttemptError(Fault("request", detail=ZERO))
        try:
            if group.task.output:
                self.publish(attempt.member, None)
        except OSError as fault:
            raise AttemptError(Fault("request", detail=fault.strerror or str(fault))) from None
        except HeadwayError as error:
            raise AttemptError(Fault("request", detail=in_a_line(error))) from None
        work = group.task.work
        is_command = group.task.is_command or group.task.verify

        async def perform(told: Mapping[str, str]) -> Result:
            try:
                share = None
                if loan is not None and self._has_state:
                    fill = partial(filled, group, member=member)
                    share = share_of(group.task, loan, self._crew.channels, fill)
                filling = replace(asked, told=told, share=share)
                if self._workspace is None:
                    result = await self._worked(filling)
                else:
                    verify = self._verified if group.task.verify else None
                    result = await self._crew.workspaces().perform(
                        self._workspace, filling, self._worked, verify
                    )
                if share is not None:
                    body = shown_body(group.round, result.body)
                    value = result.value if isinstance(work, Python) else value_in(body)
                    share.keep(value, result)
                return result
            except HeadwayError as error:
                raise AttemptError(Fault("request", detail=in_a_line(error))) from error

        return await metered(self._crew.meter if is_command else None, attempt, perform)

    async def _worked(self, filling: Filling) -> Result:
        part, rejected = self.group.round, None
        try:
            result = await self._done(filling)
        except AttemptError as lost:
            if part is None or (found := rejection_in(self.group, lost)) is None:
                raise
            result, rejected = found, lost.fault.detail
        if part is None or not part.is_judge:
            return result
        return judged(part, result, rejected, self._crew.notes)

    async def _done(self, filling: Filling) -> Result:
        work = self.group.task.work
        if isinstance(work, Prompt):
            return await self._prompt(work, filling)
        if isinstance(work, CommandSpec):
            given = await executed(work, filling, self._crew, self._plans.expanded, self._work_s)
        else:
            given = await self._python(work, filling)
        return await self._examined(given, filling)

    async def _verified(self, filling: Filling, text: str) -> str | None:
        return await verifier(filling, self._crew, self._work_s)(text)

    async def _prompt(self, work: Prompt, filling: Filling) -> Result:
        """One call, or whatever an agent makes of it; a reduction may take others before it."""
        task, expanded = self.group.task, self._plans.expanded
        if task.reduce:
            ask = partial(self._asked, work, filling)
            return await perform_reduction(filling, expanded, self._crew, self._plans.shapes, ask)
        source = prompt_source(filling, expanded.sources.files)
        # Where the first hole is, the prompts of a group begin to differ.
        shared = 0 if self.group.count == 1 else max(0, source.find("{{"))
        return await self._asked(work, filling, filling.text(source), work.max_tokens, shared)

    async def _asked(
        self, work: Prompt, filling: Filling, text: str, max_tokens: int | None, shared: int = 0
    ) -> Result:
        from headway.agents.prompt import PromptCall

        task, expanded = self.group.task, self._plans.expanded
        model = filling.text(work.model or expanded.spec.model)
        schema = self._schema_of(filling)
        verify = verifier(filling, self._crew, self._work_s) if task.verify else None
        if work.agent is not None:
            call = ProgramCall(
                text, model, bool(work.model), {}, schema, verify, task.repairs, self._work_s,
                stuck_of(expanded.spec, task), expanded.spec.permissions_of(task),
            )  # fmt: skip
            return await perform_agent(work.agent, call, filling, max_tokens, self._crew)
        asked = PromptCall(
            text, model, max_tokens, schema=schema, repairs=task.repairs, verify=verify,
            shared_chars=shared,
        )  # fmt: skip
        agent = await self._crew.prompts()
        if filling.share is None and not task.reduce:
            return await agent.perform(asked, filling.attempt)
        return await agent.perform(asked, asking(filling.attempt, digest(text.encode())))

    async def _python(self, work: Python, filling: Filling) -> Result:
        from headway.agents.function import as_text

        group, expanded = filling.group, self._plans.expanded
        if self._function is None:
            self._function = function_of(work.target, self._crew.folder)

        def bodies(index: int) -> list[bytes]:
            return [one.body for one in filling.attempt.needed(expanded.groups[index].name)]

        given, named = arguments_of(
            expanded, group, filling.member, self._function, bodies, filling.variable
        )
        if group.task.quorum is not None:
            missing = missing_of(filling, expanded, self._crew)
            named |= {"missing": missing} if takes_missing(self._function) else {}
        if filling.workspace is not None:
            return await self._called(work.target, given, named, filling, filling.workspace)
        function = partial(self._function, **named)
        tell_waits_of(filling.attempt)
        agent = await self._crew.functions()
        lent = None if filling.share is None else filling.share.loan
        with within(self._crew.folder):
            result = await agent.perform(function, *given, lent=lent)
        if not result.is_durable:
            kind = type(result.value).__name__
            raise AttemptError(Fault("function", detail=f"JSON cannot hold what it gave: {kind}"))
        return as_text(result)

    async def _called(
        self, target: str, given: list[object], named: dict[str, object], filling: Filling,
        workspace: OpenWorkspace,
    ) -> Result:  # fmt: skip
        """A function in a workspace: in a process of its own."""
        from headway.agents.function import as_text, result_of
        from headway.agents.shell import Command, perform_command, shim_key
        from headway.agents.worker import RAISED, place_of

        assert self._function is not None
        if place_of(self._function, len(given)) is not None:
            detail = "a function in a workspace cannot take `ctx`; write `workspace: off`"
            raise AttemptError(Fault("request", detail=detail))
        crew, attempt = self._crew, filling.attempt
        await in_thread(workspace.reset)
        out = workspace.file("gave")
        argv = (sys.executable, "-c", CALL, target, crew.folder, out)
        environment = {**filling.environment(crew.run), **filling.told}
        command = Command(
            shim_key(attempt), attempt.number, argv, environment, crew.folder,
            pickle.dumps((given, named)), self._work_s,
        )  # fmt: skip
        await perform_command(crew.shim(), workspace.command(command), attempt.clock)
        with open(out, "rb") as file:
            kind, value = pickle.load(file)
        if kind == RAISED:
            raise AttemptError(Fault("function", detail=value))
        return as_text(result_of(value))

    async def _examined(self, result: Result, filling: Filling) -> Result:
        """What a command or a function gave, if it is what the plan asks for."""
        from headway.plans.references import Misfit

        problem: str | None = None
        schema, text = self._schema_of(filling), text_in(result.body)
        if schema is not None and isinstance(misfit := schema.fit(text), Misfit):
            problem = misfit.reason
        elif self.group.task.verify:
            problem = await verifier(filling, self._crew, self._work_s)(text)
        if problem is not None:
            raise AttemptError(Fault("unfit", detail=problem), result)
        return result

    def _schema_of(self, filling: Filling) -> Schema | None:
        """Members may have different ones."""
        task = self.group.task
        if not task.schema:
            return None
        path = filling.text(task.schema)
        if path not in self._schemas:
            from headway.plans.references import read_schema

            self._schemas[path] = read_schema(self._plans.expanded.sources.files[path], path)
        return self._schemas[path]


def verifier(
    filling: Filling, crew: Crew, timeout_s: float | None
) -> Callable[[str], Awaitable[str | None]]:
    from headway.agents.shell import perform_command

    attempt, task = filling.attempt, filling.group.task

    async def verify(text: str) -> str | None:
        told = filling.environment(crew.run)
        told["answer_file"] = filling.as_file("answer", text)
        command = crew.command(attempt, task.verify, told)
        stdin, key = text.encode("utf-8", "replace"), crew.part_key()
        command = replace(command, key=key, stdin=stdin, timeout_s=timeout_s)
        if (workspace := filling.workspace) is not None:
            # What it reads counts where nothing else says that it still holds.
            command = workspace.command(command, is_observed=workspace.spec.land == "exact")
        try:
            await perform_command(crew.shim(), command, attempt.clock)
        except AttemptError as lost:
            said = text_in(lost.result.body).strip() if lost.result is not None else ""
            said = said or lost.fault.detail or "it is not right"
            # Where the context is counted, what is said of an answer is counted too.
            return cut_at_tokens(said, COMPLAINT_TOKENS)[0] if task.context_tokens else said
        return None

    return verify


def output_of(group: GroupPlan, member: int, taken: dict[str, int]) -> str:
    """The path of a member's result, which no other member has; OSError if it cannot be that."""
    text = filled(group, group.task.output, group.known.member(member))
    path = inside(text)
    if not path:
        problem = "is too long" if len(text) > PATH_CHARS_MAX else "leads out of the plan's folder"
        raise OSError(errno.EPERM, f"its output, `{shown(text)}`, {problem}")
    owner = taken.setdefault(path, member)
    if owner != member:
        detail = f"its output, `{shown(text)}`, is that of {group.label(owner)}"
        raise OSError(errno.EEXIST, detail)
    return path


def stuck_of(spec: PlanSpec, task: TaskSpec) -> float | None:
    return spec.stuck_s if task.stuck_s is None else task.stuck_s


async def executed(
    work: CommandSpec, filling: Filling, crew: Crew, expanded: ExpandedPlan, timeout_s: float | None
) -> Result:
    """A command under the shim; what an interrupted process did not come to journal is not done
    again, unless it has changed the shared state: what it saw is unknown."""
    from headway.agents.shell import judged, perform_command

    attempt, task = filling.attempt, filling.group.task
    ended = crew.adopted.take(attempt) if crew.adopted is not None else None
    workspace = filling.workspace
    if ended is not None and filling.share is None and (workspace is None or workspace.is_resumed):
        return judged(ended)
    if workspace is not None:
        await in_thread(workspace.reset)
    stdin = None
    if task.reduce:
        missing = missing_of(filling, expanded, crew) if task.quorum is not None else ()
        stdin = lines_of(attempt.needed(task.reduce), missing)
    command = crew.command(attempt, work.command, filling.environment(crew.run))
    stuck_s = stuck_of(expanded.spec, task)
    command = replace(command, stdin=stdin, timeout_s=timeout_s, stuck_s=stuck_s)
    if filling.workspace is not None:
        command = filling.workspace.command(command)
    if filling.share is None:
        return await perform_command(crew.shim(), command, attempt.clock)
    if ended is not None and ended.attempt > attempt.journalled:
        crew.notes.append(AGAIN.format(attempt.name))
    async with filling.share.shown(crew.run_folder, attempt) as view:
        command = replace(command, environment={**command.environment, **view.environment})
        result = await perform_command(crew.shim(), command, attempt.clock)
        await filling.share.take(view, result)
    return result


def asking(attempt: Attempt, prompt: bytes) -> Attempt:
    """An attempt whose replies are kept for this prompt: with another state it asks another one."""
    kept = tuple(one.removeprefix(prompt) for one in attempt.kept if one.startswith(prompt))
    return attempt.part(kept=kept, keep=lambda reply: attempt.keep(prompt + reply))


def arguments_of(
    expanded: ExpandedPlan, group: GroupPlan, member: Member, function: Callable[..., object],
    bodies: Callable[[int], list[bytes]], variable: Callable[[Template | Value], str],
) -> tuple[list[object], dict[str, object]]:  # fmt: skip
    """What a function is given by place: its item, then the results that it needs (`bodies`, by
    group); and by name: matrix values, and variables that are its own or that it takes."""
    from headway.agents.function import takes

    given: list[object] = [] if group.known.items is None else [deepcopy(member.item)]
    for edge in group.edges:
        if edge.key not in ("reads", "revise"):
            values = [value_in(body) for body in bodies(edge.group)]
            is_one = edge.memberwise or not expanded.groups[edge.group].task.is_group
            given.append(values[0] if is_one else values)
    named: dict[str, object] = deepcopy(dict(member.matrix))
    own = {name for name, _ in group.task.vars}
    for name, value in group.vars.items():
        if name not in named and (name in own or takes(function, name)):
            named[name] = variable(value)
    return given, named


def takes_missing(function: Callable[..., object]) -> bool:
    try:
        return "missing" in signature(function).parameters
    except (TypeError, ValueError):
        return False  # What is written in C may not say what it takes.


def function_of(target: str, folder: str, key: str = "python") -> Callable[..., object]:
    """The function that `module:name` means, as seen from a plan's folder."""
    module, _, name = target.partition(":")
    if folder not in sys.path:
        sys.path.insert(0, folder)
    try:
        function = getattr(import_module(module), name)
    except (ImportError, AttributeError, SyntaxError) as error:
        raise UsageError(f"`{key}: {target}` cannot be imported: {error}", where=folder) from error
    if not callable(function):
        raise UsageError(f"`{key}: {target}` is no function")
    return cast("Callable[..., object]", function)
