"""Sizes of calls, learned from earlier ones.

Laws:
- Nothing is assumed of the distribution once it has been seen: what is drawn are the deviations
  that were observed, with weights that are drawn as well (Rubin's Bayesian bootstrap, 1981), so
  that few observations give wide forecasts and many give narrow ones.
- What can be known of a call beforehand counts: its input is drawn around what its bytes predict,
  its output around what its input predicts. A slope is believed as far as it is supported.
- Of n calls that were seen the longest is exceeded by the next one once in n + 1 times, whatever
  they are like: so often an answer is drawn that is longer than all of them.
- Without observations sizes are what is usual, and very uncertain.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from itertools import accumulate, pairwise
from math import exp, log, sqrt
from operator import mul
from typing import Final

from msgspec import Struct

from headway.base.values import Amounts
from headway.pacing.estimate import (
    OUTPUT_TOKENS_PRIOR,
    SPREAD_PRIOR,
    TOKENS_PER_BYTE,
    TOKENS_PER_MESSAGE,
    Price,
)
from headway.pacing.width import FIRST_BYTE_S, PER_TOKEN_S
from headway.sim.draw import normal, uniform
from headway.sim.provider import Latency

# Calls of earlier runs as forecasts learn from them: each with the company that it had.


class SeenCall(Struct, frozen=True):
    """One call, or the mean call of one task, that was made."""

    input_tokens: float
    output_tokens: float
    size_bytes: float = 0.0
    """What was known of its prompt beforehand; 0 if nothing was."""
    took_s: float = 0.0
    """From its permit to its end; 0 if that was not seen."""
    beside: float = 1.0
    """Calls in flight meanwhile on the account, itself among them, on average."""
    calls: int = 1
    """Of the task that it was made for."""
    microusd: float = 0.0
    """What was charged for it; 0 if unknown."""


AnsweredTask = tuple[str, float, float, SeenCall]
"""A task's part, when its last call was let go and ended, and all of its calls together."""


def seen_of(answered: Sequence[AnsweredTask]) -> dict[str, list[SeenCall]]:
    """By part, the mean call of each task; its time only where it was one call."""
    company = _company([(from_s, to_s) for _, from_s, to_s, _ in answered])
    seen: dict[str, list[SeenCall]] = {}
    for part, from_s, to_s, total in answered:
        calls, tokens_in = max(1, total.calls), total.input_tokens
        if not tokens_in and total.size_bytes:
            # The provider does not report it: what so many bytes usually are.
            tokens_in = calls * usual_tokens(total.size_bytes)
        took_s = to_s - from_s if total.calls == 1 else 0.0
        seen.setdefault(part, []).append(
            SeenCall(
                tokens_in / calls, total.output_tokens / calls, total.size_bytes,
                took_s, company(from_s, to_s), calls, total.microusd / calls,
            )
        )  # fmt: skip
    return seen


def _company(spans: Sequence[tuple[float, float]]) -> Callable[[float, float], float]:
    """The mean number in flight from one time to another, at least 1: from one integral."""
    changes = sorted([(begin, 1) for begin, _ in spans] + [(end, -1) for _, end in spans])
    counts = list(accumulate(change for _, change in changes))
    times = [at_s for at_s, _ in changes]
    gaps = (to_s - from_s for from_s, to_s in pairwise(times))
    integrals: list[float] = list(accumulate(map(mul, counts, gaps), initial=0.0))

    def until(at_s: float) -> float:
        place = bisect_right(times, at_s) - 1
        return integrals[place] + counts[place] * (at_s - times[place])

    def mean(from_s: float, to_s: float) -> float:
        if to_s <= from_s:
            return 1.0
        return max(1.0, (until(to_s) - until(from_s)) / (to_s - from_s))

    return mean


WEIGHT_STREAM: Final = 101
PICK_STREAM: Final = 102
SLOPE_STREAM: Final = 103
LEVEL_STREAM: Final = 104
SPREAD_STREAM: Final = 105
BEYOND_STREAM: Final = 106

TAIL: Final = 0.2
"""How far beyond the longest an answer goes: on average as far as the longest fifth of those that
were seen lie beyond the shortest of that fifth."""

SEEN_MIN: Final = 5
"""Fewer calls say where sizes lie, not how they spread."""

SEEN_MAX: Final = 2000
"""The latest calls that are looked at."""

SLOPE_PRIOR: Final = 1.0
"""Ties the slope of outputs to zero as firmly as one call whose input is e times the usual."""

BYTES_PRIOR: Final = 0.04
"""From bytes to tokens the slope is nearly 1: so much off it is as strange as one sigma."""

LEVEL_DOUBT: Final = 0.7
"""Weights alone give spreads that are too narrow where a few long answers make up the sum: the
level of all is drawn as well, by this part of its own standard error."""

INPUT_DOUBT: Final = 0.25
OUTPUT_DOUBT: Final = 0.7
"""How far off the usual sizes may be altogether, as a logarithm, where nothing was seen."""


