"""Agents that are programs: how one is started, and what its event stream says.

Laws:
- No output is an error: a line that is no event, is torn, too long, too deep or no UTF-8 is left
  out, and the next one is read as if it had not been there.
- What is held of an unfinished line is bounded.
- An event that is not known, or has other fields than it had, changes nothing.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import Final, Literal

from msgspec import Struct, field
from msgspec.structs import replace

from headway.base.codec import decode, encode, rebuild
from headway.base.fields import Fields, object_fields, parsed, text_of, tokens
from headway.errors import StateFileError, WireError
from headway.journal.reader import JournalReader
from headway.journal.shim_log import sync_folder, write_file
from headway.plans.grammar import PERMISSIONS


class Errand(Struct, frozen=True):
    prompt: str
    model: str
    is_own_model: bool
    """Whether the task itself names it, and not the plan for all."""
    home: str
    """The folder of the session: what the program keeps goes there."""
    session: str
    goes_on: bool
    """Whether the session is there already, and is gone on with."""
    environ: Mapping[str, str]
    """Everything that the program finds in its environment, the meter's addresses included."""
    permissions: str = ""
    """`edit` or `all`: what the plan gives beyond the user's settings; empty is nothing."""

    @property
    def stdin(self) -> bytes:
        return self.prompt.encode("utf-8", "replace")


class ProcessStart(Struct, frozen=True):
    """A process to start. No prompt is in its arguments, which others on the machine can read."""

    argv: tuple[str, ...]
    told: Mapping[str, str]
    """Variables on top of those that it has."""
    stdin: bytes | None


class StoredSession(Struct, frozen=True):
    session: str
    replies: int | None = 0
    """Answers of models that are in it; None if unknown."""
    is_cut: bool = False
    """Whether nothing came after the last of them: what it wanted done was cut off."""
    input_tokens: float = 0.0
    output_tokens: float = 0.0
    """Its own count, where it counts for the whole session."""


class AgentKind:
    """One program. Its methods are called in threads, and change nothing but files in a home."""

    name: str
    program: str
    install: str
    permissions: tuple[str, ...] = PERMISSIONS
    lost: tuple[str, ...] = ()
    """Its messages when it does not find a session: that one is begun anew."""
    is_summed = False
    """Whether its token counts are those of the whole session, earlier processes included."""
    is_cost_summed = False

    def start(self, errand: Errand) -> ProcessStart:
        """How to start it. Writes what has to be in its home first."""
        raise NotImplementedError

    def held(self, home: str, session: str, environ: Mapping[str, str]) -> StoredSession | None:
        """The session that a process has left behind; None if there is none to go on with."""
        raise NotImplementedError

    def hear(self, notes: AgentOutput, event: Fields) -> None:
        """One event of its output. Total: never raises."""


def bare_model(errand: Errand, provider: str, *beginnings: str) -> str:
    """A model by its own provider's name; that of the whole plan only if it is this provider's."""
    prefix, slash, name = errand.model.partition("/")
    if slash and prefix == provider:
        return name
    is_theirs = errand.model.startswith(beginnings) if beginnings else True
    return errand.model if errand.is_own_model or is_theirs else ""


LINE_BYTES_MAX: Final = 32 * 1024 * 1024
"""The longest event: a tool's whole output is in one. What is longer is passed over."""

TOOLS_MAX: Final = 200
"""Kinds of tools that are counted apart; agents have some twenty."""

NAME_CHARS: Final = 80
ERROR_CHARS: Final = 500


class AgentOutput(Struct):
    """What is known of one session, or of a part of one, from the events of its stream."""

    session: str = ""
    turns: int = 0
    """Replies of the model, as far as the stream separates them."""
    tools: dict[str, int] = field(default_factory=dict)
    input_tokens: float = 0.0
    """Those that were read from a cache included."""
    output_tokens: float = 0.0
    microusd: int = 0
    """Its cost as the agent reports it; most report none."""
    text: str = ""
    error: str = ""
    is_over: bool = False
    denied: dict[str, int] = field(default_factory=dict)
    """Names of tools, and how often each was refused for want of permission."""
    at: str = ""
    replies: dict[str, tuple[float, float]] = field(default_factory=dict)
    """By the id of a reply: its input and output tokens, where the sum comes at the end only."""

    @property
    def is_begun(self) -> bool:
        """Whether anything came that is an event of an agent at work, or of its failure."""
        return bool(self.session or self.turns or self.error or self.is_over)

    def use(self, tool: str) -> None:
        _count(self.tools, tool)

    def deny(self, tool: str) -> None:
        _count(self.denied, tool)

    def fail(self, why: str) -> None:
        self.error = why.strip()[:ERROR_CHARS] or "it says that it failed"


