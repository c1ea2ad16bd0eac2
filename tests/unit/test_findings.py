"""What is wrong with files that tasks use in no order, and what tasks should declare."""

import pytest

from headway.base.file_use import APPEND, DRAFT, MADE, READ, REMOVE, WRITE
from headway.report.findings import (
    FileUse,
    Finding,
    PlanFacts,
    TaskUse,
    declarations,
    findings,
    folder_of,
    general,
    order_by,
)
from headway.state.shared import Access, Act, Put, StateLook

Use = tuple[str, int, float, float]
"""A path, how it is used, and from when to when."""


def task(group: int, *uses: Use, member: int | None = None) -> TaskUse:
    name = f"t{group}" if member is None else f"t{group}[{member}]"
    files = tuple(FileUse(path, from_s, to_s, use) for path, use, from_s, to_s in uses)
    return TaskUse(group, member or 0, name, files)


def facts(
    *needs: tuple[tuple[int, int], ...], queues: tuple[tuple[int, ...], ...] = (), item: str = ""
) -> PlanFacts:
    every = needs or ((),) * 9
    return PlanFacts(
        order_by(every, queues), lambda group, member: group * 100 + member,
        lambda _, member: item[member] if item else "", lambda group: f"plan.yaml:{group}",
    )  # fmt: skip


def kinds(found: tuple[Finding, ...]) -> list[tuple[str, str, str, str]]:
    return [(one.kind, one.task, one.what, one.other) for one in found]


FREE = facts()
FIRST, LATER, SECOND = (0.0, 2.0), (1.0, 3.0), (5.0, 6.0)

