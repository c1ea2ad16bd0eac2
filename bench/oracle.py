"""The first version as an oracle: equal calls at equal instants on accounts that are known exactly.

    python -m bench.oracle [TRACES]

Limits are configured, sizes are exact, answers come as fast as the profile says, nothing is refused
and the width is wide: here no behaviour was meant to change, but for what `change_of` names. Each
trace is drawn from its number: limits of every kind, calls of several flows that come, wait, leave,
answer, and end used or unused, some of them settled twice. Both versions get the same trace; the
instants at which calls are sent, the results of every settlement and the levels of all limits at
the end are compared.
"""

from __future__ import annotations

import heapq
import sys
from math import inf
from typing import Any, Final, Literal

from msgspec import Struct

from bench.first import package
from headway.base.values import Amounts, Demand, Limit, LimitKind, Reading, Resource
from headway.pacing.account import AccountConfig, Profile
from headway.pacing.call import Call
from headway.pacing.calls import AccountCalls
from headway.pacing.limits import FLOOR_SHARE
from headway.pacing.meters import NEARLY_FULL
from headway.pacing.streams import BIN_S
from headway.sim.draw import uniform
from headway.sim.headers import dialect_of

STREAM: Final = 977

TRACES: Final = 2000

WIDE: Final = 10_000.0

SLACK_S: Final = 2e-3
"""Both versions decide again a millisecond after a wait that ended in rounding."""

SLACK: Final = 1e-6

FIRST_BYTE_S: Final = 0.5
PER_TOKEN_S: Final = 0.01

PERIODS_S: Final = (1.0, 5.0, 10.0, 60.0, 300.0)
KINDS: Final[tuple[LimitKind, ...]] = ("bucket", "sliding", "fixed")
RESOURCES: Final[dict[str, tuple[Resource, ...]]] = {
    "anthropic": ("requests", "input", "output"), "openai": ("requests", "tokens"),
    "plain": ("requests",),
}  # fmt: skip

Step = Literal["ask", "leave", "answer", "end"]


class OracleCall(Struct, frozen=True):
    """One call of a trace."""

    asked_s: float
    demand: Demand
    path: tuple[str, ...]
    rank: tuple[float, ...]
    is_used: bool
    leaves_s: float
    """When it gives up waiting."""


class Trace(Struct, frozen=True):
    """An account and the calls that are made on it."""

    number: int
    dialect: str
    limits: tuple[Limit, ...]
    share: float
    pace: Literal["fast", "smooth"]
    calls: tuple[OracleCall, ...]


class Seen(Struct):
    """What a version did with a trace."""

    sent_s: dict[int, float]
    settled: list[tuple[int, bool]]
    levels: tuple[float, ...] = ()


def draw_trace(number: int) -> Trace:
    """The trace of a number."""
    count = 0

    def dice() -> float:
        nonlocal count
        count += 1
        return uniform(number, STREAM, count)

    dialect = tuple(RESOURCES)[int(dice() * len(RESOURCES))]
    tokens = 10.0 ** (1.0 + 2.0 * dice())
    size = {"requests": 1.0, "input": 5 * tokens, "output": tokens, "tokens": 6 * tokens}
    limits: list[Limit] = []
    for resource in RESOURCES[dialect]:
        if dice() < 0.7 or not limits:
            kind, period_s = KINDS[int(dice() * 3)], PERIODS_S[int(dice() * 5)]
            amount = float(max(1, round(size[resource] * 2.0 * 60.0 ** dice())))
            is_burst = kind == "bucket" and dice() < 0.5
            burst = amount * (0.1 + 0.9 * dice()) if is_burst else None
            limits.append(Limit(resource, amount, period_s, kind, burst))
    if dice() < 0.3:
        limits.append(Limit("concurrency", float(1 + int(dice() * 12)), 0.0, "gauge"))
    calls, at_s = [], 0.0
    gap_s = dice() * 2.0
    for _ in range(10 + int(dice() * 50)):
        at_s += gap_s * dice() if dice() < 0.7 else 0.0
        own = float(max(1, round(tokens * (0.3 + 1.4 * dice()))))
        amounts = Amounts(5 * own, own)
        leaves_s = at_s + 30.0 * dice() if dice() < 0.05 else inf
        calls.append(
            OracleCall(at_s, Demand(amounts, amounts), (f"flow {int(dice() * 3)}",), (dice(),),
                       dice() < 0.9, leaves_s)
        )  # fmt: skip
    share = 0.5 if dice() < 0.2 else 1.0
    return Trace(number, dialect, tuple(limits), share, "smooth" if dice() < 0.1 else "fast",
                 tuple(calls))  # fmt: skip


