"""Which way a process reaches admission: the broker if there can be one, else a desk of its own.

The choice is made once per process and said once where it is not the usual one.
"""

from __future__ import annotations

import logging
import os
import socket
import sys
from typing import Final

from headway.core.quota.terms import Memory
from headway.core.quota.view import BookView, describe
from headway.errors import StateFileError, WireError
from headway.runtime.client import Client, Line
from headway.runtime.clock import now_s
from headway.runtime.desk import Ways, budgets, counts_towards
from headway.runtime.folders import Folders, folders, prepare
from headway.runtime.line import DeskLine
from headway.runtime.link import BrokerLine
from headway.runtime.opening import open_book, turn
from headway.runtime.search import Search
from headway.runtime.store import Kept, Store

_LOG: Final = logging.getLogger("headway")
_SAID: Final[set[str]] = set()


def dial_best(client: Client) -> Line:
    """The line that a process of this user should have."""
    place = folders(os.environ)
    why = obstacle(place)
    if not why:
        from headway.runtime.election import start

        return BrokerLine(client, Search(place, start))
    say_once(
        f"headway paces this process alone, because there can be no broker: {why}."
        " Other processes on the same account are not counted."
    )
    return dial_own(client, place)


def dial_own(client: Client, place: Folders) -> Line:
    """A desk in this process, which knows what the last broker knew and writes nothing.

    Budgets are for all processes together: without a broker, none of them may spend.
    """
    return _dial_desk(client, _look(place))


def dial_alone(client: Client) -> Line:
    """A desk in this process that knows and remembers nothing: for providers of our own."""
    return _dial_desk(client, Kept(Memory()))


def _dial_desk(client: Client, kept: Kept) -> Line:
    book = open_book(kept, now_s())

    def view() -> BookView:
        """Nobody else tells this book what time it is."""
        turn(book, now_s())
        return describe(book, now_s())

    ways = Ways(
        now_s,
        lambda _, __: None,
        lambda: "budgets need a broker, and there is none",
        _LOG.warning,
        view,
    )
    return DeskLine(client, book, ways)


def obstacle(place: Folders) -> str:
    """Why there can be no broker on this machine, or nothing."""
    if not hasattr(socket, "AF_UNIX") or not hasattr(os, "register_at_fork"):
        return "this system has no local sockets"
    if not sys.executable or getattr(sys, "frozen", False):
        return "this program cannot start another Python"
    try:
        prepare(place)
    except StateFileError as error:
        return error.message
    return ""


def without_budget(account: str) -> bool:
    """Whether calls of this account may be made though nobody counts them; says so once."""
    try:
        terms = Store(folders(os.environ).memory).look().memory.terms
    except FileNotFoundError:
        terms = ()
    except (OSError, WireError):
        return False
    if counts_towards(account, budgets(terms)):
        return False
    say_once(
        "headway found no broker and lets calls go UNPACED, as HEADWAY_UNPACED asks:"
        " refusals are to be expected."
    )
    return True


def say_once(text: str) -> None:
    """The same sentence once per process, on standard error unless logging is set up."""
    if text not in _SAID:
        _SAID.add(text)
        _LOG.warning(text)


def _look(place: Folders) -> Kept:
    try:
        return Store(place.memory).look()
    except (OSError, WireError):
        return Kept(Memory())
