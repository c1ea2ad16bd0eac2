"""What one call takes of one limit, when it takes it, and what counts as our error."""

from __future__ import annotations

import pytest

from headway.base.values import Amounts, Charging, Demand, Resource
from headway.pacing.limits import PlannedStream, Toll

DEMAND = Demand(expected=Amounts(100.0, 40.0, 7), ceiling=Amounts(130.0, 500.0, 90))
USED = Amounts(110.0, 50.0, 8)
STREAM = PlannedStream(1.0, 9.0, 40.0)


@pytest.mark.parametrize(
    ("resource", "charging", "at_admission", "later"),
    [
        ("requests", "reserved", 1.0, 0.0),
        ("requests", "produced", 1.0, 0.0),
        ("input", "reserved", 100.0, 0.0),
        ("input", "produced", 100.0, 0.0),
        ("output", "reserved", 500.0, 0.0),
        ("output", "produced", 0.0, 40.0),
        ("tokens", "reserved", 600.0, 0.0),
        ("tokens", "produced", 100.0, 40.0),
        ("spend", "reserved", 0.0, 90.0),
        ("spend", "produced", 0.0, 90.0),
        ("concurrency", "produced", 0.0, 0.0),
    ],
)
def test_input_is_taken_at_admission_and_output_where_its_charging_says(
    resource: Resource, charging: Charging, at_admission: float, later: float
) -> None:
    """Reservations take all of the output's ceiling at once; money is held at its ceiling."""
    toll = Toll(resource, charging)
    assert toll.need(DEMAND) == at_admission
    assert toll.later(DEMAND, STREAM) == later


@pytest.mark.parametrize(
    ("resource", "charging", "at_admission", "later"),
    [
        ("requests", "reserved", 1.0, 0.0),
        ("input", "produced", 110.0, 0.0),
        ("output", "reserved", 50.0, 0.0),
        ("output", "produced", 0.0, 50.0),
        ("tokens", "reserved", 160.0, 0.0),
        ("tokens", "produced", 110.0, 50.0),
        ("spend", "produced", 0.0, 8.0),
    ],
)
def test_what_was_used_falls_due_when_what_was_expected_did(
    resource: Resource, charging: Charging, at_admission: float, later: float
) -> None:
    toll = Toll(resource, charging)
    assert toll.used_later(USED) == later
    assert toll.cost_s(USED, 2.0) == (at_admission + later) / 2.0


@pytest.mark.parametrize(
    ("resource", "charging", "extra", "unused"),
    [
        ("requests", "reserved", 0.0, 0.0),
        ("input", "kept", 10.0, 0.0),
        ("output", "reserved", -450.0, 450.0),
        ("output", "kept", 0.0, 450.0),
        ("tokens", "reserved", -440.0, 450.0),
        ("tokens", "kept", 10.0, 450.0),
        ("tokens", "produced", 10.0, 0.0),
    ],
)
def test_what_was_not_used_comes_back_unless_it_is_kept(
    resource: Resource, charging: Charging, extra: float, unused: float
) -> None:
    toll = Toll(resource, charging)
    assert toll.extra(DEMAND, USED) == extra
    assert toll.unused(DEMAND, USED) == unused
    assert toll.keeps is (charging == "kept" and resource != "input")


def test_output_flows_only_where_it_is_counted_and_charged_as_produced() -> None:
    assert Toll("output", "produced").flows
    assert Toll("tokens", "produced").flows
    assert not Toll("output", "reserved").flows
    assert not Toll("input", "produced").flows


def test_only_requests_are_known_beforehand() -> None:
    assert Toll("requests", "produced").is_certain
    assert not Toll("spend", "produced").is_certain


def test_input_counts_where_input_is_limited() -> None:
    assert Toll("tokens", "reserved").counts_input
    assert not Toll("output", "reserved").counts_input


def test_a_call_costs_the_seconds_of_refill_that_it_uses_up() -> None:
    assert Toll("tokens", "produced").cost_s(USED, 10.0) == 16.0


def test_what_never_refills_costs_no_time() -> None:
    assert Toll("spend", "produced").cost_s(USED, 0.0) == 0.0


def test_where_a_limit_refills_input_and_output_may_both_be_wrong() -> None:
    assert Toll("tokens", "produced").error(DEMAND, USED, refills=True) == 20.0


def test_in_a_window_only_the_input_may_be_wrong() -> None:
    """There every answer is held in full from its admission on."""
    assert Toll("tokens", "produced").error(DEMAND, USED, refills=False) == 10.0


def test_a_reservation_is_no_estimate() -> None:
    assert Toll("output", "reserved").error(DEMAND, USED, refills=True) == 0.0
