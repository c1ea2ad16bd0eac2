"""A slice of `bench/cache.py`: agents of many turns on tight limits, in virtual time."""

from __future__ import annotations

import pytest

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
    scene = MENDED["20 agents, 30 turns, tools of 60 s in the middle, 6,000 output tokens a minute"]
    assert rehearse(scene, "headway").rewritten_tokens <= 1.01 * outlasted(scene)
