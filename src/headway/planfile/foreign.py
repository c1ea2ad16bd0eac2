"""Loads a plan that somebody else wrote: judged before any file that it names is opened."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path

from headway.core.plan.expand import expand
from headway.core.plan.foreign import Allowance, Disk, check_foreign, check_members
from headway.core.plan.schema import plan_of
from headway.planfile.document import parse_document
from headway.planfile.load import Loaded, plan_from
from headway.planfile.sources import Library


def load_foreign(
    text: str,
    folder: Path,
    allowance: Allowance = Allowance(),
    name: str = "plan.yaml",
    has_begun: bool = False,
) -> Loaded:
    """The plan in a text of somebody else's. Raises `PlanError` and nothing else.

    Of a run that `has_begun`, some of what it writes may be there.
    """
    spec = plan_of(parse_document(text, name, is_json=name.endswith(".json")))
    root = os.path.realpath(folder)
    disk = Disk(partial(is_behind if has_begun else is_taken, root), partial(leads, root))
    check_foreign(spec, allowance, disk)
    # The names that patterns give and the lines of files; prompts and schemas are opened after.
    check_members(expand(spec, Library(folder).items(spec)), disk)
    return plan_from(text, folder, name)


def is_taken(root: str, path: str) -> bool:
    """Whether something is at a path already, or it cannot be put there."""
    return os.path.lexists(os.path.join(root, path)) or is_behind(root, path)


def is_behind(root: str, path: str) -> bool:
    """Whether a link on the way leads elsewhere, or a file is where a folder would have to be."""
    above = os.path.dirname(os.path.normpath(os.path.join(root, path)))
    if os.path.realpath(above) != above:
        return True
    while not os.path.lexists(above):
        above = os.path.dirname(above)
    return not os.path.isdir(above)


def leads(root: str, path: str) -> str:
    """Where a path leads when all links are followed, seen from the project's folder."""
    return os.path.relpath(os.path.realpath(os.path.join(root, path)), root)