def change_of(trace: Trace) -> str:
    """What was meant to change for an account and calls like these; nothing for most."""
    if trace.pace == "smooth":
        return "a smooth pace is a bucket of one call, which goes before it is full"
    for limit in trace.limits:
        most = max(_size(limit, one.demand.ceiling) for one in trace.calls)
        if limit.kind == "bucket" and most > (NEARLY_FULL - FLOOR_SHARE) * limit.capacity:
            return "a call of over 90 % of a bucket, with the floor, goes before it is full"
    for limit in trace.limits:
        is_short = (
            limit.kind == "bucket" and limit.rate_per_s * BIN_S > FLOOR_SHARE * limit.capacity
        )
        if limit.resource == "output" and (is_short or limit.kind != "bucket"):
            return CHANGED_OUTPUT[limit.kind]
    return ""


CHANGED_OUTPUT: Final[dict[LimitKind, str]] = {
    "bucket": "produced output in a bucket of a few seconds: a floor of 15 % at most, 50 % before",
    "sliding": "produced output in a sliding window: followed along the streams, not held whole",
    "fixed": "produced output in a fixed window: of a long answer, a window's part is held",
}


def _size(limit: Limit, amounts: Amounts) -> float:
    sizes = {"requests": 1.0, "input": amounts.input_tokens, "output": amounts.output_tokens,
             "tokens": amounts.input_tokens + amounts.output_tokens}  # fmt: skip
    return sizes.get(limit.resource, 0.0)


class NewVersion:
    """This tree's admission."""

    def __init__(self, trace: Trace) -> None:
        flat = tuple(
            tuple((width, 100.0, time_s, 1.0) for width in (1.0, WIDE))
            for time_s in (FIRST_BYTE_S, PER_TOKEN_S)
        )
        profile = Profile(width=WIDE, first_byte_s=FIRST_BYTE_S, per_token_s=PER_TOKEN_S,
                          curves=(flat[0], flat[1]))  # fmt: skip
        config = AccountConfig(
            dialect_of(trace.dialect), trace.limits, trace.share, trace.pace, profile
        )
        self._calls = AccountCalls(config, 0.0)
        self._known: dict[int, Call] = {}

    def ask(self, number: int, one: OracleCall, now: float) -> None:
        self._known[number] = call = Call(("", number), now, one.path, one.rank, one.demand)
        self._calls.ask(call)

    def leave(self, number: int) -> None:
        self._calls.leave(self._known[number])

    def decide(self, now: float) -> tuple[list[int], float]:
        decision = self._calls.decide(now)
        return [call.id[1] for call in decision.sent], decision.wake_s

    def answer(self, number: int, now: float) -> None:
        self._calls.first_byte(self._known[number], Reading(), now)

    def end(self, number: int, is_used: bool, amounts: Amounts, now: float) -> bool:
        how: Literal["used", "unused"] = "used" if is_used else "unused"
        return self._calls.settle(self._known[number], how, amounts, now)

    def levels(self, now: float) -> tuple[float, ...]:
        return tuple(limit.meter.available(now) for limit in self._calls.account.limits)


class FirstVersion:
    """The first version's admission, from its commit."""

    def __init__(self, trace: Trace) -> None:
        found = package()
        self._values: Any = found["values"]
        profile = found["account"].Profile(
            width=WIDE, first_byte_s=FIRST_BYTE_S, per_token_s=PER_TOKEN_S
        )
        limits = tuple(
            self._values.Limit(one.resource, one.amount, one.period_s, one.kind, one.burst)
            for one in trace.limits
        )
        headers = found["headers"]
        dialect = headers.DIALECTS.get(trace.dialect, headers.PLAIN)
        config = found["account"].QuotaConfig(dialect, limits, trace.share, trace.pace, profile)
        self._quota: Any = found["quota"].Quota(config, 0.0)
        self._places: dict[int, int] = {}
        self._numbers: dict[int, int] = {}
        self._permits: dict[int, int] = {}

    def ask(self, number: int, one: OracleCall, now: float) -> None:
        amounts = self._amounts(one.demand.expected)
        demand = self._values.Demand(amounts, amounts, one.demand.kind)
        place = self._quota.ask(demand, one.path, one.rank, now)
        self._places[number], self._numbers[place] = place, number

    def leave(self, number: int) -> None:
        self._quota.leave(self._places[number])

    def decide(self, now: float) -> tuple[list[int], float]:
        # Its width falls now and then for what it takes for a queue; that was removed.
        self._quota.belief.width.allowed = WIDE
        decision = self._quota.decide(now)
        sent = []
        for grant in decision.grants:
            number = self._numbers[grant.place]
            self._permits[number] = grant.permit.id
            sent.append(number)
        return sent, decision.wake_s

    def answer(self, number: int, now: float) -> None:
        self._quota.first_byte(self._permits[number], self._values.Reading(), now)

    def end(self, number: int, is_used: bool, amounts: Amounts, now: float) -> bool:
        usage = self._values.Usage(self._amounts(amounts))
        how = "used" if is_used else "unused"
        return bool(self._quota.settle(self._permits[number], how, usage, now))

    def levels(self, now: float) -> tuple[float, ...]:
        return tuple(mirror.meter.available(now) for mirror in self._quota.belief.mirrors)

    def _amounts(self, amounts: Amounts) -> Any:
        return self._values.Amounts(amounts.input_tokens, amounts.output_tokens)


