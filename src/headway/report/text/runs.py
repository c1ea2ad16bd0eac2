"""Shows a user's runs, newest first."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from heapq import nlargest
from itertools import islice
from typing import TYPE_CHECKING, Final

from msgspec import Struct, field
from msgspec.structs import replace

from headway.base.codec import as_dict
from headway.base.folders import folders
from headway.base.locks import look as look_owner
from headway.base.numbers import short
from headway.engine.effects import KnownEffects
from headway.engine.events import GroupExpanded, RunBegan, TaskProposed, TaskStale, TaskStarted
from headway.engine.record import EFFECTS, Header, TaskRow, TaskState
from headway.errors import BadValueError, HeadwayError, did_you_mean
from headway.journal.documents import is_edited, kept_shape
from headway.journal.folder import RunPlace, find_run, list_runs
from headway.journal.reader import JournalReader, RunSummary
from headway.report.history import RunVerdict, Standing, stand, verdict
from headway.report.progress import ProgressStatistics, RunProgress, TaskNames
from headway.report.text.terminal import LABEL_CELLS, block, labelled, print_lines
from headway.report.text.words import (
    clock,
    cost,
    count,
    counts,
    duration,
    fault_line,
    known_usd,
    one_line,
    usage_words,
    usd,
)

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

    from headway.agents.programs import AgentUsage
    from headway.state.learned_edges import Lesson


NAMES_HINTED_MAX: Final = 1000

LISTED_MAX: Final = 10


class Glance(Struct, frozen=True):
    """What there is to say of a run without reading all that happened."""

    header: Header
    standing: Standing
    verdict: RunVerdict
    summary: RunSummary
    pid: int | None
    now_s: float
    places: Mapping[bytes, int] | None = None
    """By key, of an edited plan: tasks that it does not have any more do not count."""
    inner: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    """Of each level of a reduction, how many tasks have finished, and how many there are."""

    @property
    def total(self) -> int:
        if self.places is not None:
            return len(self.places)
        return max(self.header.tasks + self.standing.grown, sum(self.summary.counts.values()))

    @property
    def elapsed_s(self) -> float:
        """From its first fact to its last, or to now while it goes on."""
        if not self.summary.events:
            return 0.0
        end_s = self.now_s if self.verdict.is_live else self.summary.last_s
        return max(0.0, end_s - self.summary.first_s)

    def of(self, state: TaskState) -> int:
        return self.summary.counts.get(state, 0)

    def rows(self, reader: JournalReader, state: TaskState) -> Iterator[TaskRow]:
        rows = reader.rows(state)
        return rows if self.places is None else (row for row in rows if row.key in self.places)


def state_folder() -> str:
    return folders(os.environ).state


@contextmanager
def opened(word: str) -> Iterator[tuple[RunPlace, JournalReader]]:
    """The run that a word names, and its journal to read."""
    place = find_run(state_folder(), word)
    with JournalReader(place.folder) as reader:
        yield place, reader


def look(reader: JournalReader) -> Glance:
    standing = Standing()
    for recorded in reader.events(key=b""):
        standing = stand(standing, recorded.event)
    owner = look_owner(reader.folder)
    now_s = time.time()
    is_owned = owner is not None and owner.is_alive
    summary = reader.summary()
    places: Mapping[bytes, int] | None = None
    inner = _inner(reader) if reader.header.kind == "plan" else {}
    if inner is None or _is_other(reader, standing, sum(summary.counts.values())):
        places, inner, summary = _declared(reader, summary)
    return Glance(
        reader.header, standing, verdict(standing, is_owned, now_s), summary,
        owner.pid if owner is not None and is_owned else None, now_s, places, inner,
    )  # fmt: skip


def _is_other(reader: JournalReader, standing: Standing, rows: int) -> bool:
    """Whether there are tasks that do not count any more: of a plan before it was edited."""
    return rows > reader.header.tasks + standing.grown or is_edited(reader)


def _inner(reader: JournalReader) -> dict[str, tuple[int, int]] | None:
    """Of each level of a reduction, how many tasks have finished, and how many there are; None
    where the shape of the run is not kept."""
    if "reduce" not in reader.header.source:
        return {}
    shape = kept_shape(reader)
    if shape is None:
        return None
    counts = {group.name: group.count or 0 for group in shape.graph.groups if "/" in group.name}
    if not counts:
        return {}
    for recorded in reader.events(kinds=("group_expanded",)):
        event = recorded.event
        if isinstance(event, GroupExpanded) and shape.graph.groups[event.group].name in counts:
            counts[shape.graph.groups[event.group].name] = event.count
    done = Counter(row.name.partition("[")[0] for row in reader.rows("finished"))
    return {name: (done[name], of) for name, of in counts.items() if of}


def _declared(
    reader: JournalReader, summary: RunSummary
) -> tuple[dict[bytes, int] | None, dict[str, tuple[int, int]], RunSummary]:
    """The tasks that the plan has now, its levels, and the summary of those alone."""
    from headway.run.resume import declared

    plan = declared(reader)
    if plan is None:
        return None, {}, summary
    places, levels = plan
    places = {**places, **{key: len(places) for key in levels}}
    there = [row for row in reader.rows() if row.key in places]
    done = Counter(levels.get(row.key) for row in there if row.state == "finished")
    inner = {name: (done[name], n) for name, n in Counter(levels.values()).items()}
    return places, inner, replace(summary, counts=dict(Counter(row.state for row in there)))


def find_row(reader: JournalReader, word: str) -> TaskRow | None:
    """The task of a name, or the only one whose name has the word in it, as it is or as shown."""
    # No name in a journal has what UTF-8 does not, and its database would refuse to look for it.
    word = word.encode(errors="replace").decode()
    same = list(reader.rows(name=word))
    if same:
        return same[-1]  # After an edit there may be several, and the last one is what counts.
    shown = " ".join(word.split())
    near: dict[str, TaskRow] = {}
    for row in reader.rows():
        if word in row.name or shown in " ".join(row.name.split()):
            near[row.name] = row
    return near.popitem()[1] if len(near) == 1 else None


def unknown_task(reader: JournalReader, name: str) -> BadValueError:
    known = [row.name for row in islice(reader.rows(), NAMES_HINTED_MAX)]
    if not known:
        return BadValueError("no task has started in this run yet", hint="headway status")
    return BadValueError(
        f"no task `{one_line(name)}` has started in this run", hint=did_you_mean(name, known)
    )


def slowest(reader: JournalReader, glance: Glance) -> list[tuple[TaskRow, float]]:
    took = ((row, row.ended_s - row.started_s) for row in glance.rows(reader, "finished"))
    return nlargest(3, took, key=lambda pair: pair[1])


NAME_CELLS: Final = 30


def coming_lines(reader: JournalReader, environ: Mapping[str, str]) -> Iterator[str]:
    """Of every agent whose task is not done, how it would go on now."""
    from headway.agents.kinds import kind_of
    from headway.agents.metering import MeteredUsage
    from headway.agents.programs import COMING, sessions_of
    from headway.config import read_configuration
    from headway.gateway.recording import doubts_of, recorded_in
    from headway.run.agent_tasks import outset_of

    left = {row.key.hex(): row for row in reader.rows() if row.state not in ("finished", "skipped")}
    settings = {one.name: one for one in read_configuration(environ).values.agents}
    recorded: dict[str, MeteredUsage] = {}
    with suppress(HeadwayError, OSError):
        recorded = recorded_in(reader)
    is_replayed = False
    for home, session in sessions_of(reader.folder):
        row, kind = left.get(session.key), kind_of(session.agent, settings)
        if row is None or kind is None:
            continue
        journalled = row.attempt - (row.state == "started")
        how, *_ = outset_of(kind, home, replace(session, said=None), environ, journalled)
        made = recorded.get(f"{session.task}~{session.number}", MeteredUsage())
        if how == "replay" and made.calls == made.in_flight:
            how = "start"
        is_replayed = is_replayed or how == "replay"
        after = ""
        if made.calls and how in ("session", "replay"):
            after = f", after {count(made.calls, 'call')}"
        yield f"{one_line(session.task, NAME_CELLS)} {COMING[how]} ({session.agent}{after})"
    if is_replayed:
        yield from doubts_of(reader)


def accounts_by_key(reader: JournalReader) -> dict[str, list[AgentUsage]]:
    """By content key, in hexadecimal digits: what the attempts of each task told."""
    if reader.document("agent") is None:
        return {}  # Without loading what reads it.
    from headway.agents.programs import accounts_of

    found: dict[str, list[AgentUsage]] = {}
    for account in accounts_of(reader):
        found.setdefault(account.key, []).append(account)
    return found


SUMMED: Final = (
    "turns", "input_tokens", "output_tokens", "microusd", "metered_input_tokens",
    "metered_output_tokens", "metered_microusd", "metered_unpriced", "replayed", "calls_again",
)  # fmt: skip


def _together(accounts: Sequence[AgentUsage]) -> AgentUsage:
    seen = [one.metered_calls for one in accounts if one.metered_calls is not None]
    sums = {name: sum(getattr(one, name) for one in accounts) for name in SUMMED}
    tools, denied = Counter[str](), Counter[str]()
    for one in accounts:
        tools.update(one.tools)
        denied.update(one.denied)
    return replace(
        accounts[-1], metered_calls=sum(seen) if seen else None, tools=dict(tools),
        denied=dict(denied), **sums,
    )  # fmt: skip


def _silent(accounts: Sequence[AgentUsage]) -> int:
    return sum(one.turns for one in accounts if not one.microusd)


def agents_as_json(accounts: list[AgentUsage]) -> dict[str, object]:
    """All attempts of one task, for a program: what its agent reports, what the gateway saw."""
    one = _together(accounts)
    return {
        "name": one.agent, "session": one.session, "how": one.how, "turns": one.turns,
        "tools": one.tools, "denied": one.denied,
        "told": {
            "input_tokens": one.input_tokens, "output_tokens": one.output_tokens,
            "usd": known_usd(one.microusd, _silent(accounts)),
        },
        "metered": None if one.metered_calls is None else {
            "calls": one.metered_calls, "input_tokens": one.metered_input_tokens,
            "output_tokens": one.metered_output_tokens,
            "usd": known_usd(one.metered_microusd, one.metered_unpriced),
        },
        "replayed": one.replayed, "calls_again": one.calls_again,
    }  # fmt: skip


def account_lines(reader: JournalReader, width: int) -> Iterator[str]:
    """A line for each task that an agent has performed, or tried to."""
    found = accounts_by_key(reader)
    if not found:
        return  # Without loading what reads them.
    from headway.agents.programs import WORDS

    for accounts in found.values():
        one = _together(accounts)
        words = [count(one.turns, "turn"), count(sum(one.tools.values()), "tool use")]
        told = f"{short(one.input_tokens)} in, {short(one.output_tokens)} out, "
        told += cost(one.microusd, _silent(accounts))
        if one.metered_calls is not None:
            words += [
                count(one.metered_calls, "call"), f"{short(one.metered_input_tokens)} in",
                f"{short(one.metered_output_tokens)} out",
                cost(one.metered_microusd, one.metered_unpriced), f"itself says {told}",
            ]  # fmt: skip
        else:
            words.append(told)
        if one.how != "first":
            words.append(WORDS[one.how])
        if one.denied:
            words.append(f"not allowed: {', '.join(one.denied)}")
        if one.calls_again:
            words.append(f"{count(one.calls_again, 'call')} paid twice")
        who = f"{one_line(one.task, NAME_CELLS)}  {one.agent}"
        yield one_line(f"{who}: {', '.join(words)}", width)


SHOWN_MAX: Final = 3
WHAT_CELLS_MAX: Final = 60


def waste_of(reader: JournalReader) -> ProgressStatistics:
    """What the attempts took that were for nothing, since the run was last taken over."""
    kinds = ("run_began", "task_started", "task_proposed", "task_stale")
    progress = RunProgress(TaskNames("", ("",), (None,), lambda _: 0, str))
    for recorded in reader.events(kinds=kinds):
        event = recorded.event
        if isinstance(event, RunBegan):
            progress = RunProgress(progress.cast)
        elif isinstance(event, TaskStarted | TaskProposed | TaskStale):
            progress.hear((event,))
    return progress.statistics()


def again_lines(reader: JournalReader, lessons: Sequence[Lesson]) -> Iterator[str]:
    if not lessons:
        return
    waste = waste_of(reader)
    took = duration(waste.stale_s)
    if waste.stale_microusd:
        took += f", {usd(waste.stale_microusd)}"
    first = f"{count(waste.stale, 'attempt')} ran again ({took}): "
    for lesson in lessons[:SHOWN_MAX]:
        yield first + _words(lesson)
        first = "and "
    if len(lessons) > SHOWN_MAX:
        yield f"and {len(lessons) - SHOWN_MAX:,} more pairs of tasks"


def _words(lesson: Lesson) -> str:
    reader, writer = lesson.reader, lesson.writer
    what = one_line(", ".join(f"`{one}`" for one in lesson.what if one), WHAT_CELLS_MAX)
    if reader == writer:
        fix = f"to do them one by one, add `queue: {reader}` to `{reader}`"
        return f"tasks of `{reader}` read {what or 'all'} that others of them write; {fix}"
    needs = f"`needs: {writer}` in `{reader}`"
    if what:
        key = lesson.what[0] or "**"
        return (
            f"`{reader}` reads {what}, which `{writer}` writes. It waits next time; to say so in "
            f"the plan, add {needs}, or `writes: state:{key}` there and `reads: state:{key}` here"
        )
    return (
        f"`{reader}` is shown the whole state, and `{writer}` writes there. It waits next time; to "
        f"say so in the plan, add {needs}, or `reads: state:KEY` for what it really needs"
    )


DOUBTS_LISTED_MAX: Final = 20
"""Effects in doubt that are named one by one: a crash leaves at most one for each channel."""


def known_of(reader: JournalReader) -> KnownEffects:
    known = KnownEffects()
    for recorded in reader.events(kinds=EFFECTS):
        known.apply(recorded.key, recorded.event)
    return known


def doubt_lines(reader: JournalReader, known: KnownEffects) -> Iterator[str]:
    doubts = list(known.doubts.values())
    for task, doubt in doubts[:DOUBTS_LISTED_MAX]:
        row = reader.row(task)
        name = one_line(row.name if row is not None else task.hex())
        channel = one_line(doubt.channel)
        again = "it is sent again with the same key"
        if doubt.is_now:
            again = "it is outside the guarantee, and sent again if its task runs again"
        yield f"in doubt: {channel} of {name}, key {doubt.key}: it may have been sent; {again}"
    if len(doubts) > DOUBTS_LISTED_MAX:
        yield f"in doubt: {len(doubts) - DOUBTS_LISTED_MAX} more"


def done_words(known: KnownEffects) -> str:
    """`12 performed, 3 at once, outside the guarantee`; empty if there was none."""
    if not (known.done or known.doubts):
        return ""
    words = f"{len(known.done):,} performed"
    return f"{words}, {len(known.now)} at once, outside the guarantee" if known.now else words


STYLES: Final = {
    "running": "bold cyan",
    "done": "bold green",
    "failed": "bold red",
    "interrupted": "bold yellow",
    "stopped": "bold yellow",
}

RANKED_MAX: Final = 10_000
"""Tasks that are looked through for the slowest while a run goes on: it is done again and again."""


def status_lines(glance: Glance, reader: JournalReader, width: int) -> Iterator[Text]:
    """A line for each fact, at most as wide as the screen where text of tasks is in them."""
    verdict = glance.verdict
    yield title_line(glance.header, width)
    yield from block("state", [state_words(glance)], STYLES.get(verdict.state, ""))
    yield from block("tasks", [count_words(glance)])
    inner = (f"{name} {done:,} of {total:,}" for name, (done, total) in glance.inner.items())
    yield from block("reduces", [", ".join(inner)])
    yield from block("time", [_time_words(glance)])
    if verdict.is_live:
        from headway.report.text.health import outlook, run_windows, source_of
        from headway.report.text.stage import rest_words

        left = outlook(reader, glance, source_of(reader))[0]
        yield from block("rest", rest_words(left))
        yield from block("windows", run_windows(glance, left.left))
    yield from block("used", [spent_words(glance)])
    yield from block("again", [stale_words(reader)])
    yield from block("agents", islice(account_lines(reader, 400), LISTED_MAX))
    is_ranked = not verdict.is_live or glance.of("finished") <= RANKED_MAX
    ranked = slowest(reader, glance) if is_ranked else []
    slow = [f"{one_line(row.name, 30)} {duration(took_s)}" for row, took_s in ranked]
    yield from block("slowest", [", ".join(slow)])
    failed = list(islice(glance.rows(reader, "failed"), LISTED_MAX))
    yield from block("failed", [failure(row, width - LABEL_CELLS - 2) for row in failed])
    if glance.of("failed") > len(failed):
        yield labelled("", f"and {glance.of('failed') - len(failed):,} more", "dim")
    if not verdict.is_live:
        known = known_of(reader)
        yield from block("effects", [done_words(known)])
        for line in doubt_lines(reader, known):
            yield labelled("", line, "yellow")
    yield from block("next", next_words(glance, failed))


def title_line(header: Header, width: int) -> Text:
    from rich.text import Text

    name = one_line(header.name, width - len(header.run) - 2)
    return Text.assemble((name, "bold"), "  ", (header.run, "dim"))


def state_words(glance: Glance) -> str:
    """`running, process 4711`; `waiting until 14:05:00: the window is empty`."""
    verdict = glance.verdict
    words = str(verdict.state)
    if glance.pid is not None:
        words += f", process {glance.pid}"
    if verdict.until_s is not None and verdict.until_s > glance.now_s:
        left = duration(verdict.until_s - glance.now_s)
        words += f", until {clock(verdict.until_s, glance.now_s)} (in {left})"
    if verdict.reason:
        words += f": {one_line(verdict.reason, 200)}"
    if verdict.is_live and glance.standing.waves:
        words += f", wave {glance.standing.wave} of {glance.standing.waves}"
    return words


def count_words(glance: Glance) -> str:
    """`18 of 22 finished, 3 running, 1 failed`."""
    left = glance.total - sum(glance.summary.counts.values())
    words = counts(
        (glance.of("started"), "running" if glance.verdict.is_live else "cut off"),
        (glance.of("proposed"), "waiting to be committed"),
        (glance.of("stale"), "to run again"),
        (glance.of("delayed"), "to be tried again"),
        (glance.of("failed"), "failed"),
        (glance.of("skipped"), "skipped"),
        (left, "not started"),
    )
    return ", ".join([f"{glance.of('finished'):,} of {glance.total:,} finished", *words])


def spent_words(glance: Glance) -> str:
    """`1.2M tokens in, 80k out, $1.20`."""
    summary = glance.summary
    words = usage_words(
        summary.input_tokens, summary.output_tokens, summary.spent_microusd, summary.unpriced
    )
    if summary.reserved_microusd:
        words.append(f"up to {usd(summary.reserved_microusd)} more in flight")
    return ", ".join(words)


def stale_words(reader: JournalReader) -> str:
    """`3 attempts, $0.02: what they had read has changed`; nothing, if none had to run again."""
    stale = [recorded.event for recorded in reader.events(kinds=("task_stale",))]
    spent = sum(event.ending.spend_microusd for event in stale if isinstance(event, TaskStale))
    paid = f", {usd(spent)}" if spent else ""
    return f"{count(len(stale), 'attempt')}{paid}: what they had read has changed" if stale else ""


def failure(row: TaskRow, cells_max: int) -> Text:
    from rich.text import Text

    name = one_line(row.name, 40)
    reason = fault_line(row.fault) or "no reason was kept"
    why = f"{reason} ({count(row.attempt, 'attempt')})"
    return Text.assemble((name, "red"), "  ", one_line(why, max(20, cells_max - len(name) - 2)))


def next_words(glance: Glance, failed: list[TaskRow]) -> Iterator[str]:
    run, state = glance.header.run, glance.verdict.state
    if state == "paused":
        yield f"headway resume {run}"
    elif glance.verdict.is_live:
        yield f"headway status {run} --watch"
    elif glance.verdict.is_resumable:
        again = "tries the failed tasks again" if state == "failed" else "goes on where it was"
        more = " --budget '$20'" if glance.verdict.reason.startswith("budget:") else ""
        yield f"headway resume {run}{more}   {again}"
    if failed:
        yield f"headway why {run} '{clean_name(failed[0].name)}'"
    if glance.of("finished"):
        yield f"headway results {run}"


def clean_name(name: str) -> str:
    """A task's name for a command line in single quotes."""
    return one_line(name, 200).replace("'", "'\\''")


