"""Usage windows of subscriptions: their size learned from our own use.

Laws:
- At the user's ceiling a window holds all calls until its reset, once a response to this process
  has shown it: of an older window, one call finds out whether it was paid since.
- A window holds what we used while its share rose, divided by that rise. What others use
  meanwhile makes it look smaller, never larger.
- Shares are rounded to hundredths: a rise of less than `RISE_MIN` gives no size.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from msgspec import Struct

from headway.base.values import HOUR_S, LimitReading, Wait

RISE_MIN: Final = 0.03
"""A rise of three hundredths is known to a third."""

STEP: Final = 0.01
"""Shares are rounded to this."""

MEMORY: Final = 0.5
"""What earlier windows showed counts by half with every new one: plans change, and so do sizes."""


class WindowState(Struct, frozen=True):
    """A usage window, as it stands and as far as it is known: plain data."""

    period_s: float
    used: float
    """The share."""
    resets_s: float
    """From now."""
    tokens: float = 0.0
    """What we used..."""
    rise: float = 0.0
    """...while the share rose by so much."""

    @property
    def word(self) -> str:
        """`5h`, `7d`: as providers call them."""
        hours = self.period_s / HOUR_S
        return f"{hours / 24.0:g}d" if hours >= 48.0 else f"{hours:g}h"

    @property
    def size_tokens(self) -> float | None:
        """How many tokens it holds, if that can be told."""
        if self.rise < RISE_MIN or self.tokens <= 0.0:
            return None
        return self.tokens / self.rise

    @property
    def doubt(self) -> float:
        """How far off its size may be, as a share of it."""
        return STEP / self.rise if self.rise > 0.0 else 1.0


class _Window(Struct):
    """One window while a process lives."""

    used: float
    resets_at_s: float
    tokens: float = 0.0
    rise: float = 0.0
    unread_tokens: float = 0.0
    """What we used since a response last showed it."""
    is_shown: bool = False
    """Whether a response to this process has shown it."""


class Allowances:
    """All usage windows of an account."""

    def __init__(self, share: float) -> None:
        self._share = share
        self.windows: dict[float, _Window] = {}

    def wait(self, now: float) -> Wait | None:
        """The window that holds all calls back now."""
        for period_s, window in self.windows.items():
            is_full = window.is_shown and window.used >= self._share
            if is_full and now < window.resets_at_s:
                why = f"usage window is {window.used:.0%} used"
                return Wait(f"usage/{period_s:g}s", window.resets_at_s, why)
        return None

    def observe(self, told: LimitReading, now: float) -> bool:
        """Learn from a reading of a usage window; False if it is not about one."""
        if told.utilization is None or told.period_s is None:
            return False
        # A window whose reset is not told lasts no longer than its period.
        resets_at_s = now + (told.period_s if told.reset_s is None else told.reset_s)
        used = told.utilization
        window = self.windows.setdefault(told.period_s, _Window(used, resets_at_s))
        if now >= window.resets_at_s or used < window.used - STEP / 2.0:
            window.tokens, window.rise = MEMORY * window.tokens, MEMORY * window.rise
        else:
            window.tokens += window.unread_tokens
            window.rise += used - window.used
        window.used, window.resets_at_s = used, resets_at_s
        window.unread_tokens, window.is_shown = 0.0, True
        return True

    def settle(self, tokens: float) -> None:
        """A call used so many."""
        for window in self.windows.values():
            window.unread_tokens += tokens

    def restore(self, kept: Iterable[WindowState], at_s: float) -> None:
        """Go on from where windows stood at `at_s`."""
        for one in kept:
            resets_at_s = at_s + one.resets_s
            self.windows[one.period_s] = _Window(one.used, resets_at_s, one.tokens, one.rise)

    def statistics(self, now: float) -> tuple[WindowState, ...]:
        """As they stand; a window that is over is empty."""
        return tuple(
            WindowState(
                period_s, one.used if now < one.resets_at_s else 0.0,
                max(0.0, one.resets_at_s - now), one.tokens, one.rise,
            )
            for period_s, one in self.windows.items()
        )  # fmt: skip
