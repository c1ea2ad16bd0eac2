"""Real plans as outlines: prompts as they will be, results of others, groups, reductions."""

from __future__ import annotations

from pathlib import Path

import pytest

from headway.pacing.estimate import Price
from headway.plans.expand import ExpandedPlan
from headway.plans.graph import Need
from headway.plans.load import plan_from
from headway.report.outline import (
    UNKNOWN_MEMBERS,
    Outline,
    OutlineFacts,
    OutlinePart,
    needs_of,
    outline_of,
)
from tests.unit.reduced import PLAN, Model, play

PRICE = Price(1, 2)
NOTHING = OutlineFacts(lambda _: PRICE)


def expanded(folder: Path, tasks: str, more: str = "") -> ExpandedPlan:
    return plan_from(f"headway: 1\nmodel: openai/m\n{more}tasks:\n{tasks}", folder).expanded


def outline(folder: Path, tasks: str, facts: OutlineFacts = NOTHING, more: str = "") -> Outline:
    return outline_of(expanded(folder, tasks, more), facts)[0]


def named(found: Outline) -> dict[str, OutlinePart]:
    return {part.name: part for part in found.parts}


def test_prompts_are_as_long_as_they_will_be(tmp_path: Path) -> None:
    (tmp_path / "ask-a.md").write_text("In a file: {{ item }}, {{ vars.tone }}")
    (tmp_path / "ask-bb.md").write_text("한국어")
    found = outline(
        tmp_path,
        "  ask:\n    each: [a, bb]\n    prompt_file: 'ask-{{ item }}.md'\n    max_tokens: 99\n"
        "    vars: {tone: kindly}\n"
        "  cross:\n    matrix: {x: [1, 22], y: [p, qqq]}\n    model: openai/other\n"
        "    prompt: '{{ matrix.x }}{{ matrix.y }}'\n",
    )
    ask, cross = found.parts
    assert list(ask.sizes_bytes) == [len("In a file: a, kindly"), len("한국어".encode())]
    assert (ask.count, ask.model, ask.max_tokens, ask.price) == (2, "openai/m", 99.0, PRICE)
    assert cross.sizes_bytes == (2.0, 4.0, 3.0, 5.0)
    assert (cross.model, cross.max_tokens, cross.calls) == ("openai/other", 4096.0, 1.0)
    assert found.tasks == 6


def test_results_of_others_are_no_part_of_a_prompt_and_are_given(tmp_path: Path) -> None:
    found = named(outline(
        tmp_path,
        "  first:\n    prompt: Begin.\n"
        "  many:\n    each: [a, b]\n    needs: first\n"
        "    prompt: '{{ item }} {{ tasks.first.output }}'\n"
        "  then:\n    each: many\n    prompt: 'Go on: {{ tasks.many.output }}'\n"
        "  last:\n    needs: [then, first]\n    prompt: 'End.'\n",
    ))  # fmt: skip
    assert found["many"].sizes_bytes == (2.0, 2.0)
    assert found["many"].given == (0,)
    assert found["then"].given == (1,)
    assert found["then"].needs == (Need(1, block=1),)
    assert found["last"].given == ()
    assert {need.group for need in found["last"].needs} == {0, 2}
    # Its prompt is in a variable, and so is who is named there.
    through = named(outline(
        tmp_path,
        "  first:\n    prompt: Begin.\n"
        "  then:\n    needs: first\n    vars: {before: '{{ tasks.first.output }}'}\n"
        "    prompt: 'Go on: {{ vars.before }}'\n",
    ))  # fmt: skip
    assert through["then"].given == (0,)
    assert list(through["then"].sizes_bytes) == [len("Go on: ")]


def test_commands_take_what_they_took_and_ask_as_often_as_they_did(tmp_path: Path) -> None:
    tasks = "  build:\n    run: make\n  test:\n    needs: build\n    run: make test\n"
    plain = named(outline(tmp_path, tasks))
    assert not plain["build"].asks
    assert plain["build"].price is None
    facts = OutlineFacts(lambda _: PRICE, {"build": [3.0, 4.0]}, {}, {"test": 2.5})
    known = named(outline(tmp_path, tasks, facts))
    assert known["build"].seconds == (3.0, 4.0)
    test = known["test"]
    assert (test.model, test.calls, test.price) == ("openai/m", 2.5, PRICE)
    assert known["test"].asks


