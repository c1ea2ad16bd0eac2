"""A crowd of coding agents and a provider that serves two calls at once: what each side saw."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import Any, Final

from msgspec import Struct

from headway.sim.server import launched, truth_of
from tests.agents.agents import CLAUDE, CODEX, OPENCODE, Client, Urls
from tests.agents.crowd import Turn, crowd
from tests.agents.gate import gateway

CONCURRENT: Final = 2
CALL_S: Final = 3.0
STEPS: Final = 3
"""Commands that every agent runs, one call each, and one more call to tell what they gave."""

WITHIN_S: Final = 900.0
PER_TOKEN_S: Final = 1e-6

CROWDS: Final[Mapping[str, tuple[tuple[Client, int], ...]]] = {
    "22 opencode": ((OPENCODE, 22),),
    "8 Codex": ((CODEX, 8),),
    "8 Claude Code": ((CLAUDE, 8),),
    "all 38 at once": ((OPENCODE, 22), (CODEX, 8), (CLAUDE, 8)),
}


class Figures(Struct, frozen=True):
    """What became of the agents of one kind in a crowd: they share an account."""

    client: str
    agents: int
    finished: int
    calls: int
    refused: int
    duplicates: int
    """Bodies that reached the provider more than once, beyond their first arrival."""
    cancelled: int
    ideal_s: float
    """All calls that were answered, as fast as the account can serve them."""
    startup_s: float
    """Until the first call reached the provider: before that, nobody could have been faster."""
    makespan_s: float
    fastest_s: float
    slowest_s: float
    """Of those that finished, from the start of the process to its end."""
    failures: tuple[str, ...] = ()

    @property
    def over_ideal(self) -> float:
        """The makespan without the start, as a multiple of the ideal."""
        return (self.makespan_s - self.startup_s) / self.ideal_s if self.ideal_s else 0.0

    @property
    def spread(self) -> float:
        return self.slowest_s / self.fastest_s


def scene(name: str, paced: bool) -> list[Figures]:
    """Start a crowd, through the gateway or without it; figures for each kind of agent."""
    kinds = CROWDS[name]
    who = [client for client, count in kinds for _ in range(count)]
    provider = ("--model", "agent", "--concurrent", str(CONCURRENT),
                "--first-byte-s", str(CALL_S), "--per-token-s", str(PER_TOKEN_S))  # fmt: skip
    with ExitStack() as stack:
        url = stack.enter_context(launched(*provider))
        urls = Urls.all_at(url)
        if paced:
            urls = stack.enter_context(gateway(url, f"concurrent={CONCURRENT}")).urls
        began_s = float(truth_of(url, "?arrivals=0")["up_s"])
        turns = crowd(who, urls, STEPS, WITHIN_S)
        visits = truth_of(url, "?arrivals=all")["arrivals"]
    return [figures(client, turns, visits, began_s) for client, _ in kinds]


def figures(
    client: Client, turns: Sequence[Turn], visits: Sequence[Mapping[str, Any]], began_s: float
) -> Figures:
    """What the agents of one kind and the provider say."""
    turns = [turn for turn in turns if turn.client == client.name]
    visits = [visit for visit in visits if visit["wire"] == client.wire]
    bodies = Counter(visit["body"] for visit in visits)
    ends = Counter(visit["how"] for visit in visits)
    took = [turn.took_s for turn in turns if turn.is_finished] or [float("nan")]
    failed = [turn for turn in turns if not turn.is_finished]
    return Figures(
        client=client.name,
        agents=len(turns),
        finished=len(turns) - len(failed),
        calls=len(visits),
        refused=ends["refused"],
        duplicates=sum(count - 1 for count in bodies.values()),
        cancelled=ends["cancelled"],
        ideal_s=ends["whole"] * CALL_S / CONCURRENT,
        startup_s=min((visit["at_s"] for visit in visits), default=began_s) - began_s,
        makespan_s=max(turn.took_s for turn in turns),
        fastest_s=min(took),
        slowest_s=max(took),
        failures=tuple(f"status {turn.status}: {turn.output}" for turn in failed),
    )
