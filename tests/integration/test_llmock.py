"""llmock judges: 200 unique calls through `pace`, no fault found, in the time its limits take."""

from __future__ import annotations

import asyncio

import pytest

from bench.servers import Llmock, is_here, llmock, verdict
from tests.integration.paced_calls import Wire, prompts, send_all

pytestmark = pytest.mark.skipif(not is_here("llmock"), reason="llmock is not installed")

CALLS = 200
MAX_TOKENS = 60
LATENCY_MS = 100
LIMITS = Llmock(rpm=170, tpm=28_000, latency_ms=LATENCY_MS)
SLACK = 1.2
"""A quiet machine needs 1.02; what a busy one adds is not the pacing's."""


def least_s(sizes: list[int], limits: Llmock) -> float:
    """Both buckets begin full with a minute's worth and refill all the time; nothing comes back.

    A call is charged a quarter of its body's bytes and its `max_tokens`.
    """
    assert limits.rpm is not None
    assert limits.tpm is not None
    tokens = sum(max(1, size // 4) + MAX_TOKENS for size in sizes)
    refills_s = (60.0 * (tokens / limits.tpm - 1.0), 60.0 * (len(sizes) / limits.rpm - 1.0))
    return max(0.0, *refills_s) + LATENCY_MS / 1000.0


@pytest.mark.parametrize("wire", ["openai", "anthropic"])
@pytest.mark.parametrize("is_tight", [False, pytest.param(True, marks=pytest.mark.soak)])
def test_calls_please_the_judge_and_take_no_longer_than_they_must(
    wire: Wire, is_tight: bool
) -> None:
    limits = LIMITS if is_tight else Llmock(rpm=10_000, tpm=1_000_000, latency_ms=10)
    calls = CALLS if is_tight else 20
    with llmock(limits) as url:
        texts = prompts(calls, (30, 90), wire)
        sent = asyncio.run(send_all(wire, url, texts, MAX_TOKENS))
        found = verdict(url)
        assert found["calls"] == len(sent.sizes) == calls
        assert (found["errors"], found["warnings"]) == (0, 0), verdict(url, "text")
    if is_tight:
        least = least_s(sent.sizes, LIMITS)
        assert 8.0 < least < 25.0
        took = f"{sent.makespan_s:.1f} s for {least:.1f} s: {sent.refused}"
        assert sent.makespan_s <= SLACK * least, took
