"""One call from its request to its settlement: what a client sends, what admission keeps of it.

A client numbers its calls; (client, number) names a call to every process, so that a permit
outlives the broker that gave it.
"""

from __future__ import annotations

from functools import lru_cache
from math import inf
from sys import intern
from typing import Final, NamedTuple

from msgspec import Struct
from msgspec.structs import force_setattr

from headway.base.numbers import REMEMBERED_MAX
from headway.base.values import (
    Amounts,
    Demand,
    Fault,
    Reading,
    SettledAs,
    Sketch,
    Tally,
    Wait,
)
from headway.pacing.meters import PlannedStream
from headway.pacing.queue import Rank
from headway.pacing.windows import Shares

CallId = tuple[str, int]
"""(client, number)."""
Beginning = tuple[str, str]
"""(account and model group, digest): prompt caches are not shared between either."""
Door = Beginning | str
"""What calls wait for together before they may join a queue: that another call writes a beginning
into the prompt cache, or room in an account's budget."""
UNKNOWN: Final = Demand(Amounts(), Amounts())
NO_STREAM: Final = PlannedStream(0.0, 1e-3, 0.0)


class Request(Struct, frozen=True, gc=False, omit_defaults=True):
    """A call that wants a permit, from whichever client."""

    account: str
    """By its key; `Admission` finds out which account that is."""
    dialect: str
    sketch: Sketch
    path: tuple[str, ...] = ()
    """The flow that it belongs to; a client's own, if nothing is said."""
    is_resent: bool = False
    is_soft: bool = False
    """It may be cut: budgets claim its expected cost and more as it grows, in place of the most."""
    login: str = ""
    """Of its key, which is a token that changes; empty, where the key stays."""
    window_shares: Shares | None = None
    """The most that its run, the first of its path, takes of each usage window; no run: none."""
    is_interactive: bool = False
    """A person waits for the answer: it goes before the calls of runs."""


@lru_cache(REMEMBERED_MAX)
def shared_path(path: tuple[str, ...]) -> tuple[str, ...]:
    """One path in place of many that are equal."""
    return path


def share_texts(request: Request) -> None:
    """Calls that wait are many and much alike: each of their texts is kept once."""
    for name in ("account", "dialect", "login"):
        force_setattr(request, name, intern(getattr(request, name)))
    for name in ("model", "kind"):
        force_setattr(request.sketch, name, intern(getattr(request.sketch, name)))
    force_setattr(request, "path", shared_path(request.path))


NO_REQUEST: Final = Request("", "", Sketch(""))


class Outcome(Struct, frozen=True, gc=False, omit_defaults=True):
    """How a call ended, as its client saw it."""

    how: SettledAs
    tally: Tally = Tally(known="unknown")
    fault: Fault | None = None
    reading: Reading = Reading()
    dialect: str = ""


class QueueWaits(NamedTuple):
    """How long a queue had waited for what when it began to wait for something else. A call keeps
    it when it joins: what came since is what the call waited for."""

    totals: dict[str, float]
    cause: str
    """What it waits for since; nothing, if it is empty."""
    since_s: float

    def until(self, now: float) -> dict[str, float]:
        """How long it has waited for what by now."""
        if not self.cause:
            return self.totals
        return {**self.totals, self.cause: self.totals.get(self.cause, 0.0) + now - self.since_s}

    def then(self, cause: str, now: float) -> QueueWaits:
        """The same, as it waits for this from now on."""
        return self if cause == self.cause else QueueWaits(self.until(now), cause, now)

    def longest(self, joined: QueueWaits, joined_s: float, now: float) -> str:
        """What it has waited for longest since a call joined; nothing, if it has not."""
        if joined is self:
            return self.cause if now > joined_s else ""
        before = joined.until(joined_s)
        waited = {cause: sum_s - before.get(cause, 0.0) for cause, sum_s in self.until(now).items()}
        cause = max(waited, key=waited.__getitem__, default="")
        return cause if waited.get(cause, 0.0) > 0.0 else ""


NO_WAITS: Final = QueueWaits({}, "", -inf)


class Call(Struct, eq=False, gc=False):
    """A call that waits or is in flight."""

    id: CallId
    asked_s: float = 0.0
    path: tuple[str, ...] = ("",)
    """The flow that it belongs to."""
    rank: Rank = ()
    """Its urgency within its flow, such as a deadline: the lowest goes first."""
    demand: Demand = UNKNOWN
    request: Request = NO_REQUEST
    """Of a rehearsal there is none: demands are given."""
    account: tuple[str, str] = ("", "")
    """Account and model group."""
    sized_s: float = -inf
    """When its demand was last estimated; it is not kept where it would be too old in its turn."""
    cost_s: float = 0.0
    """For how long it takes the whole of its scarcest limit, as its flow was charged."""
    beginnings: tuple[Beginning, ...] = ()
    """What the provider may keep of it in its prompt cache: its instructions, and all of it."""
    is_cut: bool = False
    """Its answer outgrew the budget and is to be ended."""
    parked: Door | None = None
    """What it waits for before it may join the queue."""
    held: Wait | None = None
    """The usage window of which its run has taken its share."""
    place: int = 0
    """In the queue, or where it was."""
    joined: QueueWaits = NO_WAITS
    """The queue's waits when it joined."""
    waited_for: str = ""
    """What it waited for longest until it was sent."""
    sent_s: float = inf
    is_adopted: bool = False
    """It was sent under the permit of a broker that is gone: its company is not known."""
    stream: PlannedStream = NO_STREAM
    levels: tuple[float, ...] = ()
    """What the limits showed when it was charged."""
    counted: float = 0.0
    """Tokens that count towards usage windows already..."""
    flying_tokens: float = 0.0
    """...and those that it is expected to use in all, while it is in flight."""
    company: int = 0
    """Calls in flight when it was sent, itself included."""
    integral: float = 0.0
    """Of calls in flight over time, at `seen_s` or when it was sent."""
    answered_s: float | None = None
    seen_s: float | None = None
    """When its answer was last seen to move, with so many tokens by then."""
    seen_tokens: float = 0.0

    @property
    def run(self) -> str:
        """The run that it counts towards; empty for a client that is none."""
        return "" if self.request.window_shares is None else self.path[0]

    @property
    def is_sent(self) -> bool:
        return self.sent_s < inf


class Granted(Struct, frozen=True, tag=True, gc=False):
    """A call that may be sent now."""

    id: CallId
    waited_for: str = ""
    """What it waited for longest; nothing, if it did not."""
    expected: Amounts = Amounts()


class Denied(Struct, frozen=True, tag=True):
    """A call that is never granted, or whose answer is to be ended; `code` is that of the error."""

    id: CallId
    code: str
    message: str
    hint: str = ""
