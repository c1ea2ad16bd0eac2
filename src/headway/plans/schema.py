"""Checks a plan against its grammar: a document with places in, a `PlanSpec` out, or every error.

Laws:
- A plan is accepted or refused as a whole, and refused with all that is wrong with it.
- Every error has a code, a place and what to do; what to do can be done by a program (`Fix`).
- Nothing is opened, imported or executed.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final, Literal

from msgspec.structs import replace

from headway.base.numbers import share_of
from headway.base.values import Budget, parse_budget
from headway.errors import Fix, PlanShapeError, PlanValueError, nearest
from headway.plans.grammar import (  # fmt: skip
    AGENT,
    FIELD,
    LANDS,
    MODES,
    NAME_CHARS_MAX,
    OF_PROGRAMS,
    OF_REVISE,
    PERMISSIONS,
    QUORUM,
    REJECTION,
    RESERVED,
    ROUNDS_MAX,
    STRATEGY,
    TARGET,
    TASK_NAME,
    THENS,
    VARIABLE_NAME,
    WORK,
    variable_name,
)
from headway.plans.links import check_links
from headway.plans.resources import SCHEME
from headway.plans.section import (  # fmt: skip
    COUNT_MAX,
    PRIORITY_MAX,
    TOKENS_MAX,
    PlanFaults,
    Section,
    money_of,
    shown,
    told,
    value_of,
    where,
)
from headway.plans.sharing import check_sharing, state_of
from headway.plans.spec import (  # fmt: skip
    EXPECTS,
    LOOP,
    AgentSpec,
    CommandSpec,
    Document,
    DocumentList,
    Each,
    Keyed,
    Leaf,
    Located,
    PlanSpec,
    Prompt,
    Python,
    Quorum,
    Revise,
    Spot,
    TaskSpec,
    Value,
    WorkspaceSpec,
    better_agent,
    is_well_equipped,
    text_of,
)
from headway.plans.template import check_templates

TASKS_MAX: Final = 10_000
MATRIX_VALUES_MAX: Final = 10_000

ONLY_WITH: Final = (
    ("context", ("reduce",)),
    ("quorum", ("reduce",)),
    ("agent", ("prompt", "prompt_file")),
    ("permissions", ("agent",)),
    ("repairs", ("verify", "schema")),
    ("model", ("prompt", "prompt_file")),
    ("max_tokens", ("prompt", "prompt_file")),
    ("repairs", ("prompt", "prompt_file")),
    *((key, ("revise",)) for key in OF_REVISE[1:]),
    ("accept", ("schema",)),
)
"""Keys that say nothing without one of the others."""

SWITCH: Final = {"on": "on", "true": "on", "off": "", "false": ""}

OTHER_WORK: Final = frozenset((*WORK[1:], "model", "max_tokens", "agent", "permissions"))
"""Keys that a command does not have: it is asked for none of them unless one is there."""

COMMON: Final = frozenset((*WORK, "model", "max_tokens", "needs", "reads", "writes"))
"""Keys that every task is asked for; it is asked for the others only if it has one of them."""

RIGHTS: Final = "`edit` or `all`"


def plan_of(document: Document) -> PlanSpec:
    """The plan that a document holds. Raises a `PlanError` that brings all others along."""
    faults = PlanFaults(document.name)
    root = document.root
    if not isinstance(root, Keyed):
        message = f"the file is {told(root)}: a plan has keys and values"
        raise PlanValueError(message, where=where(faults.file, root.place))
    section = Section(root, "plan", "", faults)
    _version(section, faults)
    tasks = _tasks(section, faults)
    stem = document.name.rpartition("/")[2].rpartition(".")[0] or document.name
    named = section.text("name", _is_name, f"1 to {NAME_CHARS_MAX} printable characters")
    before = len(faults.found)
    state = state_of(section, faults)
    is_state_sound = len(faults.found) == before
    spec = PlanSpec(
        name=named or shown(stem),
        tasks=tasks,
        vars=_vars(section, "vars", faults),
        budget=_budget(section, "", faults),
        strategy=_strategy(section),
        window_share=section.read("window_share", share_of, "a share above 0, up to 100%", "%"),
        model=section.text("model"),
        timeout_s=section.duration("timeout"),
        stuck_s=section.duration("stuck"),
        retries=section.whole("retries", 0, COUNT_MAX),
        permissions=section.text("permissions", PERMISSIONS.__contains__, RIGHTS),
        objective=section.text("objective"),
        is_ratchet=bool(section.read("ratchet", SWITCH.get, "on or off")),
        file=document.name,
        state=state,
        workspace=_workspace(section, "", faults),
        body=root.place,
    )
    spec = check_links(spec, faults)
    if is_state_sound:
        check_sharing(spec, faults)
    _check_objective(spec, section, faults)
    check_templates(spec, section.node("vars"), faults)
    faults.check()
    return spec


def _check_objective(spec: PlanSpec, section: Section, faults: PlanFaults) -> None:
    """What an objective judges lands from workspaces; a ratchet has an objective."""
    spots = section.spots()
    if spec.is_ratchet and not spec.objective:
        place = spots["ratchet"].key
        message = "`ratchet` says nothing without `objective`"
        faults.add(PlanShapeError, place, message, "remove `ratchet`", Fix("remove", place))
    elif spec.objective and all(spec.workspace_of(task) is None for task in spec.tasks):
        place = spots["objective"].key
        message = "`objective` judges what lands from workspaces, and no task works in one"
        gone = (Fix("remove", spots[key].key) for key in ("objective", "ratchet") if key in spots)
        hint = "remove `objective`, or add `workspace: on` to the tasks that it is about"
        faults.add(PlanShapeError, place, message, hint, *gone)


def _version(section: Section, faults: PlanFaults) -> None:
    # A key that is nearly this one has been told already.
    if section.node("headway") is None and not nearest("headway", section.spots()):
        fix = Fix("add", section.place, "headway", 1)
        faults.add(PlanShapeError, section.place, "`headway` is missing", "add `headway: 1`", fix)
    section.read("headway", lambda text: True if text == "1" else None, "1, the only version")


def _is_name(text: str) -> bool:
    return text.isprintable() and len(text) <= NAME_CHARS_MAX


def _strategy(section: Section) -> str:
    written = section.text(
        "strategy", STRATEGY.fullmatch, "adaptive, waves(N), fixed(N) or all-at-once"
    )
    found = STRATEGY.fullmatch(written)
    return "" if found is None else found["word"] or f"{found['sized']}:{found['size']}"


def _tasks(section: Section, faults: PlanFaults) -> tuple[TaskSpec, ...]:
    node = section.node("tasks")
    if node is None:
        hint = 'add `tasks: {hello: {run: "echo hello"}}`'
        fix = Fix("add", section.place, "tasks.hello.run", "echo hello")
        faults.add(PlanShapeError, section.place, "`tasks` is missing", hint, fix)
        return ()
    if not isinstance(node, Keyed) or not 0 < len(node.pairs) <= TASKS_MAX:
        section.wrong("tasks", node, f"names and what they do: 1 to {TASKS_MAX:,}")
        return ()
    names = frozenset(key.text for key, _ in node.pairs)
    tasks: list[TaskSpec] = []
    for key, body in node.pairs:
        if TASK_NAME.fullmatch(key.text) is None:
            _bad_name(key, names, faults)
        if isinstance(body, Keyed):
            tasks.append(_task(key, body, faults))
            continue
        message = f"task `{shown(key.text)}` is {told(body)}: it takes keys, such as `run`"
        fix = Fix("source", body.place, value='{"run": "echo hello"}')
        faults.add(PlanValueError, body.place, message, "write `run: echo hello` below it", fix)
    return tuple(tasks)


def _bad_name(key: Leaf, names: frozenset[str], faults: PlanFaults) -> None:
    message = f"`{shown(key.text)}` is no name: a letter, then letters, digits, `_` and `-`"
    stem = re.sub(r"[^A-Za-z0-9_-]+", "-", key.text).strip("-")[:40]
    better = stem if TASK_NAME.fullmatch(stem) else f"task-{stem}".rstrip("-")
    while better in names:
        better += "-x"
    fix = Fix("rename", key.place, value=better)
    faults.add(PlanValueError, key.place, message, f"call it `{better}`", fix)


def _task(key: Leaf, body: Keyed, faults: PlanFaults) -> TaskSpec:
    path = f"tasks.{shown(key.text)}"
    before = len(faults.found)
    section = Section(body, "task", path, faults)
    spots = section.spots()
    _check_shape(section, spots, path, faults)
    task = TaskSpec(
        name=key.text,
        place=key.place,
        work=_work(section, spots),
        needs=tuple(dict.fromkeys([leaf.text for leaf in section.leaves("needs")])),
        reads=tuple([leaf.text for leaf in section.leaves("reads")]),
        writes=tuple([leaf.text for leaf in section.leaves("writes")]),
        body=body.place,
        spots=spots,
    )
    if not COMMON.issuperset([name.text for name, _ in body.pairs]):
        task = _with_rest(task, section, path, faults)
    # Templates of a task that is wrong anyway would be refused for the wrong reason.
    is_sound = len(faults.found) == before
    return task if is_sound else replace(task, is_sound=False)


def _with_rest(task: TaskSpec, section: Section, path: str, faults: PlanFaults) -> TaskSpec:
    """A task with what most tasks do not have: to look for it costs more than to read the rest."""
    repairs = section.whole("repairs", 0, COUNT_MAX)
    output = section.text("output", lambda text: text not in ("", SCHEME), "a path or state:KEY")
    is_key = output.startswith(SCHEME)
    whole = replace(
        task,
        each=_each(section, faults, path),
        matrix=_matrix(section, path, faults),
        reduce=section.text("reduce"),
        context_tokens=section.whole("context", 1, TOKENS_MAX),
        quorum=_quorum(section),
        vars=_vars(section, f"{path}.vars", faults),
        output="" if is_key else output,
        output_key=output.removeprefix(SCHEME) if is_key else "",
        schema=section.text("schema"),
        verify=section.text("verify"),
        repairs=1 if repairs is None else repairs,
        revise=_revise(section, path, faults),
        queue=section.text("queue", _is_name, f"1 to {NAME_CHARS_MAX} printable characters"),
        timeout_s=section.duration("timeout"),
        stuck_s=section.duration("stuck"),
        retries=section.whole("retries", 0, COUNT_MAX),
        budget=_budget(section, path, faults),
        priority=section.number("priority", PRIORITY_MAX),
        workspace=_workspace(section, path, faults),
    )
    _check_variables(whole, faults)
    return whole


def _check_shape(
    section: Section, spots: Mapping[str, Spot], path: str, faults: PlanFaults
) -> None:
    works = [name for name in spots if name in WORK]
    if not works:
        hint = "add what it does, such as `run: echo hello`"
        fix = Fix("add", section.place, "run", "echo hello")
        faults.add(PlanShapeError, section.place, f"`{path}` does nothing", hint, fix)
        return
    wrong = [
        (name, f"`{path}` has `{works[0]}` and `{name}`: a task does one thing")
        for name in works[1:]
    ]
    wrong += [
        (name, f"`{path}.{name}` says nothing without `{'` or `'.join(others)}`")
        for name, others in ONLY_WITH
        if name in spots and spots.keys().isdisjoint(others)
    ]
    wrong += [
        (name, f"`{path}` has `reduce` and `{name}`: a reduction has no members")
        for name in ("each", "matrix")
        if "reduce" in spots and name in spots
    ]
    for name, message in wrong:
        place = spots[name].key
        faults.add(PlanShapeError, place, message, f"remove `{name}`", Fix("remove", place))


def _work(section: Section, spots: Mapping[str, Spot]) -> CommandSpec | Prompt | Python:
    command = section.text("run")
    if command and OTHER_WORK.isdisjoint(spots):
        return CommandSpec(command)
    target = section.text("python", TARGET.fullmatch, "module:name")
    prompt = Prompt(
        text=section.text("prompt"),
        file=section.text("prompt_file"),
        model=section.text("model"),
        max_tokens=section.whole("max_tokens", 1, TOKENS_MAX),
        agent=_agent(section),
        permissions=section.text("permissions", PERMISSIONS.__contains__, RIGHTS),
    )
    return CommandSpec(command) if command else Python(target) if target else prompt


def _agent(section: Section) -> AgentSpec | None:
    found = AGENT.fullmatch(section.text("agent", AGENT.fullmatch, EXPECTS))
    node = section.node("agent")
    if found is None or node is None:
        return None
    tools = found["tools"] or ""
    agent = AgentSpec(found["name"], tuple(tool.strip() for tool in tools.split(",") if tools))
    if not is_well_equipped(agent):
        section.wrong("agent", node, EXPECTS, better_agent(agent))
    given = section.node("permissions")
    if agent.name == LOOP and given is not None:
        section.wrong(
            "permissions", given, "no value beside `tools(...)`: the tools are all it has"
        )
    return agent


def _workspace(section: Section, path: str, faults: PlanFaults) -> WorkspaceSpec:
    land = section.text("land", LANDS.__contains__, "exact, verified or merge")
    listed = section.node("checks") is not None
    checks = tuple([leaf.text for leaf in section.leaves("checks")]) if listed else None
    said = WorkspaceSpec(land=land, reruns=section.whole("reruns", 0, COUNT_MAX), checks=checks)
    node = section.node("workspace")
    match node:
        case None:
            return said
        case Leaf() if node.text in ("on", "off") or isinstance(node.value, bool):
            return replace(said, is_on=node.text == "on" or node.value is True)
        case Keyed() if node.pairs:
            inner = Section(node, "workspace", f"{path}.workspace" if path else "workspace", faults)
            mode = inner.text("mode", MODES.__contains__, "auto, overlay or copy")
            return replace(
                said, is_on=True, path=inner.text("path"), mode=mode or "auto",
                base=inner.text("base"), setup=inner.text("setup"),
                setup_each=inner.text("setup_each"),
            )  # fmt: skip
    section.wrong("workspace", node, "on, off, or some of path, mode, base, setup and setup_each")
    return said


def _revise(section: Section, path: str, faults: PlanFaults) -> Revise | None:
    task = section.text("revise")
    accept = section.text("accept", FIELD.fullmatch, "the name of a field, such as `ok`")
    at_most = section.whole("at_most", 1, ROUNDS_MAX)
    then = section.text("then", THENS.__contains__, "fail or continue")
    if not task:
        return None
    spots = section.spots()
    if section.node("accept") is None and section.node("run") is None:
        # The exit code of an agent, or of a function, says that it could not do its work.
        message = f"`{path}` does not say how it rejects: only a command does by its exit code"
        hint = (
            "add `accept: FIELD`, a field of its `schema` that is true or false, or remove `revise`"
        )
        gone = (Fix("remove", spots[key].key) for key in OF_REVISE if key in spots)
        faults.add(PlanShapeError, spots["revise"].key, message, hint, *gone)
    return Revise(task, accept, 1 if at_most is None else at_most, then == "continue")


def _quorum(section: Section) -> Quorum | None:
    found = QUORUM.fullmatch(section.text("quorum", QUORUM.fullmatch, "a count or `80%`"))
    return found and Quorum(int(found["count"] or 0), int(found["percent"] or 0))


def _each(section: Section, faults: PlanFaults, path: str) -> Each | None:
    """Whether a text is a task or a pattern is known when all tasks are."""
    node = section.node("each")
    match node:
        case None:
            return None
        case Leaf(value=str()) if node.text:
            return Each("glob", source=section.text("each"))
        case DocumentList() if node.items:
            return Each("items", tuple(value_of(item) for item in node.items))
        case Keyed() if node.pairs:
            inner = Section(node, "each", f"{path}.each", faults)
            key, has_rows = inner.text("key"), inner.node("rows") is not None
            if not (inner.node("lines") is not None if has_rows else key):
                kind: Literal["rows", "lines"] = "rows" if has_rows else "lines"
                return Each(kind, source=inner.text(kind), key=key)
    section.wrong("each", node, "items, a pattern, a task, `lines` or `rows`")
    return None


def _matrix(
    section: Section, path: str, faults: PlanFaults
) -> tuple[tuple[str, tuple[Value, ...]], ...]:
    node = section.node("matrix")
    if node is None:
        return ()
    if not isinstance(node, Keyed) or not node.pairs:
        section.wrong("matrix", node, "names with a list of values each")
        return ()
    axes: list[tuple[str, tuple[Value, ...]]] = []
    for key, values in node.pairs:
        _check_name(key, f"{path}.matrix", node, faults)
        if not isinstance(values, DocumentList) or not 0 < len(values.items) <= MATRIX_VALUES_MAX:
            message = f"`{path}.matrix.{shown(key.text)}` is {told(values)}: it takes 1 to "
            message += f"{MATRIX_VALUES_MAX:,} values in a list"
            fix = Fix("source", values.place, value='["a", "b"]')
            hint = f'write `{shown(key.text)}: ["a", "b"]`'
            faults.add(PlanValueError, values.place, message, hint, fix)
            continue
        axes.append((key.text, tuple(value_of(value) for value in values.items)))
        _check_twice(values, f"{path}.matrix.{shown(key.text)}", faults)
    return tuple(axes)


def _check_twice(values: DocumentList, path: str, faults: PlanFaults) -> None:
    """A combination that is there twice would be two tasks of one name."""
    seen: set[str] = set()
    for value in values.items:
        text = text_of(value_of(value))
        if text in seen:
            fix = Fix("remove", value.place)
            message = f"`{path}` has {told(value)} twice"
            faults.add(PlanValueError, value.place, message, "remove one of them", fix)
        seen.add(text)


def _vars(section: Section, path: str, faults: PlanFaults) -> tuple[tuple[str, Value], ...]:
    node = section.node("vars")
    if node is None:
        return ()
    if not isinstance(node, Keyed) or not node.pairs:
        section.wrong("vars", node, "names with a value each")
        return ()
    for key, _ in node.pairs:
        _check_name(key, path, node, faults)
    return tuple((key.text, value_of(value)) for key, value in node.pairs)


def _check_name(key: Leaf, path: str, node: Keyed, faults: PlanFaults) -> None:
    """The name of a variable is the name of an environment variable."""
    text = key.text
    is_of_programs = OF_PROGRAMS.fullmatch(text.lower()) is not None
    if VARIABLE_NAME.fullmatch(text) and text not in RESERVED and not is_of_programs:
        return
    message = f"`{path}.{shown(text)}` is no name for a value: lower case, digits and `_`"
    if text in RESERVED:
        giver = "revise" if text == REJECTION else "each"
        message = f"`{path}.{text}` cannot be called so: `{text}` is what `{giver}` gives"
    if is_of_programs:
        message = f"`{path}.{shown(text)}` cannot be called so: programs read settings from it"
    better = variable_name(text, (other.text for other, _ in node.pairs))
    fix = Fix("rename", key.place, value=better)
    faults.add(PlanValueError, key.place, message, f"call it `{better}`", fix)


def _check_variables(task: TaskSpec, faults: PlanFaults) -> None:
    """A command gets matrix values and variables under their own names: each name once."""
    names = [name for name, _ in task.vars]
    axes = [name for name, _ in task.matrix]
    both = [name for name in axes if name in names]
    # The value of `x` that is too long for a variable is in the file `$x_file`.
    both += [f"{name}_file" for name in names if f"{name}_file" in (*names, *axes)]
    if both:
        message = f"`tasks.{task.name}` has two values that a command gets as `${both[0]}`"
        fix = Fix("remove", task.spot("vars").key)
        hint = "remove `vars`, or rename one of them"
        faults.add(PlanShapeError, task.spot("vars").key, message, hint, fix)


def _budget(section: Section, path: str, faults: PlanFaults) -> Budget | None:
    node = section.node("budget")
    match node:
        case None:
            return None
        case Keyed(pairs=((Leaf(text="usd"), _),)):
            inner = f"{path}.budget" if path else "budget"
            return Budget(
                microusd=Section(node, "budget", inner, faults).read(
                    "usd", money_of, "an amount of dollars above 0"
                )
            )
        case DocumentList() if (budget := _amounts(node.items)) is not None:
            return budget
        case Leaf() if (budget := _amounts((node,))) is not None:
            return budget
    is_bare = isinstance(node, Leaf) and money_of(node.text) is not None
    better = f"${node.text}" if isinstance(node, Leaf) and is_bare else ""
    section.wrong("budget", node, "dollars (`$6`), tokens (`5M`) or both (`[$6, 5M]`)", better)
    return None


def _amounts(nodes: tuple[Located, ...]) -> Budget | None:
    """Dollars, tokens, or one of each; `None` if it is anything else."""
    found = [parse_budget(node.text if isinstance(node, Leaf) else "") for node in nodes]
    tokens = [one.tokens for one in found if one is not None and one.tokens]
    dollars = [one.microusd for one in found if one is not None and one.microusd]
    if not nodes or len(tokens) + len(dollars) < len(nodes) or len(dollars) > 1 or len(tokens) > 1:
        return None
    return Budget(tokens[0] if tokens else None, dollars[0] if dollars else None)
