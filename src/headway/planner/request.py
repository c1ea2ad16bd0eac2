"""What a model is told in order to write a plan: the grammar, what it may use, the project, a goal.

The grammar is made from the one table that plans are checked by, less what may not be used.
"""

from __future__ import annotations

from collections.abc import Iterator
from json import dumps
from typing import Final

from headway.core.plan.foreign import (
    AGAIN_MAX,
    ANSWER_TOKENS_MAX,
    CONTEXT_TOKENS_MAX,
    MEMBERS_MAX,
    READER,
    REDUCERS,
    TASKS_MAX,
    Allowance,
)
from headway.core.plan.grammar import KEYS, Key
from headway.core.plan.sensitive import ENDINGS
from headway.planner.project import Listing

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


def system_text(allowance: Allowance) -> str:
    """What holds for every goal."""
    parts = [
        _INTRODUCTION,
        "Every key:\n" + "\n".join(_key_line(key) for key in KEYS if _is_usable(key, allowance)),
        "What else holds:\n" + "\n".join(_rules(allowance)),
        f"Example:\n```yaml\n{EXAMPLE}```",
        f"One small thing is one task:\n```yaml\n{SINGLE}```",
    ]
    return "\n\n".join(parts)


def goal_text(goal: str, files: Listing, models: tuple[str, ...]) -> str:
    """One goal."""
    parts = [f"The goal, as the user wrote it:\n<goal>\n{goal}\n</goal>"]
    if len(models) > 1:
        parts.append(f"Models that may be named under `model`: {', '.join(models)}")
    if files.names:
        # As JSON, so that no name can look like anything but a name.
        names = "\n".join(dumps(name, ensure_ascii=False) for name in files.names)
        more = f"\nand {files.more:,} more" if files.more else ""
        parts.append(f"Files of the project:\n<files>\n{names}{more}\n</files>")
    return "\n\n".join([*parts, "Write the plan."])


def _is_usable(key: Key, allowance: Allowance) -> bool:
    if key.name in ("run", "verify"):
        return "run" in allowance.works
    if key.name == "permissions":
        return False
    return key.name != "agent" or bool(allowance.agents)


def _key_line(key: Key) -> str:
    holders = " or a ".join(key.holders)
    return f"- `{key.name}` (of a {holders}): {key.about}. `{key.name}: {key.example}`"


def _agent(name: str) -> str:
    """As a plan writes it: `tools:files` of the configuration is `tools(files)`."""
    head, _, tool = name.partition(":")
    return f"{head}({tool})" if tool else name


def _rules(allowance: Allowance) -> Iterator[str]:
    if "run" not in allowance.works:
        yield "- Nothing is executed: no commands, no `verify`, no effects."
    if "python" not in allowance.works:
        yield f"- `python` is only {', '.join(sorted(REDUCERS))}, beside `reduce`, and {READER}."
    if allowance.agents:
        names = ", ".join(map(_agent, sorted(allowance.agents)))
        yield f"- `agent` is one of: {names}."
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
