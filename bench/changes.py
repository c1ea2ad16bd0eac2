"""What changes under way: `python -m bench.changes`, the new law beside the first version.

Virtual time: one seed after the other, the same calls against the same provider. A limit is halved
or raised, a neighbour comes and goes, the provider is slow for a minute, or a tenth of the calls
takes a minute each. Judged at the provider: time, refusals, and how long calls waited although
every limit had room, streams in flight counted to their end.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
from collections.abc import Sequence
from itertools import pairwise
from math import inf
from multiprocessing import get_context
from pathlib import Path
from typing import Final, Literal, cast

from msgspec import Struct
from msgspec.structs import replace

from bench.first import FirstDoor
from bench.markdown import table
from bench.results import PROCESSES, ROOT, say
from bench.scenes import PRESETS, WORKLOADS
from headway.base.codec import as_dict
from headway.base.values import Limit
from headway.engine.state import Rules
from headway.engine.strategy import ADAPTIVE
from headway.pacing.account import AccountConfig
from headway.pacing.calls import AccountCalls
from headway.pacing.estimate import OutputLength
from headway.sim.account import Needs, SimulatedAccount, Terms
from headway.sim.clients import ClientPort, PacedDoor
from headway.sim.draw import Neighbour, uniform
from headway.sim.headers import dialect_of
from headway.sim.provider import Happening, Latency, Provider, ProviderSpec, SimulatedCall
from headway.sim.rehearsal import Rehearsal, Workload, draw_workload
from headway.sim.server import launched, truth_of
from headway.sim.truth import filler

REPORT: Final = ROOT / "docs" / "benchmarks" / "changes.md"
SEEDS: Final = (201, 202, 203)
TASKS: Final = 600
FROM_S: Final = 60.0
"""When something changes."""
SLOW_S: Final = 60.0
SLOW_FACTOR: Final = 5.0
LONG_SHARE: Final = 0.1
LONG_STREAM: Final = 77
LOOK_S: Final = 0.25
"""How often it is looked whether calls wait in vain."""
LOOKED_AT: Final = 5
"""Calls at the head of the queue that must all have room."""
WORSE: Final = 1.03
IDLE_S_MAX: Final = 2.0

Change = Literal["none", "halved", "raised", "neighbour", "slow", "long"]
CHANGES: Final[dict[Change, str]] = {
    "halved": "limits halved after 60 s",
    "raised": "limits raised x 4 after 60 s",
    "neighbour": "a neighbour takes half, 40 s on, 40 s off, from 20 s on",
    "slow": "5 times slower from 60 s to 120 s",
    "long": "10 % of calls take 60 s",
}
WIDE: Final = replace(PRESETS["congested"], name="wide", latency=Latency(1.0, 0.02))
"""Nothing but the provider's speed binds."""
NO_PERIOD: Final = ProviderSpec(
    "10 s windows", Terms(tuple(Limit(one.resource, one.amount / 6, 10.0, "sliding")
                                for one in PRESETS["burst-60s"].terms.limits)),
    dialect="openai",
)  # fmt: skip
PROVIDERS: Final = {
    **{name: PRESETS[name] for name in ("burst-60s", "burst-3s", "fixed-window", "reserved",
                                        "hidden", "cap-7", "congested")},
    "wide": WIDE,
    "10 s windows": NO_PERIOD,
}  # fmt: skip
WIDTH_BOUND: Final = ("cap-7", "congested", "wide")
"""Their rate limits never bind: to change them changes nothing."""
VERSIONS: Final = ("first", "new")


class Case(Struct, frozen=True):
    provider: str
    change: Change
    seed: int
    version: str


class Found(Struct, frozen=True):
    makespan_s: float
    refused: int
    failed: int
    idle_s: float
    """The longest time that calls waited, none was sent, and every limit had room for them."""
    idle_at_s: float
    in_flight: int
    """Calls in flight then: with none the account was at rest."""
    kept: float


class SlowLatency(Latency, frozen=True):
    """A provider that is as many times slower as it was."""

    times: float = 1.0

    def slowdown(self, in_flight: float) -> float:
        return self.times * super().slowdown(in_flight)


