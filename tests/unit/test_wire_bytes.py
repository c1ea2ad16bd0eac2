"""Events, compressed bodies and excerpts: what lies between bytes and formats."""

from __future__ import annotations

import gzip
import sys
import zlib
from types import ModuleType

import pytest

from headway.base.fields import parsed, tokens
from headway.wire.request import SAMPLE_CHARS, content_kind
from headway.wire.stream import PIECE_BYTES, Event, EventReader, Inflater
from headway.wire.values import END_BYTES, WHOLE_BYTES_MAX, Excerpt


def events_of(data: bytes) -> list[Event]:
    reader = EventReader()
    return reader.feed(data) + reader.end()


def test_lines_of_data_are_joined_and_one_blank_is_dropped() -> None:
    assert events_of(b"data:a\ndata: b\ndata:  c\n\n") == [("", b"a\nb\n c")]


def test_comments_and_other_fields_say_nothing() -> None:
    body = b": ping\n\nid: 7\nretry: 10\nfoo: bar\ndata: a\n\n:\n\nevent: lost\n\ndata: b\n\n"
    assert events_of(body) == [("", b"a"), ("", b"b")]


def test_a_byte_order_mark_is_dropped_at_the_beginning_only() -> None:
    assert events_of(b"\xef\xbb\xbfdata: a\n\n\xef\xbb\xbfdata: b\n\n") == [("", b"a")]


def test_an_event_of_any_length_keeps_its_ends() -> None:
    reader = EventReader()
    found = reader.feed(b"data: {" + b"x" * (WHOLE_BYTES_MAX + 5) + b"}\n\ndata: b\n\n")
    assert found[0][1].startswith(b"{xxx")
    assert found[0][1].endswith(b"xxx}")
    assert len(found[0][1]) == 2 * END_BYTES + 1
    assert found[1] == ("", b"b")


