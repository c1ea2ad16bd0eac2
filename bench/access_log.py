"""An access log for servers on uvicorn: `python access_log.py LOG MODULE:FUNCTION ARGUMENT...`.

Runs a server of others unchanged, in its own environment, and writes one JSON line per request:
the API key, when it came, when its answer was whole, and its status. Needs nothing but uvicorn.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Awaitable, Callable
from importlib import import_module
from pathlib import Path
from time import time
from typing import Any

App = Callable[[Any, Any, Any], Awaitable[None]]


def log_requests(path: str) -> None:
    """Wrap every application that uvicorn loads from now on."""
    uvicorn = import_module("uvicorn")
    load = uvicorn.Config.load

    def load_logged(config: Any) -> None:
        load(config)
        config.loaded_app = _logged(config.loaded_app, path)

    uvicorn.Config.load = load_logged


def _logged(app: App, path: str) -> App:
    log = Path(path).open("a", buffering=1)  # noqa: SIM115

    async def logged(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http" or scope["method"] != "POST":
            await app(scope, receive, send)
            return
        headers: dict[bytes, bytes] = dict(scope["headers"])
        key = (headers.get(b"authorization") or headers.get(b"x-api-key") or b"").decode()
        at_s, status = time(), 0

        async def send_noted(message: Any) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await app(scope, receive, send_noted)
        finally:
            log.write(json.dumps([key, at_s, time(), status]) + "\n")

    return logged


def main(arguments: list[str]) -> None:
    """Be that server."""
    path, target, *rest = arguments
    module, _, function = target.partition(":")
    sys.argv = [module, *rest]
    log_requests(path)
    getattr(import_module(module), function)()


if __name__ == "__main__":
    sys.path.pop(0)
    main(sys.argv[1:])
