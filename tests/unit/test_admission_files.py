"""Where shared files are, who may use them, and that nothing in them is ever lost."""

from __future__ import annotations

import itertools
import os
import resource
import signal
import stat
import subprocess
import sys
from math import inf
from pathlib import Path

import pytest
from msgspec.structs import replace

from headway.base.folders import Folders, folders, prepare
from headway.base.values import Amounts, Budget, Limit, LimitReading, Sketch, Spend
from headway.broker.store import BYTES_MAX, LOG_BYTES, Store, recall
from headway.errors import StateFileError
from headway.pacing.account import Profile
from headway.pacing.admission import ACCOUNTS_MAX, CHANGES_MAX, IDLE_FORGOTTEN, Admission
from headway.pacing.budget import Claim
from headway.pacing.call import Outcome, Request
from headway.pacing.memory import (
    AccountMemory,
    AccountTerms,
    Chronicle,
    PacingMemory,
)

DATA = Path(__file__).parent.parent / "data"
MEMORY = PacingMemory(
    month="2026-11",
    terms=(("a#1", AccountTerms((Limit("requests", 5.0),), budget=Budget(microusd=7))),),
    accounts=(
        AccountMemory(
            "a#1", "model", "anthropic", Profile(cap=inf, curves=((), ((1.0, 2.0, 3.0, 4.0),))),
            (LimitReading("input", None, 1.0, None, 0.5),),
        ),
    ),
    days=(("a#1", (("2026-11-15", Spend(1.5, 2)),)),),
    claims=(Claim(("client", 3), "a#1", Spend(1.0, 1)),),
)  # fmt: skip


def test_a_memory_is_read_as_it_was_written_and_has_aged(tmp_path: Path) -> None:
    clock = [1000.0]
    store = Store(str(tmp_path / "memory.dat"), lambda: clock[0])
    assert store.load().memory == PacingMemory()
    assert store.write(MEMORY, ("one", "two")) == ""
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
    days = (("a#1", (("2026-11-16", Spend(1.0 / 3.0, 7)),)),)
    memory = replace(MEMORY, accounts=(account,), days=days)
    store = Store(str(tmp_path / "memory.dat"))
    assert store.write(memory) == ""
    assert store.load().memory == memory


def test_the_file_is_the_owners_alone_and_nothing_else_is_left(tmp_path: Path) -> None:
    Store(str(tmp_path / "memory.dat")).write(MEMORY)
    [path] = tmp_path.iterdir()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


