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
    is_shown: bool
    """Whether a response to this process has shown it."""
    before: tuple[float, float]
    """Tokens and rise of the windows before this one."""
    first: tuple[float, float]
    """All tokens, and the share, when this one was first seen."""
    last: float
    """All tokens when it was last seen."""

    def told(self, used: float, resets_at_s: float, total: float, now: float) -> None:
        """A response showed how it stands, when we had used so much."""
        if now >= self.resets_at_s or used < self.used - STEP / 2.0:
            tokens, rise = self.shown()
            self.before = (MEMORY * tokens, MEMORY * rise)
            self.first = (total, used)
        self.used, self.resets_at_s, self.last = used, resets_at_s, total
        self.is_shown = True

    def shown(self) -> tuple[float, float]:
        """What we used, and how far the share rose meanwhile."""
        tokens, rise = self.before
        return tokens + self.last - self.first[0], rise + max(0.0, self.used - self.first[1])

    def kept(self, period_s: float, now: float) -> WindowState:
        is_over = now >= self.resets_at_s
        left_s = 0.0 if is_over else self.resets_at_s - now
        return WindowState(period_s, 0.0 if is_over else self.used, left_s, *self.shown())


class Allowances:
    """All usage windows of an account."""

    def __init__(self, share: float) -> None:
        self._share = share
        self._total = 0.0
        self._windows: dict[float, _Window] = {}

    def wait(self, now: float) -> Wait | None:
        """The window that holds all calls back now."""
        for period_s, window in self._windows.items():
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
        window = self._windows.get(told.period_s)
        if window is None:
            used, total = told.utilization, self._total
            new = _Window(used, resets_at_s, True, (0.0, 0.0), (total, used), total)
            self._windows[told.period_s] = new
        else:
            window.told(told.utilization, resets_at_s, self._total, now)
        return True

    def settle(self, tokens: float) -> None:
        """A call used so many."""
        self._total += tokens

    def restore(self, kept: Iterable[WindowState], at_s: float) -> None:
        """Go on from where windows stood at `at_s`."""
        for one in kept:
            total = self._total
            self._windows[one.period_s] = _Window(
                one.used, at_s + one.resets_s, False, (one.tokens, one.rise), (total, one.used),
                total,
            )  # fmt: skip

    def statistics(self, now: float) -> tuple[WindowState, ...]:
        """As they stand; a window that is over is empty."""
        return tuple(window.kept(period_s, now) for period_s, window in self._windows.items())
