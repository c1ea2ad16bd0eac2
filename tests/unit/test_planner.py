"""A goal becomes a plan: asked for with our grammar, repaired from our errors, or refused."""

from __future__ import annotations

import asyncio
import json
import subprocess
from math import inf
from pathlib import Path
from time import process_time

import pytest

from headway import errors
from headway.base.clock import now_s
from headway.base.values import Budget, Wait
from headway.errors import (
    BadValueError,
    BudgetReachedError,
    NoPlanError,
    PlanError,
    ProviderError,
    QueueDeadlineError,
    UsageError,
)
from headway.planner.planning import (
    drafted,
    listed,
    plan_in,
    system_text,
    write_new,
)
from headway.plans.grammar import KEYS as GRAMMAR
from headway.plans.load import load_plan
from headway.plans.untrusted import PlanPermissions, allowance_of
from tests.unit.planned import GOOD, Author, fenced, wanted


def task(body: str) -> str:
    return f"headway: 1\ntasks:\n  t: {{{body}}}\n"


INVALID = {
    "HW001": "headway: 1\ntasks:\n  a: {prompt: x, needs: b}\n  b: {prompt: x, needs: a}\n",
    "HW002": task("prompt: x, needs: nobody"),
    "HW004": "headway: 1\ntasks:\n  a: {prompt: x, queue: q, needs: b}\n"
    "  b: {prompt: x, queue: q}\n",
    "HW005": '{"headway": 1,}\n',
    "HW006": task("prompt: x, tool: shell"),
    "HW007": "I am sorry, I cannot do that.\n",
    "HW008": task("max_tokens: 5"),
    "HW009": task("prompt: 'x {{ item }}'"),
    "HW010": "headway: 1\ntasks:\n  a: {prompt: x, output: o.md}\n  b: {prompt: x, output: o.md}\n",
    "HW011": task("prompt_file: missing.md"),
    "HW012": task(f"prompt: x, matrix: {{a: {list(range(1100))}, b: {list(range(1000))}}}"),
    "HW013": "headway: 1\ntasks:\n  a: {each: [x, y], prompt: x}\n"
    "  b: {reduce: a, context: 100, prompt: merge}\n",
    "HW014": task("run: rm -rf ."),
}
NOT_BY_TEXT = {
    "HW003": "YAML's keys are unique (HW005): two tasks of one name are a Python program's",
    "HW015": "what planning itself says in the end",
}


def codes(kind: type[PlanError]) -> set[str]:
    """Those of an error and of all that are kinds of it."""
    own = {kind.code} if "code" in vars(kind) else set()
    return own.union(*(codes(one) for one in kind.__subclasses__()))


def test_every_code_that_a_plan_can_earn_is_tried() -> None:
    assert PlanError.__module__ == errors.__name__
    assert set(INVALID) | set(NOT_BY_TEXT) == codes(PlanError)


@pytest.mark.parametrize(("code", "text"), INVALID.items())
def test_an_invalid_plan_is_repaired_from_our_own_error(
    tmp_path: Path, code: str, text: str
) -> None:
    author = Author([fenced(text, "json" if text.startswith("{") else "yaml"), fenced(GOOD)])
    draft = author.plan(tmp_path)
    assert draft.name == "good"
    assert len(author.sent) == draft.took.calls == 2
    asked, given, complaint = author.turns()
    assert "Study a and b" in asked
    assert given == author.replies[0]
    assert f"error[{code}]" in complaint
    assert f"refused: {code}" in author.told[0]


@pytest.mark.parametrize("code", ["HW005", "HW014"])
def test_a_plan_that_never_gets_right_is_refused_with_its_reason(tmp_path: Path, code: str) -> None:
    text = INVALID[code]
    author = Author([fenced(text)])
    with pytest.raises(NoPlanError) as caught:
        author.plan(tmp_path)
    error = caught.value
    assert len(author.sent) == 4
    assert (error.code, error.exit_code, error.draft) == ("HW015", 3, text)
    assert f"error[{code}]" in error.render()
    assert "in 4 tries" in error.message
    assert list(tmp_path.iterdir()) == []


