"""Lets the attempts of a real run take their steps in a given order, wherever they run.

It knows from the run's events which attempts go on. When all of them stand before it, it lets one
take a step: whose turn it is by the order, or, if that one waits or has ended, the next one's. So
no order can stop a run, and a step is taken when the last one has had all its consequences.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from socketserver import StreamRequestHandler, ThreadingUnixStreamServer
from typing import Final

from headway.engine.events import TaskFailed, TaskFinished, TaskProposed, TaskStale, TaskStarted

Ends = TaskFinished | TaskFailed | TaskProposed | TaskStale
PATIENCE_S: Final = 60.0
"""An attempt that stands here for longer has been forgotten, and the test fails."""


class Conductor:
    """Gives turns. Tasks are named by their numbers."""

    def __init__(self, order: Sequence[int], first: int) -> None:
        self._order = list(reversed(order))
        self._missing = first
        """So many tasks are still to start: nobody takes a step before."""
        self._started: dict[int, int] = {}
        """Attempts that go on, by task."""
        self._latest: dict[int, int] = {}
        """The same, of all tasks that ever started."""
        self._waiting: dict[int, int] = {}
        self._granted: set[tuple[int, int]] = set()
        self._news = threading.Condition()

    def __repr__(self) -> str:
        return f"<Conductor: {self._started} go on, {self._waiting} wait, {self._order[::-1]} left>"

    def told(self, events: Iterable[tuple[int, TaskStarted | Ends]]) -> None:
        """What has happened to tasks, at one moment."""
        with self._news:
            for task, event in events:
                if isinstance(event, TaskStarted):
                    self._missing -= event.attempt == 1
                    self._started[task] = self._latest[task] = event.attempt
                elif self._started.get(task) == event.attempt:
                    del self._started[task]
            self._grant()

    def turn(self, task: int, attempt: int) -> None:
        """Wait for one's turn; an attempt that does not count any more is not held up."""
        with self._news:
            # A function may begin before it is told here that it has.
            self._news.wait_for(lambda: self._has_begun(task, attempt), PATIENCE_S)
            self._waiting[task] = attempt
            self._grant()
            if not self._news.wait_for(lambda: self._may_go_on(task, attempt), PATIENCE_S):
                raise TimeoutError(f"task {task} waits for its turn: {self}")
            self._granted.discard((task, attempt))

    def turn_of_current(self, task: int) -> None:
        """The same, for an attempt that does not know its number."""
        with self._news:
            self._news.wait_for(lambda: task in self._started, PATIENCE_S)
            attempt = self._started.get(task, 0)
        self.turn(task, attempt)

    def _has_begun(self, task: int, attempt: int) -> bool:
        return self._missing <= 0 and self._latest.get(task, 0) >= attempt

    def _may_go_on(self, task: int, attempt: int) -> bool:
        return (task, attempt) in self._granted or self._started.get(task) != attempt

    def _grant(self) -> None:
        waiting = {task for task, at in self._waiting.items() if self._started.get(task) == at}
        if self._missing <= 0 and waiting and len(waiting) == len(self._started):
            while self._order and self._order[-1] not in waiting:
                self._order.pop()
            task = self._order.pop() if self._order else max(waiting)
            self._granted.add((task, self._waiting.pop(task)))
        self._news.notify_all()


@contextmanager
def doorway(turn: Callable[..., None], path: Path) -> Iterator[None]:
    """A socket by which other processes ask for their turns: a line each way."""

    class Asked(StreamRequestHandler):
        def handle(self) -> None:
            # Whoever asks may be ended while it waits.
            with suppress(ConnectionError):
                turn(*map(int, self.rfile.readline().split()))
                self.wfile.write(b"go\n")

    class Server(ThreadingUnixStreamServer):
        daemon_threads = True

    with Server(str(path), Asked) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield
        finally:
            server.shutdown()
            thread.join()


def ask(path: str, *what: int) -> None:
    """Wait for one's turn, from another process."""
    with socket.socket(socket.AF_UNIX) as line:
        line.connect(path)
        line.sendall(b"%s\n" % b" ".join(b"%d" % one for one in what))
        line.recv(3)
