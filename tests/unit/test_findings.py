"""What is undeclared and what is in no order, by what tasks touched."""

from collections.abc import Callable

import pytest
from msgspec.structs import replace

from headway.base.file_use import READ, WRITE
from headway.plans.resources import Channel, Touches
from headway.report.findings import (
    DeclaredAccess,
    FileUse,
    Finding,
    FinishedAccess,
    PlanFacts,
    Room,
    declarations,
    findings,
    folder_of,
    general,
    order_by,
)
from headway.state.shared import Access, Act, Channels, Put, StateLook

STATE: frozenset[tuple[Room, bool]] = frozenset(
    {("state", False), ("state", True), ("effect", True)}
)
FILES: frozenset[tuple[Room, bool]] = frozenset({("path", False), ("path", True)})
CHANNELS = Channels({"total": Channel("counter"), "mail": Channel("effect", "m:f")})


def done(group: int, name: str = "", member: int = 0, **touched: tuple[str, ...]) -> FinishedAccess:
    """A task that has read and written these keys and paths."""
    access = Access(
        tuple(StateLook(what, b"1") for what in touched.get("reads", ())),
        tuple(Put(key, b"1") for key in touched.get("writes", ())),
        tuple(Act(channel, b"1") for channel in touched.get("acts", ())),
    )
    from_s = 10.0 * group + member
    files = [FileUse(path, from_s, from_s + 0.5, READ) for path in touched.get("opens", ())]
    files += [FileUse(path, from_s, from_s + 0.5, WRITE) for path in touched.get("makes", ())]
    return FinishedAccess(group, member, name or f"t{group}", access, tuple(files))


def saying(*every: DeclaredAccess) -> Callable[[int, int], DeclaredAccess]:
    return lambda group, _: every[group]


def state(
    reads: tuple[str, ...] | None = None, writes: tuple[str, ...] | None = None
) -> DeclaredAccess:
    return DeclaredAccess(Touches(reads, writes, None if writes is None else ()))


def paths(
    reads: tuple[str, ...] | None = None, writes: tuple[str, ...] | None = None
) -> DeclaredAccess:
    return DeclaredAccess(paths=Touches(reads, writes))


def ground(
    *every: DeclaredAccess,
    rooms: frozenset[tuple[Room, bool]] = STATE,
    needs: tuple[tuple[tuple[int, bool], ...], ...] = ((),) * 9,
) -> PlanFacts:
    declared = saying(*every) if every else saying(*(DeclaredAccess(),) * 9)
    return PlanFacts(order_by(needs, ()), declared, rooms, CHANNELS)


def kinds(found: tuple[Finding, ...]) -> list[tuple[str, str, str, str]]:
    return [(one.kind, one.task, one.what, one.other) for one in found]


A_THEN_READ = (done(0, writes=("a",)), done(1, reads=("a",)))
DRAFTS = (done(0, makes=("out/.a.json.tmp", "out/a.json", "other/a.json.tmp", "b")),)
CONF = (done(0, opens=("conf.json",)),)
NOT_DECLARED = DeclaredAccess()
FREE = ground(rooms=frozenset())

