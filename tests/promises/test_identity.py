"""Which calls belong to one account, over HTTP: new tokens, keys, organisations, proxies, names.

The provider is `headway sim serve`, behind proxies that name the organisation of each key, as
providers' own front servers do.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.promises.user import SOON_S, Provider, User, provider, user

KEYS = ("key-one-93c1d5", "key-two-77aae0")
TOKENS = ("sk-ant-oat01-first-5f0e", "sk-ant-oat01-second-a1b2")
PERSON = "0f9c7c1e-1111-4222-8333-444455556666"
ORGANISATIONS = ("a3b1d2c4-aaaa-4bbb-8ccc-01", "a3b1d2c4-aaaa-4bbb-8ccc-02")
SECRETS = (*KEYS, *TOKENS, *ORGANISATIONS, PERSON)
WINDOW_TOKENS = 1_500
CALL_TOKENS = 120
SERVED = ("--window", f"5h={WINDOW_TOKENS}", "--first-byte-s", "0.02", "--per-token-s", "0")

CALLS = """
import json, os, sys, headway, httpx2
client = headway.pace(httpx2.Client(timeout=60)) if "--pace" in sys.argv else httpx2.Client()
secrets, *places = [json.load(open("secrets.json")), *sys.argv[1:]]
for number, place in enumerate(one for one in places if one != "--pace"):
    key = secrets[int(place)]
    is_login = key.startswith("sk-ant-oat")
    body = {"model": "tokens-20", "max_tokens": 50,
            "messages": [{"role": "user", "content": f"call {number} " + "word " * 80}]}
    if is_login:
        body["metadata"] = {"user_id": f"user_5f_account_{secrets[-1]}_session_77"}
    headers = {"authorization": f"Bearer {key}"} if is_login else {"x-api-key": key}
    url = os.environ["ANTHROPIC_BASE_URL"] + "/v1/messages"
    client.post(url, json=body, headers=headers).raise_for_status()
