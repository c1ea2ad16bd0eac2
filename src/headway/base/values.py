"""The records that every folder shares: limits, demands, usage, permits, waits, faults.

Units are in the names: seconds end in `_s`, money is integer micro-dollars (`_microusd`),
everything else that is counted is tokens or calls.
"""

from __future__ import annotations

from typing import Final, Literal

from msgspec import Struct

from headway.base.numbers import number_of

Resource = Literal["requests", "input", "output", "tokens", "concurrency", "spend"]
"""What a limit counts. `tokens` is input and output together."""

LimitKind = Literal["bucket", "sliding", "fixed", "gauge"]
"""How a limit counts: refills all the time, over the last period, per aligned period, at once."""

Charging = Literal["reserved", "kept", "produced"]
"""When output is charged: `max_tokens` at admission, and the rest comes back or not; or as it is
produced."""

LimitSource = Literal["configured", "header", "learned", "profile"]
"""Where a limit is known from, in falling order of authority for a user's own configuration."""

FaultKind = Literal[
    "rate",  # a limit per period was hit: wait, then send the same call again
    "concurrency",  # too many calls at once: fewer in flight, then again
    "overload",  # the provider, not the account, is out of capacity
    "spend_cap",  # the account's own spending limit: waiting does not help
    "billing",  # no credit: waiting does not help
    "access",  # the key, the model's name or the address is wrong: true of every such call
    "request",  # this call is wrong and stays wrong; no other call is affected
    "broken",  # the call was sent, and its connection or its answer broke off
    "server",  # the provider failed before it answered
    "timeout",  # nothing came in time
    "stuck",  # a command did nothing for longer than it may
    "connection",  # not one byte was sent: free to send again
    "command",  # a command ended with a non-zero exit code
    "function",  # the user's function raised
    "unfit",  # an answer came and is not what was asked for
    "bounced",  # what would have landed lowers the objective: once more, with the evidence
    "rejected",  # work was sent back as often as the plan allows
    "disk",  # a disk was full: wait until it has room, then do the same again
]

Known = Literal["reported", "estimated", "unknown"]
"""How a consumption is known: the provider said so, we counted, or not at all."""

SettledAs = Literal["used", "unused", "throttled"]
"""The three ways a permit ends: the call ran, the call was never sent, the provider refused it."""

MINUTE_S: Final = 60.0
HOUR_S: Final = 3600.0
DAY_S: Final = 86400.0

CACHE_S: Final = 300.0
"""How long prompt caches keep a beginning without use, unless more is asked for."""


class Limit(Struct, frozen=True, gc=False):
    """A number that the provider enforces, and how it counts towards it."""

    resource: Resource
    amount: float
    period_s: float = MINUTE_S
    kind: LimitKind = "bucket"
    burst: float | None = None
    source: LimitSource = "configured"

    @property
    def rate_per_s(self) -> float:
        """Refill of a bucket, or the long-run rate of a window; a gauge has none."""
        return self.amount / self.period_s if self.period_s > 0 else 0.0

    @property
    def capacity(self) -> float:
        """The most that can be taken at one instant."""
        return self.amount if self.burst is None else self.burst

    @property
    def name(self) -> str:
        """`input/60s`, `concurrency`: unique within a quota, readable in a reason."""
        if self.kind == "gauge":
            return self.resource
        return f"{self.resource}/{self.period_s:g}s"


class Amounts(Struct, frozen=True, gc=False):
    """Consumption of one call, by resource. A call is always one request and one slot."""

    input_tokens: float = 0.0
    output_tokens: float = 0.0
    spend_microusd: int = 0


class Demand(Struct, frozen=True, gc=False):
    """What a call will probably consume (rate limits) and at most consume (money, reservations)."""

    expected: Amounts
    ceiling: Amounts
    kind: str = ""
    """Calls of one kind share learned ratios and output lengths."""
    is_whole: bool = False
    """The answer comes in one piece: nothing of it is seen before its end."""
    is_interactive: bool = False
    """A person waits for the answer."""


class Wait(Struct, frozen=True, gc=False):
    """Why a call may not be made yet, and until when at least."""

    resource: str
    until_s: float
    reason: str


class LimitReading(Struct, frozen=True, gc=False):
    """One limit as one response reported it. `None` is what the response did not say."""

    resource: Resource
    period_s: float | None
    limit: float | None
    remaining: float | None
    reset_s: float | None
    """Seconds from the response until the limit is full again (bucket) or resets (window)."""
    utilization: float | None = None
    """Share used, 0 to 1, where the provider reports only that (usage windows)."""
    window: str = ""
    """The name of a usage window."""
    is_empty: bool = False
    """Whether the window lets no call in; one that is used up may, where more use is paid for."""


class Reading(Struct, frozen=True, gc=False):
    """Everything that one response said about the account's limits."""

    limits: tuple[LimitReading, ...] = ()
    retry_after_s: float | None = None
    should_retry: bool | None = None
    owner: str = ""
    """The organisation that the response names, as an account name: `anthropic#1a2b3c4d`."""


