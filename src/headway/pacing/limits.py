"""A provider's limit, followed from this side: what is left, when there is enough, what is learned.

Laws:
- What is charged is what the provider will charge, when it will charge it.
- `charge` or `join` begins a call, `settle` or `give_back` ends it, once.
- Money is firm: spent and the ceilings of calls in flight together never exceed the limit.
- A difference found in the past is carried to the present as a shift. Nothing is replayed.
- What a user configured is exact. Of a learned limit, readings correct level, size, period and how
  it counts; a refusal corrects the level.
- A user's ceiling is a second limit of ours: at most that share of the limit in any period. What
  is reserved for interactive calls is a third one, that only the other calls count towards.
"""

from __future__ import annotations

from math import exp, inf, sqrt
from typing import Final

from msgspec.structs import replace

from headway.base.values import (
    Amounts,
    Charging,
    Demand,
    Limit,
    LimitKind,
    LimitReading,
    Reading,
    Resource,
    Wait,
)
from headway.pacing.call import NO_STREAM, Call
from headway.pacing.meters import (
    NEARLY_FULL,
    Bucket,
    FixedWindow,
    Meter,
    PlannedStream,
    SlidingWindow,
    meter_of,
)
from headway.pacing.periods import CHANGED, FINE_S, PeriodEvidence
from headway.pacing.presence import PersonalNeed
from headway.pacing.streams import BIN_S, FlowingMeter, FlowingWindow, flowing_meter


class ChargingRule:
    """What a call takes of one limit, as weights: this is asked several times for every call."""

    def __init__(self, resource: Resource, charging: Charging) -> None:
        output = 1.0 if resource in ("output", "tokens") else 0.0
        self.flows = charging == "produced" and output > 0
        """Whether output leaves this limit as it is produced."""
        self.keeps = charging == "kept" and output > 0
        """Whether what was reserved and not used does not come back."""
        self.is_certain = resource == "requests"
        """Whether what a call takes is known beforehand, so that its end changes nothing."""
        self._requests = 1.0 if self.is_certain else 0.0
        self.input = 1.0 if resource in ("input", "tokens") else 0.0
        self._reserved = 0.0 if self.flows else output
        self.produced = output if self.flows else 0.0
        self._spend = 1.0 if resource == "spend" else 0.0
        self._is_open = self.flows or resource == "spend"
        """Whether a call takes some of it after its admission."""

    def takes(self, demand: Demand, stream: PlannedStream = NO_STREAM) -> tuple[float, float]:
        """What admission itself takes, and what is expected to be taken after that."""
        if self.is_certain:
            return 1.0, 0.0
        most = demand.ceiling
        need = self.input * demand.expected.input_tokens + self._reserved * most.output_tokens
        if not self._is_open:
            return need, 0.0
        return need, self.produced * stream.tokens + self._spend * most.spend_microusd

    def unused(self, demand: Demand, used: Amounts) -> float:
        """What was reserved for a call and not used by it."""
        return self._reserved * (demand.ceiling.output_tokens - used.output_tokens)

    def used_later(self, amounts: Amounts) -> float:
        """What such a call took after its admission."""
        if not self._is_open:
            return 0.0
        return self.produced * amounts.output_tokens + self._spend * amounts.spend_microusd

    def whole(self, amounts: Amounts) -> float:
        """All that a call of these amounts takes."""
        taken = self._requests + self.input * amounts.input_tokens
        return taken + self._reserved * amounts.output_tokens + self.used_later(amounts)


