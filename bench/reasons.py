"""Why a goal is missed, where it is known: (provider, workload, column) -> a sentence.

The report prints `unexplained` for a miss that is not here.
"""

from __future__ import annotations

from typing import Final

REASONS: Final[dict[tuple[str, str, str], str]] = {}
