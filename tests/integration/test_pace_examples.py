"""The examples do what they say: everything is answered when paced, and much is lost when not."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headway.base.values import Limit
from headway.sim.account import Terms
from headway.sim.provider import Latency, ProviderSpec
from headway.sim.server import account_of, serving, truth_of

ROOT = Path(__file__).resolve().parents[2]
LIMITS = (Limit("requests", 600, burst=5), Limit("concurrency", 5, 0, "gauge"))
SPEC = ProviderSpec("test", Terms(LIMITS), Latency(0.1, 0.0005))


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with serving(SPEC) as found:
        yield found


def run(url: str, folder: Path, key: str, *command: str) -> dict[str, Any]:
    """Run an example with a broker of its own, which goes when the example has gone."""
    environment = os.environ | {
        "PYTHONPATH": str(ROOT / "src"),
        "OPENAI_BASE_URL": f"{url}/v1",
        "ANTHROPIC_BASE_URL": url,
        "OPENAI_API_KEY": key,
        "ANTHROPIC_API_KEY": key,
        "HEADWAY_RUNTIME_DIR": str(folder / "run"),
        "HEADWAY_STATE_DIR": str(folder / "state"),
        "HEADWAY_IDLE_S": "0.5",
    }
    script, *options = command
    ended = subprocess.run(
        [sys.executable, str(ROOT / "examples" / script), *options, "--json"],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
        timeout=300,
    )
    found: dict[str, Any] = json.loads(ended.stdout)
    return found


def test_threads_lose_nothing_when_paced(url: str, tmp_path: Path) -> None:
    told = run(url, tmp_path, "threads", "threads.py", "--tasks", "20", "--anthropic")
    assert (told["tasks"], told["failures"]) == (20, 0)
    assert truth_of(url)["accounts"][account_of("threads")]["whole"] == 20


def test_threads_lose_tasks_when_not_paced(url: str, tmp_path: Path) -> None:
    assert run(url, tmp_path, "rush", "threads.py", "--tasks", "40", "--unpaced")["failures"] > 0


def test_processes_that_share_an_account_lose_nothing(url: str, tmp_path: Path) -> None:
    command = ("processes.py", "--tasks", "16", "--processes", "4")
    told = run(url, tmp_path, "processes", *command)
    assert (told["tasks"], told["failures"]) == (16, 0)
    account = truth_of(url)["accounts"][account_of("processes")]
    assert account["whole"] == 18
    assert sum(account["refused"].values()) <= 3


@pytest.mark.parametrize("context", ["1200", "4k"])
def test_an_agent_plans_headway_executes_and_an_agent_summarises(
    url: str, tmp_path: Path, context: str
) -> None:
    command = ("plan_execute_summarize.py", "--sim", "--context", context)
    told = run(url, tmp_path, "planned", *command)
    assert (told["tasks"], told["sources"]) == (30, 30)
    assert (told["calls"]["plan"], told["calls"]["execute"]) == (1, 30)
    assert (told["calls"]["summarise"] > 1) is (context == "1200")
    assert told["summary"].startswith("30 repositories")
