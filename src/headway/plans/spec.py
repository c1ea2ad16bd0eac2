"""A checked plan as records, before it is expanded."""

from __future__ import annotations

import re
from collections.abc import Iterator
from json import dumps
from typing import Final, Literal

from msgspec import Struct, structs

from headway.base.values import Budget
from headway.errors import Fix, Place, nearest
from headway.plans.resources import ACTS, SCHEME, Channel

RERUNS: Final = 1
"""How often a task runs again for files that have changed, where a plan does not say: its last run
begins when all tasks before it have landed, so that nothing can change under it."""

Scalar = str | int | float | bool | None


Value = Scalar | list["Value"] | dict[str, "Value"]
"""What a YAML or JSON document holds."""

Spread = Literal["items", "glob", "lines", "rows", "task"]
"""Where the members of a group come from."""


class Leaf(Struct, frozen=True):
    """One value of a document, where it stands."""

    value: Scalar
    text: str
    """As it was written: `120k`, `$6`."""
    place: Place


class DocumentList(Struct, frozen=True):
    """A list of a document."""

    items: tuple[Located, ...]
    place: Place


class Keyed(Struct, frozen=True):
    """A mapping of a document; no key is there twice."""

    pairs: tuple[tuple[Leaf, Located], ...]
    place: Place


Located = Leaf | DocumentList | Keyed


class Document(Struct, frozen=True):
    """A file as it was read: its name as people wrote it, and what it holds."""

    name: str
    root: Located


class Spot(Struct, frozen=True):
    """Where a key of a task stands, and where its value does."""

    key: Place
    value: Place


class Each(Struct, frozen=True):
    """One member for each of these."""

    kind: Spread
    items: tuple[Value, ...] = ()
    source: str = ""
    """The pattern, the file of lines or rows, or the task."""
    key: str = ""
    """Of rows: the column that names each of them."""
    columns: tuple[str, ...] | None = None
    """Of rows: those that every row has; None while the file has not been read."""


class CommandSpec(Struct, frozen=True):
    """A command for the shell; values reach it as environment variables."""

    command: str


LOOP: Final = "tools"
"""The agent that is no program: a model in a loop of ours."""


class AgentSpec(Struct, frozen=True):
    """Who performs a prompt in as many calls as it takes: a program, or a loop with tools."""

    name: str
    tools: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.name}({', '.join(self.tools)})" if self.tools else self.name


