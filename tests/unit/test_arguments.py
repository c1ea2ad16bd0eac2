"""Sources are combined into tasks without expanding them first."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from headway.errors import UsageError
from headway.plans.each import (
    ARGUMENTS_MAX,
    ArgumentPlan,
    Arrangement,
    EachWords,
    NamedSource,
    ValueSource,
    arrange,
    lines,
    parse,
)


def plan(template: str, *sources: Sequence[str], **more: int) -> ArgumentPlan:
    arrangement = Arrangement(arguments_max=more.get("arguments_max"))
    return arrange([template], [ValueSource(values) for values in sources], arrangement)


def all_arguments(given: ArgumentPlan) -> list[tuple[str, ...]]:
    return [given.arguments(i) for i in range(given.count())]


def test_words_are_told_apart_by_separators() -> None:
    sources = (":::", "a", "b", ":::+", "c", "::::", "f", "g", "::::+", "-", ":::")
    assert parse(["wc", "{}", *sources]) == EachWords(
        ("wc", "{}"),
        (
            NamedSource("values", ("a", "b")),
            NamedSource("values", ("c",), is_linked=True),
            NamedSource("file", ("f",)),
            NamedSource("file", ("g",)),
            NamedSource("file", ("-",), is_linked=True),
            NamedSource("values", ()),
        ),
    )


def test_lines_are_values() -> None:
    assert lines("a\n b \n\nc") == ("a", " b ", "", "c")
    assert lines("a\n\n", skips_empty=True) == ("a",)
    assert lines("a\nb\0c\0", is_null=True) == ("a\nb", "c")
    assert lines("") == ()


def test_the_first_source_changes_slowest() -> None:
    given = plan("wc", "ab", "12")
    assert all_arguments(given) == [("a", "1"), ("a", "2"), ("b", "1"), ("b", "2")]


def test_linked_sources_go_along_and_the_shortest_counts() -> None:
    sources = [ValueSource("abc"), ValueSource("12", is_linked=True), ValueSource("XY")]
    given = arrange(["wc"], sources)
    assert all_arguments(given) == [
        ("a", "1", "X"),
        ("a", "1", "Y"),
        ("b", "2", "X"),
        ("b", "2", "Y"),
    ]


def test_a_link_to_nothing_is_a_source() -> None:
    assert all_arguments(arrange(["wc"], [ValueSource("ab", is_linked=True)])) == [("a",), ("b",)]


def test_tasks_get_as_many_values_as_asked_for() -> None:
    assert all_arguments(plan("wc", "abc", arguments_max=2)) == [("a", "b"), ("c",)]
    assert all_arguments(plan("wc", "abc", arguments_max=0)) == [(), (), ()]


def test_columns_are_arguments() -> None:
    given = arrange(["wc"], [ValueSource(["a,b", "c, d e"])], Arrangement(column_separator=","))
    assert all_arguments(given) == [("a", "b"), ("c", "d e")]


def test_no_values_are_no_tasks_but_an_empty_source_among_others_has_one() -> None:
    assert plan("wc", ()).count() == 0
    assert all_arguments(plan("wc", "a", ())) == [("a", "")]


def test_a_place_is_added_where_none_is() -> None:
    assert plan("wc -l", ["a b"]).member(0).argv == ("wc", "-l", "a b")
    assert plan("wc {#}", ["a b"]).member(0).argv == ("wc", "1")
    assert plan("wc", "ab").member(1).environment == {"PARALLEL_SEQ": "2"}


def test_words_that_are_kept_apart_mean_themselves() -> None:
    words = ["wc", "a b", "$x", "p{}q r", ""]
    given = arrange(words, [ValueSource(["x y"])], Arrangement(is_quoted=True))
    assert given.member(0).argv == ("wc", "a b", "$x", "px yq r", "")


def test_a_task_is_shown_with_its_values_quoted() -> None:
    given = plan("wc {} {2} '{.}' {#}", ["a b.c"])
    assert given.display(0) == "wc 'a b.c'  ''a b'' 1"


def test_a_million_combinations_cost_nothing_until_asked_for() -> None:
    many = [str(i) for i in range(1_000)]
    given = plan("wc {2} {1}", many, many)
    assert given.count() == 1_000_000
    assert given.member(999_001).argv == ("wc", "1", "999")


@pytest.mark.parametrize(
    ("words", "sources", "arrangement", "message"),
    [
        ([], ["a"], Arrangement(), "no command"),
        ([" "], ["a"], Arrangement(), "no command"),
        (["wc"], ["a\0b"], Arrangement(), "zero byte"),
        (["wc"], ["a"], Arrangement(column_separator="("), "regular expression"),
        (["wc"], ["a"], Arrangement(arguments_max=ARGUMENTS_MAX + 1), "between"),
        (["wc"], ["a"], Arrangement(arguments_max=-1), "between"),
        (["wc `{}`"], ["a"], Arrangement(), "backticks"),
    ],
)
def test_what_is_wrong_is_said_before_anything_starts(
    words: list[str], sources: list[str], arrangement: Arrangement, message: str
) -> None:
    with pytest.raises(UsageError, match=message) as refused:
        arrange(words, [ValueSource(sources)], arrangement)
    assert refused.value.hint


def test_combinations_beyond_measure_are_refused() -> None:
    many = ValueSource(["x"] * 1_000)
    with pytest.raises(UsageError, match="combinations"):
        arrange(["wc"], [many] * 3)
