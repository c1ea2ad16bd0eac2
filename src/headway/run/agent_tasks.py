"""Performs tasks by agent programs: start, follow, continue, check the answer.

Laws:
- Where a session will be found is durable before its program is started.
- An answer is durable before it is examined, and is never asked for again.
- After an interruption the session goes on, if there is one; else the prompt is asked again, and
  the gateway answers from its recording what it has recorded; else it is paid again, and counted.
- What the meter saw is what an attempt took, with what it had seen of those that were killed. What
  the program says of itself counts only where the meter saw nothing.
"""

from __future__ import annotations

import os
import shutil
from collections import Counter
from collections.abc import Awaitable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Final
from uuid import uuid4

from msgspec import Struct
from msgspec.structs import replace

from headway.agents import programs
from headway.agents import shell as commands
from headway.agents.kinds import Custom, result_in
from headway.agents.metering import MeteredUsage
from headway.base.codec import encode
from headway.base.digest import digest
from headway.base.values import Fault
from headway.config import Configuration, read_configuration
from headway.errors import (
    BadValueError,
    Fix,
    HeadwayError,
    PlanError,
    PlanValueError,
    UsageError,
    did_you_mean,
)
from headway.plans.references import Fitting, Schema
from headway.plans.section import where
from headway.plans.spec import LOOP, AgentSpec, PlanSpec, Prompt, TaskSpec, better_agent
from headway.run.filling import filled
from headway.run.run_context import Crew
from headway.state.folder import in_a_line, in_thread
from headway.work import AGENT_VARIABLE, Attempt, AttemptClock, AttemptError, Result

if TYPE_CHECKING:
    from headway.agents.kinds import AgentSetting
    from headway.agents.prompt import Verify
    from headway.journal.journal import Journal
    from headway.plans.expand import ExpandedPlan, GroupPlan
    from headway.run.filling import Filling
    from headway.run.workspaces import OpenWorkspace

# Tasks of a plan that an agent performs: which one that is, whether it is there, its call.

REJECTED: Final = """

Your earlier work on this task was not taken, because files that it depends on have changed since.
The files are as they are now, without it; its changes are in the patch {path}.
"""

AGENT_SHELLS: Final = (
    AGENT_VARIABLE, "CLAUDECODE", "CODEX_THREAD_ID", "CODEX_SANDBOX", "GEMINI_CLI", "OPENCODE",
    "CURSOR_AGENT", "COPILOT_CLI", "AI_AGENT",
)  # fmt: skip
"""Variables that agents set for the commands that they run: headway's own, then those of others."""


def agent_of(task: TaskSpec) -> AgentSpec | None:
    return task.work.agent if isinstance(task.work, Prompt) else None


def is_program(task: TaskSpec) -> bool:
    """Whether the agent of a task is a program: a command, as far as this machine goes."""
    return task.is_command and isinstance(task.work, Prompt)


def has_programs(spec: PlanSpec) -> bool:
    return any(map(is_program, spec.tasks))


async def perform_agent(
    agent: AgentSpec, call: ProgramCall, filling: Filling, max_tokens: int | None, crew: Crew
) -> Result:
    if agent.name == LOOP:
        return await _loop(agent, call, filling, max_tokens, crew)
    from headway.agents.kinds import kind_of
    from headway.agents.prompt import asked_for

    kind = kind_of(agent.name, _settings(read_configuration(crew.environment).values))
    if kind is None:
        raise UsageError(f"there is no agent `{agent.name}`")
    environment, prompt = filling.environment(crew.run), asked_for(call.prompt, call.schema)
    workspace = filling.workspace
    if workspace is not None and workspace.rejected:
        prompt += REJECTED.format(path=workspace.rejected)
    call = replace(call, prompt=prompt, environment=environment, workspace=workspace)
    if filling.share is None:
        return await perform_program(kind, call, filling.attempt, crew)
    async with filling.share.shown(crew.run_folder, filling.attempt) as view:
        call = replace(call, environment={**environment, **view.environment})
        result = await perform_program(kind, call, filling.attempt, crew)
        await filling.share.take(view, result)
    return result


