"""Reductions: rooms and levels, texts and bodies, and how a task goes on where another was cut."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
from msgspec.structs import replace

from headway.agents.prompt import PromptCall
from headway.base.codec import encode
from headway.base.values import Fault
from headway.engine.reduction import (
    Cover,
    ReductionNode,
    ReductionText,
    batches,
    decoded,
    last_text,
    listed,
    pieces_of,
    split,
)
from headway.errors import ContextTooSmallError, JournalError
from headway.plans.expand import ExpandedPlan, graph_of
from headway.plans.fan_in import (
    CallOverhead,
    Fit,
    fit_of,
    is_tree,
    shapes_of,
    static_fit,
    tokens_at_most,
    with_levels,
)
from headway.plans.graph import Need
from headway.plans.load import plan_from
from headway.run.filling import Filling
from headway.run.reduce import asked_of
from headway.run.tasks import TaskWork
from headway.work import Attempt, AttemptError, Needed, OverBudgetError, Result, WindowEmptyError
from tests.unit.reduced import Kept, Model, attempt_of, play, works_of

FIT = Fit(2_000, 200, 400, 4)


def expanded_of(tasks: str, folder: Path) -> ExpandedPlan:
    return plan_from(f"headway: 1\nmodel: openai/echo\ntasks:\n{tasks}", folder).expanded


def items_of(*words: int) -> list[ReductionText]:
    return [ReductionText(Cover(n, n), "word " * size, f"p[{n}]") for n, size in enumerate(words)]


def test_the_answer_is_what_the_plan_says_or_a_part_of_the_context() -> None:
    assert fit_of(8_000, CallOverhead(100, 500)).answer == 500
    assert fit_of(8_000, CallOverhead(100)) == Fit(8_000, 1_000, 6_612, 4)
    assert fit_of(1_000_000, CallOverhead(100)).answer == 4_096
    # A refused answer stays before the next one.
    assert (
        fit_of(8_000, CallOverhead(100, 500, repairs=1)).room
        < fit_of(8_000, CallOverhead(100, 500)).room
    )


def test_inner_levels_stand_behind_everything_and_need_blocks(tmp_path: Path) -> None:
    plan = expanded_of(
        "  style: {run: echo short}\n"
        "  probe: {each: [a, b, c, d, e, f], prompt: x}\n"
        "  verdict: {reduce: probe, needs: style, context: 2k, max_tokens: 200, quorum: 80%,"
        " prompt: 'As {{ tasks.style.output }}'}\n"
        "  last: {needs: verdict, run: echo done}\n",
        tmp_path,
    )
    shapes = shapes_of(plan)
    graph = with_levels(graph_of(plan), plan, shapes)
    assert [(group.name, group.count) for group in graph.groups[4:]] == [("verdict/1", 2)]
    assert graph.groups[4].needs == (Need(1, block=4, is_lenient=True), Need(0))
    assert graph.groups[2].needs == (Need(4), Need(0))
    assert graph.groups[4].priority > graph.groups[1].priority


@pytest.mark.parametrize(
    ("task", "is_one"),
    [
        ("context: 8k, prompt: merge", True),
        ("context: 8k, prompt: 'merge {{ vars.x }}', vars: {x: 1}", True),
        ("context: 8k, needs: n, prompt: '{{ vars.x }}', vars: {x: '{{ tasks.n.output }}'}", True),
        ("prompt: merge", False),
        ("context: 8k, prompt: merge, agent: claude", False),
        ("context: 8k, prompt: 'merge {{ tasks.probe.output }}'", False),
        ("context: 8k, prompt: 'merge {{ vars.x }}', vars: {x: '{{ tasks.probe.output }}'}", False),
        ("context: 8k, run: cat", False),
    ],
)
def test_what_can_be_a_tree(task: str, is_one: bool, tmp_path: Path) -> None:
    plan = expanded_of(
        "  n: {run: ls}\n  probe: {each: [a, b, c, d, e], prompt: x}\n"
        f"  v: {{reduce: probe, {task}}}\n",
        tmp_path,
    )
    assert is_tree(plan, plan.groups[2]) is is_one
    assert bool(shapes_of(plan)) is is_one


def test_a_context_that_is_too_small_is_refused_where_it_stands(tmp_path: Path) -> None:
    (tmp_path / "s.json").write_text("{}")
    task = "  probe: {each: [a, b], prompt: x}\n  v: {reduce: probe, prompt: merge, %s}\n"
    with pytest.raises(ContextTooSmallError) as caught:
        expanded_of(task % "context: 900, max_tokens: 400, schema: s.json", tmp_path)
    assert caught.value.where == "plan.yaml:5:46"
    assert caught.value.hint is not None
    least = int(caught.value.hint.partition("context: ")[2].partition("`")[0])
    expanded_of(task % f"context: {least}, max_tokens: 400, schema: s.json", tmp_path)


def test_items_come_together_in_aligned_halves() -> None:
    def shape(*words: int) -> list[tuple[list[int], bool]]:
        told = batches(items_of(*words), FIT, FIT.room)
        assert told is not None
        return [([item.cover.first for item in batch], is_called) for batch, is_called in told]

    assert batches(items_of(100, 100, 100), FIT, FIT.room) is None
    assert shape(90, 90, 90, 90, 90) == [([0, 1, 2, 3], True), ([4], False)]
    assert shape(200, 200, 200) == [([0], True), ([1], True), ([2], True)]
    # What is small together is passed on, whatever its neighbours are.
    assert shape(5, 5, 380, 380)[0] == ([0, 1], False)


def test_a_result_that_is_too_large_is_read_in_pieces() -> None:
    item = ReductionText(Cover(3, 3), "\n".join(f"line {n} of many" for n in range(400)), "p[x]")
    pieces = split([item], 300)
    assert "".join(piece.text for piece in pieces) == item.text
    assert [piece.cover.piece for piece in pieces] == list(range(1, len(pieces) + 1))
    assert all(piece.tokens <= 300 and piece.text.endswith(("many", "\n")) for piece in pieces)


def test_pieces_end_where_the_structure_allows() -> None:
    elements = json.dumps([{"name": f"n{n}", "list": [1, 2, 3]} for n in range(30)])
    assert all(one.rstrip(" ]").endswith(("},", "}")) for one in pieces_of(elements, 60))
    deep = json.dumps({"only": [{"name": f"n{n}"} for n in range(30)]})
    assert all(one.rstrip(" ]}").endswith((",", '"')) for one in pieces_of(deep, 60))
    quoted = json.dumps(["a, b] {c", 'quo"te, d'] * 20)
    assert all(one.rstrip(" ]").endswith(('",', '"')) for one in pieces_of(quoted, 40))
    sections = "".join(f"# part {n}\n" + "word " * 20 + "\n\n" for n in range(8))
    assert all(one.startswith("# part") for one in pieces_of(sections, 50))
    sentences = "One two three four. " * 30
    assert all(one.endswith(". ") for one in pieces_of(sentences, 20))
    assert pieces_of("[1, 2, broken " + "word " * 50, 40)[0].endswith(" ")
    assert len(pieces_of("{" * 3_000, 100)) == 30


def test_missing_results_are_named_as_far_as_there_is_room() -> None:
    labels = [f"probe[{n}]" for n in range(200)]
    text = last_text("Sum up.", [], labels, 300, 2_000)
    assert "Missing: probe[0], probe[1]" in text
    assert " more. 200 of 300 results are not there" in text
    assert tokens_at_most(text) < 250
    assert "probe[199]" in last_text("Sum up.", [], labels, 300)
    assert listed(["a" * 999], 3) == "a" * 999
    assert last_text("Sum up.", items_of(1), [], 1) == "Sum up.\n\n## p[0]\nword "


def test_a_body_is_read_as_it_was_written() -> None:
    node = ReductionNode(tuple(items_of(2, 3)), ("p[9]",), (ReductionText(Cover(0, 1), "t"),), 2)
    assert decoded(encode(node), "v/1[1]") == node


@pytest.mark.parametrize(
    "body",
    [
        b"", b"\xff", b"[]", b"null", b"{}", b'{"version": "another"}',
        encode(ReductionNode(())).replace(b'"calls":0', b'"calls":"x"'),
        encode(ReductionNode(tuple(items_of(1)))).replace(b'"p[0]"', b"7"),
        encode(ReductionNode(tuple(items_of(1)))).replace(b"[[[0,", b'[[["0",'),
        b'{"version":' + b"[" * 100_000,
    ],
)  # fmt: skip
def test_a_damaged_body_is_one_clear_error(body: bytes) -> None:
    with pytest.raises(JournalError, match=r"`v/1\[1\]` is no part of a reduction"):
        decoded(body, "v/1[1]")


MORE = "    context: 2000\n    max_tokens: 200"


def test_small_results_are_passed_on_for_free(tmp_path: Path) -> None:
    played = play(tmp_path, [f"short {n}" for n in range(20)], MORE)
    assert len(played.asked) == 1
    assert played.texts[0].count("\n\n## probe[i") == 20
    assert played.bodies
    assert "calls" not in played.result.body.decode()


def test_without_any_result_the_last_call_is_told_so() -> None:
    assert last_text("Sum up.", (), (), 0) == "Sum up.\n\nThere are no results. Say so."
    assert last_text("Sum up.", (), (), 3) == "Sum up."


def test_a_schema_and_its_repairs_have_room_in_the_last_call(tmp_path: Path) -> None:
    schema = json.dumps({"type": "object", "description": "word " * 100})
    (tmp_path / "s.json").write_text(schema)
    played = play(tmp_path, [f"word {n} " * 40 for n in range(20)], f"{MORE}\n    schema: s.json")
    *inner, last = played.asked
    assert all(call.schema is None for call in inner)
    assert last.schema is not None
    # The prompt with the schema, a refused answer, what is wrong with it, and the next answer.
    again = 200 + 300
    assert tokens_at_most(last.prompt) + tokens_at_most(schema) + again + 200 <= 2_000


@pytest.mark.parametrize("schema", ["", "    schema: s.json"])
def test_what_is_checked_before_a_run_is_what_its_calls_can_hold(
    tmp_path: Path, schema: str
) -> None:
    """Else a context is refused when everything below the reduction has been paid."""
    (tmp_path / "s.json").write_text('{"type": "object"}')
    _, works, _ = works_of(tmp_path, Model(), 5, f"{MORE}\n{schema}")
    assert isinstance(works[1], TaskWork)
    group = works[1].group
    filling = Filling(group, group.known.member(0), attempt_of(lambda _: []), "")
    expanded = works[1]._plans.expanded
    assert asked_of(filling, expanded).fit() == static_fit(expanded, group)


def test_without_a_longest_answer_the_last_call_may_use_what_is_left(tmp_path: Path) -> None:
    (call,) = play(tmp_path, ["a", "b"], "    context: 3000").asked
    assert call.max_tokens is not None
    assert 2_500 < call.max_tokens < 3_000 - tokens_at_most(call.prompt)
    (call,) = play(tmp_path, ["a", "b"], "    context: 300000").asked
    assert call.max_tokens == 4_096


def large(count: int) -> list[str]:
    return [" ".join(f"w{n}-{k}" for k in range(150)) for n in range(count)]


@pytest.mark.parametrize(
    "error",
    [
        AttemptError(Fault("server"), Result(b"", calls=1, spend_microusd=7), True),
        WindowEmptyError(1.0, "empty"),
    ],
)
def test_what_is_lost_in_parallel_is_reported_with_all_that_was_paid(
    error: AttemptError | WindowEmptyError, tmp_path: Path
) -> None:
    needed = [Needed("probe", n, f"probe[i{n}]", text.encode()) for n, text in enumerate(large(4))]
    model = Model(fails=lambda text: error if "w2-0" in text else None)
    _, works, _ = works_of(tmp_path, model, 4, MORE)
    kept = Kept()
    try:
        asyncio.run(works[1].perform(attempt_of(lambda _: needed, kept=kept)))
        raise AssertionError("it must not have a result")
    except (AttemptError, WindowEmptyError) as found:
        raised, lost = found, found.result
    assert lost is not None
    is_attempt = isinstance(error, AttemptError)
    assert lost.calls == len(model.asked) + is_attempt
    assert lost.spend_microusd == 5 * len(model.asked) + 7 * is_attempt
    assert len(kept.replies) == len(model.asked) >= 1, "the others are kept"
    assert type(raised) is type(error)
    assert not isinstance(raised, AttemptError) or raised.is_in_doubt


def test_money_that_its_calls_did_not_use_comes_back_between_attempts(tmp_path: Path) -> None:
    needed = [Needed("probe", n, f"probe[i{n}]", text.encode()) for n, text in enumerate(large(4))]
    over = OverBudgetError("no money")
    model = Model(fails=lambda text: over if len(model.asked) % 2 else None)
    _, works, _ = works_of(tmp_path, model, 4, MORE)
    kept = Kept()
    with pytest.raises(AttemptError, match="rate: it goes on in another attempt: no money"):
        asyncio.run(works[1].perform(attempt_of(lambda _: needed, kept=kept)))
    assert len(kept.replies) == 1
    # The next attempt gets nowhere: then the budget is what it says.
    with pytest.raises(OverBudgetError):
        asyncio.run(works[1].perform(attempt_of(lambda _: needed, kept=kept)))


def test_answers_that_do_not_get_shorter_are_an_error_and_not_a_loop(tmp_path: Path) -> None:
    needed = [Needed("probe", n, f"probe[i{n}]", text.encode()) for n, text in enumerate(large(4))]
    model = Model(words=5_000)
    _, works, _ = works_of(tmp_path, model, 4, MORE)
    with pytest.raises(AttemptError, match="not shorter than what they are given"):
        asyncio.run(works[1].perform(attempt_of(lambda _: needed)))
    assert len(model.asked) < 10


@pytest.mark.parametrize("count", [4, 12])
def test_a_blank_answer_of_an_inner_call_is_never_used(tmp_path: Path, count: int) -> None:
    class Blank(Model):
        async def perform(self, call: PromptCall, attempt: Attempt) -> Result:
            return replace(await super().perform(call, attempt), body=b" \n")

    with pytest.raises(AttemptError, match="gave no answer to an inner call"):
        play(tmp_path, large(count), "    context: 2000\n    max_tokens: 200", model=Blank())
