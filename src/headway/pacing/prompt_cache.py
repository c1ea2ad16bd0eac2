"""What providers keep of prompts: which calls read it, who writes it, whose is about to be lost.

Laws:
- Of calls that wait with the same beginning, one writes it and the others read it.
- The calls of one flow go in the order of their deadlines. A call whose conversation is in the
  cache is due shortly before the cache forgets it, and goes first until it has; one that has
  nothing to lose, or has lost it, is due `COLD_LIVES` later than it asked; one that begins a
  conversation, so much later than the one before it.
- So a flow has no more conversations open than fill its limits, and begins one now and then.
- No call waits behind one of its flow that asks more than `LIVES_MAX` lives of the cache after it.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import inf
from typing import Final

from msgspec import Struct

from headway.base.numbers import remember
from headway.base.values import CACHE_S, Sketch
from headway.pacing.call import Beginning, Call, CallId

HURRY_SHARE: Final = 0.1
"""Of a life: a call is due so long before its cache is lost, and goes first until then."""
COLD_LIVES: Final = 3.0
"""A call that has no cache to lose gives way for a quarter of an hour. Calls that would each begin
a conversation are due as far apart: if all were due at once, more would be open than stay warm."""
GRACE_S: Final = COLD_LIVES * CACHE_S
"""What is counted on for every call: a rank is a deadline less this."""
LIVES_MAX: Final = 48.0
"""Four hours: no call gives way for longer, however many conversations wait to begin."""
LEADER_S_MAX: Final = 10.0
"""A leader that was sent this long ago is not waited for any longer..."""
FOLLOWER_S_MAX: Final = 30.0
"""...and no call waits for longer than this, whether or not the leader was sent."""


class _Cached(Struct):
    """One beginning: until when it can be read, or who is about to write it."""

    warm_until_s: float = -inf
    leader: CallId | None = None
    sent_s: float = inf


def beginnings(account: tuple[str, str], sketch: Sketch) -> tuple[Beginning, ...]:
    """What the provider keeps of a call: its instructions, if it can, and all of it."""
    name, whole = "/".join(account), sketch.prefix
    kept = (sketch.shared, whole) if sketch.shared not in ("", whole) else (whole,)
    return tuple([(name, digest) for digest in kept])


class PromptCaches:
    """Every beginning that was seen lately; the one used least recently is forgotten first."""

    def __init__(self) -> None:
        self._cached: dict[Beginning, _Cached] = {}
        self._due_s: dict[tuple[str, tuple[str, ...]], float] = {}
        """By account and flow, when the last call that begins a conversation is due."""

    def look(self, call: Call, now: float) -> int:
        """Set the deadline of a call; returns how many bytes of it the provider can read."""
        sketch, account = call.request.sketch, call.beginnings[0][0]
        cold_s = COLD_LIVES * min(CACHE_S, sketch.keeps_s)
        due_s: float | None = None
        read_bytes = 0
        for digest, size_bytes in ((sketch.prefix, sketch.prefix_bytes), *sketch.turns):
            cached = self._cached.get((account, digest))
            if cached is None or cached.warm_until_s == -inf:
                continue
            due_s = call.asked_s + cold_s
            if now < cached.warm_until_s:
                due_s, read_bytes = cached.warm_until_s - HURRY_SHARE * sketch.keeps_s, size_bytes
                break
        if due_s is None and call.sized_s == -inf:
            flow = account, call.path
            due_s = max(call.asked_s, remember(self._due_s, flow, float)) + cold_s
            due_s = min(call.asked_s + cold_s * LIVES_MAX / COLD_LIVES, due_s)
            self._due_s[flow] = due_s
        # A call that was sent and refused is due at once.
        if due_s is not None and not call.request.is_resent:
            call.rank = due_s - GRACE_S
        shared = self._cached.get((account, sketch.shared))
        if not read_bytes and shared is not None and now < shared.warm_until_s:
            return sketch.shared_bytes
        return read_bytes

    def leads(self, call: Call, now: float) -> tuple[Beginning | None, float]:
        """The beginning that a call waits for another one to write, and how long at most."""
        for beginning in call.beginnings:
            cached = remember(self._cached, beginning, _Cached)
            if now < cached.warm_until_s:
                continue
            if cached.leader is None:
                cached.leader, cached.sent_s = call.id, inf
            if cached.leader != call.id:
                until_s = min(cached.sent_s + LEADER_S_MAX, call.asked_s + FOLLOWER_S_MAX)
                if until_s > now:
                    return beginning, until_s
        return None, now

    def sent(self, call: Call, now: float) -> None:
        """A call was granted its permit."""
        for cached in self._led_by(call):
            cached.sent_s = now

    def answered(self, call: Call) -> None:
        """A first byte: the beginnings are in the cache, since the call was sent."""
        keeps_s = call.request.sketch.keeps_s
        for beginning in call.beginnings:
            cached = remember(self._cached, beginning, _Cached)
            cached.warm_until_s, cached.leader = call.sent_s + keeps_s, None

    def ended(self, call: Call) -> None:
        """A call is over: others need not wait for it any more."""
        for cached in self._led_by(call):
            cached.leader, cached.sent_s = None, inf

    def _led_by(self, call: Call) -> Iterable[_Cached]:
        for beginning in call.beginnings:
            cached = self._cached.get(beginning)
            if cached is not None and cached.leader == call.id:
                yield cached
