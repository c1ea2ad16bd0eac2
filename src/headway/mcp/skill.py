"""Installs and removes SKILL.md for agents with a shell.

Laws:
- A file that somebody has changed is neither overwritten nor removed, unless the user says so.
- Installing twice is the same as once. A link in the place of the file is replaced, not followed.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Mapping
from contextlib import suppress
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

Order: `needs`, `each: TASK`, `reduce`; and who `reads` a path waits for who `writes` it. Two tasks
that write the same path need an order. Paths stay inside the plan's folder.
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
    """A text with the line that says what it was."""
    body = text.rstrip("\n") + "\n"
    return f"{body}\n{SEAL}{__version__} {digest(body.encode()).hex()} -->\n"


def is_untouched(text: str) -> bool:
    """Whether an installed file is as some version of headway wrote it."""
    body, found, seal = text.rpartition(f"\n{SEAL}")
    return bool(found) and digest(body.encode()).hex() in seal.split()


AGENTS: Final = ("claude", "codex", "opencode", "gemini")
DEFAULT: Final = ("claude", "codex")
"""Together they reach all four: opencode and Gemini CLI look where Codex does, too."""

_PROJECT: Final[Mapping[str, str]] = {
    "claude": ".claude/skills",
    "codex": ".agents/skills",
    "opencode": ".opencode/skills",
    "gemini": ".gemini/skills",
}

Done = Literal["installed", "updated", "is there already", "removed", "is not there"]


def skill_path(to: str, is_for_user: bool, environ: Mapping[str, str]) -> str:
    """The file for an agent, for all projects of the user or for this one; or in a folder."""
    if to not in AGENTS:
        return os.path.join(os.path.abspath(to), NAME, FILE)
    folder = _of_user(to, environ) if is_for_user else os.path.abspath(_PROJECT[to])
    return os.path.join(folder, NAME, FILE)


def install(path: str, is_forced: bool = False) -> Done:
    """Put the skill there; what became of the file."""
    text, there = skill_text(), _content(path)
    if there == text:
        return "is there already"
    if there is not None and not (is_forced or is_untouched(there)):
        raise _changed(path, "overwritten")
    try:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        write_new(path, text.encode(), may_replace=True)
    except OSError as fault:
        raise _fault(path, "written", fault) from None
    return "installed" if there is None else "updated"


def uninstall(path: str, is_forced: bool = False) -> Done:
    """Take it away again, with its folder if nothing else is in it."""
    there = _content(path)
    if there is None:
        return "is not there"
    if not (is_forced or is_untouched(there)):
        raise _changed(path, "removed")
    try:
        os.remove(path)
    except OSError as fault:
        raise _fault(path, "removed", fault) from None
    with suppress(OSError):  # Something of the user's may be in it.
        os.rmdir(os.path.dirname(path))
    return "removed"


def _of_user(to: str, environ: Mapping[str, str]) -> str:
    home = os.path.expanduser("~")
    if to == "claude":
        return os.path.join(environ.get("CLAUDE_CONFIG_DIR") or f"{home}/.claude", "skills")
    if to == "opencode":
        config = environ.get("XDG_CONFIG_HOME") or f"{home}/.config"
        return os.path.join(config, "opencode", "skills")
    return os.path.join(home, _PROJECT[to])


def _content(path: str) -> str | None:
    try:
        if os.path.exists(path) and not os.path.isfile(path):
            raise OSError(errno.EINVAL, "it is no file")  # Some would be waited for without end.
        # As it is: other ends of lines are a change too.
        with open(path, encoding="utf-8", errors="replace", newline="") as file:
            return file.read()
    except FileNotFoundError:
        return None
    except OSError as fault:
        raise _fault(path, "read", fault) from None


def _changed(path: str, done: str) -> StateFileError:
    return StateFileError(
        f"{path} was changed by somebody and is not {done}", hint="look at it, then use --force"
    )


def _fault(path: str, done: str, fault: OSError) -> StateFileError:
    return StateFileError(f"{path} cannot be {done}: {fault.strerror}", hint="choose another --to")
