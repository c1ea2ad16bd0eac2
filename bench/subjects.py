"""The operations whose cost is measured: admission, a long queue, headers, the engine.

Nothing here needs more than headway's core, so that peers can be measured beside it by any
interpreter.
"""

from __future__ import annotations

import gc
import tracemalloc
from collections import deque
from math import inf
from time import thread_time_ns
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from bench.timing import Spread, clock_ns, each, spread
from headway.base.values import (  # fmt: skip
    Amounts,
    Demand,
    Limit,
    LimitReading,
    Reading,
    Resource,
    Sketch,
    Tally,
)
from headway.engine.engine import begin, step
from headway.engine.events import Began, CallAdmitted, Finished, Input, StartAttempt
from headway.engine.state import Rules
from headway.engine.strategy import ADAPTIVE
from headway.pacing.account import AccountConfig, Profile
from headway.pacing.admission import Admission
from headway.pacing.call import Call, Outcome, Request
from headway.pacing.calls import AccountCalls
from headway.pacing.headers import decode
from headway.pacing.memory import AccountTerms, PacingMemory
from headway.plans.graph import Graph, Task
from headway.sim.headers import headers
from headway.sim.rehearsal import EPOCH_S

WAITERS: Final = 100_000
FLOWS: Final = 100

LIMITS: Final = (
    Limit("requests", 60_000),
    Limit("input", 120_000_000),
    Limit("output", 30_000_000),
    Limit("concurrency", 64, 0.0, "gauge"),
)
"""An account that takes a thousand calls of 2,000 and 500 tokens a second."""

AMPLE: Final = tuple(
    replace(limit, amount=limit.amount * 1000) if limit.kind != "gauge" else limit
    for limit in LIMITS
)
"""The same account, where only the width can bind."""

HOLD_S: Final = 0.02
"""How long a granted call is in flight while a queue drains."""

STEP_S: Final = 0.002
"""Between two calls: half of what the account takes, so that every call may be sent at once."""

USED: Final = Amounts(2000.0, 480.0)


def demand(index: int = 0) -> Demand:
    """A call's demand; no two in a row are equal."""
    tokens = 1900.0 + index % 200
    return Demand(Amounts(tokens, 500.0), Amounts(tokens, 4096.0), "bench")


def admit_and_settle(in_flight: int, count: int) -> Spread:
    """Admit one call and settle the oldest, with so many in flight."""
    calls = AccountCalls(AccountConfig(limits=LIMITS, profile=Profile(width=64.0)), 0.0)
    held: deque[Call] = deque()
    now, samples = 0.0, []
    wanted = [demand(index) for index in range(256)]
    for index in range(count + in_flight):
        now += STEP_S
        asked = wanted[index % 256]
        began = thread_time_ns()
        call = Call(("bench", index), now, demand=asked)
        calls.ask(call)
        if not calls.decide(now).sent:
            raise RuntimeError(f"the account should have room: {calls.wait}")
        held.append(call)
        if len(held) >= in_flight:
            calls.settle(held.popleft(), "used", USED, now)
            samples.append(thread_time_ns() - began)
    return spread(samples, overhead_ns=clock_ns())


def whole_call(count: int) -> Spread:
    """Admit, first byte with its headers decoded, settle: all that one call costs."""
    calls = AccountCalls(AccountConfig(limits=LIMITS), 0.0)
    now, samples = 0.0, []
    for index in range(count):
        now += STEP_S
        said = headers("anthropic", _readings(1.0), EPOCH_S + now, None)
        asked = demand(index)
        began = thread_time_ns()
        call = Call(("bench", index), now, demand=asked)
        calls.ask(call)
        if not calls.decide(now).sent:
            raise RuntimeError(f"the account should have room: {calls.wait}")
        calls.first_byte(call, decode(said, EPOCH_S + now), now)
        calls.settle(call, "used", USED, now)
        samples.append(thread_time_ns() - began)
    return spread(samples, overhead_ns=clock_ns())


def admitted_call(count: int) -> Spread:
    """Ask, decide, first byte, settle in admission: what a broker keeps of a call included."""
    admission = Admission(PacingMemory(), lambda *_: None, 0.0)
    admission.configure("", AccountTerms(LIMITS), 0.0)
    sketch = Sketch("bench", size_bytes=8000, max_output_tokens=4096)
    outcome = Outcome("used", Tally(2000.0, 0.0, 480.0))
    request = Request("account", "anthropic", sketch)
    now, samples = 0.0, []
    for index in range(count):
        now += STEP_S
        call = ("bench", index)
        began = thread_time_ns()
        admission.ask(call, request, now)
        if not admission.decide(now).grants:
            raise RuntimeError("the account should have room")
        admission.first_byte(call, Reading(), "anthropic", now + STEP_S / 4)
        admission.settle(call, outcome, now + STEP_S / 2)
        samples.append(thread_time_ns() - began)
    return spread(samples, overhead_ns=clock_ns())


