"""Where shared files are, who may use them, and that nothing in them is ever lost."""

from __future__ import annotations

import os
import stat
from math import inf
from pathlib import Path

import pytest
from msgspec.structs import replace

from headway.base.folders import Folders, folders, prepare
from headway.base.values import Amounts, Limit, LimitReading
from headway.broker.store import ASIDE_MAX, BYTES_MAX, Store
from headway.errors import StateFileError
from headway.pacing.account import Profile
from headway.pacing.call import Spend
from headway.pacing.memory import (
    AccountMemory,
    AccountTerms,
    Chronicle,
    ChronicleMemory,
    Claim,
    DaySpend,
    MonthlyBudget,
    PacingMemory,
)

DATA = Path(__file__).parent.parent / "data"
MEMORY = PacingMemory(
    month="2026-11",
    terms=(("a#1", AccountTerms((Limit("requests", 5.0),), budget=MonthlyBudget(microusd=7))),),
    accounts=(
        AccountMemory(
            "a#1", "model", "anthropic", Profile(cap=inf, curves=((), ((1.0, 2.0, 3.0, 4.0),))),
            (LimitReading("input", None, 1.0, None, 0.5),),
        ),
    ),
    spent=(("a#1", Spend(1.5, 2)),),
    claims=(Claim(("client", 3), "a#1", Spend(1.0, 1)),),
)  # fmt: skip


def test_a_memory_is_read_as_it_was_written_and_has_aged(tmp_path: Path) -> None:
    clock = [1000.0]
    store = Store(str(tmp_path / "memory.json"), lambda: clock[0])
    assert store.load().memory == PacingMemory()
    assert store.save(MEMORY, ("one", "two")) == ""
    assert store.save(MEMORY, ("one", "two"), is_durable=True) == ""
    clock[0] = 1060.0
    kept = store.load()
    assert kept.memory == MEMORY
    assert kept.clients == ("one", "two")
    assert kept.age_s == 60.0
    clock[0] = 500.0
    assert store.load().age_s == 0.0, "a clock that was set back makes nothing younger than new"


def test_a_memory_with_chronicles_and_days_is_read_as_it_was_written(tmp_path: Path) -> None:
    chronicle = Chronicle()
    chronicle.turn(9, 0.0)
    for second in range(200):
        chronicle.answered(float(second), Amounts(10.0, 5.0), 0.123456, 1.0 / 3.0, 3, 0.1)
    account = replace(MEMORY.accounts[0], chronicle=chronicle.memory(200.0))
    days = (("a#1", (DaySpend("2026-11-16", 1.0 / 3.0, 7),)),)
    memory = replace(MEMORY, accounts=(account,), days=days)
    store = Store(str(tmp_path / "memory.json"))
    assert store.save(memory) == ""
    assert store.load().memory == memory


def test_the_file_is_the_owners_alone_and_nothing_else_is_left(tmp_path: Path) -> None:
    Store(str(tmp_path / "memory.json")).save(MEMORY)
    [path] = tmp_path.iterdir()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


@pytest.mark.parametrize("content", [b"", b"{}", b"\xff", b"[1]", b'{"written_s":"now"}'])
def test_a_spoilt_file_is_kept_beside(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "memory.json"
    store = Store(str(path))
    for number in (1, 2):
        path.write_bytes(content)
        kept = store.load()
        assert kept.memory == PacingMemory()
        assert f"corrupt-{number}" in kept.notice
        assert (tmp_path / f"memory.json.corrupt-{number}").read_bytes() == content
    assert store.save(MEMORY) == ""


def test_a_history_with_other_columns_is_moved_aside(tmp_path: Path) -> None:
    path = tmp_path / "memory.json"
    other = ChronicleMemory(minutes=((1, 2, 3),))
    account = AccountMemory("a", "m", "plain", Profile(), chronicle=other)
    Store(str(path)).save(PacingMemory(accounts=(account,)))
    assert "other columns" in Store(str(path)).load().notice


def test_a_file_of_another_version_or_size_is_not_ours(tmp_path: Path) -> None:
    path = tmp_path / "memory.json"
    path.write_text('{"written_s": 1.0, "memory": {"version": 99}}')
    assert "version 99" in Store(str(path)).load().notice
    with path.open("wb") as file:
        file.truncate(BYTES_MAX + 1)
    assert "more than" in Store(str(path)).load().notice


def test_a_spoilt_file_that_cannot_be_moved_is_not_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "memory.json"
    path.write_text("spoilt")
    for number in range(1, ASIDE_MAX + 1):
        (tmp_path / f"memory.json.corrupt-{number}").touch()
    store = Store(str(path))
    assert "spoilt" in store.load().notice
    assert "spoilt" in store.save(MEMORY)
    assert path.read_text() == "spoilt"


def test_a_folder_that_is_gone_is_said_and_survived(tmp_path: Path) -> None:
    store = Store(str(tmp_path / "gone" / "memory.json"))
    assert "No such file" in store.save(MEMORY)
    assert store.load().notice == ""


def test_folders_follow_the_environment() -> None:
    named = folders({"HEADWAY_RUNTIME_DIR": "/r", "HEADWAY_STATE_DIR": "/s"})
    assert (named.runtime, named.state) == ("/r", "/s")
    assert (named.socket, named.lock) == ("/r/broker.sock", "/r/broker.lock")
    assert (named.log, named.memory) == ("/s/broker.log", "/s/memory.json")
    shared = folders({"XDG_RUNTIME_DIR": "/run/user/1", "XDG_STATE_HOME": "/h/state"})
    assert (shared.runtime, shared.state) == ("/run/user/1/headway", "/h/state/headway")
    fallen_back = folders({})
    assert fallen_back.runtime.endswith(f"headway-{os.getuid()}")
    assert fallen_back.state.endswith(os.path.join(".local", "state", "headway"))


def test_folders_are_made_for_the_owner_alone(tmp_path: Path) -> None:
    place = Folders(str(tmp_path / "run"), str(tmp_path / "deep" / "state"))
    for _ in range(2):
        prepare(place)
    for path in (place.runtime, place.state):
        assert stat.S_IMODE(os.stat(path).st_mode) == 0o700


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("open", "open to others"),
        ("file", "is not a folder"),
        ("link", "is not a folder"),
        ("file/run", "cannot be made"),
        ("x" * 100, "too long"),
    ],
)
def test_a_runtime_folder_that_is_not_ours_alone_is_refused(
    tmp_path: Path, name: str, said: str
) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "link").symlink_to(tmp_path)
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o755)
    with pytest.raises(StateFileError, match=said) as raised:
        prepare(Folders(str(tmp_path / name), str(tmp_path)))
    assert (raised.value.hint == f"chmod 700 {tmp_path / name}") is (name == "open")


def test_a_state_folder_that_cannot_be_made_is_no_reason_to_stop(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    prepare(Folders(str(tmp_path / "run"), str(tmp_path / "file" / "state")))
