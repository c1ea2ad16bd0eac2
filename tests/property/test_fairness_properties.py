"""Fairness holds for any costs, and no waiter is ever lost or served twice."""

from __future__ import annotations

from collections.abc import Callable
from itertools import cycle, pairwise

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from msgspec import Struct, field

from headway.pacing.queue import FairQueue
from tests.unit.test_fairness import serve

COSTS = st.lists(st.floats(0.5, 10.0), min_size=1, max_size=20)
QUARTERS = st.integers(0, 40).map(lambda quarters: quarters / 4)
"""Costs whose sums are exact, so that two ways of adding them give one order."""

Serve = Callable[[str, float], float]


def _real_use(costs: dict[str, list[float]], real: Serve) -> float:
    """Serve two flows that never run dry until the law's bound is 2 %; how far apart they are.

    `real(flow, cost)` is what a call really used, corrected as soon as it is served.
    """
    queue: FairQueue[tuple[str, float]] = FairQueue()
    supply = {flow: cycle(costs[flow]) for flow in costs}
    used = dict.fromkeys(costs, 0.0)
    for flow in costs:
        for _ in range(2):
            cost = next(supply[flow])
            queue.push((flow,), (0.0,), cost, (flow, cost))
    largest = {flow: max(max(cost, real(flow, cost)) for cost in costs[flow]) for flow in costs}
    enough = 50 * sum(2 * largest[flow] for flow in costs)
    while min(used.values()) < enough:
        flow, cost = serve(queue)
        used[flow] += real(flow, cost)
        queue.correct((flow,), real(flow, cost) - cost)
        cost = next(supply[flow])
        queue.push((flow,), (0.0,), cost, (flow, cost))
    return max(used.values()) / min(used.values()) - 1.0


@settings(max_examples=20)
@given(COSTS, COSTS)
def test_two_backlogged_flows_share_evenly_whatever_their_costs(
    costs_a: list[float], costs_b: list[float]
) -> None:
    assert _real_use({"a": costs_a, "b": costs_b}, lambda _, cost: cost) <= 0.02


@settings(max_examples=20)
@given(COSTS, COSTS, st.floats(0.1, 3.0))
def test_shares_are_of_what_was_really_used_once_corrected(
    costs_a: list[float], costs_b: list[float], factor: float
) -> None:
    def real(flow: str, cost: float) -> float:
        return cost * factor if flow == "a" else cost

    assert _real_use({"a": costs_a, "b": costs_b}, real) <= 0.02


class NaiveFlow(Struct):
    """The laws again, with lists and scans: what the heaps must agree with."""

    start: float = 0.0
    entered: float = 0.0
    turn: int = 0
    virtual: float = 0.0
    children: dict[str, NaiveFlow] = field(default_factory=dict)
    waiters: list[tuple[tuple[float, ...], int, float]] = field(default_factory=list)

    def waiting(self) -> int:
        return len(self.waiters) + sum(child.waiting() for child in self.children.values())

    def line(self) -> list[str]:
        return sorted(self.children, key=lambda n: (self.children[n].start, self.children[n].turn))

    def tidy(self) -> None:
        while self.children and not self.children[first := self.line()[0]].waiting():
            self.virtual = max(self.virtual, self.children.pop(first).start)


class Naive:
    """A fair queue over two levels, slow and obvious."""

    def __init__(self) -> None:
        self.root = NaiveFlow()
        self.turns = 0

    def _path(self, path: tuple[str, ...]) -> list[NaiveFlow]:
        flows = [self.root]
        for name in path:
            parent = flows[-1]
            if name not in parent.children:
                parent.children[name] = self._turn(NaiveFlow(parent.virtual, parent.virtual))
            flows.append(parent.children[name])
        return flows

    def _turn(self, flow: NaiveFlow) -> NaiveFlow:
        self.turns += 1
        flow.turn = self.turns
        return flow

    def push(self, path: tuple[str, ...], key: tuple[float, ...], cost: float, place: int) -> None:
        flows = self._path(path)
        for parent, flow in pairwise(flows):
            if not flow.waiting():
                flow.entered = parent.virtual
                if flow.start < parent.virtual:
                    flow.start = parent.virtual
                    self._turn(flow)
        flows[-1].waiters.append((key, place, cost))

    def first(self) -> tuple[tuple[str, ...], int]:
        path: list[str] = []
        flow = self.root
        while flow.children:
            path.append(flow.line()[0])
            flow = flow.children[path[-1]]
        return tuple(path), min(flow.waiters)[1]

    def settle(self, path: tuple[str, ...], place: int | None, cost: float | None) -> None:
        flows = self._path(path)
        tops = [flow.children[flow.line()[0]].start for flow in flows[:-1]]
        leaf = flows[-1]
        leaf.waiters = [waiter for waiter in leaf.waiters if waiter[1] != place]
        for depth in range(len(flows) - 1, 0, -1):
            parent, flow = flows[depth - 1], flows[depth]
            if cost is not None and place is not None:
                parent.virtual = max(parent.virtual, tops[depth - 1])
            if cost is not None:
                flow.start = max(flow.entered, flow.start + cost)
                self._turn(flow)
            parent.tidy()


