"""Rows of CSV, TSV and JSON Lines files and of lists, and plans over them."""

from __future__ import annotations

import csv
import json
from io import StringIO
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.errors import PlanError
from headway.plans.expand import prompt_of, sample_of, with_rows
from headway.plans.load import Loaded, plan_from
from headway.plans.rows import RowError, rows_in, suffix_of, text_with

CELLS = st.text(st.characters(codec="utf-8", exclude_characters="\x00\r"), max_size=12)
TABLES = st.lists(st.tuples(CELLS, CELLS), min_size=1, max_size=6)


@given(TABLES, st.sampled_from([".csv", ".tsv", ".jsonl"]))
def test_rows_that_were_written_are_read_back(table: list[tuple[str, str]], suffix: str) -> None:
    rows = [{"a": one, "b c": other} for one, other in table]
    if suffix == ".jsonl":
        text = "".join(json.dumps(row) + "\n" for row in rows)
    else:
        stream = StringIO()
        writer = csv.writer(stream, delimiter="\t" if suffix == ".tsv" else ",")
        writer.writerow(("a", "b c"))
        writer.writerows(table)
        text = stream.getvalue()
    found = rows_in(text, suffix)
    assert list(found) == rows
    assert found.columns == ("a", "b c")
    assert list(rows_in(text_with(found[1:], suffix), suffix)) == rows[1:]


def test_a_list_has_a_row_for_each_line_that_is_not_empty() -> None:
    assert list(rows_in(" one\n\n two words \n", ".txt")) == ["one", "two words"]
    assert suffix_of("a.b/Tickets.CSV") == ".csv"
    assert suffix_of("a.b/list") == ""


def test_columns_are_those_of_every_row_and_all_of_them_are_known() -> None:
    found = rows_in('{"a": 1, "b": 2}\n{"b": 3, "c": 4}\n', ".jsonl")
    assert found.columns == ("b",)
    assert found.every_column == ("a", "b", "c")


@pytest.mark.parametrize(
    ("text", "suffix", "key", "said"),
    [
        ("a,b\n1\n", ".csv", "", "has 1 cells in line 2, and 2 columns"),
        ("a,a\n1,2\n", ".csv", "", "has the column `a` twice"),
        ("a,\n1,2\n", ".csv", "", "has a column without a name"),
        ('a\n"x\n', ".csv", "", "is not CSV in line 2"),
        ('{"a": 1}\n[2]\n', ".jsonl", "", "has no object in line 2"),
        ('\n{"a": \n', ".jsonl", "", "is not JSON in line 2"),
        ("id\n7\n8\n7\n", ".csv", "id", "has the key `7` twice: in line 2 and line 4"),
        ("a\n7\n", ".csv", "id", "has no `id` in line 2"),
        ("one\n", ".txt", "id", "has no `id` in line 1"),
    ],
)
def test_what_cannot_be_read_is_refused_with_its_line(
    text: str, suffix: str, key: str, said: str
) -> None:
    with pytest.raises(RowError) as raised:
        rows_in(text, suffix, key)
    assert said in str(raised.value)


def loaded(folder: Path, rows: str, prompt: str = '{{ item["the text"] }}') -> Loaded:
    (folder / "rows.csv").write_text(rows)
    task = {"each": {"rows": "rows.csv", "key": "id"}, "prompt": prompt, "model": "openai/gpt-5"}
    return plan_from(json.dumps({"headway": 1, "tasks": {"label": task}}), folder, "plan.json")


def test_a_task_is_named_by_the_key_of_its_row_and_filled_with_its_columns(tmp_path: Path) -> None:
    expanded = loaded(tmp_path, 'id,the text\nA1,"x, y"\nB2,z\n').expanded
    (group,) = expanded.groups
    assert [group.label(n) for n in range(2)] == ["label[A1]", "label[B2]"]
    assert [prompt_of(expanded, group, n)[0] for n in range(2)] == ["x, y", "z"]


def test_without_a_key_a_task_is_named_by_its_first_column_and_its_number(tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text("city,n\nLima,1\nOslo,2\nLima,3\n")
    task = {"each": {"rows": "rows.csv"}, "prompt": "{{ item.n }}", "model": "openai/gpt-5"}
    plan = json.dumps({"headway": 1, "tasks": {"t": task}})
    (group,) = plan_from(plan, tmp_path, "plan.json").expanded.groups
    assert [group.label(n) for n in range(3)] == ["t[Lima #1]", "t[Oslo #2]", "t[Lima #3]"]


def test_a_column_that_not_every_row_has_is_refused_with_the_nearest(tmp_path: Path) -> None:
    with pytest.raises(PlanError) as raised:
        loaded(tmp_path, "id,text\nA,x\n", "{{ item.tex }}")
    assert raised.value.code == "HW009"
    assert "item.text" in (raised.value.hint or "")


def test_a_sample_is_spread_over_the_lengths_and_its_tasks_are_those_of_all_rows(
    tmp_path: Path,
) -> None:
    sizes = [7, 1, 9, 3, 5, 8, 2, 6, 4, 0]
    text = "".join(f"{n},{'x' * size}\n" for n, size in enumerate(sizes))
    expanded = loaded(tmp_path, f"id,the text\n{text}").expanded
    chosen = sample_of(expanded, 5)
    assert sorted(sizes[n] for n in chosen) == [1, 3, 5, 7, 9]
    part = with_rows(expanded, chosen).groups[0]
    assert [part.label(n) for n in range(5)] == [f"label[{n}]" for n in sorted(chosen)]


@pytest.mark.parametrize("each", ["{rows: a.csv, lines: b}", "{lines: a, key: b}", "{key: b}"])
def test_rows_and_lines_are_told_apart(tmp_path: Path, each: str) -> None:
    text = f"headway: 1\ntasks:\n  t:\n    each: {each}\n    run: 'true'\n"
    with pytest.raises(PlanError) as raised:
        plan_from(text, tmp_path)
    assert raised.value.code == "HW007"
