"""What `headway check` remarks on in a plan that can be run: where, what goes wrong, the fix."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

import pytest

from headway.errors import HazardError
from headway.plans.check import CheckReport, check
from headway.plans.expand import Sources
from headway.plans.hazards import Remark
from tests.unit.plan_texts import HEAD, apply_fixes, surveyed


def report(
    tasks: str, there: Sequence[str] | None = None, sources: Sources | None = None, top: str = ""
) -> CheckReport:
    """What is said of a plan in a folder that has these paths, or all that are asked for."""
    plan = surveyed(tasks, top, sources)
    if there is None:
        return check(plan)
    return check(plan, lambda paths: frozenset(paths) - frozenset(there))


def remarks(tasks: str, there: Sequence[str] | None = None) -> tuple[Remark, ...]:
    return report(tasks, there).remarks


def one(tasks: str, there: Sequence[str] | None = None) -> Remark:
    """The one remark on a plan; its fix ends it, if only because a hazard comes to light."""
    (found,) = remarks(tasks, there)
    if found.fixes:
        repaired = apply_fixes(HEAD + tasks, found.fixes).removeprefix(HEAD)
        with suppress(HazardError):
            assert found not in remarks(repaired, there), repaired
    return found


READER = "  a: {run: x, reads: in/a, output: o}\n"


def test_a_read_of_what_nobody_writes_and_is_not_there_is_a_warning() -> None:
    found = one(READER, [])
    assert (found.severity, found.kind, found.where) == (
        "warning", "never written", "plan.yaml:3:22",
    )  # fmt: skip
    assert found.message == "`a` reads `in/a`, which no task writes before and is not there"
    assert found.hint == "add `writes: in/a` to the task that writes it"
    assert not remarks(READER, ["in/a"])
    assert not remarks(READER)
    assert not remarks("  b: {run: x, writes: in}\n" + READER, [])
    assert not remarks("  b: {run: x, writes: in/a/b}\n" + READER, [])


def test_a_misspelt_read_is_told_what_was_meant() -> None:
    tasks = "  p: {run: x, output: out/parsed.json}\n  e: {run: x, reads: [q, out/parse.json]}\n"
    found = one(tasks, ["q"])
    assert found.hint == "did you mean `out/parsed.json`?"
    assert found.where == "plan.yaml:4:26"
    single = tasks.replace("[q, out/parse.json]", "out/parse.json")
    assert one(single, []).hint == "did you mean `out/parsed.json`?"


def test_the_task_that_does_not_say_what_it_writes_is_the_likely_writer() -> None:
    found = one("  p: {run: x}\n  e: {run: x, needs: p, reads: made.json}\n", [])
    assert found.hint == "if `p` writes it, add `writes: made.json` to `p`"
    many = "  p: {run: x}\n  q: {run: x}\n  e: {run: x, reads: made.json}\n"
    assert one(many, []).fixes == ()


def test_members_are_told_together() -> None:
    tasks = "  a: {run: x, each: [p, q, r], reads: 'in/{{ item }}', output: 'o/{{ item }}'}\n"
    found = one(tasks, ["in/q"])
    assert found.message.startswith("`a[p]` reads `in/p` (and 1 more), which no task writes")
    late = "  l: {run: x}\n  a: {run: x, each: l, reads: 'in/{{ item }}'}\n"
    assert one(late, []).message.startswith("`a` reads `in`, which")
    plenty = "".join(f"  t{n}: {{run: x, reads: in/{n}}}\n" for n in range(105))
    assert len(remarks(plenty, [])) == 100


def test_a_write_that_nobody_reads_may_be_what_the_plan_is_for() -> None:
    found = one("  a: {run: x, writes: [r, s]}\n")
    assert (found.severity, found.kind, found.where) == ("note", "never read", "plan.yaml:3:24")
    assert found.message == "no task reads `r` and `s`: taken for what the plan leaves behind"
    assert one("  a: {run: x, writes: s}\n").task == "a"
    assert not remarks("  a: {run: x, output: s}\n")
    assert not remarks("  a: {run: x, writes: s}\n  b: {run: x, reads: s/t}\n")
    assert not remarks("  a: {run: x, writes: s/t}\n  b: {run: x, reads: s}\n")


def test_a_task_that_may_read_a_write_after_all_is_named() -> None:
    found = one("  a: {run: x, writes: s}\n  b: {run: y, needs: a}\n")
    assert found.message == "`a` writes `s`, which no task reads"
    assert found.hint == "if `b` reads it, add `reads: s` there"
    assert "would not wait" not in found.detail
    found = one("  a: {run: x, writes: s}\n  b: {run: y}\n")
    assert found.detail.endswith("`b` would not wait for it")
    two = one("  a: {run: x, writes: s}\n  b: {run: y}\n  c: {run: z, reads: []}\n  d: {run: w}\n")
    assert two.hint == "if `b` and `d` reads it, add `reads: s` there"
    assert two.fixes == ()


GATE = (
    "  test: {run: x, reads: src, output: log, writes: []}\n"
    "  ship: {run: y, needs: test, reads: build, output: shipped, writes: []}\n"
)


def test_a_need_by_which_nothing_gets_over_is_a_note() -> None:
    found = one(GATE)
    assert (found.severity, found.kind) == ("note", "carries nothing")
    assert found.hint == "remove `test` from `needs`, unless it is a gate"


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("reads: build", "reads: log"),
        ("reads: src", "reads: shipped"),
        ("needs: test, reads: build, output: shipped", "needs: test, reads: build, output: log"),
        ("reads: build,", ""),
        ("run: y,", "run: y, vars: {v: '{{ tasks.test.output }}'},"),
        ("run: y,", "prompt: 'Say {{ tasks.test.output }}', model: m,"),
        ("run: y", "python: 'm:f'"),
        ("needs: test, reads: build, output: shipped", "needs: test, each: test, reads: build"),
    ],
)
def test_a_need_that_carries_something_is_none(old: str, new: str) -> None:
    assert old in GATE
    assert not [one for one in remarks(GATE.replace(old, new)) if one.kind == "carries nothing"]


def test_a_need_may_be_what_keeps_others_in_order() -> None:
    around = (
        "  first: {run: x, writes: s, output: a}\n"
        "  test: {run: x, needs: first, reads: a, output: log, writes: []}\n"
        "  ship: {run: y, needs: test, reads: build, output: b, writes: []}\n"
        "  last: {run: x, needs: ship, reads: b, writes: s}\n"
    )
    assert not [one for one in remarks(around) if one.kind == "carries nothing"]
    keys = around.replace("writes: s,", "writes: 'state:s',").replace(
        "writes: s}", "reads: 'state:s'}"
    )
    keys = keys.replace("reads: b, reads", "reads")
    assert not [one for one in remarks(keys) if one.kind == "carries nothing"]


def test_a_command_that_writes_what_others_touch_must_say_so() -> None:
    tasks = "  a: {run: x, output: out/a}\n  b: {run: 'work > out/a'}\n"
    found = one(tasks)
    assert (found.severity, found.kind, found.task) == ("warning", "undeclared", "b")
    assert found.message == "the command of `b` writes `out/a`, and `b` does not declare it"
    assert found.detail == "if `b` runs first, `a` overwrites it"
    assert found.hint == "add `writes: out/a` to `b`"
    read = "  a: {run: x, reads: in/a}\n  b: {run: 'work >> \"in/a\"'}\n"
    assert one(read).detail == "if `a` runs first, it reads the version from before the run"
    ordered_too = tasks.replace("{run: 'work", "{needs: a, run: 'work")
    assert one(ordered_too).severity == "warning"
    assert "as long as the other needs stay" in one(ordered_too).detail


def test_a_command_that_names_what_an_unordered_task_writes_must_say_so() -> None:
    tasks = "  a: {run: x, output: out/a}\n  b: {run: work out/a}\n"
    found = one(tasks)
    assert found.message == "the command of `b` names `out/a`, and `b` does not declare it"
    assert found.detail == "`a` writes it: if `b` runs first, it reads the old version"
    assert found.hint == "add `reads: out/a` to `b`"
    assert not remarks(tasks.replace("work out/a", "work out/b"))
    assert not remarks(tasks.replace("{run: work", "{needs: a, run: work"))
    assert not remarks(tasks.replace("work out/a", "work out/a, reads: out"))
    assert one("  a: {run: x, output: out/a}\n  b: {run: ls out/}\n").what == "out"
    inner = one("  a: {run: x, reads: i, writes: out/a}\n  b: {run: work < out/a/b, reads: j}\n")
    assert inner.hint == "add `reads: out/a` to `b`"


def test_commands_of_members_are_looked_at_with_their_values() -> None:
    tasks = (
        "  a: {run: 'work > \"o/$item\"', each: [p, q]}\n"
        "  b: {run: \"work o/${item} $HOME/x '$item/y' -f. {{.x}} o/*\", each: [q, r]}\n"
    )
    assert one(tasks).message.startswith("the command of `b[q]` names `o/q`")
    values = (
        "  a: {run: x, output: o/v/k}\n"
        "  b: {run: 'work o/$name/$axis', matrix: {axis: [j, k]}, vars: {name: v}}\n"
    )
    assert one(values).message.startswith("the command of `b[k]` names `o/v/k`")


def test_a_variable_can_be_the_whole_path() -> None:
    writer = "  a: {run: x, writes: o/v}\n"
    reader = "  b: {run: 'ls \"$folder\"', vars: {folder: o/v}, writes: []}\n"
    found = one(writer + reader)
    assert (found.kind, found.task, found.what) == ("undeclared", "b", "o/v")
    # A word that does not look like a path is not taken for one, wherever it comes from.
    writer = "  a: {run: x, writes: word}\n"
    reader = "  b: {run: 'grep $what in', vars: {what: word}, writes: [], reads: []}\n"
    assert [one.kind for one in remarks(writer + reader)] == ["never read"]
    reader = "  b: {run: 'work < $what', vars: {what: word}, writes: [], reads: []}\n"
    assert [one.kind for one in remarks(writer + reader)] == ["undeclared"]
    results = "  a: {run: x, output: o/v}\n  b: {run: x}\n"
    results += "  c: {run: 'work o/$r', needs: b, vars: {r: '{{ tasks.b.output }}'}}\n"
    assert not remarks(results)


@pytest.mark.parametrize(
    "command", ["cd sub && work > out/a", "cat <<END\nout/a\nEND", "work 2>&1 out", "echo out/a",
                "work # out/a", "cat $(mktemp -d)/out/a", "cat out/ab", "cat out/*.a"]
)  # fmt: skip
def test_what_a_command_does_not_touch_is_no_mention(command: str) -> None:
    command = command.replace("\n", "\n\n")
    assert not remarks(f"  a: {{run: x, output: out/a}}\n  b: {{run: '{command}'}}\n")


@pytest.mark.parametrize(
    "command", ["cd out && cat a", "cat <<END > out/a\nx\nEND", "(cd x; true); rm -r out",
                "x=out; cat $x/a", "cat out/[a-c]", "find out -name 'a*'", "tee -a out/a",
                "sort -o out/a in", "work --out=out/a", "dd if=out/a", "tar -cf x.tar out",
                ". out/a", "if [ -e out/a ]; then work; fi", "mv out/a b", "cp -r out copy",
                "OUT=out/a work"]
)  # fmt: skip
def test_what_a_command_touches_is_seen(command: str) -> None:
    command = command.replace("\n", "\n\n").replace("'", "''")
    assert one(f"  a: {{run: x, output: out/a}}\n  b: {{run: '{command}'}}\n").task == "b"


def test_commands_that_share_a_file_are_put_in_order() -> None:
    tasks = "  a: {run: echo > f}\n  b: {run: echo > g}\n  c: {run: cat f g}\n"
    found = one(tasks)
    assert found.message == "the command of `c` reads `f`, and `c` does not declare it"
    assert found.hint == "add `needs: [a, b]` to `c`"
    assert not remarks(tasks.replace("cat f g", "cat f g, needs: [a, b]"))


def test_members_that_write_one_file_take_turns() -> None:
    found = one("  a: {run: 'echo $item >> log', each: [x, y]}\n")
    assert found.hint.startswith("add `queue: a`")
    assert not remarks("  a: {run: 'echo $item >> log', each: [x, y], queue: a}\n")
    assert not remarks("  a: {run: 'echo > $item.log', each: [x, y]}\n")
    assert one("  a: {run: 'sort $item > x', each: [x, y]}\n").task == "a"


def test_a_folder_that_each_task_makes_for_itself_is_not_shared() -> None:
    made = "  a: {run: mkdir -p o && echo > o/a}\n  b: {run: mkdir -p o && echo > o/b}\n"
    assert not remarks(made)
    apart = "  a: {run: mkdir -p o}\n  b: {run: echo > o/b}\n"
    assert one(apart, []).task == "b"
    assert not remarks(apart, ["o"])


def test_what_was_judged_by_what_is_said() -> None:
    tasks = (
        "  a: {run: x, reads: [], writes: []}\n  b: {run: cat f}\n  c: {run: make}\n"
        "  d: {python: 'm:f'}\n  e: {prompt: p, agent: claude, workspace: off}\n"
    )
    found = report(tasks, top="model: m\n")
    assert found.answers[-1] == (
        "Judged by declarations: `a`; by the text of commands: `b`. Not judged: 3 of 5 tasks, "
        "whose files are not known: `c` (make), `d` (function m:f), `e` (agent claude)."
    )
    assert list(found.not_judged) == ["c", "d", "e"]


def test_what_is_read_before_the_run_cannot_be_written_by_it() -> None:
    tasks = (
        "  make: {run: x, writes: prompts}\n"
        "  ask: {prompt_file: prompts/p.md, model: m, needs: make}\n"
        "  names: {run: x, output: names.txt}\n"
        "  all: {run: x, each: {lines: names.txt}, needs: names}\n"
        "  cut: {run: x, writes: parts}\n"
        "  each: {run: x, each: parts/*.txt, reads: parts}\n"
    )
    sources = Sources(
        {"parts/*.txt": ("parts/a.txt",)}, {"names.txt": ("a",)}, {"prompts/p.md": "Hello"}
    )
    early = [one for one in report(tasks, None, sources).remarks if one.kind == "read too early"]
    assert [found.message for found in early] == [
        "the prompt of `ask` is read before the run, and `make` writes `prompts/p.md`",
        "the items of `all` are read before the run, and `names` writes `names.txt`",
        "the items of `each` are read before the run, and `cut` writes `parts`",
    ]
    assert early[0].hint == "give the text as a result: `needs: make` and `{{ tasks.make.output }}`"
    assert early[1].hint == "give them as the result of `names`: `each: names`"
    own = "  fix: {run: x, each: parts/*.txt, writes: '{{ item }}'}\n"
    own += "  see: {run: y, each: parts/*.txt, needs: fix, reads: '{{ item }}'}\n"
    assert not report(own, None, sources).remarks
    later = own + "  add: {run: z, needs: see, output: parts/new.txt}\n"
    assert not report(later, None, sources).remarks
    root = "  cut: {run: x, output: a.txt}\n  each: {run: x, each: '*.md', needs: cut}\n"
    assert not report(root, None, Sources({"*.md": ("a.md",)})).remarks
    self_made = "  all: {run: x, each: {lines: names.txt}, writes: names.txt, queue: q}\n"
    kinds = [one.kind for one in report(self_made, None, sources).remarks]
    assert kinds == ["never read"]


def test_a_task_that_does_not_say_what_it_reads_of_the_state_may_run_again() -> None:
    tasks = "  a: {run: x, writes: 'state:k', reads: []}\n  b: {run: y, writes: 'state:j'}\n"
    (found,) = remarks(tasks)
    assert (found.severity, found.kind, found.task) == ("note", "runs again", "b")
    assert found.detail == "if `b` reads before `a` has written, it runs again"
    assert "`reads: state:KEY` to `b`, or `needs: a` to `b`" in found.hint
    assert not remarks(tasks.replace("{run: y,", "{run: y, needs: a,"))
    late = "  a: {run: x, reads: []}\n  b: {run: y, writes: [], reads: 'state:j'}\n"
    (silent,) = report(late, top="state: {j: value}\n").remarks
    assert silent.message == "`a` does not say what it writes of the shared state"
    plenty = "".join(f"  t{n}: {{run: x}}\n" for n in range(30))
    assert len(report(plenty, top="state: {k: value}\n").remarks) == 20


def test_members_that_read_what_others_of_them_write_run_again() -> None:
    tasks = "  a: {run: x, each: [p, q], reads: 'state:n', writes: 'state:n'}\n"
    found = one(tasks)
    assert found.message == "members of `a` read `state:n`, which others of them write"
    assert found.where == "plan.yaml:3:36"
    own = "  a: {run: x, each: [p, q], reads: 'state:n/{{ item }}', writes: 'state:n/{{ item }}'}\n"
    assert not remarks(own)
    assert not remarks("  a: {run: x, reads: 'state:n', writes: 'state:n'}\n")
    everything = "  a: {run: x, each: [p, q], reads: 'state:*', writes: 'state:n/{{ item }}'}\n"
    assert "`state:everything`" in one(everything).message
    unread = "  a: {run: x, each: [p, q], reads: 'state:m', writes: 'state:n'}\n"
    assert not remarks(unread)


def test_what_tasks_may_do_is_told_of_each() -> None:
    tasks = (
        "  own: {prompt: p, agent: claude, permissions: all}\n  top: {prompt: p, agent: codex}\n"
        "  loop: {prompt: p, agent: 'tools(files, shell)'}\n  one: {prompt: p}\n  two: {run: x}\n"
    )
    found = report(tasks, top="model: m\npermissions: edit\n").groups
    assert [(one.agent, one.permissions) for one in found] == [
        ("claude", "all"), ("codex", "edit"), ("tools(files, shell)", ""), ("", ""), ("", ""),
    ]  # fmt: skip
    assert [one.may for one in found[2:]] == [
        "use tools(files, shell)", "answer only", "everything that you may",
    ]  # fmt: skip
    (plain,) = report("  a: {prompt: p, agent: gemini}\n").groups
    assert plain.may == "what your settings of gemini allow"


def test_the_state_is_ordered_as_the_serial_run_would_order_it() -> None:
    tasks = (
        "  a: {run: x, writes: 'state:p', reads: [], needs: c}\n"
        "  b: {run: x, reads: 'state:p', writes: 'state:q'}\n"
        "  c: {run: x, reads: 'state:q', writes: []}\n"
    )
    assert [(one.before, one.after) for one in report(tasks).edges] == [("c", "a"), ("b", "c")]


def test_a_task_without_a_workspace_does_not_see_what_an_agent_did_in_one() -> None:
    tasks = (
        "  fix: {agent: claude, prompt: Fix it}\n"
        "  test: {run: make test, needs: fix}\n"
        "  sum: {run: wc, needs: fix, vars: {said: '{{ tasks.fix.output }}'}}\n"
    )
    found = [one for one in remarks(tasks) if one.kind == "outside workspaces"]
    assert [(one.task, one.severity) for one in found] == [("test", "warning"), ("sum", "note")]
    assert (found[0].fixes[0].key, found[0].fixes[0].value) == ("workspace", "on")
    mended = tasks.replace("needs: fix", "needs: fix, workspace: on")
    assert not [one for one in remarks(mended) if one.kind == "outside workspaces"]
