"""Text of tasks, models, items and files gives no orders to a terminal; a pipe gets every byte."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.promises.user import SOON_S, User, user

HOSTILE = (
    "A\x1b]52;c;Y2FuYXJ5\x07B\x1b]0;canary\x1b\\C\x1b[2J\x1b[38;5;213mD\x9b2JE\x9d0;canary\x9cF"
    "\rG\bH\x07I\x7fJ\u202eK\x1bcL\x1bPq canary\x1b\\M\x1b]8;;http://canary/\x1b\\N"
)
"""Clipboard, titles, clear screen, colour, C1 controls, overwriting, bell, reversed writing."""

FORBIDDEN = re.compile(
    r"\x1b[\]PX^_c]|\x1b\[2J|\x1b\[[0-9;]*213m|[\x80-\x9f]|[\x00-\x06\x07\x08\x0b\x0c\x0e-\x1a\x1c-\x1f\x7f]"
    r"|[\u202a-\u202e\u2066-\u2069]|\r(?![\n\r\x1b])"
)
"""What no verb of headway draws by itself."""


def on_terminal(someone: User, *words: str) -> tuple[int, str]:
    """Run `headway` with a terminal as stdin, stdout and stderr; its exit code and its screen."""
    master, slave = pty.openpty()
    env = {k: v for k, v in someone.env.items() if k not in ("NO_COLOR", "FORCE_COLOR")}
    env |= {"TERM": "xterm-256color", "COLUMNS": "200", "LINES": "50", "PYTHONUTF8": "1"}
    process = subprocess.Popen(
        [sys.executable, "-m", "headway", *words], cwd=someone.folder, env=env,
        stdin=slave, stdout=slave, stderr=slave, start_new_session=True, text=True,
    )  # fmt: skip
    someone.started.append(process)
    os.close(slave)
    seen, end_s = b"", time.monotonic() + SOON_S
    while time.monotonic() < end_s:
        if not select.select([master], [], [], 0.2)[0]:
            continue
        try:
            more = os.read(master, 65536)
        except OSError:
            break
        if not more:
            break
        seen += more
    os.close(master)
    return process.wait(SOON_S), seen.decode("utf-8", "replace")


def judge(screen: str) -> None:
    found = FORBIDDEN.search(screen)
    assert found is None, (found, screen[max(0, found.start() - 200) : found.end() + 100])


PLAN = """\
headway: 1
name: hostile
tasks:
  list: {run: cat items.json}
  say:
    each: list
    run: cat hostile.txt; cat hostile.txt >&2; printf %s "$item"
  fail: {run: cat hostile.txt >&2; exit 3}
  state: {run: cat hostile.txt, output: "state:k"}
  last: {run: cat hostile.txt}
"""


@pytest.fixture(scope="module")
def someone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[User]:
    """A user with a run whose items, outputs and faults are hostile."""
    with user(tmp_path_factory.mktemp("terminal")) as made:
        made.write("hostile.txt", HOSTILE + "\n")
        made.write("items.json", json.dumps(["plain", HOSTILE]))
        made.write("plan.yaml", PLAN)
        ended = made.headway("run", "plan.yaml", stdout=subprocess.DEVNULL)
        assert ended.returncode == 1, ended.stderr
        yield made


BAD_NAME = r"""
headway: 1
tasks:
  "a\e]0;canary\x07\x9b2J": {run: "true"}
"""
BAD_MODEL = r"""
headway: 1
model: "no/\e[2Jcanary\x9b2J"
tasks:
  t: {prompt: hello}
"""

VERBS = [
    ("run", "plan.yaml"),
    ("results", "--format", "csv"),
    ("logs", "--task", "last"),
    ("status",),
    ("check", HOSTILE),
    ("each", "--tag", "--eta", "cat hostile.txt; sleep 0.6; false {}", ":::", "a", HOSTILE),
]
MORE_VERBS = [
    ("run", "plan.yaml", "--quiet"),
    ("run", "plan.yaml", "--json"),
    ("run", "named.yaml"),
    ("resume",),
    ("results",),
    ("results", "--format", "json"),
    ("results", "--state"),
    ("logs",),
    ("logs", "--task", "fail"),
    (),
    ("why", "fail"),
    ("why", HOSTILE),
    ("timeline",),
    ("report",),
    ("check", "plan.yaml", "--forecast"),
    ("check", "refused.yaml"),
    ("explore", "plan.yaml"),
    ("advise", "plan.yaml"),
    ("plan", HOSTILE, "--model", HOSTILE),
    ("limits",),
    ("gateway", "status"),
    ("gateway", "--upstream", HOSTILE),
    ("doctor",),
    ("sim", HOSTILE),
    ("sim", "run", "--preset", HOSTILE),
    ("sim", "compare"),
    ("mcp", HOSTILE),
    ("config",),
    (HOSTILE,),
    ("each", "--dry-run", "echo {}", ":::", HOSTILE),
    ("each", "cat hostile.txt; cat hostile.txt >&2; printf %s {}", ":::", "a", HOSTILE),
    ("each", f"echo {HOSTILE} $(({{}}))", ":::", "a"),
]


@pytest.mark.parametrize(
    "words",
    [*VERBS, *(pytest.param(words, marks=pytest.mark.soak) for words in MORE_VERBS)],
    ids=lambda words: " ".join(words).replace(HOSTILE, "HOSTILE")[:60],
)
def test_no_verb_lets_text_give_orders_to_a_terminal(someone: User, words: tuple[str, ...]) -> None:
    someone.write("refused.yaml", BAD_NAME)
    someone.write("named.yaml", BAD_MODEL)
    _, screen = on_terminal(someone, *words)
    assert screen.strip()
    judge(screen)


def test_results_in_a_pipe_have_every_byte(someone: User) -> None:
    for words in (("run", "plan.yaml"), ("each", "cat hostile.txt {}", ":::", "/dev/null")):
        with (someone.root / "out").open("wb") as out:
            someone.headway(*words, stdout=out)
        assert HOSTILE.encode() + b"\n" in (someone.root / "out").read_bytes(), words


def test_what_is_harmless_stays_on_a_terminal(someone: User) -> None:
    someone.write("kind.txt", "tab\there\nnext line 한국어 ✓ é 👩‍💻\n")
    code, screen = on_terminal(someone, "each", "cat {}", ":::", "kind.txt")
    assert code == 0
    assert "tab\there\r\nnext line 한국어 ✓ é 👩‍💻\r\n" in screen


def test_a_sequence_that_is_not_closed_hides_nothing_after_its_line(
    someone: User, tmp_path: Path
) -> None:
    (tmp_path / "open.txt").write_text("one\x1b]0;never closed\ntwo\nthree\n")
    _, screen = on_terminal(someone, "each", "cat {}", ":::", str(tmp_path / "open.txt"))
    assert "one\r\ntwo\r\nthree\r\n" in screen
