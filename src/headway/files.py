"""The text of a file, for `python:` tasks in plans.

`python: headway.files:text` beside `each: 'src/**/*.py'` gives every file's text, and a task with
`each` over that one has it as `{{ tasks.NAME.output }}`. A plan that an agent wrote may use it.

Laws:
- Nothing outside of the plan's folder is read, by whatever path, link or race; nothing hidden, and
  nothing whose name says that it holds a key, under whichever name it was asked for.
- A file is given whole or not at all: what is too large, or no text, is a fault that says so.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final

from headway.base.values import Fault
from headway.plans.untrusted import unreadable

TEXT_BYTES_MAX: Final = 1_000_000
"""More than any model reads in one call."""

_FOLDER: Final[ContextVar[str]] = ContextVar("folder of the plan")


@contextmanager
def within(folder: str) -> Iterator[None]:
    """Paths begin in this folder for as long as the block lasts, in threads that it starts too."""
    token = _FOLDER.set(folder)
    try:
        yield
    finally:
        _FOLDER.reset(token)


def text(path: object, *_results: object, **_variables: object) -> str:
    """The text of one file of the plan's folder; `path` is the item."""
    from headway.agents.tools import ConfinedFolder, ToolError
    from headway.work import AttemptError

    def refused(problem: str) -> AttemptError:
        return AttemptError(Fault("request", detail=problem))

    if not isinstance(path, str):
        raise refused(f"the item is no path of a file, but {type(path).__name__}")
    place = ConfinedFolder(_FOLDER.get(os.getcwd()))
    try:
        # By the name that was asked for, and by the one that a link leads to.
        if problem := unreadable(path) or unreadable("/".join(place.resolved(path)) or "."):
            raise refused(f"`{path}` {problem}")
        content = place.read(path).encode("utf-8", "surrogateescape")
        if len(content) > TEXT_BYTES_MAX:
            most = f"{TEXT_BYTES_MAX:,}"
            raise refused(f"`{path}` has {len(content):,} bytes: a text has at most {most}")
        return content.decode("utf-8-sig")
    except ToolError as error:
        raise refused(str(error)) from None
    except UnicodeDecodeError:
        raise refused(f"`{path}` is not a text in UTF-8") from None