class _Line(Struct, frozen=True):
    """log y = level + slope (x - centre), with what was off the line."""

    level: float
    slope: float
    centre: float
    slope_doubt: float
    offs: tuple[float, ...]
    longest: float
    tail: float
    """The largest of them as a factor, and how far beyond the next one may lie, on average."""
    rise: float
    """What drawing beyond the largest now and then would add to the mean, as a logarithm."""

    def at(self, x: float, slope: float) -> float:
        return self.level + slope * (x - self.centre)


class Sizes(Struct, frozen=True):
    """What is known of the sizes of calls of one kind."""

    inputs: _Line | None = None
    """Against the bytes of a prompt; None where these were not known."""
    outputs: _Line | None = None
    """Against the input."""
    bare: tuple[float, ...] = ()
    """Logs of the inputs, for prompts of which nothing is known."""
    calls: tuple[float, ...] = ()
    charged: Amounts = Amounts()
    """Tokens of all calls that money was charged for, and that money."""

    @property
    def count(self) -> int:
        return len(self.bare)

    def dearer(self, price: Price) -> float:
        """What was charged over the list's price: less where a cache was read, more where usage
        was not reported and the most possible was charged."""
        listed = price.cost_microusd(self.charged)
        return self.charged.spend_microusd / listed if listed else 1.0


class Mood(Struct, frozen=True):
    """One way in which things may really be: weights of what was seen, and slopes."""

    seed: int
    sums: tuple[float, ...]
    input_slope: float
    output_slope: float
    input_off: float
    output_off: float

    def pick(self, index: int) -> int:
        """The observation that draw number `index` is like."""
        target = uniform(self.seed, PICK_STREAM, index) * self.sums[-1]
        return min(bisect_left(self.sums, target), len(self.sums) - 1)


def sizes_of(seen: Sequence[SeenCall]) -> Sizes:
    """Learn from calls of one kind, oldest first."""
    known = [one for one in seen if one.input_tokens >= 1.0 and one.output_tokens >= 1.0]
    known = known[-SEEN_MAX:]
    if not known:
        return Sizes()
    ins = [log(one.input_tokens) for one in known]
    outs = [log(one.output_tokens) for one in known]
    inputs = None
    if all(one.size_bytes > 0.0 for one in known):
        inputs = _line([log(one.size_bytes) for one in known], ins, 1.0, BYTES_PRIOR)
    outputs = _line(ins, outs, 0.0, sqrt(1.0 / SLOPE_PRIOR))
    charged = [one for one in known if one.microusd]
    total = Amounts(
        sum(one.input_tokens for one in charged), sum(one.output_tokens for one in charged),
        round(sum(one.microusd for one in charged)),
    )  # fmt: skip
    return Sizes(inputs, outputs, tuple(ins), tuple(float(one.calls) for one in known), total)


def mood(sizes: Sizes, seed: int) -> Mood:
    count = max(1, sizes.count)
    sums = accumulate(-log(uniform(seed, WEIGHT_STREAM, index)) for index in range(count))
    middle = sum(sizes.bare) / count
    bare = [one - middle for one in sizes.bare]
    ins = bare if sizes.inputs is None else sizes.inputs.offs
    outs = () if sizes.outputs is None else sizes.outputs.offs
    off_in = _level_doubt(ins, INPUT_DOUBT) * normal(seed, LEVEL_STREAM, 0)
    off_out = _level_doubt(outs, OUTPUT_DOUBT) * normal(seed, LEVEL_STREAM, 1)
    slopes = _slope(sizes.inputs, seed, 0), _slope(sizes.outputs, seed, 1)
    return Mood(seed, tuple(sums), *slopes, off_in, off_out)


def draw(sizes: Sizes, mood: Mood, index: int, size_bytes: float) -> tuple[float, float]:
    """Tokens in and out of call number `index`, whose prompt has so many bytes; 0 if unknown."""
    if sizes.outputs is None:
        tokens_in = usual_tokens(size_bytes)
        spread = SPREAD_PRIOR * normal(mood.seed, SPREAD_STREAM, index)
        level = log(OUTPUT_TOKENS_PRIOR) - 0.5 * SPREAD_PRIOR**2
        return tokens_in * exp(mood.input_off), exp(level + spread + mood.output_off)
    at = mood.pick(index)
    if sizes.inputs is not None and size_bytes > 0.0:
        log_in = sizes.inputs.at(log(size_bytes), mood.input_slope) + sizes.inputs.offs[at]
    else:
        log_in = sizes.bare[at]
    outputs = sizes.outputs
    off = outputs.offs[at]
    if uniform(mood.seed, BEYOND_STREAM, 2 * index) * (sizes.count + 1) < 1.0:
        further = -log(uniform(mood.seed, BEYOND_STREAM, 2 * index + 1))
        off = log(outputs.longest + outputs.tail * further)
    log_out = outputs.at(log_in, mood.output_slope) + off - outputs.rise
    return max(1.0, exp(log_in + mood.input_off)), max(1.0, exp(log_out + mood.output_off))


