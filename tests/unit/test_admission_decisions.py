"""All accounts in virtual time: calls end once, money is kept, clients and brokers are replaced."""

from __future__ import annotations

from math import inf

import pytest
from msgspec.structs import replace

from headway.base.values import (
    Budget,
    Fault,
    FaultKind,
    Known,
    Limit,
    LimitReading,
    Reading,
    Sketch,
    Spend,
    Tally,
    Wait,
)
from headway.pacing.account import Profile
from headway.pacing.admission import (
    ACCOUNTS_MAX,
    IDLE_FORGOTTEN,
    Admission,
    AdmissionDecision,
    ManagedAccount,
)
from headway.pacing.budget import Claim, MonthlyBudgets
from headway.pacing.call import CallId, Outcome, Request
from headway.pacing.estimate import Price
from headway.pacing.memory import (
    EVERY_ACCOUNT,
    AccountMemory,
    AccountTerms,
    PacingMemory,
    hours_of,
    lately,
)
from tests.unit.steps import cases, perform

PRICE = Price(3_000_000, 15_000_000)
LIMITS = {
    "slots": Limit("concurrency", 1.0, kind="gauge"),
    "requests": Limit("requests", 1.0, kind="sliding"),
    "spend": Limit("spend", 1.0, kind="gauge"),
}
SCENES = """
granted, answered, settled once: wide
    ask 1,1 0; decide 0 = 1; decision.wake_s = inf; ask 1 0; decide 0 = -; leave 1 = '';
    began 1 1; progress 1 100 2 = False; end 1 3 = True; end 1 3 = False; money = 1200 0;
    clean = True
calls that are not in flight: slots=1
    ask 1,2 0; decide 0 = 1; began 2 0; progress 2 100 0 = False; end 2 0 = False; began 9 0;
    progress 9 1 0 = False; end 9 0 = False; leave 9 = ''
what a call that leaves waited for: slots=1 requests=2
    ask 1,2,3 0; leave 3 = ''; ask 3 0; decide 0 = 1; why 1 = ''; why 2 = concurrency inf;
    leave 2 = concurrency inf; end 1 1; decide 1 = 3; end 3 1; ask 4 1; decide 1 = -;
    decision.wake_s = 60.06; why 4 = requests/60s 60.06; leave 4 = requests/60s 60.06; clean = True
dead client pays the most that its calls can have cost: slots=1
    ask 1,2 0; ask 3 0 client=bob; decide 0 = 1; gone ann 1 = 1; decide 1 = 3; money = 5100 5100;
    gone ann 1 = 0; gone bob 1 = 1; clean = True
budget is never exceeded: wide tokens=11730
    ask 1,2,3 0; decide 0 = 1,2; parked = 1; end 1 1; decide 1 = 3; end 2 1 9 9 estimated;
    end 3 1 9 9 estimated; ask 4 1; decide 1 = - denied 4 HW205;
    says a call of up to 5,100 tokens, $0.0273 = True; clean = True
call without a price is measured in tokens: tokens=100
    ask 1 0 model=new; decide 0 = - denied 1 HW205; says a call of up to 5,100 tokens = True;
    says $ = False; says headway limits = True
budget in money needs a price and an end of the answer: usd=1e9
    ask 1 0 model=new; ask 2 0 most=None; ask 3 0; decide 0 = 3 denied 1 HW205,2 HW205;
    says known price = True; says max_tokens = True
budget in money of all accounts: wide
    terms all 0 usd=1e9; ask 1 0 model=new; ask 2 0 most=None; ask 3 0;
    decide 0 = 3 denied 1 HW205,2 HW205
budget in tokens needs an end of the answer, or a soft claim: tokens=1e9
    ask 1 0 most=None; ask 2 0 most=None soft; decide 0 = 2 denied 1 HW205
budget in money counts what is in flight: wide
    set priced 0; ask 1 0; decide 0 = 1; set priced 1; terms one 1 usd=1e9; claimed_usd = 27300
calls wait for a budget in order of arrival: wide tokens=6630
    ask 1,2 0; ask 3 0 size=10 most=10; decide 0 = 1;
    leave 2 = budget inf; decide 1 = 3; unused 3 2; ask 4,5 2;
    end 1 3; decide 3 = 4; end 4 4; decide 4 = - denied 5 HW205; clean = True
calls that never ran cost nothing: wide
    ask 1,2 0; decide 0 = 1,2; unused 1 1; refuse 2 1 rate; money = 0 0
unknown end costs what was kept: wide
    ask 1,2 0; decide 0 = 1,2; end 2 1 9000 200; lost 1 1; money = 16734 0
lowered budget stops those in line: slots=1
    ask 1,2,3,4 0; decide 0 = 1; terms one 1 slots=1 tokens=12750; parked = 2; money = 0 10200;
    terms one 1 slots=1 tokens=12750; parked = 2; terms one 1 slots=1 tokens=0;
    decide 1 = - denied 2 HW205,3 HW205,4 HW205; end 1 2; clean = True
new month: tokens=7650
    ask 1 0; decide 0 = 1; lost 1 1; turn 2026-12; ask 2 1; decide 1 = 2
denied call may leave before it knows: tokens=0
    ask 1,2 0;
    leave 1 = '';
    gone ann 0 = 0; decide 0 = -; clean = True
closed account denies every call and is asked again later: slots=1
    ask 1 0; ask 10-59 0; decide 0 = 1; refuse 1 1 billing; decide 1; denials = 50;
    says one takes no calls: billing: no credit = True; ask 2 30; decide 30 = - denied 2 HW206;
    ask 3 31; decide 31 = 3
call for which there is never enough: spend=15000
    ask 1 0; ask 2 0 most=10; decide 0 = 2 denied 1 HW201;
    says spend leaves too little for this call, for good = True
call for which nothing can come back: spend=30000
    ask 1,2 0; decide 0 = 1; decide 1 = -; decision.wake_s = inf; end 1 2;
    decide 2 = - denied 2 HW201; clean = True
what a denied call kept lets another one go: share=0
    terms all 0 tokens=7650; ask 1 0; ask 2 0 account=two; parked = 1; decide 0 = 2 denied 1 HW206
followers wait for the first byte of their leader: wide
    ask 1,2,3 0 prefix=p; ask 4 0 prefix=other; decide 0 = 1,4; decision.wake_s = 10;
    leave 3 = prompt cache inf; began 1 1;
    decide 1 = 2; end 1 2; end 2 2; end 4 2; clean = True
beginning leads again when the cache has forgotten it: wide
    ask 1 0 prefix=p; decide 0 = 1; began 1 1; end 1 2; ask 2,3 299 prefix=p; decide 299 = 2,3;
    unused 2 299; unused 3 299; ask 4,5 301 prefix=p; decide 301 = 4
followers do not wait for ever: slots=1
    ask 9 0; decide 0 = 9; ask 1,2 0 prefix=p; decide 0 = -; decision.wake_s = 30; parked = 1;
    decide 30 = -; parked = 0
leader that left: wide
    ask 1 0 prefix=p client=bob; ask 2,3 0 prefix=p; leave 1 = ''; decide 0 = 2;
    decision.wake_s = 10
leader that died: wide
    ask 1 0 prefix=p client=bob; ask 2,3 0 prefix=p; decide 0 = 1; gone bob 0 = 1; decide 0 = 2
leader that was not sent: wide
    ask 1 0 prefix=p; ask 2,3 0 prefix=p; decide 0 = 1; unused 1 0; decide 0 = 2;
    decision.wake_s = 10
leader that is denied: wide
    ask 1,2,3 0 prefix=p; terms one 0 spend=15000; decide 0 = - denied 1 HW201,2 HW201,3 HW201;
    clean = True
leader that no budget pays: wide
    ask 1,2,3 0 prefix=p; terms one 0 tokens=0; decide 0 = - denied 1 HW205,2 HW205,3 HW205;
    clean = True
broker goes on where the last one stopped: wide requests=4 tokens=1e6
    turn 2026-11; ask 1,2,3 0; decide 0 = 1,2,3; end 1 1; ask 4,5 1; decide 1 = 4; claims = 2,3,4;
    heir 3 2; admission.budgets.month = 2026-11; adopt 2,2 3 3; adopt 3 3 3; ask 5 3; decide 3 = -;
    in_flight = 2; end 2 4 = True; decide 13 = -; money = 7500 10200; unused 3 14;
    decide 14 = 5
claim of a grant that its client did not get: tokens=5101
    claim 1 5100; ask 1 0; decide 0 = 1; money = 0 5100
adopted call keeps its claim and pays it if nothing is known: slots=1
    claim 1 77; adopt 1 1 0; money = 0 77; gone ann 1 = 1; money = 77 0
long flow does not fill the line: wide
    ask 0-63 0 flow=long; ask 1000 0 flow=short; decide 0; granted = 65; position 1000 = 1
refused call comes before those that were not sent: slots=1
    ask 0-33 0; ask 100 0 resent; decide 0 = 100
calls leave the line and the backlog: slots=1
    ask 0-34 0; leave 0 = ''; decide 0 = 1; leave 2-34; end 1 1; clean = True
new terms keep calls in flight, waiting calls and what was used: requests=2
    ask 0,1,2,3 0; decide 0 = 0,1; terms one 10 requests=3; in_flight = 2;
    decide 10 = 2; end 0 11; in_flight = 2; decide 11 = -; decide 80 = 3
terms that change often: requests=2
    ask 1 0; decide 0 = 1; end 1 1; terms one 2 requests=2 share=0;
    terms one 2 requests=2 share=0.9; terms one 2 requests=2; left 2 = 1
terms before the first grant are as good as from the start: share=1
    ask 1 0; terms one 1 slots=3 requests=50; ask 2-9 1; decide 1 = 1,2
raised limit lets others pass a call that hangs: slots=1
    ask 0-9 0; decide 0 = 0; terms one 1 slots=50; decide 1 = 1,2,3
limit that the user takes back: requests=2
    ask 1 0; decide 0 = 1; began 1 1 5900; limits = requests/60s input/60s; learned = input/60s;
    terms one 2; limits = input/60s
models of one group share their limits: slots=9
    ask 1 0 model=claude-sonnet-4-5; ask 2 0 model=claude-sonnet-4-20250514; accounts = 1;
    ask 3 0 model=claude-sonnet-4-5 account=two; accounts = 2
headers teach limits and dialects: share=1
    ask 1 0 dialect=odd; dialect = plain; decide 0 = 1; began 1 1 5900 cerebras;
    dialect = cerebras; limits = input/60s; began 1 1 5900 '';
    dialect = cerebras; began 1 1 5900 plain; dialect = cerebras;
    refuse 1 2 rate anthropic; dialect = anthropic;
    account.refused = 1
an answer without limits is of a provider that reports none: slots=1
    ask 1 0; dialect = anthropic; decide 0 = 1; began 1 1 5900 plain; dialect = plain
a call that has a connection ends an outage: wide
    ask 1 0; decide 0 = 1; refuse 1 1 connection; ask 2,3,4 1; decide 1 = -; reached 9;
    decide 2 = 2; reached 3; decide 2.1 = -; reached 2; decide 2.2 = 3,4
history of an answer: slots=1
    admission.turn 7 0; ask 1 0; decide 0 = 1; began 1 0.5; end 1 2.5 90 40; hours 3 = 7;
    spell 3 = answered=1 input_tokens=90 output_tokens=40 begun=1 first_byte_us=500000
    streamed_tokens=40 streamed_us=2000000 crowd_tokens=40
history, a whole answer is divided into first byte and rest: slots=1
    ask 1 0 whole; decide 0 = 1; began 1 2.5; end 1 2.5 90 40; timed 3 = 1 of 1
history, what is not counted is not timed: wide
    ask 1,2 0 whole; ask 3 0; decide 0 = 1,2,3; adopt 4 5 1; began 4 1.5; end 1 2.5 0 0 unknown;
    end 2 2.5 90 0; end 3 2.5 90 0; end 4 2.5 90 0; timed 3 = 0 of 4
history of refusals: wide
    ask 1,2,3,4 0; decide 0 = 1,2,3,4; lost 1 1; unused 2 1; refuse 3 1 rate; refuse 4 1 overload;
    spell 1 = rate=1 overload=1 failed=1
history is kept with new terms and by the next broker: wide
    ask 1 0; decide 0 = 1; admission.turn 8 60; refuse 1 61 request; terms one 62 slots=8;
    spell 63 = wrong=1; heir 63 0; spell 63 = wrong=1; hours 63 = 8
follower of a leader knows what it waited for: slots=9
    ask 1,2 0 prefix=p; decide 0 = 1; began 1 1; decide 1 = 2;
    reasons = prompt cache
terms of the account count before those for all, and its ceiling for each model: share=0.6
    ask 1 0; account.terms.share = 0.6; terms all 0 share=0.5; account.terms.share = 0.6;
    terms one/model 0 share=0.4; account.terms.share = 0.4; terms one 0 share=0.1;
    account.terms.share = 0.1
soft claims with absurd ceilings: wide
    terms all 0 tokens=200000; ask 0-21 0 most=128000 soft; decide 0; granted = 22;
    money all = 0 37505.6
hard claims with absurd ceilings: wide
    terms all 0 tokens=200000; ask 0-21 0 most=128000; decide 0; granted = 1; money all = 0 132100
soft claim is raised ahead of the answer in growing steps: tokens=200000
    ask 1 0 most=128000 soft; decide 0 = 1; progress 1 500 1 = False; progress 1 501 2 = True;
    money = 0 1961.8; progress 1 756 3 = False; progress 1 2000 4 = True; money = 0 4204.8;
    decide 4 = -
soft claim, never beyond the longest answer: tokens=1804.8
    ask 1 0 most=600 soft; decide 0 = 1; progress 1 510 1; money = 0 1804.8; progress 1 590 2;
    progress 1 600 3; money = 0 1804.8; decide 3 = -
soft claim, a small step where a large one does not fit: tokens=3504.8
    ask 1 0 most=128000 soft; decide 0 = 1; progress 1 2000 1 = True; money = 0 3460.8;
    decide 1 = -
answer without room is cut once and owed: tokens=3504.8
    ask 1 0 most=None soft; decide 0 = 1; progress 1 2100 1; decide 1 = - cut 1;
    says more of this answer, which was ended at 2,100 tokens = True;
    says 3,505 tokens for one = True; says headway limits budget = True; money = 0 3304.8;
    progress 1 2400 2 = True; progress 1 2400 2 = False; decide 2 = -; money = 0 3604.8;
    end 1 3 1004 2450 estimated; money = 3454 0
answer is cut where others have claimed the rest: tokens=3509.6
    ask 1,2 0 most=128000 soft; decide 0 = 1,2; progress 1 501 1; decide 1 = - cut 1;
    end 2 2 1004 12; progress 1 700 2; decide 2 = -
call that ends before it is cut: tokens=1704.8
    ask 1 0 most=128000 soft; decide 0 = 1; progress 1 900 1; end 1 1 1004 910; decide 1 = -;
    money = 1914 0
budget in money cuts too: usd=40000
    ask 1 0 most=128000 soft; decide 0 = 1; progress 1 1000 1; decide 1 = -; progress 1 2500 2;
    decide 2 = - cut 1; says $0.04 for one = True
soft call needs a price only: usd=1e9
    ask 1 0 most=None soft; ask 2 0 model=new soft; decide 0 = 1 denied 2 HW205;
    says known price = True; says max_tokens = False
soft call that does not fit: tokens=1703.8
    ask 1 0 model=new most=128000 soft; decide 0 = - denied 1 HW205;
    says no room for a call of about 1,705 tokens = True; says 1,704 tokens for one = True
soft call that is answered: tokens=200000
    ask 1 0 most=128000 soft; decide 0 = 1; progress 1 800 1; end 1 2 1000 12; money = 1012 0
soft call that breaks: tokens=200000
    ask 1 0 most=128000 soft; decide 0 = 1; progress 1 800 1; lost 1 2; money = 2404.8 0
soft call, unknown end, long answer: tokens=200000
    ask 1 0 most=128000 soft; decide 0 = 1; progress 1 800 1; end 1 2 0 5000 unknown;
    money = 6204.8 0
soft call, counted: tokens=200000
    ask 1 0 most=128000 soft; decide 0 = 1; progress 1 800 1; end 1 2 1000 900 estimated;
    money = 1900 0
soft call that is refused: tokens=200000
    ask 1 0 most=128000 soft; decide 0 = 1; progress 1 800 1; refuse 1 2 rate; money = 0 0
dead client pays what was claimed: tokens=1705.8
    ask 1 0 most=128000 soft; decide 0 = 1; progress 1 3 1; gone ann 2 = 1; money = 1704.8 0
dead client pays what is known of its answer: tokens=1705.8
    ask 1 0 most=128000 soft; decide 0 = 1; progress 1 4000 1; gone ann 2 = 1; money = 5204.8 0
heir of a broker goes on from what was claimed: tokens=200000
    ask 1,2 0 most=128000 soft; decide 0 = 1,2; progress 1 800 1; heir 2 1; adopt 1 1 2;
    ask_adopted 3 1 2; decide 12 = -; money = 1704.8 4109.6; progress 1 1200 13 = False;
    progress 1 1201 13 = True
"""


