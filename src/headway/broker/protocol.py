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
    version: int
    client: str
    pid: int
    name: str


class AskMessage(Struct, frozen=True):
    request: Request


class Leave(Struct, frozen=True):
    number: int


class BeganMessage(Struct, frozen=True):
    number: int
    reading: Reading
    dialect: str


class Progressed(Struct, frozen=True):
    number: int
    output_tokens: float


class Alive(Struct, frozen=True):
    number: int


class Settled(Struct, frozen=True):
    number: int
    outcome: CallOutcome


class Adopt(Struct, frozen=True):
    request: Request
    age_s: float


class Configure(Struct, frozen=True):
    account: str
    terms: AccountTerms


class Describe(Struct, frozen=True):
    number: int


class Left(Struct, frozen=True):
    number: int
    reason: str


class Error(Struct, frozen=True):
    message: str


class About(Struct, frozen=True):
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
    Hello | AskMessage | Leave | BeganMessage | Progressed | Alive | Settled | Adopt | Configure
    | Describe
)  # fmt: skip

Passing = BeganMessage | Progressed | Alive
"""Of use to the present broker only: not kept for the next one."""

FromBroker = Granted | Denied | Cut | Left | Described | Error

Message = FromClient | FromBroker

_KINDS: Final[dict[str, type[Message]]] = {
    kind.__name__: kind for kind in (*get_args(FromClient), *get_args(FromBroker))
}


def line_of(message: Message) -> bytes:
    name = type(message).__name__.encode()
    line = b'["%b",%b]\n' % (name, encode(message))
    if len(line) > LINE_BYTES_MAX:
        raise WireError(f"a message of {len(line):,} bytes is too long", detail=name.decode())
    return line


def message_of(line: bytes) -> Message:
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
