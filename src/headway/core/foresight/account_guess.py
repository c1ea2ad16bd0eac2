"""An account as far as it is known, as a provider that can be rehearsed against.

Laws:
- A limit that is known is taken as it is; where nothing is known, the account of the documents is
  assumed, nothing of it is told to headway beforehand, and the assumption is said.
- How the account is now (what is taken of its limits, how slow it is) is part of the guess, so that
  whatever is rehearsed on it has that in its times already.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from math import inf
from typing import Final

from headway.core.foresight.account import Terms
from headway.core.foresight.neighbour import Neighbour
from headway.core.foresight.provider import Faults, Latency, ProviderSpec
from headway.core.foresight.situation import AccountState
from headway.core.quota.belief import Profile
from headway.core.quota.congestion import Congestion
from headway.core.quota.demand import Price
from headway.core.quota.dialect import DIALECTS, PLAIN
from headway.core.quota.terms import LaneMemory
from headway.core.quota.view import LaneView
from headway.core.values import MINUTE_S, Limit

DOCUMENTED: Final = (
    Limit("requests", 500), Limit("tokens", 100_000), Limit("concurrency", 20, 0.0, "gauge"),
)  # fmt: skip
"""The account of "Concurrent vs. Parallel Execution"."""

PRICE_GUESS: Final = Price(3_000_000, 15_000_000)
"""Three dollars a million tokens in and fifteen out, where nobody knows the model."""

CURVE_WIDTHS: Final = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32)
CURVE_WEIGHT: Final = 5.0
"""At which widths, and with how many samples each, a described account counts as measured."""

BACKGROUND_MAX: Final = 64
"""Calls of others that a slowdown is explained with, at most."""

DRAW_LEAST: Final = 0.02
"""A neighbour that takes less of a limit is none."""


@dataclass(frozen=True, slots=True)
class AccountGuess:
    """A provider to rehearse against, and what headway would know of it beforehand."""

    spec: ProviderSpec
    profile: Profile | None = None
    price: Price | None = None
    share: float = 1.0
    """The user's ceiling on every limit."""
    learned_calls: int = 0
    learned_from: str = ""
    state: AccountState = field(default_factory=AccountState)
    assumed: tuple[str, ...] = ()

    @property
    def priced(self) -> Price:
        """What tokens cost here, or what they are taken to."""
        return self.price or PRICE_GUESS


def unknown_account(price: Price | None = None) -> AccountGuess:
    """Nothing was ever called: the documents' limits, which headway would have to find."""
    spec = ProviderSpec("unknown", Terms(hidden=DOCUMENTED), Latency(), Faults(retry_after="none"),
                        "plain")  # fmt: skip
    said = (
        "no account is known: 500 requests and 100,000 tokens a minute and 20 at once are assumed, "
        "which headway would first have to find out"
    )
    return AccountGuess(spec, None, price, learned_from="nothing", assumed=(said,))


def described_account(spec: ProviderSpec, price: Price | None = None) -> AccountGuess:
    """An account that somebody described: as well known as after some runs."""
    said = f"the account is `{spec.name}` as described, as well known as after earlier runs"
    profile = profile_of(spec)
    return AccountGuess(spec, profile, price, learned_from=f"`{spec.name}`", assumed=(said,))


def profile_of(spec: ProviderSpec) -> Profile:
    """What headway would have learned of a provider in earlier runs."""
    latency = spec.latency
    curve = tuple(
        (n, CURVE_WEIGHT, latency.per_output_token_s * latency.slowdown(n)) for n in CURVE_WIDTHS
    )
    worth = Congestion(curve).worth()
    caps = [limit.amount for limit in spec.terms.limits + spec.terms.hidden
            if limit.resource == "concurrency"]  # fmt: skip
    cap = min(caps, default=inf)
    # Who tells no limits has them found by outcomes, anew in every run.
    told = () if spec.dialect == PLAIN.name else spec.terms.limits
    return Profile(
        tuple(replace(limit, source="profile") for limit in told
              if limit.resource != "concurrency"),
        width=min(worth, cap, float(CURVE_WIDTHS[-1])), cap=cap,
        first_byte_s=latency.first_byte_s * latency.slowdown(1),
        per_token_s=latency.per_output_token_s * latency.slowdown(1), curve=curve,
    )  # fmt: skip


