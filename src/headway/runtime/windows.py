"""How long a run may wait for a usage window: `--wait 6h`, `--until 18:00`, `--no-wait`."""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from math import inf
from typing import Final

from headway.core.values import DAY_S, HOUR_S, MINUTE_S
from headway.errors import BadValueError

_UNITS: Final = {"d": DAY_S, "h": HOUR_S, "m": MINUTE_S, "s": 1.0}
_SPAN: Final = re.compile(r"(?:([0-9]+(?:\.[0-9]+)?)([dhms]))+")
_PART: Final = re.compile(r"([0-9]+(?:\.[0-9]+)?)([dhms])")
_TIME: Final = re.compile(r"([0-9]{1,2}):([0-9]{2})(?::([0-9]{2}))?")

SPAN_S_MAX: Final = 366 * DAY_S


def span_s(text: str) -> float:
    """`90`, `30s`, `10m`, `6h`, `1h30m`, `2d`: seconds."""
    plain = text.strip().lower()
    if re.fullmatch(r"[0-9]+(?:\.[0-9]+)?", plain):
        seconds = float(plain)
    elif _SPAN.fullmatch(plain):
        seconds = sum(float(number) * _UNITS[unit] for number, unit in _PART.findall(plain))
    else:
        raise BadValueError(f"`{text}` is not a length of time", hint="write 6h, 90m or 1h30m")
    if seconds > SPAN_S_MAX:
        raise BadValueError(f"`{text}` is longer than a year")
    return seconds


def moment_s(text: str, now_s: float) -> float:
    """`18:00`: the next time that the clock on the wall shows it; or a date with a time."""
    now = datetime.fromtimestamp(now_s)
    plain = text.strip()
    found = _TIME.fullmatch(plain)
    try:
        if found is None:
            # A zone that is written counts; without one, the wall's.
            return datetime.fromisoformat(plain).timestamp()
        hour, minute, second = (int(part or 0) for part in found.groups())
        then = now.replace(hour=hour, minute=minute, second=second, microsecond=0)
    except (ValueError, OverflowError):
        raise BadValueError(
            f"`{text}` is not a time of day", hint="write 18:00 or 2026-11-16T18:00"
        ) from None
    if then <= now:
        # Through the calendar and not by 86,400 s: days on which clocks change are not as long.
        then += timedelta(days=1)
    return then.timestamp()


def deadline_s(wait: str | None, until: str | None, no_wait: bool, now_s: float) -> float:
    """Until when a run may wait, by the wall clock: `inf` is as long as it takes, `-inf` never."""
    given = [
        name
        for name, is_given in (
            ("--wait", wait is not None),
            ("--until", until is not None),
            ("--no-wait", no_wait),
        )
        if is_given
    ]
    if len(given) > 1:
        raise BadValueError(f"{' and '.join(given)} contradict each other", hint=f"keep {given[0]}")
    if no_wait:
        return -inf
    if wait is not None:
        return now_s + span_s(wait)
    return inf if until is None else moment_s(until, now_s)
