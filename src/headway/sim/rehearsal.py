"""One discrete-event loop that drives engine, door and provider together in virtual time.

Laws:
- Time jumps to the next thing that happens; nothing sleeps, nothing polls.
- The engine, the quota and the dialects are the ones that real runs use; only the provider and
  the clock are simulated. What a response says travels as headers and bytes, both ways.
- What is reported is read from the provider's side where the provider knows it.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Final, Literal, NamedTuple

from headway.base.values import Amounts, Demand, Fault, Reading
from headway.engine.engine import begin, step
from headway.engine.events import (
    Admitted,
    Began,
    Event,
    Failed,
    Finished,
    Input,
    StartAttempt,
    TaskFailed,
    TaskFinished,
    TaskStarted,
    Ticked,
    Waiting,
    WakeAt,
)
from headway.engine.state import Rules, State
from headway.pacing.headers import DIALECTS, decode
from headway.pacing.refusal import classify
from headway.plans.graph import Graph, Task
from headway.sim.clients import ClientPort, Knock
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

# Work as it really is: tasks, their calls with true sizes, and what a user could know beforehand.

INPUT_STREAM: Final = 11
OUTPUT_STREAM: Final = 12
LUCK_STREAM: Final = 13
ERROR_STREAM: Final = 14
NEEDS_STREAM: Final = 15

GUESS_FIRST_BYTE_S: Final = 1.0
GUESS_PER_TOKEN_S: Final = 0.02
"""For ranks only: which task is longer, not how long it takes."""

Shape = Literal["independent", "layers", "diamond"]


@dataclass(frozen=True, slots=True)
class WorkloadSpec:
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


@dataclass(frozen=True, slots=True)
class Workload:
    """One workload: the graph that the engine sees and the calls that really happen."""

    name: str
    graph: Graph
    calls: tuple[tuple[SimulatedCall, ...], ...]
    seconds: tuple[float, ...] = ()
    """By task, what it takes on this machine before its first call; none takes any if empty."""

    @property
    def needs(self) -> Sequence[Sequence[int]]:
        """Of each task, the tasks that it needs."""
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
    return SimulatedCall(number, tokens_in, tokens_out, spec.max_tokens, luck)


def _typical_output(spec: WorkloadSpec, input_tokens: float) -> float:
    ratio: float = (input_tokens / spec.input_tokens) ** spec.output_follows
    return spec.output_tokens * ratio


def _demand(spec: WorkloadSpec, seed: int, call: SimulatedCall) -> Demand:
    estimate = call.input_tokens * lognormal(seed, ERROR_STREAM, call.id, spec.input_error)
    most = estimate * (1 + 4 * spec.input_error)
    typical = min(spec.max_tokens, _typical_output(spec, call.input_tokens))
    return Demand(Amounts(estimate, typical), Amounts(most, call.max_tokens), spec.name)


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
"""A rehearsal that opens the door more often is livelocked."""

IN_VAIN_MAX: Final = 200
ROUND_TRIP_S: Final = 0.05
"""A refusal here takes no time, where it really takes a round trip. After so many tries of one
instant in which nobody was let in, that time passes."""

SpanKind = Literal["here", "provider", "busy"]
"""Waiting for a permit here; turned away and waiting to try again; in service."""


@dataclass(frozen=True, slots=True)
class RehearsalSetup:
    """One rehearsal: who does what, how, against whom."""

    workload: Workload
    provider: Provider
    door: ClientPort
    rules: Rules
    timeout_s: float = inf
    """The client gives up a call that has not ended by then."""
    stall_s: float = inf
    """The client gives up a call whose first byte has not come by then."""
    steps_max: int = STEPS_MAX
    """Fewer, for whoever cannot wait until a livelock is certain."""


@dataclass(frozen=True, slots=True)
class RehearsalSpan:
    """Where a task was for a while."""

    task: int
    kind: SpanKind
    from_s: float
    to_s: float


@dataclass(frozen=True, slots=True)
class TaskTime:
    """When a task began and ended."""

    task: int
    began_s: float
    ended_s: float
    done: bool


@dataclass(slots=True)
class Rehearsed:
    """What came of it."""

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


@dataclass(slots=True)
class _Flight:
    """A call of a task on its way."""

    task: int
    attempt: int
    number: int
    call: SimulatedCall
    since_s: float
    kind: SpanKind = "here"
    sent_s: float = 0.0
    sends: int = 0
    answered: bool = False
    """Whether the first byte of what was last sent has come."""


class _Timer(NamedTuple):
    """When to give up what was sent, always or only if its first byte has not come."""

    at_s: float
    call_id: int
    sends: int
    unless_answered: bool


@dataclass(frozen=True, slots=True)
class ScoresStatistics:
    """What has been counted so far."""

    tasks: int
    calls: int
    refused: int
    timeouts: int


class Scores:
    """The bookkeeping of a rehearsal: it counts and decides nothing."""

    __slots__ = ("_began", "_keeps_events", "result")

    def __init__(self, keeps_events: bool) -> None:
        self.result = Rehearsed()
        self._keeps_events = keeps_events
        self._began: dict[int, float] = {}

    def __repr__(self) -> str:
        return f"<Scores {len(self.result.tasks)} tasks, {len(self.result.calls)} calls>"

    def happened(self, events: Iterable[Event]) -> None:
        """A task's time runs from its first start to its end, whatever lies between."""
        for event in events:
            if isinstance(event, TaskStarted):
                self._began.setdefault(event.task, event.at_s)
            elif isinstance(event, TaskFinished | TaskFailed):
                done = isinstance(event, TaskFinished)
                time = TaskTime(event.task, self._began[event.task], event.at_s, done)
                self.result.tasks.append(time)
        if self._keeps_events:
            self.result.events.extend(events)

    def moved(self, flight: _Flight, kind: SpanKind, now: float) -> None:
        """The flight enters another phase; the one it leaves becomes a span."""
        if now > flight.since_s:
            self.result.spans.append(RehearsalSpan(flight.task, flight.kind, flight.since_s, now))
        flight.kind, flight.since_s = kind, now

    def ended(self, flight: _Flight, ended: SimulatedEnd, now: float) -> None:
        """An accepted call is over: what it used was paid for, and wasted if it failed."""
        result, tokens = self.result, ended.input_tokens + ended.output_tokens
        result.calls.append((flight.sent_s, now))
        result.used_tokens += tokens
        if ended.fault is None:
            result.latencies_s.append(now - flight.sent_s)
            self.moved(flight, "here", now)
        else:
            result.wasted_tokens += tokens
            result.timeouts += ended.fault.kind == "timeout"
            self.moved(flight, "provider", now)

    def close(self, state: State) -> Rehearsed:
        """The result; without an end if the run did not come to one."""
        result = self.result
        result.failed = len(state.graph.tasks) - state.finished
        ends = [time.ended_s for time in result.tasks]
        result.makespan_s = max(ends, default=0.0) if state.over else inf
        return result

    def statistics(self) -> ScoresStatistics:
        result = self.result
        return ScoresStatistics(
            len(result.tasks), len(result.calls), result.refused, result.timeouts
        )


