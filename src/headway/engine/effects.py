"""Effects on the world: their order, and what is known of each.

Laws:
- A committed task asks for an effect; it is intended, performed, and done. What is intended and
  not done is in doubt: it may have happened.
- A channel performs one effect at a time, in the order in which they were asked for, and that is
  the declared order of their tasks. Channels do not wait for each other.
- An effect has the same key in every process. What is done under a key is not done again; what is
  in doubt is, with the same key: at least once, and once where the receiver honours the key.
- A failure stops its channel: nothing that comes later there happens before it.
- What is known of effects is a fold of facts.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from msgspec import Struct

from headway.base.digest import digest
from headway.engine.record import EffectDone, EffectIntended, Fact
from headway.state.shared import Act


class Asker(Struct, frozen=True):
    task: int
    key: bytes
    name: str


class Due(Struct, frozen=True):
    asker: Asker
    channel: str
    ordinal: int
    data: bytes
    key: str
    is_now: bool = False

    def intended(self, now: float) -> EffectIntended:
        return EffectIntended(
            self.asker.task, now, self.channel, self.ordinal, self.key, self.is_now
        )

    def done(self, now: float, receipt: bytes) -> EffectDone:
        return EffectDone(self.asker.task, now, self.ordinal, self.key, receipt)


def key_of(run: str, asker: Asker, ordinal: int, act: Act) -> str:
    """The key of an effect.

    The payload is a part of it: a task of an edited plan that sends another payload asks for
    another effect, which the receiver of the first must not take for the same.
    """
    parts = (run.encode(), asker.key, b"%d" % ordinal, act.channel.encode(), digest(act.data))
    return digest(b"".join(b"%d:%b" % (len(part), part) for part in parts)).hex()


class KnownEffects:
    """What facts say of effects, those of earlier processes among them."""

    def __init__(self) -> None:
        self.done: set[str] = set()
        self.doubts: dict[str, tuple[bytes, EffectIntended]] = {}
        """Effects that may have happened, in the order in which they were intended, by key; with
        the content key of the task."""
        self.now: set[str] = set()

    def apply(self, task: bytes, fact: Fact) -> None:
        """One more fact about a task of this content key; other facts say nothing of effects."""
        if isinstance(fact, EffectIntended):
            self.doubts[fact.key] = task, fact
            if fact.is_now:
                self.now.add(fact.key)
        elif isinstance(fact, EffectDone):
            self.doubts.pop(fact.key, None)
            self.done.add(fact.key)


class Outgoing:
    """The effects of one run that are still to be performed, channel by channel."""

    def __init__(self, run: str) -> None:
        self._run = run
        self.known = KnownEffects()
        self.failures: dict[str, tuple[Due, str]] = {}
        """By channel: the effect that stopped it, and why."""
        self._asked: set[str] = set()
        self._waiting: dict[str, deque[Due]] = {}
        self._performing: set[str] = set()

    def ask(self, asker: Asker, acts: Sequence[Act]) -> None:
        """A committed task asks for these; what is done, or was done at once, is left out."""
        for ordinal, act in enumerate(acts):
            key = key_of(self._run, asker, ordinal, act)
            if act.is_now or key in self._asked or key in self.known.done:
                continue
            self._asked.add(key)
            due = Due(asker, act.channel, ordinal, act.data, key)
            self._waiting.setdefault(act.channel, deque()).append(due)

    def at_once(self, asker: Asker, ordinal: int, act: Act) -> Due:
        return Due(asker, act.channel, ordinal, act.data,
                   key_of(self._run, asker, ordinal, act), is_now=True)  # fmt: skip

    def take(self) -> list[Due]:
        """The first of every channel that performs none and was not stopped: it does from now."""
        idle = self._waiting.keys() - self._performing - self.failures.keys()
        firsts = [queue[0] for channel, queue in self._waiting.items() if channel in idle]
        self._performing.update(due.channel for due in firsts)
        return firsts

    def ended(self, due: Due) -> None:
        queue = self._waiting[due.channel]
        queue.popleft()
        if not queue:
            del self._waiting[due.channel]
        self._performing.discard(due.channel)

    def failed(self, due: Due, why: str) -> None:
        """Its channel performs nothing more; a resumed run begins with it."""
        self._performing.discard(due.channel)
        self.failures[due.channel] = due, why

    def left(self) -> tuple[Due, ...]:
        return tuple(due for queue in self._waiting.values() for due in queue)