def _terms(*words: str) -> AccountTerms:
    """`slots=2 tokens=500`: limits, a share, and a budget; `wide` is of the account."""
    pairs = (word.partition("=") for word in words if word != "wide")
    given = {name: float(number) for name, _, number in pairs}
    limits = tuple(replace(LIMITS[name], amount=given[name]) for name in LIMITS if name in given)
    money = int(given["usd"]) if "usd" in given else None
    return AccountTerms(limits, given.get("share", 1.0), budget=Budget(given.get("tokens"), money))


def _numbers(given: float | str) -> list[int]:
    """`3`, `1,2,5`, `10-20`."""
    first, _, last = f"{given}".removesuffix(".0").partition("-")
    if last:
        return list(range(int(first), int(last) + 1))
    return [int(one) for one in first.split(",")]


def _words(wait: Wait | None) -> str:
    return "" if wait is None else f"{wait.resource} {wait.until_s:g}"


class Scene:
    """All accounts, the calls that were asked for by number, and the decisions in words."""

    def __init__(self, *words: str) -> None:
        self.priced = 1.0
        wide = AccountMemory("one", "model", "anthropic", Profile(width=100.0))
        memory = PacingMemory(accounts=(wide,) if "wide" in words else ())
        self.admission = self._made(memory, 0.0, 0.0)
        self.ids: dict[int, CallId] = {}
        self.requests: dict[int, Request] = {}
        self.decision = AdmissionDecision((), (), inf)
        if words:
            self.admission.configure("one", _terms(*words), 0.0)

    def _made(self, memory: PacingMemory, now: float, age_s: float) -> Admission:
        def prices(model: str, _: int) -> Price | None:
            return PRICE if model != "new" and self.priced else None

        return Admission(memory, prices, now, age_s)

    def _id(self, number: float) -> CallId:
        return self.ids.get(int(number), ("nobody", 1))

    @property
    def account(self) -> ManagedAccount:
        return self.admission.accounts[0]

    @property
    def dialect(self) -> str:
        return self.account.account.config.dialect.name

    def reached(self, number: float) -> None:
        self.admission.reached(self._id(number))

    @property
    def in_flight(self) -> float:
        return len(self.account.in_flight)

    def terms(self, key: str, now: float, *words: str) -> None:
        self.admission.configure("" if key == "all" else key, _terms(*words), now)

    def ask(self, numbers: float | str, now: float, *words: str) -> None:
        for number in _numbers(numbers):
            request = self._request(number, *words)
            self.admission.ask(self.ids[number], request, now)

    def adopt(self, numbers: float | str, age_s: float, now: float) -> None:
        for number in _numbers(numbers):
            request = self.requests.get(number) or self._request(number)
            self.admission.adopt(self.ids[number], request, age_s, now)

    def ask_adopted(self, number: float, age_s: float, now: float) -> None:
        request = self._request(int(number), "most=128000", "soft")
        self.admission.adopt(self._id(number), request, age_s, now)

    def _request(self, number: int, *words: str) -> Request:
        given = dict(word.partition("=")[::2] for word in words)
        size, most = int(given.get("size", 4000)), given.get("most", "1000")
        sketch = Sketch(
            given.get("model", "model"), size_bytes=size, most_input_tokens=size + 100,
            max_output_tokens=None if most == "None" else int(most), prefix=given.get("prefix", ""),
            is_whole="whole" in given,
        )  # fmt: skip
        request = Request(
            given.get("account", "one"), given.get("dialect", "anthropic"), sketch,
            tuple(filter(None, [given.get("flow", "")])), "resent" in given, "soft" in given,
        )  # fmt: skip
        self.ids[number] = given.get("client", "ann"), number
        self.requests[number] = request
        return request

    def decide(self, now: float) -> str:
        self.decision = found = self.admission.decide(now)
        told = ",".join(str(grant.id[1]) for grant in found.grants) or "-"
        # A call whose answer is to be ended is still known.
        cuts = [one for one in found.denials if self.admission.account_of(one.id)]
        denied = ",".join(f"{one.id[1]} {one.code}" for one in found.denials if one not in cuts)
        told += f" denied {denied}" if denied else ""
        return told + "".join(f" cut {cut.id[1]}" for cut in cuts)

    def position(self, number: float) -> float:
        return [grant.id[1] for grant in self.decision.grants].index(int(number))

    def says(self, *words: object) -> bool:
        """Whether a denial or a cut of the last decision has these words."""
        told = [(one.message, one.hint) for one in self.decision.denials]
        return " ".join(map(str, words)) in str(told)

    def leave(self, numbers: float | str) -> str:
        waits = [self.admission.leave(self._id(number)) for number in _numbers(numbers)]
        return _words(waits[0])

    def why(self, number: float) -> str:
        return _words(self.admission.why(self._id(number)))

    def began(
        self, number: float, now: float, left: float | None = None, dialect: str = "anthropic"
    ) -> None:
        told = () if left is None else (LimitReading("input", 60.0, 6000.0, left, 1.0),)
        self.admission.first_byte(self._id(number), Reading(told), dialect, now)

    def progress(self, number: float, tokens: float, now: float) -> bool:
        return self.admission.progress(self._id(number), tokens, now)

    def end(
        self, number: float, now: float, read: float = 1000.0, written: float = 200.0,
        known: Known = "reported",
    ) -> bool:  # fmt: skip
        outcome = Outcome("used", Tally(read, 0.0, written, known))
        return self.admission.settle(self._id(number), outcome, now)

    def lost(self, number: float, now: float) -> None:
        outcome = Outcome("used", fault=Fault("broken"))
        assert self.admission.settle(self._id(number), outcome, now)

    def unused(self, number: float, now: float) -> None:
        assert self.admission.settle(self._id(number), Outcome("unused"), now)

    def refuse(self, number: float, now: float, kind: FaultKind, dialect: str = "") -> None:
        fault = Fault(kind, retry_after_s=1.0, detail="no credit")
        outcome = Outcome("throttled", fault=fault, dialect=dialect)
        assert self.admission.settle(self._id(number), outcome, now)

    def gone(self, client: str, now: float) -> float:
        return self.admission.gone(client, now)

    def turn(self, date: str) -> None:
        self.admission.budgets.turn(date)

    def heir(self, now: float, age_s: float) -> None:
        self.admission = self._made(self.admission.memory(now - age_s), now, age_s)

    def claim(self, number: float, tokens: float) -> None:
        """A former broker had claimed this for a call."""
        claims = (Claim(("ann", int(number)), "one", Spend(tokens)),)
        self.admission = self._made(replace(self.admission.memory(0.0), claims=claims), 0.0, 0.0)

    def spell(self, now: float) -> str:
        """All that is written down of the last minute."""
        found = lately(self.account.chronicle.memory(now), 1)
        pairs = ((name, getattr(found, name)) for name in found.__struct_fields__)
        return " ".join(f"{name}={number}" for name, number in pairs if number)

    def timed(self, now: float) -> str:
        found = lately(self.account.chronicle.memory(now), 1)
        return f"{found.begun} of {found.answered}"

    def hours(self, now: float) -> str:
        return " ".join(f"{hour:g}" for hour in hours_of(self.account.chronicle.memory(now)))

    @property
    def reasons(self) -> str:
        return ", ".join(grant.waited_for for grant in self.decision.grants)

    def money(self, key: str = "one") -> str:
        ledger = dict(self.admission.ledgers())["" if key == "all" else key]
        return f"{round(ledger.spent.tokens, 3):g} {round(ledger.claimed.tokens, 3):g}"

    def left(self, now: float) -> float:
        return self.account.account.limits[0].level(now)

    @property
    def clean(self) -> bool:
        """Whether no call has left anything behind."""
        left = bool(self.admission._calls or self.parked or self.admission.budgets.claims())
        return not left and not any(one.queued or one.in_flight for one in self.admission.accounts)

    @property
    def granted(self) -> float:
        return len(self.decision.grants)

    @property
    def denials(self) -> float:
        return len(self.decision.denials)

    @property
    def parked(self) -> float:
        return sum(map(len, self.admission._parked.values()))

    @property
    def claims(self) -> str:
        return ",".join(str(claim.id[1]) for claim in self.admission.memory(1.0).claims)

    @property
    def claimed_usd(self) -> float:
        return dict(self.admission.ledgers())["one"].claimed.microusd

    @property
    def accounts(self) -> float:
        return len(self.admission.accounts)

    @property
    def limits(self) -> str:
        return " ".join(one.limit.name for one in self.account.account.limits)

    @property
    def learned(self) -> str:
        return " ".join(limit.name for limit in self.account.memory(1.0).profile.limits)


