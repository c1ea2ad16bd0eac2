"""Which tasks are embarrassingly parallel, which are coupled and by what, where the boundary is."""

from __future__ import annotations

from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headway.plans.check import Boundary, Coupling, Strand, answers, boundary, breadth, check
from tests.unit.plan_texts import surveyed


def found(tasks: str, top: str = "", *unknown: str) -> Boundary:
    return boundary(surveyed(tasks, top), frozenset(unknown))


RECORDS = (
    "  parse: {prompt: 'P {{ item }}', each: [a, b, c]}\n"
    "  enrich: {prompt: 'E {{ tasks.parse.output }}', each: parse}\n"
    "  validate: {prompt: 'V {{ tasks.enrich.output }}', each: enrich}\n"
    "  summary: {prompt: S, reduce: validate, context: 8k, output: s.json}\n"
)


def test_items_that_pass_through_stages_are_strands_that_meet() -> None:
    one = found(RECORDS)
    assert one.strands == (Strand(("parse", "enrich", "validate"), 3, True),)
    assert one.inside == ((("parse", "enrich", "validate"), ("summary",)),)
    assert (one.width, one.is_exact, one.alone) == (3, True, ())
    assert one.couplings == (
        Coupling("parse", "enrich", "result", "", True),
        Coupling("enrich", "validate", "result", "", True),
        Coupling("validate", "summary", "result", "", False),
    )
    assert answers(one) == (
        "Embarrassingly parallel: `parse` -> `enrich` -> `validate` for each item (3): in order for"
        " one item, in any order between items.",
        "Coupled: `summary` needs the results of all of `validate`.",
        "Coherence boundary: `parse` -> `enrich` -> `validate` (3 at once) | `summary`. What is"
        " left of a bar is done before anything right of it starts.",
        "Largest safe width: 3 tasks at once.",
    )


def test_a_member_that_must_know_all_of_its_strand_begins_another_one() -> None:
    tasks = (
        "  a: {run: x, each: [1, 2], writes: 'o/{{ item }}'}\n"
        "  b: {run: x, each: a, reads: o}\n  c: {run: x, each: b, reads: o}\n"
    )
    assert [one.groups for one in found(tasks).strands] == [("a",), ("b", "c")]
    skipped = tasks.replace("each: a, reads: o", "each: a")
    assert [one.groups for one in found(skipped).strands] == [("a", "b"), ("c",)]


def test_what_gets_over_is_told() -> None:
    tasks = (
        "  create: {run: x, writes: out}\n"
        "  list: {run: x, reads: out}\n"
        "  check: {run: x, each: list, reads: out/x}\n"
        "  after: {run: x, needs: check}\n"
        "  old: {run: x, needs: after, writes: out}\n"
        "  use: {run: x, needs: list, vars: {v: '{{ tasks.list.output }}'}}\n"
        "  call: {python: 'm:f', needs: list}\n"
    )
    told = {(one.before, one.after): (one.by, one.what) for one in found(tasks).couplings}
    assert told == {
        ("create", "list"): ("path", "out"),
        ("list", "check"): ("items", ""),
        ("create", "check"): ("path", "out"),
        ("check", "after"): ("order", ""),
        ("after", "old"): ("order", ""),
        ("list", "use"): ("result", ""),
        ("list", "call"): ("result", ""),
    }
    words = answers(found(tasks, "", "check"))
    assert "`list` and `check` need `out` as `create` leaves it" in words[1]
    assert "`check` has a member for each result of `list`" in words[1]
    assert "`after` must come after all of `check`" in words[1]
    assert words[-1] == "Largest safe width: as many as `check` has members, as far as is declared."
    assert words[0].endswith("which share nothing that changes, as far as is declared.")


def test_keys_of_the_state_couple_too() -> None:
    tasks = (
        "  a: {run: x, reads: [], writes: 'state:k/1'}\n"
        "  b: {run: x, reads: 'state:k/*', writes: []}\n"
        "  c: {run: x, reads: 'state:*', writes: 'state:*'}\n"
    )
    one = found(tasks)
    assert [(pair.by, pair.what) for pair in one.couplings] == [
        ("key", "k"), ("key", "everything"),
    ]  # fmt: skip
    assert answers(one)[1].startswith("Coupled: `b` needs the key `k` as `a` leaves it")
    writers = (
        "  a: {run: x, reads: [], writes: 'state:n'}\n  b: {run: x, reads: [], writes: 'state:n'}\n"
    )
    assert found(writers).inside == ((("a", "b"),),)
    free = "  a: {run: x}\n  b: {run: x}\n  c: {run: x, reads: 'state:n', writes: []}\n"
    free += "  d: {prompt: x}\n"
    assert found(free, "state: {n: counter}\n").inside == ((("a", "b", "c"),),)


