"""What an agent's output says of its work: an event stream, read as it comes.

Laws:
- No output is an error: a line that is no event, is torn, too long, too deep or no UTF-8 is
  counted and left out, and the next one is read as if it had not been there.
- What is held of an unfinished line is bounded.
- An event that is not known, or has other fields than it had, changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Final

from headway.wire.loose import Fields, fields, parsed, tokens

LINE_BYTES_MAX: Final = 32 * 1024 * 1024
"""The longest event: a tool's whole output is in one. What is longer is passed over."""

TOOLS_MAX: Final = 200
"""Kinds of tools that are told apart; agents have some twenty."""

NAME_CHARS: Final = 80
ERROR_CHARS: Final = 500


@dataclass(frozen=True, slots=True)
class Heard:
    """What an agent has told of one session, or of its part of one."""

    session: str = ""
    turns: int = 0
    """Replies of the model, as far as the stream tells them apart."""
    tools: tuple[tuple[str, int], ...] = ()
    """Names of tools, and how often each was used."""
    input_tokens: float = 0.0
    """Those that were read from a cache included."""
    output_tokens: float = 0.0
    microusd: int = 0
    """What it says that it cost; most say nothing."""
    text: str = ""
    """The last that the model said."""
    error: str = ""
    is_over: bool = False
    """Whether the event came that ends a stream."""
    skipped: int = 0
    """Lines that were no events."""
    denied: tuple[tuple[str, int], ...] = ()
    """Names of tools, and how often each was refused for want of permission."""

    @property
    def is_begun(self) -> bool:
        """Whether anything came that is an event of an agent at work, or of its failure."""
        return bool(self.session or self.turns or self.error or self.is_over)


@dataclass(slots=True)
class Notes:
    """What is known so far, while events come; each kind of agent writes into it in its own way."""

    session: str = ""
    turns: int = 0
    tools: dict[str, int] = field(default_factory=dict)
    denied: dict[str, int] = field(default_factory=dict)
    input_tokens: float = 0.0
    output_tokens: float = 0.0
    microusd: int = 0
    text: str = ""
    error: str = ""
    is_over: bool = False
    at: str = ""
    """Which reply the text is of."""
    replies: dict[str, tuple[float, float]] = field(default_factory=dict)
    """By the id of a reply: what went in and came out, where the sum is told at the end only."""

    def use(self, tool: str) -> None:
        """A tool was used."""
        _count(self.tools, tool)

    def deny(self, tool: str) -> None:
        """A tool was refused for want of permission."""
        _count(self.denied, tool)

    def fail(self, why: str) -> None:
        self.error = why.strip()[:ERROR_CHARS] or "it says that it failed"

    def heard(self, skipped: int) -> Heard:
        given, gave = self.input_tokens, self.output_tokens
        if not given and not gave:
            given = sum(one for one, _ in self.replies.values())
            gave = sum(one for _, one in self.replies.values())
        return Heard(
            self.session, self.turns, tuple(sorted(self.tools.items())), given, gave,
            self.microusd, self.text, self.error, self.is_over, skipped,
            tuple(sorted(self.denied.items())),
        )  # fmt: skip


def _count(counts: dict[str, int], tool: str) -> None:
    name = tool[:NAME_CHARS] or "?"
    if name in counts or len(counts) < TOOLS_MAX:
        counts[name] = counts.get(name, 0) + 1


Hear = Callable[[Notes, Fields], None]
"""Takes one event of a kind's stream."""


class Stream:
    """The output of one process, in pieces of any size."""

    __slots__ = ("_buffer", "_hear", "_is_passing", "_line_bytes_max", "_notes", "_skipped")

    def __init__(self, hear: Hear, line_bytes_max: int = LINE_BYTES_MAX) -> None:
        self._hear = hear
        self._line_bytes_max = line_bytes_max
        self._notes = Notes()
        self._buffer = bytearray()
        self._is_passing = False
        """Within a line that is too long."""
        self._skipped = 0

    def __repr__(self) -> str:
        return f"<Stream {self.statistics()}>"

    def statistics(self) -> Heard:
        """What was heard so far."""
        return self._notes.heard(self._skipped)

    def feed(self, data: bytes) -> None:
        """The next piece."""
        *whole, rest = data.split(b"\n")
        for line in whole:
            if not self._is_passing:
                self._buffer += line
                self._line()
            self._buffer.clear()
            self._is_passing = False
        if self._is_passing:
            return
        self._buffer += rest
        if len(self._buffer) > self._line_bytes_max:
            self._buffer.clear()
            self._is_passing = True
            self._skipped += 1

    def end(self) -> Heard:
        """Nothing follows: a last line may lack its end."""
        if self._buffer and not self._is_passing:
            self._line()
        self._buffer.clear()
        return self.statistics()

    def _line(self) -> None:
        line = bytes(self._buffer).strip()
        if not line:
            return
        event = fields(parsed(line)) if line.startswith(b"{") else {}
        if event:
            self._hear(self._notes, event)
        else:
            self._skipped += 1


def read_whole(hear: Hear, data: bytes) -> Heard:
    """A stream that has come in one piece."""
    stream = Stream(hear)
    stream.feed(data)
    return stream.end()


def count_of(value: object) -> float:
    """Tokens as an event tells them; what is no count is none."""
    return tokens(value) or 0.0


def money_of(value: object) -> int:
    """Dollars as an event tells them, in micro-dollars; what is no amount is none."""
    return round((tokens(value) or 0.0) * 1_000_000)


def less(heard: Heard, input_tokens: float, output_tokens: float) -> Heard:
    """Without what an earlier process of the same session has told already."""
    return replace(
        heard,
        input_tokens=max(0.0, heard.input_tokens - input_tokens),
        output_tokens=max(0.0, heard.output_tokens - output_tokens),
    )