Kinds = list[tuple[str, str, str, str]]
CASES: dict[str, tuple[tuple[FinishedAccess, ...], PlanFacts, Kinds]] = {
    "what is declared": (
        (*A_THEN_READ[:1], done(1, reads=("a",), writes=("b/1",)), done(2, reads=("b/*",))),
        ground(state((), ("a",)), state(("a",), ("b",)), state(("b",), ())), [],
    ),
    "a read that is not listed": (
        A_THEN_READ, ground(state((), ("a",)), state(("x",), ())),
        [("undeclared-read", "t1", "state:a", "t0")],
    ),
    "a write that is not listed": (
        A_THEN_READ, ground(state((), ("b",)), state(("a",), ())),
        [("undeclared-write", "t0", "state:a", "t1")],
    ),
    "nothing declared where others declare": (
        A_THEN_READ[:1], ground(NOT_DECLARED), [("undeclared-write", "t0", "state:a", "")],
    ),
    "nothing declared where none does": (A_THEN_READ[:1], FREE, []),
    "an effect that is not listed": (
        (done(0, acts=("mail",)),), ground(state((), ())),
        [("undeclared-effect", "t0", "effect:mail", "")],
    ),
    "what headway writes as an output": (
        (done(0, writes=("a",), makes=("OUT.md",)),),
        ground(DeclaredAccess(outputs=("state:a", "OUT.md")), rooms=STATE | FILES), [],
    ),
    "in no order": (A_THEN_READ, FREE, [("hazard", "t1", "state:a", "t0")]),
    "in order by needs": (
        A_THEN_READ, ground(rooms=frozenset(), needs=((), ((0, False),))), [],
    ),
    "in order because both declare": (
        A_THEN_READ, ground(state(None, ("a",)), state(("a",), None)), [],
    ),
    "two writers": (
        (*A_THEN_READ[:1], done(1, writes=("a",))), FREE, [("hazard", "t1", "state:a", "t0")],
    ),
    "two that add": ((done(0, writes=("total",)), done(1, writes=("total",))), FREE, []),
    "one that adds, one that reads the sum": (
        (done(0, writes=("total",)), done(1, reads=("total",))), FREE,
        [("hazard", "t1", "state:total", "t0")],
    ),
    "a scan and a write below it": (
        (done(0, writes=("b/1",)), done(1, reads=("b/*",)), done(2, writes=("bc",))), FREE,
        [("hazard", "t1", "state:b/*", "t0")],
    ),
    "its own reads and writes": ((done(0, reads=("a",), writes=("a",)),), FREE, []),
    "a file where no paths are listed": (CONF, ground(paths(()), rooms=STATE), []),
    "a file that is not listed": (
        CONF, ground(paths(("data.csv",)), rooms=FILES),
        [("undeclared-read", "t0", "conf.json", "")],
    ),
    "a program's own files": (
        (replace(done(0, opens=("tool.py",)), is_function=False),),
        ground(paths(("data.csv",)), rooms=FILES), [],
    ),
    "a file that another task writes": (
        (done(0, makes=("out/a",)), done(1, opens=("out/a",))),
        ground(paths((), ("out",)), paths(), rooms=FILES),
        [("undeclared-read", "t1", "out/a", "t0")],
    ),
    "drafts beside what may be written": (
        DRAFTS, ground(paths((), ("out/a.json",)), rooms=FILES),
        [("undeclared-write", "t0", "b", ""), ("undeclared-write", "t0", "other/a.json.tmp", "")],
    ),
    "a hazard of what is undeclared": (
        (*A_THEN_READ[:1], done(1, writes=("a",)), done(2, reads=("a",))),
        ground(state((), ("a",)), state((), ("a",)), state((), ())),
        [("undeclared-read", "t2", "state:a", "t0")],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_what_is_undeclared_or_in_no_order_is_found_and_nothing_else(name: str) -> None:
    every, by, expected = CASES[name]
    assert kinds(findings(every, by)) == expected


def test_a_finding_says_what_is_wrong_and_what_mends_it() -> None:
    (read,) = findings(A_THEN_READ, ground(state((), ("a",)), state(("x",), ())))
    assert read.words == "`t1` reads `state:a` and does not declare it; `t0` writes it"
    assert read.fix == "add state:a to `reads`"
    (silent,) = findings(A_THEN_READ[:1], ground(NOT_DECLARED))
    assert silent.fix == "writes: state:a"
    (hazard,) = findings(A_THEN_READ, FREE)
    assert "kept the declared order" in hazard.words
    assert hazard.fix == "needs: t0"
    both = (*A_THEN_READ[:1], done(1, writes=("a",)))
    assert findings(both, FREE)[0].words.startswith("`t0` and `t1` both write `state:a`")
    files = (done(0, makes=("out/a",)), done(1, opens=("out/*",)))
    assert findings(files, FREE)[0].words.endswith("nothing orders them: right this time")


def test_members_are_told_once_with_their_item() -> None:
    every = tuple(done(0, f"t0[{n}]", n, writes=(f"r/{n}",)) for n in range(5))
    base = ground(state((), ()))
    asked = PlanFacts(
        base.is_ordered, base.declared, STATE, CHANNELS, lambda _, member: str(member)
    )
    (found,) = findings(every, asked)
    assert (found.count, found.fix) == (5, 'add "state:r/{{ item }}" to `writes`')
    (found,) = findings(every, base)
    assert (found.count, found.fix) == (5, 'add "state:r/*" to `writes`')


def test_members_that_touch_one_key_are_a_hazard_but_not_in_a_queue() -> None:
    every = tuple(done(0, f"t0[{n}]", n, writes=("a",)) for n in range(3))
    free = PlanFacts(order_by(((),), ()), channels=CHANNELS)
    (found,) = findings(every, free)
    assert kinds((found,)) == [("hazard", "t0[1]", "state:a", "t0[0]")]
    assert found.fix == "queue: t0", "a group cannot need itself"
    queued = PlanFacts(order_by(((),), ((0,),)), channels=CHANNELS)
    assert findings(every, queued) == ()


ORDERS = {
    "members": (
        order_by(((), ((0, True),), ((1, False),), ((0, True), (2, True))), ()),
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


def test_many_of_one_folder_are_told_as_the_folder() -> None:
    every = (done(0, writes=(*(f"r/x{n}" for n in range(9)), "s")),)
    found = findings(every, ground(state((), ())))
    assert [one.fix for one in found] == ['add "state:r/*" to `writes`', "add state:s to `writes`"]


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
    every = (
        done(0, "parse[a]", 0, writes=("records/a",), makes=("out/a.json",), opens=("conf",)),
        done(0, "parse[b]", 1, writes=("records/b",), makes=("out/b.json",), opens=("conf",)),
        done(1, "merge", 0, reads=("records/*",), opens=("out/*", "in/*", "data"), acts=("mail",)),
    )
    asked = PlanFacts(
        order_by(((), ()), ()), saying(DeclaredAccess(), paths(("data",))), channels=CHANNELS,
        item=lambda group, member: "ab"[member] if group == 0 else "",
    )  # fmt: skip
    parse, merge = declarations(every, asked)
    assert parse.lines() == [
        "  parse:",
        "    reads: []",
        '    writes: ["out/{{ item }}.json", "state:records/{{ item }}"]',
    ]
    assert merge.reads == ("data", "in/*", "out/*", "state:records/*")
    ask = PlanFacts(asked.is_ordered, channels=CHANNELS)
    assert declarations(every, ask)[1].reads == ("out/*", "state:records/*")
    assert merge.writes == ("effect:mail",)
