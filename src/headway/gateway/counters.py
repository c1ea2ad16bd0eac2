"""Totals of calls by upstream, model, caller and key, in bounded memory.

Laws:
- Memory is bounded whatever clients send: names are cut, and later names are counted as `other`.
  Keys of tasks come and go: the oldest are added up as `other`.
- Counters never decrease: what was counted under a name, other than a key, stays under it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import accumulate
from math import inf
from typing import Final

from msgspec import Struct

from headway.base.codec import as_dict
from headway.gateway.values import CallEnded, Turned

BOUNDS_S: Final = (
    0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 45.0, 90.0, 180.0,
    300.0, 600.0, 1800.0, 3600.0, inf,
)  # fmt: skip
"""Upper ends of histogram buckets: from the gateway's own overhead to the longest wait."""

NAME_CHARACTERS_MAX: Final = 100
"""Of a model's or a caller's name: longer ones are nonsense or an attack."""
NAMES_MAX: Final = {"model": 100, "caller": 50, "upstream": 50}
"""How many of each have counters of their own."""
ROWS_MAX: Final = 500
"""Upstream, model and caller together: each is a series of every counter."""
COUNTS_MAX: Final = 200
"""Of each count by two names: upstream and status, upstream and fault."""
KEYS_MAX: Final = 200
"""Keys that are shown one by one: those that called last."""
OTHER: Final = "other"

Names = tuple[str, ...]


class Histogram:
    """Counts durations by their size: quantiles without keeping the values."""

    __slots__ = ("_counts", "_longest_s", "count", "sum_s")

    def __init__(self) -> None:
        self._counts = [0] * len(BOUNDS_S)
        self._longest_s = 0.0
        self.count = 0
        self.sum_s = 0.0

    def add(self, time_s: float) -> None:
        time_s = max(0.0, time_s)
        self._counts[bisect_left(BOUNDS_S, time_s)] += 1
        self._longest_s = max(self._longest_s, time_s)
        self.count += 1
        self.sum_s += time_s

    def quantile(self, share: float) -> float:
        wanted = share * self.count
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

    def summary(self) -> dict[str, float]:
        return {
            "count": self.count, "sum_s": self.sum_s, "longest_s": self._longest_s,
            "p50_s": self.quantile(0.5), "p90_s": self.quantile(0.9), "p99_s": self.quantile(0.99),
        }  # fmt: skip


class Sums(Struct):
    calls: int = 0
    """All that ended, those answered from a recording included."""
    failed: int = 0
    """The client was sent an error, or had gone."""
    input_tokens: float = 0.0
    """Without those read from the prompt cache."""
    cache_read_tokens: float = 0.0
    cache_write_tokens: float = 0.0
    cache_rewrite_tokens: float = 0.0
    """Of those written, the ones that a conversation had written before."""
    output_tokens: float = 0.0
    spend_microusd: int = 0
    held: int = 0
    """Calls that waited for a permit, or again after a refusal."""
    unpriced: int = 0
    """Calls that took tokens and whose price is unknown: not in `spend_microusd`."""
    refusals_absorbed: int = 0
    kept_alive: int = 0
    replayed: int = 0

    def book(self, call: CallEnded) -> None:
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
        self.cache_write_tokens += call.tally.cache_write_tokens
        self.cache_rewrite_tokens += call.tally.rewrite_tokens
        self.output_tokens += call.tally.output_tokens
        self.spend_microusd += call.microusd or 0
        self.unpriced += call.microusd is None

    def add(self, other: Sums) -> None:
        for name in self.__struct_fields__:
            setattr(self, name, getattr(self, name) + getattr(other, name))

    def since(self, other: Sums) -> Sums:
        return Sums(
            *(getattr(self, name) - getattr(other, name) for name in self.__struct_fields__)
        )


class _Live(Struct):
    key: str
    caller: str
    since_s: float
    """It is held or in flight from then on."""
    is_held: bool = True


