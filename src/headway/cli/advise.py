"""The `advise` verb: one agent or several, now or later, and why. Sends nothing."""

from __future__ import annotations

import argparse
import os
from functools import partial
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from headway.base.codec import as_dict
from headway.base.numbers import number_of
from headway.cli.main import Body, add_json, show
from headway.errors import BadValueError, UsageError

if TYPE_CHECKING:
    from headway.plans.load import Loaded
    from headway.report.options import AccountGuess, Situation
    from headway.run.forecasts import Prospect

AGENTS_MAX: Final = 1_000_000
CALLS_MAX: Final = 1_000

EXAMPLES: Final = """\
examples:
  headway advise                                    a review by four agents, or by one?
  headway advise --agents 22 --tokens 6k --output 400 --slices
  headway advise --views --budget 5M/month
  headway advise plan.yaml                          the sizes are the plan's

It knows your accounts from earlier calls and sends nothing; its rules are in docs/advise.md.
exit codes: 0 advised, 2 usage, 3 the plan is refused
"""


def arguments(parser: argparse.ArgumentParser) -> Body:
    parser.add_argument("plan", metavar="PLAN", nargs="?", help="a plan's file: its own sizes")
    add = parser.add_argument
    add("--agents", metavar="N", help="how many slices or views (default: 4)")
    add("--tokens", metavar="T", help="of each agent, in and out (default: 17k)")
    add("--output", metavar="T", help="of these, its answers (default: 1k)")
    add("--calls", metavar="N", help="of each agent, one after another (default: 1)")
    shape = parser.add_mutually_exclusive_group()
    for name, words in (
        ("views", "several views of the same thing"),
        ("slices", "independent parts (default)"),
        ("coupled", "each needs what others find"),
    ):
        shape.add_argument(f"--{name}", dest="shape", action="store_const", const=name, help=words)
    add("--budget", metavar="B/month", help="5M/month in tokens, or '$20/month'")
    peak = parser.add_mutually_exclusive_group()
    peak.add_argument("--peak", dest="is_peak", action="store_true", default=None,
                      help="it is peak time")  # fmt: skip
    peak.add_argument("--off-peak", dest="is_peak", action="store_false", help="it is not")
    add("--model", metavar="M", help="which model: its limits, its price")
    account = parser.add_mutually_exclusive_group()
    account.add_argument("--account", metavar="NAME", help="one of `headway limits`")
    account.add_argument("--preset", metavar="P", help="a simulated account: a name or a file")
    add_json(parser)
    return _advise


def _advise(parsed: argparse.Namespace) -> int:
    from headway.report.advise import advise
    from headway.report.text.forecast import draw_advice, sentence
    from headway.run.advise import foreseen_options, planned_situation

    if "/" in (parsed.model or ""):
        from headway.agents.prompt import endpoint_of

        endpoint_of(parsed.model, os.environ)  # An unknown provider is refused.
    loaded, prospect = _loaded(parsed), None
    situation, guess = _account_of(parsed, _situation(parsed), loaded)
    if loaded is not None:
        situation = planned_situation(loaded, situation)
        if situation.agents == 0:
            raise UsageError(f"{parsed.plan} asks no model: there is nothing to advise on")
        prospect, situation = _seen(parsed, loaded, situation)
        situation = _with_flags(parsed, situation)
    advice = advise(situation, guess, partial(foreseen_options, prospect))
    return show(
        parsed, lambda: {"recommendation": sentence(advice), **as_dict(advice)},
        lambda console: draw_advice(console, advice),
    )  # fmt: skip


def _seen(
    parsed: argparse.Namespace, loaded: Loaded, situation: Situation
) -> tuple[Prospect | None, Situation]:
    from headway.run.advise import planned_prospect, with_sizes_seen

    if parsed.preset or parsed.account or parsed.agents or parsed.tokens or parsed.output:
        return None, situation
    prospect = planned_prospect(loaded, Path(parsed.plan), os.environ)
    if prospect is None:
        return None, situation
    return prospect, with_sizes_seen(prospect, situation)


