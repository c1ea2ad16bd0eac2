"""Usage windows of subscriptions: who waits for them, and their size learned from our own use.

Laws:
- A window that is empty, or used up to the user's ceiling, holds the calls that it binds until its
  reset. Of one that is only remembered, one call finds out whether it was paid since.
- A window named by a period alone binds all models of the account; one with another name binds
  those that it was seen to refuse. All models of an account share its windows.
- Resets move and people buy more: where a refusal is free, one call in `PROBE_S` finds out.
- A window holds what we used while its share rose, divided by that rise. What others use
  meanwhile makes it look smaller, never larger.
- Shares are rounded to hundredths: a rise of less than `RISE_MIN` gives no size.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from math import inf
from typing import Final

from msgspec import Struct, field

from headway.base.values import DAY_S, LimitReading, Wait

RISE_MIN: Final = 0.03
"""A rise of three hundredths is known to a third."""

STEP: Final = 0.01
"""Shares are rounded to this."""

MEMORY: Final = 0.5
"""What earlier windows showed counts by half with every new one: plans change, and so do sizes."""

PROBE_S: Final = 900.0
"""How often a call tries whether an empty window has been filled before its reset."""

UNTOLD_S: Final = DAY_S
"""How long an empty window holds of which neither reset nor period is told."""

_EVERY_MODEL: Final = re.compile(r"[0-9]+[mhd]|usage|unified|primary|secondary")


class WindowState(Struct, frozen=True):
    """A usage window, as it stands and as far as it is known: plain data."""

    name: str
    """As its provider calls it: `5h`, `7d`, `7d_oi`."""
    period_s: float | None
    used: float
    """The share."""
    resets_s: float
    """From now."""
    tokens: float = 0.0
    """What we used..."""
    rise: float = 0.0
    """...while the share rose by so much."""
    is_empty: bool = False
    models: tuple[str, ...] = ()
    """Those that it binds; none: all of the account."""

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
    period_s: float | None = None
    tokens: float = 0.0
    rise: float = 0.0
    is_empty: bool = False
    models: set[str] = field(default_factory=set)
    unread_tokens: float = 0.0
    """What we used since a response last showed it."""
    probe_s: float = inf
    """When one call tries whether it is as it was."""


class Allowances:
    """What all models of an account share: its usage windows, and the calls that it may have in
    flight at once."""

    def __init__(self) -> None:
        self.windows: dict[str, _Window] = {}
        self.in_flight = 0
        self.slots = inf
        """The most that the user allows in flight."""
        self.changes = 0
        """How often anything changed: decisions from before do not stand."""

    def wait(self, model: str, share: float, now: float) -> Wait | None:
        """The window that holds calls to this model back now; the one that resets last."""
        last: Wait | None = None
        for name, window in self.windows.items():
            is_full = window.is_empty or (share < 1.0 and window.used >= share)
            if not (is_full and now < min(window.resets_at_s, window.probe_s)):
                continue
            if not _binds(name, window, model):
                continue
            if last is None or window.resets_at_s > last.until_s:
                binds = "usage" if binds_all(name) else "one model"
                why = f"usage window {name} is {window.used:.0%} used"
                last = Wait(f"{binds}/{name}", window.resets_at_s, why)
        return last

    def next_probe_s(self, now: float) -> float:
        """When a call will next try whether a window is as it was."""
        return min((one.probe_s for one in self.windows.values() if one.probe_s > now), default=inf)

    def sent(self, now: float) -> None:
        """A call leaves: if it tries an empty window, the next try is later."""
        for window in self.windows.values():
            if now >= window.probe_s:
                window.probe_s = now + PROBE_S
                self.changes += 1

    def observe(self, told: LimitReading, model: str, may_probe: bool, now: float) -> None:
        """Learn from a reading of a usage window, in a response of this model."""
        self.changes += 1
        # A window whose reset is not told lasts no longer than its period.
        lasts_s = told.period_s or UNTOLD_S if told.reset_s is None else told.reset_s
        used, resets_at_s = told.utilization or 0.0, now + lasts_s
        window = self.windows.setdefault(told.window, _Window(used, resets_at_s))
        if now >= window.resets_at_s or used < window.used - STEP / 2.0:
            window.tokens, window.rise = MEMORY * window.tokens, MEMORY * window.rise
        else:
            window.tokens += window.unread_tokens
            window.rise += used - window.used
        window.used, window.resets_at_s, window.period_s = used, resets_at_s, told.period_s
        window.unread_tokens, window.is_empty = 0.0, told.is_empty
        if told.is_empty:
            window.models.add(model)
        if not (told.is_empty and may_probe):
            window.probe_s = inf
        elif window.probe_s == inf:
            window.probe_s = now + PROBE_S

    def settle(self, model: str, tokens: float) -> None:
        """A call to this model used this many tokens."""
        for name, window in self.windows.items():
            if _binds(name, window, model):
                window.unread_tokens += tokens

    def refresh(self) -> None:
        """People bought more, or a reset moved: one call finds out."""
        self.changes += 1
        for window in self.windows.values():
            window.probe_s = -inf

    def restore(self, kept: Iterable[WindowState], at_s: float) -> None:
        """Go on from where windows stood at `at_s`; what is known already stays."""
        for one in kept:
            window = _Window(one.used, at_s + one.resets_s, one.period_s, one.tokens, one.rise,
                             one.is_empty, set(one.models), probe_s=-inf)  # fmt: skip
            self.windows.setdefault(one.name, window)

    def statistics(self, now: float) -> tuple[WindowState, ...]:
        """As they stand; a window that is over is unused."""
        found = []
        for name, one in self.windows.items():
            is_over = now >= one.resets_at_s
            models = () if binds_all(name) else tuple(sorted(one.models))
            found.append(WindowState(
                name, one.period_s, 0.0 if is_over else one.used,
                max(0.0, one.resets_at_s - now), one.tokens, one.rise,
                one.is_empty and not is_over, models,
            ))  # fmt: skip
        return tuple(found)


def binds_all(name: str) -> bool:
    """Whether a window of this name is one of all models."""
    return _EVERY_MODEL.fullmatch(name) is not None


def _binds(name: str, window: _Window, model: str) -> bool:
    return binds_all(name) or model in window.models
