"""Workloads: what a seed picks, what really happens and what a user could know beforehand."""

from __future__ import annotations

from headway.sim.rehearsal import Workload, WorkloadSpec, draw_workload

VARIED = WorkloadSpec(
    "varied", 400, input_spread=0.8, output_spread=0.6, output_follows=0.5, luck_spread=0.2,
    input_error=0.1,
)  # fmt: skip


def _outputs(workload: Workload) -> list[float]:
    return [call.output_tokens for calls in workload.calls for call in calls]


def test_without_spread_all_calls_are_alike_and_known_exactly() -> None:
    workload = draw_workload(WorkloadSpec("alike", 5, calls=2), 1)
    assert len(workload.calls) == 5
    for task, calls in zip(workload.graph.tasks, workload.calls, strict=True):
        assert len(task.calls) == len(calls) == 2
        for demand, call in zip(task.calls, calls, strict=True):
            assert (call.input_tokens, call.output_tokens, call.luck) == (2000.0, 400.0, 1.0)
            assert demand.expected.input_tokens == demand.ceiling.input_tokens == 2000.0
            assert demand.expected.output_tokens == 400.0
            assert demand.ceiling.output_tokens == call.max_tokens
            assert demand.kind == task.kind == workload.name == "alike"


def test_no_answer_is_longer_than_max_tokens_nor_empty() -> None:
    long = draw_workload(WorkloadSpec("long", 50, output_tokens=5000.0, max_tokens=1000.0), 1)
    assert set(_outputs(long)) == {1000.0}
    assert all(t.calls[0].expected.output_tokens == 1000.0 for t in long.graph.tasks)
    short = draw_workload(WorkloadSpec("short", 50, output_tokens=0.1), 1)
    assert set(_outputs(short)) == {1.0}


def test_each_task_of_a_layer_needs_one_or_two_of_the_layer_before() -> None:
    workload = draw_workload(WorkloadSpec("layers", 30, shape="layers"), 4)
    width = 5
    for task, needs in enumerate(workload.needs):
        layer = task // width
        assert len(needs) in ((0,) if layer == 0 else (1, 2))
        assert all(need // width == layer - 1 for need in needs)


def test_a_diamond_is_a_chain_beside_leaves_joined_at_the_end() -> None:
    workload = draw_workload(WorkloadSpec("diamond", 16, shape="diamond"), 1)
    assert [tuple(needs) for needs in workload.needs[:4]] == [(), (0,), (1,), (2,)]
    assert all(not needs for needs in workload.needs[4:15])
    assert tuple(workload.needs[15]) == tuple(range(15))
