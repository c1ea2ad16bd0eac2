"""A recording as a file: one sealed line for each thing that happened to a call.

Laws:
- A line is a checksum, a JSON object and, packed, the body of a reply; a tab is between them.
- Lines are only ever added. What a crash left at the end, half a line, is no line: it is cut, and
  nothing before it is lost. A damaged line with good ones after it is an error that says where.
- The prompt is not in it, only its digest; nor is any key. The replies are: only its owner may
  read it.

`opened` begins the lines of one gateway. A call is `begun`, then `replied` or `dropped`; the order
of the lines is the order of what happened. `more` is what came after the end of a reply.
"""

from __future__ import annotations

import binascii
import json
import os
import stat
import zlib
from dataclasses import dataclass
from typing import BinaryIO, Final, Literal

from headway.errors import StateFileError
from headway.wire.loose import Fields, fields, parsed, text_of

VERSION: Final = 1
"""Of the file. A reader knows this one and those before it."""

BODY_BYTES_MAX: Final = 64 * 1024 * 1024
"""A longer reply is not recorded: no model writes it, and a line is read in one piece."""

LINE_BYTES_MAX: Final = 2 * BODY_BYTES_MAX
"""Base64 makes four bytes of three, and what cannot be packed becomes a little longer."""

CUT_OFF: Final = "there was no whole answer"
"""Why a call was dropped whose client left, or whose gateway was stopped. It may have been paid;
one that was refused was not."""

NOT_SENT: Final = "it was not sent"
"""Why a call was dropped whose client left while it waited for its permit: nothing was paid."""

Happening = Literal["opened", "begun", "replied", "more", "dropped"]


@dataclass(frozen=True, slots=True)
class Line:
    """One line, without the body that it may have."""

    number: int
    """From 1, as editors count."""
    offset: int
    size_bytes: int
    head: Fields

    @property
    def happening(self) -> str:
        return text_of(self.head.get("is"))


@dataclass(frozen=True, slots=True)
class Contents:
    """All good lines of a file."""

    lines: tuple[Line, ...]
    end: int
    """Where the last of them ends."""
    torn_bytes: int
    """What is behind it."""


def sealed(head: Fields, body: bytes = b"") -> bytes:
    """A line of the file."""
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
    return fields(parsed(text)), packed


def unpacked(packed: bytes) -> bytes:
    """A body as it was; its line's checksum was right."""
    return zlib.decompress(binascii.a2b_base64(packed)) if packed else b""


def opening(wall_s: float, home: str = "") -> bytes:
    """The line with which a gateway begins to record; `home` is the path of its agents' home."""
    head: Fields = {"is": "opened", "recording": VERSION, "wall_s": round(wall_s, 3)}
    return sealed({**head, "home": home} if home else head)


def home_in(path: str) -> str:
    """The path of the home in which a recording was made last; nothing if it is not known."""
    try:
        with open(path, "rb") as file:
            lines = contents(path, file).lines
    except OSError:
        return ""
    homes = (text_of(line.head.get("home")) for line in reversed(lines))
    return next(filter(None, homes), "")


def contents(path: str, file: BinaryIO) -> Contents:
    """Read a whole file. Raises StateFileError if it is no recording, or a damaged one."""
    lines: list[Line] = []
    end = number = damaged = 0
    while line := file.readline(LINE_BYTES_MAX):
        number += 1
        found = unsealed(line)
        if number == 1 and (found is None or found[0].get("is") != "opened"):
            raise _foreign(path)
        if found is None:
            damaged = damaged or number
            continue
        if damaged:
            raise _damaged(path, damaged)
        _check_version(path, number, found[0])
        offset, end = end, end + len(line)
        lines.append(Line(number, offset, len(line), found[0]))
    return Contents(tuple(lines), end, file.tell() - end)


def private_file(path: str, flags: int) -> int:
    """Open a file that only its owner may read; for nobody else's eyes from the first byte on."""
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


def _foreign(path: str) -> StateFileError:
    """A file that is not ours is not touched, however little of it there is."""
    return StateFileError(
        f"{path} is not a recording, or not even its first line is whole",
        where=f"{path}:1",
        hint="name a file that does not exist yet, or one that `--record` made",
    )


def _check_version(path: str, number: int, head: Fields) -> None:
    version = head.get("recording", VERSION)
    if not isinstance(version, int) or version > VERSION:
        raise StateFileError(
            f"{path} was recorded by a later version of headway",
            where=f"{path}:{number}",
            detail=f"its format is {version}, this headway reads up to {VERSION}",
            hint="update headway, or record to another file",
        )


def _damaged(path: str, number: int) -> StateFileError:
    kept = number - 1
    return StateFileError(
        "a line of the recording is damaged, and others come after it",
        where=f"{path}:{number}",
        hint=f"keep what is before it: head -n {kept} {path} > {path}.kept",
    )
