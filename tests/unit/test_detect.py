"""What is undeclared and what is in no order, by what tasks touched."""

from collections.abc import Callable

from headway.plans.resources import Channel, Touches
from headway.report.detect import (
    PAIRS_MAX,
    DeclaredAccess,
    DetectorFinding,
    DetectorGround,
    FinishedAccess,
    ObservedTouch,
    Room,
    declarations,
    findings,
    folder_of,
    general,
    is_allowed,
    order_by,
    said_of,
    touches_of,
)
from headway.report.detect import _Judge as Judge
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
    return FinishedAccess(
        group, member, name or f"t{group}", access, touched.get("opens", ()),
        touched.get("makes", ()),
    )  # fmt: skip


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
) -> DetectorGround:
    declared = saying(*every) if every else saying(*(DeclaredAccess(),) * 9)
    return DetectorGround(order_by(needs, ()), declared, rooms, CHANNELS)


def kinds(found: tuple[DetectorFinding, ...]) -> list[tuple[str, str, str, str]]:
    return [(one.kind, one.task, one.what, one.other) for one in found]


def test_what_is_declared_is_fine() -> None:
    every = (
        done(0, writes=("a",)),
        done(1, reads=("a",), writes=("b/1",)),
        done(2, reads=("b/*",)),
    )
    said = (state((), ("a",)), state(("a",), ("b",)), state(("b",), ()))
    assert findings(every, ground(*said)) == ()


def test_a_key_that_a_task_does_not_list_is_found_with_whoever_else_touches_it() -> None:
    every = (done(0, writes=("a",)), done(1, reads=("a",)))
    said = (state((), ("a",)), state(("x",), ()))
    (found,) = findings(every, ground(*said))
    assert (found.kind, found.task, found.what, found.other) == (
        "undeclared-read", "t1", "state:a", "t0",
    )  # fmt: skip
    assert found.words == "`t1` reads `state:a` and does not declare it; `t0` writes it"
    assert found.fix == "add state:a to `reads`"


def test_a_write_that_is_not_listed_is_found_with_its_readers() -> None:
    every = (done(0, writes=("a",)), done(1, reads=("a",)))
    (found,) = findings(every, ground(state((), ("b",)), state(("a",), ())))
    assert (found.kind, found.what, found.other) == ("undeclared-write", "state:a", "t1")
    assert found.words.endswith("; `t1` reads it")


def test_a_task_that_declares_nothing_is_found_where_others_declare() -> None:
    every = (done(0, writes=("a",)),)
    (found,) = findings(every, ground(DeclaredAccess()))
    assert (found.kind, found.fix) == ("undeclared-write", "writes: state:a")
    assert findings(every, ground(DeclaredAccess(), rooms=frozenset())) == ()


def test_an_effect_that_is_not_listed_is_found() -> None:
    every = (done(0, acts=("mail",)),)
    (found,) = findings(every, ground(state((), ())))
    assert (found.kind, found.what) == ("undeclared-effect", "effect:mail")
    assert "asks for" in found.words


def test_what_headway_writes_for_a_task_is_declared_by_its_output() -> None:
    every = (done(0, writes=("a",), makes=("OUT.md",)),)
    said = DeclaredAccess(outputs=("state:a", "OUT.md"))
    assert findings(every, ground(said, rooms=STATE | FILES)) == ()


def test_two_that_nothing_orders_are_a_hazard_although_it_went_well() -> None:
    every = (done(0, writes=("a",)), done(1, reads=("a",)))
    (found,) = findings(every, ground(rooms=frozenset()))
    assert kinds((found,)) == [("hazard", "t1", "state:a", "t0")]
    assert "kept the declared order" in found.words
    assert found.fix == "needs: t0"
    assert findings(every, ground(rooms=frozenset(), needs=((), ((0, False),)))) == ()


def test_two_writers_in_no_order_are_a_hazard_unless_their_writes_add_up() -> None:
    both = (done(0, writes=("a",)), done(1, writes=("a",)))
    (found,) = findings(both, ground(rooms=frozenset()))
    assert found.words.startswith("`t0` and `t1` both write `state:a`")
    adding = (done(0, writes=("total",)), done(1, writes=("total",)))
    assert findings(adding, ground(rooms=frozenset())) == ()


def test_who_adds_and_who_reads_the_sum_are_a_hazard() -> None:
    every = (done(0, writes=("total",)), done(1, reads=("total",)))
    assert kinds(findings(every, ground(rooms=frozenset()))) == [
        ("hazard", "t1", "state:total", "t0")
    ]


def test_a_scan_and_a_write_below_it_are_a_hazard() -> None:
    every = (done(0, writes=("b/1",)), done(1, reads=("b/*",)), done(2, writes=("bc",)))
    assert kinds(findings(every, ground(rooms=frozenset()))) == [
        ("hazard", "t1", "state:b/*", "t0")
    ]


def test_both_that_declare_it_are_in_declared_order() -> None:
    every = (done(0, writes=("a",)), done(1, reads=("a",)))
    assert findings(every, ground(state(None, ("a",)), state(("a",), None))) == ()


def test_a_file_that_nobody_writes_is_found_only_where_paths_are_listed() -> None:
    every = (done(0, opens=("conf.json",)),)
    assert findings(every, ground(paths(), rooms=STATE)) == ()
    assert findings(every, ground(paths(()), rooms=STATE)) == ()
    assert len(findings(every, ground(paths(()), rooms=FILES))) == 1
    (found,) = findings(every, ground(paths(("data.csv",)), rooms=FILES))
    assert kinds((found,)) == [("undeclared-read", "t0", "conf.json", "")]


