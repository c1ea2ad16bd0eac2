"""The providers that pacing is measured against, with the constants that it was developed with."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from headway.core.foresight.account import Neighbour, Terms
from headway.core.foresight.provider import Faults, Latency, ProviderSpec
from headway.core.values import Limit, LimitKind


def _limits(scale: float = 1.0, kind: LimitKind = "bucket") -> tuple[Limit, ...]:
    return (
        Limit("requests", 600 * scale, kind=kind),
        Limit("input", 400_000 * scale, kind=kind),
        Limit("output", 80_000 * scale, kind=kind),
    )


def _burst(limits: tuple[Limit, ...], seconds: float) -> tuple[Limit, ...]:
    return tuple(replace(limit, burst=limit.rate_per_s * seconds) for limit in limits)


def _cap(amount: float) -> tuple[Limit, ...]:
    return (Limit("concurrency", amount, 0.0, "gauge"),)


_SILENT: Final = Faults(retry_after="none")
_WIDE: Final = _limits(10.0)

_ALL: Final = (
    ProviderSpec("burst-60s", Terms(_limits())),
    ProviderSpec("burst-3s", Terms(_burst(_limits(), 3))),
    ProviderSpec("fixed-window", Terms(_limits(kind="fixed"))),
    ProviderSpec(
        "reserved",
        Terms((Limit("requests", 600), Limit("tokens", 480_000)), charging="reserved"),
        dialect="cerebras",
    ),
    ProviderSpec("congested", Terms(_WIDE), Latency(sigma=0.01, kappa=0.0038)),
    ProviderSpec("congested-5", Terms(_WIDE), Latency(sigma=0.01, kappa=0.04)),
    ProviderSpec("cap-7", Terms(_WIDE + _cap(7))),
    ProviderSpec("neighbour", Terms(_limits(), neighbour=Neighbour(0.5, on_s=40, off_s=40))),
    ProviderSpec("changing", Terms(_limits(), changes=((60.0, 0.5), (180.0, 1.0)))),
    ProviderSpec("hidden", Terms(_limits()), faults=_SILENT, dialect="plain"),
    ProviderSpec(
        "sub-second",
        Terms(_limits(), (Limit("requests", 600, burst=10),), refusals_charged=True),
    ),
    ProviderSpec(
        "worst-mix",
        Terms(
            _burst(_limits(2.0), 3) + _cap(24),
            refusals_charged=True,
            changes=((90.0, 0.6), (240.0, 1.0)),
            neighbour=Neighbour(0.3, 3, on_s=40, off_s=40),
        ),
        Latency(sigma=0.01, kappa=0.0018),
        _SILENT,
        "plain",
    ),
)

PRESETS: Final = {spec.name: spec for spec in _ALL}
