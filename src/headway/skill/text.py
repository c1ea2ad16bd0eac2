"""The skill's text: a file of ours, with the grammar filled in from its one table.

Law: its last line holds a digest of all before it, by which an installed file that nobody has
changed is known.
"""

from __future__ import annotations

from importlib.resources import files
from typing import Final

from headway import __version__
from headway.core.digest import digest
from headway.core.plan.grammar import KEYS

NAME: Final = "headway"
"""Of the skill, and of the folder that it is in: agents want them to be the same."""

FILE: Final = "SKILL.md"
MARK: Final = "<!-- grammar -->"
SEAL: Final = "<!-- headway "

RULES: Final = """\
A plan is `headway: 1` and `tasks`: a mapping from names to tasks. A task has exactly one of `run`,
`prompt`, `prompt_file`, `python`.

`each` takes a list, a pattern of files (their paths), `{lines: FILE}`, a task that has members (one
for each of them), or a single task (one for each line of its result, or each element if that is a
JSON array). `each` and `matrix` together make their product.

Values: `{{ item }}`, `{{ item.field }}`, `{{ index }}`, `{{ matrix.x }}`, `{{ vars.x }}`, and
`{{ tasks.NAME.output }}` of a task in `needs`, `each` or `reduce`. They go into prompts, `vars` and
paths, never into `run` or `verify`: there they are environment variables, `"$item"`, `"$index"`,
`"$x"`. Quote YAML text that has `{{` or `: ` in it.

Order: `needs`, `each: TASK`, `reduce`; and who `reads` a path waits for who `writes` it. Two tasks
that write the same path need an order. Paths stay inside the plan's folder.
"""


def skill_text() -> str:
    """SKILL.md as it is installed."""
    frame = files("headway.skill").joinpath(FILE).read_text(encoding="utf-8")
    return sealed(frame.replace(MARK, grammar_lines()))


def grammar_lines() -> str:
    """Every key on a line, after the rules."""
    lines = [
        f"- `{key.name}: {key.example}` ({', '.join(key.holders)}): {key.about}"
        for key in KEYS
        if key.name != "permissions"
    ]
    return f"{RULES}\n" + "\n".join(lines)


def sealed(text: str) -> str:
    """A text with the line that says what it was."""
    body = text.rstrip("\n") + "\n"
    return f"{body}\n{SEAL}{__version__} {digest(body.encode()).hex()} -->\n"


def is_untouched(text: str) -> bool:
    """Whether an installed file is as some version of headway wrote it."""
    body, found, seal = text.rpartition(f"\n{SEAL}")
    return bool(found) and digest(body.encode()).hex() in seal.split()
