"""The canonical form in which a request is compared with a recorded one.

Laws:
- Calls of one form may have one reply. What a model reads is never masked, except what its client
  writes by itself and anew in every run: the date, how long a command took, the number of its
  process.
- A value is masked only in the shape that was measured, and only at the place where it was. A
  field that comes to mean something else is compared, and differs.
- Ids keep what they tell: the first becomes `<id 1>` wherever it stands, the next `<id 2>`.
- What was masked, and where, is a part of the form: a text cannot imitate a mask.
- A client that was not measured, and a body that is no plain JSON, is compared byte by byte.

The differences were found by running each client twice; docs/agents.md says what they were.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Iterator
from functools import partial
from typing import Final, Literal
from urllib.parse import unquote

from msgspec import Struct

from headway.base.digest import digest
from headway.base.fields import Fields, items
from headway.gateway.values import Caller, Pairs
from headway.wire.values import WireName

FORM: Final = "1"
"""The version of the form itself: forms of different versions are never equal."""

SPOKEN: Final = (
    b"accept-encoding", b"anthropic-beta", b"anthropic-version", b"openai-beta",
)  # fmt: skip
"""Headers that change what comes back. The others say who calls."""

SECRETS: Final = ("key", "access_token")
"""Parameters of a query that are keys: Google's API takes them there. They are not kept."""
PART_DIGITS: Final = 8
"""Of a part's digest: it explains a difference that is known to be there."""

KIND: Final = (
    "path", "body.model", "body.system", "body.systemInstruction", "body.instructions",
    "body.tools",
)  # fmt: skip
"""Parts that calls have in common which follow one another in a conversation. A title, a summary
and the calls of a subagent have others, and come when they come."""

FIELDS_MAX: Final = 64
"""A body of more fields is no request of any format; each has a digest."""

Kind = Literal["id", "date", "time", "process"]


class MaskRule(Struct, frozen=True):
    path: str
    """`messages[role=system].content`: `[]` is every item, `[name=value]` some, `*` any member."""
    shape: str
    """A regular expression that spells out everything but what is volatile."""
    kind: Kind = "id"
    begins: str = ""
    """Only a text that begins so: one that the client wrote, not its user."""


class Mask(Struct, frozen=True):
    caller: str
    since: tuple[int, ...]
    """The first version that was measured; later ones are masked alike, see the second law."""
    measured: tuple[str, ...]
    """The versions with which replays were measured: `make test-agents` installs them."""
    rules: tuple[MaskRule, ...]
    unordered: tuple[str, ...] = ()
    """Objects whose members come in any order."""


_UUID: Final = "[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
_DAY: Final = r"\d{4}-\d\d-\d\d"
_CLAUDE_DATE: Final = rf"(?<=\n\n)Today's date is {_DAY}\.\Z"
_OPENCODE_DATE: Final = r"(?<=\n  )Today's date: [A-Z][a-z]{2} [A-Z][a-z]{2} \d\d \d{4}(?=\n</env>)"

