"""What may go wrong around a broker: bad clients, bad files, no room, nobody there."""

from __future__ import annotations

import logging
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from headway.base.values import Budget
from headway.broker import protocol
from headway.broker.election import drop_lock, environment, take_lock
from headway.broker.store import Store, recall
from headway.client import connection as access
from headway.client.admission import AdmissionPort
from headway.errors import BrokerUnavailableError, StateFileError
from headway.pacing.call import Request
from headway.pacing.memory import AccountTerms, PacingMemory
from tests.integration.broker_home import SOON_S, Home, is_alive, until
from tests.integration.caller import CALL, USED


@pytest.fixture
def stranger(here: Home) -> Iterator[socket.socket]:
    """A connection to a broker that has a well-behaved client too."""
    here.port().admit(CALL, SOON_S).settle(USED)
    with socket.socket(socket.AF_UNIX) as sock:
        sock.connect(here.place.socket)
        sock.settimeout(SOON_S)
        yield sock


def heard(sock: socket.socket) -> list[protocol.FromBroker]:
    """Everything that is said until the line is cut."""
    lines, messages = protocol.BrokerMessages(), list[protocol.FromBroker]()
    while True:
        try:
            data = sock.recv(65536)
        except ConnectionResetError:
            return messages
        if not data:
            return messages
        messages += lines.feed(data)


HELLO = protocol.packed(protocol.Hello(protocol.VERSION, "x", 1, "x"))
BAD = {
    "garbage": b"\x00\x00\x00\x07garbage",
    "a message without end": b"\x7f" * 200_000,
    "no hello": protocol.packed(protocol.Leave(1)),
    "another version": protocol.packed(protocol.Hello(protocol.VERSION + 1, "x", 1, "x")),
    "what only a broker says": HELLO + protocol.packed(protocol.Waits(1, None)),
}


@pytest.mark.parametrize("said", BAD.values(), ids=BAD)
def test_a_client_that_misbehaves_is_told_and_cut_off_and_nobody_notices(
    here: Home, stranger: socket.socket, said: bytes
) -> None:
    with suppress(BrokenPipeError, ConnectionResetError):
        stranger.sendall(said)
    assert isinstance(heard(stranger)[-1], protocol.Rejected)
    here.ports[0].admit(CALL, SOON_S).settle(USED)
    assert here.ports[0].describe()[1].pid == here.brokers()[0]


def test_a_client_that_does_not_read_is_cut_off(here: Home, stranger: socket.socket) -> None:
    stranger.sendall(HELLO)
    stranger.setblocking(False)
    question = protocol.packed(protocol.Describe(1)) * 100

    def is_cut_off() -> bool:
        try:
            stranger.send(question)
        except BlockingIOError:
            return False
        except (BrokenPipeError, ConnectionResetError):
            return True
        return False

    until(is_cut_off)
    here.ports[0].admit(CALL, SOON_S).settle(USED)


def test_a_flood_of_one_client_does_not_starve_another(here: Home, stranger: socket.socket) -> None:
    stranger.sendall(HELLO)
    stranger.setblocking(False)
    noise = protocol.packed(protocol.Reached(1)) * 1000
    for _ in range(50):
        with suppress(BlockingIOError):
            stranger.send(noise)
        here.ports[0].admit(CALL, SOON_S).settle(USED)


def test_a_client_that_comes_back_before_its_end_was_seen_is_the_same_client(
    here: Home, stranger: socket.socket
) -> None:
    stranger.sendall(HELLO)
    with socket.socket(socket.AF_UNIX) as again:
        again.connect(here.place.socket)
        again.settimeout(SOON_S)
        again.sendall(HELLO + protocol.packed(protocol.Describe(1)))
        assert b"Described" in again.recv(1000)
        assert heard(stranger) == []
        until(lambda: len(here.ports[0].describe()[1].clients) == 2)


@pytest.mark.parametrize("content", [b"", b"\xff\xfe", b"headway memory 999\n"])
def test_a_file_that_cannot_be_used_is_moved_aside_and_said(here: Home, content: bytes) -> None:
    Path(here.place.memory).write_bytes(content)
    port = here.port()
    port.admit(CALL, SOON_S).settle(USED)
    [notice] = port.describe()[1].notices
    assert "corrupt-1" in notice
    assert Path(f"{here.place.memory}.corrupt-1").read_bytes() == content
    assert notice in Path(here.place.log).read_text()
    until(lambda: Path(here.place.memory).exists())


