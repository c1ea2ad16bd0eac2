"""What calls came to, added up by upstream, model, caller and key, in bounded memory.

Laws:
- Memory is bounded whatever clients send: names are cut, and those that come after the first so
  many are booked as `other`. Keys of tasks come and go: the oldest are added up as `other`.
- What was booked under other names than a key stays under them: counters never go back.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, fields
from itertools import accumulate
from math import inf, isnan
from typing import Final, Literal

from headway.gateway.values import CallEnded, Turned

# How durations are spread, in a fixed number of counters: quantiles without keeping the values.

BOUNDS_S: Final = (
    0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 45.0, 90.0, 180.0,
    300.0, 600.0, 1800.0, 3600.0, inf,
)  # fmt: skip
"""Each counter's upper end: from what the gateway itself takes to the longest that it holds."""


@dataclass(frozen=True, slots=True)
class HistogramStatistics:
    """A spread at an instant."""

    count: int
    sum_s: float
    longest_s: float
    p50_s: float
    p90_s: float
    p99_s: float


class Histogram:
    """Counts durations by their size."""

    __slots__ = ("_counts", "_longest_s", "_sum_s")

    def __init__(self) -> None:
        self._counts = [0] * len(BOUNDS_S)
        self._sum_s = 0.0
        self._longest_s = 0.0

    def __repr__(self) -> str:
        return f"<Histogram of {sum(self._counts)}, median {self.quantile(0.5):g} s>"

    def add(self, time_s: float) -> None:
        """One more; a duration below 0 is one of 0."""
        time_s = max(0.0, time_s)
        self._counts[bisect_left(BOUNDS_S, time_s)] += 1
        self._sum_s += time_s
        self._longest_s = max(self._longest_s, time_s)

    def quantile(self, share: float) -> float:
        """Below this is so great a share of all; between two bounds, as if spread evenly."""
        wanted = share * sum(self._counts)
        below, low_s = 0, 0.0
        for bound_s, count in zip(BOUNDS_S, self._counts, strict=True):
            if count and below + count >= wanted:
                high_s = min(bound_s, self._longest_s)
                return low_s + (high_s - low_s) * (wanted - below) / count
            below, low_s = below + count, bound_s
        return 0.0

    def buckets(self) -> Iterator[tuple[float, int]]:
        """(upper end, how many are at most that long), the last one all of them."""
        return zip(BOUNDS_S, accumulate(self._counts), strict=True)

    def statistics(self) -> HistogramStatistics:
        return HistogramStatistics(
            sum(self._counts), self._sum_s, self._longest_s,
            self.quantile(0.5), self.quantile(0.9), self.quantile(0.99),
        )  # fmt: skip


NAME_CHARACTERS_MAX: Final = 100
"""Of a model's or a caller's name: longer ones are nonsense or an attack."""

NAMES_MAX: Final = {"model": 100, "caller": 50, "upstream": 50}
"""How many of each are told apart."""

ROWS_MAX: Final = 500
"""Upstream, model and caller together: each is a series of every counter."""

COUNTS_MAX: Final = 200
"""Of each count by two names: upstream and status, upstream and fault."""

KEYS_MAX: Final = 200
"""Keys that are shown one by one: those that called last."""

OTHER: Final = "other"

Names = tuple[str, ...]


@dataclass(slots=True)
class Sums:
    """What some calls came to."""

    calls: int = 0
    """All that ended, those answered from a recording included."""
    failed: int = 0
    """The client was sent an error, or had gone."""
    input_tokens: float = 0.0
    """Without those read from the prompt cache."""
    cache_read_tokens: float = 0.0
    output_tokens: float = 0.0
    spend_microusd: int = 0
    held: int = 0
    """Calls that waited for a permit, or again after a refusal."""
    unpriced: int = 0
    """Calls that took tokens and whose price is unknown: not in `spend_microusd`."""
    refusals_absorbed: int = 0
    """Refusals and overloads that no client saw."""
    kept_alive: int = 0
    """Calls that were held for so long that their client was sent a sign of life."""
    replayed: int = 0
    """Answered from a recording: they took no tokens."""

    def book(self, call: CallEnded) -> None:
        """One more call."""
        self.calls += 1
        self.failed += call.status >= 400 or call.fault is not None
        self.held += call.was_held
        self.refusals_absorbed += call.resends
        self.kept_alive += call.was_committed
        if call.was_replayed:
            self.replayed += 1
            return
        self.input_tokens += call.tally.input_tokens
        self.cache_read_tokens += call.tally.cache_read_tokens
        self.output_tokens += call.tally.output_tokens
        self.spend_microusd += call.microusd or 0
        self.unpriced += call.microusd is None

    def add(self, other: Sums) -> None:
        """Those of another, too."""
        for field in fields(self):
            setattr(self, field.name, getattr(self, field.name) + getattr(other, field.name))

    def since(self, other: Sums) -> Sums:
        """Without those of an earlier time."""
        return Sums(*(getattr(self, one.name) - getattr(other, one.name) for one in fields(self)))


