"""The built-in tools of loops: files, shell, shared state.

Laws:
- Nothing outside of the folder is read or changed, by whatever path, link or race.
- A file is replaced by one rename: a reader never sees half of it.
- What a task does not declare to write is not written, where it declares what it writes.
"""

from __future__ import annotations

import errno
import json
import os
import secrets
import stat
import sys
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from fnmatch import fnmatchcase
from importlib.util import find_spec
from itertools import count
from typing import Final

from msgspec import Struct

from headway.agents import shell
from headway.base.file_use import READ, WRITE
from headway.errors import HeadwayError, UsageError
from headway.plans.resources import covers, inside, is_pattern, matches
from headway.state.folder import AttemptState, in_a_line, in_thread
from headway.work import Attempt

# A tool: its description for the model, and what happens when it is used.

OBSERVED_CHARS_MAX: Final = 24_000
"""The longest observation: some 6,000 tokens, which every later call of the loop pays again."""

HEAD_SHARE: Final = 0.25
"""The share of a cut text that is its beginning: errors are at the end."""

Given = Mapping[str, object]
"""The arguments of a tool: untrusted JSON."""


INSTALL: Final = {
    "pydantic_ai": "pip install 'headway[agents]'",
    "mcp": "pip install 'headway[mcp]'",
}


def must_be_installed(tools: Iterable[str]) -> None:
    """Refuse a loop with these tools where its libraries are not there; imports none of them."""
    needs_mcp = any(tool.startswith("mcp:") for tool in tools)
    for library in ("pydantic_ai", "mcp") if needs_mcp else ("pydantic_ai",):
        if find_spec(library) is None:
            raise missing(library)


def missing(library: str) -> UsageError:
    return UsageError(
        f"`agent: tools(...)` needs a library that is not installed: {library}",
        hint=INSTALL[library],
    )


class ToolError(Exception):
    """A tool was used in a way that it cannot do: the model sees why, and may try otherwise."""


class LoopTool(Struct, frozen=True):
    name: str
    about: str
    schema: Mapping[str, object]
    use: Callable[[Given], Awaitable[str]]
    """What is observed. Raises ToolError; other errors are headway's."""
    is_doubtful: bool = False
    """Whether it is not done again after an interruption, and the model is informed."""
    is_live: bool = False
    """Whether it is done in every attempt, whatever an earlier one observed."""


def taking(**properties: Mapping[str, object]) -> dict[str, object]:
    """The schema of an object; what has no default is required."""
    required = [name for name, one in properties.items() if "default" not in one]
    return {
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": False,
    }


def text_of(given: Given, name: str, default: str | None = None) -> str:
    value = given.get(name, default)
    if not isinstance(value, str):
        raise ToolError(f"`{name}` has to be a text")
    return value


def whole_of(given: Given, name: str, default: int, most: int) -> int:
    """A number from 1 on that a tool is given; a larger one than can be is the largest."""
    value = given.get(name, default)
    if isinstance(value, bool) or not isinstance(value, int | float) or value < 1:
        raise ToolError(f"`{name}` has to be a number from 1 on")
    return int(min(value, most))


def cut(text: str, most: int = OBSERVED_CHARS_MAX) -> str:
    """A text that is not too long to be observed; what is left out is stated."""
    if len(text) <= most:
        return text
    head = int(most * HEAD_SHARE)
    tail = most - head
    left_out = len(text) - head - tail
    mark = f"\n[... {left_out:,} of {len(text):,} characters are left out here ...]\n"
    return f"{text[:head]}{mark}{text[-tail:]}"


FILE_BYTES_MAX: Final = 8 * 1024 * 1024
"""The largest file that is read or written: what is larger is no text to think about."""

LINES: Final = 1_000
LINES_MAX: Final = 10_000
"""How many lines one read gives where the model does not say it, and at most."""

ENTRIES_MAX: Final = 1_000
MATCHES_MAX: Final = 200
LINE_CHARS_MAX: Final = 300
"""What one listing and one search give, and how much of each line."""

SEARCHED_MAX: Final = 50_000

FOLDERS_DEEP_MAX: Final = 100
"""How far a listing and a search go down: each folder is held open meanwhile."""

GIT: Final = ".git"
"""Programs execute what is in there: it is not listed, searched or written, in any case."""

_BENEATH: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_PATH: Final = {"type": "string", "description": "relative to the folder of the task"}


