"""What a recording says that each name has asked and been answered: for whoever asks again."""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import dataclass
from math import ceil
from typing import Final

from headway.core.values import Tally
from headway.gateway.canonical import kind_of, unmeasured
from headway.gateway.recordfile import CUT_OFF, Line, contents, home_in
from headway.gateway.tape import parts_of, tally_of
from headway.runtime.metering import Taken
from headway.runtime.prices import price_at
from headway.wire.loose import text_of

CODEX: Final = "codex"


@dataclass(slots=True)
class _Call:
    name: str
    kind: str
    form: str
    model: str
    tally: Tally | None = None
    """None as long as it is not answered."""
    is_again: bool = False
    """Whether it was answered from a recording, and cost nothing."""


def recorded_in(path: str) -> dict[str, Taken]:
    """By name: the calls that were made, and what those took that were answered. Nothing if there
    is no file; raises StateFileError if it is no recording, or a damaged one.

    Of a conversation's lines only the longest counts: titles and routes are no part of what
    a session holds, but they are paid. A call that was answered from a recording is recorded again,
    counts once, and is paid once. One that was in flight when its gateway was killed counts:
    nobody knows better.
    """
    try:
        with open(path, "rb") as file:
            lines = contents(path, file).lines
    except FileNotFoundError:
        return {}
    found: dict[str, list[_Call]] = {}
    for call in _calls(lines):
        found.setdefault(call.name, []).append(call)
    return {name: _sum(calls) for name, calls in found.items()}


def doubts_of(path: str | None, home: str = "") -> list[str]:
    """Why calls of a recording may not be found again by agents in this home, in words."""
    if path is None:
        return []
    recorded = home_in(path)
    with open(path, "rb") as file:
        heads = [line.head for line in contents(path, file).lines if line.happening == "begun"]
    clients = {(text_of(head.get("caller")), text_of(head.get("version"))): None for head in heads}
    doubts = [words for client in clients if (words := unmeasured(*client))]
    if recorded and recorded != home and any(caller == CODEX for caller, _ in clients):
        doubts.append(
            f"{os.path.basename(path)} was recorded in {recorded}; Codex tells the model its home, "
            "so its calls will differ and be paid again"
        )
    return doubts


def _calls(lines: tuple[Line, ...]) -> list[_Call]:
    """All that were answered, or may have been."""
    found: list[_Call] = []
    current: dict[object, _Call] = {}
    for line in lines:
        head, number = line.head, line.head.get("call")
        if line.happening == "opened":
            found += current.values()
            current = {}
        elif line.happening == "begun":
            kind = kind_of(parts_of(head.get("parts")))
            key, form, model = (text_of(head.get(name)) for name in ("key", "form", "model"))
            current[number] = _Call(key, kind, form, model)
        elif line.happening == "replied" and number in current:
            current[number].tally = tally_of(head.get("tally"))
            current[number].is_again = head.get("again") is True
        elif line.happening == "dropped" and head.get("why") != CUT_OFF:
            current.pop(number, None)
    return [*found, *current.values()]


def _sum(calls: list[_Call]) -> Taken:
    kinds = Counter(call.kind for call in calls)
    ((longest, _),) = kinds.most_common(1)
    line = [call for call in calls if call.kind == longest]
    answered = {call.form for call in line if call.tally is not None}
    in_flight = sum(call.tally is None for call in line)
    paid = [(call.model, call.tally) for call in calls if call.tally and not call.is_again]
    return Taken(
        len(answered) + in_flight,
        sum(tally.input_tokens + tally.cache_read_tokens for _, tally in paid),
        sum(tally.output_tokens for _, tally in paid),
        sum(_cost(model, tally) for model, tally in paid),
        in_flight=in_flight,
        paid=len(paid),
        unpriced=sum(price_at(model, 0) is None for model, _ in paid),
    )


def _cost(model: str, tally: Tally) -> int:
    price = price_at(model, ceil(tally.input_tokens + tally.cache_read_tokens))
    return 0 if price is None else price.cost_of(tally)
