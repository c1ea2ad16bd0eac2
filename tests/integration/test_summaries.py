"""`headway.plan`, what it gives performed, and `headway.summarize`, over real sockets."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

import headway
from headway.api.plan_files import PlanResults
from headway.api.summaries import Summary, SummaryPart, given, named_results
from headway.errors import (
    BadValueError,
    ContextTooSmallError,
    TasksFailedError,
    UsageError,
)
from headway.sim.account import Terms
from headway.sim.models import SimulatedModels, parse_script
from headway.sim.provider import Latency, ProviderSpec
from headway.sim.server import ServeOptions, serving, truth_of

PLAN = "headway: 1\\nname: n\\ntasks:\\n  t: {each: [a, b], prompt: 'Greet {{ item }}'}\\n"
PLAN = PLAN.replace("\\n", "\n")
SCRIPT = parse_script(
    {
        "rules": [
            {"contains": "Write the plan.", "answer": f"```yaml\n{PLAN}```"},
            {"contains": "Greet", "regex": "Greet (?P<who>.*)", "answer": "hello {group.who}"},
            {"contains": "fact-", "find": "fact-[0-9]+", "answer": "{found}"},
            {"answer": "nothing"},
        ]
    }
)
MODEL = "openai/script"


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    spec = ProviderSpec("t", Terms(), Latency(0.005, 0.0001))
    with serving(spec, ServeOptions(models=SimulatedModels(script=SCRIPT))) as found:
        yield found


@pytest.fixture(autouse=True)
def _here(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name, value in {
        "OPENAI_BASE_URL": f"{url}/v1", "OPENAI_API_KEY": tmp_path.name,
        "HEADWAY_STATE_DIR": str(tmp_path / "state"), "XDG_CONFIG_HOME": str(tmp_path / "config"),
        "HEADWAY_RUNTIME_DIR": str(tmp_path / "run"), "HEADWAY_IDLE_S": "0.5",
    }.items():  # fmt: skip
        monkeypatch.setenv(name, value)


def leaves(part: SummaryPart) -> list[SummaryPart]:
    return [one for inner in part.below for one in leaves(inner)] if part.below else [part]


def test_a_goal_becomes_a_plan_and_the_plan_results() -> None:
    draft = headway.plan("Greet a and b", model=MODEL)
    done = draft.run(budget="1M")
    assert done.results == {"t": ["hello a", "hello b"]}
    assert (done.calls, done.failed) == (2, {})
    assert repr(done) == f"<PlanResults of {done.run}: t>"
    summary = headway.summarize(done, model=MODEL)
    assert summary.trace.results == ("t[1]", "t[2]")


def test_the_doors_for_event_loops_do_the_same() -> None:
    async def main() -> tuple[PlanResults, Summary]:
        draft = await headway.plan_async("Greet a and b", model=MODEL)
        done = await draft.run_async(budget="1M")
        with pytest.raises(UsageError, match="event loop"):
            headway.summarize(["a"], model=MODEL)
        return done, await headway.summarize_async(["fact-1"], model=MODEL)

    done, summary = asyncio.run(main())
    assert done.results["t"] == ["hello a", "hello b"]
    assert str(summary) == "fact-1"


def test_a_task_that_fails_is_told_with_what_there_is(monkeypatch: pytest.MonkeyPatch) -> None:
    draft = headway.plan("Greet a and b", model=MODEL)
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:1/v1")
    text = draft.text.replace("headway: 1\n", "headway: 1\nretries: 0\n")
    from headway.planner.planning import Draft
    from headway.plans.load import plan_from

    with pytest.raises(TasksFailedError, match="2 tasks failed") as caught:
        Draft(text, plan_from(text, Path())).run(budget="1M")
    assert caught.value.results == {"t": [None, None]}
    assert "connection" in (caught.value.detail or "")


def test_a_summary_covers_every_result_once_and_in_order_in_calls_that_fit(url: str) -> None:
    results = [f"fact-{n:03} " + "and so on " * 60 for n in range(50)]
    summary = headway.summarize(results, model=MODEL, context=2000, max_tokens=300)
    assert summary.text == ", ".join(f"fact-{n:03}" for n in range(50))
    assert summary.calls > 10
    assert summary.trace.results == tuple(str(n) for n in range(1, 51))
    assert [part.text for part in leaves(summary.trace)] == results
    assert summary.tokens > 0
    import os

    from headway.base.folders import folders
    from headway.journal.folder import find_run

    assert find_run(folders(os.environ).state, summary.run).id == summary.run
    assert truth_of(url) is not None


def test_results_are_whatever_there_is() -> None:
    plan = headway.Plan("p")
    plan.task("many", str.upper, each=["a", "b"])
    assert named_results(plan.run()) == [("many[1]", "A"), ("many[2]", "B")]
    assert named_results({"a": "x", "b": [1, None], "c": {"d": 2}}) == [
        ("a", "x"), ("b[1]", "1"), ("b[2]", "(no result)"), ("c", '{"d": 2}'),
    ]  # fmt: skip
    assert named_results("text") == [("1", "text")]
    assert named_results(7) == [("1", "7")]
    circle: list[object] = []
    circle.append(circle)
    assert named_results([circle, {(1, 2): 3}]) == [("1", "[[...]]"), ("2", "{(1, 2): 3}")]
    assert named_results({"\ud800": "x"}) == [("?", "x")]
    assert named_results(b"\xff") == [("1", "\N{REPLACEMENT CHARACTER}")]
    assert named_results(n for n in ("x", ValueError("no"))) == [
        ("1", "x"), ("2", "(failed: ValueError: no)"),
    ]  # fmt: skip


def test_what_cannot_be_summarised_is_refused_before_anything_is_asked() -> None:
    with pytest.raises(BadValueError, match="no results"):
        headway.summarize([], model=MODEL)
    with pytest.raises(UsageError, match="no model"):
        headway.summarize(["x"])
    with pytest.raises(BadValueError, match="`contxt`"):
        headway.summarize(["x"], model=MODEL, contxt=1)  # type: ignore[call-arg]
    with pytest.raises(ContextTooSmallError):
        headway.summarize(["x"], model=MODEL, context=50)
    with pytest.raises(UsageError, match="was given by a Python program"):
        given("x")