class ConfinedFolder(Struct, frozen=True):
    """A folder that is not left."""

    folder: str
    writes: tuple[str, ...] | None = None
    """Paths and patterns that may be written; None is everything."""
    is_foreign: bool = False
    """Whether an agent wrote the plan: its loops may not touch hidden files or keys."""

    def resolved(self, path: str) -> tuple[str, ...]:
        """The parts of a path below the folder, links followed; refused if it leads out."""
        short = inside(path)
        if short is None:
            raise ToolError(f"`{path}` leads out of the folder: paths are relative to it")
        root = os.path.realpath(self.folder)
        try:
            real = os.path.realpath(os.path.join(root, short))
        except OSError as fault:
            raise _said(path, fault) from None
        if real != root and not real.startswith(root.rstrip("/") + "/"):
            raise ToolError(f"`{path}` leads out of the folder by a link")
        return tuple(part for part in real[len(root) :].split("/") if part)

    def must_be_writable(self, path: str, parts: tuple[str, ...]) -> None:
        from headway.plans.untrusted import unwritable

        if not parts:
            raise ToolError(f"`{path}` is the folder itself")
        if GIT in map(str.lower, parts):
            raise ToolError(f"`{path}` is git's own: it is not written by this tool")
        real = "/".join(parts)
        if self.is_foreign and (problem := unwritable(real)):
            raise ToolError(f"`{path}` {problem}: a plan that you did not write may not change it")
        if self.writes is not None and not any(_matches(one, real) for one in self.writes):
            declared = ", ".join(f"`{one}`" for one in self.writes) or "nothing"
            raise ToolError(f"`{path}` is not declared: this task may write {declared}")

    @contextmanager
    def opened(self, parts: tuple[str, ...], *, makes: bool = False) -> Iterator[int]:
        """The folder of these names, from ours down, none of which is a link."""
        here = os.open(os.path.realpath(self.folder), _BENEATH)
        try:
            for part in parts:
                if makes:
                    with suppress(FileExistsError):
                        os.mkdir(part, dir_fd=here)
                below = os.open(part, _BENEATH, dir_fd=here)
                os.close(here)
                here = below
            yield here
        finally:
            os.close(here)

    def read(self, path: str) -> str:
        from headway.plans.untrusted import unreadable

        parts = self.resolved(path)
        if not parts:
            raise ToolError(f"`{path}` is a folder: use list_files")
        if self.is_foreign and (problem := unreadable("/".join(parts))):
            raise ToolError(f"`{path}` {problem}: a plan that you did not write may not read it")
        sys.audit("headway.file", "/".join(parts), READ)
        try:
            with self.opened(parts[:-1]) as folder:
                return _content(folder, parts[-1]).decode("utf-8", "surrogateescape")
        except OSError as fault:
            raise _said(path, fault) from None

    def write(self, path: str, content: str) -> bool:
        parts = self.resolved(path)
        self.must_be_writable(path, parts)
        data = content.encode("utf-8", "surrogateescape")
        if len(data) > FILE_BYTES_MAX:
            raise ToolError(f"{len(data):,} bytes are too many: at most {FILE_BYTES_MAX:,}")
        sys.audit("headway.file", "/".join(parts), WRITE)
        try:
            with self.opened(parts[:-1], makes=True) as folder:
                return replace_file(folder, parts[-1], data)
        except OSError as fault:
            raise _said(path, fault) from None

    def walk(self, path: str) -> Iterator[tuple[str, bool]]:
        """Everything below a folder, sorted, and whether it is a folder; links are not followed."""
        parts = self.resolved(path)
        sys.audit("headway.file", "/".join((*parts, "*")), READ)
        try:
            with self.opened(parts) as folder:
                yield from _walked(folder, "/".join(parts))
        except OSError as fault:
            raise _said(path, fault) from None


