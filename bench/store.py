"""What it takes to save the broker's memory: `python -m bench.store`.

Ten thousand clients with one call each in flight, 20 seconds long, for ten minutes of virtual time.
The memory is saved four times a second or, where there is a budget, at every decision, and on the
disk before the decision counts. Only the saves are timed, in CPU time; beside them the commit whose
store wrote the whole memory each time, for less long, because it takes longer.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from bench.markdown import table
from bench.results import ROOT, say
from bench.versions import checked_out, home

COMMIT: Final = "0ffab9b"
CLIENTS: Final = 10_000
SECONDS: Final = 600
SECONDS_BEFORE: Final = 5
SHARE_MAX: Final = 0.05
SCENES: Final = ((1, 0), (100, 0), (1000, 0), (1, 1), (100, 1))
"""Accounts, and whether there is a budget."""
REPORT: Final = ROOT / "docs" / "benchmarks" / "store.md"

SCRIPT: Final = """
import json, os, sys, time
from headway.base.values import Amounts, Sketch, Tally
from headway.broker.store import Store
from headway.pacing.account import Profile
from headway.pacing.admission import Admission
from headway.pacing.call import Outcome, Request
from headway.pacing.memory import *
clients, accounts, has_budget, seconds = map(int, sys.argv[1:])
LASTS_S, WARM_S, STEP_S = 20, 20, 0.05 if has_budget else 0.25
chronicle, hours = Chronicle(), 24
for hour in range(hours):
    chronicle.turn(hour, 3600.0 * hour)
    for minute in range(60):
        chronicle.answered(3600.0 * hour + 60.0 * minute, Amounts(10.0, 5.0), 0.1, 0.3, 3, 0.0)
now = 3600.0 * hours
width = 2.0 * clients
names = [f"api.example#{number:012}" for number in range(accounts)]
kept = tuple([
    AccountMemory(name, "model", "plain", Profile(width=width), chronicle=chronicle.memory(now))
    for name in names
])
Terms = type(AccountTerms().budget)
terms = AccountTerms(budget=Terms(tokens=1e15))
terms = (("", terms),) if has_budget else ()
admission = Admission(PacingMemory(terms=terms, accounts=kept), lambda *_: None, now)
admission.budgets.turn("2026-11-16")
people = [f"{number}-{number:08x}" for number in range(clients)]
path = os.path.abspath("memory.dat")
store = Store(path)
is_log = hasattr(store, "_append")
connected = () if hasattr(store, "joined") else (set(people),)
if is_log and not connected:
    for name in people:
        store.joined(name)
spent_s, saves, written, number, flying = 0.0, 0, 0, 0, {}
size, inode = 0, 0
steps, warm = int((WARM_S + seconds) / STEP_S), int(WARM_S / STEP_S)
per_step = clients * STEP_S / LASTS_S
sketch = Sketch("model", size_bytes=400, max_output_tokens=100)
for step in range(steps):
    now += STEP_S
    due = min(int((step + 1) * per_step), clients + number)
    for call in flying.pop(step, ()):
        admission.settle(call, Outcome("used", Tally(100.0, 0.0, 50.0), dialect="plain"), now)
    while number < due:
        call = (people[number % clients], number)
        request = Request(names[number % accounts], "plain", sketch)
        admission.ask(call, request, now)
        number += 1
    grants = admission.decide(now).grants
    flying.setdefault(step + int(LASTS_S / STEP_S), []).extend([grant.id for grant in grants])
    began_s = time.process_time()
    if is_log:
        is_money = bool(has_budget and step % 5)
        is_durable = bool(has_budget)
        fault = store.save(admission, now, *connected, is_money=is_money, is_durable=is_durable)
    else:
        fault = store.save(admission.memory(now), tuple(people), is_durable=bool(has_budget))
    taken_s = time.process_time() - began_s
    assert not fault, fault
    found = os.stat(path)
    more = found.st_size - size if found.st_ino == inode else found.st_size
    size, inode = found.st_size, found.st_ino
    if step >= warm:
        spent_s, saves, written = spent_s + taken_s, saves + 1, written + more
        in_flight = sum(len(one.in_flight) for one in admission.accounts)
print(json.dumps([spent_s, saves, written, in_flight]))
"""
"""Prints CPU seconds, saves, bytes, and the calls in flight at the end."""


def main(arguments: Sequence[str] | None = None) -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m bench.store")
    parser.add_argument("--clients", type=int, default=CLIENTS)
    parser.add_argument("--seconds", type=int, default=SECONDS, help="of virtual time")
    parser.add_argument("--output", type=Path, default=REPORT)
    parsed = parser.parse_args(arguments)
    old, lines = checked_out(COMMIT), list[list[str]]()
    for accounts, budget in SCENES:
        before = measured(old, parsed.clients, accounts, budget, SECONDS_BEFORE)
        after = measured(sys.executable, parsed.clients, accounts, budget, parsed.seconds)
        shares = before[0] / SECONDS_BEFORE, after[0] / parsed.seconds
        lines.append(
            [
                f"{accounts:,}{', budget' if budget else ''}",
                f"{after[3]:,.0f}",
                f"{1000 * before[0] / before[1]:.2f}",
                f"{1000 * after[0] / after[1]:.2f}",
                f"{before[2] / SECONDS_BEFORE / 1e6:.2f}",
                f"{after[2] / parsed.seconds / 1e6:.2f}",
                f"{shares[0]:.1%}",
                f"{shares[1]:.2%}",
                f"{shares[1] / shares[0]:.4f}",
                "yes" if shares[1] <= SHARE_MAX else "no",
            ]
        )
        say(" | ".join(lines[-1]))
    head = ["accounts", "in flight", f"{COMMIT}, ms a save", "now, ms a save", f"{COMMIT}, MB/s"]
    head += ["now, MB/s", f"{COMMIT}, CPU", "now, CPU", "ratio", f"at most {SHARE_MAX:.0%}"]
    text = INTRODUCTION.format(
        clients=parsed.clients, seconds=parsed.seconds, commit=COMMIT, before=SECONDS_BEFORE
    )
    parsed.output.write_text(text + table(head, lines))
    print(text + table(head, lines))
    return 0


def measured(python: str, *scene: int) -> list[float]:
    """CPU seconds, saves, bytes, calls in flight."""
    with tempfile.TemporaryDirectory(prefix="hw-") as folder:
        command = [python, "-c", SCRIPT, *map(str, scene)]
        done = subprocess.run(
            command, env=home(folder), cwd=folder, check=True, stdout=subprocess.PIPE, text=True
        )
    found: list[float] = json.loads(done.stdout)
    return found


INTRODUCTION: Final = """\
# Saving the broker's memory

Generated by `python -m bench.store`; edits are overwritten. {clients:,} clients with one call each
in flight, 20 seconds long, for {seconds} seconds of virtual time ({commit}: {before}). Every
account has the history of a busy day. The memory is saved four times a second, with a budget twenty
times a second and synced to the disk. CPU time of the saves alone, as a share of the virtual time.
Clients here are names in the memory: a broker itself takes 512 connections. The other commit is
measured for fewer seconds, after the same 20 seconds of warm-up.

"""


if __name__ == "__main__":
    sys.exit(main())
