"""What really happened at the simulated provider, by account.

Laws:
- A key is never kept: an account is called by 8 hex digits of a digest, and by its client's label.
- calls = whole + refused + failures + cancelled + in flight, for every account at any time.
- Worst windows are recomputed from the account's log by `audit.py`; no meter is asked.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Iterable
from typing import Final

from msgspec import Struct, field
from msgspec.structs import replace

from headway.base.codec import as_dict
from headway.base.values import Resource
from headway.sim.account import Charge, SimulatedAccount, Terms
from headway.sim.audit import violations, worst_window
from headway.wire.values import Conversation

_SCRIPTS: Final = "\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af\uf900-\ufaff"
_TOKEN: Final = re.compile(
    rf" ?[A-Za-z]{{1,7}}| ?[0-9]{{1,3}}| ?[{_SCRIPTS}]| ?[^\W\d_{_SCRIPTS}]{{1,3}}|\n+| {{2,16}}"
    r"| ?[^\w\s]|.",
    re.DOTALL,
)

TURN_TOKENS: Final = 3
"""What marks the beginning, the role and the end of a turn."""

MEDIA_TOKENS_PER_BYTE: Final = 0.3
"""An image of 5,000 bytes on the wire's own scale takes 1,500 tokens."""

_WORDS: Final = (
    "time", "year", "people", "way", "day", "man", "thing", "woman", "life", "child", "world",
    "school", "state", "family", "student", "group", "country", "problem", "hand", "part", "place",
    "case", "week", "company", "system", "program", "work", "number", "night", "point", "home",
    "water", "room", "mother", "area", "money", "story", "fact", "month", "lot", "right", "study",
    "book", "eye", "word", "issue", "side", "kind", "head", "house", "service", "friend", "father",
    "power", "hour", "game", "line", "end", "member", "law", "car", "city", "name", "team",
)  # fmt: skip
_RING: Final = tuple(f" {word}" for word in _WORDS)
_STRIDE: Final = 17
"""Coprime to the number of words, so that a text runs through all of them before it repeats."""


def pieces_of(text: str) -> list[str]:
    """The tokens of a text, in order."""
    return _TOKEN.findall(text)


def count(text: str) -> int:
    """How many tokens a text is."""
    return len(_TOKEN.findall(text))


def input_tokens(conversation: Conversation) -> int:
    """What a model reads: the text of every turn, what marks the turns, and what is not text."""
    turns = len(conversation.turns) + (1 if conversation.system else 0)
    media_tokens = round(MEDIA_TOKENS_PER_BYTE * conversation.media_bytes)
    return count(conversation.text) + TURN_TOKENS * turns + media_tokens


def filler(tokens: int, start: int) -> list[str]:
    """Words that say nothing: exactly so many tokens, the same for the same start."""
    size = len(_RING)
    found = [_RING[(start + _STRIDE * index) % size] for index in range(tokens)]
    if found:
        found[0] = found[0].lstrip()
    return found


ARRIVALS_MAX: Final = 1_000_000
"""Lines of the arrival log; older ones are left off and counted."""

ACCOUNTS_MAX: Final = 1000
"""All accounts live on one clock, so that each of them costs something for every call."""

CHARGES_MAX: Final = 200_000
"""Lines of an account's log after which it is folded, so that a long run fits into memory."""

KEPT_MAX: Final = 1_000_000
"""Lines of an account's log that are kept at most, however long its longest period is."""

TOLERANCE: Final = 0.001
"""Share of a limit below which an excess is a matter of rounding."""


REPORTED: Final = (
    "input_tokens", "cache_read_tokens", "cache_write_tokens", "cache_rewrite_tokens",
    "output_tokens",
)  # fmt: skip
CHARGED: Final[tuple[Resource, ...]] = ("requests", "input", "output", "spend")


