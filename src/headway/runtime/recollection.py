"""What is known of a user's accounts without a call: the broker's memory, read and not changed.

Laws:
- Looking starts no broker and changes no file. Where a broker runs, it is asked how things stand.
- Nothing known is no error: it is said, and something is assumed.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from headway.core.foresight.account_guess import (
    AccountGuess,
    remembered_account,
    unknown_account,
)
from headway.core.foresight.situation import AccountState
from headway.core.health import condition_of
from headway.core.quota.demand import Price
from headway.core.quota.ledger import LedgerStatistics
from headway.core.quota.terms import EVERY_ACCOUNT, LaneMemory, Memory, model_group
from headway.core.quota.view import BookView, LaneView, describe
from headway.errors import BadValueError, WireError, did_you_mean
from headway.runtime.clock import hour, now_s
from headway.runtime.folders import folders
from headway.runtime.opening import open_book
from headway.runtime.store import Kept, Store

CONNECT_S: Final = 0.2
"""A broker on this machine answers sooner, or is not there."""


@dataclass(frozen=True, slots=True)
class Recollection:
    """All accounts as they were learned, and as they stand."""

    lanes: tuple[LaneMemory, ...]
    view: BookView


def recollect(environ: Mapping[str, str]) -> Recollection:
    """What the broker's file says, and the broker itself where there is one."""
    place = folders(environ)
    try:
        kept = Store(place.memory).look()
    except (OSError, WireError):
        kept = Kept(Memory())
    view = describe(open_book(kept, now_s()), now_s())
    if _answers(place.socket):
        from headway.runtime.admission import admission

        view, _ = admission().describe()
    return Recollection(kept.memory.lanes, view)


def account_in(
    known: Recollection, account: str = "", model: str = ""
) -> tuple[AccountGuess, LedgerStatistics | None]:
    """The account that is meant, and the budget that its calls count towards, if there is one.

    Of several that may be meant, it is the one that was used most; which one that is, is assumed.
    """
    lanes = [lane for lane in known.view.lanes if _is_meant(lane, account, model)]
    if account and not lanes:
        names = {lane.account for lane in known.view.lanes}
        raise BadValueError(
            f"no account `{account}` was used here yet",
            hint=did_you_mean(account, names) if names else "see `headway limits` for names",
        )
    remembered = {(lane.account, lane.group): lane for lane in known.lanes}
    found = [lane for lane in lanes if (lane.account, lane.group) in remembered]
    price = price_in(model or (found[0].group if len(found) == 1 else ""))
    if not found:
        return unknown_account(price), _ledger(known.view, account)
    lane = max(found, key=lambda one: (one.granted, _samples(remembered[one.account, one.group])))
    guess = remembered_account(remembered[lane.account, lane.group], lane, price)
    guess = replace(guess, state=_measured(guess.state, lane))
    return guess, _ledger(known.view, lane.account)


def _measured(state: AccountState, lane: LaneView) -> AccountState:
    """How the account is now, by what happened on it lately and at this hour of other days."""
    found = condition_of(lane, hour())
    if not found.recent.ended:
        return replace(state, is_peak=found.is_peak)
    return replace(
        state,
        refused_share=found.refusal_rate,
        first_byte_s=found.recent.first_byte_s,
        slowdown=found.slower if found.usual.ended else None,
        is_peak=found.is_peak,
    )


def _is_meant(lane: LaneView, account: str, model: str) -> bool:
    is_account = not account or lane.account == account or lane.account.split("#")[0] == account
    return is_account and (not model or lane.group == model_group(model))


def _samples(lane: LaneMemory) -> float:
    return sum(weight for _, weight, _ in lane.profile.curve)


def _ledger(view: BookView, account: str) -> LedgerStatistics | None:
    """The budget of the account, or the one of all accounts."""
    ledgers = dict(view.ledgers)
    for key in (account, EVERY_ACCOUNT):
        ledger = ledgers.get(key)
        if ledger is not None and (ledger.budget.tokens or ledger.budget.microusd):
            return ledger
    return None


def price_in(model: str) -> Price | None:
    """What a model's tokens cost, if it is named and somebody knows."""
    if not model:
        return None
    from headway.runtime.prices import price_of

    return price_of(model.rsplit("/", 1)[-1])


def _answers(path: str) -> bool:
    """Whether somebody listens: a socket that was left behind is nobody."""
    if not os.path.exists(path):
        return False
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(CONNECT_S)
        try:
            probe.connect(path)
        except OSError:
            return False
    return True
