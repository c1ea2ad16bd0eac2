"""A slice of the benchmarks, so that what they claim is checked whenever the code changes."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from math import inf
from pathlib import Path
from types import CodeType, FrameType

import pytest
from msgspec.structs import replace

from bench.cells import Cell, Measured, best_of, geometric_mean, line_of, measure
from bench.changes import SLOW_S, Case, run_case
from bench.drawn import REPORTED, TUNING, draw
from bench.oracle import change_of, compare, draw_trace
from bench.pacing import quick
from bench.results import PACKAGE, Store, complete, sources
from bench.scenes import PRESETS, hide, is_steady, scene
from bench.strangers import SCENES, VIRTUAL_WAYS, is_delayed, rehearse
from bench.trial import Kind, Outcome, Trial, run

STEADY = [name for name, spec in PRESETS.items() if is_steady(spec)]


@pytest.fixture(scope="module")
def cells(tmp_path_factory: pytest.TempPathFactory) -> list[Cell]:
    """What `python -m bench.pacing --quick` prints."""
    store = Store(tmp_path_factory.mktemp("bench") / "pacing.jsonl")
    return measure(quick(), store, processes=1)


def test_no_task_is_lost_and_every_time_is_at_least_the_bound(cells: list[Cell]) -> None:
    assert [one for one in cells if one.failed] == []
    assert [line_of(one) for one in cells if one.ratio < 0.995] == []


def test_with_a_profile_small_runs_on_drawn_providers_are_as_fast_as_hindsight(
    cells: list[Cell],
) -> None:
    profiled = [one for one in cells if one.column == "profile"]
    assert geometric_mean(one.against_best for one in profiled) <= 1.03
    assert [line_of(one) for one in profiled if one.against_best > 1.15] == []


def test_seeds_that_are_reported_are_not_those_that_were_tuned_on() -> None:
    assert not set(TUNING) & set(REPORTED)
    assert len(REPORTED) >= 60
    assert draw(REPORTED[0]) == draw(REPORTED[0]) != draw(TUNING[0])


@pytest.mark.parametrize("numbers", [range(0, 60), range(60, 120)])
def test_on_accounts_known_exactly_the_last_call_leaves_no_later_than_in_the_first_version(
    numbers: range,
) -> None:
    """The first version woke too late for calls that may pass a blocked one: those leave sooner."""
    traces = [trace for trace in map(draw_trace, numbers) if not change_of(trace)]
    assert len(traces) > 30
    found = [(trace.number, kind) for trace in traces if (kind := compare(trace))]
    assert [one for one in found if one[1] not in ("sooner", "order")] == []
    assert len(found) < len(traces) / 4


@pytest.mark.parametrize("provider", [name for name in STEADY if name != "sub-second"])
def test_known_limits_of_a_sole_user_are_never_refused(provider: str) -> None:
    at = scene("twelve", provider, "22", 101)
    outcome = run(Trial(at.spec, at.work, at.seed, "known"))
    assert (outcome.refused, outcome.failed) == (0, 0)
    if provider in ("burst-60s", "burst-3s", "fixed-window", "cap-7"):
        long = scene("twelve", provider, "1000", 101)
        assert run(Trial(long.spec, replace(long.work, tasks=300), long.seed, "known")).refused == 0


@pytest.mark.parametrize("provider", ["cap-7", "burst-3s", "congested"])
def test_a_provider_that_is_slow_for_a_minute_costs_little_more_than_that_minute(
    provider: str,
) -> None:
    calm, slow = (run_case(Case(provider, change, 301, "new")) for change in ("none", "slow"))
    assert slow.makespan_s <= calm.makespan_s + 2.0 * SLOW_S


def test_a_raised_limit_is_followed_at_once_without_a_refusal() -> None:
    calm, raised = (run_case(Case("reserved", change, 301, "new")) for change in ("none", "raised"))
    assert raised.refused == 0
    assert raised.makespan_s <= 0.75 * calm.makespan_s


def test_what_is_left_of_a_fixed_window_is_used() -> None:
    found = run_case(Case("fixed-window", "long", 301, "new"))
    assert found.idle_s < 10.0
    assert found.refused <= 2


@pytest.mark.parametrize("way", VIRTUAL_WAYS)
def test_limits_as_other_servers_have_them_are_used_up_without_a_stall(way: str) -> None:
    found = [rehearse(scene, way) for scene in SCENES if not is_delayed(scene)]
    assert len(found) > 20
    stalls = [one.scene for one in found if one.stall_s > 2.0]
    slow = [one.scene for one in found if one.time_s > 1.2 * one.bound_s]
    assert (stalls, slow, sum(one.lost for one in found)) == ([], [], 0)


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
    + [("bound", "bound"), ("first", "first:cold")],
)
@pytest.mark.parametrize("provider", ["burst-3s", "reserved", "worst-mix", "changing"])
def test_a_stored_result_is_keyed_by_all_the_code_that_it_ran(
    kind: Kind, way: str, provider: str
) -> None:
    at = scene("twelve", provider, "22", 101)
    work = replace(at.work, tasks=40)
    keyed = sources(is_paced=False)
    assert keyed < sources(is_paced=True)
    for spec in (at.spec, hide(at.spec)):
        trial = Trial(spec, work, at.seed, way)
        assert trial.kind == kind
        for code in _executed(trial):
            path, name = Path(code.co_filename), code.co_qualname
            assert path in keyed, f"{path} {name}"


def test_a_finished_trial_is_not_run_again(tmp_path: Path) -> None:
    at = scene("twelve", "cap-7", "22", 101)
    trial = Trial(at.spec, at.work, at.seed, "fixed:5")
    path = tmp_path / "kept.jsonl"
    first = complete([trial], Store(path), processes=1)[trial]
    marked = replace(first, binding="from the file")
    Store(path).put(trial, marked)
    with path.open("a") as lines:
        lines.write('{"key": "cut off by a ki')
    assert complete([trial, trial], Store(path), processes=1) == {trial: marked}


def test_the_best_in_hindsight_loses_nothing_robs_nobody_and_leaves_no_debt() -> None:
    others = {
        "sdk": Outcome(5.0, failed=1), "fixed:50": Outcome(6.0, kept=0.9),
        "fixed:30": Outcome(9.0), "fixed:5": Outcome(12.0), "aimd": Outcome(inf, failed=22),
    }  # fmt: skip
    assert best_of(others, 9.95) == ("fixed:5", 12.0)
    at = scene("reported", str(REPORTED[0]), "22", 1)
    one = Measured(at, Outcome(18.0), 10.0, 10.0, "width", "fixed:5", 12.0)
    assert (one.ratio, one.against_best) == (1.8, 1.5)
