"""Groups, members, labels, keys and the report of a check."""

from __future__ import annotations

import pytest

from headway.base.digest import DIGEST_BYTES
from headway.errors import InternalError, Place, TemplateError
from headway.plans.check import EdgeReport, check
from headway.plans.expand import (
    LABEL_CHARS_MAX,
    MEMBERS_MAX,
    ExpandedPlan,
    Members,
    Sources,
    expand,
    found,
    graph_of,
    items_of,
    keys_of,
)
from headway.plans.graph import Need
from headway.plans.hazards import examined
from headway.plans.spec import CommandSpec, PlanSpec, TaskSpec, texts_in
from headway.plans.template import template_of
from tests.unit.plan_texts import expanded_of


def expanded(tasks: str, top: str = "", **sources: dict[str, object]) -> ExpandedPlan:
    files = {path: str(text) for path, text in sources.get("files", {}).items()}
    globs = {"*.py": ("a.py", "b.py")}
    return expanded_of(tasks, top, Sources(globs, {"l.txt": ("x", "y", "z")}, files))


def keys(plan: ExpandedPlan) -> list[bytes]:
    return [
        made.key(index)
        for made, group in zip(keys_of(plan), plan.groups, strict=True)
        if made is not None
        for index in range(group.count or 0)
    ]


def fill(plan: ExpandedPlan, group: int, member: int, text: str, result: str | None = None) -> str:
    template = template_of(text)
    one = plan.groups[group]
    values = one.known.member(member)
    if result is None:
        return one.fill(template, values)
    return one.fill(template, values, lambda name: f"{name}:{result}")


def test_members_are_computed_from_their_number() -> None:
    members = Members.of(("a", "b"), (("x", (1, 2, 3)), ("y", ("p", "q"))))
    assert members.count == 12
    seen = [members.member(index) for index in range(12)]
    assert [(m.item, *(v for _, v in m.matrix)) for m in seen] == [
        (item, x, y) for item in "ab" for x in (1, 2, 3) for y in "pq"
    ]


def test_a_million_members_cost_nothing_to_name() -> None:
    axis = tuple(range(1000))
    task = TaskSpec("t", Place(0, 0), CommandSpec("x"), matrix=(("a", axis), ("b", axis)))
    plan = expand(PlanSpec("p", (task,)), Sources())
    assert plan.count == MEMBERS_MAX
    assert plan.groups[0].label(MEMBERS_MAX - 1) == "t[999, 999]"


def test_groups_come_from_items_patterns_lines_and_tasks() -> None:
    plan = expanded(
        "  one: {run: x}\n  items: {run: x, each: [1, 2]}\n  files: {run: x, each: '*.py'}\n"
        "  lines: {run: x, each: {lines: l.txt}}\n  follow: {run: x, each: lines}\n"
        "  late: {run: x, each: one, matrix: {v: [a, b]}}\n  later: {run: x, each: late}\n"
    )
    assert [group.count for group in plan.groups] == [1, 2, 2, 3, 3, None, None]
    assert [group.leader for group in plan.groups] == [0, 1, 2, 3, 3, 5, 5]
    graph = graph_of(plan)
    assert graph.groups[4].needs == (Need(3, block=1),)
    assert graph.groups[5].needs == (Need(0, block=0),)
    assert graph.groups[6].needs == (Need(5, block=1),)
    assert plan.count == 11


def test_results_give_items_by_line_or_as_json() -> None:
    assert items_of("a\n\n b \n") == ("a", "b")
    assert items_of(' [1, {"a": [2]}]') == (1, {"a": [2]})
    assert items_of("[not json\nsecond") == ("[not json", "second")
    # Half of a character cannot be written anywhere: not into a key, a file or a command.
    assert items_of(r'["\ud800x", {"\udfff": 1}]') == ("?x", {"?": 1})
    assert items_of("") == ()


