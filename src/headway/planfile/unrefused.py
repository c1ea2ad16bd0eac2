"""Loads a plan to be tried: what would be refused for its hazards alone is not."""

from __future__ import annotations

from pathlib import Path

from headway.core.foresight.unrefused import unrefused
from headway.core.plan.expand import expand
from headway.core.plan.schema import plan_of
from headway.errors import PlanError
from headway.planfile.document import read_document
from headway.planfile.load import Loaded
from headway.planfile.sources import Library


def load_unrefused(
    path: Path, name: str = "", may_leave: bool = False
) -> tuple[Loaded, PlanError | None]:
    """The plan in a file, and why a run of it would be refused. Raises `PlanError`."""
    document, text = read_document(path, name)
    spec = plan_of(document)
    library = Library(path.parent, may_leave)
    expanded, refusal = unrefused(library.texts(expand(spec, library.items(spec))))
    return Loaded(expanded, text, path.parent), refusal
