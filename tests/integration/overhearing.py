"""Stands between headway and the simulated provider, and keeps every request's body."""

from __future__ import annotations

import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from typing import Final

from msgspec import Struct, field

from tests.integration.listener import listening

PASSED_ON: Final = ("content-type", "x-api-key", "authorization", "anthropic-version")


class Overheard(Struct, frozen=True):
    """What was said, both ways."""

    url: str
    bodies: list[str] = field(default_factory=list)
    answers: list[str] = field(default_factory=list)


@contextmanager
def overhearing(upstream: str) -> Iterator[Overheard]:
    """A server that passes calls on for as long as the block lasts."""

    class Between(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            said.bodies.append(body.decode())
            headers = {name: value for name, value in self.headers.items()
                       if name.lower() in PASSED_ON}  # fmt: skip
            request = urllib.request.Request(f"{upstream}{self.path}", body, headers)
            try:
                with urllib.request.urlopen(request, timeout=60) as answer:
                    status, told, kind = answer.status, answer.read(), answer.headers
            except urllib.error.HTTPError as error:
                with error:
                    status, told, kind = error.code, error.read(), error.headers
            said.answers.append(told.decode())
            self.send_response(status)
            self.send_header("content-type", kind["content-type"])
            self.send_header("content-length", str(len(told)))
            self.end_headers()
            self.wfile.write(told)

        def log_message(self, *_: object) -> None:
            """Tests are silent."""

    with listening(Between) as port:
        said = Overheard(f"http://127.0.0.1:{port}")
        yield said
