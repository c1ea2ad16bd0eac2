"""Runs of several shapes, finished and killed, and the ways in which their files are spoilt."""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Final

from msgspec import Struct, field

from tests.promises.user import Provider, User, kill_group, openai_at, until, user
from tests.promises.warm import Warm

WORK: Final = """\
echo "$1" >> "$LEDGER"
case "$1" in 2) size=20000;; 3) size=1200000;; *) size=200;; esac
printf "result of $1 %0${size}d\\n" 0
sleep "$SLOW"
"""
"""A result of usual size, one that the log of commands keeps as a file, and one that fills hundreds
of the journal's pages."""

SEND: Final = """\
read -r payload
printf '%s\\n' "$HEADWAY_EFFECT_KEY $payload" >> "$LEDGER.mail"
"""

COMMANDS: Final = """\
headway: 1
name: commands
strategy: fixed(2)
tasks:
  list:
    run: 'sh ./work.sh list >/dev/null; seq 1 8'
  work:
    each: list
    run: sh ./work.sh "$item"
  sum:
    reduce: work
    run: 'sh ./work.sh sum >/dev/null; cksum'
"""

STATE: Final = """\
headway: 1
name: shared
strategy: fixed(2)
state:
  total: counter
  log: append
  mail: effect(. ./send.sh)
tasks:
  count:
    each: [1, 2, 4, 5, 6, 7]
    writes: [state:total, state:log, effect:mail]
    run: |
      sh ./work.sh "$item"
      echo "$item" > "$HEADWAY_PUT/total"
      echo "\\"$item\\"" > "$HEADWAY_PUT/log"
      echo "\\"mail $item\\"" > "$HEADWAY_PUT/mail"
  after:
    needs: count
    reads: state:total
    run: cat "$HEADWAY_STATE/total"
"""

PROMPTS: Final = """\
headway: 1
name: prompts
model: openai/hash
strategy: fixed(2)
tasks:
  ask:
    each: [1, 2, 3, 4, 5, 6]
    prompt: Say something about {{ item }}.
  end:
    reduce: ask
    prompt: Sum it up.
"""

START: Final[dict[str, tuple[str, ...]]] = {
    "each": ("each", "-j2", "sh ./work.sh {}", ":::", *map(str, range(1, 9))),
    "commands": ("run", "-q", "commands.yaml"),
    "state": ("run", "-q", "state.yaml"),
    "prompts": ("run", "-q", "--yes", "prompts.yaml"),
}
SHAPES: Final = tuple(START)


class Reference(Struct):
    """A run as it was before it was spoilt, and what it gives when nothing is."""

    shape: str
    is_killed: bool
    owner: User
    run: str
    results: dict[str, str]
    state: str
    mails: set[str]
    kept: frozenset[str]

    @property
    def files(self) -> Path:
        return Path(self.owner.env["HEADWAY_STATE_DIR"])


class Case(Struct):
    """A copy of a run, to be spoilt."""

    reference: Reference
    owner: User
    number: int = 0
    did: list[str] = field(default_factory=list)

    @property
    def folder(self) -> Path:
        return Path(self.owner.env["HEADWAY_STATE_DIR"]) / "runs" / self.reference.run

    @property
    def ledger(self) -> Path:
        return Path(self.owner.env["LEDGER"])

    @property
    def has_lost_outputs(self) -> bool:
        """Whether the log of commands was spoilt too, or their long outputs."""
        return any("cut_command_log" in one for one in self.did)

    def executed(self) -> list[str]:
        return self.ledger.read_text().split() if self.ledger.exists() else []

    def mails(self) -> list[str]:
        path = Path(f"{self.ledger}.mail")
        return path.read_text().splitlines() if path.exists() else []


def prepared(root: Path, sim: Provider) -> User:
    """A user with the files of every shape."""
    with user(root, openai_at(sim, "spoiling")) as someone:
        pass
    names = {"work.sh": WORK, "send.sh": SEND, "commands.yaml": COMMANDS, "state.yaml": STATE}
    for name, text in (names | {"prompts.yaml": PROMPTS}).items():
        someone.write(name, text)
    return someone


