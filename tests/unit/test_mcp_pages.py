"""Results in pages: nothing is lost between them, and what is left out is said."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from headway.mcp.service import Result, page

TEXTS = st.lists(st.text(max_size=40), max_size=12)


def results(texts: list[str | None]) -> list[tuple[Result, bytes | None]]:
    return [
        ({"task": f"t{n}", "output": text}, None if text is None else text.encode())
        for n, text in enumerate(texts)
    ]


@given(TEXTS, st.integers(4, 60), st.integers(1, 5))
def test_pages_put_together_are_everything(texts: list[str], max_bytes: int, limit: int) -> None:
    found: dict[str, str] = {}
    offset = from_byte = 0
    for _ in range(sum(len(text.encode()) for text in texts) + len(texts) + 1):
        shown, left_out, after = page(results(list(texts)), offset, limit, max_bytes, from_byte)
        assert len(shown) <= limit
        assert sum(len(str(one["output"]).encode()) for one in shown) <= max_bytes
        for one in shown:
            found[str(one["task"])] = found.get(str(one["task"]), "") + str(one["output"])
        assert bool(left_out) is (after is not None)
        if after is None:
            break
        offset, from_byte = after["offset"], after["from_byte"]
    assert list(found.values()) == texts


def test_a_result_that_is_more_than_a_page_is_cut_and_says_so() -> None:
    shown, left_out, after = page(results(["short", "x" * 100]), 1, 50, 30)
    assert left_out == "t1 is cut: bytes 0 to 30 of 100 are here"
    assert (shown[0]["bytes"], after) == ([0, 30, 100], {"offset": 1, "from_byte": 30})
    shown, _, after = page(results(["short", "x" * 100]), 1, 50, 90, 30)
    assert (shown[0]["bytes"], after) == ([30, 100, 100], None)


def test_bytes_that_are_no_text_are_still_passed_on() -> None:
    body = b"\xff\x80\x80\x80\x80\x80" * 20
    _, _, after = page([({"task": "t", "output": "?"}, body)], 0, 1, 10)
    assert after is not None
    assert 0 < after["from_byte"] <= 10