MASKS: Final = (
    Mask(
        "claude-code",
        (2, 1, 325),
        ("2.1.325",),
        (
            # A new HOME makes a new device; the session can be pinned.
            MaskRule(
                "metadata.user_id",
                rf'\A\{{"device_id":"[0-9a-f]{{64}}","account_uuid":"(?:{_UUID})?",'
                rf'"session_id":"{_UUID}"\}}\Z',
            ),
            # Models of the fifth generation are told in a message of the system, others in a
            # block of the first message.
            MaskRule("messages[role=system].content", _CLAUDE_DATE, "date"),
            MaskRule("messages[role=system].content[].text", _CLAUDE_DATE, "date"),
            MaskRule(
                "messages[role=user].content[].text",
                rf"\A<system-reminder>\nToday's date is {_DAY}\.\n</system-reminder>\Z",
                "date",
            ),
        ),
    ),
    Mask(
        "codex",
        (0, 166),
        ("0.166.0",),
        (
            MaskRule("prompt_cache_key", rf"\A{_UUID}\Z"),
            MaskRule("input[].id", rf"(?<=\A[a-z]{{3}}_){_UUID}\Z"),
            MaskRule("client_metadata.*", _UUID),
            MaskRule("client_metadata.*", r'"turn_started_at_unix_ms":\d{13}\b', "time"),
            MaskRule(
                "input[role=user].content[].text",
                rf"(?<=\n  )<current_date>{_DAY}</current_date>(?=\n)",
                "date",
                begins="<environment_context>\n",
            ),
            # Of a command that has ended. One that still runs has a number that the model uses.
            MaskRule(
                "input[type=function_call_output].output",
                r"\AChunk ID: [0-9a-f]{6}\nWall time: \d+\.\d{4} seconds\n(?=Process exited )",
                "time",
            ),
        ),
        unordered=("client_metadata",),
    ),
    Mask(
        "opencode",
        (1, 18),
        ("1.18.33",),
        (
            MaskRule("prompt_cache_key", r"\Ases_[0-9A-Za-z]{26}\Z"),
            MaskRule("messages[role=system].content", _OPENCODE_DATE, "date"),
            MaskRule("input[role=system].content", _OPENCODE_DATE, "date"),
            MaskRule("system[].text", _OPENCODE_DATE, "date"),
        ),
    ),
    Mask(
        "gemini-cli",
        (0, 61),
        ("0.61.0",),
        (
            MaskRule("contents[].parts[].functionCall.id", r"(?<=_)\d{13}(?=_\d+\Z)"),
            MaskRule("contents[].parts[].functionResponse.id", r"(?<=_)\d{13}(?=_\d+\Z)"),
            # In the words of the user's language.
            MaskRule(
                "contents[].parts[].text",
                r"(?<=\n)Today's date is [^\n(]{6,60} \(formatted according to the user's locale\)",
                "date",
                begins="<session_context>\nThis is the Gemini CLI.",
            ),
            MaskRule(
                "contents[].parts[].functionResponse.response.output",
                r"(?<=\n)Process Group PGID: \d+(?=(?:\n</untrusted_context>)?\Z)",
                "process",
            ),
        ),
    ),
)


class CanonicalCall(Struct, frozen=True):
    """A call by its form. Nothing of its text remains."""

    key: str
    caller: str
    version: str
    session: str
    wire: WireName
    model: str
    path: str
    form: str
    """The digest of the canonical form, in hexadecimal digits."""
    parts: tuple[tuple[str, str], ...]
    """Short digests of what the form is made of: where two forms differ can be said."""


def canonical_call(
    key: str, caller: Caller, wire: WireName, upstream: str, model: str, path: str, headers: Pairs,
    body: bytes,
) -> CanonicalCall:  # fmt: skip
    """The form of a call: `key` is the key's name, `body` is not compressed."""
    path = without_secrets(path)
    named = {"form": FORM, "caller": caller.name, "upstream": upstream, "wire": wire, "path": path}
    parts = [(name, _bytes(value)) for name, value in named.items()]
    for name, value in sorted((name.lower(), value.strip()) for name, value in headers):
        if name in SPOKEN:
            parts.append((f"header {name.decode()}", value))
    parts += _body_parts(mask_of(caller.name, caller.version), body)
    framed = (_framed(_bytes(name)) + _framed(value) for name, value in parts)
    return CanonicalCall(
        key, caller.name, caller.version, caller.session, wire, model, path,
        digest(b"".join(framed)).hex(),
        tuple((name, digest(value).hex()[:PART_DIGITS]) for name, value in parts),
    )  # fmt: skip


def mask_of(caller: str, version: str) -> Mask | None:
    """What is masked for a client of this version; nothing for those that were not measured."""
    numbers = tuple(map(int, re.findall(r"\d+", version.partition("-")[0])[:4]))
    fitting = [mask for mask in MASKS if mask.caller == caller and mask.since <= numbers]
    return max(fitting, key=lambda mask: mask.since, default=None)


