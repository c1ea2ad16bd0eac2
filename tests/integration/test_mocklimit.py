"""Windows of every kind, as mocklimit enforces them: 200 calls, hardly a refusal, in time."""

from __future__ import annotations

import asyncio
from time import monotonic

import pytest

from bench.servers import Mocklimit, WindowKind, is_here, mocklimit, refused_by_mocklimit
from tests.integration.paced_calls import prompts, send_all

pytestmark = [
    pytest.mark.soak,
    pytest.mark.skipif(not is_here("mocklimit"), reason="mocklimit is not installed"),
]

CALLS = 200
MAX_TOKENS = 50
REQUESTS = 150
TOKENS = 100_000
"""More than all calls need: a token limit that is never reached."""

EDGE_S = 16.0
"""When the fixed window opens again, after the server's start."""

LATENCY_S = 0.09
SLACK = 1.2
"""A quiet machine needs 1.02; what a busy one adds is not the pacing's."""
REFUSED_MAX = 40
"""A quiet machine has none; on a busy one calls arrive in another order than they were sent."""

REFUSED_MAX_SLIDING = 200
"""What OpenAI's headers say cannot tell a sliding window from a bucket: one refusal per call."""


@pytest.mark.parametrize(
    ("kind", "least_s"),
    [
        # It begins full and refills all the time.
        ("bucket", (CALLS - REQUESTS) * 60.0 / REQUESTS),
        ("fixed", EDGE_S),
        ("sliding", 60.0),
    ],
)
def test_a_window_is_used_as_soon_as_it_has_room(kind: WindowKind, least_s: float) -> None:
    limits = Mocklimit(kind, REQUESTS, TOKENS, edge_s=EDGE_S if kind == "fixed" else None)
    began_s = monotonic()
    with mocklimit(limits) as url:
        texts = prompts(CALLS, (20, 60), kind)
        sent = asyncio.run(send_all("openai", url, texts, MAX_TOKENS))
        # Refusals are as mocklimit counts.
        assert refused_by_mocklimit(url) == (CALLS + sent.refused, sent.refused)
    assert len(sent.sizes) == CALLS
    assert sent.refused <= (REFUSED_MAX_SLIDING if kind == "sliding" else REFUSED_MAX)
    least_s += LATENCY_S - (sent.first_s - began_s if kind == "fixed" else 0.0)
    assert least_s > 10.0
    assert sent.makespan_s <= SLACK * least_s, f"{sent.makespan_s:.1f} s for {least_s:.1f} s"
