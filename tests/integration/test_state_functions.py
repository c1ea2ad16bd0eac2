"""Functions that share a state: on the loop, in threads, in processes, the result is the same."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import threading
from collections.abc import Callable
from contextlib import aclosing
from pathlib import Path
from typing import Any, cast

import pytest

import headway
from headway.agents.function import FunctionAgent
from headway.api.functions import How
from headway.errors import BadValueError, StateError, TasksFailedError
from headway.plans.resources import Channel
from headway.state.context import Circumstances, Lent, LocalReach
from headway.state.shared import Act, Channels, Shared, Snapshot
from tests.integration import state_functions

MANY = 50
PLACES: dict[str, How] = {
    "loop": {},
    "thread": {},
    "process": {"in_processes": True, "ceiling": 3},
}
IN_EACH = pytest.mark.parametrize("place", PLACES)
UNKNOWN: Any = {"read": "a"}
WIDE: How = {"strategy": "all-at-once"}


def how(place: str) -> How:
    """There, and as many at once as there are."""
    return {**WIDE, **PLACES[place]}


def counting(place: str) -> Callable[..., object]:
    return state_functions.count_up_async if place == "loop" else state_functions.count_up


@IN_EACH
def test_no_update_of_a_counter_is_lost_and_everybody_sees_what_those_before_gave(
    place: str,
) -> None:
    plan = headway.Plan("count")
    plan.task("up", counting(place), each=range(MANY))
    run = plan.run(**how(place))
    assert run.state == {"count": MANY}
    assert run.results["up"] == list(range(MANY))
    assert run.reran <= 3 * MANY


MOVES = [("abcde"[n % 5], "abcde"[(n * 3 + 1) % 5], n % 40) for n in range(30)]


def transfers() -> headway.Plan:
    plan = headway.Plan("transfers", state={"log": "append", "moves": "counter"})
    plan.task("move", state_functions.transfer, each=MOVES)
    return plan


@IN_EACH
def test_the_result_is_that_of_a_run_one_after_another(place: str) -> None:
    alone = transfers().run(strategy="fixed:1")
    assert alone.reran == 0
    run = transfers().run(**how(place))
    assert run.state == alone.state
    assert run.results == alone.results
    assert run.state["moves"] == len(MOVES)


def test_a_function_in_a_process_has_the_state_of_this_one() -> None:
    plan = headway.Plan("far")
    first = plan.task("pid", state_functions.own_pid)
    plan.task("threads", state_functions.threads_inside, each=[1, 2, 3])
    plan.task("count", state_functions.count_up_async, each=[1], needs=())
    run = plan.run(in_processes=True, ceiling=2)
    assert run.state["pid"] == run.results[first.name] != os.getpid()
    assert run.results["threads"] == [30, 30, 30]
    assert run.state["count"] == 1
    assert multiprocessing.active_children() == []


def test_a_process_that_dies_in_the_middle_leaves_nothing_and_is_tried_again(
    tmp_path: Path,
) -> None:
    plan = headway.Plan("dies", state={"moves": "counter"})
    plan.task("once", state_functions.put_and_die, each=[str(tmp_path / "marker")])
    run = plan.run(in_processes=True, retries=1)
    assert run.results["once"] == ["lived"]
    assert run.state == {"half": "done", "moves": 1}


@pytest.mark.parametrize("place", ["thread", "process"])
def test_an_attempt_that_takes_too_long_leaves_nothing(place: str) -> None:
    plan = headway.Plan("hangs", state={"moves": "counter"})
    plan.task("hang", state_functions.put_and_hang, each=range(4), timeout_s=0.4)
    plan.task("count", state_functions.count_up, each=range(4))
    with pytest.raises(TasksFailedError):
        plan.run(**PLACES[place])
    open_before = len(os.listdir("/proc/self/fd"))
    patient: How = {**PLACES[place], "return_exceptions": True}
    run = plan.run(**patient)
    assert run.state == {"count": 4}
    assert len(run.errors) == 4
    assert all("took more than 0.4 s" in str(error) for error in run.errors.values())
    assert multiprocessing.active_children() == []
    assert len(os.listdir("/proc/self/fd")) <= open_before


def test_a_thread_that_lives_on_after_its_attempt_is_told_so() -> None:
    refused: list[StateError] = []
    goes, ended = threading.Event(), threading.Event()

    def leaves_one_behind(ctx: headway.Context) -> str:
        ctx.put("mine", 1)

        def late() -> None:
            goes.wait(10)
            try:
                ctx.put("late", 1)
            except StateError as error:
                refused.append(error)
            ended.set()

        threading.Thread(target=late).start()
        return "done"

    def after(before: object) -> None:
        goes.set()
        assert ended.wait(10)

    plan = headway.Plan("late")
    plan.task("after", after, needs=plan.task("leaves", leaves_one_behind))
    run = plan.run()
    assert run.state == {"mine": 1}
    assert refused[0].code == "HW211"
    assert "has ended" in refused[0].message


def test_a_failed_attempt_leaves_nothing_and_its_retry_counts_once() -> None:
    tries: list[int] = []

    async def flaky(ctx: headway.Context) -> str:
        tries.append(ctx.attempt)
        ctx.add("moves", 1)
        ctx.put(f"tries/{ctx.attempt}", ctx.random.random())
        if len(tries) < 3:
            raise LookupError("not yet")
        return "done"

    plan = headway.Plan("flaky", state={"moves": "counter"})
    plan.task("flaky", flaky)
    run = plan.run(retries=2)
    assert run.state["moves"] == 1
    assert list(run.state) == ["moves", "tries/3"]
    assert tries == [1, 2, 3]


def test_what_tasks_share_is_never_the_same_object() -> None:
    kept: list[object] = []

    def gives(ctx: headway.Context) -> None:
        record = {"names": ["a"]}
        ctx.put("record", record)
        record["names"].append("after the put")
        kept.append(record)

    def takes(_: object, ctx: headway.Context) -> object:
        record = ctx["record"]
        assert isinstance(record, dict)
        record["names"].append("by a reader")
        return ctx["record"]

    plan = headway.Plan("copies")
    plan.task("takes", takes, needs=plan.task("gives", gives))
    run = plan.run()
    assert run.results["takes"] == {"names": ["a"]}
    assert run.state == {"record": {"names": ["a"]}}


def test_custom_reducers_combine_in_declared_order() -> None:
    def joined(one: object, other: object) -> object:
        return f"({one}{other})"

    async def says(word: str, ctx: headway.Context) -> None:
        for _ in range("abcd"[::-1].index(word)):
            await asyncio.sleep(0)
        ctx.add("words", word)

    plan = headway.Plan("reduce", state={"words": joined})
    plan.task("says", says, each=list("abcd"))
    assert plan.run(**WIDE).state == {"words": "(((ab)c)d)"}


@IN_EACH
def test_effects_are_performed_in_declared_order_after_their_tasks(place: str) -> None:
    sent: list[tuple[object, str]] = []
    plan = headway.Plan("mail", effects={"mail": lambda what, key: sent.append((what, key))})
    plan.task("notify", notify_async if place == "loop" else notify, each=range(12))
    run = plan.run(**how(place))
    assert [what for what, _ in sent] == [{"number": number} for number in range(12)]
    assert len({key for _, key in sent}) == 12
    assert run.state == {"count": 12}


def notify(item: int, ctx: headway.Context) -> None:
    state_functions.count_up(item, ctx)
    ctx.effect("mail", {"number": item})


async def notify_async(item: int, ctx: headway.Context) -> None:
    await state_functions.count_up_async(item, ctx)
    ctx.effect("mail", {"number": item})


@pytest.mark.parametrize("place", ["thread", "process"])
def test_an_effect_that_is_wanted_now_is_done_before_the_function_goes_on(place: str) -> None:
    sent: list[object] = []
    plan = headway.Plan("now", effects={"mail": lambda what, key: sent.append(what)})
    plan.task("at_once", at_once)
    plan.run(**PLACES[place])
    assert sent == ["first"]


def at_once(ctx: headway.Context) -> None:
    ctx.now("mail", "first")


def test_map_gives_a_state_to_functions_that_want_it() -> None:
    found = headway.map(state_functions.count_up_async, range(20), **WIDE)
    assert found == list(range(20))
    found = headway.map(state_functions.count_up, range(6), in_processes=True, ceiling=2)
    assert found == list(range(6))

    def adds(ctx: headway.Context) -> object:
        number = ctx.get("n", 0)
        assert isinstance(number, int)
        ctx.put("n", number + 1)
        return number

    functions = cast("list[Callable[[], object]]", [adds, adds, adds])
    assert headway.run_in_waves(functions, 3) == [0, 1, 2]


@pytest.mark.parametrize("place", ["thread", "process"])
def test_wrong_use_fails_the_task_and_says_how_it_is_right(place: str) -> None:
    plan = headway.Plan("wrong")
    plan.task("wrong", state_functions.wrong)
    patient: How = {**PLACES[place], "return_exceptions": True}
    run = plan.run(**patient)
    (error,) = run.errors.values()
    assert "does not fit `plain`" in str(error)
    if place == "process":
        assert 'use `ctx.put("plain", ...)`' in str(error)


@pytest.mark.parametrize(
    ("declare", "words"),
    [
        (lambda: headway.Plan("p", state={"a": "counted"}), "did you mean `counter`"),
        (lambda: headway.Plan("p", state={"a": "effect(m:f)"}), "is an effect"),
        (lambda: headway.Plan("p", state={"a//b": "set"}), "cannot be a key"),
        (lambda: headway.Plan("p", state={"a": "set"}, effects={"a": print}), "declared twice"),
        (lambda: headway.Plan("p", state={"a": "reduce(no_such_module:f)"}), "cannot be imported"),
        (lambda: headway.Plan("p").task("t", len, each=["a"], reads="a"), "cannot reach"),
        (lambda: headway.Plan("p").task("t", state_functions.wrong, reads="a//b"), "cannot be"),
        (lambda: headway.Plan("p").task("t", len, each=["a"], **UNKNOWN), "there is no option"),
    ],
)
def test_declarations_that_cannot_be_are_refused(declare: Callable[[], object], words: str) -> None:
    with pytest.raises(BadValueError) as caught:
        declare()
    assert words in caught.value.render()


def test_a_worker_that_is_ended_in_the_middle_of_a_question_leaves_nothing_open() -> None:
    async def main() -> None:
        began, goes, ended = threading.Event(), threading.Event(), threading.Event()

        def slow(act: Act, number: int) -> None:
            began.set()
            goes.wait(30)
            ended.set()

        channels = Channels({"mail": Channel("effect", "tests:send")})
        reach = LocalReach(Snapshot(Shared(channels), 1), threading.RLock(), perform=slow)
        loan = Lent(reach, Circumstances("task"))
        async with aclosing(FunctionAgent()) as agent:
            asked = asyncio.ensure_future(agent.call("process", at_once, (), loan))
            assert await asyncio.to_thread(began.wait, 30)
            asked.cancel()
            with pytest.raises(asyncio.CancelledError):
                await asked
            assert multiprocessing.active_children() == []
            # Another worker takes its place before the answer comes that nobody waits for.
            goes.set()
            assert await agent.call("process", os.getpid, ()) != os.getpid()
        assert await asyncio.to_thread(ended.wait, 30)

    asyncio.run(main())  # What watches over processes stays when the first of them was started.
    open_before = len(os.listdir("/proc/self/fd"))
    asyncio.run(main())
    assert multiprocessing.active_children() == []
    assert len(os.listdir("/proc/self/fd")) <= open_before


def test_a_rerun_is_given_what_the_first_attempt_was_given() -> None:
    started = threading.Event()

    def rate(ctx: headway.Context) -> None:
        started.wait(5)
        ctx.put("rate", 3)

    def price(item: dict[str, int], ctx: headway.Context) -> int:
        found = ctx.get("rate", 2)
        started.set()
        assert isinstance(found, int)
        item["price"] *= found
        return item["price"]

    plan = headway.Plan("prices", state={})
    plan.task("rate", rate)
    plan.task("price", price, each=[{"price": 10}])
    run = plan.run(strategy="all-at-once")
    assert run.results["price"] == [30]
    assert run.reran == 1


def test_a_task_that_failed_in_the_end_has_no_result_of_a_stale_attempt() -> None:
    started = threading.Event()

    def first(ctx: headway.Context) -> None:
        started.wait(5)
        ctx.put("a", 1)

    def second(ctx: headway.Context) -> str:
        found = ctx.get("a")
        started.set()
        if found is not None:
            raise ValueError("not this one")
        return "stale"

    plan = headway.Plan("failing", state={})
    plan.task("first", first)
    plan.task("second", second)
    run = plan.run(strategy="all-at-once", return_exceptions=True)
    assert run.results["second"] is None
    assert "second" in run.errors


def test_a_run_says_how_long_attempts_may_take_and_a_task_knows_better() -> None:
    async def slow() -> str:
        await asyncio.sleep(0.3)
        return "done"

    plan = headway.Plan("slow")
    plan.task("impatient", slow)
    plan.task("patient", slow, timeout_s=60)
    run = plan.run(timeout_s=0.05, return_exceptions=True)
    assert run.results == {"impatient": None, "patient": "done"}