FLOOR_SHARE: Final = 0.15
FLOOR_CALLS: Final = 3.0
"""Left in a learned limit for others and for our own errors; of calls that are not shared, one."""
EXACT_FLOOR: Final = 1e-6
"""Left in a limit that is known exactly: rounding only..."""
ERROR_SPREADS: Final = 2.0
"""...and so many times the error that our estimates of the calls in flight may add up to. With four
22 tasks take 0.3 % longer where limits are known, and 0.05 refusals each in place of 0.07."""
WINDOW_SPREADS: Final = 1.0
"""Less is left in a learned window: what is not used by its end is lost. With two, a long run on a
fixed window leaves room unused for 26 s of a minute."""
CEILING_SPREADS: Final = 4.0
"""A demand's ceiling lies about this many spreads above what is expected."""
SLIDE_MARGIN: Final = 1e-3
"""A provider's sliding window is taken to be longer by this share: it may count in grains."""
CEILING_MARGIN: Final = 1e-6
"""Our own is exact but for rounding."""
MEMORY: Final = 0.1
"""How much the newest call moves the mean need and the variance of our errors."""
PROOF_CALLS: Final = 8.0
"""Reservations of so many calls have to have been left unused before it is said where they are."""
KEPT: Final = (0.6, 1.4)
"""Reservations are kept if this share of what was not used is missing; some is in flight."""
BACK: Final = 0.1
"""Reservations come back if less than this share of what was not used is missing: of accounts that
keep them 0.14 to 0.28 was missing while most calls were in flight, of others at most 0.02."""
RETURNED: Final = 0.5
"""If so much of it is there that should not be, it comes back after all."""
DRAW_FLOOR: Final = 0.5
"""We never yield below this share of a limit: beyond it, refusals are the neighbour's."""
DRAW_MEMORY_S: Final = 10.0
"""Neighbours come and go within tens of seconds."""
DRAW_STEP_S: Final = 1.0
"""Readings are taken together over this long: answers arrive in another order than calls left."""
SHARED_DRAW: Final = 0.03
SHARED_CALLS: Final = 2.0
"""A larger share, by more than so many calls of ours at once, is a neighbour's draw."""
GAINED: Final = 0.5
"""A limit that refills by this share faster than it should has another period."""
ROOM: Final = 1.1
"""A refusal although this many times the need is left means that a smaller limit hides behind."""
REVISED: Final = 0.02
"""A learned period that is off by more than this share is revised."""
SAME: Final = 0.02
FULL_READINGS: Final = 2
"""So many readings after the first that differ by less than this share show the same level."""
DEBT_S: Final = 120.0
"""Providers that count answers as they are produced let a call in while anything is left. Those in
flight may leave a debt that is paid in so long, where no one else is known to draw on the limit:
others who come then wait for it, and so would conversations, whose caches are lost meanwhile (4.8 M
tokens written twice for 1.3 M). With 60 s 22 answers took 63 s that take 14 s without headers."""
WAIT_UNTOLD_S: Final = 1.0
"""After a refusal that names a limit and no wait."""
RESET_MARGIN_S: Final = 0.02
"""A window that is said to reset at an instant is tried this much later."""
EDGE_MOVED_S: Final = 1.5
"""Where resets are rounded to seconds, an edge that is off by less has not moved."""