class FileTools:
    def __init__(self, place: ConfinedFolder) -> None:
        self._place = place

    def tools(self) -> list[LoopTool]:
        text, number = {"type": "string"}, {"type": "integer"}
        below = {**_PATH, "default": "."}
        names = {**text, "default": "*", "description": "a pattern for the names of files: *.py"}
        lines = {"from_line": {**number, "default": 1}, "lines": {**number, "default": LINES}}
        every = (
            ("read_file", "Read lines of a text file.", taking(path=_PATH, **lines), self._read),
            ("write_file", "Write a text file, new or in place of what it was.",
             taking(path=_PATH, content=text), self._write),
            ("edit_file", "Replace a text that occurs exactly once in a file.",
             taking(path=_PATH, old=text, new=text), self._edit),
            ("list_files", "List everything below a folder.", taking(path=below), self._list),
            ("search", "Find the lines of files that contain a text, as it is written.",
             taking(text=text, path=below, files=names), self._search),
        )  # fmt: skip
        return [
            LoopTool(name, about, schema, self._in_thread(work))
            for name, about, schema, work in every
        ]

    def _in_thread(self, work: Callable[[Given], str]) -> Callable[[Given], Awaitable[str]]:
        async def use(given: Given) -> str:
            return await in_thread(lambda: work(given))

        return use

    def _read(self, given: Given) -> str:
        lines = _shown(self._place.read(text_of(given, "path"))).splitlines(keepends=True)
        first = whole_of(given, "from_line", 1, FILE_BYTES_MAX)
        last = first - 1 + whole_of(given, "lines", LINES, LINES_MAX)
        if not lines:
            return "[the file is empty]"
        text = "".join(lines[first - 1 : last])
        if first > 1 or last < len(lines):
            text += f"\n[lines {first:,} to {min(last, len(lines)):,} of {len(lines):,}]"
        return text

    def _write(self, given: Given) -> str:
        path, content = text_of(given, "path"), text_of(given, "content")
        was_there = self._place.write(path, content)
        return f"{'replaced' if was_there else 'made'} {path}: {len(content):,} characters"

    def _edit(self, given: Given) -> str:
        path, old, new = (text_of(given, name) for name in ("path", "old", "new"))
        if not old or old == new:
            raise ToolError("`old` has to be a text, and another one than `new`")
        content = self._place.read(path)
        count = content.count(old)
        if count != 1:
            again = (
                " The new text is there already." if not count and new and new in content else ""
            )
            raise ToolError(f"`old` occurs {count} times in {path}, and not once.{again}")
        self._place.write(path, content.replace(old, new))
        return f"edited {path}"

    def _list(self, given: Given) -> str:
        found: list[str] = []
        for name, is_folder in self._place.walk(text_of(given, "path", ".")):
            if len(found) == ENTRIES_MAX:
                found.append(f"[there are more than {ENTRIES_MAX:,}: list a folder of them]")
                break
            found.append(f"{name}/" if is_folder else name)
        return "\n".join(found) or "[nothing is there]"

    def _search(self, given: Given) -> str:
        text, files = text_of(given, "text"), text_of(given, "files", "*")
        if not text:
            raise ToolError("`text` has to be a text")
        found: list[str] = []
        names = (
            name
            for name, is_folder in self._place.walk(text_of(given, "path", "."))
            if not is_folder and fnmatchcase(name.rpartition("/")[2], files)
        )
        for searched, name in enumerate(names):
            if searched >= SEARCHED_MAX or len(found) >= MATCHES_MAX:
                found.append("[there may be more: search in a folder, or in fewer files]")
                break
            found += self._matches(name, text)[: MATCHES_MAX - len(found)]
        return "\n".join(found) or "[nothing is found]"

    def _matches(self, name: str, text: str) -> list[str]:
        try:
            content = self._place.read(name)
        except ToolError:
            return []  # No text, too large, or gone.
        if text not in content:
            return []
        return [
            f"{name}:{number}: {_shown(line.strip())[:LINE_CHARS_MAX]}"
            for number, line in enumerate(content.splitlines(), 1)
            if text in line
        ]


def _matches(declared: str, path: str) -> bool:
    """Whether a path is what a task declares to write, lies within it, or fits its pattern."""
    short = inside(declared)
    if short is None:
        return False
    if covers((short,), path):
        return True
    if "**" in short:
        return fnmatchcase(path, short)
    # As where the plan's own patterns are expanded, a star is within a name.
    parts, patterns = path.split("/"), short.split("/")
    return len(parts) == len(patterns) and all(map(fnmatchcase, parts, patterns))


def _content(folder: int, name: str) -> bytes:
    """Of a file that is one: no device, and nothing that waits for a writer."""
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    handle = os.open(name, flags, dir_fd=folder)
    try:
        _must_be_file(os.fstat(handle).st_mode)
        with open(handle, "rb", closefd=False) as file:
            data = file.read(FILE_BYTES_MAX + 1)
    finally:
        os.close(handle)
    if len(data) > FILE_BYTES_MAX:
        raise OSError(errno.EFBIG, f"it is larger than {FILE_BYTES_MAX:,} bytes")
    if b"\0" in data:
        raise OSError(errno.EINVAL, "it is not a text")
    return data


