"""Trials of small programs: every schedule, every crash, with the engine of real runs."""

from __future__ import annotations

import json
from copy import deepcopy
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from headway.plans.graph import Need, TaskGroup
from headway.plans.resources import ANYTHING, Touches
from headway.report.explore import difference, play
from headway.report.schedules import ScheduleText, interleavings
from headway.report.stage import TrialTouch, overlap
from headway.report.trial import RULES, Trial, TrialCast, TrialOutcome, copied
from tests.unit.explored_programs import Programs, cast_of, drawn

ALL_MAX = 150
"""Schedules that one example may have; a larger one is cut off."""


def outcome_of(cast: TrialCast, line: ScheduleText) -> TrialOutcome:
    return play(cast, line, play(cast, ScheduleText("serial"))).outcome()


def serial_of(cast: TrialCast) -> TrialOutcome:
    return outcome_of(cast, ScheduleText("serial"))


def form_of(outcome: TrialOutcome) -> str:
    results = sorted((place, repr(done)) for place, done in outcome.results.items())
    effects = sorted((name, repr(data)) for name, data in outcome.effects.items())
    return json.dumps([results, repr(outcome.state), sorted(outcome.world.items()), effects])


def outcomes_of(cast: TrialCast, is_reduced: bool) -> tuple[set[str], int]:
    found: set[str] = set()
    count = 0
    for count, trial in enumerate(interleavings(cast, is_reduced), 1):
        found.add(form_of(trial.outcome()))
        if count > 3 * ALL_MAX:
            return set(), count
    return found, count


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 10**6))
def test_what_tasks_do_to_the_state_is_the_same_in_every_schedule(seed: int) -> None:
    cast = drawn(seed, most=4, has_files=False)
    serial = serial_of(cast)
    for count, trial in enumerate(interleavings(cast)):
        assert trial.outcome() == serial, trial.path
        if count > ALL_MAX:
            break


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 10**6))
def test_reduction_loses_no_outcome(seed: int) -> None:
    cast = drawn(seed, most=3, has_files=True)
    every, count = outcomes_of(cast, is_reduced=False)
    if every:
        reduced, fewer = outcomes_of(cast, is_reduced=True)
        assert reduced == every
        assert fewer <= count


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 10**6), crash=st.integers(1, 30))
def test_a_run_that_was_killed_anywhere_ends_as_if_it_had_not_been(seed: int, crash: int) -> None:
    cast = drawn(seed, most=5, has_files=False)
    for line in (
        ScheduleText("serial", crash=crash),
        ScheduleText("random", seed=seed, crash=crash),
        ScheduleText("pct", seed=seed, depth=3, crash=crash),
    ):
        assert outcome_of(cast, line) == serial_of(cast)


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 10**6))
def test_a_pair_that_is_turned_around_gives_the_serial_state(seed: int) -> None:
    cast = drawn(seed, most=5, has_files=False)
    places = sorted(play(cast, ScheduleText("serial")).labels())
    for way in ("before", "inside", "around"):
        for is_late in (False, True):
            line = ScheduleText("pair", (places[0], places[-1]), way, 1, is_late)
            assert outcome_of(cast, line) == serial_of(cast)


def test_orders_are_the_same_whether_trials_are_copied_or_done_again() -> None:
    ops = [[("write", "f")], [("look", "f")], [("put", "a")]]
    groups = [TaskGroup(f"t{one}", touches=ANYTHING if one == 2 else None) for one in range(3)]
    paths = [
        [tuple(one.path) for one in interleavings(cast_of(ops, groups, is_copied=copied))]
        for copied in (True, False)
    ]
    assert paths[0] == paths[1]
    assert len(set(paths[0])) == len(paths[0]) == 90


def test_a_group_that_is_spread_at_run_time_is_named_alike_in_every_schedule() -> None:
    groups = [
        TaskGroup("a"),
        TaskGroup("b"),
        TaskGroup("c", None, (Need(0),)),
        TaskGroup("d", None, (Need(1),)),
        TaskGroup("e", None, (Need(2, block=1),)),
    ]
    ops = [[("write", "x")], [("write", "y")], [("get", "a")], [("get", "a")], [("get", "a")]]
    base = cast_of(ops, groups)
    cast = TrialCast(base.graph, lambda: Programs(ops), base.channels, spread={0: (2,), 1: (3,)})
    assert len(play(cast, ScheduleText("serial")).labels()) == 8
    for seed in range(10):
        assert outcome_of(cast, ScheduleText("random", seed=seed)) == serial_of(cast)
    for crash in range(1, 12):
        assert outcome_of(cast, ScheduleText("serial", crash=crash)) == serial_of(cast)


