"""Commands under a gateway: agents are found however they are started, keys go where they went
before, and a recorded turn is replayed.

The stand-ins read their address as the real programs do:
- Codex 0.166: `$CODEX_HOME/config.toml`, `openai_base_url`, or the `base_url` of its provider. It
  tells the model where the skills in its home are.
- LiteLLM 1.x, aider: `OPENAI_BASE_URL`, then `OPENAI_API_BASE`; `ANTHROPIC_API_BASE`, then
  `ANTHROPIC_BASE_URL`.
- goose: `OPENAI_HOST` with `/v1/chat/completions`.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.promises.user import Provider, User, openai_at, provider, until, user

CALLER: Final = f"""#!{sys.executable}
import json, os, sys, time, tomllib, urllib.request

def post(url, key, body, agent="stand-in/1"):
    headers = {{"content-type": "application/json", "authorization": f"Bearer {{key}}",
               "user-agent": agent}}
    request = urllib.request.Request(url, json.dumps(body).encode(), headers, method="POST")
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.load(answer)

def chat(url, key, text="hello"):
    return post(f"{{url}}/chat/completions", key, {{"model": "echo", "messages": [
        {{"role": "user", "content": text}}]}})

env = os.environ
"""

CODEX: Final = (
    CALLER
    + """
home = env.get("CODEX_HOME") or os.path.join(env["HOME"], ".codex")
try:
    with open(os.path.join(home, "config.toml"), "rb") as file:
        config = tomllib.load(file)
except FileNotFoundError:
    config = {}
provider = config.get("model_providers", {}).get(config.get("model_provider"), {})
url = provider.get("base_url") or config.get("openai_base_url") or "http://127.0.0.1:9/v1"
print("it calls", file=sys.stderr, flush=True)
turns = [f"skills are in {os.path.realpath(home)}/skills"]
for turn in range(int(env.get("TURNS", "1"))):
    said = post(f"{url}/responses", env.get(provider.get("env_key", "OPENAI_API_KEY"), "none"),
                {"model": "echo", "input": " ".join(turns)}, env.get("AGENT", "codex_exec/0.166.0"))
    turns.append(f"turn {turn}")
print(home)
sys.stdout.flush()
if env.get("WAIT"):
    open(env["WAIT"] + ".answered", "w").close()
while env.get("WAIT") and not os.path.exists(env["WAIT"]):
    time.sleep(0.01)
"""
)
LITELLM: Final = (
    CALLER
    + """
chat(env.get("OPENAI_BASE_URL") or env.get("OPENAI_API_BASE") or "http://127.0.0.1:9/v1",
     env["OPENAI_API_KEY"])
"""
)
LITELLM_ANTHROPIC: Final = (
    CALLER
    + """
base = env.get("ANTHROPIC_API_BASE") or env.get("ANTHROPIC_BASE_URL") or "http://127.0.0.1:9"
post(f"{base}/v1/messages", env["ANTHROPIC_API_KEY"], {
    "model": "echo", "max_tokens": 9, "messages": [{"role": "user", "content": "hello"}]})