def as_json(glance: Glance, reader: JournalReader) -> dict[str, object]:
    header, verdict, standing = glance.header, glance.verdict, glance.standing
    summary, known, rest = glance.summary, known_of(reader), {}
    if verdict.is_live:
        from headway.report.text.health import outlook, run_windows, source_of

        left, waits_for = outlook(reader, glance, source_of(reader))
        rest = {"eta_s": left.eta_s, "bound_s": left.bound_s, "bound_by": left.binding,
                "fair_s": left.fair_s, "fair_by": left.fair_binding,
                "waits_for": waits_for,
                "windows": list(run_windows(glance, left.left))}  # fmt: skip
    return {
        "run": header.run, "name": header.name, "kind": header.kind, "folder": header.folder,
        "state": verdict.state, "reason": verdict.reason, "until_s": verdict.until_s,
        "resumable": verdict.is_resumable, "pid": glance.pid, "strategy": standing.strategy,
        "parts": standing.parts,
        "tasks": {"total": glance.total, **{str(state): n for state, n in summary.counts.items()}},
        "reduces": {name: {"finished": n, "total": of} for name, (n, of) in glance.inner.items()},
        "input_tokens": round(summary.input_tokens),
        "output_tokens": round(summary.output_tokens),
        "usd": known_usd(summary.spent_microusd, summary.unpriced),
        "known_usd": summary.spent_microusd / 1e6,
        "unpriced_calls": summary.unpriced,
        "reserved_usd": summary.reserved_microusd / 1e6,
        "created_s": header.created_s,
        "elapsed_s": glance.elapsed_s,
        **rest,
        "slowest": [{"task": row.name, "seconds": took} for row, took in slowest(reader, glance)],
        "failed": [
            {"task": row.name, "reason": row.fault, "attempts": row.attempt}
            for row in islice(glance.rows(reader, "failed"), LISTED_MAX)
        ],
        "effects": {"done": len(known.done), "in_doubt": len(known.doubts), "now": len(known.now),
                    "doubts": list(known.doubts)},
        "agents": {
            accounts[-1].task: agents_as_json(accounts)
            for accounts in accounts_by_key(reader).values()
        },
        "finished": None if standing.finished is None else as_dict(standing.finished),
    }  # fmt: skip


