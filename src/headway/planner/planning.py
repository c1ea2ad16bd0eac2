"""Has a model write a plan until every check accepts it, within a budget.

Laws:
- What a model writes is text until every check has accepted it; nothing in it is executed,
  imported or written by planning.
- A refused plan goes back to the same conversation with our own errors: code, line, what to do.
- After `REPAIRS` repairs it is refused, with the reasons and what was given last.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import aclosing
from copy import copy
from json import dumps
from pathlib import Path
from typing import Final, TypedDict, Unpack

from msgspec import Struct, field
from msgspec.structs import replace

from headway.agents.prompt import (
    PromptAgent,
    PromptCall,
    PromptSettings,
    endpoint_of,
    must_be_ready,
    must_have_ceilings,
)
from headway.api.functions import must_be_known, wait_for
from headway.api.plan_files import PlanResults, budget_in, must_go_on, performed
from headway.base.digest import digest
from headway.base.values import Budget, Fault
from headway.config import foreign_allowance
from headway.engine.state import Rules
from headway.engine.strategy import parse
from headway.errors import (
    BadValueError,
    ForeignPlanError,
    NoPlanError,
    Place,
    PlanError,
    PlanTooLargeError,
    UsageError,
)
from headway.plans.document import UnusableError
from headway.plans.grammar import KEYS
from headway.plans.graph import Graph, TaskGroup
from headway.plans.load import Folder, Loaded, load_foreign
from headway.plans.untrusted import (
    AGAIN_MAX,
    ANSWER_TOKENS_MAX,
    CONTEXT_TOKENS_MAX,
    ENDINGS,
    MEMBERS_MAX,
    READER,
    REDUCERS,
    TASKS_MAX,
    PlanPermissions,
    unreadable,
    written_budget,
)
from headway.report.forecast import PriceGuess
from headway.run import filling as newfile
from headway.run.driver import Driver, Launch
from headway.run.launch import launch
from headway.run.plan_run import PlanSource, price_guess
from headway.work import Attempt, Result, Work

# What a model is told in order to write a plan: the grammar, what it may use, the project, a goal.

EXAMPLE: Final = """\
headway: 1
name: compare-databases
tasks:
  study:
    each: [PostgreSQL, SQLite, DuckDB]
    prompt: "How does {{ item }} handle many writers at once? Facts and limits, in 200 words."
    max_tokens: 600
  compare:
    reduce: study
    context: 32k
    prompt: Compare them for a small web shop. Begin with a recommendation.
    output: out/comparison.md
"""
"""As small as it can be: many calls side by side, and one that puts them together."""

SINGLE: Final = """\
headway: 1
name: haiku
tasks:
  haiku:
    prompt: Write a haiku about queues.
"""

_INTRODUCTION: Final = """\
You write plans for headway, which runs many model calls at once on one account. A plan is YAML:
named tasks in declared order, and what each needs. Answer with one plan in a ```yaml block and
nothing else. It is checked before it runs; if something is wrong you are told what and where, and
give the whole plan again.

- A task does exactly one thing. Tasks that do not need each other run at the same time.
- Use `each` or `matrix` for many tasks of one kind, and `reduce` to bring their results together.
- A prompt sees its own text and nothing else: put everything into it that its model must know.
  Values are written {{ item }}, {{ index }}, {{ matrix.NAME }}, {{ vars.NAME }}, and of a task in
  `needs` {{ tasks.NAME.output }}. Two braces as text are {{ "{{" }}.
- When one call is enough, the plan is one task: do not split what is small or hangs together.
"""

_FILES: Final = (
    "- Prompts cannot open files. What files hold reaches models by a task such as `read: {each: "
    f"'docs/*.md', python: {READER}}}` and another with `each: read` whose prompt has "
    "{{ tasks.read.output }}; as the whole text of a prompt (`prompt_file`); line by line "
    "(`each: {lines: FILE}`)"
)


