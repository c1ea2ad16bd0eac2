"""Sizes of calls are drawn as they were seen: their shape, their mean, and how sure that is."""

from __future__ import annotations

from collections.abc import Sequence
from math import exp
from statistics import mean

import pytest

from headway.base.numbers import percentile
from headway.pacing.estimate import OUTPUT_TOKENS_PRIOR
from headway.report.sizes import Mood, SeenCall, Sizes, draw, mood, sizes_of
from headway.sim.draw import lognormal, uniform

FAMILIES = {
    "lognormal": lambda seed, at: 300.0 * lognormal(seed, 1, at, 0.8),
    "even": lambda seed, at: 100.0 + 400.0 * uniform(seed, 1, at),
    "two humps": lambda seed, at: 100.0 if uniform(seed, 1, at) < 0.6 else 1000.0,
}


def seen_like(outputs: Sequence[float], input_tokens: float = 1000.0) -> Sizes:
    return sizes_of([SeenCall(input_tokens, output, 4 * input_tokens) for output in outputs])


def means_of(sizes: Sizes, size_bytes: float, moods: int = 200, calls: int = 50) -> list[float]:
    """Of every way in which things may be, the mean output of some calls."""
    found = []
    for seed in range(moods):
        own = mood(sizes, seed)
        found.append(mean(draw(sizes, own, at, size_bytes)[1] for at in range(calls)))
    return found


def test_two_humps_are_drawn_as_two_humps() -> None:
    sizes = seen_like([100.0] * 24 + [1000.0] * 16)
    drawn = [
        draw(sizes, mood(sizes, seed), at, 4000.0)[1] for seed in range(20) for at in range(40)
    ]
    between = [one for one in drawn if 150.0 < one < 750.0]
    # Of a lognormal with the same moments half would lie there.
    assert len(between) / len(drawn) < 0.03
    assert 0.5 < mean(one < 200.0 for one in drawn) < 0.7


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("count", [15, 60])
def test_the_mean_of_what_is_drawn_is_that_of_what_was_seen(family: str, count: int) -> None:
    """Though answers that are longer than all of them are drawn, too."""
    offs = []
    for seed in range(4):
        outputs = [FAMILIES[family](seed, at) for at in range(count)]
        drawn = means_of(seen_like(outputs), 4000.0, 80, 25)
        offs.append(mean(drawn) / mean(outputs))
    assert 0.95 < mean(offs) < 1.07


def test_answers_longer_than_all_that_were_seen_come_once_in_n_plus_one_times() -> None:
    outputs = [100.0 + 10.0 * at for at in range(19)]
    sizes = seen_like(outputs)
    longest, drawn = 0, 0
    for seed in range(40):
        own = replace_offs(mood(sizes, seed))
        most = draw_longest(sizes, own)
        for at in range(100):
            drawn += 1
            longest += draw(sizes, own, at, 4000.0)[1] > most * 1.0001
    assert 0.035 < longest / drawn < 0.065


def replace_offs(own: Mood) -> Mood:
    """The same mood, sure of its level."""
    return Mood(own.seed, own.sums, own.input_slope, own.output_slope, 0.0, 0.0)


def draw_longest(sizes: Sizes, own: Mood) -> float:
    """The longest of those that were seen, as this mood draws it."""
    lines = sizes.outputs
    assert lines is not None
    return exp(lines.level + max(lines.offs) - lines.rise)


def test_prompts_twice_as_long_are_twice_as_many_tokens() -> None:
    seen = [SeenCall(0.3 * size, 200.0, size) for size in range(400, 4400, 100)]
    sizes = sizes_of(seen)
    own = mood(sizes, 1)
    short = mean(draw(sizes, own, at, 2000.0)[0] for at in range(200))
    long = mean(draw(sizes, own, at, 4000.0)[0] for at in range(200))
    assert short == pytest.approx(600.0, rel=0.02)
    assert long / short == pytest.approx(2.0, rel=0.02)


def test_answers_follow_their_inputs_as_far_as_was_seen() -> None:
    """Tokens that double with the input, and such that do not care."""
    doubles = [SeenCall(100.0 * at, 50.0 * at, 400.0 * at) for at in range(1, 41)]
    ratio = _ratio(doubles)
    assert ratio == pytest.approx(2.0, rel=0.1)
    careless = [SeenCall(100.0 * at, 300.0, 400.0 * at) for at in range(1, 41)]
    assert _ratio(careless) == pytest.approx(1.0, abs=0.02)
    # By these two alone answers would be 3.8 times as long: two calls say little about it.
    assert _ratio([SeenCall(1000.0, 100.0, 4000.0), SeenCall(1100.0, 120.0, 4400.0)]) < 2.0


def _ratio(seen: Sequence[SeenCall]) -> float:
    sizes = sizes_of(seen)
    own = replace_offs(mood(sizes, 1))
    one = [draw(sizes, own, at, 4000.0)[1] for at in range(100)]
    other = [draw(sizes, own, at, 8000.0)[1] for at in range(100)]
    return mean(other) / mean(one)


def test_where_nothing_was_seen_sizes_are_usual_and_very_uncertain() -> None:
    sizes = sizes_of([])
    assert sizes == Sizes()
    assert sizes.count == 0
    inputs = [draw(sizes, mood(sizes, seed), 0, 4000.0)[0] for seed in range(400)]
    assert percentile(inputs, 0.5) == pytest.approx(1004.0, rel=0.06)
    outputs = means_of(sizes, 4000.0, 150, 100)
    assert percentile(outputs, 0.5) == pytest.approx(OUTPUT_TOKENS_PRIOR, rel=0.2)
    assert percentile(outputs, 0.9) / percentile(outputs, 0.1) > 4.0
    # Answers of one plan differ, too, not only plans from one another.
    own = mood(sizes, 1)
    alone = [draw(sizes, own, at, 4000.0)[1] for at in range(200)]
    assert percentile(alone, 0.9) / percentile(alone, 0.1) > 5.0
