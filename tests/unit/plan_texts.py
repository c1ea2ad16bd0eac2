"""Plans for tests, made of the text of their tasks."""

from __future__ import annotations

from collections.abc import Iterable

from headway.errors import Fix
from headway.plans.document import parse_document
from headway.plans.expand import ExpandedPlan, Sources, expand
from headway.plans.fixes import apply_fix
from headway.plans.hazards import Survey, examined
from headway.plans.schema import plan_of
from headway.plans.spec import PlanSpec

HEAD = "headway: 1\ntasks:\n"


def spec_of(text: str, name: str = "plan.yaml") -> PlanSpec:
    return plan_of(parse_document(text, name))


def expanded_of(tasks: str, top: str = "", sources: Sources | None = None) -> ExpandedPlan:
    return expand(spec_of(f"headway: 1\n{top}tasks:\n{tasks}"), sources or Sources())


def surveyed(tasks: str, top: str = "", sources: Sources | None = None) -> Survey:
    return examined(expanded_of(tasks, top, sources))


def apply_fixes(text: str, fixes: Iterable[Fix]) -> str:
    """A plan's text with several edits, the last place first, so that places stay true."""
    for fix in sorted(fixes, key=lambda fix: fix.place, reverse=True):
        text = apply_fix(text, fix)
    return text
