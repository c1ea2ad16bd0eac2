"""A task whose account refuses all calls is left, and the others go on."""

from __future__ import annotations

from math import inf

from headway.base.values import Fault
from headway.engine.engine import begin, step
from headway.engine.events import (
    Began,
    Event,
    Failed,
    Finished,
    Held,
    RunFinished,
    RunStopping,
    TaskDelayed,
    Ticked,
)
from headway.engine.state import Rules, State
from headway.engine.strategy import parse
from headway.pacing.headers import PLAIN
from headway.pacing.refusal import classify
from headway.plans.graph import Graph, TaskGroup

PUT_OFF = Fault("access", retry_after_s=inf, detail="HTTP 401")


def begun(tasks: int = 2) -> State:
    state = begin(Graph([TaskGroup("ask", tasks)]), Rules(parse("all-at-once")))
    step(state, Began(), 0.0)
    return state


def last(state: State, happened: object, now: float = 1.0) -> Event | None:
    events = step(state, happened, now).events  # type: ignore[arg-type]
    return events[-1] if events else None


def test_it_is_delayed_for_good_and_no_try_is_counted() -> None:
    state = begun()
    found = step(state, Failed(0, 1, PUT_OFF), 1.0)
    (event,) = found.events
    assert isinstance(event, TaskDelayed)
    assert event.again_s == inf
    assert state.earlier[0] == 1


def test_the_run_ends_with_it_left_when_nothing_else_can_start() -> None:
    state = begun()
    last(state, Failed(0, 1, PUT_OFF))
    assert last(state, Ticked()) is None, "another task still runs"
    last(state, Finished(1, 1))
    assert not state.over
    stopping, over = step(state, Ticked(), 2.0).events
    assert isinstance(stopping, RunStopping)
    assert isinstance(over, RunFinished)
    assert (over.finished, over.failed, over.left) == (1, 0, 1)


def test_a_run_that_is_held_or_has_another_delay_goes_on() -> None:
    state = begun(3)
    last(state, Failed(0, 1, PUT_OFF))
    last(state, Failed(1, 1, Fault("server")))
    last(state, Finished(2, 1))
    assert last(state, Ticked()) is None
    state = begun(1)
    last(state, Failed(0, 1, PUT_OFF))
    last(state, Held(100.0, "a window"))
    last(state, Ticked())
    assert not state.over


def test_answers_about_the_key_the_model_or_the_address_are_told_from_others() -> None:
    found = {
        status: classify(status, (), b"", PLAIN).kind
        for status in (302, 401, 403, 404, 405, 400, 409, 422)
    }
    assert [status for status, kind in found.items() if kind == "access"] == [
        302, 401, 403, 404, 405,
    ]  # fmt: skip
    assert found[400] == found[422] == "request"
    assert found[409] == "server"
