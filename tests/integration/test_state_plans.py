"""Plans whose commands, prompts and functions share a state: the result is that of one by one."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from headway.journal.reader import JournalReader
from headway.run.resume import committed
from tests.integration.strangers_shell import Stranger

SOON_S = 60.0

PIPELINE = """\
headway: 1
state:
  total: counter
  log: append
tasks:
  parse:
    run: |
      echo parse >> ran; sleep $PARSE_S
      for n in 1 2; do mkdir -p "$HEADWAY_STATE/records"
        echo "raw $n" > "$HEADWAY_STATE/records/$n"; echo 1 >> "$HEADWAY_PUT/total"; done
      echo "parsed" > "$HEADWAY_PUT/log"
  enrich:
    run: |
      echo enrich >> ran; sleep $ENRICH_S
      for file in "$HEADWAY_STATE"/records/*; do echo "rich $(cat "$file")" > "$file"; done
      echo "saw $(cat "$HEADWAY_STATE/total")" > "$HEADWAY_PUT/log"
  validate:
    run: |
      echo validate >> ran; sleep $VALIDATE_S
      cat "$HEADWAY_STATE"/records/* > "$HEADWAY_STATE/report"
      rm "$HEADWAY_STATE/records/1"
"""

SERIAL = {
    "log": ["parsed", "saw 2"],
    "records/2": "rich raw 2",
    "report": "rich raw 1\nrich raw 2",
    "total": 2,
}


@pytest.fixture
def stranger(tmp_path: Path) -> Stranger:
    made = Stranger(tmp_path)
    made.environment |= {"PARSE_S": "0", "ENRICH_S": "0", "VALIDATE_S": "0"}
    return made


def told_of(stranger: Stranger, pattern: str = "**") -> tuple[dict[str, bytes], bytes]:
    """What `headway results last --state PATTERN` tells, without a process."""
    folder = str(stranger.runs()[-1])
    with JournalReader(folder) as reader:
        return committed(reader, pattern)


def state_of(stranger: Stranger, pattern: str = "**") -> dict[str, object]:
    return {key: json.loads(data) for key, data in told_of(stranger, pattern)[0].items()}


def finished(stranger: Stranger) -> set[str]:
    with JournalReader(str(stranger.runs()[-1])) as reader:
        return {row.name for row in reader.rows() if row.state == "finished"}


def until(is_so: Callable[[], bool]) -> None:
    deadline_s = time.monotonic() + SOON_S
    while not is_so():
        assert time.monotonic() < deadline_s, f"not so after {SOON_S} s"
        time.sleep(0.02)


def started(stranger: Stranger, *words: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "headway", *words], cwd=stranger.here, env=stranger.environment,
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip


@pytest.mark.parametrize("crash", ["result:2", "durable:1"])
def test_a_killed_run_goes_on_to_the_same_state_and_repeats_nothing_committed(
    stranger: Stranger, crash: str
) -> None:
    stranger.write("plan.yaml", PIPELINE)
    words = ("plan.yaml", "--no-gateway", "--observe", "off")
    killed = stranger("run", *words, PARSE_S="0.2", HEADWAY_CRASH_AT=crash)
    assert killed.code == -9, killed.err
    done = finished(stranger)
    assert {"records/1", "records/2"} <= set(state_of(stranger)) or "parse" not in done
    (stranger.here / "ran").write_text("")
    resumed = stranger("resume", "--no-gateway", "--observe", "off")
    assert resumed.code == 0, resumed.err
    assert state_of(stranger) == SERIAL
    ran = set((stranger.here / "ran").read_text().split())
    assert not ran & done, "a committed task was executed again"
    assert not list(stranger.runs()[-1].glob("views"))


def test_a_command_that_ended_unheard_runs_again_and_that_is_said(stranger: Stranger) -> None:
    stranger.write("plan.yaml", PIPELINE)
    words = ("--no-gateway", "--observe", "off")
    assert stranger("run", "plan.yaml", *words, ENRICH_S="9", VALIDATE_S="9",
                    HEADWAY_CRASH_AT="result:1").code == -9  # fmt: skip
    assert list(stranger.runs()[-1].glob("views/*"))
    resumed = stranger("resume", *words)
    assert "parse had ended when headway was killed, and runs again" in resumed.err
    assert state_of(stranger) == SERIAL


@pytest.mark.parametrize(("kind", "verb"), [("reduce", "state"), ("effect", "effect")])
def test_a_channel_whose_function_is_missing_is_refused_where_it_is_named(
    stranger: Stranger, kind: str, verb: str
) -> None:
    stranger.write(
        "plan.yaml",
        f"headway: 1\nstate:\n  x: value\n  merged: {kind}(nomod:f)\n"
        f"tasks: {{a: {{run: 'true', writes: '{verb}:merged'}}}}\n",
    )
    said = stranger("run", "plan.yaml", "--no-gateway")
    assert said.code == 3
    assert said.err.splitlines() == [
        "error[HW011]: `state: nomod:f` cannot be imported: No module named 'nomod'",
        "  plan.yaml:4:11",
        "hint: name a function as package.module:function, as it is seen from the plan's folder",
    ]


def test_prompts_functions_and_commands_share_one_state(stranger: Stranger) -> None:
    stranger.write(
        "plan.yaml",
        "headway: 1\nmodel: openai/echo\n"
        "state: {findings: append, best: 'reduce(fns:longer)', mail: 'effect(fns:send)'}\n"
        "tasks:\n"
        "  slow: {run: 'sleep 0.3; cd $HEADWAY_STATE; echo sunny > weather; echo 7 > n'}\n"
        "  ask: {prompt: 'It is {{ state.weather }}', output: 'state:findings'}\n"
        "  all: {prompt: 'Of {{ state }}', reads: 'state:n', output: 'state:whole'}\n"
        "  count: {python: fns:count, output: 'state:counted'}\n"
        "  tell: {run: 'cat $HEADWAY_STATE/findings > $HEADWAY_PUT/mail; cd $HEADWAY_PUT;"
        " echo ab > best; echo abc >> best'}\n",
    )
    stranger.write(
        "fns.py",
        "def count(ctx):\n    return len(ctx['findings']) + int(ctx['n'])\n"
        "def longer(one, other):\n    return max(one, other, key=len)\n"
        "def send(payload, key):\n    open('sent', 'a').write(f'{payload}\\n')\n",
    )
    said = stranger("run", "plan.yaml", "--sim", "--observe", "off")
    assert said.code == 0, said.err
    assert state_of(stranger) == {
        "best": "abc", "counted": 8, "findings": ["It is sunny"], "n": "7", "weather": "sunny",
        "whole": 'Of {"n": "7"}',
    }  # fmt: skip
    assert (stranger.here / "sent").read_text() == "['It is sunny']\n"
    assert state_of(stranger, "w*") == {"weather": "sunny", "whole": 'Of {"n": "7"}'}


def test_a_result_that_waits_is_told_while_the_run_goes_on(stranger: Stranger) -> None:
    stranger.write(
        "plan.yaml",
        "headway: 1\nstate: {}\ntasks:\n"
        "  parse:\n    each: [a, b]\n    reads: []\n    writes: 'state:records/{{ item }}'\n"
        "    run: 'while [ ! -e go ]; do sleep 0.05; done; mkdir -p $HEADWAY_STATE/records;"
        " echo $item > $HEADWAY_STATE/records/$item'\n"
        "  check: {run: 'ls $HEADWAY_STATE; touch checked'}\n"
        "  report: {needs: check, run: 'true'}\n",
    )
    process = started(stranger, "run", "plan.yaml", "--no-gateway", "--strategy", "fixed:4")
    try:
        until((stranger.here / "checked").exists)
        until(lambda: "1 held: earlier tasks may change" in stranger("status").out)
        told = stranger("why", "last", "check").out
        assert "waits for parse[a], which may still write `records/a`" in told.replace("\n", " ")
        assert "needs check, which is held" in stranger("why", "last", "report").out
    finally:
        (stranger.here / "go").touch()
        assert process.wait(SOON_S) == 0
    assert state_of(stranger) == {"records/a": "a", "records/b": "b"}
    assert "runs again" in stranger("why", "last", "check").out


def test_the_state_of_a_run_is_printed_for_people_and_for_programs(stranger: Stranger) -> None:
    stranger.write("plan.yaml", PIPELINE)
    ran = stranger("run", "plan.yaml", "--no-gateway", "--observe", "off", "--json", PARSE_S="0.3")
    assert json.loads(ran.out)["stale"] >= 1
    said = stranger("results", "last", "--state")
    assert said.out.splitlines()[:2] == ['log        ["parsed","saw 2"]', 'records/2  "rich raw 2"']
    assert said.err == f"4 keys, digest {told_of(stranger)[1].hex()}; the run is done\n"
    assert json.loads(stranger("results", "--state", "t*", "--json").out) == {"total": 2}


def test_a_state_that_was_not_kept_is_refused_with_a_remedy_that_helps(stranger: Stranger) -> None:
    config = Path(stranger("config", "path").out.strip())
    config.parent.mkdir(parents=True)
    config.write_text("keep_results = false\n")
    stranger.write("plan.yaml", PIPELINE)
    assert stranger("run", "plan.yaml", "--no-gateway", "--observe", "off").code == 0
    said = stranger("results", "last", "--state")
    assert said.code == 2
    assert "`keep_results = true` into the file that `headway config path` names" in said.err
    config.write_text("keep_results = true\n")
    assert stranger("run", "plan.yaml", "--no-gateway", "--observe", "off").code == 0
    assert stranger("results", "last", "--state").code == 0


def test_what_ran_again_is_told_with_a_remedy_and_waits_the_next_time(stranger: Stranger) -> None:
    stranger.write("plan.yaml", PIPELINE)
    first = stranger("run", "plan.yaml", "--no-gateway", "--observe", "off", PARSE_S="0.3")
    assert "enrich  runs again: `**`, which it had read, has changed" in first.err
    assert "attempts ran again: " in first.err
    assert "`needs: parse` in `enrich`" in first.err
    for _ in range(2):
        again = stranger("run", "plan.yaml", "--no-gateway", "--observe", "off", PARSE_S="0.3")
        assert state_of(stranger) == SERIAL
    assert "again" not in again.err
    (lessons,) = (stranger.here.parent / "state" / "lessons").iterdir()
    assert lessons.stat().st_mode & 0o777 == 0o600


def test_leftovers_of_dead_runs_go_when_another_run_starts(stranger: Stranger) -> None:
    stranger.write("plan.yaml", PIPELINE)
    words = ("plan.yaml", "--no-gateway", "--observe", "off")
    # The first to end does so while the others work in theirs.
    slow = {"PARSE_S": "0.5", "ENRICH_S": "3", "VALIDATE_S": "3"}
    stranger("run", *words, HEADWAY_CRASH_AT="result:1", **slow)
    (dead,) = stranger.runs()
    assert list(dead.glob("views/*"))
    assert stranger("run", *words).code == 0
    assert not list(dead.glob("views"))


def test_folders_of_commands_are_their_users_alone(stranger: Stranger) -> None:
    stranger.write(
        "plan.yaml",
        "headway: 1\nstate: {}\ntasks: {a: {run: 'stat -c %a $HEADWAY_STATE/.. $HEADWAY_STATE'}}\n",
    )
    assert stranger("run", "plan.yaml", "--no-gateway").out.split() == ["700", "700"]
    assert not list(stranger.runs()[-1].glob("views"))


def test_a_value_that_nobody_has_put_is_not_asked_about(stranger: Stranger) -> None:
    stranger.write(
        "plan.yaml",
        "headway: 1\nmodel: openai/echo\nstate: {n: counter}\n"
        "tasks: {ask: {prompt: '{{ state.n }} and {{ state.nothing }}'}}\n",
    )
    assert stranger("run", "plan.yaml", "--sim").code == 1
    (failed,) = stranger.status()["failed"]
    assert (
        "`{{ state.nothing }}` has no value: no task before this one has put one"
        in (failed["reason"])
    )
