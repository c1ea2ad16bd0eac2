"""The MCP tools as agents see them: purpose, arguments, cost, result."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, Literal

from msgspec import Struct

from headway.errors import BadValueError, did_you_mean
from headway.mcp.service import (
    BYTES,
    BYTES_MAX,
    BYTES_MIN,
    LIMIT,
    LIMIT_MAX,
    NEEDS_BUDGET,
    Service,
    Told,
)

Takes = Literal["string", "integer", "boolean"]
Given = Mapping[str, object]

INSTRUCTIONS: Final = """\
Headway runs many model calls in parallel, within the account's limits and a budget. Use it when \
one piece of work splits into many independent ones: a call for each record, document or view, \
then one that brings them together. You write the plan (YAML), headway executes it in a process of \
its own: check_plan (free), submit_plan with a budget, run_status at times, run_results. Do not \
loop over items yourself. For up to about three pieces, or when each step depends on the last, \
just do the work: a plan would only add calls."""

PLAN: Final = """\
A plan in YAML, for example:
headway: 1
model: anthropic/claude-haiku-4-5
tasks:
  judge:
    each: {lines: reviews.txt}   # or a list, a pattern of files (their paths), or another task
    prompt: "Is this review positive? Answer in one word: {{ item }}"
    max_tokens: 50
  verdict:
    reduce: judge                # gets all results of `judge`
    context: 100k                # as a tree of calls, if they do not fit into one
    prompt: Summarize the answers."""

PLAN_CHARS_MAX: Final = 1_000_000
"""A hundred tasks, with all that their prompts say; more items belong into a file of lines."""

TEXT_CHARS_MAX: Final = 1_000
"""Of a path or a name."""


class Argument(Struct, frozen=True):
    """One argument of a tool."""

    name: str
    takes: Takes
    about: str
    is_needed: bool = False
    least: int = 0
    most: int = 0
    """Of an integer; of text, its characters."""

    def schema(self) -> dict[str, object]:
        """As JSON Schema."""
        shape: dict[str, object] = {"type": self.takes, "description": self.about}
        if self.takes == "integer":
            return {**shape, "minimum": self.least, "maximum": self.most}
        return {**shape, "maxLength": self._chars_max} if self.takes == "string" else shape

    def checked(self, value: object) -> object:
        """The value, if it is one that this can have."""
        if self.takes == "integer":
            is_fit = type(value) is int and self.least <= value <= self.most
            wanted = f"a whole number from {self.least} to {self.most:,}"
        elif self.takes == "boolean":
            is_fit, wanted = isinstance(value, bool), "true or false"
        else:
            is_fit = isinstance(value, str) and len(value) <= self._chars_max
            wanted = f"text of at most {self._chars_max:,} characters"
        if not is_fit:
            hint = NEEDS_BUDGET if self.name == "budget" else f"pass {wanted}"
            raise BadValueError(f"`{self.name}` has to be {wanted}", hint=hint)
        return value

    @property
    def _chars_max(self) -> int:
        return self.most or TEXT_CHARS_MAX


class McpTool(Struct, frozen=True):
    """One tool."""

    name: str
    title: str
    about: str
    arguments: tuple[Argument, ...]
    gives: str
    """The properties of its result with their types."""
    is_read_only: bool = True
    is_destructive: bool = False
    is_idempotent: bool = True
    is_open: bool = False
    """It reaches beyond this machine."""

    def input_schema(self) -> dict[str, object]:
        return {
            "type": "object",
            "properties": {one.name: one.schema() for one in self.arguments},
            "required": [one.name for one in self.arguments if one.is_needed],
            "additionalProperties": False,
        }

    def output_schema(self) -> dict[str, object]:
        """Additive: what is not listed here may come later."""
        pairs = (one.split(": ") for one in self.gives.split(", "))
        return {"type": "object", "properties": {name: _type(words) for name, words in pairs}}

    def call(self, service: Service, given: Given) -> Told:
        """Check the arguments and call the method of the same name; HeadwayError if that fails."""
        known = {one.name: one for one in self.arguments}
        for name in given:
            if name not in known:
                message = f"{self.name} has no argument `{name[:40]}`"
                raise BadValueError(message, hint=did_you_mean(name, known))
        for one in self.arguments:
            # What is empty is missing as well: some clients send every argument.
            if one.is_needed and given.get(one.name) in (None, ""):
                hint = NEEDS_BUDGET if one.name == "budget" else one.about.splitlines()[0]
                raise BadValueError(f"{self.name} needs a `{one.name}`", hint=hint)
        there = {name: value for name, value in given.items() if value is not None}
        method: Callable[..., Told] = getattr(service, self.name)
        return method(**{name: known[name].checked(value) for name, value in there.items()})


