"""`headway gateway -- COMMAND` ends, whatever its command does."""

from __future__ import annotations

import signal
import time
from pathlib import Path

import pytest

from tests.promises.user import until, user

STUBBORN = "trap '' TERM INT HUP; sleep 600 & echo $! > inner; while :; do sleep 1; done"
END_S = 4.0
"""Commands that ignore a signal have so long."""


@pytest.mark.parametrize(
    "numbers",
    [
        pytest.param([signal.SIGTERM], id="terminated"),
        pytest.param([signal.SIGINT] * 2, id="interrupted twice", marks=pytest.mark.soak),
    ],
)
def test_a_command_that_ignores_signals_is_killed(
    tmp_path: Path, numbers: list[signal.Signals]
) -> None:
    with user(tmp_path) as someone:
        process = someone.start("gateway", "--", "sh", "-c", STUBBORN)
        inner = someone.folder / "inner"
        until(lambda: inner.exists() and inner.read_text().endswith("\n"))
        for number in numbers:
            began_s = time.monotonic()
            process.send_signal(number)
            time.sleep(0.1)
        process.communicate(timeout=300)
        assert process.returncode == 128 + signal.SIGKILL
        assert time.monotonic() - began_s >= END_S - 1
        until(lambda: has_ended(int(inner.read_text())))


def has_ended(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True
