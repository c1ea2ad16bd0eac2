"""The keys that a plan can have: one table, from which checks, JSON Schema and manual are made."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import cache
from typing import Final, Literal

from msgspec import Struct

Holder = Literal["plan", "task", "budget", "each", "workspace"]
"""The mapping that a key stands in."""

NAME_CHARS_MAX: Final = 60
TEXT_CHARS_MAX: Final = 200_000
"""Longer text belongs into a file."""

TASK_NAME: Final = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,59}", re.ASCII)
VARIABLE_NAME: Final = re.compile(r"[a-z][a-z0-9_]{0,59}", re.ASCII)
"""Lower case, because commands get it as an environment variable: never `PATH`."""

FIELD: Final = re.compile(r"[A-Za-z_][\w-]*(?:\.[A-Za-z_][\w-]*)*", re.ASCII)
ROUNDS_MAX: Final = 20
"""How often work is sent back at most: each round is a task of its own."""
TARGET: Final = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*:[A-Za-z_]\w*", re.ASCII)
STRATEGY: Final = re.compile(
    r"(?P<word>adaptive|all-at-once)|(?P<sized>waves|fixed)(?:\(|:)(?P<size>[1-9]\d{0,5})\)?",
    re.ASCII,
)
AGENT: Final = re.compile(
    r"(?P<name>[a-z][a-z0-9-]{0,29})"
    r"(?:\((?P<tools>[a-z][a-z0-9:_-]*(?: *, *[a-z][a-z0-9:_-]*)*)\))?",
    re.ASCII,
)
"""Who performs a prompt that is more than one call: `claude`, `tools(shell, files)`."""

QUORUM: Final = re.compile(r"(?P<count>[1-9]\d{0,6})|(?P<percent>[1-9]\d?|100)%", re.ASCII)

PERMISSIONS: Final = ("edit", "all")
"""What a plan can give an agent beyond its user's settings: edits in its folder, or everything."""

LANDS: Final = ("exact", "verified", "merge")
"""When the work of a task in a workspace becomes part of the run's files."""

MODES: Final = ("auto", "overlay", "copy")
"""How a workspace is made."""

WORK: Final = ("run", "prompt", "prompt_file", "python")
"""What a task does: exactly one of these."""

REJECTION: Final = "rejection"
"""The variable of a task whose work another one judges: why it was sent back, empty at first."""

RESERVED: Final = ("item", "index", REJECTION)
"""Names that commands have already."""

OF_REVISE: Final = ("revise", "accept", "at_most", "then")
THENS: Final = ("fail", "continue")

OF_PROGRAMS: Final = re.compile(r"\w+_proxy|p?npm_config_\w*|yarn_\w*", re.ASCII)
"""Variables in lower case that programs read: an agent would send its calls and key elsewhere."""


def variable_name(text: str, taken: Iterable[str]) -> str:
    """A name for a variable, made of this text, that no other value has."""
    stem = re.sub(r"[^a-z0-9_]+", "_", text.lower()).strip("_")[:40]
    name = stem if VARIABLE_NAME.fullmatch(stem) else f"v{stem}"
    if OF_PROGRAMS.fullmatch(name):
        name = f"my_{name.removesuffix('_proxy')}"
    others = {*taken, *RESERVED}
    while name in others:
        name += "_"
    return name


class PlanKey(Struct, frozen=True):
    """One key: where it stands, what it takes, what it is for."""

    name: str
    holders: tuple[Holder, ...]
    takes: str
    """A key of `_SCHEMAS`; `schema.py` reads each of them."""
    about: str
    example: str
    """A value as it is written in a plan, in JSON so that it fits everywhere."""


