"""The simulated models: what each replies.

Laws:
- The same conversation gives the same answer, from any process, on any wire.
- The name in the request chooses: `agent`, `echo`, `hash`, `script`, `tokens-N`, `tokens-A-B`; any
  other name is the default model.
- Of a script the first rule that matches answers, else filler; nothing is executed.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping
from hashlib import sha256
from json import dumps
from math import exp, log, sqrt
from typing import Annotated, Final, Literal

import yaml
from msgspec import Meta, Struct, ValidationError, convert, field
from msgspec.structs import replace

from headway.base.fields import Fields, items, object_fields, parsed, text_of
from headway.errors import BadPresetError, BadValueError, did_you_mean
from headway.sim.delivery import must_be_kind
from headway.sim.draw import normal
from headway.sim.presets import parse_file
from headway.sim.truth import count, filler, pieces_of
from headway.wire.request import TOOL
from headway.wire.values import Conversation, ToolUse

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


def is_model(name: str) -> bool:
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


# The model `script`; `docs/simulator.md` describes the keys of a rule.

FILE_BYTES_MAX: Final = 1_000_000
RULES_MAX: Final = 1000
FOUND_MAX: Final = 10_000
"""The most that `{found}` lists."""

_FLAGS: Final = re.MULTILINE | re.DOTALL
_NAME: Final = re.compile(r"\{([a-z]+(?:\.\w+)?)\}")
_NUMBER: Final = re.compile(r"(?<![\w.])-?\d+(?:\.\d+)?")
_SUMMAND: Final = re.compile(r'"(\w+)": *(-?\d+(?:\.\d+)?)')


class ScriptInput(Struct, frozen=True):
    """What a rule computes over."""

    text: str
    match: re.Match[str] | None
    find: re.Pattern[str] | None
    digest: str
    conversation: Conversation

    @property
    def tally(self) -> dict[str, int]:
        """What `find` found, sorted, and how often."""
        if self.find is None:
            return {}
        each = Counter(m[1 if self.find.groups else 0] for m in self.find.finditer(self.text))
        return dict(sorted((part, times) for part, times in each.items() if part)[:FOUND_MAX])

    @property
    def rows(self) -> list[dict[str, object]]:
        """The named groups of `find` at each place where its last one is found; those that are not
        found there are what they were before, as under a heading. Digits are a number."""
        rows: list[dict[str, object]] = []
        row: dict[str, object] = {}
        if self.find is None or not self.find.groupindex:
            return rows
        *_, last = self.find.groupindex
        for match in self.find.finditer(self.text):
            found = {name: value for name, value in match.groupdict().items() if value is not None}
            row |= {name: int(one) if one.isdecimal() else one for name, one in found.items()}
            if last in found and len(rows) < FOUND_MAX:
                rows.append(dict(row))
        return rows


def _numbers(seen: ScriptInput) -> list[float]:
    texts = _NUMBER.findall(seen.text)
    return [_number(text) for text in texts]


def _sums(seen: ScriptInput) -> dict[str, float]:
    sums: dict[str, float] = {}
    for name, text in _SUMMAND.findall(seen.text):
        sums[name] = sums.get(name, 0) + _number(text)
    return dict(sorted(sums.items()))


def _number(text: str) -> float:
    return float(text) if "." in text else int(text)


VALUES: Final[Mapping[str, Callable[[ScriptInput], object]]] = {
    "words": lambda seen: len(seen.text.split()),
    "lines": lambda seen: len(seen.text.splitlines()),
    "bytes": lambda seen: len(seen.text.encode("utf-8", "replace")),
    "chars": lambda seen: len(seen.text),
    "tokens": lambda seen: count(seen.text),
    "numbers": _numbers,
    "sum": lambda seen: sum(_numbers(seen)),
    "sums": _sums,
    "largest": lambda seen: max(_numbers(seen), default=0),
    "found": lambda seen: list(seen.tally),
    "count": lambda seen: len(seen.tally),
    "tally": lambda seen: seen.tally,
    "rows": lambda seen: seen.rows,
    "text": lambda seen: seen.text,
    "hash": lambda seen: seen.digest,
    "seal": lambda seen: sha256(seen.text.encode("utf-8", "replace")).hexdigest(),
    "turns": lambda seen: len(seen.conversation.turns),
}
"""What can stand in braces; beside these, `{group.1}` and `{group.name}` of `regex`."""


class ScriptRule(Struct, frozen=True, forbid_unknown_fields=True):
    """When to answer, and what."""

    contains: str | None = None
    regex: re.Pattern[str] | None = None
    on: Literal["last", "all", "result"] = "last"
    within: re.Pattern[str] | None = None
    find: re.Pattern[str] | None = None
    answer: str = ""
    json: object = None
    use: Mapping[str, object] = field(default_factory=dict)
    """What each of the tools is to be given."""
    tokens: Annotated[int, Meta(ge=1, le=TOKENS_MAX)] | None = None
    faults: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for kind in self.faults:
            must_be_kind(kind)
        for name, given in self.use.items():
            if not (isinstance(given, dict) or (name == SHELL and isinstance(given, str))):
                hint = "write `use: {shell: ls}` or `use: {Read: {file_path: a.txt}}`"
                raise BadValueError("`use` says what each tool is given", hint=hint)
        for text in _strings((self.answer, self.json, self.use)):
            _check_names(text, self.regex)

    def reply(self, conversation: Conversation, digest: str) -> ModelReply | None:
        """The answer, or None if this rule has nothing to say."""
        tool, text = self._tool(conversation), self._text(conversation)
        if text is None or (self.use and tool is None):
            return None
        if self.contains is not None and self.contains not in text:
            return None
        match = self.regex.search(text) if self.regex is not None else None
        if self.regex is not None and match is None:
            return None
        inner = self.within.search(text) if self.within is not None else None
        if inner is not None:
            text = inner[1] if inner.re.groups else inner[0]
        seen = ScriptInput(text, match, self.find, digest, conversation)
        said = _rendered(self.answer, seen)
        if self.json is not None:
            said = dumps(_computed(self.json, seen), ensure_ascii=False)
        pieces = pieces_of(said)
        if self.tokens is not None:
            more = filler(max(0, self.tokens - len(pieces)), int(digest[:8], 16))
            pieces = (pieces + [f" {word.strip()}" for word in more])[: self.tokens]
        return ModelReply(pieces, self.faults, self._uses(tool, seen))

    def _text(self, conversation: Conversation) -> str | None:
        """What the rule looks at; None where it looks at results and there are none."""
        if self.on == "result":
            _, results = episode_of(conversation)
            return "\n".join(results) if results else None
        return conversation.text if self.on == "all" else asked(conversation)

    def _tool(self, conversation: Conversation) -> str | None:
        """The first of the rule's tools that is offered, under the rule's name for it."""
        if not self.use or episode_of(conversation)[1]:
            return None
        offered = {*conversation.tools, *((SHELL,) if shell_of(conversation) else ())}
        return next((name for name in self.use if name in offered), None)

    def _uses(self, tool: str | None, seen: ScriptInput) -> tuple[ToolUse, ...]:
        if tool is None:
            return ()
        given = self.use[tool]
        if tool == SHELL and isinstance(given, str):
            shell = shell_of(seen.conversation) or SHELL
            return (use_of(shell, _rendered(given, seen), seen.digest),)
        return (use_of(tool, _computed(given, seen), seen.digest),)


def read_script(name: str) -> tuple[ScriptRule, ...]:
    return parse_script(parse_file(name, FILE_BYTES_MAX, yaml.safe_load), name)


def parse_script(found: object, where: str = "script") -> tuple[ScriptRule, ...]:
    """The rules in the content of a YAML file."""
    listed = found.get("rules") if isinstance(found, dict) and set(found) == {"rules"} else None
    if not isinstance(listed, list) or not 0 < len(listed) <= RULES_MAX:
        hint = "begin the file with `rules:` and a list of rules"
        raise BadPresetError("a script is a list of rules", where=where, hint=hint)
    rules = []
    for number, item in enumerate(listed, start=1):
        place = f"{where}, rule {number}"
        try:
            rules.append(_rule(item))
        except BadValueError as error:
            raise BadPresetError(error.message, where=place, hint=error.hint) from error
        except ValidationError as error:
            raise BadPresetError(str(error).replace("$.", ""), where=place) from error
    return tuple(rules)


def _rule(item: object) -> ScriptRule:
    if isinstance(item, dict):
        # YAML 1.1 reads a bare `on` as true.
        item = {("on" if key is True else key): value for key, value in item.items()}
        names = ScriptRule.__struct_fields__
        for key in item:
            if key not in names:
                raise BadValueError(
                    f"a rule has no key `{key}`", hint=did_you_mean(str(key), names)
                )
    return convert(item, ScriptRule, dec_hook=_decoded)


def _decoded(kind: type, value: object) -> object:
    """A regular expression, or any value where the type is `object`."""
    if kind is object:
        return value
    if not isinstance(value, str):
        raise ValueError(f"Expected `str`, got `{type(value).__name__}`")
    try:
        return re.compile(value, _FLAGS)
    except re.error as error:
        raise ValueError(f"`{value}` is not a regular expression: {error}") from error


def _strings(value: object) -> list[str]:
    if isinstance(value, str):
        return [value]
    inner = list(value.values()) if isinstance(value, dict) else value
    if isinstance(inner, list | tuple):
        return [text for part in inner for text in _strings(part)]
    return []


def _check_names(text: str, regex: re.Pattern[str] | None) -> None:
    for name in _NAME.findall(text):
        if name in VALUES:
            continue
        head, _, group = name.partition(".")
        if head != "group":
            hint = did_you_mean(name, VALUES)
            raise BadValueError(f"nothing is called `{{{name}}}`", hint=hint)
        groups = regex.groups if regex is not None else 0
        named = regex.groupindex if regex is not None else {}
        if group not in named and not (group.isdigit() and int(group) <= groups):
            raise BadValueError(f"`regex` has no group for `{{{name}}}`")


def _looked_up(name: str, seen: ScriptInput) -> object:
    compute = VALUES.get(name)
    if compute is not None:
        return compute(seen)
    group = name.partition(".")[2]
    if seen.match is None:
        return ""
    return seen.match[int(group) if group.isdigit() else group] or ""


def _rendered(template: str, seen: ScriptInput) -> str:
    def shown(match: re.Match[str]) -> str:
        value = _looked_up(match[1], seen)
        if isinstance(value, dict):
            value = [f"{name}: {number}" for name, number in value.items()]
        if match[1] == "rows":
            return "\n".join(f"- {': '.join(map(str, row.values()))}" for row in seen.rows)
        return ", ".join(map(str, value)) if isinstance(value, list) else str(value)

    return _NAME.sub(shown, template)


def _computed(value: object, seen: ScriptInput) -> object:
    """A value of `json`: a name alone is computed, a text with braces is filled in."""
    if isinstance(value, str):
        return VALUES[value](seen) if value in VALUES else _rendered(value, seen)
    if isinstance(value, dict):
        return {str(key): _computed(inner, seen) for key, inner in value.items()}
    if isinstance(value, list):
        return [_computed(inner, seen) for inner in value]
    return value


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