@pytest.mark.parametrize(("words", "steps"), cases(SCENES))
def test_admission_decides_and_counts(words: str, steps: str) -> None:
    perform(Scene(*words.split()), steps)


def test_terms_that_come_right_after_a_restart_forget_nothing() -> None:
    profile = Profile(limits=(Limit("input", 6000.0, source="profile"),), width=9.0)
    level = LimitReading("input", 60.0, 6000.0, 10.0, None)
    kept = AccountMemory("one", "model", "anthropic", profile, (level,))
    admission = Admission(PacingMemory(accounts=(kept,)), lambda *_: None, 100.0, 1.0)

    def levels(now: float) -> dict[str, float]:
        limits = admission.accounts[0].account.limits
        return {limit.limit.name: limit.level(now) for limit in limits}

    assert levels(100.0) == {"input/60s": 110.0}
    admission.configure("one", _terms("requests=2"), 101.0)
    assert levels(101.0) == {"input/60s": 210.0, "requests/60s": 2.0}
    # Sent after the memory was written, and adopted after the terms were changed.
    request = Request("one", "anthropic", Sketch("model", size_bytes=384))
    admission.adopt(("ann", 1), request, 1.5, 101.0)
    assert levels(101.0) == {"input/60s": 110.0, "requests/60s": 1.0}


