"""What is known of one account and model group: limits, width, speed, and pauses.

Laws:
- Every limit is checked first, every limit is charged after.
- What a user configured is true; readings correct what was learned; outcomes teach the rest.
- A fault teaches what it names and nothing else: a wrong request pauses no other call.
- An interactive call waits for what the provider enforces, not for how runs find out what that is.
- While the provider cannot be reached, one call at a time finds out whether it is back. After a
  connection broke, the next call goes alone, unless other answers go on.
"""

from __future__ import annotations

from math import inf
from typing import Final, Literal

from msgspec import Struct
from msgspec.structs import replace

from headway.base.numbers import backoff_s
from headway.base.values import (
    MINUTE_S,
    Amounts,
    Demand,
    Fault,
    FaultKind,
    Limit,
    LimitKind,
    LimitReading,
    Reading,
    SettledAs,
    Wait,
)
from headway.pacing.call import Call
from headway.pacing.headers import ANTHROPIC, Dialect
from headway.pacing.hidden_limits import HiddenLimits, KnownRate, RetryAdvice
from headway.pacing.limits import (
    WAIT_UNTOLD_S,
    ChargingRule,
    TrackedLimit,
    is_about,
)
from headway.pacing.meters import Bucket, FixedWindow
from headway.pacing.presence import PersonActivity
from headway.pacing.streams import FlowingMeter
from headway.pacing.width import (
    FIRST_BYTE_S,
    PER_TOKEN_S,
    WIDTH_AT_START,
    AnswerSpeed,
    ConcurrencyLimit,
    Ramp,
    Samples,
    Width,
)
from headway.pacing.windows import Allowances

WINDOW_RESETS: Final = 2.0
"""A limit whose reset lies this many times later than refilling would take is a window."""
HOLD_S_MAX: Final = 60.0
"""A refused burst stops the account for no longer, whatever is said: some providers lie."""
OVERLOAD_S_MAX: Final = 30.0
"""After five overloads in a row waits grow no further; doubled on, the tenth is 17 minutes."""
CROWDED_S_MAX: Final = 5.0
"""While others hold every slot one of ours is tried this often."""
PLACE_S: Final = 0.05
"""A call that is refused so soon after another ended may have come before its slot was free."""
PATIENCE: Final = 0.125
"""While call after call is refused for more than a minute, the next one waits for at least this
share of the time beyond: where refusals are charged, tries at a steady pace keep a limit empty for
ever. Where that helped, it begins after a quarter of that time, and so on."""
UNREACHABLE_S: Final = 1.0
"""While nothing answers at the provider's address, one call tries it this often."""


ANSWERS: Final[tuple[FaultKind, ...]] = (
    "rate", "concurrency", "overload", "spend_cap", "billing", "access", "request",
)  # fmt: skip
"""Faults that a provider tells: it was reached."""


