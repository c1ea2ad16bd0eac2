"""The token counts in docs/token-usage.md, from runs of examples/plans/review on the simulator.

The token counts of a run depend on texts only, not on how fast they are served; so the provider
is fast here.
"""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any, Final

import pytest
from anthropic import AsyncAnthropic

import headway
from headway.base.values import Tally
from headway.client.admission import Admission
from headway.pacing.budget import MonthlyBudgets
from headway.pacing.memory import Claim, MonthlyBudget, PacingMemory, Spend
from headway.sim.server import launched
from headway.wire.prices import price_of
from tests.integration.broker_home import home
from tests.integration.strangers_shell import ROOT, Stranger
from tests.integration.test_worked_examples import FAST, VIEWS, copied

DOCUMENT: Final = (ROOT / "docs" / "token-usage.md").read_text(encoding="utf-8")
MONTH_TOKENS: Final = 5_000_000
MODEL: Final = "claude-sonnet-4-5"

CHANGED_LINES: Final = (
    'run: python3 diff.py "$repository" "$range"',
    """run: python3 diff.py "$repository" "$range" | grep -E '^(==|[0-9]+ [-+])'""",
)
TWO_VIEWS: Final = ("[code, architecture, security, multi-perspective]", "[code, security]")
Edit = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Took:
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


@pytest.fixture(scope="module")
def cached(tmp_path_factory: pytest.TempPathFactory) -> list[Any]:
    """Usage of the four reviewers by the SDK, paced, with the change before what each is asked."""
    stranger = copied("review", tmp_path_factory.mktemp("cached"))
    command = [sys.executable, "diff.py", "build/repository", "HEAD~1..HEAD"]
    change = subprocess.run(command, cwd=stranger.here, check=True, capture_output=True).stdout
    asked = [(stranger.here / "prompts" / f"{view}.md").read_text() for view in VIEWS]
    with pytest.MonkeyPatch.context() as patch, home(patch) as made, launched(*FAST) as url:
        return asyncio.run(_reviewed(url, made.port(), change.decode(), asked))


async def _reviewed(url: str, port: Admission, change: str, asked: list[str]) -> list[Any]:
    client = headway.pace(AsyncAnthropic(base_url=url, api_key="any"), admission=port)
    marked: Any = [{"type": "text", "text": change, "cache_control": {"type": "ephemeral"}}]

    async def ask(prompt: str) -> Any:
        own = prompt.partition("<diff>")[0]
        answer = await client.messages.create(
            model="tokens-20", max_tokens=50, system=marked,
            messages=[{"role": "user", "content": own}],
        )  # fmt: skip
        return answer.usage

    usages = await asyncio.gather(*map(ask, asked))
    await client.close()
    return list(usages)


def reviews_in(budget: MonthlyBudget, calls: Sequence[int]) -> int:
    """How many reviews of these calls, one after another, a month's budget lets through."""
    purse = MonthlyBudgets(PacingMemory(), 0.0)
    purse.budget("one", budget)
    for review in count():
        for number, tokens in enumerate(calls):
            if purse.room("one", Spend(tokens)) != "yes":
                return review
            call = ("client", review * len(calls) + number)
            purse.claim(Claim(call, "one", Spend(tokens)))
            purse.settle(call, Spend(tokens))
    raise AssertionError("a budget that never ends")


@pytest.mark.parametrize(
    ("agents", "total", "reviews"),
    [
        # What the document says of one agent and of four; of four, it says 68,000 in one place
        # and 15 to 18 thousand for each of three and 12 to 15 for the fourth in another.
        ((35_000,), 35_000, 142),
        ((68_000,), 68_000, 73),
        ((15_000, 15_000, 15_000, 12_000), 57_000, 87),
        ((18_000, 18_000, 18_000, 15_000), 69_000, 72),
    ],
)
def test_a_months_budget_buys_as_many_reviews_as_the_document_says(
    agents: tuple[int, ...], total: int, reviews: int
) -> None:
    assert sum(agents) == total
    assert reviews_in(MonthlyBudget(tokens=MONTH_TOKENS), agents) == reviews
    assert f"| {total:,} | {reviews} |" in DOCUMENT


@pytest.mark.parametrize(("plan", "reviews"), [("single.yaml", 142), ("panel.yaml", 73)])
def test_a_months_budget_buys_as_many_reviews_of_the_example(
    perform: Perform, plan: str, reviews: int
) -> None:
    took = perform(plan)
    assert reviews_in(
        MonthlyBudget(tokens=MONTH_TOKENS), [sum(one) for one in took.tasks.values()]
    ) == (reviews)
    assert f"| {took.tokens:,} | {reviews} |" in DOCUMENT


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


def test_a_panel_costs_almost_twice_as_much_as_one_agent(perform: Perform) -> None:
    ratio = perform("panel.yaml").tokens / perform("single.yaml").tokens
    assert ratio == pytest.approx(68 / 35, abs=0.02)
    assert f"{ratio:.2f} times" in DOCUMENT


def test_the_documentation_says_where_the_tokens_of_each_task_go(perform: Perform) -> None:
    for plan in ("panel.yaml", "single.yaml"):
        for task, (tokens_in, tokens_out) in perform(plan).tasks.items():
            if tokens_in:
                assert f"| `{task}` | {tokens_in:,} | {tokens_out:,} |" in DOCUMENT


def test_four_reviewers_with_a_common_beginning_write_it_once_and_read_it_three_times(
    perform: Perform, cached: list[Any]
) -> None:
    written = sorted(usage.cache_creation_input_tokens for usage in cached)
    read = sorted(usage.cache_read_input_tokens for usage in cached)
    assert written[:3] == [0, 0, 0]
    # Where a text ends within a call moves its count by a few tokens.
    assert read == pytest.approx([0, *[written[3]] * 3], abs=5)
    own = sum(usage.input_tokens for usage in cached)
    whole = sum(perform("panel.yaml").tasks[f"review[{view}]"][0] for view in VIEWS)
    price = price_of(MODEL)
    assert price is not None
    tally = Tally(own + written[3], sum(read), cache_write_tokens=written[3])
    assert _row("no") == [whole, 0, 0, pytest.approx(price.cost_of(Tally(whole)) / 1e6, abs=0.001)]
    assert _row("yes") == pytest.approx(
        [own, written[3], sum(read), price.cost_of(tally) / 1e6], rel=0.01
    )


def _row(head: str) -> list[float]:
    """The numbers of a row of the documentation."""
    found = re.search(rf"^\| {head} \|(.*)\|$", DOCUMENT, re.MULTILINE)
    assert found is not None
    return [float(cell.strip(" $").replace(",", "")) for cell in found[1].split("|")]
