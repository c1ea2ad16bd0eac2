"""When a run will be over, asked while it goes on: a virtual run's facts, folded as a screen does.

The quota's levels are kept whenever the door opens, so that everything is known that a live run
would have known at that moment, and nothing more.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from bench.forecast_cases import LATER, Case, Item
from bench.forecast_virtual import Outcome, performed
from headway.engine.events import Ending, Event, TaskFinished
from headway.pacing.calls import AccountCalls
from headway.pacing.estimate import OutputLength
from headway.pacing.view import LimitView
from headway.report.history import RunHistory
from headway.report.progress import time_left
from headway.sim.clients import PacedDoor

MARKS: Final = (0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
"""Shares of the run's time at which the time to the end is read."""

Levels = tuple[LimitView, ...]


class WatchedDoor(PacedDoor):
    """A door that remembers how the limits stood whenever it was opened."""

    def __init__(self, calls: AccountCalls, lengths: OutputLength) -> None:
        super().__init__(calls, lengths)
        self.times: list[float] = []
        self.levels: list[Levels] = []

    def open(self, now: float) -> list[int]:
        sent = super().open(now)
        self.times.append(now)
        self.levels.append(
            tuple(
                LimitView(
                    mirror.limit,
                    max(0.0, mirror.meter.size - mirror.level(now)),
                    spare=mirror.spare(),
                    holds=mirror.holds(),
                )
                for mirror in self.calls.account.limits
            )
        )
        return sent

    def at(self, now: float) -> Levels:
        """As they stood when it was last opened, and what has come back since."""
        last = max(0, bisect_right(self.times, now) - 1)
        passed_s = now - self.times[last]
        return tuple(
            replace(one, used=max(0.0, one.used - one.limit.rate_per_s * passed_s))
            for one in self.levels[last]
        )


class Look(Struct, frozen=True):
    """The time to the end at one moment: its error as a share of the run's whole time."""

    at: float
    off: float | None
    """None: nothing was said."""
    simple_off: float | None
    """The error of the simplest estimate: the mean time of a task that ended, times those left."""


class Replayed(Struct, frozen=True):
    """A case with all that was said of its end."""

    outcome: Outcome
    looks: tuple[Look, ...]


def replayed(case: Case, is_foreseen: bool = True) -> Replayed:
    """Foresee and perform a case, and look at it while it goes on."""
    outcome, ran, door = performed(case, WatchedDoor)
    history = RunHistory(keeps_ended=False)
    foreseen_s = outcome.foreseen.time_s.mid if is_foreseen else None
    items, looks, ended = case.items(LATER, case.count), list[Look](), 0
    for event in ran.events:
        while len(looks) < len(MARKS) and event.at_s >= MARKS[len(looks)] * outcome.time_s:
            at = MARKS[len(looks)]
            now_s, whole_s = at * outcome.time_s, outcome.time_s
            simple = (now_s / ended * case.count - whole_s) / whole_s if ended else None
            left = outcome.count - history.performed
            limits = [door.at(now_s)]
            eta_s = time_left(history, left, limits, now_s, foreseen_s=foreseen_s).eta_s
            off = None if eta_s is None else (now_s + eta_s - whole_s) / whole_s
            looks.append(Look(at, off, simple))
        ended += isinstance(event, TaskFinished)
        number = getattr(event, "task", None)
        history.apply(b"" if number is None else b"%d" % number, _told(event, items))
    return Replayed(outcome, tuple(looks))


def _told(event: Event, items: Sequence[Item]) -> Event:
    """A rehearsal's facts do not say what a call took; a real run's do."""
    if not isinstance(event, TaskFinished):
        return event
    item = items[event.task]
    ending = Ending(input_tokens=item.input_tokens, output_tokens=item.output_tokens, calls=1)
    return replace(event, ending=ending)
