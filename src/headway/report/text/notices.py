"""Sends notices of a run to commands, webhooks and the desktop, as the configuration says.

Laws:
- The run never waits for a receiver: a thread reads the journal, and each receiver has its own.
- A receiver gets at most one notice in ten seconds; what came meanwhile is counted in the next one.
  How the run ended is always sent.
- Names of tasks and reasons are in a notice only where the configuration asks for `texts`.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from math import inf
from queue import Full, Queue
from threading import Event, Thread
from typing import Final

import msgspec

from headway.config import NoticeReceiver, read_configuration
from headway.errors import HeadwayError
from headway.journal.reader import JournalReader
from headway.report.text.run_view import RunView
from headway.report.text.runs import count_words, used_words
from headway.report.text.words import clock, duration, one_line

LOOK_S: Final = 0.5
APART_S: Final = 10.0
"""Between two notices to one receiver."""
DELIVER_S: Final = 10.0
"""How long a receiver may take."""
CLOSE_S: Final = 3.0
"""How long the end of a run waits for all receivers together."""
QUEUE_MAX: Final = 8
REASON_MAX: Final = 200

TITLES: Final = {
    "done": "done", "failed": "failed", "stopped": "stopped early", "budget": "budget reached",
    "window": "usage window empty", "refilled": "goes on", "stuck": "may be stuck",
    "answer": "needs you",
}  # fmt: skip


class Notice(msgspec.Struct, frozen=True):
    """What a receiver is sent, as JSON."""

    kind: str
    run: str
    name: str
    text: str
    """A sentence for people."""
    tasks: Mapping[str, int]
    elapsed_s: float
    microusd: int


class RunWatch:
    """What became of a run since it was last looked at, as notices."""

    def __init__(self, run: RunView) -> None:
        self._run = run
        self._held_s: float | None = run.history.standing.held_until_s
        self._stuck: set[bytes] = set()
        self._said: set[str] = set()

    def look(self) -> Iterator[tuple[str, str]]:
        """Kinds, each with its reason: others' words may be in that."""
        self._run.refresh()
        history, standing = self._run.history, self._run.history.standing
        held_s, reason = standing.held_until_s, standing.held_for
        if held_s != self._held_s:
            if held_s == inf and "paused by the user" not in reason:
                yield "answer", reason
            elif held_s is not None and held_s < inf:
                yield "window", f"until {clock(held_s, self._run.now_s)}: {reason}"
            elif held_s is None and self._held_s not in (None, inf):
                yield "refilled", ""
            self._held_s = held_s
        for key in history.active:
            if history.tasks[key].quiet_s and key not in self._stuck:
                self._stuck.add(key)
                yield "stuck", one_line(self._run.name(key))
        cause = (standing.stopping_for or "").partition(": ")
        if cause[0] in ("budget", "window") and cause[0] not in self._said:
            self._said.add(cause[0])
            yield cause[0], cause[2]
        if standing.finished is not None and "end" not in self._said:
            self._said.add("end")
            state = self._run.verdict.state
            yield state if state in ("done", "failed") else "stopped", self._run.verdict.reason


def notice_of(run: RunView, kind: str, reason: str, has_texts: bool) -> Notice:
    words = [
        f"{one_line(run.header.name)} {TITLES[kind]}",
        count_words(run),
        duration(run.elapsed_s),
    ]
    words += filter(None, (used_words(run),))
    if reason and has_texts:
        words.append(one_line(reason, REASON_MAX))
    text = f"{words[0]}: {', '.join(words[1:])}"
    history = run.history
    return Notice(
        kind, run.header.run, run.header.name, text, dict(run.words()), run.elapsed_s,
        history.taken.microusd,
    )  # fmt: skip


