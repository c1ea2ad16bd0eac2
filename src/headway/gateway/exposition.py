"""Numbers as Prometheus reads them: its text exposition format, version 0.0.4."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import inf, isnan
from typing import Final, Literal

from headway.gateway.histogram import Histogram

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"

Labels = tuple[tuple[str, str], ...]
Sample = tuple[Labels, float]

_ESCAPES: Final = str.maketrans({"\\": r"\\", "\n": r"\n", '"': r"\""})
_HELP_ESCAPES: Final = str.maketrans({"\\": r"\\", "\n": r"\n"})


def family(
    name: str, kind: Literal["counter", "gauge"], about: str, samples: Iterable[Sample]
) -> str:
    """One metric with all its series; nothing where there are none yet."""
    lines = [_line(name, labels, value) for labels, value in samples]
    return _head(name, kind, about) + "".join(lines) if lines else ""


def histograms(name: str, about: str, spreads: Mapping[Labels, Histogram]) -> str:
    """One metric of durations: cumulative buckets, their sum and their number."""
    lines: list[str] = []
    for labels, spread in spreads.items():
        for bound_s, count in spread.buckets():
            lines.append(_line(f"{name}_bucket", (*labels, ("le", _number(bound_s))), count))
        told = spread.statistics()
        lines.append(_line(f"{name}_sum", labels, told.sum_s))
        lines.append(_line(f"{name}_count", labels, told.count))
    return _head(name, "histogram", about) + "".join(lines) if lines else ""


def _head(name: str, kind: str, about: str) -> str:
    return f"# HELP {name} {about.translate(_HELP_ESCAPES)}\n# TYPE {name} {kind}\n"


def _line(name: str, labels: Labels, value: float) -> str:
    inner = ",".join(f'{label}="{text.translate(_ESCAPES)}"' for label, text in labels)
    return f"{name}{{{inner}}} {_number(value)}\n" if inner else f"{name} {_number(value)}\n"


def _number(value: float) -> str:
    if isnan(value):
        return "NaN"
    if value in (inf, -inf):
        return "+Inf" if value > 0 else "-Inf"
    return str(int(value)) if value == int(value) else repr(float(value))
