"""The documentation against the project: links lead somewhere, commands run, sums add up.

In the blocks marked `calc` every line is a calculation and its result, as a reader would check it.
"""

from __future__ import annotations

import ast
import operator
import re
import shlex
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from headway.cli.main import main

ROOT = Path(__file__).resolve().parent.parent
DOCUMENTS = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
HONEST = ("docs/reality.md", "docs/token-usage.md", "docs/forecast.md", "docs/presets.md")
"""Documents whose every command and calculation is tried."""

LINK = re.compile(r"\]\(([^()\s]+)\)")
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
SIM = re.compile(r"headway sim (?:compare|demo|presets)\b[^`$#\n]*(?:\n[^`$#\n]+)?")

OPERATORS: dict[type[ast.operator], Callable[[float, float], float]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul,
    ast.Div: operator.truediv, ast.FloorDiv: operator.floordiv,
}  # fmt: skip


def _text(name: str | Path) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def _blocks(text: str, kind: str) -> list[str]:
    return [body for found, body in BLOCK.findall(text) if found == kind]


def _prose(text: str) -> str:
    """Without code, in which brackets and hashes mean something else."""
    return re.sub(r"`[^`\n]*`", "x", BLOCK.sub("", text))


def _anchors(text: str) -> set[str]:
    """The headings of a document as links name them."""
    headings = re.findall(r"^#+ (.*)$", BLOCK.sub("", text), re.MULTILINE)
    plain = [re.sub(r"[^\w\- ]", "", heading.lower()) for heading in headings]
    return {heading.replace(" ", "-") for heading in plain}


@pytest.mark.parametrize("path", DOCUMENTS, ids=[str(one.relative_to(ROOT)) for one in DOCUMENTS])
def test_every_link_leads_to_something_that_is_there(path: Path) -> None:
    missing = []
    for link in LINK.findall(_prose(_text(path))):
        target, _, anchor = link.partition("#")
        if re.match(r"https?:|mailto:", target):
            continue
        file = path if not target else path.parent / target
        if not file.exists() or (anchor and anchor not in _anchors(_text(file))):
            missing.append(link)
    assert not missing


def _value(node: ast.expr) -> float:
    match node:
        case ast.Constant(value=int() | float() as number):
            return number
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_value(operand)
        case ast.BinOp(left=left, op=done, right=right):
            return OPERATORS[type(done)](_value(left), _value(right))
    raise AssertionError(f"not a calculation: {ast.unparse(node)}")


def wrong_sums(block: str) -> Iterator[str]:
    """The lines of a block whose right side is not their left side, rounded as it is written."""
    for line in filter(None, map(str.strip, block.splitlines())):
        sum_ = re.sub(r"(?<=\d),(?=\d{3})", "", line.partition("#")[0])
        left, _, right = sum_.rpartition("=")
        shown = right.strip().removesuffix("%").strip()
        scale = 100 if right.strip().endswith("%") else 1
        value = _value(ast.parse(left.strip(), mode="eval").body) * scale
        digits = len(shown.partition(".")[2])
        if abs(value - float(shown)) > 0.5 * 10**-digits + 1e-9:
            yield line


@pytest.mark.parametrize(
    ("block", "is_right"),
    [
        ("1 - 18 / 28 = 36 %", True), ("1 - 32 / 28 = 14 %", False),
        ("10,000 / 3,500 = 2.86", True), ("10,000 / 3,500 = 2.87", False),
        ("5,000,000 // 68,000 = 73  # whole ones", True), ("5,000,000 // 68,000 = 74", False),
        ("2 + 2 = 4\n2 + 2 = 5", False),
    ],
)  # fmt: skip
def test_a_wrong_sum_is_found_and_a_right_one_passes(block: str, is_right: bool) -> None:
    assert (not list(wrong_sums(block))) is is_right


@pytest.mark.parametrize("name", HONEST[1:3])
def test_the_sums_in_the_documentation_are_right(name: str) -> None:
    blocks = _blocks(_text(name), "calc")
    assert blocks
    assert [line for block in blocks for line in wrong_sums(block)] == []


def _sessions() -> Iterator[tuple[str, str]]:
    """Every command that is shown with its output, and that output."""
    for name in HONEST:
        for block in _blocks(_text(name), ""):
            for shown in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
                command, _, output = shown.partition("\n")
                yield command, output


SESSIONS = list(_sessions())


@pytest.mark.parametrize(("command", "output"), SESSIONS, ids=[one for one, _ in SESSIONS])
def test_a_command_prints_what_the_documentation_shows(
    command: str, output: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    program, *arguments = shlex.split(command)
    assert program == "headway"
    assert main(arguments) == 0
    assert capsys.readouterr().out == output


def _mentioned() -> list[str]:
    """Simulations that are named in passing, without their output; `P` and `W` stand for any."""
    found = []
    for name in HONEST:
        text = re.sub(r"^\$ .*$", "", _text(name), flags=re.MULTILINE)
        found += [" ".join(one.split()) for one in SIM.findall(text)]
    whole = [one for one in found if not re.search(r" [A-Z]\b|\.yaml", one)]
    return sorted(set(whole) - {command for command, _ in SESSIONS})


MENTIONED = _mentioned()


@pytest.mark.parametrize("command", MENTIONED)
def test_a_command_that_is_mentioned_can_be_run(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(shlex.split(command)[1:]) == 0
    assert capsys.readouterr().out


def test_there_are_commands_to_try() -> None:
    assert len(SESSIONS) >= 6
    assert len(MENTIONED) >= 6


def _commands(text: str) -> list[list[str]]:
    """The lines of the first two blocks of code, without what is said about them."""
    blocks = [*_blocks(text, "sh")[:1], *_blocks(text, "python")[:1]]
    return [
        [stripped for line in block.splitlines() if (stripped := line.partition("  #")[0].rstrip())]
        for block in blocks
    ]


def test_the_korean_readme_has_the_commands_of_the_english_one() -> None:
    english, korean = _text("README.md"), _text("README.ko.md")
    assert _commands(korean) == _commands(english)
    assert len(_commands(korean)[0]) >= 4
    assert "(README.md)" in korean
    assert set(re.findall(r"\(docs/[\w.-]+\.svg\)", korean)) == {"(docs/demo.svg)"}
    for said in ("3.11", "`make run`", "`.venv/bin/headway`", "pip install ."):
        assert said in korean
        assert said in english


def test_the_plan_of_the_readme_is_accepted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "a.py").write_text("x = 1\n")
    (tmp_path / "review.yaml").write_text(_blocks(_text("README.md"), "yaml")[0])
    monkeypatch.chdir(tmp_path)
    assert main(["check", "review.yaml"]) == 0
    assert "review  prompt" in capsys.readouterr().out


def test_every_module_that_the_architecture_names_is_there() -> None:
    package, missing = ROOT / "src" / "headway", []
    for line in _text("ARCHITECTURE.md").splitlines():
        folders = re.findall(r"`(\w+)/\w+\.py`", line)
        for name in re.findall(r"`(?:\w+/)?(\w+\.py)`", line):
            if not any((package / folder / name).exists() for folder in folders):
                missing.append(name)
    assert not missing
