"""Checks the schemas and functions that a plan names, without importing anything.

Law: a function is refused only if its module's source shows that it is not there. What sources do
not show (compiled modules, `from x import *`, names made at run time) is remarked on, not refused.
"""

from __future__ import annotations

import ast
import json
import os
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import resolve_name
from itertools import product
from typing import Any, Final

from msgspec import Struct

from headway.errors import BadValueError, Place, PlanError, SourceError, did_you_mean
from headway.plans.expand import ExpandedPlan, paths_of
from headway.plans.grammar import TARGET
from headway.plans.hazards import Remark
from headway.plans.section import shown, where
from headway.plans.spec import Python

# Whether an answer is what a JSON Schema asks for: the only importer of the validator.

_FENCE: Final = re.compile(r"```(?:json|JSON)?[ \t]*\r?\n(.*?)\r?\n?[ \t]*```", re.DOTALL)
_NAME: Final = re.compile(r"[A-Za-z_]\w*")
"""What can stand in a JSON path without quotes."""

SHOWN_CHARS: Final = 300
"""Of a message about a value that does not fit."""

NOT_A_SCHEMA: Final = "it is not a JSON Schema"
UNUSABLE: Final = "headway cannot use this schema"

EXCLUSIVE: Final = ("exclusiveMinimum", "exclusiveMaximum")
SAMPLES: Final[tuple[object, ...]] = (None, True, 0, "", [], {})
"""A value of each kind, to find schemas that no value ends."""

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


class Fitting(Struct, frozen=True):
    """The JSON of an answer that fits, as it was written and as a value."""

    text: str
    value: object


class Misfit(Struct, frozen=True):
    """Why an answer does not fit."""

    reason: str


class Schema(Struct, frozen=True):
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
        validate = fastjsonschema.compile(definition, handlers=_Nowhere(), use_default=False)
        _must_end(validate)
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


def _must_end(validate: Any) -> None:
    """Refuse references that lead back to themselves; the validator has a function for each."""
    from fastjsonschema import JsonSchemaValueException

    named = validate.__globals__.items()
    judges = [judge for name, judge in named if name.startswith("validate")]
    for judge, sample in product(judges, SAMPLES):
        try:
            judge(sample)
        except RecursionError:
            raise _UnusableError("its `$ref` leads back to itself, and judges no value") from None
        except JsonSchemaValueException:
            pass


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


SOURCE_BYTES_MAX: Final = 16_000_000
"""Of a module: longer ones are not judged."""
IMPORTS_MAX: Final = 20
"""How many modules a name is followed through."""

DYNAMIC: Final = frozenset(("globals", "exec", "eval", "vars", "setattr", "locals", "__dict__"))
"""Names by which a module can get others that its source does not show."""
PLACING: Final = frozenset(("modules", "__path__"))
"""Names by which a package can get modules that are not in its folder."""
NOT_CALLED: Final = (
    ast.Constant, ast.List, ast.Dict, ast.Set, ast.Tuple, ast.JoinedStr, ast.ListComp, ast.DictComp,
    ast.SetComp, ast.GeneratorExp,
)  # fmt: skip


class ReferenceFault(Struct, frozen=True):
    """What a source shows of a function that was not found for certain."""

    reason: str
    is_missing: bool = True
    hint: str = ""


UNJUDGED: Final = ReferenceFault("cannot be judged without importing it", is_missing=False)


def check_named(expanded: ExpandedPlan, folder: str) -> tuple[Remark, ...]:
    """Refuse schemas that are none and functions that are not there; remark on the unjudged."""
    spec, errors, remarks = expanded.spec, [*_bad_schemas(expanded)], list[Remark]()
    judged: dict[str, ReferenceFault | None] = {}
    for owner, key, target, place in _functions(expanded):
        doubt = judged[target] if target in judged else doubt_of(target, folder)
        judged[target] = doubt
        if doubt is None:
            continue
        message = f"`{shown(target)}` in `{key}`{f' of `{owner}`' if owner else ''}: {doubt.reason}"
        at = where(spec.file, place)
        if doubt.is_missing:
            errors.append(SourceError(message, where=at, hint=doubt.hint or None))
        else:
            remarks.append(Remark("note", "not judged", owner, message, where=at, what=target))
    if errors:
        raise PlanError.together(errors)
    return tuple(remarks)


def _bad_schemas(expanded: ExpandedPlan) -> Iterator[PlanError]:
    for group in expanded.groups:
        task = group.task
        for path in paths_of(group, task.schema) if task.schema else ():
            try:
                read_schema(expanded.sources.files[path], path)
            except BadValueError as error:
                at = where(expanded.spec.file, task.spot("schema").value)
                message = f"`{shown(path)}` in `schema` of `{task.name}`: {error.message}"
                yield SourceError(message, where=at, detail=error.detail, hint=error.hint)


def _functions(expanded: ExpandedPlan) -> Iterator[tuple[str, str, str, Place]]:
    for task in expanded.spec.tasks:
        if isinstance(task.work, Python):
            yield task.name, "python", task.work.target, task.spot("python").value
    for _, channel, spot in expanded.spec.state or ():
        if TARGET.fullmatch(channel.target):
            yield "", "state", channel.target, spot.value