def test_a_disk_that_takes_nothing_stops_money_and_not_pace(here: Home) -> None:
    state = Path(here.place.state)
    state.rmdir()
    state.write_text("not a folder")
    port = here.port()
    port.admit(CALL, SOON_S).settle(USED)
    port.configure(CALL.account, AccountTerms(budget=Budget(tokens=1e9)))
    with pytest.raises(StateFileError, match="cannot be written down"):
        port.admit(CALL, SOON_S)
    assert any("cannot be kept" in notice for notice in port.describe()[1].notices)
    state.unlink()
    state.mkdir()
    port.admit(CALL, SOON_S).settle(USED)
    kept = recall(here.place.memory)
    assert kept is not None
    assert kept.memory.days
    # Its log went nowhere, so that nobody else knows of this broker.
    pid = port.describe()[1].pid
    port.close()
    os.kill(pid, signal.SIGTERM)
    until(lambda: not is_alive(pid))


def test_a_broker_that_is_killed_has_written_down_what_it_allowed_to_be_spent(here: Home) -> None:
    port = here.port()
    port.configure(CALL.account, AccountTerms(budget=Budget(tokens=1e9)))
    tickets = [port.admit(CALL, SOON_S) for _ in range(3)]
    os.kill(here.brokers()[-1], signal.SIGKILL)
    kept = recall(here.place.memory)
    assert kept is not None
    assert len(kept.memory.claims) == 3
    for ticket in tickets:
        ticket.settle(USED)


def test_calls_fail_when_no_broker_can_be_had(here: Home) -> None:
    lock = take_lock(here.place)
    assert lock is not None
    try:
        with pytest.raises(BrokerUnavailableError) as raised:
            here.port(nobody_s=0.3).admit(CALL, SOON_S)
        assert "HEADWAY_UNPACED" in (raised.value.hint or "")
    finally:
        drop_lock(lock)


def test_calls_go_unpaced_when_the_user_says_so_and_not_where_money_counts(
    here: Home, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(access, "_SAID", set())
    dear = Request("dear.example#1", "anthropic", CALL.sketch)
    terms = AccountTerms(budget=Budget(microusd=1))
    Store(here.place.memory).write(PacingMemory(terms=((dear.account, terms),)))
    lock = take_lock(here.place)
    assert lock is not None
    port = here.port(nobody_s=0.2, unpaced=True)
    try:
        with caplog.at_level(logging.WARNING):
            tickets = [port.admit(CALL, SOON_S) for _ in range(2)]
        assert len(caplog.records) == 1
        assert "UNPACED" in caplog.text
        with pytest.raises(BrokerUnavailableError):
            port.admit(dear, SOON_S)
    finally:
        drop_lock(lock)
    for ticket in tickets:
        ticket.settle(USED)


def test_without_a_folder_of_its_own_a_process_paces_itself_and_says_so_once(
    here: Home, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(access, "_SAID", set())
    os.chmod(here.place.runtime, 0o755)
    ports = [AdmissionPort() for _ in range(2)]
    with caplog.at_level(logging.WARNING):
        for port in ports:
            port.admit(CALL, SOON_S).settle(USED)
    assert len(caplog.records) == 1
    assert "open to others" in caplog.text
    assert here.brokers() == []
    for port in ports:
        port.close()


def test_without_a_broker_no_budget_is_spent(
    here: Home, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(access, "_SAID", set())
    terms = AccountTerms(budget=Budget(tokens=1e9))
    Store(here.place.memory).write(PacingMemory(terms=((CALL.account, terms),)))
    os.chmod(here.place.runtime, 0o755)
    port = AdmissionPort()
    with pytest.raises(StateFileError, match="budgets need a broker"):
        port.admit(CALL, SOON_S)
    port.close()


def test_the_broker_gets_no_keys(here: Home) -> None:
    passed = environment(here.place, {"ANTHROPIC_API_KEY": "sk-x", "HOME": "/h", "LC_ALL": "C"})
    assert passed.keys() == {
        "HOME", "LC_ALL", "PYTHONPATH", "HEADWAY_RUNTIME_DIR", "HEADWAY_STATE_DIR",
    }  # fmt: skip


def test_a_broker_whose_socket_was_removed_makes_way(
    here: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    port = here.port()
    ticket = port.admit(CALL, SOON_S)
    os.unlink(here.place.socket)
    until(lambda: len(here.brokers()) == 2, within_s=2 * SOON_S)
    ticket.settle(USED)
    until(lambda: port.describe()[0].accounts[0].in_flight == 0)


def test_a_process_that_ends_without_a_word_leaves_no_noise(here: Home) -> None:
    program = (
        "from tests.integration.caller import CALL\n"
        "from headway.client.admission import admission\n"
        "ticket = admission().admit(CALL)\n"
    )
    ended = subprocess.run(
        [sys.executable, "-X", "dev", "-W", "error", "-c", program],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(["src", "."])},
    )
    assert (ended.returncode, ended.stderr) == (0, "")
