"""The tasks of `headway each` as work: one command for each combination of its inputs."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Final

from headway.core.digest import digest
from headway.core.plan.arguments import ArgumentPlan
from headway.core.values import Fault
from headway.runtime.adoption import Adopted, shim_key
from headway.runtime.agents.command import judged
from headway.runtime.metering import Meter, metered
from headway.runtime.shell import Command, Ended, Shim, ShimGoneError
from headway.runtime.work import Attempt, AttemptError, Needed, Result

LABEL_CHARS_MAX: Final = 60


@dataclass(frozen=True, slots=True)
class EachStatistics:
    """Ended commands that nobody has looked at yet."""

    unseen: int


class EachWork:
    """One group: all commands of an `each`."""

    name = "each"
    is_local = True
    is_idle_until_sent = False
    publishes = False

    def __init__(
        self,
        plan: ArgumentPlan,
        folder: str,
        shim: Shim,
        timeout_s: float | None = None,
        adopted: Adopted | None = None,
        meter: Meter | None = None,
    ) -> None:
        """`adopted` are ends that an interrupted process did not come to journal."""
        self.plan = plan
        self.timeout_s: float | None = None
        """A command ends itself in time: its output until then is kept."""
        self.ended: dict[int, Ended] = {}
        """By member, until somebody takes it to show it."""
        self._folder = folder
        self._shim = shim
        self._command_s = timeout_s
        self._adopted = adopted
        self._meter = meter
        self._salt = b"\0".join((b"each", os.fsencode(folder), os.fsencode(plan.template)))

    def __repr__(self) -> str:
        return f"<EachWork {self.plan.count()} times {self.plan.template!r}>"

    def statistics(self) -> EachStatistics:
        return EachStatistics(len(self.ended))

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

    def publish(self, member: int, body: bytes | None) -> None:
        """Whoever watches the run shows outputs, in their order."""

    async def perform(self, attempt: Attempt) -> Result:
        ended = self._adopted.take(attempt) if self._adopted is not None else None
        if ended is not None:
            return self._judged(attempt, ended)
        return await metered(self._meter, attempt, partial(self._execute, attempt))

    async def _execute(self, attempt: Attempt, told: Mapping[str, str]) -> Result:
        invocation = self.plan.member(attempt.member)
        command = Command(
            shim_key(attempt), attempt.number, invocation.argv,
            {**told, **invocation.environment} if told else invocation.environment,
            self._folder,
            timeout_s=self._command_s,
        )  # fmt: skip
        try:
            ended = await self._shim.run(command, attempt.clock)
        except ShimGoneError as gone:
            raise AttemptError(Fault("broken", detail=str(gone)), is_in_doubt=True) from None
        return self._judged(attempt, ended)

    def _judged(self, attempt: Attempt, ended: Ended) -> Result:
        self.ended[attempt.member] = ended
        return judged(ended)
