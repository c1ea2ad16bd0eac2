"""Where agents look for skills, and how one gets there and away again.

Laws:
- A file that somebody has changed is neither overwritten nor removed, unless the user says so.
- Installing twice is the same as once. A link in the place of the file is replaced, not followed.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, Literal

from headway.errors import StateFileError
from headway.runtime.newfile import write_new
from headway.skill.text import FILE, NAME, is_untouched, skill_text

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


@dataclass(frozen=True, slots=True)
class Placed:
    """What became of one file."""

    path: str
    done: Done


def skill_path(to: str, is_for_user: bool, environ: Mapping[str, str]) -> str:
    """The file for an agent, for all projects of the user or for this one; or in a folder."""
    if to not in AGENTS:
        return os.path.join(os.path.abspath(to), NAME, FILE)
    folder = _of_user(to, environ) if is_for_user else os.path.abspath(_PROJECT[to])
    return os.path.join(folder, NAME, FILE)


def install(path: str, is_forced: bool = False) -> Placed:
    """Put the skill there."""
    text, there = skill_text(), _content(path)
    if there == text:
        return Placed(path, "is there already")
    if there is not None and not (is_forced or is_untouched(there)):
        raise _changed(path, "overwritten")
    try:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        write_new(path, text.encode(), may_replace=True)
    except OSError as fault:
        raise _fault(path, "written", fault) from None
    return Placed(path, "installed" if there is None else "updated")


def uninstall(path: str, is_forced: bool = False) -> Placed:
    """Take it away again, with its folder if nothing else is in it."""
    there = _content(path)
    if there is None:
        return Placed(path, "is not there")
    if not (is_forced or is_untouched(there)):
        raise _changed(path, "removed")
    try:
        os.remove(path)
    except OSError as fault:
        raise _fault(path, "removed", fault) from None
    with suppress(OSError):  # Something of the user's may be in it.
        os.rmdir(os.path.dirname(path))
    return Placed(path, "removed")


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
