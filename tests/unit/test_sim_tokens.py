"""Tokens of the simulated provider: deterministic, lossless, and not proportional to bytes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from headway.sim.truth import TURN_TOKENS, count, filler, input_tokens, pieces_of
from headway.wire.values import Conversation


@given(st.text(max_size=300))
def test_tokens_joined_are_the_text(text: str) -> None:
    assert "".join(pieces_of(text)) == text
    assert count(text) == len(pieces_of(text))


@given(st.integers(0, 500), st.integers(0, 2**32))
def test_filler_has_as_many_tokens_as_was_asked_for(tokens: int, start: int) -> None:
    words = filler(tokens, start)
    assert len(words) == tokens
    assert pieces_of("".join(words)) == words


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("", 0),
        ("the cat", 2),
        ("internationalization", 3),
        ("1234567", 3),
        ("안녕하세요", 5),
        ("漢字 かな", 4),
        ("a == b;", 5),
        ("line\n\n\nline", 3),
        ("Привет", 2),
    ],
)
def test_what_a_token_is(text: str, tokens: int) -> None:
    assert count(text) == tokens


def test_input_counts_every_turn_and_its_marks() -> None:
    one = Conversation("m", "", (("user", "the cat"),), False, None)
    two = Conversation("m", "be kind", (("user", "the cat"), ("assistant", "yes")), False, None)
    assert input_tokens(one) == 2 + TURN_TOKENS + 1
    assert input_tokens(two) == 2 + 2 + 1 + 2 + 3 * TURN_TOKENS
    assert input_tokens(replace(one, media_bytes=5000)) == input_tokens(one) + 1500
