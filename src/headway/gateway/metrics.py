"""The gateway's books as Prometheus reads them.

Keys are not among the labels: there is one for every attempt of a task, and a series is for ever.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from headway.gateway.books import Books, Names
from headway.gateway.exposition import Labels, Sample, family, histograms
from headway.gateway.histogram import Histogram

PREFIX: Final = "headway_gateway_"

ROW_LABELS: Final = ("upstream", "model", "caller")

MICRO: Final = 1_000_000

COUNTERS: Final = (
    ("calls_total", "calls", "Calls that ended."),
    ("failed_calls_total", "failed", "Calls whose client was sent an error, or had gone."),
    ("held_calls_total", "held", "Calls that waited for a permit."),
    ("refusals_absorbed_total", "refusals_absorbed", "Refusals that no client saw."),
    ("kept_alive_total", "kept_alive", "Calls that got a sign of life before their answer."),
    ("replayed_total", "replayed", "Calls that were answered from a recording."),
)
"""Name, field of the sums, and what it is."""

TOKENS: Final = (
    ("input", "input_tokens"),
    ("cache_read", "cache_read_tokens"),
    ("output", "output_tokens"),
)


def written(books: Books, gauges: Mapping[str, tuple[str, float]], resent: int) -> str:
    """Everything; the gauges by name, each with what it is and what it stands at."""
    parts = [
        family(f"{PREFIX}{name}", "gauge", about, [((), value)])
        for name, (about, value) in gauges.items()
    ]
    parts += [_counter(name, about, _by_row(books, field)) for name, field, about in COUNTERS]
    parts.append(_counter("tokens_total", "Tokens that calls took, by kind.", _tokens(books)))
    spent = [(labels, value / MICRO) for labels, value in _by_row(books, "spend_microusd")]
    parts += [
        _counter("spend_usd_total", "What calls cost, where prices are known.", spent),
        _counter("unpriced_calls_total", "Calls whose cost is unknown.",
                 _by_row(books, "unpriced")),
        _counter("resent_total", "Calls sent again by their client while held.", [((), resent)]),
        _counter("answers_total", "Calls by the status that their client was sent.",
                 _counts(books.answers, "upstream", "status")),
        _counter("passed_total", "Requests that no model answers, by status.",
                 _counts(books.passed, "upstream", "status")),
        _counter("faults_total", "Calls that failed, by why.",
                 _counts(books.faults, "upstream", "kind")),
        _counter("turned_away_total", "Requests that were refused at the door, by why.",
                 _counts(books.turned, "code")),
        _spread("queued_seconds", "Until a call was sent upstream.", books.queued),
        _spread("first_byte_seconds", "From then until its answer began.", books.first_bytes),
    ]  # fmt: skip
    return "".join(parts)


def _counter(name: str, about: str, samples: list[Sample]) -> str:
    return family(f"{PREFIX}{name}", "counter", about, samples)


def _spread(name: str, about: str, spreads: Mapping[str, Histogram]) -> str:
    labelled: dict[Labels, Histogram] = {
        (("upstream", upstream),): spread for upstream, spread in spreads.items()
    }
    return histograms(f"{PREFIX}{name}", about, labelled)


def _by_row(books: Books, field: str) -> list[Sample]:
    return [
        (tuple(zip(ROW_LABELS, names, strict=True)), float(getattr(row, field)))
        for names, row in books.rows.items()
    ]


def _tokens(books: Books) -> list[Sample]:
    return [
        ((*labels, ("kind", kind)), value)
        for kind, field in TOKENS
        for labels, value in _by_row(books, field)
    ]


def _counts(counts: Mapping[Names, int], *labels: str) -> list[Sample]:
    return [(tuple(zip(labels, names, strict=True)), count) for names, count in counts.items()]
