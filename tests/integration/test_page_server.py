"""The live page: who may read it, who may control, and what it says of a run that goes on."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import stat
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import ClientResponse, ClientSession

from headway.cli.ui import link_of
from headway.engine.events import CallAdmitted, RunBegan, TaskStarted
from headway.journal.folder import find_run
from headway.journal.reader import JournalReader
from headway.report.page.server import PageServer, announce
from headway.report.text.run_view import RunView
from tests.integration.written_runs import BEGAN_S, Writer, partial_run


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HEADWAY_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.setenv("HEADWAY_RUNTIME_DIR", str(tmp_path / "run"))
    return tmp_path / "state"


Ask = Callable[..., Awaitable[tuple[int, str, ClientResponse]]]


def _with_page(body: Callable[[PageServer, Ask], Awaitable[None]], **options: Any) -> None:
    async def whole() -> None:
        async with PageServer(**options).served() as server, ClientSession() as session:

            async def ask(
                path: str, method: str = "GET", **given: Any
            ) -> tuple[int, str, ClientResponse]:
                url = f"http://127.0.0.1:{server.port}{path}"
                async with session.request(method, url, **given) as answer:
                    return answer.status, await answer.text(), answer

            await body(server, ask)

    asyncio.run(whole())


def test_nothing_is_answered_without_the_token(state: Path) -> None:
    run = partial_run(state)

    async def body(server: PageServer, ask: Ask) -> None:
        wrong = server.token[:-1] + ("a" if server.token[-1] != "a" else "b")
        for path in ("", "home", f"data?run={run}", f"events?run={run}", f"task?run={run}&task=0",
                     "metrics"):  # fmt: skip
            for token in ("", "x", wrong, server.token.upper(), f"{server.token}%00"):
                status, text, answer = await ask(f"/{token}/{path}")
                assert (status, text) == (404, "not found\n")
                assert run not in str(answer.headers)
        assert (await ask("/"))[0] == 404
        assert (await ask(f"/{wrong}/control", "POST", json={"run": run, "word": "stop"}))[0] == 404
        assert (await ask(f"/{server.token}/data?run={run}"))[0] == 200

    _with_page(body, controls=True)


@pytest.mark.parametrize("headers", [
    {"Host": "evil.example"}, {"Host": "127.0.0.1"}, {"Host": "127.0.0.1.evil.example:80"},
    {"Origin": "http://evil.example"}, {"Origin": "null"}, {"Sec-Fetch-Site": "cross-site"},
    {"Sec-Fetch-Site": "same-site"}, {"Origin": "https://127.0.0.1"},
])  # fmt: skip
def test_another_name_or_another_page_is_refused(state: Path, headers: dict[str, str]) -> None:
    run = partial_run(state)

    async def body(server: PageServer, ask: Ask) -> None:
        path = f"/{server.token}/data?run={run}"
        assert (await ask(path, headers=headers))[0] == 404
        own = {"Origin": f"http://127.0.0.1:{server.port}", "Sec-Fetch-Site": "same-origin"}
        assert (await ask(path, headers=own))[0] == 200

    _with_page(body)


def test_the_page_cannot_be_framed_kept_or_leave_its_origin(state: Path) -> None:
    async def body(server: PageServer, ask: Ask) -> None:
        status, text, answer = await ask(f"/{server.token}/")
        policy = answer.headers["Content-Security-Policy"]
        assert status == 200
        assert "default-src 'none'" in policy
        assert "connect-src 'self'" in policy
        assert "frame-ancestors 'none'" in policy
        assert "unsafe" not in policy
        assert answer.headers["Cache-Control"] == "no-store"
        assert answer.headers["Referrer-Policy"] == "no-referrer"
        assert "Access-Control-Allow-Origin" not in answer.headers
        assert server.token not in text
        assert (await ask(f"/{server.token}/", "OPTIONS"))[0] == 405

    _with_page(body)


def test_a_page_that_only_reads_controls_nothing(state: Path) -> None:
    run = partial_run(state)

    async def body(server: PageServer, ask: Ask) -> None:
        own = {"Origin": f"http://127.0.0.1:{server.port}"}
        path, asked = f"/{server.token}/control", {"run": run, "word": "stop"}
        assert (await ask(path, "POST", json=asked, headers=own))[0] == 403

    _with_page(body)


def test_control_needs_the_page_s_origin_and_a_known_word(state: Path) -> None:
    run = partial_run(state)

    async def body(server: PageServer, ask: Ask) -> None:
        own = {"Origin": f"http://127.0.0.1:{server.port}"}
        path, asked = f"/{server.token}/control", {"run": run, "word": "stop"}
        assert (await ask(path, "POST", json=asked))[0] == 403
        assert (await ask(path, "POST", data=json.dumps(asked), headers=own))[0] == 403
        assert (await ask(path, "POST", json={**asked, "word": "rm"}, headers=own))[0] == 400
        assert (await ask(path, "POST", json=[1], headers=own))[0] == 400
        status, text, _ = await ask(path, "POST", json=asked, headers=own)
        assert (status, "is not running" in text) == (200, True)
        assert (await ask(path, headers=own))[0] == 405
        status, text, _ = await ask(path, "POST", json={**asked, "run": "no"}, headers=own)
        assert (status, "there is no run" in text) == (400, True)

    _with_page(body, controls=True)


def test_a_page_without_contents_gives_none(state: Path) -> None:
    run = partial_run(state)

    async def body(server: PageServer, ask: Ask) -> None:
        assert (await ask(f"/{server.token}/task?run={run}&task=0"))[0] == 403
        assert "Server Error" not in (await ask(f"/{server.token}/data?run={run}"))[1]

    _with_page(body, has_content=False)


def test_the_texts_of_one_task_are_given(state: Path) -> None:
    run = partial_run(state)

    async def body(server: PageServer, ask: Ask) -> None:
        _, text, _ = await ask(f"/{server.token}/task?run={run}&task=0")
        assert json.loads(text)["output"] == '{"bugs": 2}'
        assert (await ask(f"/{server.token}/task?run={run}&task=99"))[1] == "{}"
        assert (await ask(f"/{server.token}/task?run={run}&task=x"))[0] == 400

    _with_page(body)


def test_the_page_listens_on_this_machine_only(state: Path) -> None:
    async def body(server: PageServer, _: Ask) -> None:
        with socket.socket() as other:
            other.bind(("127.0.0.2", server.port))  # The port is free on every other address.

    _with_page(body)


@asynccontextmanager
async def _heard(url: str) -> AsyncIterator[Callable[[], Awaitable[tuple[str, Any]]]]:
    async with ClientSession() as session, session.get(url) as answer:

        async def event() -> tuple[str, Any]:
            kind = (await answer.content.readline()).decode().removeprefix("event: ").strip()
            data = await answer.content.readuntil(b"\n\n")
            return kind, json.loads(data.decode().removeprefix("data: "))

        yield event


def test_a_run_that_goes_on_is_followed(state: Path) -> None:
    writer = Writer(state)
    writer.tell(RunBegan(BEGAN_S, "adaptive")).finished(0, 0.0, 4.0, b"found")

    async def body(server: PageServer, _: Ask) -> None:
        journal = await writer.write()
        run = writer.place.id
        async with _heard(f"{server.url}events?run={run}") as event:
            kind, whole = await event()
            assert (kind, whole["head"]["words"]["done"]) == ("whole", 1)
            writer.entries.clear()
            writer.tell(TaskStarted(1, 1, BEGAN_S + 5.0, "there is room"))
            writer.tell(CallAdmitted(1, BEGAN_S + 6.0))
            journal.write(writer.entries)
            await journal.flush()
            rows: dict[int, Any] = {}
            while 1 not in rows:
                kind, more = await event()
                rows |= dict(more["tasks"])
            with JournalReader(find_run(str(state), run).folder) as reader:
                view = RunView(reader)
            assert (rows[1][0], rows[1][2]) == ("probe[b]", "running here")
            assert more["head"]["words"] == dict(view.words())
        journal.close()

    _with_page(body)


def test_readers_that_leave_leave_nothing_behind(state: Path) -> None:
    run = partial_run(state)

    async def body(server: PageServer, _: Ask) -> None:
        for _turn in range(3):
            async with _heard(f"{server.url}events?run={run}") as event:
                assert (await event())[0] == "whole"
        while server.feeds:
            await asyncio.sleep(0.01)

    _with_page(body)


def test_run_prints_the_link_of_a_page_that_is_served(state: Path) -> None:
    async def body(server: PageServer, _: Ask) -> None:
        path = announce(server, os.environ)
        assert stat.S_IMODE(os.stat(path).st_mode) == 0o600
        assert link_of("20261116-0423-a7k") == f"{server.url}#20261116-0423-a7k"

    assert link_of("x") == ""
    _with_page(body)