async def _loop(
    agent: AgentSpec, asked: ProgramCall, filling: Filling, max_tokens: int | None, crew: Crew
) -> Result:
    from headway.agents.toolloop import LoopCall, LoopDependencies, perform_loop

    task, workspace, folder = filling.group.task, filling.workspace, crew.folder
    if workspace is not None:
        # Its file tool works in this process: what it reads is not observed.
        if not workspace.is_resumed:
            filling.attempt.kept = ()  # What they are about is not there any more.
        elif not filling.attempt.kept:
            await in_thread(workspace.reset)
        folder, workspace.is_blind = workspace.start, True
    has_said = "writes" in task.spots
    writes = tuple(map(filling.text, task.paths_written)) if has_said else None
    keys = tuple(map(filling.text, task.state_writes or ())) if has_said else None
    call = LoopCall(
        asked.prompt, asked.model, max_tokens, schema=asked.schema, verify=asked.verify,
        repairs=task.repairs, tools=agent.tools, folder=folder, timeout_s=asked.timeout_s,
        writes=writes, state_writes=keys, is_foreign=crew.is_foreign,
    )  # fmt: skip
    servers = {one.name: one for one in read_configuration(crew.environment).values.mcp}
    # What lets commands call models through the gateway is not for a model to have.
    told = replace(filling, told={}).environment(crew.run)

    def perform(command: commands.Command, clock: AttemptClock) -> Awaitable[commands.CommandEnded]:
        started = command if workspace is None else workspace.command(command)
        return crew.shim().run(started, clock)

    means = LoopDependencies(await crew.models(), perform, servers, told, filling.share)
    return await perform_loop(call, filling.attempt, means)


def must_be_known(spec: PlanSpec, configuration: Configuration) -> None:
    """Refuse a plan with unknown agents; executes nothing."""
    errors = [*_unknown(spec, configuration)]
    if errors:
        raise PlanError.together(errors)


def must_have_providers(expanded: ExpandedPlan, environ: Mapping[str, str]) -> None:
    """Refuse a plan that names a model of a provider that headway does not know."""
    spec, errors = expanded.spec, dict[tuple[str, str], PlanError]()
    for group in expanded.groups:
        work = group.task.work
        if not isinstance(work, Prompt) or group.task.is_command:
            continue
        from headway.agents.prompt import endpoint_of

        place = spec.file
        if work.model:
            place = where(spec.file, group.task.spot("model").value)
        for model in models_in(group, work.model or spec.model):
            try:
                endpoint_of(model, environ)
            except BadValueError as error:
                found = PlanValueError(error.message, where=place, hint=error.hint)
                errors.setdefault((place, model), found)
    if errors:
        raise PlanError.together([*errors.values()])


def models_in(group: GroupPlan, model: str) -> Iterator[str]:
    """The models that the members of a group ask, as far as they are known before the run."""
    if "{{" not in model:
        yield from (model,) if model else ()
    elif group.count is not None:
        members = map(group.known.member, range(group.count))
        yield from dict.fromkeys(filled(group, model, one) for one in members)


def must_be_there(spec: PlanSpec, environ: Mapping[str, str]) -> None:
    """Refuse to begin when an agent is not installed, before anything is spent."""
    _must_be_the_users(spec, environ)
    if all(agent_of(task) is None for task in spec.tasks):
        return
    from headway.agents.kinds import kind_of
    from headway.agents.tools import must_be_installed

    configuration = read_configuration(environ).values
    must_be_known(spec, configuration)
    settings = _settings(configuration)
    for task in spec.tasks:
        agent = agent_of(task)
        if agent is not None and agent.name == LOOP:
            must_be_installed(agent.tools)
        kind = kind_of(agent.name, settings) if agent is not None and is_program(task) else None
        if kind is None:
            continue
        path = environ.get("PATH", os.defpath)
        if shutil.which(kind.program, path=path) is None:
            raise UsageError(
                f"`{task.name}` is to be performed by `{kind.name}`, and there is no "
                f"`{kind.program}` on the PATH",
                where=where(spec.file, task.spot("agent").value),
                hint=kind.install,
            )


def _must_be_the_users(spec: PlanSpec, environ: Mapping[str, str]) -> None:
    """Refuse a plan that gives rights when an agent starts it: it would give them to itself."""
    shell = next((name for name in AGENT_SHELLS if environ.get(name)), "")
    task = next(filter(spec.permissions_of, spec.tasks), None)
    if shell and task is not None:
        raise UsageError(
            f"`{task.name}` has `permissions: {spec.permissions_of(task)}`, and an agent started "
            f"this run (`{shell}` is set): agents cannot give permissions",
            where=where(spec.file, task.spot("permissions").value),
            hint="remove `permissions`, or start the run from a terminal of your own",
        )


