"""A user's function that combines values: what it raises is said of its key, in headway's words."""

from __future__ import annotations

from collections.abc import Callable

from headway.errors import StateError


def reducer(
    target: str, function: Callable[[object, object], object]
) -> Callable[[object, object], object]:
    """The same function; StateError if it fails, which is a value's fault and not the run's."""

    def combined(one: object, other: object) -> object:
        try:
            return function(one, other)
        # The boundary to the user's code, which may raise anything; `sys.exit` ends no run.
        except (Exception, SystemExit) as error:
            raise StateError(
                f"`{target}` does not combine what was added: {type(error).__name__}: {error}",
                hint="let it take whatever tasks add, and what it gives itself",
            ) from error

    return combined
