"""The arithmetic of the shared records: rates, capacities, names."""

from __future__ import annotations

from headway.base.values import DAY_S, Limit


def test_a_limit_per_minute_refills_at_a_sixtieth_of_it_per_second() -> None:
    assert Limit("requests", 600.0).rate_per_s == 10.0


def test_a_gauge_has_no_rate() -> None:
    assert Limit("concurrency", 7.0, 0.0, "gauge").rate_per_s == 0.0


def test_the_capacity_is_the_whole_amount_unless_a_burst_is_known() -> None:
    assert Limit("input", 100_000.0).capacity == 100_000.0
    assert Limit("input", 100_000.0, burst=5_000.0).capacity == 5_000.0
    assert Limit("input", 100_000.0, burst=0.0).capacity == 0.0


def test_the_name_of_a_limit_says_what_it_counts_and_over_which_period() -> None:
    assert Limit("input", 100.0).name == "input/60s"
    assert Limit("requests", 100.0, DAY_S, "fixed").name == "requests/86400s"
    assert Limit("requests", 10.0, 0.5).name == "requests/0.5s"
    assert Limit("concurrency", 4.0, 0.0, "gauge").name == "concurrency"
