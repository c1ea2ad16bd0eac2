"""A budget as a picture and in words: what the picture shows is what the outlook says."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest

from bench import burn_down
from bench.burn_down import PICTURE, example
from headway.base.values import Budget, Spend
from headway.pacing.budget import Pot
from headway.pacing.view import AdmissionView
from headway.report.health import BudgetOutlook, Finish, finishes, outlooks
from headway.report.text.accounts import finish_json, finish_words, outlook_json, outlook_words
from headway.report.text.burndown import HEIGHT, WIDTH, svg, terminal
from headway.report.text.words import ASCII, Glyphs

SVG = "{http://www.w3.org/2000/svg}"
PASSED = 0.5


def outlook(
    amounts: list[float], budget: Budget, account: str = "", spent: float | None = None
) -> BudgetOutlook:
    """So much on each day of November so far."""
    days = tuple(
        (f"2026-11-{day + 1:02}", Spend(amount, round(amount)))
        for day, amount in enumerate(amounts)
    )
    total = sum(amounts) if spent is None else spent
    ledger = Pot(budget, Spend(total, round(total)), Spend())
    date = f"2026-11-{max(1, len(amounts)):02}"
    view = AdmissionView("2026-11", (), ((account, ledger),), (), date, 3, ((account, days),))
    (found,) = outlooks(view, PASSED)
    return found


UNEVEN = outlook([1e5, 2e5, 3e5, 2e5, 1e5, 3e5, 2e5, 1e5, 3e5, 2e5], Budget(tokens=5e6))
LASTING = outlook([1e4, 2e4] * 5, Budget(tokens=5e6))
USED_UP = outlook([1e5] * 10, Budget(tokens=1e6))
MONEY = outlook([3e6] * 5, Budget(microusd=20_000_000), "api.example#1a2b")
FIRST = outlook([1e5], Budget(tokens=5e6))
UNSPENT = outlook([], Budget(tokens=5e6))
ALL = (UNEVEN, LASTING, USED_UP, MONEY, FIRST, UNSPENT)


def numbers(points: str) -> list[tuple[float, float]]:
    pairs = (pair.split(",") for pair in points.split())
    return [(float(x), float(y)) for x, y in pairs]


@pytest.mark.parametrize("one", ALL)
def test_every_picture_is_whole_and_stays_on_its_page(one: BudgetOutlook) -> None:
    root = ElementTree.fromstring(svg(one, PASSED))
    texts = " ".join(text.text or "" for text in root.iter(f"{SVG}text"))
    for part in ("budget", "today", "left", "day of 2026-11", "2026-12-01", "even use"):
        assert part in texts
    assert ("tokens left" in texts) == (one.unit == "tokens")
    for mark in root.iter():
        x, y = mark.get("x") or mark.get("cx"), mark.get("y") or mark.get("cy")
        if x is not None and y is not None:
            assert 0.0 <= float(x) <= WIDTH
            assert 0.0 <= float(y) <= HEIGHT
    style = root.findtext(f"{SVG}style") or ""
    assert "prefers-color-scheme: dark" in style
    drawn = {name for mark in root.iter() for name in (mark.get("class") or "").split()}
    assert {name for name in drawn if f".{name}" not in style} == set()


def test_the_line_goes_down_from_the_budget_to_what_is_left_today() -> None:
    root = ElementTree.fromstring(svg(UNEVEN, PASSED))
    lines = {line.get("class"): numbers(line.get("points") or "") for line in root.iter()
             if line.get("points")}  # fmt: skip
    past, ahead = lines["spent"], lines["ahead"]
    assert [y for _, y in past] == sorted(y for _, y in past)
    assert past[-1] == ahead[0]
    assert len(past) == 11
    dot = next(mark for mark in root.iter(f"{SVG}circle") if mark.get("class") == "dot")
    assert (float(dot.get("cx") or 0), float(dot.get("cy") or 0)) == past[-1]
    floor = next(mark for mark in root.iter(f"{SVG}circle") if mark.get("class") == "out")
    assert past[-1][0] < float(floor.get("cx") or 0) < WIDTH


def test_text_in_a_picture_is_only_text() -> None:
    hostile = outlook([1e5], Budget(tokens=5e6), 'a"><script>&')
    assert "<script" not in svg(hostile, PASSED)


@pytest.mark.parametrize("one", ALL)
@pytest.mark.parametrize("glyphs", [Glyphs(), ASCII])
def test_on_a_terminal_it_fits_and_days_are_in_their_columns(
    one: BudgetOutlook, glyphs: Glyphs
) -> None:
    lines = list(terminal(one, PASSED, glyphs))
    assert all(len(line) <= 80 for line in lines[2:])
    wide = lines[-3].index("1")
    assert lines[-3][wide + 50 : wide + 52] == "26"
    today = lines[-2].index("^")
    assert (today - wide) // 2 == int(one.date[-2:]) - 1
    if glyphs is ASCII:
        "\n".join(lines).encode("ascii")


def test_on_a_terminal_a_used_up_budget_is_empty_from_today_on() -> None:
    rows = [line for line in terminal(USED_UP, PASSED, Glyphs()) if "█" in line][:-1]
    assert len({len(row) for row in rows}) > 3
    assert max(len(row.rstrip()) for row in rows) <= len("1M ") + 20 + 6


def test_words_say_pace_and_day() -> None:
    assert outlook_words(UNEVEN) == (
        "at the pace of the last 7 days (215k a day) the budget of 5M is used up on 2026-11-24"
        "; 7 days before the month turns"
    )
    assert outlook_words(LASTING).startswith(
        "at the pace of the last 7 days (16.9k a day) the budget of 5M lasts: 497k by the end"
    )
    assert outlook_words(USED_UP).startswith(
        "the budget of 1M is used up; there is more on 2026-12-01, or with `headway limits budget 3"
    )
    assert "$20.00 is used up on 2026-11-06; 25 days" in outlook_words(MONEY)
    assert outlook_words(FIRST).startswith("at the pace of today (100k a day) the budget of 5M")
    assert outlook_words(UNSPENT) == "nothing was spent in the last 1 day"
    told = outlook_json(UNEVEN)
    assert (told["left"], told["days_short"], told["words"]) == (3e6, 7, outlook_words(UNEVEN))


def test_a_stopped_run_is_told_which_budget_what_is_left_and_when_it_could_finish() -> None:
    (finish,) = finishes([USED_UP], 92_300.0, 0.0, Spend(94.0))
    assert finish_words(finish, 13) == (
        "the budget of 1M tokens for all accounts has 0 left in 2026-11; 13 tasks still need about "
        "92.3k tokens: it could finish from 2026-12-01 on, when the month turns, or now with "
        "`headway limits budget 1200000/month`"
    )
    told = finish_json(finish)
    assert (told["raise_to"], told["finishes_on"]) == (1.2e6, "2026-12-01")


def test_a_stopped_run_that_no_month_has_room_for_is_told_so() -> None:
    (many,) = finishes([USED_UP], 2.5e6, 0.0, Spend(94.0))
    assert "1 task still needs about" in finish_words(many, 1)
    when = "it could finish from 2027-02-01 on, after 3 months, or now with"
    assert when in finish_words(many, 1)
    never = Finish(MONEY, 1e6, 3e7, 0)
    assert finish_words(never, 2).endswith(
        "no month has room for one of its calls, it can finish only with "
        "`headway limits budget '$30/month' --account 'api.example#1a2b'`"
    )


def test_the_picture_of_the_documentation_is_what_is_drawn_today() -> None:
    assert PICTURE.read_text() == svg(example(), burn_down.PASSED)
