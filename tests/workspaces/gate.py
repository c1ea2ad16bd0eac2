"""Handshakes of scripted agents with each other: names that are marked, and waits for them.

`mark NAME`; `await NAME SECONDS`; `meet NAME COUNT SECONDS` marks a name and waits until it was
marked that often; `hold NAME` marks `NAME.start`, and `NAME.end` when the connection is closed.
Waits give up after their seconds, so that tasks which do not run at once are late and not stuck.
"""

from __future__ import annotations

import socket
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from threading import Condition, Thread
from time import monotonic


class Gate:
    """Serves such requests, and keeps what was marked, in order."""

    def __init__(self) -> None:
        self._server = socket.create_server(("127.0.0.1", 0), backlog=128)
        self.port = int(self._server.getsockname()[1])
        self._changed = Condition()
        self._marks: list[tuple[float, str]] = []
        Thread(target=self._serve, daemon=True).start()

    def __repr__(self) -> str:
        return f"<Gate {self.port}: {len(self._marks)} marks>"

    @property
    def marks(self) -> list[tuple[float, str]]:
        """When each name was marked, and which; a name once for each time."""
        with self._changed:
            return list(self._marks)

    def starts(self) -> Counter[str]:
        """How often each script was started."""
        return Counter(name[: -len(".start")] for _, name in self.marks if name.endswith(".start"))

    def mark(self, name: str) -> None:
        with self._changed:
            self._marks.append((monotonic(), name))
            self._changed.notify_all()

    def is_marked(self, name: str, within_s: float, count: int = 1) -> bool:
        """Whether a name is marked so often by then."""
        with self._changed:
            return self._changed.wait_for(lambda: self._count(name) >= count, within_s)

    def _count(self, name: str) -> int:
        return sum(one == name for _, one in self._marks)

    def close(self) -> None:
        self._server.close()

    def _serve(self) -> None:
        with suppress(OSError):  # The server is closed.
            while True:
                connection, _ = self._server.accept()
                Thread(target=self._answer, args=(connection,), daemon=True).start()

    def _answer(self, connection: socket.socket) -> None:
        with connection, suppress(OSError):
            words = connection.makefile().readline().split()
            match words:
                case ["mark", name]:
                    self.mark(name)
                    connection.sendall(b"yes\n")
                case ["await", name, seconds]:
                    is_so = self.is_marked(name, float(seconds))
                    connection.sendall(b"yes\n" if is_so else b"no\n")
                case ["meet", name, count, seconds]:
                    self.mark(name)
                    is_so = self.is_marked(name, float(seconds), int(count))
                    connection.sendall(b"yes\n" if is_so else b"no\n")
                case ["hold", name]:
                    self.mark(f"{name}.start")
                    connection.sendall(b"yes\n")
                    with suppress(OSError):  # A process that is killed resets it.
                        connection.recv(1)
                    self.mark(f"{name}.end")
                case _:
                    connection.sendall(b"unknown\n")


@contextmanager
def opened() -> Iterator[Gate]:
    gate = Gate()
    try:
        yield gate
    finally:
        gate.close()
