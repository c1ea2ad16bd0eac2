"""How each agent is started, what is in its home, and what is found of its session later."""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path

import pytest
from msgspec.structs import replace

from headway.agents.kinds import KINDS, Custom, result_in, setting_of
from headway.agents.programs import (
    Errand,
    Session,
    empty_home,
    read_session,
    save_session,
    sessions_of,
)
from headway.errors import BadValueError, StateFileError
from headway.run.agent_tasks import outset_of

SECRET = "the prompt that nobody else may read"
SESSION = "0b8d3a3e-6f5c-4c86-9a0e-3a1f7d1f0c55"
ASKED = Session("edit[1]", "ab", "claude", SESSION, "digest of the prompt", attempt=1)


def errand(tmp_path: Path, **changes: object) -> Errand:
    home = tmp_path / "user"
    home.mkdir(exist_ok=True)
    made = Errand(
        SECRET, "", False, str(tmp_path / "run" / "agents" / "1"), SESSION, False,
        {"HOME": str(home), "PATH": "/bin"},
    )  # fmt: skip
    return replace(made, **changes)


STARTS: dict[str, tuple[tuple[str, ...], tuple[str, ...], list[str]]] = {
    "claude": (("--session-id", SESSION), ("--resume", SESSION), ["CLAUDE_CONFIG_DIR"]),
    "gemini": (("--session-id", SESSION), ("--resume", SESSION), ["GEMINI_CLI_HOME"]),
    "codex": (("-",), ("resume", SESSION, "-"), ["CODEX_HOME"]),
    "opencode": (("json",), ("--session", SESSION),
                 ["XDG_DATA_HOME", "XDG_STATE_HOME", "XDG_CACHE_HOME"]),
}  # fmt: skip


@pytest.mark.parametrize("name", KINDS)
def test_an_agent_is_started_in_its_own_home_and_session_with_its_prompt_on_stdin(
    name: str, tmp_path: Path
) -> None:
    first, later, variables = STARTS[name]
    for goes_on, end in ((False, first), (True, later)):
        asked = errand(tmp_path, goes_on=goes_on)
        start = KINDS[name].start(asked)
        assert start.stdin == SECRET.encode()
        assert (start.argv[0], start.argv[-len(end) :]) == (name, end)
        assert not any(SECRET in word for word in (*start.argv, *start.told.values()))
        assert all(start.told[variable].startswith(f"{asked.home}/") for variable in variables)


def own_files(tmp_path: Path, files: Mapping[str, str]) -> dict[str, str]:
    home = tmp_path / "user"
    for name, text in files.items():
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).write_text(text)
    return {"HOME": str(home), "PATH": "/bin"}


def test_a_home_has_the_users_login_as_a_link_and_none_of_the_rest(tmp_path: Path) -> None:
    files = {
        ".claude/.credentials.json": "c", ".claude/settings.json": "{}",
        ".claude/projects/other/1.jsonl": "theirs", ".claude/history.jsonl": "theirs",
        ".claude.json": json.dumps({"oauthAccount": {"a": 1}, "projects": {"/secret": 1, "/p": {
            "hasTrustDialogAccepted": True, "history": ["theirs"]}}}),
        ".codex/auth.json": "x", ".codex/config.toml": 'model = "m"', ".codex/sessions/1": "theirs",
        ".local/share/opencode/auth.json": "o", ".local/share/opencode/opencode.db": "theirs",
        ".gemini/oauth_creds.json": "g", ".gemini/settings.json": "{}", ".gemini/tmp/1": "theirs",
    }  # fmt: skip
    asked = errand(tmp_path, environ=own_files(tmp_path, files))
    for kind in KINDS.values():
        kind.start(asked)
        kind.start(asked)
    found = {
        str(path.relative_to(asked.home)): path.is_symlink()
        for path in Path(asked.home).rglob("*")
        if not path.is_dir()
    }
    assert found == {
        "claude/.credentials.json": True, "claude/settings.json": True,
        "claude/.claude.json": False, "codex/auth.json": True, "codex/config.toml": False,
        "data/opencode/auth.json": True,
        "gemini/.gemini/oauth_creds.json": True, "gemini/.gemini/settings.json": False,
    }  # fmt: skip
    state = json.loads(Path(asked.home, "claude", ".claude.json").read_text())
    trusted = {"/p": {"hasTrustDialogAccepted": True}}
    assert state == {"oauthAccount": {"a": 1}, "projects": trusted}
    assert Path(asked.home, "claude").stat().st_mode & 0o077 == 0


