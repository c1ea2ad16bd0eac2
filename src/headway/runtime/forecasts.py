"""What was foreseen of a run when it began, kept beside its journal to be compared with the truth.

Laws:
- What was kept is read back equal; later versions may add to it.
- A forecast is never a reason why a run fails: one that cannot be kept or read is told in a word.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Final

from headway.core.foresight.foreseen import Foreseen
from headway.errors import WireError
from headway.runtime.codec import decode, encode
from headway.runtime.runs import keep_file

NAME: Final = "forecast.json"
"""In a run's folder."""

NONE: Final = "none"


@dataclass(frozen=True, slots=True)
class KeptForecast:
    """What is known of a run's forecast: what it says, or why there is none."""

    foreseen: Foreseen | None
    word: str = ""
    """`none`, `spoilt` or `unreadable`; empty if there is one."""


def keep_forecast(folder: str, foreseen: Foreseen) -> bool:
    """Keep what was foreseen; whether that worked."""
    try:
        keep_file(folder, NAME, encode(foreseen))
    except OSError:
        return False
    return True


def kept_forecast(folder: str) -> Foreseen | None:
    """What was foreseen; None if nothing was, or nobody can read it."""
    return read_forecast(folder).foreseen


def read_forecast(folder: str) -> KeptForecast:
    """The same, with the reason why there is none."""
    try:
        with open(os.path.join(folder, NAME), "rb") as file:
            return KeptForecast(decode(Foreseen, file.read()))
    except FileNotFoundError:
        return KeptForecast(None, NONE)
    except OSError:
        return KeptForecast(None, "unreadable")
    except WireError:
        return KeptForecast(None, "spoilt")
