"""Holds the proportions of the project: size without a ratchet regrows.

Each checker takes a piece of text and yields what is wrong with it. The first tests run the
checkers over the project, the last ones over bad snippets, to prove that each checker can fail.
"""

from __future__ import annotations

import ast
import re
import subprocess
import tomllib
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import get_args

import pytest

import headway
from headway.engine.events import Event
from headway.plans.grammar import FORMS, KEYS
from headway.report.history import WORDS
from tests import totals

ROOT = Path(__file__).resolve().parent.parent

FILE_LINES_MAX = 800
FUNCTION_LINES_MAX = 60
PUBLIC_NAMES_MAX = 20
README_CODE_LINE_MAX = 25
ARCHITECTURE_LINES_MAX = 120
DECISION_LINES_MAX = 40
FOLDER_LINES_MAX = 10

LOSING_WORDS = {
    "acquire": "admit",
    "bot": "agent",
    "daemon": "broker",
    "dag": "graph",
    "job": "task or run",
    "semaphore": "permit or gauge",
    "tenant": "neighbour",
    "workflow": "plan",
}
"""Words that another word won against, and the winner."""

FORBIDDEN_TEXT = {
    "a path of one machine": re.compile(r"(?<![\w.])/(?:work|root)/"),
    "a tracker's number": re.compile(r"\bissue\s#", re.IGNORECASE),
    "how the text was made": re.compile(r"\bthis\ssession\b", re.IGNORECASE),
    "a registry's host": re.compile(r"\b(?:pypi\.or[g]|pythonhosted\.or[g]|npmjs\.(?:com|org))\b"),
}

Checker = Callable[[str], Iterable[str]]
Function = ast.FunctionDef | ast.AsyncFunctionDef


@cache
def _tree(source: str) -> ast.Module:
    return ast.parse(source)


@cache
def _nodes(source: str) -> tuple[ast.AST, ...]:
    return tuple(ast.walk(_tree(source)))


def file_length(source: str) -> Iterator[str]:
    """A file is read in one sitting."""
    lines = len(source.splitlines())
    if lines > FILE_LINES_MAX:
        yield f"{lines} lines, at most {FILE_LINES_MAX}"


def function_length(source: str) -> Iterator[str]:
    """A function fits on a screen."""
    for function in _functions(source):
        lines = (function.end_lineno or function.lineno) - function.lineno + 1
        if lines > FUNCTION_LINES_MAX:
            yield f"{function.name}: {lines} lines, at most {FUNCTION_LINES_MAX}"


def module_docstring(source: str) -> Iterator[str]:
    """A module says why it exists."""
    if not ast.get_docstring(_tree(source)):
        yield "no module docstring"


def deferred_work(source: str) -> Iterator[str]:
    """Work is done or is not in the code."""
    yield from re.findall(r"\b(?:TO[D]O|FIXM[E]|XX[X])\b(?!\.md)", source)


def losing_words(source: str) -> Iterator[str]:
    """One word per concept."""
    for name in _identifiers(source):
        words = re.findall(r"[A-Z]?[a-z0-9]+|[A-Z]+", name)
        for word in {word.lower() for word in words} & LOSING_WORDS.keys():
            yield f"{name}: say {LOSING_WORDS[word]}"


def escape_hatches(source: str) -> Iterator[str]:
    """The core is typed throughout and never catches what it does not know."""
    yield from re.findall(r"#\s*type:\s*ignore.*", source)
    for node in _nodes(source):
        if isinstance(node, ast.ExceptHandler):
            caught = {"Exception"} if node.type is None else _names(node.type)
            if caught & {"Exception", "BaseException"}:
                yield f"line {node.lineno}: catches everything"
        elif "Any" in _own_names(node):
            yield "Any"


def sleeps_and_mocks(source: str) -> Iterator[str]:
    """Tests own time, and fakes implement the real interface."""
    for node in _nodes(source):
        for name in _own_names(node):
            if {"sleep", "mock", "Mock", "MagicMock"} & set(name.split(".")):
                yield name


def forbidden_text(text: str) -> Iterator[str]:
    """The project's files speak of the project only."""
    for what, pattern in FORBIDDEN_TEXT.items():
        for found in pattern.findall(text):
            yield f"{what}: {found}"


