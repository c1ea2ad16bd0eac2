"""Usage windows of subscriptions: who waits for them, and their size learned from our own use.

Laws:
- A window that is empty, or used up to the user's ceiling, holds the calls that it binds until its
  reset. Of one that is only remembered, one call finds out whether it was paid since.
- A window named by a period alone binds all models of the account; one with another name binds
  those that it was seen to refuse. Those that made it rise by `RISE_MIN`, when no other model had
  been used for `IDLE_S`, count towards shares of it, too. All models of an account share its
  windows.
- Resets move and people buy more: where a refusal is free, one call in `PROBE_S` finds out.
- A window holds what we used while its share rose, divided by that rise. What others use
  meanwhile makes it look smaller, never larger: a response shows what was used when its call was
  sent, and not what was used until it began.
- Shares are rounded to hundredths: a rise of less than `RISE_MIN` gives no size.
- A rise is taken by our flows in proportion to what each used meanwhile: input counts when a call
  is sent, output when it ends. A rise after `IDLE_S`
  without any call of ours is the use of others. What no reading shows yet counts by the size.
- Where a share is reserved for interactive calls, the others stop when they have taken the rest.
  What is used outside comes off the reserve first.
- A run that has taken its share of a window makes no more calls that the window binds until its
  reset; other flows go on.
- A call is sent only if its share, the ceiling and the reserve hold with it and all calls in
  flight, as long as they are expected: a share is exceeded by what they use beyond that or, while
  the size of the window is unknown, by all of them.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable
from math import inf
from typing import Final

from msgspec import Struct, field
from msgspec.structs import replace

from headway.base.values import DAY_S, LimitReading, Wait
from headway.pacing.presence import PersonActivity

RISE_MIN: Final = 0.03
"""A rise of three hundredths is known to a third."""
STEP: Final = 0.01
"""Shares are rounded to this."""
MEMORY: Final = 0.5
"""What earlier windows showed counts by half with every new one: plans change, and so do sizes."""
PROBE_S: Final = 900.0
"""How often a call tries whether an empty window has been filled before its reset."""
UNTOLD_S: Final = DAY_S
"""How long an empty window holds of which neither reset nor period is told."""
IDLE_S: Final = 60.0
"""A run's next call follows sooner; a person who works elsewhere uses a few hundredths an hour."""
RESET_STEP_S: Final = 1.0
"""Resets are rounded down to seconds: a call sent within that second is refused again."""
UNREAD_MAX: Final = 4096
"""Uses that are kept until a response shows them: two of each call in flight."""
RUNS_MAX: Final = 64
"""Runs whose part of a window is kept; a week has room for more than any machine performs."""
PERSON: Final = "interactive"
"""The flow under which all interactive calls of an account count; no run has this name."""
Shares = tuple[float, float]
"""The most that a run takes of a window: of one shorter than a day, of a longer one."""
ALL_OF_EACH: Final[Shares] = (1.0, 1.0)
RUN_SHARES: Final[Shares] = (0.8, 0.5)
"""Of a login, if nothing is set: the person that it belongs to works with it, too."""


def shares_of(share: float | None) -> Shares:
    """The shares of a run; the usual ones, if none is set."""
    return RUN_SHARES if share is None else (share, share)


_EVERY_MODEL: Final = re.compile(r"[0-9]+[mhd]|usage|unified|primary|secondary")