def _type(words: str) -> dict[str, object]:
    """`[string]`, `number or null` as JSON Schema."""
    if words.startswith("["):
        return {"type": "array", "items": {"type": words.strip("[]")}}
    kinds = words.split(" or ")
    return {"type": kinds if len(kinds) > 1 else words}


_PLAN: Final = Argument("plan", "string", PLAN, is_needed=True, most=PLAN_CHARS_MAX)
_FOLDER: Final = Argument(
    "folder", "string",
    "Where the plan's paths begin: a folder inside the one that this server was started in, which "
    "is the default.",
)  # fmt: skip
_MODEL: Final = Argument("model", "string", "For prompts that name none: provider/model.")
_ID: Final = Argument("run", "string", "What submit_plan returned, or `last`.", is_needed=True)

TOOLS: Final = (
    McpTool(
        "check_plan", "Check a plan",
        "Check a plan before it is submitted: every error with its line and a fix, what would run "
        "in parallel, about how many tokens and dollars it takes. Free and quick; reads the files "
        "that the plan names and executes nothing. Such plans may have `prompt`, `prompt_file` "
        "and `reduce`; `run`, `verify` and other code only if the user's configuration allows it.",
        (_PLAN, _FOLDER, _MODEL),
        "accepted: boolean, refused: [object], tasks: integer, remarks: [object], "
        "answers: [string], expected_usd: number, ceiling_usd: number",
    ),
    McpTool(
        "submit_plan", "Run a plan",
        "Start a plan and return its run's id at once. SPENDS MONEY: up to the budget, never more. "
        "The run goes on by itself, also when you or this server end; do not wait for it here. "
        "Results go to the run, and to new text files if tasks have `output`.",
        (
            _PLAN,
            Argument("budget", "string", f"Required: {NEEDS_BUDGET}.", is_needed=True),
            _FOLDER, _MODEL, Argument("name", "string", "What the run is called."),
        ),
        "run: string, tasks: integer, budget: object, next: string",
        is_read_only=False, is_idempotent=False, is_open=True,
    ),
    McpTool(
        "run_status", "How far is a run",
        "How far a run is: tasks by state, spend against the budget, time to the end beside the "
        "best that the account's limits allow (null: not known yet), what it waits for, what "
        "failed. Free. Wait `ask_again_in_s` before the next question.",
        (_ID,),
        "run: string, state: string, is_over: boolean, tasks: object, spent: object, "
        "budget: object or null, eta_s: number or null, bound_s: number or null, "
        "waits_for: string, ask_again_in_s: integer or null",
    ),
    McpTool(
        "run_results", "Read results",
        "What tasks gave, in declared order, in pages that fit your context: `next` holds the "
        "arguments for the following page, null after the last; `left_out` says what is not here. "
        "Free. If the plan has a reduction, ask for that `task` alone: the others are in it.",
        (
            _ID,
            Argument("task", "string", "Only this task, or all of this group."),
            Argument("offset", "integer", "Results to leave out at the beginning.",
                     most=10_000_000),
            Argument("limit", "integer", f"Results at most: {LIMIT} if not said.", least=1,
                     most=LIMIT_MAX),
            Argument("max_bytes", "integer", f"Of results on this page: {BYTES:,} if not said.",
                     least=BYTES_MIN, most=BYTES_MAX),
            Argument("from_byte", "integer", "Where to go on within the first result, if it was "
                     "cut.", most=1_000_000_000),
        ),
        "run: string, state: string, results: [object], left_out: string, next: object or null",
    ),
    McpTool(
        "cancel_run", "Stop a run",
        "Stop a run: nothing more starts, and it ends when the calls in flight have. With `now` "
        "these are cut off too, and what they cost is lost. What is finished is kept, and "
        "`headway resume` can go on.",
        (_ID, Argument("now", "boolean", "Also cut off what has started.")),
        "run: string, told: boolean, in_words: string",
        is_read_only=False, is_destructive=True,
    ),
    McpTool(
        "quota", "What the accounts allow",
        "The user's accounts: each limit, how much of it is used now, by whom, and what is left of "
        "the monthly budget. Free. Ask before a large plan, or if a run waits.",
        (),
        "month: string, accounts: [object], budgets: [object]",
    ),
)  # fmt: skip
