"""All accounts as somebody sees them who only looks: from the broker, or from what it left behind.

Looking starts no broker and changes nothing.
"""

from __future__ import annotations

import socket
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from headway.core.quota.view import BookView, describe
from headway.errors import WireError
from headway.runtime.clock import now_s
from headway.runtime.folders import Folders, folders
from headway.runtime.opening import open_book
from headway.runtime.protocol import About
from headway.runtime.store import Store

DIAL_S_MAX: Final = 1.0
"""A broker that lives takes a connection in far less."""

EMPTY: Final = BookView("", (), (), ())


@dataclass(frozen=True, slots=True)
class Overview:
    """What is known, and from whom."""

    view: BookView
    about: About | None = None
    """The broker, if one lives."""
    age_s: float | None = None
    """How old a memory is that was read in place of a broker."""

    @property
    def source(self) -> str:
        """Who says so, in words."""
        if self.about is not None:
            return f"from broker {self.about.pid}, up {self.about.age_s:.0f} s"
        if self.age_s is not None:
            return f"no broker is running; remembered, written {_age(self.age_s)} ago"
        return "no broker is running, and nothing is remembered"


def overview(environ: Mapping[str, str]) -> Overview:
    """Every account, as far as anybody knows."""
    place = folders(environ)
    if is_served(place):
        from headway.runtime.admission import admission

        return Overview(*admission().describe())
    try:
        kept = Store(place.memory).look()
    except (OSError, WireError):
        return Overview(EMPTY)
    now = now_s()
    return Overview(describe(open_book(kept, now), now), None, kept.age_s)


def is_served(place: Folders) -> bool:
    """Whether a broker lives and can be reached."""
    if not hasattr(socket, "AF_UNIX"):
        return False
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sock:
        sock.settimeout(DIAL_S_MAX)
        try:
            sock.connect(place.socket)
        except OSError:
            return False
    return True


def _age(age_s: float) -> str:
    for unit_s, unit in ((86400.0, "d"), (3600.0, "h"), (60.0, "min")):
        if age_s >= unit_s:
            return f"{age_s / unit_s:.0f} {unit}"
    return f"{age_s:.0f} s"
