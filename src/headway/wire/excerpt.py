"""Bytes that may be too many to keep: all of them, or their beginning and their end."""

from __future__ import annotations

from typing import Final

WHOLE_BYTES_MAX: Final = 2 * 1024 * 1024
"""Kept whole: 128,000 tokens of text, as JSON with every character escaped, are 1.5 MiB."""

END_BYTES: Final = 64 * 1024
"""Kept of each end of more than that. Providers write usage after the text, or before it."""


class Excerpt:
    """Collects bytes within `WHOLE_BYTES_MAX`; how they were split makes no difference."""

    __slots__ = ("_head", "_kept", "size_bytes")

    def __init__(self) -> None:
        self._kept = bytearray()
        self._head = b""
        self.size_bytes = 0
        """All that came, kept or not."""

    def __repr__(self) -> str:
        return f"<Excerpt of {self.size_bytes} bytes{', cut' if self.is_cut else ''}>"

    @property
    def is_cut(self) -> bool:
        """Whether the middle is missing."""
        return self.size_bytes > WHOLE_BYTES_MAX

    def add(self, data: bytes) -> None:
        """Some more bytes."""
        self._kept += data
        self.size_bytes += len(data)
        if self.size_bytes > WHOLE_BYTES_MAX:
            self._head = self._head or bytes(self._kept[:END_BYTES])
            # The end grows to twice its length before it is cut, so that each byte is moved
            # about once, however few come at a time.
            if len(self._kept) > 2 * END_BYTES:
                del self._kept[:-END_BYTES]

    def take(self) -> bytes:
        """What was kept, with which the excerpt starts anew."""
        data = self.kept()
        self._head, self.size_bytes = b"", 0
        self._kept.clear()
        return data

    def kept(self) -> bytes:
        """What was kept; of a cut excerpt the beginning, a line end, and the end."""
        return self._head + b"\n" + self._kept[-END_BYTES:] if self._head else bytes(self._kept)
