"""The messages between clients and broker: MessagePack with a length before each.

    client                          broker
    Hello(version, client, ...)  ->
    Ask(number, request)         ->                          wants a permit
                                 <- Granted | Denied         ...at some later time
    Why(number)                  ->                          what does it wait for?
                                 <- Waits(number, wait)
    Leave(number)                ->                          no longer wants it
    Reached, AnswerBegan, Progressed ->                      a call in flight moves
                                 <- Denied                   ...and outgrows the budget
    Settle(number, outcome)      ->                          it ended
    Ask(number, request, sent_s) ->                          in flight since an earlier broker
    Configure(account, terms)    ->                          the user's terms
    Refresh(account)             ->                          usage windows may have changed
    Name(account, name)          ->                          the user's name for an account
    Forget(account)              ->                          what is known of an account goes
    Describe(number)             ->
                                 <- Described(number, view, about)
                                 <- Rejected(message)        and the connection is closed

Saying something twice is saying it once.

Invariant: no bytes, however wrong, raise anything but `WireError`; no message is longer than
`MESSAGE_BYTES_MAX`, of a broker `ANSWER_BYTES_MAX`.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from struct import Struct as Packing
from typing import Annotated, Final, Generic, TypeVar

from msgspec import DecodeError, Meta, Struct, to_builtins
from msgspec.msgpack import Decoder, Encoder

from headway.base.fields import dumped, parsed
from headway.base.values import Reading, Wait
from headway.errors import WireError
from headway.pacing.call import Denied, Granted, Outcome, Request
from headway.pacing.memory import AccountTerms
from headway.pacing.view import AdmissionView

VERSION: Final = 4
"""A broker serves only clients of its own version."""
MESSAGE_BYTES_MAX: Final = 64 * 1024
"""A message is some hundred bytes; what is longer is not one of ours."""
ANSWER_BYTES_MAX: Final = 4 * 1024 * 1024
"""A view of a thousand accounts, or ten thousand grants that a client has not fetched."""


class Hello(Struct, frozen=True, tag=True):
    version: int
    client: str
    pid: int
    name: str


class Ask(Struct, frozen=True, tag=True, gc=False, omit_defaults=True):
    number: int
    request: Request
    sent_s: float | None = None
    """When it was sent, under the permit of an earlier broker; `None` if it wants a permit."""


class Why(Struct, frozen=True, tag=True):
    number: int


class Leave(Struct, frozen=True, tag=True):
    number: int


class Reached(Struct, frozen=True, tag=True):
    number: int


class AnswerBegan(Struct, frozen=True, tag=True, gc=False, omit_defaults=True):
    number: int
    reading: Reading
    dialect: str


class Progressed(Struct, frozen=True, tag=True, gc=False, omit_defaults=True):
    number: int
    output_tokens: Annotated[float, Meta(ge=0, le=1e15)]


class Settle(Struct, frozen=True, tag=True, gc=False, omit_defaults=True):
    number: int
    outcome: Outcome


class Configure(Struct, frozen=True, tag=True):
    account: str
    terms: AccountTerms


class Refresh(Struct, frozen=True, tag=True):
    account: str
    """Empty: every account."""


class Name(Struct, frozen=True, tag=True):
    account: str
    name: str
    """Empty: no longer."""


class Forget(Struct, frozen=True, tag=True):
    account: str


class Describe(Struct, frozen=True, tag=True):
    number: int


class Waits(Struct, frozen=True, tag=True):
    """What a call waits for; None if it does not, or only for its turn."""

    number: int
    wait: Wait | None


class Rejected(Struct, frozen=True, tag=True):
    message: str


class About(Struct, frozen=True):
    pid: int
    age_s: float
    clients: tuple[tuple[str, str], ...] = ()
    """All clients that are connected: the name in calls, and the one for people."""
    notices: tuple[str, ...] = ()


class Described(Struct, frozen=True, tag=True):
    """All that is known, and by which broker."""

    number: int
    view: AdmissionView
    about: About


FromClient = (
    Hello | Ask | Why | Leave | Reached | AnswerBegan | Progressed | Settle | Configure | Refresh
    | Name | Forget | Describe
)  # fmt: skip
Passing = Reached | AnswerBegan | Progressed | Why
"""Of use to the present broker only: not kept for the next one."""
OUTLASTS: Final = (Leave, Describe, Configure, Refresh, Name, Forget)
"""What the next broker is told, if this one did not hear it."""
FromBroker = Granted | Denied | Waits | Described | Rejected
_LENGTH: Final = Packing(">I")
_encode: Final = Encoder().encode
M = TypeVar("M")


def packed(message: FromClient | FromBroker, bytes_max: int = MESSAGE_BYTES_MAX) -> bytes:
    """A message as it travels; `WireError` if it is too long."""
    try:
        data = _encode(message)
    except UnicodeEncodeError:
        data = _encode(parsed(dumped(to_builtins(message))))
    if len(data) > bytes_max:
        name = type(message).__name__
        raise WireError(f"a message of {len(data):,} bytes is too long", detail=name)
    return _LENGTH.pack(len(data)) + data


class _Messages(Generic[M]):
    """Bytes as they come, read as messages. Keeps less than one message."""

    __slots__ = ("_bytes_max", "_decoder", "_rest", "_sender")

    def __init__(self, decoder: Decoder[M], sender: str, bytes_max: int) -> None:
        self._decoder, self._sender, self._bytes_max = decoder, sender, bytes_max
        self._rest = b""

    def feed(self, data: bytes) -> Iterator[M]:
        """The messages that are complete with these bytes; `WireError` at the first bad one."""
        data, at = self._rest + data if self._rest else data, 0
        while len(data) - at >= _LENGTH.size:
            (length,) = _LENGTH.unpack_from(data, at)
            if length > self._bytes_max:
                raise WireError(f"a message of {length:,} bytes is too long")
            start, at = at + _LENGTH.size, at + _LENGTH.size + length
            if at > len(data):
                at = start - _LENGTH.size
                break
            try:
                yield self._decoder.decode(data[start:at])
            except (DecodeError, RecursionError, ValueError) as fault:
                detail = str(fault)[:200]
                raise WireError(f"this is no message of a {self._sender}", detail=detail) from None
        self._rest = data[at:]


ClientMessages: Final = partial(
    _Messages[FromClient], Decoder(FromClient), "client", MESSAGE_BYTES_MAX
)
"""Reads what a client sends."""
BrokerMessages: Final = partial(
    _Messages[FromBroker], Decoder(FromBroker), "broker", ANSWER_BYTES_MAX
)
"""Reads what a broker sends."""
