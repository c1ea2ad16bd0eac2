"""Tools that there are not are refused where they stand, with what was probably meant."""

from __future__ import annotations

import pytest

from headway.errors import PlanError
from tests.unit.plan_texts import apply_fixes, spec_of


@pytest.mark.parametrize(
    ("text", "better"),
    [
        ("tools(shel, files)", "tools(shell, files)"),
        ("tools(network)", "tools(shell, files)"),
        ("tools(mcp:)", "tools(shell, files)"),
        ("tools(file, files)", "tools(files)"),
        ("tools", "tools(shell, files)"),
        ("claude(shell)", "claude"),
    ],
)
def test_an_agent_with_tools_that_it_cannot_have_is_refused(text: str, better: str) -> None:
    source = f"headway: 1\nmodel: m\ntasks:\n  a:\n    prompt: x\n    agent: {text}\n"
    with pytest.raises(PlanError) as caught:
        spec_of(source)
    error = caught.value
    assert (error.code, error.where) == ("HW007", "plan.yaml:6:12")
    assert error.hint == f"write `agent: {better}`"
    mended = apply_fixes(source, error.fixes)
    assert better in mended
    assert spec_of(mended).tasks[0].is_sound


@pytest.mark.parametrize(
    ("lines", "top", "code"),
    [
        ("agent: claude, permissions: most", "", "HW007"),
        ("agent: claude", "permissions: most\n", "HW007"),
        ("agent: tools(files), permissions: all", "", "HW007"),
        ("permissions: all", "", "HW008"),
    ],
)
def test_other_permissions_are_refused_and_their_fix_gives_none(
    lines: str, top: str, code: str
) -> None:
    text = f"headway: 1\n{top}tasks:\n  a: {{prompt: x, {lines}}}\n"
    with pytest.raises(PlanError) as caught:
        spec_of(text)
    assert caught.value.code == code
    mended = apply_fixes(text, caught.value.fixes)
    assert "permissions" not in mended
    spec_of(mended)
