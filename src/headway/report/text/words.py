"""Formats times, money and untrusted text."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from datetime import datetime
from math import inf
from typing import TYPE_CHECKING, Final, TextIO

from msgspec import Struct
from msgspec.structs import asdict, astuple

from headway.base.numbers import short
from headway.base.values import DAY_S, HOUR_S, MINUTE_S
from headway.report.text.terminal import clean, drawable

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderableType
    from rich.segment import Segment

    from headway.pacing.view import AccountView


MICRO: Final = 1_000_000
NAME_CELLS_MAX: Final = 60
CELLS_MIN: Final = 8
"""Of a column that gives way to others."""


def one_line(text: str, cells_max: int = NAME_CELLS_MAX) -> str:
    """Text as a part of a line: cleaned, its spaces made single, cut with an ellipsis."""
    line = " ".join(clean(text).split())
    if line.isascii() and len(line) <= cells_max:
        return line
    from rich.cells import cell_len, set_cell_size

    if cell_len(line) <= cells_max:
        return line
    return set_cell_size(line, max(0, cells_max - 1)).rstrip() + "…"


def aligned(
    rows: Sequence[Sequence[str]], right: Collection[int] = (), width: int = 0,
    shortened: Sequence[int] = (),
) -> list[list[str]]:  # fmt: skip
    """The cells of a table, each column as wide as its widest cell. Where all together are wider
    than `width`, the `shortened` columns give way, the first of them first."""
    from rich.cells import cell_len

    widths = [max(map(cell_len, column)) for column in zip(*rows, strict=True)]
    over = sum(widths) + 2 * len(widths) - 2 - width
    for column in shortened:
        cut = min(max(0, over), max(0, widths[column] - CELLS_MIN))
        widths[column] -= cut
        over -= cut
    return [[_padded(cell, widths[n], n in right) for n, cell in enumerate(row)] for row in rows]


def _padded(cell: str, cells: int, is_right: bool) -> str:
    from rich.cells import cell_len

    text = cell if cell_len(cell) <= cells else one_line(cell, cells)
    space = " " * (cells - cell_len(text))
    return space + text if is_right else text + space


def fault_line(fault: str) -> str:
    """Why an attempt failed, short: of a traceback, what was raised."""
    kind, _, detail = fault.partition(": ")
    lines = detail.strip().splitlines()
    if kind != "function" or len(lines) < 2:
        return fault
    # Our own errors go on after their first line, with the place and what to do.
    raised = next((line for line in lines if line.startswith("error[HW")), lines[-1])
    return f"{kind}: {raised}"


def duration(time_s: float) -> str:
    """`0.4 s`, `12 s`, `3 min 20 s`, `2 h 5 min`, `3 d 4 h`."""
    if time_s == inf:
        return "forever"
    if time_s < 10.0:
        return f"{max(0.0, time_s):.1f} s"
    seconds = round(time_s)
    if seconds < MINUTE_S:
        return f"{seconds} s"
    if seconds < HOUR_S:
        return _two(seconds, MINUTE_S, "min", 1.0, "s")
    minutes = round(seconds / MINUTE_S) * MINUTE_S
    if minutes < DAY_S:
        return _two(minutes, HOUR_S, "h", MINUTE_S, "min")
    return _two(round(seconds / HOUR_S) * HOUR_S, DAY_S, "d", HOUR_S, "h")


def clock(at_s: float, now_s: float) -> str:
    """A time of this day as `14:05:09`, of another with its date; in local time."""
    at, now = datetime.fromtimestamp(at_s), datetime.fromtimestamp(now_s)
    return at.strftime("%H:%M:%S" if at.date() == now.date() else "%Y-%m-%d %H:%M:%S")


def usd(microusd: int) -> str:
    """`$1,234.50`; below a dollar with four digits, because a call costs less than a cent."""
    dollars = microusd / MICRO
    return f"${dollars:,.2f}" if abs(dollars) >= 1.0 or not microusd else f"${dollars:.4f}"


def cost(microusd: int, unpriced: int) -> str:
    """`$0.12`, `cost unknown`, `$0.12 + unknown for 3 calls`."""
    if not unpriced:
        return usd(microusd)
    known = f"{usd(microusd)} + unknown for {count(unpriced, 'call')}"
    return known if microusd else "cost unknown"


def unknown_cost(models: Sequence[str]) -> str:
    return f"cost unknown: no price for {', '.join(models)} (pip install 'headway[prices]')"


def known_usd(microusd: int, unpriced: int) -> float | None:
    """For JSON: null if the price of any call is unknown."""
    return None if unpriced else microusd / MICRO


def cents(microusd: float) -> str:
    """`$0.25`: to the cent, for sums that are estimates; below one with four digits."""
    return f"${microusd / MICRO:,.2f}" if microusd >= MICRO / 100 else usd(round(microusd))


def count(number: int, noun: str) -> str:
    """`1 task`, `22 tasks`."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def usage_words(given: float, gave: float, microusd: int, unpriced: int) -> list[str]:
    """`1.2M tokens in, 80k out`, `$1.20`; nothing of what is 0."""
    words = [f"{short(given)} tokens in, {short(gave)} out"] if given or gave else []
    return [*words, cost(microusd, unpriced)] if microusd or unpriced else words


