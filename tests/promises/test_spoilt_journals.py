"""A spoilt journal is noticed, saved as far as it can be read, and its run is done to the end."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec import Struct

from tests.promises.spoiling import (
    SHAPES,
    Case,
    Reference,
    copied,
    gave,
    payload_of,
    prepared,
    reference,
    shared,
    spoil,
)
from tests.promises.user import Provider, User, provider
from tests.promises.warm import Said, Warm, warm

CASES = 300
LOST_FOR_GOOD = "nothing is left that says what the run is"


@pytest.fixture(scope="module")
def forks() -> Iterator[Warm]:
    with warm() as process:
        yield process


@pytest.fixture(scope="module")
def sim() -> Iterator[Provider]:
    with provider("--first-byte-s", "0.05") as one:
        yield one


class Bench(Struct):
    forks: Warm
    someone: User
    place: Path
    runs: list[Reference]

    def say(self, case: Case, *words: str) -> Said:
        said = self.forks.headway(case.owner, *words)
        told = f"{case.did} of {case.reference.shape}: {words}: {said}"
        assert said.code != -9, f"it hangs: {told}"
        assert said.code >= 0, told
        assert "Traceback" not in said.err, told
        assert "a bug in headway" not in said.err + said.out, told
        assert said.code == 0 or "error[" in said.err or words[0] in ("results", "doctor"), told
        return said

    def judge(self, case: Case) -> str:
        """Look at a run, go on with it, save it if need be: how that ended."""
        run = case.reference.run
        for words in (("doctor",), ("status", run), ("results", run), ("report", run)):
            self.say(case, *words)
        first = self.say(case, "resume", run)
        outcome = "went on"
        if first.code != 0:
            assert "headway doctor --salvage" in first.err, (case.did, first)
            saved = self.say(case, "doctor", "--salvage", run)
            if LOST_FOR_GOOD in saved.err:
                return "nothing left"
            assert saved.code == 0, (case.did, saved)
            self.say(case, "status", run)
            again = self.say(case, "resume", run)
            assert again.code == 0, (case.did, saved, again)
            outcome = "saved"
        self._must_be_whole(case)
        return outcome

    def _must_be_whole(self, case: Case) -> None:
        before = case.reference
        found = gave(self.forks, case.owner)
        assert found.keys() == before.results.keys(), case.did
        for name, output in before.results.items():
            assert found[name] == output, (case.did, name, str(found[name])[:80], output[:80])
        status = self.say(case, "status", before.run, "--json").out
        assert '"state": "done"' in status, (case.did, status)
        assert shared(self.forks, case.owner) == before.state, case.did
        if before.mails and before.is_killed:
            assert {payload_of(mail) for mail in case.mails()} <= before.mails, case.did
        if before.shape in ("each", "commands") and not case.has_lost_outputs:
            again = {item_of(name) for name in before.kept} & set(case.executed())
            assert not again, (case.did, f"executed again: {again}")


def item_of(name: str) -> str:
    """`work[3]` was executed for `3`, `each[2: 2]` for `2`, `sum` for `sum`."""
    return name.rpartition("[")[2].rstrip("]").rpartition(" ")[2]


def bench(forks: Warm, sim: Provider, place: Path, kinds: list[tuple[str, int]]) -> Bench:
    someone = prepared(place / "user", sim)
    runs = [
        reference(forks, someone, place / f"{number}", shape, sim, after)
        for number, (shape, after) in enumerate(kinds)
    ]
    return Bench(forks, someone, place, runs)


def played(bench: Bench, seeds: range) -> Counter[str]:
    """So many seeded cases, over the runs in turn."""
    outcomes: Counter[str] = Counter()
    for seed in seeds:
        chance = random.Random(seed)
        case = copied(bench.runs[seed % len(bench.runs)], bench.someone, bench.place / "case")
        while not spoil(case, chance):
            case.did.clear()
        case.did.append(f"seed {seed}")
        outcomes[bench.judge(case)] += 1
        outcomes[case.did[0].partition(" ")[0]] += 1
    return outcomes


def test_what_is_spoilt_is_noticed_and_done_again(
    forks: Warm, sim: Provider, tmp_path: Path
) -> None:
    """A slice of the campaign below."""
    outcomes = played(bench(forks, sim, tmp_path, [("commands", 5)]), range(0, 6, 2))
    assert outcomes["saved"] + outcomes["went on"] == 3


@pytest.mark.soak
def test_three_hundred_spoilt_journals(forks: Warm, sim: Provider, tmp_path: Path) -> None:
    kinds = [(shape, after) for shape in SHAPES for after in (0, 2, 5)]
    outcomes = played(bench(forks, sim, tmp_path, kinds), range(CASES))
    print(dict(outcomes))
    assert outcomes["went on"] + outcomes["saved"] + outcomes["nothing left"] == CASES
    assert outcomes["saved"] > CASES / 4
