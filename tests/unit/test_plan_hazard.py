"""What tasks declare to read and write orders them, or has them refused with a hint that helps."""

from __future__ import annotations

import pytest

from headway.errors import Place, PlanError, PlanTooLargeError
from headway.plans.accesses import PAIRS_MAX, Touched
from headway.plans.expand import ExpandedPlan, Sources, expand
from headway.plans.hazards import examined
from headway.plans.spec import CommandSpec, PlanSpec, TaskSpec
from tests.unit.plan_texts import HEAD, apply_fixes, surveyed


def plan(tasks: str) -> ExpandedPlan:
    return surveyed(tasks).expanded


def edges(tasks: str) -> list[str]:
    """The edges that follow from reads, as `writer -> reader`."""
    groups = plan(tasks).groups
    return [
        f"{groups[edge.group].name} -> {group.name}"
        for group in groups
        for edge in group.edges
        if edge.key == "reads"
    ]


def errors(tasks: str) -> list[PlanError]:
    try:
        plan(tasks)
    except PlanError as error:
        return [error, *error.others]
    return []


def refused(tasks: str, code: str) -> PlanError:
    """The one hazard of a plan, which its hint ends."""
    found = errors(tasks)
    assert [error.code for error in found] == [code], [error.render() for error in found]
    if found[0].fixes:
        text = apply_fixes(HEAD + tasks, found[0].fixes)
        assert not errors(text.removeprefix(HEAD)), text
    assert (found[0].hint is None) == (not found[0].fixes)
    return found[0]


def test_a_reader_waits_for_the_writers_before_it() -> None:
    tasks = (
        "  a: {run: x, writes: out/a}\n  b: {run: x, writes: [out/b, other]}\n"
        "  c: {run: x, reads: out}\n  d: {run: x, reads: out/b/c}\n  e: {run: x, reads: outer}\n"
    )
    assert edges(tasks) == ["a -> c", "b -> c", "b -> d"]


def test_tasks_that_change_one_file_form_a_chain() -> None:
    tasks = "".join(f"  t{n}: {{run: x, reads: s, writes: s}}\n" for n in range(4))
    assert edges(tasks) == ["t0 -> t1", "t1 -> t2", "t2 -> t3"]


def test_a_reader_before_a_writer_would_read_what_is_stale() -> None:
    error = refused("  a: {run: x, reads: o/x}\n  b: {run: x, writes: o}\n", "HW010")
    assert error.hint is not None
    assert error.hint.startswith("add `needs: b` to `a`; or, if it is to read that version")
    assert error.message == (
        "`a` reads `o/x`, which lies within `o`, which `b` writes, but does not need `b`"
    )
    assert error.detail == "if `a` runs first, it reads the version from before the run (stale)"
    assert error.where == "plan.yaml:3:22"
    refused("  a: {run: x, reads: o}\n  b: {run: x, writes: o}\n", "HW010")
    refused("  a: {run: x, reads: o}\n  b: {run: x, writes: o/x}\n", "HW010")


def test_two_writers_without_an_order_are_refused() -> None:
    error = refused("  a: {run: x, writes: o}\n  b: {run: x, output: o/x}\n", "HW010")
    assert (
        error.message == "`a` and `b` write `o` and `o/x`, which lies within it, in no fixed order"
    )
    assert error.detail == "if `b` runs first, `a` overwrites it"
    error = refused("  a: {run: x, writes: o/x}\n  b: {run: x, writes: o}\n", "HW010")
    assert (
        error.message == "`a` and `b` write `o/x` and `o`, which lies around it, in no fixed order"
    )
    refused("  a: {run: x, writes: o}\n  c: {run: x}\n"
            "  b: {run: x, writes: o, needs: c}\n", "HW010")  # fmt: skip


def test_members_that_write_one_path_are_refused_and_a_queue_helps() -> None:
    error = refused("  a: {run: x, each: [1, 2], writes: o}\n", "HW010")
    assert error.hint == "add `queue: a`, so that they run one at a time"
    assert error.message == "`a[1]` and `a[2]` both write `o`"
    assert error.detail == "if `a[2]` runs first, `a[1]` overwrites it"
    refused("  a: {run: x, each: [1, 1], output: 'o/{{ item }}'}\n", "HW010")
    refused("  a: {run: x, each: [o, o/x], writes: '{{ item }}'}\n", "HW010")
    error = refused("  b: {run: y}\n  a: {run: x, each: b, writes: o}\n", "HW010")
    assert error.detail == "if another one runs first, one member of `a` overwrites it"
    assert not errors("  a: {run: x, each: [1, 2], writes: 'o/{{ item }}'}\n")
    assert not errors("  a: {run: x, each: [1], writes: o}\n")


