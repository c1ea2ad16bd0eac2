"""`headway gateway -- CMD` with real programs, however they are started; judged by the provider.

Nothing of them is on the PATH: they are started by their path, by `npx` or by a script.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from tests.agents.agents import CLIENTS, CODEX, HERE, INSTALLED, NOWHERE, Client, Urls, is_installed
from tests.agents.crowd import Task
from tests.promises.user import Provider, User, provider, user

pytestmark = [
    pytest.mark.agents,
    pytest.mark.skipif(not is_installed(), reason="`make test-agents` installs the agents"),
]

BIN: Final = INSTALLED / "node_modules" / ".bin"
WITHIN_S: Final = 900.0
SUMMARY: Final = re.compile(r" headway (\d+) calls?, (\d+) held, (\d+) absorbed, ")


@pytest.fixture
def someone(tmp_path: Path) -> Iterator[User]:
    with user(tmp_path / "user") as found:
        yield found


def set_up(someone: User, client: Client, at: Provider) -> None:
    """The program as its user has set it up, with a provider of its own; nothing leaves the
    machine."""
    someone.env |= {"TERM": "dumb", "HTTPS_PROXY": NOWHERE, "HTTP_PROXY": NOWHERE, "NO_PROXY": HERE}
    # opencode takes its folder from there.
    someone.env["PWD"] = str(someone.folder)
    home = Path(someone.env["HOME"])
    # opencode is configured in its project's folder, which the helper has below the home.
    (home / "project").symlink_to(someone.folder)
    someone.env |= client.prepared(home, Urls.all_at(at.url))


def command(client: Client, steps: int, start: str = "path", number: int = 101) -> list[str]:
    """The command line that starts the program in one of three ways."""
    name, *arguments = client.arguments(Task(number, steps).prompt)
    program = str(BIN / name)
    if start == "npx":
        where = 'folder=$PWD; cd "$0" && exec npx --no -- sh -c \'cd "$0" && exec "$@"\''
        return ["sh", "-c", f'{where} "$folder" "$@"', str(INSTALLED), name, *arguments]
    if start == "script":
        return ["sh", "-c", 'exec "$0" "$@"', program, *arguments]
    return [program, *arguments]


def summed(stderr: str) -> tuple[int, ...]:
    found = SUMMARY.search(stderr)
    assert found, stderr
    return tuple(map(int, found.groups()))


def arrivals(at: Provider) -> list[dict[str, Any]]:
    return list(at.truth()["arrivals"])


@pytest.mark.parametrize("start", ["path", "npx", "script"])
@pytest.mark.parametrize("client", CLIENTS, ids=lambda client: client.name)
def test_every_call_of_an_agent_comes_by_however_it_is_started(
    someone: User, client: Client, start: str
) -> None:
    with provider("--model", "agent", "--first-byte-s", "0.05") as at:
        set_up(someone, client, at)
        ended = someone.headway("gateway", "--", *command(client, 2, start), within_s=WITHIN_S)
        seen = arrivals(at)
    assert ended.returncode == 0, ended.stdout[-2000:] + ended.stderr
    assert len(seen) >= 3
    assert {one["how"] for one in seen} == {"whole"}
    assert summed(ended.stderr) == (len(seen), 0, 0)


def test_eight_codex_by_their_path_share_what_the_provider_allows(someone: User) -> None:
    """Each with a gateway of its own: without one, 6 of their 10 first calls were refused."""
    allows = ("--concurrent", "2", "--first-byte-s", "1", "--per-token-s", "0.000001")
    with provider("--model", "agent", *allows) as at:
        set_up(someone, CODEX, at)
        assert someone.headway("limits", "set", "concurrent=2").returncode == 0
        crowd = [
            someone.start("gateway", "--", *command(CODEX, 3, number=number))
            for number in range(101, 109)
        ]
        ends = [process.communicate(timeout=WITHIN_S) for process in crowd]
        seen = arrivals(at)
    for number, (process, (out, err)) in enumerate(zip(crowd, ends, strict=True), 101):
        assert process.returncode == 0, err
        assert all(result in CODEX.answer(out) for result in Task(number, 3).results), out
    assert len(seen) == 32
    assert {one["how"] for one in seen} == {"whole"}
    counted = [summed(err) for _, err in ends]
    assert sum(calls for calls, _, _ in counted) == 32
    assert sum(held for _, held, _ in counted) > 0


@pytest.mark.parametrize("start", ["path", "npx"])
def test_a_turn_of_codex_is_replayed_whole(someone: User, start: str) -> None:
    """Its home is new: the skills that it brings are in the home that headway made, and Codex tells
    the model where."""
    with provider("--model", "agent", "--first-byte-s", "0.05") as at:
        set_up(someone, CODEX, at)
        first = _replayable(someone, "--record", command(CODEX, 4, start))
        recorded = len(arrivals(at))
        again = _replayable(someone, "--replay", command(CODEX, 4))
        assert (recorded, len(arrivals(at))) == (5, 5), again.stderr
    assert "5 replayed" in again.stderr
    assert "measured" not in again.stderr
    assert CODEX.answer(first.stdout) == CODEX.answer(again.stdout) != ""


def _replayable(someone: User, option: str, words: list[str]) -> subprocess.CompletedProcess[str]:
    # In a folder for temporary files Codex would not install what it brings.
    someone.env["TMPDIR"] = os.path.join(someone.env["HOME"], "tmp")
    ended = someone.headway("gateway", option, "calls.rec", "--", *words, within_s=WITHIN_S)
    assert ended.returncode == 0, ended.stderr
    return ended


def test_the_settings_of_a_user_stay_in_force(someone: User) -> None:
    """Skills, instructions and conversations of the user's own home."""
    with provider("--model", "agent", "--first-byte-s", "0.05") as at:
        set_up(someone, CODEX, at)
        home = Path(someone.env["HOME"], ".codex")
        (home / "sessions").mkdir()
        before = (home / "config.toml").read_text()
        ended = someone.headway("gateway", "--", *command(CODEX, 1), within_s=WITHIN_S)
        assert ended.returncode == 0, ended.stderr
        (rollout,) = (home / "sessions").rglob("rollout-*.jsonl")
        name, _, *arguments, _ = CODEX.arguments("")
        resumed = [str(BIN / name), "exec", "resume", "--last", *arguments, "Run `expr 1 + 1`."]
        again = someone.headway("gateway", "--", *resumed, within_s=WITHIN_S)
        assert again.returncode == 0, again.stderr
        assert len(arrivals(at)) == summed(ended.stderr)[0] + summed(again.stderr)[0]
    assert rollout.exists()
    assert (home / "config.toml").read_text() == before
