"""A plan's file on its way to the core: YAML with places, the files that it names, and repairs."""

from headway.planfile.document import parse_document, read_document
from headway.planfile.fixes import apply_fix, apply_fixes
from headway.planfile.foreign import load_foreign
from headway.planfile.load import Loaded, in_one_go, load_plan, load_unrefused, plan_from
from headway.planfile.presence import absent

__all__ = [
    "Loaded",
    "absent",
    "apply_fix",
    "apply_fixes",
    "in_one_go",
    "load_foreign",
    "load_plan",
    "load_unrefused",
    "parse_document",
    "plan_from",
    "read_document",
]
