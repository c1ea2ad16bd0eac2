"""In which order the calls of one flow go, whatever conversations they belong to."""

from __future__ import annotations

import heapq
from itertools import pairwise
from math import inf

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import Struct

from headway.base.values import Limit, Reading, Sketch, Tally
from headway.pacing.admission import Admission
from headway.pacing.call import Outcome, Request
from headway.pacing.memory import AccountTerms, PacingMemory
from headway.pacing.prompt_cache import COLD_LIVES, LIVES_MAX

LIFE_S = 10.0
TURN_BYTES = 10_000


class Asked(Struct):
    """A call that waits."""

    talk: int
    turn: int
    at_s: float
    warm_until_s: float
    """When the cache forgets the conversation, as its last call was sent; `-inf` at its start."""


def sketch_of(talk: int, turn: int) -> Sketch:
    names = [(f"{talk}.{one}", TURN_BYTES * (one + 1)) for one in range(turn + 1)]
    (prefix, size_bytes), *turns = reversed(names)
    return Sketch(
        "m", size_bytes=size_bytes, max_output_tokens=10, prefix=prefix, prefix_bytes=size_bytes,
        turns=tuple(turns[:2]), keeps_s=LIFE_S,
    )  # fmt: skip


Talks = list[tuple[float, list[float]]]
"""Of each conversation its start and its pauses."""


def served(talks: Talks, service_s: float) -> list[tuple[Asked, float, list[Asked]]]:
    """Who goes when, past whom, one call at a time."""
    admission = Admission(PacingMemory(), lambda *_: None, 0.0)
    admission.configure("", AccountTerms((Limit("concurrency", 1, kind="gauge"),)), 0.0)
    asks = [(start_s, talk, 0, -inf) for talk, (start_s, _) in enumerate(talks)]
    heapq.heapify(asks)
    waiting: dict[int, Asked] = {}
    found: list[tuple[Asked, float, list[Asked]]] = []
    flying: tuple[int, Asked, float] | None = None
    now, number = 0.0, 0
    while asks or waiting or flying:
        now = max(now, min(asks[0][0] if asks else inf, flying[2] + service_s if flying else inf))
        if flying and now >= flying[2] + service_s:
            call, one, sent_s = flying
            admission.first_byte(("", call), Reading(), "anthropic", now)
            admission.settle(("", call), Outcome("used", Tally(10.0, 0.0, 10.0)), now)
            pauses_s, flying = talks[one.talk][1], None
            if one.turn < len(pauses_s):
                again_s = now + pauses_s[one.turn]
                heapq.heappush(asks, (again_s, one.talk, one.turn + 1, sent_s + LIFE_S))
        while asks and asks[0][0] <= now:
            at_s, talk, turn, warm_until_s = heapq.heappop(asks)
            number += 1
            waiting[number] = Asked(talk, turn, at_s, warm_until_s)
            request = Request("account", "anthropic", sketch_of(talk, turn), ("run",))
            admission.ask(("", number), request, now)
        for granted in admission.decide(now).grants:
            one = waiting.pop(granted.id[1])
            found.append((one, now, list(waiting.values())))
            flying = granted.id[1], one, now
    return found


pauses = st.lists(st.floats(0.0, 2.0 * LIFE_S), max_size=12)
talks = st.lists(st.tuples(st.floats(0.0, 5.0 * LIFE_S), pauses), min_size=2, max_size=8)
endless = st.integers(2, 4).map(lambda many: [(0.0, [0.1] * 300)] * many + [(20.0, [0.1])] * 5)


@settings(max_examples=60, deadline=None)
@given(talks, st.floats(0.1, LIFE_S))
def test_a_cache_that_would_be_lost_goes_before_what_has_none(
    talks: Talks, service_s: float
) -> None:
    for one, now, passed in served(talks, service_s):
        for other in passed:
            # A call is looked at again a second after it was last looked at.
            is_lost = one.warm_until_s <= now - 1.0
            due_s = one.at_s + COLD_LIVES * LIFE_S
            assert not (is_lost and now < other.warm_until_s < due_s)
            if now < one.warm_until_s and now < other.warm_until_s:
                assert one.warm_until_s <= other.warm_until_s


@settings(max_examples=10, deadline=None)
@given(endless, st.floats(0.5, 2.0))
def test_no_call_waits_behind_one_that_asks_much_later(talks: Talks, service_s: float) -> None:
    found = served(talks, service_s)
    for one, _, passed in found:
        assert all(one.at_s <= other.at_s + LIVES_MAX * LIFE_S for other in passed)
    # The conversations that begin later do so while the endless ones go on, and some lives apart.
    begun_s = [now for one, now, _ in found if one.turn == 0 and one.at_s == 20.0]
    assert begun_s[-1] < found[-1][1] - 2.0 * LIFE_S
    assert min(b - a for a, b in pairwise(begun_s)) > LIFE_S
