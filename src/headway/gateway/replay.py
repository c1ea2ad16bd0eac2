"""Replies from a recording while the requests equal the recorded ones.

A stream is the calls of one key, client and conversation. It has lines: calls to the same model
with the same instructions and tools. A title, a router and each subagent have lines of their own,
whose calls come when they come. The recorded calls of a line form rounds: those that were in
flight together, directly or through others, are of one round, and each round began when the one
before it was over.

Laws:
- A call is answered only by the reply to a call of the same form, see `request_match`.
- It is answered at its place. A stream stands in a round of each line; what it asks next is looked
  for in what is left of this round and those before it, then in the next one. So calls that were
  in flight together may come in any order, and one that is late is found; no round is skipped.
- A reply is given once.
- A call that is not found ends the replay of its stream for good. A call that was recorded
  without a reply, because it failed or its client left, is sent on and ends nothing.
- A stream follows every recorded one that agrees with all that it has asked. Conversations have
  new names in a new run, so one is known by what it says; one of the same name comes first, then
  the latest.
"""

from __future__ import annotations

import binascii
import json
import logging
import os
import stat
import zlib
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, Literal

from msgspec import Struct, field

from headway.base.fields import Fields, items, object_fields, parsed, text_of, tokens
from headway.base.values import Known, Tally
from headway.errors import StateFileError
from headway.gateway.request_match import CanonicalCall, difference, kind_of, unmeasured
from headway.gateway.values import Pairs
from headway.journal.file import CALL
from headway.journal.reader import JournalReader

# A recording as a file: one sealed line for each thing that happened to a call.

VERSION: Final = 1
"""Of the file. A reader knows this one and those before it."""
BODY_BYTES_MAX: Final = 64 * 1024 * 1024
"""A longer reply is not recorded: no model writes it, and a line is read in one piece."""
LINE_BYTES_MAX: Final = 2 * BODY_BYTES_MAX
"""Base64 makes four bytes of three, and what cannot be packed becomes a little longer."""
CUT_OFF: Final = "there was no whole answer"
"""A call was dropped whose client left, or whose gateway was stopped. It may have been paid."""
NOT_SENT: Final = "it was not sent"
"""Why a call was dropped whose client left while it waited for its permit: nothing was paid."""

Happening = Literal["opened", "begun", "replied", "more", "dropped"]


class RecordLine(Struct, frozen=True):
    """One line, without the body that it may have."""

    number: int
    """From 1, as editors count."""
    offset: int
    size_bytes: int
    head: Fields

    @property
    def happening(self) -> str:
        return text_of(self.head.get("is"))


Where = str | JournalReader
"""A file, or the journal of a run."""


class Contents(Struct, frozen=True):
    lines: tuple[RecordLine, ...]
    end: int
    """Where the last of them ends."""
    torn_bytes: int
    """What is behind it."""


def sealed(head: Fields, body: bytes = b"") -> bytes:
    text = json.dumps(head, separators=(",", ":")).encode()
    packed = binascii.b2a_base64(zlib.compress(body), newline=False) if body else b""
    rest = b"%s\t%s" % (text, packed)
    return b"%08x\t%s\n" % (binascii.crc32(rest), rest)


def unsealed(line: bytes) -> tuple[Fields, bytes] | None:
    """The object and the packed body of a line; nothing if it is torn or damaged."""
    checksum, _, rest = line.partition(b"\t")
    if not rest.endswith(b"\n") or checksum != b"%08x" % binascii.crc32(rest[:-1]):
        return None
    text, _, packed = rest[:-1].partition(b"\t")
    return object_fields(parsed(text)), packed


def unpacked(packed: bytes) -> bytes:
    return zlib.decompress(binascii.a2b_base64(packed)) if packed else b""


def opening(wall_s: float, home: str = "") -> bytes:
    """The line with which a gateway begins to record; `home` is the path of its agents' home."""
    head: Fields = {"is": "opened", "recording": VERSION, "wall_s": round(wall_s, 3)}
    return sealed({**head, "home": home} if home else head)


