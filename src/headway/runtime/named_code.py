"""Whether the schemas and functions that a plan names can be used, without importing anything.

Law: a function is refused only if its module's source shows that it is not there. What cannot be
told from sources (compiled modules, `from x import *`, names that are made at run time) is remarked
on, and never refused.
"""

from __future__ import annotations

import ast
import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.machinery import ModuleSpec, PathFinder
from typing import Final

from headway.core.plan.expand import Expanded, paths_of
from headway.core.plan.grammar import TARGET
from headway.core.plan.remark import Remark, where
from headway.core.plan.section import shown
from headway.core.plan.spec import Python
from headway.errors import BadValueError, Place, PlanError, SourceError, did_you_mean

UNJUDGED: Final = "cannot be judged without importing"

SOURCE_BYTES_MAX: Final = 16_000_000
"""Of a module: longer ones are not judged."""
IMPORTS_MAX: Final = 20
"""How many modules a name is followed through."""

DYNAMIC: Final = frozenset(("globals", "exec", "eval", "vars", "setattr", "locals", "__dict__"))
"""Names by which a module can get others that its source does not show."""
PLACING: Final = frozenset(("modules", "__path__"))
"""Names by which a package can get modules that are not in its folder."""
IMPORT: Final = (ast.Import, ast.ImportFrom)
NOT_CALLED: Final = (
    ast.Constant, ast.List, ast.Dict, ast.Set, ast.Tuple, ast.JoinedStr, ast.ListComp, ast.DictComp,
    ast.SetComp, ast.GeneratorExp,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Doubt:
    """What a source shows of a function that was not found for certain."""

    reason: str
    is_missing: bool
    hint: str = ""


def check_named(expanded: Expanded, folder: str) -> tuple[Remark, ...]:
    """Refuse schemas that are none and functions that are not there, each with its place.

    The remarks name functions that cannot be judged.
    """
    spec, errors, remarks = expanded.spec, [*_bad_schemas(expanded)], list[Remark]()
    judged: dict[str, Doubt | None] = {}
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


def _bad_schemas(expanded: Expanded) -> Iterator[PlanError]:
    for group in expanded.groups:
        task = group.task
        for path in paths_of(group, task.schema) if task.schema else ():
            from headway.runtime.schemas import read_schema

            try:
                read_schema(expanded.sources.files[path], path)
            except BadValueError as error:
                at = where(expanded.spec.file, task.spot("schema").value)
                message = f"`{shown(path)}` in `schema` of `{task.name}`: {error.message}"
                yield SourceError(message, where=at, detail=error.detail, hint=error.hint)


def _functions(expanded: Expanded) -> Iterator[tuple[str, str, str, Place]]:
    """Every function that a plan names: whose, under which key, what, and where."""
    for task in expanded.spec.tasks:
        if isinstance(task.work, Python):
            yield task.name, "python", task.work.target, task.spot("python").value
    for one in expanded.spec.state or ():
        if TARGET.fullmatch(one.channel.target):
            yield "", "state", one.channel.target, one.spot.value


def doubt_of(target: str, folder: str, imports: int = 0) -> Doubt | None:
    """Why `module:name` may not be a function, as seen from a plan's folder; None if it is one."""
    module, _, name = target.partition(":")
    found = _spec_of(module, [os.path.abspath(folder), *sys.path])
    if isinstance(found, Doubt):
        return found
    if not found.has_location and found.submodule_search_locations is not None:
        return Doubt(f"`{module}` is a folder without an __init__.py, and has no `{name}`", True)
    if imports == IMPORTS_MAX:
        return Doubt(f"{UNJUDGED}: it comes through too many modules", False)
    origin = found.origin or ""
    tree = _parsed(origin, folder)
    if isinstance(tree, Doubt):
        return tree
    bindings = [value for bound, value in _bindings(tree.body) if bound == name]
    if not bindings or (isinstance(bindings[-1], ast.Delete) and bindings[-1] in tree.body):
        return _absent(tree, name, _short(origin, folder))
    if all(isinstance(value, NOT_CALLED) for value in bindings):
        return Doubt(f"`{name}` in {_short(origin, folder)} is no function", True)
    only = bindings[0]
    if len(bindings) == 1 and isinstance(only, IMPORT) and only in tree.body:
        return _imported(only, found, name, folder, imports)
    return None


def _parsed(origin: str, folder: str) -> ast.Module | Doubt:
    if not origin.endswith(".py"):
        return Doubt(f"{UNJUDGED}: its module has no source here", False)
    try:
        with open(origin, "rb") as file:
            source = file.read(SOURCE_BYTES_MAX + 1)
        if len(source) > SOURCE_BYTES_MAX:
            return Doubt(f"{UNJUDGED}: the source of its module is too long", False)
        return ast.parse(source, origin)
    except SyntaxError as error:
        line = f"line {error.lineno} of " if error.lineno else ""
        return Doubt(f"{line}{_short(origin, folder)} is not Python: {error.msg}", True)
    except (OSError, ValueError, RecursionError, MemoryError) as error:
        return Doubt(f"{UNJUDGED}: {error}", False)


def _imported(
    statement: ast.Import | ast.ImportFrom, found: ModuleSpec, name: str, folder: str, imports: int
) -> Doubt | None:
    """The same for a name that a module has from another one."""
    if isinstance(statement, ast.Import):
        return Doubt(f"{UNJUDGED}: `{name}` is imported as a module", False)
    package = found.name if found.submodule_search_locations is not None else found.parent or ""
    parts = package.split(".")[: 1 - statement.level or None] if statement.level else []
    module = ".".join([*parts, *([statement.module] if statement.module else [])])
    real = next(one.name for one in statement.names if (one.asname or one.name) == name)
    if not package and statement.level:
        return None
    if not module:
        return None  # Only an import can resolve it.
    if isinstance(_spec_of(f"{module}.{real}", [os.path.abspath(folder), *sys.path]), ModuleSpec):
        return Doubt(f"{UNJUDGED}: `{module}.{real}` is a module, or hides one", False)
    return doubt_of(f"{module}:{real}", folder, imports + 1)


def _absent(tree: ast.Module, name: str, origin: str) -> Doubt:
    names = {bound for bound, _ in _bindings(tree.body)} - {name}
    made = {name for one in ast.walk(tree) if isinstance(one, ast.Global) for name in one.names}
    if "*" in names or "__getattr__" in names or name in made or _mentioned(tree) & DYNAMIC:
        return Doubt(f"{UNJUDGED}: {origin} makes names at run time", False)
    public = [one for one in names if not one.startswith("_")]
    hint = did_you_mean(name, public) if public else ""
    return Doubt(f"there is no `{name}` in {origin}", True, hint)


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
        for field in ("orelse",) if _is_for_types(statement) else ("body", "orelse", "finalbody"):
            yield from _bindings(getattr(statement, field, ()))
        for part in (*getattr(statement, "handlers", ()), *getattr(statement, "cases", ())):
            yield from _bindings(part.body)


def _is_for_types(statement: ast.stmt) -> bool:
    """Whether it is `if TYPE_CHECKING:`, whose body no interpreter executes."""
    match statement:
        case ast.If(test=ast.Name(id=name) | ast.Attribute(attr=name)):
            return name == "TYPE_CHECKING"
    return False


def _spec_of(module: str, path: Sequence[str]) -> ModuleSpec | Doubt:
    """Where a module is. Only finders are asked: nothing of it is executed."""
    name, *rest = module.split(".")
    found = PathFinder.find_spec(name, path)
    if found is None:
        specs = (one.find_spec(name, None) for one in sys.meta_path if one is not PathFinder)
        found = next((one for one in specs if one is not None), None)
    for part in rest:
        if found is None:
            break
        above, name = found, f"{name}.{part}"
        if above.submodule_search_locations is None:
            return Doubt(f"{UNJUDGED}: `{above.name}` is no package", False)
        found = PathFinder.find_spec(name, above.submodule_search_locations)
        if found is None and above.origin:
            tree = _parsed(above.origin, path[0])
            if isinstance(tree, Doubt) or _mentioned(tree) & PLACING:
                return Doubt(f"{UNJUDGED}: `{above.name}` may make it at run time", False)
    if found is None:
        return Doubt(f"there is no module `{module}`", True, "name it as the plan's folder sees it")
    return found


def _short(origin: str, folder: str) -> str:
    """A path as it is seen from the plan's folder, if it is in there."""
    near = os.path.relpath(origin, folder)
    return origin if near.startswith("..") else near