def counts(*numbers: tuple[int, str]) -> list[str]:
    """`3 failed`, `1 skipped`: those that are not 0."""
    return [f"{number:,} {word}" for number, word in numbers if number]


def _two(time_s: float, unit_s: float, unit: str, small_s: float, small: str) -> str:
    """`3 min 20 s`: two units, the second only if there is something of it."""
    whole, rest = divmod(time_s, unit_s)
    first = f"{whole:.0f} {unit}"
    return f"{first} {rest / small_s:.0f} {small}" if rest >= small_s else first


def finite(value: object) -> object:
    """As JSON can have it: what has no end is null, and a record is an object."""
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        value = value._asdict()
    if isinstance(value, Struct):
        value = asdict(value)
    if isinstance(value, dict):
        return {key: finite(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [finite(one) for one in value]
    return None if value in (inf, -inf) else value


OBEYED: Final = re.compile("[\x7f-\x9f\u2028-\u202e\u2066-\u2069]")
"""What terminals obey, beyond the characters below a space, which JSON escapes anyway."""


def json_line(shown: object) -> str:
    """JSON that people can read in every script and no terminal obeys."""
    line = json.dumps(shown, ensure_ascii=False, allow_nan=False)
    return OBEYED.sub(lambda found: f"\\u{ord(found[0]):04x}", line)


# Limits and bounds.

PERIODS: Final = {1.0: "a second", MINUTE_S: "a minute", HOUR_S: "an hour", DAY_S: "a day"}
RESOURCES: Final = {"input": "input tokens", "output": "output tokens"}
LIMITS: Final = {
    "": "a permit",
    "untried": "an untried width",
    "peak": "the provider's best width",
    "burst": "a burst, which was refused",
    "hidden limit": "a limit that the provider does not name",
    "account": "the account, which was held",
    "prompt cache": "the first answer with the same cached beginning",
    "budget": "the budget",
    "critical path": "the longest chain of tasks",
    "width": "how many calls are worth having in flight at once",
    "this machine": "how many tasks this machine takes at once",
}


def limit_words(name: str) -> str:
    """`input tokens a minute` of `input/60s`."""
    if name in LIMITS:
        return LIMITS[name]
    resource, _, period = name.partition("/")
    try:
        period_s = float(period.removesuffix("s"))
    except ValueError:
        if resource in ("requests", "input", "output", "tokens") and not period:
            return f"{RESOURCES.get(resource, resource)} in an estimated period"
        return one_line(name)  # `concurrency`, or one that is not known here.
    if resource == "usage":
        return f"a usage window of {duration(period_s)}"
    resource = RESOURCES.get(resource, resource)
    return f"{resource} {PERIODS.get(period_s, f'in {duration(period_s)}')}"


def wait_words(lanes: Iterable[AccountView]) -> str:
    """`input tokens a minute: refilling`, of each of these accounts that has calls waiting."""
    waits = [lane.wait for lane in lanes if lane.wait is not None]
    return "; ".join(dict.fromkeys(f"{limit_words(one.resource)}: {one.reason}" for one in waits))


def bound_words(
    bound_s: float, by: str, fair_s: float, fair_by: str, time: Callable[[float], str] = duration
) -> str:
    """`50 s, bound by input tokens a minute`, and the fair bound beside it where it is later."""
    words = f"{time(bound_s)}, bound by {limit_words(by)}"
    if fair_s > 1.005 * bound_s:
        fair = "" if fair_by == by else f", bound by {limit_words(fair_by)},"
        words += f"; {time(fair_s)}{fair} within the ceiling, beside neighbours and without debt"
    return words


# Why a task failed, and what helps.

MENDS: Final = {
    "access": "the key, the model's name or the address is wrong: correct it, then resume",
    "request": "the call itself is wrong: change the task, then resume",
    "billing": "the account has no credit: pay, then resume",
    "spend_cap": "the account's own spending limit is reached: raise it, then resume",
    "stuck": "what it waited for: headway logs {run} '{task}'; more time: `stuck:`",
    "timeout": "give it more time (`timeout:`), or less to do",
    "function": "the function raised: correct it, then resume",
    "command": "its output: headway logs {run} '{task}'",
    "rejected": "it was sent back as often as the plan allows: change the task, then resume",
    "unfit": "the answer is not what was asked for: change prompt or schema, then resume",
}


def mend_words(fault: str, run: str, task: str) -> str:
    """What helps against a failure, by its kind."""
    words = MENDS.get(fault.partition(":")[0], "headway resume {run} tries it again")
    return words.format(run=run, task=clean_name(task))


def clean_name(name: str) -> str:
    """A task's name for a command line in single quotes."""
    return one_line(name, 200).replace("'", "'\\''")


# The one place that knows what the output can show: width, colour, characters.

PLAIN_COLUMNS: Final = 100
"""A file or a pipe has no width; tables for it are made as wide as a wide screen."""

COLUMNS_MIN: Final = 40
"""On a narrower screen lines are as long as on one of this width, and the screen folds them."""


class Glyphs(Struct, frozen=True):
    here: str = "·"
    provider: str = "▒"
    busy: str = "█"
    done: str = "✓"
    failed: str = "✗"
    dash: str = "\N{EN DASH}"


ASCII: Final = Glyphs(".", "-", "#", "+", "x", "-")


def console_for(stream: TextIO) -> Console:
    from rich.console import Console

    class Plain(Console):
        def render(
            self, renderable: RenderableType, options: ConsoleOptions | None = None
        ) -> Iterator[Segment]:
            """On a terminal, nothing in the text is obeyed; what rich draws is."""
            for segment in super().render(renderable, options):
                is_text = self.is_terminal and not segment.control
                yield segment._replace(text=clean(segment.text)) if is_text else segment

        def on_broken_pipe(self) -> None:
            """Leave a reader that is gone to the boundary of the command line."""
            raise  # noqa: PLE0704 - called by rich while it handles the error

    console = Plain(
        file=drawable(stream), highlight=False, markup=False, emoji=False, soft_wrap=False
    )
    columns = console.width if console.is_terminal else PLAIN_COLUMNS
    console.width = max(COLUMNS_MIN, columns)
    return console


def glyphs_for(console: Console) -> Glyphs:
    """Every character, if the output can encode them."""
    every = Glyphs()
    try:
        "".join(astuple(every)).encode(console.encoding)
    except (UnicodeEncodeError, LookupError):
        return ASCII
    return every
