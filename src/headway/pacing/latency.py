"""How latency grows with the number of calls in flight.

Laws:
- Raw latency is never used: a long answer is not a slow one. Time per unit of work is.
- A peak is believed only where samples support it, and only beyond what noise can make.
- The pace of a piece is known soon and easily disturbed: `Congestion` learns from it. What all
  calls deliver in a while is known later and contains everything: `Delivery` learns from it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from math import inf, log, sqrt
from typing import Final

from msgspec import Struct

from headway.pacing.limits import HORIZON_S, PlannedStream

FIRST_BYTE_S: Final = 1.0
PER_TOKEN_S: Final = 0.02
"""Before anything is measured: a hosted model of medium size."""

MEMORY: Final = 0.15
WHOLE_PRIOR_TOKENS: Final = 50.0
"""Lengths of whole answers must differ by so many tokens to tell their first byte from the rest."""

OVERDUE: Final = 2.0
OVERDUE_S_MIN: Final = 0.2
"""A first byte that takes so many times as long as others is probably waited for in a line."""

TOKENS_TYPICAL: Final = 100.0
"""A piece of this many tokens moves the learned pace by `MEMORY`."""


class LengthLine:
    """Time of whole answers against their length: where it begins, and how steeply it rises."""

    def __init__(self) -> None:
        self._count = self._x = self._y = self._xx = self._xy = 0.0

    def fit(self, tokens: float, elapsed_s: float, ahead: float) -> tuple[float, float]:
        """Count one answer whose first byte is believed to take the time of `ahead` tokens; returns
        seconds to the first byte and per token, both above 0."""
        keep = 1.0 - MEMORY / 2.0
        self._count = keep * self._count + 1.0
        self._x = keep * self._x + tokens
        self._y = keep * self._y + elapsed_s
        self._xx = keep * self._xx + tokens * tokens
        self._xy = keep * self._xy + tokens * elapsed_s
        mean_x, mean_y = self._x / self._count, self._y / self._count
        spread = self._xx / self._count - mean_x * mean_x
        rises = self._xy / self._count - mean_x * mean_y
        believed = mean_y / (mean_x + ahead)
        prior = WHOLE_PRIOR_TOKENS**2 / self._count
        slope = (rises + prior * believed) / (spread + prior)
        # An answer takes longer the longer it is, and some time even if it is empty.
        slope = min(max(slope, 0.1 * mean_y / mean_x), mean_y / mean_x)
        return max(mean_y - slope * mean_x, 1e-3), slope


class Tempo:
    """Learned speed, and the clock of calls in flight."""

    def __init__(self, now: float) -> None:
        self.first_byte_s = FIRST_BYTE_S
        self.per_token_s = PER_TOKEN_S
        self.in_flight = 0
        self._integral = 0.0
        self._at_s = now
        self._known = 0
        self._whole = LengthLine()
        self._ahead = inf

    def enter(self, now: float) -> float:
        """One more in flight; returns the integral for `mean_since`."""
        integral = self.integral(now)
        self.in_flight += 1
        return integral

    def leave(self, now: float) -> None:
        self.integral(now)
        self.in_flight -= 1

    def integral(self, now: float) -> float:
        if now > self._at_s:
            self._integral += self.in_flight * (now - self._at_s)
            self._at_s = now
        return self._integral

    def mean_since(self, integral: float, since_s: float, now: float) -> float:
        """Mean calls in flight since a reading of the integral."""
        elapsed = now - since_s
        return (self.integral(now) - integral) / elapsed if elapsed > 0 else self.in_flight

    def first_byte(self, waited_s: float) -> None:
        share = 1.0 if self._known == 0 else MEMORY
        self.first_byte_s += share * (waited_s - self.first_byte_s)
        self._known |= 1

    def moved(self, streamed_s: float, tokens: float) -> float:
        """The time per token of a piece of an answer; longer pieces weigh more."""
        per_token_s = streamed_s / tokens
        share = 1.0 if self._known < 2 else min(0.5, MEMORY * tokens / TOKENS_TYPICAL)
        self.per_token_s += share * (per_token_s - self.per_token_s)
        self._known |= 2
        return per_token_s

    def arrived(self, elapsed_s: float, tokens: float) -> float:
        """The time per token of an answer that came whole, its first byte counted in tokens."""
        ahead = self.first_byte_s / max(self.per_token_s, 1e-9)
        self.first_byte_s, self.per_token_s = self._whole.fit(tokens, elapsed_s, ahead)
        return elapsed_s / (tokens + self.first_byte_s / self.per_token_s)

    def work(self, tokens: float) -> float:
        """An answer's work in tokens, its first byte counted at its quickest: a line is no work."""
        self._ahead = min(self._ahead, self.first_byte_s / max(self.per_token_s, 1e-9))
        return tokens + self._ahead

    def is_overdue(self, waited_s: float, per_token_s: float) -> bool:
        """Whether a first byte takes much longer than it would at this time per token."""
        slower = max(1.0, per_token_s / max(self.per_token_s, 1e-9))
        return waited_s > max(OVERDUE_S_MIN, OVERDUE * self.first_byte_s * slower)

    def plan(self, tokens: float, now: float) -> PlannedStream:
        """When an answer of so many tokens would flow if its call were sent now."""
        return self.replan(tokens, now + self.first_byte_s, now)

    def replan(self, tokens: float, begins_s: float, now: float) -> PlannedStream:
        """The same for an answer whose first byte comes at a known time."""
        ends = min(begins_s + max(1e-3, tokens * self.per_token_s), now + HORIZON_S)
        return PlannedStream(min(begins_s, ends - 1e-3), ends, tokens)


