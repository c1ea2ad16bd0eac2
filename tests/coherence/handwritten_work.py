"""What the tasks of the plans written by hand do: agents' work, without the agents."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

Given = Any
Ctx = Any


def _write(path: str, text: str) -> None:
    os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
    draft = f"{path}.tmp"
    Path(draft).write_text(text)
    os.replace(draft, path)


def _score(text: object) -> int:
    return len(json.dumps(text, sort_keys=True)) % 7


def parse(item: str, *given: Given, ctx: Ctx) -> None:
    ctx.put(f"records/{item}", {"name": item, "fields": [item.upper()], "errors": []})
    ctx.add("parsed", 1)


def enrich(item: str, *given: Given, ctx: Ctx) -> None:
    record = ctx[f"records/{item}"]
    ctx.put(f"enriched/{item}", {**record, "score": _score(record)})


def validate(*given: Given, ctx: Ctx) -> list[str]:
    bad = [key for key, record in ctx.scan("enriched/*").items() if record["score"] > 5]
    ctx.put("verdict", {"bad": bad, "of": ctx.get("parsed", 0)})
    return bad


def report(*given: Given, ctx: Ctx) -> str:
    verdict = ctx["verdict"]
    return f"{len(verdict['bad'])} of {verdict['of']} are bad"


def collect(item: str, *given: Given, ctx: Ctx) -> None:
    ctx.add("findings", {"file": item, "level": _score(item)})


def rank(*given: Given, ctx: Ctx) -> None:
    ctx.put("ranked", sorted(ctx.get("findings", []), key=lambda one: (one["level"], one["file"])))


def announce(*given: Given, ctx: Ctx) -> None:
    ranked = ctx["ranked"]
    ctx.effect("mail", {"subject": "review", "lines": len(ranked)})


def refactor(item: str) -> str:
    rules = Path("style.md").read_text()
    text = Path(f"src/{item}.py").read_text()
    _write(f"src/{item}.py", f"{text}# {len(rules)}\n")
    return item


def lint(item: str) -> str:
    text = Path(f"src/{item}.py").read_text()
    _write(f"lint/{item}.txt", str(len(text)))
    return item


def summarise() -> int:
    return sum(int(one.read_text()) for one in sorted(Path("lint").iterdir()))


def stock(*given: Given, ctx: Ctx) -> None:
    ctx.put("stock", {"apples": 5, "pears": 2})


def order(item: str, *given: Given, ctx: Ctx) -> None:
    stock = ctx["stock"]
    fruit = sorted(stock)[_score(item) % 2]
    if stock[fruit]:
        stock[fruit] -= 1
        ctx.put("stock", stock)
        ctx.put(f"orders/{item}", {"fruit": fruit})


def ship(*given: Given, ctx: Ctx) -> int:
    orders = ctx.scan("orders/*")
    ctx.put("shipped", sorted(orders))
    return len(orders)


def send(payload: object, key: str) -> None:
    """Whoever performs effects: these go nowhere."""
