"""Loads a plan: reads its file, checks it, reads what it names, expands and orders it.

Executes and imports nothing that a plan names.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from headway.core.plan.expand import Expanded, expand
from headway.core.plan.fanin import check_contexts
from headway.core.plan.hazard import Survey, examined, tried
from headway.core.plan.schema import plan_of
from headway.core.plan.spec import Document, PlanSpec
from headway.errors import PlanError
from headway.planfile.document import parse_document, read_document
from headway.planfile.sources import Library


@dataclass(frozen=True, slots=True)
class Loaded:
    """A plan that can be run."""

    survey: Survey
    """Who touches what in it, and who comes before whom."""
    text: str
    """Of its file: all that a resume needs."""
    folder: Path
    """Its paths are relative to it."""

    @property
    def expanded(self) -> Expanded:
        """Its groups, in order."""
        return self.survey.expanded

    def with_spec(self, spec: PlanSpec) -> Loaded:
        """The same plan, told otherwise how to run."""
        return replace(
            self, survey=replace(self.survey, expanded=replace(self.expanded, spec=spec))
        )


@contextmanager
def in_one_go() -> Iterator[None]:
    """Reads or judges a plan without a pause for the collection of garbage.

    A plan becomes some dozens of records for every task, which stay and have no circles. Each
    collection would look at all that are there already, to find none that can go: with 10,000
    tasks that took as long as the work itself.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


@in_one_go()
def load_plan(path: Path, name: str = "", may_leave: bool = False) -> Loaded:
    """The plan in a file. Raises `PlanError` and nothing else.

    `name` is how messages call the file; `may_leave` allows paths outside of the plan's folder.
    """
    document, text = read_document(path, name)
    expanded = _expanded(document, path.parent, may_leave)
    # Of a run that has begun, its tasks may have made such links: those tasks fail, and no others.
    Library(path.parent, may_leave).check_outputs(expanded)
    return Loaded(examined(expanded), text, path.parent)


@in_one_go()
def load_unrefused(
    path: Path, name: str = "", may_leave: bool = False
) -> tuple[Loaded, PlanError | None]:
    """The same for a plan to be tried: what would be refused for its hazards alone is not."""
    document, text = read_document(path, name)
    survey, refusal = tried(_expanded(document, path.parent, may_leave))
    return Loaded(survey, text, path.parent), refusal


@in_one_go()
def plan_from(text: str, folder: Path, name: str = "plan.yaml", may_leave: bool = False) -> Loaded:
    """The plan in a text, as it was when a run began."""
    document = parse_document(text, name, is_json=name.endswith(".json"))
    return Loaded(examined(_expanded(document, folder, may_leave)), text, folder)


def _expanded(document: Document, folder: Path, may_leave: bool) -> Expanded:
    spec = plan_of(document)
    library = Library(folder, may_leave)
    expanded = library.texts(expand(spec, library.items(spec)))
    check_contexts(expanded)
    return expanded
