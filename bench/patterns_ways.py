"""The programs of `bench.patterns`: one serial loop, the first pattern, the second.

Each is what a user would write after "Architectural Limits and Parallel Patterns": a tool loop by
hand on the SDK, threads for sub-agents, and `headway.plan` for a model that writes the program. All
of them look at the same repositories, and know what they found in the same form.
"""

from __future__ import annotations

import argparse
import json
import os
import re
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

import anthropic

import headway

MODEL: Final = "agent"
"""Asks for the commands between backticks, one after the other, then tells what they gave."""

LAST: Final = "script"
"""Adds up what it observed: whoever has everything before it answers as briefly as a plan does."""

MAX_TOKENS: Final = 16_000
TOOL: Final[Any] = {
    "name": "bash",
    "description": "Run a command in the folder of the repositories.",
    "input_schema": {"type": "object", "properties": {"command": {"type": "string"}}},
}
SYSTEM: Final = "You check repositories for dependencies that are out of date. Use the tool."
DISPATCH: Final = "dispatch all"

PIN: Final = re.compile(r"^(\w+)==(\S+)$", re.MULTILINE)
BEHIND: Final = re.compile(r'"behind": (\{[^}]*\})')

Tool = Callable[[str], str]


def names(folder: Path) -> list[str]:
    """The repositories."""
    return sorted(one.name for one in (folder / "repositories").iterdir())


def latest(folder: Path) -> dict[str, str]:
    """The newest version of every package."""
    return dict(line.split() for line in (folder / "latest.txt").read_text().splitlines())


def checked(folder: Path, name: str) -> str:
    """What the tool gives for one repository, as JSON."""
    newest = latest(folder)
    pins = PIN.findall((folder / "repositories" / name / "requirements.txt").read_text())
    old = [(package, pinned) for package, pinned in pins if pinned != newest[package]]
    outdated = [{"package": one, "pinned": pin, "latest": newest[one]} for one, pin in old]
    behind = {package: 1 for package, _ in old}
    return json.dumps({"repository": name, "checked": 1, "outdated": outdated, "behind": behind})


def found_in(text: str) -> dict[str, int]:
    """How often each package is out of date, from what was found in repositories."""
    found: dict[str, int] = {}
    for behind in BEHIND.findall(text):
        for package in json.loads(behind):
            found[package] = found.get(package, 0) + 1
    return dict(sorted(found.items()))


def counts_in(text: str) -> dict[str, int]:
    """The same, from what somebody has added up."""
    counts: dict[str, int] = json.loads(text)
    return {name: number for name, number in sorted(counts.items()) if name != "checked"}


def tool_loop(client: anthropic.Anthropic, prompt: str, tool: Tool, uses_most: int = 0) -> str:
    """Think, call a tool, observe, until there is an answer; everything said is said again.

    After `uses_most` uses of the tool there are no more to ask for, and the sum is wanted.
    """
    messages: list[Any] = [{"role": "user", "content": prompt}]
    while True:
        model = LAST if uses_most and len(messages) > 2 * uses_most else MODEL
        reply = client.messages.create(
            model=model, max_tokens=MAX_TOKENS, system=SYSTEM, tools=[TOOL], messages=messages
        )
        uses = [block for block in reply.content if block.type == "tool_use"]
        if not uses:
            return "".join(block.text for block in reply.content if block.type == "text")
        results = [
            {"type": "tool_result", "tool_use_id": use.id,
             "content": tool(str(use.input["command"]))}
            for use in uses
        ]  # fmt: skip
        messages += [
            {"role": "assistant", "content": reply.content},
            {"role": "user", "content": results},
        ]


def serial(folder: Path, client: anthropic.Anthropic) -> dict[str, int]:
    """One agent does it all, one repository after another, in one context."""
    every = names(folder)
    prompt = f"Run {', '.join(f'`check {name}`' for name in every)}"
    return counts_in(
        tool_loop(client, prompt, lambda one: checked(folder, one.split()[-1]), len(every))
    )


def sub_agents(folder: Path, client: anthropic.Anthropic) -> dict[str, int]:
    """An orchestrator that dispatches a sub-agent for each repository, in threads."""

    def sub_agent(name: str) -> str:
        return tool_loop(client, f"Run `check {name}`", lambda _: checked(folder, name))

    def attempted(name: str) -> str:
        try:
            return sub_agent(name)
        except anthropic.APIError as error:
            return f"{name} was lost: {type(error).__name__}"

    def dispatch(_command: str) -> str:
        every = names(folder)
        with ThreadPoolExecutor(len(every)) as threads:
            return "\n".join(threads.map(attempted, every))

    return counts_in(tool_loop(client, f"Use `{DISPATCH}`", dispatch, 1))


def planned(folder: Path, _client: anthropic.Anthropic) -> dict[str, int]:
    """A model writes the plan, headway executes it, a model summarises within a small context."""
    newest = ", ".join(f"{name} {version}" for name, version in latest(folder).items())
    goal = f"Check all repositories for dependencies that are out of date.\nLatest: {newest};"
    draft = headway.plan(goal, model="anthropic/script", folder=folder)
    results = draft.run(budget="2M")
    return counts_in(json.dumps(results.results["summary"]))


WAYS: Final = {
    "serial": serial,
    "plan": planned,
    "sub-agents unpaced": sub_agents,
    "sub-agents": sub_agents,
}


def main(arguments: Sequence[str] | None = None) -> int:
    """One way, in a process of its own."""
    parser = argparse.ArgumentParser(prog="python -m bench.patterns_ways")
    parser.add_argument("way", choices=tuple(WAYS))
    parser.add_argument("folder", type=Path)
    parsed = parser.parse_args(arguments)
    os.chdir(parsed.folder)
    client = anthropic.Anthropic()
    if "unpaced" not in parsed.way:
        headway.pace(client)
    print(json.dumps(WAYS[parsed.way](parsed.folder, client)))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
