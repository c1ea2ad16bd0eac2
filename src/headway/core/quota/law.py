"""Laws that move a learned limit on calls in flight, each a small pure object.

Laws of these laws:
- A limit never grows while the run does not use it (Netflix concurrency-limits).
- Outcomes say how many are allowed (`Cap`); latency per unit of work says how many are worth it
  (`Congestion`); `Width` takes the smaller. Raw latency is never used: a long answer is not a
  slow one.
- `Aimd` and `Cubic` are what others use. They are here as the fallback and as the yardstick.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from math import inf, sqrt
from typing import Final

WIDTH_AT_START: Final = 4
"""Cold, nothing known: as many as the smallest accounts allow."""

USED: Final = 0.8
"""A width counts as used when at least this share of it is in flight."""

ROUND_PIECES: Final = 4
ROUND_GROWTH: Final = 1.5
"""Pieces of answers that must be seen at a width before the next one is explored, and how much
wider that is. Doubling gains one per cent where nothing is congested and loses four where the
peak is at five; two pieces instead of four lose thirty."""

NEARLY_PEAK: Final = 0.98
"""The smallest width with this share of the peak throughput: the rest only adds latency."""

TAIL_SHARE: Final = 0.92
TAIL_WAITING: Final = 16
"""The last calls of a run may crowd in while throughput stays above this share of its peak. So
few waiting means that they are the last: a run in full swing keeps more."""

PROBE_FIRST_S: Final = 30.0
PROBE_GROWTH: Final = 2.0
"""A learned cap is tried again after 30 s, then 60 s, 120 s...: each failed try is a refusal."""

SUSPECT_S: Final = 2.0
"""A cap that nobody named is tried again after so long, then twice as long, and so on."""

RAMP_LEAST: Final = 2.0
RAMP_CAUTION: Final = 0.9
RAMP_GROWTH: Final = 1.5
RAMP_GROW_S: Final = 10.0
RAMP_PATIENCE: Final = 3.0
"""After a refused burst: nine tenths of what was let in, half as much more after 10 s, and three
times as long for each refusal that follows."""

RAMP_KNOWN: Final = 3
"""A ramp from a profile has been refused before: it is as patient as after so many refusals."""

RAMP_BURST: Final = 4
"""Fewer within a second are no burst: their refusal has another cause."""

RAMP_MEMORY: Final = 4096
"""Departures that are remembered: more than leave in any second."""

EXTRAPOLATION_MAX: Final = 1.3
"""How far beyond the widest sample a fitted curve is believed."""

CERTAIN: Final = 2.0
"""Standard errors by which slowness has to grow with company before it is believed to: times that
were measured on a busy machine have noise, and noise bends any curve."""

NOISE_MEMORY: Final = 0.05
SAMPLES_MIN: Final = 8
"""Fewer samples than this fit anything."""


@dataclass(frozen=True, slots=True)
class WidthStatistics:
    """How many calls may be in flight, and which law said so."""

    limit: float
    cap: float
    worth: float
    reason: str


class Aimd:
    """Additive increase, multiplicative decrease: one more per full window, half on a refusal."""

    __slots__ = ("_held_until_s", "limit")

    def __init__(self, limit: float = WIDTH_AT_START) -> None:
        self.limit = limit
        self._held_until_s = 0.0

    def __repr__(self) -> str:
        return f"<Aimd {self.limit:.1f}>"

    def succeeded(self, in_flight: int, now: float) -> None:  # noqa: ARG002 - the laws' verb
        if in_flight + 1 >= self.limit:
            self.limit += 1.0 / self.limit

    def refused(self, now: float) -> None:
        """A burst of refusals is one signal: the limit is halved at most once a second."""
        if now >= self._held_until_s:
            self.limit = max(1.0, self.limit / 2)
            self._held_until_s = now + 1.0

    def statistics(self) -> WidthStatistics:
        return WidthStatistics(self.limit, self.limit, inf, "aimd")


class Cubic:
    """TCP CUBIC (RFC 9438): back quickly to where it last failed, stay there, then probe beyond."""

    __slots__ = ("_epoch_s", "_held_until_s", "_top", "limit")
    C: Final = 0.4
    BETA: Final = 0.7

    def __init__(self, limit: float = WIDTH_AT_START) -> None:
        self.limit = limit
        self._top = limit
        self._epoch_s: float | None = None
        self._held_until_s = 0.0

    def __repr__(self) -> str:
        return f"<Cubic {self.limit:.1f}>"

    def succeeded(self, in_flight: int, now: float) -> None:
        if in_flight + 1 < self.limit:
            return
        if self._epoch_s is None:
            self.limit += 1.0
            return
        flat_s = (self._top * (1 - self.BETA) / self.C) ** (1 / 3)
        target = self.C * (now - self._epoch_s - flat_s) ** 3 + self._top
        self.limit = max(self.limit, min(target, self.limit + 1.0))

    def refused(self, now: float) -> None:
        if now >= self._held_until_s:
            self._top = self.limit
            self._epoch_s = now
            self.limit = max(1.0, self.limit * self.BETA)
            self._held_until_s = now + 1.0

    def statistics(self) -> WidthStatistics:
        return WidthStatistics(self.limit, self._top, inf, "cubic")


class Cap:
    """How many calls the account takes at once, learned from refusals and tried again rarely.

    What a user configured, `most`, is never exceeded, not even to try.
    """

    __slots__ = ("_probe_at_s", "_probes", "limit", "most")

    def __init__(
        self, limit: float = inf, probes: int = 0, now: float = 0.0, most: float = inf
    ) -> None:
        self.most = most
        self.limit = min(limit, most)
        self._probes = probes
        self._probe_at_s = now + self._delay_s() if self.limit < most else inf

    def __repr__(self) -> str:
        return f"<Cap {self.limit:g} next try at {self._probe_at_s:.0f}s>"

    @property
    def probes(self) -> int:
        """How often it was tried in vain; kept in the profile, so that a new run asks rarely."""
        return self._probes

    def refused(self, accepted: int, now: float) -> None:
        """The provider took `accepted` at once and not one more."""
        if accepted < self.limit - 1:
            self._probes = 0
        self.limit = max(1.0, float(accepted))
        self._probe_at_s = now + self._delay_s() if self.limit < self.most else inf
        self._probes += 1

    def lower(self, accepted: int) -> None:
        """A further refusal of the same signal: fewer were let in than thought."""
        if self.limit < self.most:
            self.limit = max(1.0, min(self.limit, float(accepted)))

    def probe_soon(self, now: float) -> None:
        """The cap is only suspected: early tries tell whether it is the cause."""
        if self.limit < self.most:
            self._probe_at_s = min(self._probe_at_s, now + SUSPECT_S * 2.0 ** (self._probes - 1))

    def lift(self) -> None:
        """The refusal turned out to have another cause."""
        self.limit = self.most
        self._probe_at_s = inf

    def allow(self, now: float) -> float:
        """The cap now: one more than learned when it is time to try."""
        return self.limit + 1 if now >= self._probe_at_s else self.limit

    def succeeded(self, in_flight: int, now: float) -> None:
        """More than the cap were in flight and served: the cap has risen."""
        if in_flight > self.limit:
            self.limit = float(in_flight)
            self._probes = 0
            self._probe_at_s = now + 1.0 if self.limit < self.most else inf

    def next_probe_s(self) -> float:
        return self._probe_at_s

    def statistics(self) -> WidthStatistics:
        return WidthStatistics(self.limit, self.limit, inf, f"cap after {self._probes} tries")

    def _delay_s(self) -> float:
        return PROBE_FIRST_S * PROBE_GROWTH**self._probes


class Ramp:
    """How many calls may leave within one second, once a provider has refused a burst.

    Some providers enforce a limit per minute by the second; some refuse a sharp rise. Both refuse
    although enough is left, and both are met by letting no more leave in a second than were let
    in before, and by trying more again, ever less often.
    """

    __slots__ = ("_grow_s", "_most", "_refusals", "_sent")

    def __init__(self, most: float = inf, now: float = 0.0) -> None:
        self._most = most
        self._sent: deque[float] = deque(maxlen=RAMP_MEMORY)
        self._refusals = 0 if most == inf else RAMP_KNOWN
        self._grow_s = inf if most == inf else now + self._patience_s()

    def __repr__(self) -> str:
        return f"<Ramp {self._most:.1f}/s>"

    @property
    def most(self) -> float:
        """Calls per second, kept in the profile."""
        return self._most

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
        self._most = max(RAMP_LEAST, min(self._most, RAMP_CAUTION * recent))
        self._grow_s = now + self._patience_s()

    def when(self, now: float) -> float:
        """When one more may leave."""
        if self._most == inf:
            return now
        if now >= self._grow_s:
            self._most *= RAMP_GROWTH
            self._grow_s = now + self._patience_s()
        place = len(self._sent) - int(self._most)
        if place < 0:
            return now
        return max(now, self._sent[place] + 1.0)

    def _patience_s(self) -> float:
        return RAMP_GROW_S * RAMP_PATIENCE ** (self._refusals - 1)

    def statistics(self) -> WidthStatistics:
        return WidthStatistics(self._most, self._most, inf, f"ramp after {self._refusals} refusals")


class Congestion:
    """Fits time per unit of work against calls in flight and finds the width worth having.

    y(n) = c0 + c1 (n - 1) + c2 n (n - 1): linear in its coefficients, so a weighted least-squares
    fit over one mean per width is a 3 x 3 system. Means per width, not raw samples, so that a long
    stay at one width does not drown what was learned at the others.
    """

    __slots__ = ("_bins", "_fit", "_fresh", "_noise", "samples", "widest")
    MEMORY: Final = 0.1

    def __init__(self, curve: tuple[tuple[int, float, float], ...] = ()) -> None:
        self._bins = {width: (weight, seconds) for width, weight, seconds in curve}
        self._fit: _Fit | None = None
        self._noise = 0.0
        """Mean squared distance of a sample from the curve, as a share of the time alone."""
        self._fresh = 0
        self.samples = round(sum(weight for _, weight, _ in curve))
        self.widest = float(max(self._bins, default=1))
        self._refit()

    def __repr__(self) -> str:
        return f"<Congestion {self.samples} samples, worth {self.worth():.1f}>"

    def curve(self) -> tuple[tuple[int, float, float], ...]:
        """What was seen, for the profile: it counts half when the next run begins."""
        return tuple((n, weight / 2, y) for n, (weight, y) in sorted(self._bins.items()))

    def sample(self, in_flight: float, time_per_work_s: float) -> None:
        """One call's time per unit of work, and how many were in flight on average meanwhile."""
        width = max(1, round(in_flight))
        if self._fit is not None:
            off = (time_per_work_s - self._fit.at(in_flight)) / self._fit.alone
            self._noise += NOISE_MEMORY * (off * off - self._noise)
        weight, mean = self._bins.get(width, (0.0, time_per_work_s))
        share = max(self.MEMORY, 1.0 / (weight + 1.0))
        self._bins[width] = (min(weight + 1.0, 1.0 / self.MEMORY),
                             mean + share * (time_per_work_s - mean))  # fmt: skip
        self.samples += 1
        self.widest = max(self.widest, float(width))
        self._fresh += 1
        if self._fresh >= 4:
            self._refit()

    def _refit(self) -> None:
        self._fresh = 0
        if self._bins:
            self._fit = _least_squares(
                (float(n), y, weight) for n, (weight, y) in self._bins.items()
            )

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
        if fit is None or self.samples < SAMPLES_MIN or len(self._bins) < 2:
            return inf
        doubt = CERTAIN * fit.alone * sqrt(self._noise * fit.doubt)
        if fit.square <= doubt:
            return inf
        peak = max(1.0, sqrt(max(0.0, fit.alone - fit.linear) / fit.square))
        return peak if peak <= self.widest * EXTRAPOLATION_MAX else inf

    def throughput(self, width: float) -> float:
        """Work per second at a width, by the fitted curve."""
        return width / (self._fit or _FLAT).at(width)

    def statistics(self) -> WidthStatistics:
        return WidthStatistics(self.worth(), inf, self.worth(), f"{self.samples} samples")


