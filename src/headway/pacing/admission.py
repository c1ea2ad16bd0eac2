"""All accounts of a user: what each call waits for, which may be sent now, which never will.

Laws:
- A call waits for the leader of its cached beginning, then for the budgets, then for its account.
- Before the account it is parked, in order of arrival, and tried again after an event or its time.
- What can never be granted is denied when its turn comes, with the reason and what to do about it.
- A decision is made until nothing moves any more: what one call gives up may let another one go.
- One dictionary holds every call from its request to its settlement.
- An account has the user's name, else that of the organisation in its responses, else its key's.
  When another name becomes known, all that was learned under the old one moves, and its calls too.
"""

from __future__ import annotations

from collections import OrderedDict
from functools import partial
from math import inf
from typing import Final, Literal

from msgspec import Struct
from msgspec.structs import replace

from headway.base.numbers import remember
from headway.base.values import (
    Amounts,
    Budget,
    FaultKind,
    Reading,
    Spend,
    Wait,
)
from headway.errors import AccountClosedError, BudgetReachedError, DemandTooLargeError, HeadwayError
from headway.pacing.account import AccountConfig
from headway.pacing.budget import ALL, MonthlyBudgets, Pot, unpriced
from headway.pacing.call import (
    UNKNOWN,
    Call,
    CallId,
    Denied,
    Door,
    Granted,
    Outcome,
    Request,
    share_texts,
    shared_path,
)
from headway.pacing.calls import AccountCalls
from headway.pacing.estimate import Estimates, Prices
from headway.pacing.headers import DIALECTS, PLAIN, Dialect
from headway.pacing.memory import (
    HOUR_UNKNOWN,
    AccountMemory,
    AccountTerms,
    Chronicle,
    PacingMemory,
    account_of,
    joined,
    model_group,
    slots_of,
    terms_of,
)
from headway.pacing.prompt_cache import GRACE_S, PromptCaches, beginnings
from headway.pacing.width import SIZE_SHARE
from headway.pacing.windows import Allowances

REOPEN_S: Final = 30.0
"""A closed account is tried again this often: paying needs no restart."""
CLOSING: Final[tuple[FaultKind, ...]] = ("billing", "spend_cap")
"""Faults after which an account takes no calls until it is paid."""
FOLLOWS: Final = Wait("prompt cache", inf, "the first answer with the same beginning")
BUDGETED: Final = Wait("budget", inf, "what calls in flight leave of it")
ACCOUNTS_MAX: Final = 1024
"""Accounts that are kept; beyond this, the idle ones that were made first make room."""
IDLE_FORGOTTEN: Final = 64
"""Idle accounts are dropped in batches of this size: each writes the whole memory, in 50 ms."""
KEPT_SIZES: Final = 64
"""Calls further back in a queue are sized in their turn: 100,000 sizes take 20 MB."""
LONG_AGO_S: Final = -1e9
"""When a size was estimated that is to be estimated anew in its turn."""
CHANGES_MAX: Final = 4096
"""Changed claims that are kept for the next save; beyond, it writes the whole memory. A process
that admits its calls by itself saves nothing."""
MemoryPart = Literal["all", "changes", "money"]


class AdmissionDecision(Struct, frozen=True):
    """What may go, what never will or is to be ended, and when to decide again at the latest."""

    grants: tuple[Granted, ...]
    denials: tuple[Denied, ...]
    wake_s: float


