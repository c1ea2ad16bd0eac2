"""Usage windows of a simulated account: so many tokens in five hours, told as the share used.

Laws:
- A window counts what was really used: input when a call is admitted, output when it has ended.
- A call is let in while anything is left, and may use more than that: the next one is refused.
- A window begins when its account is opened, and the next one when it ends.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from headway.core.quota.dialect import WINDOW_5H_S
from headway.core.quota.window import FixedWindow
from headway.core.values import LimitReading


@dataclass(frozen=True, slots=True)
class UsageWindow:
    """So many tokens in a period."""

    tokens: float
    period_s: float = WINDOW_5H_S
    """The period that it is named after..."""
    lasts_s: float | None = None
    """...and how long it really lasts, if somebody cannot wait for that."""


@dataclass(frozen=True, slots=True)
class UsageStatistics:
    """Share used of the fullest window."""

    utilization: float


class Usage:
    """All usage windows of one account."""

    __slots__ = ("_meters",)

    def __init__(self, windows: Sequence[UsageWindow], now: float) -> None:
        self._meters: list[tuple[UsageWindow, FixedWindow]] = []
        for one in windows:
            lasts_s = one.period_s if one.lasts_s is None else one.lasts_s
            self._meters.append((one, FixedWindow(one.tokens, lasts_s, now + lasts_s)))

    def __repr__(self) -> str:
        return f"<Usage {[meter for _, meter in self._meters]!r}>"

    def charge(self, tokens: float, now: float) -> None:
        """So many tokens were used."""
        for _, meter in self._meters:
            meter.charge(tokens, now)

    def empty_until_s(self, now: float) -> float:
        """When something is left of every window: now, if that is so already."""
        ends = [meter.boundary_s for _, meter in self._meters if meter.available(now) <= 0]
        return max(ends, default=now)

    def readings(self, now: float) -> tuple[LimitReading, ...]:
        """The windows as headers report them: the share used, and when they end."""
        return tuple(
            LimitReading("tokens", one.period_s, None, None,
                         reset_s=_left_s(meter, now), utilization=_share(meter))
            for one, meter in self._meters
        )  # fmt: skip

    def statistics(self) -> UsageStatistics:
        return UsageStatistics(max((_share(meter) for _, meter in self._meters), default=0.0))


def _left_s(meter: FixedWindow, now: float) -> float:
    """Until the window ends; a window that has ended makes room for the next one first."""
    meter.available(now)
    return meter.boundary_s - now


def _share(meter: FixedWindow) -> float:
    return min(1.0, meter.statistics().used / meter.limit)