def system_text(allowance: PlanPermissions) -> str:
    """What holds for every goal."""
    left_out = ["permissions"]
    left_out += [] if "run" in allowance.works else ["run", "verify"]
    left_out += [] if allowance.agents else ["agent"]
    lines = [
        f"- `{key.name}` (of a {' or a '.join(key.holders)}): {key.about}. "
        f"`{key.name}: {key.example}`"
        for key in KEYS
        if key.name not in left_out
    ]
    parts = [
        _INTRODUCTION,
        "\n".join(("Every key:", *lines)),
        "What else holds:\n" + "\n".join(_rules(allowance)),
        f"Example:\n```yaml\n{EXAMPLE}```",
        f"One small thing is one task:\n```yaml\n{SINGLE}```",
    ]
    return "\n\n".join(parts)


def goal_text(goal: str, files: tuple[str, ...], more: int, models: tuple[str, ...]) -> str:
    """One goal."""
    parts = [f"The goal, as the user wrote it:\n<goal>\n{goal}\n</goal>"]
    if len(models) > 1:
        parts.append(f"Models that may be named under `model`: {', '.join(models)}")
    if files:
        # As JSON, so that no name can look like anything but a name.
        names = "\n".join(dumps(name, ensure_ascii=False) for name in files)
        others = f"\nand {more:,} more" if more else ""
        parts.append(f"Files of the project:\n<files>\n{names}{others}\n</files>")
    return "\n\n".join([*parts, "Write the plan."])


def _rules(allowance: PlanPermissions) -> Iterator[str]:
    if "run" not in allowance.works:
        yield "- Nothing is executed: no commands, no `verify`, no effects."
    if "python" not in allowance.works:
        yield f"- `python` is only {', '.join(sorted(REDUCERS))}, beside `reduce`, and {READER}."
    if allowance.agents:
        # A plan writes `tools:files` of the configuration as `tools(files)`.
        names = [re.sub(r":(.+)", r"(\1)", name) for name in sorted(allowance.agents)]
        yield f"- `agent` is one of: {', '.join(names)}."
        yield f"{_FILES}, or by an agent."
        yield "- A task with `tools(...)` declares new files in `writes`, such as out/*.md, or []."
    else:
        yield f"{_FILES}."
    yield (
        f"- `output` names a new file that ends in {', '.join(ENDINGS)}. Paths are relative, stay "
        "within the project, and are not hidden."
    )
    yield (
        f"- At most {TASKS_MAX} declared tasks, {MEMBERS_MAX:,} with all members, "
        f"{AGAIN_MAX} retries, `context` up to {CONTEXT_TOKENS_MAX:,}, `max_tokens` up to "
        f"{ANSWER_TOKENS_MAX:,}."
    )
    if len(allowance.models) <= 1:
        yield "- Leave `model` out: the user's is used."
    if allowance.budget is None:
        yield "- Leave `budget` out."


# The files of a project by name, as far as a planner is told of them: no contents.

NAMES_MAX: Final = 400
NAMES_CHARS_MAX: Final = 20_000
"""What a planner reads of them: about 6,000 tokens."""

NAME_CHARS_MAX: Final = 200
VISITS_MAX: Final = 20_000
"""Files that are looked at where there is no git."""

GIT_S_MAX: Final = 10.0
GIT_BYTES_MAX: Final = 20_000_000
LEFT_OUT: Final = frozenset(("node_modules", "__pycache__", "venv", "dist", "build", "target"))
"""Folders of what programs made; where there is git, it knows better."""

# A monitor is a program that the repository's configuration names; locks are for those who write.
GIT: Final = (
    "git", "--no-optional-locks", "-c", "core.fsmonitor=false", "-c", "core.quotePath=false",
    "ls-files", "-z", "--cached", "--others", "--exclude-standard",
)  # fmt: skip


def listed(folder: Path, patterns: Sequence[str] = ()) -> tuple[tuple[str, ...], int]:
    """Files of a folder that a plan can name and that match; and how many more there are."""
    found = _matching(folder, patterns) if patterns else _files(folder)
    names = sorted(n for n in set(found) if len(n) <= NAME_CHARS_MAX and not unreadable(n))
    kept: list[str] = []
    chars = 0
    for name in names:
        chars += len(name) + 1
        if len(kept) == NAMES_MAX or chars > NAMES_CHARS_MAX:
            break
        kept.append(name)
    return tuple(kept), len(names) - len(kept)


