"""Checks this machine: one finding for each thing that runs depend on.

Laws:
- Looking changes nothing that lasts: no broker is started, no run is touched.
- The value of a key is never read into a finding, only whether there is one.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from glob import escape as glob_escape
from glob import glob
from importlib.metadata import PackageNotFoundError, version
from typing import Final, Literal

from msgspec import Struct

from headway.base import locks as owner
from headway.base.folders import RUNTIME_DIR, XDG_RUNTIME, Folders, config_folder, folders, prepare
from headway.base.numbers import short
from headway.config import read_configuration
from headway.errors import HeadwayError
from headway.journal.folder import list_runs
from headway.journal.reader import QUICK_BYTES_MAX, JournalReader, examine, size_bytes

Judgement = Literal["ok", "warn", "fail"]

WAL_MENDED: Final = (3, 51, 3)
"""The first SQLite that cannot spoil a file with several writers."""

DISK_WARN_BYTES: Final = 1_000_000_000
DISK_FAIL_BYTES: Final = 100_000_000
FILES_MIN: Final = 1024
"""Open files: each call in flight and each command needs a few."""

SKEW_S_MAX: Final = 2.0
EARLIEST_S: Final = 1_735_689_600.0
"""2025-01-01: a clock before it was never set."""

JOURNALS_MAX: Final = 20

KEYS: Final = ("ANTHROPIC_API_KEY", "OPENAI_API_KEY")
REMOTE: Final = frozenset(("nfs", "nfs4", "cifs", "smb3", "9p", "fuse.sshfs", "afs", "ceph"))
"""File systems where a write-ahead log is not safe: two machines do not share memory."""


class DoctorFinding(Struct, frozen=True):
    about: str
    judgement: Judgement
    detail: str
    fix: str = ""
    path: str = ""
    chosen_by: str = ""
    """Of a folder: where it is, and the variable that it was chosen by."""


def check_up(environ: Mapping[str, str]) -> list[DoctorFinding]:
    """Look at everything; nothing that is wrong keeps the rest from being looked at."""
    place = folders(environ)
    looks: tuple[Callable[[], DoctorFinding], ...] = (
        lambda: DoctorFinding("Python", "ok", ".".join(map(str, sys.version_info[:3]))),
        _sqlite, lambda: _configuration(environ), lambda: _writable(place),
        lambda: _runtime_folder(place),
        lambda: _folder("config folder", *config_folder(environ)),
        lambda: _folder("state folder", place.state, place.state_by),
        lambda: _disk(place), lambda: _journals(place), lambda: _workspaces(place), _files_open,
        lambda: _broker(place), lambda: _keys(environ), _prices, _mcp, lambda: _clock(place),
    )  # fmt: skip
    return [look() for look in looks]


def _sqlite() -> DoctorFinding:
    found = sqlite3.sqlite_version
    if sqlite3.sqlite_version_info < WAL_MENDED:
        return DoctorFinding(
            "SQLite", "warn",
            f"{found} can lose a commit when several processes write one database; headway writes "
            "a journal with one",
            "do not open a journal for writing while its run goes on; SQLite 3.51.3 has it mended",
        )  # fmt: skip
    return DoctorFinding("SQLite", "ok", found)


def _configuration(environ: Mapping[str, str]) -> DoctorFinding:
    try:
        configured = read_configuration(environ)
    except HeadwayError as error:
        return DoctorFinding("configuration", "fail", error.message, error.hint or "")
    there = configured.path if configured.is_there else f"none, defaults ({configured.path})"
    return DoctorFinding("configuration", "ok", there)


def _writable(place: Folders) -> DoctorFinding:
    try:
        prepare(place)
        with tempfile.TemporaryFile(dir=place.state) as file:
            file.write(b"headway")
            os.fsync(file.fileno())
    except HeadwayError as error:
        return DoctorFinding("folders", "fail", error.message, error.hint or "")
    except OSError as fault:
        return DoctorFinding(
            "folders", "fail", f"{place.state}: {fault.strerror}",
            "set HEADWAY_STATE_DIR to a folder of your own",
        )  # fmt: skip
    kind = _file_system(place.state)
    if kind in REMOTE:
        return DoctorFinding(
            "folders", "warn", f"{place.state} is on {kind}: journals are not safe there",
            "set HEADWAY_STATE_DIR to a folder on a disk of this machine",
        )  # fmt: skip
    return DoctorFinding("folders", "ok", f"{place.state}, {place.runtime}")


def _folder(about: str, path: str, chosen_by: str, more: str = "", fix: str = "") -> DoctorFinding:
    return DoctorFinding(about, "ok", f"{path}, by {chosen_by}{more}", fix, path, chosen_by)


def _runtime_folder(place: Folders) -> DoctorFinding:
    by = place.runtime_by
    more = f": every HOME with the same {by} shares this folder and its broker"
    if by not in (RUNTIME_DIR, XDG_RUNTIME):
        more = (
            f" and the user id: {XDG_RUNTIME} is not set, so every HOME of this user shares this "
            "folder and its broker"
        )
    fix = f"to keep them apart, set {RUNTIME_DIR} to a folder of its own for each"
    return _folder("runtime folder", place.runtime, by, more, fix)


def _disk(place: Folders) -> DoctorFinding:
    try:
        free = shutil.disk_usage(_existing(place.state)).free
    except OSError as fault:
        return DoctorFinding("disk", "warn", f"{place.state}: {fault.strerror}")
    detail = f"{short(free / 1e6)} MB free"
    if free >= DISK_WARN_BYTES:
        return DoctorFinding("disk", "ok", detail)
    fix = "headway doctor --prune 30d, or set HEADWAY_STATE_DIR to a larger disk"
    return DoctorFinding("disk", "fail" if free < DISK_FAIL_BYTES else "warn", detail, fix)


def _workspaces(place: Folders) -> DoctorFinding:
    """What this system allows, and workspaces of runs that no process performs."""
    from headway.workspaces.observation import probe

    try:
        abilities = probe(_existing(place.state))
        runs = list_runs(place.state, JOURNALS_MAX)
    except OSError as fault:
        return DoctorFinding("workspaces", "warn", f"{place.state}: {fault.strerror}")
    except HeadwayError as error:
        return DoctorFinding("workspaces", "warn", error.message, error.hint or "")
    detail = f"{abilities.mode}, reads {'are' if abilities.is_observed else 'cannot be'} observed"
    left = 0
    for run in runs:
        found = owner.look(run.folder)
        if not (found and found.is_alive):
            left += len(glob(os.path.join(glob_escape(run.folder), "workspaces/*/attempts/*")))
    if left:
        return DoctorFinding(
            "workspaces", "warn", f"{detail}; {left} of interrupted runs",
            "headway resume goes on with them; headway doctor --prune 30d removes old runs",
        )  # fmt: skip
    return DoctorFinding("workspaces", "ok" if not abilities.words else "warn",
                         f"{detail}{abilities.words and '; '}{abilities.words}")  # fmt: skip


def _journals(place: Folders) -> DoctorFinding:
    """Whether the newest runs can be gone on with; large journals and live ones are left out."""
    try:
        runs = list_runs(place.state, JOURNALS_MAX)
    except HeadwayError as error:
        return DoctorFinding("journals", "fail", error.message, error.hint or "")
    for run in runs:
        try:
            found = owner.look(run.folder)
            if not (found and found.is_alive) and size_bytes(run.folder) <= QUICK_BYTES_MAX:
                examine(run.folder)
            JournalReader(run.folder).close()
        except HeadwayError as error:
            return DoctorFinding("journals", "fail", error.message, error.hint or "")
    return DoctorFinding("journals", "ok", f"of {len(runs)} runs, the newest")


def _files_open() -> DoctorFinding:
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    detail = "as many as wanted" if soft == resource.RLIM_INFINITY else f"{soft:,} at once"
    if soft != resource.RLIM_INFINITY and soft < FILES_MIN:
        more = "ulimit -n 4096" if hard == resource.RLIM_INFINITY else f"ulimit -n {hard}"
        return DoctorFinding("open files", "warn", detail, more)
    return DoctorFinding("open files", "ok", detail)


def _broker(place: Folders) -> DoctorFinding:
    import socket

    if not os.path.exists(place.socket):
        return DoctorFinding("broker", "ok", "not running; the first call starts it")
    line = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    line.settimeout(1.0)
    try:
        line.connect(place.socket)
    except ConnectionRefusedError:
        detail = "not running (it left its socket); the first call starts it"
        return DoctorFinding("broker", "ok", detail)
    except OSError as fault:
        return DoctorFinding(
            "broker", "fail", f"{place.socket}: {fault.strerror or fault}",
            f"end the process that holds {place.lock}",
        )  # fmt: skip
    finally:
        line.close()
    return DoctorFinding("broker", "ok", f"running at {place.socket}")


def _keys(environ: Mapping[str, str]) -> DoctorFinding:
    there = [name for name in KEYS if environ.get(name)]
    missing = [name for name in KEYS if not environ.get(name)]
    if not there:
        return DoctorFinding(
            "keys", "warn", f"neither {' nor '.join(KEYS)} is set",
            "export the key of your provider, if tasks of yours have prompts",
        )  # fmt: skip
    absent = f"; not set: {', '.join(missing)}" if missing else ""
    return DoctorFinding("keys", "ok", f"set: {', '.join(there)}{absent}")


def _prices() -> DoctorFinding:
    try:
        return DoctorFinding("prices", "ok", f"genai-prices {version('genai-prices')}")
    except PackageNotFoundError:
        return DoctorFinding(
            "prices", "warn", "no price data: budgets in money are refused",
            "pip install 'headway[prices]'",
        )  # fmt: skip


def _mcp() -> DoctorFinding:
    try:
        return DoctorFinding("mcp", "ok", f"mcp {version('mcp')}, for `headway mcp`")
    except PackageNotFoundError:
        detail = "not installed: for `headway mcp` and `agent: tools(mcp:NAME)`"
        return DoctorFinding("mcp", "ok", detail, "pip install 'headway[mcp]'")


def _clock(place: Folders) -> DoctorFinding:
    now_s = time.time()
    fix = "set the clock of this machine (NTP): resets of usage windows are times on the wall"
    if now_s < EARLIEST_S:
        return DoctorFinding("clock", "fail", time.strftime("%Y-%m-%d", time.gmtime(now_s)), fix)
    try:
        newest = next(iter(list_runs(place.state, 1)), None)
    except HeadwayError:
        newest = None  # What is wrong with the folder is a finding of its own.
    if newest is not None and newest.created_s > now_s + SKEW_S_MAX:
        ahead = newest.created_s - now_s
        return DoctorFinding("clock", "warn", f"run {newest.id} began {ahead:.0f} s from now", fix)
    return DoctorFinding("clock", "ok", time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(now_s)))


def _existing(path: str) -> str:
    while not os.path.isdir(path) and path != os.path.dirname(path):
        path = os.path.dirname(path)
    return path


def _file_system(path: str) -> str:
    best, kind = "", ""
    for point, name in _mounts():
        under = os.path.join(os.path.realpath(path), "")
        if under.startswith(os.path.join(point, "")) and len(point) >= len(best):
            best, kind = point, name
    return kind


def _mounts() -> Iterator[tuple[str, str]]:
    try:
        with open("/proc/mounts", encoding="utf-8", errors="replace") as file:
            for line in file:
                fields = line.split()
                if len(fields) > 2:
                    yield fields[1], fields[2]
    except OSError:
        return