class GatewayLedger:
    """All counters of one gateway. `now` is a monotonic clock, in seconds."""

    def __init__(self, now: float = 0.0) -> None:
        self._began_s = self._last_s = now
        self._number = 0
        self._resent = 0
        self._live: dict[int, _Live] = {}
        self._names: dict[str, set[str]] = {kind: set() for kind in NAMES_MAX}
        self._rows: dict[tuple[str, str, str], Sums] = {}
        self._keys: dict[str, Sums] = {}
        """The one that called last is last."""
        self._answers: dict[Names, int] = {}
        self._passed: dict[Names, int] = {}
        self._faults: dict[Names, int] = {}
        self._turned: dict[Names, int] = {}
        self._queued: dict[str, Histogram] = {}
        self._first_bytes: dict[str, Histogram] = {}

    @property
    def held(self) -> int:
        return sum(live.is_held for live in self._live.values())

    @property
    def in_flight(self) -> int:
        return len(self._live) - self.held

    def turned(self, turned: Turned) -> None:
        _count(self._turned, (turned.code,))

    def passed(self, upstream: str, status: int) -> None:
        _count(self._passed, (self._known("upstream", upstream), str(status)))

    def resent(self) -> None:
        self._resent += 1

    def entered(self, key: str, caller: str, now: float) -> int:
        """A call waits from now on; returns its number until it is over."""
        self._number += 1
        self._live[self._number] = _Live(_label(key), self._known("caller", caller), now)
        return self._number

    def sent(self, number: int, now: float) -> None:
        live = self._live[number]
        live.is_held, live.since_s = False, now

    def refused(self, number: int, now: float) -> None:
        live = self._live[number]
        live.is_held, live.since_s = True, now

    def ended(self, number: int, call: CallEnded, now: float) -> None:
        del self._live[number]
        self._last_s = now
        upstream = self._known("upstream", call.upstream)
        names = (upstream, self._known("model", call.model), self._known("caller", call.caller))
        if names not in self._rows and len(self._rows) >= ROWS_MAX:
            names = (OTHER, OTHER, OTHER)
        self._rows.setdefault(names, Sums()).book(call)
        self._book_key(call)
        _count(self._answers, (upstream, str(call.status)))
        if call.fault is not None:
            _count(self._faults, (upstream, call.fault.kind))
        if call.was_replayed:
            return
        self._queued.setdefault(upstream, Histogram()).add(call.queued_s)
        if call.first_byte_s > 0.0:
            self._first_bytes.setdefault(upstream, Histogram()).add(call.first_byte_s)

    def _book_key(self, call: CallEnded) -> None:
        name = _label(call.key)
        sums = self._keys.pop(name, None) or Sums()
        sums.book(call)
        self._keys[name] = sums
        if len(self._keys) > KEYS_MAX:
            others = self._keys.pop(OTHER, None) or Sums()
            others.add(self._keys.pop(next(iter(self._keys))))
            self._keys[OTHER] = others

    def _known(self, kind: str, name: str) -> str:
        """The name, or `other` when there are too many of its kind by now."""
        name = _label(name) or "unknown"
        names = self._names[kind]
        if name not in names:
            if len(names) >= NAMES_MAX[kind]:
                return OTHER
            names.add(name)
        return name

    def _longest_s(self, now: float) -> float:
        return max((now - one.since_s for one in self._live.values() if one.is_held), default=0.0)

    def _total(self) -> Sums:
        total = Sums()
        for row in self._rows.values():
            total.add(row)
        return total

    def _by(self, place: int) -> dict[str, Sums]:
        found: dict[str, Sums] = {}
        for names, row in self._rows.items():
            found.setdefault(names[place], Sums()).add(row)
        return found

    def status(self, now: float) -> dict[str, object]:
        return {
            "up_s": now - self._began_s,
            "quiet_s": now - self._last_s,
            "held": self.held,
            "held_longest_s": self._longest_s(now),
            "in_flight": self.in_flight,
            "live_by_caller": dict(Counter(live.caller for live in self._live.values())),
            "live_by_key": dict(Counter(live.key for live in self._live.values())),
            "resent": self._resent,
            "total": as_dict(self._total()),
            "by_upstream": _plain(self._by(0)),
            "by_model": _plain(self._by(1)),
            "by_caller": _plain(self._by(2)),
            "by_key": _plain(self._keys),
            "queued": {name: one.summary() for name, one in self._queued.items()},
            "first_byte": {name: one.summary() for name, one in self._first_bytes.items()},
            "answers": _nested(self._answers),
            "passed": _nested(self._passed),
            "faults": _nested(self._faults),
            "turned_away": {code: number for (code,), number in self._turned.items()},
        }

    def metrics(self, now: float) -> str:
        """The same in Prometheus' text format, version 0.0.4."""
        total = {name: self._series(field) for name, field, _ in COUNTERS}
        total["spend_usd_total"] = [
            (suffix, labels, value / 1e6) for suffix, labels, value in total["spend_usd_total"]
        ]
        tokens = [
            ("", (*labels, ("kind", kind)), value)
            for kind in ("input", "cache_read", "cache_write", "cache_rewrite", "output")
            for _, labels, value in self._series(f"{kind}_tokens")
        ]
        spreads = (
            ("queued_seconds", "Until a call was sent upstream.", self._queued),
            ("first_byte_seconds", "From then until its answer began.", self._first_bytes),
        )
        found: list[tuple[str, str, str, list[Sample]]] = [
            ("up_seconds", "gauge", "Since the gateway started.", _one(now - self._began_s)),
            ("held", "gauge", "Calls that wait for a permit.", _one(self.held)),
            ("held_longest_seconds", "gauge", "How long the oldest of them waits.",
             _one(self._longest_s(now))),
            ("in_flight", "gauge", "Calls that are with a provider.", _one(self.in_flight)),
            *((name, "counter", about, total[name]) for name, _, about in COUNTERS),
            ("tokens_total", "counter", "Tokens that calls took, by kind.", tokens),
            ("resent_total", "counter", "Calls sent again by their client while held.",
             _one(self._resent)),
            ("answers_total", "counter", "Calls by the status that their client was sent.",
             _counts(self._answers, "upstream", "status")),
            ("passed_total", "counter", "Requests that no model answers, by status.",
             _counts(self._passed, "upstream", "status")),
            ("faults_total", "counter", "Calls that failed, by why.",
             _counts(self._faults, "upstream", "kind")),
            ("turned_away_total", "counter", "Requests that were refused at the door, by why.",
             _counts(self._turned, "code")),
            *((name, "histogram", about, _buckets(by)) for name, about, by in spreads),
        ]  # fmt: skip
        return "".join(_family(*one) for one in found)

    def _series(self, field: str) -> list[Sample]:
        names = ("upstream", "model", "caller")
        return [
            ("", tuple(zip(names, row, strict=True)), getattr(sums, field))
            for row, sums in self._rows.items()
        ]

    def counts(self) -> dict[str, int]:
        total = self._total()
        return {
            "calls": total.calls,
            "failed": total.failed,
            "refusals absorbed": total.refusals_absorbed,
            "replayed": total.replayed,
            "sent again": self._resent,
            "turned away": sum(self._turned.values()),
        }

    @property
    def came(self) -> Sums | None:
        """All calls that ended; `None` if no call came."""
        return self._total() if self._number else None