"""
)
GOOSE: Final = CALLER + """chat(f"{env['OPENAI_HOST']}/v1", env["OPENAI_API_KEY"])\n"""
SDK: Final = CALLER + """chat(env["OPENAI_BASE_URL"], env["OPENAI_API_KEY"])\n"""
LANGCHAIN: Final = CALLER + """chat(env["OPENAI_API_BASE"], env["OPENAI_API_KEY"])\n"""

SUMMARY: Final = re.compile(
    r" headway (\d+) calls?, (\d+) held, (\d+) absorbed, [\d,]+ tokens in, "
)


@pytest.fixture(scope="module")
def behind() -> Iterator[Provider]:
    with provider("--first-byte-s", "0.01", "--per-token-s", "0.0001") as found:
        yield found


@pytest.fixture
def someone(tmp_path: Path) -> Iterator[User]:
    with user(tmp_path / "user") as found:
        yield found


def program(someone: User, name: str, text: str, folder: str = "elsewhere") -> str:
    """A program in a folder that is not on the PATH."""
    path = someone.root / folder / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
    return str(path)


def set_up_codex(someone: User, behind: Provider, key: str) -> str:
    """Codex as its user has configured it: with a provider of its own."""
    config = Path(someone.env["HOME"], ".codex", "config.toml")
    config.parent.mkdir(exist_ok=True)
    config.write_text(
        'model = "echo"\nmodel_provider = "sim"\n[model_providers.sim]\nname = "sim"\n'
        f'base_url = "{behind.url}/v1"\nenv_key = "SIM_KEY"\n'
    )
    someone.env["SIM_KEY"] = key
    return program(someone, "codex", CODEX)


def calls(behind: Provider, key: str) -> int:
    account = behind.account(key)
    return 0 if account is None else int(account["calls"])


def summed(ended: subprocess.CompletedProcess[str]) -> tuple[int, ...]:
    """Calls, held, absorbed: by the line at the end of a command."""
    found = SUMMARY.search(ended.stderr)
    assert found, ended.stderr
    return tuple(map(int, found.groups()))


@pytest.mark.parametrize("start", ["path", "npx", "wrapper", "shell"])
def test_codex_is_paced_however_it_is_started(someone: User, behind: Provider, start: str) -> None:
    key = f"sk-{start}"
    path = set_up_codex(someone, behind, key)
    npx = program(someone, "npx", f'#!/bin/sh\nshift\nexec {path} "$@"\n', "bin")
    wrapper = program(someone, "my-agent", f'#!/bin/sh\ncd / && env FOO=1 {path} "$@"\n')
    words = {
        "path": [path, "exec"],
        "npx": [npx, "codex", "exec"],
        "wrapper": [wrapper],
        "shell": ["sh", "-c", f"'{path}' exec & wait"],
    }
    ended = someone.headway("gateway", "--", *words[start])
    assert ended.returncode == 0, ended.stderr
    assert calls(behind, key) == 1
    assert summed(ended) == (1, 0, 0)


@pytest.mark.parametrize("start", ["each", "run"])
def test_commands_of_a_run_are_paced_when_codex_is_not_on_the_path(
    someone: User, behind: Provider, start: str
) -> None:
    key = f"sk-{start}"
    path = set_up_codex(someone, behind, key)
    someone.write("plan.yaml", f"headway: 1\ntasks:\n  ask: {{run: {path} exec}}\n")
    words = {"each": ["each", path, ":::", "one"], "run": ["run", "plan.yaml", "--yes"]}
    ended = someone.headway(*words[start])
    assert ended.returncode == 0, ended.stderr
    assert calls(behind, key) == 1
    (lanes,) = (one["accounts"] for one in someone.json("limits"))
    assert sum(lane["granted"] for lane in lanes) == 1


VARIABLES: Final = {
    "litellm": (LITELLM, "OPENAI_API_BASE", "/v1", "OPENAI_API_KEY"),
    "langchain": (LANGCHAIN, "OPENAI_API_BASE", "/v1", "OPENAI_API_KEY"),
    "goose": (GOOSE, "OPENAI_HOST", "", "OPENAI_API_KEY"),
    "litellm-anthropic": (LITELLM_ANTHROPIC, "ANTHROPIC_API_BASE", "", "ANTHROPIC_API_KEY"),
}


@pytest.mark.parametrize("client", list(VARIABLES))
def test_a_key_goes_where_it_went_before(someone: User, behind: Provider, client: str) -> None:
    """Its own variable leads to one provider, that of other clients to another."""
    text, variable, version, key_variable = VARIABLES[client]
    key = f"sk-own-{client}"
    path = program(someone, client, text)
    someone.env |= {variable: f"{behind.url}{version}", key_variable: key}
    ended = someone.headway("gateway", "--", path)
    assert ended.returncode == 0, ended.stderr
    assert (calls(behind, key), summed(ended)) == (1, (1, 0, 0))


@pytest.mark.parametrize("client", list(VARIABLES))
def test_other_variables_follow_the_provider(someone: User, behind: Provider, client: str) -> None:
    """Only the variable of the SDKs is set, or an option names the provider."""
    text, _, _, key_variable = VARIABLES[client]
    key = f"sk-follows-{client}"
    path = program(someone, client, text)
    someone.env |= {key_variable: key, "OPENAI_HOST": "http://127.0.0.1:9"}
    ended = someone.headway("gateway", "--upstream", behind.url, "--", path)
    assert (ended.returncode, calls(behind, key), summed(ended)) == (0, 1, (1, 0, 0))


def test_two_addresses_of_one_kind_are_kept_apart(someone: User, behind: Provider) -> None:
    with provider("--first-byte-s", "0.01") as other:
        someone.env |= openai_at(behind, "sk-apart") | {"OPENAI_API_BASE": f"{other.url}/v1"}
        for text, there in ((SDK, behind), (LITELLM, behind), (LANGCHAIN, other)):
            before = calls(there, "sk-apart")
            ended = someone.headway("gateway", "--", program(someone, "client", text))
            assert (ended.returncode, summed(ended)) == (0, (1, 0, 0))
            assert calls(there, "sk-apart") == before + 1


def test_a_command_whose_calls_do_not_come_by_is_told(someone: User, behind: Provider) -> None:
    around = CALLER + f'chat("{behind.url}/v1", "sk-around")\n'
    ended = someone.headway("gateway", "--", program(someone, "around", around))
    assert ended.returncode == 0
    assert "WARNING: no call came by the gateway while " in ended.stderr
    assert "`headway gateway env`" in ended.stderr
    missing = someone.headway("gateway", "--", "no-such-program")
    assert (missing.returncode, "WARNING" in missing.stderr) == (127, False)


def test_a_command_that_only_lists_models_made_no_call(someone: User, behind: Provider) -> None:
    someone.env |= openai_at(behind, "sk-lists")
    lists = CALLER + 'urllib.request.urlopen(env["OPENAI_BASE_URL"] + "/models")\n'
    ended = someone.headway("gateway", "--", program(someone, "lists", lists))
    assert "WARNING: no call came by the gateway" in ended.stderr
    assert "0 calls" not in ended.stderr


def test_a_gateway_of_the_whole_shell_sets_the_same(someone: User, behind: Provider) -> None:
    path = set_up_codex(someone, behind, "sk-whole-shell")
    someone.headway("gateway", "--port", "0", "--detach")
    told = json.loads(someone.headway("gateway", "env", "--json").stdout)
    someone.env |= told
    assert subprocess.run([path], env=someone.env, check=False).returncode == 0
    assert summed(someone.headway("gateway", "--", path)) == (1, 0, 0)
    missing = someone.headway("gateway", "--", "no-such-program")
    assert (missing.returncode, "WARNING" in missing.stderr) == (127, False)
    quiet = someone.headway("gateway", "--", "true")
    assert "WARNING: no call came by" in quiet.stderr
    assert calls(behind, "sk-whole-shell") == 2
    (lanes,) = (one["accounts"] for one in someone.json("limits"))
    assert sum(lane["granted"] for lane in lanes) == 2
    someone.headway("gateway", "stop", "--now")


def test_a_recorded_turn_is_replayed_also_in_a_home_of_headways(
    someone: User, behind: Provider
) -> None:
    path = set_up_codex(someone, behind, "sk-replay")
    someone.env["TURNS"] = "5"
    first = someone.headway("gateway", "--record", "calls.rec", "--", path)
    again = someone.headway("gateway", "--replay", "calls.rec", "--", "sh", "-c", path)
    assert calls(behind, "sk-replay") == 5
    assert first.stdout == again.stdout
    assert "5 replayed" in again.stderr
    assert "measured" not in again.stderr


def test_of_a_recording_of_another_home_it_is_said_before_its_calls_are_paid(
    someone: User, behind: Provider
) -> None:
    """Of another state folder, or of a gateway of the whole shell."""
    path = set_up_codex(someone, behind, "sk-moved")
    home = someone.headway("gateway", "--record", "own.rec", "--", path).stdout.strip()
    someone.headway("gateway", "--port", "0", "--detach", "--record", "shared.rec")
    told = json.loads(someone.headway("gateway", "env", "--json").stdout)
    subprocess.run([path], env=someone.env | told, check=True)
    someone.headway("gateway", "stop")
    wait, state = someone.root / "wait", someone.env["HEADWAY_STATE_DIR"]
    at = {"own.rec": (f"{state}2", os.path.dirname(home)), "shared.rec": (state, f"{state}/homes/")}
    for name, (folder, recorded) in at.items():
        more = {"HEADWAY_STATE_DIR": folder, "WAIT": str(wait)}
        process = someone.start("gateway", "--replay", name, "--", path, env=someone.env | more)
        assert process.stderr is not None
        before = process.stderr.readline()
        happens = next((line for line in process.stderr if line != "it calls\n"), "")
        assert f"{name} was recorded in {recorded}" in before
        assert "so its calls will differ and be paid again" in before
        assert "not as recorded in " in happens, "while the command runs"
        wait.touch()
        process.communicate()
        wait.unlink()
    assert calls(behind, "sk-moved") == 4


def test_recordings_keep_their_homes_when_several_are_made_at_once(
    someone: User, behind: Provider
) -> None:
    path = set_up_codex(someone, behind, "sk-several")
    done = someone.root / "done"
    someone.env |= {"WAIT": str(done), "TURNS": "2"}
    names = ("a.rec", "b.rec", "c.rec")
    together = [someone.start("gateway", "--record", name, "--", path) for name in names]
    until(lambda: calls(behind, "sk-several") == 6)
    done.touch()
    homes = [process.communicate()[0] for process in together]
    assert len(set(homes)) == 3
    for name, home in zip(reversed(names), reversed(homes), strict=True):
        ended = someone.headway("gateway", "--replay", name, "--", path)
        assert (ended.stdout, "2 replayed" in ended.stderr) == (home, True)
    assert calls(behind, "sk-several") == 6


def test_a_gateway_that_was_killed_leaves_its_home_to_the_next(
    someone: User, behind: Provider
) -> None:
    path = set_up_codex(someone, behind, "sk-killed")
    someone.env["WAIT"] = str(someone.root / "never")
    process = someone.start("gateway", "--record", "calls.rec", "--", path)
    until(lambda: calls(behind, "sk-killed") == 1)
    assert process.stdout is not None
    home = process.stdout.readline()
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    del someone.env["WAIT"]
    again = someone.headway("gateway", "--replay", "calls.rec", "--", path)
    assert (again.stdout, calls(behind, "sk-killed")) == (home, 1)


def test_of_a_client_that_was_not_measured_it_is_said_before_its_calls_are_paid(
    someone: User, behind: Provider
) -> None:
    path = set_up_codex(someone, behind, "sk-later")
    someone.env["AGENT"] = "codex_exec/0.999.0 (Linux)"
    someone.headway("gateway", "--record", "calls.rec", "--", path)
    again = someone.headway("gateway", "--replay", "calls.rec", "--", path).stderr
    words = "codex 0.999.0: replay was measured with 0.166.0; "
    assert -1 < again.find(words) < again.find("it calls")
    someone.env["AGENT"] = "codex_exec/0.888.0 (Linux)"
    someone.env["TURNS"] = "2"
    other = someone.headway("gateway", "--replay", "calls.rec", "--", path)
    assert "codex 0.888.0: replay was measured with 0.166.0; " in other.stderr


@pytest.mark.parametrize("version", ["0.166.0", "0.999.0"])
def test_before_an_agent_is_resumed_it_is_said_whether_its_replay_was_measured(
    someone: User, behind: Provider, version: str
) -> None:
    """Killed in the middle, it is started again: what it was answered is not paid again."""
    key, done = f"sk-resumed-{version}", someone.root / "done"
    set_up_codex(someone, behind, key)
    told = (
        '\nprint(json.dumps({"type": "item.completed", "item": {"type": "agent_message", '
        '"text": "done"}}))\nprint(json.dumps({"type": "turn.completed", "usage": {}}))\n'
    )
    program(someone, "codex", CODEX + told, "bin")
    someone.env["PATH"] = f"{someone.root / 'bin'}{os.pathsep}{someone.env['PATH']}"
    someone.env |= {"TURNS": "3", "WAIT": str(done), "AGENT": f"codex_exec/{version} (Linux)"}
    someone.write("plan.yaml", "headway: 1\ntasks:\n  ask: {agent: codex, prompt: hello}\n")
    process = someone.start("run", "plan.yaml", "--yes")
    until(Path(f"{done}.answered").exists)
    someone.close()
    process.communicate()
    done.touch()
    ended = someone.headway("resume")
    assert ended.returncode == 0, ended.stderr
    assert calls(behind, key) == 3, ended.stderr
    notice = ended.stderr.find(f"codex {version}: replay was measured with 0.166.0; ")
    began = ended.stderr.find("ask began again, its recorded calls replayed")
    assert (notice >= 0) == (version != "0.166.0")
    assert notice < began, ended.stderr
