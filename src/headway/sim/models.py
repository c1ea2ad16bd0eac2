"""The simulated models: what each replies.

Laws:
- The same conversation gives the same answer, from any process, on any wire.
- The name in the request chooses: `agent`, `echo`, `hash`, `script`, `tokens-N`, `tokens-A-B`; any
  other name is the default model.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from hashlib import sha256
from json import dumps
from math import exp, log, sqrt
from typing import TYPE_CHECKING, Final

from msgspec import Struct
from msgspec.structs import replace

from headway.errors import BadValueError, did_you_mean
from headway.sim.draw import normal
from headway.sim.truth import count, filler, pieces_of
from headway.wire.request import TOOL
from headway.wire.values import Conversation, Fields, ToolUse, items, object_fields, parsed, text_of

if TYPE_CHECKING:
    from headway.sim.script import ScriptRule


DEPTH_MAX: Final = 16
"""How deep a schema is followed; what is deeper is null."""

_PLAIN: Final[dict[str, object]] = {"string": "plain", "boolean": False}


def filled(schema: str) -> str:
    """A value for a JSON Schema, as JSON. Gemini writes the types in capitals."""
    return dumps(_value(object_fields(parsed(schema)), 0), ensure_ascii=False)


def _value(schema: Fields, depth: int) -> object:
    if depth > DEPTH_MAX:
        return None
    if given := items(schema.get("enum")):
        return given[0]
    if "const" in schema:
        return schema["const"]
    for key in ("anyOf", "oneOf", "allOf"):
        if inner := items(schema.get(key)):
            return _value(object_fields(inner[0]), depth + 1)
    kinds = [text_of(kind).lower() for kind in items(schema.get("type"))]
    kind = text_of(schema.get("type")).lower() or next(iter(kinds), "")
    if kind in ("integer", "number"):
        least = schema.get("minimum")
        return least if isinstance(least, int | float) else 1
    if kind == "array":
        return [_value(object_fields(schema.get("items")), depth + 1)]
    if kind == "object" or "properties" in schema:
        named = object_fields(schema.get("properties")).items()
        return {name: _value(object_fields(value), depth + 1) for name, value in named}
    return _PLAIN.get(kind)


SHELL: Final = "shell"
"""Stands for whichever shell a client offers."""

COMMAND: Final = "echo headway"
"""What is run for a prompt that names no command."""

_COMMAND: Final = re.compile(r"`([^`\n]+)`")
_GO_ON: Final = re.compile(r"^You were interrupted\b", re.MULTILINE)
_LOST: Final = re.compile(r"\[Tool call interrupted|aborted\Z|\[Request interrupted")
"""What Claude Code and Codex say in the place of a result that never came."""

_NAMED: Final = re.compile(r"([A-Za-z0-9_-]+) (\{.*\})")


def _described(command: str) -> object:
    return {"command": command, "description": "Run what was asked for"}


SHELLS: Final[Mapping[str, Callable[[str], object]]] = {
    "Bash": _described,
    "bash": _described,
    "run_shell_command": _described,
    "exec_command": lambda command: {"cmd": command},
    "shell_command": lambda command: {"command": command},
    "shell": lambda command: {"command": ["bash", "-lc", command]},
}
"""What shells are given: those of Claude Code, opencode, Gemini CLI and, the last three, Codex."""


def episode_of(conversation: Conversation) -> tuple[list[str], list[str]]:
    """Commands and tool results since the model last had nothing more to do.

    Commands are between backticks, in the last line of the user that has any: clients add lines
    of their own in the user's name, without backticks behind the prompt. After "You were
    interrupted" the commands go on; a tool that was cut off has no result.
    """
    turns = [turn for turn in conversation.turns if not _LOST.match(turn[1])]
    start = 0
    for place, (role, _) in enumerate(turns, 1):
        goes_on = place < len(turns) and (
            turns[place][0] in ("assistant", TOOL) or _GO_ON.search(turns[place][1]) is not None
        )
        if role == "assistant" and not goes_on:
            start = place
    told = [line for role, text in turns[start:] if role == "user" for line in text.splitlines()]
    commands = next((found for line in reversed(told) if (found := _COMMAND.findall(line))), [])
    return commands, [text for role, text in turns[start:] if role == TOOL]


def shell_of(conversation: Conversation) -> str | None:
    """The shell that is offered, if there is one."""
    return next((name for name in conversation.tools if name in SHELLS), None)


def use_of(name: str, given: object, digest: str) -> ToolUse:
    """A wish to use a tool; a shell is given a command. Its id follows from the conversation."""
    if name in SHELLS and isinstance(given, str):
        given = SHELLS[name](given)
    return ToolUse(f"call_{digest[:24]}", name, dumps(given, ensure_ascii=False))


DEFAULT_MODEL: Final = "tokens-200"
UNMATCHED_TOKENS: Final = 50
"""Tokens that answer a text that no rule of a script matches."""

TOKENS_MAX: Final = 1_000_000
"""The longest answer: five times what real models write."""

LENGTH_STREAM: Final = 83
"""The stream of draws that decides lengths; distinct from every other use of a seed."""

NAMES: Final = ("agent", "echo", "hash", "script", "tokens-200", "tokens-50-800")
"""What the list of models shows; any other `tokens-N` works as well."""

ASIDE: Final = "Nothing to run here."
"""What `agent` says to a client that offers no shell: one that wants a title, or a route."""

_LENGTHS: Final = re.compile(r"tokens-([0-9]{1,7})(?:-([0-9]{1,7}))?")


class ModelReply(Struct, frozen=True):
    """The answer of a model, before `max_tokens` cuts it."""

    pieces: list[str]
    faults: tuple[str, ...] = ()
    """What a rule of a script makes go wrong."""
    tool_uses: tuple[ToolUse, ...] = ()

    @property
    def tokens(self) -> int:
        """Those of the text and of the tools, with their arguments."""
        used = sum(count(use.name) + count(use.arguments) for use in self.tool_uses)
        return len(self.pieces) + used

    def within(self, tokens_max: int | None) -> ModelReply:
        """As much of it as is allowed: tools that no room is left for are not asked for."""
        if tokens_max is None or self.tokens <= tokens_max:
            return self
        return replace(self, pieces=self.pieces[: max(1, tokens_max)], tool_uses=())


class SimulatedModels(Struct, frozen=True):
    """The models on offer."""

    default: str = DEFAULT_MODEL
    script: tuple[ScriptRule, ...] = ()

    def reply(self, conversation: Conversation) -> ModelReply:
        """The answer of the model that the conversation names."""
        name = conversation.model if is_model(conversation.model) else self.default
        if name == "script" and not self.script:
            name = DEFAULT_MODEL
        if name == "echo":
            return ModelReply(pieces_of(asked(conversation)))
        digest = digest_of(conversation)
        if name == "agent":
            return _agent(conversation, digest)
        if name == "hash":
            return ModelReply(pieces_of(digest))
        if name == "script":
            replies = (rule.reply(conversation, digest) for rule in self.script)
            otherwise = ModelReply(filler(UNMATCHED_TOKENS, int(digest[:8], 16)))
            return next((reply for reply in replies if reply is not None), otherwise)
        return ModelReply(filler(_length(name, digest), int(digest[:8], 16)))


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


def _agent(conversation: Conversation, digest: str) -> ModelReply:
    """Runs the commands of the prompt in the client's shell, or uses the tools that they name, then
    tells what they gave."""
    if conversation.schema:
        return ModelReply(pieces_of(filled(conversation.schema)))
    shell, (commands, results) = shell_of(conversation), episode_of(conversation)
    commands = commands or [COMMAND]
    if len(results) >= len(commands):
        return ModelReply(pieces_of("\n".join(("The commands gave:", *results))))
    command = commands[len(results)]
    named = _NAMED.fullmatch(command)
    if named is not None and named[1] in conversation.tools:
        use = ToolUse(f"call_{digest[:24]}", named[1], named[2])
    elif shell is not None:
        use = use_of(shell, command, digest)
    else:
        return ModelReply(pieces_of(ASIDE))
    return ModelReply(pieces_of(f"I run {command}."), tool_uses=(use,))


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
