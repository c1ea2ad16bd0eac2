"""The page in a real Chromium: `make test-page`."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from headway.cli.main import main
from headway.journal.folder import find_run, list_runs
from headway.journal.reader import JournalReader
from headway.report.page.server import PageServer
from headway.report.text.report import brief
from headway.report.text.run_view import RunView
from headway.report.text.words import usd
from tests.integration.test_page import HOSTILE, hostile_run
from tests.page.chromium import MISSING, PROGRAM, Browser, opened
from tests.page.scene import busy_run

pytestmark = [pytest.mark.page, pytest.mark.skipif(PROGRAM is None, reason=MISSING)]

FRAME_S = 1 / 30
"""Of CPU: a figure of the wall clock says how busy the machine is."""


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("STATE", "RUNTIME", "CONFIG"):
        monkeypatch.setenv(f"HEADWAY_{name}_DIR", str(tmp_path / name[0]))
    return tmp_path / "S"


def _look(body: Callable[[Browser], Awaitable[None]]) -> None:
    async def whole() -> None:
        async with opened() as browser:
            await body(browser)

    asyncio.run(asyncio.wait_for(whole(), 120.0))


def _written(tmp_path: Path, *runs: str) -> str:
    path = tmp_path / "page.html"
    assert main(["report", *runs, "-o", str(path)]) == 0
    return f"file://{path}"


TABLE = """[...document.querySelectorAll('.grid .row')].map((row) =>
  [...row.querySelectorAll('span')].map((cell) => cell.textContent))"""


def test_every_number_that_can_be_read_is_the_history_s(state: Path, tmp_path: Path) -> None:
    run = busy_run(state, 40)
    url = _written(tmp_path, run)
    with JournalReader(find_run(str(state), run).folder) as reader:
        view = RunView(reader, is_whole=True)
        tasks = {view.name(key): task for key, task in view.history.tasks.items()}
    history = view.history

    async def body(browser: Browser) -> None:
        await browser.open(url, height=3000)
        tiles = await browser.evaluate(
            "Object.fromEntries([...document.querySelectorAll('.tile')].map((one) =>"
            "[...one.children].map((part) => part.textContent))"
            ".map(([label, number, more]) => [label, number + more]))"
        )
        words = view.words()
        assert tiles["tasks done"] == f"{words['done']}of 40, {words['failed']} failed, 0 skipped"
        assert tiles["time"].startswith(brief(history.elapsed_s))
        assert tiles["spent"].startswith(usd(history.taken.microusd))
        assert tiles["refused calls"].startswith(f"{history.refused}{history.retries} tried again")
        seen: dict[str, list[str]] = {}
        for top in (0, 400, 800):
            await browser.evaluate(f"document.querySelector('.grid').scrollTop = {top}")
            await browser.evaluate("new Promise((done) => setTimeout(done, 50))")
            seen |= {row[0]: row for row in await browser.evaluate(TABLE)}
        assert seen.keys() == tasks.keys()
        for name, task in tasks.items():
            taken, ended_s = task.taken, task.ended_s or 0.0
            cells = seen[name][3:]
            assert cells[:3] == [brief(task.first_s), brief(ended_s - task.first_s),
                                 brief(task.waited_s)]  # fmt: skip
            assert cells[3:7] == [
                str(task.attempt),
                str(taken.calls),
                f"{taken.input_tokens:,.0f}",
                f"{taken.output_tokens:,.0f}",
            ]
            assert cells[7] == usd(taken.microusd)
            assert cells[8] == (f"{task.lost.tokens:,.0f}" if task.lost.tokens else "")
        assert browser.faults == []
        assert browser.asked == [url]

    _look(body)


def test_search_filter_sort_hover_zoom_and_details_work(state: Path, tmp_path: Path) -> None:
    url = _written(tmp_path, busy_run(state, 300))

    async def body(browser: Browser) -> None:
        await browser.open(url)
        await browser.evaluate("document.getElementById('search').focus()")
        await browser.tell("Input.insertText", text="fix module_0001")
        assert await browser.evaluate("headwayPage.table.found.length") == 2
        await browser.evaluate("const box = document.getElementById('search'); box.value = '';"
                               "box.dispatchEvent(new Event('input')); box.blur()")  # fmt: skip
        failed = (
            "[...document.querySelectorAll('.chips button')]"
            ".find((one) => one.textContent.startsWith('failed')).click()"
        )
        await browser.evaluate(failed)
        assert await browser.evaluate("headwayPage.table.found.length") == 3
        await browser.evaluate(failed)
        await browser.evaluate("document.querySelector('[aria-label=\"sort by cost\"]').click()")
        costs = [row[10] for row in await browser.evaluate(TABLE)]
        assert costs == sorted(costs, reverse=True)
        name, x, y = await browser.evaluate(
            "(() => { scrollTo(0, 0); const [one] = headwayPage.streams, { picture } = one;"
            "const box = one.canvas.getBoundingClientRect(), task = picture.data.tasks[50];"
            "return [task[0], box.left + one.x(task[10] + task[11] / 2),"
            "box.top + 24 + (picture.rowOf[50] + 0.5) * one.layout().rowHeight] })()"
        )
        await browser.mouse("mouseMoved", x, y)
        shown = await browser.until("!document.getElementById('tip').hidden &&"
                                    "document.getElementById('tip').textContent")  # fmt: skip
        assert shown.startswith(name)
        before = await browser.evaluate("headwayPage.view.to - headwayPage.view.from")
        await browser.evaluate(
            "document.querySelector('canvas').dispatchEvent(new WheelEvent('wheel',"
            f"{{deltaY: -200, ctrlKey: true, clientX: {x}, clientY: {y}, cancelable: true}}))"
        )
        await browser.until(f"headwayPage.view.to - headwayPage.view.from < {before}")
        from_s = await browser.evaluate("headwayPage.view.from")
        await browser.evaluate("document.querySelector('canvas').focus()")
        await browser.tell("Input.dispatchKeyEvent", type="keyDown", key="ArrowRight")
        await browser.until(f"headwayPage.view.from > {from_s}")
        for key in ("c", "0", "j", "t"):
            await browser.tell("Input.dispatchKeyEvent", type="keyDown", key=key, text=key)
        assert await browser.until("!document.getElementById('drawer').hidden")
        texts = await browser.until("document.querySelector('#texts pre') &&"
                                    "document.getElementById('drawer').textContent")  # fmt: skip
        assert "headway why" in texts
        assert await browser.evaluate("document.documentElement.classList.contains('light')")
        await browser.tell("Input.dispatchKeyEvent", type="keyDown", key="Escape")
        await browser.until("document.getElementById('drawer').hidden")
        assert browser.faults == []

    _look(body)


def test_no_hostile_text_runs_or_leaves_its_cell(state: Path, tmp_path: Path) -> None:
    url = _written(tmp_path, hostile_run(state))

    async def body(browser: Browser) -> None:
        await browser.open(url)
        elements = "document.querySelectorAll('script, img, iframe, style, base, meta, svg').length"
        before = await browser.evaluate(elements)
        for number in range(len(HOSTILE)):
            await browser.evaluate(f"openTask(headwayPage.pictures[0], {number})")
            assert await browser.evaluate("document.querySelector('#drawer h2').textContent") == (
                f"{number}{HOSTILE[number]}"
            )
            assert await browser.evaluate(elements) == before
        assert browser.faults == []
        assert browser.asked == [url]

    _look(body)


def test_runs_are_compared_on_one_axis(state: Path, tmp_path: Path) -> None:
    runs = [busy_run(state, 60), busy_run(state, 60, width=4)]
    url = _written(tmp_path, *runs)

    async def body(browser: Browser) -> None:
        await browser.open(url)
        assert await browser.evaluate("document.querySelectorAll('canvas').length") == 2
        table = await browser.evaluate("document.querySelector('#compare').textContent")
        assert all(run in table for run in runs)
        assert browser.faults == []

    _look(body)


@pytest.mark.parametrize("tasks", [20_000, 100_000])
def test_large_runs_open_move_and_can_be_searched(
    tasks: int, state: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    url = _written(tmp_path, busy_run(state, tasks, width=200))
    size = (tmp_path / "page.html").stat().st_size
    assert size <= 4_000_000 or tasks > 20_000

    async def body(browser: Browser) -> None:
        await browser.tell("Performance.enable", timeDomain="threadTicks")

        async def cpu_s() -> float:
            found = (await browser.tell("Performance.getMetrics"))["metrics"]
            return float({one["name"]: one["value"] for one in found}["TaskDuration"])

        await browser.open(url)
        paint = "performance.getEntriesByName('first-contentful-paint')[0]?.startTime"
        paint_ms, open_s, before = await browser.until(paint), await cpu_s(), await cpu_s()
        await browser.evaluate(
            "for (let n = 0; n < 60; n++) { const { view, streams: [one] } = headwayPage;"
            "view.from = view.end * 0.002 * n; view.to = view.end * (0.4 + 0.01 * n); one.draw(); }"
        )
        frame_s = (await cpu_s() - before) / 60
        await browser.evaluate("document.getElementById('search').focus()")
        await browser.tell("Input.insertText", text=f"module_{tasks - 1:05d}")
        assert await browser.evaluate("headwayPage.table.found.length") == 1
        with capsys.disabled():
            size_words = f"{tasks:,} tasks: {size / 1e6:.1f} MB, first paint {paint_ms:.0f} ms"
            cpu_words = f"{1000 * open_s:.0f} ms of CPU to open, {1000 * frame_s:.1f} ms a frame"
            print(f"\n{size_words}, {cpu_words}")
        assert open_s <= 2.0 or tasks > 20_000
        assert frame_s <= FRAME_S or tasks > 20_000
        assert browser.faults == []

    _look(body)


def test_a_run_is_followed_through_a_kill_and_controlled(state: Path, tmp_path: Path) -> None:
    each = ("each", "--no-gateway", "-j", "2", "sleep 1.5; echo {}", ":::", *map(str, range(16)))
    command = [sys.executable, "-m", "headway", *each]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                               cwd=tmp_path)  # fmt: skip
    while not (places := list_runs(str(state))):
        time.sleep(0.05)
    run = places[0].id

    async def body(browser: Browser) -> None:
        async with PageServer(controls=True).served() as server:
            await browser.open(f"{server.url}#{run}")
            pill = "document.getElementById('state')?.textContent"
            await browser.until(f"{pill} === 'running'")
            await browser.until(
                "headwayPage.pictures[0].data.tasks.some((row) => row[2] === 'done')"
            )
            process.send_signal(signal.SIGKILL)
            await browser.until(f"{pill} === 'interrupted'")
            await browser.until("!!document.querySelector('[data-act=resume]')")
            await browser.evaluate("document.querySelector('[data-act=resume]').click()")
            await browser.until(f"{pill} === 'running'")
            await browser.until("!!document.querySelector('[data-act=stop]')")
            await browser.evaluate("document.querySelector('[data-act=stop]').click()")
            await browser.until(f"['stopped', 'done'].includes({pill})")
            assert {url.split("/")[2] for url in browser.asked} == {f"127.0.0.1:{server.port}"}
            await browser.evaluate("location.hash = ''")
            await browser.until("!!document.querySelector('#runs')")
            assert browser.faults == []

    _look(body)
    process.wait()
    assert os.path.isdir(places[0].folder)


def test_a_page_that_only_reads_has_no_buttons(state: Path) -> None:
    run = busy_run(state, 12)

    async def body(browser: Browser) -> None:
        async with PageServer().served() as server:
            await browser.open(f"{server.url}#{run}")
            await browser.until("!!document.querySelector('.tile')")
            assert await browser.evaluate("document.querySelectorAll('[data-act]').length") == 0
            said: Any = await browser.evaluate(
                "fetch('control', {method: 'POST', headers: {'Content-Type': 'application/json'},"
                f"body: JSON.stringify({{run: '{run}', word: 'stop'}})}}).then((one) => one.status)"
            )
            assert said == 403

    _look(body)
