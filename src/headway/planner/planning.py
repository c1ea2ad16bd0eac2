"""Asks a model for a plan until our checks accept one, at most so often, within a budget.

Laws:
- What a model writes is text until every check has accepted it; nothing in it is executed,
  imported or written by planning.
- A refused plan goes back to the same conversation with our own errors: code, line, what to do.
- After `REPAIRS` repairs it is refused, with the reasons and what was given last.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from math import inf
from pathlib import Path
from typing import Final, TypedDict, Unpack

from headway.api.how import must_be_known, wait_for
from headway.api.planfiles import budget_in, must_go_on
from headway.core.digest import digest
from headway.core.engine.engine import Rules
from headway.core.engine.strategy import parse
from headway.core.plan.foreign import Allowance, written_budget
from headway.core.plan.graph import Graph, Group
from headway.core.plan.spec import Budget
from headway.core.values import Fault
from headway.errors import (
    BadValueError,
    InternalError,
    NoPlanError,
    PlanError,
    PlanTooLargeError,
    UsageError,
)
from headway.planfile import Loaded
from headway.planner.draft import Draft, examined, plan_in
from headway.planner.project import Listing, listed
from headway.planner.request import goal_text, system_text
from headway.runtime.agents.endpoint import must_be_ready
from headway.runtime.agents.prompt import (
    PromptAgent,
    PromptCall,
    Settings,
    must_have_ceilings,
)
from headway.runtime.configuration import foreign_allowance
from headway.runtime.launch import Launch, Launched, launch
from headway.runtime.work import Attempt, Needed, Result

REPAIRS: Final = 3
PLAN_TOKENS_MAX: Final = 8192
"""The longest plan that is asked for: about 30,000 characters."""

PLANNING_TOKENS_MAX: Final = 500_000
"""What planning may take where the user gives no budget: four calls, counted at their ceilings."""

GOAL_CHARS_MAX: Final = 20_000
PLAN_CHARS_MAX: Final = 200_000


@dataclass(frozen=True, slots=True)
class Goal:
    """What is wanted, and what may be used for it."""

    text: str
    model: str
    """Who writes the plan, and whom its prompts ask."""
    folder: Path = Path()
    files: Listing = Listing()
    models: tuple[str, ...] = ()
    """Others that its prompts may ask."""
    budget: Budget | None = None
    """For the planning and the run together."""
    allowance: Allowance = Allowance()
    environment: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))

    @property
    def system(self) -> str:
        """What the model is told before the goal."""
        return system_text(self.allowance)

    @property
    def request(self) -> str:
        """The goal as the model is told it."""
        return goal_text(self.text, self.files, (self.model, *self.models))


class PlanningHow(TypedDict, total=False):
    """Options of planning."""

    model: str
    """Who writes the plan, and whom its prompts ask: `anthropic/claude-sonnet-4`. Needed."""
    models: Sequence[str]
    """Others that its prompts may ask."""
    files: str | Sequence[str]
    """Patterns: tell the model of these files only."""
    folder: str | os.PathLike[str]
    """Of the project; default: here."""
    budget: str | None
    """The most for the planning and the run together: '$2', or tokens: '5M'."""


def plan(goal: str, **how: Unpack[PlanningHow]) -> Draft:
    """A plan for a goal, written by a model and checked; NoPlanError if there is none.

    draft = headway.plan("Compare these databases: ...", model="anthropic/claude-sonnet-4")
    print(draft.text)
    results = draft.run(budget="$2")
    """
    return wait_for(plan_async(goal, **how), "headway.plan_async")


async def plan_async(goal: str, **how: Unpack[PlanningHow]) -> Draft:
    """`plan`, for code that runs in an event loop."""
    must_be_known(how, PlanningHow)
    return await drafted(goal_of(goal, how, dict(os.environ)))


def goal_of(goal: str, how: PlanningHow, environment: Mapping[str, str]) -> Goal:
    """A goal with all that is known of the project and of what the user allows."""
    if not goal.strip() or len(goal) > GOAL_CHARS_MAX:
        raise BadValueError(f"a goal is a text of up to {GOAL_CHARS_MAX:,} characters")
    model = how.get("model", "")
    if not model:
        hint = "name one: model='openai/gpt-5-mini', or --model openai/gpt-5-mini"
        raise UsageError("there is no model to ask for a plan", hint=hint)
    folder, files = Path(how.get("folder", "")), how.get("files", ())
    models = tuple(dict.fromkeys(how.get("models", ())))
    budget = how.get("budget")
    most = None if budget is None else budget_in(budget)
    allowance = replace(
        foreign_allowance(environment), models=frozenset((model, *models)), budget=most
    )
    patterns = (files,) if isinstance(files, str) else tuple(files)
    return Goal(goal, model, folder, listed(folder, patterns), models, most, allowance, environment)


async def drafted(
    goal: Goal,
    settings: Settings | None = None,
    tell: Callable[[str], None] | None = None,
    waits_until_s: float = inf,
) -> Draft:
    """Ask until there is a plan. Raises `NoPlanError`, and what a run raises that cannot go on.

    `settings` say how models are reached, `waits_until_s` how long an empty usage window is waited
    for, by the wall clock; `tell` hears in a line what goes on.
    """
    must_be_ready((goal.model,), goal.environment)
    is_priced = goal.budget is not None and goal.budget.microusd is not None
    if is_priced:
        must_have_ceilings((goal.model,), goal.environment)
    examination = _Examination(goal, tell or (lambda _: None))
    settings = settings or Settings("plan", goal.environment)
    async with PromptAgent(replace(settings, must_be_priced=is_priced)) as agent:
        work = _Planning(goal, agent, examination)
        done = await launch(
            Launch(
                Graph((Group("plan", 1),)), (work,), Rules(parse("fixed:1"), 3, is_patient=True),
                goal.budget or Budget(tokens=PLANNING_TOKENS_MAX), waits_until_s=waits_until_s,
            )
        )  # fmt: skip
    if work.result is None or examination.accepted is None:
        raise _failed(done, examination)
    text, loaded = examination.accepted
    return Draft(text, loaded, work.result, _left(goal.budget, work.result))


@dataclass(slots=True)
class _Examination:
    """Looks at replies and keeps what is to be known of the last one."""

    goal: Goal
    tell: Callable[[str], None]
    accepted: tuple[str, Loaded] | None = None
    text: str = ""
    error: PlanError | None = None
    replies: int = 0

    async def examine(self, reply: str) -> str | None:
        """What is wrong with the plan in a reply, in the words of our errors; or nothing."""
        goal = self.goal
        self.replies += 1
        # What is longer than any plan is not even looked through.
        self.text = plan_in(reply) if len(reply) <= PLAN_CHARS_MAX else reply
        try:
            if len(self.text) > PLAN_CHARS_MAX:
                raise PlanTooLargeError(f"the plan has more than {PLAN_CHARS_MAX:,} characters")
            self.accepted = examined(
                self.text, goal.folder, goal.allowance, {"model": goal.model, **_budget(goal)}
            )
        except PlanError as error:
            self.error = error
            more = f", and {len(error.others)} more" if error.others else ""
            self.tell(f"refused: {error.code}: {error.message}{more}")
            return error.render()
        return None

    def is_stale(self, fault: Fault) -> bool:
        """Whether what ended it was not said of the last plan: it was cut, or cost too much."""
        return self.error is None or not self.error.render().startswith(fault.detail)


class _Planning:
    """The one task of planning."""

    name = "plan"
    is_local = False
    is_idle_until_sent = True
    publishes = False
    timeout_s: float | None = None

    def __init__(self, goal: Goal, agent: PromptAgent, examination: _Examination) -> None:
        self.result: Result | None = None
        self._agent = agent
        self._call = PromptCall(
            goal.request, goal.model, PLAN_TOKENS_MAX, goal.system, verify=examination.examine,
            repairs=REPAIRS,
        )  # fmt: skip

    def __repr__(self) -> str:
        return f"<_Planning by {self._call.model}>"

    def label(self, member: int) -> str:
        del member
        return self.name

    def key(self, member: int) -> bytes:
        del member
        return digest(f"{self._call.system}\n{self._call.prompt}".encode("utf-8", "replace"))

    def count(self, needed: Callable[[str], list[Needed]]) -> int:
        del needed
        raise InternalError("planning is one task")

    def publish(self, member: int, body: bytes) -> None:
        del member, body
        raise InternalError("a plan is written when it was accepted")

    async def perform(self, attempt: Attempt) -> Result:
        self.result = await self._agent.perform(self._call, attempt)
        return self.result

    def statistics(self) -> int:
        """How many tasks it is."""
        return 1


def _budget(goal: Goal) -> dict[str, str]:
    """The user's budget as a plan says it."""
    budget = goal.budget
    if budget is None:
        return {}
    return {"budget": written_budget(budget)}


