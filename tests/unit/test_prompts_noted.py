"""What a task's own code asks a model through a paced client belongs to what it did."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import headway
from headway.state.context import Commons, lent
from headway.state.shared import Shared, Snapshot
from headway.testing import FakeAdmission
from tests.unit.attempts import Told
from tests.unit.paced_provider import ANSWER, PacedProvider, refusal


def ask(provider: PacedProvider, *questions: str) -> list[str]:
    with headway.pace(provider.gpt(max_retries=0), admission=FakeAdmission()) as gpt:
        return [gpt.responses.create(model="m", input=one).output_text for one in questions]


def prompts_of(provider: PacedProvider, *questions: str) -> bytes:
    """The digest of the prompts of an attempt that asks these."""
    snapshot = Snapshot(Shared(), 1)
    attempt = replace(Told().attempt(), snapshot=snapshot)

    async def perform() -> None:
        with lent(attempt, Commons()):
            assert await asyncio.to_thread(ask, provider, *questions) == [ANSWER.text] * len(
                questions
            )

    asyncio.run(perform())
    return snapshot.access().prompts


def test_the_same_questions_have_one_digest_and_others_another() -> None:
    once = prompts_of(PacedProvider(), "one", "two")
    assert once == prompts_of(PacedProvider(), "one", "two") != b""
    assert once != prompts_of(PacedProvider(), "two", "one")
    assert once != prompts_of(PacedProvider(), "one")
    assert prompts_of(PacedProvider()) == b""


def test_a_call_that_was_refused_and_sent_again_is_one_prompt() -> None:
    refused = PacedProvider(refusal(429, "rate_limit_exceeded", "Slow down."))
    assert prompts_of(refused, "one") == prompts_of(PacedProvider(), "one")
    assert len(refused.requests) == 2
