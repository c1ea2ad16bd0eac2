"""What users see of headway, collected from outside: commands, Python names, plan keys, JSON.

`python -m tests.doors.surface` writes it to `surface.json`; the tests compare it with what is
there. A change of that file is a change that users can notice.
"""

from __future__ import annotations

import importlib
import inspect
import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

from tests.doors.scene import json_answers, refusals
from tests.promises.user import user

FILE: Final = Path(__file__).with_name("surface.json")
FLAG: Final = re.compile(r"(?<![\w-])(--?[a-zA-Z0-9][\w-]*)")


def _help(*verb: str) -> str:
    command = [sys.executable, "-m", "headway", *verb, "--help"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def _inner(text: str) -> list[str]:
    """The commands below a command, by its help."""
    if "\ncommands:\n" not in text:
        return []
    part = text.split("\ncommands:\n")[1].partition("\n\n")[0]
    return re.findall(r"^    (\S+)", part, re.MULTILINE)


def _flags(text: str) -> list[str]:
    """The options that a help lists, without those of its examples."""
    listed = text.partition("\nexamples:\n")[0].partition("\nstrategies:\n")[0]
    heads = [re.split(r"\s{2,}", line.strip())[0] for line in listed.splitlines()]
    return sorted({flag for head in heads if head.startswith("-") for flag in FLAG.findall(head)})


def commands() -> dict[str, list[str]]:
    """Every command with its options."""
    found: dict[str, list[str]] = {}
    waiting: list[tuple[str, ...]] = [()]
    with ThreadPoolExecutor(2) as pool:
        while waiting:
            texts = list(pool.map(lambda verb: _help(*verb), waiting))
            level, waiting = waiting, []
            for verb, text in zip(level, texts, strict=True):
                found[" ".join(("headway", *verb))] = _flags(text)
                waiting += [(*verb, name) for name in _inner(text)]
    return dict(sorted(found.items()))


def python_names() -> dict[str, str]:
    """Every public name with its signature, or what kind of thing it is."""
    found: dict[str, str] = {}
    for home in ("headway", "headway.testing", "headway.files", "headway.reducers"):
        module = importlib.import_module(home)
        for name in sorted(getattr(module, "__all__", ())):
            found[f"{home}.{name}"] = _signature(getattr(module, name))
    return found


def _signature(thing: object) -> str:
    if inspect.isclass(thing):
        public = sorted(name for name in vars(thing) if not name.startswith("_"))
        return f"class: {', '.join(public)}"
    if callable(thing):
        names = [
            f"{'*' if p.kind is p.VAR_POSITIONAL else ''}{name}"
            f"{'=' if p.default is not p.empty else ''}"
            f"{' (keyword)' if p.kind is p.KEYWORD_ONLY else ''}"
            for name, p in inspect.signature(thing).parameters.items()
        ]
        return f"function: {', '.join(names)}"
    return type(thing).__name__


def errors() -> dict[str, str]:
    """Every error with its code and its exit code."""
    from headway.errors import HeadwayError

    def below(kind: type[HeadwayError]) -> Iterable[type[HeadwayError]]:
        yield kind
        for inner in kind.__subclasses__():
            yield from below(inner)

    ours = {kind for kind in below(HeadwayError) if kind.__module__ == "headway.errors"}
    return {kind.__name__: f"{kind.code} exit {kind.exit_code}" for kind in sorted_by_name(ours)}


def sorted_by_name(kinds: Iterable[type]) -> list[Any]:
    return sorted(kinds, key=lambda kind: kind.__name__)


def plan_keys() -> dict[str, Any]:
    """The plan's JSON Schema without its words."""
    command = [sys.executable, "-m", "headway", "config", "schema"]
    schema = json.loads(subprocess.run(command, capture_output=True, check=True).stdout)
    return {"plan": _bare(schema)}


def _bare(value: Any) -> Any:
    if isinstance(value, dict):
        wordless = {k: v for k, v in value.items() if k not in ("description", "examples", "title")}
        return {name: _bare(inner) for name, inner in sorted(wordless.items())}
    return [_bare(inner) for inner in value] if isinstance(value, list) else value


def shapes() -> dict[str, Any]:
    """The shape of what every verb prints with `--json`, for one and the same run."""
    with tempfile.TemporaryDirectory(prefix="hw-") as root, user(Path(root)) as someone:
        return {verb: shape(values) for verb, values in json_answers(someone).items()}


def bad_inputs() -> dict[str, str]:
    """How bad plans and command lines are refused."""
    with tempfile.TemporaryDirectory(prefix="hw-") as root, user(Path(root)) as someone:
        return refusals(someone)


def shape(values: list[Any]) -> Any:
    """Keys and types of several values of one kind: `{key: shape}`, `[shape]`, or names of types.

    A mapping whose keys are data has one shape for all its values: see `scene.DATA_KEYS`.
    """
    kinds = sorted({_kind(value) for value in values})
    found: list[Any] = [kind for kind in kinds if kind not in ("object", "list")]
    if "object" in kinds:
        mappings = [value for value in values if isinstance(value, dict)]
        names = sorted({name for mapping in mappings for name in mapping})
        found.append({n: shape([m[n] for m in mappings if n in m]) for n in names})
    if "list" in kinds:
        inner = [item for value in values if isinstance(value, list) for item in value]
        found.append([shape(inner)] if inner else [])
    return found[0] if len(found) == 1 else found


def _kind(value: Any) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "boolean"
        case int() | float():
            return "number"
        case str():
            return "string"
        case list():
            return "list"
        case _:
            return "object"


FIGURES: Final = (
    "sim compare --provider trap --strategy headway headway+known waves:4 --seeds 2 --json",
    "sim compare --provider burst-3s --workload agents-22 --strategy headway aimd --seeds 1 --json",
    "sim compare --provider neighbour --strategy headway --share 50% --seeds 1 --json",
)
"""In virtual time, so the same on every machine."""


def figures() -> dict[str, Any]:
    """What rehearsals in virtual time give, to six digits."""
    found: dict[str, Any] = {}
    for words in FIGURES:
        command = [sys.executable, "-m", "headway", *words.split()]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        found[words] = _rounded(json.loads(done.stdout))
    return found


def _rounded(value: Any) -> Any:
    match value:
        case float():
            return float(f"{value:.6g}")
        case dict():
            return {name: _rounded(inner) for name, inner in value.items()}
        case list():
            return [_rounded(inner) for inner in value]
        case _:
            return value


PARTS: Final[dict[str, Callable[[], dict[str, Any]]]] = {
    "commands": commands,
    "python": python_names,
    "errors": errors,
    "plan": plan_keys,
    "json": shapes,
    "figures": figures,
    "refusals": bad_inputs,
}


def recorded() -> dict[str, Any]:
    kept: dict[str, Any] = json.loads(FILE.read_text())
    return kept


if __name__ == "__main__":
    wanted = sys.argv[1:] or list(PARTS)
    known = recorded() if FILE.exists() else {}
    known |= {name: PARTS[name]() for name in wanted}
    FILE.write_text(json.dumps(known, indent=1, sort_keys=True) + "\n")
