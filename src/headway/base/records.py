"""Records that are made several times for every task, and so must cost little to make."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import blake2b
from typing import Final, TypeVar, dataclass_transform

T = TypeVar("T")


@dataclass_transform(frozen_default=True)
def quick(cls: type[T]) -> type[T]:
    """A frozen record, but frozen for the type checker only.

    To keep writers out while a program runs makes a record five times as slow to fill in, which
    was half of what a task cost.
    """
    return dataclass(slots=True, unsafe_hash=True)(cls)


# The name that a text goes by: 16 bytes, the same in every process.

DIGEST_BYTES: Final = 16
"""Two of 2^64 texts have the same digest; a run has a million."""


def digest(text: bytes) -> bytes:
    """The name of a text."""
    return blake2b(text, digest_size=DIGEST_BYTES).digest()
