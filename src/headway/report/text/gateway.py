"""Shows the gateway: calls waiting now, totals, callers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from headway.base.numbers import short
from headway.report.text.terminal import clean
from headway.report.text.words import cost, count, duration


def gateway_lines(told: Mapping[str, object]) -> Iterator[str]:
    total = _table(told["total"])
    yield (
        f"up {duration(_number(told['up_s']))}: {count(int(_number(told['in_flight'])), 'call')} "
        f"in flight, {_held(told)}"
    )
    yield f"{_sums(total)}"
    for title, key in (("upstream", "by_upstream"), ("model", "by_model"),
                       ("caller", "by_caller"), ("key", "by_key")):  # fmt: skip
        rows = _table(told[key])
        if rows and list(rows) != ["default"]:
            yield f"by {title}:"
            for name, sums in rows.items():
                yield f"  {clean(name)}: {_sums(_table(sums))}"
    for title, key in (("waited for a permit", "queued"), ("then for a first byte", "first_byte")):
        for upstream, spread in _table(told[key]).items():
            yield f"{clean(upstream)}: {title} {_spread(_table(spread))}"
    yield from _problems(told)


def _held(told: Mapping[str, object]) -> str:
    held = int(_number(told["held"]))
    longest = f", the longest for {duration(_number(told['held_longest_s']))}" if held else ""
    return f"{held:,} held{longest}"


def _sums(sums: Mapping[str, object]) -> str:
    parts = [count(int(_number(sums["calls"])), "call")]
    read = _number(sums["cache_read_tokens"])
    cached = f" + {short(read)} from the cache" if read else ""
    parts.append(f"{short(_number(sums['input_tokens']))}{cached} tokens in")
    parts.append(f"{short(_number(sums['output_tokens']))} out")
    if sums["spend_microusd"] or sums["unpriced"]:
        parts.append(cost(int(_number(sums["spend_microusd"])), int(_number(sums["unpriced"]))))
    words = (("held", "held"), ("refusals_absorbed", "refusals absorbed"), ("failed", "failed"),
             ("replayed", "replayed"), ("kept_alive", "kept alive"))  # fmt: skip
    parts += [f"{int(_number(sums[key])):,} {word}" for key, word in words if sums[key]]
    return ", ".join(parts)


def _spread(spread: Mapping[str, object]) -> str:
    return ", ".join(
        f"{word} {duration(_number(spread[key]))}"
        for word, key in (("half", "p50_s"), ("99 of 100", "p99_s"), ("longest", "longest_s"))
    )


def _problems(told: Mapping[str, object]) -> Iterator[str]:
    for upstream, kinds in _table(told["faults"]).items():
        said = ", ".join(f"{number} {kind}" for kind, number in _table(kinds).items())
        yield f"{clean(upstream)}: failed: {said}"
    turned = _table(told["turned_away"])
    if turned:
        said = ", ".join(f"{number} {clean(code)}" for code, number in turned.items())
        yield f"turned away at the door: {said}"
    if told["resent"]:
        yield f"{told['resent']} sent again by their client while they were held"


def _table(value: object) -> dict[str, object]:
    return {str(key): one for key, one in value.items()} if isinstance(value, dict) else {}


def _number(value: object) -> float:
    return float(value) if isinstance(value, int | float) else 0.0