def test_a_program_may_read_the_files_that_it_is_made_of() -> None:
    loose = FinishedAccess(0, 0, "t0", paths_read=("tool.py",), is_function=False)
    assert findings((loose,), ground(paths(("data.csv",)), rooms=FILES)) == ()


def test_a_file_that_another_task_writes_is_found() -> None:
    every = (done(0, makes=("out/a",)), done(1, opens=("out/a",)))
    found = findings(every, ground(paths((), ("out",)), paths(), rooms=FILES))
    assert kinds(found) == [("undeclared-read", "t1", "out/a", "t0")]


def test_files_in_no_order_are_right_by_luck() -> None:
    every = (done(0, makes=("out/a",)), done(1, opens=("out/*",)))
    (found,) = findings(every, ground(paths(), paths(), rooms=frozenset()))
    assert found.kind == "hazard"
    assert found.words.endswith("this run came out right by luck")


def test_a_draft_beside_what_may_be_written_is_part_of_it() -> None:
    every = (done(0, makes=("out/.a.json.tmp", "out/a.json", "other/a.json.tmp", "b")),)
    found = findings(every, ground(paths((), ("out/a.json", "out")), rooms=FILES))
    assert [one.what for one in found] == ["b", "other/a.json.tmp"]
    found = findings(every, ground(paths((), ("out/a.json",)), rooms=FILES))
    assert [one.what for one in found] == ["b", "other/a.json.tmp"]


def test_members_are_told_once_with_their_item() -> None:
    every = tuple(done(0, f"t0[{n}]", n, writes=(f"r/{n}",)) for n in range(5))
    base = ground(state((), ()))
    asked = DetectorGround(
        base.is_ordered, base.declared, STATE, CHANNELS, lambda _, member: str(member)
    )
    (found,) = findings(every, asked)
    assert (found.count, found.fix) == (5, 'add "state:r/{{ item }}" to `writes`')
    (found,) = findings(every, base)
    assert (found.count, found.fix) == (5, 'add "state:r/*" to `writes`')


def test_a_finding_has_the_place_of_the_key_in_the_plan() -> None:
    base = ground(state((), ()))
    asked = DetectorGround(
        base.is_ordered, base.declared, STATE, where=lambda g, key: f"p.yaml:{g}{key}"
    )
    (found,) = findings((done(0, writes=("a",)),), asked)
    assert found.where == "p.yaml:0writes"


def test_members_that_touch_one_key_are_a_hazard_but_not_in_a_queue() -> None:
    every = tuple(done(0, f"t0[{n}]", n, writes=("a",)) for n in range(3))
    free = DetectorGround(order_by(((),), ()), channels=CHANNELS)
    (found,) = findings(every, free)
    assert kinds((found,)) == [("hazard", "t0[1]", "state:a", "t0[0]")]
    assert found.fix == "queue: t0", "a group cannot need itself"
    queued = DetectorGround(order_by(((),), ((0,),)), channels=CHANNELS)
    assert findings(every, queued) == ()


def test_what_a_task_reads_and_writes_itself_is_its_own_business() -> None:
    assert findings((done(0, reads=("a",), writes=("a",)),), ground(rooms=frozenset())) == ()


def test_memberwise_needs_order_the_same_members_only() -> None:
    ordered = order_by(((), ((0, True),), ((1, False),), ((0, True), (2, True))), ())
    assert ordered((0, 1), (1, 1))
    assert not ordered((0, 1), (1, 2))
    assert ordered((0, 1), (2, 7))
    assert ordered((2, 0), (1, 5))
    assert ordered((3, 1), (0, 2)), "by way of 2 it comes after all of 0"
    assert not ordered((3, 1), (2, 2))


def test_needs_of_blocks_order_the_members_of_a_block() -> None:
    ordered = order_by(((), ((0, 4),), ((1, 2),), ((2, 0),)), ())
    assert ordered((0, 7), (1, 1))
    assert not ordered((0, 7), (1, 7))
    assert ordered((2, 1), (0, 15)), "of four blocks of four each has two"
    assert not ordered((2, 1), (0, 16))
    assert ordered((0, 99), (3, 0))


def test_queues_order_their_groups() -> None:
    ordered = order_by(((), (), ()), ((0, 2),))
    assert ordered((0, 1), (2, 3))
    assert ordered((0, 1), (0, 2))
    assert not ordered((1, 0), (1, 1))
    assert not ordered((0, 0), (1, 0))


def test_only_so_many_pairs_are_looked_at() -> None:
    touches = [*touches_of(done(0, writes=("a",)), CHANNELS)]
    touches += touches_of(done(1, writes=("a",)), CHANNELS)
    judge = Judge(ground(rooms=frozenset()), touches)
    judge.pairs = PAIRS_MAX
    assert [*judge.hazards()] == []


def test_who_declares_nothing_may_do_anything() -> None:
    touch = ObservedTouch(0, 0, "t", "state", "a", True)
    assert is_allowed(DeclaredAccess(), touch)
    assert is_allowed(state((), ("a",)), touch)
    assert not is_allowed(state((), ()), touch)
    assert said_of(paths((), ()), ObservedTouch(0, 0, "t", "path", "a", True)) is None


def test_an_undeclared_read_is_not_told_again_as_a_hazard() -> None:
    every = (done(0, writes=("a",)), done(1, writes=("a",)), done(2, reads=("a",)))
    said = (state((), ("a",)), state((), ("a",)), state((), ()))
    assert [one.kind for one in findings(every, ground(*said))] == ["undeclared-read"]


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
    asked = DetectorGround(
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
    ask = DetectorGround(asked.is_ordered, channels=CHANNELS)
    assert declarations(every, ask)[1].reads == ("out/*", "state:records/*")
    assert merge.writes == ("effect:mail",)
