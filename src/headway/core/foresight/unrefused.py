"""A plan with all edges that follow from its declarations, whatever hazards are left in it.

To show what a hazard does one has to have it: what `check` refuses can be tried.
"""

from __future__ import annotations

from headway.core.plan.expand import Expanded
from headway.core.plan.hazard import _edges_by_reads, _with_edges, ordered, surveyed
from headway.core.plan.rerun import edges_by_keys
from headway.errors import HazardError, PlanError


def unrefused(expanded: Expanded) -> tuple[Expanded, PlanError | None]:
    """The plan in order, and why a run of it would be refused, if it would be."""
    try:
        return ordered(expanded), None
    except PlanError as error:
        if not all(isinstance(one, HazardError) for one in (error, *error.others)):
            raise
        refusal = error
    survey = surveyed(expanded)
    expanded = _with_edges(expanded, _edges_by_reads(survey.touched, survey.order))
    survey = surveyed(expanded)
    return _with_edges(expanded, edges_by_keys(expanded, survey.state, survey.order)), refusal
