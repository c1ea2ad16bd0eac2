"""Loops between tasks as a user sees them: work that is sent back, and what is said of it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.promises.user import User, until, user

PLAN = """\
headway: 1
name: rows
tasks:
  parse:
    run: echo parse >> "$LEDGER"; echo "a b"
  enrich:
    needs: parse
    vars: {rows: "{{ tasks.parse.output }}"}
    run: |
      echo "enrich $rejection" >> "$LEDGER"
      echo "$rows $rejection"
    output: rows.txt
  count:
    needs: enrich
    run: echo count >> "$LEDGER"; printf %%d $(wc -w < rows.txt)
  validate:
    needs: count
    vars: {words: "{{ tasks.count.output }}"}
    run: |
      echo validate >> "$LEDGER"
      %s
      test "$words" -ge %d || { echo "only $words words"; exit 1; }
      echo fine
    revise: enrich
    at_most: 2
    then: %s
  publish:
    needs: enrich
    run: echo publish >> "$LEDGER"; cat rows.txt
"""

EACH = """\
headway: 1
tasks:
  enrich:
    each: [ann, bob]
    python: work:enrich
  validate:
    each: enrich
    python: work:validate
    schema: verdict.json
    revise: enrich
    accept: verdict.ok
"""

WORK = """\
def enrich(name, rejection=""):
    return name.upper() if rejection else name


def validate(name, enriched):
    return {"verdict": {"ok": name == "ann" or enriched.isupper()}, "why": f"{enriched} is lower"}
"""


@pytest.fixture
def owner(tmp_path: Path) -> Iterator[User]:
    with user(tmp_path, {"LEDGER": str(tmp_path / "ledger")}) as one:
        yield one


def ledger(owner: User) -> list[str]:
    path = Path(owner.env["LEDGER"])
    return path.read_text().splitlines() if path.exists() else []


def test_rejected_work_is_done_again_with_the_reason_and_what_follows_waits(owner: User) -> None:
    owner.write("plan.yaml", PLAN % ("", 3, "fail"))
    ran = owner.headway("run", "-q", "plan.yaml")
    assert ran.returncode == 0, ran.stderr
    once = ["count", "validate"]
    again = "enrich only 2 words"
    assert ledger(owner) == ["parse", "enrich ", *once, again, *once, "publish"]
    (status,) = owner.json("status", "--json")
    assert status["revised"] == {"enrich": 1, "count": 1, "validate": 1}
    assert "enrich 1 time" in owner.headway("status").stdout
    why = owner.headway("why", "last", "enrich@2").stdout
    assert "round 2 of at most 3: `validate@1` rejected: only 2 words" in why
    why = owner.headway("why", "last", "validate").stdout
    assert "round 3 of at most 3: `validate@2` accepted what was there" in why
    (result,) = owner.json("results", "--json")
    assert result["task"] == "publish"
    (report,) = owner.json("report", "--json")
    assert report["revised"] == status["revised"]


def test_work_that_is_never_accepted_ends_the_plan_or_goes_on(owner: User) -> None:
    owner.write("plan.yaml", PLAN % ("", 99, "fail"))
    ran = owner.headway("run", "-q", "plan.yaml")
    assert ran.returncode == 1
    assert "it rejects the work of `enrich` in all 3 rounds: only 5 words" in ran.stderr
    assert ledger(owner).count("count") == 3
    assert "publish" not in ledger(owner)
    owner.write("plan.yaml", PLAN % ("", 99, "continue"))
    ran = owner.headway("run", "plan.yaml")
    assert ran.returncode == 0
    assert ledger(owner)[-1] == "publish"
    assert "it rejects the work of `enrich` in all 3 rounds" in ran.stderr


def test_a_killed_loop_goes_on_in_the_round_where_it_was(owner: User) -> None:
    wait = 'while [ $(grep -c validate "$LEDGER") = 2 ] && [ ! -e go ]; do sleep 0.05; done'
    owner.write("plan.yaml", PLAN % (wait, 3, "fail"))
    process = owner.start("run", "-q", "plan.yaml")
    until(lambda: ledger(owner).count("validate") == 2 or process.poll() is not None)
    owner.close()
    process.kill()
    process.wait()
    until(lambda: not owner.processes())
    before = ledger(owner)
    owner.write("go", "")
    resumed = owner.headway("resume", "last", "-q")
    assert resumed.returncode == 0, resumed.stderr
    assert ledger(owner) == [*before, "validate", "publish"], "no round is done again"


def test_each_member_is_sent_back_by_itself(owner: User) -> None:
    owner.write("plan.yaml", EACH)
    owner.write("work.py", WORK)
    owner.write("verdict.json", json.dumps({"type": "object", "required": ["verdict"]}))
    ran = owner.headway("run", "-q", "plan.yaml")
    assert ran.returncode == 0, ran.stderr
    (status,) = owner.json("status", "--json")
    assert status["revised"] == {"enrich": 1, "validate": 1}
    found = {
        one["task"]: one["output"] for one in owner.json("results", "--task", "enrich", "--json")
    }
    assert found == {"enrich[ann]": "ann", "enrich[bob]": "BOB"}
    checked = owner.headway("check", "plan.yaml").stdout
    assert (
        "Loop: `validate` may send back the work of `enrich` once: up to 4 tasks more." in checked
    )


PROMPTS = """\
headway: 1
model: openai/gpt-5-mini
tasks:
  parse: {run: echo rows}
  enrich:
    needs: parse
    prompt: "Enrich {{ tasks.parse.output }}"
  validate:
    needs: enrich
    run: 'echo "too short: $HEADWAY_TASK"; [ "$HEADWAY_TASK" = validate@2 ]'
    revise: enrich
    at_most: 2
"""


def test_a_prompt_that_is_asked_again_has_the_reason_and_is_shown_with_it(owner: User) -> None:
    owner.write("plan.yaml", PROMPTS)
    ran = owner.headway("run", "-q", "plan.yaml", "--yes", "--sim")
    assert ran.returncode == 0, ran.stderr
    first, second = (owner.headway("results", "--prompt", f"enrich@{n}").stdout for n in (1, 2))
    assert first.strip() == "Enrich rows"
    assert "Earlier work on this was not accepted" in second
    assert "too short: validate@1" in second
    (status,) = owner.json("status", "--json")
    assert status["calls"] == 2, "the last round asks nothing"
