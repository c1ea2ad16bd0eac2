"""headway as a subject of kills: by `headway each`, and by a plan.

What is durable is read from the journal and from the log of the process that commands run under,
by this file's own eyes: not by the code that a resume trusts.
"""

from __future__ import annotations

import binascii
import json
import shlex
import sqlite3
import sys
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path
from typing import Final

from msgspec import Struct

from tests.chaos.effect import result_of
from tests.chaos.subject import WIDTH, Home

RETRIES: Final = 2


class HeadwayEach(Struct, frozen=True):
    name: str = "**headway** each"

    def command(self, home: Home, is_first: bool) -> list[str]:
        del is_first  # A process that died before it wrote anything has not begun.
        if runs(home):
            return _headway("resume", "last")
        template = shlex.join(home.task("NAME")).replace("NAME", "{}")
        return _headway("each", f"-j{WIDTH}", "--retries", str(RETRIES), template, ":::",
                        *home.names)  # fmt: skip

    def durable(self, home: Home) -> frozenset[str]:
        return durable(home)

    def kept_outside(self, home: Home) -> frozenset[str]:
        return kept_outside(home)

    def observe(self, home: Home) -> None:
        """Tasks write down themselves what they do."""

    def results(self, home: Home) -> dict[str, str]:
        return {name: result_of(name) for name in durable(home)}


class HeadwayRun(HeadwayEach, frozen=True):
    """The same as a plan with one group."""

    name: str = "**headway** run"

    def command(self, home: Home, is_first: bool) -> list[str]:
        if runs(home):
            return _headway("resume", "last")
        plan = home.folder / "plan.yaml"
        command = shlex.join(home.task("NAME")).replace("NAME", '"$item"')
        tasks = {"work": {"each": list(home.names), "run": command, "retries": RETRIES}}
        said = {"headway": 1, "name": "chaos", "strategy": f"fixed({WIDTH})", "tasks": tasks}
        plan.write_text(json.dumps(said))  # JSON is YAML.
        return _headway("run", str(plan))


def _headway(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "headway", *arguments]


def runs(home: Home) -> list[Path]:
    """Runs of this campaign that have begun, the newest last."""
    found = sorted((home.folder / "state" / "runs").glob("*/journal.db"))
    return [path.parent for path in found if _rows(path, "SELECT 1 FROM meta LIMIT 1")]


def durable(home: Home) -> frozenset[str]:
    return _names(body.decode() for body in bodies(home))


def bodies(home: Home) -> list[bytes]:
    """All texts that the journal of the newest run holds."""
    wanted = "SELECT data FROM bodies"
    return [body for run in runs(home)[-1:] for (body,) in _rows(run / "journal.db", wanted)]


def kept_outside(home: Home) -> frozenset[str]:
    """Tasks that ended well under the shim, by its log: checksum, then fields."""
    found = []
    for folder in runs(home)[-1:]:
        log = folder / "shim.log"
        for line in log.read_bytes().splitlines() if log.exists() else ():
            crc, _, rest = line.partition(b" ")
            fields = rest.split(b" ")
            if crc == b"%08x" % binascii.crc32(rest) and fields[3:5] == [b"exit", b"0"]:
                outputs = [field for field in fields if field.startswith(b"=")]
                found += [binascii.a2b_base64(field[1:]).decode() for field in outputs[:1]]
    return _names(found)


def _names(texts: Iterable[str]) -> frozenset[str]:
    lines = [text.strip() for text in texts]
    names = (line.partition(" ")[2] for line in lines)
    return frozenset(name for name in names if name and result_of(name) in lines)


def _rows(path: Path, wanted: str) -> list[tuple[bytes]]:
    try:
        with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as database:
            return database.execute(wanted).fetchall()
    except sqlite3.DatabaseError:
        return []
