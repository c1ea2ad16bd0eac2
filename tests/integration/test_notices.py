"""Notices of a run: each kind by command and webhook; a receiver that hangs holds nothing up."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from math import inf
from pathlib import Path
from typing import Any

import pytest

from headway.base.values import Fault
from headway.cli.main import main
from headway.config import NOTICES, NoticeReceiver, parsed
from headway.engine.events import (
    AttemptStuck,
    RunBegan,
    RunContinued,
    RunFinished,
    RunHeld,
    RunStopping,
    TaskFailed,
    TaskStarted,
)
from headway.engine.record import Fact
from headway.errors import StateFileError
from headway.journal.reader import JournalReader
from headway.report.text import notices
from headway.report.text.notices import Notice, NoticeSender, RunWatch, deliver, notice_of
from headway.report.text.run_view import RunView
from tests.integration.written_runs import BEGAN_S, Writer

SECRET = "the text of a task"


@pytest.fixture
def hooked() -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """A webhook's address, and what it was sent; `/slow` never answers."""
    found: list[dict[str, Any]] = []
    release = threading.Event()

    class Hook(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if self.path == "/slow":
                release.wait()
                return
            found.append(json.loads(body))
            self.send_response(500 if self.path == "/bad" else 204)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Hook)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}", found
    release.set()
    server.shutdown()
    server.server_close()


def _kinds_of(state: Path, *facts: Fact) -> list[tuple[str, str]]:
    """What a watch says after each of these facts, in turn."""
    writer = Writer(state)
    writer.tell(RunBegan(BEGAN_S, "adaptive")).tell(TaskStarted(0, 1, BEGAN_S, "there is room"))
    for fact in facts:
        writer.tell(fact)
    run = writer.close()
    with JournalReader(writer.place.folder) as reader:
        assert reader.header.run == run
        view = RunView(reader)
        view.history.standing = type(view.history.standing)()
        every = list(reader.events())
        fresh = type(view.history)(view.group_of)
        view.history, view.seq = fresh, every[-1].seq
        watch, found = RunWatch(view), []
        for one in every:
            fresh.apply(one.key, one.event)
            found += list(watch.look())
        return found


def test_each_kind_of_notice_is_told_once(tmp_path: Path) -> None:
    at = BEGAN_S + 1.0
    assert (
        _kinds_of(tmp_path, RunHeld(at, at + 60.0, "5h window is empty"), RunContinued(at + 1))[0][
            0
        ]
        == "window"
    )
    kinds = [kind for kind, _ in _kinds_of(
        tmp_path, RunHeld(at, at + 60.0, "5h window is empty"), RunContinued(at + 1),
        RunHeld(at + 2, inf, "the disk is full"), RunContinued(at + 3),
        RunHeld(at + 4, inf, "paused by the user"), RunContinued(at + 5),
        AttemptStuck(0, 1, at + 6, 900.0), AttemptStuck(0, 1, at + 7, 960.0),
        RunStopping(at + 8, "budget: $5 are spent"),
        TaskFailed(0, 1, at + 9, Fault("server", detail=SECRET)), RunFinished(at + 10, 0, 1),
    )]  # fmt: skip
    assert kinds == ["window", "refilled", "answer", "stuck", "budget", "failed"]
    done = _kinds_of(tmp_path, RunFinished(at, 1, 0))
    assert [kind for kind, _ in done] == ["done"]
    stopped = _kinds_of(tmp_path, RunFinished(at, 1, 0, 0, 2))
    assert [kind for kind, _ in stopped] == ["stopped"]


@pytest.mark.parametrize("kind", NOTICES)
def test_every_kind_reaches_a_command_a_webhook_and_slack(
    kind: str, tmp_path: Path, hooked: tuple[str, list[dict[str, Any]]]
) -> None:
    url, found = hooked
    notice = Notice(kind, "20261116-0423-a7k", "review", f"review {kind}", {"done": 3}, 1.5, 7)
    out = tmp_path / "out"
    write = f"open({str(out)!r}, 'w').write(os.environ['HEADWAY_NOTICE'] + sys.stdin.read())"
    script = f"import os, sys; {write}"
    deliver(NoticeReceiver("a", command=(sys.executable, "-c", script)), notice)
    deliver(NoticeReceiver("b", webhook=url), notice)
    deliver(NoticeReceiver("c", webhook=url, format="slack"), notice)
    whole = {"kind": kind, "run": "20261116-0423-a7k", "name": "review", "text": f"review {kind}",
             "tasks": {"done": 3}, "elapsed_s": 1.5, "microusd": 7}  # fmt: skip
    assert found == [whole, {"text": f"review {kind}"}]
    assert out.read_text().startswith(kind)
    assert json.loads(out.read_text().removeprefix(kind)) == whole