class Fault(Struct, frozen=True, gc=False):
    """Why a call failed, in headway's words. `resource` is named when the provider named it."""

    kind: FaultKind
    resource: Resource | None = None
    retry_after_s: float | None = None
    detail: str = ""


class Sketch(Struct, frozen=True, gc=False, omit_defaults=True):
    """What can be seen of a call before it is sent; what it will consume is estimated from this."""

    model: str
    content: str = "english"
    """What its text is made of: inputs of one model and content share tokens per byte."""
    size_bytes: int = 0
    """All that the model reads, in bytes of ordinary text; digits, for instance, weigh more."""
    messages: int = 1
    max_output_tokens: int | None = None
    """The longest answer that the call allows, where it says so; of all choices together."""
    kind: str = ""
    """Calls of one kind have answers of similar length."""
    prefix: str = ""
    """A digest of the beginning that the provider can keep in its prompt cache, if there is one."""
    prefix_bytes: int = 0
    turns: tuple[tuple[str, int], ...] = ()
    """Digests and bytes of shorter beginnings, the longest first: prompts of the same conversation
    before this one ended there."""
    shared: str = ""
    """A digest of the instructions that the provider can keep: other conversations begin so too."""
    shared_bytes: int = 0
    keeps_s: float = CACHE_S
    """How long the provider keeps them without use."""
    is_whole: bool = False
    """The answer does not stream."""
    most_input_tokens: int = 0
    """The most that its text can be counted as, a token per byte; what is not text is estimated."""
    may_write_cache: bool = False
    """Whether the provider may charge its input for being written into a prompt cache."""


class CacheTokens(Struct, frozen=True, omit_defaults=True):
    """What calls read from prompt caches and wrote into them."""

    read: float = 0.0
    written: float = 0.0
    rewritten: float = 0.0
    """Of those written, the ones that a conversation had written before: its cache had expired."""

    def __add__(self, other: CacheTokens) -> CacheTokens:
        return CacheTokens(
            self.read + other.read, self.written + other.written, self.rewritten + other.rewritten
        )

    def minus(self, other: CacheTokens) -> CacheTokens:
        return CacheTokens(
            self.read - other.read, self.written - other.written, self.rewritten - other.rewritten
        )


NO_CACHE: Final = CacheTokens()


class Tally(Struct, frozen=True, gc=False, omit_defaults=True):
    """The tokens of one call, as its answer reported them or as far as they could be counted."""

    input_tokens: float = 0.0
    """Without those read from the prompt cache."""
    cache_read_tokens: float = 0.0
    output_tokens: float = 0.0
    known: Known = "reported"
    cache_write_tokens: float = 0.0
    """Of the input, those that were written into the prompt cache, which costs more."""
    long_write_tokens: float = 0.0
    """Of these, the ones that are kept for an hour, which costs still more."""
    rewrite_tokens: float = 0.0
    """Of those written, the ones that an earlier call of the conversation had written."""

    @property
    def cache(self) -> CacheTokens:
        return CacheTokens(self.cache_read_tokens, self.cache_write_tokens, self.rewrite_tokens)


class Spend(Struct, frozen=True, gc=False):
    """What something takes of a budget."""

    tokens: float = 0.0
    microusd: int = 0
    unpriced: int = 0
    """Calls whose price is unknown: `microusd` does not contain their cost."""

    def plus(self, other: Spend) -> Spend:
        return Spend(
            self.tokens + other.tokens, self.microusd + other.microusd,
            self.unpriced + other.unpriced,
        )  # fmt: skip

    def minus(self, other: Spend) -> Spend:
        return Spend(
            self.tokens - other.tokens, self.microusd - other.microusd,
            self.unpriced - other.unpriced,
        )  # fmt: skip

    def at_least(self, other: Spend) -> Spend:
        """The larger of both in tokens and in money."""
        tokens, microusd = max(self.tokens, other.tokens), max(self.microusd, other.microusd)
        return Spend(tokens, microusd, self.unpriced)

    def __str__(self) -> str:
        money = f", ${self.microusd / 1e6:,.4f}" if self.microusd else ""
        return f"{self.tokens:,.0f} tokens{money}"


NOTHING: Final = Spend()


class Budget(Struct, frozen=True, gc=False):
    """The most that a user wants to spend. `None` is no limit."""

    tokens: int | float | None = None
    microusd: int | None = None

    def left(self, spent: Spend) -> Budget:
        """What is left of it, at least one token or micro-dollar."""
        tokens = None if self.tokens is None else max(1, self.tokens - spent.tokens)
        money = None if self.microusd is None else max(1, self.microusd - spent.microusd)
        return Budget(tokens, money)


NO_BUDGET: Final = Budget()
AMOUNT_MAX: Final = 1e12
"""Of dollars or tokens: no provider sells as much."""


def parse_budget(text: str) -> Budget | None:
    """`$6` is money, `5M` and `3000` are tokens; `None` if it is neither."""
    amount = number_of(text.removeprefix("$"))
    if amount is None or not 0.0 <= amount <= AMOUNT_MAX:
        return None
    if text.startswith("$"):
        return Budget(microusd=round(amount * 1e6))
    return Budget(tokens=int(amount)) if amount == int(amount) else None
