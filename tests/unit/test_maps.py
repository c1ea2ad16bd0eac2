"""`map`, `run_in_waves`, `as_completed`: order, isolation, waves, and later processes."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import cast

import pytest

import headway
from headway.api.functions import _identity
from headway.engine.strategy import LOOKAHEAD
from headway.errors import BadValueError, TasksFailedError, UsageError
from headway.testing import run_virtual
from headway.work import PermitWait
from tests.unit.driven import passes

TASKS = 22


@pytest.fixture(autouse=True)
def _own_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADWAY_STATE_DIR", str(tmp_path / "state"))


class Witness:
    """Sees when each of many calls begins and ends."""

    def __init__(self, failing: int | None = None) -> None:
        self.failing = failing
        self.seen: list[tuple[str, int]] = []
        self._lock = threading.Lock()

    def say(self, what: str, n: int) -> None:
        with self._lock:
            self.seen.append((what, n))

    async def asynchronous(self, n: int) -> int:
        self.say("begins", n)
        await passes((n * 7) % 5 + 1)
        self.say("ends", n)
        return self._answer(n)

    def synchronous(self, n: int) -> int:
        self.say("begins", n)
        self.say("ends", n)
        return self._answer(n)

    def _answer(self, n: int) -> int:
        if n == self.failing:
            raise ValueError(f"{n} does not work")
        return n * n

    def must_be_waves(self, size: int) -> None:
        """Nothing began before everything of the wave before had ended."""
        for first in range(0, TASKS, size):
            wave = set(range(first, min(first + size, TASKS)))
            seen = self.seen[2 * first : 2 * (first + len(wave))]
            assert {n for _, n in seen} == wave


def test_22_tasks_are_6_waves_in_order(capfd: pytest.CaptureFixture[str]) -> None:
    witness = Witness()
    tasks = [partial(witness.asynchronous, n) for n in range(TASKS)]
    assert run_virtual(headway.run_in_waves_async(tasks, 4)) == [n * n for n in range(TASKS)]
    witness.must_be_waves(4)
    assert capfd.readouterr().err.splitlines() == [f"wave {n} of 6" for n in range(1, 7)]
    assert [n for what, n in witness.seen[-4:] if what == "begins"] == [20, 21]


def test_one_failure_in_a_wave_loses_nobody_elses_result() -> None:
    witness = Witness(failing=5)
    tasks = [partial(witness.asynchronous, n) for n in range(TASKS)]
    with pytest.raises(TasksFailedError, match="1 of 22 tasks failed") as failed:
        run_virtual(headway.run_in_waves_async(tasks, 4))
    results = cast("list[int]", failed.value.results)
    assert [n for n in range(TASKS) if results[n] != n * n] == [5]
    assert isinstance(failed.value.__cause__, ValueError)
    witness.must_be_waves(4)


@pytest.mark.parametrize("strategy", ["adaptive", "waves:4", "fixed:3", "all-at-once"])
def test_a_map_keeps_the_order_whatever_the_strategy(strategy: str) -> None:
    witness = Witness()
    found = run_virtual(headway.map_async(witness.asynchronous, range(TASKS), strategy=strategy))
    assert found == [n * n for n in range(TASKS)]
    assert [n for what, n in witness.seen if what == "begins"] == list(range(TASKS))


def test_a_ceiling_holds_whatever_the_strategy() -> None:
    active = peak = 0

    async def count(n: int) -> int:
        nonlocal active, peak
        active += 1
        peak = max(peak, active)
        await passes(1)
        active -= 1
        return n

    run_virtual(headway.map_async(count, range(20), strategy="all-at-once", ceiling=3))
    assert peak == 3


def test_a_function_that_raises_is_called_again_as_often_as_asked() -> None:
    calls: list[int] = []

    async def flaky(n: int) -> int:
        calls.append(n)
        if len(calls) < 3:
            raise ConnectionError("not yet")
        return n

    assert run_virtual(headway.map_async(flaky, [7], retries=2)) == [7]
    assert calls == [7, 7, 7]


def test_a_timeout_is_a_failure_of_its_task() -> None:
    async def slow(n: int) -> int:
        await passes(n)
        return n

    results = run_virtual(headway.map_async(slow, [1, 100], timeout_s=5.0, return_exceptions=True))
    assert results[0] == 1
    assert "timeout" in str(results[1])


def test_an_unknown_option_is_refused_with_a_hint() -> None:
    with pytest.raises(BadValueError, match="no option `strateg`") as refused:
        headway.map(str, [1], strateg="waves:4")  # type: ignore[call-overload]
    assert "strategy" in (refused.value.hint or "")


def test_the_synchronous_door_is_closed_inside_a_loop() -> None:
    async def main() -> None:
        with pytest.raises(UsageError) as refused:
            headway.map(str, [1])
        assert refused.value.hint == "write `await headway.map_async(...)`"
        with pytest.raises(UsageError) as refused:
            headway.run_in_waves([lambda: 1])
        assert refused.value.hint == "write `await headway.run_in_waves_async(...)`"
        assert await headway.map_async(str, [1]) == ["1"]

    asyncio.run(main())


def test_pairs_come_as_they_are_completed() -> None:
    async def wait(n: int) -> int:
        await passes(n)
        return -n

    async def main() -> list[tuple[int, int]]:
        return [pair async for pair in headway.as_completed(wait, [3, 1, 2])]

    assert run_virtual(main()) == [(1, -1), (2, -2), (3, -3)]


def test_the_first_failure_is_raised_and_nothing_more_starts() -> None:
    witness = Witness(failing=1)
    with pytest.raises(ValueError, match="1 does not work"):
        for _ in headway.as_completed(witness.synchronous, range(500), strategy="fixed:1"):
            pass
    assert len(witness.seen) < 100


def test_nothing_more_starts_when_nobody_listens_any_more() -> None:
    witness, before = Witness(), set(threading.enumerate())
    for _ in headway.as_completed(witness.synchronous, range(5000), strategy="fixed:1"):
        break
    count = len(witness.seen)
    assert count < 5000
    left = set(threading.enumerate()) - before
    assert not [one for one in left if "headway" in one.name]
    assert len(witness.seen) == count


SECOND = """
import sys, headway
def square(n):
    with open("calls", "a") as file:
        file.write(f"{n}\\n")
    if n == 3 and "fails" in sys.argv:
        raise ValueError("not today")
    if n in {"a", "b", "c", "d"}:
        return None
    return n * n
