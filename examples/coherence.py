"""Parser, Enricher and Validator work on the same orders: over a shared dictionary, then as a plan.

Loose, the three agents start together and write their answers into one dictionary while they are
produced, so that each may read half of what another writes. In a plan each reads the shared state
through `ctx`; an attempt that read too early runs again. The model is simulated, in virtual time:
it answers right for the text that it is shown, and nothing is sent.

    python examples/coherence.py
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import re
from collections.abc import Callable

import headway
from headway.testing import run_virtual

COUNTRIES = {"Berlin": ("DE", 19), "Paris": ("FR", 20), "Rome": ("IT", 22), "Delft": ("NL", 21)}
ADDED = ("country", "net", "gross")
LOOK_S = 0.1
LOOKS_MAX = 40
"""A loose agent looks so often whether there is something for it, then goes on without."""
ROUNDS_MAX = 3


def draw_order(luck: random.Random) -> str:
    """An order as it arrives; one in five states a wrong total."""
    items = [(luck.randint(1, 9), luck.randint(100, 9999)) for _ in range(luck.randint(2, 5))]
    total = sum(count * cents for count, cents in items) + luck.choice((0, 0, 0, 0, 500))
    listed = ", ".join(f"{count} x {cents}" for count, cents in items)
    return f"{listed}; to {luck.choice(list(COUNTRIES))}; total {total}"


def fields_of(record: str) -> dict[str, str]:
    return dict(re.findall(r"(\w+): (.+)", record))


def parse(order: str) -> str:
    items, city, total = order.split("; ")
    lines = [f"item{place}: {item}" for place, item in enumerate(items.split(", "))]
    return "\n".join([*lines, f"total: {total.split()[1]}", f"city: {city.split()[1]}"])


def enrich(record: str) -> str:
    kept = {name: value for name, value in fields_of(record).items() if name not in ADDED}
    pairs = [re.findall(r"\d+", value) for name, value in kept.items() if name.startswith("item")]
    net = sum(int(pair[0]) * int(pair[1]) for pair in pairs if len(pair) == 2)
    country, percent = COUNTRIES.get(kept.get("city", ""), ("unknown", 0))
    added = {"country": country, "net": net, "gross": net + round(net * percent / 100)}
    return "\n".join(f"{name}: {value}" for name, value in (kept | added).items())


def validate(record: str) -> str:
    known, right = fields_of(record), fields_of(enrich(record))
    wrong = [name for name in ADDED if known.get(name) != right[name]]
    return " ".join(wrong + ["total"] * (known.get("total") != right["net"]))


class Model:
    """Writes a word every 50 ms and counts the words that it reads and writes."""

    def __init__(self, seed: int) -> None:
        self._luck = random.Random(seed)
        self.words = 0

    async def ask(
        self, task: Callable[[str], str], text: str, write: Callable[[str], object] = str
    ) -> str:
        """The answer; `write` is given what there is of it while it is produced."""
        answer = task(text)
        pieces = re.findall(r"\S+\s*", answer)
        self.words += len(text.split()) + len(pieces)
        await asyncio.sleep(self._luck.uniform(0.3, 0.9))
        for place in range(len(pieces)):
            await asyncio.sleep(0.05)
            write("".join(pieces[: place + 1]))
        return answer


async def run_loose(orders: list[str], model: Model) -> dict[str, object]:
    """Three agents, one dictionary, no order."""
    state: dict[str, str] = {}

    def put(number: int) -> Callable[[str], None]:
        return lambda text: state.update({f"records/{number}": text})

    async def find(number: int, word: str) -> str:
        looks = 0
        while word not in state.get(f"records/{number}", "") and looks < LOOKS_MAX:
            looks += 1
            await asyncio.sleep(LOOK_S)
        return state.get(f"records/{number}", "")

    async def parser() -> None:
        for number, order in enumerate(orders):
            await model.ask(parse, order, put(number))

    async def enricher() -> None:
        for number in range(len(orders)):
            await model.ask(enrich, await find(number, "item"), put(number))

    async def validator() -> None:
        for number in range(len(orders)):
            for _ in range(ROUNDS_MAX):
                flags = await model.ask(validate, await find(number, "country"))
                state[f"checks/{number}"] = flags
                if not set(flags.split()) & set(ADDED):
                    break
                await model.ask(enrich, state[f"records/{number}"], put(number))

    await asyncio.gather(parser(), enricher(), validator())
    return dict(state)


async def run_plan(orders: list[str], model: Model, has_needs: bool, strategy: str) -> headway.Run:
    """The same agents as tasks that share their state; without needs they start together."""

    async def parser(number: int, ctx: headway.Context) -> int:
        ctx.put(f"records/{number}", await model.ask(parse, orders[number]))
        return number

    async def enricher(number: int, ctx: headway.Context) -> int:
        record = ctx.get(f"records/{number}", "")
        ctx.put(f"records/{number}", await model.ask(enrich, str(record)))
        return number

    async def validator(number: int, ctx: headway.Context) -> None:
        record = ctx.get(f"records/{number}", "")
        ctx.put(f"checks/{number}", await model.ask(validate, str(record)))

    plan, numbers = headway.Plan("orders"), range(len(orders))
    parsed = plan.task("parse", parser, each=numbers)
    enriched = plan.task("enrich", enricher, each=parsed if has_needs else numbers)
    plan.task("validate", validator, each=enriched if has_needs else numbers)
    return await plan.run_async(strategy=strategy)


async def perform(way: str, orders: list[str], seed: int) -> tuple[dict[str, object], list[object]]:
    """The records and checks of one way; and its words, seconds and attempts that ran again."""
    model = Model(seed)
    if way == "loose":
        state, reran = await run_loose(orders, model), 0
    else:
        strategy = "fixed:1" if way == "one after another" else "all-at-once"
        run = await run_plan(orders, model, way != "plan without needs", strategy)
        state, reran = dict(run.state), run.reran
    return state, [model.words, round(asyncio.get_running_loop().time(), 1), reran]


def main() -> None:
    """Every way with the same orders. Right is what one agent after another gives."""
    parser = argparse.ArgumentParser(description="Three agents on shared records, four ways.")
    parser.add_argument("--orders", type=int, default=12)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    luck = random.Random(options.seed)
    orders = [draw_order(luck) for _ in range(options.orders)]
    rows: dict[str, list[object]] = {}
    right: dict[str, object] = {}
    for way in ("one after another", "loose", "plan", "plan without needs"):
        state, figures = run_virtual(perform(way, orders, options.seed))
        right = right or state
        differ = {key.split("/")[1] for key in right if state.get(key) != right[key]}
        rows[way] = [len(differ), *figures]
    if options.json:
        print(json.dumps(rows))
        return
    print(f"{'':20}{'wrong':>7}{'words':>8}{'seconds':>9}{'again':>7}")
    for way, (wrong, words, seconds, again) in rows.items():
        print(f"{way:20}{wrong:>7}{words:>8}{seconds:>9}{again:>7}")


if __name__ == "__main__":
    main()