class FairQueueMachine(RuleBasedStateMachine):
    """Everything that can be done to a queue, against the naive one."""

    def __init__(self) -> None:
        super().__init__()
        self.queue: FairQueue[list[int]] = FairQueue()
        self.naive = Naive()
        self.paths: dict[int, tuple[str, ...]] = {}
        self.costs: dict[int, float] = {}

    @rule(
        run=st.sampled_from("ab"),
        session=st.sampled_from("xyz"),
        key=st.integers(0, 2),
        cost=QUARTERS,
    )
    def push(self, run: str, session: str, key: int, cost: float) -> None:
        item: list[int] = []
        place = self.queue.push((run, session), (float(key),), cost, item)
        item.append(place)
        assert place not in self.paths
        self.naive.push((run, session), (float(key),), cost, place)
        self.paths[place] = (run, session)
        self.costs[place] = cost

    @rule()
    def pop(self) -> None:
        if self.paths:
            path, place = self.naive.first()
            assert serve(self.queue) == [place]
            assert self.paths.pop(place) == path
            self.naive.settle(path, place, self.costs[place])

    @rule(choice=st.integers(0, 1000), serve=st.booleans())
    def leave(self, choice: int, serve: bool) -> None:
        if self.paths:
            place = sorted(self.paths)[choice % len(self.paths)]
            given_back = self.queue.take(place) if serve else self.queue.remove(place)
            assert given_back == [place]
            assert self.queue.remove(place) is None
            cost = self.costs[place] if serve else None
            self.naive.settle(self.paths.pop(place), place, cost)

    @rule(
        run=st.sampled_from("ab"),
        session=st.sampled_from("xyz"),
        delta=st.integers(-40, 40).map(lambda quarters: quarters / 4),
    )
    def correct(self, run: str, session: str, delta: float) -> None:
        self.queue.correct((run, session), delta)
        self.naive.settle((run, session), None, delta)

    @rule(n=st.integers(0, 16))
    def peek(self, n: int) -> None:
        before = self.queue.head(), len(self.queue.waiters)
        upcoming = self.queue.peek(n)
        assert len(upcoming) == min(n, len(self.queue.waiters))
        assert (self.queue.head(), len(self.queue.waiters)) == before

    @invariant()
    def both_agree_on_who_waits_and_who_is_next(self) -> None:
        assert len(self.queue.waiters) == len(self.paths)
        expected = [self.naive.first()[1]] if self.paths else None
        assert self.queue.head() == expected

    def teardown(self) -> None:
        while self.paths:
            upcoming = self.queue.peek(16)
            for item in upcoming:
                assert serve(self.queue) == item
                del self.paths[item[0]]
        assert len(self.queue.waiters) == 0
        assert not self.queue._root.children


TestFairQueueAgainstNaiveModel = FairQueueMachine.TestCase
TestFairQueueAgainstNaiveModel.settings = settings(max_examples=60, stateful_step_count=50)

PATHS = st.lists(st.sampled_from(["", "a", "b"]), max_size=3).map(tuple)


@settings(max_examples=100)
@given(
    st.lists(
        st.tuples(PATHS, QUARTERS, st.sampled_from(["push", "push", "pop", "remove", "correct"])),
        max_size=80,
    )
)
def test_paths_of_any_depth_never_lose_or_repeat_a_waiter(
    steps: list[tuple[tuple[str, ...], float, str]],
) -> None:
    queue: FairQueue[int] = FairQueue()
    waiting: dict[int, int] = {}
    for number, (path, cost, what) in enumerate(steps):
        if what == "push":
            waiting[number] = queue.push(path, (0.0,), cost, number)
        elif what == "correct":
            queue.correct(path, cost - 5.0)
        elif waiting and what == "pop":
            del waiting[serve(queue)]
        elif waiting:
            leaver = min(waiting)
            assert queue.remove(waiting.pop(leaver)) == leaver
        assert queue.peek(1) == ([queue.head()] if waiting else [])
        assert len(queue.waiters) == len(waiting)
    while waiting:
        del waiting[serve(queue)]
    assert not queue._root.children
