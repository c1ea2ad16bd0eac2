"""How many calls may be in flight: what the account allows, and what is worth it.

Laws:
- Raw latency is never used: a long answer is not a slow one. Time per unit of work is.
- Outcomes show how many are allowed (`ConcurrencyLimit`), time against calls in flight how many
  are worth it (`Curve`); `Width` takes the smaller.
- More at once are worth it while time grows by less than `ELASTIC` of what the width does, as far
  as samples can tell: growth is believed only beyond what noise can make.
- The width is at most a multiple of what was seen in flight, so that it never grows unused.
- A provider whose speed changes changes the time at every width. What was seen beyond the present
  width is not believed for ever.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Iterable, Sequence
from math import inf, log, log2, sqrt
from typing import Final, Literal

from msgspec import Struct

from headway.base.numbers import backoff_s
from headway.pacing.meters import PlannedStream
from headway.pacing.streams import HORIZON_S

FIRST_BYTE_S: Final = 1.0
PER_TOKEN_S: Final = 0.02
"""Before anything is measured: a hosted model of medium size."""
MEMORY: Final = 0.15
TOKENS_TYPICAL: Final = 100.0
"""A piece of this many tokens moves the learned pace by `MEMORY`."""
SIZE_SHARE: Final = 0.5
"""Half of a whole answer's time goes with its length; learning this share made no difference."""


class AnswerSpeed:
    """How fast answers come, and the clock of calls in flight."""

    def __init__(self, first_byte_s: float, per_token_s: float, now: float) -> None:
        self.first_byte_s = first_byte_s
        self.per_token_s = per_token_s
        self.in_flight = 0
        self._integral = 0.0
        self._at_s = now
        self._known = 0
        """Of first bytes, pieces, whole answers: 1, 2, 4."""

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

    def began(self, waited_s: float) -> None:
        """A first byte came."""
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

    def arrived(self, elapsed_s: float, tokens: float) -> None:
        """An answer came whole."""
        share = 1.0 if self._known < 4 else MEMORY
        per_token_s = SIZE_SHARE * elapsed_s / max(1.0, tokens)
        self.first_byte_s += share * ((1.0 - SIZE_SHARE) * elapsed_s - self.first_byte_s)
        self.per_token_s += share * (per_token_s - self.per_token_s)
        self._known |= 4

    def plan(self, tokens: float, now: float) -> PlannedStream:
        """When an answer of so many tokens would flow if its call were sent now."""
        begins_s, lasts_s = now + self.first_byte_s, max(1e-3, tokens * self.per_token_s)
        if self.first_byte_s + lasts_s < HORIZON_S:
            return PlannedStream(begins_s, begins_s + lasts_s, tokens)
        return self.replan(tokens, begins_s, now)

    def replan(self, tokens: float, begins_s: float, now: float) -> PlannedStream:
        """The same for an answer whose first byte comes at a known time."""
        ends = min(begins_s + max(1e-3, tokens * self.per_token_s), now + HORIZON_S)
        return PlannedStream(min(begins_s, ends - 1e-3), ends, tokens)


class CongestionFit(Struct, frozen=True):
    """Time with n in flight: alone + linear (n - 1) + square n (n - 1), none negative."""

    alone: float
    linear: float = 0.0
    square: float = 0.0
    doubt: float = 0.0
    """Standard error of the growth, as a share of it."""
    flat: float = 0.0
    """Where there is no growth, the standard error of the square part."""

    @property
    def has_contrast(self) -> bool:
        """Whether times at different widths were seen."""
        return self.doubt > 0 or self.flat > 0

    def at(self, n: float) -> float:
        return self.alone + self.linear * (n - 1.0) + self.square * n * (n - 1.0)

    def shifted(self, doubts: float) -> CongestionFit:
        """With as much growth, or as little, as samples allow within so many standard errors."""
        if self.doubt > 0:
            factor = max(0.0, 1.0 + doubts * self.doubt)
            return CongestionFit(self.alone, factor * self.linear, factor * self.square)
        return CongestionFit(self.alone, 0.0, max(0.0, doubts * self.flat))

    def width(self, elastic: float) -> float:
        """Up to which width time grows by less than `elastic` of it; at 1 is the peak."""
        a = (2.0 - elastic) * self.square
        b = (1.0 - elastic) * (self.linear - self.square)
        c = elastic * (self.alone - self.linear)
        if c <= 0:
            return 1.0
        if a <= 0:
            return c / b if b > 0 else inf
        return max(1.0, (sqrt(b * b + 4.0 * a * c) - b) / (2.0 * a))

    def worth(self, elastic: float) -> float:
        """The same in whole calls: one more if its own gain is still worth it."""
        width = self.width(elastic)
        if width == inf:
            return inf
        low = max(1.0, float(int(width)))
        gain = (low + 1.0) / self.at(low + 1.0) / (low / self.at(low)) - 1.0
        return low + 1.0 if gain * (low + 1.0) >= 1.0 - elastic else low


