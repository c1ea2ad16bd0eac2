"""Prompts as far as they can be written before a run: without the results of other tasks."""

from __future__ import annotations

from collections.abc import Sequence

from headway.core.plan.expand import Expanded, GroupPlan
from headway.core.plan.spec import Prompt
from headway.core.plan.template import Template, parse_template


def prompt_bytes(expanded: Expanded, group: GroupPlan, members: Sequence[int]) -> list[float]:
    """The bytes of some members' prompts, without results of other tasks; 0 where there is none."""
    return [float(len(prompt_of(expanded, group, member)[0].encode())) for member in members]


def prompt_of(expanded: Expanded, group: GroupPlan, number: int) -> tuple[str, frozenset[str]]:
    """A member's prompt without the results of others, and the tasks whose results are in it."""
    work = group.task.work
    if not isinstance(work, Prompt):
        return "", frozenset()
    member, asked = group.known.member(number), set[str]()

    def result(task: str) -> str:
        asked.add(task)
        return ""

    def filled(text: str) -> str:
        template = parse_template(text)
        if not isinstance(template, Template):
            return text
        return group.fill(template, member, result, lambda _: "")

    source = work.text
    if work.file:
        source = expanded.sources.files.get(filled(work.file), "")
    return filled(source), frozenset(asked)