def at(someone: User, place: Path, **more: str) -> User:
    """The same user with another folder of state."""
    own = {"HEADWAY_STATE_DIR": str(place / "state"), "LEDGER": str(place / "ledger")}
    place.mkdir(parents=True, exist_ok=True)
    return User(someone.root, someone.env | own | {"SLOW": "0"} | more)


def reference(
    warm: Warm, someone: User, place: Path, shape: str, sim: Provider, kill_after: int
) -> Reference:
    """A run that ends, or that is killed when so many tasks have ended."""
    owner = at(someone, place / shape / "whole")
    ended = warm.headway(owner, *START[shape])
    assert ended.code == 0, ended.err
    results, state = gave(warm, owner), shared(warm, owner)
    mails = set(map(payload_of, Case(empty(owner), owner).mails()))
    if kill_after:
        owner = at(someone, place / shape / f"killed-{kill_after}", SLOW="0.1")
        _kill(owner, shape, sim, kill_after)
    run = next((Path(owner.env["HEADWAY_STATE_DIR"]) / "runs").iterdir()).name
    found = Reference(shape, kill_after > 0, owner, run, results, state, mails, frozenset())
    # Reading changes nothing that matters, but the copy is read so that nothing changes at all.
    copy = copied(found, someone, place / "read" / shape)
    found.kept = frozenset(gave(warm, copy.owner))
    return found


def empty(owner: User) -> Reference:
    return Reference("", False, owner, "", {}, "", set(), frozenset())


def _kill(owner: User, shape: str, sim: Provider, count: int) -> None:
    """Kill every process of a run when it has come so far."""
    before = _calls(sim)
    process = owner.start(*START[shape], stdout=subprocess.DEVNULL)
    ledger = Path(owner.env["LEDGER"])

    def is_far() -> bool:
        if shape == "prompts":
            return _calls(sim) - before > count
        return ledger.exists() and len(ledger.read_text().split()) > count

    until(is_far)
    kill_group(process)
    owner.close()


def _calls(sim: Provider) -> int:
    account = sim.account("spoiling")
    return 0 if account is None else int(account["calls"])


def copied(of: Reference, someone: User, place: Path) -> Case:
    """A copy of a run's files, for a user who has nothing else."""
    shutil.rmtree(place, ignore_errors=True)
    owner = at(someone, place)
    shutil.copytree(of.files, owner.env["HEADWAY_STATE_DIR"])
    return Case(of, owner)


def gave(warm: Warm, owner: User) -> dict[str, str]:
    """The results of the last run that are there."""
    said = warm.headway(owner, "results", "last", "--all", "--json").out
    lines = [json.loads(line) for line in said.splitlines()]
    return {line["task"]: line["output"] for line in lines if line["state"] in ("done", "reused")}


def shared(warm: Warm, owner: User) -> str:
    return warm.headway(owner, "results", "last", "--state", "--json").out


def payload_of(mail: str) -> str:
    """What a mail said; the key differs from run to run."""
    return mail.partition(" ")[2]


def spoil(case: Case, chance: random.Random) -> bool:
    """Spoil files of a run, in one of many ways; False if it has no such file."""
    way = chance.choice(WAYS)
    done = way(case.folder, chance)
    case.did.append(f"{way.__name__} {done}")
    return bool(done)


def _pick(folder: Path, chance: random.Random, *names: str) -> Path | None:
    found = [path for name in names for path in sorted(folder.glob(name))]
    found = [path for path in found if path.is_file() and path.stat().st_size]
    return chance.choice(found) if found else None


BOTH: Final = ("journal.db", "journal.db-wal")


def truncate_journal(folder: Path, chance: random.Random) -> str:
    path = _pick(folder, chance, *BOTH)
    if path is None:
        return ""
    size = chance.randrange(path.stat().st_size)
    if chance.random() < 0.5:
        size -= size % 4096 if path.suffix == ".db" else max(0, size - 32) % 4120
    os.truncate(path, size)
    return f"{path.name} at {size}"


def _edited(folder: Path, chance: random.Random, edit: Callable[[bytearray], object]) -> str:
    path = _pick(folder, chance, *BOTH)
    if path is None:
        return ""
    data = bytearray(path.read_bytes())
    said = edit(data)
    path.write_bytes(data)
    return f"{path.name} at {said}"