NEARLY_PEAK: Final = 0.98
"""The smallest width with this share of the peak throughput: the rest only adds latency."""

EXTRAPOLATION_MAX: Final = 1.3
"""How far beyond the widest sample a fitted curve is believed."""

CERTAIN: Final = 2.0
"""Standard errors by which slowness has to grow with company: noise bends any curve."""

NOISE_MEMORY: Final = 0.05

STEADY: Final = 0.135
STEADY_AGAIN: Final = 0.08
"""Pieces are regular until their median is off the fitted curve by more than the first share, and
again after a round when it is off by less than the second. The median, not the mean: a machine
that stands still for a moment delays a few pieces by a multiple."""

OFFS_KEPT: Final = 32
OFFS_LEAST: Final = 8
"""Pieces whose middle one counts, and without which there is none."""

PIECES_LEAST: Final = 0.1
PIECES_MEMORY: Final = 0.2
"""Where pieces take a smaller share of an answer's time, their pace tells about this machine."""

SAMPLES_MIN: Final = 8
"""Fewer samples than this fit anything."""

REFIT: Final = 4
"""Samples from one fit to the next."""

ROUND_LEAST: Final = 4
"""Whole answers that make a round, however narrow it is."""

ROUND_MOVES: Final = 8
"""So many pieces of each answer make a round as well: a machine that stood still delays a few."""

PAUSE_S: Final = 1.0
"""Longer than this without a call in flight is no part of a round."""

ROUNDS_MAX: Final = 12
"""Rounds that count: a provider of long ago is another one."""

NEAR: Final = 0.6
"""How far from the present width other rounds count, as a logarithm."""

HOPE: Final = 1.0
"""Before anything is measured, twice as many are expected to do twice as much."""

NOISE_MIN: Final = 0.01
"""Variance of the logarithm of a round's throughput, at least: ten per cent are nothing."""


