"""A neighbour wants its share in its shape, is refused like anybody, and gives up in time."""

from __future__ import annotations

import pytest

from headway.base.values import Limit, Resource
from headway.pacing.meters import Meter, meter_of
from headway.sim.draw import BACKLOG_S_MAX, Neighbour, Presence

Meters = list[tuple[Limit, Meter]]


class _Notes(list[tuple[Resource, float]]):
    def __call__(self, resource: Resource, amount: float) -> None:
        self.append((resource, amount))


def _meters(*limits: Limit) -> Meters:
    return [(limit, meter_of(limit, 0.0)) for limit in limits]


def _live(presence: Presence, meters: Meters, ticks: int) -> _Notes:
    notes = _Notes()
    for _ in range(ticks):
        presence.tick(meters, notes, presence.next_tick_s)
    return notes


@pytest.mark.parametrize(
    ("neighbour", "wants"),
    [
        (Neighbour(share=0.3, start_s=5.0), {4.9: 0.0, 5.0: 0.3, 1e6: 0.3}),
        (
            Neighbour(share=0.4, on_s=10.0, off_s=20.0),
            {0.0: 0.4, 9.9: 0.4, 10.0: 0.0, 29.9: 0.0, 30.0: 0.4, 41.0: 0.0},
        ),
        (
            Neighbour(share=0.4, shape="ramp", on_s=10.0, off_s=10.0),
            {0.0: 0.0, 5.0: 0.2, 9.0: 0.36, 10.0: 0.0, 25.0: 0.2},
        ),
        (
            Neighbour(share=0.4, shape="burst", on_s=10.0, off_s=10.0, tick_s=2.0),
            {0.0: 2.0, 1.9: 2.0, 2.0: 0.0, 12.0: 0.0, 20.0: 2.0},
        ),
    ],
    ids=["always", "square", "ramp", "burst"],
)
def test_a_neighbour_wants_its_share_in_its_shape(
    neighbour: Neighbour, wants: dict[float, float]
) -> None:
    assert {now: neighbour.wants(now) for now in wants} == pytest.approx(wants)


def test_a_served_neighbour_charges_every_rate_and_writes_it_down() -> None:
    meters = _meters(Limit("requests", 60.0), Limit("input", 6000.0, 60.0, "sliding"))
    presence = Presence(Neighbour(share=0.5), 0.0)
    notes = _live(presence, meters, 3)
    assert notes == [("requests", 0.5), ("input", 50.0)] * 3
    assert meters[1][1].available(2.0) == 5850.0
    assert presence.next_tick_s == 3.0
    assert (presence.wanted, presence.served, presence.slots) == (1.5, 1.5, 0)


def test_what_a_neighbour_wants_beyond_half_of_a_limit_is_not_owed_to_it() -> None:
    meters = _meters(Limit("input", 6000.0))
    presence = Presence(Neighbour(share=0.8), 0.0)
    _live(presence, meters, 10)
    assert presence.wanted == pytest.approx(5.0)
    assert presence.served == pytest.approx(8.0)


def test_one_full_limit_refuses_the_neighbour_everywhere_and_the_backlog_is_bounded() -> None:
    requests, tokens = _meters(Limit("requests", 60.0), Limit("input", 6000.0))
    requests[1].charge(60.0 + 1000.0, 0.0)
    presence = Presence(Neighbour(share=0.5), 0.0)
    assert _live(presence, [requests, tokens], 100) == []
    assert tokens[1].available(100.0) == 6000.0
    requests[1].refund(1060.0, 100.0)
    placed = _live(presence, [requests, tokens], 1)
    assert sum(amount for resource, amount in placed if resource == "input") == pytest.approx(
        0.5 * BACKLOG_S_MAX * 100.0
    )


def test_a_neighbour_takes_only_free_slots_and_leaves_when_it_is_off() -> None:
    limit = Limit("concurrency", 4.0, 0.0, "gauge")
    meters = _meters(limit, Limit("input", 6000.0))
    slots = meters[0][1]
    slots.charge(3.0, 0.0)
    presence = Presence(Neighbour(slots=3, on_s=2.0, off_s=2.0), 0.0)
    assert _live(presence, meters, 1) == []
    assert presence.slots == 1
    slots.refund(3.0, 1.0)
    _live(presence, meters, 1)
    assert presence.slots == 3
    assert slots.available(1.0) == 1.0
    _live(presence, meters, 1)
    assert presence.slots == 0
    assert slots.available(2.0) == 4.0