@dataclass(frozen=True, slots=True)
class _Fit:
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


class Width:
    """How many calls may be in flight: what the account allows, and what congestion makes worth it.

    Widths are explored in rounds: when enough pieces of answers were seen at the present width
    and no peak shows, the width grows by half. Pieces come every few tokens, so a round takes a
    fraction of a second, and one round too many is all that a congested provider gets to see.
    """

    __slots__ = ("_allowed", "_seen", "cap", "congestion", "reason", "strain")

    def __init__(
        self, start: float, cap: Cap, curve: tuple[tuple[int, float, float], ...] = ()
    ) -> None:
        self._allowed = start
        self._seen = 0
        self.cap = cap
        self.strain = Cap()
        """What the provider bears at present. Unlike the account's cap it is not kept for later."""
        self.congestion = Congestion(curve)
        self.reason = "start"

    def __repr__(self) -> str:
        return f"<Width {self._allowed:.1f} {self.cap!r} {self.congestion!r}>"

    def limit(self, in_flight: int, waiting: int, now: float) -> float:
        """How many may be in flight. The last few go together: a thin tail is slow."""
        cap = min(self.cap.allow(now), self.strain.allow(now))
        all_of_them = in_flight + waiting
        if waiting <= TAIL_WAITING and self._allowed < all_of_them <= cap:
            peak = self.congestion.peak()
            if all_of_them <= 2.0 * peak < inf:
                crowd = self.congestion.throughput(all_of_them)
                if crowd >= TAIL_SHARE * self.congestion.throughput(peak):
                    return float(all_of_them)
        return min(self._allowed, cap)

    def moved(self, in_flight_mean: float, per_token_s: float, in_flight: int) -> bool:
        """A piece of an answer came: learn, then go where the fitted curve says, or explore."""
        before = self._allowed
        self.congestion.sample(in_flight_mean, per_token_s)
        worth = self.congestion.worth()
        if worth < inf:
            self._allowed = max(1.0, float(round(worth)))
            self.reason = f"throughput peaks near {worth:.0f}"
        elif min(in_flight_mean, in_flight) >= USED * self._allowed:
            self._seen += 1
            if self._seen >= ROUND_PIECES:
                self._seen = 0
                self._allowed *= ROUND_GROWTH
                self.reason = "no slower with more at once"
        return self._allowed != before

    def overloaded(self, in_flight: int, now: float) -> None:
        """A timeout or an overload: half as many, until tries show that more are served again."""
        self._allowed = max(1.0, self._allowed / 2)
        self.strain.refused(max(1, in_flight // 2), now)
        self.reason = "overload"

    def served(self, in_flight: int, now: float) -> None:
        """So many were in flight, and the newest of them is answered."""
        self.cap.succeeded(in_flight, now)
        self.strain.succeeded(in_flight, now)

    def next_probe_s(self, width: float) -> float:
        """When one more than `width` is tried, if a cap holds it there."""
        holding = [cap for cap in (self.cap, self.strain) if cap.limit <= width]
        return max((cap.next_probe_s() for cap in holding), default=inf)

    def statistics(self) -> WidthStatistics:
        return WidthStatistics(self._allowed, self.cap.limit, self.congestion.worth(), self.reason)
