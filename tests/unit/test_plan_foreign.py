"""What a plan may contain that somebody else wrote, and what it may not."""

from __future__ import annotations

from os.path import normpath
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.base.values import Budget
from headway.errors import BadValueError, ForeignPlanError, PlanError
from headway.plans.expand import Sources, expand
from headway.plans.load import is_taken, load_foreign
from headway.plans.untrusted import (
    MEMBERS_MAX,
    TASKS_MAX,
    Disk,
    PlanPermissions,
    allowance_of,
    check_foreign,
    check_members,
    unreadable,
    unwritable,
)
from tests.unit.plan_texts import apply_fixes, spec_of

HEAD = "headway: 1\nmodel: m\n"
LINKS = {"env.md": ".env", "cert.txt": "server.pem", "up.md": "../x"}
ASKED = HEAD + "tasks:\n  a: {prompt: names}\n  t:\n    each: a\n    prompt: x\n"
"""A group whose members an answer gives."""


def task(*lines: str, top: str = "") -> str:
    """A plan whose one task has these lines."""
    body = "".join(f"    {line}\n" for line in lines)
    return f"{HEAD}{top}tasks:\n  t:\n{body}"


def told(text: str, allowance: PlanPermissions = PlanPermissions()) -> list[PlanError]:
    """What is wrong with a plan in which nothing exists but `there.md`."""
    spec = spec_of(text)
    try:
        disk = Disk(
            lambda path: path in ("", "there.md", "old"), lambda path: LINKS.get(path, path)
        )
        check_foreign(spec, allowance, disk)
        globs = {"src/*": ("src/a.py", "src/id_rsa", "src/.b")}
        check_members(expand(spec, Sources(globs, {"l.txt": ("a",)})), disk)
    except ForeignPlanError as error:
        return [error, *error.others]
    return []


def messages(text: str, allowance: PlanPermissions = PlanPermissions()) -> list[str]:
    return [error.message for error in told(text, allowance)]


GOOD = (
    task("prompt: hi", "output: out/a.md"),
    task("prompt: 'x {{ item }}'", "each: [a, b]", "output: 'out/{{ item }}.md'"),
    task("prompt: 'x {{ item }}'", "each: src/*", "output: 'out/{{ index }}.json'"),
    task("prompt: 'x {{ item }}'", "each: {lines: l.txt}", "matrix: {v: [1, {a: b}, [c]]}"),
    task("prompt_file: 'prompts/{{ matrix.v }}.md'", "matrix: {v: [a, b]}", "schema: s/x.json"),
    task("prompt: x", "reads: [data, 'state:k']", "writes: out", "output: state:k",
         top="state: {k: append}\nbudget: [$1, 5k]\nretries: 2\n"),
    HEAD + "tasks:\n  a: {each: [x], prompt: hi}\n"
    "  b: {reduce: a, python: 'headway.reducers:vote'}\n"
    "  c: {reduce: a, context: 8k, prompt: merge, max_tokens: 4k, retries: 1}\n"
    "  list: {prompt: names}\n  d: {each: list, prompt: hi, output: 'd/{{ index }}.md'}\n",
)  # fmt: skip


@pytest.mark.parametrize("text", GOOD)
def test_prompts_and_their_texts_are_allowed(text: str) -> None:
    assert messages(text) == []


