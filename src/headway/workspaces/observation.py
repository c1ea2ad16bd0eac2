"""What a command with a workspace, or an observed one, read and wrote; and how it is started."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from binascii import crc32
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Literal

from msgspec import Struct, ValidationError, convert
from msgspec.structs import replace

from headway.workspaces.enter import HEAD

HOME: Final = str(Path(__file__).resolve().parent.parent)

LAUNCH: Final = """
import sys
home, spec, *argv = sys.argv[1:]
for folder_of in ("", "base", "workspaces"):
    name = "headway." + folder_of if folder_of else "headway"
    sys.modules[name] = type(sys)(name)
    sys.modules[name].__path__ = [home + "/" + folder_of]
from headway.workspaces.enter import main
main(spec, argv)
"""
"""The program of the process; packages without their `__init__`, which imports more."""


class ObservedCommand(Struct, frozen=True):
    """A search or a check, with all processes that it started. Of a search, not all reads: it
    counts by its answer."""

    argv: tuple[str, ...]
    cwd: str
    """Relative to the folder (`.` is the folder itself), or absolute if it is elsewhere."""
    reads: tuple[str, ...] = ()
    listed: tuple[str, ...] = ()


class Observation(Struct, frozen=True):
    """Paths are relative to the folder, which is "" itself, but those in `outside`."""

    is_observed: bool = False
    """Whether reads and writes were recorded at all."""
    is_whole: bool = False
    """False: something may have been missed, so that it counts as if everything was read."""
    why: str = ""
    """Why it is not whole."""
    fault: str = ""
    """Why the command was not started at all, or lost its workspace; its exit code is 125."""
    reads: tuple[str, ...] = ()
    """Opened, executed, status asked for, or found missing; by no search and no check."""
    listed: tuple[str, ...] = ()
    writes: tuple[str, ...] = ()
    """Opened for writing, created, removed, renamed. In `reads` too, unless written blindly."""
    outside: tuple[str, ...] = ()
    """Absolute paths outside the folder that were written."""
    refused: tuple[str, ...] = ()
    """Writes into the user's folder by a command that works in a copy."""
    searches: tuple[ObservedCommand, ...] = ()
    checks: tuple[ObservedCommand, ...] = ()
    uses: tuple[tuple[str, float, int, int], ...] = ()
    """Of a command without isolation: a path, when it was first used, how at all, how at first."""


def launch_argv(spec_path: str, argv: Sequence[str]) -> list[str]:
    """The command that runs `argv` as the spec says."""
    return [sys.executable, "-I", "-S", "-c", LAUNCH, HOME, spec_path, *argv]


def write_spec(path: str, spec: Mapping[str, Any]) -> None:
    Path(path).write_text(json.dumps(spec), encoding="utf-8")


def read_observation(path: str) -> Observation:
    """The observation in this file; if it is lost or spoilt, one that says so."""
    try:
        head, _, body = Path(path).read_bytes().partition(b"\n")
    except OSError:
        return Observation(why="it was not written: its process was killed")
    size, _, check = head.removeprefix(HEAD.encode()).partition(b" ")
    try:
        text = body[: int(size)]
        if not head.startswith(HEAD.encode()) or crc32(text) != int(check):
            raise ValueError(text)
        return convert(json.loads(text), Observation)
    except (ValueError, ValidationError):
        return Observation(why="the observation is spoilt")


Mode = Literal["overlay", "copy"]
TRY_S: Final = 20.0


class Abilities(Struct, frozen=True):
    """What this system allows."""

    mode: Mode
    is_observed: bool
    """Whether what commands read can be recorded; else everything counts as read."""
    words: str = ""
    """Why it is not the best."""


def probe(folder: str | None = None) -> Abilities:
    """Try each mode, best first, with files in this folder: where workspaces will be."""
    seen = _try("overlay", folder)
    mode: Mode = "overlay"
    words = []
    if why := seen.fault:
        words.append(f"workspaces are copies at other paths on this system (no overlay: {why})")
        mode = "copy"
        seen = _try(mode, folder)
    if not seen.is_whole:
        words.append("reads cannot be observed, so that everything counts as read, on this system "
                     f"({seen.why})")  # fmt: skip
    return Abilities(mode, seen.is_whole, "; ".join(words))


def observing_fault(folder: str) -> str:
    """Why commands in a folder that is not theirs alone cannot be observed; empty if they can."""
    return _try("observe", folder).why


def _try(mode: str, folder: str | None) -> Observation:
    """What is observed of a command in such a workspace; `fault` if there can be none."""
    with tempfile.TemporaryDirectory(prefix="headway-probe-", dir=folder) as place:
        names = ("folder", "place", "lower", "upper", "work")
        paths: dict[str, Any] = {name: f"{place}/{name}" for name in names}
        for path in paths.values():
            Path(path).mkdir()
        for name in ("folder", "place", "lower"):
            Path(paths[name], "file").write_text("1")
        paths["lower"] = [paths["lower"]]
        if mode != "copy":
            del paths["place"]
        log, spec_path = f"{place}/log", f"{place}/spec"
        write_spec(spec_path, {**paths, "mode": mode, "log": log})
        argv = launch_argv(spec_path, ["/bin/sh", "-c", "read word < file; test $word && > new"])
        try:
            ran = subprocess.run(argv, capture_output=True, timeout=TRY_S, check=False)
        except (OSError, subprocess.TimeoutExpired) as fault:
            return Observation(fault=str(fault), why=str(fault))
        seen = read_observation(log)
        if ran.returncode and not seen.fault:
            said = ran.stderr.decode(errors="replace").strip() or f"exit code {ran.returncode}"
            return Observation(fault=said, why=said)
        if seen.is_whole and "file" not in seen.reads:
            return replace(seen, is_whole=False, why="a file that was read is not seen")
        return seen
