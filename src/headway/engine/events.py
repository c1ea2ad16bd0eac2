"""What happened in a run, and what to do about it: one frozen record each.

Events are facts and are all that replay needs. Inputs are what a driver reports to the engine,
effects what the engine asks of the driver. Within a run tasks are named by a number (`graph.py`);
a journal names them by their content key, which outlives an edited plan.
"""

from __future__ import annotations

from math import isfinite
from typing import Final

from headway.base.records import quick
from headway.base.values import Fault
from headway.state.shared import Act

VERSION: Final = 1
"""Of the events below; a change of meaning raises it."""


@quick
class Ending:
    """What an attempt left behind, whether it gave a result or not."""

    body: bytes = b""
    """The digest of its result, under which the journal keeps it; empty if there is none."""
    inputs: bytes = b""
    """The digest of the results that it was given: with others it would be another attempt."""
    input_tokens: float = 0.0
    output_tokens: float = 0.0
    spend_microusd: int = 0
    calls: int = 0
    exit_code: int | None = None
    is_in_doubt: bool = False
    """It was sent and its answer was lost: charged at its ceiling."""
    access: bytes = b""
    """The digest of what it touched of the shared state; empty if it has nothing to do with it."""
    extra_tokens: int = 0
    """What it counts towards a budget in tokens on top of input and output: in doubt, up to what
    was set aside for it; less, where an interrupted attempt was charged with the same calls."""
    unpriced: int = 0
    """Calls whose price is unknown: `spend_microusd` does not contain their cost."""

    @property
    def spend_tokens(self) -> int:
        """What it counts towards a budget in tokens."""
        known = self.input_tokens + self.output_tokens
        return (round(known) if isfinite(known) else 0) + self.extra_tokens


NOTHING: Final = Ending()


@quick
class RunBegan:
    """A process took the run over: the first one, or one that resumes it."""

    at_s: float
    strategy: str


@quick
class GroupExpanded:
    """The task that a group is spread over has finished: so many members it has."""

    group: int
    count: int
    at_s: float


@quick
class WaveBegan:
    """The previous wave has ended; `of` is how many there will be, as far as is known now."""

    number: int
    of: int
    at_s: float


@quick
class TaskStarted:
    """An attempt of a task began; the reason says why now and not earlier."""

    task: int
    attempt: int
    at_s: float
    reason: str


@quick
class TaskFinished:
    """An attempt gave the task's result."""

    task: int
    attempt: int
    at_s: float
    ending: Ending = NOTHING


@quick
class TaskProposed:
    """An attempt gave a result, or a failure, that tasks before it may still make stale."""

    task: int
    attempt: int
    at_s: float
    ending: Ending = NOTHING
    fault: Fault | None = None
    """Why it has no result, if it has none."""


@quick
class TaskStale:
    """What an attempt has read of the shared state is different now: the task runs again."""

    task: int
    attempt: int
    at_s: float
    what: str
    """The key or pattern that it had read."""
    because: int = -1
    """The position of the task that wrote there last; -1 if none did."""
    ending: Ending = NOTHING


@quick
class TaskReused:
    """The result of an earlier attempt still holds: nothing that it depends on has changed."""

    task: int
    at_s: float


@quick
class TaskDelayed:
    """An attempt failed in a way that another one may not."""

    task: int
    attempt: int
    at_s: float
    again_s: float
    fault: Fault
    ending: Ending = NOTHING


@quick
class TaskFailed:
    """The task has no result and will have none."""

    task: int
    attempt: int
    at_s: float
    fault: Fault
    ending: Ending = NOTHING


@quick
class TaskSkipped:
    """The task cannot start: something that it needs has failed."""

    task: int
    at_s: float
    because: int


@quick
class CallWaited:
    """A call of a started task asked for a permit and is in the queue."""

    task: int
    at_s: float
    refused: str = ""
    """Why the provider has turned this call away, which asks once more: `rate: input`."""


@quick
class CallAdmitted:
    """A call of a started task has its permit."""

    task: int
    at_s: float
    waited_for: str = ""
    """The limit, or what else, that it stood in line for longest: `input/60s`."""


@quick
class RunHeld:
    """No task starts until then (an empty usage window), or until it is continued (infinity)."""

    at_s: float
    until_s: float
    reason: str


@quick
class RunContinued:
    """Tasks start again."""

    at_s: float


@quick
class RunStopping:
    """Nothing more starts; what is started ends by itself, or now."""

    at_s: float
    reason: str
    is_now: bool = False


@quick
class RunFinished:
    """Nothing is active and nothing more will start. Complete if nothing is left or failed."""

    at_s: float
    finished: int
    failed: int
    skipped: int = 0
    left: int = 0
    """Tasks that a run which was stopped did not come to."""
    effects: int = 0
    """Effects of finished tasks that were not performed."""
    cpu_s: float = 0.0
    """What the process that performed it has used of this machine's processors, of its threads
    too; 0 if nobody looked."""
    memory_bytes: int = 0
    """The most that it held."""


Event = (
    RunBegan | GroupExpanded | WaveBegan | TaskStarted | TaskFinished | TaskProposed | TaskStale
    | TaskReused | TaskDelayed | TaskFailed | TaskSkipped | CallWaited | CallAdmitted | RunHeld
    | RunContinued | RunStopping | RunFinished
)  # fmt: skip


@quick
class Began:
    """The run may start."""


@quick
class Expanded:
    """The members of a group have become known."""

    group: int
    count: int


@quick
class Waiting:
    """A started task asks for a further permit."""

    task: int
    refused: str = ""


@quick
class Admitted:
    """A started task got a permit."""

    task: int
    waited_for: str = ""


@quick
class Finished:
    """An attempt is complete. What is said of an attempt that is no longer current is ignored."""

    task: int
    attempt: int
    ending: Ending = NOTHING


@quick
class Reused:
    """Instead of the attempt that was to start, an earlier result is taken."""

    task: int
    attempt: int


@quick
class Failed:
    """An attempt is lost."""

    task: int
    attempt: int
    fault: Fault
    ending: Ending = NOTHING


@quick
class Abandoned:
    """An attempt was ended because what it had read has changed."""

    task: int
    attempt: int
    ending: Ending = NOTHING


@quick
class Ticked:
    """A time that was asked for with `WakeAt` has come."""


@quick
class Held:
    """No task shall start until then."""

    until_s: float
    reason: str


@quick
class Continued:
    """Tasks may start again."""


@quick
class Stopping:
    """The run shall end; `is_now` cancels what is started."""

    reason: str
    is_now: bool = False


@quick
class LocalRoom:
    """How many tasks that use this machine may be active at once, by its processors and memory."""

    places: float


Input = (
    Began | Expanded | Waiting | Admitted | Finished | Reused | Failed | Abandoned | Ticked | Held
    | Continued | Stopping | LocalRoom
)  # fmt: skip


@quick
class StartAttempt:
    """Begin an attempt of a task."""

    task: int
    attempt: int


@quick
class WakeAt:
    """Report `Ticked` at this time."""

    at_s: float


@quick
class CancelAll:
    """End every started attempt now; report nothing of them."""


@quick
class Abandon:
    """End an attempt that works on what has changed; report `Abandoned`."""

    task: int
    attempt: int


@quick
class Release:
    """Perform the effects that a committed task asked for, after those released before."""

    task: int
    acts: tuple[Act, ...]


Effect = StartAttempt | WakeAt | CancelAll | Abandon | Release
