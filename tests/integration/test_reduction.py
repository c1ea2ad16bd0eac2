"""Reductions over real sockets: sums that must be right, whatever the context and whoever dies."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from headway.plans.fan_in import CALL_TOKENS, tokens_at_most
from tests.integration.adding_up import Scene, scene, worth

LIMITS = {2_000: 200, 8_000: 700}


@pytest.fixture
def here(tmp_path: Path) -> Iterator[Scene]:
    with scene(tmp_path) as found:
        yield found


def items(count: int, seed: int = 1) -> list[tuple[int, int]]:
    random = Random(seed)
    return [(number, random.choice((2, 20, 120, 300))) for number in range(count)]


def keys(context: int) -> str:
    return f"context: {context}, max_tokens: {LIMITS[context]}"


def must_fit(here: Scene, context: int) -> None:
    """No call of a reduction was above its context: by the provider, and by our own count."""
    reduced = [text for text in here.model.prompts if text.startswith("Add up")]
    assert reduced
    for text in reduced:
        assert tokens_at_most(text) + CALL_TOKENS + LIMITS[context] <= context
    probes = {visit["body"] for visit in here.visits() if visit["output_tokens"] > LIMITS[context]}
    for visit in here.visits():
        if visit["body"] not in probes and visit["how"] == "whole":
            assert visit["input_tokens"] + LIMITS[context] <= context


@pytest.mark.parametrize(("count", "context"), [(22, 2_000), (100, 8_000)])
def test_a_sum_is_right_within_any_context_and_nothing_is_asked_twice(
    here: Scene, count: int, context: int
) -> None:
    here.plan(items(count), keys(context))
    said = here("run", "plan.yaml")
    assert said.code == 0, said.err
    assert said.out == f"total={sum(map(worth, range(count)))}\n"
    must_fit(here, context)
    bodies = [visit["body"] for visit in here.visits()]
    assert len(bodies) == len(set(bodies))
    assert all(visit["how"] == "whole" for visit in here.visits())


def test_killed_at_random_it_goes_on_and_pays_for_no_call_twice(here: Scene) -> None:
    random = Random(1)
    # One result is larger than a call: its task has a tree of its own.
    here.plan([*items(24), (24, 9_000)], keys(2_000))
    command = ("run", "plan.yaml")
    durable: set[bytes] = set()
    for _ in range(4):
        sent = len(here.model.prompts)
        here.killed_at(random.randrange(3, 16), *command)
        assert not durable & here.sent(sent)
        command = ("resume", "last") if here.stranger.runs() else command
        durable |= here.durable()
    sent = len(here.model.prompts)
    said = here(*command)
    assert said.code == 0, said.err
    assert said.out == f"total={sum(map(worth, range(25)))}\n"
    assert not durable & here.sent(sent)
    assert not here.performed_twice()
    must_fit(here, 2_000)
    sent = len(here.model.prompts)
    again = here("resume", "last")
    assert (again.code, again.out) == (0, said.out)
    assert len(here.model.prompts) == sent


def test_one_changed_result_runs_one_path_again(here: Scene) -> None:
    every = [(number, 300) for number in range(30)]
    here.plan(every, keys(2_000))
    assert here("run", "plan.yaml").code == 0
    before = len(here.model.prompts)
    levels = {name.partition("[")[0] for name in here.rows() if "/" in name}
    every[17] = (31, 300)
    here.plan(every, keys(2_000))
    said = here("resume", "last", "--changed")
    assert said.code == 0, said.err
    # The result itself, and the two that name it.
    assert "38 of 41 results still hold; 3 do not" in said.err
    assert said.out == f"total={sum(map(worth, range(30))) - worth(17) + worth(31)}\n"
    # The result, one call on each level, perhaps one within a task, and the last.
    assert 2 + len(levels) <= len(here.model.prompts) - before <= 3 + 2 * len(levels)
    probes = [text for text in here.model.prompts[before:] if text.startswith("Look")]
    assert probes == ["Look at i31, 300 words"]


def test_parts_come_together_before_the_last_result_is_there(tmp_path: Path) -> None:
    with scene(tmp_path, first_byte_s=0.05) as here:
        here.plan([(number, 300) for number in range(24)], keys(2_000))
        assert here("run", "plan.yaml", "-j", "4").code == 0
        assert min(start for start, _ in here.spans("verdict/1")) < max(
            end for _, end in here.spans("probe")
        )


def test_results_that_are_found_at_run_time_come_together_in_levels(here: Scene) -> None:
    listed = "\\n".join(f"i{number}, 300 words" for number in range(40))
    here.stranger.write(
        "plan.yaml",
        f"headway: 1\nmodel: anthropic/claude-add\ntasks:\n  list: {{run: 'printf \"{listed}\"'}}\n"
        "  probe: {each: list, prompt: 'Look at {{ item }}'}\n"
        f"  verdict: {{reduce: probe, prompt: Add up all totals., {keys(2_000)}}}\n",
    )
    said = here("run", "plan.yaml")
    assert said.code == 0, said.err
    assert said.out == f"total={sum(map(worth, range(40)))}\n"
    must_fit(here, 2_000)
    told = here.stranger.status()
    assert told["reduces"]["verdict/1"] == {"done": 10, "total": 10}
    assert told["tasks"]["done"] == told["tasks"]["total"]


QUORUM = """
headway: 1
model: anthropic/claude-add
tasks:
  probe: {{each: [{items}], run: 'test "$item" -lt 20 && echo "total=$item"'}}
  verdict: {{reduce: probe, prompt: Add up all totals., context: 2k, max_tokens: 200, quorum: {of}}}
  voted: {{reduce: probe, python: 'headway.reducers:vote', quorum: {of}}}
  listed: {{reduce: probe, run: 'grep missing; true', quorum: {of}}}
