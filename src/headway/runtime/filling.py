"""One task of a plan with its values filled in: texts, environment, results that it is given.

Law: values never meet a shell as text. A command gets them as environment variables and files.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from json import JSONDecodeError
from typing import Final

from headway.core.plan.expand import GroupPlan, Member
from headway.core.plan.spec import Prompt, Value, frozen, plain, text_of
from headway.core.plan.template import Broken, Template, parse_template
from headway.errors import InternalError, UsageError
from headway.runtime.share import Share
from headway.runtime.work import AGENT_VARIABLE, Attempt, Needed

VALUE_BYTES_MAX: Final = 100_000
"""The longest value that is given as an environment variable: systems refuse 128 KiB."""


@dataclass(frozen=True, slots=True)
class Filling:
    """What one attempt of a task is about."""

    group: GroupPlan
    member: Member
    attempt: Attempt
    folder: str
    """Where values are put that a command reads from files."""
    share: Share | None = None
    """What the attempt has of the shared state, if anything."""
    told: Mapping[str, str] = field(default_factory=dict)
    """What leads the command's calls to the gateway; no variable of the plan changes it."""

    def text(self, source: str) -> str:
        """A template of the plan with everything filled in."""
        state = None if self.share is None else self.share.text
        return filled(self.group, source, self.member, self._result, state)

    def variables(self) -> dict[str, str]:
        """The plan's and the task's own variables, as texts."""
        return {name: self._variable(value) for name, value in self.group.vars.items()}

    def environment(self, run: str) -> dict[str, str]:
        """What a command is told."""
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
        """A value in a file of its own: its path."""
        folder = os.path.join(self.folder, "values")
        os.makedirs(folder, mode=0o700, exist_ok=True)
        path = os.path.join(folder, f"{self.attempt.key.hex()}.{name}")
        with open(path, "w", encoding="utf-8", newline="") as file:
            file.write(value)
        return path

    def _variable(self, value: Template | Value) -> str:
        if isinstance(value, Template):
            return self.group.fill(value, self.member, self._result)
        return text_of(value)

    def _result(self, task: str) -> str:
        """The result of a task as text; of a group, as a JSON array."""
        results = self.attempt.needed(task)
        is_one = len(results) == 1 and (
            "[" not in results[0].name or results[0].member == self.attempt.member
        )
        if is_one:
            return text_in(results[0].body)
        return json.dumps([value_in(one.body) for one in results], ensure_ascii=False)


def filled(
    group: GroupPlan,
    text: str,
    member: Member,
    results: Callable[[str], str] | None = None,
    state: Callable[[str], str] | None = None,
) -> str:
    """A template of a plan that was checked."""
    template = parse_template(text)
    if isinstance(template, Broken):
        raise InternalError(f"a template was not checked: {template.reason}")
    return group.fill(template, member, results, state)


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
            return plain(frozen(value)) if "\\u" in text else value
        except (JSONDecodeError, RecursionError):
            pass
    return text.removesuffix("\n")