def test_labels_are_short_and_no_two_are_alike() -> None:
    long = "/".join(["folder"] * 20)
    plan = expanded(f"  a: {{run: x, each: [b, {long}, 'p, q', \"n\\nm\", ' ', '#3']}}\n"
                    "  c: {run: x, each: [b, b]}\n  d: {run: x, each: ['p, q'], matrix: {v: [1]}}\n"
                    "  e: {run: x}\n")  # fmt: skip
    a, c, d, e = plan.groups
    labels = [a.label(index) for index in range(6)]
    assert labels[0] == "a[b]"
    assert labels[1].endswith(" #2]")
    assert len(labels[1]) <= LABEL_CHARS_MAX + 10
    assert labels[2:] == ["a[p, q]", "a[n m #4]", "a[  #5]", "a[#3 #6]"]
    assert [c.label(0), c.label(1)] == ["c[b #1]", "c[b #2]"]
    assert (d.label(0), e.label(0)) == ("d[p, q, 1 #1]", "e")


def test_templates_are_filled_with_the_values_of_a_member() -> None:
    plan = expanded(
        "  one: {run: x}\n  many:\n    each: [{name: n, deep: {er: [1]}}]\n"
        "    matrix: {v: [true]}\n    needs: one\n    prompt: x\n"
        "    vars: {r: '{{ tasks.one.output }}!', t: 5}\n",
        top="vars: {t: 4, tone: brief}\n",
    )
    text = "{{ item.name }} {{ item.deep.er }} {{ index }} {{ matrix.v }} {{ vars.t }} {{ vars.r }}"
    assert fill(plan, 1, 0, text, "out") == "n [1] 0 true 5 one:out!"
    assert fill(plan, 1, 0, "{{ vars.tone }}") == "brief"
    with pytest.raises(InternalError, match="not known yet"):
        fill(plan, 1, 0, "{{ vars.r }}")
    with pytest.raises(TemplateError, match=r"no field `name\.x`"):
        fill(plan, 1, 0, "{{ item.name.x }}")


BASE = "  a: {run: x}\n  b: {prompt: 'p {{ vars.t }}', each: [1, 2], needs: a, max_tokens: 5}\n"


@pytest.mark.parametrize(
    ("tasks", "top", "changed"),
    [
        (BASE, "", 0),
        (BASE.replace("  a: {run: x", "  z: {run: x, queue: q, timeout: 5s").replace(": a", ": z"),
         "", 0),
        (BASE.replace("run: x", "run: y"), "", 1),
        (BASE.replace("'p ", "'q "), "", 2),
        (BASE.replace("max_tokens: 5", "max_tokens: 6"), "", 2),
        (BASE.replace("max_tokens: 5", "max_tokens: 5, model: m"), "", 2),
        (BASE.replace("[1, 2]", "[1, 3]"), "", 1),
        (BASE.replace("[1, 2]", "['1', 2]"), "", 1),
        (BASE.replace("[1, 2]", "[2, 1]"), "", 0),
        (BASE.replace("max_tokens: 5", "max_tokens: 5, reads: f"), "", 2),
        (BASE.replace("max_tokens: 5", "max_tokens: 5, verify: f"), "", 2),
        (BASE, "vars: {t: new}\n", 3),
        (BASE, "vars: {t: x, other: y}\n", 1),
        (BASE.replace("max_tokens: 5", "max_tokens: 5, vars: {o: p}"), "", 2),
    ],
)  # fmt: skip
def test_a_key_changes_with_what_is_asked_for_and_with_nothing_else(
    tasks: str, top: str, changed: int
) -> None:
    before = set(keys(expanded(BASE, top="vars: {t: x}\n")))
    after = keys(expanded(tasks, top=top or "vars: {t: x}\n"))
    assert len(set(after) - before) == changed
    assert {len(key) for key in after} == {DIGEST_BYTES}


def test_a_key_changes_with_the_permissions_of_an_agent() -> None:
    text = "  a: {prompt: p, agent: claude}\n  b: {prompt: p}\n"
    plain = keys(expanded(text))
    for given in ("edit", "all"):
        found = keys(expanded(text, top=f"permissions: {given}\n"))
        assert found[0] != plain[0]
        assert found[1] == plain[1], "a prompt without an agent has none"
        own = text.replace("claude", f"claude, permissions: {given}")
        assert keys(expanded(own)) == found


REDUCED = "  a: {run: x, each: [1, 2], matrix: {m: [3]}}\n  b: {run: y, reduce: a, quorum: 1}\n"


