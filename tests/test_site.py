"""The documentation's commands, and what of the site is generated."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

import headway
from docs import site
from headway import errors
from headway.cli import each
from headway.cli.main import VERBS, build_parser, main, module_of
from headway.plans.grammar import json_schema

ROOT = Path(__file__).resolve().parents[1]
PAGES = sorted([ROOT / "README.md", *ROOT.glob("docs/*.md")])
BLOCK = re.compile(r"^```(sh|console|)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
WITHOUT_END = re.compile(r"\\\n\s*")
PLACEHOLDERS = re.compile(r"\[[A-Z-][^\]]*\]|\.\.\.")


def shown() -> list[str]:
    """Every line of a block of commands that begins with `headway`."""
    found: dict[str, None] = {}
    for page in PAGES:
        for kind, block in BLOCK.findall(page.read_text(encoding="utf-8")):
            for line in WITHOUT_END.sub(" ", block).splitlines():
                if kind != "sh" and not line.startswith("$ "):
                    continue
                words = re.sub(r"\s\s+#.*$|\s#\s.*$", "", line.removeprefix("$ ")).strip()
                if re.match(r"headway( |$)", words) and not PLACEHOLDERS.search(words):
                    found[words] = None
    return list(found)


def test_many_commands_are_shown() -> None:
    assert len(shown()) > 50


@pytest.mark.parametrize("command", shown())
def test_a_command_that_is_shown_has_its_verb_and_its_options(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    _, *words = shlex.split(re.split(r" (?:\||&&|>>?|<|2>) ", command)[0], comments=True)
    if words[:1] == ["each"]:
        each._parser().parse_args(each._joined(words[1:]))
    elif words[:1] == ["gateway"]:
        asked = [word for word in words[1:] if word.startswith("--") and word != "--"]
        main(["gateway", "--help"])
        said = capsys.readouterr().out
        assert all(option in said for option in asked)
    elif words != ["--help"]:
        verb = next((one for one in VERBS if one.name in words[:1]), None)
        build_parser(verb, None if verb is None else module_of(verb)).parse_args(words)


def test_the_reference_has_every_verb_public_name_and_error_code() -> None:
    errors_page = "\n".join(site.errors_page())
    kinds = [one for one in vars(errors).values() if hasattr(one, "exit_code")]
    assert all(f"| {kind.code} |" in errors_page for kind in kinds)
    assert re.findall(r"^\| (\d+) \| [a-z]", errors_page, re.M) == [
        "0", "1", "2", "3", "4", "69", "70", "75", "130",
    ]  # fmt: skip
    python_page = "\n".join(site.python_page())
    names = [name for name in headway.__all__ if not name.startswith("__")]
    assert all(f"### {name}\n" in python_page for name in names)


def test_the_schema_of_plans_has_an_id() -> None:
    assert json_schema()["$id"] == "urn:headway:plan:1"


def test_every_page_that_the_site_names_is_there() -> None:
    named = re.findall(r"([\w./-]+\.md)$", (ROOT / "mkdocs.yml").read_text(), re.M)
    there = {str(path.relative_to(ROOT / "docs")) for path in ROOT.glob("docs/**/*.md")}
    generated = {f"reference/{name}.md" for name in ("cli", "python", "errors")}
    assert {*named} <= there | generated | {*site.TOP.values()}
