"""The `limits` verb: what each account allows and uses, and what the user wants of it."""

from __future__ import annotations

import argparse
import os
import re
import time
from collections.abc import Callable
from contextlib import suppress
from math import inf
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from headway.base.numbers import number_of, share_of
from headway.base.values import DAY_S, Budget, Limit, LimitKind, Resource, parse_budget
from headway.cli.main import Body, Commands, add_command, add_commands, add_json, show
from headway.errors import BadValueError, HeadwayError, did_you_mean

if TYPE_CHECKING:
    from headway.pacing.memory import AccountTerms
    from headway.pacing.view import AdmissionView

WORDS: Final[dict[str, tuple[Resource, float]]] = {
    "rpm": ("requests", 60.0),
    "rpd": ("requests", 86400.0),
    "tpm": ("tokens", 60.0),
    "tpd": ("tokens", 86400.0),
    "itpm": ("input", 60.0),
    "otpm": ("output", 60.0),
    "concurrent": ("concurrency", 0.0),
}
"""A limit as people call it: what it counts, over how many seconds."""

NOTHING: Final = "none"

NAME: Final = re.compile(r"[A-Za-z][\w.-]{0,63}")
"""A user's name for an account: it cannot be taken for a key's, which has a `#`."""

EXAMPLES: Final = """\
examples:
  headway limits                                   every account: limits, use, callers, budget
  headway limits set rpm=500 tpm=100k concurrent=20
  headway limits set rpm=none                      forget what was set; learn it from headers
  headway limits ceiling 50%                       use at most half of every limit
  headway limits reserve 20%                       keep a fifth for interactive calls; 0: nothing
  headway limits name anthropic#1a2b3c4d work      accounts of one name are one account
  headway limits forget anthropic#1a2b3c4d         what was learned and set; not what was spent
  headway limits refresh                           more was bought: try an empty usage window
  headway limits budget 5M/month                   tokens
  headway limits budget '$20/month'                money; needs headway[prices]
  headway limits set itpm=2M --account api.anthropic.com#1a2b3c4d --model claude-sonnet-4

What is set without --account is for every account. A budget without it is one for all of them.
"""


def arguments(parser: argparse.ArgumentParser) -> Body:
    commands = add_commands(parser, _show)
    _command(commands, "show", "every account: limits, use, callers, budget", _show)
    change = _command(commands, "set", "limits that the provider does not tell", _set)
    change.add_argument("limits", nargs="+", metavar="NAME=N", help=f"{', '.join(WORDS)}")
    change.add_argument("--kind", choices=("bucket", "sliding", "fixed"), default="bucket",
                        help="how the provider counts (default: bucket)")  # fmt: skip
    ceiling = _command(commands, "ceiling", "the share of every limit to use at most", _ceiling)
    ceiling.add_argument("share", metavar="SHARE", help="such as 50%%; 100%% removes it")
    reserve = _command(commands, "reserve", "the share kept for interactive calls", _reserve)
    reserve.add_argument("share", metavar="SHARE", help="such as 20%%; 0 removes it")
    budget = _command(commands, "budget", "what may be spent in a calendar month", _budget)
    budget.add_argument("amount", metavar="AMOUNT/month", help="5M/month, '$20/month' or none")
    again = _command(commands, "refresh", "try empty usage windows: more was bought", _refresh)
    name = _command(commands, "name", "name an account; accounts of one name are one", _name)
    name.add_argument(
        "account", metavar="ACCOUNT", help="an account or a key, as `limits` shows it"
    )
    name.add_argument(
        "name", metavar="NAME", help=f"letters, digits and -; {NOTHING} takes it back"
    )
    forget = _command(commands, "forget", "forget what was learned and set of an account", _forget)
    forget.add_argument("account", metavar="ACCOUNT", help="as `limits` shows it")
    for scoped in (change, ceiling, reserve, budget, again):
        scoped.add_argument("--account", metavar="NAME", default="", help="default: every account")
    for scoped in (change, ceiling, reserve):
        scoped.add_argument("--model", metavar="GROUP", default="", help="one model group of it")
    return _show


def _command(commands: Commands, name: str, summary: str, run: Body) -> argparse.ArgumentParser:
    parser = add_command(commands, name, summary, EXAMPLES, run)
    add_json(parser)
    return parser


def _show(parsed: argparse.Namespace) -> int:
    """Looking starts no broker: without one, it shows what the last one has written."""
    from headway.client.overview import overview
    from headway.report.text.accounts import as_json, draw_accounts

    seen, passed = overview(os.environ), time.time() % DAY_S / DAY_S  # Budgets have days of UTC.
    return show(
        parsed, lambda: as_json(seen, passed),
        lambda console: draw_accounts(console, seen, passed),
    )  # fmt: skip


def _set(parsed: argparse.Namespace) -> int:
    changes = dict(_setting(text, parsed.kind) for text in parsed.limits)

    def changed(terms: AccountTerms) -> AccountTerms:
        kept = [one for one in terms.limits if one.name not in changes]
        new = [limit for limit in changes.values() if limit is not None]
        return replace(terms, limits=(*kept, *new))

    return _change(parsed, changed)


def _ceiling(parsed: argparse.Namespace) -> int:
    share = share_of(parsed.share)
    if share is None:
        raise BadValueError(
            f"a ceiling is above 0 % and at most 100 %, and `{parsed.share}` is not",
            hint="write it like `headway limits ceiling 50%`",
        )
    return _change(parsed, lambda terms: _leaves_some(replace(terms, share=share)))