def unmeasured(caller: str, version: str) -> str:
    """Why replays of this client may fail; empty if they were measured."""
    measured = next((mask.measured for mask in MASKS if mask.caller == caller), None)
    if measured is not None and version in measured:
        return ""
    was = "was never measured" if measured is None else f"was measured with {', '.join(measured)}"
    return (
        f"{caller} {version}: replay {was}; "
        "calls that differ from the recorded ones are sent, and paid again"
    )


def difference(
    parts: Iterable[tuple[str, str]], others: Iterable[tuple[str, str]]
) -> tuple[str, ...]:
    ours, theirs = dict(parts), dict(others)
    return tuple(name for name in {**ours, **theirs} if ours.get(name) != theirs.get(name))


def kind_of(parts: Iterable[tuple[str, str]]) -> str:
    return " ".join(f"{name}={value}" for name, value in parts if name in KIND)


def without_secrets(path: str) -> str:
    place, mark, query = path.partition("?")
    kept = [one for one in query.split("&") if unquote(one.partition("=")[0]) not in SECRETS]
    return f"{place}{mark}{'&'.join(kept)}"


def _body_parts(mask: Mask | None, body: bytes) -> Iterator[tuple[str, bytes]]:
    fields = None if mask is None else _plain(body)
    if mask is None or fields is None:
        yield "body", body
        return
    places = _masked(fields, mask)
    yield "masked", "\n".join([".".join(map(str, mask.since)), *places]).encode()
    for field, content in fields.items():
        yield f"body.{field}", json.dumps(content).encode()


def _masked(fields: Fields, mask: Mask) -> list[str]:
    """Apply a mask to a body, in place; returns the places that were masked."""
    for name in mask.unordered:
        members = fields.get(name)
        if isinstance(members, dict):
            fields[name] = dict(sorted(members.items()))
    ids: dict[str, int] = {}
    places: list[str] = []
    for rule in mask.rules:
        shape, word = re.compile(rule.shape), partial(_word, rule.kind, ids)
        for owner, name, place in _found(fields, rule.path.split("."), ""):
            text = owner[name]
            if not isinstance(text, str) or not text.startswith(rule.begins):
                continue
            owner[name], count = shape.subn(word, text)
            if count:
                places.append(f"{place} {rule.kind} {count}")
    return places


def _word(kind: Kind, ids: dict[str, int], match: re.Match[str]) -> str:
    return f"<{kind}>" if kind != "id" else f"<id {ids.setdefault(match[0], len(ids) + 1)}>"


def _found(value: object, steps: list[str], at: str) -> Iterator[tuple[Fields, str, str]]:
    """The members at the end of a path: in which object, by which name, and where that is."""
    name, _, which = steps[0].partition("[")
    if not isinstance(value, dict):
        return
    for member in list(value) if name == "*" else [name]:
        if member not in value:
            continue
        place = f"{at}.{member}"
        if len(steps) == 1:
            yield value, member, place
        elif which:
            for number, item in enumerate(items(value[member])):
                if _fits(item, which[:-1]):
                    yield from _found(item, steps[1:], f"{place}.{number}")
        else:
            yield from _found(value[member], steps[1:], place)


def _fits(item: object, which: str) -> bool:
    """Whether an item is one of those that `[name=value]` means; `[]` means all."""
    name, _, wanted = which.partition("=")
    return not name or (isinstance(item, dict) and item.get(name) == wanted)


def _plain(body: bytes) -> Fields | None:
    """A body that is determined by its values; nothing where a member comes twice."""
    try:
        value: object = json.loads(
            body.decode(), object_pairs_hook=_object, parse_float=_finite, parse_constant=_finite
        )
        # What can be read may still be too deep to be written.
        json.dumps(value)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) and len(value) <= FIELDS_MAX else None


def _object(pairs: list[tuple[str, object]]) -> Fields:
    members = dict(pairs)
    if len(members) != len(pairs):
        raise ValueError("a member comes twice")
    return members


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError("a number that has no bounds")
    return value


def _framed(data: bytes) -> bytes:
    """Bytes with their length, so that no two rows of them can be confused."""
    return len(data).to_bytes(8, "big") + data


def _bytes(text: str) -> bytes:
    """Of any text at all, half surrogate pairs included."""
    return text.encode("utf-8", "surrogatepass")
