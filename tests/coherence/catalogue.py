"""The ways in which work at the same time goes wrong, as small programs that notice it.

The classes are those that Martin Kleppmann's Hermitage tries on databases, after Adya, Fekete and
others; the programs are our own. Two or three tasks share a few rows, each task does what an agent
would do: it looks, thinks, and puts. Whatever it puts carries a hash of all that it has seen so
far, as the answer of a model carries its prompt: a stale look anywhere changes the final state.
The right result is that of the tasks one after another, in declared order.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from tests.coherence.catalogue_plays import (
    AbortedError,
    Add,
    Case,
    Get,
    Program,
    Put,
    Remove,
    Rows,
    Scan,
    Steps,
    Task,
    number,
    ops,
    rows,
)

ROWS: Final = {"rows/1": 10, "rows/2": 20}

EVERY: Final = ("rows/*",)
LOOK: Final = Scan("rows/*")
BOTH: Final = (Put("rows/1", 12), Put("rows/2", 18))


def derived(of: str, to: str, more: int = 1) -> Program:
    """Put under a key what is read under another one, and so much more."""

    def program() -> Steps:
        seen = yield Get(of)
        yield Put(to, number(seen) + more)

    return program


def _put_then_abort() -> Steps:
    yield Put("rows/1", 101)
    raise AbortedError


def _find(*divisors: int) -> Steps:
    """Look for rows by what is in them, once for every divisor; note how many there were."""
    counts = []
    for divisor in divisors:
        found = yield Scan("rows/*")
        counts.append(len(list(_where(rows(found), divisor))))
    yield Put("found", counts)


def _raise_all() -> Steps:
    for key, value in rows((yield Scan("rows/*"))).items():
        yield Put(key, value + 10)


def _remove_where_twenty() -> Steps:
    for key, value in rows((yield Scan("rows/*"))).items():
        if value == 20:
            yield Remove(key)
    yield Scan("rows/*")


def _report_finding() -> Steps:
    seen = yield Get("rows/1")
    yield Add("findings", number(seen))


def _move_ten_to_twelve() -> Steps:
    for key, value in rows((yield Scan("rows/*"))).items():
        if value == 10:
            yield Put(key, 12)


def _read_then_remove_twenty() -> Steps:
    yield Get("rows/1")
    for key, value in rows((yield Scan("rows/*"))).items():
        if value == 20:
            yield Remove(key)


def _read_both_then_put(mine: str) -> Steps:
    first = number((yield Get("rows/1")))
    second = number((yield Get("rows/2")))
    yield Put(mine, first + second)


def _insert_if_third(key: str, value: int) -> Steps:
    found = rows((yield Scan("rows/*")))
    yield Put(key, value + len(list(_where(found, 3))))


def _withdraw() -> Steps:
    """Ten, and one more as a fee if that is more than there is."""
    checking = number((yield Get("checking")))
    savings = number((yield Get("savings")))
    fee = 1 if checking + savings < 10 else 0
    yield Put("checking", checking - 10 - fee)


def _parse() -> Steps:
    text = yield Get("document")
    yield Put("record", f"parsed {text}")


def _enrich() -> Steps:
    record = yield Get("record")
    yield Put("enriched", f"enriched {record}")


def _validate() -> Steps:
    record = yield Get("record")
    enriched = yield Get("enriched")
    is_right = enriched == f"enriched {record}" and record is not None
    yield Put("verdict", "valid" if is_right else "error: incomplete record")


def _where(found: Rows, divisor: int) -> Iterator[str]:
    return (key for key, value in found.items() if value % divisor == 0)


CASES: Final = (
    Case(
        "G0", "write cycle", "each of two writers keeps one of the two rows",
        (
            Task("one", ops(Put("rows/1", 11), Put("rows/2", 21)), (), ("rows/1", "rows/2")),
            Task("two", ops(Put("rows/1", 12), Put("rows/2", 22)), (), ("rows/1", "rows/2")),
        ), ROWS,
    ),
    Case(
        "G0, removal", "write cycle", "each of two writers removes what the other one puts",
        (
            Task("one", ops(Put("rows/1", 11), Remove("rows/2")), (), ("rows/1", "rows/2")),
            Task("two", ops(Remove("rows/1"), Put("rows/2", 22)), (), ("rows/1", "rows/2")),
        ), ROWS,
    ),
    Case(
        "G1a", "aborted read", "work goes on with what a task put there that then failed",
        (
            Task("fails", _put_then_abort, (), ("rows/1",)),
            Task("derives", derived("rows/1", "rows/2"), ("rows/1",), ("rows/2",)),
        ), ROWS,
    ),
    Case(
        "G1b", "intermediate read", "a first draft is read that its writer then replaces",
        (
            Task("drafts", ops(Put("rows/1", 101), Put("rows/1", 11)), (), ("rows/1",)),
            Task("reads", ops(LOOK, LOOK), EVERY, ()),
        ), ROWS,
    ),
    Case(
        "G1b, removal", "intermediate read", "a row is missing while its writer replaces it",
        (
            Task("replaces", ops(Remove("rows/1"), Put("rows/1", 11)), (), ("rows/1",)),
            Task("reads", ops(LOOK, LOOK), EVERY, ()),
        ), ROWS,
    ),
    Case(
        "G1c", "circular information flow", "each of two tasks sees what the other one put",
        (
            Task("one", ops(Put("rows/1", 11), Get("rows/2")), ("rows/2",), ("rows/1",)),
            Task("two", ops(Put("rows/2", 22), Get("rows/1")), ("rows/1",), ("rows/2",)),
        ), ROWS,
    ),
    Case(
        "OTV", "observed task vanishes", "what was seen of a task is gone at the next look",
        (
            Task("one", ops(Put("rows/1", 11), Put("rows/2", 19)), (), ("rows/1", "rows/2")),
            Task("two", ops(Put("rows/1", 12), Put("rows/2", 18)), (), ("rows/1", "rows/2")),
            Task("reads", ops(*map(Get, ("rows/1", "rows/2", "rows/2", "rows/1"))),
                 ("rows/1", "rows/2"), ()),
        ), ROWS,
    ),
    Case(
        "PMP", "predicate-many-preceders", "a second search finds a row that the first did not",
        (
            Task("searches", lambda: _find(30, 3), EVERY, ("found",)),
            Task("inserts", ops(Put("rows/3", 30)), (), ("rows/3",)),
        ), ROWS,
    ),
    Case(
        "PMP, write", "predicate-many-preceders", "rows are removed by values they no longer have",
        (
            Task("raises", _raise_all, EVERY, EVERY),
            Task("removes", _remove_where_twenty, EVERY, EVERY),
        ), ROWS,
    ),
    Case(
        "P4", "lost update", "two tasks count from the same number",
        (
            Task("one", derived("rows/1", "rows/1"), ("rows/1",), ("rows/1",)),
            Task("two", derived("rows/1", "rows/1"), ("rows/1",), ("rows/1",)),
        ), ROWS,
    ),
    Case(
        "P4, list", "lost update", "the order of a list is the order of arrival",
        (
            Task("one", _report_finding, ("rows/1",), ("findings",)),
            Task("two", _report_finding, ("rows/1",), ("findings",)),
        ), ROWS, {"findings": "append"},
    ),
    Case(
        "G-single", "read skew", "one row is read before and the other after both were changed",
        (
            Task("reads", ops(Get("rows/1"), Get("rows/2")), ("rows/1", "rows/2"), ()),
            Task("changes", ops(Get("rows/1"), Get("rows/2"), *BOTH), EVERY, ("rows/1", "rows/2")),
        ), ROWS,
    ),
    Case(
        "G-single, predicate", "read skew", "two searches fall on either side of a change",
        (
            Task("searches", lambda: _find(5, 3), EVERY, ("found",)),
            Task("changes", _move_ten_to_twelve, EVERY, EVERY),
        ), ROWS,
    ),
    Case(
        "G-single, write", "read skew", "a row is removed for a value that goes with another past",
        (
            Task("removes", _read_then_remove_twenty, EVERY, EVERY),
            Task("changes", ops(LOOK, *BOTH), EVERY, ("rows/1", "rows/2")),
        ), ROWS,
    ),
    Case(
        "G2-item", "write skew", "each of two tasks changes what the other one relied on",
        (
            Task("one", lambda: _read_both_then_put("rows/1"), EVERY, ("rows/1",)),
            Task("two", lambda: _read_both_then_put("rows/2"), EVERY, ("rows/2",)),
        ), ROWS,
    ),
    Case(
        "G2-item, ring", "write skew", "three tasks, each relies on what the one before changes",
        (
            Task("one", derived("rows/1", "rows/2"), ("rows/1",), ("rows/2",)),
            Task("two", derived("rows/2", "rows/3"), ("rows/2",), ("rows/3",)),
            Task("three", derived("rows/3", "rows/1"), ("rows/3",), ("rows/1",)),
        ), ROWS | {"rows/3": 30},
    ),
    Case(
        "G2", "anti-dependency cycle", "each of two searches misses the row the other one inserts",
        (
            Task("one", lambda: _insert_if_third("rows/3", 30), EVERY, ("rows/3",)),
            Task("two", lambda: _insert_if_third("rows/4", 42), EVERY, ("rows/4",)),
        ), ROWS,
    ),
    Case(
        "G2, two edges", "anti-dependency cycle", "a reader sees one change and not an earlier one",
        (
            Task("zeroes", ops(LOOK, Put("rows/1", 0)), EVERY, ("rows/1",)),
            Task("adds", derived("rows/2", "rows/2", 5), ("rows/2",), ("rows/2",)),
            Task("reads", ops(LOOK), EVERY, ()),
        ), ROWS,
    ),
    Case(
        "Read-only", "read-only anomaly", "a statement shows no fee, and the fee is charged",
        (
            Task("deposits", derived("savings", "savings", 20), ("savings",), ("savings",)),
            Task("withdraws", _withdraw, ("checking", "savings"), ("checking",)),
            Task("states", ops(Get("checking"), Get("savings")), ("checking", "savings"), ()),
        ), {"checking": 0, "savings": 0},
    ),
    Case(
        "Pipeline", "stale context", "a validator flags a record that is not enriched yet",
        (
            Task("parser", _parse, ("document",), ("record",)),
            Task("enricher", _enrich, ("record",), ("enriched",)),
            Task("validator", _validate, ("record", "enriched"), ("verdict",)),
        ), {"document": "invoice 42"},
    ),
)  # fmt: skip
