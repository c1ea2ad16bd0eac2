"""The page of a run: its numbers are the history's, and nothing in it runs but its own script."""

from __future__ import annotations

import json
import re
from base64 import b64encode
from collections import Counter
from hashlib import sha256
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from headway.base.digest import digest
from headway.base.values import Fault
from headway.cli.main import main
from headway.engine.events import (
    CallAdmitted,
    CallWaited,
    Ending,
    RunBegan,
    RunFinished,
    TaskFailed,
    TaskFinished,
    TaskStarted,
)
from headway.engine.record import LimitsSeen, LimitUse
from headway.journal.folder import find_run
from headway.journal.reader import JournalReader
from headway.report.page.data import COLUMNS, KINDS
from headway.report.page.document import as_bytes, document
from headway.report.text.run_view import RunView
from tests.integration.written_runs import BEGAN_S, Writer, partial_run

MARKS = (
    "<script>alert(1)</script>", "</script><img src=x onerror=alert(1)>", "<!--<script>", "]]>",
    "\"onload=alert(1) x=\"", "javascript:alert(1)", "{{js}}", "{{policy}}", "&lt;b&gt;&#60;",
    "\u2028alert(1)\u2029", "\u202egnp.exe", "'\"><svg/onload=alert(1)>", "\\u003cscript\\u003e",
    "<style>*{display:none}</style>", "<base href=//x>", "<meta http-equiv=refresh content=0>",
    "`${alert(1)}`", "<iframe srcdoc='<script>alert(1)</script>'>", "\x1b]8;;http://x\x07y", "=1+1",
)  # fmt: skip
AROUND = (
    ("", ""), ("a ", " b"), ("</title>", "<!--"), ("'", '"'), ("<", ">"), ("\n", "\n"),
    ("</pre>", ""), ("%3C", "%3E"), ("\0", ""), ("</textarea></style>", "//"),
)  # fmt: skip
AROUND = (
    ("", ""), ("a ", " b"), ("</title>", "<!--"), ("'", '"'), ("<", ">"), ("\n", "\n"),
    ("</pre>", ""), ("%3C", "%3E"), ("\0", ""), ("</textarea></style>", "//"),
)  # fmt: skip
HOSTILE = [f"{before}{mark}{after}" for mark in MARKS for before, after in AROUND]