class ManagedAccount(AccountCalls):
    """An account as a broker keeps it: under a user's terms, with its history."""

    def __init__(
        self, name: str, group: str, terms: AccountTerms, dialect: Dialect, now: float,
        memory: AccountMemory | None = None, known_s: float = -inf,
        allowances: Allowances | None = None,
    ) -> None:  # fmt: skip
        """With a memory it goes on from where it stood at `known_s`."""
        profile = None if memory is None else memory.profile
        config = AccountConfig(
            dialect, terms.limits, terms.share, terms.pace, profile, terms.reserve
        )
        super().__init__(config, now, allowances, group)
        self.name, self.group = self.key = name, group
        self.terms = terms
        self.known_s = known_s
        """When the levels stood as this began with; calls from before are in them."""
        self.is_new = memory is None
        """Whether nothing was known, and nothing granted before the terms were last changed."""
        self.has_spoken = False
        """Whether a response has shown its dialect."""
        self.closed_s = inf
        self.chronicle = Chronicle() if memory is None else Chronicle(memory.chronicle, known_s)
        if memory is not None:
            self.account.restore(memory.levels, known_s, now)
            self.account.allowances.restore(memory.windows, known_s)

    def speak(self, name: str) -> Dialect:
        """The dialect after a response in this one; PLAIN replaces none that was seen."""
        config = self.account.config
        if name in DIALECTS and not (name == PLAIN.name and self.has_spoken):
            self.has_spoken = True
            if name != config.dialect.name:
                config = self.account.config = replace(config, dialect=DIALECTS[name])
        return config.dialect

    def finish(self, call: Call, outcome: Outcome, used: Amounts, now: float) -> None:
        """Settle a call and write down how it went."""
        company, fault = self.account.speed.in_flight, outcome.fault
        self.settle(call, outcome.how, used, now, fault, outcome.reading)
        if fault is not None:
            self.chronicle.refused(fault.kind, now)
            if fault.kind in CLOSING:
                self.closed_s = now
        elif outcome.how == "used":
            drawn = 0.0
            for one in self.account.limits:
                if one.draw_per_s > 0.0:
                    drawn = max(drawn, one.draw_per_s / one.limit.rate_per_s)
            # What was not counted, or was sent by another process, is not timed.
            first_s: float | None = None
            rest_s: float | None = None
            if outcome.tally.known == "unknown" or call.is_adopted:
                pass
            elif not call.demand.is_whole:
                if call.answered_s is not None:
                    first_s, rest_s = call.answered_s - call.sent_s, now - call.answered_s
            elif used.output_tokens > 0:
                rest_s = SIZE_SHARE * (now - call.sent_s)
                first_s = now - call.sent_s - rest_s
            self.chronicle.answered(now, used, first_s, rest_s, company, drawn)

    def retermed(
        self, terms: AccountTerms, now: float, name: str = "", windows: Allowances | None = None,
        other: ManagedAccount | None = None,
    ) -> ManagedAccount:  # fmt: skip
        """The same account under other terms, or another name under which `other` was known."""
        is_new = self.is_new and self.granted == 0
        kept = None if is_new else self.memory(now)
        if other is not None and (theirs := other.memory(now)) is not None:
            kept = theirs if kept is None else joined(theirs, kept)
        dialect = self.account.config.dialect
        fresh = ManagedAccount(
            name or self.name, self.group, terms, dialect, now, kept, now,
            windows or self.account.allowances,
        )  # fmt: skip
        fresh.has_spoken = self.has_spoken
        fresh.is_new, fresh.known_s = is_new and other is None, self.known_s
        if other is None:
            fresh.chronicle = self.chronicle
        both = (self,) if other is None else (self, other)
        for one in both:
            one.hand_over()
        fresh.account.presence = self.account.presence
        fresh.account.presence.move(fresh.account.allowances.presence)
        for one in both:
            # Levels of limits that both knew contain the calls of one of them.
            known_s = now if other in (None, one) else -inf
            for call in one.in_flight.values():
                fresh.adopt(call, call.sent_s, known_s, now)
            for call in one.waiting:
                call.held = None
                fresh.ask(call)
        fresh.granted, fresh.refused = (
            sum(one.granted for one in both), sum(one.refused for one in both)
        )  # fmt: skip
        return fresh

    def memory(self, now: float, is_change: bool = False) -> AccountMemory:
        """What is worth keeping. What the user set is no knowledge: it is in the terms."""
        account = self.account
        profile = account.profile()
        learned = tuple(
            limit
            for tracked, limit in zip(account.limits, profile.limits, strict=True)
            if not tracked.exact
        )
        return AccountMemory(
            self.name, self.group, account.config.dialect.name,
            replace(profile, limits=learned), account.standing(now),
            self.chronicle.memory(now, is_change), account.allowances.statistics(now),
        )  # fmt: skip


