"""Values that were changed in place, and tasks that do not do the same twice."""

import pytest
from msgspec.structs import replace

from headway.report.findings import FinishedAccess, Handed, across, aliased, merged, unsteady
from headway.state.shared import Access, Put, StateLook


def tried(prompts: bytes = b"", calls: int = 0, *puts: Put, seen: bytes = b"1") -> FinishedAccess:
    access = Access((StateLook("a", seen),), puts, (), prompts)
    return FinishedAccess(0, 0, "ask", access, key=b"k", inputs=b"i", calls=calls)


def test_what_was_changed_after_it_was_read_is_lost() -> None:
    (found,) = aliased("fix[7]", "7", [Handed("r/7", b"[1]", b"[1,2]", False)])
    assert (found.kind, found.task, found.what) == ("aliasing", "fix[7]", "state:r/{{ item }}")
    assert "what it had read from `r/7`" in found.words


def test_what_was_changed_after_it_was_put_is_lost_although_it_is_the_result() -> None:
    changed = [Handed("r", b"[1]", b"[1,2]", True)]
    (found,) = aliased("fix", "", changed, (b"[1]",), (b"[1,2]",))
    assert "what it had put under `r`" in found.words


def test_what_was_not_changed_or_put_or_returned_is_not_lost() -> None:
    changed = [Handed("r", b"[1]", b"[1,2]", False)]
    assert aliased("fix", "", [Handed("r", b"[1]", b"[1]", False)]) == ()
    assert aliased("fix", "", changed, (b'{"all":[1,2]}',)) == ()
    assert aliased("fix", "", changed, (), (b"[1,2]",)) == ()


def test_what_is_no_value_any_more_is_lost_too_and_told_once_for_a_key() -> None:
    changed = [Handed("r", b"[1]", None, False), Handed("r", b"[1]", b"[3]", False)]
    assert len(aliased("fix", "", changed, (b"null",))) == 1


def test_members_are_told_together() -> None:
    every = [
        *aliased("fix[a]", "a", [Handed("r/a", b"[]", b"[1]", False)]),
        *aliased("fix[b]", "b", [Handed("r/b", b"[]", b"[1]", False)]),
        *aliased("fix[b]", "b", [Handed("r/b", b"[]", b"[1]", False)]),
        *aliased("see", "", [Handed("r/b", b"[]", b"[1]", False)]),
    ]
    assert [(one.task, one.count) for one in merged(every)] == [("fix[a]", 2), ("see", 1)]


WROTE = tried(b"", 0, Put("b", b"1"), Put("c", b"1"))
TWICE: dict[str, tuple[FinishedAccess, FinishedAccess, str]] = {
    "another prompt": (tried(b"p", 1), tried(b"q", 1), "prompt"),
    "another prompt after other reads": (tried(b"p", 1), tried(b"q", 1, seen=b"2"), ""),
    "prompts after answers": (tried(b"p", 2), tried(b"q", 2), ""),
    "prompts after more answers": (tried(b"p", 1), tried(b"q", 2), ""),
    "what a model answered": (
        tried(b"p", 1, Put("b", b"1")), tried(b"p", 1, Put("b", b"2")), "",
    ),
    "another value": (WROTE, tried(b"", 0, Put("b", b"1"), Put("c", b"2")), "state:c"),
    "fewer values": (WROTE, tried(b"", 0, Put("c", b"1")), "state:b"),
    "the same": (WROTE, WROTE, ""),
    "the same in another order": (WROTE, tried(b"", 0, Put("c", b"1"), Put("b", b"1")), ""),
}  # fmt: skip
"""What a task did twice under the same conditions, and what is found of it."""


@pytest.mark.parametrize("name", TWICE)
def test_a_task_that_does_something_else_under_the_same_conditions_is_found(name: str) -> None:
    before, done, what = TWICE[name]
    found = unsteady([before], [done])
    assert [(one.kind, one.task, one.what) for one in found] == (
        [("nondeterminism", "ask", what)] if what else []
    )


def test_the_same_within_one_run_is_compared_too_and_told_once() -> None:
    every = [tried(b"p"), tried(b"q"), tried(b"r")]
    (found,) = unsteady([], every)
    assert found.count == 2


def test_who_asked_for_the_time_is_compared_within_its_run_only() -> None:
    before, done = tried(b"", 0, Put("b", b"1")), tried(b"", 0, Put("b", b"2"))
    assert [one.what for one in across([before], [done])] == ["state:b"]
    timed = replace(done, is_timed=True)
    assert across([before], [timed]) == ()
    assert len(across([before], [timed, replace(before, is_timed=True)])) == 1