@pytest.mark.parametrize(
    "content", [b"", b"{}", b"\xff", b"headway memory 4\n", b"headway memory 4\n" + b"\0" * 99]
)
def test_a_spoilt_file_is_kept_beside(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "memory.dat"
    store = Store(str(path))
    for number in (1, 2):
        path.write_bytes(content)
        kept = store.load()
        assert kept.memory == PacingMemory()
        assert f"corrupt-{number}" in kept.notice
        assert (tmp_path / f"memory.dat.corrupt-{number}").read_bytes() == content
    assert store.write(MEMORY) == ""


def test_a_file_of_another_version_or_size_is_not_ours(tmp_path: Path) -> None:
    path = tmp_path / "memory.dat"
    path.write_text("headway memory 99\n")
    assert "version 99" in Store(str(path)).load().notice
    with path.open("wb") as file:
        file.truncate(BYTES_MAX + 1)
    assert "more than" in Store(str(path)).load().notice


def test_a_spoilt_file_that_cannot_be_moved_is_not_overwritten(tmp_path: Path) -> None:
    path = tmp_path / ("long" * 62)  # A longer name is none.
    path.write_text("spoilt")
    store = Store(str(path))
    assert "spoilt" in store.load().notice
    assert "spoilt" in store.write(MEMORY)
    assert path.read_text() == "spoilt"


def test_a_folder_that_is_gone_is_said_and_survived(tmp_path: Path) -> None:
    store = Store(str(tmp_path / "gone" / "memory.dat"))
    assert "No such file" in store.write(MEMORY)
    assert store.load().notice == ""


def test_folders_follow_the_environment() -> None:
    named = folders({"HEADWAY_RUNTIME_DIR": "/r", "HEADWAY_STATE_DIR": "/s"})
    assert (named.runtime, named.state) == ("/r", "/s")
    assert (named.socket, named.lock) == ("/r/broker.sock", "/r/broker.lock")
    assert (named.log, named.memory) == ("/s/broker.log", "/s/memory.dat")
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


CALL = Request("a#1", "anthropic", Sketch("claude-sonnet-4-5", size_bytes=40, max_output_tokens=9))


def admitting(count: int, accounts: int = 1) -> Admission:
    """Calls in flight, one of each client."""
    profile, names = Profile(width=2.0 * count), [f"a#{number}" for number in range(accounts)]
    known = tuple([AccountMemory(name, "claude-sonnet-4", "anthropic", profile) for name in names])
    admission = Admission(PacingMemory(accounts=known), lambda *_: None, 0.0)
    for number in range(count):
        request = replace(CALL, account=names[number % accounts])
        admission.ask((f"client-{number}", 1), request, 0.0)
    assert len(admission.decide(0.0).grants) == count
    return admission


def test_what_a_save_writes_follows_from_what_changed_and_not_from_what_is_known(
    tmp_path: Path,
) -> None:
    path = tmp_path / "memory.dat"

    def written(count: int, accounts: int) -> tuple[int, list[int]]:
        """The bytes of the snapshot, and of saves after one call of one client."""
        store, admission = Store(str(path)), admitting(count, accounts)
        clients = {f"client-{number}" for number in range(count)}
        assert store.save(admission, 0.0, clients) == ""
        sizes = [path.stat().st_size]
        for second in range(1, 11):
            assert admission.settle((f"client-{second}", 1), Outcome("used"), float(second))
            is_durable = second % 2 == 0
            assert store.save(admission, float(second), clients, is_durable=is_durable) == ""
            sizes.append(path.stat().st_size)
        kept = store.look()
        assert (len(kept.memory.claims), len(kept.clients)) == (count - 10, count)
        return sizes[0], [after - before for before, after in itertools.pairwise(sizes)]

    few, many = written(100, 10), written(10_000, 100)
    assert many[0] > 50 * few[0]
    assert max(many[1]) <= 1.1 * max(few[1]) < 2000


def test_a_log_that_would_outgrow_its_snapshot_becomes_a_new_one(tmp_path: Path) -> None:
    path, admission = tmp_path / "memory.dat", admitting(2000)
    store = Store(str(path))
    assert store.save(admission, 0.0) == ""
    snapshot, inodes = path.stat().st_size, {path.stat().st_ino}
    while len(inodes) == 1:
        admission.configure("b", AccountTerms(tuple([Limit("requests", 1e9)] * 999)), 0.0)
        assert store.save(admission, 0.0, is_money=True) == ""
        inodes.add(path.stat().st_ino)
        assert path.stat().st_size <= snapshot + max(snapshot, LOG_BYTES)
    assert store.look().memory == store.load().memory
    assert [one.name for one in tmp_path.iterdir()] == ["memory.dat"]


@pytest.mark.parametrize("is_durable", [False, True])
def test_a_full_disk_loses_nothing_and_the_next_save_has_all(
    tmp_path: Path, is_durable: bool
) -> None:
    path, admission = tmp_path / "memory.dat", admitting(20)
    store = Store(str(path))
    assert store.save(admission, 0.0) == ""
    assert store.save(admission, 0.0) == ""
    before = path.read_bytes()
    assert admission.settle(("client-3", 1), Outcome("used"), 1.0)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(before) + 10, limits[1]))
    try:
        assert "File too large" in store.save(admission, 1.0, is_durable=is_durable)
        assert path.read_bytes() == before
        resource.setrlimit(resource.RLIMIT_FSIZE, (100, limits[1]))
        assert "File too large" in store.save(admission, 1.0, is_durable=is_durable)
        assert [one.read_bytes() for one in tmp_path.iterdir()] == [before], "no draft is left"
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert store.save(admission, 1.0, is_durable=is_durable) == ""
    assert len(store.look().memory.claims) == 19
    assert [one.name for one in tmp_path.iterdir()] == ["memory.dat"]