def _must_be_file(mode: int) -> None:
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, "it is a folder")
    if not stat.S_ISREG(mode):
        raise OSError(errno.EINVAL, "it is not a file")


def replace_file(folder: int, name: str, data: bytes) -> bool:
    mode = 0o666
    try:
        found = os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode
    except FileNotFoundError:
        was_there = False
    else:
        _must_be_file(found)
        mode, was_there = stat.S_IMODE(found), True
    draft = f".{name[:100]}.{secrets.token_hex(4)}.draft"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    handle = os.open(draft, flags, mode, dir_fd=folder)
    try:
        with os.fdopen(handle, "wb") as file:
            if was_there:
                os.fchmod(handle, mode)
            file.write(data)
            file.flush()
            os.fsync(handle)
        os.replace(draft, name, src_dir_fd=folder, dst_dir_fd=folder)
    except BaseException:
        with suppress(OSError):
            os.unlink(draft, dir_fd=folder)
        raise
    return was_there


def _walked(folder: int, above: str) -> Iterator[tuple[str, bool]]:
    with os.scandir(folder) as found:
        entries = sorted((one.name, one.is_dir(follow_symlinks=False)) for one in found)
    for name, is_folder in entries:
        if name.lower() == GIT:
            continue
        path = f"{above}/{name}" if above else name
        yield _shown(path), is_folder
        if is_folder and path.count("/") >= FOLDERS_DEEP_MAX:
            yield f"{_shown(path)}/[what is further down is left out]", False
        elif is_folder:
            try:
                below = os.open(name, _BENEATH, dir_fd=folder)
            except OSError:
                continue  # Gone, or not ours to read.
            try:
                yield from _walked(below, path)
            finally:
                os.close(below)


def _shown(text: str) -> str:
    """A text that JSON can carry: bytes that are no UTF-8 become question marks."""
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def _said(path: str, fault: OSError) -> ToolError:
    why = fault.strerror or str(fault)
    if fault.errno in (errno.ELOOP, errno.ENOTDIR):
        why = "a part of it is no folder"
    return ToolError(f"`{path}`: {why}")


# The tool `shell`: a command in the task's folder, under the shim of its run.

COMMAND_S: Final = 120
COMMAND_S_MAX: Final = 1_800
"""How long a command may take where the model does not say it, and at most."""

COMMAND_BYTES_MAX: Final = 100_000
"""Systems refuse a word of 128 KiB."""

STREAM_BYTES_MAX: Final = OBSERVED_CHARS_MAX * 2 // 5

SECRETS: Final = ("_API_KEY", "_AUTH_TOKEN", "_OAUTH_TOKEN")
"""How the names of variables end that open an account with a provider of models."""

_numbers: Final = count(1)
"""Tells commands apart, whose output is in files: tasks may be alike."""

ABOUT: Final = (
    "Run a command with /bin/sh in the folder of the task. Gives its exit code and what it wrote; "
    "long output is cut in the middle. Nothing can be typed into it."
)


def shell_tool(
    attempt: Attempt,
    perform: shell.PerformCommand,
    folder: str,
    environment: Mapping[str, str],
) -> LoopTool:
    async def use(given: Given) -> str:
        words = words_of(given.get("command"))
        timeout_s = whole_of(given, "timeout_s", COMMAND_S, COMMAND_S_MAX)
        hidden = secret_values({**os.environ, **environment})
        variables = {key: value for key, value in environment.items() if key not in hidden}
        if names := sorted(hidden.intersection(os.environ)):
            words = ("env", *(word for name in names for word in ("-u", name)), *words)
        command = shell.Command(
            b"tool%012d" % next(_numbers), attempt.number, words, variables,
            folder, None, float(timeout_s),
        )  # fmt: skip
        try:
            ended = await perform(command, attempt.clock)
        except shell.ShimGoneError as gone:
            raise ToolError(f"in doubt: {gone}") from None
        return await in_thread(lambda: in_words(ended))

    schema = taking(
        command={"type": "string", "description": "for /bin/sh -c"},
        timeout_s={"type": "integer", "default": COMMAND_S, "description": "seconds"},
    )
    return LoopTool("shell", ABOUT, schema, use, is_doubtful=True)


