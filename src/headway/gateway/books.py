"""What calls came to, added up by upstream, model, caller and key, in bounded memory.

Laws:
- Memory is bounded whatever clients send: names are cut, and those that come after the first so
  many are booked as `other`. Keys of tasks come and go: the oldest are added up as `other`.
- What was booked under other names than a key stays under them: counters never go back.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Final

from headway.gateway.histogram import Histogram
from headway.gateway.values import CallEnded

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
