"""How a function is given its context: as the parameter that is named `ctx`, wherever it stands."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from inspect import Parameter, signature
from typing import Final

NAME: Final = "ctx"
BY_NAME: Final = -1
"""Behind everything that is given by its place."""
FUNCTIONS_KNOWN_MAX: Final = 256
"""Functions whose parameters need not be looked at again."""

_BY_PLACE: Final = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)
_BY_NAME: Final = (Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY)


def place_of(function: Callable[..., object], count: int) -> int | None:
    """Where a function that is given so many arguments has its context; None if it wants none.

    A parameter of this name that takes one of the arguments is just that.
    """
    bound: set[str] = set()
    while isinstance(function, partial):
        bound |= function.keywords.keys()
        count += len(function.args)
        function = function.func
    if NAME in bound:
        return None
    try:
        return _place(function, count, frozenset(bound))
    except TypeError:
        # What has no hash is looked at every time.
        return _place.__wrapped__(function, count, frozenset(bound))


def call(
    function: Callable[..., object], given: Sequence[object], place: int, context: object
) -> object:
    """Call it with its context in this place."""
    if place == BY_NAME:
        return function(*given, ctx=context)
    return function(*given[:place], context, *given[place:])


@lru_cache(FUNCTIONS_KNOWN_MAX)
def _place(function: Callable[..., object], count: int, bound: frozenset[str]) -> int | None:
    try:
        parameters = signature(function).parameters
    except (TypeError, ValueError):
        return None  # Some that are not written in Python do not tell.
    mine = parameters.get(NAME)
    if mine is None or mine.kind not in _BY_NAME:
        return None
    names = [one.name for one in parameters.values() if one.kind in _BY_PLACE]
    if mine.kind is Parameter.KEYWORD_ONLY or names.index(NAME) >= count:
        return BY_NAME
    takes_any = any(one.kind is Parameter.VAR_POSITIONAL for one in parameters.values())
    free = [name for name in names if name not in bound]
    return names.index(NAME) if takes_any or len(free) > count else None