def _reserve(parsed: argparse.Namespace) -> int:
    share = 0.0 if parsed.share in ("0", "0%", NOTHING) else share_of(parsed.share)
    if share is None or share >= 1.0:
        raise BadValueError(
            f"a reserve is at least 0 % and below 100 %, and `{parsed.share}` is not",
            hint="write it like `headway limits reserve 20%`",
        )
    return _change(parsed, lambda terms: _leaves_some(replace(terms, reserve=share)))


def _leaves_some(terms: AccountTerms) -> AccountTerms:
    if terms.reserve >= terms.share:
        raise BadValueError(
            f"a reserve of {terms.reserve:.0%} leaves runs nothing of a ceiling of "
            f"{terms.share:.0%}",
            hint="lower the reserve with `headway limits reserve`, or raise the ceiling",
        )
    return terms


def _refresh(parsed: argparse.Namespace) -> int:
    from headway.broker.protocol import Refresh
    from headway.client.admission import admission

    port = admission()
    view, _ = port.describe()
    parsed.model = ""
    port.tell(Refresh(_key(parsed, view)))
    _wake_runs()
    return _show(parsed)


def _wake_runs() -> None:
    """Runs that wait for the reset of a usage window have no call that could try it."""
    from headway.base.folders import folders
    from headway.journal.folder import list_runs
    from headway.journal.reader import JournalReader
    from headway.report.text.run_view import RunView
    from headway.run.launch import tell

    for place in list_runs(folders(os.environ).state):
        with suppress(HeadwayError), JournalReader(place.folder) as reader:
            run = RunView(reader)
            run.refresh()
            if run.verdict.state == "waiting" and run.verdict.reason.startswith("usage window"):
                tell(reader, place.id, "continue")


def _forget(parsed: argparse.Namespace) -> int:
    from headway.broker.protocol import Forget
    from headway.client.admission import admission

    port = admission()
    view, _ = port.describe()
    parsed.model = ""
    account = _key(parsed, view)
    if any(one.clients for one in view.accounts if one.account == account):
        raise BadValueError(
            f"calls of `{account}` are in flight or wait", hint="forget it when they have ended"
        )
    port.tell(Forget(account))
    return _show(parsed)


def _name(parsed: argparse.Namespace) -> int:
    from headway.broker.protocol import Name
    from headway.client.admission import admission

    port = admission()
    view, _ = port.describe()
    name = "" if parsed.name == NOTHING else parsed.name
    if name and not NAME.fullmatch(name):
        raise BadValueError(
            f"`{name}` is not a name for an account",
            hint="a name is a letter, then letters, digits, `.`, `_` and `-`: at most 64",
        )
    keys = {one for pair in view.keys for one in pair}
    if parsed.account not in keys:
        parsed.model = ""
        _key(parsed, view)
    port.tell(Name(parsed.account, name))
    return _show(parsed)


def _budget(parsed: argparse.Namespace) -> int:
    budget = monthly(parsed.amount)
    if budget.microusd is not None:
        from headway.wire.prices import must_have_prices

        must_have_prices()
    parsed.model = ""
    return _change(parsed, lambda terms: replace(terms, budget=budget))


def _change(parsed: argparse.Namespace, changed: Callable[[AccountTerms], AccountTerms]) -> int:
    from headway.client.admission import admission
    from headway.pacing.memory import AccountTerms

    port = admission()
    view, _ = port.describe()
    key = _key(parsed, view)
    port.configure(key, changed(dict(view.terms).get(key, AccountTerms())))
    return _show(parsed)


def _key(parsed: argparse.Namespace, view: AdmissionView) -> str:
    """The name that terms are kept under; an account has to be one that was seen."""
    account, group = parsed.account, parsed.model
    if group and not account:
        raise BadValueError("`--model` needs `--account`", hint="see `headway limits` for names")
    known = {one.account for one in view.accounts}
    known |= {key.partition("/")[0] for key, _ in view.terms}
    if account and account not in known:
        raise BadValueError(
            f"no account `{account}` was used here yet", hint=did_you_mean(account, known - {""})
        )
    return f"{account}/{group}" if group else account


def _setting(text: str, kind: LimitKind) -> tuple[str, Limit | None]:
    """`rpm=500`: the limit's name, and the limit or None to forget it."""
    word, _, value = text.partition("=")
    if word not in WORDS:
        raise BadValueError(f"there is no limit `{word}`", hint=did_you_mean(word, WORDS))
    resource, period_s = WORDS[word]
    shape: LimitKind = "gauge" if resource == "concurrency" else kind
    if value == NOTHING:
        return Limit(resource, 1.0, period_s, shape).name, None
    amount = number_of(value)
    if amount is None or not 1.0 <= amount < inf:
        raise BadValueError(
            f"`{text}` is not a limit: it needs a number of at least 1",
            hint=f"write it like `{word}=500`, `{word}=100k` or `{word}={NOTHING}`",
        )
    limit = Limit(resource, amount, period_s, shape)
    return limit.name, limit


def monthly(text: str) -> Budget:
    """`5M/month` in tokens, `$20/month` in money."""
    if text == NOTHING:
        return Budget()
    amount, _, period = text.partition("/")
    budget = parse_budget(amount)
    if budget is None or period not in ("month", ""):
        raise BadValueError(
            f"`{text}` is not a budget", hint="write it like `5M/month` or '$20/month'"
        )
    return budget
