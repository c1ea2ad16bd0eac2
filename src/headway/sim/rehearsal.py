"""One discrete-event loop around engine, clients and provider, in virtual time.

Laws:
- Time jumps to the next thing that happens; nothing sleeps, nothing polls.
- The engine, the quota and the dialects are the ones that real runs use; only the provider and
  the clock are simulated. What a response says travels as headers and bytes, both ways.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Iterable, Sequence
from math import inf
from typing import Final, Literal

from msgspec import Struct, field
from msgspec.structs import replace

from headway.base.values import Amounts, Demand, Fault, Reading
from headway.engine.engine import begin, step
from headway.engine.events import (
    Began,
    CallAdmitted,
    CallWaited,
    Event,
    Failed,
    Finished,
    Input,
    StartAttempt,
    TaskFailed,
    TaskFinished,
    TaskStarted,
    Ticked,
    WakeAt,
)
from headway.engine.state import Rules, State
from headway.pacing.headers import decode
from headway.pacing.refusal import classify
from headway.plans.graph import Graph, Task
from headway.sim.clients import ClientPort
from headway.sim.draw import lognormal, uniform
from headway.sim.headers import error_body, headers
from headway.sim.provider import (
    FirstByte,
    Happening,
    Provider,
    Refused,
    SimulatedCall,
    SimulatedEnd,
)

INPUT_STREAM: Final = 11
OUTPUT_STREAM: Final = 12
LUCK_STREAM: Final = 13
ERROR_STREAM: Final = 14
NEEDS_STREAM: Final = 15

GUESS_FIRST_BYTE_S: Final = 1.0
GUESS_PER_TOKEN_S: Final = 0.02
"""For ranks only: which task is longer, not how long it takes."""

Shape = Literal["independent", "layers", "diamond"]


class WorkloadSpec(Struct, frozen=True):
    """A family of workloads; a seed picks one."""

    name: str
    tasks: int = 22
    calls: int = 1
    input_tokens: float = 2000.0
    output_tokens: float = 400.0
    input_spread: float = 0.0
    """Log-deviation of inputs."""
    output_spread: float = 0.0
    """Log-deviation of outputs around what their input predicts."""
    output_follows: float = 0.0
    """Exponent: 0, outputs do not depend on inputs; 1, they are proportional."""
    luck_spread: float = 0.0
    """Log-deviation of each call's own time to first byte."""
    input_error: float = 0.0
    """Log-deviation of the user's estimate of an input."""
    max_tokens: float = 4096.0
    shape: Shape = "independent"
    is_whole: bool = False
    """Answers are not streamed."""


class Workload(Struct, frozen=True):
    """One workload: the graph that the engine sees and the calls that really happen."""

    name: str
    graph: Graph
    calls: tuple[tuple[SimulatedCall, ...], ...]
    seconds: tuple[float, ...] = ()
    """By task, what it takes on this machine before its first call; none takes any if empty."""

    @property
    def needs(self) -> Sequence[Sequence[int]]:
        return self.graph.needs


def draw_workload(spec: WorkloadSpec, seed: int) -> Workload:
    """The workload that this seed picks."""
    tasks: list[Task] = []
    calls: list[tuple[SimulatedCall, ...]] = []
    for index in range(spec.tasks):
        mine = tuple(_call(spec, seed, index * spec.calls + i) for i in range(spec.calls))
        demands = tuple(_demand(spec, seed, call) for call in mine)
        weight_s = sum(
            GUESS_FIRST_BYTE_S + GUESS_PER_TOKEN_S * demand.expected.output_tokens
            for demand in demands
        )
        needs = tuple(f"t{other}" for other in _needs(spec, seed, index))
        tasks.append(Task(f"t{index}", needs, demands, weight_s, kind=spec.name))
        calls.append(mine)
    return Workload(spec.name, Graph.of(tasks), tuple(calls))