def _unknown(spec: PlanSpec, configuration: Configuration) -> Iterator[PlanError]:
    if all(agent_of(task) is None for task in spec.tasks):
        return
    from headway.agents.kinds import KINDS, kind_of

    settings = _settings(configuration)
    names = [*KINDS, *settings]
    servers = {one.name for one in configuration.mcp}
    for task in spec.tasks:
        agent = agent_of(task)
        if agent is None:
            continue
        place = task.spot("agent").value
        if agent.name != LOOP and agent.name not in names:
            guess = did_you_mean(agent.name, names)
            message = f"`tasks.{task.name}.agent` is `{agent.name}`, and there is no such agent"
            hint = f"{guess} Or describe it in the configuration: `[agents.{agent.name}]`"
            yield PlanValueError(message, where=where(spec.file, place), hint=hint)
        kind, given = kind_of(agent.name, settings), spec.permissions_of(task)
        if given and kind is not None and given not in kind.permissions:
            message = (
                f"`{task.name}` has `permissions: {given}`, and `{agent.name}` has no words for it"
            )
            hint = f'say them in the configuration: `[agents.{agent.name}]` `{given} = ["--yes"]`'
            spot = task.spot("permissions").value
            yield PlanValueError(message, where=where(spec.file, spot), hint=hint)
        for tool in agent.tools:
            scheme, _, server = tool.partition(":")
            if scheme == "mcp" and server not in servers:
                message = f"`tasks.{task.name}.agent` names the MCP server `{server}`, unknown here"
                hint = f"describe it in the configuration: `[mcp.{server}]`"
                rest = tuple(one for one in agent.tools if one != tool)
                fix = Fix("replace", place, value=better_agent(AgentSpec(LOOP, rest)))
                fixes = () if servers else (fix,)
                yield PlanValueError(message, where=where(spec.file, place), hint=hint, fixes=fixes)


def _settings(configuration: Configuration) -> Mapping[str, AgentSetting]:
    return {one.name: one for one in configuration.agents}


GO_ON: Final = (
    "You were interrupted. Go on where you were: what is done is done, but look at what was cut "
    "off. If you had finished, give your final answer again."
)
READ_BYTES: Final = 1024 * 1024

NOT_STARTED: Final = 126
"""Exit codes from here on say that a program could not be executed, or died of a signal."""


class ProgramCall(Struct, frozen=True):
    prompt: str
    model: str
    is_own_model: bool
    """Whether the task names the model, and not the plan for all."""
    environment: Mapping[str, str]
    schema: Schema | None = None
    verify: Verify | None = None
    repairs: int = 1
    timeout_s: float | None = None
    stuck_s: float | None = None
    permissions: str = ""
    workspace: OpenWorkspace | None = None


async def perform_program(
    kind: programs.AgentKind, call: ProgramCall, attempt: Attempt, crew: Crew
) -> Result:
    """One attempt. Raises AttemptError; the meter around it knows of budgets and windows."""
    program = _Program(kind, call, attempt, crew)
    is_done = False
    try:
        result = await program.performed()
        is_done = True
        return result
    except HeadwayError as error:
        raise AttemptError(Fault("request", detail=in_a_line(error))) from error
    finally:
        program.tell(is_done)


def outset_of(
    kind: programs.AgentKind, home: str, asked: programs.Session, environ: Mapping[str, str],
    journalled: int = 0,
) -> tuple[programs.How, programs.Session, programs.StoredSession | None]:  # fmt: skip
    """How the next attempt begins, as far as the disk tells; whether anything is recorded is the
    meter's to know. `asked` is the session if there was none before; `journalled` is the last
    attempt whose end the journal knows."""
    before = programs.read_session(home)
    if before is None:
        return "first", asked, None
    is_same = before.agent == asked.agent and before.prompt == asked.prompt
    is_open = not before.is_over or (before.said is not None and before.attempt > journalled)
    if not is_same or not is_open:
        return "start", replace(asked, number=before.number + 1), None
    held = kind.held(home, before.session, environ)
    named = before if held is None else replace(before, session=held.session)
    if before.said is not None:
        return "taken", replace(named, is_over=False), held
    if held is not None and held.replies != 0:
        return "session", named, held
    return "replay", replace(asked, number=before.number), None


