"""Draws the picture of `docs/health.md` from days that are written down here.

python -m bench.burn_down            docs/burn-down.svg
"""

from __future__ import annotations

import sys
from typing import Final

from bench.results import ROOT
from headway.base.values import Budget, Spend
from headway.pacing.budget import Pot
from headway.pacing.view import AdmissionView
from headway.report.health import BudgetOutlook, outlooks
from headway.report.text.burndown import svg, terminal
from headway.report.text.words import Glyphs

PICTURE: Final = ROOT / "docs" / "burn-down.svg"
BUDGET_TOKENS: Final = 5e6
"""The monthly budget of *Concurrent vs. Parallel Execution*."""

REVIEWS: Final = (3, 3, 1, 0, 4, 5, 4, 3, 4, 1, 0, 5, 4, 5, 4, 2)
"""Reviews by several agents at once on the first days of a November..."""

REVIEW_TOKENS: Final = 68_000.0
"""...at what the document says that one takes."""

PASSED: Final = 0.6


def example() -> BudgetOutlook:
    """The month on its sixteenth day, in the afternoon."""
    days = tuple(
        (f"2026-11-{day + 1:02}", Spend(REVIEW_TOKENS * reviews))
        for day, reviews in enumerate(REVIEWS)
    )
    spent = Spend(sum(one.tokens for _, one in days))
    ledger = Pot(Budget(tokens=BUDGET_TOKENS), spent, Spend())
    view = AdmissionView("2026-11", (), (("", ledger),), (), days[-1][0], 14, (("", days),))
    (found,) = outlooks(view, PASSED)
    return found


def main() -> int:
    """Write the picture, and show it on the terminal."""
    PICTURE.write_text(svg(example(), PASSED))
    print("\n".join(terminal(example(), PASSED, Glyphs())))
    print(PICTURE)
    return 0


if __name__ == "__main__":
    sys.exit(main())
