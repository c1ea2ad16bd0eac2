"""The record to beat: what a discrete-event prototype of the law reached.

Makespan over bound, then refusals: 400 lognormal tasks, its own providers and constants. Its
providers are of the same kinds as ours and not the same: the numbers are a mark, not a race.
"""

from __future__ import annotations

from typing import Final

COLUMNS: Final = ("fixed:best", "aimd", "cubic", "cold", "profile", "hidden")

Mark = tuple[float, int] | None

RECORD: Final[dict[str, tuple[Mark, ...]]] = {
    "burst-60s": ((1.23, 1354), (1.44, 63), (1.31, 399), (1.13, 4), (1.03, 3), (1.21, 18)),
    "burst-3s": ((1.16, 2817), (1.32, 72), (1.25, 454), (1.15, 2), (1.09, 2), (1.21, 11)),
    "fixed-window": ((1.30, 1326), (1.47, 64), (1.34, 404), (1.27, 4), (1.13, 3), (1.30, 18)),
    "reserved": ((1.60, 3312), (1.64, 74), (1.65, 452), (1.41, 0), (1.40, 1), (2.14, 2)),
    "congested": ((1.03, 0), (1.52, 62), (1.63, 774), (1.08, 0), (1.02, 0), (1.08, 0)),
    "cap-7": ((1.01, 8018), (1.03, 395), (1.08, 704), (1.00, 7), (1.00, 7), (1.00, 8)),
    "neighbour": ((1.12, 3837), (1.25, 81), (1.22, 440), (1.15, 24), (1.08, 25), (1.10, 33)),
    "changing": ((1.11, 1410), (1.26, 93), (1.22, 456), (1.10, 4), (1.07, 9), (1.24, 34)),
    "hidden": ((1.18, 534), (1.32, 70), (1.24, 435), None, None, (1.16, 25)),
    "sub-second": ((3.50, 40), (2.20, 168), (1.44, 460), (1.10, 3), (1.08, 1), (3.47, 16)),
    "worst-mix": ((1.38, 367), (1.23, 102), (1.18, 541), None, None, (1.35, 28)),
}