def _sum(fits: Iterable[tuple[CongestionFit, float]], doubts: float) -> CongestionFit:
    """Several times together, each by its weight and shifted by so many standard errors."""
    alone = linear = square = 0.0
    for fit, weight in fits:
        shifted = fit.shifted(doubts)
        alone += weight * shifted.alone
        linear += weight * shifted.linear
        square += weight * shifted.square
    return CongestionFit(alone, linear, square)


CURVE_MEMORY: Final = 0.1
"""How much the newest sample moves the mean of its width; a mean weighs as much as ten samples."""
NOISE_MEMORY: Final = 0.05
NOISE_LEAST: Final = 0.0004
"""Variance of a sample as a share of the time, at least: two per cent."""
NOISE_FIRST: Final = 0.04
"""The same of times to a first byte, which prompts and caches change: twenty per cent. At two per
cent a second call whose first byte came late for its own reasons held 20 others back."""
BINS_EXACT: Final = 8
"""Up to so many calls in flight each number has a mean of its own; above, eight per doubling."""
ROUND: Final = 2
"""Samples at a width before a wider one is tried. With three, 22 tasks take 0.7 % longer."""
RIDGE: Final = 1.05
"""Keeps the linear part small: two widths fit linear growth as well, which has no peak."""
FLAT: Final = 1e-9
"""Less growth than this share of the time is a rounding error."""
JUMP: Final = 1.5
JUMP_SAMPLES: Final = 8
"""If eight samples in a row are all slower, or all faster, than their widths' means by this factor,
the provider's speed changed, and with it the time at every width. Without this, a provider
that is slow for a minute is taken for a congested one, and 780 s become up to 1,890."""
JUMP_SEEN: Final = 4
"""Means of fewer samples say nothing yet."""
JUMP_NOISE: Final = 0.05
"""Where samples vary by more than 20 % (this is the variance), eight may be off by chance: a steady
provider whose times vary by half took up to four times as long."""
Samples = tuple[tuple[float, float, float, float], ...]
"""By width: calls in flight, weight, time, size of the work."""


