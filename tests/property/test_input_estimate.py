"""Input estimates are held to real vocabularies: texts with exact counts, kinds found by itself."""

from __future__ import annotations

import gzip
import json
import random
from collections.abc import Iterable, Iterator
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Struct

from headway.pacing.estimate import InputRatio
from headway.wire.read import sketch
from headway.wire.request import content_kind
from headway.wire.values import EXACT_BYTES_MAX, Route, weighed_bytes

DATA = Path(__file__).resolve().parent.parent / "data" / "tokens" / "texts.json.gz"
KINDS = ("english", "code", "korean")
LEARNED = 20
"""Calls of a kind before its estimates count."""

SYSTEM = "You answer briefly."


class Text(Struct, frozen=True):
    """A text and what it is worth."""

    kind: str
    text: str
    tokens: dict[str, int]
    turns: int
    chat_tokens: int


TEXTS = [Text(**row) for row in json.loads(gzip.decompress(DATA.read_bytes()))]


class Input(Struct, frozen=True):
    """An input as the estimator sees it, and the truth."""

    kind: str
    content: str
    size_bytes: int
    messages: int
    tokens: int


def errors(inputs: Iterable[Input]) -> dict[str, float]:
    """The mean error of each kind's estimates, each made before the truth was told."""
    ratio = InputRatio()
    found: dict[str, list[float]] = {}
    for one in inputs:
        seen = ("model", one.content, one.size_bytes)
        estimate = ratio.estimate(*seen, one.messages)
        found.setdefault(one.kind, []).append(abs(estimate / one.tokens - 1.0))
        ratio.observe(*seen, one.tokens, one.messages)
    return {kind: sum(late := each[LEARNED:]) / len(late) for kind, each in found.items()}


def plain(texts: Iterable[Text], vocabulary: str) -> Iterator[Input]:
    for text in texts:
        content = content_kind([text.text])
        size = weighed_bytes(text.text, content)
        yield Input(text.kind, content, size, 1, text.tokens[vocabulary])


def chats(texts: Iterable[Text]) -> Iterator[Input]:
    """The same texts as requests, read from the wire."""
    for text in texts:
        lines = text.text.splitlines(keepends=True)
        cuts = [len(lines) * place // text.turns for place in range(text.turns + 1)]
        messages = [
            {"role": ("user", "assistant")[place % 2], "content": "".join(lines[one:two])}
            for place, (one, two) in enumerate(pairwise(cuts))
        ]
        body = {"model": "m", "max_tokens": 1, "system": SYSTEM, "messages": messages}
        seen = sketch(Route("anthropic"), json.dumps(body).encode())
        yield Input(text.kind, seen.content, seen.size_bytes, seen.messages, text.chat_tokens)


def shuffled() -> list[Text]:
    return random.Random("one stream").sample(TEXTS, len(TEXTS))


@pytest.mark.parametrize("kind", KINDS)
def test_inputs_of_a_kind_are_estimated_to_5_percent_after_20_calls(kind: str) -> None:
    texts = [text for text in TEXTS if text.kind == kind]
    assert len(texts) == 60
    assert errors(plain(texts, "smollm2"))[kind] <= 0.05


def test_inputs_of_all_kinds_in_one_stream_are_estimated_to_5_percent() -> None:
    found = errors(plain(shuffled(), "smollm2"))
    assert max(found.values()) <= 0.05, found


def test_chats_of_all_kinds_in_one_stream_are_estimated_to_5_percent() -> None:
    found = errors(chats(shuffled()))
    assert max(found.values()) <= 0.05, found


@pytest.mark.parametrize(("vocabulary", "korean"), [("o200k", 0.09), ("claude2", 0.06)])
def test_other_vocabularies_are_estimated_nearly_as_well(vocabulary: str, korean: float) -> None:
    found = errors(plain(shuffled(), vocabulary))
    assert max(found["english"], found["code"]) <= 0.06, found
    assert found["korean"] <= korean, found


@given(st.text(max_size=200), st.text(max_size=200), st.sampled_from([*KINDS, "cjk", "other"]))
def test_no_text_weighs_less_than_its_parts_with_a_piece_cut_in_two(
    one: str, two: str, kind: str
) -> None:
    together = weighed_bytes(one + two, kind)
    apart = weighed_bytes(one, kind) + weighed_bytes(two, kind)
    assert 0 <= together <= apart + 9
    assert apart <= together + 9


def test_a_long_text_is_taken_to_be_like_its_middle() -> None:
    line = "the quick brown fox jumps over the lazy dog\n"
    once = weighed_bytes(line * 100, "english")
    many = EXACT_BYTES_MAX // len(line) + 1000
    assert weighed_bytes(line * many, "english") == pytest.approx(once * many / 100, rel=0.01)
