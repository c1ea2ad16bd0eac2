"""Reads a provider or workload from YAML or JSON.

Laws:
- A file has the keys of the record that it becomes and no others.
- An error names the file, the line, the path of the value and what is allowed.
- Nothing in a file is executed, imported or expanded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from json import JSONDecodeError, loads
from math import inf
from os.path import isfile
from pathlib import Path
from types import NoneType, UnionType
from typing import Final, Literal, TypeVar, cast, get_args, get_origin, get_type_hints

import yaml
from msgspec import Struct
from msgspec.structs import fields, replace
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from headway.base.numbers import number_of
from headway.base.values import Limit
from headway.errors import BadPresetError, PlanError, UnknownPresetError, did_you_mean
from headway.pacing.headers import DIALECTS
from headway.sim.presets import (
    PROVIDERS,
    WORKLOADS,
    PresetTask,
    ProviderPreset,
    UnpacedClient,
    WorkloadPreset,
)
from headway.sim.provider import ProviderSpec
from headway.sim.rehearsal import WorkloadSpec

T = TypeVar("T")

FILE_BYTES_MAX: Final = 100_000
"""A preset takes a page; a larger file is something else and would take seconds to refuse."""

NAME_CHARS_MAX: Final = 200
CALLS_MAX: Final = 1_000_000
"""More calls than this do not fit into memory as a rehearsal."""

SUFFIXES: Final = (".yaml", ".yml", ".json")

NOT_READ: Final = frozenset(("source",))
"""Fields that a record has for others than the writer of a file."""


POSITIVE: Final = frozenset(
    ("amount", "burst", "changes", "on_s", "per_output_token_s", "period_s", "retry_first_s",
     "timeout_s", "window_s")
)  # fmt: skip
ENDLESS: Final = frozenset(("off_s", "on_s", "timeout_s"))
"""Fields that may be `inf`."""

MOST: Final = 1e12
RANGES: Final[Mapping[str, tuple[float, float]]] = {
    **dict.fromkeys(("growth", "input_tokens", "max_tokens", "output_tokens"), (1.0, MOST)),
    **dict.fromkeys(("input_spread", "luck_spread", "output_spread"), (0.0, 3.0)),
    **dict.fromkeys(("hang_share", "input_error", "share"), (0.0, 1.0)),
    **dict.fromkeys(("calls", "tasks"), (1.0, 100_000.0)),
    "output_follows": (0.0, 2.0),
    "retry_growth": (1.0, 100.0),
    "tick_s": (0.01, 3600.0),
}
"""The numbers that a field may have; any other field is at least 0 and at most `MOST`."""


def find_provider(name: str) -> ProviderPreset:
    """The provider preset of this name, or the one in this file."""
    if name in PROVIDERS:
        return PROVIDERS[name]
    reader = _Reader(name, "provider", PROVIDERS)
    spec, more = reader.whole(ProviderSpec, {"about": str})
    _check(spec, reader)
    limits, hidden = _gauged(spec.terms.limits), _gauged(spec.terms.hidden)
    terms = replace(spec.terms, limits=limits, hidden=hidden)
    return ProviderPreset(str(more["about"]), replace(spec, terms=terms))


def find_workload(name: str) -> WorkloadPreset:
    """The workload preset of this name, or the one in this file."""
    if name in WORKLOADS:
        return WORKLOADS[name]
    reader = _Reader(name, "workload", WORKLOADS)
    hints = {"about": str, "agents": tuple[PresetTask, ...], "client": UnpacedClient}
    spec, more = reader.whole(WorkloadSpec, hints)
    agents = cast("tuple[PresetTask, ...]", more.get("agents", ()))
    client = cast("UnpacedClient", more.get("client", UnpacedClient()))
    preset = WorkloadPreset(str(more["about"]), spec, agents, client)
    total = sum(agent.calls for agent in agents) if agents else spec.tasks * spec.calls
    if total > CALLS_MAX:
        raise reader.wrong(reader.root, f"{total:,} calls are more than {CALLS_MAX:,}")
    try:
        if agents:
            preset.draw(0)
    except PlanError as error:
        raise reader.wrong(reader.node_at("agents"), error.message, error.hint) from error
    return preset


def _gauged(limits: tuple[Limit, ...]) -> tuple[Limit, ...]:
    """What is held is counted by a gauge, whatever else was written."""
    return tuple(
        replace(limit, kind="gauge", period_s=0.0) if limit.resource == "concurrency" else limit
        for limit in limits
    )


def _check(spec: ProviderSpec, reader: _Reader) -> None:
    """What no single field can say."""
    kinds, outages, limits = "faults.kinds", "faults.outages", "terms.limits"
    if not spec.faults.kinds:
        raise reader.wrong(reader.node_at(kinds), f"`{kinds}` is empty: name at least one")
    for begin, end in spec.faults.outages:
        if begin >= end:
            message = f"`{outages}` has one that ends at {end:g}, before it begins at {begin:g}"
            raise reader.wrong(reader.node_at(outages), message)
    names = [limit.name for limit in _gauged(spec.terms.limits)]
    for name in names:
        if names.count(name) > 1:
            raise reader.wrong(reader.node_at(limits), f"`{limits}` has `{name}` twice")
    for limit in spec.terms.limits + spec.terms.hidden:
        if limit.kind == "gauge" and limit.resource != "concurrency":
            message = f"`{limit.resource}` cannot be a gauge: only concurrency is given back"
            raise reader.wrong(reader.node_at("terms"), message)


def parse_file(name: str, bytes_max: int, parse: Callable[[str], T]) -> T:
    """What a file of YAML or JSON holds. Raises `BadPresetError` with its name and line."""
    shown = _shown(name)
    try:
        with Path(name).open("rb") as file:
            content = file.read(bytes_max + 1)
        if len(content) > bytes_max:
            raise BadPresetError(f"the file is larger than {bytes_max:,} bytes", where=shown)
        return parse(content.decode("utf-8-sig"))
    except OSError as error:
        raise BadPresetError(f"cannot read the file: {error.strerror}", where=shown) from error
    except UnicodeDecodeError as error:
        raise BadPresetError("the file is not UTF-8 text", where=shown) from error
    except JSONDecodeError as error:
        where = f"{shown}:{error.lineno}"
        raise BadPresetError(f"this is not JSON: {error.msg}", where=where) from error
    except yaml.MarkedYAMLError as error:
        where = f"{shown}:{error.problem_mark.line + 1}" if error.problem_mark else shown
        raise BadPresetError(f"this is not YAML: {error.problem}", where=where) from error
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        is_name = "\0" in name
        problem = (
            "this cannot be the name of a file" if is_name else "this is neither YAML nor JSON"
        )
        raise BadPresetError(problem, where=shown) from error


class _Reader:
    """One file on its way to a record."""

    def __init__(self, name: str, what: str, presets: Mapping[str, object]) -> None:
        self._name, self._path = _shown(name), Path(name)
        if "/" not in name and self._path.suffix not in SUFFIXES and not isfile(name):
            hint = did_you_mean(name, presets)
            raise UnknownPresetError(f"there is no {what} preset `{self._name}`", hint=hint)
        self.root = parse_file(name, FILE_BYTES_MAX, self._composed)

    def wrong(self, node: Node, message: str, hint: str | None = None) -> BadPresetError:
        return BadPresetError(message, where=f"{self._name}:{node.start_mark.line + 1}", hint=hint)

    def whole(self, kind: type[T], more: Mapping[str, object]) -> tuple[T, dict[str, object]]:
        """The file as a record, and the values of further keys."""
        values = self._values(self.root, {**_hints(kind), **more}, "")
        others = {key: values.pop(key) for key in more if key in values}
        others["about"] = others.get("about") or f"read from {self._name}"
        return kind(**{"name": self._path.stem, **values}), others

    def _values(self, node: Node, hints: Mapping[str, object], path: str) -> dict[str, object]:
        values: dict[str, object] = {}
        for key, child, place in self._pairs(node, path):
            if key not in hints:
                hint = did_you_mean(key, hints)
                raise self.wrong(place, f"there is no key `{_joined(path, key)}`", hint)
            values[key] = self.value(child, hints[key], _joined(path, key))
        return values

    def value(self, node: Node, hint: object, path: str) -> object:
        """A value of the type that a field has."""
        origin, inner = get_origin(hint), get_args(hint)
        if origin is UnionType:
            hint = next(kind for kind in inner if kind is not NoneType)
            return self.value(node, hint, path)
        if origin is tuple:
            return self._listed(node, inner, path)
        if isinstance(hint, type) and issubclass(hint, Struct):
            values = self._values(node, _hints(hint), path)
            for one in fields(hint):
                if one.required and one.name not in values:
                    raise self.wrong(node, f"`{_joined(path, one.name)}` is missing")
            return hint(**values)
        text = self._scalar(node, path)
        if origin is Literal:
            return self._chosen(node, text, inner, path)
        if hint is bool:
            return self._chosen(node, text.lower(), ("true", "false"), path) == "true"
        if path == "dialect":
            return self._chosen(node, text, tuple(DIALECTS), path)
        if hint is str:
            return self._name_of(node, text, path)
        return self._number(node, text, path, hint is int)

    def node_at(self, path: str) -> Node:
        """The node that a path leads to, or the last one on the way that is there."""
        node = self.root
        for key in path.split("."):
            if not isinstance(node, MappingNode):
                break
            node = next((child for name, child in node.value if name.value == key), node)
        return node

    def _composed(self, content: str) -> Node:
        if self._path.suffix == ".json":
            loads(content)
            # Outside of strings, where a tab is white space, YAML does not take it.
            content = content.replace("\t", " ")
        root = yaml.compose(content, Loader=yaml.SafeLoader)
        if root is None:
            raise BadPresetError("the file is empty", where=self._name)
        return root

    def _pairs(self, node: Node, path: str) -> Iterator[tuple[str, Node, Node]]:
        if not isinstance(node, MappingNode):
            what = f"`{path}`" if path else "the file"
            raise self.wrong(node, f"{what} must have keys and values: `key: value`")
        seen: set[str] = set()
        for key, child in node.value:
            name = self._scalar(key, path or "a key")
            if name in seen:
                raise self.wrong(key, f"`{_joined(path, name)}` is there twice")
            seen.add(name)
            yield name, child, key

    def _listed(self, node: Node, inner: tuple[object, ...], path: str) -> tuple[object, ...]:
        if not isinstance(node, SequenceNode):
            raise self.wrong(node, f"`{path}` must be a list: `[...]`")
        if inner[-1] is ...:
            hints = inner[:1] * len(node.value)
        elif len(node.value) == len(inner):
            hints = inner
        else:
            raise self.wrong(node, f"`{path}` must have {len(inner)} values, not {len(node.value)}")
        return tuple(
            self.value(child, hint, f"{path}[{index}]")
            for index, (child, hint) in enumerate(zip(node.value, hints, strict=True))
        )

    def _scalar(self, node: Node, path: str) -> str:
        if not isinstance(node, ScalarNode):
            raise self.wrong(node, f"`{path}` must be one value, not a list or a mapping")
        return str(node.value)

    def _chosen(self, node: Node, text: str, choices: tuple[object, ...], path: str) -> str:
        if text not in choices:
            hint = did_you_mean(text, [str(choice) for choice in choices])
            raise self.wrong(node, f"`{path}` is `{_shown(text)}`", hint)
        return text

    def _name_of(self, node: Node, text: str, path: str) -> str:
        if not text or not text.isprintable() or len(text) > NAME_CHARS_MAX:
            message = f"`{path}` must be 1 to {NAME_CHARS_MAX} printable characters"
            raise self.wrong(node, message)
        return text

    def _number(self, node: Node, text: str, path: str, is_whole: bool) -> float:
        number = number_of(text)
        name = path.rpartition(".")[2].partition("[")[0]
        least, most = RANGES.get(name, (0.0, MOST))
        is_above = name in POSITIVE
        if number is None or not (
            name in ENDLESS if number == inf
            else least <= number <= most and not (is_above and number == least)
        ):  # fmt: skip
            allowed = f"{'more than' if is_above else 'at least'} {least:g}"
            if most < MOST:
                allowed = f"from {least:g} to {most:g}"
            raise self.wrong(node, f"`{path}` is `{_shown(text)}`: it must be {allowed}")
        if not is_whole:
            return number
        if number != int(number):
            raise self.wrong(node, f"`{path}` is `{_shown(text)}`: it must be a whole number")
        return int(number)


def _hints(kind: type) -> dict[str, object]:
    """The types of a record's fields, without those that a file does not have."""
    return {name: hint for name, hint in get_type_hints(kind).items() if name not in NOT_READ}


def _joined(path: str, key: str) -> str:
    return _shown(f"{path}.{key}" if path else key)


def _shown(text: str) -> str:
    """Text of a stranger, cut to length and without what a terminal would obey."""
    cut = text if len(text) <= NAME_CHARS_MAX else text[: NAME_CHARS_MAX - 1] + "…"
    return "".join(char if char.isprintable() else "?" for char in cut)
