"""Calls a user's function in a thread so that whatever it raises can be raised where it is awaited.

A future cannot hold a StopIteration: whoever awaits it would wait for ever.
"""

from __future__ import annotations

from collections.abc import Callable


def called(function: Callable[..., object], *arguments: object) -> object:
    """What it gives; RuntimeError in place of a StopIteration, as coroutines have it."""
    try:
        return function(*arguments)
    except StopIteration as error:
        raise RuntimeError("it raised StopIteration: `next` of what was empty?") from error
