"""The models of the simulated provider: what is answered to a conversation, as tokens.

Laws:
- The same conversation gives the same answer, from any process, on any wire.
- The name in the request chooses: `agent`, `echo`, `hash`, `script`, `tokens-N`, `tokens-A-B`; any
  other name is the default model.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from hashlib import sha256
from json import dumps
from math import exp, log, sqrt
from typing import TYPE_CHECKING, Final

from headway.core.foresight.draw import normal
from headway.errors import BadValueError, did_you_mean
from headway.simulator.filled import filled
from headway.simulator.tokens import count, filler, pieces_of
from headway.simulator.tooluse import COMMAND, command_of, episode_of, named_use, shell_of
from headway.wire.values import Conversation, ToolUse

if TYPE_CHECKING:
    from headway.simulator.script import Script

DEFAULT_MODEL: Final = "tokens-200"
TOKENS_MAX: Final = 1_000_000
"""The longest answer: five times what real models write."""

LENGTH_STREAM: Final = 83
"""The stream of draws that decides lengths; distinct from every other use of a seed."""

NAMES: Final = ("agent", "echo", "hash", "script", "tokens-200", "tokens-50-800")
"""What the list of models shows; any other `tokens-N` works as well."""

ASIDE: Final = "Nothing to run here."
"""What `agent` says to a client that offers no shell: one that wants a title, or a route."""

_LENGTHS: Final = re.compile(r"tokens-([0-9]{1,7})(?:-([0-9]{1,7}))?")


@dataclass(frozen=True, slots=True)
class Reply:
    """What a model says, before anybody cuts it."""

    pieces: list[str]
    faults: tuple[str, ...] = ()
    """What a rule of a script makes go wrong."""
    tool_uses: tuple[ToolUse, ...] = ()

    @property
    def tokens(self) -> int:
        """Those of the text and of the tools, with their arguments."""
        used = sum(count(use.name) + count(use.arguments) for use in self.tool_uses)
        return len(self.pieces) + used

    def within(self, tokens_max: int | None) -> Reply:
        """As much of it as is allowed: tools that no room is left for are not asked for."""
        if tokens_max is None or self.tokens <= tokens_max:
            return self
        return replace(self, pieces=self.pieces[: max(1, tokens_max)], tool_uses=())


@dataclass(frozen=True, slots=True)
class Models:
    """The models on offer."""

    default: str = DEFAULT_MODEL
    script: Script | None = None

    def reply(self, conversation: Conversation) -> Reply:
        """The answer of the model that the conversation names."""
        name = conversation.model if is_model(conversation.model) else self.default
        if name == "script" and self.script is None:
            name = DEFAULT_MODEL
        if name == "echo":
            return Reply(pieces_of(asked(conversation)))
        digest = digest_of(conversation)
        if name == "agent":
            return _agent(conversation, digest)
        if name == "hash":
            return Reply(pieces_of(digest))
        if name == "script" and self.script is not None:
            return self.script.reply(conversation, digest)
        return Reply(filler(_length(name, digest), int(digest[:8], 16)))


def is_model(name: str) -> bool:
    """Whether a name chooses a model."""
    if name in ("agent", "echo", "hash", "script"):
        return True
    found = _LENGTHS.fullmatch(name)
    if found is None:
        return False
    least, most = int(found[1]), int(found[2] or found[1])
    return 1 <= least <= most <= TOKENS_MAX


def must_be_model(name: str) -> str:
    """The name, or an error that says which names there are."""
    if is_model(name):
        return name
    hint = f"{did_you_mean(name, NAMES)} (`tokens-N` for 1 to {TOKENS_MAX:,} tokens)"
    raise BadValueError(f"`--model` is {name!r}: there is no such model", hint=hint)


def asked(conversation: Conversation) -> str:
    """The text of the last turn."""
    return conversation.turns[-1][1] if conversation.turns else conversation.system


def digest_of(conversation: Conversation) -> str:
    """64 hex digits that stand for everything that was said, and by whom."""
    said = dumps([conversation.system, conversation.turns], ensure_ascii=True)
    return sha256(said.encode()).hexdigest()


def _agent(conversation: Conversation, digest: str) -> Reply:
    """Runs the commands of the prompt in the client's shell, or uses the tools that they name, then
    tells what they gave."""
    if conversation.schema:
        return Reply(pieces_of(filled(conversation.schema)))
    shell, episode = shell_of(conversation), episode_of(conversation)
    commands = episode.commands or (COMMAND,)
    if len(episode.results) >= len(commands):
        return Reply(pieces_of("\n".join(("The commands gave:", *episode.results))))
    command = commands[len(episode.results)]
    use = named_use(conversation, command, digest)
    if use is None:
        if shell is None:
            return Reply(pieces_of(ASIDE))
        use = command_of(shell, command, digest)
    return Reply(pieces_of(f"I run {command}."), tool_uses=(use,))


def _length(name: str, digest: str) -> int:
    """How many tokens; between two numbers, lognormal: the median is their geometric mean."""
    found = _LENGTHS.fullmatch(name)
    least, most = (int(found[1]), int(found[2] or found[1])) if found else (200, 200)
    if least == most:
        return least
    # Both ends are two deviations from the median; the 5 % beyond them are moved to the ends.
    deviation = log(most / least) / 4.0
    drawn = sqrt(least * most) * exp(deviation * normal(int(digest[:16], 16), LENGTH_STREAM, 0))
    return max(least, min(most, round(drawn)))
