"""Record through the gateway, replay through it: the same answers, and nothing is paid again."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from headway.sim.account import Terms
from headway.sim.provider import Latency, ProviderSpec
from headway.sim.server import serving, truth_of
from headway.testing import FakeAdmission
from tests.integration.gateway_home import GatewayHome, asked, claude, gateway_to, gpt

SPEC = ProviderSpec("taped", Terms(()), Latency(0.01, 1e-4))


def conversation(home: GatewayHome, last: str = "three") -> list[str]:
    """Three calls: whole, streamed, and on another wire."""
    with (
        claude(home.bases) as one,
        gpt(home.bases) as other,
    ):
        first = one.messages.create(model="hash", max_tokens=99, messages=asked("one"))
        with one.messages.stream(model="hash", max_tokens=99, messages=asked("two")) as stream:
            second = stream.get_final_text()
        third = other.chat.completions.create(model="hash", messages=asked(last))
    block = first.content[0]
    assert block.type == "text"
    return [block.text, second, third.choices[0].message.content or ""]


def calls(url: str) -> int:
    return sum(account["calls"] for account in truth_of(url)["accounts"].values())


def test_what_was_recorded_is_replayed_and_not_paid_again(tmp_path: Path) -> None:
    tape = str(tmp_path / "tape")
    with serving(SPEC) as url:
        with gateway_to(url, FakeAdmission(), record=tape) as home:
            recorded = conversation(home)
        assert calls(url) == 3
        admission = FakeAdmission()
        with gateway_to(url, admission, replay=tape) as home:
            assert conversation(home) == recorded
            assert home.key.totals is not None
            assert home.key.totals.replayed == 3
            assert home.key.totals.calls == 0
        assert calls(url) == 3
    assert admission.calls == []
    assert os.stat(tape).st_mode & 0o777 == 0o600
    assert b'"k"' not in Path(tape).read_bytes()


def test_the_first_difference_ends_the_replay_of_its_stream(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    tape = str(tmp_path / "tape")
    with serving(SPEC) as url:
        with gateway_to(url, FakeAdmission(), record=tape) as home:
            conversation(home)
        with gateway_to(url, FakeAdmission(), replay=tape) as home:
            conversation(home, last="another")
            assert home.key.totals is not None
            assert home.key.totals.replayed == 2
            assert "not as recorded" in caplog.text, "as soon as it happens"
        assert calls(url) == 4