def _call(spec: WorkloadSpec, seed: int, number: int) -> SimulatedCall:
    tokens_in = spec.input_tokens * lognormal(seed, INPUT_STREAM, number, spec.input_spread)
    tokens_in = float(max(1, round(tokens_in)))
    tokens_out = _typical_output(spec, tokens_in)
    tokens_out *= lognormal(seed, OUTPUT_STREAM, number, spec.output_spread)
    tokens_out = float(max(1, min(spec.max_tokens, round(tokens_out))))
    luck = lognormal(seed, LUCK_STREAM, number, spec.luck_spread)
    return SimulatedCall(
        number, tokens_in, tokens_out, spec.max_tokens, luck, is_whole=spec.is_whole
    )


def _typical_output(spec: WorkloadSpec, input_tokens: float) -> float:
    ratio: float = (input_tokens / spec.input_tokens) ** spec.output_follows
    return spec.output_tokens * ratio


def _demand(spec: WorkloadSpec, seed: int, call: SimulatedCall) -> Demand:
    estimate = call.input_tokens * lognormal(seed, ERROR_STREAM, call.id, spec.input_error)
    most = estimate * (1 + 4 * spec.input_error)
    typical = min(spec.max_tokens, _typical_output(spec, call.input_tokens))
    ceiling = Amounts(most, call.max_tokens)
    return Demand(Amounts(estimate, typical), ceiling, spec.name, spec.is_whole)


def _needs(spec: WorkloadSpec, seed: int, index: int) -> Sequence[int]:
    """Layers: each needs two of the layer before. Diamond: a chain beside many leaves, joined."""
    if spec.shape == "layers":
        width = max(1, round(spec.tasks**0.5))
        layer = index // width
        if layer == 0:
            return ()
        picks = {
            (layer - 1) * width + int(uniform(seed, NEEDS_STREAM, 2 * index + i) * width)
            for i in (0, 1)
        }
        return sorted(picks)
    if spec.shape == "diamond":
        chain = max(2, round(spec.tasks**0.5))
        if index == spec.tasks - 1:
            return tuple(range(index))
        return (index - 1,) if 0 < index < chain else ()
    return ()


EPOCH_S: Final = 1_767_225_600.0
"""Virtual second 0 as a date for headers: the first of January 2026."""

HORIZON_S: Final = 100_000.0
"""A rehearsal that is not over by then is cut off, and what is left counts as failed."""

STEPS_MAX: Final = 5_000_000
"""A rehearsal with more steps is livelocked."""

IN_VAIN_MAX: Final = 200
ROUND_TRIP_S: Final = 0.05
"""A refusal takes no virtual time. After so many tries in vain at one instant, a round trip
passes."""

GIVE_UP, PREPARED, WAKE = range(3)
"""What is on the agenda, in the order in which it happens at one instant."""

SpanKind = Literal["here", "provider", "busy"]
"""Waiting for a permit here; refused and waiting to try again; in service."""


class RehearsalSpan(Struct, frozen=True):
    """What a task did between two times."""

    task: int
    kind: SpanKind
    from_s: float
    to_s: float


class TaskTime(Struct, frozen=True):
    """When a task began and ended."""

    task: int
    began_s: float
    ended_s: float
    done: bool


class Rehearsed(Struct):
    """The result of a rehearsal."""

    makespan_s: float = 0.0
    refused: int = 0
    timeouts: int = 0
    failed: int = 0
    wasted_tokens: float = 0.0
    used_tokens: float = 0.0
    in_flight_most: int = 0
    latencies_s: list[float] = field(default_factory=list)
    tasks: list[TaskTime] = field(default_factory=list)
    spans: list[RehearsalSpan] = field(default_factory=list)
    calls: list[tuple[float, float]] = field(default_factory=list)
    """(sent, ended) of every accepted call."""
    events: list[Event] = field(default_factory=list)


class _Flight(Struct):
    """A call of a task on its way."""

    task: int
    attempt: int
    number: int
    call: SimulatedCall
    since_s: float
    kind: SpanKind = "here"
    sent_s: float = 0.0
    sends: int = 0


