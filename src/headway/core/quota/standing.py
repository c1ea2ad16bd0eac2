"""How limits stood when a process last saw them, and how the next one goes on from there.

Laws:
- What was used stays used: buckets refill, windows end and ceilings forget as if nobody had been
  away.
- In doubt more is counted than was used, never less.
"""

from __future__ import annotations

from collections.abc import Iterable

from headway.core.quota.balance import Balance
from headway.core.quota.mirror import Mirror, is_about
from headway.core.quota.window import Bucket, FixedWindow
from headway.core.values import LimitReading


def standing(mirror: Mirror, now: float) -> LimitReading:
    """How a limit stands, in the form in which a response would report it.

    `utilization` is what we took of the limit ourselves, where the user set a ceiling on that.
    """
    balance, meter, ceiling = mirror.balance, mirror.balance.meter, mirror.balance.ceiling
    limit, level = balance.limit, balance.level(now)
    reset_s = meter.boundary_s - now if isinstance(meter, FixedWindow) else None
    ours = None
    if ceiling is not None:
        ours = (ceiling.size - ceiling.level(now)) / max(1.0, limit.amount)
    return LimitReading(limit.resource, limit.period_s, limit.amount, level, reset_s, ours)


def restore(
    mirrors: Iterable[Mirror], levels: Iterable[LimitReading], at_s: float, now: float
) -> None:
    """Go on from where the limits stood at `at_s`. The mirrors are new."""
    standings = tuple(levels)
    for mirror in mirrors:
        for told in standings:
            if is_about(mirror.balance.limit, told):
                _restore(mirror.balance, told, at_s, now)


def _restore(balance: Balance, told: LimitReading, at_s: float, now: float) -> None:
    meter, limit, ceiling = balance.meter, balance.limit, balance.ceiling
    amount, remaining = told.limit or 0.0, told.remaining or 0.0
    # Of a bucket that nobody had set a ceiling for, it is not known what we took in a period.
    ours = 0.0
    if isinstance(meter, Bucket):
        meter.set_level(remaining + meter.rate_per_s * (now - at_s), now)
    else:
        if isinstance(meter, FixedWindow) and told.reset_s is not None:
            # Aligned as it was, even where that window is over by now.
            meter.boundary_s = at_s + told.reset_s
        ours = amount - remaining
        meter.charge(ours, at_s)
    if told.utilization is not None:
        ours = told.utilization * max(1.0, amount)
    if ceiling is not None and (limit.kind == "gauge" or now - at_s < limit.period_s):
        ceiling.charge(ours, now)