class NoticeSender:
    """One receiver and its thread."""

    def __init__(self, receiver: NoticeReceiver, apart_s: float = APART_S) -> None:
        self.receiver, self.problem = receiver, ""
        self._apart_s, self._sent_s, self._left_out = apart_s, -inf, 0
        self._queue: Queue[Notice | None] = Queue(QUEUE_MAX)
        self.thread = Thread(target=self._send_on, name="headway-notices", daemon=True)
        self.thread.start()

    def send(self, notice: Notice, *, is_last: bool = False) -> None:
        if notice.kind not in self.receiver.on:
            return
        now_s = time.monotonic()
        if now_s - self._sent_s < self._apart_s and not is_last:
            self._left_out += 1
            return
        if self._left_out:
            more = f" ({self._left_out} more since the last notice)"
            notice = msgspec.structs.replace(notice, text=notice.text + more)
        try:
            self._queue.put_nowait(notice)
            self._sent_s, self._left_out = now_s, 0
        except Full:
            self._left_out += 1

    def close(self) -> None:
        with suppress(Full):
            self._queue.put_nowait(None)

    def _send_on(self) -> None:
        while (notice := self._queue.get()) is not None:
            try:
                deliver(self.receiver, notice)
            except Exception as fault:
                # The boundary of a thread: whatever a receiver does is no matter of the run.
                self.problem = f"{type(fault).__name__}: {fault}"[:REASON_MAX]


def deliver(receiver: NoticeReceiver, notice: Notice) -> None:
    """Send one notice; raises what goes wrong."""
    shown = msgspec.json.encode(notice)
    if receiver.webhook:
        body = msgspec.json.encode({"text": notice.text}) if receiver.format == "slack" else shown
        headers = {"Content-Type": "application/json", "User-Agent": "headway"}
        request = urllib.request.Request(receiver.webhook, body, headers, method="POST")
        with urllib.request.urlopen(request, timeout=DELIVER_S):
            return
    words = receiver.command or desktop_command(notice)
    if words:
        environment = {
            **os.environ, "HEADWAY_NOTICE": notice.kind, "HEADWAY_RUN": notice.run,
            "HEADWAY_TEXT": notice.text,
        }  # fmt: skip
        perform(words, shown, environment)


def perform(words: Sequence[str], given: bytes, environment: Mapping[str, str]) -> None:
    """Run a command to its end; one that takes too long is ended with all that it started."""
    with subprocess.Popen(
        words, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
        env=environment, start_new_session=True,
    ) as process:  # fmt: skip
        try:
            _, said = process.communicate(given, timeout=DELIVER_S)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            raise
    if process.returncode:
        raise OSError(f"exit code {process.returncode}: {said.decode(errors='replace')[:100]}")


def desktop_command(notice: Notice) -> list[str]:
    """What shows a notice on this desktop; empty where there is none."""
    if shutil.which("notify-send") and (
        os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")
    ):
        return ["notify-send", "--app-name=headway", "--", "headway", notice.text]
    if sys.platform == "darwin":
        script = (
            'on run words\ndisplay notification (item 1 of words) with title "headway"\nend run'
        )
        return ["osascript", "-e", script, notice.text]
    return []


@contextmanager
def notices(folder: str) -> Iterator[None]:
    """Send notices of a run while the block lasts, if the configuration names receivers."""
    receivers = read_configuration(os.environ).values.notify
    if not receivers:
        yield
        return
    senders, over = [NoticeSender(one) for one in receivers], Event()

    def follow() -> None:
        with suppress(HeadwayError), JournalReader(folder) as reader:
            run = RunView(reader)
            watch, is_last = RunWatch(run), False
            while True:
                if reader.has_changed() or is_last:
                    for kind, reason in watch.look():
                        for sender in senders:
                            shown = notice_of(run, kind, reason, sender.receiver.texts)
                            sender.send(shown, is_last=is_last)
                if is_last:
                    return
                is_last = over.wait(LOOK_S)

    thread = Thread(target=follow, name="headway-notices", daemon=True)
    thread.start()
    try:
        yield
    finally:
        until_s = time.monotonic() + CLOSE_S
        over.set()
        thread.join(CLOSE_S)
        for sender in senders:
            sender.close()
        for sender in senders:
            sender.thread.join(max(0.0, until_s - time.monotonic()))
            late = "it did not take the last notice in time" if sender.thread.is_alive() else ""
            if problem := sender.problem or late:
                print(f"notify.{sender.receiver.name}: {problem}", file=sys.stderr)