def secret_values(environment: Mapping[str, str]) -> frozenset[str]:
    """Keys, and variables that lead to a gateway, whose addresses are keys as well."""
    from headway.client.accounts import GATEWAY_VARIABLE

    gateway = environment.get(GATEWAY_VARIABLE, "")
    return frozenset(
        name
        for name, value in environment.items()
        if name.endswith(SECRETS) or (gateway and gateway in value)
    )


def words_of(command: object) -> tuple[str, ...]:
    """A text for a shell; some models give the words of a command instead."""
    if isinstance(command, str):
        words: tuple[str, ...] = ("/bin/sh", "-c", command)
    elif isinstance(command, list) and command and all(isinstance(one, str) for one in command):
        words = tuple(command)
    else:
        raise ToolError("`command` has to be a text")
    if any("\0" in word for word in words):
        raise ToolError("`command` has a NUL in it")
    if sum(len(word.encode("utf-8", "replace")) for word in words) > COMMAND_BYTES_MAX:
        raise ToolError(f"`command` is longer than {COMMAND_BYTES_MAX:,} bytes: write a file first")
    return words


def in_words(ended: shell.CommandEnded) -> str:
    parts = [shell.how_ended(ended)]
    for name, output in (("stdout", ended.stdout), ("stderr", ended.stderr)):
        if output.size_bytes:
            parts.append(f"--- {name}\n{_shown_output(output)}")
    return "\n".join(parts)


def _shown_output(output: shell.Output) -> str:
    if output.size_bytes <= STREAM_BYTES_MAX:
        return output.read().decode("utf-8", "replace")
    head, tail = STREAM_BYTES_MAX // 4, STREAM_BYTES_MAX * 3 // 4
    if output.text is not None:
        beginning = output.text[:head]
    else:
        with open(output.path, "rb") as file:
            beginning = file.read(head)
    left_out = output.size_bytes - head - tail
    mark = f"\n[... {left_out:,} of {output.size_bytes:,} bytes are left out here ...]\n"
    end = output.tail(tail).decode("utf-8", "replace")
    return f"{beginning.decode('utf-8', 'replace')}{mark}{end}"


# The tools `read_state` and `write_state`: the shared state of a run, as this attempt sees it.

_KEY: Final = {"type": "string"}


def state_tools(share: AttemptState, writes: tuple[str, ...] | None = None) -> list[LoopTool]:
    """They are done again in every attempt: what an earlier one wrote ended with it."""

    async def read(given: Given) -> str:
        key = text_of(given, "key")
        _must_be_declared(key, share.reads, "read")
        try:
            if is_pattern(key):
                values = {name: json.loads(data) for name, data in share.loan.reach.scan(key)}
                return json.dumps(values, ensure_ascii=False)
            data = share.loan.reach.get(key)
        except HeadwayError as error:
            raise ToolError(in_a_line(error)) from error
        return "[it has no value]" if data is None else data.decode()

    async def write(given: Given) -> str:
        key = text_of(given, "key")
        if "value" not in given:
            raise ToolError("`value` is missing")
        _must_be_declared(key, writes, "write")
        try:
            if share.channels.of(key).kind == "value":
                share.loan.reach.put(key, given["value"])
                return f"put {key}"
            share.loan.reach.add(key, given["value"])
        except HeadwayError as error:
            raise ToolError(in_a_line(error)) from error
        return f"added to {key}"

    pattern = {**_KEY, "description": "a key, or a pattern: * is within a name, ** is anything"}
    about_reads = "Read from the state that the tasks of this run share, as JSON."
    about_writes = "Put a JSON value into the shared state, or add to what collects them."
    given = taking(key=_KEY, value={"description": "any JSON"})
    return [
        LoopTool("read_state", about_reads, taking(key=pattern), read, is_live=True),
        LoopTool("write_state", about_writes, given, write, is_live=True),
    ]


def _must_be_declared(key: str, declared: tuple[str, ...] | None, verb: str) -> None:
    if declared is None or any(_lies_in(key, one) for one in declared):
        return
    known = ", ".join(f"`{one}`" for one in declared) or "nothing"
    raise ToolError(f"`{key}` is not declared: this task may {verb} {known} of the shared state")


def _lies_in(key: str, declared: str) -> bool:
    """Whether a key, or all keys of a pattern, are among those that are declared."""
    is_wider = "**" in key and "**" not in declared
    return key == declared or (not is_wider and matches(declared, key))
