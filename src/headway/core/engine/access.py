"""What an attempt touched: what it saw of the shared state, what it puts there, what it asks for.

Laws:
- An access is a value: the same reads, writes and effects give the same bytes in every process.
- What was seen is kept as a digest of its content: a task is stale when it would see something
  else now, not when somebody merely wrote the same again.
"""

from __future__ import annotations

import json
from typing import Final

from headway.core.digest import digest
from headway.core.records import quick
from headway.errors import JournalError

VERSION: Final = 1
"""Of the bytes below; they are kept in journals."""

_ENCODER: Final = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))

NOT_THERE: Final = b""
"""The digest of a key that has no value."""


@quick
class Seen:
    """A look at a key, or at all keys of a pattern."""

    what: str
    digest: bytes
    """Of what was there, as far as others had put it there."""


@quick
class Put:
    """A value for a key, or what is added to it where its channel combines."""

    key: str
    data: bytes | None
    """JSON; None takes the key away."""


@quick
class Act:
    """An effect on the world that is asked for."""

    channel: str
    data: bytes
    """JSON: what whoever performs it is given."""
    is_now: bool = False
    """Performed when it was asked for, whatever becomes of the attempt: outside the guarantee."""


@quick
class Access:
    """Everything that one attempt touched, in the order in which it first did."""

    reads: tuple[Seen, ...] = ()
    writes: tuple[Put, ...] = ()
    acts: tuple[Act, ...] = ()
    prompts: bytes = b""
    """The digest of all prompts that it sent, in order; empty if it sent none."""

    @property
    def inputs(self) -> bytes:
        """The digest of all that it saw: with the same the task would do the same."""
        return digest(_dumps([[seen.what, seen.digest.hex()] for seen in self.reads]))


UNTOUCHED: Final = Access()


def encode(access: Access) -> bytes:
    """An access as a journal keeps it."""
    return _dumps(
        {
            "version": VERSION,
            "reads": [[seen.what, seen.digest.hex()] for seen in access.reads],
            "writes": [[put.key, _text(put.data)] for put in access.writes],
            "acts": [[act.channel, _text(act.data), act.is_now] for act in access.acts],
            "prompts": access.prompts.hex(),
        }
    )


def decode(data: bytes) -> Access:
    """What was encoded; JournalError if it was not."""
    try:
        said = json.loads(data)
        if said["version"] > VERSION:
            raise ValueError(f"version {said['version']} is of a newer headway")
        return Access(
            tuple(Seen(str(what), bytes.fromhex(seen)) for what, seen in said["reads"]),
            tuple(Put(str(key), _bytes(text)) for key, text in said["writes"]),
            tuple(
                Act(str(name), str(text).encode(), bool(now)) for name, text, now in said["acts"]
            ),
            bytes.fromhex(said["prompts"]),
        )
    except (ValueError, TypeError, KeyError, RecursionError) as fault:
        raise JournalError(
            "what a task touched cannot be read", detail=f"{type(fault).__name__}: {fault}"[:200]
        ) from None


def _text(data: bytes | None) -> str | None:
    return None if data is None else data.decode()


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else str(text).encode()


def _dumps(value: object) -> bytes:
    return _ENCODER.encode(value).encode()
