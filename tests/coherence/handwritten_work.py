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


def remember(item: str, *given: Given, ctx: Ctx) -> None:
    ctx.add("memory", {"fact": item})


def forget(*given: Given, ctx: Ctx) -> None:
    kept = [one for one in ctx.get("memory", []) if _score(one) != 3]
    ctx.put("facts", kept)
    ctx.remove("scratch")


def tidy(*given: Given, ctx: Ctx) -> None:
    ctx.put("scratch", {"temporary": True})


def recall(*given: Given, ctx: Ctx) -> int:
    return len(ctx["facts"])


def scaffold() -> str:
    _write("app/main.py", "print('hello')\n")
    _write("app/config.json", json.dumps({"port": 80}))
    return "app"


def write_tests() -> str:
    source = Path("app/main.py").read_text()
    _write("tests/test_main.py", f"# tests {len(source)} characters\n")
    return "tests"


def document() -> str:
    config = json.loads(Path("app/config.json").read_text())
    _write("docs/config.md", f"port: {config['port']}\n")
    return "docs"


def release() -> str:
    parts = [Path("docs/config.md").read_text(), Path("tests/test_main.py").read_text()]
    _write("CHANGES.md", "\n".join(parts))
    return "released"


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


def measure(item: str, *given: Given, ctx: Ctx) -> None:
    text = Path(f"raw/{item}.csv").read_text()
    ctx.put(f"sizes/{item}", {"bytes": len(text)})


def choose(*given: Given, ctx: Ctx) -> None:
    sizes = ctx.scan("sizes/*")
    largest = max(sizes, key=lambda key: (sizes[key]["bytes"], key))
    ctx.put("largest", {"name": largest.removeprefix("sizes/")})


def show(*given: Given, ctx: Ctx) -> str:
    name = ctx["largest"]["name"]
    _write("largest.txt", Path(f"raw/{name}.csv").read_text())
    return str(name)


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


def combine(one: Any, other: Any) -> Any:
    """A reducer: the union of two dictionaries."""
    return {**one, **other}


def learn(item: str, *given: Given, ctx: Ctx) -> None:
    ctx.add("model", {item: _score(item)})


def predict(*given: Given, ctx: Ctx) -> int:
    model = ctx["model"]
    ctx.put("prediction", {"sum": sum(model.values())})
    return sum(model.values())


def explain(*given: Given, ctx: Ctx) -> str:
    return f"{ctx['prediction']['sum']} of {len(ctx['model'])}"
