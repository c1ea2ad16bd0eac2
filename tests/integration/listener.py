"""An HTTP server of the standard library in a thread, for as long as a block lasts."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

LOOK_S = 0.05


@contextmanager
def listening(
    handler: type[BaseHTTPRequestHandler], kind: type[ThreadingHTTPServer] = ThreadingHTTPServer
) -> Iterator[int]:
    """Its port."""
    with kind(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(LOOK_S,), daemon=True)
        thread.start()
        try:
            yield server.server_port
        finally:
            server.shutdown()
            thread.join()