"""


def test_a_quorum_does_without_those_that_failed_and_says_who_they_are(here: Scene) -> None:
    text = QUORUM.format(items=", ".join(map(str, range(12, 22))), of="80%")
    here.stranger.write("plan.yaml", text)
    said = here("run", "plan.yaml")
    assert said.code == 1
    assert "verdict: Missing (2 of 10 results): probe[20], probe[21]" in said.err
    gave = here.stranger.results()
    assert gave["verdict"] == (
        f"total={sum(range(12, 20))} with some missing\n\n"
        "Missing (2 of 10 results): probe[20], probe[21]"
    )
    assert json.loads(gave["voted"])["missing"] == ["probe[20]", "probe[21]"]
    assert json.loads(gave["listed"].splitlines()[0]) == {"task": "probe[20]", "missing": True}
    before = len(here.model.prompts)
    here.stranger.write("plan.yaml", text.replace("-lt 20", "-lt 30"))
    said = here("resume", "last", "--changed")
    assert said.code == 0, said.err
    assert here.stranger.results()["verdict"] == f"total={sum(range(12, 22))}"
    assert len(here.model.prompts) == before + 1


STATE = """
headway: 1
model: anthropic/claude-add
state: {seen: append}
tasks:
  probe: {each: [ITEMS], prompt: "Look at {{ item }}", output: "state:seen"}
  verdict: {reduce: probe, prompt: Add up all totals., LIMITS, output: "state:v"}
  again: {reduce: probe, prompt: "Add up all, as {{ state.v }}", LIMITS}
"""


def test_a_reduction_beside_shared_state_has_levels_unless_it_reads_it(here: Scene) -> None:
    listed = ", ".join(f'"i{number}, 200 words"' for number in range(10))
    text = STATE.replace("ITEMS", listed).replace("LIMITS", keys(2_000))
    here.stranger.write("plan.yaml", text)
    said = here("run", "plan.yaml")
    assert said.code == 0, said.err
    gave = here.stranger.results()
    assert gave["verdict"] == gave["again"] == f"total={sum(map(worth, range(10)))}"
    assert {name.partition("[")[0] for name in here.rows() if "/" in name} == {"verdict/1"}
    before = len(here.model.prompts)
    assert here("resume", "last").code == 0
    assert len(here.model.prompts) == before


def test_inner_calls_count_towards_the_budget_of_their_task(here: Scene) -> None:
    more = keys(2_000) + ", budget: 6k"
    here.plan([(number, 300) for number in range(24)], more)
    said = here("run", "plan.yaml")
    assert said.code == 4
    assert "it is 6,000 tokens for verdict (" in said.err
    rows = here.rows()
    assert rows["probe[i23, 300 words]"] == "finished"
    assert here("resume", "last", "--budget", "5M").code == 4, "the task's own budget stands"


def test_below_the_quorum_nothing_is_paid_and_the_missing_are_named(here: Scene) -> None:
    items_ = ", ".join(map(str, range(12, 22)))
    here.stranger.write("plan.yaml", QUORUM.format(items=items_, of=9))
    assert here("run", "plan.yaml").code == 1
    assert not here.model.prompts
    failed = {one["task"]: one["reason"] for one in here.stranger.status()["failed"]}
    for name in ("verdict", "voted", "listed"):
        assert "8 of 10 results are there, and its quorum is 9: probe[20]" in failed[name]