class Admission:
    """All that is known of a user's accounts, and every call that waits or is in flight."""

    def __init__(
        self, memory: PacingMemory, prices: Prices, now: float, age_s: float = 0.0
    ) -> None:
        """Go on from a memory that was written `age_s` before `now`."""
        self._terms = dict(memory.terms)
        self._names, self._owners = dict(memory.names), dict(memory.owners)
        self.hour = HOUR_UNKNOWN
        self._allowances: dict[str, Allowances] = {}
        self._accounts: dict[tuple[str, str], ManagedAccount] = {}
        # Model groups share usage windows: those of the group that changed last count.
        for kept in reversed(memory.accounts):
            self._windows_of(kept.account).restore(kept.windows, now - age_s - kept.age_s)
        for kept in memory.accounts:
            terms = terms_of(self._terms, kept.account, kept.group)
            dialect = DIALECTS.get(kept.dialect, PLAIN)
            self._accounts[kept.account, kept.group] = ManagedAccount(
                kept.account, kept.group, terms, dialect, now, kept, now - age_s - kept.age_s,
                self._windows_of(kept.account),
            )  # fmt: skip
        self._changed: dict[tuple[str, str], None] = {}
        """Accounts that are not in the memory as it was last taken, in order."""
        self.is_rearranged = False
        """Whether names or terms changed or accounts went: only the whole memory shows that."""
        self.budgets = MonthlyBudgets(memory, now)
        self._estimates = Estimates(prices)
        self._caches = PromptCaches()
        self.unsent = 0
        """How many calls were not sent and not denied yet."""
        self._calls: dict[CallId, Call] = {}
        self._unclaimed: dict[CallId, Call] = {}
        """Calls in flight that no budget counts: what they may take is claimed when looked at."""
        self._queued: dict[tuple[str, str], None] = {}
        """Accounts where calls may wait."""
        self._parked: dict[Door, OrderedDict[CallId, Call]] = {}
        self._denials: dict[CallId, Denied] = {}

    @property
    def accounts(self) -> list[ManagedAccount]:
        return list(self._accounts.values())

    def ask(self, id: CallId, request: Request, now: float) -> None:
        """A call wants a permit. Asking again for the same call changes nothing."""
        if id not in self._calls:
            if id in self.budgets.orphans:
                # A call that asks was not sent: what a former process kept for it is free.
                self.budgets.settle(id, None)
            self._enter(self._open(id, request, now), now)

    def leave(self, id: CallId) -> Wait | None:
        """Give up waiting; says what for, or None if the call was not waiting."""
        call = self._calls.get(id)
        if call is None or call.is_sent:
            return None
        wait = self.why(id)
        if self._denials.pop(id, None) is None:
            self._withdraw(call)
        self._close(call)
        return wait

    def why(self, id: CallId) -> Wait | None:
        """What a waiting call waits for; None if it does not wait, or only for its turn."""
        call = self._calls.get(id)
        if call is None or call.is_sent:
            return None
        if call.parked is not None:
            return FOLLOWS if isinstance(call.parked, tuple) else BUDGETED
        return call.held or self._accounts[call.account].wait

    def account_of(self, id: CallId) -> str:
        """The account of a call that waits or is in flight."""
        call = self._calls.get(id)
        return "" if call is None else call.account[0]

    def calls_of(self, client: str) -> list[CallId]:
        return [id for id in self._calls if id[0] == client]

    def decide(self, now: float) -> AdmissionDecision:
        """All that can be granted or denied now, what is to be cut, and when to ask again."""
        grants: list[Granted] = []
        moved = -1
        while moved < len(grants) + len(self._denials):
            moved = len(grants) + len(self._denials)
            wake_s = self.budgets.expire(now) if self.budgets.orphans else inf
            if self._parked:
                wake_s = min(wake_s, self._try_parked(now))
            names = [*self._queued]
            if len(names) > 1:
                names.sort(key=lambda name: not self._accounts[name].is_person_first)
            for name in names:
                account = self._accounts[name]
                decision = account.decide(now, self._size)
                if decision.sent:
                    self._changed[name] = None
                for call in decision.sent:
                    self._sent(call, now)
                    grants.append(Granted(call.id, call.waited_for, call.demand.expected))
                if decision.blocked is None:
                    del self._queued[name]
                elif decision.wait is not None and decision.wait.until_s == inf:
                    self._deny_hopeless(account, decision.wait, decision.blocked)
                if decision.sent and name in self._queued:
                    # Models that share the account's slots take turns.
                    self._queued[name] = self._queued.pop(name)
                wake_s = min(wake_s, decision.wake_s)
            if not self._parked and not self._denials:
                break
        denials, self._denials = tuple(self._denials.values()), {}
        for denied in denials:
            call = self._calls[denied.id]
            if not call.is_sent:
                self._close(call)
        return AdmissionDecision(tuple(grants), denials, wake_s)

    def reached(self, id: CallId) -> None:
        """A call has a connection to a provider that could not be reached."""
        call = self._calls.get(id)
        if call is not None and call.is_sent:
            self._accounts[call.account].reached()

    def first_byte(self, id: CallId, reading: Reading, dialect: str, now: float) -> None:
        """An answer began, with these headers."""
        call = self._calls.get(id)
        if call is None or call.sent_s == inf:
            return
        if reading.owner:
            self._owned(call, reading.owner, now)
        account = self._change(call)
        account.speak(dialect)
        call.answered_s = now
        account.first_byte(call, reading, now)
        if call.beginnings:
            self._caches.answered(call)

    def progress(self, id: CallId, output_tokens: float, now: float) -> bool:
        """An answer has grown to so many tokens; True if more is claimed for it than before."""
        call = self._calls.get(id)
        if call is None or not call.is_sent:
            return False
        self._change(call).progress(call, output_tokens, now)
        return call.request.is_soft and self._grew(call, output_tokens)

    def settle(self, id: CallId, outcome: Outcome, now: float) -> bool:
        """A call in flight ends; only the first time does anything, and returns True."""
        call = self._calls.get(id)
        if call is None or call.sent_s == inf:
            return False
        if outcome.reading.owner:
            self._owned(call, outcome.reading.owner, now)
        account, request = self._change(call), call.request
        estimates, tally, dialect = self._estimates, outcome.tally, account.speak(outcome.dialect)
        used, spend = Amounts(), None
        if outcome.how == "used":
            spend = estimates.spend(
                request.sketch, tally, lambda: self._claim(call), request.is_soft
            )
            used = estimates.usage(call.demand, tally, spend, dialect)
            if outcome.fault is None:
                estimates.learn(request.sketch, call.demand, tally)
        if self._unclaimed.pop(id, None) is None:
            self.budgets.settle(id, spend)
        elif spend is not None:
            self.budgets.took(spend, account.name)
        account.finish(call, outcome, used, now)
        self._close(call)
        return True

    def gone(self, client: str, now: float) -> int:
        """A client died: what it had sent was sent. Returns how many permits it held."""
        held = 0
        for id in self.calls_of(client):
            if self.settle(id, Outcome("used"), now):
                held += 1
            else:
                self.leave(id)
        return held

    def adopt(self, id: CallId, request: Request, age_s: float, now: float) -> bool:
        """A call that was sent under a former broker's permit; True if it was not known."""
        if id in self._calls:
            return False
        call = self._open(id, request, now)
        self._size(call, now)
        self.budgets.adopt(id, call.account[0], self._claim(call))
        account = self._change(call)
        account.adopt(call, now - age_s, account.known_s, now)
        self._sent(call, now)
        return True

    def configure(self, key: str, terms: AccountTerms, now: float) -> None:
        """Terms of an account, an `account/group` or all (``); a budget alone changes no limit."""
        self._terms[key] = terms
        self.is_rearranged = True
        self._reterm(now)
        if not self.budgets.set_budget(key, terms.budget):
            return
        waiting = [
            call for call in self._calls.values() if not (call.is_sent or call.parked is not None)
        ]
        for call in self._calls.values():
            if call.is_sent:
                # Where the budget is the first in money, no price was claimed for it.
                request = call.request
                whole = self._estimates.claim(request.sketch, request.is_soft)
                whole = whole.at_least(self.budgets.held(call.id))
                self.budgets.hold(call.id, whole, (call.account[0], ALL))
        self._unclaimed.clear()
        # Calls in the queue go through every door again.
        for call in waiting:
            if self._denials.pop(call.id, None) is None:
                self._withdraw(call)
        for call in waiting:
            self._enter(call, now)

    def _reterm(self, now: float) -> None:
        """Have every account use the terms that hold for it now."""
        for name, shared in self._allowances.items():
            shared.slots = slots_of(self._terms, name)
            shared.changes += 1
        for key, account in list(self._accounts.items()):
            wanted = terms_of(self._terms, *key)
            if replace(wanted, budget=account.terms.budget) != account.terms:
                self._accounts[key] = account.retermed(wanted, now)
                self._changed[key] = None

    def refresh(self, account: str = "") -> None:
        """Usage windows of this account, or of all, may have been filled: one call finds out."""
        for name, windows in self._allowances.items():
            if account in ("", name):
                windows.refresh()

    def forget(self, account: str) -> None:
        """What was learned and set of an account that no call uses; what was spent stays."""
        if any(call.account[0] == account for call in self._calls.values()):
            return
        self.is_rearranged = True
        self._allowances.pop(account, None)
        for kept in (self._accounts, self._queued, self._changed):
            for key in [key for key in kept if key[0] == account]:
                del kept[key]
        for whose in [whose for whose in self._terms if whose.partition("/")[0] == account]:
            del self._terms[whose]
            self.budgets.set_budget(whose, Budget())

    def name(self, account: str, name: str, now: float) -> None:
        """A user's name for an account or a key, or none; accounts of one name become one."""
        self.is_rearranged = True
        if name:
            self._names[account] = name
            self._move(account, name, now)
            return
        keys = [key for key, given in self._names.items() if account in (key, given)]
        for key in keys:
            given = self._names.pop(key)
            # What several learned together cannot be told apart: each begins anew.
            if len(keys) == 1 and given not in self._names.values():
                self._move(given, account_of(self._names, self._owners, key), now)

    def _owned(self, call: Call, owner: str, now: float) -> None:
        """A response named the organisation that pays for a call."""
        key, login = call.request.account, call.request.login
        if login:
            # A person can have a seat in several organisations, each with limits of its own.
            owner = f"{owner}-{login.rpartition('#')[2]}"
        if self._owners.get(key) == owner:
            return
        self.is_rearranged = True
        for one in filter(None, (key, login)):
            remember(self._owners, one, str)
            self._owners[one] = owner
            self._move(one, account_of(self._names, self._owners, one), now)
        # Its calls were taken for those of the account that its login had before.
        name = account_of(self._names, self._owners, key, login)
        for other in [one for one in self._calls.values() if one.request.account == key]:
            if other.account[0] != name:
                self._transfer(other, name, now)

    def _transfer(self, call: Call, name: str, now: float) -> None:
        """A call belongs to another account than it was taken for, which learns nothing from it."""
        moved = name, call.account[1]
        if moved not in self._accounts:
            self._make(moved, call.request.dialect, now)
        if call.is_sent:
            before = self._accounts[call.account]
            before.settle(call, "unused", Amounts(), now)
            before.granted -= 1
            if call.id not in self._unclaimed:
                self.budgets.hold(call.id, self.budgets.held(call.id), (name, ALL))
            self._accounts[moved].adopt(call, call.sent_s, -inf, now)
        elif self._denials.pop(call.id, None) is None:
            self._withdraw(call)
        call.account = moved
        if not call.is_sent:
            self._enter(call, now)

    def _move(self, old: str, new: str, now: float) -> None:
        """What was learned, set and spent under one name goes on under another."""
        if old == new:
            return
        calls = [call for call in self._calls.values() if call.account[0] == old]
        waiting = [call for call in calls if not call.is_sent]
        for call in waiting:
            if self._denials.pop(call.id, None) is None:
                self._withdraw(call)
        for whose in [whose for whose in self._terms if whose.partition("/")[0] == old]:
            self._terms.setdefault(new + whose[len(old) :], self._terms.pop(whose))
        self.budgets.rename(old, new)
        windows, before = self._windows_of(new), self._allowances.pop(old, Allowances())
        for name, window in before.windows.items():
            windows.windows.setdefault(name, window)
        for key in [key for key in self._accounts if key[0] == old]:
            self._queued.pop(key, None)
            self._changed.pop(key, None)
            account, moved = self._accounts.pop(key), (new, key[1])
            other = self._accounts.get(moved)
            terms = terms_of(self._terms, *moved)
            self._accounts[moved] = account.retermed(terms, now, new, windows, other)
        self._reterm(now)
        for call in calls:
            call.account = new, call.account[1]
        for call in waiting:
            self._enter(call, now)

    def turn(self, hour: int, now: float) -> None:
        """It is this hour of the day now."""
        self.hour = hour
        for account in self._accounts.values():
            account.chronicle.turn(hour, now)

    def keys(self) -> tuple[tuple[str, str], ...]:
        """The keys, logins and organisations whose account has another name, with that name."""
        known = {**self._owners, **self._names}
        found = [(key, account_of(self._names, self._owners, key)) for key in known]
        return tuple([(key, name) for key, name in found if key != name])

    def terms(self) -> tuple[tuple[str, AccountTerms], ...]:
        return tuple(self._terms.items())

    def memory(self, now: float, part: MemoryPart = "all") -> PacingMemory:
        """All that outlives this process, or what changed: all of it or `money`."""
        is_change, accounts = part != "all", self._accounts
        if not is_change:
            self.is_rearranged = False
            self._changed = dict.fromkeys(accounts)
        self._claim_all()
        names: dict[tuple[str, str], None] = {}
        if part != "money":
            names, self._changed = self._changed, {}
        memory = replace(
            self.budgets.memory(not is_change, self._is_out),
            accounts=tuple([accounts[name].memory(now, is_change) for name in names]),
        )
        if is_change:
            return memory
        return replace(
            memory, terms=self.terms(), names=tuple(self._names.items()),
            owners=tuple(self._owners.items()),
        )  # fmt: skip

    def _change(self, call: Call) -> ManagedAccount:
        """The account of a call that teaches it something."""
        self._changed[call.account] = None
        return self._accounts[call.account]

    def _is_out(self, id: CallId) -> bool:
        call = self._calls.get(id)
        return call is None or call.is_sent

    def _make(self, key: tuple[str, str], dialect: str, now: float) -> None:
        """An account that is new; one that is idle may have to go."""
        if len(self._accounts) >= ACCOUNTS_MAX:
            accounts = self._accounts.items()
            idle = [name for name, one in accounts if not one.waiting and not one.in_flight]
            for name in idle[:IDLE_FORGOTTEN]:
                del self._accounts[name]
                self._changed.pop(name, None)
                self._queued.pop(name, None)
                self.is_rearranged = True
                if not any(account == name[0] for account, _ in self._accounts):
                    self._allowances.pop(name[0], None)
        terms = terms_of(self._terms, *key)
        windows = self._windows_of(key[0])
        made = ManagedAccount(*key, terms, DIALECTS.get(dialect, PLAIN), now, allowances=windows)
        made.chronicle.turn(self.hour, now)
        self._accounts[key] = made
        self._changed[key] = None

    def _windows_of(self, account: str) -> Allowances:
        if account not in self._allowances:
            self._allowances[account] = Allowances()
            self._allowances[account].slots = slots_of(self._terms, account)
        return self._allowances[account]

    def _open(self, id: CallId, request: Request, now: float) -> Call:
        name = account_of(self._names, self._owners, request.account, request.login)
        account = name, model_group(request.sketch.model)
        if account not in self._accounts:
            self._make(account, request.dialect, now)
        if self.unsent:
            share_texts(request)
        # A call that was sent and refused comes before those of its flow that were not.
        rank = now - GRACE_S if request.is_resent else now
        call = Call(
            id, now, request.path or shared_path((id[0],)), rank, request=request,
            account=self._accounts[account].key,
            beginnings=beginnings(account, request.sketch) if request.sketch.prefix else (),
        )  # fmt: skip
        self._calls[id] = call
        self.unsent += 1
        return call

    def _close(self, call: Call) -> None:
        del self._calls[call.id]
        self._denials.pop(call.id, None)
        self.unsent -= call.sent_s == inf
        if call.beginnings:
            self._caches.ended(call)

    def _enter(self, call: Call, now: float) -> float:
        """Go as far as possible; returns when to try again, inf if only an event helps."""
        if call.beginnings and not call.request.is_interactive:
            follows, until_s = self._caches.leads(call, now)
            if follows is not None:
                self._park(call, follows)
                return until_s
        self._size(call, now)
        account = self._accounts[call.account]
        if self.budgets.keys:
            refusal, claim = self._unbounded(call), self._claim(call)
            if refusal is None:
                room = self.budgets.claim(call.id, claim, (account.name, ALL))
                if room == "later":
                    self._park(call, account.name)
                    return inf
                if room == "never":
                    about = "about" if call.request.is_soft else "up to"
                    refusal = self.budgets.no_room(account.name, f"a call of {about} {claim}")
            if refusal is not None:
                self._unpark(call)
                self._deny(call, refusal)
                return inf
        if call.parked is not None:
            self._unpark(call)
        if now - account.closed_s >= REOPEN_S:
            # Long after an account was closed, one call may find out whether it still is.
            account.closed_s = inf
            account.account.pauses.reopen()
        account.ask(call)
        self._queued[call.account] = None
        if account.queued > KEPT_SIZES and not call.request.is_interactive:
            call.demand, call.sized_s = UNKNOWN, LONG_AGO_S
        return inf

    def _size(self, call: Call, now: float) -> None:
        """Estimate what a call will consume, by all that is known now."""
        request, account = call.request, self._accounts[call.account].account
        cached_bytes = self._caches.look(call, now) if call.beginnings else 0
        call.demand = self._estimates.size(
            request.sketch, account.config.dialect, cached_bytes, request.is_interactive
        )
        call.sized_s = now

    def _claim(self, call: Call) -> Spend:
        """What is claimed for a call in flight; of any other, what is to be claimed."""
        if call.is_sent and call.id not in self._unclaimed:
            return self.budgets.held(call.id)
        return self._estimates.claim(call.request.sketch, call.request.is_soft)

    def _claim_all(self) -> None:
        """Claim what calls in flight may take, where no budget had it claimed before."""
        for call in self._unclaimed.values():
            self.budgets.hold(call.id, self._claim(call), (call.account[0], ALL))
        self._unclaimed.clear()

    def ledgers(self) -> tuple[tuple[str, Pot], ...]:
        """Every budget, or account without one, as it stands."""
        self._claim_all()
        return self.budgets.ledgers()

    def _sent(self, call: Call, now: float) -> None:
        """A call is in flight."""
        self.unsent -= 1
        budgets = self.budgets
        if not budgets.keys and not budgets.has_claim(call.id):
            self._unclaimed[call.id] = call
        else:
            if len(budgets.changed_claims) >= CHANGES_MAX:
                budgets.changed_claims.clear()
                self.is_rearranged = True
            budgets.changed_claims[call.id] = None
        if call.beginnings:
            self._caches.sent(call, now)

    def _withdraw(self, call: Call) -> None:
        """Leave the door or the queue."""
        if self.budgets.has_claim(call.id):
            self.budgets.settle(call.id, None)
        if call.parked is None:
            self._accounts[call.account].leave(call)
        self._unpark(call)

    def _park(self, call: Call, door: Door) -> None:
        """Wait at a door, behind those who do; a call that waits there keeps its place."""
        if call.parked != door:
            self._unpark(call)
            call.parked = door
            call.waited_for = FOLLOWS.resource if isinstance(door, tuple) else BUDGETED.resource
            self._parked.setdefault(door, OrderedDict())[call.id] = call

    def _unpark(self, call: Call) -> None:
        door, call.parked = call.parked, None
        if door is not None:
            del self._parked[door][call.id]
            if not self._parked[door]:
                del self._parked[door]
            self.budgets.leave(call.id)

    def _try_parked(self, now: float) -> float:
        """Let calls go on whose reason is gone, in order of arrival; returns when to try again."""
        wake_s = inf
        for parked in list(self._parked.values()):
            while parked:
                id, call = next(iter(parked.items()))
                wake_s = min(wake_s, self._enter(call, now))
                if id in parked:
                    break
        return wake_s

    def _deny(self, call: Call, error: HeadwayError) -> None:
        self._denials[call.id] = Denied(call.id, error.code, error.message, error.hint or "")
        if call.beginnings:
            self._caches.ended(call)

    def _unbounded(self, call: Call) -> BudgetReachedError | None:
        """Why a budget has to refuse a call: it has no price, or its answer has no end."""
        request = call.request
        pots, keys = self.budgets.pots, self.budgets.keys
        budgets = [pots[key].budget for key in (call.account[0], ALL) if key in keys]
        in_money = any(budget.microusd is not None for budget in budgets)
        if in_money and not self._estimates.has_price(request.sketch):
            return unpriced(request.sketch.model)
        if not budgets or request.is_soft or request.sketch.max_output_tokens is not None:
            return None
        return BudgetReachedError(
            "there is a budget, and this call does not limit the length of its answer",
            hint="set max_tokens (OpenAI: max_completion_tokens or max_output_tokens; Gemini: "
            "maxOutputTokens)",
        )

    def _grew(self, call: Call, output_tokens: float) -> bool:
        """An answer has so many tokens by now; True if more is kept for it than before."""
        sketch = call.request.sketch
        if call.id in self._unclaimed:
            return False
        most = output_tokens if call.is_cut else sketch.max_output_tokens
        cost_of = partial(self._estimates.grown, sketch)
        room = self.budgets.grow(
            call.id, output_tokens, cost_of, inf if most is None else float(most)
        )
        if room == "never" and not call.is_cut:
            call.is_cut = True
            what = f"more of this answer, which was ended at {output_tokens:,.0f} tokens"
            error = self.budgets.no_room(call.account[0], what)
            self._denials[call.id] = Denied(call.id, error.code, error.message, error.hint or "")
        return room is not None

    def _deny_hopeless(self, account: ManagedAccount, wait: Wait, first: Call) -> None:
        """Deny calls that wait and that no time and no event will help."""
        denied: list[Call] = [first]
        error: HeadwayError
        if wait.resource == "account":
            hint = "check the account with its provider; it is asked again every 30 seconds"
            error = AccountClosedError(f"{account.name} takes no calls: {wait.reason}", hint=hint)
            denied = account.waiting
        else:
            limits = account.account.limits
            short = [one.limit.name for one in limits if not one.can_ever(first.demand)]
            if account.account.allowances.in_flight and not short:
                return
            hint = "make the call smaller, or change what is set with `headway limits`"
            what = f"{(short or [wait.resource])[0]} leaves too little for this call, for good"
            error = DemandTooLargeError(what, hint=hint)
        for call in denied:
            self._withdraw(call)
            self._deny(call, error)
