"""The events and effects of a run, one record each.

Events are facts and are all that replay needs. Inputs are what a driver reports to the engine,
effects what the engine asks of the driver. Within a run tasks are named by a number (`graph.py`);
a journal names them by their content key, which outlives an edited plan.
"""

from __future__ import annotations

from math import isfinite
from typing import Final

from msgspec import Struct

from headway.base.values import NO_CACHE, CacheTokens, Fault
from headway.state.shared import Act

VERSION: Final = 1
"""Of the events below; a change of meaning raises it."""


class Ending(Struct, frozen=True, omit_defaults=True):
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
    cache: CacheTokens = NO_CACHE
    is_renewed: bool = False
    """Nothing was run: what an earlier attempt gave still held."""

    @property
    def spend_tokens(self) -> int:
        """What it counts towards a budget in tokens."""
        known = self.input_tokens + self.output_tokens
        return (round(known) if isfinite(known) else 0) + self.extra_tokens


NOTHING: Final = Ending()


class RunBegan(Struct, frozen=True, omit_defaults=True):
    """A process took the run over: the first one, or one that resumes it."""

    at_s: float
    strategy: str


class GroupExpanded(Struct, frozen=True, omit_defaults=True):
    """The task that a group is spread over has finished: so many members it has."""

    group: int
    count: int
    at_s: float


class WaveBegan(Struct, frozen=True, omit_defaults=True):
    """The previous wave has ended; `of` is how many there will be, as far as is known now."""

    number: int
    of: int
    at_s: float


class TaskStarted(Struct, frozen=True, omit_defaults=True):
    """An attempt of a task began; the reason says why now and not earlier."""

    task: int
    attempt: int
    at_s: float
    reason: str


class TaskFinished(Struct, frozen=True, omit_defaults=True):
    """An attempt gave the task's result."""

    task: int
    attempt: int
    at_s: float
    ending: Ending = NOTHING


class TaskProposed(Struct, frozen=True, omit_defaults=True):
    """An attempt gave a result, or a failure, that tasks before it may still make stale."""

    task: int
    attempt: int
    at_s: float
    ending: Ending = NOTHING
    fault: Fault | None = None


class TaskStale(Struct, frozen=True, omit_defaults=True):
    """What an attempt has read of the shared state is different now: the task runs again."""

    task: int
    attempt: int
    at_s: float
    what: str
    because: int = -1
    """The position of the task that wrote there last; -1 if none did."""
    ending: Ending = NOTHING


class TaskReused(Struct, frozen=True, omit_defaults=True):
    """The result of an earlier attempt still holds: nothing that it depends on has changed."""

    task: int
    at_s: float


class TaskDelayed(Struct, frozen=True, omit_defaults=True):
    """An attempt failed in a way that another one may not."""

    task: int
    attempt: int
    at_s: float
    again_s: float
    fault: Fault
    ending: Ending = NOTHING


class TaskFailed(Struct, frozen=True, omit_defaults=True):
    """The task has no result and will have none."""

    task: int
    attempt: int
    at_s: float
    fault: Fault
    ending: Ending = NOTHING


class TaskSkipped(Struct, frozen=True, omit_defaults=True):
    """The task cannot start: something that it needs has failed."""

    task: int
    at_s: float
    because: int


class CallWaited(Struct, frozen=True, omit_defaults=True):
    """A call of a started task asked for a permit and is in the queue."""

    task: int
    at_s: float
    refused: str = ""
    """Why the provider has turned this call away, which asks once more: `rate: input`."""


class CallAdmitted(Struct, frozen=True, omit_defaults=True):
    """A call of a started task has its permit."""

    task: int
    at_s: float
    waited_for: str = ""
    """The limit, or what else, that it stood in line for longest: `input/60s`."""


class AttemptStuck(Struct, frozen=True, omit_defaults=True):
    """An attempt has done nothing for a while: no output, no call, no CPU; or goes on again."""

    task: int
    attempt: int
    at_s: float
    quiet_s: float = 0.0
    """For how long; 0 if it goes on."""


class RunHeld(Struct, frozen=True, omit_defaults=True):
    """No task starts until then (an empty usage window), or until it is continued (infinity)."""

    at_s: float
    until_s: float
    reason: str


class RunContinued(Struct, frozen=True, omit_defaults=True):
    """Tasks start again."""

    at_s: float


class RunStopping(Struct, frozen=True, omit_defaults=True):
    """Nothing more starts; what is started ends by itself, or now."""

    at_s: float
    reason: str
    is_now: bool = False


class RunFinished(Struct, frozen=True):
    """Nothing is active and nothing more will start. Complete if nothing is left or failed."""

    at_s: float
    finished: int
    failed: int
    skipped: int = 0
    left: int = 0
    effects: int = 0


Event = (
    RunBegan | GroupExpanded | WaveBegan | TaskStarted | TaskFinished | TaskProposed | TaskStale
    | TaskReused | TaskDelayed | TaskFailed | TaskSkipped | CallWaited | CallAdmitted | AttemptStuck
    | RunHeld
    | RunContinued | RunStopping | RunFinished
)  # fmt: skip


class Began(Struct, frozen=True):
    """The run may start."""


class Expanded(Struct, frozen=True):
    group: int
    count: int


class Finished(Struct, frozen=True):
    """An attempt is complete. What is said of an attempt that is no longer current is ignored."""

    task: int
    attempt: int
    ending: Ending = NOTHING


class Reused(Struct, frozen=True):
    """Instead of the attempt that was to start, an earlier result is taken."""

    task: int
    attempt: int


class Failed(Struct, frozen=True):
    task: int
    attempt: int
    fault: Fault
    ending: Ending = NOTHING


class Abandoned(Struct, frozen=True):
    """An attempt was ended because what it had read has changed."""

    task: int
    attempt: int
    ending: Ending = NOTHING


class Ticked(Struct, frozen=True):
    """A time that was asked for with `WakeAt` has come."""


class LocalRoom(Struct, frozen=True):
    """How many tasks that use this machine may be active at once, by its processors and memory."""

    places: float


Input = (
    Began | Expanded | Finished | Reused | Failed | Abandoned | Ticked | LocalRoom
    | CallWaited | CallAdmitted | AttemptStuck | RunHeld | RunContinued | RunStopping
)  # fmt: skip
"""The last five are facts that the driver knows first; the engine ignores those that come late."""


class StartAttempt(Struct, frozen=True):
    task: int
    attempt: int


class WakeAt(Struct, frozen=True):
    """Report `Ticked` at this time."""

    at_s: float


class CancelAll(Struct, frozen=True):
    """End every started attempt now; report nothing of them."""


class Abandon(Struct, frozen=True):
    """End an attempt that works on what has changed; report `Abandoned`."""

    task: int
    attempt: int


class Release(Struct, frozen=True):
    """Perform the effects that a committed task asked for, after those released before."""

    task: int
    acts: tuple[Act, ...]


Effect = StartAttempt | WakeAt | CancelAll | Abandon | Release
