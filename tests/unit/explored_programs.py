"""Tasks as short programs over shared state and files, for tests that try them in every order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from random import Random
from typing import cast

from msgspec import Struct
from msgspec.structs import replace

from headway.base.digest import digest
from headway.plans.graph import Graph, Need, TaskGroup
from headway.plans.resources import ANYTHING, Channel, Touches
from headway.report.stage import Going, Grown, HashedStage, Play, TrialAttempt, TrialResult
from headway.report.trial import TrialCast
from headway.state.shared import Act, Channels, Snapshot

KEYS = ("a", "b", "d/x", "d/y")
CHANNELS = Channels(
    {"log": Channel("append"), "n": Channel("counter"), "mail": Channel("effect", "x:y")}
)
Op = tuple[str, str]


class Program(Struct):
    """An attempt: one operation a step, each a function of all that was seen before."""

    stage: Programs
    asked: TrialAttempt
    at: int = 0
    seen: bytes = b""

    def step(self) -> TrialResult | None:
        ops = self.stage.ops[self.asked.group]
        given = b"".join(body for _, bodies in self.asked.given for body in bodies)
        if self.at == 0:
            self.seen = digest(self.asked.label.encode() + given)
        if self.at < len(ops):
            verb, what = ops[self.at]
            if verb == "fail" and self.seen[0] % 2:
                return TrialResult(b"", (self.seen.hex(),), "it did not want to")
            self.do(verb, what)
            self.at += 1
            return None
        return TrialResult(self.seen.hex().encode(), (self.seen.hex(),))

    def do(self, verb: str, what: str) -> None:
        snapshot = self.asked.snapshot
        if verb == "look":
            self.saw(repr(self.stage.look(what)).encode())
        elif verb == "write":
            self.stage.write(what, self.seen.hex())
        elif snapshot is None or verb == "fail":
            return
        elif verb == "get":
            self.saw(snapshot.get(what) or b"-")
        elif verb == "scan":
            self.saw(repr(snapshot.scan(what)).encode())
        elif verb == "put":
            snapshot.put(what, self.seen.hex())
        elif verb == "remove":
            snapshot.remove(what)
        elif verb == "add":
            snapshot.add(what, self.seen[0] % 7)
        elif verb == "act":
            snapshot.act(Act(what, b'"%s"' % self.seen.hex().encode()))

    def saw(self, data: bytes) -> None:
        self.seen = digest(self.seen + data)

    def stop(self) -> None:
        """There is nothing to end."""


class Programs(HashedStage):
    """A stage for programs, one for each group."""

    def __init__(self, ops: Sequence[Sequence[Op]]) -> None:
        super().__init__(cast(Play, None))  # These tasks come from no plan.
        self.ops = ops

    def begin(self, asked: TrialAttempt) -> Program:
        return Program(self, asked)

    def label(self, group: int, member: int, grown: Grown) -> str:
        return f"t{group}-{member}"

    def count(self, group: int, grown: Grown) -> int:
        return 2

    def publish(self, place: tuple[int, int], grown: Grown, body: bytes) -> None:
        """Nothing looks at results."""

    def copied(
        self, going: Mapping[int, Going], snapshots: Mapping[int, Snapshot]
    ) -> tuple[Programs, dict[int, Going]]:
        twin = Programs(self.ops)
        twin.files, twin._touched = self.files.copied(), self._touched[:]
        attempts: dict[int, Going] = {}
        for task, one in going.items():
            assert isinstance(one, Program)
            asked = replace(one.asked, snapshot=snapshots.get(task))
            attempts[task] = Program(twin, asked, one.at, one.seen)
        return twin, attempts


def cast_of(
    ops: Sequence[Sequence[Op]], groups: Sequence[TaskGroup], is_copied: bool = True
) -> TrialCast:
    return TrialCast(Graph(groups), lambda: Programs(ops), CHANNELS, is_copied=is_copied)


def drawn(seed: int, most: int, has_files: bool) -> TrialCast:
    """Some tasks that touch the same few things, some of them in an order, some declaring."""
    rng = Random(seed)
    count = rng.randint(2, most)
    ops = [_drawn_ops(rng, has_files) for _ in range(count)]
    groups = [
        TaskGroup(
            f"t{one}",
            1,
            tuple(Need(other) for other in range(one) if rng.random() < 0.12),
            retries=0,
            touches=_declared(ops[one]) if rng.random() < 0.5 else ANYTHING,
            queue="q" if rng.random() < 0.15 else "",
        )
        for one in range(count)
    ]
    return cast_of(ops, groups)


def _drawn_ops(rng: Random, has_files: bool) -> list[Op]:
    choices: list[Op] = [("get", key) for key in KEYS] + [("put", key) for key in KEYS]
    choices += [("scan", "d/*"), ("scan", "**"), ("remove", "a"), ("add", "n"), ("add", "log")]
    choices += [("get", "n"), ("get", "log"), ("act", "mail"), ("fail", "")]
    if has_files:
        choices += [("look", "f/1"), ("write", "f/1"), ("write", "f"), ("look", "f")] * 2
    return [rng.choice(choices) for _ in range(rng.randint(1, 2))]


def _declared(ops: Sequence[Op]) -> Touches:
    reads = [what for verb, what in ops if verb == "get"]
    reads += ["d" if what == "d/*" else "" for verb, what in ops if verb == "scan"]
    writes = [what for verb, what in ops if verb in ("put", "remove", "add")]
    acts = [what for verb, what in ops if verb == "act"]
    return Touches(
        tuple(dict.fromkeys(reads)), tuple(dict.fromkeys(writes)), tuple(dict.fromkeys(acts))
    )
