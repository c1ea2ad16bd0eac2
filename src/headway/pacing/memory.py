"""The history of an account: by minute, by hour of the day, by day.

Laws:
- A call that ended is in one minute and in one column of it: answered, refused by a kind, failed
  or wrong. Sums of minutes are whole numbers, so nothing is lost in adding or in writing down.
- A minute that is over is added to the hour of the day in which it began; hours forget half of
  what they hold every `HALF_LIFE_MIN`.
- At most `MINUTES_KEPT` minutes and 24 hours are held, however much is called.
- The hour of the day is an argument of `turn`; before the first, nothing is learned of hours.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from copy import copy
from functools import lru_cache
from math import inf
from typing import Final, Literal

from msgspec import Struct
from msgspec.structs import astuple, replace

from headway.base.numbers import REMEMBERED_MAX
from headway.base.values import (
    DAY_S,
    MINUTE_S,
    Amounts,
    Budget,
    FaultKind,
    Limit,
    LimitReading,
)
from headway.pacing.account import Profile
from headway.pacing.budget import ALL, Claim, Days
from headway.pacing.call import CallId
from headway.pacing.limits import is_about
from headway.pacing.windows import WindowState

MINUTES_KEPT: Final = 60
"""The minutes in which something happened that are held, of the last so many."""
HALF_LIFE_MIN: Final = 14 * DAY_S / MINUTE_S
"""Two weeks: the habits of an account's neighbours change with the seasons, not with the day."""
KEEP: Final = 0.5 ** (1.0 / HALF_LIFE_MIN)
"""What an hour still holds after a minute."""
MICRO: Final = 1_000_000
MILLE: Final = 1000
HOUR_UNKNOWN: Final = -1


class Spell(Struct, array_like=True):
    """All calls that ended in some stretch of time, summed."""

    answered: int | float = 0
    rate: int | float = 0
    concurrency: int | float = 0
    overload: int | float = 0
    failed: int | float = 0
    """The provider or the line failed: no answer, or none that ended."""
    wrong: int | float = 0
    """The call or the account's bill was at fault: nothing is said about the provider."""
    input_tokens: int | float = 0
    output_tokens: int | float = 0
    begun: int | float = 0
    """Answers whose first byte was timed."""
    first_byte_us: int | float = 0
    streamed_tokens: int | float = 0
    streamed_us: int | float = 0
    crowd_tokens: int | float = 0
    """Streamed tokens times the calls that were in flight with them."""
    drawn_mille: int | float = 0
    """What neighbours took of the scarcest limit, in thousandths, summed over answers."""

    @property
    def ended(self) -> float:
        return (
            self.answered + self.rate + self.concurrency + self.overload + self.failed + self.wrong
        )

    @property
    def refused(self) -> float:
        """Calls that a limit of the account refused."""
        return self.rate + self.concurrency

    @property
    def first_byte_s(self) -> float | None:
        """The mean time to a first byte, if any was timed."""
        return self.first_byte_us / MICRO / self.begun if self.begun > 0 else None

    @property
    def per_token_s(self) -> float | None:
        """The mean time per output token after the first byte, if any was timed."""
        return self.streamed_us / MICRO / self.streamed_tokens if self.streamed_tokens > 0 else None

    @property
    def company(self) -> float:
        """How many calls were in flight with an output token on the mean, itself included."""
        return self.crowd_tokens / self.streamed_tokens if self.streamed_tokens > 0 else 0.0

    @property
    def neighbours(self) -> float:
        """The share of the scarcest limit that others took on the mean."""
        return self.drawn_mille / MILLE / self.answered if self.answered > 0 else 0.0

    def share(self, calls: float) -> float:
        """Of all calls that ended."""
        return calls / self.ended if self.ended > 0 else 0.0


_COLUMN: Final[dict[FaultKind, str]] = {
    "rate": "rate", "concurrency": "concurrency", "overload": "overload", "server": "failed",
    "timeout": "failed", "broken": "failed", "connection": "failed",
}  # fmt: skip


Row = tuple[int, int, Spell]
"""A minute or an hour: how many minutes ago it was last added to, the hour of the day, its sums."""


class ChronicleMemory(Struct, frozen=True):
    """A chronicle between two processes, and as it travels."""

    minutes: tuple[Row, ...] = ()
    """The last one goes on: it is in no hour yet."""
    hours: tuple[Row, ...] = ()
    is_rest_same: bool = False
    """In a change: only the last minute is here, the rest is as it was written before."""


