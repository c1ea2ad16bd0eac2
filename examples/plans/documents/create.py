"""Makes 200 documents, the same ones every time: `python3 create.py FOLDER`.

Invoices in two forms, credit notes and letters; `records` is what a perfect reader finds in them.
"""

from __future__ import annotations

import random
import sys
from pathlib import Path
from typing import NamedTuple

COUNT = 200
SUPPLIERS = (
    "Alder & Sons", "Birch Supplies Ltd", "Cedar, Oak and Co", "Dune Logistics", 'Elm "Fast" Print',
    "Fjord Foods", "=SUM(A1:A9) Holding", "+Plus Energy", "-Minus Cooling", "@Home Services",
)  # fmt: skip
"""The last four are what a spreadsheet would take for a formula."""

CURRENCIES = ("EUR", "USD", "GBP")


class Record(NamedTuple):
    """What is in a document; a letter has neither number nor total."""

    kind: str
    number: str
    date: str
    supplier: str
    total: str
    currency: str


def records() -> list[Record]:
    """What is true of each document, in the order of their names."""
    return [_record(number) for number in range(COUNT)]


def _record(number: int) -> Record:
    chance = random.Random(number)
    date = f"2026-{chance.randint(1, 12):02}-{chance.randint(1, 28):02}"
    supplier = SUPPLIERS[number % len(SUPPLIERS)]
    kind = ("invoice", "invoice", "invoice", "credit", "letter")[number // 2 % 5]
    if kind == "letter":
        return Record(kind, "", date, supplier, "", "")
    total = f"{'-' if kind == 'credit' else ''}{chance.randint(5, 9000)}.{chance.randint(0, 99):02}"
    return Record(kind, f"{chance.randint(1000, 9999)}-{number:03}", date, supplier, total,
                  chance.choice(CURRENCIES))  # fmt: skip


def document(number: int) -> str:
    """The text of one; every second invoice has its date the other way round."""
    record, chance = _record(number), random.Random(number)
    year, month, day = record.date.split("-")
    if record.kind == "letter":
        return (
            f"{record.supplier}\n{record.date}\n\nDear customers,\n\nour offices are closed "
            f"for {chance.randint(2, 9)} days. Orders that reach us before are sent in time.\n\n"
            "Kind regards\n"
        )
    positions = "".join(
        f"{place}. {chance.randint(1, 40)} x {chance.choice(('paper', 'boxes', 'labels', 'ink'))}\n"
        for place in range(1, chance.randint(2, 6))
    )
    if number % 2:
        return (
            f"{record.supplier}\nInvoice no. {record.number} of {day}.{month}.{year}\n\n"
            f"{positions}\nPlease pay {record.total} {record.currency} within 30 days.\n"
        )
    title = "CREDIT NOTE" if record.kind == "credit" else "INVOICE"
    return (
        f"{title} {record.number}\nDate: {record.date}\nFrom: {record.supplier}\n\n{positions}\n"
        f"Total: {record.total} {record.currency}\n"
    )


def create(folder: Path, count: int = COUNT) -> None:
    """The documents as files."""
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(count):
        (folder / f"document-{number:03}.txt").write_text(document(number), encoding="utf-8")


if __name__ == "__main__":
    create(Path(sys.argv[1]))