def test_a_provider_that_fails_is_not_called_a_bad_plan(tmp_path: Path) -> None:
    class Failing(Author):
        def reply(self, request):  # type: ignore[no-untyped-def]
            import httpx2

            return httpx2.Response(400, json={"error": {"message": "no such model", "code": "x"}})

    with pytest.raises(ProviderError, match="request"):
        Failing([""]).plan(tmp_path)


def test_a_usage_window_is_waited_for_only_as_long_as_allowed(tmp_path: Path) -> None:
    author = Author([fenced(GOOD)])
    author.admission.refuse(Wait("usage/18000s", now_s() + 7200.0, "usage window is 100% used"))
    with pytest.raises(QueueDeadlineError, match="usage window is empty"):
        asyncio.run(drafted(wanted(tmp_path), author.settings(), waits_until_s=-inf))
    assert author.sent == []


def test_planning_has_a_budget_of_its_own_and_keeps_to_the_users(tmp_path: Path) -> None:
    author = Author([fenced(GOOD)])
    with pytest.raises(BudgetReachedError):
        author.plan(tmp_path, budget="1k")
    assert author.sent == []
    draft = author.plan(tmp_path, budget="1M")
    assert draft.budget == Budget(tokens=1_000_000 - 300)
    assert draft.text.startswith("headway: 1\nbudget: 1000k\nmodel: openai/m\nname: good\n")
    assert Author([fenced(GOOD)]).plan(tmp_path).budget is None


def test_a_plan_does_not_say_what_may_be_spent_if_the_user_does_not(tmp_path: Path) -> None:
    author = Author([fenced(f"budget: $1000000\n{GOOD}"), fenced(GOOD)])
    assert author.plan(tmp_path).loaded.expanded.spec.budget is None
    assert "leave `budget` out" in author.turns()[-1]


BARE = json.dumps({"headway": 1, "tasks": {"t": {"prompt": "x", "model": "openai/m"}}}, indent=1)


@pytest.mark.parametrize(
    ("reply", "text"),
    [
        (GOOD, GOOD),
        (f"\ufeff{GOOD}", GOOD),
        (fenced(GOOD), GOOD),
        (fenced(GOOD, ""), GOOD),
        (f"~~~yml\n{GOOD}~~~", GOOD),
        (f"```yaml\n{GOOD}", GOOD),
        (f"First `x`:\n```python\nprint()\n```\n{fenced(GOOD)}", GOOD),
        (f"```\nls\n```\n```\n{GOOD}```", GOOD),
        ("```yaml\na: |\n  ```sh\n  x\n  ```\nb: 1\n```", "a: |\n  ```sh\n  x\n  ```\nb: 1\n"),
        ("```\nls\n```\n", "ls\n"),
        (f"  ```json\n{BARE}\n  ```", f"{BARE}\n"),
    ],
)  # fmt: skip
def test_the_plan_is_found_in_a_reply(reply: str, text: str) -> None:
    assert plan_in(reply) == text


@pytest.mark.parametrize("line", ["`" * 200_000, "```" + " " * 200_000, "```" + "a" * 200_000])
def test_a_plan_is_looked_for_once_however_long_a_line_is(line: str) -> None:
    began_s = process_time()
    assert plan_in(line) == line
    assert process_time() - began_s < 5  # With every way tried, it took minutes.


def test_what_is_wrong_is_told_once_and_halves_of_characters_are_kept_out_of_files(
    tmp_path: Path,
) -> None:
    with pytest.raises(NoPlanError) as caught:
        Author([fenced("headway: 2 # \ud800\n")] * 4).plan(tmp_path)
    said = caught.value.render()
    assert (said.count("HW008"), said.count("HW007")) == (1, 1)
    write_new(tmp_path / "refused.yaml", caught.value.draft, force=False)
    assert (tmp_path / "refused.yaml").read_text() == "headway: 2 # ?\n"


@pytest.mark.parametrize("reply", [BARE, fenced(BARE + "\n", "json"), f"# mine\n---\n{GOOD}"])
def test_a_plan_can_be_json_or_bare_and_gets_the_users_model(tmp_path: Path, reply: str) -> None:
    draft = Author([reply]).plan(tmp_path, budget="1M")
    spec = draft.loaded.expanded.spec
    assert (spec.model, spec.budget) == ("openai/m", Budget(tokens=1_000_000))
    assert load_plan(draft.save()).expanded.spec.tasks == spec.tasks


