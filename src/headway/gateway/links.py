"""Throw-away homes of agents: links to all that is the user's own, but for one file.

Laws:
- Nothing of the user's own home is written to, except by the agent itself, through links.
- A home is the user's alone (0700), and credentials in it are links, never copies.
"""

from __future__ import annotations

import os
import shutil
from contextlib import suppress
from typing import Final

from headway.errors import StateFileError

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
