"""The published table is that of the catalogue as it is, and says what the tests show."""

from __future__ import annotations

import re

from bench.coherence import CASES, INTRODUCTION, LEGEND, PEERS, REPORT, Executed, report
from bench.results import ROOT
from tests.coherence.harness import Tally, count, steps

RIGHT = Tally(runs=20, deviations=0, aborts=0, results=1)
WRONG = Tally(runs=20, deviations=1_900, aborts=18, results=4)


def _rows() -> dict[str, list[str]]:
    lines = [line for line in REPORT.read_text().splitlines() if line.startswith("| **")]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return {cells[0].strip("*"): cells[1:] for cells in rows}


def test_the_published_table_has_every_case_and_all_its_interleavings() -> None:
    rows = _rows()
    assert list(rows) == [case.name for case in CASES]
    for case in CASES:
        assert rows[case.name][0] == case.says
        assert int(rows[case.name][1].replace(",", "")) == count(steps(case))


def test_the_published_table_has_frameworks_in_it_and_no_deviation_of_headway() -> None:
    heading = re.search(r"^\| case .*$", REPORT.read_text(), re.MULTILINE)
    assert heading is not None
    assert [name for name in PEERS if name in heading[0]] == list(PEERS)
    assert {cells[-1] for cells in _rows().values()} == {"0"}
    assert INTRODUCTION in REPORT.read_text()


def test_an_adapter_has_at_most_fifty_lines() -> None:
    for name in PEERS.values():
        adapter = ROOT / "bench" / "coherence_peers" / f"{name}.py"
        assert len(adapter.read_text().splitlines()) <= 50, name


def test_a_report_says_how_often_a_store_was_wrong() -> None:
    columns = {
        "a peer": {case.name: WRONG for case in CASES},
        "headway": {case.name: RIGHT for case in CASES},
    }
    text = report(columns, [Executed("async functions", 2_600, 0, 0, 2_400)])
    assert "| 20 | 1,900<br>18 refused | 0 |" in text
    assert "| **20 of 20** | **0 of 20** |" in text
    assert "| async functions | 2,600 | 0 | 0 | 2,400 |" in text
    assert "{" not in text, LEGEND
