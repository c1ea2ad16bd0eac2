"""For minutes: one account for threads, processes and terminals; a thousand streams."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from bench.sharing import FULL
from tests.integration.broker_home import Home, home
from tests.integration.shared_caller import WAYS
from tests.integration.test_shared_account import share_among_terminals, share_on_one_account
from tests.integration.test_streams_end import end_streams_in_every_way

pytestmark = pytest.mark.soak


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> Iterator[Home]:
    with home(monkeypatch) as made:
        yield made


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_threads_and_processes_share_an_account_for_a_minute(seed: int) -> None:
    share_on_one_account(FULL, seed)


def test_terminals_share_an_account_for_a_minute(here: Home) -> None:
    share_among_terminals(here, calls=240, killed_after=450)


def test_a_thousand_streams_leave_no_permit(here: Home) -> None:
    end_streams_in_every_way(here, streams=35 * len(WAYS), left=40)