@pytest.mark.parametrize("step", [1000, 300_000, WHOLE_BYTES_MAX + 50_001])
def test_an_excerpt_does_not_depend_on_how_its_bytes_came(step: int) -> None:
    data = bytes(range(256)) * ((WHOLE_BYTES_MAX + 50_000) // 256)
    excerpt = Excerpt()
    for start in range(0, len(data), step):
        excerpt.add(data[start : start + step])
    assert excerpt.is_cut
    assert excerpt.take() == data[:END_BYTES] + b"\n" + data[-END_BYTES:]
    assert (excerpt.take(), excerpt.is_cut) == (b"", False)


def packed(data: bytes, wbits: int) -> bytes:
    packer = zlib.compressobj(wbits=wbits)
    return packer.compress(data) + packer.flush()


@pytest.mark.parametrize("step", [1, 2, 3, 100_000])
@pytest.mark.parametrize(
    ("encoding", "wbits"),
    [("gzip", 31), ("x-gzip", 31), ("deflate", 15), (" DEFLATE ", -15)],
)
def test_compressed_bytes_are_read_in_any_pieces(encoding: str, wbits: int, step: int) -> None:
    data = bytes(range(256)) * 1000
    small, inflater = packed(data, wbits) + b"what follows the end", Inflater(encoding)
    pieces: list[bytes] = []
    for start in range(0, len(small), step):
        pieces += inflater.feed(small[start : start + step])
    assert b"".join(pieces) == data
    assert max(map(len, pieces)) <= PIECE_BYTES
    assert inflater.state == "reading"


def test_bytes_that_are_not_compressed_are_corrupt() -> None:
    inflater = Inflater("gzip")
    assert list(inflater.feed(b"this is no gzip")) == []
    assert inflater.state == "corrupt"
    assert list(inflater.feed(gzip.compress(b"x"))) == []


@pytest.mark.parametrize(
    ("encoding", "names"),
    [("br", ("brotli", "brotlicffi")), ("zstd", ("compression.zstd", "backports.zstd"))],
)
def test_encodings_whose_module_is_missing_are_unreadable(
    encoding: str, names: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in names:
        monkeypatch.setitem(sys.modules, name, None)
    assert Inflater(encoding).state == "unreadable"


class StandIn:
    """Gives each byte ten times, in pieces; has the interfaces of brotli and of zstd."""

    eof = False

    def __init__(self) -> None:
        self._rest = b""

    def process(self, data: bytes, output_buffer_limit: int) -> bytes:
        if data == b"bad":
            raise ArithmeticError
        self._rest += data * 10
        piece, self._rest = self._rest[:output_buffer_limit], self._rest[output_buffer_limit:]
        return piece

    def can_accept_more_data(self) -> bool:
        return not self._rest

    def decompress(self, data: bytes, max_length: int) -> bytes:
        return self.process(data, max_length)

    @property
    def needs_input(self) -> bool:
        return self.can_accept_more_data()


@pytest.mark.parametrize(
    ("encoding", "name", "entry", "error"),
    [
        ("br", "brotli", "Decompressor", "error"),
        ("zstd", "compression.zstd", "ZstdDecompressor", "ZstdError"),
    ],
)
def test_other_encodings_are_read_by_the_module_that_is_there(
    encoding: str, name: str, entry: str, error: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = ModuleType(name)
    setattr(module, entry, StandIn)
    setattr(module, error, ArithmeticError)
    monkeypatch.setitem(sys.modules, name, module)
    if "." in name:
        monkeypatch.setitem(sys.modules, name.partition(".")[0], ModuleType("parent"))
    inflater = Inflater(encoding)
    pieces = list(inflater.feed(b"x" * 20_000))
    assert [len(piece) for piece in pieces] == [65536, 65536, 65536, 3392]
    assert list(inflater.feed(b"bad")) == []
    assert inflater.state == "corrupt"


def test_a_brotli_that_cannot_bound_its_output_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("brotli")
    monkeypatch.setattr(module, "Decompressor", object, raising=False)
    monkeypatch.setitem(sys.modules, "brotli", module)
    assert Inflater("br").state == "unreadable"


@pytest.mark.parametrize(("module", "encoding"), [("brotli", "br"), ("backports.zstd", "zstd")])
def test_real_modules_agree_where_they_are_installed(module: str, encoding: str) -> None:
    found = pytest.importorskip(module)
    data = bytes(range(256)) * 1000
    assert b"".join(Inflater(encoding).feed(found.compress(data))) == data


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("It was a bright cold day in April, and the clocks were striking thirteen.", "english"),
        ("", "english"),
        ("오늘은 날씨가 좋습니다. The weather is good.", "korean"),
        ("今日は天気がいいです。", "cjk"),
        ("今天天气很好,我们去公园吧。", "cjk"),
        ("Сегодня хорошая погода, и мы идём в парк.", "other"),
        ("L'été dernier, nous étions allés à la plage près de chez eux.", "other"),
        ("1023 4417 99.1 20391 0.33 8817 2210 4415 5512 0.1 22 31 9981", "other"),
        ("def f(x):\n    return {k: v for k, v in x.items() if v > 0}\n", "code"),
        ('{"name": "x", "values": [1, 2, 3], "nested": {"a": null}}', "code"),
        ("# A title\n\nSome *text* in Markdown, with a [link](http://x.test), is prose to a model, "
         "and so is a list of things that are named one after another.", "english"),
    ],
)  # fmt: skip
def test_a_text_is_known_by_its_characters(text: str, kind: str) -> None:
    assert content_kind([text]) == kind
    assert content_kind([text] * 3) == kind


def test_of_a_long_text_all_parts_are_looked_at() -> None:
    english = "the quick brown fox jumps over the lazy dog. " * 1000
    korean = "다람쥐 헌 쳇바퀴에 타고파. " * 3000
    assert len(english) > SAMPLE_CHARS
    assert content_kind([english, korean]) == "korean"
    assert content_kind([korean[:300], english]) == "english"
    assert content_kind([*("가나다 " for _ in range(20)), english]) == "english"


def test_numbers_from_strangers_are_counts_or_nothing() -> None:
    assert [tokens(value) for value in (0, 1, 2.5)] == [0.0, 1.0, 2.5]
    wrong: list[object] = [True, -1, float("nan"), float("inf"), 10**400, "1", None, [], {}]
    assert [tokens(value) for value in wrong] == [None] * len(wrong)
    assert parsed(b"\xff") is None
    assert parsed("9" * 5000) is None