class WindowState(Struct, frozen=True):
    """A usage window, as it stands and as far as it is known: plain data."""

    name: str
    """As its provider calls it: `5h`, `7d`, `7d_oi`."""
    period_s: float | None
    used: float
    """The share, as the last response showed it."""
    resets_s: float
    """From now."""
    tokens: float = 0.0
    """What we used..."""
    rise: float = 0.0
    """...while the share rose by so much."""
    is_empty: bool = False
    models: tuple[str, ...] = ()
    """Those that it refused, unless it is one of all models..."""
    likely: tuple[str, ...] = ()
    """...and those that made it rise."""
    runs: tuple[tuple[str, float], ...] = ()
    """What runs have taken of it since its last reset, as shares."""
    unread: float = 0.0
    """What we used since the last response, by its size."""

    @property
    def used_now(self) -> float:
        """The share with what no response shows yet."""
        return min(1.0, self.used + max(0.0, self.unread))

    def shown(self) -> WindowState:
        """For people: runs have taken no more than is used in all, whatever the size seems."""
        taken = sum([share for _, share in self.runs])
        part = min(1.0, self.used_now / taken) if taken > 0.0 else 1.0
        return replace(self, runs=tuple([(run, part * share) for run, share in self.runs]))

    def counts(self, model: str) -> bool:
        """Whether what a model uses counts towards it, as far as that is known."""
        return binds_all(self.name) or model in self.models or model in self.likely

    @property
    def is_long(self) -> bool:
        return (self.period_s or self.resets_s) >= DAY_S

    @property
    def size_tokens(self) -> float | None:
        """How many tokens it holds, if that can be told."""
        if self.rise < RISE_MIN or self.tokens <= 0.0:
            return None
        return self.tokens / self.rise

    @property
    def doubt(self) -> float:
        """How far off its size may be, as a share of it."""
        return STEP / self.rise if self.rise > 0.0 else 1.0


class _Window(Struct):
    """One window while a process lives."""

    used: float
    resets_at_s: float
    period_s: float | None = None
    tokens: float = 0.0
    rise: float = 0.0
    is_empty: bool = False
    models: set[str] = field(default_factory=set)
    likely: set[str] = field(default_factory=set)
    alone: dict[str, float] = field(default_factory=dict)
    """By run, the tokens of the model that is used alone, if that is not known to count..."""
    alone_rise: float = 0.0
    """...and the rise meanwhile."""
    unread: deque[tuple[float, float]] = field(default_factory=deque)
    """When we used how many tokens that no response shows yet..."""
    unread_tokens: float = 0.0
    """...and their sum."""
    taken: dict[str, float] = field(default_factory=dict)
    """By run, the share that it has taken since the last reset; of other flows under `""`."""
    unseen: dict[str, float] = field(default_factory=dict)
    """By run, the tokens that it used since the share last rose."""
    early: dict[str, float] = field(default_factory=dict)
    """By run, tokens that count by the size: their reading contains the use of others as well."""
    run_tokens: float = 0.0
    """Of all calls since the last reset that are not interactive."""
    pending: float = 0.0
    """A rise that no call explains yet which has ended."""
    is_over: bool = False
    """Whether it was ended by the clock, and no reading of the next one has come yet."""
    is_stale: bool = False
    """Whether the next reading contains what others used while we were idle."""
    old_s: float = inf
    """Since when it tells a reset that is over..."""
    less_s: float = inf
    """...or readings show less than before, though it is not over."""
    read_s: float = -inf
    """When the last reading came: calls that were sent before may tell of less, too late."""
    probe_s: float = inf
    """When one call tries whether it is as it was."""

    def rose(self, rise: float, flying: float) -> None:
        """Attribute a rise to the flows; `flying`: what calls in flight are expected to use."""
        self.pending += rise
        total = sum(self.unseen.values())
        if self.pending > 0.0 and total > 0.0:
            for run, tokens in self.unseen.items():
                _add(self.taken, run, self.pending * tokens / total)
            # What the rounding and the age of this reading hide is shown by the next one.
            most = STEP + self.share_of(flying)
            hidden = min(most, max(0.0, self.share_of(total) - self.pending))
            part = hidden / self.share_of(total) if hidden > 0.0 else 0.0
            self.unseen = {run: part * tokens for run, tokens in self.unseen.items() if part}
            self.pending = 0.0

    def read(self, sent_s: float) -> float:
        """The tokens that a response to a call that was sent then is the first to show."""
        tokens = 0.0
        while self.unread and self.unread[0][0] <= sent_s:
            tokens += self.unread.popleft()[1]
        self.unread_tokens -= tokens
        return tokens

    def is_old(self, used: float, resets_at_s: float, sent_s: float, now: float) -> bool:
        """Whether a reading is older than the last one, as far as it can be told."""
        is_over = now >= self.resets_at_s
        if used < self.used and sent_s <= self.read_s and not is_over:
            return True  # Calls that are in flight together are answered in any order.
        is_less = used < self.used - STEP / 2.0 and not is_over
        self.less_s = min(self.less_s, now) if is_less else inf
        # One of several servers of a provider may not know of the last calls.
        is_same = not self.is_empty and resets_at_s < self.resets_at_s + 2.0 * RESET_STEP_S
        return is_less and is_same and now < self.less_s + IDLE_S

    def skip(self) -> None:
        """Others made a rise that a reading shows: what we used before counts by the size."""
        for run, tokens in self.unseen.items():
            _add(self.early, run, tokens)
        self.unseen.clear()
        self.pending = 0.0

    def bind(self) -> None:
        """The model that was used alone counts: what runs used of it does so by the size."""
        for run, tokens in self.alone.items():
            # Calls that began in company and used less than expected make it negative.
            _add(self.early, run, max(0.0, tokens))
            self.run_tokens += max(0.0, tokens) * (run != PERSON)
        self.part()

    def part(self) -> None:
        """From now on another model is used alone, or none."""
        self.alone.clear()
        self.alone_rise = 0.0

    def shrink(self, part: float) -> None:
        """Less of it is used: it is a larger one, or a new one, or this reading was an old one."""
        for flows in (self.taken, self.early):
            for run in flows:
                flows[run] *= part
        self.run_tokens *= part

    def end(self) -> None:
        """It is over: what was taken of it, and what no reading shows of it, is no more."""
        if not self.is_over:
            for flows in (self.taken, self.unseen, self.early, self.alone):
                flows.clear()
            self.unread.clear()
            self.pending = self.run_tokens = self.unread_tokens = 0.0
        self.is_over = False

    def share_of(self, tokens: float) -> float:
        is_known = self.rise >= RISE_MIN and self.tokens > 0.0
        return tokens * self.rise / self.tokens if is_known else 0.0

    def taken_by(self, run: str) -> float:
        tokens = self.unseen.get(run, 0.0) + self.early.get(run, 0.0)
        return self.taken.get(run, 0.0) + self.share_of(tokens)

    def taken_by_runs(self) -> float:
        """What all calls took that are not interactive. A rise counts as theirs as far as their
        tokens explain it, or all of it while the size of the window is unknown; the rest was used
        outside."""
        flows = {**self.taken, **self.unseen, **self.early}
        taken = sum([self.taken_by(run) for run in flows if run != PERSON])
        taken += max(0.0, self.pending)
        most = self.share_of(self.run_tokens) * self.doubted
        return min(taken, most) if most > 0.0 else taken

    @property
    def doubted(self) -> float:
        """How many times larger a share may be than it seems."""
        return 1.0 + STEP / max(STEP, self.rise)

    def has_room(self, taken: float, tokens: float, share: float) -> bool:
        """Whether a flow may use `tokens` more; the first call of a window always may."""
        if taken <= 0.0:
            return True
        return taken < share and taken + self.share_of(tokens) * self.doubted <= share


