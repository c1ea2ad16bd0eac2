"""A book for tests of what is around it: so many places, first come first served."""

from __future__ import annotations

from math import inf

from headway.base.values import Amounts, Demand, Permit, Reading, Sketch
from headway.broker.client import CallRequest
from headway.pacing.admission import AdmissionDecision, CallOutcome, Denied, Granted
from headway.pacing.budget import Cut
from headway.pacing.lane import Request
from headway.pacing.memory import AccountTerms, CallId, PacingMemory

CALL = CallRequest("api.example#1a2b3c4d", "anthropic", Sketch("model", size_bytes=100))
PERMIT = Permit(1, "flow", Demand(Amounts(), Amounts()), 0.0, "there is room")


class PaperBook:
    """Grants while there are places; writes down everything that it is told."""

    def __init__(self, places: int = 1, memory: PacingMemory = PacingMemory()) -> None:
        self.places = places
        self.line: list[Request] = []
        self.calling: dict[CallId, Request] = {}
        self.deny: dict[str, str] = {}
        self.told: list[tuple[object, ...]] = []
        self.decisions = 0
        self.wake_s = inf
        self.grows_at = inf
        self.cuts: tuple[Cut, ...] = ()
        self._memory = memory

    def ask(self, request: Request, now: float) -> None:
        self.told.append(("ask", request.id))
        self.line.append(request)

    def leave(self, call: CallId, now: float) -> str:
        waiting = [request for request in self.line if request.id == call]
        self.line = [request for request in self.line if request.id != call]
        return "a place" if waiting else ""

    def decide(self, now: float) -> AdmissionDecision:
        self.decisions += 1
        denied = tuple(
            Denied(request.id, self.deny[request.account], "no")
            for request in self.line
            if request.account in self.deny
        )
        self.line = [request for request in self.line if request.account not in self.deny]
        grants = []
        while self.line and len(self.calling) < self.places:
            request = self.line.pop(0)
            self.calling[request.id] = request
            grants.append(Granted(request.id, PERMIT))
        cuts, self.cuts = self.cuts, ()
        return AdmissionDecision(tuple(grants), denied, self.wake_s, cuts)

    def first_byte(self, call: CallId, reading: Reading, dialect: str, now: float) -> None:
        self.told.append(("first_byte", call))

    def progress(self, call: CallId, output_tokens: float, now: float) -> bool:
        self.told.append(("progress", call, output_tokens))
        return output_tokens >= self.grows_at

    def settle(self, call: CallId, outcome: CallOutcome, now: float) -> bool:
        if self.calling.pop(call, None) is None:
            return False
        self.told.append(("settle", call, outcome.how))
        return True

    def gone(self, client: str, now: float) -> int:
        for call in [call for call in self.calling if call[0] == client]:
            self.settle(call, CallOutcome("used"), now)
        self.line = [request for request in self.line if request.id[0] != client]
        return 0

    def adopt(self, request: Request, age_s: float, now: float) -> None:
        self.told.append(("adopt", request.id, age_s))
        self.calling[request.id] = request

    def configure(self, key: str, terms: AccountTerms, now: float) -> None:
        self.told.append(("configure", key))

    def memory(self, now: float) -> PacingMemory:
        return self._memory