def readme_code(text: str) -> Iterator[str]:
    """A reader sees code before the first scroll."""
    if not any(line.startswith("```") for line in text.splitlines()[:README_CODE_LINE_MAX]):
        yield f"no code in the first {README_CODE_LINE_MAX} lines"


def architecture_length(text: str) -> Iterator[str]:
    """The map is smaller than the land."""
    if len(text.splitlines()) > ARCHITECTURE_LINES_MAX:
        yield f"more than {ARCHITECTURE_LINES_MAX} lines"


def decision_length(text: str) -> Iterator[str]:
    """A decision is a page."""
    if len(text.splitlines()) > DECISION_LINES_MAX:
        yield f"more than {DECISION_LINES_MAX} lines"


def public_names(names: Iterable[str]) -> Iterator[str]:
    """A front door that can be remembered."""
    count = len(list(names))
    if count > PUBLIC_NAMES_MAX:
        yield f"{count} public names, at most {PUBLIC_NAMES_MAX}"


def _functions(source: str) -> Iterator[Function]:
    return (node for node in _nodes(source) if isinstance(node, Function))


def _own_names(node: ast.AST) -> Iterator[str]:
    """The names that a node itself uses, without those of its children."""
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            yield name
        case ast.Import(names=names):
            yield from (name.name for name in names)
        case ast.ImportFrom(module=module, names=names):
            yield from (f"{module}.{name.name}" for name in names)
            yield from (name.name for name in names)


def _names(node: ast.AST) -> set[str]:
    return {name for child in ast.walk(node) for name in _own_names(child)}


def _identifiers(source: str) -> Iterator[str]:
    """The names that a source gives to things, not those that it merely uses."""
    for node in _nodes(source):
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                yield node.name
            case ast.arg(arg=name) | ast.Name(id=name, ctx=ast.Store()):
                yield name
            case ast.Attribute(attr=name, ctx=ast.Store()):
                yield name


