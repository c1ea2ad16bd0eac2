"""Records replies durably before their clients have all of them.

Laws:
- A reply is recorded whole or not at all: of a call that failed, broke off or lost its client
  only that it was made.
- When `end` returns True, the reply is on the disk.
- Calls are never delayed or failed by a full disk: recording ends, is reported once, and the file
  stays valid.
- The event loop neither packs nor writes: one thread does, and syncs once for all that came
  meanwhile.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from math import ceil
from queue import Empty, SimpleQueue
from typing import Final

from msgspec.structs import asdict

from headway.agents.metering import MeteredUsage
from headway.base.fields import Fields, text_of
from headway.base.values import NO_CACHE, Fault, Tally
from headway.errors import StateFileError
from headway.gateway import replay
from headway.gateway.request_match import CanonicalCall, unmeasured
from headway.gateway.values import Pairs
from headway.journal.journal import Journal, settle
from headway.journal.shim_log import sync_folder, write_all
from headway.wire.prices import price_at


def recorded_in(where: replay.Where) -> dict[str, MeteredUsage]:
    """Usage of the recorded calls, by the name of their key. Raises StateFileError.

    Of a conversation's lines only the longest counts: titles and routes are paid, but no part of
    what a session holds. A replayed call counts and is paid once; one in flight counts.
    """
    try:
        lines = replay.contents(where).lines
    except FileNotFoundError:
        return {}
    found: dict[str, list[replay.RecordedCall]] = {}
    for track in replay.tracks_of(lines):
        sent = [call for call in track.calls if call.lines or not call.is_dropped]
        if sent:
            found.setdefault(track.stream[0], []).extend(sent)
    return {name: _sum(calls) for name, calls in found.items()}


def doubts_of(where: replay.Where | None, home: str = "") -> list[str]:
    """Reasons why calls of a recording may not be found again by agents in this home."""
    if where is None:
        return []
    recorded = replay.home_in(where)
    heads = [line.head for line in replay.contents(where).lines if line.happening == "begun"]
    clients = {(text_of(head.get("caller")), text_of(head.get("version"))): None for head in heads}
    doubts = [words for client in clients if (words := unmeasured(*client))]
    if recorded and recorded != home and any(caller == "codex" for caller, _ in clients):
        doubts.append(
            f"{os.path.basename(str(where))} was recorded in {recorded}; Codex tells the model its "
            "home, so its calls will differ and be paid again"
        )
    return doubts


def _sum(calls: list[replay.RecordedCall]) -> MeteredUsage:
    ((longest, _),) = Counter(call.kind for call in calls).most_common(1)
    line = [call for call in calls if call.kind == longest]
    answered = {call.form for call in line if call.lines}
    in_flight = sum(not call.lines for call in line)
    replies = [(call.model, call.lines[0].head) for call in calls if call.lines]
    paid = [
        (model, replay.tally_of(head.get("tally")))
        for model, head in replies
        if head.get("again") is not True
    ]
    return MeteredUsage(
        len(answered) + in_flight,
        sum(tally.input_tokens + tally.cache_read_tokens for _, tally in paid),
        sum(tally.output_tokens for _, tally in paid),
        sum(_cost(model, tally) for model, tally in paid),
        in_flight=in_flight,
        paid=len(paid),
        unpriced=sum(price_at(model, 0) is None for model, _ in paid),
        cache=sum((tally.cache for _, tally in paid), NO_CACHE),
    )


def _cost(model: str, tally: Tally) -> int:
    price = price_at(model, ceil(tally.input_tokens + tally.cache_read_tokens))
    return 0 if price is None else price.cost_of(tally)


BATCH_BYTES_MAX: Final = 16 * 1024 * 1024
"""So much is written and synced at once, so that the first of it need not wait for long."""
KEPT: Final = (b"content-encoding", b"content-type", b"request-id", b"x-request-id")
"""Headers of a reply that are recorded; not cookies, accounts and limits."""


Entry = tuple[Fields, tuple[bytes, ...], "asyncio.Future[bool] | None"]
"""A line to be written, its body, and the future to set when it is on the disk."""


class Recorder:
    """Adds to one recording, a file or the journal of a run. Used within one event loop; one thread
    packs, and writes to a file."""

    path = ""
    _fd = -1
    _journal: Journal | None = None

    def __init__(
        self, where: str | Journal, on_fault: Callable[[str], None] | None = None, home: str = ""
    ) -> None:
        """Raises StateFileError if a file is not usable; `on_fault` is called by a thread."""
        self.notice = ""
        """What was found at the end of the file and cut."""
        self._calls = 0
        self._fault = ""
        self._on_fault = on_fault
        if isinstance(where, str):
            self.path = where
            self._fd = replay.private_file(where, os.O_RDWR | os.O_CREAT | os.O_APPEND)
            try:
                self._open(home)
            except BaseException:
                os.close(self._fd)
                raise
            self._size_bytes = os.fstat(self._fd).st_size
        else:
            self._journal, self._loop = where, asyncio.get_running_loop()
            where.record((replay.opening(time.time(), home),), ())
        self._queue: SimpleQueue[Entry | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="recording", daemon=True)

    def begin(self, asked: CanonicalCall) -> Recording:
        """A call came. To be called before it waits: calls in flight together form a round."""
        self._calls += 1
        self.put("begun", self._calls, asdict(asked))
        return Recording(self, self._calls)

    async def again(self, asked: CanonicalCall, reply: replay.RecordedReply) -> bool:
        """Record a call that was answered from a recording: this one is whole by itself."""
        recording = self.begin(asked)
        recording.answered(reply.status, reply.headers)
        recording.feed(reply.body)
        recording.is_again = True
        return await recording.end(reply.tally)

    def put(
        self, happening: replay.Happening, call: int, facts: Fields, body: tuple[bytes, ...] = (),
        told: asyncio.Future[bool] | None = None,
    ) -> None:  # fmt: skip
        """Give a line to the thread, which starts with the first one and after any fork."""
        head: Fields = {"is": happening, "call": call, "wall_s": round(time.time(), 3), **facts}
        if self._thread.ident is None:
            self._thread.start()
        self._queue.put((head, body, told))

    def close(self) -> None:
        if self._thread.ident is not None:
            self._queue.put(None)
            self._thread.join()
        if self._fd >= 0:
            os.close(self._fd)

    def _open(self, home: str) -> None:
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise StateFileError(
                f"another gateway records to {self.path}", hint="record to another file"
            ) from None
        found = replay.contents(self.path)
        if found.torn_bytes:
            os.ftruncate(self._fd, found.end)
            self.notice = (
                f"{self.path} ended in half a line, as after a crash: "
                f"{found.torn_bytes} bytes were cut, {len(found.lines)} lines are kept"
            )
        write_all(self._fd, replay.opening(time.time(), home))
        os.fsync(self._fd)
        sync_folder(os.path.dirname(os.path.abspath(self.path)))

    def _run(self) -> None:
        is_last = False
        while not is_last:
            batch, is_last = self._batch()
            if self._journal is not None:
                told = [one for *_, one in batch if one is not None]
                with suppress(RuntimeError):  # The loop may be closed by now.
                    self._loop.call_soon_threadsafe(self._journal.record, _packed(batch), told)
                continue
            if not self._fault:
                try:
                    self._write(batch)
                except OSError as error:
                    self._failed(error)
            _tell(batch, not self._fault)

    def _batch(self) -> tuple[list[Entry], bool]:
        """All that has come, waiting for the first; and whether it is the end."""
        batch: list[Entry] = []
        size = 0
        entry = self._queue.get()
        while entry is not None:
            batch.append(entry)
            size += sum(map(len, entry[1]))
            if size >= BATCH_BYTES_MAX:
                return batch, False
            try:
                entry = self._queue.get_nowait()
            except Empty:
                return batch, False
        return batch, True

    def _write(self, batch: list[Entry]) -> None:
        lines = b"".join(_packed(batch))
        write_all(self._fd, lines)
        # What no caller waits for is on the disk with the next reply.
        if any(told is not None for _, _, told in batch):
            os.fsync(self._fd)
        self._size_bytes += len(lines)

    def _failed(self, error: OSError) -> None:
        """Half a line would end the file for every later one."""
        self._fault = error.strerror or str(error)
        with suppress(OSError):
            os.ftruncate(self._fd, self._size_bytes)
        if self._on_fault is not None:
            self._on_fault(self._fault)


class Recording:
    """One call: `answered`, `feed` as bytes pass, and `end` before the last of them does."""

    __slots__ = (
        "_call", "_chunks", "_headers", "_is_over", "_left", "_length", "_recorder", "_status",
        "is_again",
    )  # fmt: skip

    def __init__(self, recorder: Recorder, call: int) -> None:
        self._recorder = recorder
        self._call = call
        self._status = 0
        self._headers: list[list[str]] = []
        self._chunks: list[bytes] = []
        self._left = replay.BODY_BYTES_MAX
        self._length = 0
        self._is_over = False
        self.is_again = False
        """Whether it was answered from a recording, and cost nothing."""

    def answered(self, status: int, headers: Pairs) -> None:
        """The headers of the reply; those of a second reply replace what came before."""
        self._status = status
        self._headers = [
            [name.decode("latin-1").lower(), value.decode("latin-1")]
            for name, value in headers
            if name.lower() in KEPT
        ]
        said = {name.lower(): value for name, value in headers}.get(b"content-length", b"")
        self._length = int(said) if said.isdigit() and len(said) <= 12 else 0
        self._chunks, self._left = [], replay.BODY_BYTES_MAX

    @property
    def is_whole(self) -> bool:
        return 0 < self._length <= replay.BODY_BYTES_MAX - self._left

    def feed(self, data: bytes) -> None:
        if self._is_over:
            # A few bytes can follow what says that all is over: the end of a packed stream.
            if self._status:
                self._recorder.put("more", self._call, {}, (data,))
            return
        self._left -= len(data)
        if self._left < 0:
            self.drop("too long")
        else:
            self._chunks.append(data)

    async def end(self, tally: Tally, fault: Fault | None = None) -> bool:
        """All of the reply was fed: whether it is recorded, and on the disk, when this returns."""
        if not self._is_over and (fault is not None or not 200 <= self._status < 300):
            self.drop(f"status {self._status}" if fault is None else fault.kind)
        if self._is_over:
            return False
        self._is_over = True
        told: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        counted = [
            tally.input_tokens, tally.cache_read_tokens, tally.output_tokens, tally.known,
            tally.cache_write_tokens, tally.long_write_tokens,
        ]  # fmt: skip
        facts: Fields = {"status": self._status, "headers": self._headers, "tally": counted}
        if self.is_again:
            facts["again"] = True
        chunks, self._chunks = tuple(self._chunks), []
        self._recorder.put("replied", self._call, facts, chunks, told)
        return await told

    def drop(self, why: str) -> None:
        """There is no whole reply and there will be none. Nothing, once it has ended."""
        if not self._is_over:
            self._is_over, self._status, self._chunks = True, 0, []
            self._recorder.put("dropped", self._call, {"why": why})


def _packed(batch: list[Entry]) -> list[bytes]:
    return [replay.sealed(head, b"".join(body)) for head, body, _ in batch]


def _tell(batch: list[Entry], is_durable: bool) -> None:
    for _, _, told in batch:
        if told is not None:
            with suppress(RuntimeError):  # The loop may be closed by now.
                told.get_loop().call_soon_threadsafe(settle, (told,), is_durable)
