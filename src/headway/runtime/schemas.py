"""Whether an answer is what a JSON Schema asks for: the only importer of the validator.

A schema comes from the user, an answer from a stranger: the answer is data and nothing else, and
a schema that points outside of itself is refused, so that nothing is fetched.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from headway.errors import BadValueError

_FENCE: Final = re.compile(r"```(?:json|JSON)?[ \t]*\r?\n(.*?)\r?\n?[ \t]*```", re.DOTALL)
_NAME: Final = re.compile(r"[A-Za-z_]\w*")
"""What can stand in a JSON path without quotes."""

SHOWN_CHARS: Final = 300
"""Of a message about a value that does not fit."""

_SELF: Final = {"$ref": "#"}
_SELVES: Final = {"type": "object", "additionalProperties": _SELF}
_SELF_LIST: Final = {"type": "array", "minItems": 1, "items": _SELF}
_NUMBER: Final = {"type": "number"}
_BOUND: Final = {"type": ["number", "boolean"]}
_COUNT: Final = {"type": "integer", "minimum": 0}
_TEXT: Final = {"type": "string"}
_TEXTS: Final = {"type": "array", "items": _TEXT}
_TYPE: Final = {"enum": ["array", "boolean", "integer", "null", "number", "object", "string"]}
META: Final[dict[str, Any]] = {
    "type": ["object", "boolean"],
    "properties": {
        **dict.fromkeys(
            ("additionalItems", "contains", "additionalProperties", "propertyNames", "not", "if",
             "then", "else", "unevaluatedItems", "unevaluatedProperties"), _SELF),
        **dict.fromkeys(("allOf", "anyOf", "oneOf", "prefixItems"), _SELF_LIST),
        **dict.fromkeys(
            ("properties", "patternProperties", "definitions", "$defs", "dependentSchemas"),
            _SELVES),
        **dict.fromkeys(("minimum", "maximum"), _NUMBER),
        **dict.fromkeys(
            ("maxLength", "minLength", "maxItems", "minItems", "maxProperties", "minProperties",
             "minContains", "maxContains"), _COUNT),
        **dict.fromkeys(
            ("pattern", "format", "title", "description", "$ref", "$id", "$schema", "$comment"),
            _TEXT),
        **dict.fromkeys(("exclusiveMinimum", "exclusiveMaximum"), _BOUND),
        "items": {"anyOf": [_SELF, {"type": "array", "items": _SELF}]},
        "dependencies": {
            "type": "object", "additionalProperties": {"anyOf": [_SELF, _TEXTS]}},
        "multipleOf": {"type": "number", "exclusiveMinimum": 0},
        "uniqueItems": {"type": "boolean"},
        "required": {"anyOf": [_TEXTS, {"type": "boolean"}]},
        "enum": {"type": "array"},
        "type": {"anyOf": [_TYPE, {"type": "array", "minItems": 1, "items": _TYPE}]},
    },
}  # fmt: skip
"""What the keywords of a schema take, in draft 4 to 2020-12, as far as they have a type: the
validator itself takes no notice of many that are wrong."""


@dataclass(frozen=True, slots=True)
class Fitting:
    """The JSON of an answer that fits, as it was written and as a value."""

    text: str
    value: object


@dataclass(frozen=True, slots=True)
class Misfit:
    """Why an answer does not fit."""

    reason: str


@dataclass(frozen=True, slots=True)
class Schema:
    """A schema, ready to be asked."""

    text: str
    validate: Callable[[Any], Any]

    def fit(self, answer: str) -> Fitting | Misfit:
        """Look at an answer: JSON alone, or in a fenced block among other words."""
        import fastjsonschema

        found = _json_in(answer)
        if isinstance(found, Misfit):
            return found
        try:
            self.validate(found.value)
        except fastjsonschema.JsonSchemaValueException as error:
            return Misfit(_in_words(error.message, error.name or "data", found.value))
        except RecursionError:
            return Misfit("$: it is nested too deep")
        return found


def read_schema(text: str, where: str = "") -> Schema:
    """The schema in a file's content."""
    import fastjsonschema

    try:
        definition = json.loads(text)
        if not isinstance(definition, dict | bool):
            raise ValueError("it is neither an object nor true or false")
        fastjsonschema.validate(META, definition)
        validate = fastjsonschema.compile(definition, handlers=_Nowhere(), use_default=False)
    except fastjsonschema.JsonSchemaValueException as error:
        path, _ = _path_of(error.name or "data", definition)
        raise BadValueError(
            "this is not a JSON Schema that can be used", where=where or None,
            detail=f"{path}: {error.message.removeprefix(error.name or '').strip()}"[:SHOWN_CHARS],
        ) from error  # fmt: skip
    # The validator translates the schema into code, and what is wrong with a schema shows as
    # whatever that code stumbles over.
    except Exception as error:
        raise BadValueError(
            "this is not a JSON Schema that can be used", where=where or None,
            detail=f"{type(error).__name__}: {error}"[:SHOWN_CHARS],
        ) from error  # fmt: skip
    return Schema(json.dumps(definition, ensure_ascii=False), validate)


class _Nowhere(dict[str, Callable[[str], Any]]):
    """Answers every address, and always with a refusal."""

    def __contains__(self, scheme: object) -> bool:
        return True

    def __missing__(self, scheme: str) -> Callable[[str], Any]:
        return _refuse


def _refuse(address: str) -> object:
    raise ValueError(f"it refers to {address}, and nothing is fetched: put it into the schema")


def _json_in(answer: str) -> Fitting | Misfit:
    """The JSON of an answer; of several fenced blocks, the first one that is JSON."""
    candidates = [answer, *_FENCE.findall(answer)]
    misfit = Misfit("it is empty")
    for number, candidate in enumerate(candidates):
        text = candidate.strip()
        if not text:
            continue
        try:
            return Fitting(text, json.loads(text, parse_constant=_not_json))
        except RecursionError:
            return Misfit("it is nested too deep")
        except ValueError as error:
            # Of an answer with a fenced block, what is wrong inside says more.
            if number < 2:
                misfit = Misfit(f"it is not JSON: {error}"[:SHOWN_CHARS])
    return misfit


def _not_json(word: str) -> object:
    raise ValueError(f"{word} is not a value of JSON")


def _in_words(message: str, name: str, value: object) -> str:
    """`$.items[2].price: must be number, and is "12"`."""
    path, at = _path_of(name, value)
    said = message.removeprefix(name).strip()
    shown = "" if isinstance(at, dict | list) else f", and is {json.dumps(at, ensure_ascii=False)}"
    return f"{path}: {said}{shown}"[:SHOWN_CHARS]


def _path_of(name: str, value: object) -> tuple[str, object]:
    """The validator's `data.items[2].price` as a JSON path, and the value there."""
    path, at = "$", value
    rest = name.removeprefix("data")
    while rest:
        if isinstance(at, list) and (found := re.match(r"\[([0-9]+)\]", rest)):
            path, rest = path + found[0], rest[found.end() :]
            at = at[int(found[1])]
        elif isinstance(at, dict) and rest.startswith("."):
            # A name may contain dots: the longest one that is there is meant.
            names = [key for key in at if rest[1:].startswith(key)]
            if not names:
                return path + rest, None
            key = max(names, key=len)
            path += f".{key}" if _NAME.fullmatch(key) else f"[{json.dumps(key)}]"
            rest, at = rest[1 + len(key) :], at[key]
        else:
            return path + rest, None
    return path, at
