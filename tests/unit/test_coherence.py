"""Who waits for whom, who runs again, and what that may cost at most."""

from __future__ import annotations

from headway.plans.graph import Graph, Need, TaskGroup
from headway.plans.resources import ANYTHING, Touches, covers
from headway.state.coherence import (
    STANDS_MAX,
    Breach,
    Coherence,
    Early,
    Frontier,
    Hints,
    TaskPositions,
)
from headway.state.shared import Act, Change, Shared


def coherence(*groups: TaskGroup, hints: Hints | None = None) -> Coherence:
    graph = Graph(groups)
    found = Coherence(graph, Shared(), hints)
    first = 0
    for index, group in enumerate(graph.groups):
        found.expand(index, range(first, first + (group.count or 0)))
        first += group.count or 0
    return found


def touching(count: int, touches: Touches = ANYTHING) -> Coherence:
    return coherence(TaskGroup("t", count, touches=touches))


def run(found: Coherence, task: int, *, reads: str = "", writes: str = "", value: int = 0) -> None:
    """An attempt of a task, to its end."""
    snapshot = found.snapshot(task)
    assert snapshot is not None
    for key in reads.split():
        snapshot.scan(key) if "*" in key else snapshot.get(key)
    for key in writes.split():
        snapshot.put(key, value)
    found.note(task, snapshot.access())


def judged(found: Coherence, task: int) -> Change | Breach | Early | None:
    return found.judge(task, found.access_of(task))


def test_declared_writes_bind_only_those_who_read_there() -> None:
    found = coherence(
        TaskGroup("writer", touches=Touches((), ("a/x",), ())),
        TaskGroup("reader", 4, touches=ANYTHING),
    )
    verdicts = []
    for task, reads in enumerate(("a/x", "a", "a/y", "a/*"), start=1):
        run(found, task, reads=reads)
        verdicts.append(judged(found, task))
    first = Early(found.places.task(0, 0))
    assert verdicts[0] == verdicts[3] == first
    # A folder is read with all that lies in it; a key beside what is written is not touched.
    assert verdicts[1] == first
    assert found.judge(3, found.access_of(3)) == Early(found.places.task(1, 0))


def test_whoever_has_read_what_changes_is_looked_at_without_waiting_for_his_turn() -> None:
    found = touching(4)
    run(found, 3, reads="a r/*")
    found.propose(3)
    alive = found.snapshot(2)
    assert alive is not None
    alive.scan("r/*")
    run(found, 1, writes="r/1")
    found.commit(1)
    assert found.ripe == [3]
    assert found.doomed == [2]
    assert judged(found, 3) == Change("r/*", found.places.task(0, 1))


def test_whoever_comes_before_or_sees_the_same_is_left_alone() -> None:
    found = touching(3)
    before = found.snapshot(0)
    after = found.snapshot(2)
    assert before is not None
    assert after is not None
    before.get("a")
    after.get("a")
    run(found, 1, writes="a")
    found.shared.commit(0, found.access_of(1).writes)  # The same content, from the beginning.
    late = found.snapshot(2)
    assert late is not None
    late.get("a")
    found.commit(1)
    assert found.doomed == []


def test_a_stale_task_waits_the_second_time_for_those_seen_to_write_there() -> None:
    found = touching(3)
    for task in range(3):
        run(found, task, reads="n", writes="n", value=task)
    found.propose(1)
    found.propose(2)
    found.commit(0)
    writer = found.places.task(0, 0)
    for task in (1, 2):
        assert judged(found, task) == Change("n", writer)
        found.stale(task, "n", writer)
    assert found.is_open(1)
    assert not found.is_open(2)
    run(found, 1, reads="n", writes="n", value=9)
    found.commit(1)
    assert found.opened == [2]
    assert found.is_open(2)
    assert found.learned == {(0, 0): {"n": None}}


def test_the_third_time_it_waits_for_all_who_may_and_then_for_everybody() -> None:
    found = coherence(
        TaskGroup("other", touches=Touches((), ("z",), ())),
        TaskGroup("writer", touches=Touches((), ("n",), ())),
        TaskGroup("reader", touches=Touches(("n",), (), ())),
    )
    run(found, 2, reads="n")
    for _ in range(2):
        found.stale(2, "n", -1)
    assert not found.is_open(2)
    run(found, 1, writes="n")
    found.commit(1)
    assert found.opened == [2]  # Whoever writes elsewhere is not waited for,
    found.opened.clear()
    found.stale(2, "n", -1)
    assert not found.is_open(2)  # until nothing else helps.
    found.end(0)
    assert found.opened == [2]


def test_what_earlier_runs_have_shown_keeps_a_task_from_starting_too_early() -> None:
    found = coherence(
        TaskGroup("writer", 2, touches=ANYTHING), TaskGroup("reader", touches=ANYTHING),
        hints=Hints({1: ("r",)}, {0: ("r",)}),
    )  # fmt: skip
    assert not found.is_open(2)
    assert found.is_open(0)
    run(found, 0, writes="r/1")
    found.propose(0)
    found.commit(0)
    assert found.opened == []
    found.end(1)
    assert found.opened == [2]