class Pauses:
    """Why no call may be sent at all."""

    def __init__(self, share: float) -> None:
        self._closed = "" if share > 0 else "the ceiling leaves nothing of any limit"
        self._until_s = -inf
        self._reason = ""
        self._overloads = 0
        self.overload_s = -inf
        self._idle_refusals = 0
        self._ended_s = -inf
        """When a call last left its place to another."""
        self._refused_s = inf
        """When the first call was refused of those since one was let in."""
        self.patient_s = -inf
        """Until when no other is tried, where all else would let it go."""
        self._grace_s = MINUTE_S
        """How long calls may be refused in a row before that."""
        self._trial_s: float | None = None
        """Since when the provider cannot be reached, or its last trial began."""
        self.is_trying = False
        """Whether the call that left last finds out if the provider can be reached."""
        self._failed_s = -inf
        """When a call last could not be sent: answers to calls sent before say nothing."""

    def wait(self, in_flight: int, now: float) -> Wait | None:
        """What holds all calls back now."""
        if self._closed:
            return Wait("account", inf, self._closed)
        if self._trial_s is not None:
            if self.is_trying and in_flight > 0:
                return Wait("connection", inf, "one call tries whether the provider answers")
            if now < self._trial_s + UNREACHABLE_S:
                return Wait("connection", self._trial_s + UNREACHABLE_S, "no connection")
        if now < self._until_s:
            return Wait("account", self._until_s, self._reason)
        return None

    @property
    def is_trial_due(self) -> bool:
        """Whether the next call finds out if the provider can be reached."""
        return self._trial_s is not None

    def sent(self, now: float) -> None:
        """A call leaves; if the provider could not be reached, it is the trial."""
        self.is_trying = self._trial_s is not None
        if self.is_trying:
            self._trial_s = now

    def ended(self, now: float = -inf) -> None:
        """A call ended, at `now` if it was served: if it was the trial, another one may follow."""
        self.is_trying = False
        self._ended_s = max(self._ended_s, now)

    def unreachable(self, now: float) -> None:
        """Not one byte could be sent."""
        self._trial_s = now if self._trial_s is None else self._trial_s
        self._failed_s = now

    def broken(self, now: float) -> None:
        """A connection broke: the next call finds out whether the provider is there."""
        if self._trial_s is None:
            self._trial_s = now - UNREACHABLE_S

    def reached(self, sent_s: float = inf) -> None:
        """There is a connection, or a call that was sent then has an answer."""
        if sent_s > self._failed_s:
            self._trial_s = None

    def answered(self, sent_s: float) -> None:
        """A call was let in: neither out of reach nor overloaded nor crowded out."""
        self._overloads = self._idle_refusals = 0
        if sent_s > self._refused_s:
            if self.patient_s > self._refused_s + self._grace_s:
                self._grace_s /= 4.0
            self._refused_s = inf
        self.reached(sent_s)

    def close(self, reason: str) -> None:
        """Waiting does not help: no call is made any more."""
        self._closed = self._closed or reason

    def reopen(self) -> None:
        """The account may have been paid since: one call finds out."""
        self._closed = ""

    def overloaded(self, fault: Fault, sent_s: float, now: float) -> bool:
        """The provider is overloaded: wait longer each time. False for calls sent earlier."""
        is_new = sent_s > self.overload_s
        if is_new:
            self.overload_s = now
            if fault.kind == "overload":
                self._overloads += 1
                wait_s = fault.retry_after_s or backoff_s(1.0, 2.0, self._overloads - 1)
                self._until_s = now + min(wait_s, OVERLOAD_S_MAX)
                self._reason = "provider overloaded"
        return is_new

    def crowded(self, in_flight: int, now: float) -> None:
        """One call too many. A free slot ends the wait; only without any of ours does a clock."""
        if in_flight > 0:
            return
        self._idle_refusals += 1
        self._until_s = now + min(CROWDED_S_MAX, backoff_s(0.25, 2.0, self._idle_refusals))
        self._reason = "others hold every slot"

    def took_place(self, sent_s: float) -> bool:
        """Whether a call was sent just after another had ended."""
        return sent_s < self._ended_s + PLACE_S

    def place_late(self, now: float) -> None:
        """The place that a call took was not free yet."""
        self._until_s = max(self._until_s, now + PLACE_S)
        self._reason = "a slot is not free yet"

    def throttled(self, now: float) -> None:
        """A call was refused by a rate."""
        self._refused_s = min(self._refused_s, now)
        beyond_s = max(0.0, now - self._refused_s - self._grace_s)
        self.patient_s = now + min(PATIENCE * beyond_s, HOLD_S_MAX)

    def burst_refused(self, wait_s: float | None, now: float) -> None:
        """Enough was left of the limit that was named."""
        self._until_s = now + min(wait_s or WAIT_UNTOLD_S, HOLD_S_MAX)
        self._reason = "a burst was refused"


PLACE_LEFT: Final = "room for an interactive session"
"""Why a call of a run is not sent although the account would take one more at once."""
SMOOTH_S: Final = 1.0
"""A smooth flow may bunch at most this many seconds of a limit."""


