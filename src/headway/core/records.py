"""Records that are made several times for every task, and so must cost little to make."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar, dataclass_transform

T = TypeVar("T")


@dataclass_transform(frozen_default=True)
def quick(cls: type[T]) -> type[T]:
    """A frozen record, but frozen for the type checker only.

    To keep writers out while a program runs makes a record five times as slow to fill in, which
    was half of what a task cost.
    """
    return dataclass(slots=True, unsafe_hash=True)(cls)