class _Program:
    def __init__(
        self, kind: programs.AgentKind, call: ProgramCall, attempt: Attempt, crew: Crew
    ) -> None:
        self._kind = kind
        self._call = call
        self._attempt = attempt
        self._crew = crew
        self._home = programs.home_of(crew.run_folder, commands.shim_key(attempt))
        self._environ = {**crew.environment, **call.environment}
        self._how: programs.How = "first"
        self._session = self._new_session()
        self._held: programs.StoredSession | None = None
        self._before = MeteredUsage()
        self._charged = 0
        """Of what is carried on from an interrupted attempt, what the journal has charged."""
        self._heard: list[programs.AgentOutput] = []
        self._commands = 0
        self._until_s: float | None = None

    def _output(self) -> programs.AgentOutput:
        every = self._heard
        tools, denied = Counter[str](), Counter[str]()
        for one in every:
            tools.update(one.tools)
            denied.update(one.denied)
        return programs.AgentOutput(
            self._session.session, sum(one.turns for one in every), dict(sorted(tools.items())),
            sum(one.input_tokens for one in every), sum(one.output_tokens for one in every),
            sum(one.microusd for one in every), denied=dict(sorted(denied.items())),
        )  # fmt: skip

    async def performed(self) -> Result:
        from headway.agents.prompt import DETAIL_CHARS, complaint, fitting

        call = self._call
        if call.timeout_s is not None:
            self._until_s = self._attempt.clock.own_s + call.timeout_s
        await in_thread(self._begin)
        goes_on = self._how == "session"
        prompt = GO_ON if goes_on else call.prompt
        said = self._session.said if self._how == "taken" else self._adopted()
        if call.workspace is not None and said is None and not goes_on:
            await in_thread(call.workspace.reset)
        while True:
            if said is None:
                said = await self._asked(prompt, goes_on)
            fit = await fitting(said, call.schema, call.verify)
            if isinstance(fit, Fitting):
                await in_thread(self._over)
                body = fit.text.encode("utf-8", "replace")
                return replace(self._spent(), body=body, value=fit.value)
            if self._session.repairs >= max(0, call.repairs):
                await in_thread(self._over)
                body = said.encode("utf-8", "replace")
                fault = Fault("unfit", detail=fit.reason[:DETAIL_CHARS])
                raise AttemptError(fault, replace(self._spent(), body=body))
            await in_thread(partial(self._note, repairs=self._session.repairs + 1, said=None))
            goes_on = await in_thread(self._can_go_on)
            prompt = complaint(fit.reason)
            if not goes_on:
                prompt = f"{call.prompt}\n\nYour answer was:\n{said}\n\n{prompt}"
            said = None

    def tell(self, is_done: bool) -> None:
        """Write down what this attempt told and took, however it ended."""
        heard, seen, how = self._output(), self._seen(), self._how
        if how == "first" and self._before.calls:
            how = "replay"  # Of its home nothing was left, but its calls were recorded.
        if how == "replay" and not seen.replayed:
            how = "start"
        held, answered = self._held, self._before.calls - self._before.in_flight
        in_session = answered
        if held is not None and held.replies is not None:
            in_session = held.replies - held.is_cut
        kept = {"session": in_session, "taken": self._before.calls}.get(how, seen.replayed)
        is_seen = bool(seen.calls or seen.replayed)
        account = programs.AgentUsage(
            self._attempt.name, self._attempt.key.hex(), self._attempt.number, self._kind.name,
            how, heard.session, heard.turns, dict(heard.tools), round(heard.input_tokens),
            round(heard.output_tokens), heard.microusd,
            seen.calls if is_seen else None, round(seen.input_tokens), round(seen.output_tokens),
            seen.microusd + self._charged, seen.replayed, self._before.calls,
            max(0, self._before.calls - kept), is_done, self._session.number, dict(heard.denied),
            seen.unpriced,
        )  # fmt: skip
        if self._crew.journal is not None:
            self._crew.journal.keep(programs.AGENT, encode(account))
        if account.denied:
            self._crew.notes.append(account.refusal)
        if how not in ("first", "start") or self._before.calls:
            self._crew.notes.append(account.words)

    def _new_session(self) -> programs.Session:
        attempt, call = self._attempt, self._call
        asked = digest(call.prompt.encode("utf-8", "replace")).hex()
        name, key = attempt.name, attempt.key.hex()
        return programs.Session(
            name, key, self._kind.name, str(uuid4()), asked, attempt=attempt.number
        )

    def _begin(self) -> None:
        kind = self._kind
        asked, journalled = self._new_session(), self._attempt.journalled
        how, session, self._held = outset_of(kind, self._home, asked, self._environ, journalled)
        workspace = self._call.workspace
        if workspace is not None and how in ("session", "taken") and not workspace.is_resumed:
            # Its workspace is a new one: its calls are answered from their recording instead.
            how, session, self._held = "replay", replace(asked, number=session.number), None
        if how in ("start", "replay"):
            programs.empty_home(self._home)
        self._session = session
        if self._crew.meter is not None:
            name = f"{self._attempt.name}~{session.number}"
            self._before = self._crew.meter.known_as(self._attempt, name)
            untold = _untold(self._before, self._crew.journal, session)
            charged = self._attempt.charged
            self._charged = min(untold.microusd, charged.microusd)
            tokens = min(round(untold.input_tokens + untold.output_tokens), charged.tokens)
            untold = replace(
                untold, microusd=untold.microusd - self._charged, charged_tokens=tokens
            )
            self._crew.meter.carry(self._attempt, untold)
        is_unrecorded = how == "replay" and self._before.calls == self._before.in_flight
        self._how = "start" if is_unrecorded else how
        self._note(attempt=self._attempt.number)

    def _note(self, **changes: object) -> None:
        self._session = replace(self._session, **changes)
        programs.save_session(self._home, self._session)

    def _over(self) -> None:
        said = self._session.said if self._crew.keeps_results else None
        self._note(is_over=True, said=said)
        programs.empty_home(self._home)

    def _can_go_on(self) -> bool:
        held = self._kind.held(self._home, self._session.session, self._environ)
        if held is not None:
            self._session = replace(self._session, session=held.session)
        return held is not None

    def _adopted(self) -> str | None:
        """The answer of a program that ended well while no headway process ran."""
        workspace = self._call.workspace
        if self._crew.adopted is None or (workspace is not None and not workspace.is_resumed):
            return None
        ended = self._crew.adopted.take(self._attempt)
        if ended is None or ended.attempt <= self._attempt.journalled or ended.code != 0:
            return None
        heard = _heard(self._kind, ended)
        text = _text(self._kind, heard, ended)
        if text is not None and not heard.error:
            self._how = "taken"
        return None if heard.error else text

    async def _asked(self, prompt: str, goes_on: bool) -> str:
        for is_again in (False, True):
            ended, heard = await self._executed(prompt, goes_on)
            if not goes_on or is_again or not _has_lost(self._kind, ended, heard):
                break
            # Its own session is not there any more: all is asked anew.
            await in_thread(partial(programs.empty_home, self._home))
            self._how, self._held = ("replay" if self._before.calls else "start"), None
            self._note(session=str(uuid4()), microusd=0)
            prompt, goes_on = self._call.prompt, False
        text = _text(self._kind, heard, ended)
        if ended.reason != "exit" or ended.code != 0 or heard.error or text is None:
            kind = commands.fault_kind(ended)
            why = heard.error or ("" if ended.code == 0 else commands.detail_of(ended))
            denied = ", ".join(sorted(heard.denied))
            silent = f"it was not allowed to use {denied}, and ended" if denied else "it ended"
            fault = Fault(kind, detail=why or f"{silent} without an answer")
            code = commands.shell_code(ended.code)
            raise AttemptError(fault, replace(self._spent(), exit_code=code))
        await in_thread(partial(self._note, said=text))
        return text

    async def _executed(
        self, prompt: str, goes_on: bool
    ) -> tuple[commands.CommandEnded, programs.AgentOutput]:
        session, call, crew = self._session, self._call, self._crew
        errand = programs.Errand(
            prompt, call.model, call.is_own_model, self._home, session.session, goes_on,
            self._environ, call.permissions,
        )  # fmt: skip
        start = await in_thread(partial(self._kind.start, errand))
        left_s = None
        if self._until_s is not None:
            left_s = max(0.001, self._until_s - self._attempt.clock.own_s)
        command = commands.Command(
            commands.shim_key(self._attempt), self._attempt.number, start.argv,
            {**call.environment, **start.told}, crew.folder, start.stdin, left_s, call.stuck_s,
        )  # fmt: skip
        if call.workspace is not None:
            command = call.workspace.command(command)
        self._commands += 1
        if self._commands > 1:
            command = replace(command, key=crew.part_key())
        try:
            ended = await crew.shim().run(command, self._attempt.clock)
        except commands.ShimGoneError as gone:
            fault = Fault("broken", detail=str(gone))
            raise AttemptError(fault, self._spent(), is_in_doubt=True) from None
        heard = await in_thread(partial(_heard, self._kind, ended))
        held = self._held
        if self._kind.is_summed and goes_on and held is not None:
            heard = programs.less(heard, held.input_tokens, held.output_tokens)
        if self._kind.is_summed and goes_on:
            earlier = self._output()
            heard = programs.less(heard, earlier.input_tokens, earlier.output_tokens)
        cost, known = heard.microusd, session.microusd
        if self._kind.is_cost_summed and goes_on and cost >= known:
            heard = replace(heard, microusd=cost - known)
        self._heard.append(heard)
        name = heard.session or session.session
        if name != session.session or cost:
            await in_thread(partial(self._note, session=name, microusd=cost or known))
        return ended, heard

    def _seen(self) -> MeteredUsage:
        meter = self._crew.meter
        return MeteredUsage() if meter is None else meter.seen(self._attempt)

    def _spent(self) -> Result:
        """What the program says that it took, unless the meter knows better."""
        seen = self._seen()
        if seen.calls or seen.replayed:
            return Result(b"")
        heard = self._output()
        return Result(
            b"", None, heard.input_tokens, heard.output_tokens, heard.microusd, heard.turns,
            unpriced=0 if heard.microusd else heard.turns,
        )  # fmt: skip


