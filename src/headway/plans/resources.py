"""Keys and channels of the shared state as texts: how a plan writes them, and which are alike."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from itertools import takewhile
from typing import Final, Literal, get_args

from msgspec import Struct

from headway.errors import did_you_mean, nearest
from headway.plans.grammar import TARGET

# Paths of a plan as text: what lies within its folder, and what lies within what.

PATH_CHARS_MAX: Final = 4_096
WILD: Final = "*?["


def inside(path: str) -> str | None:
    """The path in its shortest form, relative to the plan's folder; `None` if it leads out."""
    if path.startswith(("/", "~")) or "\0" in path or len(path) > PATH_CHARS_MAX:
        return None
    if "." not in path and "//" not in path and not path.endswith("/"):
        return path
    parts: list[str] = []
    for part in path.split("/"):
        if part == ".." and not parts:
            return None
        if part == "..":
            parts.pop()
        elif part not in ("", "."):
            parts.append(part)
    return "/".join(parts)


def led_back(path: str) -> str:
    """A path that leads out, without what leads out: what its writer may have meant."""
    parts = [part for part in path.replace("\0", "").split("/") if part not in ("", ".", "..", "~")]
    return "/".join(parts)[:PATH_CHARS_MAX] or "."


def fixed_part(path: str, wild: str = WILD) -> str:
    """The folders of a pattern before the first one with something variable in it."""
    is_fixed = frozenset(wild).isdisjoint
    return path if is_fixed(path) else "/".join(takewhile(is_fixed, path.split("/")))


def above(path: str) -> Iterator[str]:
    """Every folder that a path lies in, from the nearest to the plan's own."""
    while path:
        path = path.rpartition("/")[0]
        yield path


Kind = Literal["value", "append", "set", "counter", "max", "reduce", "effect"]
"""The last put | all of them, as a list | each once, sorted | their sum | the largest | a function
of the user's | nothing: what is put is done to the world."""

KINDS: Final[tuple[Kind, ...]] = get_args(Kind)
KEY_CHARS_MAX: Final = 400
SCHEME: Final = "state:"
"""What sets a key of the shared state apart from a path, where a plan declares reads and writes."""
ACTS: Final = "effect:"
"""What sets an effect channel apart from a key, among the things that order tasks."""

EVERY_KEY: Final = "**"
"""The pattern of all keys."""

_SEGMENT: Final = re.compile(r"(?!\.\.?\Z)[^\x00-\x1f\x7f\ud800-\udfff/]+")
"""Keys are names of files to commands: `..` leads out, and half a character has no bytes."""
_SPEC: Final = re.compile(r"(?P<kind>[a-z]+)(?:\((?P<target>.+)\))?", re.DOTALL)
_EXAMPLE: Final = "package.module:function"


class Channel(Struct, frozen=True):
    """How a key combines what is put there."""

    kind: Kind = "value"
    target: str = ""
    """Of `reduce`: the function, as module:name. Of `effect`: that, or a shell command."""

    def __str__(self) -> str:
        return f"{self.kind}({self.target})" if self.target else self.kind


VALUE: Final = Channel()


def channel_of(text: str) -> Channel | str:
    """A channel as a plan writes it: `append`, `reduce(pkg.mod:name)`; or what is wrong with it."""
    found = _SPEC.fullmatch(text.strip())
    kind = found["kind"] if found else text
    target = (found["target"] or "").strip() if found else ""
    known = next((one for one in KINDS if one == kind), None)
    if known is None:
        return f"`{text}` is no channel: {did_you_mean(kind, KINDS)}"
    if (known in ("reduce", "effect")) is not bool(target):
        return f"write `{known}(module:function)`" if not target else f"write `{known}` alone"
    if known == "reduce" and TARGET.fullmatch(target) is None:
        return "write `reduce(module:function)`"
    return Channel(known, target)


def better_channel(text: str) -> str:
    """The channel that was probably meant by a text that is none."""
    kind = nearest(text.partition("(")[0].strip().lower(), KINDS) or "value"
    return f"{kind}({_EXAMPLE})" if kind in ("reduce", "effect") else kind


def channel_in(declared: Mapping[str, Channel], key: str) -> Channel:
    """The channel of a key: its own, or that of the longest pattern that it matches."""
    found = declared.get(key)
    if found is not None or not declared:
        return found or VALUE
    patterns = [one for one in declared if is_pattern(one) and matches(one, key)]
    return declared[max(patterns, key=lambda one: (len(one), one))] if patterns else VALUE


