"""How good advice is: drawn cases, told with errors, judged by the truth: `python -m bench.advice`.

A case is an account and some work. `headway advise` is given both with the errors that estimates
have; every way is then rehearsed on the true account with the true sizes and other draws. The score
is what the recommended way costs over what the best one does, with time at its worth: 1 is the best
choice there was.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
from collections.abc import Sequence
from functools import partial
from math import exp, inf, log
from pathlib import Path
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from bench.markdown import table
from bench.results import PROCESSES, ROOT, say
from headway.base.codec import as_dict
from headway.base.numbers import percentile
from headway.base.values import MINUTE_S, Limit, LimitKind
from headway.engine.state import Rules
from headway.engine.strategy import ADAPTIVE as STRATEGY
from headway.engine.strategy import ALL_AT_ONCE, Strategy
from headway.report.advise import advise
from headway.report.options import (
    ADAPTIVE,
    ONE,
    PRICE_GUESS,
    AccountGuess,
    AccountState,
    Situation,
    Way,
    as_it_is_now,
    cost_of,
    profile_of,
    rehearsed,
    waiting_microusd,
    work_of,
)
from headway.report.outline import amounts_of
from headway.sim.account import Terms
from headway.sim.clients import PATIENT, UnpacedDoor
from headway.sim.draw import Neighbour, lognormal, uniform
from headway.sim.provider import FaultModel, Latency, Provider, ProviderSpec
from headway.sim.rehearsal import Rehearsal, Workload

REPORT: Final = ROOT / "docs" / "benchmarks" / "advice.md"

SEED: Final = 20_26
"""Of the reported cases. Thresholds were chosen on those of another seed."""
CASES: Final = 200
TRUTHS: Final = (101, 102, 103)
"""Seeds of the truth; advice is computed with another one."""
CLOSE: Final = 1.05
NEAR: Final = 1.10
WANTED: Final = 0.92

RULES_OF_THUMB: Final = ("always all at once", "always waves of 4", "always one agent")


class Case(Struct, frozen=True):
    """What is true, and what advice is told."""

    number: int
    truth: Situation
    account: AccountGuess
    told: Situation
    told_account: AccountGuess


class Judged(Struct, frozen=True):
    """A case and how well it was advised."""

    number: int
    agents: int
    recommended: str
    best: str
    score: float
    """Against every way of the table."""
    hindsight: float
    """Against pools of every width as well, chosen knowing the truth."""
    thumbs: tuple[float, ...]
    """Of the rules of thumb."""


class _Draws:
    """Numbers for one case, one after another."""

    def __init__(self, seed: int, number: int) -> None:
        self._seed, self._number, self._next = seed, number, 0

    def __repr__(self) -> str:
        return f"<_Draws of case {self._number}>"

    def share(self) -> float:
        self._next += 1
        return uniform(self._seed, self._next, self._number)

    def between(self, low: float, high: float) -> float:
        """Evenly in the logarithm."""
        return exp(log(low) + self.share() * (log(high) - log(low)))

    def error(self, spread: float) -> float:
        self._next += 1
        return lognormal(self._seed, self._next, self._number, spread)


def case_of(number: int, seed: int = SEED) -> Case:
    """One case: work first, then the account, then what is told of both."""
    draws = _Draws(seed, number)
    tokens = draws.between(2_000, 30_000)
    output = min(draws.between(150, 2_500), tokens / 2)
    truth = Situation(
        agents=round(draws.between(2, 24)), tokens_each=tokens, output_each=output,
        common=0.9 * draws.share(),
    )  # fmt: skip
    spec, used = _account(draws, tokens)
    known, told_used = _as_told(draws, spec, used)
    told = replace(
        truth, tokens_each=tokens * draws.error(0.15), output_each=output * draws.error(0.25),
        common=min(0.95, (truth.common or 0.0) * draws.error(0.1)),
        state=AccountState(told_used),
    )  # fmt: skip
    profile = profile_of(known)
    now = as_it_is_now(AccountGuess(spec, profile, PRICE_GUESS), AccountState(used))
    return Case(number, truth, now, told, AccountGuess(known, profile, PRICE_GUESS))


Used = tuple[tuple[str, float], ...]


def _account(draws: _Draws, tokens: float) -> tuple[ProviderSpec, Used]:
    """Any account: small or large, congested or not, with a neighbour, hidden, half used."""
    amount = draws.between(40_000, 2_000_000)
    burst = max(1.5 * tokens, amount * draws.between(0.1, 1.0))
    kind: LimitKind = "fixed" if draws.share() < 0.15 else "bucket"
    if kind == "fixed":
        amount = burst = max(amount, 2.0 * tokens)
    held = None if kind == "fixed" else burst
    limits = [Limit("requests", round(draws.between(20, 1_000)), MINUTE_S, kind),
              Limit("tokens", amount, MINUTE_S, kind, held)]  # fmt: skip
    if draws.share() < 0.4:
        limits.append(Limit("concurrency", round(draws.between(2, 40)), 0.0, "gauge"))
    peak = draws.between(2, 24)
    kappa = 1.0 / peak**2 if draws.share() < 0.4 else 0.0
    latency = Latency(draws.between(0.4, 3.0), draws.between(0.005, 0.05), kappa=kappa)
    share = 0.1 + 0.4 * draws.share()
    neighbour = Neighbour(share) if draws.share() < 0.2 else None
    is_hidden, faults, dialect = draws.share() < 0.15, FaultModel(), "anthropic"
    if is_hidden:
        faults, dialect = FaultModel(retry_after="none"), "plain"
    terms = Terms(tuple(limits), neighbour=neighbour)
    taken = draws.share() if draws.share() < 0.3 and neighbour is None else 0.0
    used = (("tokens/60s", 0.9 * taken),) if taken else ()
    return ProviderSpec("drawn", terms, latency, faults, dialect), used


def _as_told(draws: _Draws, spec: ProviderSpec, used: Used) -> tuple[ProviderSpec, Used]:
    """Limits from headers are exact, hidden ones are not; speeds and neighbours never are."""
    latency = replace(
        spec.latency,
        first_byte_s=spec.latency.first_byte_s * draws.error(0.15),
        per_output_token_s=spec.latency.per_output_token_s * draws.error(0.15),
        kappa=spec.latency.kappa * draws.error(0.25),
    )
    off = draws.error(0.15) if spec.dialect == "plain" else 1.0
    limits = tuple(
        limit if limit.kind == "gauge" else replace(
            limit, amount=limit.amount * off,
            burst=None if limit.burst is None else limit.burst * off,
        )
        for limit in spec.terms.limits
    )  # fmt: skip
    neighbour, is_noticed = spec.terms.neighbour, draws.share() < 0.7
    if neighbour is not None:
        share = min(0.9, neighbour.share * draws.error(0.3))
        neighbour = replace(neighbour, share=share) if is_noticed else None
    told = tuple((name, min(0.95, share * draws.error(0.1))) for name, share in used)
    terms = replace(spec.terms, limits=limits, neighbour=neighbour)
    return replace(spec, terms=terms, latency=latency), told


def judge(case: Case, has_hindsight: bool = True) -> Judged:
    """Ask for advice, and look what every way would really have given."""
    advice = advise(case.told, case.told_account)
    values = {option.way: _value(case, option.way) for option in advice.options}
    best = min(values, key=lambda way: values[way])
    taken = values[advice.best.way]
    every = [*values.values()]
    if has_hindsight:
        pools = (Strategy("fixed", width) for width in range(1, case.truth.agents + 1))
        every += [_value(case, ADAPTIVE, pool) for pool in pools]
    least = min(every)
    thumbs = (_unpaced(case, ALL_AT_ONCE), _unpaced(case, Strategy("waves", 4)), values[ONE])
    return Judged(
        case.number, case.truth.agents, advice.best.way, best,
        taken / values[best], taken / least, tuple(one / values[best] for one in thumbs),
    )  # fmt: skip


def _value(case: Case, way: Way, strategy: Strategy = STRATEGY) -> float:
    """What a way costs, with time at its worth, on average over the truths."""
    total = 0.0
    for seed in TRUTHS:
        work = work_of(case.truth, way, seed)
        ran = rehearsed(work, case.account, seed, strategy)
        total += _worth(case, work, inf if ran.failed else ran.makespan_s)
    return total / len(TRUTHS)


def _unpaced(case: Case, strategy: Strategy) -> float:
    """The same for a client that retries until it is let in, as the SDKs do."""
    total = 0.0
    for seed in TRUTHS:
        work = work_of(case.truth, ADAPTIVE, seed)
        provider = Provider(case.account.spec, seed)
        provider.advance(0.0)
        rules = Rules(strategy, retries=0)
        ran = Rehearsal(work, provider, UnpacedDoor(PATIENT, seed), rules).run()
        total += _worth(case, work, inf if ran.failed else ran.makespan_s)
    return total / len(TRUTHS)


def _worth(case: Case, work: Workload, time_s: float) -> float:
    return cost_of(case.account, amounts_of(work.calls)) + waiting_microusd(time_s)


def close_share(scores: Sequence[float], most: float = CLOSE) -> float:
    """Of the cases, those that are so close to the best."""
    return sum(score <= most for score in scores) / len(scores)


def judge_all(cases: int, seed: int = SEED) -> list[Judged]:
    """Every case, in as many processes as benchmarks use."""
    judged = []
    with multiprocessing.get_context("spawn").Pool(PROCESSES) as pool:
        for one in pool.imap(partial(_judged, seed), range(cases)):
            judged.append(one)
            say(f"{len(judged)}/{cases}")
    return judged


def _judged(seed: int, number: int) -> Judged:
    return judge(case_of(number, seed))


def main(arguments: Sequence[str] | None = None) -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m bench.advice")
    parser.add_argument("--json", action="store_true", help="print the cases only")
    parser.add_argument("--cases", type=int, default=CASES)
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--output", type=Path, default=REPORT)
    parsed = parser.parse_args(arguments)
    judged = judge_all(parsed.cases, parsed.seed)
    if parsed.json:
        print(json.dumps([as_dict(one) for one in judged]))
        return 0
    text = report(judged)
    parsed.output.write_text(text)
    print(text)
    return 0


def report(judged: Sequence[Judged]) -> str:
    """The page."""
    rows = [_row("**headway advise**", [one.score for one in judged]),
            _row("the same, beside pools of every width in hindsight",
                 [one.hindsight for one in judged])]  # fmt: skip
    rows += [
        _row(f"{name}", [one.thumbs[index] for one in judged])
        for index, name in enumerate(RULES_OF_THUMB)
    ]
    by = [
        _row(side, scores)
        for side, scores in (
            ("one agent is best", [one.score for one in judged if one.best == ONE]),
            ("several are best", [one.score for one in judged if one.best != ONE]),
        )
        if scores
    ]
    heads = (
        "",
        "cases",
        "within 5 % of the best",
        "within 10 %",
        "median",
        "95th percentile",
        "worst",
    )
    worst = sorted(judged, key=lambda one: -one.score)[:8]
    misses = [
        (str(one.number), str(one.agents), one.recommended, one.best,
         f"{one.score:.2f}") for one in worst
    ]  # fmt: skip
    return PAGE.format(
        cases=len(judged), all=table(heads, rows), by=table(heads, by),
        misses=table(("case", "agents", "recommended", "best", "score"), misses),
    )  # fmt: skip


def _row(name: str, scores: Sequence[float]) -> tuple[str, ...]:
    return (
        name, str(len(scores)), f"{close_share(scores):.1%}",
        f"{close_share(scores, NEAR):.1%}", _times(percentile(scores, 0.5)),
        _times(percentile(scores, 0.95)), _times(max(scores)),
    )  # fmt: skip


def _times(score: float) -> str:
    return "never ends" if score == inf else f"{score:.2f}"


PAGE: Final = """\
# Advice against the truth

`make bench-advice`: {cases} drawn cases. Each is an account (40,000 to 2 M tokens a minute,
buckets or windows, with or without a concurrency limit, congestion, a neighbour, headers, and up to
90 % used already) and work (2 to 24 agents of 2,000 to 30,000 tokens, 0 to 90 % of them in common).
What `headway advise` is told is off by as much as estimates are: log-deviations of 0.15 in tokens,
0.25 in answers, 0.1 in what is common, 0.15 in speeds, 0.25 in congestion, 0.3 in a neighbour's
share, of which three in ten are not noticed at all; limits are exact where headers tell them. Every
way is then rehearsed on the true account with true sizes, three draws each. The score is what the
recommended way costs over what the best does, with time at $60 an hour. All of it is simulated;
thresholds were chosen on other cases.

{all}
The rules of thumb are performed by a client that retries until it is let in; one agent is paced.

## By what is best

{by}
## The worst cases

{misses}
"""


if __name__ == "__main__":
    raise SystemExit(main())