def test_an_account_that_made_room_is_not_in_the_file(tmp_path: Path) -> None:
    admission, store = admitting(1, ACCOUNTS_MAX), Store(str(tmp_path / "memory.dat"))
    assert store.save(admission, 0.0) == ""
    admission.ask(("client-1", 1), replace(CALL, account="new"), 0.0)
    assert store.save(admission, 0.0) == ""
    names = [one.account for one in store.look().memory.accounts]
    kept = [0, *range(1 + IDLE_FORGOTTEN, ACCOUNTS_MAX)]
    assert names == [*[f"a#{number}" for number in kept], "new"]


def test_changes_that_no_process_saves_do_not_pile_up() -> None:
    admission, request = (
        Admission(PacingMemory(), lambda *_: None, 0.0),
        Request("a#1", "", Sketch("m", max_output_tokens=9)),
    )
    admission.configure("", AccountTerms(budget=Budget(tokens=1e12)), 0.0)
    for number in range(CHANGES_MAX + 1):
        admission.ask(("me", number), request, 0.0)
        admission.decide(0.0)
        assert admission.settle(("me", number), Outcome("used"), 0.0)
    assert len(admission.budgets.changed_claims) < CHANGES_MAX
    assert admission.is_rearranged


def test_a_file_that_was_removed_is_written_again(tmp_path: Path) -> None:
    path, admission = tmp_path / "memory.dat", admitting(3)
    store = Store(str(path))
    assert store.save(admission, 0.0) == ""
    path.unlink()
    assert store.save(admission, 0.0, is_money=True) == ""
    assert len(store.look().memory.claims) == 3


def test_an_end_that_is_spoilt_is_kept_beside_and_the_rest_counts(tmp_path: Path) -> None:
    path, admission = tmp_path / "memory.dat", admitting(3)
    store = Store(str(path))
    assert store.save(admission, 0.0) == ""
    whole = path.read_bytes()
    path.write_bytes(whole + b"\0\0\1\0torn")
    before = recall(str(path))
    assert before is not None
    assert path.read_bytes() == whole + b"\0\0\1\0torn", "looking changes nothing"
    kept = store.load()
    assert kept.memory == before.memory
    assert "the last 8 bytes" in kept.notice
    assert (tmp_path / "memory.dat.corrupt-1").read_bytes() == b"\0\0\1\0torn"
    assert path.read_bytes() == whole
    assert store.load().notice == ""


def test_what_cannot_be_moved_aside_yet_is_not_overwritten_and_is_later(tmp_path: Path) -> None:
    path, admission = tmp_path / "memory.dat", admitting(3)
    assert Store(str(path)).save(admission, 0.0) == ""
    path.write_bytes(path.read_bytes() + b"torn")
    (tmp_path / "memory.dat.corrupt-1.draft").mkdir()
    store = Store(str(path))
    assert "stays" in store.load().notice
    assert "stays" in store.save(admission, 0.0)
    assert path.read_bytes().endswith(b"torn")
    (tmp_path / "memory.dat.corrupt-1.draft").rmdir()
    assert store.save(admission, 0.0) == ""
    assert (tmp_path / "memory.dat.corrupt-1").read_bytes() == b"torn"


CRASHING = """
import sys
from headway.broker.store import Store
from tests.unit.test_admission_files import Outcome, admitting
store, admission = Store(sys.argv[1]), admitting(9)
for number in range(9):
    admission.settle((f"client-{number}", 1), Outcome("used"), 1.0)
    if number == 5:
        store = Store(sys.argv[1])
    assert store.save(admission, 1.0, is_durable=True) == ""
    print(8 - number, flush=True)
"""


@pytest.mark.parametrize("point", ["snapshot:1", "snapshot:2", "appended:3", "appended:7"])
def test_a_crash_at_any_point_of_a_save_leaves_that_save_or_the_one_before(
    tmp_path: Path, point: str
) -> None:
    path = str(tmp_path / "memory.dat")
    died = subprocess.run(
        [sys.executable, "-c", CRASHING, path], capture_output=True, text=True, check=False,
        env=os.environ | {"HEADWAY_CRASH_AT": point, "PYTHONPATH": os.pathsep.join(["src", "."])},
    )  # fmt: skip
    assert died.returncode == -signal.SIGKILL, died.stderr
    said = [int(line) for line in died.stdout.split()]
    kept = Store(path).load()
    assert kept.notice == ""
    left = len(kept.memory.claims)
    assert left in ((said or [9])[-1], (said or [9])[-1] - 1)