@pytest.mark.parametrize(
    ("keys", "is_loose"),
    [
        ("reads: [], writes: 'state:n'", True),
        ("reads: 'state:n', writes: []", True),
        ("reads: 'state:n', writes: 'state:n'", False),
        ("reads: 'state:n/{{ item }}', writes: 'state:n/{{ item }}'", True),
        ("reads: 'state:n/*', writes: 'state:n/{{ item }}'", False),
        ("reads: 'state:n/{{ item }}', writes: 'state:n'", False),
        ("writes: 'state:n'", False),
        ("reads: 'state:n'", False),
        ("reads: []", True),
        ("writes: []", True),
        ("queue: q", False),
    ],
)
def test_members_that_share_what_they_change_are_not_parallel(keys: str, is_loose: bool) -> None:
    one = found(f"  a: {{run: x, each: [p, q], {keys}}}\n", "state: {n: value}\n")
    assert bool(one.strands) is is_loose


def test_turns_are_taken_one_at_a_time() -> None:
    one = found(
        "  q: {run: x, each: [a, b], queue: d}\n  r: {run: x, queue: d}\n  s: {run: y}\n"
        "  t: {prompt: y}\n",
        "", "s",
    )  # fmt: skip
    assert answers(one) == (
        "On their own: `s` and `t` share nothing with any other task, as far as is declared.",
        "Coupled: `q` and `r` take turns in queue `d`.",
        "Coherence boundary: `q` | `r`. What is left of a bar is done before anything right of it"
        " starts.",
        "One at a time, in declared order: the members of `q`.",
        "Largest safe width: 3 tasks at once, as far as is declared.",
    )


def test_large_plans_are_told_in_few_lines() -> None:
    pairs = "".join(f"  a{n}: {{run: x}}\n  b{n}: {{run: x, needs: a{n}}}\n" for n in range(9))
    many = "".join(f"  m{n}: {{prompt: '{{{{ item }}}}', each: [p, q]}}\n" for n in range(6))
    chain = "".join(f"  c{n}: {{run: x{f', needs: c{n - 1}' if n else ''}}}\n" for n in range(9))
    told = answers(found(pairs + many + chain))
    assert len(told) <= 12
    assert "Embarrassingly parallel, too: `m4` and `m5`." in told
    assert "; 11 more such pairs." in "".join(told)
    assert "; 4 more. What" in "".join(told)
    (row,) = [line for line in answers(found(chain)) if line.startswith("Coherence")]
    assert "`c4` | (3 more) | `c8`." in row


GROUPS = st.integers(1, 7).flatmap(
    lambda count: st.tuples(
        st.lists(st.integers(0, 4), min_size=count, max_size=count),
        st.lists(st.sets(st.integers(0, 6)), min_size=count, max_size=count),
    )
)


@settings(max_examples=200)
@given(GROUPS)
def test_the_breadth_is_that_of_the_largest_set_without_an_order(
    groups: tuple[list[int], list[set[int]]],
) -> None:
    sizes, chosen = groups
    direct = [[need for need in sorted(needs) if need < one] for one, needs in enumerate(chosen)]
    before = _closure(direct)
    best = 0
    for mask in range(1 << len(sizes)):
        some = [one for one in range(len(sizes)) if mask >> one & 1]
        if not any(before[after] >> one & 1 for one, after in combinations(some, 2)):
            best = max(best, sum(sizes[one] for one in some))
    bound, is_exact = breadth(sizes, before, tuple(map(tuple, direct)))
    assert bound == best if is_exact else bound >= best


def _closure(direct: list[list[int]]) -> list[int]:
    before = [0] * len(direct)
    for one, needs in enumerate(direct):
        for need in needs:
            before[one] |= before[need] | 1 << need
    return before


def test_a_width_that_is_a_bound_is_told_as_one() -> None:
    needs = {"a": "", "b": "", "c": "[a, b]", "d": "a", "e": "d", "f": "c", "g": "[b, e]"}
    tasks = "".join(
        f"  {name}: {{prompt: x{f', needs: {some}' if some else ''}}}\n"
        for name, some in needs.items()
    )
    assert answers(found(tasks))[-1] == "Largest safe width: at most 3 tasks at once."


def test_agents_in_one_folder_are_given_no_all_clear() -> None:
    tasks = (
        "  fix: {agent: claude, workspace: off, prompt: 'Fix {{ item }}', each: [a, b]}\n"
        "  docs: {agent: claude, workspace: off, prompt: Write the docs}\n"
    )
    told = check(surveyed(tasks)).answers
    assert told[0].startswith("Not known: these 3 agents share this folder: `fix` and `docs`.")
    assert not [line for line in told if "parallel" in line or "share nothing" in line]
    told = check(surveyed(tasks.replace("workspace: off, ", ""))).answers
    assert not [line for line in told if "share this folder" in line]