def doubt_of(target: str, folder: str, imports: int = 0) -> ReferenceFault | None:
    """Why `module:name` may not be a function, as seen from a plan's folder; None if it is one."""
    module, _, name = target.partition(":")
    found = _spec_of(module, folder)
    if isinstance(found, ReferenceFault):
        return found
    tree = _parsed(found, folder) if imports < IMPORTS_MAX else UNJUDGED
    if isinstance(tree, ReferenceFault):
        return tree
    bindings = [value for bound, value in _bindings(tree.body) if bound == name]
    if not bindings or (isinstance(bindings[-1], ast.Delete) and bindings[-1] in tree.body):
        return _absent(tree, name, _short(found, folder))
    if all(isinstance(value, NOT_CALLED) for value in bindings):
        return ReferenceFault(f"`{name}` in {_short(found, folder)} is no function")
    only = bindings[0]
    if len(bindings) > 1 or not isinstance(only, ast.Import | ast.ImportFrom):
        return None
    return _imported(only, found, name, folder, imports) if only in tree.body else None


def _parsed(found: ModuleSpec, folder: str) -> ast.Module | ReferenceFault:
    if not found.has_location and found.submodule_search_locations is not None:
        return ReferenceFault(f"`{found.name}` is a folder without an __init__.py")
    origin = found.origin or ""
    if not origin.endswith(".py"):
        return UNJUDGED
    try:
        with open(origin, "rb") as file:
            source = file.read(SOURCE_BYTES_MAX + 1)
        return ast.parse(source, origin) if len(source) <= SOURCE_BYTES_MAX else UNJUDGED
    except SyntaxError as error:
        line = f"line {error.lineno} of " if error.lineno else ""
        return ReferenceFault(f"{line}{_short(found, folder)} is not Python: {error.msg}")
    except (OSError, ValueError, RecursionError, MemoryError):
        return UNJUDGED


def _imported(
    statement: ast.Import | ast.ImportFrom, found: ModuleSpec, name: str, folder: str, imports: int
) -> ReferenceFault | None:
    """The same for a name that a module has from another one."""
    if isinstance(statement, ast.Import):
        return UNJUDGED
    try:
        module = resolve_name("." * statement.level + (statement.module or ""), found.parent)
    except ImportError:
        return None
    real = next(one.name for one in statement.names if (one.asname or one.name) == name)
    if isinstance(_spec_of(f"{module}.{real}", folder), ModuleSpec):
        return UNJUDGED
    return doubt_of(f"{module}:{real}", folder, imports + 1)


def _absent(tree: ast.Module, name: str, origin: str) -> ReferenceFault:
    names = {bound for bound, _ in _bindings(tree.body)} - {name}
    made = {name for one in ast.walk(tree) if isinstance(one, ast.Global) for name in one.names}
    if "*" in names or "__getattr__" in names or name in made or _mentioned(tree) & DYNAMIC:
        return UNJUDGED
    public = [one for one in names if not one.startswith("_")]
    hint = did_you_mean(name, public) if public else ""
    return ReferenceFault(f"there is no `{name}` in {origin}", hint=hint)


def _mentioned(tree: ast.Module) -> set[str]:
    found = {one.id for one in ast.walk(tree) if isinstance(one, ast.Name)}
    return found | {one.attr for one in ast.walk(tree) if isinstance(one, ast.Attribute)}


def _bindings(body: Sequence[ast.stmt]) -> Iterator[tuple[str, ast.AST]]:
    """The names that statements of a module give something to, with what gives it."""
    for statement in body:
        match statement:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                yield statement.name, statement
                continue
            case ast.Import() | ast.ImportFrom():
                for alias in statement.names:
                    yield alias.asname or alias.name.partition(".")[0], statement
            case (
                ast.Assign(targets=[ast.Name(id=name)], value=value)
                | ast.AnnAssign(target=ast.Name(id=name), value=value)
            ):
                if value is not None:
                    yield name, value
                continue
        for one in ast.iter_child_nodes(statement):
            if not isinstance(one, ast.stmt | ast.excepthandler | ast.match_case):
                for inner in ast.walk(one):
                    if isinstance(inner, ast.Name) and not isinstance(inner.ctx, ast.Load):
                        yield inner.id, statement
        # No interpreter executes the body of `if TYPE_CHECKING:`.
        test = ast.unparse(statement.test) if isinstance(statement, ast.If) else ""
        is_for_types = re.fullmatch(r"(?:\w+\.)*TYPE_CHECKING", test)
        for field in ("orelse",) if is_for_types else ("body", "orelse", "finalbody"):
            yield from _bindings(getattr(statement, field, ()))
        for part in (*getattr(statement, "handlers", ()), *getattr(statement, "cases", ())):
            yield from _bindings(part.body)


def _spec_of(module: str, folder: str) -> ModuleSpec | ReferenceFault:
    """Where a module is. Only finders are asked: nothing of it is executed."""
    name, *rest = module.split(".")
    found = PathFinder.find_spec(name, [os.path.abspath(folder), *sys.path])
    if found is None:
        specs = (one.find_spec(name, None) for one in sys.meta_path if one is not PathFinder)
        found = next((one for one in specs if one is not None), None)
    for part in rest:
        if found is None:
            break
        above, name = found, f"{name}.{part}"
        if above.submodule_search_locations is None:
            return UNJUDGED
        found = PathFinder.find_spec(name, above.submodule_search_locations)
        if found is None and above.origin:
            tree = _parsed(above, folder)
            if isinstance(tree, ReferenceFault) or _mentioned(tree) & PLACING:
                return UNJUDGED
    if found is None:
        hint = "name it as the plan's folder sees it"
        return ReferenceFault(f"there is no module `{module}`", hint=hint)
    return found


def _short(found: ModuleSpec, folder: str) -> str:
    """A module's file as it is seen from the plan's folder, if it is in there."""
    origin = found.origin or ""
    near = os.path.relpath(origin, folder)
    return origin if near.startswith("..") else near