def play(trace: Trace, version: NewVersion | FirstVersion) -> Seen:
    """What a version does with a trace, in virtual time."""
    seen = Seen({}, [])
    agenda: list[tuple[float, int, Step]] = []
    for number, one in enumerate(trace.calls):
        agenda.append((one.asked_s, number, "ask"))
        if one.leaves_s < inf:
            agenda.append((one.leaves_s, number, "leave"))
    heapq.heapify(agenda)
    now, wake_s = 0.0, inf
    while agenda or wake_s < inf:
        now = max(now, min(agenda[0][0] if agenda else inf, wake_s))
        while agenda and agenda[0][0] <= now:
            _, number, step = heapq.heappop(agenda)
            one = trace.calls[number]
            if step == "ask":
                version.ask(number, one, now)
            elif step == "answer":
                version.answer(number, now)
            elif step == "end":
                amounts = one.demand.expected if one.is_used else Amounts()
                for _ in range(1 + number % 2):
                    seen.settled.append((number, version.end(number, one.is_used, amounts, now)))
            elif number not in seen.sent_s:
                version.leave(number)
        sent, wake_s = version.decide(now)
        for number in sent:
            seen.sent_s[number] = now
            answers_s = now + FIRST_BYTE_S
            if trace.calls[number].is_used:
                heapq.heappush(agenda, (answers_s, number, "answer"))
                answers_s += PER_TOKEN_S * trace.calls[number].demand.expected.output_tokens
            heapq.heappush(agenda, (answers_s, number, "end"))
    # Any refill is over, so that only what was never given back differs.
    seen.settled.sort()
    seen.levels = version.levels(now + 10.0 * max(PERIODS_S))
    return seen


def compare(trace: Trace) -> str:
    """How the new version differs from the first; nothing if it does not."""
    first, new = play(trace, FirstVersion(trace)), play(trace, NewVersion(trace))
    if first.sent_s.keys() != new.sent_s.keys():
        return "another call had left before it could be sent"
    if first.settled != new.settled:
        return "settlement"
    apart = [new.sent_s[number] - at_s for number, at_s in first.sent_s.items()]
    if max(map(abs, apart), default=0.0) > SLACK_S:
        ends = max(first.sent_s.values()), max(new.sent_s.values())
        if abs(ends[1] - ends[0]) <= SLACK_S:
            return "order"
        return "sooner" if ends[1] < ends[0] else "later"
    pairs = zip(first.levels, new.levels, strict=True)
    if any(abs(a - b) > SLACK * max(1.0, abs(a)) for a, b in pairs):
        return "levels at the end"
    return ""


def survey(count: int = TRACES) -> dict[str, dict[str, list[int]]]:
    """By what was meant to change and by how the versions differ: the numbers of the traces."""
    found: dict[str, dict[str, list[int]]] = {"": {}}
    for number in range(count):
        trace = draw_trace(number)
        found.setdefault(change_of(trace), {}).setdefault(compare(trace), []).append(number)
    return found


def main() -> int:
    """The command."""
    found = survey(int(sys.argv[1]) if len(sys.argv) > 1 else TRACES)
    for change, kinds in found.items():
        total, equal = sum(map(len, kinds.values())), len(kinds.get("", ()))
        print(f"{change or 'not meant to change'}: {total} traces, {equal} equal")
        for kind, numbers in kinds.items():
            if kind:
                print(f"  {len(numbers)} differ: {kind} (such as {numbers[:8]})")
    return int(bool(found[""].keys() - {""}))


if __name__ == "__main__":
    sys.exit(main())