_BOTH: Final[tuple[Holder, ...]] = ("plan", "task")
_TASK: Final[tuple[Holder, ...]] = ("task",)
KEYS: Final = (
    PlanKey("headway", ("plan",), "version", "the grammar's version: always 1", "1"),
    PlanKey("name", ("plan",), "name", "what its runs are called; the file's name otherwise",
        '"review-pr"'),
    PlanKey("tasks", ("plan",), "tasks", "what is to be done, by name, in declared order",
        '{"hello": {"run": "echo hello"}}'),
    PlanKey("strategy", ("plan",), "strategy",
        "how many tasks are active: adaptive, waves(N), fixed(N), all-at-once", '"adaptive"'),
    PlanKey("window_share", ("plan",), "share",
        "the most that a run takes of each usage window; otherwise 80% of one shorter than a day, "
        "50% of a longer one", '"30%"'),
    PlanKey("state", ("plan",), "state",
        "keys of the shared state: value, append, set, counter, max, reduce(F) or effect(F)",
        '{"total": "counter"}'),
    PlanKey("vars", _BOTH, "vars", "named values; those of a task may contain {{ }}",
        '{"tone": "brief"}'),
    PlanKey("budget", _BOTH, "budget",
        "the most that may be spent: dollars, tokens (5M, 3000), or [$6, 5M]", '"$6"'),
    PlanKey("model", _BOTH, "model", "who answers prompts: provider/model",
        '"anthropic/claude-sonnet-4"'),
    PlanKey("timeout", _BOTH, "duration",
        "how long one attempt may work, waits for permits not counted: 90s, 10m, 2h", '"10m"'),
    PlanKey("stuck", _BOTH, "duration",
        "end a command or agent that writes, calls and computes nothing for so long", '"10m"'),
    PlanKey("retries", _BOTH, "count", "how often a failed attempt is tried again", "2"),
    PlanKey("permissions", _BOTH, "permissions",
        "what agents may do beyond your own settings of them: edit (files in their folder) or all",
        '"edit"'),
    PlanKey("workspace", _BOTH, "workspace",
        "on (agents): work on a view of the folder, which lands afterwards; off (others); or "
        "{path, mode, base, setup, setup_each}", '"on"'),
    PlanKey("land", _BOTH, "land",
        "if nothing it read has changed (exact), `checks` apart (verified), or if its text "
        "merges (merge)",
        '"verified"'),
    PlanKey("reruns", _BOTH, "count",
        "how often to run again if files it read changed", "1"),
    PlanKey("checks", _BOTH, "patterns",
        "commands that only check (tests, builds)", '["pytest *", "make test"]'),
    PlanKey("objective", ("plan",), "text",
        "a command that prints one number about what landed, the larger the better",
        '"python score.py"'),
    PlanKey("ratchet", ("plan",), "switch",
        "on: work that lowers the objective does not land; its task may try once more", '"on"'),
    PlanKey("run", _TASK, "text", "a shell command; values are environment variables",
        '"git diff HEAD"'),
    PlanKey("prompt", _TASK, "text", "a call of a model with this text", '"Say hello."'),
    PlanKey("prompt_file", _TASK, "path", "the same, with the text in a file", '"prompts/code.md"'),
    PlanKey("agent", _TASK, "agent",
        "who performs the prompt: claude, codex, opencode, gemini, tools(...), or one of your own",
        '"claude"'),
    PlanKey("python", _TASK, "target", "a function, as module:name", '"package.module:function"'),
    PlanKey("each", _TASK, "each",
        "a member for each item, file, line ({lines: FILE}), row of a CSV or JSONL file "
        "({rows: FILE}), or result of a task",
        '["a", "b"]'),
    PlanKey("matrix", _TASK, "matrix", "a member for each combination of these values",
        '{"view": ["code", "security"]}'),
    PlanKey("needs", _TASK, "needs", "tasks that must be done before", '"parse"'),
    PlanKey("reads", _TASK, "paths",
        "paths that it reads: orders it after those who write them; or state:KEY", '"data"'),
    PlanKey("writes", _TASK, "paths", "paths that it writes, state:KEY, effect:CHANNEL", '"build"'),
    PlanKey("reduce", _TASK, "group", "brings all results of that task together", '"review"'),
    PlanKey("context", _TASK, "tokens",
        "the window of the model that reduces: what does not fit into one call becomes a tree",
        '"120k"'),
    PlanKey("quorum", _TASK, "quorum",
        "how many of the results a reduction can do with: 40 or 80%; all of them otherwise",
        '"80%"'),
    PlanKey("max_tokens", _TASK, "tokens", "the longest answer of a prompt", "4000"),
    PlanKey("output", _TASK, "path",
        "the file that the result is put into, once it is there; or state:KEY", '"REVIEW.md"'),
    PlanKey("schema", _TASK, "path", "a JSON Schema that the result must meet",
        '"schemas/findings.json"'),
    PlanKey("verify", _TASK, "text", "a shell command that must accept the result",
        '"python -m json.tool"'),
    PlanKey("repairs", _TASK, "count", "how often the model may correct a result that was refused",
        "1"),
    PlanKey("revise", _TASK, "group",
        "the task that runs again, with all between, if this one rejects its work", '"enrich"'),
    PlanKey("accept", _TASK, "field",
        "the field of its result that is true for work that is accepted; otherwise exit code 0",
        '"ok"'),
    PlanKey("at_most", _TASK, "rounds", "how often work is sent back", "2"),
    PlanKey("then", _TASK, "then", "what follows if it is still rejected: fail or continue",
        '"fail"'),
    PlanKey("queue", _TASK, "name", "tasks of one queue run one at a time, in declared order",
        '"deploys"'),
    PlanKey("priority", _TASK, "priority",
        "among those that could start, the higher one does", "5"),
)  # fmt: skip
FORMS: Final = (
    PlanKey("lines", ("each",), "path", "a file with one item per line", '"repositories.txt"'),
    PlanKey(
        "rows",
        ("each",),
        "path",
        "a CSV, TSV or JSON Lines file, or a list, with one item per row",
        '"tickets.jsonl"',
    ),
    PlanKey("key", ("each",), "text", "the column of `rows` that names each row", '"id"'),
    PlanKey("usd", ("budget",), "money", "dollars", "6"),
    PlanKey("path", ("workspace",), "path", "the folder; the plan's own otherwise", '"repos/a"'),
    PlanKey(
        "mode",
        ("workspace",),
        "mode",
        "overlay (at the folder's own path), copy (elsewhere), or auto",
        '"auto"',
    ),
    PlanKey(
        "base",
        ("workspace",),
        "text",
        "the commit to begin with; the files as they are otherwise",
        '"main"',
    ),
    PlanKey(
        "setup",
        ("workspace",),
        "text",
        "a command that runs once, before all workspaces",
        '"npm ci"',
    ),
    PlanKey(
        "setup_each",
        ("workspace",),
        "text",
        "a command that runs once in each workspace",
        '"make clean"',
    ),
)
"""Values that are written as a mapping: `each: {rows: FILE}`, `workspace: {setup: CMD}`."""


