"""A plan's file on its way to the core: YAML with places, the files that it names, and repairs."""

from headway.planfile.document import parse_document, read_document
from headway.planfile.fixes import apply_fix, apply_fixes
from headway.planfile.load import Loaded, load_plan, load_unrefused, plan_from
from headway.planfile.presence import absent

__all__ = [
    "Loaded",
    "absent",
    "apply_fix",
    "apply_fixes",
    "load_plan",
    "load_unrefused",
    "parse_document",
    "plan_from",
    "read_document",
]
