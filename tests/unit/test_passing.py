"""Where a function has its context: by name, in its place, or not at all."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial, wraps

import pytest
from msgspec import Struct

from headway.agents.worker import call, place_of


def behind(item: str, ctx: object) -> object:
    return item, ctx


def by_name(item: str, *, ctx: object) -> object:
    return item, ctx


def optional(item: str, ctx: object = None) -> object:
    return item, ctx


def first(ctx: object, item: str) -> object:
    return item, ctx


def amid(item: str, ctx: object, needed: str = "-") -> object:
    return item, ctx


def any_number(ctx: object, *items: str) -> object:
    return items[0], ctx


def with_more(item: str, ctx: object, word: str) -> object:
    assert word == "said"
    return item, ctx


@wraps(behind)
def wrapped(*arguments: object, **named: object) -> object:
    return behind(*arguments, **named)  # type: ignore[arg-type]


class Callable1:
    def __call__(self, item: str, ctx: object) -> object:
        return item, ctx

    def method(self, ctx: object, item: str) -> object:
        return item, ctx


class Unhashable(Struct):
    def __call__(self, item: str, ctx: object) -> object:
        return item, ctx


@pytest.mark.parametrize(
    "function",
    [
        behind, by_name, optional, first, amid, any_number, wrapped, Callable1(),
        Callable1().method, Unhashable(), partial(with_more, word="said"),
        partial(partial(with_more, word="said")), lambda item, ctx: (item, ctx),
    ],
)  # fmt: skip
def test_a_parameter_named_ctx_gets_the_context(function: Callable[..., object]) -> None:
    for _ in range(2):
        place = place_of(function, 1)
        assert place is not None
        assert call(function, ("it",), place, "context") == ("it", "context")


@pytest.mark.parametrize(
    ("function", "count"),
    [
        (str.upper, 1),
        (len, 1),
        (dict, 0),
        (lambda item: item, 1),
        (lambda ctx: ctx, 1),
        (lambda ctx, word: ctx, 2),
        (partial(lambda ctx, word: ctx, word=1), 1),
        (partial(behind, ctx="mine"), 1),
        (lambda *ctx: ctx, 1),
        (lambda **ctx: ctx, 0),
        (lambda ctx, /: ctx, 1),
    ],
)
def test_a_function_without_it_or_that_takes_an_argument_there_gets_none(
    function: Callable[..., object], count: int
) -> None:
    assert place_of(function, count) is None
