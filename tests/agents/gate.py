"""A gateway as users start it, with a broker of its own, for as long as a test lasts."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final
from urllib.request import urlopen

from msgspec import Struct
from msgspec.structs import replace

from bench.sharing_crowd import place_of_its_own
from tests.agents.agents import ROOT, Client, Urls

COMMAND_S_MAX: Final = 30.0


class Gate(Struct, frozen=True):
    base: str
    env: Mapping[str, str]
    """For other commands of headway that shall meet it."""

    @property
    def urls(self) -> Urls:
        return Urls(*(f"{self.base}/{name}" for name in ("anthropic", "openai", "gemini")))

    def status(self) -> dict[str, Any]:
        with urlopen(f"{self.base}/status") as response:
            found: dict[str, Any] = json.loads(response.read())
        return found


def headway(env: Mapping[str, str], *arguments: str) -> str:
    command = [sys.executable, "-m", "headway", *arguments]
    done = subprocess.run(
        command, env=env, capture_output=True, text=True, timeout=COMMAND_S_MAX, check=False
    )
    if done.returncode:
        raise AssertionError(f"headway {' '.join(arguments)}: {done.stderr}")
    return done.stdout


@contextmanager
def own_place() -> Iterator[dict[str, str]]:
    """The variables of a headway that shares nothing with the user's."""
    with place_of_its_own() as place:
        yield {
            "PYTHONPATH": os.pathsep.join((str(ROOT / "src"), str(ROOT))),
            "HEADWAY_RUNTIME_DIR": place.runtime,
            "HEADWAY_STATE_DIR": place.state,
        }


def under(client: Client, env: Mapping[str, str]) -> Client:
    """The same client, started as `headway gateway -- CLIENT`; its own configuration stays."""
    start = (sys.executable, "-m", "headway", "gateway", "--")
    return replace(
        client,
        arguments=lambda prompt: (*start, *client.arguments(prompt)),
        prepared=lambda home, urls: {**client.prepared(home, urls), **env},
    )


@contextmanager
def gateway(upstream: str, *limits: str) -> Iterator[Gate]:
    """A gateway in front of a provider whose limits the user has told it: `concurrent=2`."""
    with own_place() as place:
        env = os.environ | place
        if limits:
            headway(env, "limits", "set", *limits)
        headway(env, "gateway", "--upstream", upstream, "--port", "0", "--detach")
        try:
            told = json.loads(headway(env, "gateway", "env", "--json"))
            yield Gate(told["HEADWAY_GATEWAY"], env)
        finally:
            headway(env, "gateway", "--drain", "1s", "stop")
