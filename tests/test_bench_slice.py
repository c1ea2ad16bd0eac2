"""A slice of the benchmarks, so that what they claim is checked whenever the code changes."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from math import inf
from pathlib import Path
from types import CodeType, FrameType

import pytest
from msgspec.structs import replace

from bench.cells import Cell, Measured, measure
from bench.pacing import line_of, quick
from bench.results import PACKAGE, ROOT, Store, complete, sources
from bench.scenes import PRESETS, PROVIDERS, hide, is_steady, scene
from bench.trial import Kind, Outcome, Trial, run
from bench.verdict import Goal, judge, verdicts

ADMIT_AND_SETTLE_CALLS_MAX = 4_000
"""Empty function calls in the time of one admit + settle: about 1,000, and machines differ."""

STEADY = [name for name in PROVIDERS if is_steady(PRESETS[name])]


@pytest.fixture(scope="module")
def cells(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, str, str], Cell]:
    """What `python -m bench.pacing --quick` prints; the graphs without what others reach."""
    store = Store(tmp_path_factory.mktemp("bench") / "pacing.jsonl")
    choices = [replace(choice, compared=choice.workload == "22") for choice in quick()]
    measured = measure(choices, store, processes=1)
    return {(one.provider, one.workload, one.column): one for one in measured}


def test_no_task_is_lost_and_every_time_is_at_least_the_bound(
    cells: dict[tuple[str, str, str], Cell],
) -> None:
    assert [one for one in cells.values() if one.failed] == []
    assert [line_of(one) for one in cells.values() if one.ratio < 0.995] == []


@pytest.mark.parametrize("column", ["cold", "profile"])
@pytest.mark.parametrize("provider", ["burst-3s", "cap-7", "neighbour"])
def test_a_graph_takes_hardly_longer_than_the_bound(
    cells: dict[tuple[str, str, str], Cell], provider: str, column: str
) -> None:
    assert verdicts(cells[provider, "graph", column])["bound"]


@pytest.mark.parametrize("provider", ["burst-60s", "burst-3s", "fixed-window", "neighbour"])
def test_with_a_profile_a_small_run_is_as_fast_as_hindsight(
    cells: dict[tuple[str, str, str], Cell], provider: str
) -> None:
    found = verdicts(cells[provider, "22", "profile"])
    assert found["bound"]
    assert found["baseline"]


def test_a_profile_saves_every_refusal_and_a_neighbour_keeps_its_share(
    cells: dict[tuple[str, str, str], Cell],
) -> None:
    profiled = [one for one in cells.values() if one.column == "profile"]
    assert sum(one.refused for one in profiled if one.provider != "neighbour") == 0
    assert min(one.kept for one in cells.values() if one.provider == "neighbour") >= 0.95


@pytest.mark.parametrize("provider", [name for name in STEADY if name != "sub-second"])
def test_known_limits_of_a_sole_user_are_never_refused(provider: str) -> None:
    at = scene("held-out", provider, "22", 101)
    outcome = run(Trial(at.spec, at.work, at.seed, "known"))
    assert (outcome.refused, outcome.failed) == (0, 0)
    if provider in ("burst-60s", "burst-3s", "fixed-window", "cap-7"):
        long = scene("held-out", provider, "1000", 101)
        assert run(Trial(long.spec, replace(long.work, tasks=300), long.seed, "known")).refused == 0


@pytest.mark.bench
def test_admit_and_settle_cost_a_bounded_number_of_function_calls() -> None:
    code = (
        "from bench.subjects import admit_and_settle\n"
        "from bench.timing import baselines\n"
        "print(admit_and_settle(32, 3000).p50_us / baselines()['a function call'].p50_us)"
    )
    kept = {name: value for name, value in os.environ.items() if not name.startswith("COV")}
    environment = kept | {"PYTHONPATH": os.pathsep.join((str(ROOT / "src"), str(ROOT)))}
    command = [sys.executable, "-c", code]
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert float(ended.stdout) <= ADMIT_AND_SETTLE_CALLS_MAX


def _executed(trial: Trial) -> Iterator[CodeType]:
    """The functions of the package that a trial calls."""
    seen: set[CodeType] = set()

    def note(frame: FrameType, event: str, _argument: object) -> None:
        if event == "call":
            seen.add(frame.f_code)

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        run(trial)
    finally:
        sys.setprofile(before)
    return (code for code in seen if Path(code.co_filename).is_relative_to(PACKAGE))


@pytest.mark.parametrize(
    ("kind", "way"),
    [("unpaced", way) for way in ("waves:4", "fixed:16", "aimd", "cubic", "sdk")]
    + [("bound", "bound")],
)
@pytest.mark.parametrize("provider", ["burst-3s", "reserved", "worst-mix", "changing"])
def test_a_stored_result_is_keyed_by_all_the_code_that_it_ran(
    kind: Kind, way: str, provider: str
) -> None:
    at = scene("tuning", provider, "22", 1)
    work = replace(at.work, tasks=40)
    keyed = sources()
    assert keyed
    for spec in (at.spec, hide(at.spec)):
        trial = Trial(spec, work, at.seed, way)
        assert trial.kind == kind
        for code in _executed(trial):
            path, name = Path(code.co_filename), code.co_qualname
            assert path in keyed, f"{path} {name}"


def test_a_finished_trial_is_not_run_again(tmp_path: Path) -> None:
    at = scene("tuning", "cap-7", "22", 1)
    trial = Trial(at.spec, at.work, at.seed, "fixed:5")
    path = tmp_path / "kept.jsonl"
    first = complete([trial], Store(path), processes=1)[trial]
    marked = replace(first, binding="from the file")
    Store(path).put(trial, marked)
    with path.open("a") as lines:
        lines.write('{"key": "cut off by a ki')
    assert complete([trial, trial], Store(path), processes=1) == {trial: marked}


def test_a_goal_can_be_missed() -> None:
    at = scene("tuning", "neighbour", "22", 1)
    good = Measured(at, Outcome(10.0, latency_p95_s=1.0), 10.0, "width", "fixed:5", 10.0)
    cases: tuple[tuple[Goal, Measured], ...] = (
        ("bound", replace(good, outcome=Outcome(12.0, latency_p95_s=1.0))),
        ("neighbour", replace(good, outcome=Outcome(10.0, kept=0.9))),
        ("neighbour", replace(good, outcome=Outcome(9.0))),
        ("baseline", replace(good, best_s=9.0)),
        ("baseline", replace(good, outcome=Outcome(inf, failed=1))),
    )
    for goal, bad in cases:
        assert judge(goal, "cold", good) is True
        assert judge(goal, "cold", bad) is False


def test_refusals_are_judged_only_where_nobody_else_takes_the_room() -> None:
    for provider, column, expected in (
        ("burst-60s", "profile", False), ("burst-60s", "cold", True),
        ("neighbour", "profile", None), ("burst-60s", "hidden", None),
    ):  # fmt: skip
        measured = Measured(scene("tuning", provider, "22", 1), Outcome(10.0, refused=1), 10.0, "")
        assert judge("refusals", column, measured) is expected
