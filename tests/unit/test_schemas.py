"""Answers against a JSON Schema: found, checked, and refused with the place and the reason."""

from __future__ import annotations

import json

import pytest

from headway.errors import BadValueError
from headway.plans.references import Fitting, Misfit, Schema, read_schema

SCHEMA = {
    "type": "object",
    "required": ["items"],
    "properties": {
        "items": {
            "type": "array",
            "items": {"type": "object", "properties": {"price": {"type": "number"}}},
        },
        "odd.name": {"type": "string"},
        "level": {"enum": ["low", "high"], "default": "low"},
    },
}


@pytest.fixture
def schema() -> Schema:
    return read_schema(json.dumps(SCHEMA))


@pytest.mark.parametrize(
    "answer",
    [
        '{"items": [{"price": 1.50}]}',
        '\n  {"items": [{"price": 1.50}]}\n',
        'Here it is:\n```json\n{"items": [{"price": 1.50}]}\n```\nAnything else?',
        '```\n{"items": [{"price": 1.50}]}\n```',
        'First\n```\nnot it\n```\nthen\n```json\n{"items": [{"price": 1.50}]}```',
    ],
)
def test_json_is_found_alone_or_in_a_fence(schema: Schema, answer: str) -> None:
    fit = schema.fit(answer)
    assert fit == Fitting('{"items": [{"price": 1.50}]}', {"items": [{"price": 1.5}]})


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ("", "it is empty"),
        ("hello", "it is not JSON: Expecting value: line 1 column 1 (char 0)"),
        ('```json\n{"items": [}\n```', "it is not JSON: Expecting value: line 1 column 12"),
        ('{"items": [NaN]}', "NaN is not a value of JSON"),
        ("[" * 100_000, "nested too deep"),
        ("{}", "$: must contain ['items'] properties"),
        ('{"items": [{"price": 1}, {"price": "2"}]}',
         '$.items[1].price: must be number, and is "2"'),
        ('{"items": [], "odd.name": 3}', '$["odd.name"]: must be string, and is 3'),
        ('{"items": [], "level": 3}', "$.level: must be one of ['low', 'high'], and is 3"),
        ("[1]", "$: must be object"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_refused_with_its_place(
    schema: Schema, answer: str, reason: str
) -> None:
    fit = schema.fit(answer)
    assert isinstance(fit, Misfit)
    assert reason in fit.reason


def test_nothing_is_added_to_an_answer(schema: Schema) -> None:
    fit = schema.fit('{"items": []}')
    assert isinstance(fit, Fitting)
    assert fit.value == {"items": []}


@pytest.mark.parametrize(
    "text", ["", "[]", "3", '{"type": "nonsense"}', '{"$ref": "http://127.0.0.1:9/x.json"}',
             '{"$ref": "file:///etc/passwd"}', '{"pattern": "("}', '{"$ref": "#/nowhere"}'],
)  # fmt: skip
def test_a_schema_that_cannot_be_used_is_refused_and_nothing_is_fetched(text: str) -> None:
    with pytest.raises(BadValueError) as caught:
        read_schema(text, "plan.yaml:3")
    assert caught.value.where == "plan.yaml:3"
    assert "URLError" not in (caught.value.detail or "")


def test_a_schema_may_refer_to_itself() -> None:
    schema = read_schema('{"$defs": {"n": {"type": "integer"}}, "items": {"$ref": "#/$defs/n"}}')
    assert isinstance(schema.fit("[1, 2]"), Fitting)
    assert schema.fit('[1, "a"]') == Misfit('$[1]: must be integer, and is "a"')