def _matching(folder: Path, patterns: Sequence[str]) -> Iterator[str]:
    within = Folder(folder)
    for pattern in patterns:
        try:
            yield from within.glob(pattern)
        except UnusableError:
            raise BadValueError(
                f"`{pattern}` matches no file of {folder}", hint="a pattern is like 'src/**/*.py'"
            ) from None


def _files(folder: Path) -> Iterable[str]:
    here = folder.resolve()
    has_git = any((one / ".git").exists() for one in (here, *here.parents))
    found = _by_git(folder) if has_git else None
    return _walked(folder) if found is None else found


def _by_git(folder: Path) -> list[str] | None:
    """What git knows and does not ignore; None if it does not tell."""
    clean = {key: value for key, value in os.environ.items() if not key.startswith("GIT_")}
    try:
        told = subprocess.run(
            GIT, cwd=folder, capture_output=True, check=True, timeout=GIT_S_MAX, env=clean,
            stdin=subprocess.DEVNULL,
        )  # fmt: skip
    except (OSError, subprocess.SubprocessError):
        return None
    names = told.stdout[:GIT_BYTES_MAX].decode("utf-8", "replace").split("\0")
    return [name for name in names if name]


def _walked(folder: Path) -> Iterator[str]:
    visits = 0
    for place, folders, files in os.walk(folder):
        folders[:] = sorted(n for n in folders if not n.startswith(".") and n not in LEFT_OUT)
        inner = os.path.relpath(place, folder)
        for name in sorted(files):
            visits += 1
            if visits > VISITS_MAX:
                return
            yield name if inner == "." else f"{inner}/{name}"


# A plan that a model wrote and that every check has accepted: to look at, to keep, to run.

NAME: Final = "plan.yaml"
_FENCE: Final = re.compile(
    r"^([ \t]*+)(`{3,}+|~{3,}+)[ \t]*+([A-Za-z]*+)[^\n]*+\n(.*?)(?:^\1\2[ \t]*+$|\Z)", re.M | re.S
)
"""A fenced block ends with a line like the one that it begins with: blocks within it are deeper.
Nothing is tried twice, so that a long line of backticks takes no longer than other text."""

_FIRST: Final = re.compile(r"^headway:[ \t]*1[ \t]*\n", re.M)
_PLAIN: Final = re.compile(r"[$A-Za-z0-9][A-Za-z0-9_./-]*")


class Draft(Struct, frozen=True):
    """A plan that a model wrote, checked. Nothing of it has run, and no file is written."""

    text: str
    loaded: Loaded
    took: Result = Result(b"")
    """What it took to write it: calls, tokens, micro-dollars."""
    budget: Budget | None = None
    """What is left of the budget that was given."""

    def __repr__(self) -> str:
        return f"<Draft {self.name!r}, {self.loaded.expanded.count} tasks>"

    @property
    def name(self) -> str:
        """As its runs are called."""
        return self.loaded.expanded.spec.name

    @property
    def is_single(self) -> bool:
        """Whether it is one call and no more: a plan was not needed."""
        groups = self.loaded.expanded.groups
        return len(groups) == 1 and groups[0].count == 1

    def price(self, environment: Mapping[str, str] | None = None) -> PriceGuess:
        """What running it will cost, as far as can be known."""
        return price_guess(self.loaded.expanded, environment or os.environ)

    def save(self, path: str | os.PathLike[str] = NAME, *, force: bool = False) -> Path:
        """Write it into a file, whole or not at all; one that is there only with `force`."""
        place = self.loaded.folder / path
        if place.parent.resolve() != self.loaded.folder.resolve():
            raise BadValueError(
                f"{place} is not in {self.loaded.folder}, where the plan's paths begin",
                hint="plan with `folder=` where it is to be",
            )
        write_new(place, self.text, force)
        return place

    def run(self, *, budget: str | Budget | None = None, name: str = NAME) -> PlanResults:
        """Perform it to its end, durably; TasksFailedError if something failed."""
        return wait_for(self.run_async(budget=budget, name=name), "draft.run_async")

    async def run_async(
        self, *, budget: str | Budget | None = None, name: str = NAME
    ) -> PlanResults:
        """`run`, for code that runs in an event loop."""
        most = budget_in(budget) if isinstance(budget, str) else budget or self.budget
        if most is None:
            raise UsageError(
                "a plan that a model wrote is run within a budget",
                hint="draft.run(budget='$2'), or tokens: '5M'",
            )
        # The path is the file that a resume would look for.
        path = str(self.loaded.folder.resolve() / name)
        source = PlanSource(path, self.loaded.text, budget=most, is_foreign=True)
        return (await performed(self.loaded, source)).checked()