@pytest.mark.parametrize(
    ("config", "is_given"),
    [
        ('sandbox_mode = "read-only"', True),
        ("not TOML", True),
        ('sandbox_mode = "workspace-write"', False),
        ('sandbox_mode = "danger-full-access"', False),
    ],
)
def test_codex_gets_a_wider_sandbox_only_where_its_own_is_narrower(
    tmp_path: Path, config: str, is_given: bool
) -> None:
    environ = own_files(tmp_path, {".codex/config.toml": config})
    asked = replace(errand(tmp_path, environ=environ), permissions="edit")
    assert ("workspace-write" in KINDS["codex"].start(asked).argv) is is_given
    assert "--sandbox" not in KINDS["codex"].start(replace(asked, permissions="")).argv


def test_claude_is_allowed_everything_by_name_where_root_cannot_bypass(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = replace(errand(tmp_path), permissions="all")
    for uid, sandbox, mode in ((0, "", "acceptEdits"), (0, "1", "bypassPermissions"),
                               (1, "", "bypassPermissions")):  # fmt: skip
        monkeypatch.setattr("os.geteuid", lambda uid=uid: uid)
        start = KINDS["claude"].start(replace(asked, environ={"IS_SANDBOX": sandbox}))
        assert start.argv[start.argv.index("--permission-mode") + 1] == mode
        assert ("--allowedTools" in start.argv) is (mode == "acceptEdits")


def test_opencode_keeps_the_patterns_by_which_edits_are_denied(tmp_path: Path) -> None:
    own = {"OPENCODE_PERMISSION": '{"edit": {"*.key": "deny"}, "bash": "ask"}'}
    asked = replace(errand(tmp_path, environ=own), permissions="edit")
    told = json.loads(KINDS["opencode"].start(asked).told["OPENCODE_PERMISSION"])
    assert told == {"edit": {"*": "allow", "*.key": "deny"}, "bash": "ask"}
    assert list(told["edit"]) == ["*", "*.key"], "the last rule that fits is the one that holds"


def test_a_configuration_of_the_meter_replaces_that_of_an_earlier_attempt(tmp_path: Path) -> None:
    asked = errand(tmp_path)
    for number in (1, 2):
        made = tmp_path / f"homes{number}"
        made.mkdir()
        (made / "config.toml").write_text(f"number = {number}")
        KINDS["codex"].start(replace(asked, environ={**asked.environ, "CODEX_HOME": str(made)}))
        assert f"{number}" in Path(asked.home, "codex", "config.toml").read_text()


@pytest.mark.parametrize(
    ("name", "model", "is_own", "given"),
    [
        ("claude", "anthropic/claude-x", False, "claude-x"), ("claude", "sonnet", True, "sonnet"),
        ("claude", "openai/gpt-5", False, None), ("claude", "claude-x", False, "claude-x"),
        ("codex", "openai/gpt-5", False, "gpt-5"), ("codex", "claude-x", False, None),
        ("codex", "local", True, "local"), ("gemini", "google/gemini-3", False, "gemini-3"),
        ("gemini", "gpt-5", False, None), ("opencode", "openai/gpt-5", False, "openai/gpt-5"),
        ("opencode", "gpt-5", True, None), ("gemini", "", False, None),
    ],
)  # fmt: skip
def test_a_model_is_passed_on_under_the_name_that_the_agent_has_for_it(
    name: str, model: str, is_own: bool, given: str | None, tmp_path: Path
) -> None:
    argv = KINDS[name].start(errand(tmp_path, model=model, is_own_model=is_own)).argv
    option = "-m" if name == "codex" else "--model"
    assert (argv[argv.index(option) + 1] if option in argv else None) == given


def test_a_session_is_found_with_the_replies_that_it_holds(tmp_path: Path) -> None:
    home = tmp_path / "home"
    message = {"role": "assistant", "id": "msg_1"}
    lines: dict[str, list[object]] = {
        f"claude/projects/p/{SESSION}.jsonl": [
            {"message": {"role": "user"}}, {"message": message}, {"message": message},
            {"message": {**message, "id": "2", "model": "<synthetic>"}},
            {"message": {**message, "id": "msg_3"}}, "torn",
        ],
        f"codex/sessions/2026/11/16/rollout-2026-{SESSION}.jsonl": [
            {"type": "token_usage_record"},
            {"payload": {"type": "token_count", "info": {
                "total_token_usage": {"input_tokens": 700, "output_tokens": 30}}}},
            {"type": "token_usage_record"},
        ],
        "gemini/.gemini/tmp/p/chats/session-1.jsonl": [
            {"sessionId": SESSION}, {"id": "a", "type": "gemini"}, {"id": "a", "type": "gemini"},
            {"$set": {"messages": [{"id": "b", "type": "gemini"}, {"id": "c", "type": "user"}]}},
        ],
    }  # fmt: skip
    for name, content in lines.items():
        (home / name).parent.mkdir(parents=True)
        text = "\n".join(one if isinstance(one, str) else json.dumps(one) for one in content)
        (home / name).write_text(text)
    make_database(home / "data" / "opencode" / "opencode.db")
    environ = {"HOME": str(tmp_path)}
    found = {name: kind.held(str(home), SESSION, environ) for name, kind in KINDS.items()}
    counted = {name: held.replies for name, held in found.items() if held is not None}
    assert counted == {"claude": 2, "codex": 2, "gemini": 2, "opencode": 1}
    cut = {name: held.is_cut for name, held in found.items() if held is not None}
    assert cut == {"claude": True, "codex": True, "gemini": False, "opencode": False}
    codex, opencode = found["codex"], found["opencode"]
    assert codex is not None
    assert (codex.input_tokens, codex.output_tokens) == (700.0, 30.0)
    assert opencode is not None
    assert opencode.session == "ses_new"
    for kind in KINDS.values():
        assert kind.held(str(tmp_path / "nowhere"), SESSION, environ) is None


def make_database(path: Path) -> None:
    path.parent.mkdir(parents=True)
    with closing(sqlite3.connect(path)) as database:
        database.execute("CREATE TABLE session (id, parent_id, time_created)")
        database.execute("CREATE TABLE message (session_id, data)")
        database.executemany(
            "INSERT INTO session VALUES (?, ?, ?)",
            [("ses_old", None, 1), ("ses_new", None, 2), ("ses_sub", "ses_new", 3)],
        )
        told = [
            {"role": "user"}, {"role": "assistant", "time": {"completed": 5}},
            {"role": "assistant", "time": {"created": 6}},
        ]  # fmt: skip
        database.executemany(
            "INSERT INTO message VALUES ('ses_new', ?)", [(json.dumps(one),) for one in told]
        )
        database.commit()


def test_a_database_of_another_version_has_no_session(tmp_path: Path) -> None:
    path = tmp_path / "data" / "opencode" / "opencode.db"
    path.parent.mkdir(parents=True)
    path.write_bytes(b"something else entirely" * 100)
    assert KINDS["opencode"].held(str(tmp_path), "", {}) is None


def test_a_pattern_is_lexed_once_and_filled_in_word_by_word(tmp_path: Path) -> None:
    table = {"command": "hermes run -p @{prompt_file} '--model={model}' {session}"}
    start = Custom(setting_of("hermes", table)).start(errand(tmp_path, model="a b; rm -rf $HOME"))
    path = os.path.join(errand(tmp_path).home, "prompt.txt")
    assert start.argv == (
        "hermes", "run", "-p", f"@{path}", "--model=a b; rm -rf $HOME", SESSION,
    )  # fmt: skip
    assert start.stdin is None
    assert Path(path).read_text() == SECRET
    assert Path(path).stat().st_mode & 0o077 == 0


def test_a_pattern_without_a_file_reads_the_prompt(tmp_path: Path) -> None:
    table = {"command": ["h", "{x"], "resume": ["h", "--go-on", "{session}"], "result": "json:a.0"}
    kind = Custom(setting_of("h", table))
    assert kind.start(errand(tmp_path)).argv == ("h", "{x")
    assert kind.start(errand(tmp_path)).stdin == SECRET.encode()
    assert kind.start(errand(tmp_path, goes_on=True)).argv == ("h", "--go-on", SESSION)
    assert kind.held("", SESSION, {}) is not None
    assert Custom(setting_of("h", {"command": "h"})).held("", SESSION, {}) is None


@pytest.mark.parametrize(
    ("table", "why"),
    [
        ({}, "no `command`"), ({"command": ""}, "names no program"),
        ({"command": "h 'x"}, "is no command"), ({"command": 3}, "neither text nor"),
        ({"command": "h {promt}"}, "`{promt}`"), ({"command": "{model} x"}, "names no program"),
        ({"command": "h", "results": "stdout"}, "`results`"),
        ({"command": "h", "result": "xml:a"}, "'xml:a'"),
        ({"command": "h", "resume": "h --continue"}, "names no session"),
        ({"command": ["h", "a\0"]}, "zero byte"), ({"command": ["h"] * 300}, "names no program"),
    ],
)  # fmt: skip
def test_a_table_that_will_not_do_is_refused_with_what_is_wrong(
    table: dict[str, object], why: str
) -> None:
    with pytest.raises(BadValueError) as raised:
        setting_of("h", table)
    assert why in raised.value.message


@pytest.mark.parametrize(
    ("result", "output", "found"),
    [
        ("stdout", b" text \xff\n", "text \ufffd"), ("stdout", b"\n", None),
        ("json:a.b", b'{"a": {"b": "x"}}', "x"), ("json:a.1", b'{"a": [1, 2]}', "2"),
        ("json:a.-1", b'{"a": [1, {"c": 2}]}', '{"c": 2}'), ("json:a.9", b'{"a": [1]}', None),
        ("json:a.b", b'{"a": 3}', None), ("json:a", b"garbage", None),
        ("last-json:a", b'log\n{"a": "1"}\n{"a": "2"}\nbye\n', "2"),
        ("last-json:a", b'{\n "a": "3"\n}', "3"), ("last-json:a", b"", None),
    ],
)  # fmt: skip
def test_a_result_is_taken_from_where_the_configuration_says(
    result: str, output: bytes, found: str | None
) -> None:
    assert result_in(setting_of("h", {"command": "h", "result": result}), output) == found


def test_what_is_known_of_a_session_survives_and_what_is_spoilt_is_unknown(tmp_path: Path) -> None:
    home = str(tmp_path / "agents" / "ab")
    assert read_session(home) is None
    save_session(home, ASKED)
    save_session(home, replace(ASKED, said="half \ud800 of it", number=2))
    found = read_session(home)
    assert found is not None
    assert (found.number, found.said) == (2, "half \ud800 of it")
    assert [one.number for _, one in sessions_of(str(tmp_path))] == [2]
    for text in (
        "",
        "[]",
        "{}",
        '{"task": 1, "key": "", "agent": "", "session": "", "prompt": ""}',
    ):
        Path(home, "session.json").write_text(text)
        assert read_session(home) is None
    Path(home, "claude").mkdir()
    Path(home, "prompt.txt").touch()
    Path(home, "link").symlink_to(tmp_path)
    empty_home(home)
    assert os.listdir(home) == ["session.json"]
    empty_home(str(tmp_path / "nowhere"))


def test_a_session_that_cannot_be_written_down_is_not_begun(tmp_path: Path) -> None:
    (tmp_path / "agents").write_text("a file")
    with pytest.raises(StateFileError, match="cannot be written"):
        save_session(str(tmp_path / "agents" / "ab"), ASKED)


def test_an_attempt_begins_as_what_is_left_of_the_one_before_allows(tmp_path: Path) -> None:
    home, kind = str(tmp_path / "agents" / "ab"), KINDS["claude"]

    def how(journalled: int = 0, **changes: object) -> tuple[str, int]:
        asked = replace(ASKED, **changes)
        how, session, _ = outset_of(kind, home, asked, {"HOME": str(tmp_path)}, journalled)
        return how, session.number

    assert how() == ("first", 1)
    save_session(home, ASKED)
    assert how() == ("replay", 1)
    assert how(prompt="another") == ("start", 2)
    assert how(agent="codex") == ("start", 2)
    path = Path(home, "claude", "projects", "p", f"{SESSION}.jsonl")
    path.parent.mkdir(parents=True)
    path.write_text('{"message": {"role": "user"}}\n')
    assert how() == ("replay", 1)
    path.write_text('{"message": {"role": "assistant", "id": "msg_1"}}\n')
    assert how() == ("session", 1)
    save_session(home, replace(ASKED, said="done"))
    assert how() == ("taken", 1)
    save_session(home, replace(ASKED, said="done", is_over=True))
    assert how() == ("taken", 1)
    assert how(journalled=1) == ("start", 2)
    save_session(home, replace(ASKED, is_over=True))
    assert how() == ("start", 2)
