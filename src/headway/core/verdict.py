"""What state a run is in, by its facts and by whether somebody still performs it."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import Literal

from headway.core.engine.events import RunFinished
from headway.core.story import Standing

RunState = Literal[
    "new",  # nothing has happened yet
    "running",
    "paused",  # until somebody lets it go on
    "waiting",  # for a usage window
    "stopping",  # nothing more starts; what is started ends
    "done",
    "failed",  # over, and some tasks have no result
    "stopped",  # over, and some tasks were not come to
    "interrupted",  # its process is gone
]


@dataclass(frozen=True, slots=True)
class Verdict:
    """The state of a run and what it is due to."""

    state: RunState
    reason: str = ""
    until_s: float | None = None

    @property
    def is_live(self) -> bool:
        """Whether a process performs it."""
        return self.state in ("running", "paused", "waiting", "stopping")

    @property
    def is_resumable(self) -> bool:
        """Whether there is something left that another process could do."""
        return self.state in ("new", "failed", "stopped", "interrupted")


def verdict(standing: Standing, is_owned: bool, now_s: float) -> Verdict:
    """The state of a run; `is_owned` is whether a live process has it."""
    if standing.finished is not None:
        return _over(standing, standing.finished)
    if not is_owned:
        gone = standing.stopping_for or "its process is gone"
        return Verdict("interrupted", gone) if standing.parts else Verdict("new")
    if standing.stopping_for is not None:
        return Verdict("stopping", standing.stopping_for)
    until_s = standing.held_until_s
    if until_s == inf:
        return Verdict("paused", standing.held_for)
    if until_s is not None and until_s > now_s:
        return Verdict("waiting", standing.held_for, until_s)
    return Verdict("running")


def _over(standing: Standing, finished: RunFinished) -> Verdict:
    if finished.left:
        return Verdict("stopped", standing.stopping_for or "", standing.held_until_s)
    if finished.effects and not (finished.failed or finished.skipped):
        return Verdict("stopped", f"{finished.effects} effects were not performed")
    return Verdict("failed" if finished.failed or finished.skipped else "done")
