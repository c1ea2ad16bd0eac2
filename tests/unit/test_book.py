"""All accounts in virtual time: calls end once, money is kept, clients and brokers are replaced."""

from __future__ import annotations

from math import inf

import pytest
from msgspec.structs import replace

from headway.base.values import (
    Amounts,
    Demand,
    Fault,
    FaultKind,
    Known,
    Limit,
    LimitReading,
    Reading,
    Sketch,
    Tally,
)
from headway.pacing.account import Profile
from headway.pacing.admission import LANES_MAX, AdmissionDecision, Book, CallOutcome
from headway.pacing.budget import MonthlyBudgets, claim_in, named, no_room
from headway.pacing.estimate import Price
from headway.pacing.headers import ANTHROPIC
from headway.pacing.lane import CallEntry, Lane, Request, lane_of
from headway.pacing.memory import (
    EVERY_ACCOUNT,
    AccountTerms,
    CallId,
    Claim,
    LaneMemory,
    MonthlyBudget,
    PacingMemory,
    Spend,
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
granted, answered, settled once: slots=100
    ask 1,1 0; decide 0 = 1; decision.wake_s = inf; ask 1 0; decide 0 = -; leave 1 0 = '';
    began 1 1; progress 1 100 2 = False; end 1 3 = True; end 1 3 = False; money = 1200 0;
    clean = True
calls that are not in flight: slots=1
    ask 1,2 0; decide 0 = 1; began 2 0; progress 2 100 0 = False; end 2 0 = False; began 9 0;
    progress 9 1 0 = False; end 9 0 = False; leave 9 0 = ''
what a call that leaves waited for: slots=1 requests=2
    ask 1,2,3 0; leave 3 0 = its turn; ask 3 0; decide 0 = 1;
    leave 2 1 = concurrency (1 in flight, until a call ends, 1 waiting); end 1 1; decide 1 = 3;
    end 3 1; ask 4 1; decide 1 = -; decision.wake_s = 60.06;
    leave 4 10 = requests/60s (refilling, 50.1 s, 0 waiting); clean = True
dead client pays the most that its calls can have cost: slots=1
    ask 1,2 0; ask 3 0 client=bob; decide 0 = 1; gone ann 1 = 1; decide 1 = 3; money = 5100 5100;
    gone ann 1 = 0; gone bob 1 = 1; clean = True
budget is never exceeded: slots=100 tokens=11730
    ask 1,2,3 0; decide 0 = 1,2; parked = 1; end 1 1; decide 1 = 3; end 2 1 9 9 estimated;
    end 3 1 9 9 estimated; ask 4 1; decide 1 = - denied 4 HW205;
    says a call of up to 5,100 tokens, $0.0273 = True; clean = True
call without a price is measured in tokens: tokens=100
    ask 1 0 model=new; decide 0 = - denied 1 HW205; says a call of up to 5,100 tokens = True;
    says $ = False; says headway limits = True
budget in money needs a price and an end of the answer: usd=1e9
    ask 1 0 model=new; ask 2 0 most=None; ask 3 0; decide 0 = 3 denied 1 HW205,2 HW205;
    says known price = True; says max_tokens = True
budget in money of all accounts: slots=100
    terms all 0 usd=1e9; ask 1 0 model=new; ask 2 0 most=None; ask 3 0;
    decide 0 = 3 denied 1 HW205,2 HW205
budget in tokens needs an end of the answer, or a soft claim: tokens=1e9
    ask 1 0 most=None; ask 2 0 most=None soft; decide 0 = 2 denied 1 HW205
budget in money counts what is in flight: slots=100
    set priced 0; ask 1 0; decide 0 = 1; set priced 1; terms one 1 usd=1e9; claimed_usd = 27300
calls wait for a budget in order of arrival: slots=100 tokens=6630
    ask 1,2 0; ask 3 0 size=10 most=10; decide 0 = 1;
    leave 2 1 = what calls in flight leave of the budget; decide 1 = 3; unused 3 2; ask 4,5 2;
    end 1 3; decide 3 = 4; end 4 4; decide 4 = - denied 5 HW205; clean = True
calls that never ran cost nothing: slots=100
    ask 1,2 0; decide 0 = 1,2; unused 1 1; refuse 2 1 rate; money = 0 0
unknown end costs what was kept: slots=100
    ask 1,2 0; decide 0 = 1,2; end 2 1 9000 200; lost 1 1; money = 14300 0
lowered budget stops those in line: slots=1
    ask 1,2,3,4 0; decide 0 = 1; terms one 1 slots=1 tokens=12750; parked = 2; money = 0 10200;
    terms one 1 slots=1 tokens=12750; parked = 2; terms one 1 slots=1 tokens=0;
    decide 1 = - denied 2 HW205,3 HW205,4 HW205; end 1 2; clean = True
new month: tokens=7650
    ask 1 0; decide 0 = 1; lost 1 1; turn 2026-12; ask 2 1; decide 1 = 2
denied call may leave before it knows: tokens=0
    ask 1,2 0;
    leave 1 0 = this month's budget has no room for a call of up to 5,100 tokens, $0.0273;
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
followers wait for the first byte of their leader: slots=100
    ask 1,2,3 0 prefix=p; ask 4 0 prefix=other; decide 0 = 1,4; decision.wake_s = 10;
    leave 3 0.5 = the first answer to a call with the same cached beginning; began 1 1;
    decide 1 = 2; end 1 2; end 2 2; end 4 2; clean = True
beginning leads again when the cache has forgotten it: slots=100
    ask 1 0 prefix=p; decide 0 = 1; began 1 1; end 1 2; ask 2,3 270 prefix=p; decide 270 = 2,3;
    ask 4,5 271 prefix=p; decide 271 = 4
followers do not wait for ever: slots=1
    ask 9 0; decide 0 = 9; ask 1,2 0 prefix=p; decide 0 = -; decision.wake_s = 30; parked = 1;
    decide 30 = -; parked = 0
leader that left: slots=100
    ask 1 0 prefix=p client=bob; ask 2,3 0 prefix=p; leave 1 0 = its turn; decide 0 = 2;
    decision.wake_s = 10
leader that died: slots=100
    ask 1 0 prefix=p client=bob; ask 2,3 0 prefix=p; decide 0 = 1; gone bob 0 = 1; decide 0 = 2
leader that was not sent: slots=100
    ask 1 0 prefix=p; ask 2,3 0 prefix=p; decide 0 = 1; unused 1 0; decide 0 = 2;
    decision.wake_s = 10
leader that is denied: slots=100
    ask 1,2,3 0 prefix=p; terms one 0 spend=15000; decide 0 = - denied 1 HW201,2 HW201,3 HW201;
    clean = True
leader that no budget pays: slots=100
    ask 1,2,3 0 prefix=p; terms one 0 tokens=0; decide 0 = - denied 1 HW205,2 HW205,3 HW205;
    clean = True
broker goes on where the last one stopped: requests=4 tokens=1e6
    turn 2026-11; ask 1,2,3 0; decide 0 = 1,2,3; end 1 1; ask 4,5 1; decide 1 = 4; claims = 2,3,4;
    heir 3 2; book.purse.month = 2026-11; adopt 2,2 3 3; adopt 3 3 3; ask 5 3; decide 3 = -;
    lane.quota.in_flight = 2; end 2 4 = True; decide 13 = -; money = 7500 10200; unused 3 14;
    decide 14 = 5
claim of a grant that its client did not get: tokens=5101
    claim 1 5100; ask 1 0; decide 0 = 1; money = 0 5100
adopted call keeps its claim and pays it if nothing is known: slots=1
    claim 1 77; adopt 1 1 0; money = 0 77; gone ann 1 = 1; money = 77 0
long flow does not fill the line: slots=100
    ask 0-63 0 flow=long; ask 1000 0 flow=short; decide 0; granted = 65; position 1000 = 1
few of a long flow are in line: slots=1
    ask 0-63 0 flow=long; decide 0 = 0; lane.queued = 63; in_line = 31
refused call comes before those that were not sent: slots=1
    ask 0-33 0; ask 100 0 resent; decide 0 = 100
calls leave the line and the backlog: slots=1
    ask 0-34 0; leave 0 0 = its turn; decide 0 = 1; leave 2-34 1; end 1 1; clean = True
new terms keep calls in flight, waiting calls and what was used: requests=2
    ask 0,1,2,3 0; decide 0 = 0,1; terms one 10 requests=3; lane.quota.in_flight = 2;
    decide 10 = 2; end 0 11; lane.quota.in_flight = 2; decide 11 = -; decide 80 = 3
terms that change often: requests=2
    ask 1 0; decide 0 = 1; end 1 1; terms one 2 requests=2 share=0;
    terms one 2 requests=2 share=0.9; terms one 2 requests=2; left 2 = 1
terms before the first grant are as good as from the start: share=1
    ask 1 0; terms one 1 slots=50; lane.quota.belief.width.allowed = 50
raised limit lets others pass a call that hangs: slots=1
    ask 0-9 0; decide 0 = 0; terms one 1 slots=50; decide 1 = 1,2,3
limit that the user takes back: requests=2
    ask 1 0; decide 0 = 1; began 1 1 5900; limits = requests/60s input/60s; learned = input/60s;
    terms one 2; limits = input/60s
models of one group share their limits: slots=100
    ask 1 0 model=claude-sonnet-4-5; ask 2 0 model=claude-sonnet-4-20250514; lanes = 1;
    ask 3 0 model=claude-sonnet-4-5 account=two; lanes = 2
headers teach limits and dialects: share=1
    ask 1 0 dialect=odd; lane.dialect.name = plain; decide 0 = 1; began 1 1 5900 cerebras;
    lane.dialect.name = cerebras; limits = input/60s; began 1 1 5900 '';
    lane.dialect.name = cerebras; refuse 1 2 rate anthropic; lane.dialect.name = anthropic;
    lane.quota.refused = 1
history of an answer: slots=1
    book.turn 7 0; ask 1 0; decide 0 = 1; began 1 0.5; end 1 2.5 90 40; hours 3 = 7;
    spell 3 = answered=1 input_tokens=90 output_tokens=40 begun=1 first_byte_us=500000
    streamed_tokens=40 streamed_us=2000000 crowd_tokens=40
history, a whole answer is divided as answers usually are: slots=1
    ask 1 0 whole; decide 0 = 1; began 1 2.5; end 1 2.5 90 40;
    spell 3 = answered=1 input_tokens=90 output_tokens=40 begun=1 first_byte_us=1388889
    streamed_tokens=40 streamed_us=1111111 crowd_tokens=40
history, what is not counted is not timed: slots=9
    ask 1,2 0 whole; ask 3 0; decide 0 = 1,2,3; adopt 4 5 1; began 4 1.5; end 1 2.5 0 0 unknown;
    end 2 2.5 90 0; end 3 2.5 90 0; end 4 2.5 90 0; timed 3 = 0 of 4
history of refusals: slots=9
    ask 1,2,3,4 0; decide 0 = 1,2,3,4; lost 1 1; unused 2 1; refuse 3 1 rate; refuse 4 1 overload;
    spell 1 = rate=1 overload=1 failed=1
history is kept with new terms and by the next broker: slots=9
    ask 1 0; decide 0 = 1; book.turn 8 60; refuse 1 61 request; terms one 62 slots=8;
    spell 63 = wrong=1; heir 63 0; spell 63 = wrong=1; hours 63 = 8
follower of a leader knows what it waited for: slots=9
    ask 1,2 0 prefix=p; decide 0 = 1; began 1 1; decide 1 = 2;
    reasons = waited for the first answer to a call with the same cached beginning
nearest terms count: share=0.6
    ask 1 0; lane.terms.share = 0.6; terms all 0 share=0.5; lane.terms.share = 0.6;
    terms one/model 0 share=0.7; lane.terms.share = 0.7; terms one 0 share=0.1;
    lane.terms.share = 0.7
soft claims with absurd ceilings: slots=100
    terms all 0 tokens=200000; ask 0-21 0 most=128000 soft; decide 0; granted = 22;
    money all = 0 37505.6
hard claims with absurd ceilings: slots=100
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
    """`slots=2 tokens=500`: limits, a share, and a budget."""
    given = {name: float(number) for name, _, number in (word.partition("=") for word in words)}
    limits = tuple(replace(LIMITS[name], amount=given[name]) for name in LIMITS if name in given)
    money = int(given["usd"]) if "usd" in given else None
    return AccountTerms(
        limits, given.get("share", 1.0), budget=MonthlyBudget(given.get("tokens"), money)
    )


def _numbers(given: float | str) -> list[int]:
    """`3`, `1,2,5`, `10-20`."""
    first, _, last = f"{given}".removesuffix(".0").partition("-")
    if last:
        return list(range(int(first), int(last) + 1))
    return [int(one) for one in first.split(",")]


class Scene:
    """A book, the calls that were asked for by number, and its answers in words."""

    def __init__(self, *words: str) -> None:
        self.priced = 1.0
        self.book = self._made(PacingMemory(), 0.0, 0.0)
        self.requests: dict[int, Request] = {}
        self.decision = AdmissionDecision((), (), inf)
        if words:
            self.book.configure("one", _terms(*words), 0.0)

    def _made(self, memory: PacingMemory, now: float, age_s: float) -> Book:
        return Book(memory, lambda m, _: PRICE if m != "new" and self.priced else None, now, age_s)

    def _id(self, number: float) -> CallId:
        return self.requests[int(number)].id if number in self.requests else ("nobody", 1)

    @property
    def lane(self) -> Lane:
        return next(iter(self.book.lanes))

    def terms(self, key: str, now: float, *words: str) -> None:
        self.book.configure("" if key == "all" else key, _terms(*words), now)

    def ask(self, numbers: float | str, now: float, *words: str) -> None:
        for number in _numbers(numbers):
            self.book.ask(self._request(number, *words), now)

    def adopt(self, numbers: float | str, age_s: float, now: float) -> None:
        for number in _numbers(numbers):
            request = self.requests.get(number) or self._request(number)
            self.book.adopt(request, age_s, now)

    def ask_adopted(self, number: float, age_s: float, now: float) -> None:
        self.book.adopt(self._request(int(number), "most=128000", "soft"), age_s, now)

    def _request(self, number: int, *words: str) -> Request:
        given = dict(word.partition("=")[::2] for word in words)
        size, most = int(given.get("size", 4000)), given.get("most", "1000")
        sketch = Sketch(
            given.get("model", "model"), size_bytes=size, most_input_tokens=size + 100,
            max_output_tokens=None if most == "None" else int(most), prefix=given.get("prefix", ""),
            is_whole="whole" in given,
        )  # fmt: skip
        request = Request(
            (given.get("client", "ann"), number), given.get("account", "one"),
            given.get("dialect", "anthropic"), sketch, tuple(filter(None, [given.get("flow", "")])),
            "resent" in given, "soft" in given,
        )  # fmt: skip
        self.requests[number] = request
        return request

    def decide(self, now: float) -> str:
        self.decision = found = self.book.decide(now)
        told = ",".join(str(grant.id[1]) for grant in found.grants) or "-"
        denied = ",".join(f"{one.id[1]} {one.code}" for one in found.denials)
        told += f" denied {denied}" if denied else ""
        return told + "".join(f" cut {cut.id[1]}" for cut in found.cuts)

    def position(self, number: float) -> float:
        return [grant.id[1] for grant in self.decision.grants].index(int(number))

    def says(self, *words: object) -> bool:
        """Whether a denial or a cut of the last decision has these words."""
        told = [(one.message, one.hint) for one in self.decision.denials]
        told += [(one.message, one.hint) for one in self.decision.cuts]
        return " ".join(map(str, words)) in str(told)

    def leave(self, numbers: float | str, now: float) -> str:
        left = [self.book.leave(self._id(number), now) for number in _numbers(numbers)]
        return left[0].replace(";", ",")

    def began(
        self, number: float, now: float, left: float | None = None, dialect: str = "anthropic"
    ) -> None:
        told = () if left is None else (LimitReading("input", 60.0, 6000.0, left, 1.0),)
        self.book.first_byte(self._id(number), Reading(told), dialect, now)

    def progress(self, number: float, tokens: float, now: float) -> bool:
        return self.book.progress(self._id(number), tokens, now)

    def end(
        self, number: float, now: float, read: float = 1000.0, written: float = 200.0,
        known: Known = "reported",
    ) -> bool:  # fmt: skip
        outcome = CallOutcome("used", Tally(read, 0.0, written, known))
        return self.book.settle(self._id(number), outcome, now)

    def lost(self, number: float, now: float) -> None:
        outcome = CallOutcome("used", fault=Fault("broken"))
        assert self.book.settle(self._id(number), outcome, now)

    def unused(self, number: float, now: float) -> None:
        assert self.book.settle(self._id(number), CallOutcome("unused"), now)

    def refuse(self, number: float, now: float, kind: FaultKind, dialect: str = "") -> None:
        fault = Fault(kind, retry_after_s=1.0, detail="no credit")
        outcome = CallOutcome("throttled", fault=fault, dialect=dialect)
        assert self.book.settle(self._id(number), outcome, now)

    def gone(self, client: str, now: float) -> float:
        return self.book.gone(client, now)

    def turn(self, date: str) -> None:
        self.book.purse.turn(date)

    def heir(self, now: float, age_s: float) -> None:
        self.book = self._made(self.book.memory(now - age_s), now, age_s)

    def claim(self, number: float, tokens: float) -> None:
        """A former broker had claimed this for a call."""
        claims = (Claim(("ann", int(number)), "one", Spend(tokens)),)
        self.book = self._made(replace(self.book.memory(0.0), claims=claims), 0.0, 0.0)

    def spell(self, now: float) -> str:
        """All that is written down of the last minute."""
        found = lately(self.lane.chronicle.memory(now), 1)
        pairs = ((name, getattr(found, name)) for name in found.__struct_fields__)
        return " ".join(f"{name}={number}" for name, number in pairs if number)

    def timed(self, now: float) -> str:
        found = lately(self.lane.chronicle.memory(now), 1)
        return f"{found.begun} of {found.answered}"

    def hours(self, now: float) -> str:
        return " ".join(f"{hour:g}" for hour in hours_of(self.lane.chronicle.memory(now)))

    @property
    def reasons(self) -> str:
        return ", ".join(grant.permit.reason for grant in self.decision.grants)

    def money(self, key: str = "one") -> str:
        ledger = dict(self.book.purse.ledgers())["" if key == "all" else key]
        return f"{round(ledger.spent.tokens, 3):g} {round(ledger.claimed.tokens, 3):g}"

    def left(self, now: float) -> float:
        return self.lane.quota.belief.mirrors[0].level(now)

    @property
    def clean(self) -> bool:
        """Whether no call has left anything behind."""
        lanes = [(lane.queued, lane.calling, lane._flows) for lane in self.book.lanes]
        left = bool(self.book._entries or self.parked or self.book.purse.claims())
        return not left and all(lane == (0, {}, {}) for lane in lanes)

    @property
    def granted(self) -> float:
        return len(self.decision.grants)

    @property
    def denials(self) -> float:
        return len(self.decision.denials)

    @property
    def parked(self) -> float:
        return sum(map(len, self.book._parked.values()))

    @property
    def claims(self) -> str:
        return ",".join(str(claim.id[1]) for claim in self.book.memory(1.0).claims)

    @property
    def claimed_usd(self) -> float:
        return dict(self.book.purse.ledgers())["one"].claimed.microusd

    @property
    def lanes(self) -> float:
        return len(list(self.book.lanes))

    @property
    def in_line(self) -> float:
        return len(self.lane.in_line)

    @property
    def limits(self) -> str:
        mirrors = self.lane.quota.belief.mirrors
        return " ".join(mirror.limit.name for mirror in mirrors)

    @property
    def learned(self) -> str:
        return " ".join(limit.name for limit in self.lane.memory(1.0).profile.limits)


@pytest.mark.parametrize(("words", "steps"), cases(SCENES))
def test_the_book_admits_and_counts(words: str, steps: str) -> None:
    perform(Scene(*words.split()), steps)


def test_terms_that_come_right_after_a_restart_forget_nothing() -> None:
    profile = Profile(limits=(Limit("input", 6000.0, source="profile"),), width=9.0)
    level = LimitReading("input", 60.0, 6000.0, 10.0, None)
    memory = LaneMemory("account", "model", "anthropic", profile, (level,))
    lane = lane_of(memory, AccountTerms(), ANTHROPIC, 99.0, 100.0)
    assert lane.quota.belief.mirrors[0].level(100.0) == 110.0
    lane.retermed(_terms("requests=2"), 101.0)
    names = [one.limit.name for one in lane.quota.belief.mirrors]
    assert names == ["input/60s", "requests/60s"]
    assert lane.quota.belief.mirrors[0].level(101.0) == 210.0
    # Sent after the memory was written, and adopted after the terms were changed.
    demand = Demand(Amounts(100.0), Amounts(100.0))
    entry = CallEntry(Scene()._request(1), 1, 0.0, demand=demand)
    lane.adopt(entry, 99.5, 101.0)
    assert lane.quota.belief.mirrors[0].level(101.0) == 110.0
    assert lane.calling == {("ann", 1): entry}


def test_a_budget_alone_does_not_disturb_a_quota() -> None:
    scene = Scene("slots=1")
    scene.ask(1.0, 0.0)
    quota = scene.lane.quota
    scene.terms("one", 0.0, "slots=1", "tokens=5")
    assert scene.lane.quota is quota
    scene.terms("one", 0.0, "slots=2")
    assert scene.lane.quota is not quota


@pytest.mark.parametrize("is_busy", [False, True])
def test_only_an_idle_lane_makes_room(is_busy: bool) -> None:
    scene = Scene()
    for number in range(LANES_MAX):
        scene.ask(number, 0.0, f"model=model-{number}")
        if not is_busy:
            scene.leave(number, 0.0)
    first = scene.lane
    scene.ask(LANES_MAX, 0.0, "model=more")
    assert scene.lanes == LANES_MAX + is_busy
    assert (scene.lane is first) is is_busy


def test_an_answer_that_broke_off_teaches_no_length() -> None:
    scene = Scene("slots=2")
    scene.ask("1,2", 0.0)
    scene.decide(0.0)
    scene.lost(1, 1.0)
    assert not scene.book._estimates._inputs._ratios
    scene.end(2, 1.0)
    assert len(scene.book._estimates._inputs._ratios) == 1


def test_budgets_are_named_by_amount_and_account() -> None:
    purse = MonthlyBudgets(PacingMemory(), 0.0)
    assert named(purse, "one") == ""
    purse.budget("one", MonthlyBudget(tokens=5000.0))
    purse.budget(EVERY_ACCOUNT, MonthlyBudget(1e6, 12_500_000))
    told = (
        "5,000 tokens for one (5,000 left), 1,000,000 tokens for all accounts (1,000,000 left), "
        "$12.50 for all accounts ($12.5000 left)"
    )
    assert named(purse, "one") == told
    purse.turn("2026-12-31")
    assert named(purse, "one") == f"{told}; the month turns on 2027-01-01"
    assert told in (no_room(purse, "one", "a call").hint or "")


@pytest.mark.parametrize(
    ("words", "claim"),
    [
        ("no room for a call of up to 1,705 tokens; it is", Spend(1705.0)),
        ("for a call of about 94 tokens, $0.0123; it", Spend(94.0, 12_300)),
        ("for a call of up to 2,000,000 tokens, $1,234.5000", Spend(2e6, 1_234_500_000)),
        ("no room for more of this answer", None),
    ],
)
def test_what_a_refused_call_would_have_claimed_is_in_its_refusal(
    words: str, claim: Spend | None
) -> None:
    assert claim_in(words) == claim
