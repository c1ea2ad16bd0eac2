"""What went through the gateway since it started, and what is in it now: status and metrics.

Laws:
- A call that entered ends exactly once, by `ended` or `left`; until then it is held or in flight.
- Nothing here grows with the number of calls, only with those that are not over (`books.py`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass

from headway.gateway.books import Books, Names, Sums, count, label
from headway.gateway.histogram import Histogram
from headway.gateway.metrics import written
from headway.gateway.values import CallEnded, Turned


@dataclass(slots=True)
class _Live:
    """A call that is not over."""

    key: str
    caller: str
    since_s: float
    """It is held or in flight from then on."""
    is_held: bool = True


@dataclass(frozen=True, slots=True)
class LedgerStatistics:
    """A ledger at an instant."""

    calls: int
    held: int
    in_flight: int


class Ledger:
    """A fold of what happens to calls. `now` is the clock of whoever drives it, in seconds."""

    __slots__ = (
        "_began_s", "_books", "_last_s", "_live", "_number", "_resent",
    )  # fmt: skip

    def __init__(self, now: float = 0.0) -> None:
        self._began_s = self._last_s = now
        self._number = 0
        self._resent = 0
        self._live: dict[int, _Live] = {}
        self._books = Books()

    def __repr__(self) -> str:
        told = self.statistics()
        return f"<Ledger {told.calls} calls, {told.held} held, {told.in_flight} in flight>"

    def statistics(self) -> LedgerStatistics:
        held = sum(live.is_held for live in self._live.values())
        return LedgerStatistics(self._books.total().calls, held, len(self._live) - held)

    def turned(self, turned: Turned) -> None:
        """The door did not let a request in."""
        count(self._books.turned, (turned.code,))

    def passed(self, upstream: str, status: int) -> None:
        """A request that no model answers went through and was answered so."""
        count(self._books.passed, (self._books.known("upstream", upstream), str(status)))

    def resent(self) -> None:
        """A client did not wait for its answer and sent the same call again."""
        self._resent += 1

    def entered(self, key: str, caller: str, now: float) -> int:
        """A call waits from now on; the number names it until it is over."""
        self._number += 1
        self._live[self._number] = _Live(label(key), self._books.known("caller", caller), now)
        return self._number

    def sent(self, number: int, now: float) -> None:
        """It has its permit and goes upstream."""
        live = self._live[number]
        live.is_held, live.since_s = False, now

    def held(self, number: int, now: float) -> None:
        """It was refused upstream and waits again."""
        live = self._live[number]
        live.is_held, live.since_s = True, now

    def ended(self, number: int, call: CallEnded, now: float) -> None:
        """It is over, and what came of it is booked."""
        del self._live[number]
        self._last_s = now
        self._books.book(call)

    def left(self, number: int) -> None:
        """It is over, and there is nothing to tell of it."""
        del self._live[number]

    def status(self, now: float) -> dict[str, object]:
        """Everything, as JSON: for `headway gateway status` and for programs."""
        books = self._books
        told = self.statistics()
        return {
            "up_s": now - self._began_s,
            "quiet_s": now - self._last_s,
            "held": told.held,
            "held_longest_s": _longest_s(self._live.values(), now),
            "in_flight": told.in_flight,
            "live_by_caller": dict(Counter(live.caller for live in self._live.values())),
            "live_by_key": dict(Counter(live.key for live in self._live.values())),
            "resent": self._resent,
            "total": asdict(books.total()),
            "by_upstream": _plain(books.by(0)),
            "by_model": _plain(books.by(1)),
            "by_caller": _plain(books.by(2)),
            "by_key": _plain(books.keys),
            "queued": _spread(books.queued),
            "first_byte": _spread(books.first_bytes),
            "answers": _nested(books.answers),
            "passed": _nested(books.passed),
            "faults": _nested(books.faults),
            "turned_away": {code: number for (code,), number in books.turned.items()},
        }

    def metrics(self, now: float) -> str:
        """The same in Prometheus' text format."""
        told, longest_s = self.statistics(), _longest_s(self._live.values(), now)
        gauges = {
            "up_seconds": ("Since the gateway started.", now - self._began_s),
            "held": ("Calls that wait for a permit.", told.held),
            "held_longest_seconds": ("How long the oldest of them waits.", longest_s),
            "in_flight": ("Calls that are with a provider.", told.in_flight),
        }
        return written(self._books, gauges, self._resent)

    def counts(self) -> dict[str, int]:
        """What only ever grows: for whoever tells what a minute brought."""
        total = self._books.total()
        return {
            "calls": total.calls,
            "failed": total.failed,
            "refusals absorbed": total.refusals_absorbed,
            "replayed": total.replayed,
            "sent again": self._resent,
            "turned away": sum(self._books.turned.values()),
        }

    @property
    def came(self) -> Sums | None:
        """All calls that ended; `None` if no call came."""
        return self._books.total() if self._number else None


def _longest_s(lives: Iterable[_Live], now: float) -> float:
    return max((now - one.since_s for one in lives if one.is_held), default=0.0)


def _plain(sums: Mapping[str, Sums]) -> dict[str, object]:
    return {name: asdict(one) for name, one in sums.items()}


def _spread(spreads: Mapping[str, Histogram]) -> dict[str, object]:
    return {name: asdict(one.statistics()) for name, one in spreads.items()}


def _nested(counts: Mapping[Names, int]) -> dict[str, dict[str, int]]:
    found: dict[str, dict[str, int]] = {}
    for (upstream, what), number in counts.items():
        found.setdefault(upstream, {})[what] = number
    return found