class Profile(Struct, frozen=True):
    """What one run learned of an account and the next one starts with."""

    limits: tuple[Limit, ...] = ()
    width: float = WIDTH_AT_START
    cap: float = inf
    cap_probes: int = 0
    first_byte_s: float = FIRST_BYTE_S
    per_token_s: float = PER_TOKEN_S
    per_second: float = inf
    """Calls that may leave within one second, where a burst was refused."""
    curves: tuple[Samples, Samples] = ((), ())
    """Time to first byte, and per token or of whole answers, by calls in flight."""
    kept: tuple[str, ...] = ()
    """Names of limits of which reservations do not come back."""
    hidden: KnownRate | None = None
    """Of a limit that only refusals showed."""
    returned: tuple[str, ...] = ()
    """Names of limits of which reservations were seen to come back."""

    @property
    def is_measured(self) -> bool:
        """Whether it was seen what company costs."""
        return bool(self.curves[1])


class AccountConfig(Struct, frozen=True):
    """What is known or wanted before the first call."""

    dialect: Dialect = ANTHROPIC
    limits: tuple[Limit, ...] = ()
    share: float = 1.0
    """The user's ceiling: at most this share of every limit."""
    pace: Literal["fast", "smooth"] = "fast"
    """Fast spends a burst at once; smooth spaces calls evenly."""
    profile: Profile | None = None
    reserve: float = 0.0
    """Of the share, what only interactive calls use."""


