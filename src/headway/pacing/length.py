"""Predicts the length of replies from finished calls and from those still running.

Laws:
- An estimate is always there: a prior at first, the history of the kind soon after.
- A stream that has produced k tokens and has not ended is evidence of a length above k, a
  right-censored observation: calls that end early are short, and their mean is too low.
- Asking is cheap: nothing is computed anew until enough has changed.

Lengths are lognormal around a line: log(out) = m + b log(in) + s e. The fit is a Tobit regression
in Olsen's form (Econometrica 1978): in 1/s, m/s, b/s the likelihood is concave, so Newton's method
finds its one maximum. Calls that ended enter through six sums, those in flight one by one.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Hashable, Sequence
from math import erfc, exp, inf, log, pi, sqrt
from typing import Final, TypeVar

from msgspec import Struct, field

K = TypeVar("K")
V = TypeVar("V")

KINDS_MAX: Final = 1024
"""Kinds of which something is remembered; the one that was used least recently goes first."""

OUTPUT_TOKENS_PRIOR: Final = 500.0
INPUT_TOKENS_REFERENCE: Final = 1000.0
SPREAD_PRIOR: Final = 0.8
"""One standard deviation is a factor of 2.2: typical of replies of one kind."""

SPREAD_MAX: Final = 3.0
"""A factor of 20; beyond this a kind has no length that is worth estimating."""

SPREAD_PRIOR_CALLS: Final = 4.0
LENGTH_PRIOR_CALLS: Final = 0.2
SLOPE_PRIOR: Final = 4.0
"""Ties the slope to zero as firmly as four calls whose inputs differ by a factor of e."""

LENGTH_MEMORY: Final = 512.0
"""Calls started after which a length counts for a third. Ended calls and calls in flight are
forgotten by when they started: otherwise the slow ones of a time would outweigh its quick ones."""

FLIGHTS_MAX: Final = 256
"""Calls in flight that one fit looks at; of more, every second or third stands for the others."""

CHANGES_PER_FIT: Final = 16
"""A fit is made anew when a 16th of what it rests on has changed: constant work per call."""

PACE_MARGIN: Final = 0.8
"""A call that tells no progress is credited with four fifths of the longest call that started
later and has ended: calls of one kind differ in speed, and the longest is among the fastest."""

NEWTON_STEPS_MAX: Final = 20
NEWTON_TOLERANCE: Final = 1e-4
SQRT_2: Final = sqrt(2.0)
FAR_TAIL: Final = 30.0
"""Standard deviations above which `erfc` is too small to divide by."""


def remember(memory: dict[K, V], key: K, make: Callable[[], V]) -> V:
    """The value of a key, made if need be and moved to the end; the oldest makes room."""
    value = memory.pop(key, None)
    if value is None:
        value = make()
        if len(memory) >= KINDS_MAX:
            del memory[next(iter(memory))]
    memory[key] = value
    return value


def _hazard(z: float) -> float:
    """Density over share above; far out the ratio of two tiny numbers is known in another way."""
    if z > FAR_TAIL:
        return z + 1.0 / z
    return exp(-0.5 * z * z) / (sqrt(0.5 * pi) * erfc(z / SQRT_2))


_Fit = tuple[float, float, float]
"""Parameters in the form in which the likelihood is concave: 1/s, m/s, b/s."""

_Censored = list[tuple[float, float, float]]
"""Of calls in flight: weight, x, and the log of the tokens so far."""

_KEEP: Final = exp(-1.0 / LENGTH_MEMORY)
_LEVEL_PRIOR: Final = log(OUTPUT_TOKENS_PRIOR) - 0.5 * SPREAD_PRIOR**2
_PRIOR: Final = (1.0 / SPREAD_PRIOR, _LEVEL_PRIOR / SPREAD_PRIOR, 0.0)


def _newton_step(fit: _Fit, sums: Sequence[float], censored: _Censored) -> _Fit:
    """One step towards the maximum likelihood."""
    p, m, b = fit
    ended, x, y, xx, xy, yy = sums
    n = ended + LENGTH_PRIOR_CALLS
    calls = ended + SPREAD_PRIOR_CALLS
    y += LENGTH_PRIOR_CALLS * _LEVEL_PRIOR
    xx += SLOPE_PRIOR
    yy = yy + LENGTH_PRIOR_CALLS * _LEVEL_PRIOR**2 + SPREAD_PRIOR_CALLS * SPREAD_PRIOR**2
    gradient_p = calls / p - p * yy + m * y + b * xy
    gradient_m = p * y - m * n - b * x
    gradient_b = p * xy - m * x - b * xx
    # The negative second derivatives: positive definite by the priors alone.
    pp, pm, pb = calls / (p * p) + yy, -y, -xy
    mm, mb, bb = n, x, xx
    for weight, at, c in censored:
        z = p * c - m - b * at
        hazard = _hazard(z)
        pull, bend = weight * hazard, weight * hazard * (hazard - z)
        gradient_p -= pull * c
        gradient_m += pull
        gradient_b += pull * at
        pp, pm, pb = pp + bend * c * c, pm - bend * c, pb - bend * c * at
        mm, mb, bb = mm + bend, mb + bend * at, bb + bend * at * at
    # Solved by elimination: the matrix is symmetric and positive definite, so no pivot is zero.
    down_m, down_b = pm / pp, pb / pp
    mm, mb, bb = mm - down_m * pm, mb - down_m * pb, bb - down_b * pb
    gradient_m -= down_m * gradient_p
    gradient_b -= down_b * gradient_p + (mb / mm) * gradient_m
    step_b = gradient_b / (bb - mb * mb / mm)
    step_m = (gradient_m - mb * step_b) / mm
    return (gradient_p - pm * step_m - pb * step_b) / pp, step_m, step_b


def _fitted(fit: _Fit, sums: Sequence[float], censored: _Censored) -> _Fit:
    for _ in range(NEWTON_STEPS_MAX):
        (p, m, b), (step_p, step_m, step_b) = fit, _newton_step(fit, sums, censored)
        # The precision stays positive: at most half of it is taken away at once.
        share = min(1.0, 0.5 * p / -step_p) if step_p < 0.0 else 1.0
        fit = p + share * step_p, m + share * step_m, b + share * step_b
        if abs(step_p) + abs(step_m) + abs(step_b) <= NEWTON_TOLERANCE:
            break
    return fit


class _Flight(Struct):
    """A call that has not ended. `produced` is `None` for one that never told."""

    start: int
    x: float
    produced: float | None = None


class _Kind(Struct):
    """What is known of the lengths of one kind of call."""

    sums: Sequence[float] = (0.0,) * 6
    """Weighted, over ended calls: of 1, x, y, x^2, xy, y^2, where y is the log length."""
    flights: dict[Hashable, _Flight] = field(default_factory=dict)
    stairs: list[tuple[int, float]] = field(default_factory=list)
    """Ended calls that no later-started one outlasted: (start, -length), both rising."""
    starts: int = 0
    changes: int = 0
    fit: _Fit = _PRIOR

    def begin(self, input_tokens: float) -> _Flight:
        self.starts += 1
        self.changes += 1
        self.sums = [_KEEP * past for past in self.sums]
        # Centred so that the level is that of an ordinary call.
        return _Flight(self.starts, log(max(1.0, input_tokens) / INPUT_TOKENS_REFERENCE))

    def learn(self, flight: _Flight, output_tokens: float) -> None:
        self.changes += 1
        weight, x, y = _KEEP ** (self.starts - flight.start), flight.x, log(max(1.0, output_tokens))
        wx, wy = weight * x, weight * y
        more = (weight, wx, wy, wx * x, wx * y, wy * y)
        self.sums = [past + new for past, new in zip(self.sums, more, strict=True)]

    def outlasted(self, flight: _Flight, output_tokens: float) -> None:
        """Remember that calls that started before this one and still run have outlasted it."""
        place = bisect_left(self.stairs, (flight.start, -inf))
        if place < len(self.stairs) and -self.stairs[place][1] >= output_tokens:
            return
        lower = place
        while lower > 0 and -self.stairs[lower - 1][1] <= output_tokens:
            lower -= 1
        self.stairs[lower:place] = [(flight.start, -output_tokens)]
        oldest = next(iter(self.flights.values())).start if self.flights else self.starts
        del self.stairs[: bisect_left(self.stairs, (oldest, -inf))]

    def current(self) -> _Fit:
        """The fit, made anew when enough has changed since the last one."""
        if self.changes * CHANGES_PER_FIT > min(self.sums[0] + len(self.flights), FLIGHTS_MAX):
            self.changes = 0
            self.fit = _fitted(self.fit, self.sums, self._censored())
        return self.fit

    def _censored(self) -> _Censored:
        each = 1 + len(self.flights) // FLIGHTS_MAX
        censored: _Censored = []
        for flight in list(self.flights.values())[::each]:
            produced = flight.produced
            if produced is None:
                place = bisect_left(self.stairs, (flight.start, -inf))
                longest = -self.stairs[place][1] if place < len(self.stairs) else 0.0
                produced = PACE_MARGIN * longest
            if produced > 1.0:
                weight = each * _KEEP ** (self.starts - flight.start)
                censored.append((weight, flight.x, log(produced)))
        return censored


def _mean_below(mean: float, spread: float, ceiling: float) -> float:
    """The mean length of a reply of lognormal length that is cut at `ceiling`."""
    if ceiling <= 0.0:
        return 0.0
    # The share of a standard normal above z is erfc(z / sqrt(2)) / 2.
    z = (log(ceiling) - mean) / spread
    whole = exp(mean + 0.5 * spread * spread) * 0.5 * erfc((spread - z) / SQRT_2)
    return min(ceiling, whole + ceiling * 0.5 * erfc(z / SQRT_2))


class OutputLength:
    """How long replies will be, by kind of call, learned from calls that ended or run."""

    def __init__(self) -> None:
        self._kinds: dict[str, _Kind] = {}
        self._calls: dict[Hashable, _Kind] = {}

    def observe(self, kind: str, input_tokens: float, output_tokens: float) -> None:
        """Learn from a call that was not followed from its start."""
        known = remember(self._kinds, kind, _Kind)
        known.learn(known.begin(input_tokens), output_tokens)

    def started(self, call_id: Hashable, kind: str, input_tokens: float) -> None:
        """A call was sent: until it ends, that it has not ended is evidence."""
        if call_id in self._calls:
            self.ended(call_id, None)
        known = remember(self._kinds, kind, _Kind)
        known.flights[call_id] = known.begin(input_tokens)
        self._calls[call_id] = known

    def progressed(self, call_id: Hashable, tokens: float) -> None:
        """A stream has produced so many tokens so far. Better than what others imply, if told."""
        known = self._calls.get(call_id)
        if known is not None:
            known.flights[call_id].produced = tokens

    def ended(self, call_id: Hashable, output_tokens: float | None) -> None:
        """A call ended. `None`, when the provider did not say how long it was, teaches nothing."""
        known = self._calls.pop(call_id, None)
        if known is not None:
            flight = known.flights.pop(call_id)
            if output_tokens is not None:
                known.learn(flight, output_tokens)
                known.outlasted(flight, output_tokens)

    def expect(self, kind: str, input_tokens: float, ceiling: float) -> float:
        """The mean length of a reply that is cut at `ceiling`."""
        known = self._kinds.get(kind)
        if known is None:
            return min(ceiling, OUTPUT_TOKENS_PRIOR)
        precision, level, slope = known.current()
        x = log(max(1.0, input_tokens) / INPUT_TOKENS_REFERENCE)
        spread = min(SPREAD_MAX, 1.0 / precision)
        return _mean_below((level + slope * x) / precision, spread, ceiling)
