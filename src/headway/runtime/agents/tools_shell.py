"""The tool `shell`: a command in the task's folder, under the shim of its run.

Laws:
- A command has no key of a provider and no way to the gateway: what it would ask nobody counts.
- A command that takes too long is ended with all that it has started. What one leaves in the
  background when it ends by itself is left alone, as by any shell.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import count
from typing import Final

from headway.runtime.accounts import GATEWAY_VARIABLE
from headway.runtime.agents.command import shell_code
from headway.runtime.agents.tools_box import (
    OBSERVED_CHARS_MAX,
    Given,
    Tool,
    ToolError,
    taking,
    whole_of,
)
from headway.runtime.share import in_thread
from headway.runtime.shell import Command, Ended, Output, Shim, ShimGoneError
from headway.runtime.work import Attempt

COMMAND_S: Final = 120
COMMAND_S_MAX: Final = 1_800
"""How long a command may take where the model does not say it, and at most."""

COMMAND_BYTES_MAX: Final = 100_000
"""Systems refuse a word of 128 KiB."""

STREAM_BYTES_MAX: Final = OBSERVED_CHARS_MAX * 2 // 5
"""Of each of the two outputs of a command."""

SECRETS: Final = ("_API_KEY", "_AUTH_TOKEN", "_OAUTH_TOKEN")
"""How the names of variables end that open an account with a provider of models."""

_numbers: Final = count(1)
"""Tells commands apart, whose output is in files: tasks may be alike."""

ABOUT: Final = (
    "Run a command with /bin/sh in the folder of the task. Gives its exit code and what it wrote; "
    "long output is cut in the middle. Nothing can be typed into it."
)


@dataclass(slots=True)
class Shell:
    """Runs the commands of one attempt."""

    attempt: Attempt
    shim: Callable[[], Shim]
    folder: str
    environment: Mapping[str, str]
    _count: int = 0

    def tool(self) -> Tool:
        schema = taking(
            command={"type": "string", "description": "for /bin/sh -c"},
            timeout_s={"type": "integer", "default": COMMAND_S, "description": "seconds"},
        )
        return Tool("shell", ABOUT, schema, self.use, is_doubtful=True)

    def statistics(self) -> int:
        """How many commands were run."""
        return self._count

    async def use(self, given: Given) -> str:
        words = words_of(given.get("command"))
        timeout_s = whole_of(given, "timeout_s", COMMAND_S, COMMAND_S_MAX)
        self._count += 1
        attempt = self.attempt
        hidden = secrets({**os.environ, **self.environment})
        told = {key: value for key, value in self.environment.items() if key not in hidden}
        command = Command(
            b"tool%012d" % next(_numbers), attempt.number, (*_hiding(hidden), *words), told,
            self.folder, None, float(timeout_s),
        )  # fmt: skip
        try:
            ended = await self.shim().run(command, attempt.clock)
        except ShimGoneError as gone:
            raise ToolError(f"in doubt: {gone}") from None
        return await in_thread(lambda: in_words(ended))


def secrets(environment: Mapping[str, str]) -> frozenset[str]:
    """The variables that are none of a tool's business: keys, and whatever leads to a gateway,
    whose addresses are keys as well."""
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


def in_words(ended: Ended) -> str:
    """How a command ended, as the model sees it."""
    how = f"exit code {shell_code(ended.code)}"
    if ended.reason == "timeout":
        how = f"ended after {ended.took_ms / 1000:.0f} s, which it was allowed"
    elif ended.reason == "refused":
        how = "it could not be started"
    elif ended.reason != "exit":
        how = f"{ended.reason} after {ended.took_ms / 1000:.0f} s"
    parts = [how]
    for name, output in (("stdout", ended.stdout), ("stderr", ended.stderr)):
        if output.size_bytes:
            parts.append(f"--- {name}\n{_shown(output)}")
    return "\n".join(parts)


def _shown(output: Output) -> str:
    """Both ends of an output."""
    if output.size_bytes <= STREAM_BYTES_MAX:
        return output.read().decode("utf-8", "replace")
    head, tail = STREAM_BYTES_MAX // 4, STREAM_BYTES_MAX * 3 // 4
    if output.text is not None:
        beginning = output.text[:head]
    else:
        with open(output.path, "rb") as file:
            beginning = file.read(head)
    left_out = output.size_bytes - head - tail
    said = f"\n[... {left_out:,} of {output.size_bytes:,} bytes are left out here ...]\n"
    end = output.tail(tail).decode("utf-8", "replace")
    return f"{beginning.decode('utf-8', 'replace')}{said}{end}"


def _hiding(hidden: frozenset[str]) -> tuple[str, ...]:
    """The beginning of a command that does not inherit what opens accounts."""
    names = sorted(hidden.intersection(os.environ))
    return ("env", *(word for name in names for word in ("-u", name))) if names else ()
