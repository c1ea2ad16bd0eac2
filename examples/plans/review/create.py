"""Makes a repository whose last commit has planted defects: `python3 create.py FOLDER`.

The same one every time: 22 modules of a shop, each with one defect of each kind, on lines that
`planted` names. Nothing of it is ever executed.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

NAMES = (
    "addresses", "baskets", "carriers", "catalog", "coupons", "customers", "discounts", "exports",
    "gifts", "imports", "invoices", "ledgers", "orders", "parcels", "payments", "prices", "refunds",
    "returns", "stock", "suppliers", "taxes", "vouchers",
)  # fmt: skip

DEFECTS = {
    "code": (
        "    if found == None: found = {{}}",
        "    for place in range(len(found) + 1): store.touch(found[place])",
        "    with suppress(Exception): store.touch(key)",
        "def keep_{name}(store, key, found, kept=[]):",
    ),
    "architecture": (
        "from shop.web.session import current_user",
        "from shop.{other} import _private_table",
        "import sqlite3  # the store is too slow",
        "LATEST_{upper} = {{}}  # shared by all requests",
    ),
    "security": (
        '    cursor.execute(f"SELECT * FROM {name} WHERE owner = {{owner}}")',
        "    subprocess.run(command + owner, shell=True)",
        "    return pickle.loads(body)",
        "    digest = hashlib.md5(password.encode())",
    ),
    "multi-perspective": (
        "    time.sleep(5)  # until the other side is ready",
        "    print(owner.email, owner.card_number)",
        "    total: float = price * 1.21",
        "    raise NotImplementedError  # nobody calls this yet",
    ),
}
"""By who finds them; a module has one of each, in turns."""


class Planted(NamedTuple):
    """One defect: its kind, and where it is after the change."""

    kind: str
    file: str
    line: int


def before(name: str) -> list[str]:
    """A module as it was."""
    return [f'"""{name.capitalize()} of the shop."""', "", "from shop.store import Store", "",
            "", f"def all_{name}(store: Store) -> list[dict[str, str]]:",
            f'    """Every row of {name}."""', f'    return store.rows("{name}")']  # fmt: skip


def after(number: int, name: str) -> Iterator[tuple[str, str]]:
    """The lines of a module as it is now, and the kind of defect that a line is."""
    other = NAMES[(number + 1) % len(NAMES)]
    bad = {kind: texts[number % len(texts)].format(name=name, other=other, upper=name.upper())
           for kind, texts in DEFECTS.items()}  # fmt: skip
    one = name.rstrip("s")
    old = before(name)
    for text in old[:3]:
        yield text, ""
    yield bad["architecture"], "architecture"
    for text in old[3:]:
        yield text, ""
    yield from (("", ""), ("", ""))
    yield f"def find_{one}(store: Store, key: str) -> dict[str, str] | None:", ""
    yield f'    """The {one} of this key, if there is one."""', ""
    yield f'    found = store.row("{name}", key)', ""
    if bad["code"].startswith("def "):
        yield from (("    return found", ""), ("", ""), ("", ""))
    yield bad["code"], "code"
    yield f'    store.note("{one} looked up", key)', ""
    yield from (("    return found", ""), ("", ""), ("", ""))
    yield f"def handle_{one}(store: Store, owner: str, body: bytes) -> object:", ""
    yield f'    """What the page for {name} asks for."""', ""
    yield f'    cursor, command = store.cursor(), "report-{name} "', ""
    yield bad["security"], "security"
    yield from (("", ""), ("", ""))
    yield f"def report_{name}(store: Store, owner: object, price: int) -> dict[str, int]:", ""
    yield f'    """How many {name} there are, and what they are worth together."""', ""
    yield f"    rows = all_{name}(store)", ""
    yield bad["multi-perspective"], "multi-perspective"
    for field in ("open", "closed", "late"):
        yield f'    {field}_{name} = [row for row in rows if row["state"] == "{field}"]', ""
        yield f'    store.note("{field} {name}", str(len({field}_{name})))', ""
    yield "    return {", ""
    for field in ("open", "closed", "late"):
        yield f'        "{field}": sum(int(row["amount"]) for row in {field}_{name}),', ""
    yield "    }", ""


def planted() -> list[Planted]:
    """Every defect."""
    return [
        Planted(kind, f"shop/{name}.py", line)
        for number, name in enumerate(NAMES)
        for line, (_, kind) in enumerate(after(number, name), 1)
        if kind
    ]


def create(folder: Path) -> None:
    """The repository, with two commits that have the same hash everywhere."""
    (folder / "shop").mkdir(parents=True)
    _git(folder, "init", "--quiet", "--initial-branch=main")
    for name in NAMES:
        _write(folder, name, before(name))
    _commit(folder, "Rows of the shop")
    for number, name in enumerate(NAMES):
        _write(folder, name, [text for text, _ in after(number, name)])
    _commit(folder, "Find, handle and report them")


def _write(folder: Path, name: str, lines: list[str]) -> None:
    (folder / "shop" / f"{name}.py").write_text("".join(f"{line}\n" for line in lines))


def _commit(folder: Path, message: str) -> None:
    _git(folder, "add", "--all")
    _git(folder, "commit", "--quiet", "--no-gpg-sign", "--no-verify", "--message", message)


def _git(folder: Path, *arguments: str) -> None:
    who = {"NAME": "Ada", "EMAIL": "ada@example.com", "DATE": "2026-01-05T12:00:00Z"}
    told = {f"GIT_{role}_{key}": value for role in ("AUTHOR", "COMMITTER")
            for key, value in who.items()}  # fmt: skip
    told |= {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}
    subprocess.run(["git", "-C", str(folder), *arguments], env=os.environ | told, check=True)


if __name__ == "__main__":
    if not (Path(sys.argv[1]) / ".git").exists():
        create(Path(sys.argv[1]))
