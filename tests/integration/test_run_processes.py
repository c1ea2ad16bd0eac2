"""Real processes of `headway run` on an account with a usage window: they end, or wait for it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from headway.base.values import HOUR_S
from headway.sim.account import Terms, UsageWindow
from headway.sim.models import SimulatedModels
from headway.sim.provider import Latency, ProviderSpec
from headway.sim.server import ServeOptions, account_of, serving, truth_of
from tests.integration.strangers_shell import Stranger

PLAN = """\
headway: 1
tasks:
  ask:
    each: {lines: items.txt}
    prompt: "say something about {{ item }}"
    model: anthropic/claude-x
    max_tokens: 50
"""


def write_plan(stranger: Stranger, count: int, provider: str = "anthropic") -> None:
    stranger.write("plan.yaml", PLAN.replace("anthropic", provider))
    stranger.write("items.txt", "".join(f"item-{n}\n" for n in range(count)))


@contextmanager
def windowed(
    window: UsageWindow, dialect: str = "anthropic"
) -> Iterator[tuple[str, dict[str, str]]]:
    """A provider whose account has a usage window, and how it is called."""
    spec = ProviderSpec("t", Terms(windows=(window,)), Latency(0.05, 0.0001))
    options = ServeOptions(models=SimulatedModels(default="tokens-50"), dialect=dialect)
    with serving(spec, options) as url:
        yield url, {
            "ANTHROPIC_BASE_URL": url, "ANTHROPIC_API_KEY": "k",
            "OPENAI_BASE_URL": f"{url}/v1", "OPENAI_API_KEY": "k",
        }  # fmt: skip


def test_an_empty_window_that_may_not_be_awaited_ends_with_75_and_its_reset(
    stranger: Stranger,
) -> None:
    write_plan(stranger, 30)
    began_s = time.time()
    # Each call takes 11 tokens in and 50 out: the fifth one's answer tells that nothing is left.
    with windowed(UsageWindow(4 * 61 + 5)) as (url, more):
        said = stranger(
            "run", "plan.yaml", "--yes", "--no-wait", "--strategy", "fixed:1",
            "--window-share", "100%", **more,
        )  # fmt: skip
        assert said.code == 75, said.err
        told = truth_of(url, "?arrivals=all")
    resets_s = (began_s + 5 * HOUR_S, time.time() + 5 * HOUR_S)
    shown = [time.strftime("%Y-%m-%d %H:%M", time.localtime(at_s)) for at_s in resets_s]
    assert any(f"it resets at {one}" in said.err for one in shown), said.err
    assert [visit["how"] for visit in told["arrivals"]] == ["whole"] * 5
    tasks = stranger.status()["tasks"]
    assert (tasks["done"], tasks.get("failed", 0)) == (5, 0)


@pytest.mark.parametrize(
    ("name", "dialect", "provider"),
    [("5h", "anthropic", "anthropic"), ("lunar", "anthropic", "anthropic"),
     ("5h", "codex", "openai")],
)  # fmt: skip
def test_a_run_waits_for_the_next_window_and_finishes(
    stranger: Stranger, name: str, dialect: str, provider: str
) -> None:
    write_plan(stranger, 12, provider)
    with windowed(UsageWindow(300.0, name, lasts_s=4.0), dialect) as (url, more):
        said = stranger("run", "plan.yaml", "--yes", "--window-share", "100%", **more)
        assert said.code == 0, said.err
        told = truth_of(url, "?arrivals=all")
    assert stranger.status()["tasks"] == {"total": 12, "done": 12}
    account = told["accounts"][account_of("k")]
    assert account["whole"] == 12
    assert account["refused"]
    arrivals = [(visit["at_s"], visit["how"]) for visit in told["arrivals"]]
    first_s = min(at_s for at_s, _ in arrivals)
    refused_s = min(at_s for at_s, how in arrivals if how == "refused")
    # Those that had left before the first refusal came back; then none until the window ended.
    assert not [at_s for at_s, _ in arrivals if refused_s + 1.0 < at_s < first_s + 3.9]
    assert max(at_s for at_s, _ in arrivals) >= first_s + 3.9
