"""Named crash points: tests kill the process there.

`HEADWAY_CRASH_AT=NAME:COUNT` kills this process when it comes to that place for the COUNT-th time;
`NAME:COUNT:group` kills its whole process group. Without the variable a place costs a comparison.
"""

from __future__ import annotations

import os
import signal
from typing import Final

VARIABLE: Final = "HEADWAY_CRASH_AT"


# Taken out of the environment: processes that this one starts shall not die with it.
_NAME, _, _rest = os.environ.pop(VARIABLE, "").partition(":")
_count, _, _WHOM = _rest.partition(":")
_left = int(_count or 1)


def crash_point(name: str) -> None:
    """The place of this name."""
    global _left  # noqa: PLW0603 - one process, one crash
    if name != _NAME:
        return
    _left -= 1
    if _left == 0:
        # Nothing may run after this: no handler, no buffer, no goodbye.
        if _WHOM == "group":
            os.killpg(0, signal.SIGKILL)
        os.kill(os.getpid(), signal.SIGKILL)
