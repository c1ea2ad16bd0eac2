"""`headway mcp` as agents meet it: a real process, the official client, a simulated provider."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from headway.base.values import Budget
from headway.journal.reader import JournalReader
from headway.mcp.service import written
from headway.plans.load import load_foreign
from headway.report.text.run_view import RunView
from headway.run.plan_run import PlanSource
from tests.integration.mcp_scene import PLAN, WAIT_S_MAX, Scene, hear, say

TOOLS = ["cancel_run", "check_plan", "quota", "run_results", "run_status", "submit_plan"]
HEAD = "headway: 1\nmodel: anthropic/claude-haiku-4-5\ntasks:\n"


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    scene = Scene(tmp_path)
    yield scene
    scene.end_all()


def test_an_agent_hands_over_its_fan_out_and_reads_what_came_of_it(scene: Scene) -> None:
    async def agent() -> None:
        async with scene.client() as client, scene.client() as beside:
            tools = {tool.name: tool for tool in (await client.session.list_tools()).tools}
            assert sorted(tools) == TOOLS
            for name, tool in tools.items():
                hints = tool.annotations
                assert hints is not None
                assert hints.read_only_hint is (name not in ("submit_plan", "cancel_run"))
                assert hints.destructive_hint is (name == "cancel_run")
            checked = await client.gave("check_plan", plan=PLAN)
            assert (checked["accepted"], checked["tasks"]) == (True, 4)
            run = (await client.gave("submit_plan", plan=PLAN, budget="$1"))["run"]
            status = await client.over(run)
            assert (status["state"], status["name"]) == ("done", "fan")
            assert status["tasks"] == {"total": 4, "done": 4}
            assert 0 < status["spent"]["usd"] < status["budget"]["usd"] == 1
            page = await client.gave("run_results", run=run)
            told = {one["task"]: one["output"] for one in page["results"]}
            assert told["say[two]"] == "said two"
            assert list(told) == ["say[one]", "say[two]", "say[three]", "merge"]
            assert (page["next"], page["left_out"]) == (None, "")
            assert (scene.here / "out" / "merged.txt").read_text().startswith("merged ")
            alone = await client.gave("run_results", run="last", task="merge")
            assert [one["task"] for one in alone["results"]] == ["merge"]
            # Two servers of one folder see the same runs, at the same time.
            same = (one.gave("run_results", run=run) for one in (client, beside) * 5)
            assert all(one == page for one in await asyncio.gather(*same))
            assert (await beside.gave("quota"))["accounts"] == []
            assert (await beside.gave("cancel_run", run=run))["accepted"] is False

    asyncio.run(agent())


def test_what_cannot_be_done_is_one_error_and_the_server_lives_on(scene: Scene) -> None:
    async def agent() -> None:
        async with scene.client("--budget", "$2") as client:
            said = await client.error("submit_plan", plan=PLAN)
            assert "submit_plan: Object missing required field `budget`" in said
            assert '"$2" in dollars' in said
            for budget in ("", "much", "-1", "inf", "5", "$0", "$3", "900k", 2):
                await client.error("submit_plan", plan=PLAN, budget=budget)
            await client.error("submit_plan", plan="a: [", budget="$1")
            await client.error("submit_plan", plan=PLAN, budget="$1", fodler="x")
            for folder in ("..", "/", "/etc", "missing", "a\0b"):
                await client.error("submit_plan", plan=PLAN, budget="$1", folder=folder)
                await client.error("check_plan", plan=PLAN, folder=folder)
            for run in ("", "nonsense", "../../etc", "20261116-0423-a7k"):
                await client.error("run_status", run=run)
                await client.error("run_results", run=run)
                await client.error("cancel_run", run=run)
            await client.error("run_results", run="last", offset=-1)
            await client.error("no_such_tool")
            assert scene.runs() == []
            refused = (await client.gave("check_plan", plan=HEAD + "  a: {promt: x}\n"))["refused"]
            assert refused[0]["hint"]
            assert (await client.gave("check_plan", plan=PLAN))["accepted"]

    asyncio.run(agent())


def test_hostile_plans_are_refused_and_nothing_is_executed(scene: Scene) -> None:
    canary = scene.here / "canary"
    (scene.here / "evil.py").write_text(f"open({str(canary)!r}, 'w')\n\ndef f(): pass\n")
    (scene.here / ".env").write_text("KEY=secret-of-the-user")
    (scene.home / "outside.md").write_text("outside")
    (scene.here / "link").symlink_to(scene.home)
    hostile = [
        "  a: {run: touch canary}\n",
        "  a: {python: 'evil:f'}\n",
        "  a: {prompt: 'Say x', agent: 'tools(shell)'}\n",
        "  a: {prompt_file: link/outside.md}\n",
        "  a: {prompt_file: .env}\n",
        "  a: {prompt: 'Say x', output: ../out.md}\n",
        "  a: {each: ['$(touch canary)'], 'r{{ 1 }}un': touch canary}\n",
        "  a: {prompt: !!python/object/apply:os.system ['touch canary']}\n",
        "  a: {prompt: x}\nstate: {k: 'effect(evil:f)'}\n",
    ]

    async def agent() -> None:
        async with scene.client() as client:
            for tasks in hostile:
                plan = HEAD + tasks
                said = await client.error("submit_plan", plan=plan, budget="$1")
                assert "secret-of-the-user" not in said
                checked = await client.gave("check_plan", plan=plan)
                assert not checked["accepted"], plan
                assert checked["refused"][0]["code"].startswith("HW0")

    asyncio.run(agent())
    assert scene.runs() == []
    assert not canary.exists()


def test_a_run_outlives_its_client_and_its_server(scene: Scene) -> None:
    plan = HEAD + "".join(
        f"  t{n}: {{prompt: Say t{n}, max_tokens: 100{f', needs: t{n - 1}' if n else ''}}}\n"
        for n in range(3)
    )
    with scene.process() as process:
        say(process.stdin, _request(1, "initialize", _hello()))
        hear(process.stdout)
        say(process.stdin, {"jsonrpc": "2.0", "method": "notifications/initialized"})
        given = {"plan": plan, "budget": "1M"}
        say(process.stdin, _request(2, "tools/call", {"name": "submit_plan", "arguments": given}))
        run = hear(process.stdout)["result"]["structuredContent"]["run"]
        os.kill(process.pid, signal.SIGKILL)

    until_s = time.monotonic() + WAIT_S_MAX
    while not _is_over(scene, run):
        assert time.monotonic() < until_s
        time.sleep(0.1)
    with JournalReader(str(scene.home / "state" / "runs" / run)) as reader:
        assert RunView(reader).words() == {"done": 3}


def test_a_plan_is_judged_again_by_the_process_that_opens_its_files(scene: Scene) -> None:
    (scene.here / ".env").write_text("secret-of-the-user")
    names = scene.here / "names.txt"
    names.write_text("a.md")
    (scene.here / "a.md").write_text("Say a")
    text = HEAD + "  t: {each: {lines: names.txt}, prompt_file: '{{ item }}', max_tokens: 100}\n"
    loaded = load_foreign(text, scene.here)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HEADWAY_STATE_DIR", scene.environment["HEADWAY_STATE_DIR"])
        source = PlanSource("", text, budget=Budget(tokens=10**6), sim="", is_foreign=True)
        place = written(loaded, source, "n")
    names.write_text(".env")
    command = [sys.executable, "-m", "headway", "resume", place.id, "--keep", "--quiet", "--json"]
    ended = subprocess.run(
        command, env=scene.environment, cwd=scene.here, capture_output=True, timeout=99, check=False
    )
    assert ended.returncode == 3, ended.stderr
    assert b"is hidden" in ended.stdout
    assert b"secret" not in ended.stdout


def test_garbage_costs_nothing_but_itself(scene: Scene) -> None:
    garbage: list[object] = [
        b"", b"{", b"nonsense", b"\xff\xfe\x00", b"[1, 2", b"null", b'{"jsonrpc": "1.0"}',
        b'{"jsonrpc": "2.0", "id": 7}', b"[" * 10_000, {"method": "tools/call"},
    ]  # fmt: skip
    with scene.process() as process:
        for line in garbage[:5]:
            say(process.stdin, line)
        say(process.stdin, _request(1, "initialize", _hello()))
        assert hear(process.stdout)["id"] == 1
        for line in garbage:
            say(process.stdin, line)
        say(process.stdin, _request(2, "no/such/method", {}))
        say(process.stdin, _request(3, "tools/call", {"name": 5}))
        say(process.stdin, _request(4, "tools/call", {"name": "quota", "arguments": [1]}))
        say(process.stdin, _request(5, "tools/list", {}))
        heard = {}
        while 5 not in heard:
            answer = hear(process.stdout)
            heard[answer.get("id")] = answer
        assert len(heard[5]["result"]["tools"]) == len(TOOLS)
        assert process.stdin is not None
        process.stdin.close()
        assert process.wait(30) == 0
        assert process.stderr is not None
        assert b"Traceback" not in process.stderr.read()


def test_a_run_is_stopped_and_many_calls_are_answered_at_once(scene: Scene) -> None:
    async def agent() -> None:
        async with scene.client() as client:
            hang = HEAD + "  a: {each: [a, b], prompt: 'Hang {{ item }}', max_tokens: 100}\n"
            first, second = await asyncio.gather(
                client.gave("submit_plan", plan=hang, budget="1M"),
                client.gave("submit_plan", plan=hang, budget="1M", name="second"),
            )
            assert first["run"] != second["run"]
            # Perhaps before its process has come to it: then nothing of it begins.
            assert (await client.gave("cancel_run", run=second["run"]))["accepted"]
            await client.until(first["run"], lambda one: one["tasks"].get("in_flight"))
            runs = [client.gave("run_status", run=first["run"]) for _ in range(30)]
            assert {one["state"] for one in await asyncio.gather(*runs)} == {"running"}
            assert (await client.gave("cancel_run", run=first["run"]))["accepted"]
            left = await client.until(first["run"], lambda one: one["state"] != "running")
            if left["state"] == "stopping":
                # A second word is not more than the first: what was sent may still be answered.
                again = await client.gave("cancel_run", run=first["run"])
                assert again["in_words"].endswith("is stopping already")
                assert (await client.gave("cancel_run", run=first["run"], now=True))["accepted"]
            status = await client.over(first["run"])
            assert (status["state"], status["tasks"]["done"]) == ("stopped", 0)
            other = await client.until(second["run"], lambda one: one["state"] != "starting")
            assert other["state"] in ("new", "stopping", "stopped")

    asyncio.run(agent())


def _is_over(scene: Scene, run: str) -> bool:
    with JournalReader(str(scene.home / "state" / "runs" / run)) as reader:
        return RunView(reader).history.standing.finished is not None


def _request(number: int, method: str, params: object) -> dict[str, object]:
    return {"jsonrpc": "2.0", "id": number, "method": method, "params": params}


def _hello() -> dict[str, object]:
    client = {"name": "by hand", "version": "0"}
    return {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": client}


def test_an_interrupt_ends_the_server_at_once(scene: Scene) -> None:
    with scene.process() as process:
        say(process.stdin, _request(1, "initialize", _hello()))
        hear(process.stdout)
        os.kill(process.pid, signal.SIGINT)
        assert process.wait(20) == -signal.SIGINT


def test_runs_of_one_plan_do_not_replace_each_others_files(scene: Scene) -> None:
    """All were submitted before there was a file: the first that has its result gets the place."""

    async def agent() -> None:
        async with scene.client() as client:
            plans = [PLAN.replace("Merge.", f"Say run{n}") for n in range(3)]
            given = [await client.gave("submit_plan", plan=one, budget="1M") for one in plans]
            ends = [await client.over(one["run"]) for one in given]
            assert all(end["is_over"] for end in ends)
            content = (scene.here / "out/merged.txt").read_text()
            others = [one["run"] for n, one in enumerate(given) if content != f"said run{n}"]
            assert len(others) == 2
            for run in others:
                (failed,) = (await client.over(run))["failed"]
                assert "is there already" in failed["reason"]

    asyncio.run(agent())