def test_a_budget_alone_does_not_disturb_an_account() -> None:
    scene = Scene("slots=1")
    scene.ask(1.0, 0.0)
    before = scene.account
    scene.terms("one", 0.0, "slots=1", "tokens=5")
    assert scene.account is before
    scene.terms("one", 0.0, "slots=2")
    assert scene.account is not before


@pytest.mark.parametrize("is_busy", [False, True])
def test_only_an_idle_account_makes_room(is_busy: bool) -> None:
    scene = Scene()
    for number in range(ACCOUNTS_MAX):
        scene.ask(number, 0.0, f"model=model-{number}")
        if not is_busy:
            scene.leave(number)
    first = scene.account
    scene.ask(ACCOUNTS_MAX, 0.0, "model=more")
    assert scene.accounts == ACCOUNTS_MAX + 1 - IDLE_FORGOTTEN * (not is_busy)
    assert (scene.account is first) is is_busy


def test_a_call_that_waits_is_as_small_as_other_models_of_its_kind_have_shown() -> None:
    wide = AccountMemory("one", "slow", "gemini", Profile(width=20.0))
    admission = Admission(PacingMemory(accounts=(wide,)), lambda *_: None, 0.0)
    terms = AccountTerms((Limit("output", 1200.0, kind="fixed"),), share=0.5)
    admission.configure("one/slow", terms, 0.0)
    for number, model in enumerate(("slow", "slow", *["fast"] * 6)):
        request = Request("one", "gemini", Sketch(model, size_bytes=400))
        admission.ask(("ann", number), request, 0.0)
        admission.decide(0.0)
        if model == "fast":
            assert admission.settle(("ann", number), Outcome("used", Tally(100.0, 0.0, 5.0)), 0.0)
    assert admission.why(("ann", 1)) is not None
    assert [grant.id[1] for grant in admission.decide(1.5).grants] == [1]


def test_an_answer_that_broke_off_teaches_no_length() -> None:
    scene = Scene("slots=2")
    scene.ask("1,2", 0.0)
    scene.decide(0.0)
    scene.lost(1, 1.0)
    assert not scene.admission._estimates._inputs._ratios
    scene.end(2, 1.0)
    assert len(scene.admission._estimates._inputs._ratios) == 1


def test_budgets_are_named_by_amount_and_account() -> None:
    purse = MonthlyBudgets(PacingMemory(), 0.0)
    assert purse.describe(("one", "")) == ""
    purse.set_budget("one", Budget(tokens=5000.0))
    purse.set_budget(EVERY_ACCOUNT, Budget(1e6, 12_500_000))
    told = (
        "5,000 tokens for one (5,000 left), 1,000,000 tokens for all accounts (1,000,000 left), "
        "$12.50 for all accounts ($12.5000 left)"
    )
    assert purse.describe(("one", "")) == told
    purse.turn("2026-12-31")
    hint = purse.no_room("one", "a call").hint or ""
    assert f"{told}; the month turns on 2027-01-01" in hint
