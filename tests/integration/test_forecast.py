"""Forecasts over real HTTP: a run teaches, a check foresees, a run shows; and whoever is spoilt."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from shutil import copytree
from subprocess import DEVNULL, Popen
from sys import executable
from typing import Any

import pytest
from msgspec import Struct

from headway.journal.documents import FORECAST, SOURCE, kept, source_of
from headway.journal.reader import JournalReader
from headway.report.forecast import Foreseen
from headway.sim.server import launched, truth_of
from tests.integration.strangers_shell import Said, Stranger
from tests.integration.written_runs import put_document

LEARNED, FORESEEN = 15, 26
WITHIN_S = 60.0
MODEL = "anthropic/claude-haiku-4-5"
PLAN = f"""\
headway: 1
name: forecast
model: {MODEL}
tasks:
  ask:
    each: {{lines: items.txt}}
    prompt: "{{{{ item }}}}"
    max_tokens: 200
"""
LIMITS = ("--rpm", "60", "--itpm", "100k", "--first-byte-s", "0.8", "--per-token-s", "0.002")


class Scene(Struct, frozen=True):
    """A user who has run a plan twice, and what was said meanwhile."""

    stranger: Stranger
    url: str
    learned: Said
    blind: dict[str, Any]
    checked: dict[str, Any]
    sent: tuple[int, int]
    """Calls at the provider before and after the check."""
    live: list[dict[str, Any]]
    status: dict[str, Any]

    def told(self, *arguments: str) -> Said:
        return self.stranger(*arguments, **told(self.url))


def told(url: str) -> dict[str, str]:
    return {"ANTHROPIC_BASE_URL": url, "ANTHROPIC_API_KEY": "k"}


def items(first: int, count: int) -> str:
    words = ["the", "quick", "brown", "fox", "jumps", "over", "lazy", "dogs"]
    return "".join(
        f"{number} {' '.join(words * (1 + number % 7))}\n" for number in range(first, first + count)
    )


def calls(url: str) -> int:
    return int(truth_of(url, "?arrivals=0")["arrivals_total"])


def looked_at(stranger: Stranger, url: str) -> list[dict[str, Any]]:
    """The plan is run; what `status` says while the end is told."""
    command = [executable, "-m", "headway", "run", "plan.yaml", "--yes", "-j", "2"]
    command.append("--forecast")
    found = list[dict[str, Any]]()
    environment = stranger.environment | told(url)
    with Popen(command, cwd=stranger.here, env=environment, stdout=DEVNULL, stderr=DEVNULL) as run:
        until_s = time.monotonic() + WITHIN_S
        while run.poll() is None and time.monotonic() < until_s:
            said = json.loads(stranger("status", "--json", **told(url)).out)
            if said.get("eta_s") is not None:
                found.append(said)
        run.kill()
    return found


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    stranger = Stranger(tmp_path_factory.mktemp("forecast"))
    stranger.write("plan.yaml", PLAN)
    stranger.write("items.txt", items(0, LEARNED))
    with launched(*LIMITS) as url:
        asked = ("check", "plan.yaml", "--forecast", "--json")
        blind = json.loads(stranger(*asked, **told(url)).out)
        learned = stranger("run", "plan.yaml", "--yes", **told(url))
        assert learned.code == 0, learned.err
        stranger.write("items.txt", items(100, FORESEEN))
        before = calls(url)
        checked = json.loads(stranger(*asked, **told(url)).out)
        after = calls(url)
        live = looked_at(stranger, url)
        status = json.loads(stranger("status", "--json", **told(url)).out)
        yield Scene(stranger, url, learned, blind["forecast"], checked["forecast"],
                    (before, after), live, status)  # fmt: skip


def kept_in(scene: Scene) -> list[Foreseen]:
    """What runs foresaw of themselves."""
    found = map(foreseen_in, sorted(scene.stranger.runs()))
    return [one for one in found if one is not None]


def foreseen_in(run: Path) -> Foreseen | None:
    with JournalReader(str(run)) as reader:
        return kept(reader, FORECAST, Foreseen)


def test_before_anything_ran_everything_is_assumed_and_said(scene: Scene) -> None:
    blind = scene.blind
    assert (blind["tasks"], blind["learned_calls"]) == (LEARNED, 0)
    assert len(blind["assumed"]) == 2
    # Nothing is known of the account: its limits may make the run take any time.
    (why,) = blind["unknown"]
    assert why == f"the limits of {blind['account']} are unknown: no call was made yet"
    assert blind["account"].startswith("server#")
    assert blind["time_s"]["high"] > 1.5 * blind["time_s"]["low"]
    # A run computes no forecast by default.
    assert "takes about" not in scene.learned.err


def test_a_run_teaches_what_the_next_one_takes(scene: Scene) -> None:
    assert scene.sent == (LEARNED, LEARNED), "a check sends nothing"
    found = scene.checked
    assert (found["tasks"], found["learned_calls"]) == (FORESEEN, LEARNED)
    assert found["unknown"] == []
    assert found["learned_from"] == "1 earlier run"
    assert found["bound_s"] <= found["time_s"]["mid"]
    status = scene.status
    assert status["state"] == "done"
    assert status["tasks"]["done"] == FORESEEN
    # It was told to make two calls at once, and that was foreseen when it began. The machine may
    # be busy: longer than foreseen says little, shorter is a mistake.
    (foreseen,) = kept_in(scene)
    assert (foreseen.strategy, foreseen.binding) == ("fixed:2", "width")
    assert foreseen.time_s.mid > found["time_s"]["mid"]
    assert 0.7 * foreseen.time_s.low < status["elapsed_s"]
    assert found["microusd"]["mid"] == pytest.approx(status["usd"] * 1e6, rel=0.3)
    assert found["input_tokens"]["mid"] == pytest.approx(status["input_tokens"], rel=0.15)
    assert found["output_tokens"]["mid"] == pytest.approx(status["output_tokens"], rel=0.5)
    # The first run was started without `--forecast`; the second kept its own, and reports it.
    assert foreseen_in(min(scene.stranger.runs())) is None
    assert "foreseen" in json.dumps(json.loads(scene.told("report", "--json").out))


def test_while_it_goes_on_the_end_is_told_beside_the_bound(scene: Scene) -> None:
    assert scene.live
    for live in scene.live:
        assert live["state"] == "running"
        assert 0.0 <= live["eta_s"] < WITHIN_S
        assert "waits_for" in live
    # Between two calls of a run its account may be nobody's.
    bounds = [(one["bound_s"], one["bound_by"]) for one in scene.live]
    assert any(bound_s is not None and by for bound_s, by in bounds), bounds
    # Of a run that is over there is no end to tell.
    assert "eta_s" not in scene.status


def test_one_line_says_what_is_foreseen_when_a_run_begins(scene: Scene, tmp_path: Path) -> None:
    home = other(scene, tmp_path)
    home.write("items.txt", items(500, 2))
    said = home("run", "plan.yaml", "--yes", "--forecast", **told(scene.url))
    assert said.code == 0, said.err
    assert sum(line.startswith("takes about") for line in said.err.splitlines()) == 1
    quiet = home("run", "plan.yaml", "--yes", "--quiet", "--forecast", **told(scene.url))
    assert "takes about" not in quiet.err


def test_people_read_it_below_what_the_plan_does(scene: Scene) -> None:
    said = scene.told("check", "plan.yaml", "--forecast")
    assert said.code == 0
    above, _, below = said.out.partition("\n\ntakes about")
    assert "Embarrassingly parallel" in above
    lines = below.splitlines()
    assert "in eight of ten runs); at best" in lines[0]
    assert any(line.startswith("costs about $") for line in lines)
    assert any(
        line.startswith(f"learned from {LEARNED + FORESEEN} calls of 2 earlier runs")
        for line in lines
    )
    assert "takes about" not in scene.told("check", "plan.yaml").out
    assert json.loads(scene.told("check", "plan.yaml", "--json").out)["forecast"] is None


def test_where_limits_are_unknown_only_the_least_time_is_said(tmp_path: Path) -> None:
    home = Stranger(tmp_path)
    home.write("plan.yaml", PLAN)
    home.write("items.txt", items(0, 5))
    said = home("check", "plan.yaml", "--forecast", **told("http://127.0.0.1:9")).out
    (line,) = (line for line in said.splitlines() if line.startswith("takes "))
    assert line.startswith("takes at least ")
    assert line.endswith(" are unknown: no call was made yet")
    assert "in eight of ten runs" not in said


def test_nothing_is_learned_from_another_account_or_a_simulated_one(
    scene: Scene, tmp_path: Path
) -> None:
    asked = ("check", "plan.yaml", "--forecast", "--json")
    another = told(scene.url) | {"ANTHROPIC_API_KEY": "another key"}
    found = json.loads(scene.stranger(*asked, **another).out)["forecast"]
    assert found["learned_calls"] == 0
    assert found["unknown"]
    home = Stranger(tmp_path)
    home.write("plan.yaml", PLAN)
    home.write("items.txt", items(0, 5))
    ran = home("run", "plan.yaml", "--yes", "--quiet", "--sim", **told(scene.url))
    assert ran.code == 0, ran.err
    found = json.loads(home(*asked, **told(scene.url)).out)["forecast"]
    assert (found["learned_calls"], bool(found["unknown"])) == (0, True)


def test_what_never_ran_here_is_said_to_be_unknown(tmp_path: Path) -> None:
    home = Stranger(tmp_path)
    home.write("plan.yaml", "headway: 1\ntasks:\n  build:\n    run: sleep 0.3\n")
    asked = ("check", "plan.yaml", "--forecast")
    said = home(*asked).out
    assert "no forecast" in said
    assert home("run", "plan.yaml", "--yes", "--quiet").code == 0
    assert "takes about" in home(*asked).out
    home.write(
        "plan.yaml",
        "headway: 1\ntasks:\n  build:\n    run: sleep 0.3\n  test:\n    run: sleep 0.2\n",
    )
    said = home(*asked).out
    assert "takes at least" in said
    assert "`test` has not run on this machine: its time is unknown" in said


def other(scene: Scene, tmp_path: Path) -> Stranger:
    """The same user on a machine of their own, whose broker has ended."""
    home = Stranger(tmp_path)
    state = Path(scene.stranger.environment["HEADWAY_STATE_DIR"])
    copytree(state, tmp_path / "state")
    for name in ("plan.yaml", "items.txt"):
        home.write(name, (scene.stranger.here / name).read_text())
    # Runs are known by where their plan was.
    for run in (tmp_path / "state" / "runs").iterdir():
        with JournalReader(str(run)) as reader:
            text = source_of(reader).replace(str(scene.stranger.here), str(home.here))
        put_document(run, SOURCE, text.encode())
    return home


@pytest.mark.parametrize("name", ["cast", "forecast", "journal", "memory.dat"])
def test_whatever_is_spoilt_a_check_works_and_says_less(
    scene: Scene, tmp_path: Path, name: str
) -> None:
    home = other(scene, tmp_path)
    if name in ("cast", "forecast"):
        for run in (tmp_path / "state" / "runs").iterdir():
            put_document(run, name, b'{"spoilt": [')
    else:
        spoilt = [path for path in (tmp_path / "state").rglob("*") if name in path.name]
        assert spoilt
        for path in filter(Path.is_file, spoilt):
            path.write_bytes(b'{"spoilt": [')
    said = home("check", "plan.yaml", "--forecast", "--json", **told(scene.url))
    assert (said.code, said.err) == (0, "")
    found = json.loads(said.out)["forecast"]
    assert found["tasks"] == FORESEEN
    if name in ("cast", "journal"):
        assert found["learned_calls"] == 0
        assert any("none of this kind was seen" in one for one in found["assumed"])
    elif name == "memory.dat":
        assert found["learned_calls"] == LEARNED + FORESEEN
        assert found["unknown"] == []  # As many calls as the plan makes showed no limit.
    else:
        assert found["learned_calls"] == LEARNED + FORESEEN
        assert found["assumed"] == []


@pytest.mark.soak
def test_what_a_plan_takes_of_a_usage_window_is_learned_and_told(tmp_path: Path) -> None:
    """The provider tells shares in hundredths, and nobody how many tokens a window holds."""
    size = 30_000
    stranger = Stranger(tmp_path)
    stranger.write("plan.yaml", PLAN)
    stranger.write("items.txt", items(0, 20))
    with launched("--rpm", "3000", "--itpm", "1M", "--window", f"5h={size}") as url:
        # What is in flight counts there and not yet here: with two at once that is little.
        first = stranger("run", "plan.yaml", "--yes", "--quiet", "-j", "2", **told(url))
        assert first.code == 0, first.err
        stranger.write("items.txt", items(100, 30))
        said = stranger("check", "plan.yaml", "--forecast", "--json", **told(url))
        checked = json.loads(said.out)
        (window,) = checked["forecast"]["portions"]
        limits = stranger("limits", **told(url)).out
    assert window["name"].startswith("5h window of 127.0.0.1")
    assert window["of"] == pytest.approx(size, rel=0.25)
    assert 4 * 3600 < window["resets_s"] <= 5 * 3600
    assert window["takes"]["low"] > 0
    (row,) = (line for line in limits.splitlines() if "5h window" in line)
    assert "tokens" in row
    assert "resets in 5 h" in row or "resets in 4 h" in row