def is_well_formed(key: str) -> bool:
    """Whether every segment of a key or a pattern says something."""
    is_short = 0 < len(key) <= KEY_CHARS_MAX
    return is_short and all(map(_SEGMENT.fullmatch, key.split("/")))


def better_key(text: str) -> str:
    """The key or pattern that was probably meant by a text that is none."""
    printable = re.sub(r"[\x00-\x1f\x7f\ud800-\udfff]+", "", text)
    parts = [part for part in printable.split("/") if part not in ("", ".", "..")]
    short = "/".join(parts)[:KEY_CHARS_MAX].strip("/")
    return short if is_well_formed(short) else "key"


def is_pattern(key: str) -> bool:
    return "*" in key or "?" in key


def matches(pattern: str, key: str) -> bool:
    """Whether a key is one of a pattern's: `*` is within a segment, `**` is anything."""
    return pattern == EVERY_KEY or _compiled(pattern).fullmatch(key) is not None


def prefix_of(what: str) -> str:
    """What a key or pattern stands for where overlaps are judged: itself, or its fixed folders."""
    return fixed_part(what, "*?") if is_pattern(what) else what


@lru_cache(maxsize=4096)
def _compiled(pattern: str) -> re.Pattern[str]:
    parts = re.split(r"(\*\*|\*|\?)", pattern)
    words = {"**": ".*", "*": "[^/]*", "?": "[^/]"}
    return re.compile("".join(words.get(part, re.escape(part)) for part in parts), re.DOTALL)


# Files of workspaces as keys of the shared state: what a file holds, and that it is there.

FILES: Final = "@files"
"""Under it, by path, the mode and content of files; no plan can name such a key."""
NAMES: Final = "@names"
"""Under it, by path, the names that folders hold: a listing depends on these alone."""
ABOVE: Final = "%2E%2E"
"""Stands for `..` in a key: a file of a repository outside of the folder that a plan names."""
_UNSAFE: Final = re.compile(r"[%*?\x00-\x1f\x7f\ud800-\udfff]")


def file_key(root: str, path: str, scheme: str = FILES) -> str:
    """The key of a path in the workspaces of a root, which is a path within the plan's folder."""
    parts = [scheme, *root.split("/"), *path.split("/")]
    safe = [_UNSAFE.sub(_escaped, part) for part in parts if part not in ("", ".")]
    return "/".join([ABOVE if part == ".." else part for part in safe])


def file_pattern(root: str, folder: str = "", wild: str = "**", scheme: str = FILES) -> str:
    """The pattern of everything in a folder, or with `*` of the names that it holds."""
    return f"{file_key(root, folder, scheme)}/{wild}"


def file_path(key: str, root: str) -> str:
    """The path that a key of this root stands for."""
    path = key[len(file_key(root, "")) + 1 :].replace(ABOVE, "..")
    return re.sub("%([0-9A-F]+);", lambda found: chr(int(found[1], 16)), path)


def is_every_file(what: str) -> bool:
    """Whether a pattern is of all files of a folder, which searches and checks look at."""
    return what.startswith(f"{FILES}/") and what.endswith("/**")


def shown_key(what: str) -> str:
    """A key or pattern as people read it: of files their path."""
    for scheme, words in ((FILES, "{}"), (NAMES, "the names in {}")):
        if what == scheme or what.startswith(f"{scheme}/"):
            path = what[len(scheme) + 1 :].removesuffix("**").removesuffix("*").rstrip("/")
            path = path.replace(ABOVE, "..")
            return words.format(path) if path else "the files of the folder"
    return what


def _escaped(found: re.Match[str]) -> str:
    return f"%{ord(found[0]):X};"


# What tasks of a group may touch of the shared state, and which effects they may ask for.

Prefixes = tuple[str, ...] | None
"""Keys and folders of the shared state; None is everything."""


class Touches(Struct, frozen=True):
    """Keys and folders that may be read and written, and effect channels; None is any of them."""

    reads: Prefixes = None
    writes: Prefixes = None
    acts: Prefixes = None
    by_member: Callable[[int], Touches] | None = None
    """What one member may touch, where that differs; it lies within what is said of all."""

    def of(self, member: int) -> Touches:
        return self if self.by_member is None else self.by_member(member)


ANYTHING = Touches()
"""Of a task that may use the shared state and does not say how."""


def covers(prefixes: Prefixes, key: str) -> bool:
    """Whether a key, or a whole folder, is one of these or lies within one."""
    if prefixes is None:
        return True
    return any(key == one or not one or key.startswith(one + "/") for one in prefixes)
