"""`headway check` as people see it: a plan in sentences, remarks with places, exit codes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from headway.cli.main import main

PLAN = """\
headway: 1
model: openai/gpt-5-mini
tasks:
  parse:
    run: parse < in.txt
    reads: in.txt
    writes: out/parsed.json
  enrich:
    run: enrich
    reads: out/parse.json
    output: out/enriched.json
  review:
    each: [code, security]
    prompt: "Look for {{ item }}"
"""


@pytest.fixture
def plan(tmp_path: Path) -> Path:
    (tmp_path / "in.txt").write_text("")
    path = tmp_path / "plan.yaml"
    path.write_text(PLAN)
    return path


def test_a_plan_is_told_in_sentences(plan: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", str(plan)]) == 0
    out = capsys.readouterr().out
    assert "Embarrassingly parallel: the members of `review` (2)" in out
    assert "Largest safe width: 4 tasks at once, as far as is declared." in out
    assert "warning: `enrich` reads `out/parse.json`, which no task writes before" in out
    assert f"{plan}:10:12  it would find nothing there" in out
    assert "hint: did you mean `out/parsed.json`?" in out
    assert "note: no task reads `out/parsed.json`" in out


def test_warnings_refuse_a_plan_if_one_asks_for_it(
    plan: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["check", str(plan), "--strict"]) == 3
    plan.write_text(PLAN.replace("out/parse.json", "out/parsed.json"))
    assert main(["check", str(plan), "--strict"]) == 0
    out = capsys.readouterr().out
    assert "`enrich` needs `out/parsed.json` as `parse` leaves it" in out
    # What is there before the run need not be written by a task.
    plan.write_text(PLAN)
    (plan.parent / "out").mkdir()
    (plan.parent / "out" / "parse.json").write_text("")
    assert main(["check", str(plan), "--strict"]) == 0
    assert "warning:" not in capsys.readouterr().out


def test_a_program_gets_all_of_it(plan: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", str(plan), "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["boundary"]["width"] == 4
    assert report["remarks"][0]["kind"] == "never written"
    assert report["answers"][-2].startswith("Largest safe width")
    plan.write_text(PLAN.replace("in.txt\n    writes", "out/enriched.json\n    writes"))
    assert main(["check", str(plan), "--json"]) == 3
    out, err = capsys.readouterr()
    (error,) = json.loads(out)["refused"]
    assert error["code"] == "HW010"
    assert error["detail"].startswith("if `parse` runs first, it reads the version from before")
    assert error["fixes"][0]["key"] == "needs"
    assert err == ""


def test_a_large_plan_is_told_by_its_beginning(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first = "".join(f"  a{n}: {{run: x, reads: gone/{n}}}\n" for n in range(70))
    last = f"  z: {{run: x, needs: [{', '.join(f'a{n}' for n in range(70))}]}}\n"
    path = tmp_path / "plan.yaml"
    path.write_text(f"headway: 1\ntasks:\n  z:{last[4:]}{first}")
    assert main(["check", str(path)]) == 0
    out = capsys.readouterr().out
    assert "a5, 64 more" in out
    assert "and 11 more" in out
    assert "and 50 more" in out


def test_tasks_that_use_a_file_in_no_order_are_no_part_of_the_safe_width(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = tmp_path / "plan.yaml"
    plan.write_text(
        "headway: 1\ntasks:\n  tick: {each: [a, b, c], run: 'echo x > log; sort log'}\n"
        "  parse: {run: 'date > records'}\n  enrich: {run: 'cp records enriched'}\n"
    )
    assert main(["check", str(plan)]) == 0
    out = capsys.readouterr().out
    assert "any task can run before any other" not in out
    assert (
        "Largest safe width: 2 tasks at once, as commands of `tick`, `parse` and `enrich` use the"
        " same files in no order." in out
    )