BAD = {
    "is a command to execute": (
        task("run: echo hi"), task("prompt: x", "verify: 'true'"),
    ),
    "is code to execute": (
        task("python: os:system"), task("python: headway.reducers:loads"),
        task("python: headway.planner:plan"),
    ),
    "names what is to be executed": (
        task("prompt: x", top="state: {k: 'effect(rm -rf .)'}\n"),
        task("prompt: x", top="state: {k: 'effect(os:system)'}\n"),
        task("prompt: x", top="state: {k: 'reduce(os:system)'}\n"),
    ),
    "which the user has not allowed": (
        task("prompt: x", "agent: claude"), task("prompt: x", "agent: 'tools(shell)'"),
    ),
    "leads out of the project": (
        task("prompt_file: /etc/passwd"), task("prompt_file: ../x"), task("prompt_file: ~/x"),
        task("prompt: x", "each: {lines: ../../x}"), task("prompt: x", "output: ../x.md"),
        task("prompt: x", "writes: [a, ../b]"),
    ),
    "is hidden": (
        task("prompt_file: .env"), task("prompt: x", "each: .ssh/*"),
        task("prompt: x", "output: .git/hooks/pre.md"), task("prompt: x", "output: a/.x/b.md"),
        task("prompt_file: '{{ item }}'", "each: [.env]"),
        task("prompt: x", "each: [.git]", "writes: [a, '{{ item }}/hooks']"),
        task("prompt: x", """output: '{{ ".git" }}/x.md'"""),
        ASKED + "    matrix: {m: [a, .git]}\n    output: '{{ matrix.m }}/{{ index }}.md'\n",
        ASKED + "    vars: {v: .git}\n    output: '{{ vars.v }}/{{ index }}.md'\n",
    ),
    "may hold a key or a password": (
        task("prompt_file: server.pem"), task("prompt_file: a/id_rsa"),
        task("prompt: x", "each: {lines: passwords.txt}"), task("prompt_file: '{{ item }}'",
                                                                  "each: src/*"),
    ),
    "does not end in": (
        task("prompt: x", "output: Makefile"), task("prompt: x", "output: conftest.py"),
        task("prompt: x", "output: a.sh"), task("prompt: x", "output: '{{ item }}'", "each: [a]"),
    ),
    "is a file that programs obey": (
        task("prompt: x", "output: a/CLAUDE.md"), task("prompt: x", "output: package.json"),
        task("prompt: x", "output: '{{ item }}.md'", "each: [agents]"),
        task("prompt: x", """output: '{{ "CLAUDE" }}.md'"""),
        ASKED + "    vars: {v: CLAUDE}\n    output: '{{ vars.v }}.md'\n",
    ),
    "is there already": (
        task("prompt: x", "output: there.md"), task("prompt: x", "output: new/../there.md"),
        task("prompt: x", "output: '{{ item }}.md'", "each: [there]"),
        ASKED + "    output: 'old/{{ index }}.md'\n", ASKED + "    output: '{{ index }}.md'\n",
        ASKED + "    vars: {v: '{{ index }}'}\n    output: 'old/{{ vars.v }}.md'\n",
    ),
    "is a link to what is hidden": (
        task("prompt_file: env.md"), task("prompt: x", "each: {lines: env.md}"),
        task("prompt_file: '{{ item }}'", "each: [env.md]"),
    ),
    "is a link to what may hold a key": (task("prompt: x", "schema: cert.txt"),),
    "is a link to what leads out": (task("prompt: x", "reads: up.md"),),
    "a path that an answer would choose": (
        ASKED + "    vars: {v: '{{ item }}'}\n    output: 'o/{{ vars.v }}.md'\n",
        HEAD + "tasks:\n  a: {prompt: names}\n"
        "  t: {each: a, prompt: x, output: 'o/{{ item }}.md'}\n",
    ),
    "characters that a path should not have": (
        task(r'prompt_file: "a\u202eb"'), task(r"output: 'a\b.md'", "prompt: x"),
    ),
    "characters that cannot be seen": (
        task(r'prompt: "a\u202eb"'), task(r'prompt: "a\u200bb"'),
        task(r"prompt: x", r'vars: {v: "\e[31m"}'), task("prompt: x", top='vars: {v: "\\a"}\n'),
        task("prompt: x", r'matrix: {v: ["\U000e0041"]}'),
    ),
    "is more than the user gives": (
        task("prompt: x", top="budget: $3\n"), task("prompt: x", "budget: 9k"),
    ),
    "must be the name of a model": (
        task("prompt: x", "model: 'a{{ item }}'", "each: [b]"),
    ),
    "which may not be asked": (task("prompt: x", "model: o9-gold"),),
    "it takes up to": (
        task("prompt: x", top="retries: 100\n"), task("prompt: x", "schema: a", "repairs: 11"),
        task("prompt: x", "max_tokens: 1M"),
        HEAD + "tasks:\n  a: {each: [x], prompt: hi}\n"
        "  b: {reduce: a, prompt: m, context: 1000M}\n",
    ),
    "has up to": (
        task("prompt: '" + "{{ vars.v }}" * 900 + "'", top=f"vars: {{v: {'a' * 1000}}}\n"),
        task("prompt: '" + "{{ vars.w }}" * 30 + "'", "vars: {w: '" + "{{ vars.v }}" * 30 + "'}",
             top=f"vars: {{v: {'a' * 1000}}}\n"),
        task("prompt: '" + "{{ item }}" * 900 + "'", f"each: [{'a' * 1000}]"),
    ),
    "the plan declares": (
        HEAD + "tasks:\n" + "".join(f"  t{n}: {{prompt: x}}\n" for n in range(TASKS_MAX + 1)),
    ),
    "tasks, most of them in": (
        task("prompt: x", f"matrix: {{a: {list(range(101))}, b: {list(range(100))}}}"),
        task("prompt: x", f"each: {list(range(MEMBERS_MAX + 1))}"),
    ),
}  # fmt: skip
GIVEN = PlanPermissions(models=frozenset(("m",)), budget=Budget(5_000, 2_000_000))


