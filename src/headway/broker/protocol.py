"""The messages between clients and broker: one record and one JSON line each.

    client                          broker
    Hello(version, client, ...)  ->
    Ask(request)                 ->                          wants a permit
                                 <- Granted | Denied         ...at some later time
    Leave(number)                ->                          no longer wants it
                                 <- Left(number, reason)
    Began, Progressed, Alive     ->                          a call in flight moves
                                 <- Cut(id, message, hint)   ...and outgrows the budget
    Settled(number, outcome)     ->                          it ended
    Adopt(request, age_s)        ->                          in flight since an earlier broker
    Configure(account, terms)    ->                          the user's terms
    Describe(number)             ->
                                 <- Described(number, ...)   ...until one that is the last
                                 <- Error(message)           and the line is closed

A client numbers its calls; (client, number) names a call to everybody, so that it outlives a
broker. Saying something twice is saying it once.

Invariant: no bytes, however wrong, raise anything but `WireError`; no line is longer than
`LINE_BYTES_MAX`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, get_args

from msgspec import Struct

from headway.base.codec import encode, parse, rebuild
from headway.base.values import Reading
from headway.errors import WireError
from headway.pacing.admission import BookView, CallOutcome, Denied, Granted
from headway.pacing.budget import Cut
from headway.pacing.lane import Request
from headway.pacing.memory import AccountTerms

VERSION: Final = 1
"""A broker serves only clients of its own version."""

LINE_BYTES_MAX: Final = 64 * 1024
"""A message is some hundred bytes; what is longer is not one of ours."""


class Hello(Struct, frozen=True):
    """Who speaks. The first message of a client."""

    version: int
    client: str
    pid: int
    name: str


class AskMessage(Struct, frozen=True):
    """A call wants a permit."""

    request: Request


class Leave(Struct, frozen=True):
    """A call no longer wants one."""

    number: int


class BeganMessage(Struct, frozen=True):
    """The first byte of an answer came, with headers."""

    number: int
    reading: Reading
    dialect: str


class Progressed(Struct, frozen=True):
    """An answer has grown to so many tokens."""

    number: int
    output_tokens: float


class Alive(Struct, frozen=True):
    """A call is still in flight, though it shows nothing."""

    number: int


class Settled(Struct, frozen=True):
    """A call ended."""

    number: int
    outcome: CallOutcome


class Adopt(Struct, frozen=True):
    """A call that was granted by an earlier broker, so long ago."""

    request: Request
    age_s: float


class Configure(Struct, frozen=True):
    """What the user set for an account."""

    account: str
    terms: AccountTerms


class Describe(Struct, frozen=True):
    """What is going on?"""

    number: int


class Left(Struct, frozen=True):
    """A call waits no longer; why it still did, in words."""

    number: int
    reason: str


class Error(Struct, frozen=True):
    """What the other side did wrong. The last message on a line."""

    message: str


class About(Struct, frozen=True):
    """Who decides, since when, and what its user should know."""

    pid: int
    age_s: float
    clients: tuple[tuple[str, str], ...] = ()
    """Everybody connected: the name in calls, and the one for people."""
    notices: tuple[str, ...] = ()


class Described(Struct, frozen=True):
    """A part of what was asked about; the last one says by whom it was told."""

    number: int
    part: BookView | None = None
    about: About | None = None


FromClient = (
    Hello
    | AskMessage
    | Leave
    | BeganMessage
    | Progressed
    | Alive
    | Settled
    | Adopt
    | Configure
    | Describe
)
"""What a client says."""

FromBroker = Granted | Denied | Cut | Left | Described | Error
"""What a broker says."""

Message = FromClient | FromBroker

_KINDS: Final[dict[str, type[Message]]] = {
    kind.__name__: kind for kind in (*get_args(FromClient), *get_args(FromBroker))
}


def line_of(message: Message) -> bytes:
    """A message as it travels, its end included."""
    name = type(message).__name__.encode()
    line = b'["%b",%b]\n' % (name, encode(message))
    if len(line) > LINE_BYTES_MAX:
        raise WireError(f"a message of {len(line):,} bytes is too long", detail=name.decode())
    return line


def message_of(line: bytes) -> Message:
    """The message that a line says, with or without its end."""
    if len(line) > LINE_BYTES_MAX:
        raise WireError(f"a line of {len(line):,} bytes is too long")
    said = parse(line)
    if not isinstance(said, list) or len(said) != 2 or not isinstance(said[0], str):
        raise WireError("a message is its name and its parts")
    kind = _KINDS.get(said[0])
    if kind is None:
        raise WireError("there is no such message", detail=said[0][:40])
    return rebuild(kind, said[1])


class MessageSplitter:
    """Bytes as they come, cut into messages. Keeps less than one line."""

    __slots__ = ("_rest",)

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> Iterator[Message]:
        """The messages that are complete with these bytes; `WireError` at the first bad one."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            yield message_of(line)
        if len(self._rest) > LINE_BYTES_MAX:
            raise WireError(f"a line of more than {LINE_BYTES_MAX:,} bytes")
