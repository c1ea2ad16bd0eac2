"""Tasks of a plan that an agent performs: which one that is, whether it is there, its call."""

from __future__ import annotations

import os
import shutil
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from headway.core.plan.remark import where
from headway.core.plan.spec import LOOP, Agent, PlanSpec, Prompt, TaskSpec
from headway.core.plan.tools import better_agent
from headway.errors import (
    BadValueError,
    Fix,
    PlanError,
    PlanValueError,
    UsageError,
    did_you_mean,
)
from headway.runtime.agents.endpoint import endpoint_of
from headway.runtime.configuration import Configuration, read_configuration
from headway.runtime.filling import filled
from headway.runtime.work import AGENT_VARIABLE, Result

if TYPE_CHECKING:
    from headway.core.plan.expand import Expanded, GroupPlan
    from headway.runtime.agents.cli.custom import AgentSetting
    from headway.runtime.crew import Crew
    from headway.runtime.filling import Filling
    from headway.runtime.schemas import Schema


AGENT_SHELLS: Final = (
    AGENT_VARIABLE, "CLAUDECODE", "CODEX_THREAD_ID", "CODEX_SANDBOX", "GEMINI_CLI", "OPENCODE",
    "CURSOR_AGENT", "COPILOT_CLI", "AI_AGENT",
)  # fmt: skip
"""Variables that agents set for the commands that they run: headway's own, then those of others."""


@dataclass(frozen=True, slots=True)
class AgentTask:
    """What an agent is asked to do, in one attempt of one task."""

    agent: Agent
    prompt: str
    model: str
    is_own_model: bool
    """Whether the task names the model, and not the plan for all."""
    filling: Filling
    max_tokens: int | None = None
    schema: Schema | None = None
    verify: Callable[[str], Awaitable[str | None]] | None = None
    timeout_s: float | None = None
    permissions: str = ""
    """What the plan gives beyond the user's settings of the agent."""


def agent_of(task: TaskSpec) -> Agent | None:
    """Who performs a task, if it is an agent."""
    return task.work.agent if isinstance(task.work, Prompt) else None


def is_program(task: TaskSpec) -> bool:
    """Whether the agent of a task is a program: a command, as far as this machine goes."""
    return task.is_command and isinstance(task.work, Prompt)


def has_programs(spec: PlanSpec) -> bool:
    """Whether any agent of a plan is a program."""
    return any(map(is_program, spec.tasks))


async def perform_agent(asked: AgentTask, crew: Crew) -> Result:
    """One attempt by an agent."""
    if asked.agent.name == LOOP:
        return await _loop(asked, crew)
    from headway.runtime.agents.cli.known import kind_of
    from headway.runtime.agents.cli.perform import ProgramCall, perform_program
    from headway.runtime.agents.prompt import asked_for

    kind = kind_of(asked.agent.name, _settings(read_configuration(crew.environment).values))
    if kind is None:
        raise UsageError(f"there is no agent `{asked.agent.name}`")
    filling = asked.filling
    environment = filling.environment(crew.run)
    prompt = asked_for(asked.prompt, asked.schema)
    repairs = filling.group.task.repairs
    call = ProgramCall(
        prompt, asked.model, asked.is_own_model, environment, asked.schema, asked.verify, repairs,
        asked.timeout_s, asked.permissions,
    )  # fmt: skip
    if filling.share is None:
        return await perform_program(kind, call, filling.attempt, crew)
    filling.share.prompted(prompt)
    async with filling.share.shown(crew.run_folder, filling.attempt) as view:
        call = replace(call, environment={**environment, **view.told})
        result = await perform_program(kind, call, filling.attempt, crew)
        await view.take(result)
    return result


async def _loop(asked: AgentTask, crew: Crew) -> Result:
    from headway.runtime.agents.toolloop import LoopCall, Means, perform_loop

    filling = asked.filling
    task = filling.group.task
    has_said = any(name == "writes" for name, _ in task.spots)
    writes = tuple(map(filling.text, task.paths_written)) if has_said else None
    keys = tuple(map(filling.text, task.state_writes or ())) if has_said else None
    call = LoopCall(
        asked.prompt, asked.model, asked.agent.tools, crew.folder, asked.max_tokens, asked.schema,
        asked.verify, task.repairs, asked.timeout_s, writes=writes, state_writes=keys,
        is_foreign=crew.is_foreign,
    )  # fmt: skip
    servers = {one.name: one for one in read_configuration(crew.environment).values.mcp}
    # What lets commands call models through the gateway is not for a model to have.
    told = replace(filling, told={}).environment(crew.run)
    means = Means(await crew.models(), crew.shim, servers, told, filling.share)
    if filling.share is not None:
        filling.share.prompted(asked.prompt)
    return await perform_loop(call, filling.attempt, means)


def must_be_known(spec: PlanSpec, configuration: Configuration) -> None:
    """Refuse a plan whose agents nobody knows; executes nothing."""
    errors = [*_unknown(spec, configuration)]
    if errors:
        raise PlanError.together(errors)


def must_have_providers(expanded: Expanded, environ: Mapping[str, str]) -> None:
    """Refuse a plan that names a model of a provider that headway does not know."""
    spec, errors = expanded.spec, dict[tuple[str, str], PlanError]()
    for group in expanded.groups:
        work = group.task.work
        if not isinstance(work, Prompt) or group.task.is_command:
            continue
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
    from headway.runtime.agents.cli.known import kind_of
    from headway.runtime.agents.tools_box import must_be_installed

    configuration = read_configuration(environ).values
    must_be_known(spec, configuration)
    settings = _settings(configuration)
    _must_be_the_users(spec, environ)
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
    from headway.runtime.agents.cli.known import KINDS, kind_of

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
                fix = Fix("replace", place, value=better_agent(Agent(LOOP, rest)))
                fixes = () if servers else (fix,)
                yield PlanValueError(message, where=where(spec.file, place), hint=hint, fixes=fixes)


def _settings(configuration: Configuration) -> Mapping[str, AgentSetting]:
    return {one.name: one for one in configuration.agents}