def _label(name: str) -> str:
    """A client's name for something, as labels and terminals may have it: short and printable."""
    cut = name[:NAME_CHARACTERS_MAX]
    return cut if cut.isprintable() else "".join(c if c.isprintable() else "?" for c in cut)


def _count(counts: dict[Names, int], names: Names) -> None:
    """One more of these, or of `other` when there are too many different ones."""
    if names not in counts and len(counts) >= COUNTS_MAX:
        names = (OTHER,) * len(names)
    counts[names] = counts.get(names, 0) + 1


def _plain(sums: Mapping[str, Sums]) -> dict[str, object]:
    return {name: as_dict(one) for name, one in sums.items()}


def _nested(counts: Mapping[Names, int]) -> dict[str, dict[str, int]]:
    found: dict[str, dict[str, int]] = {}
    for (upstream, what), number in counts.items():
        found.setdefault(upstream, {})[what] = number
    return found


# Prometheus' text exposition format, version 0.0.4.

Labels = tuple[tuple[str, str], ...]
Sample = tuple[str, Labels, float]
"""What follows the metric's name, labels, value."""

PREFIX: Final = "headway_gateway_"

COUNTERS: Final = (
    ("calls_total", "calls", "Calls that ended."),
    ("failed_calls_total", "failed", "Calls whose client was sent an error, or had gone."),
    ("held_calls_total", "held", "Calls that waited for a permit."),
    ("refusals_absorbed_total", "refusals_absorbed", "Refusals that no client saw."),
    ("kept_alive_total", "kept_alive", "Calls that got a sign of life before their answer."),
    ("replayed_total", "replayed", "Calls that were answered from a recording."),
    ("spend_usd_total", "spend_microusd", "What calls cost, where prices are known."),
    ("unpriced_calls_total", "unpriced", "Calls whose cost is unknown."),
)

_ESCAPES: Final = str.maketrans({"\\": r"\\", "\n": r"\n", '"': r"\""})


def _family(name: str, kind: str, about: str, samples: list[Sample]) -> str:
    """One metric with all its series; nothing where there are none yet."""
    lines = [f"# HELP {PREFIX}{name} {about}\n# TYPE {PREFIX}{name} {kind}\n"]
    for suffix, labels, value in samples:
        inner = ",".join(f'{label}="{text.translate(_ESCAPES)}"' for label, text in labels)
        told = f"{{{inner}}}" if inner else ""
        lines.append(f"{PREFIX}{name}{suffix}{told} {_number(value)}\n")
    return "".join(lines) if samples else ""


def _one(value: float) -> list[Sample]:
    return [("", (), value)]


def _buckets(spreads: Mapping[str, Histogram]) -> list[Sample]:
    samples: list[Sample] = []
    for upstream, spread in spreads.items():
        labels = (("upstream", upstream),)
        for bound_s, count in spread.buckets():
            samples.append(("_bucket", (*labels, ("le", _number(bound_s))), count))
        samples += [("_sum", labels, spread.sum_s), ("_count", labels, spread.count)]
    return samples


def _number(value: float) -> str:
    if value == inf:
        return "+Inf"
    return str(int(value)) if value == int(value) else repr(float(value))


def _counts(counts: Mapping[Names, int], *labels: str) -> list[Sample]:
    return [("", tuple(zip(labels, names, strict=True)), count) for names, count in counts.items()]
