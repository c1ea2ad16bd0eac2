"""Ways rehearsed: sizes are what was said, one agent reads once, many agents are continued."""

from __future__ import annotations

from math import inf

import pytest
from msgspec.structs import replace

from headway.report.options import (
    ADAPTIVE,
    ONE,
    AccountGuess,
    Situation,
    Way,
    described_account,
    option_of,
    rehearsed,
    work_of,
)
from headway.sim.account import Terms
from headway.sim.presets import PROVIDERS
from headway.sim.provider import FaultModel, ProviderSpec

TRAP = described_account(PROVIDERS["trap"].spec)
WIDE = described_account(PROVIDERS["wide"].spec)
TRAPPED = Situation(22, 6_400.0, 400.0, common=0.2)

CPU_S_MAX = 10.0
"""About one on a quiet machine."""


def sums(work: object) -> tuple[float, float, int]:
    calls = [call for mine in work.calls for call in mine]  # type: ignore[attr-defined]
    tokens_in = sum(call.input_tokens for call in calls)
    return tokens_in, sum(call.output_tokens for call in calls), len(calls)


def test_agents_differ_and_all_together_take_what_was_said() -> None:
    situation = Situation(agents=5, calls_each=3)
    tokens_in, tokens_out, calls = sums(work_of(situation, ADAPTIVE, 7))
    assert tokens_in + tokens_out == pytest.approx(5 * 17_000.0)
    assert tokens_out == pytest.approx(5 * situation.output_each)
    assert calls == 15
    inputs = [mine[0].input_tokens for mine in work_of(situation, ADAPTIVE, 7).calls]
    assert len(set(inputs)) == 5
    assert min(inputs) > situation.common_tokens


def test_one_agent_reads_once_what_all_need_and_makes_the_same_calls_in_a_row() -> None:
    situation = Situation(agents=5, calls_each=3)
    work = work_of(situation, ONE, 7)
    assert len(work.calls) == 1
    tokens_in, tokens_out, calls = sums(work)
    assert tokens_in + tokens_out == pytest.approx(11_000 + 5 * 6_000)
    assert calls == 15
    several = work_of(situation, ADAPTIVE, 7)
    assert [call.output_tokens for call in work.calls[0]] == [
        call.output_tokens for mine in several.calls for call in mine
    ]


def test_every_way_is_between_its_ends_and_no_faster_than_the_bound() -> None:
    situation = replace(TRAPPED, agents=9)
    for way in (ONE, ADAPTIVE):
        found = option_of(situation, TRAP, way)
        spread = found.foreseen.time_s
        assert spread.low < spread.mid < spread.high
        assert spread.mid >= 0.999 * found.foreseen.bound_s
        assert found.foreseen.refused < 0.05 * found.foreseen.calls.mid
        assert found.foreseen.microusd is None
    assert found.way == "adaptive"


def test_several_are_faster_where_there_is_room_and_read_more() -> None:
    one, several = (option_of(Situation(12), WIDE, way) for way in (ONE, ADAPTIVE))
    assert one.time_s > 4 * several.time_s
    assert one.tokens < 0.5 * several.tokens


@pytest.mark.parametrize("name", ["trap", "wide"])
@pytest.mark.parametrize("way", [ADAPTIVE, ONE])
def test_what_is_continued_as_a_line_is_near_what_a_whole_rehearsal_gives(
    name: str, way: Way
) -> None:
    account = described_account(PROVIDERS[name].spec)
    situation = Situation(64, 6_000.0, 200.0, common=0.3)
    found = option_of(situation, account, way)
    whole = rehearsed(work_of(situation, way), account)
    assert found.time_s == pytest.approx(whole.makespan_s, rel=0.2)
    assert found.tokens == pytest.approx(sum(sums(work_of(situation, way))[:2]))
    spread = found.foreseen.time_s
    assert spread.low < spread.mid < spread.high


def test_a_way_that_loses_a_task_never_ends() -> None:
    spec = ProviderSpec("broken", Terms(), faults=FaultModel(1.0, ("request",)))
    found = option_of(Situation(2), AccountGuess(spec), ADAPTIVE)
    assert found.time_s == inf
