"""What an `each` was asked to do, as its run keeps it: all that a resume needs to know."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from math import inf

from headway.core.plan.arguments import ArgumentPlan, Arrangement


@dataclass(frozen=True, slots=True)
class EachSource:
    """A command, its inputs, and how it is run and shown."""

    template: str
    axes: tuple[tuple[tuple[str, ...], ...], ...]
    arguments_max: int | None = None
    column_separator: str | None = None
    is_quoted: bool = False
    jobs: float = inf
    retries: int = 0
    timeout_s: float | None = None
    halt: str = ""
    keeps_order: bool = False
    tags: bool = False
    joblog: str = ""
    results: str = ""
    has_gateway: bool = True
    """Whether the model calls of its commands are seen and paced."""

    def plan(self) -> ArgumentPlan:
        """Its tasks."""
        arrangement = Arrangement(self.arguments_max, self.column_separator, self.is_quoted)
        return ArgumentPlan(self.template, self.axes, arrangement)

    def encoded(self) -> str:
        told = asdict(self)
        if self.jobs == inf:
            del told["jobs"]
        return json.dumps(told)

    @staticmethod
    def decoded(text: str) -> EachSource:
        told = json.loads(text)
        told["axes"] = tuple(tuple(map(tuple, axis)) for axis in told["axes"])
        return EachSource(**told)
