"""A count of tokens that is never too low for the simulated provider, nor for real vocabularies."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from headway.plans.fan_in import cut_at_tokens, tokens_at_most
from headway.sim.truth import count

TEXTS = Path(__file__).parents[1] / "data" / "tokens" / "texts.json.gz"
CLOSE = st.text(st.sampled_from('aaZZ09 _\n\t\r.{"é漢한٣½\u0301😀\xa0\u2028'), max_size=40)


@given(st.one_of(st.text(max_size=60), CLOSE))
@settings(max_examples=400)
def test_it_is_between_the_simulated_count_and_the_bytes(text: str) -> None:
    assert count(text) <= tokens_at_most(text) <= len(text.encode("utf-8", "surrogatepass"))


@given(CLOSE, CLOSE)
@settings(max_examples=400)
def test_texts_joined_are_not_more_than_apart(one: str, other: str) -> None:
    assert tokens_at_most(one + other) <= tokens_at_most(one) + tokens_at_most(other)


def test_real_vocabularies_count_less() -> None:
    for text in json.loads(gzip.decompress(TEXTS.read_bytes())):
        for name in ("claude2", "o200k"):
            assert tokens_at_most(text["text"]) >= text["tokens"][name]


def test_a_small_vocabulary_may_need_a_quarter_more_for_what_it_hardly_knows() -> None:
    for text in json.loads(gzip.decompress(TEXTS.read_bytes())):
        most = (1.26 if text["kind"] == "korean" else 1.0) * tokens_at_most(text["text"])
        assert most >= text["tokens"]["smollm2"]


@given(st.one_of(st.text(max_size=80), CLOSE), st.integers(3, 9))
def test_a_text_can_be_cut_anywhere_and_nothing_is_lost(text: str, most: int) -> None:
    pieces = cut_at_tokens(text, most)
    assert "".join(pieces) == text
    assert all(tokens_at_most(piece) <= most for piece in pieces)
