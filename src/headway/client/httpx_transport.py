"""Transports for clients of httpx, the ancestor of httpx2; the only importer of httpx.

Both libraries give transports the same shape and require streams and responses of their own kind.
httpx is not a dependency: this module is imported for a client of httpx only.
"""

from __future__ import annotations

import httpx

from headway.client import transport


class LegacyStream(transport.PacedStream, httpx.SyncByteStream):
    """Bytes that an httpx client accepts."""


class AsyncLegacyStream(transport.AsyncPacedStream, httpx.AsyncByteStream):
    """Bytes that an asynchronous httpx client accepts."""


class LegacyTransport(transport.PacedTransport):
    stream_type = LegacyStream
    # The two classes have no common ancestor, but the same constructor.
    response_type = httpx.Response  # type: ignore[assignment]
    error_type = httpx.ConnectError  # type: ignore[assignment]


class AsyncLegacyTransport(transport.AsyncPacedTransport):
    stream_type = AsyncLegacyStream
    response_type = httpx.Response  # type: ignore[assignment]
    error_type = httpx.ConnectError  # type: ignore[assignment]
