"""`headway gateway`, as a person at a shell uses it: real processes, a simulated provider."""

from __future__ import annotations

import json
import os
import signal
import socket
import stat
import subprocess
import sys
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from headway.cli.main import main
from headway.gateway import background
from headway.sim.server import launched
from tests.integration.broker_home import Home, home, is_alive, until

ASKED = {"model": "echo", "max_tokens": 9, "messages": [{"role": "user", "content": "hello"}]}

CALL = """
import http.client, json, os, sys
from urllib.parse import urlsplit
at = urlsplit(os.environ["ANTHROPIC_BASE_URL"])
connection = http.client.HTTPConnection(at.hostname, at.port, timeout=30)
asked = {"model": "echo", "max_tokens": 9, "messages": [{"role": "user", "content": "hello"}]}
connection.request("POST", at.path + "/v1/messages", json.dumps(asked), {
    "x-api-key": os.environ.get("ANTHROPIC_API_KEY", "any"), "content-type": "application/json"})
answer = connection.getresponse()
print(answer.status, json.loads(answer.read())["content"][0]["text"])
connection.close()
"""


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Home]:
    """A user of their own, without agents; whatever gateway was left is ended."""
    for name in list(os.environ):
        if name.endswith(("_BASE_URL", "_API_KEY")) or name.startswith("HEADWAY_GATEWAY"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(path for path in sys.path if path))
    with home(monkeypatch) as made:
        try:
            yield made
        finally:
            running = background.find(made.place)
            if running is not None:
                background.end_now(running)
                assert background.stop(made.place, running, 20.0)


@pytest.fixture(scope="module")
def provider() -> Iterator[str]:
    with launched("--first-byte-s", "0.01", "--per-token-s", "0.001") as url:
        yield url


def command(*words: str) -> list[str]:
    return [sys.executable, "-m", "headway", "gateway", *words]


def gateway(
    *words: str, environ: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command(*words), capture_output=True, text=True, timeout=300, check=False,
        env=None if environ is None else {**os.environ, **environ},
    )  # fmt: skip


def variables() -> dict[str, str]:
    done = gateway("env", "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    return {str(name): str(value) for name, value in found.items()}


def status() -> dict[str, Any]:
    done = gateway("status", "--json")
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout))


def live(here: Home) -> tuple[int, int]:
    """Calls in flight and held, asked without a process of its own."""
    running = background.find(here.place)
    assert running is not None
    told = json.loads(background.page(f"{running.url}/{running.token}", "status") or b"{}")
    return told["in_flight"], told["held"]


def call(base_url: str) -> tuple[int, dict[str, str], bytes]:
    at = urlsplit(base_url)
    connection = HTTPConnection(at.hostname or "", at.port, timeout=30)
    try:
        headers = {"x-api-key": "any", "content-type": "application/json"}
        connection.request("POST", f"{at.path}/v1/messages", json.dumps(ASKED), headers)
        answer = connection.getresponse()
        told = {name.lower(): value for name, value in answer.getheaders()}
        return answer.status, told, answer.read()
    finally:
        connection.close()


@contextmanager
def calling(base_url: str, count: int) -> Iterator[list[Future[tuple[int, dict[str, str], bytes]]]]:
    with ThreadPoolExecutor(count) as threads:
        yield [threads.submit(call, base_url) for _ in range(count)]


def test_a_command_gets_a_gateway_of_its_own(here: Home, provider: str) -> None:
    done = gateway("--upstream", provider, "--", sys.executable, "-c", CALL)
    assert (done.returncode, done.stdout) == (0, "200 hello\n")
    assert " headway 1 call, 0 held, 0 absorbed, " in done.stderr
    assert gateway("status").returncode == 69