class _Page(HTMLParser):
    """The elements of a page, the text of its scripts and styles, and its attributes."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: Counter[str] = Counter()
        self.raw: dict[str, list[str]] = {"script": [], "style": []}
        self.attributes: list[tuple[str, str | None]] = []
        self._inside = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags[tag] += 1
        self.attributes += attrs
        self._inside = tag
        if tag in self.raw:
            self.raw[tag].append("")

    def handle_endtag(self, tag: str) -> None:
        self._inside = ""

    def handle_data(self, data: str) -> None:
        if self._inside in self.raw:
            self.raw[self._inside][-1] += data


def _data(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(_Page(path.read_text()).raw["script"][0])
    return found


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HEADWAY_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.setenv("HEADWAY_RUNTIME_DIR", str(tmp_path / "run"))
    return tmp_path / "state"


def hostile_run(state: Path) -> str:
    writer = Writer(state, [f"{number}{text}" for number, text in enumerate(HOSTILE)])
    writer.tell(RunBegan(BEGAN_S, "adaptive"))
    for number, text in enumerate(HOSTILE):
        if number % 2:
            writer.finished(number, 0.0, 1.0 + number, text.encode())
            continue
        writer.tell(TaskStarted(number, 1, BEGAN_S, text))
        writer.tell(TaskFailed(number, 1, BEGAN_S + 1.0, Fault("server", detail=text)))
    return writer.close()


def test_hostile_text_stays_data_of_the_page(state: Path, tmp_path: Path) -> None:
    run, path = hostile_run(state), tmp_path / "run.html"
    assert main(["report", run, "-o", str(path)]) == 0
    hostile, plain = _Page(path.read_text()), _Page(document({"runs": []}).decode())
    assert len(HOSTILE) == 200
    assert hostile.tags == plain.tags
    assert hostile.attributes == plain.attributes
    assert hostile.raw["script"][1:] == plain.raw["script"][1:]
    assert hostile.raw["style"] == plain.raw["style"]
    found = _data(path)["runs"][0]
    assert [row[0] for row in found["tasks"]] == [
        f"{number}{text}" for number, text in enumerate(HOSTILE)
    ]
    assert found["texts"]


def test_the_policy_lets_only_the_script_of_the_page_run() -> None:
    page = _Page(document({"runs": [], "live": False}).decode())
    policy = next(value for name, value in page.attributes if name == "content" and value
                  and "default-src" in value)  # fmt: skip
    rules = dict(one.strip().split(" ", 1) for one in policy.split(";"))
    assert rules["default-src"] == rules["base-uri"] == rules["form-action"] == "'none'"
    assert "connect-src" not in rules
    for kind, text in (("script", page.raw["script"][1]), ("style", page.raw["style"][0])):
        assert rules[f"{kind}-src"] == (
            f"'sha256-{b64encode(sha256(text.encode()).digest()).decode()}'"
        )
    assert not {name for name, _ in page.attributes} & {"src", "href", "style", "onload"}


def test_the_script_of_the_page_parses_no_text_as_markup() -> None:
    script = _Page(document({}).decode()).raw["script"][1]
    words = r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\b|new Function|srcdoc"
    assert not re.findall(words, script)


def _told_run(state: Path) -> str:
    writer = Writer(state, [f"probe[{number}]" for number in range(6)])
    writer.tell(RunBegan(BEGAN_S, "adaptive"))
    for number in range(5):
        start_s = BEGAN_S + number
        writer.tell(TaskStarted(number, 1, start_s, "there is room"))
        writer.tell(CallWaited(number, start_s + 0.25))
        writer.tell(CallAdmitted(number, start_s + 1.0, "input/60s"))
        if number == 2:
            writer.tell(CallWaited(number, start_s + 1.5, "rate: input"))
            writer.tell(CallAdmitted(number, start_s + 2.0, "input/60s"))
        body = b"answer %d" % number
        ending = Ending(digest(body), b"", 100.0 + number, 10.0, 1000 + number, 1 + (number == 2))
        writer.tell(TaskFinished(number, 1, start_s + 4.0, ending), body)
    writer.tell(TaskStarted(5, 1, BEGAN_S + 6.0, "there is room"))
    lost = Ending(input_tokens=77.0, spend_microusd=9, calls=1)
    writer.tell(TaskFailed(5, 1, BEGAN_S + 7.0, Fault("server", detail="boom"), lost))
    for at_s, used in ((1.0, 40.0), (3.0, 90.0)):
        seen = (LimitUse("acme sonnet", "input/60s", used, 100.0),
                LimitUse("acme sonnet", "window 5h", used / 100, 1.0, BEGAN_S + 50.0))  # fmt: skip
        writer.tell(LimitsSeen(BEGAN_S + at_s, seen))
    writer.tell(RunFinished(BEGAN_S + 9.0, 5, 1))
    return writer.close()


def test_every_number_of_the_page_is_the_history_s(state: Path, tmp_path: Path) -> None:
    run, path = _told_run(state), tmp_path / "run.html"
    assert main(["report", run, "-o", str(path)]) == 0
    found = _data(path)["runs"][0]
    with JournalReader(find_run(str(state), run).folder) as reader:
        view = RunView(reader, is_whole=True)
        by_key = {view.name(key): task for key, task in view.history.tasks.items()}
    history, head = view.history, found["head"]
    assert (head["refused"], head["retries"], head["stale"]) == (1, 0, 0)
    assert head["refused"] == history.refused == len(found["refused"])
    assert head["words"] == dict(view.words()) == {"done": 5, "failed": 1}
    assert (head["total"], head["elapsed_s"]) == (view.total, history.elapsed_s)
    assert head["microusd"] == history.taken.microusd == 5019
    assert head["lost_tokens"] == history.lost.tokens == 77
    rows = [dict(zip(COLUMNS, row, strict=True)) for row in found["tasks"]]
    for row in rows:
        task = by_key[row["name"]]
        assert row["calls"] == task.taken.calls
        assert row["input_tokens"] == task.taken.input_tokens
        assert row["microusd"] == task.taken.microusd
        assert row["waited_s"] == pytest.approx(task.waited_s, abs=1e-3)
        assert row["first_s"] + row["took_s"] == pytest.approx(task.ended_s, abs=2e-3)
        pieces = list(zip(row["pieces"][::2], row["pieces"][1::2], strict=True))
        assert [KINDS[code % 8] for code, _ in pieces] == [one.kind for one in task.pieces]
        assert sum(ms for _, ms in pieces) == round(1000 * task.pieces[-1].to_s)
    waits = {found["whats"][code // 8] for row in rows for code in row["pieces"][::2] if code // 8}
    assert waits == {"input tokens a minute"}
    for name in ("calls", "input_tokens", "microusd"):
        assert sum(row[name] for row in rows) == getattr(history.taken, name)
        assert sum(group[name] for group in head["groups"]) == getattr(history.taken, name)
    assert [(one["name"], one["points"]) for one in found["limits"]] == [
        ("input/60s", [[1.0, 40.0, 100.0, 0.0], [3.0, 90.0, 100.0, 0.0]]),
        ("window 5h", [[1.0, 0.4, 1.0, 50.0], [3.0, 0.9, 1.0, 50.0]]),
    ]


def test_a_page_without_contents_has_none(state: Path, tmp_path: Path) -> None:
    run, path = partial_run(state), tmp_path / "run.html"
    assert main(["report", run, "-o", str(path)]) == 0
    assert "Server Error" in path.read_text()
    assert main(["report", run, "-o", str(path), "--no-content"]) == 0
    assert "Server Error" not in path.read_text()
    assert _data(path)["runs"][0]["texts"] == {}


def test_several_runs_are_one_page(state: Path, tmp_path: Path) -> None:
    runs, path = [_told_run(state), partial_run(state)], tmp_path / "both.html"
    assert main(["report", *runs, "-o", str(path)]) == 0
    assert [one["head"]["id"] for one in _data(path)["runs"]] == runs


def test_a_report_of_several_runs_needs_a_page(
    state: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = partial_run(state)
    assert main(["report", run, run]) == 2
    assert "-o both.html" in capsys.readouterr().err


def test_a_page_that_cannot_be_written_is_refused(
    state: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["report", partial_run(state), "-o", str(tmp_path / "no" / "run.html")]) == 2
    assert "cannot be written" in capsys.readouterr().err


def test_what_json_cannot_have_does_not_break_the_page() -> None:
    assert json.loads(as_bytes({"a": float("inf"), "b": "\ud800"})) == {"a": None, "b": "?"}
