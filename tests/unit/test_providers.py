"""A provider shares its speed, charges what it produces, and fails the way it was told to."""

from __future__ import annotations

from math import inf
from typing import Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headway.base.values import Charging, Fault, Limit
from headway.sim.account import Needs, Terms
from headway.sim.draw import Neighbour
from headway.sim.provider import (
    FaultModel,
    FirstByte,
    Happening,
    Latency,
    Provider,
    ProviderSpec,
    Refused,
    SimulatedCall,
    SimulatedEnd,
    StreamProgress,
)

BRISK = Latency(first_byte_s=1.0, per_output_token_s=0.1)


def _provider(
    *limits: Limit,
    latency: Latency = BRISK,
    faults: FaultModel = FaultModel(),
    charging: Charging = "produced",
    seed: int = 1,
) -> Provider:
    return Provider(ProviderSpec("fake", Terms(limits, charging=charging), latency, faults), seed)


def _call(number: int, output_tokens: float = 10.0) -> SimulatedCall:
    return SimulatedCall(number, 100.0, output_tokens, 50.0)


def _live(provider: Provider, until_s: float = inf) -> list[tuple[float, Happening]]:
    """Everything up to a time, each with when it happened."""
    lived = []
    while (at := provider.next_s()) <= until_s and at < inf:
        lived += [(at, happening) for happening in provider.advance(at)]
    if until_s < inf:
        assert provider.advance(until_s) == []
    return lived


def _ends(lived: list[tuple[float, Happening]]) -> dict[int, float]:
    return {it.call_id: at for at, it in lived if isinstance(it, SimulatedEnd)}


def _refusal(answer: Refused | None) -> Fault:
    assert isinstance(answer, Refused)
    assert answer.reading.retry_after_s == answer.fault.retry_after_s
    return answer.fault


@pytest.mark.parametrize("calls", [1, 2])
def test_calls_take_as_long_as_the_scalability_law_says(calls: int) -> None:
    latency = Latency(1.0, 0.1, sigma=0.5, kappa=0.1, background=1)
    provider = _provider(Limit("input", 600.0), latency=latency)
    for number in range(calls):
        assert provider.submit(_call(number), 0.0) is None
    lived = _live(provider)
    first = lived[0][1]
    assert isinstance(first, FirstByte)
    assert first.reading.limits[0].remaining == 500.0
    # Alone two seconds; the slowdown of n is 1 + 0.5 (n - 1) + 0.1 n (n - 1), others included.
    slowed_s = 2.0 * {1: 1.7, 2: 2.6}[calls]
    assert list(_ends(lived).values()) == pytest.approx([slowed_s] * calls)


def test_streams_show_every_tenth_token_to_the_hundredth_and_then_as_they_double() -> None:
    provider = _provider()
    provider.shows_progress = True
    provider.submit(_call(1, 450.0), 0.0)
    shown = {it.output_tokens: at for at, it in _live(provider) if isinstance(it, StreamProgress)}
    assert list(shown) == [*range(10, 101, 10), 200, 400]
    assert all(at == pytest.approx(1.0 + 0.1 * tokens) for tokens, at in shown.items())


@pytest.mark.parametrize(
    ("advice", "wait_s"), [("honest", 6.0), ("misleading", 60.0), ("none", None)]
)
def test_a_refusal_gives_the_advice_that_the_fault_model_has(
    advice: Literal["honest", "none", "misleading"], wait_s: float | None
) -> None:
    provider = _provider(Limit("requests", 1.0, 10.0), faults=FaultModel(retry_after=advice))
    provider.submit(_call(1), 0.0)
    provider.advance(4.0)
    assert _refusal(provider.submit(_call(2), 4.0)).retry_after_s == wait_s
    provider.advance(10.0)
    assert provider.submit(_call(2), 10.0) is None


def test_an_outage_refuses_every_call_from_its_begin_to_before_its_end() -> None:
    provider = _provider(faults=FaultModel(outages=((5.0, 10.0),)))
    answers = []
    for number, now in enumerate((4.9, 5.0, 9.9, 10.0)):
        provider.advance(now)
        answers.append(provider.submit(_call(number), now))
    assert [answer is None for answer in answers] == [True, False, False, True]
    assert _refusal(answers[1]).kind == "overload"


def test_a_share_of_calls_fails_and_a_limit_comes_first() -> None:
    provider = _provider(faults=FaultModel(share=0.5, kinds=("server",)))
    answers = [provider.submit(_call(number), 0.0) for number in range(200)]
    refused = [_refusal(answer) for answer in answers if isinstance(answer, Refused)]
    assert 70 < len(refused) < 130
    assert set(refused) == {Fault("server", None, None, "drawn")}
    limited = _provider(Limit("input", 1.0), faults=FaultModel(share=1.0, kinds=("server",)))
    limited.account().admit(Needs(100.0, 0.0), 0.0, "x")
    assert _refusal(limited.submit(_call(1), 0.0)).kind == "rate"