def home_in(where: Where) -> str:
    """The path of the home in which a recording was made last; nothing if it is not known."""
    try:
        lines = contents(where).lines
    except OSError:
        return ""
    homes = (text_of(line.head.get("home")) for line in reversed(lines))
    return next(filter(None, homes), "")


def contents(where: Where, fd: int | None = None) -> Contents:
    """Read a whole recording. Raises StateFileError if a file is none, or a damaged one."""
    if isinstance(where, str):
        return _contents(where, fd)
    return Contents(tuple(_rows_of(where)), 0, 0)


def _rows_of(reader: JournalReader) -> Iterator[RecordLine]:
    for number, line in reader.documents(CALL):
        if (found := unsealed(line)) is not None:
            yield RecordLine(number, number, len(line), found[0])


def _contents(path: str, fd: int | None) -> Contents:
    lines: list[RecordLine] = []
    end = number = damaged = 0
    with open(path if fd is None else fd, "rb", closefd=fd is None) as file:
        while line := file.readline(LINE_BYTES_MAX):
            number += 1
            found = unsealed(line)
            if number == 1 and (found is None or found[0].get("is") != "opened"):
                raise StateFileError(
                    f"{path} is not a recording, or not even its first line is whole",
                    where=f"{path}:1",
                    hint="name a file that does not exist yet, or one that `--record` made",
                )
            if found is None:
                damaged = damaged or number
                continue
            if damaged:
                raise StateFileError(
                    "a line of the recording is damaged, and others come after it",
                    where=f"{path}:{damaged}",
                    hint=f"keep what is before it: head -n {damaged - 1} {path} > {path}.kept",
                )
            _check_version(path, number, found[0])
            offset, end = end, end + len(line)
            lines.append(RecordLine(number, offset, len(line), found[0]))
        return Contents(tuple(lines), end, file.tell() - end)