def test_texts_are_in_a_notice_only_if_asked_for(tmp_path: Path) -> None:
    writer = Writer(tmp_path)
    writer.tell(RunBegan(BEGAN_S, "adaptive")).failed(0, 0.0, 4.0).close()
    with JournalReader(writer.place.folder) as reader:
        view = RunView(reader)
        assert SECRET not in notice_of(view, "stuck", SECRET, has_texts=False).text
        assert SECRET in notice_of(view, "stuck", SECRET, has_texts=True).text
        assert "1 failed" in notice_of(view, "failed", "", has_texts=False).text


def test_notices_come_at_a_limited_rate_and_the_last_one_always(
    hooked: tuple[str, list[dict[str, Any]]],
) -> None:
    url, found = hooked
    sender = NoticeSender(NoticeReceiver("a", webhook=url, format="slack"))
    for number in range(50):
        sender.send(Notice("stuck", "r", "n", f"{number}", {}, 0.0, 0))
    sender.send(Notice("done", "r", "n", "end", {}, 0.0, 0), is_last=True)
    sender.close()
    sender.thread.join()
    assert found == [{"text": "0"}, {"text": "end (49 more since the last notice)"}]


def test_a_receiver_that_wants_only_some_kinds_gets_those(
    hooked: tuple[str, list[dict[str, Any]]],
) -> None:
    sender = NoticeSender(NoticeReceiver("a", webhook=hooked[0], on=("failed",)))
    sender.send(Notice("done", "r", "n", "t", {}, 0.0, 0), is_last=True)
    sender.close()
    sender.thread.join()
    assert hooked[1] == []


def _each(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, receivers: dict[str, str]) -> int:
    for name in ("STATE", "RUNTIME", "CONFIG"):
        monkeypatch.setenv(f"HEADWAY_{name}_DIR", str(tmp_path / name.lower()))
    (tmp_path / "config").mkdir()
    tables = (f"[notify.{name}]\n{line}\n" for name, line in receivers.items())
    (tmp_path / "config" / "config.toml").write_text("".join(tables))
    return main(["each", "--no-gateway", "true", ":::", "a", "b"])


def test_a_receiver_that_fails_is_named_and_others_get_their_notices(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str],
    hooked: tuple[str, list[dict[str, Any]]],
) -> None:  # fmt: skip
    monkeypatch.setattr(notices, "CLOSE_S", 60.0)
    receivers = {
        "bad": f'webhook = "{hooked[0]}/bad"', "gone": 'command = "no-such-program-anywhere"',
        "good": f'webhook = "{hooked[0]}"',
    }  # fmt: skip
    assert _each(tmp_path, monkeypatch, receivers) == 0
    said = capfd.readouterr().err
    assert "notify.bad: HTTPError" in said
    assert "notify.gone: FileNotFoundError" in said
    assert "notify.good" not in said
    assert [(one["kind"], one["tasks"]["done"]) for one in hooked[1]] == [("done", 2)] * 2


def test_a_receiver_that_hangs_does_not_hold_up_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str],
    hooked: tuple[str, list[dict[str, Any]]],
) -> None:  # fmt: skip
    monkeypatch.setattr(notices, "CLOSE_S", 0.2)
    assert _each(tmp_path, monkeypatch, {"slow": f'webhook = "{hooked[0]}/slow"'}) == 0
    assert "error" not in capfd.readouterr().err


@pytest.mark.parametrize(("lines", "words"), [
    ("", "has one of"), ('command = "a"\nwebhook = "http://x"', "has one of"),
    ('webhook = "ftp://x"', "no address"), ('webhook = 3', "no address"),
    ('command = "a"\nformat = "xml"', "format"), ('command = "a"\non = ["dne"]', "`on`"),
    ('command = "a"\ntexts = 1', "neither true nor false"), ('command = ""', "has one of"),
    ('command = "a"\ncolour = "red"', "no key"), ('command = "it\'s"', "no command"),
])  # fmt: skip
def test_a_receiver_that_is_wrong_is_refused_with_its_name(lines: str, words: str) -> None:
    with pytest.raises(StateFileError, match=r"notify\.me") as caught:
        parsed(f"[notify.me]\n{lines}\n".encode(), "config.toml")
    assert words in str(caught.value) or "colour" in str(caught.value)
