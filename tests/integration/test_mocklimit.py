"""Windows of every kind, as mocklimit enforces them: 200 calls, hardly a refusal, in time."""

from __future__ import annotations

import asyncio
from pathlib import Path
from time import monotonic

import pytest

from bench.servers import Mocklimit, is_here, mocklimit, refused_by_mocklimit
from tests.integration.paced_calls import Sent, prompts, send_all

pytestmark = [
    pytest.mark.soak,
    pytest.mark.skipif(not is_here("mocklimit"), reason="mocklimit is not installed"),
]

CALLS = 200
MAX_TOKENS = 50
REQUESTS = 150
TOKENS = 100_000
"""More than all calls need: a token limit that is never reached."""

LATENCY_S = 0.09
SLACK = 1.2
"""A quiet machine needs 1.02; what a busy one adds is not the pacing's."""
REFUSED_MAX = 40
"""A quiet machine has none; on a busy one calls arrive in another order than they were sent."""

REFUSED_MAX_SLIDING = 200
"""What OpenAI's headers say cannot tell a sliding window from a bucket: one refusal per call."""


def paced(limits: Mocklimit, folder: Path) -> tuple[Sent, float]:
    """What was sent, and how long after the server's start; refusals are as mocklimit counts."""
    began_s = monotonic()
    with mocklimit(limits) as url:
        texts = prompts(CALLS, (20, 60), limits.kind)
        sent = asyncio.run(send_all("openai", url, texts, MAX_TOKENS, folder))
        assert refused_by_mocklimit(url) == (CALLS + sent.refused, sent.refused)
    assert len(sent.sizes) == CALLS
    assert sent.refused <= (REFUSED_MAX_SLIDING if limits.kind == "sliding" else REFUSED_MAX)
    return sent, sent.first_s - began_s


def test_a_bucket_is_used_as_it_refills(tmp_path: Path) -> None:
    sent, _ = paced(Mocklimit("bucket", REQUESTS, TOKENS), tmp_path)
    # It begins full and refills all the time.
    least_s = (CALLS - REQUESTS) * 60.0 / REQUESTS + LATENCY_S
    assert sent.makespan_s <= SLACK * least_s, f"{sent.makespan_s:.1f} s for {least_s:.1f} s"


def test_a_fixed_window_is_used_again_as_soon_as_it_opens(tmp_path: Path) -> None:
    edge_s = 16.0
    limits = Mocklimit("fixed", REQUESTS, TOKENS, edge_s=edge_s)
    sent, after_s = paced(limits, tmp_path)
    least_s = edge_s - after_s + LATENCY_S
    assert least_s > 10.0
    assert sent.makespan_s <= SLACK * least_s, f"{sent.makespan_s:.1f} s for {least_s:.1f} s"


def test_a_sliding_window_is_used_as_it_forgets(tmp_path: Path) -> None:
    sent, _ = paced(Mocklimit("sliding", REQUESTS, TOKENS), tmp_path)
    least_s = 60.0 + LATENCY_S
    assert sent.makespan_s <= SLACK * least_s, f"{sent.makespan_s:.1f} s for {least_s:.1f} s"
