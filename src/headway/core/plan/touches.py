"""What tasks of a group may touch of the shared state, and which effects they may ask for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

Prefixes = tuple[str, ...] | None
"""Keys and folders of the shared state; None is everything."""


@dataclass(frozen=True, slots=True)
class Touches:
    """Keys and folders that may be read and written, and effect channels; None is any of them."""

    reads: Prefixes = None
    writes: Prefixes = None
    acts: Prefixes = None
    by_member: Callable[[int], Touches] | None = None
    """What one member may touch, where that differs; it lies within what is said of all."""

    def of(self, member: int) -> Touches:
        """What one member may touch."""
        return self if self.by_member is None else self.by_member(member)


ANYTHING = Touches()
"""Of a task that may use the shared state and does not say how."""


def covers(prefixes: Prefixes, key: str) -> bool:
    """Whether a key, or a whole folder, is one of these or lies within one."""
    if prefixes is None:
        return True
    return any(key == one or not one or key.startswith(one + "/") for one in prefixes)