def remembered_account(
    lane: LaneMemory, view: LaneView, price: Price | None = None
) -> AccountGuess:
    """An account that was used before, as the broker remembers it, and as it stands now."""
    profile = lane.profile
    limits = tuple(one.limit for one in view.limits)
    hidden = () if profile.cap == inf else (Limit("concurrency", profile.cap, 0.0, "gauge"),)
    known = any(limit.kind == "gauge" for limit in limits)
    dialect = DIALECTS.get(lane.dialect, PLAIN)
    spec = ProviderSpec(
        view.group or view.account, Terms(
            limits, () if known else hidden, dialect.charging, neighbour=_neighbour(view),
        ), latency_of(profile), dialect=dialect.name,
    )  # fmt: skip
    said = () if limits or hidden else ("the account has told of no limit: none is assumed",)
    learned = round(2 * sum(weight for _, weight, _ in profile.curve))
    name = f"{view.account} {view.group}".strip()
    return AccountGuess(
        spec, profile, price, view.share, max(learned, view.granted), name, state_of(view), said
    )


def state_of(view: LaneView) -> AccountState:
    """What was measured of an account that is in use."""
    used = tuple((one.limit.name, min(1.0, one.used / max(1.0, one.limit.amount)))
                 for one in view.limits)  # fmt: skip
    calls = view.granted
    return AccountState(used, view.refused / calls if calls else None)


def latency_of(profile: Profile) -> Latency:
    """Speeds alone and in company, from what was measured at several widths."""
    if len(profile.curve) < 2:
        return Latency(profile.first_byte_s, profile.per_token_s)
    time_s = Congestion(profile.curve).time_s
    alone, two, three = time_s(1.0), time_s(2.0), time_s(3.0)
    square = max(0.0, (three - 2.0 * two + alone) / 2.0)
    linear = max(0.0, two - alone - 2.0 * square)
    company = max(1.0, profile.per_token_s / alone)
    return Latency(profile.first_byte_s / company, alone, linear / alone, square / alone)


def as_it_is_now(guess: AccountGuess, state: AccountState) -> AccountGuess:
    """The same account in this state: so much of it is taken, and it is so slow."""
    spec, slowdown = guess.spec, state.slowdown
    if slowdown is not None and slowdown != 1.0:
        spec = replace(spec, latency=slower(spec.latency, slowdown))
    taken = max((share for _, share in state.used), default=0.0)
    if taken > 0.0 and spec.terms.neighbour is None:
        # Somebody who has taken it before we start, and then is silent.
        gone = Neighbour(taken, shape="burst", on_s=MINUTE_S, off_s=inf)
        spec = replace(spec, terms=replace(spec.terms, neighbour=gone))
    return replace(guess, spec=spec, state=state)


def slower(latency: Latency, slowdown: float) -> Latency:
    """By others' calls in flight where company is known to slow down, else evenly."""
    alone = latency.slowdown(1)
    if slowdown > 1.0 and (latency.sigma > 0 or latency.kappa > 0):
        for extra in range(1, BACKGROUND_MAX + 1):
            if latency.slowdown(1 + extra) >= slowdown * alone:
                return replace(latency, background=latency.background + extra)
    return replace(latency, first_byte_s=latency.first_byte_s * slowdown,
                   per_output_token_s=latency.per_output_token_s * slowdown)  # fmt: skip


def _neighbour(view: LaneView) -> Neighbour | None:
    """Somebody else who draws on the account, all the time."""
    shares = [one.neighbours_per_s / one.limit.rate_per_s for one in view.limits
              if one.limit.rate_per_s > 0]  # fmt: skip
    share = max(shares, default=0.0)
    return Neighbour(min(1.0, share)) if share >= DRAW_LEAST else None