class ChangingProvider(Provider):
    """A provider whose speed changes at given times."""

    __slots__ = ("_changes",)

    def __init__(
        self, spec: ProviderSpec, seed: int, changes: Sequence[tuple[float, float]]
    ) -> None:
        super().__init__(spec, seed)
        self._changes = list(changes)

    def next_s(self) -> float:
        return min(super().next_s(), self._changes[0][0] if self._changes else inf)

    def advance(self, now: float) -> list[Happening]:
        happened: list[Happening] = []
        while self._changes and self._changes[0][0] <= now:
            at_s, times = self._changes.pop(0)
            happened += super().advance(at_s)
            was = self.spec.latency
            latency = SlowLatency(
                was.first_byte_s, was.per_output_token_s, was.sigma, was.kappa, was.background,
                times,
            )  # fmt: skip
            self.spec = replace(self.spec, latency=latency)
        return happened + super().advance(now)


class WatchedRehearsal(Rehearsal):
    """Looks, besides, how long calls wait although there is room."""

    def __init__(self, workload: Workload, provider: Provider, door: ClientPort) -> None:
        super().__init__(workload, provider, door, Rules(ADAPTIVE))
        self._look_s, self._is_look = LOOK_S, False
        self._arrived, self._since_s = 0, inf
        self.idle = 0.0, 0.0, 0
        """How long, until when, with how many in flight."""

    def _next_s(self) -> float:
        at_s = super()._next_s()
        self._is_look = self._look_s < at_s
        return min(at_s, self._look_s)

    def _send(self) -> None:
        if not self._is_look:
            super()._send()
            return
        self._look_s += LOOK_S
        self._is_look = False
        arrived = len(self._provider.arrivals)
        waiting = [one.call for one in self._flights.values() if one.kind != "busy"][:LOOKED_AT]
        if arrived != self._arrived or not waiting or not all(map(self._has_room, waiting)):
            self._arrived, self._since_s = arrived, inf
            return
        self._since_s = min(self._since_s, self.now)
        if self.now - self._since_s > self.idle[0]:
            self.idle = self.now - self._since_s, self.now, self._provider.in_flight

    def _has_room(self, call: SimulatedCall) -> bool:
        """Whether each limit has what the call takes, and what is in flight will still take."""
        account, terms = self._provider.account(), self._provider.spec.terms
        is_produced = terms.charging == "produced"
        output = call.output_tokens if is_produced else call.max_tokens
        needs, ahead = Needs(call.input_tokens, output), 0.0
        if is_produced:
            ahead = sum(one.call.output_tokens for one in self._flights.values()
                        if one.kind == "busy")  # fmt: skip
        for limit, meter in account._meters:
            to_come = ahead if limit.resource in ("output", "tokens") else 0.0
            if meter.available(self.now) < needs.of(limit.resource) + to_come:
                return False
        return True


def tasks_for(spec: ProviderSpec) -> int:
    """Enough to be under way when something changes."""
    return 4 * TASKS if spec is WIDE else TASKS


def with_change(terms: Terms, change: Change) -> Terms:
    if change in ("halved", "raised"):
        return replace(terms, changes=((FROM_S, 0.5 if change == "halved" else 4.0),))
    if change == "neighbour":
        return replace(terms, neighbour=Neighbour(0.5, 4, on_s=40.0, off_s=40.0, start_s=20.0))
    return terms


def run_case(case: Case) -> Found:
    spec = PROVIDERS[case.provider]
    workload = draw_workload(replace(WORKLOADS["1000"], tasks=tasks_for(spec)), case.seed)
    terms = with_change(spec.terms, case.change)
    speeds: tuple[tuple[float, float], ...] = ()
    if case.change == "slow":
        speeds = ((FROM_S, SLOW_FACTOR), (FROM_S + SLOW_S, 1.0))
    elif case.change == "long":
        workload = _with_long_calls(workload, spec.latency, case.seed)
    provider = ChangingProvider(replace(spec, terms=terms), case.seed, speeds)
    provider.shows_progress = True
    if case.version == "first":
        door = cast(ClientPort, FirstDoor(spec.dialect))
    else:
        calls = AccountCalls(AccountConfig(dialect_of(spec.dialect)), 0.0)
        door = PacedDoor(calls, OutputLength())
    rehearsal = WatchedRehearsal(workload, provider, door)
    found = rehearsal.run()
    presence = provider.account().presence
    kept = min(1.0, presence.served / presence.wanted) if presence and presence.wanted else 1.0
    return Found(found.makespan_s, found.refused, found.failed, *rehearsal.idle, kept)


def _with_long_calls(workload: Workload, latency: Latency, seed: int) -> Workload:
    """A tenth of the calls writes for a minute."""
    tokens = float(round((60.0 - latency.first_byte_s) / latency.per_output_token_s))
    calls = tuple(
        tuple(
            replace(call, output_tokens=tokens)
            if uniform(seed, LONG_STREAM, call.id) < LONG_SHARE
            else call
            for call in of_task
        )
        for of_task in workload.calls
    )
    return replace(workload, calls=calls)


