"""The recording of GNU parallel is what the GNU parallel of this machine does.

Not named like a test, because it needs that program and a minute: `pytest tests/parallel/live.py`.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.parallel.cases import CASES, Case, run_parallel
from tests.parallel.record import recorded

pytestmark = pytest.mark.skipif(
    shutil.which("parallel") is None, reason="GNU parallel is not installed"
)

RECORDED = recorded()


@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_parallel_does_what_was_recorded(case: Case, tmp_path: Path) -> None:
    assert run_parallel(case, tmp_path) == RECORDED[case.name]
