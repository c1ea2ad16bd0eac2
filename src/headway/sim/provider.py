"""A provider as a pure state machine: limits, latency, congestion, faults.

Laws:
- `submit` accepts or refuses at once. What happens later comes out of `advance`.
- With n calls in flight each proceeds at 1/s(n) of its speed alone, s(n) = 1 + sigma (n - 1) +
  kappa n (n - 1) (the Universal Scalability Law): throughput n/s(n) peaks and then falls. A call
  ends when the one work clock has advanced by its own work.
- The same terms, calls and seed give the same log, to the bit.
"""

from __future__ import annotations

import heapq
from collections import OrderedDict
from math import inf
from typing import Final, Literal

from msgspec import Struct
from msgspec.structs import replace

from headway.base.values import Fault, FaultKind, LimitReading, Reading, Resource, Sketch
from headway.sim.account import Needs, SimulatedAccount, Terms
from headway.sim.draw import uniform

FAULT_STREAM: Final = 71
"""The stream of draws that decides faults; distinct from every other use of the seed."""

PROGRESS_TOKENS: Final = 10
PROGRESS_OFTEN: Final = 100
"""Streams show every tenth token up to the hundredth, then as often as they double."""

WORK_SLACK_S: Final = 1e-9
"""The work clock is a sum of many small steps: what misses its target by less has reached it."""

_FIELD_OF: Final = {"limit": "limit", "remaining": "remaining", "reset": "reset_s"}
_KIND_OF: Final[dict[Resource, FaultKind]] = {"concurrency": "concurrency", "spend": "spend_cap"}


class Latency(Struct, frozen=True):
    """How long a call takes alone, and what company does to it."""

    first_byte_s: float = 1.0
    per_output_token_s: float = 0.02
    sigma: float = 0.0
    kappa: float = 0.0
    background: int = 0
    """Other customers' calls in flight at all times: they congest, they use none of our limits."""

    def work_s(self, output_tokens: float) -> float:
        """Time alone, in an idle provider."""
        return self.first_byte_s + self.per_output_token_s * output_tokens

    def slowdown(self, in_flight: float) -> float:
        """s(n): how many times slower than alone a call proceeds."""
        n = max(1.0, in_flight + self.background)
        return 1.0 + self.sigma * (n - 1.0) + self.kappa * n * (n - 1.0)


class FaultModel(Struct, frozen=True):
    """What goes wrong: a share of all accepted calls, and intervals that refuse every call."""

    share: float = 0.0
    kinds: tuple[FaultKind, ...] = ("server", "overload", "broken")
    outages: tuple[tuple[float, float], ...] = ()
    hang_share: float = 0.0
    """Calls that are accepted and never answered."""
    retry_after: Literal["honest", "none", "misleading"] = "honest"
    """Misleading: a minute for everything, the way some proxies answer for a free slot."""
    refused_as: Literal["rate", "overload"] = "rate"
    """What a refusal without advice looks like: nginx answers 503 unless told otherwise."""


class ProviderSpec(Struct, frozen=True):
    """Everything that makes one simulated provider."""

    name: str
    terms: Terms = Terms()
    latency: Latency = Latency()
    faults: FaultModel = FaultModel()
    dialect: str = "anthropic"
    """Whose headers it speaks; `plain` speaks none, so that limits stay hidden."""
    omits: tuple[Literal["limit", "remaining", "reset"], ...] = ()
    """Headers that it leaves out."""


class SimulatedCall(Struct, frozen=True):
    """A call as it really is: sizes that the caller only estimates, and its own luck."""

    id: int
    input_tokens: float
    output_tokens: float
    max_tokens: float
    luck: float = 1.0
    """Factor on its time to first byte; the pace of tokens is the provider's."""
    spend_microusd: float = 0.0
    is_whole: bool = False
    """The answer is not streamed: headers and text arrive together at its end."""
    model: str = ""


