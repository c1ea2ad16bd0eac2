"""The first version's admission, from its commit, behind the simulator of this tree.

The commit's package is unpacked below `.venv/versions` under another name, so that both versions
meet the same simulated provider in one process. Records cross field by field.
"""

from __future__ import annotations

import io
import re
import subprocess
import sys
import tarfile
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, Final

from headway.base.values import Amounts, Demand, Fault, Limit, Reading
from headway.sim.clients import LOSSES_MAX, SENT_AGAIN

ROOT: Final = Path(__file__).resolve().parent.parent
COMMIT: Final = "849f848"
"""The last commit with the first version's law: in virtual time its figures equal 447940f."""

NAME: Final = "headway_first"


@cache
def package() -> dict[str, Any]:
    """The modules of the first version that a door needs, by their short names."""
    folder = ROOT / ".venv" / "versions" / f"renamed-{COMMIT}"
    if not (folder / NAME / "__init__.py").exists():
        _unpack(folder)
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))
    names = {
        "values": "base.values", "account": "pacing.account", "quota": "pacing.quota",
        "headers": "pacing.headers", "length": "pacing.length",
    }  # fmt: skip
    return {short: import_module(f"{NAME}.{path}") for short, path in names.items()}


def _unpack(folder: Path) -> None:
    archive = subprocess.run(
        ["git", "archive", COMMIT, "src/headway"], cwd=ROOT, capture_output=True, check=True
    ).stdout
    with tarfile.open(fileobj=io.BytesIO(archive)) as files:
        for member in files.getmembers():
            data = files.extractfile(member)
            if data is None or not member.name.endswith(".py"):
                continue
            path = folder / NAME / Path(member.name).relative_to("src/headway")
            path.parent.mkdir(parents=True, exist_ok=True)
            text = re.sub(r"\b(from|import) headway\b", rf"\1 {NAME}", data.read().decode())
            path.write_text(text)


class FirstDoor:
    """Sends calls as the first version would."""

    def __init__(
        self, dialect: str, limits: tuple[Limit, ...] = (), profile: Any = None, lengths: Any = None
    ) -> None:
        found = package()
        values, headers = found["values"], found["headers"]
        self._values = values
        own = tuple(
            values.Limit(one.resource, one.amount, one.period_s, one.kind, one.burst)
            for one in limits
        )
        spoken = headers.DIALECTS.get(dialect, headers.PLAIN)
        config = found["account"].QuotaConfig(spoken, own, profile=profile)
        self.quota = found["quota"].Quota(config, 0.0)
        self.lengths = lengths or found["length"].OutputLength()
        self._losses: dict[int, int] = {}
        self._wishes: dict[int, tuple[Demand, tuple[float, ...]]] = {}
        self._places: dict[int, int] = {}
        self._permits: dict[int, int] = {}
        self._wake_s = float("inf")

    def knock(self, call_id: int, demand: Demand, key: tuple[float, ...]) -> None:
        self._wishes[call_id] = demand, key
        known, most, values = demand.expected, demand.ceiling, self._values
        output = self.lengths.expect(demand.kind, known.input_tokens, int(most.output_tokens))
        expected = values.Demand(
            values.Amounts(known.input_tokens, output, known.spend_microusd),
            values.Amounts(most.input_tokens, most.output_tokens, most.spend_microusd),
            demand.kind, demand.is_whole,
        )  # fmt: skip
        self._places[self.quota.ask(expected, ("run",), key)] = call_id

    def open(self, now: float) -> list[int]:
        decision = self.quota.decide(now)
        self._wake_s = decision.wake_s
        sent = []
        for grant in decision.grants:
            call_id, demand = self._places.pop(grant.place), grant.permit.demand
            self._permits[call_id] = grant.permit.id
            self.lengths.started(call_id, demand.kind, demand.expected.input_tokens)
            sent.append(call_id)
        return sent

    def next_s(self) -> float:
        return self._wake_s

    def refused(self, call_id: int, fault: Fault, reading: Reading, now: float) -> bool:
        again = fault.kind in SENT_AGAIN
        self.lengths.ended(call_id, None)
        permit, wish = self._permits.pop(call_id), self._wishes.pop(call_id)
        how = "throttled" if again else "unused"
        self._settle(permit, how, Amounts(), now, fault, reading)
        if again:
            self.knock(call_id, *wish)
        return again

    def first_byte(self, call_id: int, reading: Reading, now: float) -> None:
        self.quota.first_byte(self._permits[call_id], self._reading(reading), now)

    def progress(self, call_id: int, output_tokens: float, now: float) -> None:
        self.lengths.progressed(call_id, output_tokens)
        self.quota.progress(self._permits[call_id], output_tokens, now)

    def ended(self, call_id: int, used: Amounts, fault: Fault | None, now: float) -> bool:
        self.lengths.ended(call_id, round(used.output_tokens) if fault is None else None)
        self._settle(self._permits.pop(call_id), "used", used, now, fault, Reading())
        wish, lost = self._wishes.pop(call_id), self._losses.pop(call_id, 0)
        if fault is None or lost >= LOSSES_MAX:
            return False
        self._losses[call_id] = lost + 1
        self.knock(call_id, *wish)
        return True

    def _settle(
        self, permit: int, how: str, used: Amounts, now: float, fault: Fault | None, read: Reading
    ) -> None:
        values = self._values
        usage = values.Usage(
            values.Amounts(used.input_tokens, used.output_tokens, used.spend_microusd)
        )
        said = fault and values.Fault(fault.kind, fault.resource, fault.retry_after_s, fault.detail)
        self.quota.settle(permit, how, usage, now, said, self._reading(read))

    def _reading(self, reading: Reading) -> Any:
        values = self._values
        limits = tuple(
            values.LimitReading(one.resource, one.period_s, one.limit, one.remaining, one.reset_s,
                                one.utilization)
            for one in reading.limits
        )  # fmt: skip
        return values.Reading(limits, reading.retry_after_s, reading.should_retry)
