"""Writes the figures of docs/agents.md: `python -m bench.agents_report [turns] [crowds] [holds]`.

Each part is between two marks in the page and is replaced by itself; what is around the marks is
written by hand.
"""

from __future__ import annotations

import os
import platform
import re
import sys
from collections.abc import Callable
from typing import Final

from msgspec.structs import replace

from bench.markdown import table
from headway.sim.server import launched, truth_of
from tests.agents.agents import CLIENTS, ROOT, Client, Urls
from tests.agents.crowd import Turn, crowd
from tests.agents.gate import gateway
from tests.agents.holding import held
from tests.agents.scene import CROWDS, Figures, scene

PAGE: Final = ROOT / "docs" / "agents.md"
HOLD_S: Final = 330.0
MACHINE: Final = f"{platform.machine()}, {os.cpu_count()} cores, {platform.system()}"


def turns() -> str:
    """One turn with two tools of each client, with the gateway and without."""
    rows = []
    with launched("--model", "agent", "--first-byte-s", "0.05") as url, gateway(url) as gate:
        for client in CLIENTS:
            straight = _turn(client, Urls.all_at(url), url)
            through = _turn(client, gate.urls, url)
            rows.append([client.name, client.version, client.wire, *straight, *through])
    headings = ["client", "version", "wire", "straight", "calls", "through the gateway", "calls"]
    return table(headings, rows)


def _turn(client: Client, urls: Urls, url: str) -> tuple[str, str]:
    before = int(truth_of(url, "?arrivals=0")["arrivals_total"])
    (turn,) = crowd([client], urls, 2)
    calls = int(truth_of(url, "?arrivals=0")["arrivals_total"]) - before
    return f"{_how(turn)}, {turn.took_s:.1f} s", str(calls)


def _how(turn: Turn) -> str:
    return "finished" if turn.is_finished else f"failed ({turn.status})"


def crowds() -> str:
    """Every crowd, through the gateway and without it."""
    rows = []
    for name, kinds in CROWDS.items():
        for paced in (True, False):
            for found in scene(name, paced):
                print(name, paced, replace(found, failures=()), file=sys.stderr)
                who = name if len(kinds) == 1 else f"{name}: {found.client}"
                rows.append([who, "**gateway**" if paced else "without", *_figures(found)])
    headings = ["agents", "", "finished", "calls", "refused upstream", "sent twice", "ideal",
                "first call", "makespan", "over ideal", "slowest / fastest"]  # fmt: skip
    return f"Measured on {MACHINE}.\n\n" + table(headings, rows)


def _figures(found: Figures) -> list[str]:
    return [
        f"{found.finished} of {found.agents}",
        str(found.calls),
        str(found.refused),
        str(found.duplicates),
        f"{found.ideal_s:.0f} s",
        f"{found.startup_s:.1f} s",
        f"{found.makespan_s:.1f} s",
        f"{found.over_ideal:.2f}",
        f"{found.spread:.2f}",
    ]


def holds() -> str:
    """Each client, held before its first call."""
    found = held(HOLD_S)
    rows = []
    for client in CLIENTS:
        one = found[client.name]
        rows.append([client.name, client.version, f"{one.hold_s:.0f} s", _how(one.turn),
                     str(one.calls), str(one.resent), f"{one.turn.took_s:.0f} s"])  # fmt: skip
    headings = ["client", "version", "held", "turn", "calls", "sent twice", "took"]
    return table(headings, rows)


PARTS: Final[dict[str, Callable[[], str]]] = {"turns": turns, "crowds": crowds, "holds": holds}


def written(page: str, part: str, text: str) -> str:
    """The page with one part replaced."""
    marks = re.compile(rf"(<!-- {part} -->\n).*?(<!-- /{part} -->)", re.DOTALL)
    found, count = marks.subn(lambda match: f"{match[1]}{text}{match[2]}", page)
    assert count == 1, f"{PAGE.name} has no place for {part}"
    return found


def main(parts: list[str]) -> None:
    for part in parts or list(PARTS):
        text = PARTS[part]()
        PAGE.write_text(written(PAGE.read_text(), part, text))
        print(text)


if __name__ == "__main__":
    main(sys.argv[1:])
