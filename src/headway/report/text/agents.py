"""Shows the agents of a run: what each task's agent took, and how it would go on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from headway.base.numbers import short
from headway.errors import HeadwayError
from headway.journal.reader import JournalReader
from headway.report.text.words import cost, count, known_usd, one_line

if TYPE_CHECKING:
    from headway.agents.programs import AgentUsage

NAME_CELLS: Final = 30


def coming_lines(reader: JournalReader, environ: Mapping[str, str]) -> Iterator[str]:
    """Of every agent whose task is not done, how it would go on now."""
    from headway.agents.kinds import kind_of
    from headway.agents.metering import MeteredUsage
    from headway.agents.programs import COMING, sessions_of
    from headway.config import read_configuration
    from headway.gateway.recording import doubts_of, recorded_in
    from headway.run.agent_tasks import outset_of
    from headway.run.workspaces import kept_attempt

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
        kept = kept_attempt(reader, row.key)
        if kept is not None and not kept.is_failed and session.number <= kept.attempt:
            how = "taken"  # It has a result, which is only compared with what landed since.
        is_replayed = is_replayed or how == "replay"
        after = ""
        if made.calls and how in ("session", "replay"):
            after = f", after {count(made.calls, 'call')}"
        yield f"{one_line(session.task, NAME_CELLS)} {COMING[how]} ({session.agent}{after})"
    if is_replayed:
        yield from doubts_of(reader)


def accounts_by_key(reader: JournalReader) -> dict[str, list[AgentUsage]]:
    """By content key, in hexadecimal digits: what the attempts of each task reported."""
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
        own = f"{short(one.input_tokens)} in, {short(one.output_tokens)} out, "
        own += cost(one.microusd, _silent(accounts))
        if one.metered_calls is not None:
            words += [
                count(one.metered_calls, "call"), f"{short(one.metered_input_tokens)} in",
                f"{short(one.metered_output_tokens)} out",
                cost(one.metered_microusd, one.metered_unpriced), f"by its own count {own}",
            ]  # fmt: skip
        else:
            words.append(own)
        if one.how != "first":
            words.append(WORDS[one.how])
        if one.denied:
            words.append(f"not allowed: {', '.join(one.denied)}")
        if one.calls_again:
            words.append(f"{count(one.calls_again, 'call')} paid twice")
        task = f"{one_line(one.task, NAME_CELLS)}  {one.agent}"
        yield one_line(f"{task}: {', '.join(words)}", width)
