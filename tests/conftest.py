"""What all tests share: a verdict that depends on the code and not on the machine's mood."""

from __future__ import annotations

from hypothesis import settings

# No deadline: a busy machine is slow, not wrong. Derandomized: the same code, the same verdict.
settings.register_profile("headway", deadline=None, derandomize=True)
settings.load_profile("headway")
