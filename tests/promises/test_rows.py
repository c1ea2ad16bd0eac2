"""`headway each --rows`: rows in, rows with results out."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from tests.promises.user import Provider, User, kill_group, openai_at, provider, until, user

TICKETS = [{"id": f"T{n}", "text": f"word {'more ' * (n % 5)}", "n": n} for n in range(12)]
ASK = ("--agent", "prompt", "--model", "openai/echo")


@pytest.fixture(scope="module")
def server() -> Iterator[Provider]:
    with provider("--first-byte-s", "0.01", "--per-token-s", "0") as found:
        yield found


@pytest.fixture
def rows(tmp_path: Path, server: Provider, request: pytest.FixtureRequest) -> Iterator[User]:
    with user(tmp_path, openai_at(server, request.node.name)) as someone:
        someone.write("tickets.jsonl", "".join(json.dumps(one) + "\n" for one in TICKETS))
        yield someone


def test_a_row_comes_back_with_its_result_in_its_place(rows: User) -> None:
    said = rows.headway(
        "each", *ASK, 'Say {text} as {"a": 1}', "--rows", "tickets.jsonl", "--key", "id"
    )
    assert said.returncode == 0, said.stderr
    found = [json.loads(line) for line in said.stdout.splitlines()]
    assert [{name: one[name] for name in ("id", "text", "n")} for one in found] == TICKETS
    texts = [str(ticket["text"]) for ticket in TICKETS]
    assert [one["output"] for one in found] == [f'Say {text} as {{"a": 1}}' for text in texts]
    again = rows.headway(
        "each", *ASK, "Say {}", "--rows", "tickets.jsonl", "--out", "tickets.jsonl"
    )
    assert again.returncode == 2
    assert "is there already" in again.stderr
    clash = rows.headway("each", *ASK, "Say {n}", "--rows", "tickets.jsonl", "--column", "n")
    assert clash.returncode == 2
    assert "have a column `n` already" in clash.stderr


def test_a_table_keeps_its_columns_and_its_failures(rows: User) -> None:
    rows.write("t.csv", 'id,Long Text\nA,"x, y"\nB,=1+1\n')
    said = rows.headway("each", *ASK, "{id} {Long Text}", "--rows", "t.csv", "--out", "out.csv")
    assert said.returncode == 0, said.stderr
    table = list(csv.reader((rows.folder / "out.csv").read_text().splitlines()))
    assert table == [
        ["id", "Long Text", "output", "error"],
        ["A", "x, y", "A x, y", ""],
        ["B", "'=1+1", "B =1+1", ""],
    ]
    fails = ("--verify", "grep -q A", "--column", "label", "--out", "failed.jsonl")
    said = rows.headway("each", *ASK, "{id}", "--rows", "t.csv", *fails)
    assert said.returncode == 1, said.stderr
    good, bad = (json.loads(one) for one in (rows.folder / "failed.jsonl").read_text().splitlines())
    assert (good["label"], bad["label"]) == ("A", None)
    assert bad["error"].startswith("unfit")


def test_a_sample_is_forecast_and_asked_about_and_the_rest_pays_for_it_once(
    rows: User, server: Provider, request: pytest.FixtureRequest
) -> None:
    ask = ("each", *ASK, "{id} {text}", "--rows", "tickets.jsonl", "--out", "o.jsonl")
    said = rows.headway(*ask, "--sample", "4")
    assert said.returncode == 0, said.stderr
    assert "4 rows are done. The other 8 rows:" in said.stderr
    assert "8 calls" in said.stderr
    assert len((rows.folder / "o.jsonl").read_text().splitlines()) == 4
    resumed = rows.headway("resume")
    assert resumed.returncode == 0, resumed.stderr
    found = [json.loads(line) for line in (rows.folder / "o.jsonl").read_text().splitlines()]
    assert [one["id"] for one in found] == [one["id"] for one in TICKETS]
    account = server.account(request.node.name)
    assert account is not None
    assert account["accepted"] == len(TICKETS)


def test_after_kills_rows_are_whole_in_order_and_paid_once_but_for_those_in_flight(
    rows: User,
) -> None:
    count, limits = 60, ("--first-byte-s", "0.05", "--per-token-s", "0", "--rpm", "600")
    rows.write("list.txt", "".join(f"line {n}\n" for n in range(count)))
    ask = ("each", "-j", "4", *ASK, "Say {}", "--rows", "list.txt", "--out", "out.jsonl")
    out = rows.folder / "out.jsonl"
    with provider(*limits) as slow:
        rows.env |= openai_at(slow, "kills")
        for words, most in ((ask, 10), (("resume",), 30), (("resume",), 45)):
            process = rows.start(*words)
            until(partial(_has, out, most))
            kill_group(process)
        said = rows.headway("resume")
        assert said.returncode == 0, said.stderr
        account = slow.account("kills")
    found = [json.loads(line) for line in out.read_text().splitlines()]
    assert [one["row"] for one in found] == [f"line {n}" for n in range(count)]
    assert [one["output"] for one in found] == [f"Say line {n}" for n in range(count)]
    assert account is not None
    assert count <= account["accepted"] <= count + 3 * 4


def _has(path: Path, lines: int) -> bool:
    return path.exists() and len(path.read_text().splitlines()) >= lines


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("{txt}", "--rows", "tickets.jsonl"), "has a column `txt`"),
        (("{}", "--rows", "nowhere.csv"), "nowhere.csv cannot be read"),
        (("{}", "--rows", "tickets.jsonl", ":::", "a"), "--rows are the inputs"),
        (("{}", "--rows", "tickets.jsonl", "--key", "n2"), "has no `n2` in line 1"),
    ],
)
def test_what_cannot_be_done_is_refused_and_leaves_no_run(
    rows: User, words: tuple[str, ...], said: str
) -> None:
    ended = rows.headway("each", *ASK, *words)
    assert ended.returncode == 2
    assert said in ended.stderr
    assert not list(rows.root.rglob("journal*"))