@dataclass(frozen=True, slots=True)
class RehearsalStatistics:
    """How far a rehearsal is."""

    at_s: float
    steps: int


class Rehearsal:
    """The loop: what happens goes to the door and the engine, what they answer to the provider."""

    __slots__ = (
        "_flights",
        "_next_id",
        "_prepared",
        "_scores",
        "_setup",
        "_shut_until_s",
        "_state",
        "_steps",
        "_timers",
        "_wakes",
        "now",
    )  # fmt: skip

    def __init__(self, setup: RehearsalSetup, keep_events: bool = False) -> None:
        self._setup = setup
        self._state: State = begin(setup.workload.graph, setup.rules)
        self._scores = Scores(keep_events)
        self._flights: dict[int, _Flight] = {}
        self._timers: list[_Timer] = []
        self._wakes: list[float] = []
        self._prepared: list[tuple[float, int, int]] = []
        """Attempts that are busy on this machine: until when, task and number."""
        self._next_id = 1
        self._shut_until_s = 0.0
        """Until then the last tries, which were in vain, are on their way."""
        self._steps = 0
        self.now = 0.0

    def __repr__(self) -> str:
        return f"<Rehearsal at {self.now:.1f}s, {len(self._flights)} calls>"

    def run(self) -> Rehearsed:
        """From the first start to the last end."""
        self._feed(Began())
        self._send()
        most = self._setup.steps_max
        while not self._state.over and self._steps < most:
            at_s = self._next_s()
            if at_s > HORIZON_S:
                break
            self.now = max(at_s, self.now)
            for happening in self._setup.provider.advance(self.now):
                self._happened(happening)
            self._expire()
            while self._prepared and self._prepared[0][0] <= self.now:
                _, task, attempt = heapq.heappop(self._prepared)
                for happened in self._begin(StartAttempt(task, attempt), is_prepared=True):
                    self._feed(happened)
            while self._wakes and self._wakes[0] <= self.now:
                heapq.heappop(self._wakes)
                self._feed(Ticked())
            self._send()
        return self._scores.close(self._state)

    def statistics(self) -> RehearsalStatistics:
        return RehearsalStatistics(self.now, self._steps)

    def _next_s(self) -> float:
        """When anything happens next."""
        door_s = max(self._shut_until_s, self._setup.door.next_s())
        at_s = min(self._setup.provider.next_s(), door_s)
        if self._timers:
            at_s = min(at_s, self._timers[0].at_s)
        if self._prepared:
            at_s = min(at_s, self._prepared[0][0])
        return min(at_s, self._wakes[0]) if self._wakes else at_s

    def _feed(self, happened: Input) -> None:
        """Tell the engine and do what it asks. A task without calls is over when it starts."""
        inputs = deque([happened])
        while inputs:
            taken = step(self._state, inputs.popleft(), self.now)
            self._scores.happened(taken.events)
            for effect in taken.effects:
                if isinstance(effect, WakeAt):
                    heapq.heappush(self._wakes, effect.at_s)
                if isinstance(effect, StartAttempt):
                    inputs += self._begin(effect)

    def _begin(self, start: StartAttempt, is_prepared: bool = False) -> tuple[Input, ...]:
        """An attempt starts with what it does here, then comes its first call. One with neither is
        over at once."""
        workload = self._setup.workload
        if not is_prepared and workload.seconds and workload.seconds[start.task] > 0.0:
            done_s = self.now + workload.seconds[start.task]
            heapq.heappush(self._prepared, (done_s, start.task, start.attempt))
            return ()
        if not workload.calls[start.task]:
            return (Finished(start.task, start.attempt),)
        self._knock(start.task, start.attempt, 0)
        return ()

    def _knock(self, task: int, attempt: int, number: int) -> None:
        """A task's next call comes to the door."""
        workload = self._setup.workload
        truth = workload.calls[task][number]
        call = SimulatedCall(
            self._next_id,
            truth.input_tokens,
            truth.output_tokens,
            truth.max_tokens,
            truth.luck,
            truth.spend_microusd,
        )
        self._next_id += 1
        self._flights[call.id] = _Flight(task, attempt, number, call, self.now)
        key = (float(number == 0), -self._state.ranks[task])
        demand = workload.graph.tasks[task].calls[number]
        self._setup.door.knock(Knock(call.id, demand, key), self.now)

    def _send(self) -> None:
        """Open the door until nobody more may go through at this instant."""
        self._steps += 1
        if self.now < self._shut_until_s:
            return
        in_vain = 0
        while self._steps < self._setup.steps_max and (sent := self._setup.door.open(self.now)):
            self._steps += 1
            in_vain += 1
            for call_id in sent:
                flight = self._flights[call_id]
                answer = self._setup.provider.submit(flight.call, self.now)
                if isinstance(answer, Refused):
                    self._refused(flight, answer)
                else:
                    self._accepted(flight)
                    in_vain = 0
            if in_vain >= IN_VAIN_MAX:
                self._shut_until_s = self.now + ROUND_TRIP_S
                heapq.heappush(self._wakes, self._shut_until_s)
                break

    def _accepted(self, flight: _Flight) -> None:
        self._scores.moved(flight, "busy", self.now)
        flight.sent_s = self.now
        flight.sends += 1
        flight.answered = False
        result, setup = self._scores.result, self._setup
        in_flight = setup.provider.statistics().in_flight
        result.in_flight_most = max(result.in_flight_most, in_flight)
        for wait_s, unless_answered in ((setup.timeout_s, False), (setup.stall_s, True)):
            if wait_s < inf:
                timer = _Timer(self.now + wait_s, flight.call.id, flight.sends, unless_answered)
                heapq.heappush(self._timers, timer)
        self._feed(Admitted(flight.task))

    def _refused(self, flight: _Flight, answer: Refused) -> None:
        self._scores.result.refused += 1
        self._scores.moved(flight, "provider", self.now)
        fault, reading = _told(self._setup.provider.spec.dialect, answer, self.now)
        if not self._setup.door.refused(flight.call.id, fault, reading, self.now):
            self._lose(flight, fault)

    def _happened(self, happening: Happening) -> None:
        door, flight = self._setup.door, self._flights[happening.call_id]
        if isinstance(happening, FirstByte):
            flight.answered = True
            reading = heard(self._setup.provider.spec.dialect, happening.reading, flight.sent_s)
            door.first_byte(happening.call_id, reading, self.now)
        elif isinstance(happening, SimulatedEnd):
            self._ended(flight, happening)
        else:
            door.progress(happening.call_id, happening.output_tokens, self.now)

    def _ended(self, flight: _Flight, ended: SimulatedEnd) -> None:
        used = Amounts(ended.input_tokens, ended.output_tokens)
        kept = self._setup.door.ended(ended.call_id, used, ended.fault, self.now)
        self._scores.ended(flight, ended, self.now)
        if ended.fault is not None:
            if not kept:
                self._lose(flight, ended.fault)
            return
        del self._flights[ended.call_id]
        if flight.number + 1 < len(self._setup.workload.calls[flight.task]):
            self._feed(Waiting(flight.task))
            self._knock(flight.task, flight.attempt, flight.number + 1)
        else:
            self._feed(Finished(flight.task, flight.attempt))

    def _lose(self, flight: _Flight, fault: Fault) -> None:
        del self._flights[flight.call.id]
        self._feed(Failed(flight.task, flight.attempt, fault))

    def _expire(self) -> None:
        """Give up what has taken too long. What was sent again since has a timer of its own."""
        while self._timers and self._timers[0].at_s <= self.now:
            timer = heapq.heappop(self._timers)
            flight = self._flights.get(timer.call_id)
            if flight is None or flight.sends != timer.sends:
                continue
            if timer.unless_answered and flight.answered:
                continue
            ended = self._setup.provider.cancel(timer.call_id, self.now)
            if ended is not None:
                self._ended(flight, ended)


def heard(dialect: str, reading: Reading, sent_s: float) -> Reading:
    """A reading as it arrives: through the provider's own headers, dated when the call was sent."""
    date_s = EPOCH_S + sent_s
    said = headers(dialect, reading.limits, date_s, reading.retry_after_s)
    return decode(said, date_s, DIALECTS[dialect])


def _told(dialect: str, answer: Refused, now: float) -> tuple[Fault, Reading]:
    """A refusal as it arrives: status, headers and body in the provider's dialect."""
    date_s = EPOCH_S + now
    said = headers(dialect, answer.reading.limits, date_s, answer.fault.retry_after_s)
    status, body = error_body(dialect, answer.fault, "req")
    fault = classify(status, said, body, DIALECTS[dialect])
    return fault, decode(said, date_s, DIALECTS[dialect])
