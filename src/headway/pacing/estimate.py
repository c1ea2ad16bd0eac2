"""Estimates what a call will consume, and learns from what it did.

Laws:
- An estimate is always there: a prior at first, the history of the kind soon after.
- A stream that has produced k tokens and has not ended is evidence of a length above k, a
  right-censored observation: calls that end early are short, and their mean is too low.
- Asking is cheap: nothing is computed anew until enough has changed.

Lengths of replies are lognormal around a line: log(out) = m + b log(in) + s e. The fit is a Tobit
regression in Olsen's form (Econometrica 1978): in 1/s, m/s, b/s the likelihood is concave, so
Newton's method finds its one maximum. Calls that ended enter through six sums, those in flight one
by one.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Hashable, Sequence
from math import ceil, erfc, exp, inf, log, pi, sqrt
from typing import Final, TypeVar

from msgspec import Struct, field
from msgspec.structs import replace

from headway.base.values import Amounts, Demand, Sketch, Spend, Tally, Usage
from headway.pacing.call import CallId
from headway.pacing.headers import Dialect

K = TypeVar("K")
V = TypeVar("V")

KINDS_MAX: Final = 1024
"""Kinds of which something is remembered; the one that was used least recently goes first."""


def remember(memory: dict[K, V], key: K, make: Callable[[], V]) -> V:
    """The value of a key, made if need be and moved to the end; the oldest makes room."""
    value = memory.pop(key, None)
    if value is None:
        value = make()
        if len(memory) >= KINDS_MAX:
            del memory[next(iter(memory))]
    memory[key] = value
    return value


TOKENS_PER_BYTE: Final = {"english": 0.25, "code": 0.30, "korean": 0.40, "cjk": 0.40}
"""Where ratios start, per UTF-8 byte. Hangul, Han and kana take three bytes and 1 to 1.4 tokens a
character on some vocabularies. The high side is right: too low a start costs a refusal."""

TOKENS_PER_BYTE_OTHER: Final = 0.30
TOKENS_PER_MESSAGE: Final = 4.0
"""Role and separators around each message of a chat."""

RATIO_MEMORY: Final = 100.0
"""Calls after which an input counts for a third."""

RATIO_PRIOR_BYTES: Final = 2000.0
"""The prior ratio weighs as much as so many bytes that were seen."""

MESSAGE_PRIOR: Final = 0.001
"""Ties the constant per message to its prior: 25 tokens off are as strange as a 5 % error. With
the prior alone, Korean (o200k) is off by 13 % in place of 8 %, chats in English by 5.2, not 4.7."""

DEVIATION_START: Final = 0.5
DEVIATION_MIN: Final = 0.02
CLIP_DEVIATIONS: Final = 4.0
"""An input stranger than four mean deviations counts as if it were at four: after 20 calls, one
that is reported twice as large moves the next by 6 % at most, and by 14 % if it counts in full."""


class Price(Struct, frozen=True):
    """What a model's tokens cost, in micro-dollars per million tokens."""

    input_microusd_per_mtok: int
    output_microusd_per_mtok: int
    cache_read_microusd_per_mtok: int | None = None
    """`None`: as dear as any other input."""
    cache_write_microusd_per_mtok: int | None = None
    long_write_microusd_per_mtok: int | None = None
    """Of input that is written into the cache, and kept there for an hour. `None` is the same."""

    def cost_microusd(self, amounts: Amounts) -> int:
        """The price of so many tokens, rounded up, none of which meets a cache."""
        return self.cost_of(Tally(amounts.input_tokens, 0.0, amounts.output_tokens))

    def cost_of(self, tally: Tally) -> int:
        """The price of a call, rounded up; its input contains cache writes and not cache reads."""
        usual = self.input_microusd_per_mtok
        read, written, long = (
            usual if price is None else price
            for price in (
                self.cache_read_microusd_per_mtok,
                self.cache_write_microusd_per_mtok,
                self.long_write_microusd_per_mtok,
            )
        )
        kept_long = ceil(tally.long_write_tokens)
        kept = max(0, ceil(tally.cache_write_tokens) - kept_long)
        total = (
            max(0, ceil(tally.input_tokens) - kept - kept_long) * usual
            + kept * written
            + kept_long * long
            + ceil(tally.cache_read_tokens) * read
            + ceil(tally.output_tokens) * self.output_microusd_per_mtok
        )
        return -(-total // 1_000_000)

    def most_microusd(self, amounts: Amounts, kept_tokens: float) -> int:
        """The most that a call can cost if so many of its input tokens may be cached."""
        given, gave = amounts.input_tokens, amounts.output_tokens
        ways = ((0.0, 0.0), (kept_tokens, 0.0), (kept_tokens, kept_tokens))
        return max(
            self.cost_of(Tally(given, 0.0, gave, cache_write_tokens=kept, long_write_tokens=long))
            for kept, long in ways
        )


class _Ratio(Struct):
    """A least-squares fit of tokens on bytes and messages, each call weighed by 1/bytes."""

    prior: float
    per_byte: float
    per_message: float = TOKENS_PER_MESSAGE
    sums: Sequence[float] = (0.0,) * 5
    """Over past calls: of bytes, messages, messages^2, tokens, tokens x messages."""
    deviation: float = DEVIATION_START

    def learn(self, size_bytes: float, messages: int, tokens: float) -> None:
        """Count one call, clipped to what is believable, and solve anew."""
        expected = max(1.0, size_bytes * self.per_byte + messages * self.per_message)
        strange = log(tokens / expected)
        clip = CLIP_DEVIATIONS * self.deviation
        tokens = expected * exp(max(-clip, min(clip, strange)))
        # The deviation may grow by more than what is let through, so that a lasting change,
        # unlike an outlier, opens the door within a few calls.
        self.deviation += 0.1 * (min(abs(strange), 2.0 * clip) - self.deviation)
        self.deviation = max(DEVIATION_MIN, self.deviation)
        keep = 1.0 - 1.0 / RATIO_MEMORY
        squared, product = messages**2 / size_bytes, tokens * messages / size_bytes
        more = (size_bytes, messages, squared, tokens, product)
        self.sums = [keep * past + new for past, new in zip(self.sums, more, strict=True)]
        a, b, c, right_a, right_c = self.sums
        a += RATIO_PRIOR_BYTES
        c += MESSAGE_PRIOR
        right_a += RATIO_PRIOR_BYTES * self.prior
        right_c += MESSAGE_PRIOR * TOKENS_PER_MESSAGE
        determinant = a * c - b * b
        self.per_byte = (right_a * c - right_c * b) / determinant
        self.per_message = (right_c * a - right_a * b) / determinant


class InputRatio:
    """Tokens of an input, cached ones included: bytes x ratio + messages x constant, both learned
    for each model and content kind."""

    def __init__(self) -> None:
        self._ratios: dict[tuple[str, str], _Ratio] = {}

    def estimate(self, model: str, kind: str, size_bytes: int, messages: int = 1) -> float:
        """The tokens that an input of this size will probably be counted as; one at least."""
        ratio = self._ratios.get((model, kind)) or _prior_ratio(kind)
        return max(1.0, size_bytes * ratio.per_byte + messages * ratio.per_message)

    def observe(
        self, model: str, kind: str, size_bytes: int, input_tokens: float, messages: int = 1
    ) -> None:
        """Learn from the tokens that the provider reported. An empty report teaches nothing."""
        if size_bytes > 0 and input_tokens >= 1.0:
            ratio = remember(self._ratios, (model, kind), lambda: _prior_ratio(kind))
            ratio.learn(size_bytes, messages, input_tokens)


def _prior_ratio(kind: str) -> _Ratio:
    prior = TOKENS_PER_BYTE.get(kind, TOKENS_PER_BYTE_OTHER)
    return _Ratio(prior, prior)


OUTPUT_TOKENS_PRIOR: Final = 500.0
INPUT_TOKENS_REFERENCE: Final = 1000.0
SPREAD_PRIOR: Final = 0.8
"""One standard deviation is a factor of 2.2: typical of replies of one kind."""

SPREAD_MAX: Final = 3.0
"""A factor of 20; beyond this a kind has no length that is worth estimating."""

LENGTH_PRIOR_CALLS: Final = 0.2
PRIOR_CALLS: Final = 4.0
"""Ties the spread to its prior as firmly as so many calls, and the slope to zero as firmly as so
many whose inputs differ by a factor of e."""

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
    calls = ended + PRIOR_CALLS
    y += LENGTH_PRIOR_CALLS * _LEVEL_PRIOR
    xx += PRIOR_CALLS
    yy = yy + LENGTH_PRIOR_CALLS * _LEVEL_PRIOR**2 + PRIOR_CALLS * SPREAD_PRIOR**2
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
        """A stream has produced this many tokens so far: more certain than any estimate."""
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
        """The mean length of a reply, lognormal as it is, that is cut at `ceiling`."""
        known = self._kinds.get(kind)
        if known is None:
            return min(ceiling, OUTPUT_TOKENS_PRIOR)
        precision, level, slope = known.current()
        x = log(max(1.0, input_tokens) / INPUT_TOKENS_REFERENCE)
        mean, spread = (level + slope * x) / precision, min(SPREAD_MAX, 1.0 / precision)
        if ceiling <= 0.0:
            return 0.0
        # The share of a standard normal above z is erfc(z / sqrt(2)) / 2.
        z = (log(ceiling) - mean) / spread
        whole = exp(mean + 0.5 * spread * spread) * 0.5 * erfc((spread - z) / SQRT_2)
        return min(ceiling, whole + ceiling * 0.5 * erfc(z / SQRT_2))


OUTPUT_TOKENS_MAX: Final = 128_000
"""The longest answer of current models; what a call that names no limit may grow to."""

INPUT_DOUBT: Final = 1.2
"""Ordinary text rarely exceeds its estimate by more; a hard claim does not count on that."""

UNDECLARED: Final = 2.0
"""A call that names no longest answer is taken to reserve so many times the expected one."""

Prices = Callable[[str, int], Price | None]
"""The price of a model's tokens for a given number of input tokens, if it is known."""


class Estimates:
    """Sizes of calls, learned from all of them."""

    def __init__(self, prices: Prices) -> None:
        self._prices = prices
        self._inputs = InputRatio()
        self.outputs = OutputLength()

    def size(
        self, sketch: Sketch, dialect: Dialect, cached_bytes: int = 0, is_soft: bool = False
    ) -> tuple[Demand, Spend]:
        """What the call will probably and at most consume if so much of it is read from a cache,
        and what to claim of a budget: the most that it can take, where what is not text counts as
        expected; if soft, what it is expected to take."""
        tokens_in = self._input_tokens(sketch, sketch.size_bytes, sketch.messages)
        most = sketch.max_output_tokens
        # A call that asks for more is refused, and reserves nothing until then.
        ceiling = OUTPUT_TOKENS_MAX if most is None else min(max(0, most), OUTPUT_TOKENS_MAX)
        tokens_out = self.outputs.expect(sketch.kind, tokens_in, float(ceiling))
        reserved = float(ceiling) if most is not None else UNDECLARED * tokens_out
        counted = tokens_in
        if cached_bytes and dialect.input_charge == "uncached":
            counted = max(1.0, tokens_in - self._input_tokens(sketch, cached_bytes, 0))
        claim = ceiling_of(sketch, self._prices, ceil(INPUT_DOUBT * tokens_in))
        spend = spend_on(sketch.model, Tally(tokens_in, 0.0, tokens_out), self._prices)
        expected = Amounts(counted, tokens_out, spend.microusd)
        highest = Amounts(INPUT_DOUBT * counted, reserved, claim.microusd)
        demand = Demand(expected, highest, sketch.kind, sketch.is_whole)
        return demand, self.grown(sketch, max(1.0, tokens_out)) if is_soft else claim

    def grown(self, sketch: Sketch, output_tokens: float) -> Spend:
        """What the call takes of a budget with an answer of this length."""
        tokens_in = INPUT_DOUBT * self._input_tokens(sketch, sketch.size_bytes, sketch.messages)
        return spend_on(sketch.model, Tally(tokens_in, 0.0, output_tokens), self._prices)

    def has_price(self, sketch: Sketch) -> bool:
        """Whether the price of the call is known."""
        return self._prices(sketch.model, 0) is not None

    def ended(self, id: CallId, sketch: Sketch, tally: Tally | None) -> None:
        """The call is over. Only what the provider reported of a whole answer teaches."""
        if tally is None or tally.known != "reported":
            self.outputs.ended(id, None)
            return
        self.outputs.ended(id, tally.output_tokens)
        read = tally.input_tokens + tally.cache_read_tokens
        self._inputs.observe(sketch.model, sketch.content, sketch.size_bytes, read, sketch.messages)

    def usage(self, demand: Demand, tally: Tally, spend: Spend, dialect: Dialect) -> Usage:
        """What the call took of the limits. What was not reported is what was expected."""
        tokens_in = tally.input_tokens
        if dialect.input_charge == "all":
            tokens_in += tally.cache_read_tokens
        if not tally.input_tokens and not tally.cache_read_tokens:
            tokens_in = demand.expected.input_tokens
        tokens_out = tally.output_tokens
        if tally.known == "unknown":
            tokens_out = max(tokens_out, demand.expected.output_tokens)
        return Usage(Amounts(tokens_in, tokens_out, spend.microusd), tally.known)

    def spend(self, sketch: Sketch, claim: Spend, tally: Tally, is_soft: bool = False) -> Spend:
        """What the call took of a budget: in doubt, all of a hard claim or an estimate."""
        if is_soft and tally.known != "unknown":
            unread = sketch.size_bytes - sketch.prefix_bytes * bool(tally.cache_read_tokens)
            tokens_in = tally.input_tokens or self._input_tokens(sketch, unread, sketch.messages)
            tally = replace(tally, input_tokens=tokens_in, known="reported")
        return spend_of(sketch.model, claim, tally, self._prices)

    def _input_tokens(self, sketch: Sketch, size_bytes: int, messages: int) -> float:
        return self._inputs.estimate(sketch.model, sketch.content, max(0, size_bytes), messages)


def spend_of(model: str, ceiling: Spend, tally: Tally, prices: Prices) -> Spend:
    """What a call took: its ceiling, unless its input and all of its answer were reported."""
    read = tally.input_tokens + tally.cache_read_tokens
    if tally.known != "reported" or not read:
        return ceiling
    return spend_on(model, tally, prices)


def spend_on(model: str, tally: Tally, prices: Prices) -> Spend:
    """What a call with these tokens takes of a budget."""
    read = tally.input_tokens + tally.cache_read_tokens
    tokens = read + tally.output_tokens
    price = prices(model, ceil(read))
    cost = 0 if price is None else price.cost_of(tally)
    return Spend(tokens, cost, int(price is None and tokens > 0.0))


def ceiling_of(sketch: Sketch, prices: Prices, expected_in: int = 0) -> Spend:
    """The most that a call can take: a token per byte of text, or what is expected if that is more,
    and the longest answer."""
    most_in, most_out = max(sketch.most_input_tokens, expected_in), sketch.max_output_tokens
    whole = Amounts(float(most_in), float(OUTPUT_TOKENS_MAX if most_out is None else most_out))
    price = prices(sketch.model, most_in)
    written = whole.input_tokens if sketch.may_write_cache else 0.0
    cost = 0 if price is None else price.most_microusd(whole, written)
    return Spend(whole.input_tokens + whole.output_tokens, cost, int(price is None))