@cache
def _tracked() -> tuple[Path, ...]:
    """Files that are in the repository or would be with the next commit."""
    command = ["git", "-c", "safe.directory=*", "ls-files", "-z", "-co", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if listed.returncode != 0:
        pytest.skip("not a git checkout: what belongs to the project is unknown")
    return tuple(path for name in listed.stdout.split("\0") if (path := ROOT / name).is_file())


def _texts(pattern: str) -> Iterator[tuple[Path, str]]:
    """Tracked text files below the root whose path matches the pattern."""
    for path in _tracked():
        if re.fullmatch(pattern, path.relative_to(ROOT).as_posix()):
            content = path.read_bytes()
            if b"\0" not in content:
                yield path.relative_to(ROOT), content.decode()


EVERY_PYTHON = r".*\.py"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
PURE = next(
    contract["source_modules"]
    for contract in PROJECT["tool"]["importlinter"]["contracts"]
    if contract["id"] == "pure"
)
"""The modules and folders that compute: one list, which import-linter holds too."""
CORE = "|".join(rf"src/{name.replace('.', '/')}(?:\.py|/.*\.py)" for name in PURE)
VIRTUAL_TIME_TESTS = r"tests/(?:unit|property)/.*\.py"

RULES: tuple[tuple[Checker, str], ...] = (
    (file_length, EVERY_PYTHON),
    (function_length, EVERY_PYTHON),
    (module_docstring, EVERY_PYTHON),
    (deferred_work, EVERY_PYTHON),
    (losing_words, CORE),
    (escape_hatches, CORE),
    (sleeps_and_mocks, VIRTUAL_TIME_TESTS),
    (forbidden_text, r".*"),
    (readme_code, r"README\.md"),
    (architecture_length, r"ARCHITECTURE\.md"),
    (decision_length, r"docs/decisions/.*\.md"),
)


@pytest.mark.parametrize(("checker", "where"), RULES, ids=[rule.__name__ for rule, _ in RULES])
def test_the_project_keeps_its_proportions(checker: Checker, where: str) -> None:
    found = [f"{path}: {fault}" for path, text in _texts(where) for fault in checker(text)]
    assert not found, f"{checker.__doc__}\n" + "\n".join(found)


def test_the_rules_see_the_project() -> None:
    assert Path(__file__) in _tracked()


def test_the_whole_only_gets_smaller() -> None:
    found, allowed = totals.measure(ROOT), totals.limits()
    larger = {name: (found[name], most) for name, most in allowed.items() if found[name] > most}
    assert not larger, f"larger than tests/totals.json allows (found, allowed): {larger}"


EVENT_MODULES = {
    "report.history": "the fold that every view reads",
    "run.attempts": "makes them", "run.driver": "makes them", "run.machine": "makes them",
    "sim.rehearsal": "a run in virtual time",
    "cli.each": "shows a command's output when its end is durable",
    "api.maps": "hands results to its caller as tasks end",
}  # fmt: skip
"""Modules beside `engine` and `journal` that know the classes of events, and what for."""


def test_only_the_history_interprets_events() -> None:
    kinds = {kind.__name__ for kind in get_args(Event)}
    found: set[str] = set()
    for path, text in _texts(r"src/headway/.*\.py"):
        module = ".".join(Path(path).with_suffix("").parts[2:])
        for node in ast.walk(_tree(text)):
            if isinstance(node, ast.ImportFrom) and module.split(".")[0] not in (
                "engine", "journal"
            ):  # fmt: skip
                names = {alias.name for alias in node.names}
                is_whole = node.module == "headway.engine" and "events" in names
                if is_whole or (node.module == "headway.engine.events" and names & kinds):
                    found.add(module)
    assert found == EVENT_MODULES.keys()


GLOSSARY = {
    "acquire": "admit", "bot": "agent", "cap": "limit", "daemon": "broker", "dag": "graph",
    "job": "task", "lane": "account", "mutex": "permit", "sandbox": "workspace",
    "semaphore": "permit",
    "story": "history", "tenant": "neighbour", "ticket": "permit", "voice": "account",
    "workflow": "plan",
}  # fmt: skip
"""Words that are not in names of modules, classes, plan keys and states, and what is."""
PEOPLE = re.compile(r"\b(?:whoever|nobody|somebody)\b", re.IGNORECASE)


def named() -> Iterator[tuple[str, str]]:
    """Names of modules, classes, plan keys and states, each with its place."""
    for path, text in _texts(r"src/headway/.*\.py"):
        yield path.stem, str(path)
        for node in _nodes(text):
            if isinstance(node, ast.ClassDef):
                yield node.name, str(path)
    yield from ((key.name, "a plan's key") for key in (*KEYS, *FORMS))
    yield from ((word, "a state") for state in WORDS.items() for word in state)


def off_glossary(names: Iterable[tuple[str, str]]) -> list[str]:
    return [
        f"{place}: {name}: say {GLOSSARY[word]}"
        for name, place in names
        for word in {
            one.lower().removesuffix("s") for one in re.findall(r"[A-Z]?[a-z0-9]+|[A-Z]+", name)
        } & GLOSSARY.keys()
    ]  # fmt: skip


def test_names_use_the_words_of_the_glossary() -> None:
    assert off_glossary(named()) == []
    assert off_glossary([("JobQueue", "x"), ("lanes", "y"), ("Capital", "z")]) == [
        "x: JobQueue: say task", "y: lanes: say account",
    ]  # fmt: skip


def test_data_are_not_people() -> None:
    found = [
        f"{path}: {match[0]}"
        for path, text in _texts(r"(?:src/.*|docs/.*|[A-Z]+\.md)")
        for match in PEOPLE.finditer(text)
    ]
    assert found == []


@pytest.mark.parametrize("name", PURE)
def test_every_pure_folder_has_modules(name: str) -> None:
    path = ROOT / "src" / name.replace(".", "/")
    assert path.with_suffix(".py").is_file() or len(list(path.rglob("*.py"))) > 1


def _folders() -> list[Path]:
    package = ROOT / "src" / "headway"
    return [path.parent for path in package.rglob("__init__.py") if path.parent != package]


@pytest.mark.parametrize("folder", _folders(), ids=lambda folder: folder.name)
def test_a_folder_names_its_modules_in_at_most_ten_lines(folder: Path) -> None:
    text = (folder / "__init__.py").read_text()
    assert len(text.splitlines()) <= FOLDER_LINES_MAX
    modules = {path.stem for path in folder.glob("*.py")} - {"__init__"}
    named = set(re.findall(r"`(\w+)`", text))
    assert named >= modules or "one module" in text
    assert named <= modules | {path.name for path in folder.iterdir() if path.is_dir()}


def test_the_front_door_has_few_names() -> None:
    assert not list(public_names(headway.__all__))


def _body(lines: int) -> str:
    return "def long():\n" + "    pass\n" * (lines - 1)


GOOD = (
    (file_length, "pass\n" * FILE_LINES_MAX),
    (function_length, _body(FUNCTION_LINES_MAX)),
    (module_docstring, '"""Why."""'),
    (deferred_work, "todo = 'a list of tasks'"),
    (losing_words, "def admit(dagger, tenants_were_here=1): return semaphore"),
    (escape_hatches, "try:\n    pass\nexcept (KeyError, ValueError):\n    pass"),
    (sleeps_and_mocks, "asleep = monkeypatch"),
    (forbidden_text, "a network of roots/nodes, an issue, a session"),
    (readme_code, "# headway\n```python\n"),
    (architecture_length, "line\n" * ARCHITECTURE_LINES_MAX),
    (decision_length, "line\n" * DECISION_LINES_MAX),
    (public_names, ["name"] * PUBLIC_NAMES_MAX),
)

BAD = (
    (file_length, "pass\n" * (FILE_LINES_MAX + 1)),
    (function_length, _body(FUNCTION_LINES_MAX + 1)),
    (module_docstring, "import os"),
    (module_docstring, ""),
    (deferred_work, "# TO" + "DO: later"),
    (losing_words, "def try_acquire(): ..."),
    (losing_words, "class TaskDAG: ..."),
    (losing_words, "class TenantLimits: ..."),
    (losing_words, "self.semaphore_size = 3"),
    (losing_words, "def f(job): ..."),
    (escape_hatches, "from typing import Any"),
    (escape_hatches, "import typing\nx: typing.Any = 1"),
    (escape_hatches, "x = 1  # type" + ": ignore[assignment]"),
    (escape_hatches, "try:\n    pass\nexcept Exception:\n    pass"),
    (escape_hatches, "try:\n    pass\nexcept (KeyError, BaseException):\n    pass"),
    (escape_hatches, "try:\n    pass\nexcept:\n    pass"),
    (sleeps_and_mocks, "import time\ntime.sleep(1)"),
    (sleeps_and_mocks, "from asyncio import sleep"),
    (sleeps_and_mocks, "from unittest import mock"),
    (sleeps_and_mocks, "import unittest.mock"),
    (forbidden_text, f"see /{'work'}/main"),
    (forbidden_text, f"see `/{'root'}/notes`"),
    (forbidden_text, f"fixes Issue {'#'}12"),
    (forbidden_text, f"found in this {'session'}"),
    (forbidden_text, f"https://{'pypi'}.org/simple"),
    (readme_code, "# headway\n" + "words\n" * README_CODE_LINE_MAX + "```python\n"),
    (architecture_length, "line\n" * (ARCHITECTURE_LINES_MAX + 1)),
    (decision_length, "line\n" * (DECISION_LINES_MAX + 1)),
    (public_names, ["name"] * (PUBLIC_NAMES_MAX + 1)),
)


@pytest.mark.parametrize(("checker", "sample"), GOOD)
def test_a_checker_lets_what_is_within_its_limit_pass(checker: Checker, sample: str) -> None:
    assert not list(checker(sample))


@pytest.mark.parametrize(("checker", "sample"), BAD)
def test_a_checker_finds_what_it_is_for(checker: Checker, sample: str) -> None:
    assert list(checker(sample))


def test_every_checker_is_shown_to_fail_and_to_pass() -> None:
    rules = {checker for checker, _ in RULES} | {public_names}
    assert {checker for checker, _ in BAD} == rules
    assert {checker for checker, _ in GOOD} == rules
