"""Work as it really is: tasks, their calls with true sizes, and what a user could know beforehand.

A user knows inputs well (they can be counted) and outputs roughly (they depend on the input).
True output lengths are lognormal around a power of the input, so that an estimate from the input
is informative and never exact.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

from headway.core.foresight.draw import lognormal, uniform
from headway.core.foresight.provider import Call
from headway.core.plan.graph import Graph, Task
from headway.core.values import Amounts, Demand

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
    calls: tuple[tuple[Call, ...], ...]
    seconds: tuple[float, ...] = ()
    """By task, what it takes on this machine before its first call; none takes any if empty."""

    @property
    def needs(self) -> Sequence[Sequence[int]]:
        """Of each task, the tasks that it needs."""
        return self.graph.needs


def draw_workload(spec: WorkloadSpec, seed: int) -> Workload:
    """The workload that this seed picks."""
    tasks: list[Task] = []
    calls: list[tuple[Call, ...]] = []
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


def _call(spec: WorkloadSpec, seed: int, number: int) -> Call:
    tokens_in = spec.input_tokens * lognormal(seed, INPUT_STREAM, number, spec.input_spread)
    tokens_in = float(max(1, round(tokens_in)))
    tokens_out = _typical_output(spec, tokens_in)
    tokens_out *= lognormal(seed, OUTPUT_STREAM, number, spec.output_spread)
    tokens_out = float(max(1, min(spec.max_tokens, round(tokens_out))))
    luck = lognormal(seed, LUCK_STREAM, number, spec.luck_spread)
    return Call(number, tokens_in, tokens_out, spec.max_tokens, luck)


def _typical_output(spec: WorkloadSpec, input_tokens: float) -> float:
    ratio: float = (input_tokens / spec.input_tokens) ** spec.output_follows
    return spec.output_tokens * ratio


def _demand(spec: WorkloadSpec, seed: int, call: Call) -> Demand:
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
