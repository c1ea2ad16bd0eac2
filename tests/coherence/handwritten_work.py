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


def outline(*given: Given, ctx: Ctx) -> list[str]:
    ctx.put("outline", ["intro", "body", "end"])
    return ["intro", "body", "end"]


def draft(item: str, *given: Given, ctx: Ctx) -> None:
    place = ctx["outline"].index(item)
    ctx.put(f"sections/{item}", {"place": place, "text": f"{item} " * 3})


def edit(*given: Given, ctx: Ctx) -> str:
    sections = sorted(ctx.scan("sections/*").values(), key=lambda one: one["place"])
    text = "\n".join(one["text"].strip() for one in sections)
    ctx.put("book", {"text": text, "words": len(text.split())})
    return text


def crawl(item: str, *given: Given, ctx: Ctx) -> None:
    ctx.put(f"pages/{item}", {"links": [f"{item}/{n}" for n in range(3)]})
    ctx.add("hosts", item[:1])


def index(*given: Given, ctx: Ctx) -> None:
    links: list[str] = []
    for page in ctx.scan("pages/*").values():
        links.extend(page["links"])
    ctx.put("index", {"links": len(links), "hosts": ctx.get("hosts", [])})


def search(*given: Given, ctx: Ctx) -> int:
    return int(ctx["index"]["links"])


def bid(item: str, *given: Given, ctx: Ctx) -> None:
    ctx.add("best", _score(item) + 1)
    ctx.put(f"bids/{item}", _score(item) + 1)


def award(*given: Given, ctx: Ctx) -> str:
    best = ctx["best"]
    winners = [key for key, value in ctx.scan("bids/*").items() if value == best]
    ctx.put("winner", winners[0])
    return str(winners[0])


def contract(*given: Given, ctx: Ctx) -> None:
    ctx.effect("mail", {"to": ctx["winner"]})


def open_account(item: str, *given: Given, ctx: Ctx) -> None:
    ctx.put(f"accounts/{item}", {"balance": 10, "log": ["open"]})


def transfer(*given: Given, ctx: Ctx) -> None:
    one, other = ctx["accounts/ann"], ctx["accounts/bob"]
    one["balance"] -= 3
    one["log"].append("out 3")
    other["balance"] += 3
    other["log"].append("in 3")
    ctx.put("accounts/ann", one)
    ctx.put("accounts/bob", other)


def audit(*given: Given, ctx: Ctx) -> int:
    total = sum(int(account["balance"]) for account in ctx.scan("accounts/*").values())
    ctx.put("audit", {"total": total})
    return total


def plan_trip(*given: Given, ctx: Ctx) -> None:
    ctx.put("trip", {"days": 3, "stops": ["a", "b", "c"]})


def book_hotel(item: str, *given: Given, ctx: Ctx) -> None:
    days = ctx["trip"]["days"]
    ctx.put(f"hotels/{item}", {"nights": days, "price": 80 * days})
    ctx.add("cost", 80 * days)


def book_flight(*given: Given, ctx: Ctx) -> None:
    ctx.put("flight", {"stops": len(ctx["trip"]["stops"])})
    ctx.add("cost", 400)


def confirm(*given: Given, ctx: Ctx) -> str:
    hotels, flight = ctx.scan("hotels/*"), ctx["flight"]
    ctx.effect("mail", {"hotels": len(hotels), "stops": flight["stops"], "cost": ctx["cost"]})
    return "booked"


def ask(item: str, *given: Given, ctx: Ctx) -> None:
    ctx.put(f"answers/{item}", {"text": f"answer to {item}", "sure": _score(item) > 2})


def check_answer(item: str, *given: Given, ctx: Ctx) -> None:
    answer = ctx[f"answers/{item}"]
    answer["checked"] = True
    ctx.put(f"checked/{item}", answer)


def publish(*given: Given, ctx: Ctx) -> dict[str, object]:
    return {key: answer["sure"] for key, answer in ctx.scan("checked/*").items()}


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


def translate(item: str, *given: Given, ctx: Ctx) -> None:
    source = ctx["source"]
    ctx.put(f"texts/{item}", {"text": f"{source['text']} in {item}", "words": source["words"]})


def source_text(*given: Given, ctx: Ctx) -> None:
    ctx.put("source", {"text": "hello", "words": 1})


def compare(*given: Given, ctx: Ctx) -> list[str]:
    words = ctx["source"]["words"]
    return [key for key, text in ctx.scan("texts/*").items() if text["words"] != words]


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


def convert(item: str) -> str:
    rows = Path(f"raw/{item}.csv").read_text().splitlines()
    _write(f"clean/{item}.json", json.dumps(rows))
    return item


def join() -> int:
    rows: list[str] = []
    for name in sorted(os.listdir("clean")):
        rows += json.loads((Path("clean") / name).read_text())
    _write("joined.json", json.dumps(rows))
    return len(rows)


def chart() -> str:
    rows = json.loads(Path("joined.json").read_text())
    _write("chart.txt", "#" * len(rows))
    return "chart"


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


def migrate(item: str) -> str:
    _write(f"migrations/{item}.sql", f"alter table {item};")
    with open("schema.log", "a") as log:
        log.write(f"{item}\n")
    return item


def deploy() -> str:
    return Path("schema.log").read_text()


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


def vote(item: str, *given: Given, ctx: Ctx) -> None:
    ctx.add("votes", {"by": item, "for": "ab"[_score(item) % 2]})


def count_votes(*given: Given, ctx: Ctx) -> None:
    counted: dict[str, int] = {}
    for one in ctx.get("votes", []):
        counted[one["for"]] = counted.get(one["for"], 0) + 1
    ctx.put("result", counted)


def proclaim(*given: Given, ctx: Ctx) -> str:
    result = ctx["result"]
    return str(max(result, key=lambda name: (result[name], name)))


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
