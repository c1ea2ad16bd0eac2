"""A read-only view of all accounts: from the broker, or from the file that it left.

Looking starts no broker and changes nothing.
"""

from __future__ import annotations

import socket
from collections.abc import Mapping
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from headway.base.clock import hour, now_s
from headway.base.folders import Folders, folders
from headway.broker.protocol import About
from headway.broker.store import open_admission, recall
from headway.errors import BadValueError, did_you_mean
from headway.pacing.budget import Pot
from headway.pacing.estimate import Price
from headway.pacing.memory import EVERY_ACCOUNT, AccountMemory, model_group
from headway.pacing.view import AccountView, AdmissionView, describe
from headway.report.health import condition_of, slowdown_of
from headway.report.options import AccountGuess, AccountState, remembered_account, unknown_account


def account_in(
    environ: Mapping[str, str], account: str = "", model: str = "", is_peak: bool | None = None,
    may_be_new: bool = False,
) -> tuple[AccountGuess, Pot | None]:  # fmt: skip
    """The account that is meant, or else the one used most, and the budget of its calls; at its
    busiest hour or its quietest one, if that is asked for. One that `may_be_new` need not have been
    used."""
    view, kept = overview(environ).view, recall(folders(environ).memory)
    lanes = [lane for lane in view.accounts if _is_meant(lane, account, model)]
    if account and not lanes and not may_be_new:
        names = {lane.account for lane in view.accounts}
        raise BadValueError(
            f"no account `{account}` was used here yet",
            hint=did_you_mean(account, names) if names else "see `headway limits` for names",
        )
    learned = () if kept is None else kept.memory.accounts
    remembered = {(lane.account, lane.group): lane for lane in learned}
    found = [lane for lane in lanes if (lane.account, lane.group) in remembered]
    price = price_in(model or (found[0].group if len(found) == 1 else ""))
    if not found:
        return unknown_account(price, account), _ledger(view, account)
    lane = max(found, key=lambda one: (one.granted, _samples(remembered[one.account, one.group])))
    guess = remembered_account(remembered[lane.account, lane.group], lane, price)
    if is_peak is None:
        return replace(guess, state=_measured(guess.state, lane)), _ledger(view, lane.account)
    state = replace(guess.state, is_peak=is_peak, slowdown=slowdown_of(lane.chronicle, is_peak))
    if state.slowdown is None:
        said = "too few hours of this account are known to say how fast its busy and quiet ones are"
        guess = replace(guess, assumed=(*guess.assumed, said))
    return replace(guess, state=state), _ledger(view, lane.account)


def _measured(state: AccountState, lane: AccountView) -> AccountState:
    found = condition_of(lane, hour())
    if found.refused_share is not None:
        state = replace(state, refused_share=found.refused_share, slowdown=found.slower)
    return replace(state, is_peak=found.is_peak)


def _is_meant(lane: AccountView, account: str, model: str) -> bool:
    is_account = not account or lane.account == account or lane.account.split("#")[0] == account
    return is_account and (not model or lane.group == model_group(model))


def _samples(lane: AccountMemory) -> float:
    return sum(weight for _, weight, _, _ in lane.profile.curves[1])


def _ledger(view: AdmissionView, account: str) -> Pot | None:
    ledgers = dict(view.ledgers)
    for key in (account, EVERY_ACCOUNT):
        ledger = ledgers.get(key)
        if ledger is not None and (ledger.budget.tokens or ledger.budget.microusd):
            return ledger
    return None


def price_in(model: str) -> Price | None:
    if not model:
        return None
    from headway.wire.prices import price_of

    return price_of(model.rsplit("/", 1)[-1])


DIAL_S_MAX: Final = 1.0
"""A broker that lives takes a connection in far less."""


class Overview(Struct, frozen=True):
    view: AdmissionView
    about: About | None = None
    """The broker, if one lives."""
    age_s: float | None = None
    """How old a memory is that was read in place of a broker."""

    @property
    def source(self) -> str:
        if self.about is not None:
            others = f"{len(self.about.clients) - 1} other clients connected"
            return f"broker {self.about.pid}, up {self.about.age_s:.0f} s, {others}"
        if self.age_s is not None:
            return f"no broker is running; remembered, written {_age(self.age_s)} ago"
        return "no broker is running, and nothing is remembered"


def overview(environ: Mapping[str, str]) -> Overview:
    place = folders(environ)
    if is_served(place):
        from headway.client.admission import admission

        return Overview(*admission().describe())
    kept, now = recall(place.memory), now_s()
    if kept is None:
        return Overview(AdmissionView("", (), (), ()))
    return Overview(describe(open_admission(kept, now), now), None, kept.age_s)


def is_served(place: Folders) -> bool:
    if not hasattr(socket, "AF_UNIX"):
        return False
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sock:
        sock.settimeout(DIAL_S_MAX)
        try:
            sock.connect(place.socket)
        except OSError:
            return False
    return True


def _age(age_s: float) -> str:
    for unit_s, unit in ((86400.0, "d"), (3600.0, "h"), (60.0, "min")):
        if age_s >= unit_s:
            return f"{age_s / unit_s:.0f} {unit}"
    return f"{age_s:.0f} s"
