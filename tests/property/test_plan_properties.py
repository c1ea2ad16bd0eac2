"""Whatever a plan's file holds, it is accepted or refused; and what a refusal says helps."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headway.plans.expand import keys_of
from headway.plans.load import plan_from
from tests.property.plan_text import (
    PLANS,
    VALID,
    WORDS,
    as_yaml,
    assert_hints_help,
    errors_of,
)

SIGNS = st.sampled_from(list(":{}[],&*!|>\n\t -\"'#%@`?<"))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with what the plans name."""
    made = tmp_path_factory.mktemp("plan")
    (made / "lines.txt").write_text("a\nb\n")
    (made / "prompt.md").write_text("Say {{ vars.x }}")
    (made / "b").mkdir()
    return made


@settings(max_examples=150)
@given(plan=PLANS, flow=st.sampled_from((True, False, None)))
def test_every_hint_of_a_plan_near_the_grammar_ends_its_error(
    folder: Path, plan: object, flow: bool | None
) -> None:
    assert_hints_help(as_yaml(plan, flow), folder)


@settings(max_examples=80)
@given(plan=PLANS)
def test_every_hint_of_a_json_plan_ends_its_error(folder: Path, plan: object) -> None:
    assert_hints_help(json.dumps(plan, indent=1), folder, "plan.json")


@settings(max_examples=200)
@given(data=st.binary(max_size=300))
def test_any_bytes_are_refused_with_an_error_of_the_plan(folder: Path, data: bytes) -> None:
    errors_of(data.decode("utf-8", "replace"), folder)


@settings(max_examples=150)
@given(data=st.data())
def test_a_plan_that_was_damaged_is_refused_with_hints_that_help(
    folder: Path, data: st.DataObject
) -> None:
    text = VALID
    for _ in range(data.draw(st.integers(1, 3))):
        start = data.draw(st.integers(0, len(text)))
        length = data.draw(st.integers(0, 12))
        new = data.draw(st.one_of(WORDS, SIGNS, st.text(max_size=3)))
        text = text[:start] + new + text[start + length :]
    assert_hints_help(text, folder)


@settings(max_examples=100)
@given(
    items=st.lists(st.one_of(st.text(max_size=8), st.integers(), st.booleans()), min_size=1),
    views=st.lists(st.text("abc", min_size=1, max_size=3), min_size=1, max_size=4, unique=True),
)
def test_no_two_tasks_of_a_plan_share_a_key_or_a_label(
    folder: Path, items: list[object], views: list[str]
) -> None:
    task = {"each": items, "matrix": {"view": views}, "prompt": "{{ item }} {{ matrix.view }}"}
    text = json.dumps({"headway": 1, "tasks": {"one": task, "two": task}})
    expanded = plan_from(text, folder, "plan.json").expanded
    keys = [
        keys.key(index)
        for keys, group in zip(keys_of(expanded), expanded.groups, strict=True)
        if keys is not None
        for index in range(group.count or 0)
    ]
    labels = [group.label(i) for group in expanded.groups for i in range(group.count or 0)]
    assert len(set(keys)) == len(set(labels)) == len(keys) == 2 * len(items) * len(views)