def test_a_group_that_is_found_at_run_time_is_taken_to_be_small_and_that_is_said(
    tmp_path: Path,
) -> None:
    tasks = (
        "  list:\n    prompt: 'Name some.'\n"
        "  each-one:\n    each: list\n    prompt: 'About {{ item }}'\n"
        "  again:\n    each: each-one\n    prompt: 'More: {{ tasks.each-one.output }}'\n"
    )
    found, assumed = outline_of(expanded(tmp_path, tasks), NOTHING)
    parts = named(found)
    assert parts["each-one"].count == parts["again"].count == UNKNOWN_MEMBERS
    assert list(parts["each-one"].sizes_bytes) == [len("About {{ item }}")]
    # Once: those who follow have its members.
    assert assumed == (
        f"`each-one` is found at run time: it is taken to have {UNKNOWN_MEMBERS} tasks",
    )


def test_answers_that_were_read_when_sizes_were_learned_are_told(tmp_path: Path) -> None:
    tasks = (
        "  ask:\n    each: [a, b, c]\n    prompt: '{{ item }}'\n"
        "  pair:\n    each: ask\n    prompt: 'Of {{ tasks.ask.output }}'\n"
        "  all:\n    needs: ask\n    prompt: 'Of {{ tasks.ask.output }}'\n"
    )
    answers = {"ask": 100.0, "pair": 50.0, "all": 10.0}
    known = named(
        outline(tmp_path, tasks, OutlineFacts(lambda _: None, answers=answers, counts={"ask": 7}))
    )
    assert known["ask"].given_before == 0.0
    assert known["pair"].given_before == 100.0
    assert known["all"].given_before == 700.0
    # Nothing was learned of it: nothing was in it.
    fresh = named(outline(tmp_path, tasks, OutlineFacts(lambda _: None, answers={"ask": 100.0})))
    assert fresh["all"].given_before == 0.0


@pytest.mark.parametrize(("count", "words"), [(5, 40), (16, 150), (100, 150)])
def test_inner_calls_of_a_reduction_are_as_many_as_the_engine_makes(
    tmp_path: Path, count: int, words: int
) -> None:
    more = "    context: 2000\n    max_tokens: 200"
    made = len(play(tmp_path, ["word " * words] * count, more, Model(words)).asked)
    items = ", ".join(f"i{number}" for number in range(count))
    text = PLAN.format(items=items, prompt="Sum up.", more=more)
    facts = OutlineFacts(lambda _: None, answers={"probe": words * 1.1})
    parts = outline_of(plan_from(text, tmp_path).expanded, facts)[0].parts
    foreseen = sum(part.count for part in parts if part.name != "probe")
    assert abs(foreseen - made) <= max(2, 0.3 * made), (foreseen, made)


def test_levels_of_a_reduction_stand_between_it_and_what_it_reduces(tmp_path: Path) -> None:
    items = ", ".join(f"i{number}" for number in range(40))
    text = PLAN.format(items=items, prompt="Sum up.", more="    context: 2000\n    max_tokens: 200")
    facts = OutlineFacts(lambda _: PRICE, answers={"probe": 190.0})
    found, _ = outline_of(plan_from(text, tmp_path).expanded, facts)
    names = [part.name for part in found.parts]
    assert names[0] == "probe"
    assert names[-1] == "verdict"
    assert names[1:-1] == [f"verdict/{level}" for level in range(1, len(names) - 1)]
    parts = named(found)
    first, last = parts["verdict/1"], parts["verdict"]
    assert first.needs == (Need(0, block=-(-40 // first.count)),)
    assert (first.given, first.max_tokens, first.price) == ((0,), 200.0, PRICE)
    assert last.given == (len(names) - 2,)
    assert [need.group for need in last.needs] == [len(names) - 2]
    # Every result is read by exactly one of the first level.
    needs = needs_of(found)[40 : 40 + first.count]
    assert sorted(one for some in needs for one in some) == list(range(40))


def test_a_reduction_of_what_is_found_at_run_time_is_foreseen_too(tmp_path: Path) -> None:
    tasks = (
        "  list:\n    prompt: 'Name some.'\n"
        "  ask:\n    each: list\n    prompt: '{{ item }}'\n"
        "  sum:\n    reduce: ask\n    context: 2000\n    max_tokens: 200\n    prompt: 'Sum up.'\n"
    )
    found = outline(tmp_path, tasks, OutlineFacts(lambda _: None, answers={"ask": 400.0}))
    inner = [part for part in found.parts if part.name.startswith("sum/")]
    assert inner
    assert inner[0].count < UNKNOWN_MEMBERS