@dataclass(frozen=True, slots=True)
class BooksStatistics:
    """How much the books hold."""

    rows: int
    keys: int
    names: int


class Books:
    """Adds up. The dictionaries are there to be read."""

    __slots__ = (
        "_names", "answers", "faults", "first_bytes", "keys", "passed", "queued", "rows", "turned",
    )  # fmt: skip

    def __init__(self) -> None:
        self._names: dict[str, set[str]] = {kind: set() for kind in NAMES_MAX}
        self.rows: dict[tuple[str, str, str], Sums] = {}
        """By upstream, model and caller."""
        self.keys: dict[str, Sums] = {}
        """The one that called last is last."""
        self.answers: dict[Names, int] = {}
        self.passed: dict[Names, int] = {}
        self.faults: dict[Names, int] = {}
        self.turned: dict[Names, int] = {}
        self.queued: dict[str, Histogram] = {}
        self.first_bytes: dict[str, Histogram] = {}

    def __repr__(self) -> str:
        return f"<Books of {self.total().calls} calls in {len(self.rows)} rows>"

    def statistics(self) -> BooksStatistics:
        return BooksStatistics(len(self.rows), len(self.keys), sum(map(len, self._names.values())))

    def book(self, call: CallEnded) -> None:
        """One more call is over."""
        upstream = self.known("upstream", call.upstream)
        names = (upstream, self.known("model", call.model), self.known("caller", call.caller))
        if names not in self.rows and len(self.rows) >= ROWS_MAX:
            names = (OTHER, OTHER, OTHER)
        self.rows.setdefault(names, Sums()).book(call)
        self._book_key(call)
        count(self.answers, (upstream, str(call.status)))
        if call.fault is not None:
            count(self.faults, (upstream, call.fault.kind))
        if call.was_replayed:
            return
        self.queued.setdefault(upstream, Histogram()).add(call.queued_s)
        if call.first_byte_s > 0.0:
            self.first_bytes.setdefault(upstream, Histogram()).add(call.first_byte_s)

    def known(self, kind: str, name: str) -> str:
        """The name, or `other` when there are too many of its kind by now."""
        name = label(name) or "unknown"
        names = self._names[kind]
        if name not in names:
            if len(names) >= NAMES_MAX[kind]:
                return OTHER
            names.add(name)
        return name

    def total(self) -> Sums:
        """All calls together."""
        total = Sums()
        for row in self.rows.values():
            total.add(row)
        return total

    def by(self, place: int) -> dict[str, Sums]:
        """All calls by the first, second or third name of their rows."""
        found: dict[str, Sums] = {}
        for names, row in self.rows.items():
            found.setdefault(names[place], Sums()).add(row)
        return found

    def _book_key(self, call: CallEnded) -> None:
        name = label(call.key)
        sums = self.keys.pop(name, None) or Sums()
        sums.book(call)
        self.keys[name] = sums
        if len(self.keys) > KEYS_MAX:
            others = self.keys.pop(OTHER, None) or Sums()
            others.add(self.keys.pop(next(iter(self.keys))))
            self.keys[OTHER] = others


def label(name: str) -> str:
    """A client's name for something, as labels and terminals may have it: short and printable."""
    cut = name[:NAME_CHARACTERS_MAX]
    return cut if cut.isprintable() else "".join(c if c.isprintable() else "?" for c in cut)


def count(counts: dict[Names, int], names: Names) -> None:
    """One more of these; of what comes when there are too many, one more `other`."""
    if names not in counts and len(counts) >= COUNTS_MAX:
        names = (OTHER,) * len(names)
    counts[names] = counts.get(names, 0) + 1


# Numbers as Prometheus reads them: its text exposition format, version 0.0.4.

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"

Labels = tuple[tuple[str, str], ...]
Sample = tuple[Labels, float]

_ESCAPES: Final = str.maketrans({"\\": r"\\", "\n": r"\n", '"': r"\""})
_HELP_ESCAPES: Final = str.maketrans({"\\": r"\\", "\n": r"\n"})


def family(
    name: str, kind: Literal["counter", "gauge"], about: str, samples: Iterable[Sample]
) -> str:
    """One metric with all its series; nothing where there are none yet."""
    lines = [_line(name, labels, value) for labels, value in samples]
    return _head(name, kind, about) + "".join(lines) if lines else ""


def histograms(name: str, about: str, spreads: Mapping[Labels, Histogram]) -> str:
    """One metric of durations: cumulative buckets, their sum and their number."""
    lines: list[str] = []
    for labels, spread in spreads.items():
        for bound_s, count in spread.buckets():
            lines.append(_line(f"{name}_bucket", (*labels, ("le", _number(bound_s))), count))
        told = spread.statistics()
        lines.append(_line(f"{name}_sum", labels, told.sum_s))
        lines.append(_line(f"{name}_count", labels, told.count))
    return _head(name, "histogram", about) + "".join(lines) if lines else ""


def _head(name: str, kind: str, about: str) -> str:
    return f"# HELP {name} {about.translate(_HELP_ESCAPES)}\n# TYPE {name} {kind}\n"


