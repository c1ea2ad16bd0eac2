"""What the broker's file promises, whatever happened before it is saved, cut or spoilt."""

from __future__ import annotations

import os
from pathlib import Path
from random import Random

import pytest
from msgspec.structs import replace

from headway.base.values import Budget, Fault, Limit, LimitReading, Reading, Sketch, Spend, Tally
from headway.broker.store import Store, StoredMemory
from headway.pacing.admission import Admission
from headway.pacing.budget import MonthlyBudgets
from headway.pacing.call import CallId, Outcome, Request
from headway.pacing.estimate import Price
from headway.pacing.memory import AccountMemory, AccountTerms, PacingMemory
from headway.pacing.streams import BIN_S

EPOCH_S = 2.0**30
"""The clock on the wall at second 0; times here are multiples of 1/8, so that no sum is rounded."""
ACCOUNTS = ("one", "two", "three")
CLIENTS = ("ann", "bob", "eve")
MODELS = ("claude-sonnet-4-5", "claude-haiku-4-5")
FAULTS = (Fault("rate", retry_after_s=2.0), Fault("overload"), Fault("concurrency"))
PRICE = Price(3_000_000, 15_000_000, 300_000)


class Broker:
    """Clients, accounts and a store; everything happens at random."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.path, self.chance, self.now = folder / "memory.dat", Random(seed), 1000.0
        self.date = "2026-11-01"
        self.admission, self.held = self.taken_up(PacingMemory()), dict[CallId, Request]()
        no_budget = AccountTerms(budget=Budget(tokens=0.0))
        self.admission.configure("three", no_budget, self.now)
        self.store, self.connected = self.opened(), set[str]()
        self.calls = self.inode = 0
        self.granted: dict[tuple[str, str], int] = {}
        self.saves: list[tuple[int, StoredMemory]] = []
        """How long the file was after each save into it, and what it said then."""

    def opened(self, suffix: str = "") -> Store:
        return Store(f"{self.path}{suffix}", lambda: EPOCH_S + self.now)

    def taken_up(self, memory: PacingMemory, age_s: float = 0.0) -> Admission:
        admission = Admission(memory, lambda *_: PRICE, self.now, age_s)
        admission.budgets.turn(self.date)
        return admission

    def act(self) -> None:
        acts = (self.ask, self.ask, self.answer, self.answer, self.settle, self.pass_time)
        rare = (self.configure, self.connect, self.turn, self.die, self.hand_over, self.rename)
        self.chance.choice(acts if self.chance.random() < 0.93 else rare)()
        if self.chance.random() < 0.3:
            self.save()

    def ask(self) -> None:
        sketch = Sketch(self.chance.choice(MODELS), size_bytes=400, max_output_tokens=2000)
        is_soft = self.chance.random() < 0.5
        call = (self.chance.choice(CLIENTS), self.calls)
        request = Request(self.chance.choice(ACCOUNTS), "anthropic", sketch, is_soft=is_soft)
        self.calls += 1
        self.held[call] = request
        self.admission.ask(call, request, self.now)
        for denied in self.admission.decide(self.now).denials:
            del self.held[denied.id]

    def answer(self) -> None:
        for call in self.one_call():
            used, left = self.chance.choice((0.25, 0.5, 0.75)), self.chance.choice((40.0, 900.0))
            told = (
                LimitReading("tokens", 18000.0, None, None, 3600.0, used, "5h"),
                LimitReading("input", 60.0, 1000.0, left, None),
            )
            if self.chance.random() < 0.3:
                owner = self.chance.choice(("", "", "", "org"))
                self.admission.first_byte(call, Reading(told, owner=owner), "anthropic", self.now)
            else:
                self.admission.progress(call, self.chance.choice((50.0, 900.0)), self.now)

    def settle(self) -> None:
        for call in self.one_call():
            outcome = Outcome("used", Tally(100.0, 0.0, self.chance.choice((5.0, 900.0))))
            if self.chance.random() < 0.3:
                outcome = Outcome("throttled", fault=self.chance.choice(FAULTS))
            if self.admission.settle(call, outcome, self.now) or self.admission.leave(call):
                del self.held[call]

    def pass_time(self) -> None:
        self.now += self.chance.choice((0.125, 1.0, 20.0, 70.0))

    def configure(self) -> None:
        limits = (Limit("tokens", self.chance.choice((1e3, 1e6)), 60.0, "bucket"),)
        budget = Budget(tokens=self.chance.choice((None, 0.0, 5e3, 1e9)))
        terms = AccountTerms(self.chance.choice((limits, ())), budget=budget)
        self.admission.configure(self.chance.choice(("", *ACCOUNTS)), terms, self.now)

    def connect(self) -> None:
        client = self.chance.choice(CLIENTS)
        if client in self.connected:
            self.connected.remove(client)
        else:
            self.connected.add(client)

    def turn(self) -> None:
        self.date = f"2026-1{self.chance.choice('12')}-{self.chance.randint(1, 28):02}"
        self.admission.budgets.turn(self.date)
        self.admission.turn(self.chance.randrange(24), self.now)

    def rename(self) -> None:
        self.admission.name(self.chance.choice(ACCOUNTS), self.chance.choice(("", "x")), self.now)

    def die(self) -> None:
        client = self.chance.choice(CLIENTS)
        self.admission.gone(client, self.now)
        self.held = {call: it for call, it in self.held.items() if call[0] != client}

    def hand_over(self) -> None:
        """Another broker goes on; some clients ask again for what they had."""
        self.save(is_money=False)
        self.store, kept = self.opened(), self.opened().load()
        self.admission = self.taken_up(kept.memory, kept.age_s)
        self.save(is_money=False)
        for call, request in list(self.held.items()):
            if self.chance.random() < 0.5:
                self.admission.adopt(call, request, 1.0, self.now)
            elif self.chance.random() < 0.5:
                self.admission.ask(call, request, self.now)
            else:
                del self.held[call]

    def save(self, is_money: bool | None = None) -> None:
        is_money = self.chance.random() < 0.4 if is_money is None else is_money
        clients = set(self.connected)
        assert self.store.save(self.admission, self.now, clients, is_money=is_money) == ""
        found = os.stat(self.path)
        if found.st_ino != self.inode:
            self.inode, self.saves, is_money = found.st_ino, [], False
        self.saves.append((found.st_size, self.store.look()))
        self.must_hold(self.saves[-1][1], is_money)

    def one_call(self) -> list[CallId]:
        return self.chance.sample(sorted(self.held), min(1, len(self.held)))

    def must_hold(self, kept: StoredMemory, is_money: bool) -> None:
        """Whether the file says what admission knows."""
        memory, budgets = kept.memory, self.admission.budgets
        assert set(kept.clients) == self.connected
        assert memory.month == budgets.month
        assert dict(memory.terms) == dict(self.admission.terms())
        assert dict(memory.names) == self.admission._names
        assert dict(memory.owners) == self.admission._owners
        out = {one.id: one for one in budgets.claims() if self.admission._is_out(one.id)}
        assert {one.id: one for one in memory.claims} == out
        again = self.taken_up(PacingMemory(memory.month, days=memory.days)).budgets
        assert _spent(again) == _spent(budgets)
        assert dict(memory.days) == dict(budgets.days())
        if is_money:
            return
        live = {(one.name, one.group): one.memory(self.now) for one in self.admission.accounts}
        known = tuple([live.pop((one.account, one.group)) for one in memory.accounts])
        assert live == {}
        for kept_one in memory.accounts:
            key = kept_one.account, kept_one.group
            granted = self.admission._accounts[key].granted
            assert kept_one.age_s == 0.0 or granted == self.granted.get(key), "a grant is a change"
            self.granted[key] = granted
        assert [_learned(one) for one in memory.accounts] == [_learned(one) for one in known]
        # What streams in flight take of a level comes back with their calls; what neighbours
        # take is not remembered.
        busy = {
            (one.name, one.group)
            for one in self.admission.accounts
            if one.in_flight or any(limit.draw_per_s for limit in one.account.limits)
        }
        terms, accounts = self.admission.terms(), memory.accounts
        heir = self.taken_up(PacingMemory(terms=terms, accounts=accounts)).accounts
        peer = self.taken_up(PacingMemory(terms=terms, accounts=known)).accounts
        for one, other in zip(heir, peer, strict=True):
            mine, theirs = one.memory(self.now), other.memory(self.now)
            assert mine.windows == theirs.windows
            one.chronicle.turn(0, self.now)
            other.chronicle.turn(0, self.now)
            assert one.chronicle.memory(self.now) == other.chronicle.memory(self.now)
            if (one.name, one.group) not in busy:
                for level, limit in zip(mine.levels, other.account.limits, strict=True):
                    bin_s = BIN_S * limit.limit.rate_per_s
                    assert level.remaining == pytest.approx(limit.level(self.now), abs=bin_s)


def _learned(one: AccountMemory) -> tuple[object, ...]:
    return one.account, one.group, one.dialect, one.profile


def _spent(budgets: MonthlyBudgets) -> dict[str, Spend]:
    """To a thousandth of a token: sums of days are rounded in another order."""
    found = [(key, pot.spent) for key, pot in budgets.ledgers() if pot.spent != Spend()]
    return {key: replace(spent, tokens=round(spent.tokens, 3)) for key, spent in found}


@pytest.mark.parametrize("seed", range(8))
def test_a_file_that_is_cut_or_spoilt_anywhere_says_what_the_last_whole_save_said(
    tmp_path: Path, seed: int
) -> None:
    broker = Broker(tmp_path, seed)
    for _ in range(300):
        broker.act()
    broker.hand_over()
    for _ in range(3):
        broker.settle()
        broker.save()
    whole, cut = broker.path.read_bytes(), Path(f"{broker.path}.cut")
    for (before, kept), (after, last) in zip(broker.saves, broker.saves[1:], strict=False):
        for at in range(before, after + 1, 1 if seed == 0 and after == len(whole) else 97):
            expected = last if at == after else kept
            cut.write_bytes(whole[:at])
            assert broker.opened(".cut").look() == expected
            if at < after:
                cut.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
                assert broker.opened(".cut").look().memory == kept.memory