CACHED_TOKENS_MIN: Final = 1024
"""Shorter beginnings are not kept, as at the real providers."""

CACHE_ENTRIES_MAX: Final = 100_000
"""What was used the longest ago is forgotten first."""

CachePlace = tuple[str, str, str]
"""Account, model, digest of the beginning."""

CachedPrompt = tuple[tuple[CachePlace, int], ...]
"""Beginnings of a prompt and their tokens, the longest first."""


def cached_prompt(sketch: Sketch, account: str, input_tokens: int) -> CachedPrompt:
    """What the cache can keep of a prompt of so many tokens."""
    found: dict[CachePlace, int] = {}
    for digest, size_bytes in (
        (sketch.prefix, sketch.prefix_bytes),
        *sketch.turns,
        (sketch.shared, sketch.shared_bytes),
    ):
        tokens = min(input_tokens - 1, round(input_tokens * size_bytes / max(1, sketch.size_bytes)))
        if digest and tokens >= CACHED_TOKENS_MIN:
            found[account, sketch.model, digest] = tokens
    return tuple(found.items())


class PromptCache:
    """Beginnings of prompts, each for as long as its last call asked for, from its last use on."""

    def __init__(self) -> None:
        self._until_s: OrderedDict[CachePlace, float] = OrderedDict()

    def read(self, prompt: CachedPrompt, now: float) -> tuple[int, int, int]:
        """Tokens that are read, those to be written, and of these the ones written before."""
        read = known = 0
        for place, tokens in reversed(prompt):
            if place in self._until_s:
                known = tokens
                read = tokens if now < self._until_s[place] else read
        return read, (prompt[0][1] if prompt else 0) - read, max(0, known - read)

    def write(self, prompt: CachedPrompt, keeps_s: float, now: float) -> None:
        """A call with this prompt has sent its first byte."""
        for place, _ in prompt:
            self._until_s[place] = now + keeps_s
            self._until_s.move_to_end(place)
        while len(self._until_s) > CACHE_ENTRIES_MAX:
            self._until_s.popitem(last=False)


class Refused(Struct, frozen=True):
    """The call was turned away at once."""

    fault: Fault
    reading: Reading


class FirstByte(Struct, frozen=True):
    """The response begins, with the limits as they were when the call was admitted."""

    call_id: int
    reading: Reading


class StreamProgress(Struct, frozen=True):
    """A stream has produced so many tokens."""

    call_id: int
    output_tokens: float


class SimulatedEnd(Struct, frozen=True):
    """The call is over: whole, or broken off with a fault."""

    call_id: int
    input_tokens: float
    output_tokens: float
    fault: Fault | None = None


Happening = FirstByte | StreamProgress | SimulatedEnd


class _Service(Struct):
    """A call in service."""

    call: SimulatedCall
    key: str
    needs: Needs
    reading: Reading
    end_work: float
    output_tokens: float
    fault: Fault | None
    send: int = 0
    """Which submission this is: the same call may come again after it was cancelled."""
    streaming_from: float | None = None
    shown: float = 0.0


