"""Shows the gateway: calls waiting now, totals, callers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from headway.base.numbers import short
from headway.report.text.terminal import clean
from headway.report.text.words import cost, count, counts, duration


def gateway_lines(told: dict[str, Any]) -> Iterator[str]:
    held = f"{told['held']:,} held"
    if told["held"]:
        held += f", the longest for {duration(told['held_longest_s'])}"
    yield f"up {duration(told['up_s'])}: {count(told['in_flight'], 'call')} in flight, {held}"
    yield _sums(told["total"])
    for title, key in (("upstream", "by_upstream"), ("model", "by_model"),
                       ("caller", "by_caller"), ("key", "by_key")):  # fmt: skip
        rows = told[key]
        if rows and list(rows) != ["default"]:
            yield f"by {title}:"
            for name, sums in rows.items():
                yield f"  {clean(name)}: {_sums(sums)}"
    for title, key in (("waited for a permit", "queued"), ("then for a first byte", "first_byte")):
        for upstream, spread in told[key].items():
            times = ", ".join(
                f"{word} {duration(spread[key])}"
                for word, key in (
                    ("half", "p50_s"),
                    ("99 of 100", "p99_s"),
                    ("longest", "longest_s"),
                )
            )
            yield f"{clean(upstream)}: {title} {times}"
    for upstream, kinds in told["faults"].items():
        faults = ", ".join(f"{number} {kind}" for kind, number in kinds.items())
        yield f"{clean(upstream)}: failed: {faults}"
    if told["turned_away"]:
        codes = ", ".join(f"{number} {clean(code)}" for code, number in told["turned_away"].items())
        yield f"turned away at the door: {codes}"
    if told["resent"]:
        yield f"{told['resent']} sent again by their client while they were held"


def _sums(sums: dict[str, Any]) -> str:
    read = sums["cache_read_tokens"]
    cached = f" + {short(read)} from the cache" if read else ""
    parts = [
        count(sums["calls"], "call"), f"{short(sums['input_tokens'])}{cached} tokens in",
        f"{short(sums['output_tokens'])} out",
    ]  # fmt: skip
    if written := sums["cache_write_tokens"]:
        twice = sums["cache_rewrite_tokens"]
        again = f" ({short(twice)} of it twice)" if twice else ""
        parts.append(f"{short(written)} written into the cache{again}")
    if sums["spend_microusd"] or sums["unpriced"]:
        parts.append(cost(sums["spend_microusd"], sums["unpriced"]))
    words = (("held", "held"), ("refusals_absorbed", "refusals absorbed"), ("failed", "failed"),
             ("replayed", "replayed"), ("kept_alive", "kept alive"))  # fmt: skip
    return ", ".join([*parts, *counts(*((sums[key], word) for key, word in words))])
