"""Streams that end in every way: each permit ends, and usage is what the provider reported."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import headway
from headway.base.codec import as_dict
from headway.base.values import Limit
from headway.client.accounts import account_name
from headway.pacing.memory import AccountTerms
from headway.pacing.view import AdmissionView
from headway.sim.server import account_of, launched, truth_of
from tests.integration.broker_home import Home, until
from tests.integration.shared_caller import KILLED, WAYS, Ended, Errand, key_of

SPEED = ("--concurrent", "60", "--first-byte-s", "0.05", "--per-token-s", "0.002")


def begin(errand: Errand) -> subprocess.Popen[str]:
    """A process of its own; the variables say which broker it shares."""
    source = Path(headway.__file__).parent.parent
    root = Path(__file__).parents[2]
    return subprocess.Popen(
        [sys.executable, "-m", "tests.integration.shared_caller", json.dumps(as_dict(errand))],
        stdout=subprocess.PIPE,
        text=True,
        cwd=root,
        env=os.environ | {"PYTHONPATH": f"{source}{os.pathsep}{root}"},
    )


def hear(process: subprocess.Popen[str]) -> Ended:
    """What it has seen, once it is in the middle of its last streams."""
    assert process.stdout is not None
    return Ended(**json.loads(process.stdout.readline()))


def kill(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.wait()
    if process.stdout is not None:
        process.stdout.close()


def counted(view: AdmissionView, url: str, key: str) -> float:
    """Tokens of an account, as the broker's ledger has them."""
    host = url.removeprefix("http://")
    name = account_name(host, {"authorization": f"Bearer {key}"})[0]
    return dict(view.ledgers)[name].spent.tokens


def reported(account: dict[str, Any]) -> int:
    """Tokens of an account, as whole answers reported them."""
    told = account["reported"]
    return sum(told[name] for name in ("input_tokens", "cache_read_tokens", "output_tokens"))


def end_streams_in_every_way(here: Home, streams: int, left: int) -> None:
    """So many streams of each SDK, with threads and with a loop; all processes are killed."""
    with ExitStack() as stack:
        url = stack.enter_context(launched(*SPEED))
        errands = [
            Errand(url, sdk, is_async, streams, left)
            for sdk in ("openai", "anthropic")
            for is_async in (False, True)
        ]
        port = here.port()
        port.configure("", AccountTerms(limits=(Limit("concurrency", 60, 0.0, "gauge"),)))
        processes = [begin(errand) for errand in errands]
        for process in processes:
            stack.callback(kill, process)
        ended = [hear(process) for process in processes]
        for process in processes:
            kill(process)
        until(lambda: in_flight(port.describe()[0]) == 0)
        until(lambda: truth_of(url)["in_flight"] == 0)
        view, truth = port.describe()[0], truth_of(url)
    assert [one.in_use for one in ended] == [0] * len(errands)
    assert all(sum(one.by_way.values()) == streams for one in ended)
    # What a closed connection did not take is sent again with a permit of its own.
    assert sum(one.granted for one in view.accounts) >= len(errands) * (streams + left)
    assert all(ledger.claimed.tokens == 0 for _, ledger in view.ledgers)
    for errand, one in zip(errands, ended, strict=True):
        accounts = {
            way: truth["accounts"][account_of(key_of(errand, way))] for way in (*WAYS, KILLED)
        }
        calls = {way: account["calls"] for way, account in accounts.items()}
        assert calls == one.by_way | {KILLED: left}
        assert all(account["refused"] == {} for account in accounts.values())
        assert accounts["read"]["whole"] == one.by_way["read"]
        assert counted(view, url, key_of(errand, "read")) == reported(accounts["read"])
        # A stream that is forgotten goes on until it is collected: the provider may end first.
        forgotten = accounts["forget"]
        assert forgotten["cancelled"] + forgotten["whole"] == one.by_way["forget"]
        for way in ("break", "cancel", "cancel twice"):
            assert accounts[way]["cancelled"] == one.by_way[way], (errand, way, accounts[way])


def in_flight(view: AdmissionView) -> int:
    return sum(one.in_flight for one in view.accounts)


def test_no_permit_is_left_however_streams_end_and_usage_is_what_was_reported(here: Home) -> None:
    end_streams_in_every_way(here, streams=2 * len(WAYS), left=4)