class Congestion:
    """Fits time per unit of work against calls in flight and finds the width worth having.

    y(n) = c0 + c1 (n - 1) + c2 n (n - 1), fitted by weighted least squares over one mean per width:
    a long stay at one width does not outweigh what was learned at the others.
    """

    MEMORY: Final = 0.1

    def __init__(self, curve: tuple[tuple[int, float, float], ...] = ()) -> None:
        self._bins = {width: (weight, seconds) for width, weight, seconds in curve}
        self._fit: _Fit | None = None
        self._noise = 0.0
        """Mean squared distance of a sample from the curve, as a share of the time alone."""
        self.is_steady = True
        """Whether samples are regular enough to be acted on as they come."""
        self._share: float | None = None
        """Of the time of an answer, what its pieces take."""
        self._residuals = 0
        self._offs: deque[float] = deque(maxlen=OFFS_KEPT)
        self._fresh: list[tuple[float, float]] = []
        self.samples = round(sum(weight for _, weight, _ in curve))
        self.widest = float(max(self._bins, default=1))
        self._refit()

    def curve(self) -> tuple[tuple[int, float, float], ...]:
        """What was seen, for the profile: it counts half when the next run begins."""
        return tuple((n, weight / 2, y) for n, (weight, y) in sorted(self._bins.items()))

    def sample(self, in_flight: float, time_per_work_s: float) -> None:
        """One call's time per unit of work, and how many were in flight on average meanwhile."""
        width = max(1, round(in_flight))
        weight, mean = self._bins.get(width, (0.0, time_per_work_s))
        share = max(self.MEMORY, 1.0 / (weight + 1.0))
        self._bins[width] = (min(weight + 1.0, 1.0 / self.MEMORY),
                             mean + share * (time_per_work_s - mean))  # fmt: skip
        self.samples += 1
        self.widest = max(self.widest, float(width))
        self._fresh.append((in_flight, time_per_work_s))
        if len(self._fresh) >= REFIT:
            self._refit()

    def answered(self, waited_s: float, streamed_s: float) -> None:
        """An answer waited so long for its first byte, and its pieces took so long."""
        share = streamed_s / max(waited_s + streamed_s, 1e-9)
        known = share if self._share is None else self._share
        self._share = known + PIECES_MEMORY * (share - known)

    @property
    def tells(self) -> bool:
        """Whether the pace of pieces is a part of the time of an answer that counts."""
        return self._share is None or self._share >= PIECES_LEAST

    def _refit(self) -> None:
        if not self._bins:
            return
        fit = self._fit = _least_squares(
            (float(n), y, weight) for n, (weight, y) in self._bins.items()
        )
        for in_flight, time_per_work_s in self._fresh:
            off = (time_per_work_s - fit.at(in_flight)) / fit.at(in_flight)
            self._residuals += 1
            share = max(NOISE_MEMORY, 1.0 / self._residuals)
            self._noise += share * (off * off - self._noise)
            self._offs.append(abs(off))
        self._fresh.clear()
        self.is_steady = self.is_steady and self._typically_off() <= STEADY

    def trust_again(self) -> None:
        """A round has passed: samples that have become quite regular are acted on again."""
        self.is_steady = self.is_steady or self._typically_off() <= STEADY_AGAIN

    def _typically_off(self) -> float:
        """How far from the curve the middle one of the latest samples is, as a share."""
        if len(self._offs) < OFFS_LEAST:
            return 0.0
        return sorted(self._offs)[len(self._offs) // 2]

    def worth(self) -> float:
        """The smallest width with nearly the peak throughput, as far as samples support it."""
        peak = self.peak()
        if peak == inf:
            return inf
        width, enough = peak, NEARLY_PEAK * self.throughput(peak)
        while width > 1 and self.throughput(width - 0.5) >= enough:
            width -= 0.5
        return width

    def peak(self) -> float:
        """The width with the highest throughput, if it is within what samples support."""
        fit = self._fit
        if fit is None or self.samples < SAMPLES_MIN or len(self._bins) < 2 or not self.tells:
            return inf
        doubt = CERTAIN * fit.alone * sqrt(self._noise * fit.doubt)
        if fit.square <= doubt:
            return inf
        peak = max(1.0, sqrt(max(0.0, fit.alone - fit.linear) / fit.square))
        return peak if peak <= self.widest * EXTRAPOLATION_MAX else inf

    def throughput(self, width: float) -> float:
        """Work per second at a width, by the fitted curve."""
        return width / self.time_s(width)

    def time_s(self, width: float) -> float:
        """Time per unit of work at a width, by the fitted curve."""
        return (self._fit or _FLAT).at(width)


Round = tuple[float, float]
"""What was delivered in a while: the mean number in flight, and work per second."""


class Delivery:
    """Throughput as it is delivered, by width: work of all answers per second, in rounds.

    A round is over when as many answers have ended as were in flight, or all have moved a while.
    The elasticity is the slope of a line through the logarithms of width and throughput, near the
    present width: 1 where company costs nothing, 0 where more at once only wait longer, negative
    beyond a peak. `HOPE` is the prior, so that a width at which nothing varies is left again.
    """

    def __init__(self) -> None:
        self.rounds: deque[tuple[float, float]] = deque(maxlen=ROUNDS_MAX)
        self._is_settled = True
        self._last_s = -inf
        self._from_s = self._integral = self._work = 0.0
        self._ends = self._moves = 0

    def sent(self, in_flight: int, integral: float, now: float) -> None:
        """A call leaves, so that this many are in flight. After a pause a new round begins."""
        if in_flight == 1 and now - self._last_s > PAUSE_S:
            self._begin(integral, now)

    def changed(self) -> None:
        """The width is another one: what ends in this round was mostly served at the old one."""
        self._is_settled = False

    def moved(self, work: float, integral: float, now: float, least_s: float) -> Round | None:
        """A piece of an answer came; a round when every answer has moved for long enough."""
        self._moves += 1
        self._work += work
        self._last_s = now
        in_flight = self._in_flight(integral, now)
        is_long = now - self._from_s > least_s
        if not is_long or self._moves < ROUND_MOVES * max(ROUND_LEAST, in_flight):
            return None
        return self._complete(in_flight, integral, now)

    def ended(self, work: float, integral: float, now: float) -> Round | None:
        """The rest of an answer, and the integral of calls in flight; a round when one is over."""
        self._ends += 1
        self._work += work
        self._last_s = now
        in_flight = self._in_flight(integral, now)
        if self._ends < max(ROUND_LEAST, in_flight) or now <= self._from_s:
            return None
        return self._complete(in_flight, integral, now)

    def _in_flight(self, integral: float, now: float) -> float:
        return (integral - self._integral) / max(now - self._from_s, 1e-9)

    def _complete(self, in_flight: float, integral: float, now: float) -> Round | None:
        work_per_s = self._work / (now - self._from_s)
        is_settled, self._is_settled = self._is_settled, True
        self._begin(integral, now)
        if not is_settled:
            return None
        self.rounds.append((log(in_flight), log(work_per_s)))
        return in_flight, work_per_s

    def elasticity(self, width: float) -> float:
        """By how much throughput follows the width, near this width."""
        near = [one for one in self.rounds if abs(one[0] - log(width)) <= NEAR]
        count = max(1, len(near))
        mean_x = sum(x for x, _ in near) / count
        mean_y = sum(y for _, y in near) / count
        xx = sum((x - mean_x) ** 2 for x, _ in near)
        xy = sum((x - mean_x) * (y - mean_y) for x, y in near)
        yy = sum((y - mean_y) ** 2 for _, y in near)
        noise = max(NOISE_MIN, (yy - xy * xy / max(xx, 1e-9)) / count)
        return (xy / noise + HOPE) / (xx / noise + 1.0)

    def _begin(self, integral: float, now: float) -> None:
        self._from_s, self._integral = now, integral
        self._work, self._ends, self._moves = 0.0, 0, 0


class _Fit(Struct, frozen=True):
    """Time per unit of work: alone, and what company adds to it."""

    alone: float
    linear: float
    square: float
    doubt: float = 0.0
    """Variance of the quadratic part for samples with a variance of one."""

    def at(self, n: float) -> float:
        """Time per unit of work with n in flight."""
        return self.alone + self.linear * (n - 1.0) + self.square * n * (n - 1.0)


_FLAT: Final = _Fit(1.0, 0.0, 0.0)


def _least_squares(points: Iterable[tuple[float, float, float]]) -> _Fit:
    """Weighted fit of c0 + c1 (n-1) + c2 n(n-1), none negative; a ridge keeps c1 small.

    Without a ridge two widths cannot tell linear from quadratic growth. The quadratic term is the
    one that makes a peak, so doubt goes to it.
    """
    s11 = s12 = s13 = s22 = s23 = s33 = t1 = t2 = t3 = 0.0
    for n, y, w in points:
        a, b = n - 1.0, n * (n - 1.0)
        s11 += w
        s12 += w * a
        s13 += w * b
        s22 += w * a * a
        s23 += w * a * b
        s33 += w * b * b
        t1 += w * y
        t2 += w * a * y
        t3 += w * b * y
    s22 += 0.05 * s22 + 1e-9
    # What is left for the quadratic part once the others have taken what they can explain.
    rest = s33 - s13 * s13 / s11
    both = (s23 - s12 * s13 / s11) ** 2 / (s22 - s12 * s12 / s11)
    for use_linear, use_square in ((True, True), (False, True), (True, False)):
        fit = _solve(
            (s11, s12 * use_linear, s13 * use_square, t1),
            (s12 * use_linear, s22 if use_linear else 1.0, s23 * (use_linear and use_square),
             t2 * use_linear),
            (s13 * use_square, s23 * (use_linear and use_square),
             s33 + 1e-9 if use_square else 1.0, t3 * use_square),
        )  # fmt: skip
        if fit[0] > 0 and min(fit) >= 0:
            left = rest - both if use_linear else rest
            return _Fit(*fit, 1.0 / max(left, 1e-12))
    return _Fit(t1 / s11, 0.0, 0.0)


_Row = tuple[float, float, float, float]


def _solve(r1: _Row, r2: _Row, r3: _Row) -> tuple[float, float, float]:
    """Cramer's rule for a symmetric 3 x 3 system; a singular one gives a negative, rejected fit."""

    def det(i: int, j: int, k: int) -> float:
        return (
            r1[i] * (r2[j] * r3[k] - r2[k] * r3[j])
            - r1[j] * (r2[i] * r3[k] - r2[k] * r3[i])
            + r1[k] * (r2[i] * r3[j] - r2[j] * r3[i])
        )

    whole = det(0, 1, 2)
    if abs(whole) < 1e-12:
        return (-1.0, 0.0, 0.0)
    return (det(3, 1, 2) / whole, det(0, 3, 2) / whole, det(0, 1, 3) / whole)