class Account:
    """One account and model group, as far as it is known."""

    def __init__(
        self, config: AccountConfig, now: float, allowances: Allowances | None = None,
        group: str = "",
    ) -> None:  # fmt: skip
        profile = config.profile or Profile()
        self.config = config
        """Limits that are found follow the dialect that is in here by then."""
        self.pauses = Pauses(config.share)
        self.allowances = Allowances() if allowances is None else allowances
        """Of all model groups of the account."""
        self.group = group
        self.presence = PersonActivity(self.allowances.presence)
        self.advice = RetryAdvice()
        self._let_in_s = -inf
        """When a call was last let in."""
        self.hidden: HiddenLimits | None = None
        if profile.hidden is not None:
            self.hidden = HiddenLimits(now, profile.hidden)
        self.ramp = Ramp(profile.per_second, now)
        self.speed = AnswerSpeed(profile.first_byte_s, profile.per_token_s, now)
        named = {limit.name for limit in config.limits}
        learned = [limit for limit in profile.limits if limit.name not in named]
        limits = [*learned, *config.limits]
        rates = [limit for limit in limits if limit.resource != "concurrency"]
        self.limits = [_tracked(limit, config, now) for limit in rates]
        self.flows = any(limit.rule.flows for limit in self.limits)
        """Whether answers in flight take of a limit, so that their plans count."""
        slots = [limit.amount for limit in limits if limit.resource == "concurrency"]
        most = max(1.0, float(int(min(slots) * config.share))) if slots else inf
        cap = ConcurrencyLimit(profile.cap, profile.cap_probes, now, most)
        curves = None if config.profile is None else profile.curves
        self.width = Width(min(profile.width, most), cap, curves)

    def wait(self, call: Call, waiting: int, now: float) -> Wait | None:
        """What holds this call back, or None if it may be sent now."""
        demand, in_flight = call.demand, self.speed.in_flight
        held = self.pauses.wait(in_flight, now)
        if held is None and self.allowances.windows:
            reserve = 0.0 if demand.is_interactive else self.config.reserve
            tokens = demand.expected.input_tokens + demand.expected.output_tokens
            held = self.allowances.wait(self.group, self.config.share, now, reserve, tokens)
        if held is not None:
            return held
        leaves_room = now < self.presence.until_s and not demand.is_interactive
        crowded = self._crowded(demand, waiting, leaves_room, now)
        if crowded is not None:
            return crowded
        latest: Wait | None = None
        keeps_room = leaves_room or (not demand.is_interactive and self.presence.may_return(now))
        for limit in self.limits:
            wait = limit.wait(call, now, limit.room(now, leaves_room) if keeps_room else 0.0)
            if wait is not None and (latest is None or wait.until_s > latest.until_s):
                latest = wait
        if latest is None and self.hidden is not None:
            until_s = self.hidden.when(demand, now)
            if until_s > now:
                latest = Wait("hidden limit", until_s, "rate learned from refusals")
        patient_s = self.pauses.patient_s
        if patient_s > now and (latest is None or latest.until_s < patient_s):
            return Wait("account", patient_s, "call after call was refused")
        return latest

    def _crowded(self, demand: Demand, waiting: int, leaves_room: bool, now: float) -> Wait | None:
        """What keeps a call from joining those in flight."""
        in_flight, shared, left, is_left = self.speed.in_flight, self.allowances, 0.0, False
        is_active = now < shared.presence.until_s
        if self.width.takes(in_flight) and not (is_active or self.config.reserve):
            width = inf
        elif demand.is_interactive:
            width = self.width.firm
        else:
            width = self.width.limit(in_flight, waiting, demand.is_whole, now)
            if is_active or self.config.reserve:
                own = self._places_left(self.presence, self.width.firm, leaves_room)
                most = max(self.presence.in_flight + 1.0, self.width.firm - own)
                is_left, width = most < width, min(most, width)
                left = self._places_left(shared.presence, shared.slots, is_active)
        if in_flight >= width:
            # A try that is due or under way ends with an answer, not with a time.
            probe_s = self.width.next_probe_s(width, now)
            until_s = probe_s if probe_s > now else inf
            why = PLACE_LEFT if is_left else f"{in_flight} in flight"
            return Wait("concurrency", until_s, why)
        if shared.slots < inf and shared.in_flight >= max(1.0, shared.slots - left):
            is_left = shared.in_flight < shared.slots
            why = PLACE_LEFT if is_left else f"{shared.in_flight} in flight on the account"
            return Wait("concurrency", inf, why)
        if demand.is_interactive:
            return None
        if in_flight >= self.width.tried:
            ventures_s = self.width.departs_s(now)
            if ventures_s > now:
                return Wait("concurrency", ventures_s, "more than were ever in flight")
        if self.ramp.most < inf and (departs_s := self.ramp.when(now)) > now:
            return Wait("burst", departs_s, "a burst was refused")
        return None

    def _places_left(self, person: PersonActivity, most: float, is_active: bool) -> float:
        """Slots that runs leave to a person: one, or the reserved share, less those in use."""
        kept = most * self.config.reserve / self.config.share if most < inf else 0.0
        return max(0.0, max(1.0 if is_active else 0.0, kept) - person.in_flight)

    def can_ever(self, demand: Demand) -> bool:
        """Whether the call can be admitted at all, however long it waits."""
        return all(limit.can_ever(demand) for limit in self.limits)

    def charge(self, call: Call, now: float) -> None:
        """Take the call's share of everything; it keeps the levels for later comparison."""
        self.ramp.sent(now)
        self.pauses.sent(now)
        if call.demand.is_interactive:
            self.presence.fly(1)
        if self.allowances.windows:
            self.allowances.sent(self.group, now)
        self.width.sent(self.speed.in_flight + 1, now)
        if self.hidden is None and not self.limits:
            self.hidden = HiddenLimits(now)
        if self.hidden is not None:
            self.hidden.granted(call.demand, now)
        levels = []
        for limit in self.limits:
            levels.append(limit.charge(call, now))
        call.levels = tuple(levels)

    def adopt(self, call: Call, known_s: float, now: float) -> None:
        """A call sent under another process's permit; levels of `known_s` contain earlier ones."""
        self.presence.fly(call.demand.is_interactive)
        flowed = call.stream.produced(now) - call.stream.produced(known_s)
        for limit in self.limits:
            limit.join(call, call.sent_s > known_s, now)
            if isinstance(limit.meter, FlowingMeter):
                limit.meter.charge(flowed, now)

    def answered(self, call: Call, now: float) -> None:
        """A call was let in."""
        sent_s, company = call.sent_s, call.company
        self._let_in_s = now
        self.width.served(company, now)
        self.pauses.answered(sent_s)
        self.advice.accepted(sent_s)
        if self.hidden is not None and self.hidden.accepted(sent_s, company, now) == "crowd":
            self.width.cap.lift()

    def settle(self, call: Call, used: Amounts, now: float) -> None:
        """The call ran."""
        self.pauses.ended(now)
        if call.demand.is_interactive:
            self.presence.fly(-1)
        for limit in self.limits:
            limit.settle(call, used, now)
        if self.hidden is not None:
            self.hidden.settled(call.demand, call.sent_s, used)
            if not self.advice.is_honest:
                self.hidden.try_soon(now)

    def give_back(self, call: Call, how: SettledAs, now: float) -> None:
        """The call did not run. A refusal stays charged where the provider counts it."""
        self.pauses.ended()
        self.presence.fly(-call.demand.is_interactive)
        self.ramp.returned()
        if self.hidden is not None:
            self.hidden.returned(call.demand, call.sent_s)
        is_counted = how == "throttled" and self.config.dialect.refusals_count
        for limit in self.limits:
            is_kept = is_counted and limit.limit.resource == "requests"
            limit.give_back(call, is_kept, now)

    def failed(self, call: Call, fault: Fault, reading: Reading, now: float) -> None:
        """A fault: whom it concerns, and what follows."""
        sent_s, in_flight = call.sent_s, self.speed.in_flight
        if fault.kind in ANSWERS:
            self.pauses.reached(sent_s)
        if fault.kind in ("spend_cap", "billing"):
            self.pauses.close(f"{fault.kind}: {fault.detail}")
        elif fault.kind == "connection":
            self.pauses.unreachable(now)
        elif fault.kind == "broken":
            self.pauses.broken(now)
        elif (
            fault.kind == "overload"
            and fault.retry_after_s is None
            and self._let_in_s > self.pauses.overload_s
        ):
            # Others are let in: the account has a limit that is told in no other way.
            self._throttled(call, fault, reading, now)
        elif fault.kind in ("overload", "timeout"):
            if self.pauses.overloaded(fault, sent_s, now):
                self.width.overloaded(in_flight, now)
        elif fault.kind == "concurrency":
            if not self._came_early(sent_s, now):
                self.width.cap.refused(in_flight, now)
                self.pauses.crowded(in_flight, now)
        elif fault.kind == "rate":
            self._throttled(call, fault, reading, now)

    def observe(
        self, reading: Reading, call: Call, at_s: float, now: float, is_refusal: bool = False
    ) -> list[TrackedLimit]:
        """Learn from a response; returns limits that calls in flight have to join."""
        demand, levels = call.demand, call.levels
        found: list[TrackedLimit] = []
        for told in reading.limits:
            if told.window:
                may_probe = not self.config.dialect.refusals_count
                refused = self.group if is_refusal else ""
                self.allowances.observe(told, refused, may_probe, at_s, now)
                continue
            meant = self._meant(told)
            known = next(
                (place for place, one in enumerate(self.limits) if is_about(one.limit, meant)), None
            )
            if known is None:
                limit = _discover(told, self.config.dialect)
                if limit is not None and not (is_refusal and _is_absurd(limit, demand)):
                    found.append(self._follow(limit, None, told, at_s, now))
                    self.limits.append(found[-1])
                    if not is_refusal:
                        found[-1].revised(found[-1].heeded(told), demand, at_s, now)
                continue
            tracked = self.limits[known]
            tracked.is_untold = _named_period(told, self.config.dialect) is None
            heeded = told if is_refusal else tracked.heeded(told)
            revised = None if is_refusal else tracked.revised(heeded, demand, at_s, now)
            if revised is not None:
                fresh = self._follow(revised, tracked, heeded, at_s, now)
                self.limits[known] = fresh
                found.append(fresh)
            else:
                level = levels[known] if known < len(levels) else None
                tracked.observe(heeded, demand, level, at_s, now)
        self.flows = self.flows or any(limit.rule.flows for limit in found)
        hidden = self.hidden
        if found and hidden is not None and hidden.refusals == 0 and hidden.known is None:
            self.hidden = None
        return found

    def cost_s(self, amounts: Amounts) -> float:
        """Seconds for which a call takes the whole of the resource that it needs most of."""
        cost_s = 0.0 if self.limits else 1.0
        for limit in self.limits:
            cost_s = max(cost_s, limit.cost_s(amounts))
        return cost_s

    def profile(self) -> Profile:
        """What the next run starts with. A suspected cap counts once calls were served at it."""
        width, cap = self.width.allowed, self.width.cap
        is_suspected = self.hidden is not None and self.hidden.refusals > 0
        if is_suspected:
            # More than were ever tried would begin the next run with a burst of refusals.
            width = min(width, self.width.tried)
        if width >= cap.most:
            # What the user's own limit held back says nothing of how far it would have gone.
            width = max(width, float(WIDTH_AT_START))
        return Profile(
            tuple(limit.as_profile() for limit in self.limits), width,
            cap.limit if cap.limit < cap.most and (cap.is_proven or not is_suspected) else inf,
            cap.probes,
            self.speed.first_byte_s, self.speed.per_token_s,
            self.ramp.most if self.limits else inf,
            (self.width.first_bytes.kept(), self.width.pieces.kept()),
            tuple(one.limit.name for one in self.limits if one.rule.keeps),
            None if self.hidden is None else self.hidden.known,
            tuple(one.limit.name for one in self.limits if one.returns),
        )  # fmt: skip

    def standing(self, now: float) -> tuple[LimitReading, ...]:
        """How the limits stand, as readings; `utilization` is our own share under a ceiling."""
        return tuple(_standing(limit, now) for limit in self.limits)

    def restore(self, levels: tuple[LimitReading, ...], at_s: float, now: float) -> None:
        """Go on from where the limits stood at `at_s`. The account is new."""
        for limit in self.limits:
            for told in levels:
                if is_about(limit.limit, told):
                    _restore(limit, told, at_s, now)

    def _meant(self, told: LimitReading) -> LimitReading:
        """A reading without a period, with the provider's usual one if such a limit is known."""
        if told.period_s is None:
            own_s = _named_period(told, self.config.dialect)
            for one in self.limits:
                if (one.limit.resource, one.limit.period_s) == (told.resource, own_s):
                    return replace(told, period_s=own_s)
        return told

    def _follow(
        self, limit: Limit, replaced: TrackedLimit | None, told: LimitReading, at_s: float,
        now: float,
    ) -> TrackedLimit:  # fmt: skip
        tracked = _tracked(limit, self.config, now)
        if replaced is not None:
            tracked.evidence, tracked.personal = replaced.evidence, replaced.personal
        tracked.adopt(told, at_s, now)
        return tracked

    def _throttled(self, call: Call, fault: Fault, reading: Reading, now: float) -> None:
        """A limit per period was short: the one that was named, or one that we cannot see."""
        if any(one.is_empty for one in reading.limits):
            return
        demand, sent_s = call.demand, call.sent_s
        self.pauses.throttled(now)
        reading = replace(reading, limits=tuple([self._meant(told) for told in reading.limits]))
        named = [one for one in self.limits if one.limit.resource == fault.resource]
        if fault.resource is None:
            # The one that, by the refusal's own headers, has too little for this call.
            named = [one for one in self.limits if one.is_short(demand, reading)]
        told_s = fault.retry_after_s
        is_certain = any(one.confirms(told_s, now) for one in named)
        may_try = not (is_certain or self.config.dialect.refusals_count)
        wait_s = self.advice.heeded_s(told_s, sent_s, may_try, now)
        if named:
            limit = min(named, key=lambda one: one.left(reading, now))
            is_trial = told_s is not None and (wait_s is None or wait_s < told_s)
            if limit.refused(demand, reading, wait_s, is_trial, now):
                self.ramp.refused(now)
                self.pauses.burst_refused(wait_s, now)
            return
        if told_s is None and self._came_early(sent_s, now):
            return
        if self.hidden is None:
            self.hidden = HiddenLimits(now)
        suspect = self.hidden.refused(demand, sent_s, self.speed.in_flight, wait_s, now)
        if suspect == "crowd":
            self.width.cap.refused(self.speed.in_flight, now)
            self.width.cap.probe_soon(now)
            self.pauses.crowded(self.speed.in_flight, now)
        elif suspect == "rate":
            self.ramp.refused(now)
            self.width.cap.lift()
        else:
            self.width.cap.lower(self.speed.in_flight)

    def _came_early(self, sent_s: float, now: float) -> bool:
        """Whether a call was refused only because the one before it in its place still counted."""
        is_early = self.pauses.took_place(sent_s) and self.width.cap.was_late()
        if is_early:
            self.pauses.place_late(now)
        return is_early