def test_effects_are_released_in_declared_order_and_once_after_a_kill() -> None:
    ops = [[("act", "mail")]] * 3
    groups = [TaskGroup(f"t{one}", touches=Touches((), (), ("mail",))) for one in range(3)]
    cast = cast_of(ops, groups)
    assert len(serial_of(cast).effects["mail"]) == 3
    for crash in range(1, 14):
        line = ScheduleText("random", seed=crash, crash=crash)
        assert outcome_of(cast, line).effects == serial_of(cast).effects


def walked(trial: Trial, rng: Random, most: int = 1000) -> list[object]:
    """Steps by chance, up to so many: all that can be seen of a trial on the way."""
    seen: list[object] = []
    while trial.ready and not trial.is_over and len(seen) < most:
        place = rng.choice(trial.ready)
        trial.take(place)
        seen.append((place, trial.ready[:], len(trial.path), list(trial.trace or ())))
    if trial.is_over:
        coherence = trial._state.coherence
        assert coherence is not None
        seen.append((form_of(trial.outcome()), trial.reran, coherence.learned))
    return seen


def deeply(trial: Trial) -> Trial:
    """A copy of everything but what never changes, by Python's own means."""
    cast = trial.cast
    shared = (cast, cast.graph, cast.graph.queues, cast.channels, RULES, trial._places)
    return deepcopy(trial, {id(one): one for one in shared})


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 10**6), steps=st.integers(0, 12), has_files=st.booleans())
def test_a_copy_of_a_trial_goes_on_as_a_deep_copy_and_changes_nothing_of_the_other(
    seed: int, steps: int, has_files: bool
) -> None:
    trial = Trial(drawn(seed, most=5, has_files=has_files)).open()
    trial.trace = []
    walked(trial, Random(seed), steps)
    deep, twin, late, untouched = deeply(trial), copied(trial), copied(trial), deeply(trial)
    later = copied(twin)
    alike = walked(deep, Random(seed + 1))
    assert walked(twin, Random(seed + 1)) == alike
    # A copy that went on left the first one as it was, and that one the others.
    assert walked(trial, Random(seed + 2)) == walked(untouched, Random(seed + 2))
    assert walked(late, Random(seed + 1)) == alike
    assert walked(later, Random(seed + 1)) == alike


def test_two_readers_do_not_meet_and_a_folder_meets_what_is_in_it() -> None:
    read, write = TrialTouch("file", "a/b", False), TrialTouch("file", "a", True)
    assert overlap([read], [read]) == []
    assert overlap([read], [write]) == [read]
    assert overlap([write], [TrialTouch("state", "a", True)]) == []
    assert overlap([TrialTouch("file", "ab", True)], [write]) == []
    assert overlap([TrialTouch("file", "", False)], [write])


def outcome(**what: object) -> TrialOutcome:
    given: dict[str, object] = {"results": {}, "state": (), "world": {}, "effects": {}}
    return TrialOutcome(**{**given, **what})  # type: ignore[arg-type]


def test_differences_are_found_in_prompts_then_results_then_the_rest() -> None:
    from headway.report.stage import TrialResult

    def told(one: TrialOutcome, other: TrialOutcome) -> tuple[str, str, str, str] | None:
        found = difference(one, other, lambda place: f"t{place}")
        return None if found is None else (found.kind, found.where, found.serial, found.got)

    done = TrialResult(b"x", ("one\ntwo", "three"))
    serial = outcome(results={1: done})
    assert told(serial, serial) is None
    other = outcome(results={1: TrialResult(b"y", ("one\ntwo", "four"))})
    assert told(serial, other) == ("prompt", "t1", "three", "four")
    longer = outcome(results={1: TrialResult(b"y", ("one\ntwo\nmore", "three"))})
    found = difference(serial, longer, str)
    assert found is not None
    assert (found.line, found.before, found.serial, found.got) == (3, "two", "", "more")
    assert told(serial, outcome()) == ("missing", "t1", "", "it has no result")
    assert told(outcome(), serial) == ("missing", "t1", "it has no result", "")
    failed = outcome(results={1: TrialResult(b"", ("one\ntwo", "three"), "no")})
    assert told(serial, failed) == ("failure", "t1", "a result", "no")
    assert told(failed, serial) == ("failure", "t1", "no", "a result")
    long = outcome(results={1: TrialResult(b"x" * 500 + b"y" + b"z" * 500, done.prompts)})
    kind, _, short, cut = told(serial, long) or ("", "", "", "")
    assert (kind, short) == ("result", "x")
    assert cut.endswith("…")
    longest = outcome(results={1: TrialResult(b"x" * 500 + b"!" + b"z" * 500, done.prompts)})
    assert (told(long, longest) or ("", "", "", ""))[3].startswith("…x")
    assert told(outcome(), outcome(state=(("k", b"\1"),))) == ("state", "k", "nothing", "01")
    assert told(outcome(world={"f": "1"}), outcome()) == ("file", "f", "1", "nothing")
    swapped = outcome(effects={"m": (b"2", b"1")})
    assert told(outcome(effects={"m": (b"1", b"2")}), swapped) == ("effects", "m", "1, 2", "2, 1")
