"""The token counts in docs/token-usage.md, from runs of examples/plans/review on the simulator.

The token counts of a run depend on texts only, not on how fast they are served; so the provider
is fast here.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Final

import pytest
from msgspec import Struct

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


class Took(Struct, frozen=True):
    """What the tasks of a run took, by name."""

    tasks: dict[str, tuple[int, int]]
    usd: float

    @property
    def tokens(self) -> int:
        return sum(map(sum, self.tasks.values()))

    @property
    def calls(self) -> int:
        return sum(one > (0, 0) for one in self.tasks.values())


Perform = Callable[..., Took]


@pytest.fixture(scope="module")
def perform(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Perform]:
    """Run a plan of the example, with some of its text replaced; each variant once."""
    done: dict[tuple[str, tuple[Edit, ...]], Took] = {}
    stranger = copied("review", tmp_path_factory.mktemp("review"))

    def run(plan: str, *edits: Edit) -> Took:
        if (plan, edits) not in done:
            done[plan, edits] = _ran(stranger, plan, edits)
        return done[plan, edits]

    with launched("--script", str(stranger.here / "script.yaml"), *FAST) as url:
        stranger.environment |= {"ANTHROPIC_BASE_URL": url, "ANTHROPIC_API_KEY": "any"}
        yield run


def _ran(stranger: Stranger, plan: str, edits: tuple[Edit, ...]) -> Took:
    text = (stranger.here / plan).read_text()
    for before, after in edits:
        assert before in text
        text = text.replace(before, after)
    stranger.write("variant.yaml", text)
    said = stranger("run", "variant.yaml", "--quiet")
    assert said.code == 0, said.err
    lines = [json.loads(line) for line in stranger("results", "--json").out.splitlines()]
    told = {one["task"]: (one["input_tokens"], one["output_tokens"]) for one in lines}
    return Took(told, sum(one["usd"] for one in lines))


@pytest.mark.parametrize(
    ("plan", "edits"),
    [
        ("single.yaml", ()), ("panel.yaml", ()), ("panel.yaml", (CHANGED_LINES,)),
        ("panel.yaml", (TWO_VIEWS,)),
    ],
)  # fmt: skip
def test_a_variant_takes_the_tokens_that_the_documentation_says(
    perform: Perform, plan: str, edits: tuple[Edit, ...]
) -> None:
    took = perform(plan, *edits)
    assert f"| {took.calls} | {took.tokens:,} | ${took.usd:.3f} |" in DOCUMENT


def test_the_documentation_says_where_the_tokens_of_each_task_go(perform: Perform) -> None:
    for plan in ("panel.yaml", "single.yaml"):
        for task, (tokens_in, tokens_out) in perform(plan).tasks.items():
            if tokens_in:
                assert f"| `{task}` | {tokens_in:,} | {tokens_out:,} |" in DOCUMENT
