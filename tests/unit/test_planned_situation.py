"""A plan as a situation: how many agents, how large, views or slices, coupled or not."""

from __future__ import annotations

from pathlib import Path

import pytest

from headway.plans.load import plan_from
from headway.report.options import Situation
from headway.run.advise import planned_situation

HEAD = "headway: 1\nmodel: openai/gpt-5-mini\ntasks:\n"


def situation(tasks: str, folder: Path) -> Situation:
    return planned_situation(plan_from(HEAD + tasks, folder), Situation())


def test_items_are_slices_and_their_prompt_is_what_they_have_in_common(tmp_path: Path) -> None:
    text = "x" * 4_000
    found = situation(
        f'  look:\n    each: [aaaa, bbbb, cccc]\n    prompt: "{text} {{{{ item }}}}"\n', tmp_path
    )
    assert (found.agents, found.shape, found.coupled_share) == (3, "slices", 0.0)
    assert found.tokens_each == pytest.approx(1_000 + 500, rel=0.01)
    assert found.output_each == 500.0
    assert found.common_tokens == pytest.approx(1_000, rel=0.02)


def test_the_values_of_a_matrix_are_views_of_what_they_are_given(tmp_path: Path) -> None:
    found = situation(
        "  diff:\n    run: git diff\n"
        "  review:\n    needs: diff\n    matrix: {view: [code, security, style, all]}\n"
        '    prompt: "{{ matrix.view }} of {{ tasks.diff.stdout }}"\n    max_tokens: 200\n'
        "  verdict:\n    reduce: review\n    context: 60k\n    prompt: Merge.\n",
        tmp_path,
    )
    assert (found.agents, found.shape) == (5, "views")
    assert found.coupled_share == pytest.approx(0.25)
    assert found.output_each == pytest.approx((4 * 200 + 500) / 5)
    assert found.common_tokens == pytest.approx(1_000, rel=0.05)


def test_members_that_are_found_later_are_taken_to_be_ten(tmp_path: Path) -> None:
    found = situation(
        "  list:\n    run: ls\n  look:\n    each: list\n    prompt: Look at {{ item }}\n",
        tmp_path,
    )
    assert found.agents == 10