def flip(folder: Path, chance: random.Random) -> str:

    def edit(data: bytearray) -> object:
        places = [chance.randrange(len(data)) for _ in range(chance.choice((1, 3, 40)))]
        for place in places:
            data[place] ^= chance.randrange(1, 256)
        return places[:5]

    return _edited(folder, chance, edit)


def flip_text(folder: Path, chance: random.Random) -> str:
    """A byte that is neither zero nor in an empty place."""

    def edit(data: bytearray) -> object:
        place = chance.choice([n for n, byte in enumerate(data) if byte])
        data[place] ^= 1 << chance.randrange(8)
        return place

    return _edited(folder, chance, edit)


def flip_definitions(folder: Path, chance: random.Random) -> str:
    """A letter of the first page, which defines the tables."""
    path = folder / "journal.db"
    data = bytearray(path.read_bytes())
    places = [n for n, byte in enumerate(data[100:4096], 100) if chr(byte).isalpha()]
    if not places:
        return ""
    place = chance.choice(places)
    data[place] = ord("z") if data[place] != ord("z") else ord("y")
    path.write_bytes(data)
    return f"{path.name} at {place}"


def zero_pages(folder: Path, chance: random.Random) -> str:
    def edit(data: bytearray) -> object:
        pages = max(1, len(data) // 4096)
        picked = chance.sample(range(pages), chance.randint(1, min(3, pages)))
        for page in picked:
            at = slice(page * 4096, (page + 1) * 4096)
            data[at] = bytes(len(data[at]))
        return picked

    return _edited(folder, chance, edit)


def swap_pages(folder: Path, chance: random.Random) -> str:
    path = _pick(folder, chance, "journal.db")
    pages = 0 if path is None else path.stat().st_size // 4096
    if path is None or pages < 2:
        return ""
    data = path.read_bytes()
    cut = [data[n * 4096 : (n + 1) * 4096] for n in range(pages)]
    one, other = chance.sample(range(pages), 2)
    cut[one], cut[other] = cut[other], cut[one]
    path.write_bytes(b"".join(cut))
    return f"{one} and {other}"


def drop_log(folder: Path, chance: random.Random) -> str:
    path = _pick(folder, chance, "journal.db-wal")
    if path is not None:
        path.unlink()
    return "" if path is None else path.name


def drop_index(folder: Path, chance: random.Random) -> str:
    path = _pick(folder, chance, "journal.db-shm")
    if path is None:
        return ""
    if chance.random() < 0.5:
        path.unlink()
    else:
        path.write_bytes(chance.randbytes(path.stat().st_size))
    return path.name


def replace_journal(folder: Path, chance: random.Random) -> str:
    path = folder / "journal.db"
    path.write_bytes(chance.choice((b"", b"\0" * 8192, chance.randbytes(5000), b"SQLite format 3")))
    return f"{path.stat().st_size} bytes"


def cut_command_log(folder: Path, chance: random.Random) -> str:
    """The log of the commands' process loses its end, and the journal loses its last changes."""
    path = _pick(folder, chance, "shim.log", "out/*")
    if path is None:
        return ""
    os.truncate(path, chance.randrange(path.stat().st_size))
    return f"{path.name}; {truncate_journal(folder, chance)}"


def spoil_beside(folder: Path, chance: random.Random) -> str:
    """The file beside the journal: its owner, and the count of events."""
    path = _pick(folder, chance, "owner.lock")
    if path is None:
        return ""
    if chance.random() < 0.3:
        path.unlink()
    elif chance.random() < 0.5:
        os.truncate(path, chance.randrange(path.stat().st_size))
    else:
        path.write_bytes(chance.randbytes(path.stat().st_size))
    return f"{path.parent.name}/{path.name}"


def spoil_twice(folder: Path, chance: random.Random) -> str:
    ways = [chance.choice(WAYS[:-1]) for _ in range(2)]
    return "; ".join(f"{way.__name__} {done}" for way in ways if (done := way(folder, chance)))


WAYS: Final[tuple[Callable[[Path, random.Random], str], ...]] = (
    truncate_journal, truncate_journal, flip, flip_text, flip_text, flip_definitions, zero_pages,
    zero_pages, swap_pages, drop_log, drop_log, drop_index, replace_journal, cut_command_log,
    spoil_beside, spoil_twice,
)  # fmt: skip
