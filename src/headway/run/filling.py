"""Fills in a task's values: texts, environment, results.

Law: values never meet a shell as text. A command gets them as environment variables and files.
"""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from json import JSONDecodeError
from typing import TYPE_CHECKING, Final

from msgspec import Struct, field

from headway.agents.tools import ConfinedFolder, replace_file
from headway.base.digest import digest
from headway.errors import UsageError
from headway.plans.expand import GroupPlan, Member
from headway.plans.load import is_behind
from headway.plans.spec import Prompt, Value, text_of, whole
from headway.plans.template import Template, template_of
from headway.state.folder import AttemptState
from headway.work import AGENT_VARIABLE, Attempt, Needed

if TYPE_CHECKING:
    from headway.run.workspaces import OpenWorkspace

# Puts results under their paths: whole, in one step, within the plan's folder.

LEADS_OUT: Final = "a link leads out of the plan's folder; --outside allows that"

NAME_BYTES_MAX: Final = 255
"""Of a file's name, by nearly every file system."""

SHOWN: Final = "shown"
"""In a run's folder: by path, the digest of what the run put there last."""


def write_new(path: str, content: bytes, may_replace: bool = False) -> None:
    """Write a file; FileExistsError if something is at its path, unless that may be replaced."""
    folder, name = os.path.split(path)
    draft = os.path.join(folder, f".{name}.{os.getpid()}")
    with suppress(FileNotFoundError):
        os.unlink(draft)  # Of a process that had our number and was killed.
    try:
        with open(draft, "xb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        if may_replace:
            os.replace(draft, path)
        else:
            _link(draft, path)
    finally:
        with suppress(OSError):
            os.unlink(draft)


def put_within(folder: str, path: str, body: bytes | None, may_leave: bool = False) -> None:
    """Replace a file of a folder; without a body, only raise what would keep that from working.

    OSError if a link leads out of the folder, unless it may. The way is looked at when the file is
    written, and each folder on it is opened without following links: no change of a link meanwhile
    leads elsewhere.
    """
    root, parts = _way(folder, path, may_leave)
    if body is None:
        _must_be_possible(root, parts)
        return
    with ConfinedFolder(root).opened(parts[:-1], makes=True) as opened:
        replace_file(opened, parts[-1], body)


def _way(folder: str, path: str, may_leave: bool) -> tuple[str, tuple[str, ...]]:
    """The folder to begin in, and the names from there on: none is a link."""
    root = os.path.realpath(folder)
    real = os.path.realpath(os.path.join(root, path))
    is_inside = real.startswith(root.rstrip("/") + "/")
    if not is_inside and not may_leave:
        raise OSError(errno.EPERM, LEADS_OUT)
    if not is_inside:
        root = "/"
    return root, tuple(part for part in real[len(root) :].split("/") if part)


def _must_be_possible(root: str, parts: tuple[str, ...]) -> None:
    """Look, and change nothing: a task may want to make these folders itself."""
    whole = os.path.join(root, *parts)
    if not parts or os.path.isdir(whole):
        raise IsADirectoryError(errno.EISDIR, "it is a folder")
    if os.path.exists(whole) and not os.path.isfile(whole):
        raise OSError(errno.EINVAL, "it is not a file")
    above = os.path.dirname(whole)
    if max(len(os.fsencode(part)) for part in parts) > NAME_BYTES_MAX:
        raise OSError(errno.ENAMETOOLONG, os.strerror(errno.ENAMETOOLONG))
    while not os.path.lexists(above):
        above = os.path.dirname(above)
    if not os.path.isdir(above):
        raise NotADirectoryError(errno.ENOTDIR, f"{os.path.relpath(above, root)} is not a folder")
    if not os.access(above, os.W_OK | os.X_OK):
        raise PermissionError(errno.EACCES, f"no permission to write to {above}")


def publish_new(folder: str, run_folder: str, path: str, body: bytes) -> None:
    """Show a result in a plan's folder where nothing is, or where this run has put one before.

    A plan by an agent was judged when its run began; since then the user, or another
    run, may have been there.
    """
    root = os.path.realpath(folder)
    if is_behind(root, path):
        raise OSError(errno.ELOOP, f"a link, or a file, is on the way to {path}")
    whole = os.path.join(root, path)
    mark = os.path.join(run_folder, SHOWN, digest(path.encode()).hex())
    os.makedirs(os.path.dirname(whole), exist_ok=True)
    os.makedirs(os.path.dirname(mark), mode=0o700, exist_ok=True)
    try:
        write_new(whole, body)
    except FileExistsError:
        there = _digest(whole)
        if not there or there not in (digest(body), _content(mark)):
            raise OSError(errno.EEXIST, f"{path} is there already, and is not this run's") from None
        write_new(whole, body, may_replace=True)
    write_new(mark, digest(body), may_replace=True)


def _link(draft: str, path: str) -> None:
    try:
        os.link(draft, path)
    except FileExistsError:
        raise
    except OSError:
        # Some disks have no links: the name is taken first, and what is under it replaced.
        with open(path, "xb"):
            os.replace(draft, path)


def _digest(path: str) -> bytes:
    """Of what a file has; empty for a link, a pipe, or what cannot be read."""
    is_file = os.path.isfile(path) and not os.path.islink(path)
    return digest(_content(path)) if is_file else b""


def _content(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError:
        return b""


VALUE_BYTES_MAX: Final = 100_000
"""The longest value that is given as an environment variable: systems refuse 128 KiB."""


class Filling(Struct, frozen=True):
    """What one attempt of a task is about."""

    group: GroupPlan
    member: Member
    attempt: Attempt
    folder: str
    share: AttemptState | None = None
    told: Mapping[str, str] = field(default_factory=dict)
    """What leads the command's calls to the gateway; no variable of the plan changes it."""
    workspace: OpenWorkspace | None = None

    def text(self, source: str) -> str:
        state = None if self.share is None else self.share.text
        return filled(self.group, source, self.member, self._result, state)

    def variables(self) -> dict[str, str]:
        return {name: self.variable(value) for name, value in self.group.vars.items()}

    def environment(self, run: str) -> dict[str, str]:
        group = self.group
        told: dict[str, str] = {"HEADWAY_TASK": self.attempt.name, "HEADWAY_RUN": run}
        if isinstance(group.task.work, Prompt) and group.task.work.agent is not None:
            told[AGENT_VARIABLE] = group.task.work.agent.name
        if group.known.items is not None:
            told["item"] = text_of(self.member.item)
        if group.task.is_group:
            told["index"] = str(self.member.index)
        told |= {name: text_of(value) for name, value in self.member.matrix}
        for name, value in self.variables().items():
            template = group.vars[name]
            is_late = isinstance(template, Template) and any(ref.task for ref in template.refs)
            if is_late:
                told[f"{name}_file"] = self.as_file(name, value)
            if not is_late or (len(value.encode()) <= VALUE_BYTES_MAX and "\0" not in value):
                told[name] = value
        for name, value in told.items():
            if "\0" in value:
                raise UsageError(f"`{name}` has a zero byte, which no variable can hold")
            if len(value.encode()) > VALUE_BYTES_MAX:
                raise UsageError(
                    f"`{name}` has {len(value):,} characters: too many for an environment variable",
                    hint="put it into a file and give the file's name",
                )
        return {**told, **self.told}

    def as_file(self, name: str, value: str) -> str:
        folder = os.path.join(self.folder, "values")
        os.makedirs(folder, mode=0o700, exist_ok=True)
        path = os.path.join(folder, f"{self.attempt.key.hex()}.{name}")
        with open(path, "w", encoding="utf-8", newline="") as file:
            file.write(value)
        return path

    def variable(self, value: Template | Value) -> str:
        if isinstance(value, Template):
            return self.group.fill(value, self.member, self._result)
        return text_of(value)

    def _result(self, task: str) -> str:
        return given_text(self.attempt.needed(task), self.attempt.member)


def given_text(results: Sequence[Needed], member: int) -> str:
    """What a member is given of a task: its result as text; of a group, a JSON array."""
    first = results[0] if len(results) == 1 else None
    if first is not None and ("[" not in first.name or first.member == member):
        return text_in(first.body)
    return json.dumps([value_in(one.body) for one in results], ensure_ascii=False)


def filled(
    group: GroupPlan, text: str, member: Member, results: Callable[[str], str] | None = None,
    state: Callable[[str], str] | None = None,
) -> str:  # fmt: skip
    return group.fill(template_of(text), member, results, state)


def lines_of(results: list[Needed], missing: Sequence[str] = ()) -> bytes:
    """Results for a command that reduces, one JSON object a line; then who has none."""
    told: list[dict[str, object]] = [
        {"task": one.name, "output": value_in(one.body)} for one in results
    ]
    told += ({"task": label, "missing": True} for label in missing)
    return "".join(f"{json.dumps(one, ensure_ascii=False)}\n" for one in told).encode()


def text_in(body: bytes) -> str:
    return body.decode("utf-8", "replace")


def value_in(body: bytes) -> object:
    """What a body means: JSON where it is some, otherwise its text."""
    text = text_in(body)
    if text[:1] in '{["-0123456789tfn':
        try:
            value = json.loads(text)
            return whole(value) if "\\u" in text else value
        except (JSONDecodeError, RecursionError):
            pass
    return text.removesuffix("\n")
