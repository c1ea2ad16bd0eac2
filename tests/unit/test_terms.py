"""Which models share limits, and records that mean something by default."""

from __future__ import annotations

import pytest

from headway.pacing.memory import model_group


@pytest.mark.parametrize(
    ("model", "group"),
    [
        ("claude-sonnet-4-5-20250929", "claude-sonnet-4"),
        ("claude-sonnet-4-20250514", "claude-sonnet-4"),
        ("claude-3-5-haiku-latest", "claude-haiku-3"),
        ("claude-3-opus@20240229", "claude-opus-3"),
        ("us.anthropic.claude-sonnet-4-20250514-v1:0", "claude-sonnet-4"),
        ("anthropic/claude-opus-4.1", "claude-opus-4"),
        ("claude-haiku", "claude-haiku"),
        ("gpt-4o-2024-08-06", "gpt-4o"),
        ("GPT-4o", "gpt-4o"),
        ("models/gemini-2.5-pro", "gemini-2.5-pro"),
        ("", ""),
    ],
)
def test_versions_of_one_model_share_their_limits(model: str, group: str) -> None:
    assert model_group(model) == group