class Provider:
    """All accounts of one provider on one work clock."""

    __slots__ = (
        "_accounts", "_at_s", "_due", "_in_service", "_seed", "_streaming", "_work",
        "arrivals", "shows_progress", "spec",
    )  # fmt: skip

    def __init__(self, spec: ProviderSpec, seed: int, now: float = 0.0) -> None:
        self.spec = spec
        self.arrivals: list[float] = []
        self.shows_progress = False
        """Whether streams report as they go."""
        self._seed = seed
        self._at_s = now
        self._work = 0.0
        self._accounts: dict[str, SimulatedAccount] = {"": SimulatedAccount(spec.terms, now)}
        self._in_service: dict[int, _Service] = {}
        self._streaming: dict[str, int] = {}
        self._due: list[tuple[float, int, int]] = []

    def account(self, key: str = "") -> SimulatedAccount:
        """The account behind a key, opened on first use."""
        found = self._accounts.get(key)
        if found is None:
            found = self._accounts[key] = SimulatedAccount(self.spec.terms, self._at_s)
        return found

    @property
    def in_flight(self) -> int:
        return len(self._in_service)

    def submit(self, call: SimulatedCall, now: float, key: str = "") -> Refused | None:
        """Accept a call (None) or refuse it. The caller has advanced the provider to `now`."""
        self._flow(now)
        account = self.account(key)
        reserved = self.spec.terms.charging != "produced"
        output_tokens = call.max_tokens if reserved else call.output_tokens
        needs = Needs(call.input_tokens, output_tokens, call.spend_microusd, call.model)
        drawn = _drawn_fault(self.spec.faults, self._seed, len(self.arrivals))
        fault = _refusal(self.spec.faults, account, needs, drawn, now)
        self.arrivals.append(now)
        if fault is not None:
            account.refuse(now)
            return Refused(fault, Reading(self._reported(account, now), fault.retry_after_s))
        account.admit(needs, now, str(call.id))
        self._serve(_Service(call, key, needs, Reading(self._reported(account, now)), 0.0,
                             call.output_tokens, None), drawn)  # fmt: skip
        return None

    def _reported(self, account: SimulatedAccount, now: float) -> tuple[LimitReading, ...]:
        """The limits as this provider's headers report them."""
        readings = account.readings(now)
        if not self.spec.omits:
            return readings
        left_out = {_FIELD_OF[word]: None for word in self.spec.omits}
        return tuple([replace(reading, **left_out) for reading in readings])

    def cancel(self, call_id: int, now: float) -> SimulatedEnd | None:
        """The caller hung up: what was produced so far stays charged."""
        self._flow(now)
        service = self._in_service.get(call_id)
        if service is None:
            return None
        service.output_tokens, service.fault = self.produced(call_id), Fault("timeout")
        return self._end(service, now)

    def produced(self, call_id: int) -> float:
        """Tokens that a call in service has written."""
        service = self._in_service[call_id]
        if service.streaming_from is None:
            return 0.0
        elapsed = self._work - service.streaming_from
        return min(service.output_tokens, elapsed / self.spec.latency.per_output_token_s)

    def next_s(self) -> float:
        """When something happens next if no call is submitted or cancelled."""
        upcoming = min(account.next_change_s(self._at_s) for account in self._accounts.values())
        while self._due and not self._is_alive(self._due[0]):
            heapq.heappop(self._due)
        if self._due:
            upcoming = min(upcoming, self._due_s())
        return upcoming

    def advance(self, now: float) -> list[Happening]:
        """Everything that happens up to `now`, in order."""
        happenings: list[Happening] = []
        while (at := self.next_s()) <= now:
            is_due = bool(self._due) and self._due_s() <= at
            self._flow(at)
            if is_due:
                # Late on the clock, the last bit of work may take no time that it can show.
                self._work = max(self._work, self._due[0][0])
            for account in self._accounts.values():
                account.advance(at)
            while self._due and self._due[0][0] <= self._work + WORK_SLACK_S:
                entry = heapq.heappop(self._due)
                if self._is_alive(entry):
                    happenings += self._happen(self._in_service[entry[2]], at)
        self._flow(now)
        return happenings

    def _due_s(self) -> float:
        """When the first thing that is due happens, if no call comes or goes before."""
        waiting = max(0.0, self._due[0][0] - self._work)
        return self._at_s + waiting * self.spec.latency.slowdown(len(self._in_service))

    def _is_alive(self, entry: tuple[float, int, int]) -> bool:
        """Whether something that is due belongs to a call that is still in service."""
        service = self._in_service.get(entry[2])
        return service is not None and service.send == entry[1]

    def _flow(self, now: float) -> None:
        """Move the work clock to `now`; streams produce what they produce meanwhile."""
        elapsed = now - self._at_s
        if elapsed <= 0:
            return
        work = elapsed / self.spec.latency.slowdown(len(self._in_service))
        self._work += work
        pace = self.spec.latency.per_output_token_s
        for key, account in self._accounts.items():
            streams = self._streaming.get(key, 0)
            account.produce(streams * work / pace if streams else 0.0, self._at_s, now)
        self._at_s = now

    def _serve(self, service: _Service, drawn: FaultKind | None) -> None:
        call, latency = service.call, self.spec.latency
        self._in_service[call.id] = service
        service.send = len(self.arrivals)
        draw = uniform(self._seed, FAULT_STREAM + 1, len(self.arrivals))
        if draw < self.spec.faults.hang_share:
            return
        if drawn == "broken":
            service.output_tokens = float(int(call.output_tokens * draw))
            service.fault = Fault("broken", None, None, "stream cut")
        first = self._work + latency.first_byte_s * call.luck
        service.end_work = first + latency.per_output_token_s * service.output_tokens
        heapq.heappush(self._due, (first, service.send, call.id))

    def _happen(self, service: _Service, now: float) -> list[Happening]:
        """What a client sees of the next step of a call: of a whole answer only the end."""
        is_whole = service.call.is_whole
        seen: list[Happening] = []
        if service.streaming_from is None:
            service.streaming_from = self._work
            self._streaming[service.key] = self._streaming.get(service.key, 0) + 1
            if not is_whole:
                seen.append(FirstByte(service.call.id, service.reading))
        elif self._work + WORK_SLACK_S >= service.end_work:
            first = [FirstByte(service.call.id, service.reading)] if is_whole else []
            return [*first, self._end(service, now)]
        else:
            seen.append(StreamProgress(service.call.id, service.shown))
        # The next thing that a stream does: show some tokens, or end.
        due = service.end_work
        if self.shows_progress and not is_whole:
            step = PROGRESS_TOKENS if service.shown < PROGRESS_OFTEN else service.shown
            shown = service.shown + step
            at = service.streaming_from + shown * self.spec.latency.per_output_token_s
            if at < due:
                due, service.shown = at, shown
        heapq.heappush(self._due, (due, service.send, service.call.id))
        return seen

    def _end(self, service: _Service, now: float) -> SimulatedEnd:
        call = service.call
        del self._in_service[call.id]
        if service.streaming_from is not None:
            self._streaming[service.key] -= 1
        self.account(service.key).finish(service.needs, service.output_tokens, now)
        return SimulatedEnd(call.id, call.input_tokens, service.output_tokens, service.fault)


def _drawn_fault(faults: FaultModel, seed: int, index: int) -> FaultKind | None:
    """The fault of one submission, if any: a fresh draw each time a call is sent."""
    if faults.share <= 0 or uniform(seed, FAULT_STREAM, 2 * index) >= faults.share:
        return None
    pick = uniform(seed, FAULT_STREAM, 2 * index + 1)
    return faults.kinds[int(pick * len(faults.kinds))]


def _refusal(
    faults: FaultModel, account: SimulatedAccount, needs: Needs, drawn: FaultKind | None, now: float
) -> Fault | None:
    """Why a call is refused at once; None if it is accepted."""
    if any(begin <= now < end for begin, end in faults.outages):
        return Fault("overload", None, None, "provider overloaded")
    short = account.shortage(needs, now)
    if short is None:
        return None if drawn in (None, "broken") else Fault(drawn, None, None, "drawn")
    resource, until_s = short
    kind = _KIND_OF.get(resource, "rate")
    if faults.retry_after == "none":
        return Fault(faults.refused_as, None, None, "too many requests")
    wait_s = until_s - now if faults.retry_after == "honest" else 60.0
    return Fault(kind, resource, wait_s if wait_s < inf else None, f"{kind} limit")
