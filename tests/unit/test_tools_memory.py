"""What a loop remembers is found again for exactly the conversation that it belongs to."""

from __future__ import annotations

import asyncio

from hypothesis import given
from hypothesis import strategies as st

from headway.agents.toolloop import ENTRIES_MAX, LoopMemory
from tests.unit.attempts import Told


async def turn(memory: LoopMemory, reply: bytes, uses: list[str]) -> tuple[int, int]:
    """One turn, in which every tool is doubtful: what was paid and what was done anew."""
    paid = done = 0
    found = memory.reply()
    if found is None:
        found, paid = reply, 1
    await memory.replied(found, is_new=bool(paid))
    texts: list[str] = []
    for number, use in enumerate(uses):
        text = memory.observed(number)
        if text is None and memory.is_in_doubt(number):
            text = "in doubt"
            await memory.observe(number, text, is_doubtful=True)
        elif text is None:
            await memory.begin(number, range(len(uses)))
            text, done = use, done + 1
            await memory.observe(number, text, is_doubtful=True)
        texts.append(text)
    await memory.observed_all(texts)
    return paid, done


Script = list[list[str]]
scripts = st.lists(st.lists(st.sampled_from("abc"), max_size=4), min_size=1, max_size=6)


async def played(told: Told, script: Script, turns: int = 6) -> tuple[int, int]:
    memory = LoopMemory(told.attempt(kept=tuple(told.kept)), b"start", turns)
    paid = done = 0
    for number, uses in enumerate(script):
        more = await turn(memory, b"reply %d" % number, uses)
        paid, done = paid + more[0], done + more[1]
    return paid, done


@given(scripts, st.data())
def test_after_an_interruption_nothing_is_paid_or_done_twice(
    script: Script, data: st.DataObject
) -> None:
    first = Told()
    paid, done = asyncio.run(played(first, script))
    assert (paid, done) == (len(script), sum(map(len, script)))
    cut = data.draw(st.integers(0, len(first.kept)))
    kept = first.kept[:cut]
    again = Told(kept=list(kept))
    paid, done = asyncio.run(played(again, script))
    replies = sum(entry[:1] == b"r" for entry in kept)
    begun = sum(entry[:1] == b"b" for entry in kept)
    assert paid == len(script) - replies
    assert done == sum(map(len, script)) - begun
    if cut == len(first.kept):
        assert again.kept == first.kept


def test_a_loop_as_long_as_it_may_be_has_room_for_every_turn() -> None:
    told = Told()
    turns = 50
    paid, done = asyncio.run(played(told, [["a"] * 9] * turns, turns))
    assert (paid, done) == (turns, 9 * turns)
    assert len(told.kept) <= ENTRIES_MAX
    again = asyncio.run(played(told, [["a"] * 9] * turns, turns))
    assert again == (0, 0)
