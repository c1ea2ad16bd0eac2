"""The name of a text: 16 bytes, the same in every process."""

from __future__ import annotations

from hashlib import blake2b
from typing import Final

DIGEST_BYTES: Final = 16
"""Two of 2^64 texts have the same digest; a run has a million."""


def digest(text: bytes) -> bytes:
    """The name of a text."""
    return blake2b(text, digest_size=DIGEST_BYTES).digest()