def test_a_broken_stream_begins_and_ends_early_with_a_fault() -> None:
    provider = _provider(faults=FaultModel(share=1.0, kinds=("broken",)))
    assert provider.submit(_call(1, 1000.0), 0.0) is None
    (_, first), (ended_s, ended) = _live(provider)
    assert isinstance(first, FirstByte)
    assert isinstance(ended, SimulatedEnd)
    assert ended.fault == Fault("broken", None, None, "stream cut")
    assert 0.0 <= ended.output_tokens < 1000.0
    assert ended_s == pytest.approx(1.0 + 0.1 * ended.output_tokens)


def test_a_call_that_hangs_keeps_its_slot_until_the_caller_hangs_up() -> None:
    slots = Limit("concurrency", 1.0, 0.0, "gauge")
    provider = _provider(slots, faults=FaultModel(hang_share=1.0))
    assert provider.submit(_call(1), 0.0) is None
    assert provider.next_s() == inf
    assert provider.advance(1000.0) == []
    assert _refusal(provider.submit(_call(2), 1000.0)).kind == "concurrency"
    assert provider.cancel(1, 1000.0) == SimulatedEnd(1, 100.0, 0.0, Fault("timeout"))
    assert provider.submit(_call(2), 1000.0) is None


def test_what_a_cancelled_stream_produced_stays_charged() -> None:
    provider = _provider(Limit("output", 600.0, 60.0, "sliding"))
    provider.submit(_call(1, 100.0), 0.0)
    _live(provider, 3.0)
    ended = provider.cancel(1, 3.0)
    assert ended is not None
    assert ended.output_tokens == pytest.approx(20.0)
    assert provider.account().readings(3.0)[0].remaining == pytest.approx(580.0)
    assert provider.cancel(1, 3.0) is None
    assert provider.next_s() == inf
    assert provider.account().readings(30.0)[0].remaining == pytest.approx(580.0)


def test_each_key_has_its_own_account_and_all_share_one_speed() -> None:
    provider = _provider(Limit("requests", 1.0), latency=Latency(1.0, 0.1, sigma=1.0))
    assert provider.submit(_call(1), 0.0, "a") is None
    assert provider.submit(_call(2), 0.0, "b") is None
    assert isinstance(provider.submit(_call(3), 0.0, "a"), Refused)
    assert _ends(_live(provider)) == pytest.approx({1: 4.0, 2: 4.0})
    assert provider.account("a") is not provider.account("b")
    produced = [line for line in provider.account("a").log if line.resource == "output"]
    assert sum(line.amount for line in produced) == pytest.approx(10.0)
    assert provider.account().log == []


def test_neighbours_and_changed_limits_happen_in_their_own_time() -> None:
    terms = Terms((Limit("input", 600.0),), changes=((2.5, 0.5),), neighbour=Neighbour(share=0.4))
    provider = Provider(ProviderSpec("fake", terms, BRISK), 1)
    assert provider.advance(4.0) == []
    taken = [(line.from_s, line.amount) for line in provider.account().log]
    assert taken == [(0.0, 4.0), (1.0, 4.0), (2.0, 4.0), (3.0, 2.0), (4.0, 2.0)]


@given(seed=st.integers(0, 2**32), sizes=st.lists(st.integers(0, 60), min_size=1, max_size=15))
@settings(max_examples=25)
def test_the_same_calls_and_seed_give_the_same_log_to_the_bit(seed: int, sizes: list[int]) -> None:
    faults = FaultModel(share=0.3, hang_share=0.1)
    logs = []
    for _ in range(2):
        provider = _provider(
            Limit("requests", 30.0), latency=Latency(1.0, 0.1, 0.1, 0.01), faults=faults, seed=seed
        )
        lived: list[tuple[float, Happening]] = []
        for number, size in enumerate(sizes):
            lived += _live(provider, 0.7 * number)
            provider.submit(_call(number, float(size)), 0.7 * number)
        lived += _live(provider)
        logs.append((lived, provider.arrivals, provider.account().log))
    assert logs[0] == logs[1]
    begun = {it.call_id for _, it in logs[0][0] if isinstance(it, FirstByte)}
    assert begun == set(_ends(logs[0][0]))


def test_a_provider_on_wall_time_ends_its_calls() -> None:
    """At 1.7e9 s a float step is longer than the last bit of work: it must not be waited for."""
    provider = Provider(ProviderSpec("wall"), 1, 1.7e9)
    provider.submit(SimulatedCall(1, 10, 100, 200), 1.7e9)
    assert isinstance(provider.advance(1.7e9 + 10)[-1], SimulatedEnd)
