"""Writes agents' configuration files: TOML text and links to the user's own files."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Iterator, Mapping
from contextlib import suppress
from datetime import date, datetime, time
from typing import Final

from headway.errors import StateFileError

_BARE: Final = re.compile(r"[A-Za-z0-9_-]+")


def toml_text(table: Mapping[str, object]) -> str:
    """The whole table as a file. Comments and the order of writing are not kept."""
    return "".join(f"{line}\n" for line in _lines(table, ()))


def _lines(table: Mapping[str, object], path: tuple[str, ...]) -> Iterator[str]:
    """Plain values first: what comes after a table's head belongs to it."""
    for key, value in table.items():
        if not isinstance(value, dict):
            yield f"{_key(key)} = {_value(value)}"
    for key, value in table.items():
        if isinstance(value, dict):
            below = (*path, key)
            yield f"\n[{'.'.join(map(_key, below))}]"
            yield from _lines(value, below)


def _key(key: str) -> str:
    return key if _BARE.fullmatch(key) else _string(key)


def _value(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return _string(value)
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        return repr(value)
    if isinstance(value, datetime | date | time):
        return value.isoformat()
    if isinstance(value, list):
        return f"[{', '.join(map(_value, value))}]"
    if isinstance(value, dict):
        inner = ", ".join(f"{_key(key)} = {_value(one)}" for key, one in value.items())
        return f"{{{inner}}}"
    raise TypeError(f"TOML has no {type(value).__name__}")


def _string(text: str) -> str:
    """As in JSON, whose escapes TOML has too; and TOML wants DEL escaped."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


# Throw-away homes of agents: links to all that is the user's own, but for one file.

ENTRIES_MAX: Final = 1000
"""Entries of a home that are linked."""


def make_home(folder: str, own: str, name: str, text: str | None) -> None:
    """Make a home like `own`, in which the file of this name has this text; its own if `None`."""
    try:
        remove_home(folder)
        os.makedirs(folder, mode=0o700)
        for entry in _entries(own):
            if entry != name or text is None:
                os.symlink(os.path.join(own, entry), os.path.join(folder, entry))
        if text is not None:
            handle = os.open(os.path.join(folder, name), os.O_WRONLY | os.O_CREAT, 0o600)
            with open(handle, "w", encoding="utf-8") as file:
                file.write(text)
    except OSError as fault:
        raise StateFileError(
            f"{folder} cannot be made: {fault.strerror}", hint="agents need a home of their own"
        ) from None


def remove_home(folder: str) -> None:
    """Links go, what they lead to stays."""
    with suppress(FileNotFoundError):
        shutil.rmtree(folder)


def _entries(own: str) -> list[str]:
    try:
        return sorted(os.listdir(own))[:ENTRIES_MAX]
    except OSError:
        return []
