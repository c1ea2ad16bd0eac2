"""Draws from a seed: the same seed, stream and index give the same number on every machine.

The core has no random module. A draw is a hash of where it is used, so adding a draw in one
place never shifts the draws of another.
"""

from __future__ import annotations

from math import cos, exp, log, pi, sqrt
from typing import Final

_MASK: Final = (1 << 64) - 1


def _mix(value: int) -> int:
    """SplitMix64's finaliser (Steele, Lea and Flood, 2014): every bit in moves every bit out."""
    value = (value + 0x9E3779B97F4A7C15) & _MASK
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & _MASK
    return value ^ (value >> 31)


def uniform(seed: int, stream: int, index: int) -> float:
    """A number in (0, 1), never the ends, so that its logarithm is finite."""
    bits = _mix(_mix(_mix(seed & _MASK) ^ (stream & _MASK)) ^ (index & _MASK))
    return ((bits >> 11) + 0.5) / (1 << 53)


def normal(seed: int, stream: int, index: int) -> float:
    """A standard normal draw (Box-Muller)."""
    radius = sqrt(-2.0 * log(uniform(seed, stream, 2 * index)))
    return radius * cos(2.0 * pi * uniform(seed, stream, 2 * index + 1))


def lognormal(seed: int, stream: int, index: int, sigma: float) -> float:
    """A factor with median 1 and log-deviation `sigma`."""
    return exp(sigma * normal(seed, stream, index)) if sigma > 0 else 1.0