class Quorum(Struct, frozen=True):
    """How many results a reduction can do with: so many, or a part of them."""

    count: int = 0
    percent: int = 0

    def of(self, results: int) -> int:
        """The fewest of so many results."""
        return self.count or -(-results * self.percent // 100)


class Prompt(Struct, frozen=True):
    """A call of a model, or what an agent is asked to do."""

    text: str = ""
    file: str = ""
    model: str = ""
    max_tokens: int | None = None
    agent: AgentSpec | None = None
    permissions: str = ""
    """What this task gives its agent beyond its user's settings: `edit` or `all`."""


class Python(Struct, frozen=True):
    """A function: `module:name`, imported when the run starts and never before."""

    target: str


class WorkspaceSpec(Struct, frozen=True):
    """What a plan or a task says of workspaces; empty where it says nothing."""

    is_on: bool | None = None
    path: str = ""
    mode: str = "auto"
    base: str = ""
    setup: str = ""
    setup_each: str = ""
    land: str = ""
    reruns: int | None = None
    checks: tuple[str, ...] | None = None

    def over(self, other: WorkspaceSpec) -> WorkspaceSpec:
        """The same, with what it leaves open as the other one says."""
        made = other if self.is_on is None else self
        return WorkspaceSpec(
            made.is_on, made.path, made.mode, made.base, made.setup, made.setup_each,
            self.land or other.land,
            other.reruns if self.reruns is None else self.reruns,
            other.checks if self.checks is None else self.checks,
        )  # fmt: skip


class Revise(Struct, frozen=True):
    """A task judges the work of another one, and may send it back."""

    task: str
    accept: str = ""
    """The field of its result that is true for work that is accepted; without one, its exit code
    is 0."""
    at_most: int = 1
    goes_on: bool = False
    """Whether work that was rejected in all rounds is used all the same."""


class TaskSpec(Struct, frozen=True):
    """One entry under `tasks`."""

    name: str
    place: Place
    """Of its name in the file; line 0 if it is in none."""
    work: CommandSpec | Prompt | Python
    each: Each | None = None
    matrix: tuple[tuple[str, tuple[Value, ...]], ...] = ()
    needs: tuple[str, ...] = ()
    reads: tuple[str, ...] = ()
    """Paths, and `state:KEY`."""
    writes: tuple[str, ...] = ()
    """Paths, `state:KEY`, and `effect:CHANNEL`."""
    reduce: str = ""
    """The group whose results this task is given all together."""
    context_tokens: int | None = None
    quorum: Quorum | None = None
    """The results that it can do with; None is all of them."""
    vars: tuple[tuple[str, Value], ...] = ()
    output: str = ""
    """The file that gets the result."""
    output_key: str = ""
    """The key of the shared state that does; the same key of the plan says both."""
    schema: str = ""
    verify: str = ""
    repairs: int = 1
    revise: Revise | None = None
    queue: str = ""
    timeout_s: float | None = None
    stuck_s: float | None = None
    retries: int | None = None
    budget: Budget | None = None
    priority: float = 0.0
    workspace: WorkspaceSpec = WorkspaceSpec()
    body: Place = Place(0, 0)
    """Of its first key: where another one can be added."""
    spots: dict[str, Spot] = {}
    """Where each of its keys stands, and within some of them each value: `reads.0`, `vars.diff`."""
    is_sound: bool = True
    """Off while a plan is checked that will be refused for this task."""

    def spot(self, *keys: str) -> Spot:
        """Where the first of some keys that is there stands, or the task itself if none is."""
        found = (self.spots[key] for key in keys if key in self.spots)
        return next(found, Spot(self.place, self.body))

    def exchange(self, key: str, old: str, new: str = "") -> Fix:
        """The edit that puts another entry of a key in the place of one, or takes it away."""
        entries = {"needs": self.needs, "reads": self.reads, "writes": self.writes}.get(key, (old,))
        rest = tuple(filter(None, (new if one == old else one for one in entries)))
        if not rest:
            return Fix("remove", self.spot(key).key)
        return Fix("replace", self.spot(key).value, value=rest if len(rest) > 1 else rest[0])

    def extend(self, key: Literal["needs", "reads", "writes"], *more: str) -> Fix:
        """The edit that adds entries to a key."""
        before = {"needs": self.needs, "reads": self.reads, "writes": self.writes}[key]
        entries = (*before, *more)
        value = entries[0] if len(entries) == 1 else entries
        if key not in self.spots:
            return Fix("add", self.body, key, value)
        return Fix("replace", self.spot(key).value, value=value)

    @property
    def says_all(self) -> bool:
        """Whether it declares what it reads and what it writes."""
        return self.state_reads is not None and self.state_writes is not None

    @property
    def is_group(self) -> bool:
        """Whether it has members: more than one, none, or one by chance."""
        return self.each is not None or bool(self.matrix)

    @property
    def is_command(self) -> bool:
        """Whether a program performs it, on this machine: a command, or an agent that is one."""
        work = self.work
        return isinstance(work, CommandSpec) or (
            isinstance(work, Prompt) and work.agent is not None and work.agent.name != LOOP
        )

    @property
    def paths_read(self) -> tuple[str, ...]:
        return tuple([text for text in self.reads if not text.startswith((SCHEME, ACTS))])

    @property
    def paths_written(self) -> tuple[str, ...]:
        return tuple([text for text in self.writes if not text.startswith((SCHEME, ACTS))])

    @property
    def state_reads(self) -> tuple[str, ...] | None:
        """The keys and patterns that it may read; None if it does not say what it reads."""
        return self._declared("reads", self.reads, SCHEME)

    @property
    def state_writes(self) -> tuple[str, ...] | None:
        """The keys and patterns that it may write; None if it does not say what it writes."""
        return self._declared("writes", self.writes, SCHEME)

    @property
    def effects(self) -> tuple[str, ...] | None:
        """The effect channels that it may use; None if it does not say what it writes."""
        return self._declared("writes", self.writes, ACTS)

    def _declared(self, key: str, texts: tuple[str, ...], scheme: str) -> tuple[str, ...] | None:
        if not texts and key not in self.spots:
            return None
        return tuple([text.removeprefix(scheme) for text in texts if text.startswith(scheme)])


StateKey = tuple[str, Channel, Spot]
"""One entry under `state`: a key or a pattern, how what is put there combines, and its place."""


class PlanSpec(Struct, frozen=True):
    """A whole plan."""

    name: str
    tasks: tuple[TaskSpec, ...]
    vars: tuple[tuple[str, Value], ...] = ()
    budget: Budget | None = None
    strategy: str = ""
    """As the engine knows it: `adaptive`, `waves:4`."""
    window_share: float | None = None
    """The most that a run takes of each usage window."""
    model: str = ""
    timeout_s: float | None = None
    stuck_s: float | None = None
    retries: int | None = None
    permissions: str = ""
    """What it gives its agents that are programs, where a task says nothing else."""
    file: str = ""
    """The plan's file as people wrote it; empty if it has none."""
    state: tuple[StateKey, ...] | None = None
    """What its tasks share; None if the plan has no such key."""
    workspace: WorkspaceSpec = WorkspaceSpec()
    objective: str = ""
    """The command that says how good the merged work is."""
    is_ratchet: bool = False
    """Whether work that lowers the objective does not land."""
    body: Place = Place(0, 0)
    """Of its first key: where another one can be added."""

    @property
    def channels(self) -> dict[str, Channel]:
        """By key or pattern of the shared state."""
        return {key: channel for key, channel, _ in self.state or ()}

    def permissions_of(self, task: TaskSpec) -> str:
        """`edit`, `all` or empty: what the plan gives the program that performs a task."""
        work = task.work
        if not isinstance(work, Prompt) or work.agent is None or work.agent.name == LOOP:
            return ""
        return work.permissions or self.permissions

    def workspace_of(self, task: TaskSpec) -> WorkspaceSpec | None:
        """How a task works on files of its own; None if it works on those of its user."""
        work = task.work
        is_agent = isinstance(work, Prompt) and work.agent is not None
        if isinstance(work, Prompt) and not is_agent:
            return None  # A model's call touches no files.
        made = task.workspace.over(self.workspace)
        if not (is_agent if made.is_on is None else made.is_on):
            return None
        land = made.land or ("verified" if is_agent else "exact")
        reruns = RERUNS if made.reruns is None else made.reruns
        return structs.replace(made, is_on=True, land=land, reruns=reruns)


def text_of(value: Value) -> str:
    """A value where text is wanted: text as it is, everything else as JSON."""
    return value if isinstance(value, str) else dumps(value, ensure_ascii=False)


def texts_in(value: Value) -> Iterator[str]:
    """Every text and every key of a value."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, list | dict):
        for inner in value:
            yield from texts_in(inner)
        for inner in value.values() if isinstance(value, dict) else ():
            yield from texts_in(inner)


def whole(value: object) -> Value:
    """A value of JSON; half of a character, which UTF-8 cannot hold, becomes a question mark."""
    match value:
        case dict():
            return {str(whole(str(key))): whole(inner) for key, inner in value.items()}
        case list():
            return [whole(inner) for inner in value]
        case bool() | int() | float() | None:
            return value
    return str(value).encode("utf-8", "replace").decode()


# The tools that a loop can be given in a plan: `agent: tools(shell, files, mcp:NAME)`.

TOOLS: Final = ("shell", "files")

EXPECTS: Final = "a name, or `tools(...)` with some of `shell`, `files` and `mcp:NAME`"

_SERVER: Final = re.compile(r"mcp:[a-z0-9][a-z0-9_-]{0,63}", re.ASCII)


def is_well_equipped(agent: AgentSpec) -> bool:
    """Whether its tools are some that it can have: a loop has one at least, a program none."""
    if agent.name != LOOP:
        return not agent.tools
    return bool(agent.tools) and all(map(_is_known, agent.tools))


def better_agent(agent: AgentSpec) -> str:
    """What the writer of a plan may have meant."""
    if agent.name != LOOP:
        return agent.name
    near = [tool if _is_known(tool) else nearest(tool, TOOLS) for tool in agent.tools]
    return f"{LOOP}({', '.join(dict.fromkeys(filter(None, near))) or ', '.join(TOOLS)})"


def _is_known(tool: str) -> bool:
    return tool in TOOLS or _SERVER.fullmatch(tool) is not None
