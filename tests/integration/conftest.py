"""Fixtures that several integration tests use."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from headway.client.admission import AdmissionPort
from headway.client.connection import dial_alone
from tests.integration.broker_home import Home, home
from tests.integration.strangers_shell import Stranger


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> Iterator[Home]:
    """Folders with a broker of their own."""
    with home(monkeypatch) as made:
        yield made


@pytest.fixture
def stranger(tmp_path: Path) -> Stranger:
    """A user with a folder and a state of their own."""
    return Stranger(tmp_path)


@pytest.fixture
def port() -> Iterator[AdmissionPort]:
    """Admission in this process. Every permit has to be settled in the end."""
    port = AdmissionPort(dial_alone)
    yield port
    assert (len(port.in_use), len(port.waiting)) == (0, 0)
    port.close()
