"""The judge of kills finds each fault that it is there for."""

from __future__ import annotations

from tests.chaos.judge import Kill, judge

DONE = {"a": "result a", "b": "result b"}


def kill(*durable: str, outside: str = "", orphans: int = 0) -> Kill:
    return Kill("somewhere", frozenset(durable), frozenset(outside.split()), orphans)


def test_a_run_without_kills_is_without_fault() -> None:
    verdict = judge(["start a", "start b", "end b", "end a"], [], DONE)
    assert (verdict.starts, verdict.repeats, verdict.doubles, verdict.lost) == (2, 0, 0, 0)


def test_what_was_in_flight_counts_as_repeated_by_that_kill() -> None:
    lines = [
        "start a",
        "start b",
        "kill",
        "start a",
        "kill",
        "start b",
        "end b",
        "start a",
        "end a",
    ]
    verdict = judge(lines, [kill(), kill()], DONE)
    assert (verdict.repeats, verdict.repeats_most, verdict.ended_repeats) == (3, 2, 0)


def test_a_durable_result_may_not_be_repeated_by_any_later_process() -> None:
    lines = ["start a", "end a", "kill", "start b", "kill", "start b", "end b", "start a", "end a"]
    verdict = judge(lines, [kill("a"), kill("a")], DONE)
    assert (verdict.durable_repeats, verdict.repeats) == (1, 2)


def test_two_starts_without_a_reason_are_seen() -> None:
    verdict = judge(["start a", "start a", "end a", "start b", "end b"], [], DONE)
    assert (verdict.doubles, verdict.repeats) == (1, 0)


def test_a_result_that_is_missing_or_wrong_or_no_longer_durable_is_lost() -> None:
    lines = ["start a", "end a", "start b", "end b"]
    assert judge(lines, [], DONE | {"b": ""}).lost == 1
    assert judge(lines, [], DONE | {"b": "result a"}).lost == 1
    lines = ["start a", "end a", "kill", "kill", "start a", "end a", "start b", "end b"]
    assert judge(lines, [kill("a"), kill()], DONE).lost == 1