def _left(budget: Budget | None, took: Result) -> Budget | None:
    """What is left when planning is paid; at least the least that can be said."""
    if budget is None:
        return None
    if budget.microusd is not None:
        return Budget(max(1, budget.microusd - took.spend_microusd))
    tokens = round(took.input_tokens + took.output_tokens) + took.extra_tokens
    return Budget(tokens=max(1, (budget.tokens or 0) - tokens))


def _failed(done: Launched, examination: _Examination) -> PlanError:
    """Why there is no plan; what is nobody's plan's fault is raised as what it is."""
    fault = next(iter(done.driver.failures.values()), Fault("request"))
    if fault.kind != "unfit":
        must_go_on(done.outcome, f"{fault.kind}: {fault.detail}")
    count = examination.replies
    tries = "one try" if count == 1 else f"{count} tries"
    error = NoPlanError(
        f"the model gave no plan that can be used, in {tries}",
        detail=None if examination.error and not examination.is_stale(fault) else fault.detail,
        hint="say the goal more simply, or write the plan yourself: docs/plan.md",
    )
    error.draft = examination.text
    if examination.error is not None:
        # Beside each other: the first would bring the others along once more.
        first, others = copy(examination.error), examination.error.others
        first.others = ()
        error.others = (first, *others)
    return error
