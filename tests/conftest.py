"""What all tests share: a verdict that depends on the code and not on the machine's mood."""

from __future__ import annotations

import os
import signal

import pytest
from hypothesis import settings

# No deadline: a busy machine is slow, not wrong. Derandomized: the same code, the same verdict.
settings.register_profile("headway", deadline=None, derandomize=True)
settings.load_profile("headway")

# Tests choose their own folders and settings, whatever those of the shell that runs them.
for name in {name for name in os.environ if name.startswith("HEADWAY_")} - {"HEADWAY_GGUF"}:
    del os.environ[name]

# Whoever runs the tests in the background may have told them to ignore interrupts, and every
# program that they start would ignore them, too.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A figure of the wall clock may be spoilt by whatever else the machine does: three tries.

    A law that does not hold fails all of them; the summary says how many were needed.
    """
    for item in items:
        if item.get_closest_marker("wallclock") is not None:
            item.add_marker(pytest.mark.flaky(reruns=2, reruns_delay=2))
