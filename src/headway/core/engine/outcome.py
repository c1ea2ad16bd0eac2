"""What becomes of an attempt that has ended: a result, another attempt, a failure, or a wait.

Laws:
- A fault that another attempt may not meet is tried again, as often as the plan or the run says.
- What has touched the shared state is judged by it first: a failure that came of a stale read is
  none, and neither is a result.
"""

from __future__ import annotations

from math import inf
from typing import Final

from headway.core.engine.coherence import Breach, Coherence, Early
from headway.core.engine.events import (
    Abandoned,
    Event,
    Failed,
    Finished,
    TaskDelayed,
    TaskFailed,
    TaskFinished,
    TaskProposed,
    TaskStale,
)
from headway.core.engine.snapshot import Change
from headway.core.engine.state import State, is_put_back
from headway.core.values import Fault, FaultKind

RETRIED: Final[frozenset[FaultKind]] = frozenset(
    ("overload", "broken", "server", "timeout", "connection", "rate", "concurrency", "disk")
)
"""Faults that another attempt may not meet. Waiting does not mend a request, a cap or a bill."""

OWN: Final[frozenset[FaultKind]] = frozenset(("command", "function", "unfit"))
"""Faults of the work itself: tried again only where the plan says how often."""

RETRY_S: Final = 1.0
RETRY_S_MAX: Final = 30.0
DOUBLINGS_MAX: Final = 10
"""The delay doubles with each attempt; further doublings are beyond its maximum."""


def outcome(state: State, happened: Finished | Failed | Abandoned, now: float) -> Event:
    """What the end of a current attempt means, as a fact."""
    coherence = state.coherence
    is_shared = coherence is not None and coherence.has(happened.task)
    if isinstance(happened, Abandoned):
        return _abandonment(state, happened, now)
    if isinstance(happened, Failed):
        lost = _failure(state, happened, now)
        # What is tried again anyway sees the state anew; what ends here may be due to a stale one.
        if is_shared and (isinstance(lost, TaskFailed) or happened.fault.kind not in RETRIED):
            return judged(state, happened, happened.fault, now)
        return lost
    if is_shared:
        return judged(state, happened, None, now)
    return TaskFinished(happened.task, happened.attempt, now, happened.ending)


def judged(state: State, happened: Finished | Failed, fault: Fault | None, now: float) -> Event:
    """What becomes of an attempt that has touched the shared state."""
    coherence, task, attempt = state.coherence, happened.task, happened.attempt
    assert coherence is not None
    verdict = coherence.judge(task, coherence.access_of(task))
    if isinstance(verdict, Change):
        return TaskStale(task, attempt, now, verdict.what, verdict.position, happened.ending)
    if isinstance(verdict, Early):
        return TaskProposed(task, attempt, now, happened.ending, fault)
    if isinstance(verdict, Breach):
        fault = _breach(state, coherence, verdict)
    if fault is None:
        return TaskFinished(task, attempt, now, happened.ending)
    return _failure(state, Failed(task, attempt, fault, happened.ending), now)


def _breach(state: State, coherence: Coherence, found: Breach) -> Fault:
    name = state.graph.groups[coherence.places.who(found.position)[0]].name
    detail = (
        f"it touched `{found.what}` without declaring it, and `{name}`, which comes later and "
        f"did too, is committed; add `writes: {found.what}`"
    )
    return Fault("request", detail=detail)


def _abandonment(state: State, happened: Abandoned, now: float) -> Event:
    """An attempt was ended for what it had read; it may have become right again meanwhile."""
    task, coherence = happened.task, state.coherence
    assert coherence is not None
    verdict = coherence.judge(task, coherence.access_of(task))
    what, because = (verdict.what, verdict.position) if isinstance(verdict, Change) else ("", -1)
    return TaskStale(task, happened.attempt, now, what, because, happened.ending)


def is_last(state: State, task: int, attempt: int) -> bool:
    """Whether the plan allows no attempt after this one for faults that may pass."""
    group = state.graph.groups[state.ready_set.numbers.group_of(task)]
    retries = state.rules.retries if group.retries is None else group.retries
    return attempt - state.earlier.get(task, 0) > retries


def _failure(state: State, happened: Failed, now: float) -> Event:
    task, attempt, fault = happened.task, happened.attempt, happened.fault
    if fault.retry_after_s == inf:
        # Nothing was sent, and nothing will be in this run: the task is neither done nor failed.
        return TaskDelayed(task, attempt, now, inf, fault, happened.ending)
    group = state.graph.groups[state.ready_set.numbers.group_of(task)]
    tries = attempt - state.earlier.get(task, 0)
    is_curable = fault.kind in RETRIED or (fault.kind in OWN and group.retries is not None)
    is_retried = is_curable and not is_last(state, task, attempt)
    is_refused = state.rules.is_patient and fault.kind in ("rate", "concurrency")
    if is_refused or is_retried or is_put_back(state, fault, now):
        delay_s = min(RETRY_S_MAX, RETRY_S * 2.0 ** min(tries - 1, DOUBLINGS_MAX))
        delay_s = max(delay_s, fault.retry_after_s or 0.0)
        return TaskDelayed(task, attempt, now, now + delay_s, fault, happened.ending)
    return TaskFailed(task, attempt, now, fault, happened.ending)
