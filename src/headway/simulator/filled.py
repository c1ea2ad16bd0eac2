"""The plainest JSON that follows a schema: what a model says that is asked for a form only."""

from __future__ import annotations

from json import dumps
from typing import Final

from headway.wire.loose import Fields, fields, items, parsed, text_of

DEPTH_MAX: Final = 16
"""How deep a schema is followed; what is deeper is null."""

_PLAIN: Final[dict[str, object]] = {"string": "plain", "boolean": False}


def filled(schema: str) -> str:
    """A value for a JSON Schema, as JSON. Gemini writes the types in capitals."""
    return dumps(_value(fields(parsed(schema)), 0), ensure_ascii=False)


def _value(schema: Fields, depth: int) -> object:
    if depth > DEPTH_MAX:
        return None
    if given := items(schema.get("enum")):
        return given[0]
    if "const" in schema:
        return schema["const"]
    for key in ("anyOf", "oneOf", "allOf"):
        if inner := items(schema.get(key)):
            return _value(fields(inner[0]), depth + 1)
    kinds = [text_of(kind).lower() for kind in items(schema.get("type"))]
    kind = text_of(schema.get("type")).lower() or next(iter(kinds), "")
    if kind in ("integer", "number"):
        least = schema.get("minimum")
        return least if isinstance(least, int | float) else 1
    if kind == "array":
        return [_value(fields(schema.get("items")), depth + 1)]
    if kind == "object" or "properties" in schema:
        named = fields(schema.get("properties")).items()
        return {name: _value(fields(value), depth + 1) for name, value in named}
    return _PLAIN.get(kind)