def _tracked(limit: Limit, config: AccountConfig, now: float) -> TrackedLimit:
    """A limit as the user wants it used: evenly if asked for, up to a share of it."""
    if config.pace == "smooth" and limit.kind == "bucket":
        limit = replace(limit, burst=limit.rate_per_s * SMOOTH_S)
    rounded = limit.resource in ("input", "output", "tokens")
    rounding = config.dialect.tokens_step / 2 if rounded else 0.0
    charging = config.dialect.charging
    if config.profile is not None and limit.name in config.profile.kept:
        charging = "kept"
    tracked = TrackedLimit(limit, charging, config.share, rounding, now, config.reserve)
    tracked.burst_s = SMOOTH_S if config.pace == "smooth" else inf
    tracked.is_published = config.dialect.limit_kind is not None
    tracked.returns = config.profile is not None and limit.name in config.profile.returned
    return tracked


def _standing(tracked: TrackedLimit, now: float) -> LimitReading:
    limit, meter, ceiling = tracked.limit, tracked.meter, tracked.ceiling
    level = tracked.level(now)
    reset_s = meter.boundary_s - now if isinstance(meter, FixedWindow) else None
    ours = None
    if ceiling is not None:
        ours = (ceiling.size - ceiling.level(now)) / max(1.0, limit.amount)
    return LimitReading(limit.resource, limit.period_s, limit.amount, level, reset_s, ours)


