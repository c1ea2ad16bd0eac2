"""Python functions as the work of a task group."""

from __future__ import annotations

import asyncio
import os
import pickle
import sys
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from copy import deepcopy
from functools import lru_cache, partial
from json import JSONDecoder, dumps
from math import inf
from types import CodeType, NoneType
from typing import Any, Final, TypedDict, TypeVar, cast

from msgspec import Struct, field

from headway.agents.function import FunctionAgent, Where, result_of, where_of
from headway.base.digest import DIGEST_BYTES, digest
from headway.base.folders import folders
from headway.base.values import Fault
from headway.engine.state import Rules
from headway.engine.strategy import parse
from headway.errors import BadValueError, UsageError, did_you_mean
from headway.journal.folder import list_runs
from headway.journal.journal import Journal
from headway.journal.reader import latest
from headway.run.machine import cores
from headway.state.context import Commons, lent
from headway.work import Attempt, AttemptError, Needed, Result, tell_waits_of

PLAIN: Final = (str, int, float, bytes, NoneType)
"""Values that are what they are written as."""
CODES_MAX: Final = 256
"""Codes that are remembered: thousands of tasks may share one, with other values each."""
_DECODER: Final = JSONDecoder()


class FunctionWork(Struct):
    """One function over items. Values stay objects within the process."""

    name: str
    function: Callable[..., object] | None
    """None: the items are the functions."""
    agent: FunctionAgent
    items: Sequence[object] | None = None
    """None: a single task without an item, or one spread over another's result."""
    sources: tuple[tuple[FunctionWork, bool], ...] = ()
    """Groups whose results are arguments: True is the result of the same member, False of all."""
    spread_over: FunctionWork | None = None
    timeout_s: float | None = None
    own_s: float | None = None
    """How long one attempt may take, where its task says so itself."""
    in_processes: bool = False
    is_durable: bool = False
    is_local: bool = False
    is_idle_until_sent: bool = False
    publishes: bool = False
    values: dict[int, object] = field(default_factory=dict)
    errors: dict[int, BaseException] = field(default_factory=dict)
    size: int = 0
    """How many members it had when the run ended."""
    commons: Commons = Commons()
    """What the contexts of its tasks have in common."""
    shared: bytes = b""
    """Of the state that its tasks touch: what else a result belongs to."""
    _asked: Callable[..., object] | None = None
    _where: Where = "loop"
    _salt: bytes = b""
    _prefix: bytes = b""
    _seen: dict[bytes, int] = field(default_factory=dict)
    _keys: dict[int, bytes] = field(default_factory=dict)

    def __post_init__(self) -> None:
        given: object = self.function
        if given is not None and not callable(given):
            kind = type(given).__name__
            hint = "headway.map(function, items); plan.task(name, function)"
            raise BadValueError(f"a function is needed here, not {kind}", hint=hint)

    @property
    def is_single(self) -> bool:
        """Whether it has one member that has no number."""
        return self.items is None and self.spread_over is None and not self._follows()

    def begin(self, agent: FunctionAgent, is_durable: bool, in_processes: bool) -> None:
        """Forget what an earlier run of the same plan left behind."""
        self.agent, self.is_durable = agent, is_durable
        self.in_processes = self.is_local = in_processes
        self._asked = None
        self.values, self.errors, self.size = {}, {}, 0
        if self.spread_over is not None:
            self.items = None
            self._keys, self._seen = {}, {}

    def label(self, member: int) -> str:
        return self.name if self.is_single else f"{self.name}[{member}]"

    def key(self, member: int) -> bytes:
        """Without a journal a name and a number; with one, what is called with what."""
        if not self.is_durable:
            if not self._prefix:
                self._prefix = digest(self.name.encode())[: DIGEST_BYTES // 2]
            return self._prefix + member.to_bytes(DIGEST_BYTES - len(self._prefix), "big")
        found = self._keys.get(member)
        if found is None:
            found = self._keys[member] = self._content_key(member)
        return found

    def count(self, needed: Callable[[str], list[Needed]]) -> int:
        """One member for each element of the result that it is spread over."""
        if self.spread_over is None:
            return 1
        needed(self.spread_over.name)
        value = self.spread_over.value(0, needed)
        if not isinstance(value, list | tuple):
            raise BadValueError(
                f"`{self.name}` is spread over `{self.spread_over.name}`, which gave no list",
                hint="return a list from it",
            )
        self.items = value
        return len(value)

    def publish(self, member: int, body: bytes | None) -> None:
        """Results of functions are returned, not shown."""

    async def perform(self, attempt: Attempt) -> Result:
        tell_waits_of(attempt)
        try:
            given, function = self._given(attempt), self.function
            if function is None:
                (item,) = given
                function, given = cast("Callable[..., object]", item), []
            if self._asked is not function:  # Looked up once for the same function.
                self._asked = function
                self._where = "process" if self.in_processes else where_of(function)
            where = self._where
            if attempt.snapshot is None:
                value = await self.agent.call(where, function, given)
            else:
                # A second attempt must find its arguments as they were.
                given = given if where == "process" else [_own(one) for one in given]
                with lent(attempt, self.commons) as context:
                    value = await self.agent.call(where, function, given, context)
        except AttemptError as lost:
            self.errors[attempt.member] = lost.__cause__ or lost
            raise
        # Without a journal it is not read as text.
        result = result_of(value) if self.is_durable else Result(b"", value, is_durable=False)
        if self.is_durable and not result.body:
            why = f"gave a {type(value).__name__}, which JSON cannot hold: not durable"
            raise AttemptError(Fault("request", detail=f"`{self.name}` {why}"))
        if self.errors:
            self.errors.pop(attempt.member, None)
        self.values[attempt.member] = value
        return result

    def value(self, member: int, needed: Callable[[str], list[Needed]]) -> object:
        """The result of a member: the object, or what its body says if another process made it."""
        if member not in self.values:
            self.recall(needed(self.name))
        return self.values[member]

    def note(self, member: int, fault: Fault) -> None:
        """Why a member failed of which no error was seen here: it took too long, say."""
        self.errors.setdefault(member, AttemptError(fault))

    def recall(self, found: Iterable[Needed]) -> None:
        """Take over values that earlier processes had."""
        for one in found:
            if one.member not in self.values:
                self.values[one.member] = decoded(one.body)

    def _given(self, attempt: Attempt) -> list[object]:
        given: list[object] = [] if self.items is None else [self.items[attempt.member]]
        needed = attempt.needed
        for work, is_own in self.sources:
            if is_own or work.is_single:
                given.append(work.value(attempt.member if is_own else 0, needed))
            else:
                given.append([work.value(one.member, needed) for one in needed(work.name)])
        return given

    def _follows(self) -> bool:
        for _, is_own in self.sources:  # noqa: SIM110 - a generator for every task costs more
            if is_own:
                return True
        return False

    def _content_key(self, member: int) -> bytes:
        if not self._salt:
            salt = b"\0".join((self.name.encode(), _identity(self.function))) + self.shared
            self._salt = digest(salt)
        item = b"" if self.items is None else _identity(self.items[member])
        plain = digest(self._salt + b"\0" + item)
        if self.items is None:
            return digest(plain + member.to_bytes(8, "big"))
        # The same item again is another task: the second of its kind.
        again = self._seen[plain] = self._seen.get(plain, -1) + 1
        return digest(plain + again.to_bytes(8, "big")) if again else plain


def _own(value: object) -> object:
    """A copy of what an attempt may change; what cannot be copied is given to all of them."""
    if isinstance(value, PLAIN):
        return value
    try:
        return deepcopy(value)
    except Exception:
        # The boundary: a client, a lock, whatever the user's own `__deepcopy__` raises.
        return value


def decoded(body: bytes) -> object:
    """A value from its JSON."""
    if not body:
        return None
    try:
        return _DECODER.decode(body.decode())
    except ValueError:
        return body.decode("utf-8", "replace")


def _identity(thing: object) -> bytes:
    """What tells one item or function from another, in any process."""
    if type(thing) is str:  # The usual items first.
        return b"s" + thing.encode("utf-8", "surrogatepass")
    if type(thing) is int:
        return b"%d" % thing
    if isinstance(thing, partial):
        given = (thing.args, tuple(sorted(thing.keywords.items())))
        return _identity(thing.func) + b"\0" + _given(given)
    if isinstance(getattr(thing, "__code__", None), CodeType):
        return _function(thing)
    if callable(thing):
        return getattr(thing, "__qualname__", type(thing).__qualname__).encode()
    try:
        return dumps(thing, sort_keys=True).encode()
    except (TypeError, ValueError):
        pass
    try:
        return pickle.dumps(thing)
    except (pickle.PicklingError, TypeError, AttributeError) as error:
        raise BadValueError(
            f"a {type(thing).__name__} cannot be recognised in another process: {error}",
            hint="give items that JSON or pickle can hold, or leave out `durable`",
        ) from None


def _function(thing: object) -> bytes:
    """A function's code, and the values that it was made with."""
    made = [getattr(thing, "__defaults__", None), getattr(thing, "__kwdefaults__", None)]
    for cell in getattr(thing, "__closure__", None) or ():
        with suppress(ValueError):  # An empty one: what it names is made later.
            made.append(cell.cell_contents)
    return _code(thing) + b"\0".join(map(_given, made))


def _code(thing: object) -> bytes:
    code: CodeType = getattr(thing, "__code__")  # noqa: B009 - of no class that typing knows
    name: str = getattr(thing, "__qualname__", "")
    return name.encode() + _compiled(code)


@lru_cache(CODES_MAX)
def _compiled(code: CodeType) -> bytes:
    return code.co_code + repr(code.co_names).encode() + _constants(code)


def _given(value: object) -> bytes:
    """A value that a function holds: what may change, like a list or a client, by its type only."""
    if isinstance(value, PLAIN):
        return repr(value).encode()
    if isinstance(getattr(value, "__code__", None), CodeType):
        return _code(value)  # Without what it holds itself, which may be the first one.
    if isinstance(value, tuple):
        return b"(" + b",".join(map(_given, value)) + b")"
    return type(value).__qualname__.encode()


def _constants(code: CodeType) -> bytes:
    """Constants of a function, without the addresses of functions within it."""
    parts = [
        _constants(one) + one.co_code if isinstance(one, CodeType) else _constant(one)
        for one in code.co_consts
    ]
    return b"\0".join(parts)


def _constant(value: object) -> bytes:
    """A set is written in another order by every process."""
    return repr(sorted(map(repr, value)) if isinstance(value, frozenset) else value).encode()


# How a run of functions is to be performed: the options that every front door shares.

T = TypeVar("T")


class How(TypedDict, total=False):
    """Options; each has a default."""

    strategy: str
    """`adaptive` (default), `waves:4`, `fixed:8`, `all-at-once`."""
    ceiling: int
    """Never more at once than this, whatever the strategy."""
    retries: int
    """Further attempts of a task whose function raised; default 0."""
    timeout_s: float
    """How long one attempt may take."""
    in_processes: bool
    """Call the function in other processes: for work that keeps a processor busy."""
    durable: str
    """A name: results are kept under it, and the same call in a later process goes on from them."""
    return_exceptions: bool
    """Give exceptions in place of results, instead of raising at the end."""


def must_be_known(how: Mapping[str, object], options: type = How) -> None:
    """Refuse an option that is not there: not every caller is type-checked."""
    names = options.__annotations__
    for name in how:
        if name not in names:
            raise BadValueError(f"there is no option `{name}`", hint=did_you_mean(name, names))


def rules_of(how: How) -> Rules:
    """The engine's rules for these options."""
    retries = how.get("retries", 0)
    ceiling = how.get("ceiling", inf)
    if retries < 0 or ceiling < 1:
        raise BadValueError("`retries` is at least 0 and `ceiling` at least 1")
    return Rules(parse(how.get("strategy", "adaptive")), retries, ceiling=ceiling, is_patient=True)


def agent_of(how: How) -> FunctionAgent:
    """What calls the functions: in processes as many at once as the machine can feed."""
    return FunctionAgent(processes=how.get("ceiling") or cores())


@contextmanager
def journal_of(how: How, tasks: int) -> Iterator[Journal | None]:
    """The journal under the name that `durable` gives, a new one or that of an earlier process."""
    name = how.get("durable")
    if not name:
        yield None
        return
    state, here = folders(os.environ).state, os.getcwd()
    wanted = ("python", name, here)
    found = latest(list_runs(state), lambda one: (one.kind, one.name, one.folder) == wanted)
    if found is not None:
        journal = Journal.open(found.folder)
    else:
        journal = Journal.begin(state, name, "python", "", here, tasks)
    try:
        yield journal
    finally:
        journal.close()


def _goes_on(durable: str | None) -> str:
    if durable:
        return f"interrupted: the same call with durable={durable!r} goes on with what is missing"
    return "interrupted: no result is kept; with durable='NAME' the same call goes on later"


def wait_for(coroutine: Coroutine[Any, Any, T], instead: str, durable: str | None = "") -> T:
    """The one synchronous door: run a coroutine to its end in this thread. An interrupt says how to
    go on: `durable` is the name of what is kept, None if nothing is, empty if that is not its own.
    """
    with suppress(RuntimeError):
        asyncio.get_running_loop()
        coroutine.close()
        raise UsageError(
            "this thread runs an event loop already, which a blocking call would stop",
            hint=f"write `await {instead}(...)`",
        )
    try:
        return asyncio.run(coroutine)
    except KeyboardInterrupt:
        if durable != "":
            print(_goes_on(durable), file=sys.stderr)
        raise
