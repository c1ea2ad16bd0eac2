"""The records of the gateway: requests, upstreams, keys, outcomes."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Protocol

from msgspec import Struct

from headway.agents.metering import MeteredUsage
from headway.base.values import Fault, Spend, Tally
from headway.pacing.windows import Shares
from headway.wire.values import Route

Pairs = tuple[tuple[bytes, bytes], ...]
"""Headers as they are on the wire: names in their sender's spelling, repeats kept, in order."""


class Upstream(Struct, frozen=True):
    """A provider behind the gateway: `/TOKEN/NAME/v1/messages` goes to `URL/v1/messages`."""

    name: str
    url: str
    """Without a slash at its end."""
    key: str = ""
    """The provider's key, where the gateway adds it in place of the client's own."""
    is_whole: bool = False
    """Whether the address of OpenAI's clients is `url` itself and not `url/v1`."""

    def __repr__(self) -> str:
        return f"<Upstream {self.name} {self.url}>"

    @property
    def version(self) -> str:
        """What clients have behind `url` in their own address."""
        return "/v1" if self.name == "openai" and not self.is_whole else ""


class Payer(Protocol):
    """The task of a run that a key's calls are made for. Nothing here blocks."""

    def waits(self, why: str = "", /) -> None:
        """A call asked for a permit; why it was turned away, if it was."""

    def goes(self, why: str = "", /) -> None:
        """A call has its permit, or waits no longer; what it waited for."""

    def rests(self, seconds: float) -> None:
        """A client was sent away, or left: the seconds within which it calls again."""

    def reserve(self, more: Spend) -> Awaitable[None]:
        """Set aside so much more for this task; raises OverBudgetError."""

    def spare(self, left: Spend) -> None:
        """A call ended and left so much of what was set aside for it; negative if it took more."""

    def window(self, resets_at_s: float, detail: str) -> None:
        """The account's usage window is empty until then, by the wall clock."""


class GatewayKey(Struct, eq=False):
    token: str
    name: str
    """As people read it: `default`, or the task's name."""
    path: tuple[str, ...] = ()
    """The flow of its calls: fairness is between flows. Its sessions are flows below it."""
    payer: Payer | None = None
    window_shares: Shares | None = None
    """The most that the run of its path takes of each usage window."""
    totals: MeteredUsage | None = None
    in_flight: int = 0
    is_interactive: bool = False
    """A person waits for the answers of programs that do not show it themselves."""
    is_over: bool = False
    """The attempt that it was made for has ended: it opens nothing any more."""

    def __repr__(self) -> str:
        return f"<GatewayKey {self.name}>"


class Passed(Struct, frozen=True):
    key: GatewayKey
    upstream: Upstream | None
    """`None`: one of the gateway's own pages."""
    path: str
    """What to append to the upstream's URL, query included; or the page: `/status`, `/metrics`."""
    route: Route | None = None
    """The call that it is; `None` for everything that no model answers."""


class Turned(Struct, frozen=True):
    status: int
    code: str
    """One word for the metrics: `host`, `origin`, `token`, `path`, `method`, `type`, `size`..."""
    message: str
    hint: str = ""


class Caller(Struct, frozen=True):
    name: str
    """`claude-code`, `codex`, `opencode`, `gemini-cli`, `openai-python`..., or `unknown`."""
    silent_s: float
    """For so long it waits without a byte."""
    beat_s: float = 15.0
    """From then on it wants a sign of life this often."""
    version: str = ""
    session: str = ""
    """What it calls its own conversation; nothing where it does not say."""
    is_interactive: bool | None = None
    """Whether a person waits for its answers; `None` where its headers do not show it."""


class CallEnded(Struct, frozen=True):
    key: str
    caller: str
    upstream: str
    model: str
    status: int
    """What the client was sent; 499 when it had gone."""
    tally: Tally
    fault: Fault | None
    microusd: int | None
    queued_s: float
    """Until it was sent upstream for the last time."""
    first_byte_s: float
    """From then until the headers of the answer; 0 when there were none."""
    resends: int
    """Refusals and overloads that the gateway absorbed."""
    was_committed: bool
    """A keep-alive was sent before there was an answer."""
    was_replayed: bool = False
    was_held: bool = False
    """It waited for a permit, or again after a refusal."""
