"""What a user has set for all runs: one small file, read once, into one record.

Laws:
- A key that is not known is refused: a misspelt budget is not a budget.
- What is not set has a default, and it can be told of every value where it comes from.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Final

from headway.errors import StateFileError, did_you_mean

CONFIG_HOME: Final = "XDG_CONFIG_HOME"

FILE_BYTES_MAX: Final = 64 * 1024
"""A configuration is a page; what is larger is another file."""


@dataclass(frozen=True, slots=True)
class Configuration:
    """What holds for every run, unless its plan or its command line says otherwise."""

    ask_above_usd: float = 5.0
    """A run without a budget that may cost more asks first, or is refused where nobody answers."""
    strategy: str = "adaptive"
    wait: str = "forever"
    """How long a run waits for a usage window: `no`, `forever`, or a time like `2h`."""
    keep_results: bool = True
    """Off: journals keep that there was a result, not the result."""


ABOUT: Final = {
    "ask_above_usd": "ask before a run without a budget that may cost more than this",
    "strategy": "adaptive, fixed:N, waves:N or all-at-once",
    "wait": "for an empty usage window: no, forever, or a time like 2h",
    "keep_results": "keep what tasks gave in the journal; off: only that they gave it",
}


@dataclass(frozen=True, slots=True)
class Configured:
    """The configuration with where it comes from."""

    values: Configuration
    path: str
    is_there: bool
    set_here: frozenset[str] = frozenset()
    """The keys that the file sets; all others have their defaults."""


def configuration_path(environ: Mapping[str, str]) -> str:
    """Where the file is, or would be."""
    home = environ.get(CONFIG_HOME) or os.path.expanduser("~/.config")
    return os.path.join(os.path.abspath(home), "headway", "config.toml")


def read_configuration(environ: Mapping[str, str]) -> Configured:
    """The configuration in force; without a file, the defaults."""
    path = configuration_path(environ)
    try:
        with open(path, "rb") as file:
            content = file.read(FILE_BYTES_MAX + 1)
    except FileNotFoundError:
        return Configured(Configuration(), path, is_there=False)
    except OSError as fault:
        raise _refused(path, f"cannot be read: {fault.strerror}", "check who may read it") from None
    if len(content) > FILE_BYTES_MAX:
        raise _refused(path, f"is larger than {FILE_BYTES_MAX} bytes", "it is a few lines of keys")
    return parsed(content, path)


def parsed(content: bytes, path: str) -> Configured:
    """A file's content as a configuration."""
    import tomllib

    try:
        found = tomllib.loads(content.decode())
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as fault:
        hint = "lines are like `ask_above_usd = 5`"
        raise _refused(path, f"is not TOML: {fault}", hint) from None
    known = {field.name: field.default for field in fields(Configuration)}
    changes: dict[str, Any] = {}
    for key, value in found.items():
        if key not in known:
            raise _refused(path, f"has a key that there is not: `{key}`", did_you_mean(key, known))
        changes[key] = _checked(path, key, value, known[key])
    return Configured(Configuration(**changes), path, is_there=True, set_here=frozenset(found))


def _checked(path: str, key: str, value: object, default: object) -> float | str | bool:
    if isinstance(value, bool) or isinstance(default, bool):
        if isinstance(value, bool) and isinstance(default, bool):
            return value
    elif isinstance(default, float):
        if isinstance(value, int | float) and 0.0 <= value < float("inf"):
            return float(value)
    elif isinstance(value, str) and value:
        return value
    wanted = {bool: "true or false", float: "a number, at least 0", str: "text in quotes"}
    raise _refused(
        path, f"sets `{key}` to {value!r}, which has to be {wanted[type(default)]}",
        f"{ABOUT[key]}",
    )  # fmt: skip


def _refused(path: str, why: str, hint: str) -> StateFileError:
    return StateFileError(f"{path} {why}", hint=hint)