def _loaded(parsed: argparse.Namespace) -> Loaded | None:
    if parsed.plan is None:
        return None
    from headway.plans.load import load_plan
    from headway.run.agent_tasks import must_have_providers

    loaded = load_plan(Path(parsed.plan), parsed.plan)
    must_have_providers(loaded.expanded, os.environ)
    return loaded


def _situation(parsed: argparse.Namespace) -> Situation:
    from headway.report.options import AccountState, Situation

    situation = Situation(
        shape=parsed.shape or "slices", state=AccountState(is_peak=parsed.is_peak)
    )
    situation = _with_flags(parsed, situation)
    if situation.output_each >= situation.tokens_each:
        raise BadValueError(
            f"an agent takes {situation.tokens_each:g} tokens, its answers of "
            f"{situation.output_each:g} included: nothing is left to read",
            hint="make `--tokens` larger or `--output` smaller",
        )
    return situation


def _with_flags(parsed: argparse.Namespace, situation: Situation) -> Situation:
    given: dict[str, object] = {}
    if parsed.agents is not None:
        given["agents"] = _whole("--agents", parsed.agents, AGENTS_MAX)
    if parsed.tokens is not None:
        given["tokens_each"] = tokens = _number("--tokens", parsed.tokens, 2.0)
        given["output_each"] = min(situation.output_each, tokens / 2)
    if parsed.output is not None:
        given["output_each"] = _number("--output", parsed.output, 1.0)
    if parsed.calls is not None:
        given["calls_each"] = _whole("--calls", parsed.calls, CALLS_MAX)
    if parsed.shape is not None:
        given |= {"shape": parsed.shape, "coupled": None}
    return replace(situation, **given)


def _account_of(
    parsed: argparse.Namespace, situation: Situation, loaded: Loaded | None
) -> tuple[Situation, AccountGuess]:
    from headway.client.overview import account_in

    if parsed.preset:
        guess = _preset(parsed)
    else:
        account, model = parsed.account or "", parsed.model or ""
        if not account and (loaded is not None or "/" in model):
            from headway.run.advise import account_of_model, model_asked_most

            if loaded is not None and not model:
                model = model_asked_most(loaded)
            account, model = account_of_model(model, os.environ)
        guess, ledger = account_in(
            os.environ, account, model, parsed.is_peak, may_be_new=not parsed.account
        )
        if ledger is not None:
            situation = replace(situation, budget=ledger.budget, spent=ledger.spent)
        situation = replace(situation, state=guess.state)
    if parsed.budget is not None:
        from headway.cli.limits import monthly

        situation = replace(situation, budget=monthly(parsed.budget))
    return situation, guess


def _preset(parsed: argparse.Namespace) -> AccountGuess:
    """The account that a preset describes, at the time of day that is asked for."""
    from headway.client.overview import price_in
    from headway.report.options import described_account
    from headway.sim.presets import at_time_of_day, find_provider

    name, is_described = parsed.preset, True
    if parsed.is_peak is not None:
        found = at_time_of_day(name, parsed.is_peak)
        name, is_described = found or name, found is not None
    guess = described_account(find_provider(name).spec, price_in(parsed.model or ""))
    if is_described:
        return guess
    words = f"`{name}` has no busy or quiet hours: times are the same at any hour"
    return replace(guess, assumed=(*guess.assumed, words))


def _whole(option: str, text: str, most: int) -> int:
    number = number_of(text)
    if number is None or number != int(min(number, 1e18)) or not 1 <= number <= most:
        raise BadValueError(f"`{option}` is {text!r}: it must be a whole number from 1 to {most:,}")
    return int(number)


def _number(option: str, text: str, least: float) -> float:
    number = number_of(text)
    if number is None or not least <= number < inf:
        raise BadValueError(
            f"`{option}` is {text!r}: it must be a number of at least {least:g}",
            hint=f"write it like `{option} 17k`",
        )
    return number
