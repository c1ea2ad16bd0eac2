"""Health as people and programs see it, and the line of it in a run's picture."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from math import inf

import pytest

from headway.base.values import Amounts, Limit, Wait
from headway.broker.protocol import About
from headway.client.overview import Overview
from headway.pacing.memory import Chronicle
from headway.pacing.view import AccountView, AdmissionView, LimitView
from headway.report.text.health import draw_health, health_json, health_line, watch_health
from headway.report.text.words import console_for

ABOUT = About(42, 7.0)


def lane(refused: int = 0, group: str = "model") -> AccountView:
    """A hundred calls at noon of yesterday, as many now, and some that were refused."""
    chronicle = Chronicle()
    chronicle.turn(12, 0.0)
    for number in range(100):
        chronicle.answered(number / 10.0, Amounts(1000.0, 100.0), 0.5, 2.0, 4)
    chronicle.turn(12, 86400.0)
    for _ in range(100):
        chronicle.answered(86400.0, Amounts(1000.0, 100.0), 0.6, 2.0, 4, 0.05)
    for _ in range(refused):
        chronicle.refused("rate", 86400.0)
    limits = (
        LimitView(Limit("requests", 600.0, source="header"), 590.0, 0.4, 0.0),
        LimitView(Limit("input", 600.0), 10.0, None, 0.0),
    )
    return AccountView(
        "api.example#1a2b", group, "anthropic", 1.0, "fast", limits, inf, 3, 10, refused,
        Wait("requests/60s", 90.0, "it is full"), (), chronicle.memory(86400.0),
    )  # fmt: skip


def seen(*lanes: AccountView, about: About | None = ABOUT, age_s: float | None = None) -> Overview:
    return Overview(AdmissionView("2026-11", lanes, (), (), "2026-11-16", 12), about, age_s)


def drawn(overview: Overview) -> str:
    out = io.StringIO()
    draw_health(console_for(out), overview)
    return out.getvalue()


def test_an_account_is_drawn_with_its_limits_its_reasons_and_its_hours() -> None:
    shown = drawn(seen(lane(refused=20)))
    assert "api.example#1a2b  model  bad" in shown
    assert "binds" in shown.splitlines()[1]
    assert "binds" not in shown.splitlines()[2]
    assert "because  16.7% of calls were refused (20 by rate)" in shown
    assert "lately   120 calls in 10 min, 16.7% refused, 0.6 s to the first byte" in shown
    assert "20 ms per output token, neighbours took 5%" in shown
    assert "usually  95 calls remembered, 0.0% refused, 0.5 s to the first byte" in shown
    assert "hours    which hours are busy is not known yet: 1 of 24 have had 30 calls" in shown
    assert shown.endswith("from broker 42, up 7 s\n")


def test_without_a_broker_or_an_account_it_says_so() -> None:
    assert "no broker is running, and nothing is remembered" in drawn(
        Overview(AdmissionView("", (), (), ()))
    )
    assert "No account has been used yet" in drawn(seen())
    for age_s, words in ((5.0, "5 s"), (600.0, "10 min"), (7200.0, "2 h"), (2 * 86400.0, "2 d")):
        told = drawn(seen(lane(), about=None, age_s=age_s))
        assert f"no broker is running; remembered, written {words} ago" in told


def test_the_worst_account_comes_first() -> None:
    shown = drawn(seen(lane(group="well"), lane(refused=30, group="ill")))
    assert shown.index("ill  bad") < shown.index("well  good")


def test_a_program_gets_everything_by_name() -> None:
    told = json.loads(json.dumps(health_json(seen(lane(refused=20)))))
    (one,) = told["lanes"]
    assert (told["hour"], told["source"]) == (12, "from broker 42, up 7 s")
    assert (one["level"], one["is_peak"], one["binding"]) == ("bad", None, "requests/60s")
    assert one["headroom"] == pytest.approx({"requests/60s": 1 / 60, "input/60s": 590 / 600})
    assert one["recent"]["calls"] == 120
    assert one["recent"]["refusal_rate"] == pytest.approx(20 / 120)
    assert one["hours"]["12"]["per_token_s"] == pytest.approx(0.02)
    assert one["advice"].startswith("which hours are busy is not known yet")
    assert health_json(Overview(AdmissionView("", (), (), ())))["hour"] is None


def test_a_run_is_told_of_the_worst_and_of_how_many() -> None:
    assert health_line(()) == ""
    assert health_line((lane(),)) == ""
    told = health_line((lane(), lane(refused=5, group="a"), lane(refused=30, group="b")))
    assert told == "bad: 23.1% of calls were refused (30 by rate) (b); and 1 account more"
    assert health_line((lane(refused=5),)).startswith("watch: ")


class EnoughError(Exception):
    """Somebody who watches has seen enough."""


def after(looks: int) -> Callable[[float], None]:
    left = [looks]

    def nap(nap_s: float) -> None:
        left[0] -= 1
        if not left[0]:
            raise EnoughError

    return nap


def test_whoever_watches_is_told_what_changes() -> None:
    out = io.StringIO()
    looks = iter([seen(lane()), seen(lane()), seen(lane(refused=30)), seen()])
    with pytest.raises(EnoughError):
        watch_health(lambda: next(looks), out, nap=after(4))
    lines = out.getvalue().splitlines()
    assert [line.split(": ")[1][:4] for line in lines[:2]] == ["good", "bad"]
    assert lines[2] == "from broker 42, up 7 s"


def test_a_program_that_watches_gets_a_line_for_every_look() -> None:
    out = io.StringIO()
    with pytest.raises(EnoughError):
        watch_health(lambda: seen(lane()), out, is_json=True, nap=after(3))
    assert [json.loads(line)["lanes"][0]["level"] for line in out.getvalue().splitlines()] == [
        "good"
    ] * 3


class Screen(io.StringIO):
    """A terminal, as far as anybody asks."""

    def isatty(self) -> bool:
        return True


def test_on_a_terminal_it_is_drawn_in_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    out = Screen()
    with pytest.raises(EnoughError):
        watch_health(lambda: seen(lane()), out, nap=after(2))
    assert out.getvalue().count("api.example#1a2b") >= 2
    assert "\x1b[1A" in out.getvalue(), "the picture before is drawn over"
