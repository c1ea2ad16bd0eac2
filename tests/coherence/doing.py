"""The tasks of generated plans: each does what the truth says of it, and nothing else."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from inspect import signature
from typing import Any

from msgspec import Struct, field

from headway.base.digest import digest
from tests.coherence.plans import Touch


class Scene(Struct):
    """Where the tasks work, and what each of them really does."""

    folder: str
    truth: Mapping[str, Touch]
    aliasing: str = ""
    """The task that changes a value in place, if any does."""
    changes: str = "read"
    """Whether it changes what it has read, or what it has put."""
    done: list[str] = field(default_factory=list)


_scenes: list[Scene] = []


@contextmanager
def on(scene: Scene) -> Iterator[Scene]:
    """Tasks that run meanwhile are those of this scene."""
    _scenes.append(scene)
    try:
        yield scene
    finally:
        _scenes.remove(scene)


def act(*given: object, task: str, ctx: Any = None) -> str:
    """One task of the scene: the item comes first, if it has one."""
    scene = _scenes[-1]
    label = next(
        (name for name in (f"{task}[{given[0]}]" if given else "", task) if name in scene.truth), ""
    )
    touch = scene.truth[label]
    scene.done.append(label)
    is_aliasing = scene.aliasing == label
    if ctx is None:
        return _with_files(scene.folder, label, touch)
    seen: list[object] = []
    for key in touch.reads:
        found = [ctx.get(key), *ctx.scan(f"{key}/*").values()]
        values = [one for one in found if one is not None]
        seen += [dict(one) for one in values]
        if is_aliasing and scene.changes == "read":
            for one in values:
                one["changed"] = label
    value = {"by": label, "of": digest(repr(seen).encode()).hex()}
    for key in touch.writes:
        own = dict(value)
        ctx.put(key, own)
        if is_aliasing and scene.changes == "put":
            own["changed"] = label
    return label


def _with_files(folder: str, label: str, touch: Touch) -> str:
    text = label
    for path in touch.reads:
        text += _read(os.path.join(folder, path))
    for path in touch.writes:
        place = os.path.join(folder, path)
        os.makedirs(os.path.dirname(place), exist_ok=True)
        with open(place, "w", encoding="utf-8") as file:
            file.write(digest(text.encode()).hex())
    return label


def _read(place: str) -> str:
    try:
        with open(place, encoding="utf-8") as file:
            return file.read()
    except IsADirectoryError:
        return "".join(_read(os.path.join(place, name)) for name in sorted(os.listdir(place)))
    except FileNotFoundError:
        return ""


def meddled(*given: object, target: str, meddles: str, ctx: Any = None, **named: object) -> object:
    """A task that does something on top of its own work, which its plan does not say."""
    module, _, name = target.partition(":")
    function = getattr(import_module(module), name)
    if "ctx" in signature(function).parameters:
        named["ctx"] = ctx
    result = function(*given, **named)
    how, _, what = meddles.partition(" ")
    what = what.replace("ITEM", str(given[0]) if given else "")
    if how == "puts":
        ctx.put(what, {"by": "an intruder"})
    elif how == "writes":
        os.makedirs(os.path.dirname(what) or ".", exist_ok=True)
        with open(what, "w", encoding="utf-8") as file:
            file.write("by an intruder")
    elif how == "changes":
        for value in ctx.scan(what).values():
            value.append("changed") if isinstance(value, list) else value.update(changed=True)
    return result