def private_file(path: str, flags: int) -> int:
    """Open a file that only its owner can read, from its first byte on."""
    try:
        fd = os.open(path, flags | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise StateFileError(f"cannot open the recording {path}: {error.strerror}") from None
    mode = os.fstat(fd).st_mode
    if not stat.S_ISREG(mode):
        os.close(fd)
        raise StateFileError(f"{path} is not a file", hint="name a file to record to")
    if flags & os.O_RDWR and mode & 0o077:
        os.fchmod(fd, 0o600)
    return fd


def _check_version(path: str, number: int, head: Fields) -> None:
    version = head.get("recording", VERSION)
    if not isinstance(version, int) or version > VERSION:
        raise StateFileError(
            f"{path} was recorded by a later version of headway",
            where=f"{path}:{number}",
            detail=f"its format is {version}, this headway reads up to {VERSION}",
            hint="update headway, or record to another file",
        )


_LOG: Final = logging.getLogger("headway")

STREAMS_MAX: Final = 100_000
"""Streams that are known at a time; later ones are sent on."""
ENDINGS_MAX: Final = 100
"""Reasons and warnings that are logged."""

Stream = tuple[str, str, str]


class RecordedReply(Struct, frozen=True):
    status: int
    headers: Pairs
    body: bytes
    tally: Tally


class RecordedCall(Struct, eq=False):
    form: str
    parts: tuple[tuple[str, str], ...]
    begun: int
    """The number of its line: earlier lines happened before."""
    lines: list[RecordLine] = field(default_factory=list)
    """Its reply, and what came after it; none if it has no reply."""
    kind: str = ""
    """Its line within the stream."""
    model: str = ""
    is_dropped: bool = False
    """Whether it was refused or never sent: nothing was paid."""
    round: int = 0
    is_used: bool = False

    @property
    def ended(self) -> int:
        return self.lines[0].number


class Track(Struct, eq=False):
    stream: Stream
    calls: list[RecordedCall] = field(default_factory=list)
    by_form: dict[str, list[RecordedCall]] = field(default_factory=dict)

    def add(self, call: RecordedCall) -> None:
        self.calls.append(call)
        self.by_form.setdefault(call.form, []).append(call)


class ReplayPosition(Struct, eq=False):
    """Where a stream stands in a recorded one with which it agrees so far."""

    track: Track
    rounds: dict[str, int] = field(default_factory=dict)
    """Of each line, the furthest that was reached."""
    passed: set[RecordedCall] = field(default_factory=set)

    def next_round(self, kind: str) -> int:
        return self.rounds.get(kind, -1) + 1

    def seek(self, form: str) -> RecordedCall | None:
        """The recorded call that comes now: one with a reply that is left, if there is any."""
        fitting = [
            call
            for call in self.track.by_form.get(form, ())
            if call.round <= self.next_round(call.kind) and call not in self.passed
        ]
        return min(fitting, key=lambda c: (not c.lines, c.is_used, c.begun), default=None)

    def go(self, call: RecordedCall) -> None:
        """It came; one without a reply does not advance its line."""
        self.passed.add(call)
        if call.lines:
            self.rounds[call.kind] = max(self.rounds.get(call.kind, 0), call.round)


class Tape:
    """One recording, as it was when it was opened. Bodies are read when they are asked for."""

    def __init__(self, where: Where, on_end: Callable[[str], None] | None = None) -> None:
        """Raises StateFileError; `on_end` gets the first `ENDINGS_MAX` reasons of ended streams."""
        self.path = where if isinstance(where, str) else where.folder
        self._where = where
        self._on_end = on_end
        self._fd = private_file(where, os.O_RDONLY) if isinstance(where, str) else -1
        try:
            found = contents(where, self._fd)
        except BaseException:
            self.close()
            raise
        self.notice = ""
        """What was found at the end of the file and is no line."""
        if found.torn_bytes:
            self.notice = (
                f"{self.path} ends in half a line, as after a crash: what is before it is replayed"
            )
        self._tracks = tracks_of(found.lines)
        self._beginnings: dict[tuple[str, str, str], list[Track]] = {}
        """By key, client and form: the streams that begin with such a call, the latest first."""
        for track in reversed(self._tracks):
            for form in {call.form for call in track.calls if call.round == 0}:
                begins = (track.stream[0], track.stream[1], form)
                self._beginnings.setdefault(begins, []).append(track)
        self._streams: dict[Stream, list[ReplayPosition]] = {}
        self._warned: set[str] = set()
        self._ended = 0

    def find(self, asked: CanonicalCall) -> RecordedReply | None:
        """The reply to a call; nothing if it is to be sent. Each call is asked for once."""
        reply = self._next(asked)
        words = "" if reply is not None else unmeasured(asked.caller, asked.version)
        # Before the first call of a client is paid.
        if words and words not in self._warned and len(self._warned) < ENDINGS_MAX:
            self._warned.add(words)
            _LOG.warning("%s", words)
        return reply

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)

    def _line(self, line: RecordLine) -> bytes:
        if isinstance(self._where, str):
            return os.pread(self._fd, line.size_bytes, line.offset)
        return self._where.document(CALL, line.number) or b""

    def _next(self, asked: CanonicalCall) -> RecordedReply | None:
        stream = (asked.key, asked.caller, asked.session)
        places = self._streams.get(stream)
        if places is None:
            if len(self._streams) >= STREAMS_MAX:
                return None
            begins = self._beginnings.get((asked.key, asked.caller, asked.form), [])
            places = [
                ReplayPosition(track) for track in sorted(begins, key=lambda t: t.stream != stream)
            ]
        elif not places:
            return None
        agreeing = [(place, call) for place in places if (call := place.seek(asked.form))]
        self._streams[stream] = [place for place, _ in agreeing]
        if not agreeing:
            self._end(stream, asked, places)
            return None
        for place, call in agreeing:
            place.go(call)
        free = (call for _, call in agreeing if call.lines and not call.is_used)
        return self._reply(next(free, None), stream)

    def _reply(self, call: RecordedCall | None, stream: Stream) -> RecordedReply | None:
        if call is None:
            return None
        call.is_used = True
        found = [unsealed(self._line(line)) for line in call.lines]
        whole = [one for one in found if one is not None]
        if len(whole) < len(found):
            self._streams[stream] = []
            self._say(f"{self.path}:{call.ended}: changed since it was opened")
            return None
        head = whole[0][0]
        return RecordedReply(
            int(tokens(head.get("status")) or 200),
            tuple(_pairs(head.get("headers"))),
            b"".join(unpacked(packed) for _, packed in whole),
            tally_of(head.get("tally")),
        )

    def _end(self, stream: Stream, asked: CanonicalCall, places: list[ReplayPosition]) -> None:
        """Say why: in which parts the call differs from the one that should have come."""
        name = " ".join(filter(None, stream))
        expected: list[RecordedCall] = []
        if places:
            at = places[0]
            calls = at.track.calls
            expected = [call for call in calls if call.round == at.next_round(call.kind)]
        else:
            same = (track for track in reversed(self._tracks) if track.stream[:2] == stream[:2])
            expected = [track.calls[0] for track in same][:1]
        if not expected:
            why = "nothing more is recorded" if places else "nothing is recorded"
            self._say(f"{name}: {why}")
            return
        nearest = min((difference(asked.parts, call.parts) for call in expected), key=len)
        self._say(f"{name}: not as recorded in {', '.join(nearest)}")

    def _say(self, why: str) -> None:
        self._ended += 1
        if self._on_end is not None and self._ended <= ENDINGS_MAX:
            self._on_end(why)