Kinds = list[tuple[str, str, str, str]]
CASES: dict[str, tuple[tuple[TaskUse, ...], PlanFacts, Kinds]] = {
    "two that read": ((task(0, ("a", READ, *FIRST)), task(1, ("a", READ, *LATER))), FREE, []),
    "two writers at the same time": (
        (task(0, ("a", WRITE, *FIRST)), task(1, ("a", WRITE, *LATER))), FREE,
        [("lost-update", "t1", "a", "t0")],
    ),
    "a reader while another one writes": (
        (task(0, ("a", WRITE, *LATER)), task(1, ("a", READ, *FIRST))), FREE,
        [("stale-read", "t1", "a", "t0")],
    ),
    "one after the other": (
        (task(0, ("a", WRITE, *FIRST)), task(1, ("a", READ, *SECOND))), FREE,
        [("hazard", "t1", "a", "t0")],
    ),
    "one after the other, against the order of the plan": (
        (task(0, ("a", WRITE, *SECOND)), task(1, ("a", READ, *FIRST))), FREE,
        [("stale-read", "t1", "a", "t0")],
    ),
    "in order by needs": (
        (task(0, ("a", WRITE, *FIRST)), task(1, ("a", WRITE, *LATER))), facts((), ((0, 0),)), [],
    ),
    "in order by a queue": (
        (task(0, ("a", WRITE, *FIRST)), task(1, ("a", WRITE, *LATER))),
        facts((), (), queues=((0, 1),)), [],
    ),
    "two that append": (
        (task(0, ("a", APPEND, *FIRST)), task(1, ("a", APPEND | MADE, *LATER))), FREE, [],
    ),
    "one that appends, one that writes": (
        (task(0, ("a", APPEND, *FIRST)), task(1, ("a", WRITE, *LATER))), FREE,
        [("lost-update", "t1", "a", "t0")],
    ),
    "a listing of a folder where a file is made": (
        (task(0, ("d/a", WRITE | MADE, *FIRST)), task(1, ("d/*", READ, *LATER))), FREE,
        [("stale-read", "t1", "d/a", "t0")],
    ),
    "a listing of a folder where a file is removed": (
        (task(0, ("d/a", REMOVE, *FIRST)), task(1, ("d/*", READ, *SECOND))), FREE,
        [("hazard", "t1", "d/a", "t0")],
    ),
    "a listing of a folder where a file is changed": (
        (task(0, ("d/a", WRITE, *FIRST)), task(1, ("d/*", READ, *LATER))), FREE, [],
    ),
    "drafts of one name, one after the other": (
        (task(0, ("x", WRITE | MADE | DRAFT, *FIRST)), task(1, ("x", WRITE | DRAFT, *SECOND))),
        FREE, [],
    ),
    "drafts of one name at the same time": (
        (task(0, ("x", WRITE | MADE | DRAFT, *FIRST)), task(1, ("x", WRITE | DRAFT, *LATER))),
        FREE, [("lost-update", "t1", "x", "t0")],
    ),
    "a database": (
        (task(0, ("db", WRITE, *FIRST), ("db-wal", WRITE, *FIRST)), task(1, ("db", WRITE, *LATER))),
        FREE, [],
    ),
    "what goes wrong once is no hazard beside it": (
        (task(0, ("a", WRITE, *FIRST)), task(1, ("a", WRITE, *LATER)), task(1, ("a", READ, *SECOND),
         member=1)), FREE, [("lost-update", "t1", "a", "t0")],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_what_is_wrong_is_found_and_nothing_else(name: str) -> None:
    every, by, expected = CASES[name]
    assert kinds(findings(every, by)) == expected


def test_attempts_without_a_result_count() -> None:
    lost = task(0, ("a", WRITE, *FIRST))
    (found,) = findings((task(1, ("a", WRITE, *LATER)),), FREE, (lost,))
    assert kinds((found,)) == [("lost-update", "t1", "a", "t0")]


WORDS = {
    "`t1` reads `a`, which `t0` writes, and nothing orders them: right this time":
        (("a", WRITE, *FIRST), ("a", READ, *SECOND)),
    "`t0` and `t1` both write `a`, and nothing orders them: right this time":
        (("a", WRITE, *FIRST), ("a", WRITE, *SECOND)),
    "`t0` and `t1` wrote `a` at the same time: what one of them wrote may be lost":
        (("a", WRITE, *FIRST), ("a", WRITE, *LATER)),
    "`t1` wrote `a` before `t0`, which comes first in the plan, wrote over it":
        (("a", WRITE, *SECOND), ("a", WRITE, *FIRST)),
    "`t0` read `a` after `t1` wrote it, which comes later in the plan":
        (("a", READ, *SECOND), ("a", WRITE, *FIRST)),
    "`t1` read `a` before `t0` wrote it, which comes first in the plan":
        (("a", WRITE, *SECOND), ("a", READ, *FIRST)),
    "`t0` read `a` while `t1` wrote it: it may be stale or half written":
        (("a", READ, *FIRST), ("a", WRITE, *LATER)),
}  # fmt: skip


@pytest.mark.parametrize("words", WORDS)
def test_a_finding_says_what_is_wrong_and_what_mends_it(words: str) -> None:
    first, second = WORDS[words]
    (found,) = findings((task(0, first), task(1, second)), FREE)
    assert (found.words, found.fix, found.where) == (words, "needs: t0", "plan.yaml:1")


def test_the_same_of_all_members_is_said_once() -> None:
    every = [task(0, ("a", WRITE, *FIRST), member=n) for n in range(3)]
    (found,) = findings(every, FREE)
    assert (found.count, found.fix) == (3, "queue: t0"), "a group cannot need itself"
    makes = [task(0, (f"r/{n}", WRITE, *FIRST), member=i) for i, n in enumerate("xyz")]
    reads = [task(1, (f"r/{n}", READ, *LATER), member=i) for i, n in enumerate("xyz")]
    (found,) = findings((*makes, *reads), facts(item="xyz"))
    assert (found.what, found.count) == ("r/x", 3)


ORDERS = {
    "members": (
        order_by(((), ((0, 1),), ((1, 0),), ((0, 1), (2, 1))), ()),
        (((0, 1), (1, 1)), ((0, 1), (2, 7)), ((2, 0), (1, 5)), ((3, 1), (0, 2))),
        (((0, 1), (1, 2)), ((3, 1), (2, 2))),
    ),
    "blocks": (
        order_by(((), ((0, 4),), ((1, 2),), ((2, 0),)), ()),
        (((0, 7), (1, 1)), ((2, 1), (0, 15)), ((0, 99), (3, 0))),
        (((0, 7), (1, 7)), ((2, 1), (0, 16))),
    ),
    "queues": (
        order_by(((), (), ()), ((0, 2),)),
        (((0, 1), (2, 3)), ((0, 1), (0, 2))),
        (((1, 0), (1, 1)), ((0, 0), (1, 0))),
    ),
}


@pytest.mark.parametrize("name", ORDERS)
def test_needs_blocks_and_queues_order_tasks(name: str) -> None:
    is_ordered, ordered, free = ORDERS[name]
    assert all(is_ordered(*pair) for pair in ordered)
    assert not any(is_ordered(*pair) for pair in free)


def test_items_are_found_in_keys_and_paths() -> None:
    assert general("state:r/7", "7") == "state:r/{{ item }}"
    assert general("out/7.json", "7") == "out/{{ item }}.json"
    assert general("out/17", "7") == "out/17"
    assert general("out/src/a.py.txt", "src/a.py") == "out/{{ item }}.txt"
    assert general("out/x", "") == "out/x"
    assert general("state:a/7/7", "7") == "state:a/7/{{ item }}"
    assert folder_of("state:a") == "state:"
    assert folder_of("out/x/y") == "out/x/"


def test_declarations_are_learned_for_all_members() -> None:
    puts = [Access(writes=(Put(f"records/{n}", b"1"),)) for n in "ab"]
    conf = FileUse("conf", *FIRST, READ)
    files = [FileUse(f"out/{n}.json", *FIRST, WRITE) for n in "ab"]
    drafts = [FileUse(f"out/{n}.tmp", *FIRST, WRITE | DRAFT) for n in "ab"]
    sees = Access((StateLook("records/*", b"1"),), (), (Act("mail", b"1"),))
    looks = tuple(FileUse(path, *SECOND, READ) for path in ("out/*", "in/*", "data", ".hidden"))
    every = [
        TaskUse(0, n, f"parse[{n}]", (conf, files[n], drafts[n]), puts[n]) for n in range(2)
    ]  # fmt: skip
    every += [TaskUse(1, 0, "merge", (*looks, FileUse("SUM.md", *SECOND, WRITE)), sees)]
    known = PlanFacts(
        order_by(((), ()), ()), lambda group, member: group,
        lambda group, member: "ab"[member] if group == 0 else "",
        outputs=lambda group, _: ("SUM.md",) if group else (),
    )  # fmt: skip
    parse, merge = declarations(every, known)
    assert parse.lines() == [
        "  parse:",
        "    reads: []",
        '    writes: ["out/{{ item }}.json", "state:records/{{ item }}"]',
    ]
    assert merge.reads == ("out/*", "state:records/*")
    assert merge.writes == ("effect:mail",)
