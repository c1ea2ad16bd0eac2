"""Functions that bring results together: what they give, and that nothing is left unsaid."""

from __future__ import annotations

import pytest

from headway.reducers import concat, json_merge, vote


def test_texts_follow_each_other_and_values_are_json() -> None:
    assert concat(["a\n", {"b": 1}, "", "c"], ["d"]) == 'a\n\n{"b": 1}\n\nc\n\nMissing: d'
    assert concat([]) == ""


def test_objects_are_merged_at_every_depth_and_lists_appended() -> None:
    one: object = {"a": {"x": 1, "l": [1]}, "same": 2}
    other: object = {"a": {"y": 2, "l": [2]}, "same": 2, "b": [3]}
    assert json_merge([one, other]) == {
        "a": {"x": 1, "l": [1, 2], "y": 2}, "same": 2, "b": [3],
    }  # fmt: skip
    assert one == {"a": {"x": 1, "l": [1]}, "same": 2}, "what was given is left alone"
    assert json_merge([[1], [2, 3]]) == [1, 2, 3]
    assert json_merge([]) == {}


def test_the_later_one_wins_and_what_was_given_up_is_stated() -> None:
    assert json_merge([{"a": {"x": 1}}, {"a": {"x": 2}}, {"a": {"x": True}}, {"a": 4}]) == {
        "a": 4,
        "_conflicts": [
            {"path": "$.a.x", "given_up": [1, 2]},
            {"path": "$.a", "given_up": [{"x": True}]},
        ],
    }


def test_a_merge_of_merges_keeps_what_was_stated() -> None:
    once = json_merge([{"a": 1}, {"a": 2}], ["m1"])
    assert json_merge([once, {"b": 1}], ["m2"]) == {
        "a": 2, "b": 1, "_missing": ["m1", "m2"],
        "_conflicts": [{"path": "$.a", "given_up": [1]}],
    }  # fmt: skip
    assert json_merge([[1]], ["m"]) == [1, {"_missing": ["m"]}]


@pytest.mark.parametrize(("value", "kind"), [("text", "text"), (3, "int"), ([1], "list")])
def test_what_cannot_be_merged_is_named(value: object, kind: str) -> None:
    with pytest.raises(ValueError, match=f"result 2 is {kind}"):
        json_merge([{}, value])


def test_most_votes_win_and_abstentions_and_missing_are_stated() -> None:
    assert vote(["yes", "no", " yes ", None, "", {"vote": "yes", "why": "x"}], ["p[3]"]) == {
        "winner": "yes", "is_majority": True, "tied": [], "abstained": 2, "missing": ["p[3]"],
        "votes": [{"value": "yes", "count": 3}, {"value": "no", "count": 1}],
    }  # fmt: skip


def test_a_tie_has_no_winner_and_half_is_no_majority() -> None:
    tied = vote([True, False])
    assert (tied["winner"], tied["tied"], tied["is_majority"]) == (None, [True, False], False)
    assert vote(["a", "a", "b", "c"])["is_majority"] is False
    assert vote([]) == {
        "winner": None, "is_majority": False, "tied": [], "votes": [], "abstained": 0,
        "missing": [],
    }  # fmt: skip