def usual_tokens(size_bytes: float) -> float:
    return max(1.0, size_bytes * TOKENS_PER_BYTE["english"] + TOKENS_PER_MESSAGE)


def calls_drawn(sizes: Sizes, mood: Mood, index: int, usual: float) -> int:
    return max(1, round(sizes.calls[mood.pick(index)] if sizes.calls else usual))


def _level_doubt(offs: Sequence[float], usual: float) -> float:
    """How far off all sizes may be together, as a logarithm; `usual` where little was seen."""
    count = len(offs)
    if count < SEEN_MIN:
        return usual / sqrt(1.0 + count)
    return LEVEL_DOUBT * sqrt(sum(off * off for off in offs)) / count


def _slope(line: _Line | None, seed: int, which: int) -> float:
    if line is None:
        return 0.0
    return line.slope + line.slope_doubt * normal(seed, SLOPE_STREAM, which)


def _line(xs: Sequence[float], ys: Sequence[float], usual: float, doubt: float) -> _Line:
    """Least squares, with a slope that is tied to the usual one as firmly as it is known."""
    count = len(xs)
    centre, middle = sum(xs) / count, sum(ys) / count
    spread = sum((x - centre) ** 2 for x in xs)
    together = sum((x - centre) * (y - middle) for x, y in zip(xs, ys, strict=True))
    noise = sum((y - middle) ** 2 for y in ys) / count
    firm = max(noise, 1e-6) / (doubt * doubt)
    slope = (together + firm * usual) / (spread + firm)
    offs = tuple(y - middle - slope * (x - centre) for x, y in zip(xs, ys, strict=True))
    left = sum(off * off for off in offs) / max(1, count - 2)
    slope_doubt = sqrt(left / (spread + firm)) if count >= SEEN_MIN else 0.0
    factors = sorted(exp(off) for off in offs)
    largest = factors[-max(1, round(TAIL * count)) :]
    tail = sum(largest) / len(largest) - largest[0]
    mean = sum(factors) / count
    rise = log((count * mean + largest[-1] + tail) / ((count + 1) * mean))
    return _Line(middle, slope, centre, slope_doubt, offs, largest[-1], tail, rise)


# How fast answers come, fitted to calls that were made: alone, and in company.

SPEED_SEEN_MIN: Final = 8
"""Fewer calls fit anything."""

SPEED_SEEN_MAX: Final = 500
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


class Speed(Struct, frozen=True):
    """How fast answers come, and how sure that is."""

    latency: Latency
    luck: float
    """Log-deviation of a call's time from what the others predict."""
    doubt: float
    """Log-deviation of the speed of all calls together."""
    calls: int = 0


UNKNOWN: Final = Speed(Latency(FIRST_BYTE_S, PER_TOKEN_S), UNKNOWN_LUCK, UNKNOWN_DOUBT)


def speed_of(seen: Sequence[SeenCall], before: Latency | None = None) -> Speed:
    """Fit what calls took; `before` is what is believed without them."""
    points = [one for one in seen if one.took_s > 0.0 and one.output_tokens >= 1.0]
    points = points[-SPEED_SEEN_MAX:]
    if len(points) < SPEED_SEEN_MIN:
        return UNKNOWN if before is None else Speed(before, UNKNOWN_LUCK, UNKNOWN_DOUBT / 2.0)
    latency = Latency(before.first_byte_s, before.per_output_token_s) if before else Latency()
    for _ in range(TURNS):
        latency = _company_of(points, _alone(points, latency))
    offs = []
    for point in points:
        expected = latency.work_s(point.output_tokens) * latency.slowdown(point.beside)
        offs.append(log(point.took_s / max(1e-6, expected)))
    luck = min(LUCK_MAX, sqrt(sum(off * off for off in offs) / max(1, len(offs) - 3)))
    return Speed(latency, luck, luck / sqrt(len(points)), len(points))


def _alone(points: Sequence[SeenCall], latency: Latency) -> Latency:
    """Time to the first byte and per token, with the slowdown taken out of every time."""
    s11 = s12 = s22 = t1 = t2 = 0.0
    for point in points:
        alone_s = point.took_s / latency.slowdown(point.beside)
        # By what was expected, not by what it took: a call that had luck would outvote the others.
        weight = 1.0 / max(1e-6, latency.work_s(point.output_tokens)) ** 2
        s11 += weight
        s12 += weight * point.output_tokens
        s22 += weight * point.output_tokens**2
        t1 += weight * alone_s
        t2 += weight * alone_s * point.output_tokens
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


def _company_of(points: Sequence[SeenCall], latency: Latency) -> Latency:
    """Linear and quadratic slowdown, none negative, from how much longer calls took than alone."""
    firm = COMPANY_PRIOR * len(points)
    s11, s22, s12, t1, t2 = firm, firm, 0.0, 0.0, 0.0
    for point in points:
        a, b = point.beside - 1.0, point.beside * (point.beside - 1.0)
        slower = point.took_s / max(1e-6, latency.work_s(point.output_tokens)) - 1.0
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