class Rehearsal:
    """The loop: passes what happens to client and engine, and what they do to the provider."""

    def __init__(
        self,
        workload: Workload,
        provider: Provider,
        door: ClientPort,
        rules: Rules,
        *,
        timeout_s: float = inf,
        steps_max: int = STEPS_MAX,
        keep_events: bool = False,
    ) -> None:
        """`timeout_s`: the client gives up a call that has not ended by then."""
        self._workload, self._provider, self._door = workload, provider, door
        self._timeout_s, self._steps_max, self._keeps_events = timeout_s, steps_max, keep_events
        self._state: State = begin(workload.graph, rules)
        self._result = Rehearsed()
        self._began: dict[int, float] = {}
        self._flights: dict[int, _Flight] = {}
        self._agenda: list[tuple[float, int, int, int]] = []
        """When to give up which call and which send of it; when an attempt, a task and its number,
        is no longer busy on this machine; when to wake the engine."""
        self._next_id = 1
        self._shut_until_s = 0.0
        """Until then the client waits, after tries in vain."""
        self._steps = 0
        self.now = 0.0

    def run(self) -> Rehearsed:
        """From the first start to the last end."""
        self._feed(Began())
        self._send()
        while not self._state.over and self._steps < self._steps_max:
            at_s = self._next_s()
            if at_s > HORIZON_S:
                break
            self.now = max(at_s, self.now)
            for happening in self._provider.advance(self.now):
                self._happened(happening)
            while self._agenda and self._agenda[0][0] <= self.now:
                _, kind, what, number = heapq.heappop(self._agenda)
                if kind == GIVE_UP:
                    self._give_up(what, number)
                elif kind == PREPARED:
                    for happened in self._begin(StartAttempt(what, number), is_prepared=True):
                        self._feed(happened)
                else:
                    self._feed(Ticked())
            self._send()
        result, ends = self._result, [time.ended_s for time in self._result.tasks]
        result.failed = len(self._state.graph.tasks) - self._state.finished
        result.makespan_s = max(ends, default=0.0) if self._state.over else inf
        return result

    def _next_s(self) -> float:
        door_s = max(self._shut_until_s, self._door.next_s())
        at_s = self._agenda[0][0] if self._agenda else inf
        return min(self._provider.next_s(), door_s, at_s)

    def _feed(self, happened: Input) -> None:
        """Tell the engine and do what it asks. A task without calls is over when it starts."""
        inputs = deque([happened])
        while inputs:
            taken = step(self._state, inputs.popleft(), self.now)
            self._note(taken.events)
            for effect in taken.effects:
                if isinstance(effect, WakeAt):
                    heapq.heappush(self._agenda, (effect.at_s, WAKE, 0, 0))
                if isinstance(effect, StartAttempt):
                    inputs += self._begin(effect)

    def _note(self, events: Iterable[Event]) -> None:
        """A task's time is from its first start to its end."""
        for event in events:
            if isinstance(event, TaskStarted):
                self._began.setdefault(event.task, event.at_s)
            elif isinstance(event, TaskFinished | TaskFailed):
                done = isinstance(event, TaskFinished)
                time = TaskTime(event.task, self._began[event.task], event.at_s, done)
                self._result.tasks.append(time)
        if self._keeps_events:
            self._result.events.extend(events)

    def _move(self, flight: _Flight, kind: SpanKind) -> None:
        """The flight enters another phase; the one before becomes a span."""
        if self.now > flight.since_s:
            span = RehearsalSpan(flight.task, flight.kind, flight.since_s, self.now)
            self._result.spans.append(span)
        flight.kind, flight.since_s = kind, self.now

    def _begin(self, start: StartAttempt, is_prepared: bool = False) -> tuple[Input, ...]:
        """An attempt starts with what it does here, then comes its first call. One with neither is
        over at once."""
        seconds = self._workload.seconds
        if not is_prepared and seconds and seconds[start.task] > 0.0:
            done_s = self.now + seconds[start.task]
            heapq.heappush(self._agenda, (done_s, PREPARED, start.task, start.attempt))
            return ()
        if not self._workload.calls[start.task]:
            return (Finished(start.task, start.attempt),)
        self._knock(start.task, start.attempt, 0)
        return ()

    def _knock(self, task: int, attempt: int, number: int) -> None:
        call = replace(self._workload.calls[task][number], id=self._next_id)
        self._next_id += 1
        self._flights[call.id] = _Flight(task, attempt, number, call, self.now)
        key = (float(number == 0), -self._state.ranks[task])
        demand = self._workload.graph.tasks[task].calls[number]
        self._door.knock(call.id, demand, key)

    def _send(self) -> None:
        """Open the door until no more calls may go through at this instant."""
        self._steps += 1
        if self.now < self._shut_until_s:
            return
        in_vain = 0
        while self._steps < self._steps_max and (sent := self._door.open(self.now)):
            self._steps += 1
            in_vain += 1
            for call_id in sent:
                flight = self._flights[call_id]
                answer = self._provider.submit(flight.call, self.now)
                if isinstance(answer, Refused):
                    self._refused(flight, answer)
                else:
                    self._accepted(flight)
                    in_vain = 0
            if in_vain >= IN_VAIN_MAX:
                self._shut_until_s = self.now + ROUND_TRIP_S
                heapq.heappush(self._agenda, (self._shut_until_s, WAKE, 0, 0))
                break

    def _accepted(self, flight: _Flight) -> None:
        self._move(flight, "busy")
        flight.sent_s = self.now
        flight.sends += 1
        in_flight = self._provider.in_flight
        self._result.in_flight_most = max(self._result.in_flight_most, in_flight)
        if self._timeout_s < inf:
            timer = (self.now + self._timeout_s, GIVE_UP, flight.call.id, flight.sends)
            heapq.heappush(self._agenda, timer)
        self._feed(CallAdmitted(flight.task, self.now))

    def _refused(self, flight: _Flight, answer: Refused) -> None:
        self._result.refused += 1
        self._move(flight, "provider")
        # As it arrives: status, headers and body in the provider's dialect.
        dialect, date_s = self._provider.spec.dialect, EPOCH_S + self.now
        said = headers(dialect, answer.reading.limits, date_s, answer.fault.retry_after_s)
        status, body = error_body(dialect, answer.fault, "req")
        fault = classify(status, said, body)
        reading = decode(said, date_s)
        if not self._door.refused(flight.call.id, fault, reading, self.now):
            self._lose(flight, fault)

    def _happened(self, happening: Happening) -> None:
        flight = self._flights[happening.call_id]
        if isinstance(happening, FirstByte):
            reading = read_headers(self._provider.spec.dialect, happening.reading, flight.sent_s)
            self._door.first_byte(happening.call_id, reading, self.now)
        elif isinstance(happening, SimulatedEnd):
            self._ended(flight, happening)
        else:
            self._door.progress(happening.call_id, happening.output_tokens, self.now)

    def _ended(self, flight: _Flight, ended: SimulatedEnd) -> None:
        used = Amounts(ended.input_tokens, ended.output_tokens)
        kept = self._door.ended(ended.call_id, used, ended.fault, self.now)
        result, tokens = self._result, ended.input_tokens + ended.output_tokens
        result.calls.append((flight.sent_s, self.now))
        result.used_tokens += tokens
        self._move(flight, "here" if ended.fault is None else "provider")
        if ended.fault is not None:
            result.wasted_tokens += tokens
            result.timeouts += ended.fault.kind == "timeout"
            if not kept:
                self._lose(flight, ended.fault)
            return
        result.latencies_s.append(self.now - flight.sent_s)
        del self._flights[ended.call_id]
        if flight.number + 1 < len(self._workload.calls[flight.task]):
            self._feed(CallWaited(flight.task, self.now))
            self._knock(flight.task, flight.attempt, flight.number + 1)
        else:
            self._feed(Finished(flight.task, flight.attempt))

    def _lose(self, flight: _Flight, fault: Fault) -> None:
        del self._flights[flight.call.id]
        self._feed(Failed(flight.task, flight.attempt, fault))

    def _give_up(self, call_id: int, send: int) -> None:
        """End a call that takes too long. What was sent again since has a timer of its own."""
        flight = self._flights.get(call_id)
        if flight is not None and flight.sends == send:
            ended = self._provider.cancel(call_id, self.now)
            if ended is not None:
                self._ended(flight, ended)


def read_headers(dialect: str, reading: Reading, sent_s: float) -> Reading:
    """A reading as it arrives: through the provider's own headers, dated when the call was sent."""
    date_s = EPOCH_S + sent_s
    said = headers(dialect, reading.limits, date_s, reading.retry_after_s)
    return decode(said, date_s)