@pytest.mark.parametrize(
    ("old", "new", "changed"),
    [
        ("[1, 2]", "[1, 3]", 2),
        ("[1, 2]", "[2, 1]", 1),
        ("[3]", "[4]", 3),
        ("quorum: 1", "quorum: 2", 1),
        ("quorum: 1", "quorum: 1%", 1),
        (", quorum: 1", "", 1),
        ("x, ", "x, priority: 1, ", 0),
    ],
)
def test_a_reduction_is_known_by_the_items_that_it_is_told_and_by_its_quorum(
    old: str, new: str, changed: int
) -> None:
    """Equal results of other items are not the same to it: it says whose they are."""
    before = set(keys(expanded(REDUCED)))
    after = keys(expanded(REDUCED.replace(old, new)))
    assert len(set(after) - before) == changed
    assert (after[-1] in before) == (changed == 0)


def test_the_text_of_files_is_part_of_a_key() -> None:
    tasks = ("  a: {prompt_file: 'p/{{ matrix.v }}.md', matrix: {v: [x, y]}}\n"
             "  b: {prompt_file: p/x.md, schema: s.json}\n")  # fmt: skip
    files = {"p/x.md": "one", "p/y.md": "two", "s.json": "{}"}
    before = keys(expanded(tasks, files=dict(files)))
    assert before == keys(expanded(tasks, files=dict(files)))
    other = keys(expanded(tasks, files={**files, "p/y.md": "three"}))
    assert [one == two for one, two in zip(before, other, strict=True)] == [True, False, True]
    schema = keys(expanded(tasks, files={**files, "s.json": "true"}))
    assert [one == two for one, two in zip(before, schema, strict=True)] == [True, True, False]


def test_a_report_says_what_a_plan_is() -> None:
    plan = examined(expanded(
        "  list: {run: ls, writes: out, queue: q}\n  make: {python: 'm:f', queue: q}\n"
        "  review: {prompt: '{{ item }} {{ vars.used }}', each: [ab, cd], reads: out/x}\n"
        "  file: {prompt_file: p.md, model: m, vars: {free: x}}\n"
        "  late: {prompt: '{{ item }}', each: list}\n"
        "  end: {prompt: Merge, reduce: review, context: 5k}\n",
        top="vars: {used: 1, unused: 2}\n", files={"p.md": "Say hello there."},
    ))  # fmt: skip
    report = check(plan)
    assert (report.name, report.tasks, report.levels, report.width) == ("plan", 6, 3, 3)
    assert (report.prompts, report.commands, report.functions) == (4, 1, 1)
    assert report.critical_path == ("list", "review", "end")
    assert EdgeReport("list", "review", "reads", False) in report.edges
    assert EdgeReport("review", "end", "reduce", False) in report.edges
    assert [group.level for group in report.groups] == [0, 0, 1, 0, 1, 2]
    assert [group.is_independent for group in report.groups] == [False] * 2 + [True] * 4
    assert [group.kind for group in report.groups[:3]] == ["run", "python", "prompt"]
    assert report.groups[3].input_tokens == 4.0
    assert report.groups[4].input_tokens == 0.0
    assert report.input_tokens == sum(group.input_tokens for group in report.groups) > 10.0
    assert "`tasks.file.vars.free` is not used by its prompt" in report.warnings
    assert "`review` names no model: `run` needs --model" in report.warnings
    assert not any("vars.unused" in warning for warning in report.warnings)


def test_all_texts_of_a_value_are_found() -> None:
    assert list(texts_in(["a", None, 0, ["b"], {"k": {"l": [1, "c"]}}])) == [
        "a",
        "b",
        "k",
        "l",
        "c",
    ]


def test_a_reduction_of_what_is_found_keeps_its_key_when_that_is_known() -> None:
    plan = expanded("  ls: {run: x}\n  a: {run: y, each: ls}\n  b: {run: z, reduce: a}\n")
    before, after = keys_of(plan)[2], keys_of(found(plan, 1, ("p", "q")))[2]
    assert before is not None
    assert after is not None
    assert before.key(0) == after.key(0)
