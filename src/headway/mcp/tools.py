"""The MCP tools as agents see them: purpose, arguments, cost, result."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Annotated, Final

from msgspec import Meta, Struct, ValidationError, convert, defstruct
from msgspec.json import schema_components
from msgspec.structs import asdict

from headway.errors import BadValueError
from headway.mcp.service import (
    BYTES,
    BYTES_MAX,
    BYTES_MIN,
    LIMIT,
    LIMIT_MAX,
    NEEDS_BUDGET,
    Answer,
    Service,
)

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


class McpTool(Struct, frozen=True):
    """One tool."""

    name: str
    title: str
    about: str
    arguments: tuple[tuple[str, object] | tuple[str, object, object], ...]
    """Name, type, and the default of one that may be missing."""
    gives: str
    """The properties of its result with their types."""
    is_read_only: bool = True
    is_destructive: bool = False
    is_idempotent: bool = True
    is_open: bool = False
    """It reaches beyond this machine."""

    @property
    def given(self) -> type[Struct]:
        """The record that its arguments make."""
        return defstruct(self.name, self.arguments, forbid_unknown_fields=True)

    def input_schema(self) -> dict[str, object]:
        _, found = schema_components((self.given,))
        return dict(found[self.name])

    def output_schema(self) -> dict[str, object]:
        """Additive: what is not listed here may come later."""
        pairs = (one.split(": ") for one in self.gives.split(", "))
        return {"type": "object", "properties": {name: _type(words) for name, words in pairs}}

    def call(self, service: Service, given: Given) -> Answer:
        """Check the arguments and call the method of the same name; HeadwayError if that fails."""
        # What is empty is missing as well: some clients send every argument.
        there = {name: value for name, value in given.items() if value not in (None, "")}
        try:
            arguments = convert(there, self.given)
        except ValidationError as fault:
            hint = f"its arguments are {', '.join(one[0] for one in self.arguments)}"
            hint = NEEDS_BUDGET if "budget" in str(fault) else hint
            raise BadValueError(f"{self.name}: {fault}", hint=hint) from None
        method: Callable[..., Answer] = getattr(service, self.name)
        return method(**asdict(arguments))


def _type(words: str) -> dict[str, object]:
    """`[string]`, `number or null` as JSON Schema."""
    if words.startswith("["):
        return {"type": "array", "items": {"type": words.strip("[]")}}
    kinds = words.split(" or ")
    return {"type": kinds if len(kinds) > 1 else words}


def _text(name: str, about: str, most: int = TEXT_CHARS_MAX) -> tuple[str, object, str]:
    return name, Annotated[str, Meta(max_length=most, description=about)], ""


def _number(name: str, about: str, default: int, least: int, most: int) -> tuple[str, object, int]:
    return name, Annotated[int, Meta(ge=least, le=most, description=about)], default


_PLAN: Final = ("plan", _text("", PLAN, PLAN_CHARS_MAX)[1])
_FOLDER: Final = _text(
    "folder",
    "Where the plan's paths begin: a folder inside the one that this server was started in, which "
    "is the default.",
)
_MODEL: Final = _text("model", "For prompts that name none: provider/model.")
_ID: Final = ("run", _text("", "What submit_plan returned, or `last`.")[1])

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
            ("budget", _text("", f"Required: {NEEDS_BUDGET}.")[1]),
            _FOLDER, _MODEL, _text("name", "What the run is called."),
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
        "fair_s: number or null, waits_for: string, ask_again_in_s: integer or null",
    ),
    McpTool(
        "run_results", "Read results",
        "What tasks gave, in declared order, in pages that fit your context: `next` holds the "
        "arguments for the following page, null after the last; `left_out` says what is not here. "
        "Free. If the plan has a reduction, ask for that `task` alone: the others are in it.",
        (
            _ID,
            _text("task", "Only this task, or all of this group."),
            _number("offset", "Results to leave out at the beginning.", 0, 0, 10_000_000),
            _number("limit", f"Results at most: {LIMIT} by default.", LIMIT, 1, LIMIT_MAX),
            _number("max_bytes", f"Of results on this page: {BYTES:,} by default.", BYTES,
                    BYTES_MIN, BYTES_MAX),
            _number("from_byte", "Where to go on within the first result, if it was cut.", 0, 0,
                    1_000_000_000),
        ),
        "run: string, state: string, results: [object], left_out: string, next: object or null",
    ),
    McpTool(
        "cancel_run", "Stop a run",
        "Stop a run: nothing more starts, and it ends when the calls in flight have. With `now` "
        "these are cut off too, and what they cost is lost. What is finished is kept, and "
        "`headway resume` can go on.",
        (_ID, ("now", Annotated[bool, Meta(description="Also cut off what has started.")], False)),
        "run: string, accepted: boolean, in_words: string",
        is_read_only=False, is_destructive=True,
    ),
    McpTool(
        "quota", "What the accounts allow",
        "The user's accounts: each limit, how much of it is used now, by whom, and what is left of "
        "the monthly budget. Free. Ask before a large plan, or if a run waits.",
        (),
        "month: string, accounts: [object], health: [object], budgets: [object]",
    ),
)  # fmt: skip