@cache
def keys_of(holder: Holder) -> Mapping[str, PlanKey]:
    """The keys that a mapping can have."""
    return {key.name: key for key in (*KEYS, *FORMS) if holder in key.holders}


def json_schema() -> dict[str, object]:
    """The grammar for editors; what needs the whole plan to be judged is left to the check."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": "urn:headway:plan:1",
        "title": "headway plan",
        **_object("plan", ("headway", "tasks")),
        "$defs": {"task": {**_object("task", ()), "oneOf": [{"required": [one]} for one in WORK]}},
    }


def _object(holder: Holder, required: tuple[str, ...]) -> dict[str, object]:
    properties = {
        key.name: {"description": key.about, **_SCHEMAS[key.takes]}
        for key in keys_of(holder).values()
    }
    shape: dict[str, object] = {
        "type": "object",
        "properties": properties,
        "additionalProperties": False,
    }
    return {**shape, "required": list(required)} if required else shape


Shape = dict[str, object]
"""A part of a JSON Schema."""


def _text(pattern: str | re.Pattern[str]) -> Shape:
    """Text of a pattern; one of ours as a whole, with groups without names."""
    if isinstance(pattern, re.Pattern):
        pattern = f"^(?:{re.sub(r'[?]P<[a-z]+>', '', pattern.pattern)})$"
    return {"type": "string", "pattern": pattern}


def _any_of(*shapes: Shape) -> Shape:
    return {"oneOf": list(shapes)}


def _list(items: Shape, **more: int) -> Shape:
    return {"type": "array", "items": items, **more}


_TEXT: Final[Shape] = {"type": "string", "minLength": 1}
_NAMES: Final[Shape] = {"pattern": _text(VARIABLE_NAME)["pattern"]}
_COUNT: Final[Shape] = {"type": "integer", "minimum": 1}
_AMOUNT: Final = _any_of({"type": "integer", "minimum": 1}, _text(r"^\$?[0-9._]+[kKM]?$"))
_MONEY: Final = _any_of(
    {"type": "number", "exclusiveMinimum": 0}, _text(r"^\$?[0-9][0-9_]*(\.[0-9]+)?[kKM]?$")
)
_SCHEMAS: Final[Mapping[str, Shape]] = {
    "version": {"const": 1},
    "text": _TEXT,
    "path": _TEXT,
    "model": _TEXT,
    "name": {**_TEXT, "maxLength": NAME_CHARS_MAX},
    "group": _text(TASK_NAME),
    "target": _text(TARGET),
    "strategy": _text(STRATEGY),
    "agent": _text(AGENT),
    "permissions": {"enum": list(PERMISSIONS)},
    "field": _text(FIELD),
    "rounds": {"type": "integer", "minimum": 1, "maximum": ROUNDS_MAX},
    "then": {"enum": list(THENS)},
    "quorum": _any_of(_COUNT, _text(r"^([1-9][0-9]?|100)%$")),
    "share": _any_of(
        {"type": "number", "exclusiveMinimum": 0, "maximum": 1},
        _text(r"^([0-9]+(\.[0-9]+)?%|0?\.[0-9]+|1)$"),
    ),
    "duration": _text(r"^[0-9]+(\.[0-9]+)?[smhd]$"),
    "count": {"type": "integer", "minimum": 0, "maximum": 100},
    "priority": {"type": "number"},
    "tokens": _any_of(_COUNT, _text(r"^[0-9][0-9_]*(\.[0-9]+)?[kKM]?$")),
    "money": _MONEY,
    "needs": _any_of(_TEXT, _list(_TEXT, minItems=1)),
    "paths": _any_of(_TEXT, _list(_TEXT)),
    "patterns": _any_of(_TEXT, _list(_TEXT)),
    "switch": {"enum": ["on", "off", True, False]},
    "land": {"enum": list(LANDS)},
    "mode": {"enum": list(MODES)},
    "workspace": _any_of(
        {"enum": ["on", "off", True, False]},
        {
            "type": "object",
            "properties": {
                "path": _TEXT,
                "mode": {"enum": list(MODES)},
                "base": _TEXT,
                "setup": _TEXT,
                "setup_each": _TEXT,
            },
            "additionalProperties": False,
            "minProperties": 1,
        },
    ),
    "vars": {"type": "object", "propertyNames": _NAMES},
    "state": {
        "type": "object",
        "additionalProperties": _text(r"^(value|append|set|counter|max|(reduce|effect)\(.+\))$"),
    },
    "matrix": {
        "type": "object",
        "propertyNames": _NAMES,
        "minProperties": 1,
        "additionalProperties": {"type": "array", "minItems": 1},
    },
    "budget": _any_of(
        _AMOUNT,
        _list(_AMOUNT, minItems=1, maxItems=2),
        {
            "type": "object",
            "properties": {"usd": _MONEY},
            "additionalProperties": False,
            "minProperties": 1,
        },
    ),
    "each": _any_of(
        _TEXT,
        {"type": "array", "minItems": 1},
        {
            "type": "object",
            "properties": {"lines": _TEXT, "rows": _TEXT, "key": _TEXT},
            "additionalProperties": False,
            "oneOf": [{"required": ["lines"]}, {"required": ["rows"]}],
            "dependentRequired": {"key": ["rows"]},
        },
    ),
    "tasks": {
        "type": "object",
        "propertyNames": {"pattern": _text(TASK_NAME)["pattern"]},
        "additionalProperties": {"$ref": "#/$defs/task"},
        "minProperties": 1,
    },
}