def _restore(tracked: TrackedLimit, told: LimitReading, at_s: float, now: float) -> None:
    meter, limit, ceiling = tracked.meter, tracked.limit, tracked.ceiling
    amount, remaining = told.limit or 0.0, told.remaining or 0.0
    # Of a bucket without a ceiling it is not known what we took in a period.
    ours = 0.0
    if isinstance(meter, Bucket):
        meter.set_level(remaining + meter.rate_per_s * (now - at_s), now)
    else:
        if isinstance(meter, FixedWindow) and told.reset_s is not None:
            # Aligned as it was, even where that window is over by now.
            meter.boundary_s = at_s + told.reset_s
        ours = amount - remaining
        tracked.meter.charge(ours, at_s)
    if told.utilization is not None:
        ours = told.utilization * max(1.0, amount)
    if limit.kind == "gauge" or now - at_s < limit.period_s:
        # Whose it was is not known: it is taken to have been the runs'.
        for own in (ceiling, tracked.others):
            if own is not None:
                own.charge(ours, now)


def _named_period(told: LimitReading, dialect: Dialect) -> float | None:
    """The period of a reading or, where it names none, that of its provider's usual limits."""
    own_s = dialect.requests_period_s if told.resource == "requests" else dialect.tokens_period_s
    return told.period_s or own_s


def _is_absurd(limit: Limit, demand: Demand) -> bool:
    """Whether a limit is too small for the call that was refused, and so another one's."""
    return ChargingRule(limit.resource, "reserved").takes(demand)[0] > limit.amount


def _discover(told: LimitReading, dialect: Dialect) -> Limit | None:
    """The limit that a first reading speaks of, or None if it says too little."""
    if not told.limit or told.remaining is None:
        return None
    period_s = _named_period(told, dialect) or MINUTE_S
    rate = told.limit / period_s
    kind: LimitKind = dialect.limit_kind or "bucket"
    refill_s = max(0.0, told.limit - told.remaining) / rate
    if told.reset_s and told.reset_s > WINDOW_RESETS * refill_s + WINDOW_RESETS:
        kind = "fixed"
    burst = None
    is_full = dialect.limit_kind is not None and told.reset_s == 0.0 and told.remaining > 0
    is_told = bool(told.reset_s) or is_full
    if kind == "bucket" and is_told:
        burst = max(1e-6, min(told.limit, told.remaining + rate * (told.reset_s or 0.0)))
    return Limit(told.resource, told.limit, period_s, kind, burst, "header")
