"""`examples/coherence.py`: a shared dictionary gives wrong records, a plan gives right ones."""

from __future__ import annotations

import json
import runpy
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "coherence.py"


def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *options: str) -> str:
    monkeypatch.setattr(sys, "argv", ["coherence.py", *options])
    runpy.run_path(str(EXAMPLE), run_name="__main__")
    return capsys.readouterr().out


@pytest.mark.parametrize("seed", range(1, 6))
def test_loose_agents_are_wrong_and_plans_are_right_for_every_seed(
    seed: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = json.loads(run(monkeypatch, capsys, "--seed", str(seed), "--json"))
    wrong, words, _, again = zip(*rows.values(), strict=True)
    assert wrong[1] > 0
    assert wrong[0] == wrong[2] == wrong[3] == 0
    assert words[0] == words[2] < words[3]
    assert again[2] == 0 < again[3]


def test_the_documentation_shows_what_the_example_prints(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    document = ROOT / "docs" / "coherence.md"
    assert run(monkeypatch, capsys) in document.read_text(encoding="utf-8")
