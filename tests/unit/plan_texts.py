"""Plans for tests, made of the text of their tasks."""

from __future__ import annotations

import json
from collections.abc import Iterable

import yaml

from headway.errors import Fix, Place
from headway.plans.document import parse_document
from headway.plans.expand import ExpandedPlan, Sources, expand
from headway.plans.hazards import Survey, examined
from headway.plans.schema import plan_of
from headway.plans.spec import DocumentList, Leaf, Located, PlanSpec

HEAD = "headway: 1\ntasks:\n"


def spec_of(text: str, name: str = "plan.yaml") -> PlanSpec:
    return plan_of(parse_document(text, name))


def expanded_of(tasks: str, top: str = "", sources: Sources | None = None) -> ExpandedPlan:
    return expand(spec_of(f"headway: 1\n{top}tasks:\n{tasks}"), sources or Sources())


def surveyed(tasks: str, top: str = "", sources: Sources | None = None) -> Survey:
    return examined(expanded_of(tasks, top, sources))


def apply_fixes(text: str, fixes: Iterable[Fix]) -> str:
    """A plan's text with several edits, written anew."""
    every = list(fixes)
    if every and every[0].kind == "text":
        return str(every[0].value)
    if every and every[0].kind == "spaces":
        return text.replace("\t", "  ")
    root = parse_document(text.replace("\t", " "), "plan").root
    left = list(every)
    told = yaml.safe_dump(_mended(root, left), sort_keys=False, allow_unicode=True)
    assert not left, left
    return str(told)


def _mended(node: Located, left: list[Fix]) -> object:
    """What stands there, with those edits that are about it; they are no longer left."""

    def taken(place: Place, *kinds: str) -> list[Fix]:
        found = [fix for fix in left if fix.place == place and fix.kind in kinds]
        left[:] = [fix for fix in left if fix not in found]
        return found

    for fix in taken(node.place, "replace", "source"):
        if fix.kind == "source":
            return json.loads(str(fix.value))
        return list(fix.value) if isinstance(fix.value, tuple) else fix.value
    if isinstance(node, Leaf):
        return node.value
    if isinstance(node, DocumentList):
        return [_mended(item, left) for item in node.items if not taken(item.place, "remove")]
    mended: dict[str, object] = {}
    for fix in taken(node.place, "add"):
        inner = mended
        *path, last = fix.key.split(".")
        for name in path:
            inner = inner.setdefault(name, {})  # type: ignore[assignment]
        inner[last] = fix.value
    for key, value in node.pairs:
        if not taken(key.place, "remove"):
            renamed = taken(key.place, "rename")
            mended[str(renamed[0].value) if renamed else key.text] = _mended(value, left)
    return mended
