"""Loads a plan: reads its file, checks it, reads what it names, expands and orders it.

Executes and imports nothing that a plan names.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from headway.core.plan.expand import Expanded, expand
from headway.core.plan.hazard import Survey, examined
from headway.core.plan.schema import plan_of
from headway.core.plan.spec import Document
from headway.planfile.document import parse_document, read_document
from headway.planfile.sources import Library


@dataclass(frozen=True, slots=True)
class Loaded:
    """A plan that can be run."""

    expanded: Expanded
    text: str
    """Of its file: all that a resume needs."""
    folder: Path
    """Its paths are relative to it."""
    survey: Survey | None = None
    """Who touches what in it, and who comes before whom; None if nobody has looked."""


def load_plan(path: Path, name: str = "", may_leave: bool = False) -> Loaded:
    """The plan in a file. Raises `PlanError` and nothing else.

    `name` is how messages call the file; `may_leave` allows paths outside of the plan's folder.
    """
    document, text = read_document(path, name)
    folder = path.parent
    survey = _surveyed(document, folder, may_leave)
    return Loaded(survey.expanded, text, folder, survey)


def plan_from(text: str, folder: Path, name: str = "plan.yaml", may_leave: bool = False) -> Loaded:
    """The plan in a text, as it was when a run began."""
    document = parse_document(text, name, is_json=name.endswith(".json"))
    survey = _surveyed(document, folder, may_leave)
    return Loaded(survey.expanded, text, folder, survey)


def _surveyed(document: Document, folder: Path, may_leave: bool) -> Survey:
    spec = plan_of(document)
    library = Library(folder, may_leave)
    expanded = expand(spec, library.items(spec))
    return examined(library.texts(expanded))