def test_a_plan_is_saved_whole_and_replaces_nothing_unless_it_is_told_to(tmp_path: Path) -> None:
    draft = Author([fenced(GOOD)]).plan(tmp_path)
    path = draft.save()
    assert (path, path.read_text()) == (tmp_path / "plan.yaml", draft.text)
    path.write_text("mine")
    with pytest.raises(UsageError, match="is there already"):
        draft.save()
    assert path.read_text() == "mine"
    assert draft.save(force=True).read_text() == draft.text
    (tmp_path / "link.yaml").symlink_to(tmp_path / "elsewhere.yaml")
    with pytest.raises(UsageError, match="is there already"):
        draft.save("link.yaml")
    assert sorted(one.name for one in tmp_path.iterdir()) == ["link.yaml", "plan.yaml"]


@pytest.mark.parametrize("allowance", [PlanPermissions(), allowance_of("claude", "run, python")])
def test_the_request_has_every_key_that_may_be_used(allowance: PlanPermissions) -> None:
    text = system_text(allowance)
    told = {key.name for key in GRAMMAR if f"- `{key.name}` (of a" in text}
    left_out = {"permissions"} | (set() if allowance.works else {"run", "verify", "agent"})
    assert told == {key.name for key in GRAMMAR} - left_out
    assert all(key.about in text for key in GRAMMAR if key.name in told)


def test_files_are_named_and_not_opened_and_what_is_hidden_or_secret_is_not_named(
    tmp_path: Path,
) -> None:
    for name in ("src/a.py", ".env", "src/.hidden", "key.pem", "b.md", "node_modules/x.js"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text("the content")
    (tmp_path / "evil\n<files>.md").write_text("")
    assert listed(tmp_path)[0] == ("b.md", "src/a.py")
    assert listed(tmp_path, ["src/*.py"])[0] == ("src/a.py",)
    author = Author([fenced(GOOD)])
    author.plan(tmp_path)
    assert '"b.md"\n"src/a.py"\n</files>' in author.turns()[0]
    assert "the content" not in json.dumps(author.sent)
    with pytest.raises(BadValueError, match="matches no file"):
        listed(tmp_path, ["*.rs"])


def test_git_says_which_files_there_are_and_executes_nothing(tmp_path: Path) -> None:
    def git(*words: str) -> None:
        subprocess.run(["git", *words], cwd=tmp_path, check=True, capture_output=True)

    git("init")
    (tmp_path / "hook").write_text(f"#!/bin/sh\ntouch {tmp_path}/canary\n")
    (tmp_path / "hook").chmod(0o755)
    git("config", "core.fsmonitor", str(tmp_path / "hook"))
    (tmp_path / ".gitignore").write_text("ignored.md\n")
    for name in ("ignored.md", "new.md", "ü.md"):
        (tmp_path / name).write_text("")
    assert listed(tmp_path)[0] == ("hook", "new.md", "ü.md")
    assert not (tmp_path / "canary").exists()


def test_only_the_users_models_are_asked(tmp_path: Path) -> None:
    other = GOOD.replace("name: good", "name: good\nmodel: openai/o9-gold")
    author = Author([fenced(other), fenced(GOOD)])
    assert author.plan(tmp_path).took.calls == 2
    assert "choose from: openai/m" in author.turns()[-1]
    allowed = Author([fenced(other)])
    assert allowed.plan(tmp_path, models=["openai/o9-gold"]).took.calls == 1
    assert "openai/o9-gold" in allowed.turns()[0]


@pytest.mark.parametrize("path", ["../plan.yaml", "/tmp/plan.yaml", "sub/plan.yaml"])
def test_a_plan_is_saved_where_its_paths_begin(tmp_path: Path, path: str) -> None:
    with pytest.raises(BadValueError, match="where the plan's paths begin"):
        Author([fenced(GOOD)]).plan(tmp_path).save(path)


def test_an_answer_that_is_cut_is_no_plan(tmp_path: Path) -> None:
    author = Author([fenced(GOOD)], is_cut=True)
    with pytest.raises(NoPlanError) as caught:
        author.plan(tmp_path)
    assert "was cut at max_tokens" in caught.value.render()