def plan_in(reply: str) -> str:
    """The plan in a model's reply: in a fenced block, or all of it."""
    reply = reply.removeprefix("\ufeff")
    blocks = [(found[3].lower(), found[4]) for found in _FENCE.finditer(reply)]
    for language, text in blocks:
        if language in ("yaml", "yml", "json") or "headway" in text:
            return text
    return blocks[0][1] if blocks else reply


def examined(
    text: str, folder: Path, allowance: PlanPermissions, defaults: Mapping[str, str]
) -> tuple[str, Loaded]:
    """A plan's text with what it left to the user, and loaded. Raises `PlanError`."""
    name = "plan.json" if text.lstrip().startswith("{") else NAME
    loaded = load_foreign(text, folder, allowance, name)
    spec = loaded.expanded.spec
    if spec.budget is not None and allowance.budget is None:
        raise ForeignPlanError(
            "`budget` says what may be spent, which is for the user to say",
            where=f"{name}:{spec.body.line}", hint="leave `budget` out",
        )  # fmt: skip
    missing = {"model": spec.model, "budget": spec.budget}
    for key, value in defaults.items():
        if not missing[key]:
            text = _with(text, spec.body, key, value)
    return text, load_foreign(text, folder, allowance, name)


def _with(text: str, body: Place, key: str, value: str) -> str:
    """A plan with one more key, below its first line where that is the version."""
    if _PLAIN.fullmatch(value) is None:
        value = dumps(value)
    if first := _FIRST.search(text):
        return f"{text[: first.end()]}{key}: {value}\n{text[first.end() :]}"
    lines = text.splitlines(keepends=True)[: body.line - 1]
    at, indent = sum(map(len, lines)) + body.column - 1, " " * (body.column - 1)
    if text[at] == "{":
        return f"{text[: at + 1]}{dumps(key)}: {dumps(value)}, {text[at + 1 :]}"
    return f"{text[:at]}{key}: {value}\n{indent}{text[at:]}"


def write_new(path: Path, text: str, force: bool) -> None:
    """Put a text where nothing is, in one step; what is there stays unless it is forced."""
    try:
        # A model may write halves of characters, which no file can hold.
        newfile.write_new(str(path), text.encode(errors="replace"), force)
    except FileExistsError:
        raise UsageError(f"{path} is there already", hint="--force, or another name") from None
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror}") from error


REPAIRS: Final = 3
PLAN_TOKENS_MAX: Final = 8192
"""The longest plan that is asked for: about 30,000 characters."""

PLANNING_TOKENS_MAX: Final = 500_000
"""What planning may take where the user gives no budget: four calls, counted at their ceilings."""

GOAL_CHARS_MAX: Final = 20_000
PLAN_CHARS_MAX: Final = 200_000


class Goal(Struct, frozen=True):
    """What is wanted, and what may be used for it."""

    text: str
    model: str
    """Who writes the plan, and whom its prompts ask."""
    folder: Path = Path()
    files: tuple[str, ...] = ()
    more_files: int = 0
    """How many are not named."""
    models: tuple[str, ...] = ()
    """Others that its prompts may ask."""
    budget: Budget | None = None
    """For the planning and the run together."""
    allowance: PlanPermissions = PlanPermissions()
    environment: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))

    @property
    def system(self) -> str:
        """What the model is told before the goal."""
        return system_text(self.allowance)

    @property
    def request(self) -> str:
        """The goal as the model is told it."""
        return goal_text(self.text, self.files, self.more_files, (self.model, *self.models))


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
    names, more = listed(folder, patterns)
    return Goal(goal, model, folder, names, more, models, most, allowance, environment)


