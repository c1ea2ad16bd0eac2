"""What signals do, from the first line of a command to its last.

Laws:
- SIGTERM, SIGHUP and a second SIGINT end the process within `END_S`, with all that it started,
  whatever it does: a thread of its own sees to it.
- While a run is performed, the first SIGINT only drains it. Before and after, it ends the process.
- A SIGHUP that was ignored from the start (`nohup`) stays ignored.
"""

from __future__ import annotations

import _thread
import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from typing import Final

EXIT_INTERRUPTED: Final = 130

NUDGE_S: Final = 0.2
"""Python notes a signal that comes just before a blocking call, and handles it after that call. One
that was not handled after this time is sent to the main thread again, which ends the call."""

END_S: Final = 4.0
"""A command that ignores TERM is killed after 2 s; what takes much longer than that hangs."""

WHY: Final = {
    signal.SIGINT: "interrupted",
    signal.SIGTERM: "terminated",
    signal.SIGHUP: "the terminal is gone",
}

Heed = Callable[[str, bool], None]
"""Stops a run: why, and whether what has started is ended now."""


class _Listener:
    """What this process does about signals; there is one, because signals are the process's."""

    def __init__(self) -> None:
        self.heed: Heed | None = None
        self.hint = ""
        self.count = 0
        self.is_timed = False

    def hear(self, number: int, _frame: object) -> None:
        is_now = number != signal.SIGINT or self.count > 0
        self.count += 1
        if (is_now or self.heed is None) and not self.is_timed:
            from threading import Timer

            self.is_timed = True
            timer = Timer(END_S, end_process)
            timer.daemon = True
            timer.start()
        if self.heed is not None:
            self.heed(WHY[signal.Signals(number)], is_now)
        elif self.count == 1:
            # Once: what is cleaned up meanwhile is not interrupted again.
            raise KeyboardInterrupt


_LISTENER: Final = _Listener()


def _nudge(signals: int, main: int) -> None:
    """Read the numbers of signals as they come; end a call that keeps one from being handled."""
    try:
        while numbers := os.read(signals, 64):
            handled = _LISTENER.count
            time.sleep(NUDGE_S)
            if _LISTENER.count == handled and numbers[-1] in WHY:
                signal.pthread_kill(main, numbers[-1])
    finally:
        os.close(signals)


@contextmanager
def _nudged() -> Iterator[None]:
    """Until an event loop takes the place, whose own pipe wakes it."""
    signals, noted = os.pipe()
    os.set_blocking(noted, False)
    before = signal.set_wakeup_fd(noted, warn_on_full_buffer=False)
    _thread.start_new_thread(_nudge, (signals, _thread.get_ident()))
    try:
        yield
    finally:
        signal.set_wakeup_fd(before)
        os.close(noted)


@contextmanager
def listening() -> Iterator[None]:
    """Heed signals in this block, which is all that a process does; in the main thread only."""
    _LISTENER.__init__()  # type: ignore[misc]
    before = {}
    try:
        for number in WHY:
            if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN:
                before[number] = signal.signal(number, _LISTENER.hear)
    except ValueError:
        pass  # Another thread than the main one: its process heeds signals as it likes.
    try:
        with _nudged() if before else nullcontext():
            yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def heeding(heed: Heed) -> Iterator[None]:
    """While a run is performed it is stopped by signals, instead of being cut off."""
    _LISTENER.heed = heed
    try:
        yield
    finally:
        _LISTENER.heed = None


def say_on_interrupt(hint: str) -> None:
    """What the user can do after an interrupt from here on."""
    _LISTENER.hint = hint


def last_words() -> str:
    """What is said of an interrupt."""
    return f"interrupted\nhint: {_LISTENER.hint}\n" if _LISTENER.hint else "interrupted\n"


def end_process() -> None:
    """End this process now, and its children; a shim's guard ends what ran under it."""
    from select import select

    from headway.base.process_tree import children

    for pid in children(os.getpid()):
        for kill in (os.killpg, os.kill):
            with suppress(OSError):
                kill(pid, signal.SIGKILL)
    # A terminal or pipe that takes nothing must not hold this up.
    if select([], [2], [], 0)[1]:
        os.write(2, last_words().encode())
    os._exit(EXIT_INTERRUPTED)