class Allowances:
    """What all models of an account share: usage windows, calls in flight and a person."""

    def __init__(self) -> None:
        self.windows: dict[str, _Window] = {}
        self.in_flight = 0
        self.slots = inf
        """The most that the user allows in flight."""
        self.flying: dict[str, float] = {}
        """By flow, what its calls in flight are expected to use: readings come late."""
        self.presence = PersonActivity()
        self.changes = 0
        """How often anything changed: decisions from before do not stand."""
        self._used_s = -inf
        """When a call of ours was last sent or ended..."""
        self._model = ""
        """...to which model..."""
        self._alone_s = -inf
        """...and from when on what calls to others use shows no more."""

    def wait(
        self, model: str, share: float, now: float, reserve: float = 0.0, tokens: float = 0.0
    ) -> Wait | None:
        """The window that holds this call, the one that resets last; runs leave `reserve`."""
        last: Wait | None = None
        flying = tokens + sum(self.flying.values())
        by_runs = flying - self.flying.get(PERSON, 0.0)
        for name, window in self.windows.items():
            used = window.used + max(0.0, window.share_of(window.unread_tokens))
            is_full = window.is_empty or (share < 1.0 and not window.has_room(used, flying, share))
            is_kept = reserve > 0.0 and not window.has_room(
                window.taken_by_runs(), by_runs, share - reserve
            )
            until_s = window.resets_at_s + RESET_STEP_S
            if not ((is_full or is_kept) and now < min(until_s, window.probe_s)):
                continue
            if not _counts(name, window, model):
                continue
            if last is None or until_s > last.until_s:
                why = f"usage window {name} is {window.used:.0%} used"
                if not window.is_empty:
                    kept = f"{reserve:.0%} is kept for interactive calls"
                    why += f", and {f'the ceiling is {share:.0%}' if is_full else kept}"
                last = Wait(_resource(name), until_s, why)
        return last

    def share_wait(
        self, run: str, shares: Shares, tokens: float, model: str, now: float
    ) -> Wait | None:
        """The window of which this run would exceed its share, the one that resets last."""
        last, flying = None, self.flying.get(run, 0.0)
        for name, window in self.windows.items():
            until_s = window.resets_at_s + RESET_STEP_S
            if now >= until_s or not _counts(name, window, model):
                continue
            share = shares[(window.period_s or window.resets_at_s - now) >= DAY_S]
            if share >= 1.0:
                continue
            taken, resource = window.taken_by(run), _resource(name)
            if window.has_room(taken, flying + tokens, share):
                continue
            why = f"usage window {name}: this run has used its {share:.0%} share"
            if flying and window.has_room(taken, tokens, share):
                resource = f"calls in flight/{name}"
                why = f"usage window {name}: calls in flight use up this run's {share:.0%} share"
            if last is None or until_s > last.until_s:
                last = Wait(resource, until_s, why)
        return last

    def next_probe_s(self, now: float) -> float:
        """When a call will next try whether a window is as it was."""
        return min((one.probe_s for one in self.windows.values() if one.probe_s > now), default=inf)

    def sent(self, model: str, now: float) -> None:
        """A call leaves: if it tries an empty window, the next try is later."""
        is_idle, self._used_s = now - self._used_s > IDLE_S, now
        for name, window in self.windows.items():
            window.is_stale = window.is_stale or is_idle
            if now >= window.probe_s and _counts(name, window, model):
                window.probe_s = now + PROBE_S
                self.changes += 1

    def observe(
        self, told: LimitReading, refused: str, may_probe: bool, sent_s: float, now: float
    ) -> None:
        """Learn from a reading in a response to a call; `refused` is the model of a refused one."""
        self.changes += 1
        # A window whose reset is not told lasts no longer than its period.
        lasts_s = told.period_s or UNTOLD_S if told.reset_s is None else told.reset_s
        used, resets_at_s = told.utilization or 0.0, now + lasts_s
        window = self.windows.setdefault(told.window, _Window(used, resets_at_s))
        if window.is_old(used, resets_at_s, sent_s, now):
            return
        is_let_in = window.is_empty and sent_s >= window.read_s and not refused
        if told.is_empty and window.is_empty and lasts_s < RESET_STEP_S:
            # It is still empty after its reset: the reset that it tells is an old one.
            window.old_s = min(window.old_s, window.resets_at_s)
            resets_at_s = now + (told.period_s or UNTOLD_S)
        else:
            window.old_s = inf
        self._count(told.window, window, used, sent_s, now)
        window.is_stale, window.read_s = False, now
        window.used, window.resets_at_s = used, resets_at_s
        # Without a period in its name or headers, a window lasts as long as its longest reset.
        window.period_s = told.period_s or max(window.period_s or 0.0, told.reset_s or 0.0) or None
        window.is_empty = told.is_empty
        if told.is_empty and refused:
            window.models.add(refused)
            if refused == self._model:
                window.bind()
        elif told.is_empty and is_let_in:
            window.likely.clear()
        if window.old_s < inf:
            window.probe_s = now + min(PROBE_S, max(RESET_STEP_S, now - window.old_s))
        elif not (told.is_empty and may_probe):
            window.probe_s = inf
        elif window.probe_s == inf:
            # Where it is not certain that it binds a model, one call finds out at once.
            window.probe_s = now if window.likely - window.models else now + PROBE_S

    def _count(self, name: str, window: _Window, used: float, sent_s: float, now: float) -> None:
        """Learn its size from a reading, and divide the rise among the flows."""
        flying, tokens = sum(self.flying.values()), window.read(sent_s)
        is_over = now >= window.resets_at_s
        if is_over or window.less_s < inf:
            window.tokens, window.rise = MEMORY * window.tokens, MEMORY * window.rise
            window.end() if is_over else window.shrink(used / window.used)
            # Others may have used the new one before us: of its share, ours is what we sent.
            window.rose(min(used, window.share_of(sum(window.unseen.values()))), flying)
        elif window.is_stale:
            window.skip()
        elif not (tokens or window.unseen or _counts(name, window, self._model)):
            if sent_s >= self._alone_s:
                window.alone_rise += used - window.used
                if window.alone_rise >= RISE_MIN:
                    window.likely.add(self._model)
                    window.bind()
        else:
            window.tokens += tokens
            window.rise += used - window.used
            window.rose(used - window.used, flying)

    def join(self, flow: str, tokens: float) -> None:
        """Count the tokens that a call in flight used before the first reading of the windows."""
        for window in self.windows.values():
            _add(window.early, flow, tokens)
            if flow != PERSON:
                window.run_tokens += tokens

    def fly(self, flow: str, tokens: float) -> None:
        """Calls in flight are expected to use so many tokens more, or less."""
        self.flying[flow] = left = self.flying.get(flow, 0.0) + tokens
        if left < 0.5:
            del self.flying[flow]

    def use(self, model: str, tokens: float, run: str, now: float) -> None:
        """A call to this model, of this run or of none, uses this many tokens more."""
        self._used_s = now
        if model != self._model:
            self._alone_s = now + IDLE_S if self._model else -inf
            self._model = model
            for window in self.windows.values():
                window.part()
        for name, window in self.windows.items():
            if not _counts(name, window, model):
                _add(window.alone, run, tokens)
            else:
                if now >= window.resets_at_s and not window.is_over:
                    window.end()
                    window.is_over = True
                # Less than expected, if it follows a reading, is taken off the next rise.
                window.unread.append((now, tokens))
                window.unread_tokens += tokens
                if len(window.unread) > UNREAD_MAX:
                    window.read(window.unread[0][0])
                window.unseen[run] = max(0.0, window.unseen.get(run, 0.0) + tokens)
                if run != PERSON:
                    window.run_tokens = max(0.0, window.run_tokens + tokens)

    def refresh(self) -> None:
        """People bought more, or a reset moved: one call finds out."""
        self.changes += 1
        for window in self.windows.values():
            window.probe_s = window.less_s = -inf

    def restore(self, kept: Iterable[WindowState], at_s: float) -> None:
        """Go on from where windows stood at `at_s`; what is known already stays."""
        for one in kept:
            window = _Window(one.used, at_s + one.resets_s, one.period_s, one.tokens, one.rise,
                             one.is_empty, set(one.models), set(one.likely), is_stale=True,
                             taken=dict(one.runs), probe_s=-inf)  # fmt: skip
            window.run_tokens = sum(share for _, share in one.runs) * (one.size_tokens or 0.0)
            window.unread_tokens = one.unread * (one.size_tokens or 0.0)
            window.unread.append((at_s, window.unread_tokens))
            self.windows.setdefault(one.name, window)

    def statistics(self, now: float) -> tuple[WindowState, ...]:
        """As they stand; a window that is over is unused."""
        found = []
        for name, one in self.windows.items():
            is_over = now >= one.resets_at_s
            models = () if binds_all(name) else tuple(sorted(one.models))
            likely = tuple(sorted(one.likely - one.models))
            flows = {**one.taken, **one.unseen, **one.early}
            runs = [(run, one.taken_by(run)) for run in flows if run not in ("", PERSON)]
            found.append(WindowState(
                name, one.period_s, 0.0 if is_over else one.used,
                max(0.0, one.resets_at_s - now), one.tokens, one.rise,
                one.is_empty and not is_over, models, likely, () if is_over else tuple(runs),
                one.share_of(one.unread_tokens),
            ))  # fmt: skip
        return tuple(found)


def _add(flows: dict[str, float], run: str, amount: float) -> None:
    flows[run] = flows.pop(run, 0.0) + amount
    if len(flows) > RUNS_MAX:
        del flows[next(iter(flows))]


def binds_all(name: str) -> bool:
    """Whether a window of this name is one of all models."""
    return _EVERY_MODEL.fullmatch(name) is not None


def _resource(name: str) -> str:
    return f"{'usage' if binds_all(name) else 'one model'}/{name}"


def _counts(name: str, window: _Window, model: str) -> bool:
    return binds_all(name) or model in window.models or model in window.likely