def test_the_exit_code_is_the_commands(here: Home) -> None:
    done = gateway("--", "sh", "-c", 'printf "%s|" "$@"; exit 7', "sh", "--port", "--", "a b")
    assert (done.returncode, done.stdout) == (7, "--port|--|a b|")
    assert gateway("--", "sh", "-c", "kill -TERM $$").returncode == 143
    missing = gateway("--", "no-such-program")
    assert (missing.returncode, "not found" in missing.stderr) == (127, True)
    assert gateway("--", "/").returncode == 126


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signals_are_passed_on(here: Home, number: signal.Signals) -> None:
    script = (
        "import signal, sys, os\n"
        "for n in (15, 2, 10): signal.signal(n, lambda n, f: sys.exit(n + 40))\n"
        "print(os.getpid(), flush=True)\nsignal.pause()\n"
    )
    with subprocess.Popen(
        command("--", sys.executable, "-c", script),
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        assert process.stdout is not None
        pid = int(process.stdout.readline())
        process.send_signal(number)
        assert process.wait(20) == number + 40
    assert not is_alive(pid)


def test_a_gateway_in_the_background_is_found_used_and_ended(here: Home, provider: str) -> None:
    started = gateway("--upstream", provider, "--port", "0", "--detach")
    assert started.returncode == 0, started.stderr
    assert "headway gateway env" in started.stderr
    told = variables()
    assert call(told["ANTHROPIC_BASE_URL"])[0] == 200
    shown = status()
    assert shown["total"]["calls"] == 1
    assert shown["upstreams"]["anthropic"] == provider
    people = gateway("status").stdout
    assert "1 call, 5 tokens in" in people
    assert told["HEADWAY_GATEWAY"].rsplit("/", 1)[1] not in people
    for path in (f"{here.place.runtime}/gateway.json", f"{here.place.state}/gateway.token"):
        assert stat.S_IMODE(os.stat(path).st_mode) == 0o600
    again = gateway("--detach")
    assert (again.returncode, "runs already" in again.stderr) == (69, True)
    assert gateway("stop").returncode == 0
    # It has let go of its place; its process ends with the next thing that it does.
    until(lambda: not is_alive(shown["pid"]))
    assert gateway("status").returncode == 69
    assert "no gateway runs" in gateway("stop").stderr


def test_a_token_that_others_could_read_is_given_up(here: Home, provider: str) -> None:
    path = Path(here.place.state) / "gateway.token"
    gateway("--upstream", provider, "--port", "0", "--detach")
    gateway("stop")
    before = path.read_text()
    gateway("--upstream", provider, "--port", "0", "--detach")
    gateway("stop")
    assert path.read_text() == before
    path.chmod(0o644)
    gateway("--upstream", provider, "--port", "0", "--detach")
    assert path.read_text() != before
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_what_a_killed_gateway_left_is_not_taken_for_one(here: Home, provider: str) -> None:
    gateway("--upstream", provider, "--port", "0", "--detach")
    pid = status()["pid"]
    os.kill(pid, signal.SIGKILL)
    until(lambda: not is_alive(pid))
    assert os.path.exists(f"{here.place.runtime}/gateway.json")
    assert gateway("status").returncode == 69
    assert gateway("--upstream", provider, "--port", "0", "--detach").returncode == 0
    assert status()["pid"] != pid


def test_shells_get_what_they_can_read(here: Home, provider: str) -> None:
    gateway("--upstream", provider, "--port", "0", "--detach")
    told = variables()
    shown = gateway("env").stdout + 'printf %s "$HEADWAY_GATEWAY_UPSTREAMS"'
    read = subprocess.run(["sh", "-c", shown], capture_output=True, text=True, check=True)
    assert read.stdout == told["HEADWAY_GATEWAY_UPSTREAMS"]
    fish = gateway("env", "--shell", "fish").stdout
    assert f"set -gx ANTHROPIC_BASE_URL '{told['ANTHROPIC_BASE_URL']}'\n" in fish


def test_a_command_in_a_shell_that_is_paced_uses_that_gateway(here: Home, provider: str) -> None:
    gateway("--upstream", provider, "--port", "0", "--detach")
    told = variables()
    script = 'printf %s "$HEADWAY_GATEWAY"'
    assert gateway("--", "sh", "-c", script, environ=told).stdout == told["HEADWAY_GATEWAY"]
    gateway("stop")
    own = gateway("--", sys.executable, "-c", CALL, environ=told)
    assert own.stdout == "200 hello\n"


def test_a_port_that_is_taken_is_told(here: Home, provider: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        done = gateway("--upstream", provider, "--port", str(taken.getsockname()[1]), "--detach")
    assert done.returncode == 69
    assert "cannot listen" in done.stderr


def test_without_its_own_port_it_takes_another(here: Home, provider: str) -> None:
    with socket.socket() as taken:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            taken.bind(("127.0.0.1", 4929))
            taken.listen()
        except OSError:
            pass  # Another gateway on this machine has it, which is as good.
        assert gateway("--upstream", provider, "--detach").returncode == 0
        assert not variables()["HEADWAY_GATEWAY"].startswith("http://127.0.0.1:4929/")
    assert "4929 is taken" in (Path(here.place.state) / "gateway.log").read_text()


def limited(*words: str) -> None:
    done = subprocess.run([sys.executable, "-m", "headway", "limits", *words],
                          capture_output=True, check=False)  # fmt: skip
    assert done.returncode == 0


@pytest.mark.wallclock
def test_a_gateway_that_ends_lets_calls_in_flight_end_and_sends_the_others_back(
    here: Home,
) -> None:
    limited("set", "concurrent=1")
    with launched("--first-byte-s", "4") as slow:
        assert gateway("--upstream", slow, "--port", "0", "--detach").returncode == 0
        with calling(variables()["ANTHROPIC_BASE_URL"], 3) as calls:
            until(lambda: live(here) == (1, 2))
            assert gateway("stop").returncode == 0
            answers = sorted((one.result()[:2] for one in calls), key=lambda one: one[0])
    assert [code for code, _ in answers] == [200, 503, 503]
    assert all(1 <= int(headers["retry-after"]) <= 60 for _, headers in answers[1:])


@pytest.mark.wallclock
def test_a_second_signal_ends_it_now(here: Home) -> None:
    with launched("--first-byte-s", "60") as slow:
        assert gateway("--upstream", slow, "--port", "0", "--detach").returncode == 0
        at = urlsplit(variables()["ANTHROPIC_BASE_URL"])
        connection = HTTPConnection(at.hostname or "", at.port, timeout=30)
        headers = {"x-api-key": "any", "content-type": "application/json"}
        connection.request("POST", f"{at.path}/v1/messages", json.dumps(ASKED), headers)
        until(lambda: live(here) == (1, 0))
        pid = status()["pid"]
        assert gateway("stop", "--now").returncode == 0
        until(lambda: not is_alive(pid))
        connection.close()


def test_in_the_foreground_it_says_where_it_is_and_ends_at_an_interrupt(
    here: Home, provider: str
) -> None:
    with subprocess.Popen(
        command("--upstream", provider, "--port", "0"), stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stderr is not None
        assert "gateway at http://127.0.0.1:" in process.stderr.readline()
        assert call(variables()["ANTHROPIC_BASE_URL"])[0] == 200
        process.send_signal(signal.SIGINT)
        assert process.wait(20) == 0
        assert process.stderr.read() == ""


@pytest.mark.parametrize(
    ("words", "says"),
    [(("claude",), "headway gateway -- claude"), (("--",), "no command after"),
     (("status", "--", "x"), "takes no command"), (("--detach", "--", "x"), "do not go together"),
     (("--host", "0.0.0.0"), "other machines"), (("--upstream", "x"), "--upstream"),
     (("--wait", "5"), "--wait 90s"), (("--drain", "soon"), "--drain 30s"),
     (("--interactive",), "for a command after `--`"),
     (("env", "--shell", "csh"), "did you mean `sh`?\n")],
)  # fmt: skip
def test_a_mistake_is_told_in_one_message(
    here: Home, words: tuple[str, ...], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["gateway", *words]) == 2
    out, err = capsys.readouterr()
    assert says in err
    assert "Traceback" not in err
    assert out == ""
