"""A declaration that is missing is found by looking at the plan; a clean plan is left in peace."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import partial
from random import Random

from msgspec import Struct

from headway.errors import PlanError
from headway.plans.check import check
from headway.plans.document import parse_document
from headway.plans.expand import Sources, expand
from headway.plans.hazards import Remark, examined
from headway.plans.schema import plan_of
from tests.coherence.plans import Generated, generated, mutants

PLANS = 100
MUTANTS_EACH = 4


class Mutated(Struct, frozen=True):
    """What was done to a plan: whoever finds it names the task or what is concerned."""

    task: str
    """Its declared name, or that of a member."""
    what: str = ""
    """The path, the key, the channel or the queue, as declared."""

    def __str__(self) -> str:
        return f"{self.task} {self.what}".strip()

    def is_named(self, words: str) -> bool:
        """Whether somebody speaks of this, and not of something else in the same plan."""
        return _is_named(self.task, words) or _is_named(self.what, words)


def _is_named(name: str, words: str) -> bool:
    """A name by itself; of one with holes or wildcards, the folder before them."""
    fixed = re.split(r"/?(?:\{\{|[*?])", name.partition(":")[2] or name)[0]
    return bool(fixed) and re.search(rf"(?<![\w-]){re.escape(fixed)}(?![\w-])", words) is not None


def in_words(remark: Remark) -> str:
    return f"{remark.kind}: {remark.task} {remark.what}: {remark.message} ({remark.detail})"


def told(plan: Generated) -> list[str]:
    """All that is said of a plan in a folder that has nothing but its files."""
    try:
        spec = plan_of(parse_document(plan.text(), "plan.yaml"))
        report = check(examined(expand(spec, Sources())), partial(_gone, plan))
    except PlanError as error:
        return [one.render() for one in (error, *error.others)]
    return [in_words(remark) for remark in report.remarks]


def _gone(plan: Generated, paths: Sequence[str]) -> frozenset[str]:
    return frozenset(paths) - frozenset(plan.files)


def test_clean_plans_are_left_in_peace() -> None:
    assert [told(generated(seed)) for seed in range(PLANS)] == [[]] * PLANS
    assert [told(generated(seed, "state:")) for seed in range(PLANS)] == [[]] * PLANS


def test_a_missing_declaration_is_found() -> None:
    missed: list[str] = []
    seen: set[str] = set()
    count = 0
    for seed in range(PLANS):
        every = list(mutants(generated(seed)))
        for mutant in Random(seed).sample(every, min(MUTANTS_EACH, len(every))):
            count += 1
            seen.add(mutant.kind)
            if not any(map(Mutated(mutant.task, mutant.entry).is_named, told(mutant.plan))):
                missed.append(str(mutant))
    assert seen == {"reads", "writes", "needs", "queue", "undeclared write"}
    assert len(missed) <= count // 100, missed
