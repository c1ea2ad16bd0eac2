"""What holds for every reduction: all of it is read once, in order, in calls that fit."""

from __future__ import annotations

import re
from collections.abc import Iterator
from json import dumps
from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import given, settings
from hypothesis import strategies as st

from headway.engine.reduction import pieces_of
from headway.plans.fan_in import CALL_TOKENS, tokens_at_most
from headway.sim.truth import TURN_TOKENS, count
from tests.unit.reduced import Model, Played, play

CONTEXTS = st.sampled_from([(1_200, 100), (2_000, 250), (4_000, 300), (8_000, 1_000)])
SIZES = st.one_of(st.integers(0, 40), st.integers(0, 1_500))
LEAVES = st.lists(SIZES, min_size=1, max_size=40)
SECTION = re.compile(r"probe\[i(\d+)\](?: \(part (\d+) of (\d+)\))?\n(.*)", re.DOTALL)


def text_of(number: int, words: int) -> str:
    """A text of its own, in lines and paragraphs."""
    return "".join(
        f"w{number} word{n}" + ("\n\n" if n % 31 == 30 else "\n" if n % 7 == 6 else " ")
        for n in range(words)
    )


def played(leaves: list[str], context: int, max_tokens: int, shuffle: int | None = None) -> Played:
    with TemporaryDirectory() as folder:
        more = f"    context: {context}\n    max_tokens: {max_tokens}"
        return play(Path(folder), leaves, more, Model(max_tokens // 3), shuffle)


def read_in(texts: list[str]) -> Iterator[tuple[int, int, int, str]]:
    """Of each result that a call read itself: its number, piece, pieces and text."""
    for text in texts:
        for section in text.split("\n\n## ")[1:]:
            if found := SECTION.fullmatch(section):
                yield int(found[1]), int(found[2] or 1), int(found[3] or 1), found[4]


@given(LEAVES, CONTEXTS)
@settings(max_examples=60, deadline=None)
def test_every_result_is_read_once_whole_in_order_in_calls_that_fit(
    sizes: list[int], limits: tuple[int, int]
) -> None:
    context, max_tokens = limits
    leaves = [text_of(number, words) for number, words in enumerate(sizes)]
    found = played(leaves, context, max_tokens)
    for call in found.asked:
        assert (call.max_tokens or 0) <= max_tokens
        assert tokens_at_most(call.prompt) + CALL_TOKENS + max_tokens <= context
        assert count(call.prompt) + TURN_TOKENS + max_tokens <= context
    pieces: dict[int, list[tuple[int, int, str]]] = {}
    for number, piece, of, text in read_in(found.texts):
        pieces.setdefault(number, []).append((piece, of, text))
    assert sorted(pieces) == list(range(len(leaves)))
    for number, parts in pieces.items():
        parts.sort()
        assert [piece for piece, _, _ in parts] == list(range(1, parts[0][1] + 1))
        assert "".join(text for _, _, text in parts) == leaves[number]
    for text in found.texts:
        order = [(number, piece) for number, piece, _, _ in read_in([text])]
        assert order == sorted(order)


@given(LEAVES, CONTEXTS, st.data())
@settings(max_examples=40, deadline=None)
def test_one_changed_result_changes_the_calls_on_its_path_alone(
    sizes: list[int], limits: tuple[int, int], data: st.DataObject
) -> None:
    leaves = [text_of(number, words) for number, words in enumerate(sizes)]
    changed = data.draw(st.integers(0, len(leaves) - 1))
    if not leaves[changed]:
        return
    before = played(leaves, *limits)
    leaves[changed] = "x" + leaves[changed][1:]  # As long, and as many tokens.
    after = played(leaves, *limits)
    assert len(before.texts) == len(after.texts)
    others = set(before.texts) ^ set(after.texts)
    assert len(others) <= 2 * before.depth()
    bodies = [name for name in before.bodies if before.bodies[name] != after.bodies[name]]
    levels = [name.partition("[")[0] for name in bodies]
    assert len(levels) == len(set(levels)), "one node of each level"


@given(LEAVES, CONTEXTS, st.integers(0, 9))
@settings(max_examples=20, deadline=None)
def test_the_shape_does_not_depend_on_who_is_first(
    sizes: list[int], limits: tuple[int, int], seed: int
) -> None:
    leaves = [text_of(number, words) for number, words in enumerate(sizes)]
    one, other = played(leaves, *limits), played(leaves, *limits, seed)
    assert (one.bodies, one.result) == (other.bodies, other.result)


JSON = st.recursive(
    st.one_of(st.integers(), st.text(max_size=12), st.none()),
    lambda inner: st.one_of(
        st.lists(inner, max_size=8), st.dictionaries(st.text(max_size=5), inner, max_size=6)
    ),
    max_leaves=40,
)
TEXTS = st.one_of(
    st.text(max_size=300),
    st.text(st.sampled_from('ab. \n\n#,{}[]"漢!?'), max_size=300),
    JSON.map(dumps),
    JSON.map(lambda value: dumps(value, indent=1, ensure_ascii=False)),
)


@given(TEXTS, st.integers(1, 60))
@settings(max_examples=300)
def test_pieces_joined_are_the_text_and_every_piece_fits(text: str, most: int) -> None:
    pieces = pieces_of(text, most)
    assert "".join(pieces) == text
    assert all(tokens_at_most(piece) <= max(4, most) for piece in pieces)
    assert pieces == pieces_of(text, most)
