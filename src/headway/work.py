"""What a run performs: work, attempts, results.

A driver knows nothing of plans, prompts or commands: it asks a `Work` for names, keys and results.
Each group of the graph has one `Work`; a task is a member of it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field, fields
from functools import partial
from threading import RLock
from typing import Final, Protocol

from msgspec import Struct
from msgspec.structs import replace

from headway.base.values import NO_CACHE, NOTHING, CacheTokens, Fault, Spend
from headway.errors import InternalError
from headway.state.shared import Snapshot

AGENT_VARIABLE: Final = "HEADWAY_AGENT"
"""Set for every program that an agent of a plan starts: the agent's name."""


class Result(Struct, frozen=True):
    """What an attempt gave, and what it took."""

    body: bytes
    """What is kept, and what others that need it are given."""
    value: object = None
    """The same for callers in this process, where it never was bytes."""
    input_tokens: float = 0.0
    output_tokens: float = 0.0
    spend_microusd: int = 0
    calls: int = 0
    exit_code: int | None = None
    is_durable: bool = True
    """Whether `body` holds all of it: a value that JSON cannot write lives in this process only."""
    extra_tokens: int = 0
    """What it counts towards a budget in tokens on top of input and output (see `Ending`)."""
    unpriced: int = 0
    """Calls whose price is unknown: `spend_microusd` does not contain their cost."""
    cache: CacheTokens = NO_CACHE
    is_renewed: bool = False
    """Of an earlier attempt: nothing that it depends on has changed."""

    @property
    def spend(self) -> Spend:
        """What it counts towards a budget."""
        tokens = round(self.input_tokens + self.output_tokens) + self.extra_tokens
        return Spend(tokens, self.spend_microusd, self.unpriced)


CONSUMED: Final = (
    "input_tokens", "output_tokens", "spend_microusd", "calls", "extra_tokens", "unpriced",
    "cache",
)  # fmt: skip


def charged(result: Result, taken: Result) -> Result:
    """The same result, with what something else took on top."""
    return replace(
        result, **{name: getattr(result, name) + getattr(taken, name) for name in CONSUMED}
    )


class AttemptError(Exception):
    """An attempt is lost: why, and what it took all the same."""

    def __init__(
        self, fault: Fault, result: Result | None = None, is_in_doubt: bool = False
    ) -> None:
        super().__init__(f"{fault.kind}: {fault.detail}")
        self.fault = fault
        self.result = result
        """Output and consumption of the failed attempt, if there were any."""
        self.is_in_doubt = is_in_doubt


class WindowEmptyError(Exception):
    """The account's usage window is empty: nothing is worth sending."""

    def __init__(self, resets_at_s: float, detail: str, result: Result | None = None) -> None:
        super().__init__(detail)
        self.resets_at_s = resets_at_s
        """By the wall clock."""
        self.detail = detail
        self.result = result
        """What the attempt took before, if anything was sent."""


class OverBudgetError(Exception):
    """The budget has no room for what this attempt may cost, and none will become free."""

    def __init__(self, detail: str, result: Result | None = None) -> None:
        super().__init__(detail)
        self.result = result
        """What the attempt took before, if anything was sent."""


def with_spent(ended: Exception, spent: Result) -> Exception:
    """Why an attempt ended, with what it had taken before."""
    if isinstance(ended, AttemptError):
        lost = ended.result or Result(b"")
        return AttemptError(ended.fault, charged(lost, spent), ended.is_in_doubt)
    taken = spent if spent.calls else None
    if isinstance(ended, WindowEmptyError):
        return WindowEmptyError(ended.resets_at_s, ended.detail, taken)
    return OverBudgetError(str(ended), taken)


class Needed(Struct, frozen=True):
    """The result of a task that this one needs."""

    group: str
    member: int
    name: str
    body: bytes


class Say(Protocol):
    """Tells the run where a call of an attempt is, and why as far as that is known."""

    def __call__(self, why: str = "", /) -> None: ...


