"""What limiters of others cost, run by the interpreter of a throw-away environment: prints JSON.

They do less: none of them learns limits from headers or outcomes, orders waiters fairly or sizes
the width. The numbers say what a limiter costs at all, not who is better.
"""

from __future__ import annotations

import asyncio
import importlib.metadata
import json
import sys
from collections.abc import Awaitable, Callable
from importlib import import_module
from time import thread_time_ns
from typing import Final

from bench.subjects import admit_and_settle
from bench.timing import Spread, baselines, clock_ns, each, spread
from headway.base.codec import as_dict

COUNT: Final = 5_000
PLENTY: Final = 10**12


async def _each_awaited(operation: Callable[[], Awaitable[object]]) -> Spread:
    samples = []
    for _ in range(COUNT):
        began = thread_time_ns()
        await operation()
        samples.append(thread_time_ns() - began)
    return spread(samples, overhead_ns=clock_ns())


async def _aiolimiter() -> Spread:
    limiter = import_module("aiolimiter").AsyncLimiter(PLENTY, 60)
    return await _each_awaited(lambda: limiter.acquire(1))


async def _pyrate_limiter() -> Spread:
    peer = import_module("pyrate_limiter")
    limiter = peer.Limiter(peer.Rate(PLENTY, peer.Duration.MINUTE))
    return each(lambda: limiter.try_acquire("bench", blocking=False), COUNT)


async def _token_throttle() -> Spread:
    peer = import_module("token_throttle")
    quotas = [
        peer.Quota(metric=name, limit=PLENTY, per_seconds=60)
        for name in ("requests", "input", "output")
    ]
    config = peer.PerModelConfig(quotas=peer.UsageQuotas(quotas))
    limiter = peer.RateLimiter(config, backend=peer.MemoryBackendBuilder())

    async def reserve_and_refund() -> None:
        asked = {"requests": 1, "input": 2000, "output": 4096}
        held = await limiter.acquire_capacity(asked, model="bench")
        await limiter.refund_capacity({"requests": 1, "input": 2000, "output": 480}, held)

    found = await _each_awaited(reserve_and_refund)
    await limiter.aclose()
    return found


PEERS: Final = {
    "aiolimiter": (_aiolimiter, "one limit, one unit; acquire only, nothing to settle"),
    "pyrate-limiter": (_pyrate_limiter, "one limit, one unit; acquire only, nothing to settle"),
    "token-throttle": (_token_throttle, "three configured limits; reserve and refund"),
}


def main() -> None:
    """Measure what is installed, with headway and the baseline in the same process."""
    said: dict[str, object] = {
        "python": sys.version.split()[0],
        "call": as_dict(baselines()["a function call"]),
        "headway": as_dict(admit_and_settle(1, COUNT)),
    }
    for name, (measure, does) in PEERS.items():
        try:
            version = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
        said[name] = {"version": version, "does": does, **as_dict(asyncio.run(measure()))}
    json.dump(said, sys.stdout)


if __name__ == "__main__":
    main()