@pytest.mark.parametrize(("message", "text"), [(m, text) for m in BAD for text in BAD[m]])
def test_everything_else_is_refused_with_its_place_and_what_to_do(message: str, text: str) -> None:
    (error,) = told(text, GIVEN)
    assert message in error.message
    assert (error.code, error.exit_code) == ("HW014", 3)
    assert (error.where or "").startswith("plan.yaml:")
    assert error.hint


def test_a_configuration_can_allow_more() -> None:
    every = allowance_of(" claude, tools:shell ,", "run, python")
    assert every.agents == frozenset(("claude", "tools:shell"))
    assert every.works == frozenset(("run", "python"))
    allowed = (
        task("run: x", "verify: y"), task("python: os:system"), task("prompt: x", "agent: claude"),
        task("prompt: x", "agent: 'tools(shell)'", "writes: []"),
        task("prompt: x", top="state: {k: 'effect(rm x)', l: 'reduce(a:b)'}\n"),
    )  # fmt: skip
    assert [messages(text, every) for text in allowed] == [[]] * len(allowed)
    (error,) = told(task("prompt: x", "agent: 'tools(shell, files)'"), every)
    assert error.hint == "use claude, or remove `agent`"


def test_no_configuration_allows_permissions() -> None:
    every = allowance_of("claude, tools", "run, python")
    text = task("prompt: x", "agent: claude", "permissions: all")
    (error,) = told(text, every)
    assert error.message == "`tasks.t.permissions` raises what its agent may do"
    assert messages(apply_fixes(text, error.fixes), every) == []
    (error,) = told(task("prompt: x", top="permissions: edit\n"), every)
    assert error.message == "`permissions` raises what agents may do"


def test_a_loop_says_what_it_writes_and_that_is_new_text() -> None:
    allowed, loop = allowance_of("tools", ""), ("prompt: x", "agent: 'tools(files)'")
    assert messages(task(*loop, "writes: [out/*.md, 'state:k']"), allowed) == []
    text = task(*loop)
    (error,) = told(text, allowed)
    assert "does not say what its agent may write" in error.message
    assert messages(apply_fixes(text, error.fixes), allowed) == []
    for path in ("src", "'**'", "a/*.py", "CLAUDE.md", "'*.md'", "old/*.md", "there.md"):
        assert len(messages(task(*loop, f"writes: {path}"), allowed)) == 1


