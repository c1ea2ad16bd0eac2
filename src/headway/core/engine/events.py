"""What happened in a run, and what to do about it: one frozen record each.

Events are facts and are all that replay needs. Inputs are what a driver reports to the engine,
effects what the engine asks of the driver. Tasks are named by their index in declared order.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from headway.core.values import Fault

VERSION: Final = 1
"""Of the events below; a change of meaning raises it, and older ones are upcast on read."""


@dataclass(frozen=True, slots=True)
class TaskStarted:
    """An attempt of a task began; the reason says why now and not earlier."""

    task: int
    attempt: int
    at_s: float
    reason: str


@dataclass(frozen=True, slots=True)
class TaskFinished:
    """An attempt gave the task's result."""

    task: int
    attempt: int
    at_s: float


@dataclass(frozen=True, slots=True)
class TaskDelayed:
    """An attempt failed in a way that another one may not."""

    task: int
    attempt: int
    at_s: float
    again_s: float
    fault: Fault


@dataclass(frozen=True, slots=True)
class TaskFailed:
    """The task has no result and will have none."""

    task: int
    attempt: int
    at_s: float
    fault: Fault


@dataclass(frozen=True, slots=True)
class TaskSkipped:
    """The task cannot start: something that it needs has failed."""

    task: int
    at_s: float
    because: int


@dataclass(frozen=True, slots=True)
class CallWaited:
    """A call of a started task asked for a permit and is in the queue."""

    task: int
    at_s: float


@dataclass(frozen=True, slots=True)
class CallAdmitted:
    """A call of a started task has its permit."""

    task: int
    at_s: float


@dataclass(frozen=True, slots=True)
class RunFinished:
    """Every task has finished, failed or been skipped."""

    at_s: float
    finished: int
    failed: int


Event = (
    TaskStarted | TaskFinished | TaskDelayed | TaskFailed | TaskSkipped | CallWaited
    | CallAdmitted | RunFinished
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Began:
    """The run may start."""


@dataclass(frozen=True, slots=True)
class Waiting:
    """A started task asks for a further permit."""

    task: int


@dataclass(frozen=True, slots=True)
class Admitted:
    """A started task got a permit."""

    task: int


@dataclass(frozen=True, slots=True)
class Finished:
    """The current attempt of a task is complete."""

    task: int


@dataclass(frozen=True, slots=True)
class Failed:
    """The current attempt of a task is lost."""

    task: int
    fault: Fault


@dataclass(frozen=True, slots=True)
class Ticked:
    """A time that was asked for with `WakeAt` has come."""


Input = Began | Waiting | Admitted | Finished | Failed | Ticked


@dataclass(frozen=True, slots=True)
class Start:
    """Begin an attempt of a task."""

    task: int
    attempt: int


@dataclass(frozen=True, slots=True)
class WakeAt:
    """Report `Ticked` at this time."""

    at_s: float


Effect = Start | WakeAt
