"""The tasks of `headway each`: one command per combination of inputs."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from functools import partial
from math import inf
from typing import Final

from msgspec import Struct

from headway.agents import shell
from headway.agents.metering import CallMeter, metered
from headway.base import codec
from headway.base.digest import digest
from headway.base.values import Fault
from headway.pacing.windows import Shares
from headway.plans.each import ArgumentPlan
from headway.work import Attempt, AttemptError, Needed, Result, Work

# What an `each` was asked to do, as its run keeps it: all that a resume needs to know.


class EachSource(Struct, frozen=True):
    template: str
    axes: tuple[tuple[tuple[str, ...], ...], ...]
    arguments_max: int | None = None
    column_separator: str | None = None
    is_quoted: bool = False
    jobs: float = inf
    retries: int = 0
    timeout_s: float | None = None
    stuck_s: float | None = None
    halt: str = ""
    keeps_order: bool = False
    tags: bool = False
    joblog: str = ""
    results: str = ""
    has_gateway: bool = True
    """Whether the model calls of its commands are seen and paced."""
    window_shares: Shares | None = None
    """The most that it takes of each usage window, where its user has set that."""

    def plan(self) -> ArgumentPlan:
        return ArgumentPlan(self.template, self.axes, self.arguments_max, self.column_separator)

    def encoded(self) -> str:
        return codec.encode(self).decode()

    @staticmethod
    def decoded(text: str) -> EachSource:
        return codec.decode(EachSource, text.encode())


LABEL_CHARS_MAX: Final = 60


class EachWork(Work):
    """One group: all commands of an `each`, whose outputs the watcher of the run shows. A command
    ends itself in time, so that its output until then is kept."""

    name = "each"
    is_local = True

    def __init__(
        self, plan: ArgumentPlan, folder: str, shim: shell.ShimClient,
        timeout_s: float | None = None, adopted: shell.Adopted | None = None,
        meter: CallMeter | None = None, stuck_s: float | None = None,
    ) -> None:  # fmt: skip
        """`adopted` are ends that an interrupted process did not come to journal."""
        self.plan = plan
        self.ended: dict[int, shell.CommandEnded] = {}
        self._folder = folder
        self._shim = shim
        self._command_s = timeout_s
        self._stuck_s = stuck_s
        self._adopted = adopted
        self._meter = meter
        self._salt = b"\0".join((b"each", os.fsencode(folder), os.fsencode(plan.template)))

    def label(self, member: int) -> str:
        words = " ".join(self.plan.arguments(member))
        shown = "".join(char if char.isprintable() else " " for char in words)
        short = shown if len(shown) <= LABEL_CHARS_MAX else shown[: LABEL_CHARS_MAX - 1] + "…"
        return f"each[{member + 1}: {short}]"

    def key(self, member: int) -> bytes:
        """What is executed with what; the same again at another place is another task."""
        values = "\0".join(self.plan.arguments(member)).encode("utf-8", "surrogateescape")
        whole = self._salt + b"\0\0" + values + member.to_bytes(8, "big")
        return digest(whole)

    def count(self, needed: Callable[[str], list[Needed]]) -> int:  # noqa: ARG002 - it is known
        return self.plan.count()

    async def perform(self, attempt: Attempt) -> Result:
        ended = self._adopted.take(attempt) if self._adopted is not None else None
        if ended is not None:
            return self._judged(attempt, ended)
        return await metered(self._meter, attempt, partial(self._execute, attempt))

    async def _execute(self, attempt: Attempt, told: Mapping[str, str]) -> Result:
        command = shell.Command(
            shell.shim_key(attempt), attempt.number, self.plan.argv(attempt.member),
            {**told, "PARALLEL_SEQ": str(attempt.member + 1)},
            self._folder,
            timeout_s=self._command_s,
            stuck_s=self._stuck_s,
        )  # fmt: skip
        try:
            ended = await self._shim.run(command, attempt.clock)
        except shell.ShimGoneError as gone:
            raise AttemptError(Fault("broken", detail=str(gone)), is_in_doubt=True) from None
        return self._judged(attempt, ended)

    def _judged(self, attempt: Attempt, ended: shell.CommandEnded) -> Result:
        self.ended[attempt.member] = ended
        return shell.judged(ended)
