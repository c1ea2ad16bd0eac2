"""The tools `read_state` and `write_state`: the shared state of a run, as this attempt sees it.

Laws:
- They go through the attempt's own context, so that what is read counts as read, and what is
  written is seen by others when the task is done, as if everything ran one after another.
- A task that declares what it reads or writes of the state reads and writes nothing else.
"""

from __future__ import annotations

import json
from typing import Final

from headway.core.plan.resources import is_pattern, matches
from headway.errors import HeadwayError
from headway.runtime.agents.tools_box import Given, Tool, ToolError, taking, text_of
from headway.runtime.share import Share, in_a_line

_KEY: Final = {"type": "string"}


def state_tools(share: Share, writes: tuple[str, ...] | None = None) -> list[Tool]:
    """They are done again in every attempt: what an earlier one wrote ended with it."""

    async def read(given: Given) -> str:
        key = text_of(given, "key")
        _must_be_declared(key, share.reads, "read")
        try:
            if is_pattern(key):
                values = {name: json.loads(data) for name, data in share.reach.scan(key)}
                return json.dumps(values, ensure_ascii=False)
            data = share.reach.get(key)
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
                share.reach.put(key, given["value"])
                return f"put {key}"
            share.reach.add(key, given["value"])
        except HeadwayError as error:
            raise ToolError(in_a_line(error)) from error
        return f"added to {key}"

    about = "a key, or a pattern: * is within a name, ** is anything"
    return [
        Tool("read_state", "Read from the state that the tasks of this run share, as JSON.",
             taking(key={**_KEY, "description": about}), read, is_live=True),
        Tool("write_state", "Put a JSON value into the shared state, or add to what collects them.",
             taking(key=_KEY, value={"description": "any JSON"}), write, is_live=True),
    ]  # fmt: skip


def _must_be_declared(key: str, declared: tuple[str, ...] | None, verb: str) -> None:
    if declared is None or any(_lies_in(key, one) for one in declared):
        return
    known = ", ".join(f"`{one}`" for one in declared) or "nothing"
    raise ToolError(f"`{key}` is not declared: this task may {verb} {known} of the shared state")


def _lies_in(key: str, declared: str) -> bool:
    """Whether a key, or all keys of a pattern, are among those that are declared."""
    is_wider = "**" in key and "**" not in declared
    return key == declared or (not is_wider and matches(declared, key))