class TrackedLimit:
    """A limit, counted from this side and corrected by what the provider says."""

    returns = False
    """Whether reservations were seen to come back."""

    is_published = False
    """Whether its provider says how it counts."""
    evidence: PeriodEvidence | None = None
    is_untold = False
    """Whether no header and no convention names its period."""
    tells_full = True
    """Whether its resets are when it is full; some are when the next call may come."""
    shared = False
    """Whether others are known to draw on it."""

    def __init__(
        self, limit: Limit, charging: Charging, share: float, rounding: float, now: float,
        reserve: float = 0.0,
    ) -> None:  # fmt: skip
        """Calls that are not interactive use `reserve` less than the share."""
        self.limit = limit
        self.rule = ChargingRule(limit.resource, charging)
        flows = self.rule.flows
        longer = 1 + SLIDE_MARGIN if limit.kind == "sliding" else 1.0
        counted = replace(limit, period_s=limit.period_s * longer)
        self.meter = flowing_meter(counted, now) if flows else meter_of(counted, now)
        """What the provider counts with; readings correct it."""
        self.ceiling = _ceiling_of(limit, flows, share, now) if share < 1 else None
        self.others: Meter | None = None
        """What calls that are not interactive may use, where something is reserved."""
        if reserve > 0:
            self.others = _ceiling_of(limit, flows, max(0.0, share - reserve), now)
        self.personal = PersonalNeed()
        own = tuple([one for one in (self.ceiling, self.others) if one is not None])
        self._own = (own, () if self.ceiling is None else (self.ceiling,))
        """The ceilings that calls of runs, and interactive ones, count towards."""
        self._meters = tuple([(self.meter, *each) for each in self._own])
        self._refills = isinstance(self.meter, FlowingMeter)
        """Whether answers take of it as they are produced, and it refills meanwhile."""
        self._has_plenty = isinstance(self.meter, Bucket) and not own
        """Whether a look at the level may be enough: no floor is above its share."""
        self.rounding = rounding
        """By how much a reading of this limit may be off."""
        self.exact = limit.source == "configured"
        self.shift = 0.0
        """All corrections of the level so far."""
        self.mean_need = 0.0
        self.burst_s = inf
        """The user's wish: no more than so many seconds' worth at once."""
        self.draw_per_s = 0.0
        self.read_s = -inf
        self._reported = 0.0 if limit.source == "learned" else limit.amount
        """The limit by the last reading; while its period is open, less is believed to be there."""
        self._since_s = -inf
        """Readings of calls that were sent before tell nothing of the limit as it is followed."""
        self._blocked_s = self._full_s = -inf
        """Until when the provider refuses; since when it is full, for calls that need all of it."""
        self._in_flight = 0
        self._unused = self._mean_unused = 0.0
        """What was reserved and not used, in all and by the call."""
        self._variance = 0.0
        self._missing = self._gone = self._unused_before = 0.0
        """What was missing since the last look at neighbours; what was missing since
        the last look at reservations, before which so much had been left unused."""
        self._looked_s, self._ahead = -inf, 0.0
        """What was taken off for answers in flight that are ahead of their plans."""
        self._size = (0.0, limit.amount)
        """Between what the size of a bucket is, by what readings showed."""
        self._full = (0.0, 0)
        """What was there before the last call, and how often in a row it was the same."""

    def level(self, now: float) -> float:
        """What is left now, after what the streams in flight are believed to have produced."""
        return self.meter.level(now)

    def floor(self) -> float:
        """What is left untouched: room for errors. Windows of whole numbers have none."""
        size, is_window = self.meter.size, not isinstance(self.meter, Bucket)
        if self.shared or not (self.exact or is_window):
            calls = 1.0 if self.rule.is_certain and not self.shared else FLOOR_CALLS
            return min(FLOOR_SHARE * size, calls * self.mean_need)
        if self.limit.resource == "spend" or (self.limit.resource == "requests" and is_window):
            return 0.0
        spreads = ERROR_SPREADS if self.exact else WINDOW_SPREADS
        error = spreads * sqrt(self._variance * self._in_flight)
        floor = min(FLOOR_SHARE * size, EXACT_FLOOR * size + error + self.rounding)
        if self._refills:
            # Within a bin what flows may come before what refills.
            floor += min(FLOOR_SHARE * size, self.limit.rate_per_s * BIN_S)
        return floor

    def spare(self) -> float:
        """What is never used of it, less what comes back of calls in flight."""
        return self.floor() - (0.0 if self.rule.keeps else self._mean_unused * self._in_flight)

    def holds(self) -> float:
        """What a usual call holds until its end, if some of it comes back then."""
        return self.mean_need if self._mean_unused > 0.0 and not self.rule.keeps else 0.0

    def can_ever(self, demand: Demand) -> bool:
        """Whether the call passes once all others have ended and time has mended the rest."""
        whole = min([self.meter.size, *(one.size for one in self._own[demand.is_interactive])])
        is_firm = self.limit.resource == "spend"
        return whole > 0 and not (is_firm and demand.ceiling.spend_microusd > whole)

    def cost_s(self, amounts: Amounts) -> float:
        """Seconds for which such a call takes all of the limit; 0 where nothing refills it."""
        rate = self.limit.rate_per_s
        return self.rule.whole(amounts) / rate if rate > 0 else 0.0

    def room(self, now: float, is_active: bool) -> float:
        """What is to be left for the next call of a person who is active, or may come back."""
        meter, personal, period_s = self.meter, self.personal, self.limit.period_s
        if isinstance(meter, Bucket):
            return personal.largest if is_active else 0.0
        if not is_active:
            return min(personal.largest, DRAW_FLOOR * meter.size)
        if isinstance(meter, FixedWindow):
            meter.available(now)
            room = personal.within(meter.boundary_s - now)
        else:
            room = personal.within(period_s) - personal.taken_since(now - period_s)
        return max(personal.largest, min(room, DRAW_FLOOR * meter.size))

    def wait(self, call: Call, now: float, room: float = 0.0) -> Wait | None:
        """What holds the call back if it has to leave so much room; None if nothing does."""
        if now < self._blocked_s:
            return Wait(self.limit.name, self._blocked_s, "refilling")
        demand, stream, meter = call.demand, call.stream, self.meter
        need, later = (1.0, 0.0) if self.rule.is_certain else self.rule.takes(demand, stream)
        if self._has_plenty:
            left = meter.level(now) - need - later - meter.planned - room
            if left >= FLOOR_SHARE * meter.size > 0:
                return None
        if not self.can_ever(demand):
            return Wait(self.limit.name, inf, "one call exceeds all that there ever is")
        has_debt = not (room or self.shared or call.request.sketch.prefix)
        debt = DEBT_S * self.limit.rate_per_s if has_debt else 0.0
        until_s = meter.fits_s(need, later, stream, self.floor() + room, now, debt)
        if need > meter.size and isinstance(meter, Bucket):
            # It has to be full, and may be so later than by our estimate of the last call.
            self._full_s = min(self._full_s, now) if until_s <= now else inf
            if until_s <= now:
                error = ERROR_SPREADS * sqrt(self._variance)
                until_s = self._full_s + error / self.limit.rate_per_s
        for own in self._own[demand.is_interactive]:
            # A ceiling is our own: no neighbour takes of it, and no reading corrects it.
            left = room if own is self.ceiling else 0.0
            until_s = max(until_s, own.fits_s(need, later, stream, left, now))
        if until_s <= now:
            return None
        reason = "refilling" if until_s < inf else "calls in flight may use up the rest"
        return Wait(self.limit.name, until_s, reason)

    def charge(self, call: Call, now: float) -> float:
        """Take the call's share; returns what is left and not held back, free of shifts."""
        demand, stream, rule = call.demand, call.stream, self.rule
        need, later = (1.0, 0.0) if rule.is_certain else rule.takes(demand, stream)
        self._in_flight += 1
        if self._variance == 0 and rule.input:
            doubt = demand.ceiling.input_tokens - demand.expected.input_tokens
            self._variance = (max(0.0, doubt) / CEILING_SPREADS) ** 2
        counted = need or later
        self.mean_need += MEMORY * (counted - self.mean_need) if self.mean_need else counted
        if demand.is_interactive:
            self.personal.note(counted, now)
        if not self._has_plenty:
            for own in self._own[demand.is_interactive]:
                own.begin(need, later, stream, now)
        return self.meter.begin(need, later, stream, now) + self.shift

    def join(self, call: Call, charged: bool, now: float) -> None:
        """A call that was in flight before this limit was known."""
        self._in_flight += 1
        need, later = self.rule.takes(call.demand, call.stream)
        for meter in self._meters[call.demand.is_interactive]:
            meter.begin(need if charged else 0.0, later, call.stream, now)

    def plan(self, call: Call, stream: PlannedStream, now: float) -> None:
        """The answer turned out to be earlier, later, shorter or longer than planned."""
        if self.rule.flows:
            for meter in self._meters[call.demand.is_interactive]:
                meter.plan(call.stream, stream, now)

    def give_back(self, call: Call, is_counted: bool, now: float) -> None:
        """The call never ran: what it took comes back, unless the provider counts it anyway."""
        demand, stream = call.demand, call.stream
        need, later = self.rule.takes(demand, stream)
        extra = 0.0 if is_counted else -need
        if demand.is_interactive:
            self.personal.withdraw()
        self._in_flight -= 1
        for meter in self._meters[demand.is_interactive]:
            meter.end(extra, later, 0.0, stream, call.sent_s, now)

    def settle(self, call: Call, used: Amounts, now: float) -> None:
        """The call ran: correct what was taken to what was used."""
        self._in_flight -= 1
        rule, demand, stream = self.rule, call.demand, call.stream
        if rule.is_certain:
            return
        more_in = rule.input * (used.input_tokens - demand.expected.input_tokens)
        more_out = used.output_tokens - demand.expected.output_tokens
        # A window holds every answer in full from its admission on, and a reservation is no
        # estimate: there only the input is an error.
        error = more_in + rule.produced * more_out if self._refills else more_in
        self._variance += MEMORY * (error * error - self._variance)
        unused = rule.unused(demand, used)
        self._unused += unused
        self._mean_unused += MEMORY * (unused - self._mean_unused) if self._mean_unused else unused
        extra = more_in if rule.keeps else more_in - unused
        (_, later), took = rule.takes(demand, stream), rule.used_later(used)
        if isinstance(self.meter, Bucket) and self.meter.clipped_s > call.sent_s:
            # Full since it was sent: what was charged too much has come back already.
            extra -= min(0.0, more_in)
        for meter in self._meters[demand.is_interactive]:
            meter.end(extra, later, took, stream, call.sent_s, now)
        if self._ahead > 0.0:
            again = min(self._ahead, max(0.0, took - stream.produced(now)))
            self.meter.refund(again, now)
            self._ahead = self._ahead - again if self._in_flight else 0.0

    # What readings and refusals teach.

    def adopt(self, reading: LimitReading, at_s: float, now: float) -> None:
        """Start from the first reading: level and window edge."""
        remaining = reading.remaining or 0.0
        meter = self.meter
        if isinstance(meter, FixedWindow):
            meter.boundary_s = at_s + (reading.reset_s or meter.period_s) + RESET_MARGIN_S
            meter.set_level(remaining, now)
        elif isinstance(meter, Bucket):
            meter.set_level(remaining + meter.rate_per_s * (now - at_s), now)
        else:
            self.meter.charge(self.limit.amount - remaining, at_s)
        self.read_s, self._since_s = at_s, now
        self._reported = reading.limit or self._reported

    def heeded(self, reading: LimitReading) -> LimitReading:
        """The reading, without a reset of 0 unless that means full."""
        if self.is_published:
            return reading
        if reading.reset_s == 0.0 and reading.remaining:
            self.tells_full = False
        if reading.reset_s == 0.0 or not self.tells_full:
            return replace(reading, reset_s=None)
        return reading

    def revised(
        self, reading: LimitReading, demand: Demand, at_s: float, now: float
    ) -> Limit | None:
        """Learn from resets how the limit counts; returns it if its meter has to be another one."""
        if self.exact or self.is_published:
            return None
        if self.evidence is None:
            self.evidence = PeriodEvidence(self.limit if self.limit.source == "profile" else None)
        found = self.evidence.observe(reading, self.rule.takes(demand)[0], at_s)
        known, meter = self.limit, self.meter
        if found is None or at_s < self.read_s:
            return None
        if found.kind != known.kind or isinstance(self.meter, FlowingWindow):
            return None if found == known else found
        off_s, longer_s = abs(found.period_s - known.period_s), max(found.period_s, known.period_s)
        if off_s > REVISED * longer_s or found.capacity != known.capacity:
            self.limit = found
            self._reported = reading.limit or self._reported
            if isinstance(meter, Bucket):
                meter.resize(found.rate_per_s, found.capacity, now)
            else:
                meter.period_s, meter.size = found.period_s, found.amount
            if isinstance(meter, FixedWindow) and reading.reset_s:
                meter.boundary_s = at_s + reading.reset_s + RESET_MARGIN_S
        return None

    def observe(
        self, reading: LimitReading, demand: Demand, snapshot: float | None, at_s: float,
        now: float,
    ) -> None:  # fmt: skip
        """Learn from one response; `snapshot` is what `charge` returned for its call."""
        if reading.remaining is None or at_s < self.read_s:
            return
        known = self._reported
        if known and reading.limit and abs(reading.limit - known) > CHANGED * known:
            self._resize(reading.limit / known, now)
            self._since_s = now
        self._reported = reading.limit or known
        level = self.level(now)
        meter = self.meter
        if at_s <= self._since_s:
            snapshot = None
        if isinstance(meter, FixedWindow):
            self._observe_window(meter, reading, snapshot, at_s)
        elif isinstance(meter, Bucket) and snapshot is not None:
            need, _ = self.rule.takes(demand)
            filled = reading.remaining + need
            if reading.reset_s is None and filled > 0 and not (self.exact or self.is_published):
                self._top_up(meter, filled)
            self._observe_bucket(meter, reading, snapshot - self.shift, need, at_s)
        elif isinstance(meter, Bucket):
            since = reading.remaining + meter.rate_per_s * (now - at_s)
            self._shift_by(meter, max(0.0, level - since), now)
        else:
            self._observe_sliding(meter, reading, snapshot, at_s)
        self.read_s = at_s

    def left(self, reading: Reading, now: float) -> float:
        """What is left by a response's account or, where it does not say, by ours."""
        told = self._told(reading)
        if told is None or told.remaining is None:
            return self.level(now)
        return told.remaining

    def is_short(self, demand: Demand, reading: Reading) -> bool:
        """Whether a response says that less is left than this call needs."""
        told = self._told(reading)
        if told is None or told.remaining is None:
            return False
        return told.remaining < self.rule.takes(demand)[0] or told.remaining <= 0.0

    def confirms(self, wait_s: float | None, now: float) -> bool:
        """Whether advice to wait is the time until this window ends, as far as that is known."""
        ends_s = self.meter.boundary_s if isinstance(self.meter, FixedWindow) else inf
        return wait_s is not None and abs(now + wait_s - ends_s) <= EDGE_MOVED_S

    def refused(
        self, demand: Demand, reading: Reading, wait_s: float | None, is_trial: bool, now: float
    ) -> bool:
        """A refusal names this limit; True if enough was left. A trial waits less than advised."""
        (need, _), level, meter = self.rule.takes(demand), self.level(now), self.meter
        told = self._told(reading)
        remaining = None if told is None else told.remaining
        if wait_s is None:
            wait_s = WAIT_UNTOLD_S
        elif told is not None and told.reset_s is not None and wait_s - 1 < told.reset_s < wait_s:
            wait_s = told.reset_s + RESET_MARGIN_S  # Advice in whole seconds.
        if isinstance(meter, Bucket):
            if remaining is not None and remaining - 2 * self.rounding > ROOM * need:
                return True
            target = min(need, meter.size) - meter.rate_per_s * wait_s
            is_full = meter.clipped_s >= now and not self.exact
            if is_full and 0 < need < NEARLY_FULL * meter.size:
                # It was taken to be full: this is all that it holds.
                meter.size = max(need, target)
            gone = max(0.0, level - target)
            self._note_ahead(meter, gone)
            self._shift_by(meter, gone, now)
            # What the next reading finds there beyond this was not gained meanwhile.
            self._looked_s = -inf
        elif isinstance(meter, FixedWindow) and not is_trial:
            meter.set_level(min(level, 0.0), now)
            meter.boundary_s = now + wait_s + RESET_MARGIN_S
        else:
            if isinstance(meter, FixedWindow):
                meter.set_level(min(level, need), now)
            self._blocked_s = now + wait_s
        return False

    def as_profile(self) -> Limit:
        """This limit as the next run should start with it."""
        meter = self.meter
        burst = meter.size if isinstance(meter, Bucket) else None
        if self.evidence is not None and self.evidence.is_open:
            # It is not known yet how it counts: the next run finds out.
            return replace(self.limit, burst=burst)
        return replace(self.limit, burst=burst, source="profile")

    def _observe_bucket(
        self, bucket: Bucket, reading: LimitReading, predicted: float, need: float, at_s: float
    ) -> None:
        rate, remaining = self.limit.rate_per_s, reading.remaining or 0.0
        if reading.reset_s is not None and not self.exact:
            self._size_up(bucket, remaining, reading.reset_s, need)
        delta = predicted - remaining
        if abs(delta) <= self.rounding:
            delta = 0.0
        in_debt = remaining <= self.rounding
        if delta < 0 and (in_debt or bucket.clipped_s >= at_s):
            # An empty limit may be in debt, which is reported as nothing left; and a level that
            # was full since has lost what the correction would add.
            delta = 0.0
        self._missing += delta - self._note_ahead(bucket, delta)
        elapsed = at_s - self._looked_s
        if elapsed == inf:
            self._looked_s, self._missing = at_s, 0.0
        elif elapsed >= DRAW_STEP_S:
            self._draw(bucket, elapsed, at_s)
            self._looked_s, self._missing = at_s, 0.0
        if delta:
            self._shift_by(bucket, delta, at_s)
        # What was taken for a neighbour's draw is missing as well.
        drawn = self.draw_per_s * (at_s - self.read_s) if self.draw_per_s else 0.0
        if self._keeps_changed(delta + drawn):
            self.draw_per_s = self._missing = 0.0
            bucket.rate_per_s = rate

    def _draw(self, bucket: Bucket, elapsed: float, now: float) -> None:
        """Learn from what was missing over some time: others took it. What was there beyond all
        that was expected shows that a period that no header names is shorter than thought."""
        rate = self.limit.rate_per_s
        gained = -self._missing
        if self.is_untold and gained > max(SHARED_CALLS * self.mean_need, GAINED * rate * elapsed):
            rate += gained / elapsed
            self.limit = replace(self.limit, period_s=self.limit.amount / rate, source="learned")
            bucket.resize(rate, bucket.size, now)
            return
        weight = 1.0 - exp(-elapsed / DRAW_MEMORY_S)
        drawn = self.draw_per_s + weight * self._missing / elapsed
        self.draw_per_s = min(max(0.0, drawn), (1 - DRAW_FLOOR) * rate)
        bucket.rate_per_s = rate - self.draw_per_s
        is_much = self._missing > SHARED_CALLS * self.mean_need
        self.shared = self.shared or (is_much and self.draw_per_s > SHARED_DRAW * rate)

    def _keeps_changed(self, missing: float) -> bool:
        """Learn from what a reading misses whether reservations come back; True if that changed."""
        rule = self.rule
        self._gone += missing
        unused = self._unused - self._unused_before
        if unused <= 0.0 or unused < PROOF_CALLS * self.mean_need:
            return False
        share = self._gone / unused
        self._gone, self._unused_before = 0.0, self._unused
        self.returns = share <= -RETURNED if rule.keeps else share < BACK
        if not (self.returns if rule.keeps else KEPT[0] <= share <= KEPT[1]):
            return False
        self.rule = ChargingRule(self.limit.resource, "reserved" if rule.keeps else "kept")
        return True

    def _told(self, reading: Reading) -> LimitReading | None:
        return next((told for told in reading.limits if is_about(self.limit, told)), None)

    def _note_ahead(self, bucket: Bucket, gone: float) -> float:
        """How much of what is missing may be answers ahead of plan: that is taken off only once."""
        ahead = min(gone, bucket.planned - self._ahead) if self._refills else 0.0
        self._ahead += max(0.0, ahead)
        return max(0.0, ahead)

    def _shift_by(self, bucket: Bucket, delta: float, now: float) -> None:
        """Carry a difference found in the past to the present level."""
        before = bucket.available(now)
        bucket.set_level(before - delta, now)
        self.shift += before - bucket.available(now)

    def _size_up(self, bucket: Bucket, left: float, reset_s: float, need: float) -> None:
        """Resets are rounded: each reading says between what the size of a bucket is."""
        rate = self.limit.rate_per_s
        step_s = 1.0 if reset_s == int(reset_s) else FINE_S
        low = left - self.rounding + rate * max(0.0, reset_s - step_s)
        high = left + self.rounding + rate * reset_s
        if max(low, self._size[0]) <= min(high, self._size[1]):
            low, high = max(low, self._size[0]), min(high, self._size[1])
        self._size = low, high
        most = min(self.limit.amount, self.burst_s * rate)
        # What is left and what the call took was there, unless the call was larger than all of it.
        bucket.size = max(1e-6, min(most, max(min(left + need, high), (low + high) / 2.0)))

    def _top_up(self, bucket: Bucket, filled: float) -> None:
        """Where no reset is told: a bucket that is seen as full as before, and no fuller, is full.

        Neighbours take different amounts; a bucket that overflows is left with the same one.
        """
        same, count = self._full
        is_same = abs(filled - same) <= SAME * same + self.rounding
        self._full = (same, count + 1) if is_same else (filled, 0)
        if filled > bucket.size * (1.0 + SAME):
            bucket.size = self.limit.amount
        elif self._full[1] >= FULL_READINGS and filled < bucket.size * (1.0 - SAME):
            bucket.size = filled
            self.draw_per_s = self._missing = 0.0
            self.shared = False
            bucket.rate_per_s = self.limit.rate_per_s

    def _observe_sliding(
        self, meter: Meter, reading: LimitReading, snapshot: float | None, at_s: float
    ) -> None:
        if snapshot is not None:
            delta = snapshot - self.shift - (reading.remaining or 0.0)
            # Of calls that were in flight when the limit was found, some may be counted twice.
            is_early = at_s < self._since_s + meter.period_s / 2.0 and not self.rule.flows
            if delta > self.rounding:
                meter.charge(delta, at_s)
                self.shift += delta
            elif delta < -self.rounding and is_early and at_s > self.read_s:
                meter.correct(delta, self._since_s, at_s)
                self.shift += delta
        is_open = self.evidence is not None and self.evidence.is_open
        if is_open and reading.reset_s is not None and isinstance(meter, SlidingWindow):
            # However the limit counts, nothing is missing then of what was taken until now.
            meter.release(at_s, at_s + reading.reset_s + RESET_MARGIN_S)

    def _observe_window(
        self, window: FixedWindow, reading: LimitReading, snapshot: float | None, at_s: float
    ) -> None:
        if reading.reset_s:
            ends = at_s + reading.reset_s + RESET_MARGIN_S
            is_coarse = reading.reset_s == int(reading.reset_s)
            moved = abs(ends - window.boundary_s) > (EDGE_MOVED_S if is_coarse else FINE_S)
            if moved and at_s > window.boundary_s - window.period_s:
                window.boundary_s = ends
        if snapshot is not None and at_s > window.boundary_s - window.period_s:
            delta = snapshot - self.shift - (reading.remaining or 0.0)
            is_news = at_s > self.read_s and not self.rule.flows
            if delta > self.rounding or (delta < -self.rounding and is_news):
                window.charge(delta, at_s)
                self.shift += delta
            self._keeps_changed(delta)

    def _resize(self, factor: float, now: float) -> None:
        """The provider changed the limit: same kind, new size, the burst in proportion."""
        limit, meter = self.limit, self.meter
        burst = None if limit.burst is None else limit.burst * factor
        self.limit = replace(limit, amount=limit.amount * factor, burst=burst)
        self._size = (0.0, self.limit.amount)
        if isinstance(meter, Bucket):
            meter.resize(self.limit.rate_per_s, meter.size * factor, now)
        else:
            meter.size *= factor
        for own in self._own[False]:
            own.size *= factor


def _ceiling_of(limit: Limit, flows: bool, share: float, now: float) -> Meter:
    """At most this share in any period, however the provider counts; of a total, in all."""
    kind: LimitKind = "gauge" if limit.kind == "gauge" else "sliding"
    period_s = limit.period_s * (1 + CEILING_MARGIN)
    ours = replace(limit, amount=limit.amount * share, period_s=period_s, kind=kind)
    return flowing_meter(ours, now) if flows else meter_of(ours, now)


def is_about(limit: Limit, told: LimitReading) -> bool:
    """Whether a reading is of this limit; without a period, of a learned or equally large one."""
    if limit.resource != told.resource or told.period_s is not None:
        return limit.resource == told.resource and limit.period_s == told.period_s
    return limit.source != "configured" or limit.amount == told.limit
