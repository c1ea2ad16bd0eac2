"""Brings the findings of all repositories together: `python: outdated:table` beside `reduce`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence


def table(results: Sequence[Mapping[str, object]]) -> dict[str, object]:
    """By repository; those in which nothing is out of date are left out."""
    return {str(one["repository"]): one["outdated"] for one in results if one["outdated"]}