async def drafted(
    goal: Goal,
    settings: PromptSettings | None = None,
    tell: Callable[[str], None] | None = None,
    waits_until_s: float | None = None,
) -> Draft:
    """Ask until there is a plan. Raises `NoPlanError`, and what a run raises that cannot go on.

    `settings` say how models are reached, `waits_until_s` how long an empty usage window is waited
    for, by the wall clock; `tell` hears in a line what goes on.
    """
    for model in (goal.model, *goal.models):
        endpoint_of(model, goal.environment)
    must_be_ready((goal.model,), goal.environment)
    is_priced = goal.budget is not None and goal.budget.microusd is not None
    if is_priced:
        must_have_ceilings((goal.model,), goal.environment)
    settings = settings or PromptSettings("plan", goal.environment)
    async with aclosing(PromptAgent(replace(settings, must_be_priced=is_priced))) as agent:
        work = _Planning(goal, agent, tell or (lambda _: None))
        done = await launch(
            Launch(
                Graph((TaskGroup("plan", 1),)),
                (work,),
                Rules(parse("fixed:1"), 3, is_patient=True),
                goal.budget or Budget(tokens=PLANNING_TOKENS_MAX),
                waits_until_s=waits_until_s,
            )
        )
    if work.result is None or work.accepted is None:
        raise _failed(done, work)
    text, loaded = work.accepted
    left = None if goal.budget is None else goal.budget.left(work.result.spend)
    return Draft(text, loaded, work.result, left)


class _Planning(Work):
    """The one task of planning: looks at replies and keeps what is to be known of the last one."""

    name = "plan"
    is_idle_until_sent = True

    def __init__(self, goal: Goal, agent: PromptAgent, tell: Callable[[str], None]) -> None:
        self.result: Result | None = None
        self.accepted: tuple[str, Loaded] | None = None
        self.text = ""
        self.error: PlanError | None = None
        self.replies = 0
        self._goal, self._agent, self._tell = goal, agent, tell
        self._call = PromptCall(
            goal.request, goal.model, PLAN_TOKENS_MAX, goal.system, verify=self._examine,
            repairs=REPAIRS,
        )  # fmt: skip

    def key(self, member: int) -> bytes:
        del member
        return digest(f"{self._call.system}\n{self._call.prompt}".encode("utf-8", "replace"))

    async def perform(self, attempt: Attempt) -> Result:
        self.result = await self._agent.perform(self._call, attempt)
        return self.result

    async def _examine(self, reply: str) -> str | None:
        """What is wrong with the plan in a reply, in the words of our errors; or nothing."""
        goal = self._goal
        self.replies += 1
        # What is longer than any plan is not even looked through.
        self.text = plan_in(reply) if len(reply) <= PLAN_CHARS_MAX else reply
        try:
            if len(self.text) > PLAN_CHARS_MAX:
                raise PlanTooLargeError(f"the plan has more than {PLAN_CHARS_MAX:,} characters")
            defaults = {"model": goal.model}
            if goal.budget is not None:
                defaults["budget"] = written_budget(goal.budget)
            self.accepted = examined(self.text, goal.folder, goal.allowance, defaults)
        except PlanError as error:
            self.error = error
            more = f", and {len(error.others)} more" if error.others else ""
            self._tell(f"refused: {error.code}: {error.message}{more}")
            return error.render()
        return None


def _failed(done: Driver, work: _Planning) -> PlanError:
    """Why there is no plan; what is no fault of a plan is raised as what it is."""
    fault = next(iter(done.failures.values()), Fault("request"))
    if fault.kind != "unfit":
        must_go_on(done.outcome, f"{fault.kind}: {fault.detail}")
    tries = "one try" if work.replies == 1 else f"{work.replies} tries"
    # The last plan may not be what ended it: the reply was cut, or cost too much.
    is_told = work.error is not None and work.error.render().startswith(fault.detail)
    error = NoPlanError(
        f"the model gave no plan that can be used, in {tries}",
        detail=None if is_told else fault.detail,
        hint="say the goal more simply, or write the plan yourself: docs/plan.md",
    )
    error.draft = work.text
    if work.error is not None:
        # Beside each other: the first would bring the others along once more.
        first, others = copy(work.error), work.error.others
        first.others = ()
        error.others = (first, *others)
    return error