def _time_words(glance: Glance) -> str:
    words = f"{duration(glance.elapsed_s)} since {clock(glance.header.created_s, glance.now_s)}"
    if glance.standing.strategy:
        words += f", {glance.standing.strategy}"
    if glance.standing.parts > 1:
        words += f", resumed {count(glance.standing.parts - 1, 'time')}"
    return words


RUNS_MAX: Final = 10

HEADERS: Final = ("run", "name", "state", "tasks", "age")
CELLS_MIN: Final = 8

NOTHING: Final = """\
No runs yet. To begin:
  headway each 'printf "%s\\n" {}' ::: a b c
  headway run plan.yaml
Everything: headway --help"""


def draw_runs(console: Console) -> None:
    from rich.table import Table
    from rich.text import Text

    rows: list[tuple[Text, ...]] = []
    glances: list[Glance] = []
    for place in list_runs(state_folder(), RUNS_MAX):
        age = Text(duration(time.time() - place.created_s))
        try:
            with JournalReader(place.folder) as reader:
                glance = look(reader)
        except HeadwayError as error:
            # One journal that cannot be read does not hide the others.
            why = Text(one_line(error.message, 40))
            rows.append((Text(place.id), Text(), Text("unreadable"), why, age))
            continue
        glances.append(glance)
        state = Text(glance.verdict.state, STYLES.get(glance.verdict.state, ""))
        name = Text(one_line(glance.header.name, 30))
        rows.append((Text(glance.header.run), name, state, Text(count_words(glance)), age))
    if not rows:
        console.print(NOTHING, soft_wrap=True)
        return
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    for header in HEADERS:
        least = len("20261116-0423-a7k") if header == "run" else None
        table.add_column(header, no_wrap=True, overflow="ellipsis", min_width=least)
    for cells in _fitted(rows, console.width):
        table.add_row(*cells)
    console.print(table)
    console.print()
    lines = [
        f"headway resume {glance.header.run}"
        for glance in glances
        if glance.verdict.is_resumable or glance.verdict.state == "paused"
    ]
    lines += [f"headway status {glance.header.run}" for glance in glances[:1]]
    print_lines(console, (*lines, "headway --help"), "dim")


def _fitted(rows: list[tuple[Text, ...]], width: int) -> list[tuple[Text, ...]]:
    """What is too wide is taken from the names first, then from the counts."""
    widths = [
        max(len(header), *(row[column].cell_len for row in rows))
        for column, header in enumerate(HEADERS)
    ]
    over = sum(widths) + 2 * len(HEADERS) - width
    for column in (1, 3):
        cut = min(max(0, over), max(0, widths[column] - CELLS_MIN))
        over -= cut
        for row in rows:
            row[column].truncate(widths[column] - cut, overflow="ellipsis")
    return rows
