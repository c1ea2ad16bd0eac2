"""Whether an answer is what a JSON Schema asks for: the only importer of the validator.

A schema comes from the user, an answer from a stranger: the answer is data and nothing else, and
a schema that points outside of itself is refused, so that nothing is fetched.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import unquote

from headway.errors import BadValueError

_FENCE: Final = re.compile(r"```(?:json|JSON)?[ \t]*\r?\n(.*?)\r?\n?[ \t]*```", re.DOTALL)
_NAME: Final = re.compile(r"[A-Za-z_]\w*")
"""What can stand in a JSON path without quotes."""

SHOWN_CHARS: Final = 300
"""Of a message about a value that does not fit."""

NOT_A_SCHEMA: Final = "it is not a JSON Schema"
UNUSABLE: Final = "headway cannot use this schema"

EXCLUSIVE: Final = ("exclusiveMinimum", "exclusiveMaximum")
IN_PLACE: Final = ("allOf", "anyOf", "oneOf", "not", "if", "then", "else")
"""Keywords whose schemas are about the same value as the schema that has them."""

_SELF: Final = {"$ref": "#"}
_SELVES: Final = {"type": "object", "additionalProperties": _SELF}
_SELF_LIST: Final = {"type": "array", "minItems": 1, "items": _SELF}
_NUMBER: Final = {"type": "number"}
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
        **dict.fromkeys(("minimum", "maximum", *EXCLUSIVE), _NUMBER),
        **dict.fromkeys(
            ("maxLength", "minLength", "maxItems", "minItems", "maxProperties", "minProperties",
             "minContains", "maxContains"), _COUNT),
        **dict.fromkeys(
            ("pattern", "format", "title", "description", "$ref", "$id", "$schema", "$comment"),
            _TEXT),
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
META_4: Final[dict[str, Any]] = {
    **META,
    "properties": META["properties"] | {key: {"type": "boolean"} for key in EXCLUSIVE},
}
"""The same for draft 4, in which a bound is exclusive or not."""


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

    at = where or None
    try:
        definition = json.loads(text)
        if not isinstance(definition, dict | bool):
            raise ValueError("it is neither an object nor true or false")
        is_old = isinstance(definition, dict) and "draft-04" in str(definition.get("$schema"))
        fastjsonschema.validate(META_4 if is_old else META, definition)
        _must_end(definition)
        validate = fastjsonschema.compile(definition, handlers=_Nowhere(), use_default=False)
    except fastjsonschema.JsonSchemaValueException as error:
        path, _ = _path_of(error.name or "data", definition)
        detail = f"{path}: {error.message.removeprefix(error.name or '').strip()}"[:SHOWN_CHARS]
        raise BadValueError(NOT_A_SCHEMA, where=at, detail=detail) from error
    except (RecursionError, MemoryError, SyntaxError) as error:
        raise BadValueError(UNUSABLE, where=at, detail="it is nested too deep") from error
    except (fastjsonschema.JsonSchemaDefinitionException, _UnusableError, re.error) as error:
        detail = f"{error}"[:SHOWN_CHARS]
        hint = "refer to a path, as in #/$defs/name" if '"$anchor"' in text else None
        raise BadValueError(UNUSABLE, where=at, detail=detail, hint=hint) from error
    except ValueError as error:
        raise BadValueError(NOT_A_SCHEMA, where=at, detail=f"{error}"[:SHOWN_CHARS]) from error
    # The validator translates the schema into code, and what is wrong with a schema shows as
    # whatever that code stumbles over.
    except Exception as error:
        detail = f"{type(error).__name__}: {error}"[:SHOWN_CHARS]
        raise BadValueError(UNUSABLE, where=at, detail=detail) from error
    return Schema(json.dumps(definition, ensure_ascii=False), validate)


def _must_end(root: object) -> None:
    """Refuse references that lead back to themselves: no value would ever be judged."""
    seen: set[int] = set()

    def follow(schema: object, way: frozenset[int]) -> None:
        if id(schema) in way:
            raise _UnusableError("its `$ref` leads back to itself, and judges no value")
        if not isinstance(schema, dict) or id(schema) in seen:
            return
        for one in _of_same_value(schema, root):
            follow(one, way | {id(schema)})
        seen.add(id(schema))

    rest = [root]
    while rest:
        node = rest.pop()
        follow(node, frozenset())
        inner = node.values() if isinstance(node, dict) else node if isinstance(node, list) else ()
        rest += inner


def _of_same_value(schema: Mapping[str, object], root: object) -> Iterator[object]:
    """The schemas that a value has to be asked about before any part of it."""
    for key in IN_PLACE:
        found = schema.get(key)
        yield from found if isinstance(found, list) else [found]
    found = schema.get("dependencies")
    yield from found.values() if isinstance(found, dict) else ()
    reference = schema.get("$ref")
    if isinstance(reference, str) and (reference == "#" or reference.startswith("#/")):
        at = root
        for part in unquote(reference).split("/")[1:]:
            name = part.replace("~1", "/").replace("~0", "~")
            if isinstance(at, list):
                at = at[int(name)] if name.isdecimal() and int(name) < len(at) else None
            else:
                at = at.get(name) if isinstance(at, dict) else None
        yield at


class _UnusableError(Exception):
    """A schema that is one, and that headway cannot use."""


class _Nowhere(dict[str, Callable[[str], Any]]):
    """Answers every address, and always with a refusal."""

    def __contains__(self, scheme: object) -> bool:
        return True

    def __missing__(self, scheme: str) -> Callable[[str], Any]:
        return _refuse


def _refuse(address: str) -> object:
    raise _UnusableError(f"it refers to {address}, and nothing is fetched: put it into the schema")


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
