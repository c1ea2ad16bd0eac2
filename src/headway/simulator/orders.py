"""Orders that three agents work on: what is written, what a good model makes of it, what is true.

Laws:
- An answer is a function of its prompt alone: a model that is shown half a record answers for half
  a record, and answers well.
- What is true is known from the order itself, never from what an agent said.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from headway.core.foresight.draw import uniform

PARSE: Final = "Parse this order into a record, one field a line."
ENRICH: Final = "Enrich this record: country, net, vat and gross, in cents."
VALIDATE: Final = "Validate this record: flag every field that is missing or wrong."
CORRECT: Final = "correct: "
"""Before each line that somebody else wants to be different."""

ADDED: Final = ("country", "net", "vat", "gross")
"""What the Enricher adds to a record."""
UNKNOWN: Final = "unknown"
VAT_PERCENT: Final = {"DE": 19, "FR": 20, "IT": 22, "ES": 21, "NL": 21, UNKNOWN: 0}
COUNTRIES: Final = {
    "Berlin": "DE", "Hamburg": "DE", "Paris": "FR", "Lyon": "FR", "Rome": "IT", "Turin": "IT",
    "Madrid": "ES", "Seville": "ES", "Utrecht": "NL", "Delft": "NL",
}  # fmt: skip
CUSTOMERS: Final = ("Acme Tools", "Blue Mill", "Corner Shop", "Dahl and Sons", "Elm Street Works")
GOODS: Final = ("drill", "saw", "glue", "hammer", "ladder", "paint", "rope", "screw", "tape")
MISSTATED_SHARE: Final = 0.2
"""Of orders whose sender has added up wrongly: the errors that are there to be found."""

_ORDER: Final = re.compile(
    r"Order (\d+) from (.+?) in (\w+): (.+)\. They say it is (\d+) cents\.", re.DOTALL
)
_ITEM: Final = re.compile(r"(\d+) (\w+) at (\d+)")
_LINE: Final = re.compile(r"(\w+): (.+)")
_FLAG: Final = re.compile(r"flag: (\w+) is (.+), should be (.+)")


@dataclass(frozen=True, slots=True)
class Item:
    """So many of something, at a price each."""

    count: int
    what: str
    cents: int


@dataclass(frozen=True, slots=True)
class Order:
    """An order as it really is."""

    number: int
    customer: str
    city: str
    items: tuple[Item, ...]
    stated_cents: int
    """What its sender says that it comes to."""

    @property
    def text(self) -> str:
        """As it arrives."""
        items = ", ".join(f"{item.count} {item.what} at {item.cents}" for item in self.items)
        return (
            f"Order {self.number} from {self.customer} in {self.city}: {items}. "
            f"They say it is {self.stated_cents} cents."
        )

    @property
    def record(self) -> dict[str, str]:
        """All that is to be known of it in the end."""
        parsed = {"order": f"{self.number}", "customer": self.customer}
        for place, item in enumerate(self.items):
            parsed[f"item{place}"] = f"{item.count} {item.what} {item.cents}"
        parsed |= {"stated": f"{self.stated_cents}", "city": self.city}
        return parsed | added(parsed)

    @property
    def flaws(self) -> frozenset[str]:
        """The fields in which there is an error to be found."""
        return (
            frozenset() if self.record["net"] == self.record["stated"] else frozenset(("stated",))
        )


@dataclass(frozen=True, slots=True)
class Flag:
    """What a Validator holds to be wrong."""

    field: str
    wanted: str
    """What it should be."""


def draw_orders(count: int, seed: int) -> list[Order]:
    """So many orders; the same for the same seed."""
    return [_drawn(number, seed) for number in range(count)]


def fields_of(text: str) -> dict[str, str]:
    """A record as fields; what is half written is taken as it is."""
    found = (_LINE.fullmatch(line) for line in text.splitlines())
    return {line[1]: line[2] for line in found if line is not None}


def flags_of(answer: str) -> list[Flag]:
    """What a Validator's answer flags."""
    found = (_FLAG.fullmatch(line) for line in answer.splitlines())
    return [Flag(line[1], line[3]) for line in found if line is not None]


def added(record: dict[str, str]) -> dict[str, str]:
    """What follows from the parsed part of a record."""
    country = COUNTRIES.get(record.get("city", ""), UNKNOWN)
    net = sum(_cents(text) for name, text in record.items() if name.startswith("item"))
    vat = round(net * VAT_PERCENT[country] / 100)
    return {"country": country, "net": f"{net}", "vat": f"{vat}", "gross": f"{net + vat}"}


def answer_to(prompt: str) -> str:
    """What a good model answers: right for what it is shown."""
    asked, _, text = prompt.partition("\n")
    return _ANSWERS[asked](text)


def _parsed(text: str) -> str:
    found = _ORDER.search(text)
    if found is None:
        return "nothing to parse\n"
    number, customer, city, items, stated = found.groups()
    lines = [f"order: {number}", f"customer: {customer}"]
    for place, (count, what, cents) in enumerate(_ITEM.findall(items)):
        lines.append(f"item{place}: {count} {what} {cents}")
    return _text([*lines, f"stated: {stated}", f"city: {city}"])


def _enriched(text: str) -> str:
    """The record with what follows from it; where a correction was sent, what that asks for."""
    lines = text.splitlines()
    corrections = fields_of("\n".join(_after(CORRECT, lines)))
    record = fields_of("\n".join(line for line in lines if not line.startswith(CORRECT)))
    parsed = {name: value for name, value in record.items() if name not in ADDED}
    whole = parsed | added(parsed) | corrections
    return _text([f"{name}: {value}" for name, value in whole.items()])


def _validated(text: str) -> str:
    record = fields_of(text)
    right = added({name: value for name, value in record.items() if name not in ADDED})
    flags = [
        f"flag: {name} is {record.get(name, 'missing')}, should be {right[name]}"
        for name in ADDED
        if record.get(name) != right[name]
    ]
    if record.get("stated") != right["net"]:
        flags.append(f"flag: stated is {record.get('stated', 'missing')}, should be {right['net']}")
    return _text(flags or ["everything is right"])


_ANSWERS: Final[dict[str, Callable[[str], str]]] = {
    PARSE: _parsed,
    ENRICH: _enriched,
    VALIDATE: _validated,
}


def _after(mark: str, lines: list[str]) -> Iterator[str]:
    return (line.removeprefix(mark) for line in lines if line.startswith(mark))


def _text(lines: list[str]) -> str:
    return "".join(f"{line}\n" for line in lines)


def _cents(text: str) -> int:
    """The price of an item; one that is not written to its end yet counts as far as it is."""
    parts = text.split()
    if len(parts) < 3 or not (parts[0].isdigit() and parts[2].isdigit()):
        return 0
    return int(parts[0]) * int(parts[2])


def _drawn(number: int, seed: int) -> Order:
    draws = (uniform(seed, 7000 + number, index) for index in range(1000))

    def pick(count: int) -> int:
        return int(next(draws) * count)

    cities = tuple(COUNTRIES)
    items = tuple(
        Item(1 + pick(9), GOODS[pick(len(GOODS))], 100 + pick(9900)) for _ in range(2 + pick(4))
    )
    net = sum(item.count * item.cents for item in items)
    stated = net + 100 * (1 + pick(50)) if next(draws) < MISSTATED_SHARE else net
    customer, city = CUSTOMERS[pick(len(CUSTOMERS))], cities[pick(len(cities))]
    return Order(1001 + number, customer, city, items, stated)
