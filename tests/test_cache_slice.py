"""A slice of `bench/cache.py`: agents of many turns on tight limits, in virtual time."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from bench.cache import MENDED, SCENES, Measured, outlasted, rehearse


@pytest.mark.parametrize("name", ["80,000 input tokens a minute", "3 requests a minute"])
def test_conversations_go_on_while_their_cache_is_warm(name: str) -> None:
    scene = SCENES[name]
    found: dict[str, Measured] = {
        way: rehearse(scene, way) for way in ("headway", "turns", "direct")
    }
    headway, turns = found["headway"], found["turns"]
    assert headway.calls == turns.calls == scene.agents * scene.turns
    assert headway.rewritten_tokens <= 0.1 * found["direct"].rewritten_tokens
    assert headway.rewritten_tokens <= 0.01 * turns.rewritten_tokens
    assert headway.time_s <= 1.01 * turns.time_s
    assert headway.refused == 0


def test_only_tools_that_outlast_the_cache_lose_conversations() -> None:
    """A late call loses one now and then: 0.1 M tokens in the mean of twelve draws, 0.5 at most."""
    scene = MENDED["20 agents, 30 turns, tools of 60 s in the middle, 6,000 output tokens a minute"]
    lost = direct = 0
    for stream in (97, 100):
        drawn = replace(scene, tool_stream=stream)
        lost += rehearse(drawn, "headway").rewritten_tokens - outlasted(drawn)
        direct += rehearse(drawn, "direct").rewritten_tokens - outlasted(drawn)
    assert lost <= 0.1 * direct