def cases(
    providers: Sequence[str] = tuple(PROVIDERS), changes: Sequence[Change] = tuple(CHANGES),
    seeds: Sequence[int] = SEEDS,
) -> list[Case]:  # fmt: skip
    return [
        Case(provider, change, seed, version)
        for change in changes
        for provider in providers
        if change in ("slow", "long") or provider not in WIDTH_BOUND
        or (change == "neighbour" and provider == "cap-7")
        for seed in seeds
        for version in VERSIONS
    ]  # fmt: skip


HTTP_CALLS: Final = 500
HTTP_CHANGES: Final[tuple[Change, ...]] = ("halved", "neighbour")
HTTP_TERMS: Final = """
name: {change}
terms:
  limits:
  - {{resource: requests, amount: 600}}
  - {{resource: input, amount: 400000}}
  - {{resource: output, amount: 80000}}
  {more}
latency: {{first_byte_s: 1.0, per_output_token_s: 0.02}}
"""
HTTP_MORE: Final = {
    "halved": f"changes: [[{FROM_S:g}, 0.5]]",
    "neighbour": "neighbour: {share: 0.5, on_s: 40, off_s: 40, start_s: 20}",
}


def over_http(change: Change) -> Found:
    """The same account behind real HTTP, Anthropic's SDK with `pace`, told nothing."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "provider.yaml"
        file.write_text(HTTP_TERMS.format(change=change, more=HTTP_MORE[change]))
        with launched("--provider", str(file), "--model", "tokens-100-700") as url:
            lost = asyncio.run(_call_all(url))
            truth = truth_of(url, "?arrivals=all")
    visits = truth["arrivals"]
    ended_s = max(visit["ended_s"] for visit in visits)
    refused = sum(not visit["is_accepted"] for visit in visits)
    idle = _idle(change, [visit for visit in visits if visit["is_accepted"]])
    return Found(ended_s - visits[0]["at_s"], refused, lost, *idle, 1.0)


async def _call_all(url: str) -> int:
    """All calls at once; how many failed."""
    import anthropic

    from headway import pace
    from headway.client.admission import keep_apart

    keep_apart()
    client = pace(anthropic.AsyncAnthropic(api_key="any", base_url=url))

    async def ask(number: int) -> bool:
        prompt = "".join(filler(1000 + 2000 * number // HTTP_CALLS, number))
        try:
            async with client.messages.stream(
                model="tokens-100-700", max_tokens=1000,
                messages=[{"role": "user", "content": prompt}],
            ) as stream:  # fmt: skip
                await stream.get_final_message()
        except anthropic.AnthropicError as error:
            say(f"lost: {error}")
            return True
        return False

    async with client:
        return sum(await asyncio.gather(*map(ask, range(HTTP_CALLS))))


def _idle(change: Change, visits: Sequence[dict[str, float]]) -> tuple[float, float, int]:
    """The longest time without an arrival although the next call had room, from the server's own
    log: how long, until when, with how many calls in flight."""
    spec = PROVIDERS["burst-60s"]
    terms = with_change(spec.terms, change)
    account = SimulatedAccount(terms, visits[0]["at_s"])
    worst, clock = (0.0, 0.0, 0), visits[0]["at_s"]
    ends = sorted((visit["ended_s"], visit["output_tokens"]) for visit in visits)
    for before, after in pairwise(visits):
        account.admit(Needs(before["input_tokens"], before["output_tokens"]), before["at_s"], "")
        since_s, now = inf, before["at_s"]
        while now < after["at_s"]:
            while (at_s := account.next_change_s(clock)) <= now:
                account.advance(at_s)
                clock = at_s
            while ends and ends[0][0] <= now:
                account.produce(ends[0][1], ends.pop(0)[0], now)
            in_flight = [one for one in visits if one["at_s"] <= now < one["ended_s"]]
            ahead = sum(one["output_tokens"] for one in in_flight)
            needs = Needs(after["input_tokens"], after["output_tokens"] + ahead)
            has_room = all(meter.available(now) >= needs.of(limit.resource)
                           for limit, meter in account._meters)  # fmt: skip
            since_s = min(since_s, now) if has_room else inf
            if now - since_s > worst[0]:
                worst = now - since_s, now, len(in_flight)
            now += LOOK_S
    return worst


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.changes")
    parser.add_argument("--provider", choices=tuple(PROVIDERS), action="append")
    parser.add_argument("--change", choices=tuple(CHANGES), action="append")
    parser.add_argument("--seed", type=int, action="append")
    parser.add_argument("--http", action="store_true", help="only the runs over HTTP")
    parser.add_argument("--json", action="store_true", help="print the numbers only")
    parser.add_argument("--output", type=Path, default=REPORT)
    parsed = parser.parse_args(arguments)
    wanted = cases(
        parsed.provider or tuple(PROVIDERS), parsed.change or tuple(CHANGES), parsed.seed or SEEDS
    )
    found: dict[Case, Found] = {}
    if parsed.http:
        wanted = []
    with get_context("fork").Pool(PROCESSES) as pool:
        for case, one in zip(wanted, pool.imap(run_case, wanted), strict=True):
            found[case] = one
            say(f"{case.change}, {case.provider}, {case.seed}, {case.version}: "
                f"{one.makespan_s:.0f} s, {one.refused} refused, idle {one.idle_s:.1f} s "
                f"at {one.idle_at_s:.0f} s with {one.in_flight} in flight")  # fmt: skip
    if parsed.json:
        print(json.dumps([as_dict(case) | as_dict(one) for case, one in found.items()]))
        return 0
    is_whole = not (parsed.provider or parsed.change or parsed.seed)
    served = {change: over_http(change) for change in HTTP_CHANGES if is_whole}
    text = report(found, served)
    if parsed.output != REPORT or (is_whole and not parsed.http):
        parsed.output.write_text(text)
    print(text)
    return 0


def report(found: dict[Case, Found], served: dict[Change, Found]) -> str:
    parts = [INTRODUCTION]
    for change, words in CHANGES.items():
        rows = []
        for provider in PROVIDERS:
            both = [
                [one for case, one in found.items()
                 if (case.provider, case.change, case.version) == (provider, change, version)]
                for version in VERSIONS
            ]  # fmt: skip
            if all(both):
                rows.append([f"`{provider}`", *_cells(*both)])
        if rows:
            headings = ("provider", "time", "refused", "longest wait with room (in flight)", "")
            parts += [f"## {words}\n", table(headings, rows)]
    if served:
        rows = [
            [CHANGES[change], f"{one.makespan_s:.0f} s", f"{one.refused}", f"{one.failed}",
             f"{one.idle_s:.1f} s ({one.in_flight})"]
            for change, one in served.items()
        ]  # fmt: skip
        parts += [HTTP_WORDS, table(("change", "time", "refused", "lost", "longest wait with room "
                                     "(in flight)"), rows)]  # fmt: skip
    return "\n".join(parts)


def _cells(first: Sequence[Found], new: Sequence[Found]) -> list[str]:
    """First version -> new law, the mean of the seeds; of waits the longest."""
    times = [sum(one.makespan_s for one in these) / len(these) for these in (first, new)]
    refused = [sum(one.refused for one in these) / len(these) for these in (first, new)]
    idle = [max(these, key=lambda one: one.idle_s) for these in (first, new)]
    notes = []
    if times[1] > WORSE * times[0]:
        notes.append(f"{times[1] / times[0] - 1:.0%} slower")
    kept = [sum(one.kept for one in these) / len(these) for these in (first, new)]
    if min(kept) < 1.0:
        notes.append(f"the neighbour had {kept[0]:.0%} -> {kept[1]:.0%} of its share")
    if idle[1].idle_s > max(IDLE_S_MAX, idle[0].idle_s):
        notes.append("waits longer")
    if any(one.failed for one in new):
        notes.append("lost calls")
    return [
        f"{times[0]:.0f} -> {times[1]:.0f} s",
        f"{refused[0]:.0f} -> {refused[1]:.0f}",
        " -> ".join(f"{one.idle_s:.1f} s ({one.in_flight})" for one in idle),
        ", ".join(notes),
    ]


HTTP_WORDS: Final = f"""## Over HTTP

`headway sim serve` with the limits of `burst-60s`, {HTTP_CALLS} calls by Anthropic's SDK, paced
within one process; from the server's log.
"""

INTRODUCTION: Final = f"""# What changes under way

Generated by `python -m bench.changes`; edits are overwritten. Virtual time, {TASKS} calls (`wide`:
{4 * TASKS}), with no limits configured; first version -> new law, means of {len(SEEDS)} seeds.
*Longest wait with room*: calls waited, none was sent, and each limit had what the first {LOOKED_AT}
of them take, besides all that is in flight, which is in brackets; where a cap or a width binds,
calls wait for an answer.
"""


if __name__ == "__main__":
    sys.exit(main())
