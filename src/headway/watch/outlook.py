"""How long the rest of another process's run takes, and what it waits for: asked, not watched.

Law: as everywhere, no time to the end is told without the quota's bound beside it, or that the
bound is not known.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from headway.core.engine.events import Event, GroupExpanded
from headway.core.progress import Cast, Progress, Rest
from headway.core.quota.view import LaneView
from headway.errors import HeadwayError
from headway.runtime.declared import plans_of
from headway.runtime.forecasts import kept_forecast
from headway.runtime.journal_reader import JournalReader
from headway.runtime.planrun import PlanSource
from headway.watch.glance import Glance

FACTS_MAX: Final = 20_000
"""The newest facts of a run: more than a minute has, and read in a few tenths of a second."""


@dataclass(frozen=True, slots=True)
class Outlook:
    """What is left of a run that goes on."""

    rest: Rest
    waits_for: str = ""
    """What its calls wait for at the account."""


def source_of(reader: JournalReader) -> PlanSource | None:
    """The plan of a run as it was last performed; None if it is no plan, or nobody can read it."""
    if reader.header.kind != "plan":
        return None
    try:
        return PlanSource.kept(reader.folder, reader.header.source)
    except (ValueError, TypeError, KeyError):
        return None


def outlook(reader: JournalReader, glance: Glance, source: PlanSource | None) -> Outlook:
    """The rest of a run, as its newest facts and its account tell it."""
    ended = sum(glance.of(state) for state in ("finished", "failed", "skipped"))
    left = max(0, glance.total - ended)
    if source is not None and not _is_whole(reader, source):
        return Outlook(Rest(left))
    # A run that was resumed takes other times than the one that was foreseen.
    foreseen = kept_forecast(reader.folder) if glance.standing.parts <= 1 else None
    foreseen_s = None if foreseen is None else foreseen.time_s.mid
    progress = Progress(Cast("", ("tasks",), (0,), lambda _: 0, str, foreseen_s=foreseen_s))
    for recorded in reader.events(max(0, glance.summary.events - FACTS_MAX)):
        # All tasks are one group here, whose size is known already.
        if isinstance(recorded.event, Event) and not isinstance(recorded.event, GroupExpanded):
            progress.hear([recorded.event])
    group = progress.groups[0]
    group.total = left + group.ended
    # The simulated provider is in the run's own process: no account of ours knows of it.
    lanes = () if source is not None and source.sim is not None else _lanes(glance.pid)
    limits = [one for lane in lanes for one in lane.limits]
    waits = "; ".join(lane.waits_for for lane in lanes if lane.waits_for)
    return Outlook(progress.rest(limits, glance.now_s), waits)


def _is_whole(reader: JournalReader, source: PlanSource) -> bool:
    """Whether all tasks of a plan are known: a group may be found at run time."""
    try:
        groups = plans_of(reader, source).expanded.groups
    except (HeadwayError, ValueError, TypeError, KeyError):
        return False  # A file that the plan names is gone: nobody knows.
    return all(group.members is not None for group in groups)


def _lanes(pid: int | None) -> Sequence[LaneView]:
    """The accounts that a process calls, as the broker sees them."""
    from headway.runtime.admission import admission

    try:
        view, about = admission().describe()
    except HeadwayError:
        return ()  # Without a broker there is no bound, and everything else can still be told.
    ids = {client for client, name in about.clients if name.endswith(f"[{pid}]")}
    return [lane for lane in view.lanes if any(one.client in ids for one in lane.callers)]
