"""Installs SKILL.md for agents with a shell.

Laws:
- A file that was changed is not overwritten, except by force.
- Installing twice is the same as once. A link in the place of the file is replaced, not followed.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Mapping
from importlib.resources import files
from typing import Final, Literal

from headway import __version__
from headway.base.digest import digest
from headway.errors import StateFileError
from headway.plans.grammar import KEYS
from headway.run.filling import write_new

# The skill's text: a file of ours, with the grammar filled in from its one table.

NAME: Final = "headway"
"""Of the skill, and of the folder that it is in: agents want them to be the same."""

FILE: Final = "SKILL.md"
MARK: Final = "<!-- grammar -->"
SEAL: Final = "<!-- headway "

RULES: Final = """\
A plan is `headway: 1` and `tasks`: a mapping from names to tasks. A task has exactly one of `run`,
`prompt`, `prompt_file`, `python`.

`each` takes a list, a pattern of files (their paths), `{lines: FILE}`, a task that has members (one
for each of them), or a single task (one for each line of its result, or each element if that is a
JSON array). `each` and `matrix` together make their product.

Values: `{{ item }}`, `{{ item.field }}`, `{{ index }}`, `{{ matrix.x }}`, `{{ vars.x }}`, and
`{{ tasks.NAME.output }}` of a task in `needs`, `each` or `reduce`. They go into prompts, `vars` and
paths, never into `run` or `verify`: there they are environment variables, `"$item"`, `"$index"`,
`"$x"`. Quote YAML text that has `{{` or `: ` in it.

Order: `needs`, `each: TASK`, `reduce`; and a task that `reads` a path waits for the one that
`writes` it. Two tasks that write the same path need an order. Paths stay inside the plan's folder.
"""


def skill_text() -> str:
    """SKILL.md as it is installed."""
    frame = files("headway.mcp").joinpath(FILE).read_text(encoding="utf-8")
    lines = [
        f"- `{key.name}: {key.example}` ({', '.join(key.holders)}): {key.about}"
        for key in KEYS
        if key.name != "permissions"
    ]
    return sealed(frame.replace(MARK, "\n".join((RULES, *lines))))


def sealed(text: str) -> str:
    """A text with a line that has its digest."""
    body = text.rstrip("\n") + "\n"
    return f"{body}\n{SEAL}{__version__} {digest(body.encode()).hex()} -->\n"


def is_untouched(text: str) -> bool:
    """Whether an installed file is as some version of headway wrote it."""
    body, found, seal = text.rpartition(f"\n{SEAL}")
    return bool(found) and digest(body.encode()).hex() in seal.split()


PLACES: Final = (".claude/skills", ".agents/skills")
"""Claude Code reads the first, Codex, opencode and Gemini CLI the second."""

Done = Literal["installed", "updated", "is there already"]


def skill_paths(folder: str, is_for_user: bool, environ: Mapping[str, str]) -> list[str]:
    """Where the skill goes: into a folder of skills, if one is named; else for this project, or
    for all projects of the user."""
    root = os.path.expanduser("~") if is_for_user else os.getcwd()
    folders = [os.path.join(root, place) for place in PLACES]
    if is_for_user and (config := environ.get("CLAUDE_CONFIG_DIR")):
        folders[0] = os.path.join(config, "skills")
    folders = [os.path.abspath(folder)] if folder else folders
    return [os.path.join(one, NAME, FILE) for one in folders]


def install(path: str, is_forced: bool = False) -> Done:
    """Put the skill there. StateFileError if it cannot be written, or a changed file is there."""
    text = skill_text()
    try:
        there = _content(path)
        if there == text:
            return "is there already"
        if there is not None and not (is_forced or is_untouched(there)):
            message = f"{path} was changed and is not overwritten"
            raise StateFileError(message, hint="look at it, then use --force")
        os.makedirs(os.path.dirname(path), exist_ok=True)
        write_new(path, text.encode(), may_replace=True)
    except OSError as fault:
        message = f"{path} cannot be written: {fault.strerror}"
        raise StateFileError(message, hint="choose another --to") from None
    return "installed" if there is None else "updated"


def _content(path: str) -> str | None:
    if not os.path.exists(path):
        return None
    if not os.path.isfile(path):
        raise OSError(errno.EINVAL, "it is no file")  # Reading a pipe would not end.
    # As it is: other ends of lines are a change too.
    with open(path, encoding="utf-8", errors="replace", newline="") as file:
        return file.read()