def _count(counts: dict[str, int], tool: str) -> None:
    name = tool[:NAME_CHARS] or "?"
    if name in counts or len(counts) < TOOLS_MAX:
        counts[name] = counts.get(name, 0) + 1


class OutputStream:
    """The output of one process, in pieces of any size."""

    def __init__(self, hear: Callable[[AgentOutput, Fields], None]) -> None:
        self._hear = hear
        self._output = AgentOutput()
        self._buffer = bytearray()
        self._is_passing = False

    def feed(self, data: bytes) -> None:
        *whole, rest = data.split(b"\n")
        for line in whole:
            if not self._is_passing:
                self._buffer += line
                self._line()
            self._buffer.clear()
            self._is_passing = False
        if self._is_passing:
            return
        self._buffer += rest
        if len(self._buffer) > LINE_BYTES_MAX:
            self._buffer.clear()
            self._is_passing = True

    def end(self) -> AgentOutput:
        """Nothing follows: a last line may lack its end."""
        if self._buffer and not self._is_passing:
            self._line()
        self._buffer.clear()
        output = self._output
        if not output.input_tokens and not output.output_tokens:
            output.input_tokens = sum(one for one, _ in output.replies.values())
            output.output_tokens = sum(one for _, one in output.replies.values())
        return output

    def _line(self) -> None:
        line = bytes(self._buffer).strip()
        event = object_fields(parsed(line)) if line.startswith(b"{") else {}
        if event:
            self._hear(self._output, event)


def at(fields: Fields, path: str) -> Fields:
    """The object at a path of names like `error.data`; empty if there is none."""
    for name in path.split("."):
        fields = object_fields(fields.get(name))
    return fields


def text_at(fields: Fields, path: str) -> str:
    """The text at a path of names; empty if there is none."""
    above, _, name = path.rpartition(".")
    return text_of(at(fields, above).get(name))


def tokens_in(fields: Fields, *names: str) -> float:
    """The sum of the token counts of these names; what is no count is 0."""
    return sum(tokens(fields.get(name)) or 0.0 for name in names)


def money_of(value: object) -> int:
    """Dollars of an event, in micro-dollars; 0 for what is no amount."""
    return round((tokens(value) or 0.0) * 1_000_000)


def less(heard: AgentOutput, input_tokens: float, output_tokens: float) -> AgentOutput:
    """Without what an earlier process of the same session has reported already."""
    return replace(
        heard,
        input_tokens=max(0.0, heard.input_tokens - input_tokens),
        output_tokens=max(0.0, heard.output_tokens - output_tokens),
    )


# The folder of one agent's session: links to the user's own files, and what is known of it.

AGENTS: Final = "agents"
MARKER: Final = "session.json"
MARKER_BYTES_MAX: Final = 64 * 1024 * 1024
NOTE_BYTES_MAX: Final = 32 * 1024 * 1024
"""Of a session's file: a reply with all that a tool gave."""


class Session(Struct, frozen=True):
    """What is known of a session, beside what its program keeps."""

    task: str
    key: str
    agent: str
    session: str
    prompt: str
    """The digest of what it was asked."""
    number: int = 1
    """How many sessions this home has had."""
    attempt: int = 0
    said: str | None = None
    """The last answer: examined and perhaps not good enough, but not to be paid again."""
    repairs: int = 0
    is_over: bool = False
    """Its answer was taken, or given up: nothing goes on in it."""
    microusd: int = 0
    """The cost of all of it, as its program last reported."""


def home_of(run_folder: str, name: bytes) -> str:
    return os.path.join(run_folder, AGENTS, name.hex())


def save_session(home: str, session: Session) -> None:
    """Make durable what is known; raises StateFileError."""
    path = os.path.join(home, MARKER)
    try:
        os.makedirs(home, mode=0o700, exist_ok=True)
        write_file(path, encode(session))
        sync_folder(home)
        sync_folder(os.path.dirname(home))
    except OSError as fault:
        raise StateFileError(
            f"{path} cannot be written: {fault.strerror}",
            hint="an agent is not started before it can be found again",
        ) from None


def read_session(home: str) -> Session | None:
    """What is known of the last session in a home; nothing if nothing, or if it is spoilt."""
    try:
        with open(os.path.join(home, MARKER), "rb") as file:
            return rebuild(Session, parsed(file.read(MARKER_BYTES_MAX)))
    except (OSError, WireError):
        return None


def sessions_of(run_folder: str) -> Iterator[tuple[str, Session]]:
    folder = os.path.join(run_folder, AGENTS)
    try:
        names = sorted(os.listdir(folder))
    except OSError:
        return
    for name in names:
        home = os.path.join(folder, name)
        if (found := read_session(home)) is not None:
            yield home, found


