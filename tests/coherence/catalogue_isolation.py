"""Six of the cases that PostgreSQL's isolation tests try, as programs of our own.

Written anew from what their descriptions say of them. Each is a puzzle that snapshots do not
solve: a database that is serializable ends some of the transactions with an error, and whoever
uses it has to begin them again. Unlike there, every look and every put is a step of its own.
"""

from __future__ import annotations

from typing import Final

from tests.coherence.catalogue import derived
from tests.coherence.catalogue_plays import Case, Get, Put, Scan, Steps, Task, number, ops, rows

APPLE: Final = 1
PEAR: Final = 2
BANANA: Final = 3


def _turn(old: int, new: int) -> Steps:
    """All rows of one fruit become another one."""
    for key, fruit in rows((yield Scan("fruit/*"))).items():
        if fruit == old:
            yield Put(key, new)


def _report_receipts() -> Steps:
    """All receipts of the day before the one that is open."""
    today = number((yield Get("day")))
    found = rows((yield Scan("receipts/*")))
    yield Put("report", [key for key, day in found.items() if day < today])


def _begin_project() -> Steps:
    is_manager = yield Get("people/1")
    yield Put("projects/101", 1 if is_manager else 0)


def _demote() -> Steps:
    projects = rows((yield Scan("projects/*")))
    is_busy = any(manager == 1 for manager in projects.values())
    yield Put("people/1", 1 if is_busy else 0)


def _spend(account: str) -> Steps:
    """Take 200 from one account, if there is enough in both."""
    balance = number((yield Get(account)))
    yield Put(account, balance - 200)
    total = sum(rows((yield Scan("accounts/*"))).values())
    if total < 0:
        yield Put(account, balance)


def _draw() -> Steps:
    x = number((yield Get("accounts/x")))
    y = number((yield Get("accounts/y")))
    yield Put("accounts/x", x - (10 if x + y >= 10 else 11))


def _claim(who: str) -> Steps:
    """Take a number that must be unique, or say that it is taken."""
    found = rows((yield Scan("taken/*")))
    yield Put(f"refused/{who}" if "taken/42" in found else "taken/42", who)


CASES: Final = (
    Case(
        "simple write skew", "write skew", "apples and pears swap, and neither kind wins",
        (
            Task("to apples", lambda: _turn(PEAR, APPLE), ("fruit/*",), ("fruit/*",)),
            Task("to pears", lambda: _turn(APPLE, PEAR), ("fruit/*",), ("fruit/*",)),
        ), {"fruit/5": APPLE, "fruit/7": PEAR, "fruit/11": BANANA},
    ),
    Case(
        "receipt report", "read-only anomaly", "a report of a closed day misses a receipt",
        (
            Task("enters", derived("day", "receipts/3", 0), ("day",), ("receipts/3",)),
            Task("closes", ops(Put("day", 23)), (), ("day",)),
            Task("reports", _report_receipts, ("day", "receipts/*"), ("report",)),
        ), {"day": 22, "receipts/1": 22, "receipts/2": 22},
    ),
    Case(
        "project manager", "write skew", "a project's manager is not a manager any more",
        (
            Task("begins", _begin_project, ("people/1",), ("projects/101",)),
            Task("demotes", _demote, ("projects/*",), ("people/1",)),
        ), {"people/1": 1},
    ),
    Case(
        "total cash", "write skew", "two accounts are drawn on, and each sum forgets the other",
        (
            Task("checking", lambda: _spend("accounts/checking"),
                 ("accounts/*",), ("accounts/checking",)),
            Task("savings", lambda: _spend("accounts/savings"),
                 ("accounts/*",), ("accounts/savings",)),
        ), {"accounts/checking": 600, "accounts/savings": 600},
    ),
    Case(
        "read-only anomaly", "read-only anomaly", "a reader alone makes the history impossible",
        (
            Task("pays in", derived("accounts/y", "accounts/y", 20),
                 ("accounts/y",), ("accounts/y",)),
            Task("draws", _draw, ("accounts/x", "accounts/y"), ("accounts/x",)),
            Task("states", ops(Scan("accounts/*")), ("accounts/*",), ()),
        ), {"accounts/x": 0, "accounts/y": 0},
    ),
    Case(
        "read-write unique", "write skew", "two tasks find a number free and both take it",
        (
            Task("one", lambda: _claim("one"), ("taken/*",), ("taken/42", "refused/one")),
            Task("two", lambda: _claim("two"), ("taken/*",), ("taken/42", "refused/two")),
        ), {},
    ),
)  # fmt: skip