class _Alarm(Struct, eq=False):
    """What happens when the attempt's own time reaches `due_s`."""

    due_s: float
    ring: Callable[[], object]
    timer: asyncio.TimerHandle | None = None


class AttemptClock:
    """Measures an attempt's own time, which is what `timeout` limits. Used on the run's loop.

    Laws:
    - It stands still while any call of the attempt waits: for its permit, after a refusal, or for
      money that other attempts may give back.
    - The time of a refused call does not count.
    """

    __slots__ = ("_alarms", "_own_s", "_since_s", "_waiting")

    def __init__(self) -> None:
        self._own_s = 0.0
        """The own time when the clock was last started or stopped."""
        self._since_s: float | None = None
        """When it was last started, by the loop's clock. It starts when it is first used."""
        self._waiting = 0
        self._alarms: tuple[_Alarm, ...] = ()

    @property
    def is_stopped(self) -> bool:
        """Whether a call of the attempt waits."""
        return self._waiting > 0

    @property
    def own_s(self) -> float:
        """The attempt's own time so far."""
        if self._waiting:
            return self._own_s
        now_s = asyncio.get_running_loop().time()
        if self._since_s is None:
            self._since_s = now_s
        return self._own_s + now_s - self._since_s

    def stop(self, *, is_refused: bool = False) -> None:
        """A call begins to wait: before it is sent, or because it was refused."""
        if not self._waiting and not is_refused:
            self._own_s = self.own_s
        self._waiting += 1
        for alarm in self._alarms:
            if alarm.timer is not None:
                alarm.timer.cancel()

    def start(self) -> None:
        """A call waits no longer. Time counts again if no other call waits."""
        self._waiting -= 1
        if not self._waiting:
            self._since_s = asyncio.get_running_loop().time()
            for alarm in self._alarms:
                self._set(alarm)

    @contextmanager
    def stopped(self, *, is_refused: bool = False) -> Iterator[None]:
        """Stand still while the block waits."""
        self.stop(is_refused=is_refused)
        try:
            yield
        finally:
            self.start()

    @contextmanager
    def alarm(self, after_s: float | None, ring: Callable[[], object]) -> Iterator[None]:
        """Call `ring` if the block takes more of the attempt's own time than this."""
        if after_s is None:
            yield
            return
        alarm = _Alarm(self.own_s + after_s, ring)
        self._alarms += (alarm,)
        if not self._waiting:
            self._set(alarm)
        try:
            yield
        finally:
            self._alarms = tuple(one for one in self._alarms if one is not alarm)
            if alarm.timer is not None:
                alarm.timer.cancel()

    @asynccontextmanager
    async def limit(self, timeout_s: float | None) -> AsyncIterator[None]:
        """Raise TimeoutError if the block takes more of the attempt's own time than this."""
        async with asyncio.timeout(None) as limit:
            with self.alarm(timeout_s, lambda: limit.reschedule(0.0)):
                yield

    def _set(self, alarm: _Alarm) -> None:
        after_s = max(0.0, alarm.due_s - self.own_s)
        alarm.timer = asyncio.get_running_loop().call_later(after_s, alarm.ring)