def _line(name: str, labels: Labels, value: float) -> str:
    inner = ",".join(f'{label}="{text.translate(_ESCAPES)}"' for label, text in labels)
    return f"{name}{{{inner}}} {_number(value)}\n" if inner else f"{name} {_number(value)}\n"


def _number(value: float) -> str:
    if isnan(value):
        return "NaN"
    if value in (inf, -inf):
        return "+Inf" if value > 0 else "-Inf"
    return str(int(value)) if value == int(value) else repr(float(value))


# The gateway's books as Prometheus reads them.

PREFIX: Final = "headway_gateway_"

ROW_LABELS: Final = ("upstream", "model", "caller")

MICRO: Final = 1_000_000

COUNTERS: Final = (
    ("calls_total", "calls", "Calls that ended."),
    ("failed_calls_total", "failed", "Calls whose client was sent an error, or had gone."),
    ("held_calls_total", "held", "Calls that waited for a permit."),
    ("refusals_absorbed_total", "refusals_absorbed", "Refusals that no client saw."),
    ("kept_alive_total", "kept_alive", "Calls that got a sign of life before their answer."),
    ("replayed_total", "replayed", "Calls that were answered from a recording."),
)
"""Name, field of the sums, and what it is."""

TOKENS: Final = (
    ("input", "input_tokens"),
    ("cache_read", "cache_read_tokens"),
    ("output", "output_tokens"),
)


def written(books: Books, gauges: Mapping[str, tuple[str, float]], resent: int) -> str:
    """Everything; the gauges by name, each with what it is and what it stands at."""
    parts = [
        family(f"{PREFIX}{name}", "gauge", about, [((), value)])
        for name, (about, value) in gauges.items()
    ]
    parts += [_counter(name, about, _by_row(books, field)) for name, field, about in COUNTERS]
    parts.append(_counter("tokens_total", "Tokens that calls took, by kind.", _tokens(books)))
    spent = [(labels, value / MICRO) for labels, value in _by_row(books, "spend_microusd")]
    parts += [
        _counter("spend_usd_total", "What calls cost, where prices are known.", spent),
        _counter("unpriced_calls_total", "Calls whose cost is unknown.",
                 _by_row(books, "unpriced")),
        _counter("resent_total", "Calls sent again by their client while held.", [((), resent)]),
        _counter("answers_total", "Calls by the status that their client was sent.",
                 _counts(books.answers, "upstream", "status")),
        _counter("passed_total", "Requests that no model answers, by status.",
                 _counts(books.passed, "upstream", "status")),
        _counter("faults_total", "Calls that failed, by why.",
                 _counts(books.faults, "upstream", "kind")),
        _counter("turned_away_total", "Requests that were refused at the door, by why.",
                 _counts(books.turned, "code")),
        _spread("queued_seconds", "Until a call was sent upstream.", books.queued),
        _spread("first_byte_seconds", "From then until its answer began.", books.first_bytes),
    ]  # fmt: skip
    return "".join(parts)


def _counter(name: str, about: str, samples: list[Sample]) -> str:
    return family(f"{PREFIX}{name}", "counter", about, samples)


def _spread(name: str, about: str, spreads: Mapping[str, Histogram]) -> str:
    labelled: dict[Labels, Histogram] = {
        (("upstream", upstream),): spread for upstream, spread in spreads.items()
    }
    return histograms(f"{PREFIX}{name}", about, labelled)


def _by_row(books: Books, field: str) -> list[Sample]:
    return [
        (tuple(zip(ROW_LABELS, names, strict=True)), float(getattr(row, field)))
        for names, row in books.rows.items()
    ]


def _tokens(books: Books) -> list[Sample]:
    return [
        ((*labels, ("kind", kind)), value)
        for kind, field in TOKENS
        for labels, value in _by_row(books, field)
    ]


def _counts(counts: Mapping[Names, int], *labels: str) -> list[Sample]:
    return [(tuple(zip(labels, names, strict=True)), count) for names, count in counts.items()]


# What went through the gateway since it started, and what is in it now: status and metrics.


@dataclass(slots=True)
class _Live:
    """A call that is not over."""

    key: str
    caller: str
    since_s: float
    """It is held or in flight from then on."""
    is_held: bool = True


@dataclass(frozen=True, slots=True)
class GatewayLedgerStatistics:
    """A ledger at an instant."""

    calls: int
    held: int
    in_flight: int


class GatewayLedger:
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

    def statistics(self) -> GatewayLedgerStatistics:
        held = sum(live.is_held for live in self._live.values())
        return GatewayLedgerStatistics(self._books.total().calls, held, len(self._live) - held)

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
            "queued": _ledger_spread(books.queued),
            "first_byte": _ledger_spread(books.first_bytes),
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


def _ledger_spread(spreads: Mapping[str, Histogram]) -> dict[str, object]:
    return {name: asdict(one.statistics()) for name, one in spreads.items()}


def _nested(counts: Mapping[Names, int]) -> dict[str, dict[str, int]]:
    found: dict[str, dict[str, int]] = {}
    for (upstream, what), number in counts.items():
        found.setdefault(upstream, {})[what] = number
    return found
