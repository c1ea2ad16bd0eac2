"""What a task does to itself: values changed in place, and other deeds under the same conditions.

Laws:
- The shared state gives copies and takes copies. What is changed in place after that is lost,
  unless the changed value is put, returned or passed on.
- With the same results given and the same things read, a task asks and writes the same. The time
  of the run is given too, and is another one in every run.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from headway.core.detect import Done, Finding
from headway.core.engine.access import Access
from headway.core.general import general
from headway.core.plan.resources import SCHEME
from headway.core.records import quick


def unsteady(earlier: Iterable[Done], later: Iterable[Done]) -> tuple[Finding, ...]:
    """Tasks that did something else although they were given and have read the same.

    What a model answered is a part of what its task was given: only the first prompt is compared,
    and writes only where no model was asked.
    """
    known: dict[tuple[bytes, bytes, bytes], Done] = {}
    for done in earlier:
        known.setdefault((done.key, done.inputs, done.access.inputs), done)
    found: dict[int, Finding] = {}
    for done in later:
        before = known.setdefault((done.key, done.inputs, done.access.inputs), done)
        differs = _difference(before, done)
        if differs is None:
            continue
        what, words = differs
        if first := found.get(done.group):
            found[done.group] = replace(first, count=first.count + 1)
            continue
        found[done.group] = Finding(
            "nondeterminism", done.name, what,
            words=f"`{done.name}` was given and has read the same, and {words}",
            fix="take time and chance from `ctx.time_s` and `ctx.random`; sort what has no order",
        )  # fmt: skip
    return tuple(found.values())


def across(earlier: Iterable[Done], later: Sequence[Done]) -> tuple[Finding, ...]:
    """The same, where the earlier ones are of another run: it was created at another time.

    Who may have asked for that is compared within its own run only.
    """
    timed = [done for done in later if done.is_timed]
    others = [done for done in later if not done.is_timed]
    return (*unsteady(earlier, others), *unsteady((), timed))


@quick
class Handed:
    """A value that a task was given by the shared state, or gave to it."""

    key: str
    before: bytes
    """Its bytes when it was handed over."""
    after: bytes | None
    """Its bytes at the end of the attempt; None if it is no JSON any more."""
    is_given: bool
    """By the task to the state."""


@quick
class Whereabouts:
    """Where a changed value may be found again, if it was not lost."""

    puts: Sequence[bytes] = ()
    """What the attempt gave to the shared state at last."""
    others: Sequence[bytes] = ()
    """Its result, and what its effects are given."""


def aliased(
    name: str, item: str, handed: Iterable[Handed], whereabouts: Whereabouts
) -> tuple[Finding, ...]:
    """Values that were changed where they are: the shared state has copies, and never hears of it.

    One form of a value has one form in whatever holds it; so what was passed on is found there.
    """
    found: dict[str, Finding] = {}
    for one in handed:
        places = whereabouts.puts if one.is_given else (*whereabouts.puts, *whereabouts.others)
        if one.after == one.before or any(one.after in place for place in places if one.after):
            continue
        verb = "put under" if one.is_given else "read from"
        found.setdefault(one.key, Finding(
            "aliasing", name, general(SCHEME + one.key, item),
            words=f"`{name}` changed, in place, what it had {verb} `{one.key}`: nobody sees that",
            fix="put it after the change; if it is meant for this task alone, change a copy",
        ))  # fmt: skip
    return tuple(found.values())


def merged(found: Iterable[Finding]) -> tuple[Finding, ...]:
    """The same of several members of a group, or of several attempts, as one finding."""
    by: dict[tuple[str, str, str], Finding] = {}
    names: dict[tuple[str, str, str], set[str]] = {}
    for one in found:
        key = (one.kind, one.task.partition("[")[0], one.what)
        by.setdefault(key, one)
        names.setdefault(key, set()).add(one.task)
    return tuple(replace(one, count=max(one.count, len(names[key]))) for key, one in by.items())


def _difference(before: Done, done: Done) -> tuple[str, str] | None:
    """What a task did differently the second time; None if that proves nothing."""
    if before is done or before.calls > 1 or done.calls > 1:
        return None
    if before.access.prompts != done.access.prompts:
        return "prompt", "its prompt was another one"
    if done.access.prompts or done.calls or before.calls or not done.is_function:
        return None
    was, now = _by_key(before.access), _by_key(done.access)
    if was == now:
        return None
    key = min(key for key in {*was, *now} if was.get(key) != now.get(key))
    return SCHEME + key, f"it wrote something else under `{key}`"


def _by_key(access: Access) -> dict[str, list[bytes | None]]:
    by: dict[str, list[bytes | None]] = {}
    for put in access.writes:
        by.setdefault(put.key, []).append(put.data)
    return by