if "pairs" in sys.argv:
    print(sorted(headway.as_completed(square, range(5), durable="squares")))
else:
    print(headway.map(square, range(5), durable="squares"))
"""


def test_a_durable_map_goes_on_in_another_process(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(SECOND)

    def run(*words: str, seed: str) -> subprocess.CompletedProcess[str]:
        source = str(Path(headway.__file__).parents[1])
        environment = {**os.environ, "PYTHONPATH": source, "PYTHONHASHSEED": seed}
        return subprocess.run(
            [sys.executable, "program.py", *words], cwd=tmp_path, env=environment, text=True,
            capture_output=True, timeout=60, check=False,
        )  # fmt: skip

    first = run("fails", seed="1")
    assert "not today" in first.stderr
    assert sorted((tmp_path / "calls").read_text().split()) == list("01234")
    second = run(seed="2")
    assert second.stdout == "[0, 1, 4, 9, 16]\n", second.stderr
    assert sorted((tmp_path / "calls").read_text().split()) == list("012334")
    third = run("pairs", seed="3")
    assert third.stdout == "[(0, 0), (1, 1), (2, 4), (3, 9), (4, 16)]\n", third.stderr
    assert len((tmp_path / "calls").read_text().split()) == 6


def test_what_a_durable_map_cannot_keep_fails_and_says_why() -> None:
    results = headway.map(lambda _: object(), [1], durable="objects", return_exceptions=True)
    assert "JSON cannot hold" in str(results[0])
    with pytest.raises(BadValueError, match="cannot be recognised"):
        headway.map(str, [threading.Lock()], durable="locks")


def test_equal_items_of_a_durable_map_are_tasks_of_their_own() -> None:
    calls: list[str] = []

    def note(item: str) -> int:
        calls.append(item)
        return len(calls)

    assert sorted(headway.map(note, ["a", "a", "b"], durable="same")) == [1, 2, 3]
    assert len(headway.map(note, ["a", "a", "b"], durable="same")) == len(calls) == 3


def test_functions_run_in_processes_when_asked() -> None:
    pids = headway.map(process_of, range(4), in_processes=True)
    assert os.getpid() not in pids


def process_of(n: int) -> int:
    del n
    return os.getpid()


def test_a_map_follows_what_waits_for_permits_even_in_threads() -> None:
    """The adaptive width: tasks that wait for the quota hold back the rest, others do not."""
    begun: list[int] = []
    is_full, goes = threading.Event(), threading.Event()

    def ask(n: int) -> int:
        begun.append(n)
        if len(begun) == LOOKAHEAD:
            is_full.set()
        with PermitWait():
            goes.wait(20)
        return n

    def free() -> None:
        assert is_full.wait(20)
        waiting.append(len(begun))
        goes.set()

    waiting: list[int] = []
    opening = threading.Thread(target=free)
    opening.start()
    found = headway.map(ask, range(100))
    opening.join()
    assert (found, waiting) == (list(range(100)), [LOOKAHEAD])


def adding(number: int) -> Callable[[int], int]:
    return lambda n: n + number


def plus(number: int, n: int) -> int:
    return n + number


def test_functions_are_told_apart_by_what_they_were_made_with() -> None:
    assert _identity(adding(1)) == _identity(adding(1)) != _identity(adding(2))
    assert _identity(partial(plus, 1)) == _identity(partial(plus, 1)) != _identity(partial(plus, 2))
    assert _identity(1) != _identity("1") != _identity(True)

    def calls_itself(n: int) -> int:
        return calls_itself(n - 1)

    assert _identity(calls_itself)


def test_what_is_no_function_is_refused_before_anything_runs() -> None:
    with pytest.raises(BadValueError, match="a function is needed here, not int"):
        headway.map(3, ["a"])  # type: ignore[call-overload]
    with pytest.raises(BadValueError, match="a function is needed here, not str"):
        headway.Plan("one").task("a", "text")  # type: ignore[arg-type]
