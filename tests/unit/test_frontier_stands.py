"""Writers of very many different things stand where they should, remembered or not."""

from __future__ import annotations

from headway.state.coherence import STANDS_MAX, Frontier


def test_whoever_ends_frees_those_who_wait_for_it_although_its_place_was_forgotten() -> None:
    frontier = Frontier()
    many = STANDS_MAX + 10
    for position in range(many):
        frontier.join(position, (f"records/{position}",))
    assert not frontier.wait(7, many, ("records/3",))
    assert not frontier.wait(8, many + 1, ("records",))
    freed = [frontier.end(position, (f"records/{position}",)) for position in range(many)]
    assert freed[3] == [7]
    assert freed[-1] == [8]
    assert sum(map(len, freed)) == 2
