"""Calls of coding agents that the gateway holds: somebody has the only place for minutes."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from threading import Timer
from typing import Any, Final
from urllib.request import Request, urlopen

from msgspec import Struct

from headway.sim.server import launched, truth_of
from tests.agents.agents import CLIENTS, KEYS, Client, Urls
from tests.agents.crowd import Turn, crowd
from tests.agents.gate import Gate, gateway

PROVIDER: Final = ("--model", "agent", "--concurrent", "1", "--first-byte-s", "0.05")
AFTER_S_MAX: Final = 120.0
"""What a turn may take beside the hold."""

OPEN_S: Final = 60.0
ASKED: Final = [{"role": "user", "content": "Wait."}]
PATHS: Final = {
    "anthropic": ("anthropic", "/v1/messages"),
    "openai-responses": ("openai", "/v1/responses"),
    "openai-chat": ("openai", "/v1/chat/completions"),
    "gemini": ("gemini", "/v1beta/models/{model}:streamGenerateContent?alt=sse"),
}


class Held(Struct, frozen=True):
    """What one hold of a client came to."""

    turn: Turn
    hold_s: float
    calls: int
    resent: int
    """Bodies that reached the provider more than once."""
    failed: int
    """Calls that did not end whole, without the one that had the place."""


def models(clients: Iterable[Client]) -> set[tuple[str, str]]:
    """The models that each wire's client calls: their quotas are what has to be blocked."""
    with launched(*PROVIDER) as url:
        crowd(list(clients), Urls.all_at(url))
        visits = truth_of(url, "?arrivals=all")["arrivals"]
    return {(str(visit["wire"]), str(visit["model"])) for visit in visits}


def held(hold_s: float, clients: Iterable[Client] = CLIENTS) -> dict[str, Held]:
    """Start the clients when the only place of their account is taken, and give it back later."""
    who = list(clients)
    wanted = models(who)
    with launched(*PROVIDER) as url, gateway(url, "concurrent=1") as gate:
        with blocked(gate, wanted) as blockers:
            timer = Timer(hold_s, blockers.close)
            timer.start()
            turns = crowd(who, gate.urls, 1, hold_s + AFTER_S_MAX)
            timer.cancel()
        truth = truth_of(url, "?arrivals=all")
        again = int(gate.status()["resent"])
    assert again == 0, f"clients sent {again} calls to the gateway again"
    return {turn.client: _held(turn, client, hold_s, truth)
            for turn, client in zip(turns, who, strict=True)}  # fmt: skip


def _held(turn: Turn, client: Client, hold_s: float, truth: Mapping[str, Any]) -> Held:
    visits = [v for v in truth["arrivals"] if v["wire"] == client.wire and not v["faults"]]
    bodies = {visit["body"] for visit in visits}
    failed = sum(visit["how"] != "whole" for visit in visits)
    return Held(turn, hold_s, len(visits), len(visits) - len(bodies), failed)


@contextmanager
def blocked(gate: Gate, wanted: Iterable[tuple[str, str]]) -> Iterator[ExitStack]:
    """Streams that stop in their middle and keep their places until they are closed."""
    with ExitStack() as stack:
        for wire, model in wanted:
            stack.enter_context(urlopen(_request(gate, wire, model), timeout=OPEN_S))
        yield stack


def _request(gate: Gate, wire: str, model: str) -> Request:
    name, path = PATHS[wire]
    body: dict[str, object] = {"model": model, "stream": True, "max_tokens": 50, "messages": ASKED}
    if wire == "openai-responses":
        body = {"model": model, "stream": True, "input": "Wait."}
    if wire == "gemini":
        body = {"contents": [{"role": "user", "parts": [{"text": "Wait."}]}]}
    key = KEYS[wire]
    headers = {
        "content-type": "application/json",
        "user-agent": "curl/8.0",
        "x-sim-fault": "stall",
    }
    named = {"anthropic": "x-api-key", "gemini": "x-goog-api-key"}.get(wire)
    headers |= {named: key} if named else {"authorization": f"Bearer {key}"}
    url = f"{gate.base}/{name}{path.format(model=model)}"
    return Request(url, json.dumps(body).encode(), headers, method="POST")
