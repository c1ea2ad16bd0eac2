"""What the gateway is told: every way to say it, and what is said when it cannot be meant."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from headway.client.accounts import GATEWAY_VARIABLE
from headway.errors import BadValueError
from headway.gateway.settings import (
    BEHIND_VARIABLE,
    DEFAULTS,
    GatewayOptions,
    is_loopback,
    leads_to_gateway,
    read_settings,
)

TOKEN = "Co7-syenADWHQFryEYGHZMrjMrdV8lYS-TAxpXiz52Y"
OURS = f"http://127.0.0.1:4929/{TOKEN}"


def urls(options: GatewayOptions = GatewayOptions(), **environ: str) -> dict[str, str]:
    return {name: one.url for name, one in read_settings(options, environ).upstreams.items()}


def refused(options: GatewayOptions, **environ: str) -> BadValueError:
    with pytest.raises(BadValueError) as caught:
        read_settings(options, environ)
    return caught.value


def test_an_address_without_a_name_is_for_everything() -> None:
    options = GatewayOptions(("http://127.0.0.1:8080/v1",))
    assert set(urls(options, OPENAI_BASE_URL="https://x.example").values()) == {
        "http://127.0.0.1:8080"
    }
    assert options.every == "http://127.0.0.1:8080"
    assert GatewayOptions(("groq=https://api.groq.com",)).every is None


def test_a_named_upstream_keeps_its_whole_address() -> None:
    found = urls(
        GatewayOptions(("groq=https://api.groq.com/openai/v1", "openai=https://o.example/v1"))
    )
    assert found["groq"] == "https://api.groq.com/openai/v1"
    assert found["openai"] == "https://o.example"
    assert found["anthropic"] == DEFAULTS["anthropic"]


@pytest.mark.parametrize(
    "text",
    ["", "groq", "groq=", "=https://x.example", "Groq=https://x.example", "status=https://x.example",
     "metrics=https://x.example", "a/b=https://x.example", "x=ftp://x.example", "x=https://",
     "x=https://h:99999", "x=https://h:0", "x=https://h/a b", "x=https://h/\x1b[31m",
     "x=https://h?q=1", "x=https://h#f", "x=https://u:p@h", "https://u:p@h", "http://"],
)  # fmt: skip
def test_an_upstream_that_is_none_is_refused(text: str) -> None:
    error = refused(GatewayOptions((text,)))
    assert error.code == "HW103"
    assert "u:p" not in error.render()


def test_the_address_of_a_gateway_is_unwrapped() -> None:
    behind = json.dumps({"anthropic": "https://corp.example", "openai": 7})
    environ = {GATEWAY_VARIABLE: OURS, BEHIND_VARIABLE: behind}
    found = urls(GatewayOptions(), ANTHROPIC_BASE_URL=f"{OURS}/anthropic", **environ)
    assert found["anthropic"] == "https://corp.example"


@pytest.mark.parametrize("behind", ["", "{", "[]", '{"openai": "https://x.example"}',
                                    json.dumps({"anthropic": f"{OURS}/anthropic"})])  # fmt: skip
def test_a_circle_is_refused(behind: str) -> None:
    error = refused(GatewayOptions(), ANTHROPIC_BASE_URL=f"{OURS}/anthropic",
                    **{BEHIND_VARIABLE: behind})  # fmt: skip
    assert "circle" in error.message
    assert "unset ANTHROPIC_BASE_URL" in str(error.hint)


@pytest.mark.parametrize(
    ("url", "is_ours"),
    [(f"{OURS}/openai/v1", True), (f"http://localhost:1/{TOKEN}/x", True),
     (f"http://[::1]:1/{TOKEN}/x", True), ("http://127.0.0.1:8080", False),
     ("http://127.0.0.1:8080/v1", False), (f"https://far.example/{TOKEN}/openai", False),
     ("http://10.0.0.1/T/anthropic", False)],
)  # fmt: skip
def test_a_gateway_is_known_by_its_address(url: str, is_ours: bool) -> None:
    assert leads_to_gateway(url, {}) is is_ours


def test_a_gateway_is_known_by_what_the_environment_says() -> None:
    environ = {GATEWAY_VARIABLE: "http://127.0.0.1:1/short"}
    assert leads_to_gateway("http://127.0.0.1:1/short/openai", environ)
    assert not leads_to_gateway("http://127.0.0.1:1/shorter/openai", environ)


def test_a_key_comes_from_its_variable_and_is_not_shown() -> None:
    settings = read_settings(GatewayOptions(keys=("anthropic=WORK",)), {"WORK": " sk-secret\n"})
    assert settings.upstreams["anthropic"].key == "sk-secret"
    assert "sk-secret" not in repr(settings)


@pytest.mark.parametrize("text", ["sk-secret", "anthropic=", "anthropic=sk-secret",
                                  "nobody=WORK", "anthropic=EMPTY", "anthropic=TWO_LINES",
                                  "anthropic=LONG"])  # fmt: skip
def test_a_key_that_cannot_be_used_is_refused_and_not_shown(text: str) -> None:
    error = refused(GatewayOptions(keys=(text,)), WORK="k", EMPTY=" ", TWO_LINES="sk-secret\nx: y",
                    LONG="k" * 5000)  # fmt: skip
    assert "sk-secret" not in error.render()


@pytest.mark.parametrize(("text", "wait_s"), [("90s", 90.0), ("10m", 600.0), ("7d", 604_800.0)])
def test_a_wait_is_a_time(text: str, wait_s: float) -> None:
    assert read_settings(GatewayOptions(wait=text), {}).wait_s == wait_s
    assert read_settings(GatewayOptions(silent=text), {}).silent_s == wait_s


@pytest.mark.parametrize("text", ["-1", "65536", "http", "1e3", "٣"])
def test_a_port_that_is_none_is_refused(text: str) -> None:
    assert "--port" in refused(GatewayOptions(port=text)).message


@pytest.mark.parametrize(
    ("host", "taken"),
    [("localhost", "127.0.0.1"), ("::1", "::1"), ("[::1]", "::1"), ("127.0.0.2", "127.0.0.2")],
)
def test_it_listens_on_this_machine(host: str, taken: str) -> None:
    assert read_settings(GatewayOptions(host=host), {}).host == taken


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.0.0.1", "example.com", "", "127.0.0.1.x"])
def test_it_does_not_listen_where_others_can_reach_it(host: str) -> None:
    assert not is_loopback(host)
    assert "other machines" in refused(GatewayOptions(host=host)).message


def test_recordings_that_cannot_be_are_refused(tmp_path: Path) -> None:
    refused(GatewayOptions(replay=str(tmp_path / "none")))
    refused(GatewayOptions(record=str(tmp_path / "none" / "new")))
    refused(GatewayOptions(record=str(tmp_path)))


def test_there_are_only_so_many_upstreams() -> None:
    refused(GatewayOptions(tuple(f"u{i}=https://x.example" for i in range(60))))