@dataclass(slots=True)
class Attempt:
    """One try of a task, as its work sees it. The driver makes it and provides the verbs."""

    task: int
    member: int
    number: int
    key: bytes
    name: str
    needed: Callable[[str], list[Needed]]
    """The results of a group that this task needs, in declared order; of its own member, or its
    own block of members, only, where the need says so. Those that have none are left out."""
    waits: Say
    """Say that a call asked for a permit; and why it was turned away, if it was."""
    goes: Say
    """Say that a call has its permit; and what it waited for."""
    reserve: Callable[[Spend], Awaitable[None]]
    """Set aside what the next call of this attempt may cost; returns when that is durable. Raises
    OverBudgetError: nothing is set aside for the call then."""
    keep: Callable[[bytes], Awaitable[None]]
    """Make a provider's reply durable before anything else is done with it; only needed when more
    calls follow in this attempt."""
    inputs: bytes = b""
    """The digest of the results that it is given."""
    journalled: int = 0
    """The last attempt of this task whose end the journal knows."""
    kept: tuple[bytes, ...] = ()
    """Replies that an interrupted attempt of this task had kept, in order: not to be paid again."""
    snapshot: Snapshot | None = None
    """The shared state as this attempt sees it; None if it has nothing to do with it."""
    lock: RLock = field(default_factory=RLock)
    """To be held whenever the snapshot is used: others may be committed meanwhile."""
    missing: Callable[[str], list[str]] = lambda _: []
    """The labels of those members of a needed group that failed or were skipped, in declared order:
    of those that this task needs, where a need is lenient."""
    spare: Callable[[Spend], None] = lambda _: None
    """A call ended and left so much of what was set aside for it, or took more if negative: it is
    for the next call of this attempt, and comes back when the attempt ends."""
    charged: Spend = NOTHING
    """What an interrupted attempt of this task had set aside: it is charged already."""
    is_last: bool = False
    """Whether the task fails with this attempt, if a fault ends it that may pass."""
    clock: AttemptClock = field(default_factory=AttemptClock)
    """Its own time: stopped while a call of the attempt waits."""

    def part(self, **changes: object) -> Attempt:
        """The same for one of its calls, or for another prompt: with other verbs."""
        given = {one.name: getattr(self, one.name) for one in fields(Attempt)}
        return Attempt(**{**given, **changes})


TELL_WAIT: Final[ContextVar[Callable[[bool, str], None] | None]] = ContextVar(
    "tell_wait", default=None
)
"""Set where a task's own code runs: calls through a paced client tell the task, from any thread,
whether it waits for a permit, and why."""


class PermitWait:
    """Tells the task of a call that the call waits, and why; then what it waited for."""

    __slots__ = ("_tell", "waited_for")

    def __init__(self, refused: str = "") -> None:
        self._tell, self.waited_for = TELL_WAIT.get(), ""
        if self._tell is not None:
            self._tell(True, refused)

    def __enter__(self) -> PermitWait:
        return self

    def __exit__(self, *_: object) -> None:
        if self._tell is not None:
            self._tell(False, self.waited_for)


def tell_waits_of(attempt: Attempt) -> None:
    """Let paced clients that are used from here on say when they wait, from any thread."""
    TELL_WAIT.set(partial(_tell_wait, asyncio.get_running_loop(), attempt))


def _tell_wait(loop: asyncio.AbstractEventLoop, attempt: Attempt, waits: bool, why: str) -> None:
    def tell() -> None:
        if waits:
            attempt.clock.stop(is_refused=bool(why))
            attempt.waits(why)
        else:
            attempt.clock.start()
            attempt.goes(why)

    with suppress(RuntimeError):  # The loop is closed: the run is over.
        loop.call_soon_threadsafe(tell)


class Work(Protocol):
    """What the tasks of one group are and how one is performed."""

    name: str
    """The group's name."""
    is_local: bool = False
    """Whether it uses this machine's processors rather than an account's quota."""
    is_idle_until_sent: bool = False
    """Whether an attempt that waits for its first permit has done nothing yet."""
    publishes: bool = False
    """Whether `publish` shows results anywhere."""
    timeout_s: float | None = None
    """How long one attempt may take."""

    def label(self, member: int) -> str:
        """A task's name as people read it: `review[security]`, or the group's own."""
        del member
        return self.name

    def key(self, member: int) -> bytes:
        """A task's content key: 16 bytes, over everything that it is declared to depend on."""

    def count(self, needed: Callable[[str], list[Needed]]) -> int:
        """For a group whose size is found at run time: how many members these results give."""
        del needed
        raise InternalError(f"the size of `{self.name}` is known")

    def publish(self, member: int, body: bytes | None) -> None:
        """Show a durable result to the world, where the plan says so; again does no harm. Without
        a body, look whether it could be shown. Raises OSError or HeadwayError if it cannot."""
        del member, body

    async def perform(self, attempt: Attempt) -> Result:
        """Do it. Raises AttemptError, WindowEmptyError or OverBudgetError; nothing else."""