class Chronicle:
    """The recent past of one lane, and its usual day."""

    def __init__(self, memory: ChronicleMemory = ChronicleMemory(), known_s: float = 0.0) -> None:
        """Go on from a memory that was made at `known_s`."""
        at = int(known_s // MINUTE_S)
        self._hour = HOUR_UNKNOWN
        self._hours = {hour: (at - age_min, spell) for age_min, hour, spell in memory.hours}
        """By hour of the day, when it was last added to, and its sums."""
        rows = memory.minutes or ((0, HOUR_UNKNOWN, Spell()),)
        self._minutes = [(at - age_min, hour, copy(spell)) for age_min, hour, spell in rows]
        """The last one goes on, and is in no hour yet."""
        self._written_min = -1
        """When all of it was last taken as a change."""

    def turn(self, hour: int, now: float) -> None:
        """It is this hour of the day now."""
        self._hour = hour
        spell = self._at(now)
        if not spell.ended:
            self._minutes[-1] = (self._minutes[-1][0], hour, spell)

    def answered(
        self, now: float, used: Amounts, first_byte_s: float | None, streamed_s: float | None,
        company: int = 1, neighbours: float = 0.0,
    ) -> None:  # fmt: skip
        """A call was answered to its end: what it took, how fast it came, in what company."""
        spell, tokens = self._at(now), round(used.output_tokens)
        spell.answered += 1
        spell.input_tokens += round(used.input_tokens)
        spell.output_tokens += tokens
        if first_byte_s is not None:
            spell.begun += 1
            spell.first_byte_us += round(first_byte_s * MICRO)
        if streamed_s is not None and tokens > 0:
            spell.streamed_tokens += tokens
            spell.streamed_us += round(streamed_s * MICRO)
            spell.crowd_tokens += tokens * company
        spell.drawn_mille += round(neighbours * MILLE)

    def refused(self, kind: FaultKind, now: float) -> None:
        """A call ended without an answer."""
        spell, column = self._at(now), _COLUMN.get(kind, "wrong")
        setattr(spell, column, getattr(spell, column) + 1)

    def memory(self, now: float, is_change: bool = False) -> ChronicleMemory:
        """All of it, as it stands; as a change, all of it once a minute."""
        self._at(now)
        at, minutes, hours = int(now // MINUTE_S), self._minutes, self._hours
        is_rest_same = is_change and self._written_min == at
        if is_change:
            self._written_min = at
        if is_rest_same:
            minutes, hours = minutes[-1:], {}
        return ChronicleMemory(
            tuple([(at - minute, hour, copy(spell)) for minute, hour, spell in minutes]),
            tuple([(at - minute, hour, spell) for hour, (minute, spell) in hours.items()]),
            is_rest_same,
        )

    def _at(self, now: float) -> Spell:
        """This minute; the one before is put away when it is over."""
        minute = int(now // MINUTE_S)
        last, hour, spell = self._minutes[-1]
        if minute == last:
            return spell
        if not spell.ended:
            del self._minutes[-1]
        elif hour != HOUR_UNKNOWN:
            since, held = self._hours.get(hour, (last, Spell()))
            self._hours[hour] = (last, total((_faded(held, last - since), spell)))
        self._minutes = [one for one in self._minutes if minute - one[0] < MINUTES_KEPT]
        self._minutes.append((minute, self._hour, Spell()))
        return self._minutes[-1][2]


def lately(memory: ChronicleMemory, from_min: int, to_min: int = 0) -> Spell:
    """What happened from so many minutes ago, until so many ago."""
    return total(spell for age_min, _, spell in memory.minutes if to_min <= age_min < from_min)


def minutes_seen(memory: ChronicleMemory, from_min: int) -> int:
    """Minutes since so many ago in which a call was answered."""
    return sum(age_min < from_min and spell.answered > 0 for age_min, _, spell in memory.minutes)


def hours_of(memory: ChronicleMemory) -> dict[int, Spell]:
    """The hours of the day of which something is known, as much of each as is remembered now."""
    held = {hour: _faded(spell, age_min) for age_min, hour, spell in memory.hours}
    for _, hour, spell in memory.minutes[-1:]:
        if hour != HOUR_UNKNOWN and spell.ended:
            held[hour] = total((held.get(hour, Spell()), spell))
    return held


def _faded(spell: Spell, age_min: float) -> Spell:
    """An hour's sums, faded by its age in minutes."""
    return Spell(*(KEEP**age_min * one for one in astuple(spell)))


def total(spells: Iterable[Spell]) -> Spell:
    return Spell(*map(sum, zip(*map(astuple, spells), strict=True)))


def without(whole: Spell, part: Spell) -> Spell:
    """What is left of a stretch of time without a part of it."""
    pairs = zip(astuple(whole), astuple(part), strict=True)
    return Spell(*(max(0.0, one - other) for one, other in pairs))


# What a user sets for an account, what is learned of it, and all of both that outlives a process.

EVERY_ACCOUNT: Final = ALL
"""The name under which terms for all accounts together are kept."""
_DATED: Final = re.compile(r"[-@](?:20\d{6}|20\d\d-\d\d-\d\d|latest)$")
_CLAUDE: Final = re.compile(r"claude-(?:(\d+)(?:[-.]\d+)?-)?(opus|sonnet|haiku)(?:-(\d+))?")


class AccountTerms(Struct, frozen=True):
    """What a user set for an account, for one model group of it, or for every account."""

    limits: tuple[Limit, ...] = ()
    share: float = 1.0
    """The ceiling: at most this share of every limit is used."""
    pace: Literal["fast", "smooth"] = "fast"
    budget: Budget = Budget()
    """For a calendar month."""
    reserve: float = 0.0
    """The part of the share that is kept for interactive calls."""


class AccountMemory(Struct, frozen=True):
    """One account and model group between two processes: what was learned, what was left."""

    account: str
    group: str
    dialect: str
    profile: Profile
    levels: tuple[LimitReading, ...] = ()
    """How each limit stood when this was written."""
    chronicle: ChronicleMemory = ChronicleMemory()
    windows: tuple[WindowState, ...] = ()
    """How each usage window stood."""
    age_s: float = 0.0
    """How much older this is than the rest of the memory: accounts are written when they change."""


class PacingMemory(Struct, frozen=True, omit_defaults=True):
    """All that outlives a process, or what changed of it."""

    month: str = ""
    """The calendar month that budgets are for, like 2026-11."""
    terms: tuple[tuple[str, AccountTerms], ...] = ()
    accounts: tuple[AccountMemory, ...] = ()
    """The one that changed last is the last."""
    claims: tuple[Claim, ...] = ()
    days: tuple[tuple[str, Days], ...] = ()
    """What was spent on which day, by account."""
    names: tuple[tuple[str, str], ...] = ()
    """Accounts that a user named: several of one name are one account."""
    owners: tuple[tuple[str, str], ...] = ()
    """The accounts of keys and logins, as responses named them."""
    ended: tuple[CallId, ...] = ()
    """In a change: claims that are no more."""


def terms_of(terms: Mapping[str, AccountTerms], account: str, group: str) -> AccountTerms:
    """The terms of a model group: its own, and those of its account or else of every account that
    it does not set itself. A ceiling of the account holds for all of its models."""
    wide = terms.get(account, terms.get(EVERY_ACCOUNT, AccountTerms()))
    own = terms.get(f"{account}/{group}")
    if own is None:
        return wide
    named = {limit.name for limit in own.limits}
    limits = (*own.limits, *[limit for limit in wide.limits if limit.name not in named])
    share, reserve = min(own.share, wide.share), max(own.reserve, wide.reserve)
    return replace(own, limits=limits, share=share, reserve=reserve, budget=wide.budget)


def slots_of(terms: Mapping[str, AccountTerms], account: str) -> float:
    """How many calls a user allows in flight on an account, over all of its models."""
    wide = terms.get(account, terms.get(EVERY_ACCOUNT, AccountTerms()))
    slots = [limit.amount for limit in wide.limits if limit.resource == "concurrency"]
    return max(1.0, float(int(min(slots) * wide.share))) if slots else inf


def account_of(
    names: Mapping[str, str], owners: Mapping[str, str], key: str, login: str = ""
) -> str:
    """The account of a key: the user's name, that of responses, its login's, or the key."""
    for known in (key, login):
        if known in names:
            return names[known]
        if known in owners:
            return names.get(owners[known], owners[known])
    return login or key


def joined(one: AccountMemory, other: AccountMemory) -> AccountMemory:
    """What two names knew of the same account. Where both knew a limit, `one` counts."""
    limits, known = one.profile.limits, {limit.name for limit in one.profile.limits}
    more = tuple(limit for limit in other.profile.limits if limit.name not in known)
    levels = [told for told in other.levels if any(is_about(limit, told) for limit in more)]
    base = one.profile if one.profile.is_measured else other.profile
    return replace(
        one, profile=replace(base, limits=(*limits, *more)), levels=(*one.levels, *levels),
        chronicle=_joined(one.chronicle, other.chronicle),
    )  # fmt: skip


def _joined(one: ChronicleMemory, other: ChronicleMemory) -> ChronicleMemory:
    """The sums of two histories; hours as much as is remembered of them now."""
    minutes: dict[int, tuple[int, Spell]] = {}
    for age_min, hour, spell in sorted((*one.minutes, *other.minutes), key=lambda row: -row[0]):
        known, sums = minutes.get(age_min, (hour, Spell()))
        minutes[age_min] = max(known, hour), total((sums, spell))
    hours: dict[int, Spell] = {}
    for age_min, hour, spell in (*one.hours, *other.hours):
        hours[hour] = total((hours.get(hour, Spell()), _faded(spell, age_min)))
    return ChronicleMemory(
        tuple([(age_min, *one) for age_min, one in minutes.items()]),
        tuple([(0, *one) for one in hours.items()]),
    )


@lru_cache(REMEMBERED_MAX)
def model_group(model: str) -> str:
    """The models that share limits: all dates of a name; at Anthropic, a family's major version."""
    name = _DATED.sub("", model.lower().rsplit("/", 1)[-1])
    claude = _CLAUDE.search(name)
    if claude is None:
        return name
    before, family, after = claude.groups()
    version = before or after
    return f"claude-{family}-{version}" if version else f"claude-{family}"
