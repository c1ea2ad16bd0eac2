"""How large the package is: lines, modules, records, repeated names, constants.

`python -m tests.totals [CHECKOUT ...]` prints a table, one column for each checkout of the project.
`tests/test_style.py` holds the totals of `totals.json`, which may only fall:
`python -m tests.totals --lower` writes those that fell. A feature that needs more has an entry
with its reason under `allowances`.
"""

from __future__ import annotations

import ast
import json
import sys
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parent.parent
FILE: Final = Path(__file__).with_name("totals.json")
RECORD_DECORATORS: Final = {"dataclass", "quick"}
"""`quick` was a kind of dataclass of earlier commits."""
RECORD_BASES: Final = {"NamedTuple", "TypedDict", "Struct"}
PAGES: Final = {".py", ".html", ".js", ".css"}


def measure(checkout: Path) -> dict[str, int]:
    """The totals of a checkout of the project."""
    package = checkout / "src" / "headway"
    files = [path for path in package.rglob("*") if path.suffix in PAGES]
    modules = {path: ast.parse(path.read_text()) for path in files if path.suffix == ".py"}
    nodes = [node for tree in modules.values() for node in ast.walk(tree)]
    folders = Counter(path.parent for path in modules if path.name != "__init__.py")
    public = Counter(
        node.name
        for tree in modules.values()
        for node in tree.body
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
    )
    return {
        "lines": _lines(files),
        "modules": len(modules),
        "records": len(_records([node for node in nodes if isinstance(node, ast.ClassDef)])),
        "public class names used twice": sum(count > 1 for count in public.values()),
        "numeric constants": sum(_constants(tree) for tree in modules.values()),
        "modules in the fullest folder": max(folders.values()),
        "lines of tests": _lines((checkout / "tests").rglob("*.py")),
    }


def _lines(files: Iterable[Path]) -> int:
    return sum(len(path.read_text().splitlines()) for path in files)


def _records(classes: list[ast.ClassDef]) -> list[ast.ClassDef]:
    """Classes that hold fields, and those that inherit from one."""
    names, found = set(RECORD_BASES), []
    while more := [one for one in classes if one not in found and _is_record(one, names)]:
        found += more
        names |= {one.name for one in more}
    return found


def _is_record(node: ast.ClassDef, names: set[str]) -> bool:
    decorators = {
        _name(one.func if isinstance(one, ast.Call) else one) for one in node.decorator_list
    }
    return bool(decorators & RECORD_DECORATORS or set(map(_name, node.bases)) & names)


def _name(node: ast.expr) -> str:
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
        case ast.Subscript(value=value):
            return _name(value)
        case _:
            return ""


def _constants(tree: ast.Module) -> int:
    """Names in capitals at the top of a module that stand for one number."""
    count = 0
    for node in tree.body:
        match node:
            case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value):
                pass
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                pass
            case _:
                continue
        count += name.isupper() and _is_number(value)
    return count


def _is_number(value: ast.expr) -> bool:
    match value:
        case ast.Constant(value=bool()):
            return False
        case ast.Constant(value=int() | float()):
            return True
        case ast.UnaryOp(operand=operand):
            return _is_number(operand)
        case ast.BinOp(left=left, right=right):
            return _is_number(left) and _is_number(right)
        case _:
            return False


def limits() -> dict[str, int]:
    """The largest totals that are allowed: the last ones, and what was granted for features."""
    kept = json.loads(FILE.read_text())
    granted = [grant["totals"] for grant in kept["allowances"]]
    return {
        name: total + sum(grant.get(name, 0) for grant in granted)
        for name, total in kept["totals"].items()
    }


def lower() -> None:
    """Lower the totals by what is left of them, allowances included."""
    kept, found, allowed = json.loads(FILE.read_text()), measure(ROOT), limits()
    for name in kept["totals"]:
        kept["totals"][name] -= max(0, allowed[name] - found[name])
    FILE.write_text(json.dumps(kept, indent=2) + "\n")


def main(arguments: list[str]) -> None:
    if arguments == ["--lower"]:
        lower()
    columns = [measure(Path(one)) for one in arguments if one != "--lower"] or [measure(ROOT)]
    for name in columns[0]:
        print(f"{name:32}" + "".join(f"{column[name]:>10,}" for column in columns))


if __name__ == "__main__":
    main(sys.argv[1:])
