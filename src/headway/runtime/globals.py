"""What the modules of a folder hold by themselves: which of it functions name, and change."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import BuiltinFunctionType, CodeType, FunctionType, ModuleType
from typing import Final

FINGERPRINT_CHARS: Final = 20_000
"""Of a value that is written out to be compared; what is behind is not looked at."""


@dataclass(frozen=True, slots=True)
class GlobalsStatistics:
    """How many values are watched."""

    watched: int


class Globals:
    """Module-level values of the modules that are imported from one folder."""

    __slots__ = ("_folder", "_known")

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._known: dict[str, str] = {}

    def __repr__(self) -> str:
        return f"<Globals of {self._folder}>"

    def statistics(self) -> GlobalsStatistics:
        return GlobalsStatistics(len(self._known))

    def forget(self) -> None:
        """Let all modules of the folder be imported again."""
        for name, _ in list(self._modules()):
            del sys.modules[name]
        self._known = {}

    def changed(self) -> list[str]:
        """Values that are not as they were when this was last asked."""
        now = dict(self._values())
        changed = [name for name, text in now.items() if self._known.get(name, text) != text]
        self._known = now
        return changed

    def named_by(self, function: Callable[..., object]) -> list[str]:
        """Values that the code of a function names, or that of the folder's functions it names."""
        found: dict[str, None] = {}
        seen: set[int] = set()
        todo = [function]
        for one in todo:
            code = getattr(one, "__code__", None)
            if not isinstance(one, FunctionType) or not isinstance(code, CodeType):
                continue
            if id(code) in seen:
                continue
            seen.add(id(code))
            module = one.__globals__
            for name in _names(code):
                value = module.get(name)
                if isinstance(value, FunctionType):
                    todo.append(value)
                elif name in module and _is_value(value):
                    found[f"{module.get('__name__', '')}.{name}"] = None
        return list(found)

    def _values(self) -> Iterator[tuple[str, str]]:
        for module_name, module in self._modules():
            for name, value in list(vars(module).items()):
                if not name.startswith("__") and _is_value(value):
                    yield f"{module_name}.{name}", _fingerprint(value)

    def _modules(self) -> Iterator[tuple[str, ModuleType]]:
        for name, module in list(sys.modules.items()):
            file = getattr(module, "__file__", None)
            if isinstance(file, str) and file.startswith(self._folder + "/"):
                yield name, module


def _is_value(value: object) -> bool:
    """Whether it can hold something that one task leaves for another."""
    return not isinstance(value, (ModuleType, FunctionType, BuiltinFunctionType, type)) and (
        type(value).__module__ not in ("typing", "__future__")
    )


def _fingerprint(value: object) -> str:
    try:
        own = getattr(value, "__dict__", None)
        return f"{value!r:.{FINGERPRINT_CHARS}}{own!r:.{FINGERPRINT_CHARS}}"
    except Exception as error:
        # The boundary: the user's own `__repr__`, which may do anything.
        return type(error).__name__


def _names(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            yield from _names(inner)