def _untold(
    before: MeteredUsage, journal: Journal | None, session: programs.Session
) -> MeteredUsage:
    """What attempts in a session took that were killed: it is recorded, and no account tells it."""
    if not before.paid or journal is None:
        return MeteredUsage()
    key = session.key, session.number
    told = [one for one in programs.accounts_of(journal.reader) if (one.key, one.number) == key]
    calls = before.paid - sum(one.metered_calls or 0 for one in told)
    given = before.input_tokens - sum(one.metered_input_tokens for one in told)
    gave = before.output_tokens - sum(one.metered_output_tokens for one in told)
    cost = before.microusd - sum(one.metered_microusd for one in told)
    if calls <= 0:
        return MeteredUsage()
    unpriced = min(calls, before.unpriced)
    return MeteredUsage(calls, max(0.0, given), max(0.0, gave), max(0, cost), unpriced=unpriced)


def _heard(kind: programs.AgentKind, ended: commands.CommandEnded) -> programs.AgentOutput:
    """What a program has told, in pieces: its output may be longer than what is kept of one."""
    stream, output = programs.OutputStream(kind.hear), ended.stdout
    if output.text is not None:
        stream.feed(output.text)
    elif os.path.exists(output.path):
        with open(output.path, "rb") as file:
            while data := file.read(READ_BYTES):
                stream.feed(data)
    return stream.end()


def _text(
    kind: programs.AgentKind, heard: programs.AgentOutput, ended: commands.CommandEnded
) -> str | None:
    if isinstance(kind, Custom):
        try:
            return result_in(kind.setting, ended.stdout.read())
        except (commands.OutputTooLongError, OSError):
            return None
    return heard.text if heard.is_over and heard.text.strip() else None


def _has_lost(
    kind: programs.AgentKind, ended: commands.CommandEnded, heard: programs.AgentOutput
) -> bool:
    """Whether a program says that it has no such session, or cannot read it."""
    if ended.code == 0 or heard.turns:
        return False
    if isinstance(kind, Custom):
        return ended.reason == "exit"
    if ended.reason == "exit" and 0 < ended.code < NOT_STARTED and not heard.is_begun:
        return True  # It broke over what it found, before it said a word.
    said = heard.error + _tail(ended.stderr) + _tail(ended.stdout)
    return any(words in said for words in kind.lost)


def _tail(output: commands.Output) -> str:
    try:
        return output.tail(READ_BYTES).decode("utf-8", "replace")
    except OSError:
        return ""
