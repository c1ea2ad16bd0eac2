"""A declaration that is missing is found by looking at the plan; a clean plan is left in peace."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from random import Random

from headway.errors import PlanError
from headway.plans.check import check
from headway.plans.document import parse_document
from headway.plans.expand import Sources, expand
from headway.plans.hazards import examined
from headway.plans.schema import plan_of
from tests.coherence.mutating import Mutated, in_words
from tests.coherence.plans import Generated, generated, mutants

PLANS = 100
MUTANTS_EACH = 4


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