class Curve:
    """Time of a kind of work against calls in flight: one mean per width, and a fit through them.

    One mean per width: a long stay at one width does not outweigh what was learned at the others.
    Works of different sizes are compared as if `SIZE_SHARE` of the time went with the size.
    """

    def __init__(self, kept: Samples = (), noise: float = NOISE_LEAST) -> None:
        """`noise`: the variance of a sample as a share of its time, at least."""
        self._least = noise
        self._bins = {_bin(n): (weight, n, y, size) for n, weight, y, size in kept}
        self._noise = 0.0
        self._residuals = 0
        self._before = 1.0
        """The ratio of the last sample to the mean of its width."""
        self._scatter = 0.0
        """Variance of a sample, by the difference to the one before."""
        self._odd: list[tuple[float, float, float]] = []
        """The last samples, off to the same side: ratio to their mean, calls in flight, time."""
        self._fit: CongestionFit | None = None
        self._top = [max((n for n, _, _, _ in kept), default=0.0)] * ROUND
        """The widest samples."""

    @property
    def widest(self) -> float:
        """The width of a round of samples, or the share of the widest one that leads to it."""
        return max(self._top[0], self._top[-1] / BLIND)

    @property
    def samples(self) -> float:
        return sum(weight for weight, _, _, _ in self._bins.values())

    def kept(self) -> Samples:
        """What was seen, for the profile: it counts half when the next run begins."""
        return tuple([(n, weight / 2, y, size) for weight, n, y, size in self._bins.values()])

    def sample(self, in_flight: float, y: float) -> float:
        """Take a sample; returns the factor by which the provider became slower at every width."""
        ratio, odd = self._ratio(in_flight, y), self._odd
        if odd and (odd[0][0] > 1.0) != (ratio > 1.0):
            self._take_odd()
        # From one sample to the next: a jump shows there once, noise every time.
        step, self._before = log(ratio / self._before), ratio
        self._scatter += NOISE_MEMORY * (min(JUMP - 1.0, abs(step)) ** 2 / 2.0 - self._scatter)
        if 1.0 / JUMP < ratio < JUMP or self._scatter > JUMP_NOISE:
            self._take_odd()
            self.take(in_flight, y)
            return 1.0
        self._odd.append((ratio, in_flight, y))
        if len(self._odd) < JUMP_SAMPLES:
            return 1.0
        # The first of them were begun before.
        late = sorted(ratio for ratio, _, _ in self._odd[JUMP_SAMPLES // 2 :])
        factor = late[JUMP_SAMPLES // 4]
        self.rescale(factor)
        return factor

    def rescale(self, factor: float) -> None:
        """The provider has become slower by this factor, whatever the width."""
        self._bins = {
            place: (weight, n, factor * y, size)
            for place, (weight, n, y, size) in self._bins.items()
        }
        self._odd.clear()
        self._fit = None

    def keep(self, least: float, most: float) -> None:
        """Forget what was seen with fewer or more in flight."""
        bins = self._bins.items()
        self._bins = {place: one for place, one in bins if least <= one[1] <= most + 0.5}
        self._top = [min(one, most) for one in self._top]
        self._fit = None

    def _ratio(self, in_flight: float, y: float) -> float:
        """A time over the mean of its width or, without one, over what its neighbours allow."""
        n, y = max(1.0, in_flight), max(1e-6, y)
        times = sorted(
            (width, time, place)
            for place, (weight, width, time, _) in self._bins.items()
            if weight >= JUMP_SEEN
        )
        own = [time for _, time, place in times if place == _bin(n)]
        if own:
            return y / own[0]
        place = bisect_left(times, (n,))
        if place > 0 and y < times[place - 1][1]:
            return y / times[place - 1][1]
        if place < len(times) and y > times[place][1]:
            return y / times[place][1]
        return 1.0

    def _take_odd(self) -> None:
        odd, self._odd = self._odd, []
        for _, n, y in odd:
            self.take(n, y)

    def take(self, in_flight: float, y: float, size: float = 1.0) -> None:
        """Add a sample to the mean of its width."""
        # Clocks are coarse: what takes no time at all takes a microsecond.
        n, y = max(1.0, in_flight), max(1e-6, y)
        if n > self._top[0]:
            self._top[0] = n
            self._top.sort()
        place = _bin(n)
        weight, mean_n, mean, mean_size = self._bins.get(place, (0.0, n, y, size))
        if weight > 0:
            off = y / mean - 1.0 - SIZE_SHARE * (size / mean_size - 1.0)
            self._residuals += 1
            share = max(NOISE_MEMORY, 1.0 / self._residuals)
            self._noise += share * (min(1.0, off * off) - self._noise)
        share = max(CURVE_MEMORY, 1.0 / (weight + 1.0))
        self._bins[place] = (
            min(weight + 1.0, 1.0 / CURVE_MEMORY), mean_n + share * (n - mean_n),
            mean + share * (y - mean), mean_size + share * (size - mean_size),
        )  # fmt: skip
        self._fit = None

    def fit(self) -> CongestionFit | None:
        """Through the means of all widths, for a work of typical size."""
        if self._fit is None and self._bins:
            bins = self._bins.values()
            typical = sum(weight * size for weight, _, _, size in bins) / self.samples
            points = [
                (weight, n, y / (1.0 + SIZE_SHARE * (size / typical - 1.0)))
                for weight, n, y, size in bins
            ]
            self._fit = _least_squares(points, max(self._least, self._noise))
        return self._fit


def _bin(n: float) -> int:
    return round(n) if n <= BINS_EXACT else round(BINS_EXACT * (1.0 + log2(n / BINS_EXACT)))


def _least_squares(points: Sequence[tuple[float, float, float]], noise: float) -> CongestionFit:
    """A fit through (weight, n, time); `noise` is the relative variance of a sample."""
    s11 = s12 = s13 = s22 = s23 = s33 = t1 = t2 = t3 = 0.0
    for w, n, y in points:
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
    mean = t1 / s11
    # Centred: what is left once the constant has taken what it explains.
    c22, c33 = s22 - s12 * s12 / s11, s33 - s13 * s13 / s11
    c23 = s23 - s12 * s13 / s11
    r2, r3 = t2 - s12 * mean, t3 - s13 * mean
    if c22 <= 1e-9:
        return CongestionFit(mean)
    variance = noise * mean * mean
    ridged = RIDGE * c22
    determinant = ridged * c33 - c23 * c23
    both = (r2 * c33 - r3 * c23) / determinant, (r3 * ridged - r2 * c23) / determinant
    for linear, square in (both, (0.0, r3 / c33), (r2 / c22, 0.0)):
        alone = mean - (linear * s12 + square * s13) / s11
        if min(linear, square) >= 0 and linear + square > FLAT * mean and alone > 0:
            grown = linear * linear * c22 + 2.0 * linear * square * c23 + square * square * c33
            return CongestionFit(alone, linear, square, sqrt(variance / grown))
    if r3 > FLAT * mean * c33:
        # It grows faster than any such curve: the best width is the best of those that were seen.
        _, n, y = max(points, key=lambda point: point[1] / point[2])
        alone = y / (2.0 - 1.0 / n)
        return CongestionFit(alone, 0.0, alone / (n * n), sqrt(variance / c33) * c33 / r3)
    return CongestionFit(mean, flat=sqrt(variance / c33))


PROBE_FIRST_S: Final = 30.0
PROBE_GROWTH: Final = 2.0
"""A learned cap is tried again after 30 s, then 60 s, 120 s...: each failed try is a refusal."""
SUSPECT_S: Final = 2.0
SUSPECT_S_MAX: Final = 16.0
"""A cap that no refusal named is tried again after so long, then twice as long, up to the latter:
without an end 22 tasks whose calls take a minute took 518 s in place of 284."""


LATE_MAX: Final = 4.0
"""Calls let in at the cap count up to this many times the cap; a late slot takes two off."""


class ConcurrencyLimit:
    """How many calls the account takes at once, by refusals; at most the user's `most`."""

    def __init__(
        self, limit: float = inf, probes: int = 0, now: float = 0.0, most: float = inf
    ) -> None:
        self.most = most
        self.limit = min(limit, most)
        self.probes = probes
        """How often it was tried in vain; kept in the profile, so that a new run asks rarely."""
        self.next_probe_s = now + self._delay_s() if self.limit < most else inf
        self._served = self.limit if self.limit < inf else 0.0
        """Calls that were let in at the cap, since it was learned."""

    def refused(self, accepted: int, now: float) -> None:
        """The provider took `accepted` at once and not one more."""
        self._served = 0.0
        if accepted < self.limit - 1:
            self.probes = 0
        self.limit = max(1.0, float(accepted))
        self.next_probe_s = now + self._delay_s() if self.limit < self.most else inf
        self.probes += 1

    def lower(self, accepted: int) -> None:
        """A further refusal of the same signal: fewer were let in than thought."""
        if self.limit < self.most:
            self.limit = max(1.0, min(self.limit, float(accepted)))

    def probe_soon(self, now: float) -> None:
        """The cap is only suspected: early tries tell whether it is the cause."""
        if self.limit < self.most:
            delay_s = min(SUSPECT_S_MAX, backoff_s(SUSPECT_S, 2.0, self.probes - 1))
            self.next_probe_s = min(self.next_probe_s, now + delay_s)

    def lift(self) -> None:
        """The refusal turned out to have another cause."""
        self.limit = self.most
        self.next_probe_s = inf

    def allow(self, now: float) -> float:
        """The cap now: one more than learned when it is time to try."""
        return self.limit + 1 if now >= self.next_probe_s else self.limit

    def succeeded(self, in_flight: int, now: float) -> None:
        """More than the cap were in flight and served: the cap has risen."""
        if in_flight > self.limit:
            self.limit = float(in_flight)
            self.probes = 0
            self.next_probe_s = now + 1.0 if self.limit < self.most else inf
        elif in_flight == self.limit:
            self._served = min(self._served + 1.0, LATE_MAX * self.limit)

    @property
    def is_proven(self) -> bool:
        """Whether the account took as many at once again and again."""
        return self.limit <= self._served

    def was_late(self) -> bool:
        """Whether a call was refused because its slot was not free yet, not for the cap."""
        is_late = self.is_proven
        if is_late:
            self._served -= 2.0
        return is_late

    def _delay_s(self) -> float:
        return backoff_s(PROBE_FIRST_S, PROBE_GROWTH, self.probes)


RAMP_LEAST: Final = 2.0
RAMP_CAUTION: Final = 0.9
RAMP_GROWTH: Final = 1.5
RAMP_GROW_S: Final = 10.0
RAMP_PATIENCE: Final = 3.0
"""After a refused burst: 90 % of what was let in, half as much more after 10 s, then 30 s, 90 s."""
RAMP_KNOWN: Final = 3
"""A ramp from a profile has been refused before: it is as patient as after so many refusals."""
RAMP_BURST: Final = 4
"""Fewer within a second are no burst: their refusal has another cause."""
RAMP_MEMORY: Final = 4096
"""Departures that are remembered: more than leave in any second."""


class Ramp:
    """How many calls may leave in a second, once a provider has refused a burst."""

    def __init__(self, most: float = inf, now: float = 0.0) -> None:
        self.most = most
        """Calls per second, kept in the profile."""
        self._sent: deque[float] = deque(maxlen=RAMP_MEMORY)
        self._refusals = 0 if most == inf else RAMP_KNOWN
        self._grow_s = inf if most == inf else now + self._patience_s()

    def sent(self, now: float) -> None:
        self._sent.append(now)

    def returned(self) -> None:
        """The last call was not let in: it does not count."""
        if self._sent:
            self._sent.pop()

    def refused(self, now: float) -> None:
        """Enough was left, and yet a call was refused: what was let in this second is the limit."""
        recent = sum(1 for at in self._sent if at > now - 1.0)
        if recent < RAMP_BURST:
            return
        if now >= self._grow_s or self._grow_s == inf:
            self._refusals += 1
        self.most = max(RAMP_LEAST, min(self.most, RAMP_CAUTION * recent))
        self._grow_s = now + self._patience_s()

    def when(self, now: float) -> float:
        """When one more may leave."""
        if now >= self._grow_s:
            self.most *= RAMP_GROWTH
            self._grow_s = now + self._patience_s()
        place = len(self._sent) - int(self.most)
        if place < 0:
            return now
        return max(now, self._sent[place] + 1.0)

    def _patience_s(self) -> float:
        return backoff_s(RAMP_GROW_S, RAMP_PATIENCE, self._refusals - 1)


WIDTH_AT_START: Final = 4
"""What a profile has that nothing was learned for."""
COLD: Final = 2.0
"""Calls in flight until something answers: with two, the first step to four tells what company
costs. Four gain one per cent where nothing is congested, and lose ten where the peak is at two."""
COLD_WHOLE: Final = 8.0
COLD_FEW: Final = 12.0
"""The same where answers come whole, and nothing is seen before the first of them ends; more if
that is half of all calls. Then each answer lets one more go. With eight of 22, these take 1.4 %
longer in the mean of 400 drawn providers; with twelve of 300, 8 % where they crowd each other out.
"""
SILENT_S: Final = 10.0
"""One call more after such a time without a sign of any, one more after twice as long, and so on:
two that hang hold no others back. One more every ten seconds took 18 times as long where eight at
once took minutes: each that joined made all others slower."""
ELASTIC: Final = 0.8
"""More are worth it while time grows by less than this share of the width: 98 % of a peak."""
CERTAIN: Final = 2.0
HELD: Final = 1.25
"""Standard errors by which growth has to differ from none: to go far beyond what was seen, it has
to be small with the former; it holds back with the latter. With two, the first of 22 answers on
the documents' account comes after 9.2 s in place of 8.0."""
BLIND: Final = 2.0
REACH: Final = 3.0
"""How far beyond what was seen the width may go: without contrast, and where cost is certain."""
VENTURE_S: Final = 0.1
"""Beyond what was ever in flight, calls leave so far apart that the width would double in 0.07 s:
a refusal stops those behind it. At 0.5 s and 25 ms at most 300 tasks take 1 % longer, 22 0.3 %."""
TAIL_SHARE: Final = 0.97
TAIL_WAITING: Final = 16
"""So few waiting calls are the last: they may crowd in at this share of the peak throughput.
Without this the documents' account takes 1.05 of its bound in place of 1.02."""
RETRY_CALLS: Final = 16.0
RETRY_KEEPS: Final = 0.75
"""Times at other widths are believed for as long as 16 calls take one after the other, then for
twice as long, and so on: a width that is not used shows nothing new. After that, only times with
at least this share of the width in flight are kept, and wider ones are tried."""
WidthCause = Literal["concurrency", "peak", "untried"]
"""The account takes no more at once; more at once are slower in all; so many were never tried."""


class Width:
    """How many calls may be in flight."""

    def __init__(
        self, start: float, cap: ConcurrencyLimit, curves: tuple[Samples, Samples] | None = None
    ) -> None:
        """`curves` of a profile: time to first byte, time per token or of whole answers."""
        self.allowed = start
        self.cap = cap
        self.strain = ConcurrencyLimit()
        """What the provider bears at present. Unlike the account's cap it is not kept for later."""
        self._is_cold = curves is None
        self.tried = start
        """The most that were ever in flight."""
        self._ventured_s = -inf
        kept = curves or ((), ())
        self.first_bytes, self.pieces = Curve(kept[0], NOISE_FIRST), Curve(kept[1])
        self._tokens = 0.0
        """Of a usual answer; 0 where answers come whole."""
        self._has_ended = False
        self._cold_s = inf
        """When the first call was sent."""
        self._fit: CongestionFit | None = None
        """Time of a usual call, with as little growth as samples allow."""
        self._tail: CongestionFit | None = None
        """The same with as much growth."""
        self._is_held = False
        """Whether what was seen, and not only what was never tried, ends the growth."""
        self._settled_s = inf
        """Since when no more are in flight than that."""
        self._retries = 0

    def limit(self, in_flight: int, waiting: int, is_whole: bool, now: float) -> float:
        """How many may be in flight. The last few go together: a thin tail is slow."""
        cap, everything = min(self.cap.allow(now), self.strain.allow(now)), in_flight + waiting
        if self._is_cold:
            start = COLD
            if is_whole:
                start = COLD_FEW if everything <= 2.0 * COLD_FEW else COLD_WHOLE
            return min(start + self._silent(now), cap)
        fit = self._tail
        if fit is not None and waiting <= TAIL_WAITING and self.allowed < everything <= cap:
            peak = fit.width(1.0)
            if everything <= 2.0 * peak < inf:
                crowd = everything / fit.at(everything)
                if crowd >= TAIL_SHARE * peak / fit.at(peak):
                    return float(everything)
        return min(self.allowed, cap)

    def takes(self, in_flight: int) -> bool:
        """Whether one more may join so many, whatever the time and the queue."""
        if in_flight >= self.cap.limit or in_flight >= self.strain.limit:
            return False
        return in_flight < (COLD if self._is_cold else self.allowed)

    @property
    def firm(self) -> float:
        """How many the account and its provider are known to take at once: no try of more."""
        return min(self.cap.limit, self.strain.limit)

    def _silent(self, now: float) -> int:
        """How often the time without a sign of any call has doubled from `SILENT_S` on."""
        return int(max(0.0, 1.0 + log2(max(1e-9, (now - self._cold_s) / SILENT_S)) + 1e-9))

    def departs_s(self, now: float) -> float:
        """When one more than ever were in flight may leave."""
        return max(now, self._ventured_s + VENTURE_S / self.tried)

    def sent(self, in_flight: int, now: float) -> None:
        """One more has left, so that this many are in flight."""
        self._cold_s = min(self._cold_s, now)
        if in_flight > self.tried:
            self.tried, self._ventured_s = float(in_flight), now

    def began(self, company: float, waited_s: float, tokens: float, now: float) -> bool:
        """A first byte came, with `company` in flight meanwhile; so long an answer is expected."""
        self._tokens += MEMORY * (tokens - self._tokens) if self._tokens else tokens
        self.first_bytes.take(company, waited_s)
        return self._learn() | self._retry(company, now)

    def moved(self, company: float, per_token_s: float, now: float) -> bool:
        """A piece of an answer came; True if the width changed."""
        factor = self.pieces.sample(company, per_token_s)
        if factor != 1.0:
            # What was seen beyond these calls was perhaps seen while the speed changed.
            self.first_bytes.rescale(factor)
            self._keep(0.0, company)
        return self._learn() | self._retry(company, now)

    def arrived(self, company: float, elapsed_s: float, tokens: float, now: float) -> bool:
        """An answer came whole."""
        self.pieces.take(company, elapsed_s, max(1.0, tokens))
        return self._learn() | self._retry(company, now)

    def ended(self) -> bool:
        """A streamed answer is complete. If no piece of any was seen, first bytes have to do."""
        self._has_ended = True
        return self.pieces.fit() is None and self._learn()

    def _learn(self) -> bool:
        """Go where the curves lead; True if that is another width."""
        pieces, first = self.pieces.fit(), self.first_bytes.fit()
        if pieces is None and self._has_ended:
            pieces, first = first, None
        if pieces is None:
            return False
        before = 0.0 if self._is_cold else self.allowed
        self._is_cold = False
        times = [(pieces, max(1.0, self._tokens))]
        if first is not None:
            times.append((first, 1.0))
        telling = [one for one in times if one[0].has_contrast]
        widest = self.pieces.widest
        if first is None or not pieces.has_contrast:
            widest = max(widest, self.first_bytes.widest)
        reach = max(widest + 1.0, BLIND * widest)
        if not self._tokens:
            # One more with each answer: twice as many would crowd before anything is seen.
            reach = min(reach, max(widest + 1.0, COLD_WHOLE + self.pieces.samples))
        if pieces.has_contrast:
            reach = max(reach, min(REACH * widest, _sum(telling, CERTAIN).width(ELASTIC)))
        self._fit = _sum(telling or times, -HELD)
        self._tail = _sum(telling or times, HELD)
        worth = self._fit.worth(ELASTIC)
        self._is_held = worth <= reach
        self.allowed = float(max(1, int(min(worth, reach + 0.5))))
        return self.allowed != before

    def _keep(self, least: float, most: float) -> None:
        self.pieces.keep(least, most)
        self.first_bytes.keep(least, most)

    def _retry(self, company: float, now: float) -> bool:
        """Forget what was seen at other widths when that is old; True if the width changed."""
        self._settled_s = min(self._settled_s, now)
        fit = self._fit
        if not self._is_held or fit is None:
            self._settled_s, self._retries = now, 0
        elif company > self.allowed + 0.5:
            self._settled_s = now
        elif now - self._settled_s >= backoff_s(
            RETRY_CALLS * fit.at(self.allowed), 2.0, self._retries
        ):
            self._settled_s = now
            self._retries += 1
            self._keep(RETRY_KEEPS * self.allowed, self.allowed)
            return self._learn()
        return False

    def overloaded(self, in_flight: int, now: float) -> None:
        """A timeout or an overload: half as many, until tries show that more are served again."""
        self.allowed = max(1.0, self.allowed / 2)
        self.strain.refused(max(1, in_flight // 2), now)

    def served(self, in_flight: int, now: float) -> None:
        """So many were in flight, and the newest of them is answered."""
        self.cap.succeeded(in_flight, now)
        self.strain.succeeded(in_flight, now)

    def next_probe_s(self, width: float, now: float) -> float:
        """When one more than `width` is tried, if a cap or silence holds it there."""
        if self._is_cold and self.firm > width:
            return self._cold_s + SILENT_S * 2.0 ** self._silent(now)
        holding = [cap for cap in (self.cap, self.strain) if cap.limit <= width]
        return max((cap.next_probe_s for cap in holding), default=inf)

    def cause(self, in_flight: int) -> WidthCause:
        """What keeps one more from joining so many, where the width does."""
        if in_flight >= self.firm:
            return "concurrency"
        has_peak = self._fit is not None and self._fit.width(1.0) < inf
        return "peak" if has_peak else "untried"
