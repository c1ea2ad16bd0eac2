"""A slice of the gateway's bench: every call is answered, and the page says what was measured."""

from __future__ import annotations

import sys

import pytest

from bench.gateway import Cell, measure
from bench.gateway_report import report

CELLS = (Cell("request", 32), Cell("stream", 32, is_stream=True))


@pytest.mark.soak
def test_a_slice_of_the_bench_measures_the_gateway_beside_nothing() -> None:
    found = measure({"direct": sys.executable, "headway": sys.executable}, CELLS, 1, 1)
    spent = {(one.subject, one.cell): one.cpu_us for one in found.turns}
    assert spent["direct", "request"] == spent["direct", "stream"] == 0.0
    assert 0.0 < spent["headway", "request"] < spent["headway", "stream"]
    _, gateway = found.stood
    assert gateway.start_s > 0.0
    assert len(gateway.idle_mb) == 2, "the gateway and the broker"
    page = report(found)
    assert "| added at the median | 4 ms |" in page
    assert "**headway gateway**, everything on" in page
