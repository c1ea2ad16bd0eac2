"""Errors carry a code, a place and a fix, and belong to whoever is at fault."""

from __future__ import annotations

import pickle
from collections.abc import Iterator

from headway import errors
from headway.errors import (
    CycleError,
    HeadwayError,
    UnknownNeedError,
    did_you_mean,
)


def _family(kind: type[HeadwayError]) -> Iterator[type[HeadwayError]]:
    yield kind
    for child in kind.__subclasses__():
        if child.__module__ == errors.__name__:
            yield from _family(child)


FAMILY = tuple(_family(HeadwayError))
CODED = tuple(kind for kind in FAMILY if "code" in vars(kind) and kind is not HeadwayError)


def test_an_error_renders_what_where_and_the_fix() -> None:
    error = UnknownNeedError(
        "`validate` needs `enrich`, which is not in the plan",
        where="plan.yaml:18",
        detail="needs: enrich",
        hint="did you mean `enriched`?",
    )
    assert error.render() == (
        "error[HW002]: `validate` needs `enrich`, which is not in the plan\n"
        "  plan.yaml:18  needs: enrich\n"
        "hint: did you mean `enriched`?"
    )


def test_an_error_leaves_out_the_lines_it_has_nothing_for() -> None:
    assert CycleError("a -> b -> a").render() == "error[HW001]: a -> b -> a"


def test_no_two_errors_share_a_code() -> None:
    codes = [kind.code for kind in CODED]
    assert len(codes) == len(set(codes))


def test_an_error_survives_the_way_between_processes() -> None:
    error = CycleError("a -> a", where="plan.yaml:3", detail="here", hint="drop one")
    assert pickle.loads(pickle.dumps(error)).render() == error.render()


def test_a_near_miss_is_named() -> None:
    assert did_you_mean("anthropc", ["openai", "anthropic"]) == "did you mean `anthropic`?"
    assert did_you_mean("zzz", ["openai", "anthropic"]) == "choose from: anthropic, openai"