def test_a_member_that_reads_what_another_one_writes_is_refused() -> None:
    tasks = "  a: {run: x, each: [1, 2], writes: 'o/{{ item }}', reads: o}\n"
    error = refused(tasks, "HW010")
    assert error.message == "`a[2]` reads `o`, which lies around `o/1`, which `a[1]` writes"
    assert error.detail is not None
    assert error.detail.startswith("if `a[2]` runs first, it reads the version from before the run")
    assert not errors(tasks.replace("reads: o", "reads: 'o/{{ item }}'"))


def test_members_of_two_groups_are_named_with_what_they_share() -> None:
    tasks = (
        "  fix: {run: x, each: [api, cli], writes: 'o/{{ item }}'}\n"
        "  test: {run: x, each: [cli, web], writes: 'o/{{ item }}'}\n"
    )
    error = refused(tasks, "HW010")
    assert error.message == "`fix[cli]` and `test[cli]` both write `o/cli` in no fixed order"
    assert error.detail == "if `test[cli]` runs first, `fix[cli]` overwrites it"
    assert error.hint == "add `needs: fix` to `test`"
    late = "  b: {run: y}\n  a: {run: x, each: b, writes: 'o/{{ item }}'}\n"
    error = refused(late + "  c: {run: x, writes: o/z}\n", "HW010")
    assert error.message.startswith("a member of `a` and `c` write `o` and `o/z`")


def test_a_follower_that_reads_everything_waits_for_all() -> None:
    tasks = (
        "  a: {run: x, each: [1, 2], writes: 'o/{{ item }}'}\n"
        "  b: {run: x, each: a, reads: o}\n  c: {run: x, each: b, reads: o}\n"
    )
    assert edges(tasks) == ["a -> b", "a -> c"]


def test_groups_of_unknown_size_are_compared_by_the_text_of_their_paths() -> None:
    late = (
        "  a: {run: x}\n  b: {run: x, each: a, writes: ['o/{{ item }}', 'o/{{ index }}.b']}\n"
        "  c: {run: x, each: b, reads: 'o/{{ item }}'}\n"
    )
    assert edges(late) == []
    assert edges(late.replace("reads: 'o/{{ item }}'", "reads: 'o/{{ item }}.c'")) == ["b -> c"]
    with_vars = late.replace("reads: 'o/{{ item }}'", "vars: {v: 1}, reads: 'o/{{ vars.v }}'")
    assert edges(with_vars) == ["b -> c"]


def test_a_queue_that_contradicts_a_need_is_refused() -> None:
    tasks = "  a: {run: x, queue: q, needs: b}\n  b: {run: x, queue: q}\n"
    error = refused(tasks, "HW004")
    assert error.message == "tasks wait for each other in a circle: a -> b -> a"


def test_a_circle_that_reads_close_is_cut_at_a_declared_need() -> None:
    tasks = (
        "  a: {run: x, writes: p, needs: c}\n  b: {run: x, reads: p, writes: q}\n"
        "  c: {run: x, reads: q}\n"
    )
    found = errors(tasks)
    assert [error.code for error in found] == ["HW001"]
    assert found[0].hint == "remove `c` from `a`"
    each = tasks.replace("needs: c", "each: c, needs: c")
    assert len(errors(each.replace("writes: p", "writes: 'p/{{ index }}'"))[0].fixes) == 2


def test_paths_that_lead_out_are_refused() -> None:
    assert refused("  a: {run: x, reads: ../o}\n", "HW011").hint == "write `o`"
    refused("  a: {run: x, writes: [b, /etc/passwd]}\n", "HW011")
    refused("  a: {run: x, output: ~/o}\n", "HW011")
    refused("  a: {run: x, each: [../o], writes: '{{ item }}'}\n", "HW011")
    refused("  a: {run: x, reads: '../{{ \"{{\" }}'}\n", "HW011")
    refused("  a: {run: x}\n  b: {run: x, each: a, output: '../{{ item }}'}\n", "HW011")


def _many(count: int, reads: str, writes: str) -> PlanSpec:
    tasks = tuple(
        TaskSpec(
            f"t{n}",
            Place(0, 0),
            CommandSpec("x"),
            reads=(reads.format(n - 1),),
            writes=(writes.format(n),),
        )
        for n in range(count)
    )
    return PlanSpec("p", tasks)


def test_overlaps_without_end_are_refused() -> None:
    with pytest.raises(PlanTooLargeError, match="overlaps"):
        examined(expand(_many(1_100, "o", "o/{}"), Sources()))
    touched = Touched()
    touched.count(PAIRS_MAX)
    with pytest.raises(PlanTooLargeError):
        touched.count(1)