class Queue(Struct, frozen=True):
    """What many waiters cost."""

    memory_mb: float
    ask_us: float
    grant_us: float
    """From decision to settlement, per grant, where only the width limits: many at a time."""
    grant_at_limit_us: float
    """The same where a rate limits: every wake-up grants one call, and looks for others to pass."""


def many_waiters(waiters: int) -> Queue:
    """Put so many calls into the queue of one account, then drain it."""
    gc.collect()
    tracemalloc.start()
    calls = _filled(waiters, AMPLE)
    memory_mb = tracemalloc.get_traced_memory()[0] / 1e6
    tracemalloc.stop()
    began = thread_time_ns()
    calls = _filled(waiters, AMPLE)
    ask_us = (thread_time_ns() - began) / waiters / 1e3
    grant_us = _drain(calls, waiters)
    tight = tuple(replace(limit, burst=limit.rate_per_s) for limit in LIMITS[:3])
    at_limit_us = _drain(_filled(waiters, tight + LIMITS[3:]), waiters // 10)
    return Queue(memory_mb, ask_us, grant_us, at_limit_us)


def _filled(waiters: int, limits: tuple[Limit, ...]) -> AccountCalls:
    calls = AccountCalls(AccountConfig(limits=limits, profile=Profile(width=64.0)), 0.0)
    for index in range(waiters):
        rank = (1.0, -float(index % 977))
        path = ("account", f"run-{index % FLOWS}")
        calls.ask(Call(("bench", index), 0.0, path, rank, demand(index)))
    return calls


def _drain(calls: AccountCalls, grants: int) -> float:
    """CPU microseconds per grant until so many were given, each settled a little later."""
    held: deque[tuple[float, Call]] = deque()
    granted, now = 0, 0.0
    began = thread_time_ns()
    while granted < grants:
        decision = calls.decide(now)
        granted += len(decision.sent)
        held.extend((now + HOLD_S, call) for call in decision.sent)
        ends_s = held[0][0] if held else inf
        now = max(now, min(decision.wake_s, ends_s))
        while held and held[0][0] <= now:
            calls.settle(held.popleft()[1], "used", USED, now)
    return (thread_time_ns() - began) / granted / 1e3


def encode_headers(dialect: str, count: int) -> Spread:
    readings = _readings(1.0)
    return each(lambda: headers(dialect, readings, EPOCH_S, None), count)


def decode_headers(dialect: str, count: int) -> Spread:
    said = headers(dialect, _readings(1.0), EPOCH_S, None)
    return each(lambda: decode(said, EPOCH_S), count)


def _readings(reset_s: float) -> tuple[LimitReading, ...]:
    resources: tuple[Resource, ...] = ("requests", "input", "output")
    amounts = (60_000.0, 120_000_000.0, 30_000_000.0)
    return tuple(
        LimitReading(resource, 60.0, amount, 0.98 * amount, reset_s)
        for resource, amount in zip(resources, amounts, strict=True)
    )


class Engine(Struct, frozen=True):
    """What deciding costs."""

    steps: int
    steps_per_s: float
    begin_s: float


def engine_steps(tasks: int) -> Engine:
    """Take a run of so many tasks from begin to end: three inputs per task, nothing else."""
    one = demand()
    layer = 100
    graph = Graph.of([
        Task(f"t{i}", (f"t{i - layer}",) if i >= layer and i % 3 == 0 else (), (one,), 1.0)
        for i in range(tasks)
    ])  # fmt: skip
    before = thread_time_ns()
    state = begin(graph, Rules(ADAPTIVE))
    began = thread_time_ns()
    inputs: deque[Input] = deque([Began()])
    steps = 0
    while inputs:
        taken = step(state, inputs.popleft(), float(steps))
        steps += 1
        for effect in taken.effects:
            if isinstance(effect, StartAttempt):
                admitted = CallAdmitted(effect.task, float(steps))
                inputs += (admitted, Finished(effect.task, effect.attempt))
    ended = thread_time_ns()
    if not state.over:
        raise RuntimeError("the run did not end")
    return Engine(steps, steps / ((ended - began) / 1e9), (began - before) / 1e9)
