"""Builds the documentation as a site: `make docs`.

Pages are those of this folder and of the project's top; the reference is generated from the code:
commands, Python names, errors and exit codes, the schema of plans. `llms.txt` lists them all.
"""

from __future__ import annotations

import importlib
import inspect
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import yaml

from headway import errors
from headway.plans.grammar import json_schema

ROOT: Final = Path(__file__).resolve().parents[1]
PAGES: Final = ROOT / "build" / "docs"
TOP: Final = {
    "README.md": "index.md", "README.ko.md": "index.ko.md", "ARCHITECTURE.md": "architecture.md",
    "CONTRIBUTING.md": "contributing.md", "SECURITY.md": "security.md",
    "AGENTS.md": "for-agents.md",
    "CHANGELOG.md": "changes.md", "CODE_OF_CONDUCT.md": "conduct.md",
}  # fmt: skip
LINK: Final = re.compile(r"(!?)\[([^\[\]]*)\]\(([^()\s]+)\)")
CODE: Final = re.compile(r"(^```.*?^```$|`[^`\n]*`)", re.MULTILINE | re.DOTALL)
MODULES: Final = ("headway", "headway.files", "headway.reducers", "headway.testing")


def build() -> None:
    shutil.rmtree(PAGES, ignore_errors=True)
    shutil.copytree(ROOT / "docs", PAGES, ignore=shutil.ignore_patterns("*.py", "__pycache__"))
    for name, page in TOP.items():
        shutil.copy(ROOT / name, PAGES / page)
    for path in sorted(PAGES.rglob("*.md")):
        path.write_text(_with_own_links(path), encoding="utf-8")
    reference = PAGES / "reference"
    reference.mkdir()
    pages = {"cli": cli_page, "python": python_page, "errors": errors_page}
    for name, write in pages.items():
        (reference / f"{name}.md").write_text("\n".join(write()) + "\n", encoding="utf-8")
    schema = json.dumps(json_schema(), indent=1)
    (reference / "plan.schema.json").write_text(schema, encoding="utf-8")
    (PAGES / "llms.txt").write_text("\n".join(llms_lines()) + "\n", encoding="utf-8")


def _with_own_links(page: Path) -> str:
    """The text of a page; a link to a file that is no page becomes its words."""
    source = _source_of(page)

    def own(found: re.Match[str]) -> str:
        mark, words, target = found.groups()
        path, hash_, anchor = target.partition("#")
        if re.match(r"https?:|mailto:", target) or not path:
            return found[0]
        there = (source.parent / path).resolve()
        home = _page_of(there)
        if home is None:
            return f"{words} (`{there.relative_to(ROOT)}`)" if there != ROOT else words
        up = "../" * len(page.relative_to(PAGES).parents[0].parts)
        return f"{mark}[{words}]({up}{home.relative_to(PAGES)}{hash_}{anchor})"

    blocks: list[str] = []

    def kept(found: re.Match[str]) -> str:
        blocks.append(found[0])
        return f"\0{len(blocks) - 1}\0"

    linked = LINK.sub(own, CODE.sub(kept, source.read_text(encoding="utf-8")))
    return re.sub("\0(\\d+)\0", lambda found: blocks[int(found[1])], linked)


def _source_of(page: Path) -> Path:
    name = page.relative_to(PAGES)
    tops = {home: ROOT / top for top, home in TOP.items()}
    return tops.get(str(name), ROOT / "docs" / name)


def _page_of(path: Path) -> Path | None:
    """Where a file of the project is on the site; None if it is not there."""
    if path.parent == ROOT and path.name in TOP:
        return PAGES / TOP[path.name]
    docs = ROOT / "docs"
    is_page = path.is_relative_to(docs) and path.suffix in (".md", ".svg")
    if path == docs / "decisions":
        return PAGES / "decisions" / sorted(one.name for one in path.iterdir())[0]
    return PAGES / path.relative_to(docs) if is_page else None


def cli_page() -> Iterator[str]:
    yield "# Commands\n\nAs `headway COMMAND --help` prints them.\n"
    overview = _help()
    yield f"```text\n{overview}```"
    for verb in re.findall(r"^    (\w+)", overview.split("\ncommands:\n")[1], re.MULTILINE):
        yield f"\n## headway {verb}\n\n```text\n{_help(verb)}```"


def _help(*verb: str) -> str:
    command = [sys.executable, "-m", "headway", *verb, "--help"]
    return subprocess.run(
        command, capture_output=True, text=True, check=True, env={"COLUMNS": "100", "HOME": "/"}
    ).stdout


def python_page() -> Iterator[str]:
    yield "# Python\n\nEvery public name. [The guide](../python.md) shows them at work.\n"
    for home in MODULES:
        module = importlib.import_module(home)
        names = getattr(module, "__all__", None) or [
            name for name, one in vars(module).items()
            if getattr(one, "__module__", "") == home and not name.startswith("_")
        ]  # fmt: skip
        yield f"\n## {home}\n"
        for name in sorted(names):
            thing = getattr(module, name)
            if not callable(thing):
                continue
            try:
                signature = str(inspect.signature(thing))
            except (ValueError, NameError):  # Types that only a checker sees.
                signature = "(...)"
            text = inspect.cleandoc(thing.__doc__ or "")
            yield f"\n### {name}\n\n```python\n{name}{signature}\n```\n\n```text\n{text}\n```"


def errors_page() -> Iterator[str]:
    yield "# Errors and exit codes\n\n| code | of a command |\n|---|---|"
    codes = re.findall(r"(\d+) ([a-z][^,\n]*)", _help().rpartition("exit codes:")[2])
    for code, meaning in codes:
        yield f"| {code} | {meaning.strip()} |"
    yield "\nEach error has a code that never changes its meaning.\n"
    yield "| code | exit | what it says |\n|---|---|---|"
    kinds = [errors.HeadwayError]
    for kind in kinds:
        kinds += [one for one in kind.__subclasses__() if one.__module__ == errors.__name__]
    for kind in sorted({*kinds}, key=lambda one: one.code):
        first = (kind.__doc__ or "").splitlines()[0]
        yield f"| {kind.code} | {kind.exit_code} | {first} (`{kind.__name__}`) |"


def llms_lines() -> Iterator[str]:
    yield "# headway\n"
    paragraph = (PAGES / "index.md").read_text(encoding="utf-8").split("\n\n")[1]
    yield f"> {' '.join(paragraph.split())}\n"
    nav = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))["nav"]
    for section in nav:
        ((title, pages),) = section.items()
        yield f"## {title}\n"
        for page in [pages] if isinstance(pages, str) else pages:
            name, path = next(iter(page.items())) if isinstance(page, dict) else ("", page)
            text = (PAGES / path).read_text(encoding="utf-8")
            heading = re.search(r"^# (.*)$", text, re.MULTILINE)
            yield f"- [{name or (heading[1] if heading else path)}]({path})"
        yield ""


def main() -> None:
    build()
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--config-file"]
    # The successor that a notice of the theme names does not read all of these settings yet.
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    command += [str(ROOT / "mkdocs.yml")]
    ended = subprocess.run(command, check=False, env=environment, capture_output=True, text=True)
    if ended.returncode == 0:
        shutil.copy(PAGES / "llms.txt", ROOT / "site" / "llms.txt")
        print("site/index.html")
    else:
        print(ended.stderr, file=sys.stderr)
    sys.exit(ended.returncode)


if __name__ == "__main__":
    main()
