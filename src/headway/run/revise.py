"""What a task of a loop does in a round: its work, with why it was sent back, or nothing.

Laws:
- A round does nothing if every task that judged the round before accepted it.
- What a task rejects is no failure of it, until the last round: then the plan says which it is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from msgspec.structs import replace

from headway.base.values import Fault
from headway.plans.expand import GroupPlan, Round
from headway.plans.grammar import REJECTION
from headway.plans.rounds import Verdict, reason_of, verdict_body, verdict_of
from headway.plans.spec import Prompt
from headway.run.filling import Filling, text_in
from headway.work import Attempt, AttemptError, Needed, Result

SENT_BACK: Final = "\n\nEarlier work on this was not accepted. The reason:\n{{ vars.rejection }}\n"
"""What is added to a prompt that does not name the reason itself."""
SIGNALS: Final = 128
"""Exit codes above are a signal, or a command that could not be started (126, 127): no verdict."""
NOT_STARTED: Final = (126, 127)


def taken_from_before(group: GroupPlan, attempt: Attempt) -> Result | None:
    """The result of the round before, if that was accepted; None in the first round."""
    part = group.round
    if part is None or part.number == 1 or _rejections(part, attempt.needed(part.judge)):
        return None
    own = attempt.needed(part.own)
    body = next(one.body for one in own if len(own) == 1 or one.member == attempt.member)
    if part.is_last:
        body = shown_body(replace(part, number=part.number - 1), body)
    return Result(body, is_renewed=True)


def sent_back(group: GroupPlan, needed: Callable[[str], list[Needed]]) -> GroupPlan:
    """The group with the reason why its work is done once more, if it is the one to know."""
    part = group.round
    if part is None or part.number == 1 or not part.is_judged:
        return group
    reason = reason_of(_rejections(part, needed(part.judge)))
    return replace(group, vars={**group.vars, REJECTION: reason})


def prompt_source(filling: Filling, files: Mapping[str, str]) -> str:
    """The template of a prompt, with the reason why it is asked again."""
    work = filling.group.task.work
    assert isinstance(work, Prompt)
    return with_reason(filling.group, files[filling.text(work.file)] if work.file else work.text)


def with_reason(group: GroupPlan, source: str) -> str:
    is_named = "vars.rejection" in source
    return source + SENT_BACK if group.vars.get(REJECTION) and not is_named else source


def rejection_in(group: GroupPlan, lost: AttemptError) -> Result | None:
    """What a command gave that rejects by its exit code; None if it failed otherwise."""
    part, result = group.round, lost.result
    if part is None or not part.is_judge or part.revise.accept or lost.fault.kind != "command":
        return None
    code = None if result is None else result.exit_code
    is_verdict = code is not None and 0 < code < SIGNALS and code not in NOT_STARTED
    return result if is_verdict else None


def judged(part: Round, result: Result, rejected: str | None, notes: list[str]) -> Result:
    """The result of a task that judges; `rejected` is what a command said that exits with another
    code than 0. Raises AttemptError if the last round is rejected and the plan ends there."""
    if not part.revise.accept:
        output = text_in(result.body)
        verdict = Verdict(rejected is None, output if output.strip() else rejected or "", output)
        if not part.is_last:
            return replace(result, body=verdict_body(verdict))
    else:
        found = verdict_of(result.body, part.revise.accept)
        if found is None:
            detail = f"its result does not say whether `{part.revise.accept}` is true or false"
            raise AttemptError(Fault("unfit", detail=detail), result)
        verdict = found
    if verdict.is_accepted or not part.is_last:
        return result
    words = f"it rejects the work of `{part.revise.task}` in all {part.last} rounds"
    words = f"{words}: {reason_of([('', verdict.reason)])}"
    if not part.revise.goes_on:
        raise AttemptError(Fault("rejected", detail=words), result)
    notes.append(f"{part.name}: {words}")
    return result


def shown_body(part: Round | None, body: bytes) -> bytes:
    """A result as its task gave it, without the verdict around it."""
    if part is None or not part.is_judge or part.is_last or part.revise.accept:
        return body
    verdict = verdict_of(body, "")
    return body if verdict is None else verdict.output.encode()


def _rejections(part: Round, judged: Sequence[Needed]) -> list[tuple[str, str]]:
    """By the name of each task that rejected the round before: why."""
    found = []
    for one in judged:
        verdict = verdict_of(one.body, part.revise.accept)
        if verdict is None or not verdict.is_accepted:
            found.append((one.name, verdict.reason if verdict is not None else text_in(one.body)))
    return found
