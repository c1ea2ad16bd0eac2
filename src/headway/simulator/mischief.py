"""Faults that the simulated provider commits on request, by share, or by a rule of its script.

Those marked `at the door` turn a call away before it is charged. The others are accepted, charged
and served, and go wrong on the way.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from headway.core.foresight.draw import uniform
from headway.core.numbers import number_of
from headway.errors import BadValueError, did_you_mean

HEADER: Final = "x-sim-fault"

MISLEADING_S: Final = 60.0
"""The wait that `429-misleading` asks for, for nothing."""

SLOW_START: Final = 10.0
"""How many times longer `slow-start` takes to its first byte."""

NEVER: Final = 1e12
"""As a factor on the time to first byte: `hang`."""

MISCHIEF_STREAM: Final = 89
"""The stream of draws that decides faults by share; distinct from the provider's own."""

KINDS: Final[Mapping[str, str]] = {
    "429-bare": "at the door: a 429 without any header about limits",
    "429-misleading": "at the door: a 429 that asks to wait a minute for nothing",
    "429-text": "at the door: a 429 in plain text, as a proxy says it",
    "500": "at the door: the provider's own 500",
    "503-html": "at the door: a 503 in HTML, as a proxy says it",
    "529": "at the door: overloaded, in the provider's own words",
    "billing": "at the door: no credit; waiting does not help",
    "spend-cap": "at the door: the account's spend limit; waiting does not help",
    "error-event": "half of the stream, then an error event; without a stream: a 500, later",
    "cut": "half of the answer, then the connection closes",
    "hang": "accepted and never answered",
    "stall": "half of the answer, then silence",
    "malformed": "JSON that is not JSON, in the middle of the stream or as the whole body",
    "slow-start": f"{SLOW_START:.0f} times as long to the first byte",
    "gzip": "not a fault: the answer is compressed for whoever accepts that",
}

AT_THE_DOOR: Final = frozenset(kind for kind, about in KINDS.items() if about.startswith("at the"))
HARMLESS: Final = frozenset(("gzip", "slow-start"))
"""They may come together with another fault, and the answer is whole."""


@dataclass(frozen=True, slots=True)
class Mischief:
    """Which share of all calls goes wrong in which way."""

    shares: tuple[tuple[str, float], ...] = ()

    def drawn(self, seed: int, number: int) -> tuple[str, ...]:
        """The faults of one call, by its number: at most one that harms, and those that do not."""
        found = []
        draw = uniform(seed, MISCHIEF_STREAM, number)
        for place, (kind, share) in enumerate(self.shares, start=1):
            if kind in HARMLESS:
                if uniform(seed, MISCHIEF_STREAM + place, number) < share:
                    found.append(kind)
                continue
            if 0.0 <= draw < share:
                found.append(kind)
            draw -= share
        return tuple(found)


def parse_shares(words: Iterable[str]) -> Mischief:
    """`cut=0.1`, `500=5%`."""
    shares: dict[str, float] = {}
    for word in words:
        kind, equals, text = word.partition("=")
        must_be_kind(kind)
        number = number_of(text.removesuffix("%"))
        share = -1.0 if number is None else number / (100.0 if text.endswith("%") else 1.0)
        if not equals or not 0.0 <= share <= 1.0:
            hint = f"write `--fault {kind}=0.1`"
            raise BadValueError(f"`--fault {word}` has no share from 0 to 1", hint=hint)
        shares[kind] = share
    if sum(share for kind, share in shares.items() if kind not in HARMLESS) > 1.0 + 1e-9:
        raise BadValueError("the shares of `--fault` add up to more than 1")
    return Mischief(tuple(shares.items()))


def must_be_kind(kind: str) -> str:
    """The kind, or an error that names the nearest."""
    if kind not in KINDS:
        raise BadValueError(f"there is no fault `{kind[:60]}`", hint=did_you_mean(kind, KINDS))
    return kind


def parse_kinds(text: str) -> tuple[str, ...]:
    """The kinds of a header: `cut`, `gzip, cut`."""
    return tuple(must_be_kind(word.strip()) for word in text.split(",") if word.strip())
