"""Loops with tools against the simulated provider over HTTP: what they do, pay and remember."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from headway.agents import toolloop as tools_memory
from headway.agents.toolloop import IN_DOUBT
from headway.agents.tools import FileTools
from headway.agents.tools_mcp import McpServer
from headway.base.values import CacheTokens, Limit
from headway.client.admission import AdmissionPort
from headway.sim import models as simulated
from headway.sim.account import Terms, UsageWindow
from headway.sim.models import parse_script
from headway.sim.provider import Latency, ProviderSpec
from headway.sim.server import ServeOptions, account_of, serving, truth_of
from headway.work import AttemptError, WindowEmptyError
from tests.integration.loop_scene import WIRES, Scene
from tests.unit.attempts import Told

LATENCY = Latency(0.005, 0.0001)
SCRIPT = {
    "rules": [
        {"contains": "a long file", "answer": "I write.", "tokens": 900,
         "use": {"write_file": {"path": "long.txt", "content": "begun and not ended"}}},
    ]
}  # fmt: skip
SERVER = str(Path(__file__).with_name("loop_server.py"))


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    models = simulated.SimulatedModels(script=parse_script(SCRIPT))
    with serving(ProviderSpec("t", Terms(), LATENCY), ServeOptions(models=models)) as found:
        yield found


@pytest.fixture
def scene(url: str, port: AdmissionPort, tmp_path: Path, request: pytest.FixtureRequest) -> Scene:
    """An account of its own."""
    return Scene(url, port, tmp_path, key=request.node.name)


def using(**uses: Any) -> str:
    """A prompt that asks for tools by their names, in order."""
    return "Please " + ", ".join(f"`{name} {json.dumps(given)}`" for name, given in uses.items())


@pytest.mark.parametrize("wire", WIRES)
def test_a_file_is_edited_by_tools_and_every_call_is_paid(scene: Scene, wire: str) -> None:
    work = scene.folder / "work"
    work.mkdir()
    (work / "a.py").write_text("colour = 'red'\n")
    prompt = using(
        read_file={"path": "a.py"},
        edit_file={"path": "a.py", "old": "red", "new": "blue"},
        shell={"command": "cat a.py; echo $PWD >&2; exit 3"},
    )
    told = Told()
    result = scene.perform(scene.call(prompt, wire), told)
    assert (work / "a.py").read_text() == "colour = 'blue'\n"
    said = result.body.decode()
    assert said.startswith("The commands gave:\ncolour = 'red'\n")
    assert f"exit code 3\n--- stdout\ncolour = 'blue'\n\n--- stderr\n{work}" in said
    seen = scene.account()
    assert (result.calls, seen["whole"], seen["accepted"]) == (4, 4, 4)
    assert seen["reported"]["input_tokens"] == result.input_tokens
    assert seen["reported"]["output_tokens"] == result.output_tokens
    cost = 3 * result.input_tokens + 15 * result.output_tokens
    assert cost <= result.spend_microusd <= cost + 4
    # Never more is set aside than what was paid and the most that one call can take.
    assert result.spend_microusd < sum(money for money, _ in told.reserved) < 4 * 85_000
    assert told.said[:6] == ["reserve", "waits", "goes", "keep", "keep", "reserve"]


def test_a_loop_reads_its_earlier_turns_from_the_providers_cache(scene: Scene) -> None:
    prompt = f"Run `echo x`, then `echo y`. {'Be exact. ' * 800}"
    result = scene.perform(scene.call(prompt, "anthropic"), Told())
    told = scene.account()["reported"]
    assert result.calls == 3
    assert result.cache == CacheTokens(told["cache_read_tokens"], told["cache_write_tokens"])
    # Each turn reads all that the turns before it have written.
    assert result.cache.read > 1.9 * result.cache.written > 5000
    assert told["cache_rewrite_tokens"] == 0


@pytest.mark.parametrize("wire", WIRES[:2])
def test_wherever_a_loop_is_interrupted_it_goes_on_and_pays_nothing_twice(
    scene: Scene, wire: str
) -> None:
    """Every prefix of what was kept, as a kill leaves it."""
    call = scene.call("Run `echo x`, then `echo y`.", wire)
    first = Told()
    whole = scene.perform(call, first)
    assert [entry[:1] for entry in first.kept] == [b"r", b"b", b"o"] * 2 + [b"r"]
    bodies = {arrival["body"] for arrival in arrivals_of(scene)}
    every = [Told(kept=first.kept[:count]) for count in range(len(first.kept) + 1)]
    results = scene.perform_each(call, every)
    # A reply that was kept is not asked for again.
    assert [whole.calls - result.calls for result in results] == [0, 1, 1, 1, 2, 2, 2, 3]
    doubts = [result.body.decode().count(IN_DOUBT) for result in results]
    # Begun, and what it gave not known: it is not done again.
    assert doubts == [0, 0, 1, 0, 0, 1, 0, 0]
    for result, told, is_doubted in zip(results, every, doubts, strict=True):
        assert [one[:1] for one in told.kept] == [one[:1] for one in first.kept]
        if not is_doubted:
            assert result.body == whole.body
    # Nor is anything else asked than the first time, but for what is in doubt.
    asked = [arrival["body"] for arrival in arrivals_of(scene)]
    assert len([body for body in asked if body not in bodies]) == 2 + 1


def test_without_the_library_it_is_said_how_to_get_it(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pydantic_ai.models", None)
    with pytest.raises(AttemptError, match=r"pip install 'headway\[agents\]'") as caught:
        scene.perform(scene.call("x"))
    assert caught.value.fault.kind == "request"


def test_an_answer_that_does_not_fit_is_mended_with_tools(scene: Scene) -> None:
    problems = ["say it with `echo mended`", None]

    async def verify(text: str) -> str | None:
        return problems.pop(0)

    told = Told()
    result = scene.perform(scene.call("Run `echo first`.", verify=verify), told)
    assert "mended" in result.body.decode()
    assert result.calls == 4
    problems += ["never", "never"]
    with pytest.raises(AttemptError) as caught:
        scene.perform(scene.call("Run `echo 1`.", verify=verify))
    assert (caught.value.fault.kind, caught.value.fault.detail) == ("unfit", "never")
    assert caught.value.result is not None
    assert caught.value.result.calls == 4


def test_what_goes_wrong_with_a_tool_is_observed(scene: Scene) -> None:
    secret = scene.folder / "secret"
    secret.write_text("s3cret")
    work = scene.folder / "work"
    work.mkdir()
    (work / "link").symlink_to(scene.folder)
    prompt = ", ".join(
        f"`{one}`"
        for one in (
            'read_file {"path": "../secret"}', f'read_file {{"path": "{secret}"}}',
            'read_file {"path": "link/secret"}', 'write_file {"path": "link/new", "content": ""}',
            'read_file {"path": 3}', "read_file {nothing}", 'shell {"command": {}}',
            'read_file {"path": "absent"}',
        )
    )  # fmt: skip
    result = scene.perform(scene.call(f"Use {prompt}"))
    said = result.body.decode()
    assert said.count("leads out of the folder") == 4
    assert "`path` has to be a text" in said
    assert "not JSON" in said
    assert "`command` has to be a text" in said
    assert "No such file" in said
    assert "s3cret" not in said
    assert not (scene.folder / "new").exists()


@pytest.mark.parametrize("wire", WIRES)
def test_what_is_given_to_a_tool_and_is_no_json_ends_nothing(scene: Scene, wire: str) -> None:
    """Half of a character, and a number that is none: clients of models read both as JSON."""
    prompt = using(
        write_file={"path": "a", "content": "\ud800"},
        read_file={"path": "\ud800"},
        shell={"command": "echo \ud800", "timeout_s": float("nan")},
        list_files={"path": "."},
    )
    result = scene.perform(scene.call(prompt, wire))
    assert result.calls == 5
    assert ("surrogates not allowed" in result.body.decode()) is (wire != "anthropic")


def test_a_bug_in_a_tool_ends_an_attempt_with_what_it_paid(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> str:
        raise KeyError("of headway")

    monkeypatch.setattr(FileTools, "_read", broken)
    with pytest.raises(AttemptError, match="request") as error:
        scene.perform(scene.call(using(read_file={"path": "a"})))
    assert "a bug in headway: KeyError" in error.value.fault.detail
    assert error.value.result is not None
    assert error.value.result.spend_microusd > 0


def test_a_command_sees_no_key_and_is_ended_in_time(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SIM_API_KEY", "sk-own")
    monkeypatch.setenv("ANTHROPIC_AUTH_TOKEN", "sk-login")
    monkeypatch.setenv("HEADWAY_GATEWAY", "http://127.0.0.1:1")
    monkeypatch.setenv("ANTHROPIC_BASE_URL", "http://127.0.0.1:1/sk-token/anthropic")
    given = {"item": "seen", "OPENAI_API_KEY": "sk-gateway"}
    prompt = using(shell={"command": "env; sleep 30", "timeout_s": 1})
    said = scene.perform(scene.call(prompt), environment=given).body.decode()
    assert "ended after " in said
    assert "item=seen" in said
    assert "sk-" not in said


def test_a_loop_that_comes_to_no_end_is_ended(scene: Scene) -> None:
    told = Told()
    call = scene.call("Run " + ", ".join(f"`echo {n}`" for n in range(9)), turns=5)
    with pytest.raises(AttemptError) as caught:
        scene.perform(call, told)
    assert caught.value.fault.kind == "unfit"
    assert "all of 5 turns" in (caught.value.fault.detail or "")
    assert caught.value.result is not None
    assert caught.value.result.calls == 5


def test_time_is_for_all_of_it_and_what_was_paid_is_told(scene: Scene) -> None:
    call = scene.call("Run `echo 1`, then `sleep 30`.", timeout_s=2.0)
    with pytest.raises(AttemptError) as caught:
        scene.perform(call)
    error = caught.value
    assert (error.fault.kind, error.is_in_doubt) == ("timeout", False)
    assert error.result is not None
    assert error.result.calls == scene.account()["whole"] == 2
    assert error.result.spend_microusd > 0


def test_a_call_that_nobody_answers_in_time_is_in_doubt_at_its_ceiling(scene: Scene) -> None:
    told = Told()
    slow = replace(scene, fault="hang")
    with pytest.raises(AttemptError) as caught:
        slow.perform(slow.call("x", timeout_s=1.0), told)
    error = caught.value
    assert (error.fault.kind, error.is_in_doubt) == ("timeout", True)
    assert error.result is not None
    assert (error.result.calls, error.result.spend_microusd) == (1, told.reserved[0][0])


@pytest.mark.parametrize("wire", WIRES[:2])
@pytest.mark.parametrize(
    ("fault", "kind", "is_in_doubt"),
    [
        ("cut", "broken", True), ("hang", "timeout", True), ("billing", "billing", False),
    ],
)  # fmt: skip
def test_faults_are_those_of_prompts(
    scene: Scene, wire: str, fault: str, kind: str, is_in_doubt: bool
) -> None:
    told = Told()
    faulty = replace(scene, fault=fault, quiet_s=0.5)
    with pytest.raises(AttemptError) as caught:
        faulty.perform(faulty.call("x", wire), told)
    error = caught.value
    assert (error.fault.kind, error.is_in_doubt) == (kind, is_in_doubt), error.fault
    assert error.result is not None
    assert error.result.spend_microusd == (told.reserved[0][0] if is_in_doubt else 0)


def test_what_was_paid_before_a_fault_is_part_of_it(scene: Scene) -> None:
    first = Told()
    call = scene.call("Run `echo 1`.")
    scene.perform(call, first)
    broken = replace(scene, fault="500")
    with pytest.raises(AttemptError) as caught:
        broken.perform(call, Told(kept=first.kept[:3]))
    assert caught.value.result is not None
    assert caught.value.result.calls == 1


def test_an_mcp_server_gives_its_tools_to_one_attempt(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SIM_API_KEY", "sk-own")
    server = McpServer("notes", (sys.executable, SERVER), environment=(("COLOUR", "blue"),))
    prompt = (
        'Use `notes__note {"text": "one"}`, `notes__note {"text": "two"}`, '
        '`notes__environment {"name": "COLOUR"}`, `notes__environment {"name": "SIM_API_KEY"}`, '
        "`notes__fail {}`"
    )
    told = Told()
    call = scene.call(prompt, tools=("mcp:notes",))
    said = scene.perform(call, told, servers={"notes": server}).body.decode().splitlines()
    assert said[1:5] == ["one", "one, two", "blue", "(not set)"]
    assert said[5].startswith("error: ")
    # Nothing of another attempt is in its session, and what may have been done is not repeated.
    doubted = scene.perform(call, Told(kept=told.kept[:2]), servers={"notes": server})
    assert doubted.body.decode().splitlines()[1:3] == [IN_DOUBT, "two"]


def test_an_mcp_server_that_cannot_be_is_said(scene: Scene) -> None:
    call = scene.call("x", tools=("mcp:notes",))
    with pytest.raises(AttemptError, match=r"no MCP server `notes`.*\n?.*mcp.notes"):
        scene.perform(call)
    broken = (sys.executable, "-c", "import sys; sys.exit('no notes today')")
    with pytest.raises(AttemptError, match="no notes today") as caught:
        scene.perform(call, servers={"notes": McpServer("notes", broken)})
    assert caught.value.fault.kind == "command"
    assert account_of(scene.key) not in truth_of(scene.url)["accounts"]


def test_nothing_of_a_sibling_is_in_any_request(scene: Scene) -> None:
    calls = [scene.call(f"Run `echo own-{n}-$((n + {n}))`.") for n in range(4)]
    results = scene.perform_all(calls)
    for number, result in enumerate(results):
        said = result.body.decode()
        assert f"own-{number}-{number}" in said
        assert said.count("own-") == 1
    # The same work alone sends the same bytes: there is nothing of the others in it.
    digests = sorted(one["body"] for one in arrivals_of(scene))
    alone = replace(scene, key=f"{scene.key}-alone")
    alone.perform_all(calls, at_once=1)
    assert sorted(one["body"] for one in arrivals_of(alone)) == digests


def arrivals_of(scene: Scene) -> list[dict[str, Any]]:
    name = account_of(scene.key)
    return [one for one in truth_of(scene.url)["arrivals"] if one["key"] == name]


@pytest.mark.soak
def test_twenty_loops_at_once_are_paced_and_never_refused(
    port: AdmissionPort, tmp_path: Path
) -> None:
    limits = (
        Limit("requests", 2400, burst=10), Limit("tokens", 2e6), Limit("concurrency", 6, 0, "gauge")
    )  # fmt: skip
    spec = ProviderSpec("t", Terms(limits), LATENCY)
    with serving(spec, ServeOptions()) as url:
        scene = Scene(url, port, tmp_path)
        results = scene.perform_all(
            [scene.call(f"Run `echo {n}` and `echo {n}`.", "anthropic") for n in range(20)]
        )
        seen = scene.account()
    assert [result.calls for result in results] == [3] * 20
    assert (seen["whole"], sum(seen["refused"].values())) == (60, 0)
    assert seen["in_flight_max"] <= 6


def test_an_empty_usage_window_puts_a_loop_back_with_what_it_paid(
    port: AdmissionPort, tmp_path: Path
) -> None:
    terms = Terms(windows=(UsageWindow(1000),))
    with serving(ProviderSpec("t", terms, LATENCY), ServeOptions()) as url:
        scene = Scene(url, port, tmp_path)
        told = Told()
        with pytest.raises(WindowEmptyError) as caught:
            scene.perform(scene.call("Run `echo 1` and `echo 2`.", "anthropic"), told)
        assert caught.value.result is not None
        assert caught.value.result.calls == scene.account()["whole"] < 3
        assert caught.value.resets_at_s > time.time() + 4 * 3600


def test_what_another_version_has_kept_is_asked_again(scene: Scene) -> None:
    call, first = scene.call("Run `echo 1`."), Told()
    scene.perform(call, first)
    spoilt = [first.kept[0][:17] + b'[{"kind": "unheard of"}]', *first.kept[1:]]
    assert scene.perform(call, Told(kept=spoilt)).calls == 2


def test_a_turn_that_was_cut_does_nothing(scene: Scene) -> None:
    call = scene.call("write a long file", model="script", max_tokens=20)
    with pytest.raises(AttemptError, match="cut at max_tokens: 20"):
        scene.perform(call)
    assert not (scene.folder / "work" / "long.txt").exists()


def test_many_uses_are_kept_by_turns_when_there_is_little_room(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tools_memory, "ENTRIES_MAX", 10)
    told = Told()
    scene.perform(scene.call("Run `echo 1`, `echo 2` and `echo 3`.", turns=4), told)
    assert len(told.kept) == 10
    with pytest.raises(AttemptError, match="would have to be kept"):
        scene.perform(scene.call("Run `echo 4`.", turns=4), told)