class Visit(Struct):
    """A line of the arrival log: who came when, with what, and what became of it."""

    number: int
    at_s: float
    key: str
    wire: str
    model: str
    streams: bool
    retry_count: int = 0
    """What the client's SDK says about how often it has sent this call before."""
    label: str = ""
    is_accepted: bool = False
    refused_for: str | None = None
    faults: tuple[str, ...] = ()
    how: str = "in flight"
    """`whole`, `refused`, `cancelled`, or the kind of the fault."""
    status: int = 0
    first_byte_s: float | None = None
    ended_s: float | None = None
    input_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    cache_rewrite_tokens: int = 0
    """Of those written, the ones that were written before and forgotten."""
    output_tokens: int = 0
    """What was reported to the client; of a call that ended early, what was written."""
    body: str = ""
    """A digest of the request's body: two visits with the same one are one call sent twice."""


class Worst(Struct, frozen=True):
    """The fullest interval of one limit's period."""

    limit: str
    kind: str
    amount: float
    capacity: float
    worst: float = 0.0
    from_s: float = 0.0
    is_exceeded: bool = False
    """Whether the limit, as its kind counts, was exceeded."""


class AccountTruth(Struct):
    """All that is known about one account."""

    labels: list[str] = field(default_factory=list)
    calls: int = 0
    accepted: int = 0
    whole: int = 0
    refused: dict[str, int] = field(default_factory=dict)
    """By the resource that was short."""
    failures: dict[str, int] = field(default_factory=dict)
    """By kind."""
    cancelled: int = 0
    in_flight: int = 0
    in_flight_max: int = 0
    """The most that the provider served at once."""
    counts: int = 0
    """Calls that only count tokens; they are no calls and use no limit."""
    wrong: int = 0
    """Requests that are no calls: not JSON, or not in the wire's form."""
    cache_reads: int = 0
    cache_writes: int = 0
    reported: dict[str, int] = field(default_factory=lambda: dict.fromkeys(REPORTED, 0))
    """Tokens as whole answers reported them to clients, input without those of the cache; how many
    were written again is reported only here."""
    charged: dict[Resource, float] = field(default_factory=lambda: dict.fromkeys(CHARGED, 0.0))
    """What was taken from the account's limits, less refunds."""
    limits: list[Worst] = field(default_factory=list)


class Truth:
    """The record of all accounts."""

    def __init__(self) -> None:
        self.arrivals: deque[Visit] = deque(maxlen=ARRIVALS_MAX)
        self.accounts: dict[str, AccountTruth] = {}
        self._fold_at: dict[str, int] = {}

    def account(self, key: str, label: str = "") -> AccountTruth:
        """The record of one account, opened on first use."""
        found = self.accounts.get(key)
        if found is None:
            found = self.accounts[key] = AccountTruth()
        if label and label not in found.labels and len(found.labels) < 100:
            found.labels.append(label)
        return found

    def came(self, visit: Visit) -> None:
        self.arrivals.append(visit)
        account = self.account(visit.key, visit.label)
        account.calls += 1

    def accepted(self, visit: Visit) -> None:
        account = self.account(visit.key)
        visit.is_accepted = True
        account.accepted += 1
        account.in_flight += 1
        account.cache_reads += visit.cache_read_tokens > 0
        account.cache_writes += visit.cache_write_tokens > 0

    def over(self, visit: Visit, how: str, now: float) -> None:
        """A call is over, in exactly one way. Only the first word counts."""
        if visit.ended_s is not None:
            return
        visit.how, visit.ended_s = how, now
        account = self.account(visit.key)
        account.in_flight -= visit.is_accepted
        if how == "whole":
            account.whole += 1
            for name in REPORTED:
                account.reported[name] += getattr(visit, name)
        elif how == "cancelled":
            account.cancelled += 1
        elif how == "refused":
            reason = visit.refused_for or "rate"
            account.refused[reason] = account.refused.get(reason, 0) + 1
        else:
            account.failures[how] = account.failures.get(how, 0) + 1

    def folded(self, key: str, account: SimulatedAccount) -> list[Charge] | None:
        """An account's log once it is long, to be audited: most of it is forgotten here."""
        if len(account.log) < self._fold_at.get(key, CHARGES_MAX):
            return None
        log = list(account.log)
        record = self.account(key)
        record.charged = _charged(record.charged, _forgotten(account))
        # Twice as much as is kept: the same charges are audited twice on average, no more.
        self._fold_at[key] = max(CHARGES_MAX, 2 * len(account.log))
        return log

    def adopt(self, key: str, audited: list[Worst]) -> None:
        """Keep the worst of what an audit found and of what was found before."""
        record = self.account(key)
        record.limits = _worse(record.limits, audited)

    def report(
        self, accounts: dict[str, SimulatedAccount], crowds: dict[str, int]
    ) -> Callable[[], dict[str, object]]:
        """A function that audits the records as they are now; it takes long: for a thread."""
        copies = []
        for key, account in accounts.items():
            record = self.account(key)
            charged = _charged(record.charged, account.log)
            record = replace(record, in_flight_max=crowds.get(key, 0), charged=charged)
            copies.append((key, record, account.terms, list(account.log)))

        def audited() -> dict[str, object]:
            return {
                key: as_dict(replace(record, limits=_all_limits(record, terms, log)))
                for key, record, terms, log in copies
            }

        return audited

    def has_room(self, key: str) -> bool:
        """Whether this account is known or can be opened."""
        return key in self.accounts or len(self.accounts) < ACCOUNTS_MAX

    def find(self, word: str) -> str | None:
        """The account that has this name or label."""
        if word in self.accounts:
            return word
        named = (key for key, record in self.accounts.items() if word in record.labels)
        return next(named, None)

    def reset(self, accounts: Iterable[SimulatedAccount]) -> None:
        """Forget what is over. Limits stay as used as they are; calls in flight stay in flight."""
        for account in accounts:
            account.log.clear()
        running = [visit for visit in self.arrivals if visit.ended_s is None]
        self.accounts.clear()
        self.arrivals.clear()
        for visit in running:
            self.came(visit)
            self.accepted(visit)


