"""The token counts in docs/token-usage.md, from runs of examples/plans/review on the simulator.

The token counts of a run depend on texts only, not on how fast they are served; so the provider
is fast here.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Final

import pytest

from headway.sim.server import launched
from tests.integration.strangers_shell import ROOT, Stranger
from tests.integration.test_worked_examples import FAST, copied

DOCUMENT: Final = (ROOT / "docs" / "token-usage.md").read_text(encoding="utf-8")

CHANGED_LINES: Final = (
    'run: python3 diff.py "$repository" "$range"',
    """run: python3 diff.py "$repository" "$range" | grep -E '^(==|[0-9]+ [-+])'""",
)
TWO_VIEWS: Final = ("[code, architecture, security, multi-perspective]", "[code, security]")
Edit = tuple[str, str]


@pytest.fixture(scope="module")
def stranger(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stranger]:
    found = copied("review", tmp_path_factory.mktemp("review"))
    with launched("--script", str(found.here / "script.yaml"), *FAST) as url:
        found.environment |= {"ANTHROPIC_BASE_URL": url, "ANTHROPIC_API_KEY": "any"}
        yield found


@pytest.mark.parametrize(
    ("plan", "edits"),
    [
        ("single.yaml", ()), ("panel.yaml", ()), ("panel.yaml", (CHANGED_LINES,)),
        ("panel.yaml", (TWO_VIEWS,)),
    ],
)  # fmt: skip
def test_a_variant_takes_the_tokens_that_the_documentation_says(
    stranger: Stranger, plan: str, edits: tuple[Edit, ...]
) -> None:
    text = (stranger.here / plan).read_text()
    for before, after in edits:
        assert before in text
        text = text.replace(before, after)
    stranger.write("variant.yaml", text)
    said = stranger("run", "variant.yaml", "--quiet")
    assert said.code == 0, said.err
    lines = [json.loads(line) for line in stranger("results", "--all", "--json").out.splitlines()]
    took = {one["task"]: (one["input_tokens"], one["output_tokens"]) for one in lines}
    calls = {task: tokens for task, tokens in took.items() if tokens > (0, 0)}
    tokens, usd = sum(map(sum, took.values())), sum(one["usd"] for one in lines)
    assert f"| {len(calls)} | {tokens:,} | ${usd:.3f} |" in DOCUMENT
    for task, (tokens_in, tokens_out) in calls.items() if not edits else ():
        assert f"| `{task}` | {tokens_in:,} | {tokens_out:,} |" in DOCUMENT