def empty_home(home: str) -> None:
    """Remove everything but what is known: a session that is over leaves no caches behind."""
    try:
        names = os.listdir(home)
    except OSError:
        return
    for name in names:
        path = os.path.join(home, name)
        if name == MARKER:
            continue
        if os.path.isdir(path) and not os.path.islink(path):
            shutil.rmtree(path, ignore_errors=True)
        else:
            with suppress(OSError):
                os.unlink(path)


def link_into(folder: str, own: str, names: tuple[str, ...]) -> None:
    os.makedirs(folder, mode=0o700, exist_ok=True)
    for name in names:
        target, link = os.path.realpath(os.path.join(own, name)), os.path.join(folder, name)
        if os.path.islink(link):
            os.unlink(link)
        if os.path.exists(target) and not os.path.exists(link):
            os.symlink(target, link)


def copy_into(folder: str, source: str, name: str) -> None:
    """A configuration as it is now; the one of an earlier attempt has an address that is gone."""
    os.makedirs(folder, mode=0o700, exist_ok=True)
    try:
        with open(source, "rb") as file:
            data = file.read()
    except OSError:
        return
    write_private(os.path.join(folder, name), data)


def write_private(path: str, data: bytes) -> None:
    """Write a file that only its owner can read, from its first byte on."""
    os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
    write_file(path, data, is_synced=False)


def lines_in(path: str) -> Iterator[Fields]:
    """The JSON objects of a file that has one a line; what is none is passed over."""
    try:
        with open(path, "rb") as file:
            while line := file.readline(NOTE_BYTES_MAX):
                found = object_fields(parsed(line))
                if found:
                    yield found
    except OSError:
        return


# The usage of a run's agents, attempt by attempt: for people and reports.

AGENT: Final = "agent"
"""The name under which a run's journal has them, one for each attempt."""

How = Literal["first", "session", "replay", "start", "taken"]
"""How an attempt began. `replay`: recorded calls are answered from the recording."""

WORDS: Final[dict[How, str]] = {
    "first": "began",
    "session": "went on in its own session",
    "replay": "began again, its recorded calls replayed",
    "start": "began again from the start",
    "taken": "had answered already",
}

COMING: Final[dict[How, str]] = {
    "first": "begins",
    "session": "goes on in its own session",
    "replay": "begins again; its recorded calls are replayed while they are the same",
    "start": "begins again from the start",
    "taken": "has answered already",
}


class AgentUsage(Struct, frozen=True):
    task: str
    key: str
    attempt: int
    agent: str
    how: How
    session: str
    turns: int
    tools: dict[str, int]
    input_tokens: int
    output_tokens: int
    microusd: int
    """What the agent's own output says, for this attempt."""
    metered_calls: int | None = None
    metered_input_tokens: int = 0
    metered_output_tokens: int = 0
    metered_microusd: int = 0
    """What the gateway counted, unreported earlier attempts included."""
    replayed: int = 0
    calls_before: int = 0
    """Calls of the attempts before, in the same session or with the same prompt."""
    calls_again: int = 0
    is_done: bool = True
    number: int = 1
    denied: dict[str, int] = field(default_factory=dict)
    metered_unpriced: int = 0

    @property
    def refusal(self) -> str:
        """`fix was not allowed to use Bash (1). Allow it in your settings of claude, or ...`."""
        tools = ", ".join(f"{name} ({times})" for name, times in self.denied.items())
        return (
            f"{self.task} was not allowed to use {tools}. Allow it in your settings of "
            f"{self.agent}, or with `permissions: edit` or `all` (of `each`: `--permissions`); a "
            "rule that denies it stays in force"
        )

    @property
    def words(self) -> str:
        """`fix[3] went on in its own session (claude): 1 of 4 calls paid twice`."""
        line = f"{self.task} {WORDS[self.how]} ({self.agent})"
        if self.calls_before:
            line += f": {self.calls_again} of {self.calls_before} calls paid twice"
        return line


def accounts_of(reader: JournalReader) -> list[AgentUsage]:
    return [decode(AgentUsage, one) for _, one in reader.documents(AGENT)]


def paid_twice(accounts: list[AgentUsage]) -> str:
    """`calls paid twice: 3 of 41`, over all attempts that were gone on with; empty if none was."""
    again = [one for one in accounts if one.how != "first"]
    if not again:
        return ""
    twice, before = sum(one.calls_again for one in again), sum(one.calls_before for one in again)
    return f"calls paid twice: {twice} of {before} that interrupted agents had made"