def _all_limits(record: AccountTruth, terms: Terms, log: list[Charge]) -> list[Worst]:
    most = record.in_flight_max
    return _worse(record.limits, audit(terms, log)) + [
        Worst(limit.name, limit.kind, limit.amount, limit.capacity, most, 0.0, most > limit.amount)
        for limit in terms.limits + terms.hidden
        if limit.kind == "gauge"
    ]


def audit(terms: Terms, charges: list[Charge]) -> list[Worst]:
    """The fullest interval of each limit on a rate."""
    rated = [limit for limit in terms.limits + terms.hidden if limit.kind != "gauge"]
    broken = {limit for limit, _ in violations(terms, charges, TOLERANCE)}
    return [
        Worst(limit.name, limit.kind, limit.amount, limit.capacity,
              *worst_window(charges, limit.resource, limit.period_s), limit in broken)
        for limit in rated
    ]  # fmt: skip


def _worse(before: list[Worst], after: list[Worst]) -> list[Worst]:
    if not before:
        return after
    return [
        replace(
            max(one, other, key=lambda worst: worst.worst),
            is_exceeded=one.is_exceeded or other.is_exceeded,
        )
        for one, other in zip(before, after, strict=True)
    ]


def _forgotten(account: SimulatedAccount) -> list[Charge]:
    """Take from a log what is older than the longest period, and what is beyond its size."""
    log = account.log
    period_s = max((limit.period_s for limit in account.terms.limits), default=0.0)
    edge_s = log[-1].to_s - period_s
    old = next((place for place, charge in enumerate(log) if charge.to_s > edge_s), len(log))
    gone = log[: max(old, len(log) - KEPT_MAX)]
    del log[: len(gone)]
    return gone


def _charged(before: dict[Resource, float], log: list[Charge]) -> dict[Resource, float]:
    sums: dict[Resource, float] = {}
    for charge in log:
        if charge.by != "neighbour":
            sums[charge.resource] = sums.get(charge.resource, 0.0) + charge.amount
    return {resource: before[resource] + sums.get(resource, 0.0) for resource in CHARGED}
