"""A plan with shared state and effects, killed at drawn moments, ends as if it had never been."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from time import sleep
from typing import Final

import pytest
from msgspec import Struct

from tests.promises.user import User, until, user

ITEMS: Final = tuple(range(1, 9))
LARGE: Final = 100_000
"""Bytes of a payload: more than a pipe holds."""

WORK: Final = """\
echo "start $1" >> "$LEDGER"
sleep 0.02
echo "end $1" >> "$LEDGER"
"""

SEND: Final = """\
echo "send $HEADWAY_EFFECT_KEY" >> "$LEDGER"
cat > "$GOT/$HEADWAY_EFFECT_KEY.$$.part"
sleep 0.02
mv "$GOT/$HEADWAY_EFFECT_KEY.$$.part" "$GOT/$HEADWAY_EFFECT_KEY.$$"
echo "sent $HEADWAY_EFFECT_KEY" >> "$LEDGER"
"""

PLAN: Final = f"""\
headway: 1
name: killed
strategy: fixed(3)
retries: 20
state:
  total: counter
  log: append
  mail: effect(. ./send.sh)
  sms: effect(. ./send.sh)
tasks:
  count:
    each: [{", ".join(map(str, ITEMS))}]
    writes: [state:total, state:log, effect:mail, effect:sms]
    run: |
      sh ./work.sh "$item"
      echo "$item" > "$HEADWAY_PUT/total"
      echo "\\"$item\\"" > "$HEADWAY_PUT/log"
      printf '"mail %s %0{LARGE}d"\\n' "$item" 0 > "$HEADWAY_PUT/mail"
      echo "\\"sms $item\\"" > "$HEADWAY_PUT/sms"
  after:
    needs: count
    reads: state:total
    run: 'sh ./work.sh after; cat "$HEADWAY_STATE/total"'
"""

VICTIMS: Final = ("all", "all", "headway", "headway", "shim", "effect")
LINES: Final = 4 * len(ITEMS) + 2 * len(ITEMS) + 2
"""Of the ledger of a run that nothing interrupts."""


class Killed(Struct):
    """A run of the plan that is killed again and again."""

    owner: User
    chance: random.Random
    process: subprocess.Popen[str] | None = None

    @property
    def ledger(self) -> Path:
        return Path(self.owner.env["LEDGER"])

    def lines(self) -> list[str]:
        return self.ledger.read_text().splitlines() if self.ledger.exists() else []

    def start(self) -> subprocess.Popen[str]:
        runs = Path(self.owner.env["HEADWAY_STATE_DIR"]) / "runs"
        has_begun = runs.exists() and any(runs.glob("*/journal.db"))
        words = ("resume", "last", "-q") if has_begun else ("run", "-q", "plan.yaml")
        nowhere = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        return self.owner.start(*words, **nowhere)

    def kill_once(self) -> str:
        """Kill at a drawn moment of the run: whom, or nothing if it ended before."""
        before, process = len(self.lines()), self.process
        if process is None or process.poll() is not None:
            process = self.process = self.start()
        lines = self.chance.randint(0, LINES // 4)
        until(lambda: len(self.lines()) - before >= lines or process.poll() is not None)
        sleep(self.chance.uniform(0.0, 0.03 if lines else 0.4))
        if process.poll() is not None:
            return ""
        whom = self.chance.choice(VICTIMS)
        mark = {"shim": b"agents.shim", "effect": b". ./send.sh"}.get(whom)
        found = list(children(process.pid, mark)) if mark else []
        for pid in found:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        if found:
            return whom  # The run goes on without it, or ends by itself.
        if whom == "all":
            self.owner.close()
        process.kill()
        process.wait()
        until(lambda: not self.owner.processes())
        return whom if whom == "all" else "headway"

    def must_be_as_serial(self) -> None:
        """Every effect has its payload and one key, in order; the state is that of a serial run."""
        if self.process is not None:
            self.process.wait()
        assert self.start().wait() == 0
        state = self.owner.headway("results", "last", "--state", "--json").stdout
        (shown,) = map(json.loads, state.splitlines())
        values = shown.get("values", shown)
        assert values["total"] == sum(ITEMS)
        assert values["log"] == [str(item) for item in ITEMS]
        payloads: dict[str, str] = {}
        for path in Path(self.owner.env["GOT"]).iterdir():
            if path.suffix != ".part":
                key, payload = path.name.partition(".")[0], json.loads(path.read_text() or "null")
                assert payloads.setdefault(key, payload) == payload, f"{key}: {payload!r}"
        mails = [f"mail {item} {0:0{LARGE}d}" for item in ITEMS]
        wanted = [*mails, *(f"sms {item}" for item in ITEMS)]
        assert sorted(payloads.values()) == sorted(wanted), "each effect under one key"
        sent = [line.split()[1] for line in self.lines() if line.startswith("sent ")]
        first = [payloads[key] for key in dict.fromkeys(sent)]
        for channel in ("mail", "sms"):
            order = [one for one in first if one.startswith(channel)]
            assert order == [one for one in wanted if one.startswith(channel)]


def children(pid: int, mark: bytes) -> Iterator[int]:
    """The direct children of a process whose command line has this in it."""
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            parent = int((entry / "stat").read_bytes().rpartition(b")")[2].split()[1])
            if parent == pid and mark in (entry / "cmdline").read_bytes():
                yield int(entry.name)


def killed(place: Path, seed: int, kills: int) -> Counter[str]:
    """One run, killed so often: how many kills hit, by victim."""
    hits: Counter[str] = Counter()
    with user(place) as owner:
        (owner.root / "got").mkdir()
        owner.env |= {"LEDGER": str(owner.root / "ledger"), "GOT": str(owner.root / "got")}
        for name, text in {"work.sh": WORK, "send.sh": SEND, "plan.yaml": PLAN}.items():
            owner.write(name, text)
        run = Killed(owner, random.Random(seed))
        for _ in range(kills):
            hits[run.kill_once()] += 1
        run.must_be_as_serial()
    del hits[""]
    return hits


def test_kills_leave_state_and_effects_as_if_there_had_been_none(tmp_path: Path) -> None:
    """A slice of the campaign below."""
    assert killed(tmp_path / "run", seed=3, kills=2).total() > 0


@pytest.mark.soak
def test_a_hundred_and_fifty_kills(tmp_path: Path) -> None:
    hits: Counter[str] = Counter()
    seed = 0
    while hits.total() < 150:
        seed += 1
        hits += killed(tmp_path / str(seed), seed, kills=6)
    print(f"{hits.total()} kills that hit, of {seed} runs: {dict(hits)}")
    assert min(hits[whom] for whom in VICTIMS) > 0