def test_a_write_that_was_not_declared_and_comes_too_late_is_a_breach() -> None:
    found = coherence(
        TaskGroup("writer", touches=Touches((), ("a",), ())),
        TaskGroup("reader", 2, touches=ANYTHING),
    )
    run(found, 1, reads="b r/*")
    found.commit(1)
    reader = found.places.task(1, 0)
    run(found, 0, writes="b")
    assert judged(found, 0) == Breach("state:b", reader)
    run(found, 0, writes="r/1")
    assert judged(found, 0) == Breach("state:r/1", reader)
    run(found, 0, writes="a c")
    assert judged(found, 0) is None
    run(found, 2, writes="b")
    assert judged(found, 2) is None


def test_a_result_of_an_earlier_process_is_judged_when_all_before_it_have_ended() -> None:
    found = touching(2)
    run(found, 0, writes="a", value=1)
    access = found.access_of(0)
    found.shared.commit(0, access.writes)
    run(found, 1, reads="a")
    found.note(1, found.access_of(1), is_patient=True)
    found.shared.commit(found.places.group(0), ())
    other = touching(2)
    other.note(1, found.access_of(1), is_patient=True)
    assert judged(other, 1) == Early(other.places.task(0, 0))  # Not stale yet.
    other.propose(1)
    run(other, 0, writes="a", value=1)
    other.commit(0)
    assert other.ripe == [1]
    assert judged(other, 1) is None


def test_an_effect_that_was_not_declared_and_comes_too_late_is_a_breach() -> None:
    found = coherence(
        TaskGroup("first", 2, touches=Touches((), (), ())), TaskGroup("last", touches=ANYTHING)
    )
    for task in (2, 0):
        snapshot = found.snapshot(task)
        assert snapshot is not None
        snapshot.act(Act("mail", b"1"))
        snapshot.act(Act("post", b"1", is_now=True))
        found.note(task, snapshot.access())
        if task == 2:
            found.commit(task)
    assert judged(found, 0) == Breach("effect:mail", found.places.task(1, 0))
    other = found.snapshot(1)
    assert other is not None
    other.act(Act("fax", b"1"))
    found.note(1, other.access())
    assert judged(found, 1) is None


def test_a_group_of_unknown_size_holds_its_place_until_it_is_known_or_lost() -> None:
    graph = Graph(
        (
            TaskGroup("source"),
            TaskGroup("many", None, (Need(0),), touches=ANYTHING),
            TaskGroup("lost", None, (Need(0),), touches=ANYTHING),
            TaskGroup("reader", touches=ANYTHING),
        )
    )
    found = Coherence(graph, Shared())
    found.expand(0, range(1))
    found.expand(3, range(1, 2))
    found.expand(3, range(1, 2))  # Known already.
    run(found, 1, reads="a")
    assert judged(found, 1) == Early(found.places.group(1))
    found.expand(1, range(2, 4))
    assert judged(found, 1) == Early(found.places.task(1, 0))
    found.end(2)
    found.end(3)
    assert judged(found, 1) == Early(found.places.group(2))
    found.expand(2, range(0))
    assert judged(found, 1) is None


def test_who_has_nothing_to_do_with_the_state_is_not_known_to_it() -> None:
    found = coherence(TaskGroup("plain"), TaskGroup("touches", touches=ANYTHING))
    assert not found.has(0)
    assert found.snapshot(0) is None
    assert found.is_open(0)
    found.commit(0)
    found.end(0)


def test_the_serial_run_keeps_declared_order_but_never_runs_before_a_need() -> None:
    places = TaskPositions(
        Graph(
            (
                TaskGroup("a", needs=(Need(2),), queue="q"),
                TaskGroup("b", queue="q"),
                TaskGroup("c", 5),
                TaskGroup("d"),
            )
        )
    )
    order = sorted(range(4), key=places.group)
    assert order == [2, 0, 1, 3]
    assert places.who(places.task(2, 4)) == (2, 4)
    assert places.who(places.group(2)) == (2, -1)


def test_a_prefix_covers_itself_and_what_lies_within() -> None:
    assert covers(None, "x")
    assert covers(("a",), "a")
    assert covers(("a",), "a/b")
    assert covers(("",), "z")
    assert not covers(("a",), "ab")
    assert not covers((), "a")
    member = Touches(by_member=lambda index: Touches((str(index),)))
    assert member.of(3).reads == ("3",)


def test_whoever_ends_frees_those_who_wait_for_it_although_its_place_was_forgotten() -> None:
    frontier = Frontier()
    many = STANDS_MAX + 10
    for position in range(many):
        frontier.join(position, (f"records/{position}",))
    assert not frontier.wait(7, many, ("records/3",))
    assert not frontier.wait(8, many + 1, ("records",))
    freed = [frontier.end(position, (f"records/{position}",)) for position in range(many)]
    assert freed[3] == [7]
    assert freed[-1] == [8]
    assert sum(map(len, freed)) == 2
