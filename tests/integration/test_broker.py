"""Real processes share one account through a real broker, and survive each other's deaths."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from headway.client.admission import AdmissionPort
from headway.errors import QueueDeadlineError
from tests.integration.broker_home import SOON_S, Home, home, is_alive, until
from tests.integration.caller import CALL, USED, places


def in_flight(port: AdmissionPort) -> int:
    return sum(one.in_flight for one in port.describe()[0].accounts)


def waiting(port: AdmissionPort) -> int:
    return sum(who.waiting for one in port.describe()[0].accounts for who in one.clients)


def test_a_crowd_that_starts_at_once_has_exactly_one_broker(here: Home) -> None:
    crowd = [here.caller() for _ in range(8)]
    for caller in crowd:
        caller.say("broker")
    heard = {caller.hear() for caller in crowd}
    assert len(heard) == 1
    assert len(here.brokers()) == 1


def test_processes_share_the_places_of_an_account(here: Home) -> None:
    port = here.port()
    port.configure(CALL.account, places(1))
    ticket = port.admit(CALL, SOON_S)
    other = here.caller()
    other.do("later")
    until(lambda: waiting(port) == 1)
    ticket.settle(USED)
    assert other.hear() == "granted"
    with pytest.raises(QueueDeadlineError) as raised:
        port.admit(CALL, 0.1)
    assert raised.value.detail is not None
    assert "concurrency" in raised.value.detail
    other.do("settle")
    port.admit(CALL, SOON_S).settle(USED)


def test_the_death_of_a_client_frees_its_permits(here: Home) -> None:
    port = here.port()
    port.configure(CALL.account, places(1))
    other = here.caller()
    assert other.do("admit") == "granted"
    with pytest.raises(QueueDeadlineError):
        port.admit(CALL, 0.05)
    other.kill()
    port.admit(CALL, SOON_S).settle(USED)


def test_the_death_of_the_broker_is_survived_by_those_who_wait_and_those_who_call(
    here: Home,
) -> None:
    port = here.port()
    port.configure(CALL.account, places(1))
    ticket = port.admit(CALL, SOON_S)
    other = here.caller()
    other.do("later")
    until(lambda: waiting(port) == 1)
    first = here.kill_broker()
    until(lambda: here.brokers()[-1] != first)
    # The permit in flight is known to the heir: nobody else gets the only place.
    until(lambda: in_flight(port) == 1 and waiting(port) == 1)
    ticket.settle(USED)
    assert other.hear() == "granted"
    assert len(here.brokers()) == 2


def test_a_broker_that_is_told_to_stop_keeps_what_it_knows(here: Home) -> None:
    port = here.port()
    port.configure(CALL.account, places(2))
    ticket = port.admit(CALL, SOON_S)
    first = here.brokers()[-1]
    os.kill(first, signal.SIGTERM)
    until(lambda: here.brokers()[-1] != first)
    assert in_flight(port) == 1
    ticket.settle(USED)
    port.close()
    memory = Path(here.place.memory)
    assert memory.stat().st_mode & 0o777 == 0o600
    assert CALL.account.encode() in memory.read_bytes()


def test_a_child_that_is_forked_asks_for_itself_and_settles_nothing_of_its_parent(
    here: Home,
) -> None:
    port = here.port()
    port.configure(CALL.account, places(2))
    caller = here.caller()
    assert caller.do("admit") == "granted"
    assert caller.do("fork") == "child 0"
    assert in_flight(port) == 1
    assert caller.do("settle") == "settled"
    until(lambda: in_flight(port) == 0)


def test_a_broker_ends_when_nobody_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    with home(monkeypatch, idle_s=0.2) as here:
        port = here.port()
        port.admit(CALL, SOON_S).settle(USED)
        [pid] = here.brokers()
        port.close()
        until(lambda: not is_alive(pid))
        assert not os.path.exists(here.place.socket)
        port.admit(CALL, SOON_S).settle(USED)
        assert len(here.brokers()) == 2
