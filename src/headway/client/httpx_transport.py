"""Transports for clients of httpx, the ancestor of httpx2; the only importer of httpx.

Both libraries give transports the same shape and require streams and responses of their own kind.
httpx is not a dependency: this module is imported for a client of httpx only.
"""

from __future__ import annotations

import httpx

from headway.client.transport import (
    AsyncPacedStream,
    AsyncPacedTransport,
    PacedStream,
    PacedTransport,
)


class LegacyStream(PacedStream, httpx.SyncByteStream):
    """Bytes that an httpx client accepts."""


class AsyncLegacyStream(AsyncPacedStream, httpx.AsyncByteStream):
    """Bytes that an asynchronous httpx client accepts."""


class LegacyTransport(PacedTransport):
    stream_type = LegacyStream
    # The two classes have no common ancestor, but the same constructor.
    response_type = httpx.Response  # type: ignore[assignment]


class AsyncLegacyTransport(AsyncPacedTransport):
    stream_type = AsyncLegacyStream
    response_type = httpx.Response  # type: ignore[assignment]
