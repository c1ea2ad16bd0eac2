"""A plan as a situation to give advice on: how many agents, how large, and what ties them.

What a plan says of sizes are its prompts and items; results of other tasks that a prompt is given
are not there yet and count as long as is usual.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from headway.core.foresight.situation import Shape, Situation
from headway.core.plan.boundary import Boundary
from headway.core.plan.check import BYTES_PER_TOKEN, CheckReport
from headway.core.plan.expand import Expanded, GroupPlan, prompt_texts
from headway.core.plan.spec import Prompt

RESULT_TOKENS: Final = 1_000.0
"""A result that a prompt is given, where nobody has seen one."""

ANSWER_TOKENS: Final = 500.0
"""An answer, where nobody has seen one."""

UNKNOWN_MEMBERS: Final = 10
"""Members of a group that are found at run time."""

COMMON_MOST: Final = 0.95


@dataclass(frozen=True, slots=True)
class Asked:
    """One group of prompts: how many, and the tokens of each."""

    members: int
    input_tokens: float
    common_tokens: float
    output_tokens: float


def situation_of(expanded: Expanded, report: CheckReport, asked: Situation) -> Situation:
    """The plan's own numbers in place of those that were asked about; None if it asks nobody."""
    groups = [group for group in expanded.groups if isinstance(group.task.work, Prompt)]
    sizes = [_asked(expanded, report, group) for group in groups]
    agents = sum(one.members for one in sizes)
    if not agents:
        return replace(asked, agents=0)
    tokens_in = sum(one.members * one.input_tokens for one in sizes) / agents
    common = sum(one.members * one.common_tokens for one in sizes) / agents
    output = sum(one.members * one.output_tokens for one in sizes) / agents
    return replace(
        asked, agents=agents, tokens_each=tokens_in + output, output_each=output,
        common=min(COMMON_MOST, common / (tokens_in + output)),
        shape=_shape(groups), coupled=_coupled(report.boundary, agents),
    )  # fmt: skip


def _asked(expanded: Expanded, report: CheckReport, group: GroupPlan) -> Asked:
    members = UNKNOWN_MEMBERS if group.count is None else group.count
    told = next(one for one in report.groups if one.name == group.name)
    own = told.input_tokens / group.count if group.count else 0.0
    # Texts in several files are one for each member; what is common to all is no more than one.
    texts = [len(text.encode()) for text in prompt_texts(expanded, group)]
    template = min(texts, default=0) / BYTES_PER_TOKEN / max(1, len(texts))
    given = sum(
        RESULT_TOKENS for edge in report.boundary.couplings
        if edge.after == group.name and edge.by == "result" and not edge.memberwise
    )  # fmt: skip
    work = group.task.work
    longest = work.max_tokens if isinstance(work, Prompt) else None
    answer = min(ANSWER_TOKENS, longest or ANSWER_TOKENS)
    return Asked(members, max(own, template) + given, template + given, answer)


def _shape(groups: list[GroupPlan]) -> Shape:
    """Views, if most of the agents are the values of a matrix rather than items."""
    views = sum(g.count or 0 for g in groups if g.task.matrix and g.task.each is None)
    return "views" if 2 * views > sum(g.count or 0 for g in groups) else "slices"


def _coupled(found: Boundary, agents: int) -> float:
    """None of them, if all can be active at once; all, if only one can."""
    width = min(found.width, agents)
    return 1.0 - (width - 1) / (agents - 1) if agents > 1 else 0.0
