"""Sources are combined into tasks without expanding them first."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from headway.errors import UsageError
from headway.plans.each import (
    ARGUMENTS_MAX,
    ArgumentPlan,
    arrange,
    parse,
)


def plan(template: str, *sources: Sequence[str], arguments_max: int | None = None) -> ArgumentPlan:
    return arrange([template], [(values, False) for values in sources], arguments_max)


def all_arguments(given: ArgumentPlan) -> list[tuple[str, ...]]:
    return [given.arguments(i) for i in range(given.count())]


def test_words_are_told_apart_by_separators() -> None:
    sources = (":::", "a", "b", ":::+", "c", "::::", "f", "g", "::::+", "-", ":::")
    assert parse(["wc", "{}", *sources]) == (
        ["wc", "{}"],
        [
            ("values", ("a", "b"), False),
            ("values", ("c",), True),
            ("file", ("f",), False),
            ("file", ("g",), False),
            ("file", ("-",), True),
            ("values", (), False),
        ],
    )


def test_the_first_source_changes_slowest() -> None:
    given = plan("wc", "ab", "12")
    assert all_arguments(given) == [("a", "1"), ("a", "2"), ("b", "1"), ("b", "2")]


def test_linked_sources_go_along_and_the_shortest_counts() -> None:
    sources = [("abc", False), ("12", True), ("XY", False)]
    found = ["".join(values) for values in all_arguments(arrange(["wc"], sources))]
    assert found == ["a1X", "a1Y", "b2X", "b2Y"]


def test_tasks_get_as_many_values_as_asked_for() -> None:
    assert all_arguments(plan("wc", "abc", arguments_max=2)) == [("a", "b"), ("c",)]
    assert all_arguments(plan("wc", "abc", arguments_max=0)) == [(), (), ()]


def test_no_values_are_no_tasks_but_an_empty_source_among_others_has_one() -> None:
    assert plan("wc", ()).count() == 0
    assert all_arguments(plan("wc", "a", ())) == [("a", "")]


def test_a_place_is_added_where_none_is() -> None:
    assert plan("wc -l", ["a b"]).argv(0) == ("wc", "-l", "a b")
    assert plan("wc {#}", ["a b"]).argv(0) == ("wc", "1")


def test_a_task_is_shown_with_its_values_quoted() -> None:
    given = plan("wc {} {2} '{.}' {#}", ["a b.c"])
    assert given.display(0) == "wc 'a b.c'  ''a b'' 1"


@pytest.mark.parametrize(
    ("words", "value", "number", "separator", "message"),
    [
        ([], "a", None, None, "no command"),
        ([" "], "a", None, None, "no command"),
        (["wc"], "a\0b", None, None, "zero byte"),
        (["wc"], "a", None, "(", "regular expression"),
        (["wc"], "a", ARGUMENTS_MAX + 1, None, "between"),
        (["wc"], "a", -1, None, "between"),
        (["wc `{}`"], "a", None, None, "backticks"),
    ],
)
def test_what_is_wrong_is_said_before_anything_starts(
    words: list[str], value: str, number: int | None, separator: str | None, message: str
) -> None:
    with pytest.raises(UsageError, match=message) as refused:
        arrange(words, [([value], False)], number, separator)
    assert refused.value.hint


def test_columns_are_arguments() -> None:
    given = arrange(["wc"], [(["a,b", "c, d e"], False)], column_separator=",")
    assert all_arguments(given) == [("a", "b"), ("c", "d e")]


def test_words_that_are_kept_apart_mean_themselves() -> None:
    words = ["wc", "a b", "$x", "p{}q r", ""]
    given = arrange(words, [(["x y"], False)], is_quoted=True)
    assert given.argv(0) == ("wc", "a b", "$x", "px yq r", "")