def tracks_of(lines: Iterable[RecordLine]) -> list[Track]:
    tracks: list[Track] = []
    streams: dict[Stream, Track] = {}
    calls: dict[object, RecordedCall] = {}
    for line in lines:
        head = line.head
        number = head.get("call")
        if line.happening == "opened":
            streams, calls = {}, {}
        elif line.happening == "begun":
            key, caller = text_of(head.get("key")), text_of(head.get("caller"))
            stream = key, caller, text_of(head.get("session"))
            if stream not in streams:
                streams[stream] = Track(stream)
                tracks.append(streams[stream])
            parts = tuple((text_of(pair[0]), text_of(pair[1])) for pair in _rows(head.get("parts")))
            form = text_of(head.get("form"))
            model = text_of(head.get("model"))
            call = calls[number] = RecordedCall(
                form, parts, line.number, kind=kind_of(parts), model=model
            )
            streams[stream].add(call)
        elif line.happening in ("replied", "more") and number in calls:
            calls[number].lines.append(line)
        elif line.happening == "dropped" and number in calls:
            calls[number].is_dropped = head.get("why") != CUT_OFF
    for track in tracks:
        for kind in {call.kind for call in track.calls}:
            _form_rounds([call for call in track.calls if call.kind == kind])
    return tracks


def _form_rounds(calls: Sequence[RecordedCall]) -> None:
    """Number the rounds of a line; a call without a reply is of the round in which it came."""
    ends: list[int] = []
    for call in calls:
        if not call.lines:
            continue
        if ends and call.begun < ends[-1]:
            ends[-1] = max(ends[-1], call.ended)
        else:
            ends.append(call.ended)
        call.round = len(ends) - 1
    for call in calls:
        if not call.lines:
            call.round = bisect_left(ends, call.begun)


def _pairs(value: object) -> Iterable[tuple[bytes, bytes]]:
    for pair in _rows(value):
        yield text_of(pair[0]).encode("latin-1"), text_of(pair[1]).encode("latin-1")


def _rows(value: object) -> list[list[object]]:
    return [pair for one in items(value) if len(pair := items(one)) == 2]


def tally_of(value: object) -> Tally:
    counted = items(value)
    if len(counted) != 6:
        return Tally(known="unknown")
    known: dict[object, Known] = {"reported": "reported", "estimated": "estimated"}
    given, cached, output, _, written, long = (tokens(count) or 0.0 for count in counted)
    return Tally(given, cached, output, known.get(counted[3], "unknown"), written, long)
