"""How fast answers come, fitted to calls that were made: alone, and in company.

A call takes (first byte + tokens x time per token) x s(n) x luck, with n calls in flight on average
and s(n) = 1 + sigma (n - 1) + kappa n (n - 1), as everywhere in foresight. Both factors are fitted
by turns, each a small least-squares problem in relative errors: a long answer that is a second late
is nothing, a short one is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import log, sqrt
from typing import Final

from headway.core.foresight.provider import Latency
from headway.core.foresight.sizes import Seen
from headway.core.quota.tempo import FIRST_BYTE_S, PER_TOKEN_S

SEEN_MIN: Final = 8
"""Fewer calls fit anything."""

SEEN_MAX: Final = 500
"""The latest calls that are fitted: more would only be sure of what has changed meanwhile."""

TURNS: Final = 40
"""Of fitting one factor with the other held: more change nothing in the second digit."""

PRIOR_CALLS: Final = 2.0
"""What is believed of the time per token before weighs as much as so many calls."""

COMPANY_PRIOR: Final = 0.02
"""Slowdown is believed once samples show it beyond what so much noise would."""

LUCK_MAX: Final = 1.0
"""Nothing is more uncertain than a factor of e."""

UNKNOWN_LUCK: Final = 0.3
UNKNOWN_DOUBT: Final = 0.5
"""How times of calls and the speed of all of them differ from the usual where nothing was seen."""


@dataclass(frozen=True, slots=True)
class Speed:
    """How fast answers come, and how sure that is."""

    latency: Latency
    luck: float
    """Log-deviation of a call's time from what the others predict."""
    doubt: float
    """Log-deviation of the speed of all calls together."""
    calls: int = 0


UNKNOWN: Final = Speed(Latency(FIRST_BYTE_S, PER_TOKEN_S), UNKNOWN_LUCK, UNKNOWN_DOUBT)


@dataclass(frozen=True, slots=True)
class _Point:
    """A call: its tokens, its company, its time."""

    tokens: float
    beside: float
    took_s: float


def speed_of(seen: Sequence[Seen], before: Latency | None = None) -> Speed:
    """Fit what calls took; `before` is what is believed without them."""
    points = [
        _Point(one.output_tokens, max(1.0, one.beside), one.took_s)
        for one in seen
        if one.took_s > 0.0 and one.output_tokens >= 1.0
    ][-SEEN_MAX:]
    if len(points) < SEEN_MIN:
        return UNKNOWN if before is None else Speed(before, UNKNOWN_LUCK, UNKNOWN_DOUBT / 2.0)
    latency = Latency(before.first_byte_s, before.per_output_token_s) if before else Latency()
    for _ in range(TURNS):
        latency = _company(points, _alone(points, latency))
    offs = [log(point.took_s / _expected(latency, point)) for point in points]
    luck = min(LUCK_MAX, sqrt(sum(off * off for off in offs) / max(1, len(offs) - 3)))
    return Speed(latency, luck, luck / sqrt(len(points)), len(points))


def _expected(latency: Latency, point: _Point) -> float:
    return max(1e-6, latency.work_s(point.tokens) * latency.slowdown(point.beside))


def _alone(points: Sequence[_Point], latency: Latency) -> Latency:
    """Time to the first byte and per token, with the slowdown taken out of every time."""
    s11 = s12 = s22 = t1 = t2 = 0.0
    for point in points:
        alone_s = point.took_s / latency.slowdown(point.beside)
        # By what was expected, not by what it took: a call that had luck would outvote the others.
        weight = 1.0 / max(1e-6, latency.work_s(point.tokens)) ** 2
        s11 += weight
        s12 += weight * point.tokens
        s22 += weight * point.tokens**2
        t1 += weight * alone_s
        t2 += weight * alone_s * point.tokens
    # A prior on the slope: where all answers are as long, it cannot be told from the beginning.
    firm = PRIOR_CALLS * s22 / len(points) * 0.01
    s22, t2 = s22 + firm, t2 + firm * latency.per_output_token_s
    whole = s11 * s22 - s12 * s12
    first_s, per_s = (t1 * s22 - t2 * s12) / whole, (t2 * s11 - t1 * s12) / whole
    if first_s < 0.0:
        first_s, per_s = 0.0, t2 / s22
    if per_s <= 0.0:
        first_s, per_s = t1 / s11, 0.0
    # The provider's pace divides: nothing is written in no time at all.
    return Latency(first_s, max(per_s, 1e-6), latency.sigma, latency.kappa)


def _company(points: Sequence[_Point], latency: Latency) -> Latency:
    """Linear and quadratic slowdown, none negative, from how much longer calls took than alone."""
    firm = COMPANY_PRIOR * len(points)
    s11, s22, s12, t1, t2 = firm, firm, 0.0, 0.0, 0.0
    for point in points:
        a, b = point.beside - 1.0, point.beside * (point.beside - 1.0)
        slower = point.took_s / max(1e-6, latency.work_s(point.tokens)) - 1.0
        weight = 1.0 / latency.slowdown(point.beside) ** 2
        s11 += weight * a * a
        s12 += weight * a * b
        s22 += weight * b * b
        t1 += weight * a * slower
        t2 += weight * b * slower
    whole = s11 * s22 - s12 * s12
    sigma, kappa = (t1 * s22 - t2 * s12) / whole, (t2 * s11 - t1 * s12) / whole
    if sigma < 0.0:
        sigma, kappa = 0.0, max(0.0, t2 / s22)
    elif kappa < 0.0:
        sigma, kappa = max(0.0, t1 / s11), 0.0
    return Latency(latency.first_byte_s, latency.per_output_token_s, sigma, kappa)