"""
"""Sends a call with each of the keys and tokens at these places, one after the other."""


@contextmanager
def proxy(to: str, owners: Mapping[str, str], *, says_owner: bool = True) -> Iterator[str]:
    """Passes the calls of all keys of an organisation on as calls on one account."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            key = self.headers["x-api-key"] or self.headers["authorization"].split()[1]
            headers = {"content-type": "application/json", "x-api-key": owners[key]}
            request = urllib.request.Request(to + self.path, body, headers)
            try:
                answer = urllib.request.urlopen(request, timeout=SOON_S)
            except urllib.error.HTTPError as refused:
                answer = refused
            with answer:
                data = answer.read()
                self.send_response(answer.status)
                for name, value in answer.headers.items():
                    if name.lower().startswith(("anthropic-", "content-type", "retry-after")):
                        self.send_header(name, value)
            if says_owner:
                self.send_header("anthropic-organization-id", owners[key])
            self.send_header("content-length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, format: str, *args: object) -> None:
            """Nobody reads it."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


@pytest.fixture
def served() -> Iterator[Provider]:
    with provider(*SERVED) as found:
        yield found


@pytest.fixture
def someone(tmp_path: Path) -> Iterator[User]:
    """A user; no file that headway wrote for them holds a key, a token or an id."""
    with user(tmp_path) as found:
        found.write("calls.py", CALLS)
        found.write("secrets.json", json.dumps(SECRETS))
        yield found
        project = found.folder
        written = [one for one in tmp_path.rglob("*") if one.is_file()]
        assert any(project not in one.parents for one in written)
        for one in written:
            held = one.read_bytes() if project not in one.parents else b""
            held += str(one.relative_to(tmp_path)).encode()
            assert [word for word in SECRETS if word.encode() in held] == [], one


def call(someone: User, url: str, *keys: str) -> None:
    """A program in `headway.pace` that sends calls with these keys."""
    done = subprocess.run(
        [sys.executable, "calls.py", "--pace", *places_of(keys)], cwd=someone.folder,
        env=someone.env | {"ANTHROPIC_BASE_URL": url}, text=True, timeout=SOON_S, check=False,
        capture_output=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


def places_of(keys: Sequence[str]) -> list[str]:
    """Secrets are in a file of the user's: what a run is given as input stands in its journal."""
    return [str(SECRETS.index(key)) for key in keys]


def accounts(someone: User) -> tuple[dict[str, int], dict[str, str]]:
    """The calls of each account, and the account of each key."""
    words = someone.headway("limits").stdout
    assert [word for word in (*SECRETS, "127.0.0.1") if word in words] == []
    shown = someone.json("limits")[0]
    return {one["account"]: one["granted"] for one in shown["accounts"]}, dict(shown["keys"])


def used(someone: User) -> float:
    (lane,) = someone.json("limits")[0]["accounts"]
    share: float = lane["windows"][0]["used"]
    return share


@pytest.mark.parametrize("says_owner", [True, False])
def test_a_token_renewed_in_the_middle_of_a_run_finds_what_was_used_of_the_window(
    served: Provider, someone: User, says_owner: bool
) -> None:
    one_account = dict.fromkeys(TOKENS, ORGANISATIONS[0])
    items = places_of([TOKENS[0]] * 5 + [TOKENS[1]] * 10)
    with proxy(served.url, one_account, says_owner=says_owner) as url:
        someone.env["ANTHROPIC_BASE_URL"] = url
        command = f"{sys.executable} calls.py {{}}"
        # A run takes 80 % of a window of a login, here with the tokens of both.
        ended = someone.headway("each", "-j", "1", "--no-wait", command, ":::", *items)
    assert ended.returncode == 75, ended.stderr
    calls, keys = accounts(someone)
    (account,) = calls
    assert account.startswith("anthropic#")
    assert set(keys.values()) <= {account}
    arrivals = served.truth()["arrivals"]
    assert [one for one in arrivals if not one["is_accepted"]] == []
    assert calls == {account: len(arrivals)}
    assert len(arrivals) > 5, "the second token was used, too"
    assert 0.5 <= used(someone) <= 0.8 + CALL_TOKENS / WINDOW_TOKENS


def test_two_keys_of_one_organisation_are_one_account_and_keep_what_was_learned(
    served: Provider, someone: User
) -> None:
    with proxy(served.url, dict.fromkeys(KEYS, ORGANISATIONS[0])) as url:
        call(someone, url, *[KEYS[0]] * 4)
        (account,), before = accounts(someone)[0], used(someone)
        call(someone, url, *[KEYS[1]] * 4)
    calls, keys = accounts(someone)
    assert calls == {account: 8}
    assert list(keys.values()) == [account] * 2
    assert used(someone) > before > 0.1


def test_two_organisations_of_one_person_are_two_accounts(served: Provider, someone: User) -> None:
    owners = dict(zip(TOKENS, ORGANISATIONS, strict=True))
    with proxy(served.url, owners) as url:
        call(someone, url, *[TOKENS[0]] * 5, *[TOKENS[1]] * 2, *[TOKENS[0]] * 2)
    calls, _ = accounts(someone)
    assert sorted(calls.values()) == [2, 7]


def test_a_proxy_in_between_makes_no_account_of_its_own(served: Provider, someone: User) -> None:
    owners = dict.fromkeys(KEYS, ORGANISATIONS[0])
    with proxy(served.url, owners) as one, proxy(served.url, owners) as other:
        call(someone, one, *[KEYS[0]] * 3)
        call(someone, other, *[KEYS[0]] * 3)
    calls, _ = accounts(someone)
    assert list(calls.values()) == [6]


def test_accounts_are_joined_by_a_name_with_what_was_learned_and_spent(
    served: Provider, someone: User
) -> None:
    """A proxy that names no organisation: headway cannot know that both keys are one account."""
    with proxy(served.url, dict.fromkeys(KEYS, ORGANISATIONS[0]), says_owner=False) as url:
        call(someone, url, *[KEYS[0]] * 4, *[KEYS[1]] * 3)
        calls, _ = accounts(someone)
        assert sorted(calls.values()) == [3, 4]
        spent = sum(one["spent"]["tokens"] for name, one in someone.json("limits")[0]["ledgers"]
                    if name)  # fmt: skip
        for name in calls:
            assert someone.headway("limits", "name", name, "work").returncode == 0
        call(someone, url, *[KEYS[1]] * 2)
    calls, keys = accounts(someone)
    assert calls == {"work": 9}
    assert list(keys.values()) == ["work"] * 2
    (work,) = [one for name, one in someone.json("limits")[0]["ledgers"] if name == "work"]
    assert work["spent"]["tokens"] > spent > 0
    assert used(someone) >= 0.8 * 9 * CALL_TOKENS / WINDOW_TOKENS
