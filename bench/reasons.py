"""Why a goal is missed, where it is known: (provider, workload, column) -> a sentence.

The report prints `unexplained` for a miss that is not here.
"""

from __future__ import annotations

from typing import Final

COLD_22: Final = (
    "the best pool in hindsight is everybody at once; whoever knows nothing pays about one time to "
    "first byte to find out that this is safe, and 22 short calls do not last long enough to win "
    "it back"
)

CROWD_22: Final = "the curve of congestion is learned on a run that is nearly over by then"

BURST: Final = (
    "a limit by the second is enforced but not told: each burst that meets it is several refusals, "
    "because the calls of a burst are under way together"
)

SMALL_BUCKET: Final = (
    "resets are rounded to a second and the bucket holds three: its size is known to a third only "
    "until six readings have come"
)

CAP: Final = (
    "a cap on calls at once is not in the headers: it is met once, and tried again after 30 s, "
    "60 s, 120 s..., one refusal each, because it may have risen"
)

MIXED: Final = (
    "five hidden things at once, a neighbour among them: refusals for one are put down to another "
    "until the brackets contradict each other"
)

GRAPH: Final = (
    "the bound is the critical path without congestion, and the layers of the graph congest the "
    "provider whatever the order: the best baseline misses it by as much"
)

SILENT: Final = (
    "on a small silent bucket refill is lost while the guess is too low, and no refusal tells"
)

BACKLOG: Final = (
    "the neighbour got its share, but later than it wanted it: the bound lets it draw at once"
)

UNSEEN: Final = (
    "without headers a neighbour is not seen, only its refusals are shared: what it cannot place "
    "for ten seconds it gives up"
)

_MISSES: Final[dict[str, tuple[tuple[str, str, str], ...]]] = {
    COLD_22: tuple(
        (provider, "22", column)
        for provider in (
            "burst-60s", "burst-3s", "fixed-window", "reserved", "neighbour", "changing", "hidden",
        )
        for column in ("cold", "hidden")
    ),
    CROWD_22: tuple(
        (provider, "22", column)
        for provider in ("congested", "congested-5")
        for column in ("cold", "profile", "hidden")
    ),
    BURST: tuple(
        ("sub-second", workload, column)
        for workload in ("22", "1000", "graph")
        for column in ("cold", "profile", "hidden", "known")
    ),
    SMALL_BUCKET: (("burst-3s", "1000", "cold"), ("burst-3s", "1000", "profile")),
    SILENT: (("burst-3s", "1000", "hidden"),),
    BACKLOG: (("neighbour", "1000", "cold"), ("neighbour", "1000", "profile")),
    UNSEEN: (("neighbour", "1000", "hidden"),),
    CAP: (("cap-7", "1000", "cold"), ("cap-7", "22", "cold"), ("cap-7", "graph", "cold")),
    GRAPH: (("congested", "graph", "cold"), ("congested", "graph", "profile")),
    MIXED: tuple(
        ("worst-mix", workload, column)
        for workload in ("22", "1000", "graph")
        for column in ("cold", "profile", "hidden", "known")
    ),
}  # fmt: skip

REASONS: Final[dict[tuple[str, str, str], str]] = {
    cell: reason for reason, cells in _MISSES.items() for cell in cells
}
