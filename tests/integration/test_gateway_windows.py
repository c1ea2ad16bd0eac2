"""Calls of clients that are no tasks while a usage window is empty: refused at once if it is empty
for longer than they may wait, in their provider's own words; held otherwise."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any

import pytest

from tests.integration.gateway_scene import CALL, Scene, scene, statuses

RESET_S = 7_200
SOON_S = 5.0
ASKED = [{"role": "user", "content": "x"}]
CALLS: dict[str, tuple[str, dict[str, Any]]] = {
    "anthropic": ("/v1/messages", json.loads(CALL)),
    "openai-chat": ("/v1/chat/completions", {"model": "m", "messages": ASKED}),
    "openai-responses": ("/v1/responses", {"model": "m", "input": "x"}),
    "gemini": ("/v1beta/models/m:generateContent", {"contents": [{"parts": [{"text": "x"}]}]}),
}
"""By wire, a path and a body."""


def empty_window(found: Scene) -> None:
    """From now on the provider refuses every call: its window is empty."""
    prefix, reset = "anthropic-ratelimit-unified", str(int(time.time()) + RESET_S)
    found.provider.status = 429
    found.provider.answer = b'{"type":"error","error":{"type":"rate_limit_error","message":"no"}}'
    found.provider.extra_headers = (
        (f"{prefix}-status", "rejected"), (f"{prefix}-5h-status", "rejected"),
        (f"{prefix}-5h-utilization", "1.0"), (f"{prefix}-5h-reset", reset),
    )  # fmt: skip


@pytest.fixture(scope="module")
def closed() -> Iterator[Scene]:
    with pytest.MonkeyPatch.context() as patch, scene(patch, wait_s=60.0) as found:
        empty_window(found)
        yield found


def ask(found: Scene, wire: str) -> tuple[dict[str, str], Any]:
    """Headers and body of the refusal of a call of this wire."""
    path, body = CALLS[wire]
    began_s = time.monotonic()
    said = found.talk(found.request(json.dumps(body).encode(), "Connection: close", path=path))
    assert time.monotonic() - began_s <= SOON_S
    head, _, rest = said.partition(b"\r\n\r\n")
    assert statuses(head) == [429]
    lines = [line.split(": ", 1) for line in head.decode().split("\r\n")[1:]]
    return {name.lower(): value for name, value in lines}, json.loads(rest)


@pytest.mark.parametrize("wire", CALLS)
def test_a_call_that_the_window_holds_for_too_long_gets_its_providers_own_error(
    closed: Scene, wire: str
) -> None:
    headers, told = ask(closed, wire)
    after_s = int(headers["retry-after"])
    assert RESET_S - 60 <= after_s <= RESET_S + 2
    assert headers["x-should-retry"] == "false"
    error = told["error"]
    assert "usage window 5h is 100% used" in error["message"]
    if wire == "anthropic":
        assert (told["type"], error["type"]) == ("error", "rate_limit_error")
        assert headers["anthropic-ratelimit-unified-status"] == "rejected"
        reset_s = int(headers["anthropic-ratelimit-unified-reset"]) - time.time()
        assert reset_s == pytest.approx(RESET_S, abs=60)
    elif wire == "gemini":
        assert (error["code"], error["status"]) == (429, "RESOURCE_EXHAUSTED")
        assert error["details"][0]["retryDelay"] == f"{after_s}s"
    else:
        assert error["type"] == "usage_limit_reached"
        assert error["resets_in_seconds"] == after_s
        assert error["resets_at"] - time.time() == pytest.approx(RESET_S, abs=60)
    # One call, and at most one try of the window, reached the provider.
    assert len(closed.provider.arrivals) <= 2


def test_a_call_that_may_wait_for_the_reset_is_held(monkeypatch: pytest.MonkeyPatch) -> None:
    with scene(monkeypatch, wait_s=3 * 3_600.0) as found:
        empty_window(found)
        with pytest.raises(TimeoutError):
            found.talk(found.request(CALL, "Connection: close"), deadline_s=SOON_S)