def test_what_a_configuration_cannot_allow_is_refused() -> None:
    with pytest.raises(BadValueError, match="`runs`") as caught:
        allowance_of("", "runs")
    assert caught.value.hint == "did you mean `run`?"


def test_a_budget_is_within_the_users_and_in_its_unit() -> None:
    dollars, tokens = (
        PlanPermissions(budget=Budget(microusd=2_500_000)),
        PlanPermissions(budget=Budget(tokens=5_000)),
    )
    whole, own = task("prompt: x", top="budget: 1k\n"), task("prompt: x", "budget: 1k")
    assert told(whole, dollars)[0].hint == "write `budget: $2.5` or less, or leave it out"
    assert [messages(whole, tokens), messages(own, dollars), messages(own, tokens)] == [[]] * 3
    assert told(task("prompt: x", top="budget: $1\n"), tokens)[0].hint == (
        "write `budget: 5k` or less, or leave it out"
    )
    both = PlanPermissions(budget=Budget(5_000, 2_000_000))
    assert "[$2, 5k]" in (told(task("prompt: x", top="budget: $3\n"), both)[0].hint or "")


PARTS = ("..", ".", "", "~", "a", ".git", "x.md", "b c", "C:", "..x", "Makefile", "y.json", "\0")


@given(st.lists(st.sampled_from(PARTS), min_size=1, max_size=8).map("/".join))
def test_what_may_be_touched_is_within_the_project_and_not_hidden(path: str) -> None:
    where = normpath(f"/top/project/{path}")
    is_fit = "\0" not in path and not path.startswith(("/", "~"))
    is_within = where == "/top/project" or where.startswith("/top/project/")
    is_hidden = "/." in where
    assert (unreadable(path) == "") is (is_fit and is_within and not is_hidden)
    if unwritable(path) == "":
        assert unreadable(path) == ""
        assert path.endswith((".md", ".json"))


def test_a_link_on_the_way_is_as_good_as_a_file_that_is_there(tmp_path: Path) -> None:
    outside, root = tmp_path / "outside", tmp_path / "root"
    outside.mkdir()
    (root / "real").mkdir(parents=True)
    (root / "link").symlink_to(outside)
    (root / "dangling.md").symlink_to(outside / "new.md")
    taken = ["link/x.md", "real/../link/x.md", "dangling.md", "real"]
    assert [is_taken(str(root), path) for path in taken] == [True] * 4
    assert [is_taken(str(root), path) for path in ("real/x.md", "new/x.md")] == [False] * 2
    (root / "file").write_text("")
    assert is_taken(str(root), "file/deep/x.md")
    with pytest.raises(ForeignPlanError, match="is there already"):
        load_foreign(task("prompt: x", "output: link/x.md"), root)


def test_a_link_to_a_hidden_file_is_not_opened(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("very-secret")
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs/notes.md").symlink_to("../.env")
    for lines in (
        ("prompt_file: docs/notes.md",),
        ("prompt_file: '{{ item }}'", "each: docs/*.md"),
        ("prompt: '{{ item }}'", "each: {lines: docs/notes.md}"),
    ):
        with pytest.raises(ForeignPlanError, match="a link to what is hidden"):
            load_foreign(task(*lines), tmp_path)


def test_what_a_run_has_written_is_no_reason_against_it_but_a_link_is(tmp_path: Path) -> None:
    text = task("prompt: x", "output: out/a.md")
    (tmp_path / "out").mkdir()
    (tmp_path / "out/a.md").write_text("written")
    with pytest.raises(ForeignPlanError, match="is there already"):
        load_foreign(text, tmp_path)
    assert load_foreign(text, tmp_path, has_begun=True).expanded.count == 1
    (tmp_path / "out").rename(tmp_path / "real")
    (tmp_path / "out").symlink_to("real")
    with pytest.raises(ForeignPlanError, match="behind a link"):
        load_foreign(text, tmp_path, has_begun=True)
