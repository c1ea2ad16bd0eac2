"""Each fact of a run as one line of words, for logs and for places where nothing can be drawn."""

from __future__ import annotations

from math import inf
from typing import Final

from headway.core.engine.events import (
    CallAdmitted,
    CallWaited,
    Ending,
    GroupExpanded,
    RunBegan,
    RunContinued,
    RunFinished,
    RunHeld,
    RunStopping,
    TaskDelayed,
    TaskFailed,
    TaskFinished,
    TaskProposed,
    TaskReused,
    TaskSkipped,
    TaskStale,
    TaskStarted,
    WaveBegan,
)
from headway.core.engine.record import (
    EffectDone,
    EffectIntended,
    Fact,
    MoneyReserved,
    ReplyKept,
)
from headway.core.numbers import short
from headway.core.values import Fault
from headway.watch.words import clean, clock, count, duration, fault_line, usd

DETAIL_MAX: Final = 300
"""Characters of a provider's or a program's words in one line."""


def told(event: Fact, name: str) -> str:
    """What happened, in words; `name` is its task's."""
    match event:
        case TaskStarted() | CallWaited() | CallAdmitted() | MoneyReserved() | ReplyKept():
            return f"{name}  {_going(event)}"
        case EffectIntended(channel=channel, key=key, is_now=is_now):
            words = ", at once" if is_now else ""
            return f"{name}  effect {shortened(channel)} is performed{words}, key {key}"
        case EffectDone(key=key):
            return f"{name}  effect {key} is done"
        case TaskFinished() | TaskReused() | TaskDelayed() | TaskFailed() | TaskSkipped():
            return f"{name}  {_ended(event)}"
        case TaskProposed() | TaskStale():
            return f"{name}  {_judged(event)}"
        case _:
            return _run(event)


def _going(
    event: TaskStarted | CallWaited | CallAdmitted | MoneyReserved | ReplyKept,
) -> str:
    match event:
        case TaskStarted(attempt=1, reason=reason):
            return f"started: {reason}"
        case TaskStarted(attempt=attempt, reason=reason):
            return f"started, attempt {attempt}: {reason}"
        case CallWaited():
            return "waits for a permit"
        case CallAdmitted():
            return "has its permit"
        case MoneyReserved(microusd=microusd, tokens=tokens):
            words = [f"{tokens:,} tokens"] if tokens else []
            return f"may take up to {', '.join([*words, *([usd(microusd)] if microusd else [])])}"
        case ReplyKept():
            return "a reply is kept"


def _ended(event: TaskFinished | TaskReused | TaskDelayed | TaskFailed | TaskSkipped) -> str:
    match event:
        case TaskFinished(ending=ending):
            return f"finished{_took(ending)}"
        case TaskReused():
            return "finished before: its result still holds"
        case TaskDelayed(attempt=attempt, fault=fault):
            again = duration(max(0.0, event.again_s - event.at_s))
            words = _fault(fault)
            return f"attempt {attempt} failed, again in {again}: {words}"
        case TaskFailed(attempt=attempt, fault=fault):
            words = _fault(fault)
            return f"failed after {count(attempt, 'attempt')}: {words}"
        case TaskSkipped():
            return "skipped: something that it needs has failed"


def _judged(event: TaskProposed | TaskStale) -> str:
    match event:
        case TaskProposed(ending=ending, fault=None):
            return f"has a result{_took(ending)}, and waits for those before it"
        case TaskProposed(fault=Fault() as fault):
            return f"failed, unless those before it change what it read: {_fault(fault)}"
        case TaskStale(what=what, ending=ending) if what:
            return f"runs again: `{shortened(what)}`, which it had read, has changed{_took(ending)}"
    return f"runs again: what it had read has changed{_took(event.ending)}"


def _run(event: Fact) -> str:
    words = type(event).__name__
    match event:
        case RunBegan(strategy=strategy):
            words = f"the run begins, {strategy}"
        case GroupExpanded(count=number):
            words = f"a group has {count(number, 'task')}"
        case WaveBegan(number=number, of=of):
            words = f"wave {number} of {of}"
        case RunHeld(until_s=until_s, reason=reason) if until_s == inf:
            words = f"held: {shortened(reason)}"
        case RunHeld(until_s=until_s, reason=reason):
            words = f"waits until {clock(until_s, event.at_s)}: {shortened(reason)}"
        case RunContinued():
            words = "goes on"
        case RunStopping(reason=reason, is_now=is_now):
            words = f"stops{' now' if is_now else ''}: {shortened(reason)}"
        case RunFinished():
            words = over(event)
        case _:
            pass
    return words


def over(event: RunFinished) -> str:
    """`over: 20 finished, 1 failed, 1 skipped`."""
    words = [f"{event.finished:,} finished"]
    for number, word in (
        (event.failed, "failed"), (event.skipped, "skipped"), (event.left, "not started"),
        (event.effects, "effects not performed"),
    ):  # fmt: skip
        if number:
            words.append(f"{number:,} {word}")
    return f"over: {', '.join(words)}"


def shortened(text: str) -> str:
    """Other people's words on one line."""
    line = " ".join(clean(text).split())
    return line if len(line) <= DETAIL_MAX else f"{line[:DETAIL_MAX]}…"


def _fault(fault: Fault) -> str:
    return shortened(fault_line(f"{fault.kind}: {fault.detail}" if fault.detail else fault.kind))


def _took(ending: Ending) -> str:
    words = []
    if ending.input_tokens or ending.output_tokens:
        words.append(f"{short(ending.input_tokens)} tokens in, {short(ending.output_tokens)} out")
    if ending.spend_microusd:
        words.append(usd(ending.spend_microusd))
    return f": {', '.join(words)}" if words else ""
