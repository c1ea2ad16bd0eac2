"""Real processes of `headway run` and `headway each`: how signals, budgets and windows end them."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from msgspec import Struct

import headway
from headway.engine.record import TaskRow
from headway.journal.folder import list_runs
from headway.journal.reader import JournalReader
from headway.pacing.headers import WINDOW_5H_S
from headway.sim.account import Terms, UsageWindow
from headway.sim.models import SimulatedModels
from headway.sim.provider import Latency, ProviderSpec
from headway.sim.server import ServeOptions, account_of, serving, truth_of

SOON_S = 60.0


class Home(Struct, frozen=True):
    """A folder for plans, with its own state and broker."""

    folder: Path

    def environment(self, **more: str) -> dict[str, str]:
        (self.folder / "r").mkdir(exist_ok=True, mode=0o700)
        return {
            **os.environ,
            "PYTHONPATH": str(Path(headway.__file__).parents[1]),
            "HEADWAY_STATE_DIR": str(self.folder / "state"),
            "HEADWAY_RUNTIME_DIR": str(self.folder / "r"),
            **more,
        }

    def start(self, *words: str, **more: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-m", "headway", *words], cwd=self.folder, text=True,
            env=self.environment(**more), stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True,
        )  # fmt: skip

    def run(self, *words: str, **more: str) -> tuple[int, str, str]:
        with self.start(*words, **more) as process:
            said, complained = process.communicate(timeout=60)
        return process.returncode, said, complained

    def rows(self) -> list[TaskRow]:
        (place,) = list_runs(str(self.folder / "state"))
        with JournalReader(place.folder) as reader:
            return list(reader.rows())

    def happened(self, kind: str) -> bool:
        """Whether the journal has an event of a kind."""
        (place,) = list_runs(str(self.folder / "state"))
        with JournalReader(place.folder) as reader:
            return any(reader.events(kinds=(kind,)))

    def lines(self, name: str) -> list[str]:
        path = self.folder / name
        return path.read_text().split() if path.exists() else []


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path)


def until(is_so: Callable[[], bool], within_s: float = SOON_S) -> None:
    deadline_s = time.monotonic() + within_s
    while not is_so():
        assert time.monotonic() < deadline_s, f"not so after {within_s} s"
        time.sleep(0.02)


WAITS = "echo {} >> began; while [ ! -e go ]; do sleep 0.05; done; echo {} >> ended"


PROMPTS = """\
headway: 1
tasks:
  ask:
    each: {{lines: items.txt}}
    prompt: "say something about {{{{ item }}}}"
    model: openai/{model}
    max_tokens: {max_tokens}
"""


def prompts(home: Home, count: int, model: str, max_tokens: int) -> None:
    (home.folder / "plan.yaml").write_text(PROMPTS.format(model=model, max_tokens=max_tokens))
    (home.folder / "items.txt").write_text("".join(f"item-{n}\n" for n in range(count)))


def on_anthropic(home: Home, count: int) -> None:
    prompts(home, count, "x", 50)
    plan = home.folder / "plan.yaml"
    plan.write_text(plan.read_text().replace("openai/x", "anthropic/claude-x"))


@contextmanager
def windowed(window: UsageWindow) -> Iterator[tuple[str, dict[str, str]]]:
    """A provider whose account has a usage window, and how it is called."""
    spec = ProviderSpec("t", Terms(windows=(window,)), Latency(0.05, 0.0001))
    with serving(spec, ServeOptions(models=SimulatedModels(default="tokens-50"))) as url:
        yield url, {"ANTHROPIC_BASE_URL": url, "ANTHROPIC_API_KEY": "k"}


def test_an_empty_window_that_may_not_be_awaited_ends_with_75_and_its_reset(home: Home) -> None:
    on_anthropic(home, 30)
    began_s = time.time()
    # Each call takes 11 tokens in and 50 out: the fifth one's answer tells that nothing is left.
    with windowed(UsageWindow(4 * 61 + 5)) as (url, more):
        words = ("run", "plan.yaml", "--yes", "--no-wait", "--strategy", "fixed:1")
        code, _, complained = home.run(*words, **more)
        assert code == 75, complained
        told = truth_of(url, "?arrivals=all")
    resets_s = (began_s + WINDOW_5H_S, time.time() + WINDOW_5H_S)
    shown = [time.strftime("%Y-%m-%d %H:%M", time.localtime(at_s)) for at_s in resets_s]
    assert any(f"it resets at {one}" in complained for one in shown), complained
    assert [visit["how"] for visit in told["arrivals"]] == ["whole"] * 5
    states = [row.state for row in home.rows()]
    assert states.count("finished") == 5
    assert "failed" not in states


def test_a_run_waits_for_the_next_window_and_finishes(home: Home) -> None:
    on_anthropic(home, 12)
    with windowed(UsageWindow(300.0, lasts_s=4.0)) as (url, more):
        code, _, complained = home.run("run", "plan.yaml", "--yes", **more)
        assert code == 0, complained
        told = truth_of(url, "?arrivals=all")
    assert [row.state for row in home.rows()] == ["finished"] * 12
    account = told["accounts"][account_of("k")]
    assert account["whole"] == 12
    assert account["refused"]
    assert max(visit["at_s"] for visit in told["arrivals"]) > 4.0
