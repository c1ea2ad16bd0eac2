"""A plan is accepted as a whole, or refused with everything that is wrong with it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from headway.base.values import Budget
from headway.errors import ERRORS_SHOWN_MAX, Place, PlanError
from headway.plans.grammar import (
    KEYS,
    json_schema,
    keys_of,
)
from headway.plans.section import FAULTS_MAX
from headway.plans.spec import CommandSpec, Each, PlanSpec, Prompt, Python
from tests.unit.plan_texts import apply_fixes, spec_of

MANUAL = Path(__file__).resolve().parent.parent.parent / "docs" / "plan.md"


def plan(text: str) -> PlanSpec:
    return spec_of(text)


def errors(text: str) -> list[PlanError]:
    try:
        plan(text)
    except PlanError as error:
        return [error, *error.others]
    return []


def only(text: str) -> PlanError:
    """The one error of a plan, whose hint ends it."""
    found = errors(text)
    assert len(found) == 1, "\n".join(error.render() for error in found)
    assert (found[0].hint is None) == (not found[0].fixes)
    if found[0].fixes:
        repaired = errors(apply_fixes(text, found[0].fixes))
        assert (found[0].code, found[0].message) not in [(e.code, e.message) for e in repaired]
    return found[0]


def task(*lines: str, top: str = "") -> str:
    body = "".join(f"    {line}\n" for line in lines)
    return f"headway: 1\n{top}tasks:\n  a:\n    run: one\n  b:\n    run: two\n  t:\n{body}"


def test_the_grammar_fits_on_a_page() -> None:
    """A new key takes the place of another."""
    assert len({key.name for key in KEYS}) == len(KEYS) <= 43


def test_the_manual_has_the_table_of_the_grammar() -> None:
    rows = ["| key | in | what for | example |", "|---|---|---|---|"]
    for key in KEYS:
        example = f"{key.name}: {key.example}".replace("|", "\\|")
        rows.append(f"| `{key.name}` | {', '.join(key.holders)} | {key.about} | `{example}` |")
    assert "\n".join(rows) + "\n" in MANUAL.read_text()


def test_the_plans_of_the_manual_are_plans() -> None:
    examples = re.findall(r"```yaml\n(headway: 1\n.*?)```", MANUAL.read_text(), re.S)
    assert examples
    for example in examples:
        assert plan(example).tasks


def test_the_json_schema_has_every_key_and_no_other() -> None:
    schema = json_schema()
    properties, defs = schema["properties"], schema["$defs"]
    assert isinstance(properties, dict)
    assert isinstance(defs, dict)
    assert list(properties) == list(keys_of("plan"))
    assert list(defs["task"]["properties"]) == list(keys_of("task"))
    assert [one["required"] for one in defs["task"]["oneOf"]] == [
        ["run"], ["prompt"], ["prompt_file"], ["python"],
    ]  # fmt: skip


def test_a_whole_plan_becomes_records() -> None:
    spec = plan(
        "headway: 1\nname: p\nbudget: [$6, 5M]\nstrategy: waves(4)\nmodel: m\n"
        "timeout: 2h\nretries: 3\nvars: {tone: brief}\ntasks:\n"
        "  a:\n    run: ls\n    each: {lines: files.txt}\n    queue: q\n    priority: -1.5\n"
        "  b:\n    python: m.n:f\n    each: [1, {x: [2]}]\n    budget: 3000\n    reads: [x, y]\n"
        "  c:\n    prompt_file: p.md\n    needs: [a, b, a]\n    max_tokens: 4k\n    budget: $0.5\n"
        "    schema: s.json\n    repairs: 0\n    verify: 'true'\n    writes: z\n    timeout: 1.5m\n"
        "  d:\n    prompt: hi\n    reduce: c\n    context: 120k\n    output: o\n    retries: 0\n"
    )
    a, b, c, d = spec.tasks
    assert (spec.name, spec.strategy, spec.model, spec.file) == ("p", "waves:4", "m", "plan.yaml")
    assert (spec.budget, spec.timeout_s, spec.retries) == (
        Budget(5_000_000, 6_000_000),
        7200.0,
        3,
    )
    assert (a.work, a.each, a.queue, a.priority) == (
        CommandSpec("ls"), Each("lines", source="files.txt"), "q", -1.5,
    )  # fmt: skip
    assert b.work == Python("m.n:f")
    assert b.each == Each("items", (1, {"x": [2]}))
    assert (b.budget, b.reads) == (Budget(tokens=3_000), ("x", "y"))
    assert c.work == Prompt(file="p.md", max_tokens=4000)
    assert (c.needs, c.budget, c.repairs, c.timeout_s) == (
        ("a", "b"), Budget(microusd=500_000), 0, 90.0,
    )  # fmt: skip
    assert (d.reduce, d.context_tokens, d.output, d.retries) == ("c", 120_000, "o", 0)
    assert spec.vars == (("tone", "brief"),)
    assert c.spot("needs").value == Place(22, 12)
    assert c.spot("queue").key == c.place
    assert [one.is_group for one in spec.tasks] == [True, True, False, False]


def test_a_text_of_each_is_a_task_or_a_pattern() -> None:
    spec = plan(task("each: a", "run: x") + "  u:\n    each: src/*.py\n    run: y\n")
    assert [one.each for one in spec.tasks[2:]] == [
        Each("task", source="a"), Each("glob", source="src/*.py"),
    ]  # fmt: skip


STATE = "state: {total: counter, records/*: value, mail: effect(m.n:send)}\n"
WRONG = {
    "HW006": [
        task("run: x", "timeot: 10m"),
        task("run: x", "zzz: 1"),
        "headway: 1\ntasks: {a: {run: x}}\nzzz: 1",
        task("each: {line: x}", "run: y"),
    ],
    "HW007": [
        task("run: x", "budget: {dollars: 5}"),
        "headway: 2\ntasks: {a: {run: x}}",
        "headway: 1\ntasks: {a: x}",
        "headway: 1\ntasks:\n  a:\n",
        "headway: 1\ntasks: {my task: {run: x}, my-task: {run: y}}",
        "headway: 1\ntasks: {9: {run: x}}",
        "headway: 1\nstrategy: wave\ntasks: {a: {run: x}}",
        "headway: 1\nvars: [1]\ntasks: {a: {run: x}}",
        task("run: [x]"),
        task("run: x", "timeout: 90"),
        task("run: x", "retries: 2.5"),
        task("run: x", "priority: high"),
        task("run: x", "budget: 2.5"),
        task("run: x", "budget: 0"),
        task("run: x", "budget: {usd: 0}"),
        task("run: x", "budget: []"),
        task("run: x", "budget: [$6, 5M, 7]"),
        task("run: x", "output: 'state:'"),
        task("run: x", "output: state:mail", top=STATE),
        task("run: x", "reads: [x, state:../b, state:../b, y]"),
        task("run: x", "reads: [effect:mail, state:total]", top=STATE),
        task("run: x", "writes: effect:mial", top=STATE),
        task("run: x", "writes: [out, 'effect:']", top=STATE),
        task("run: x", top="state: [total]\n"),
        task("run: x", top="state: {total: {counter: 5}}\n"),
        task("run: x", top="state: {total: counter(5)}\n"),
        task("run: x", top="state: {mail: effect}\n"),
        task("run: x", top="state: {a//b: value, a/b: value}\n"),
        task("run: x", top="state:\n  'records/{{ item }}': value\n"),
        task("run: x", "writes: effect:mail", top="state: {mail: efect(m:f)}\n"),
        task("python: nothing"),
        task("run: x", "each: []"),
        task("run: x", "matrix: {view: code}"),
        task("run: x", "matrix: {view: [a, a]}"),
        task("run: x", "matrix:", "  view:", "  - a", "  - b", "  - a"),
        task("run: x", "matrix: {VIEW: [a]}"),
        task("run: x", "needs: []"),
        task("run: x", "reads: null"),
        task("prompt: x", "max_tokens: 0"),
        task("run: ''"),
    ],
    "HW008": [
        "tasks: {a: {run: x}}",
        "headway: 1",
        task("needs: a"),
        task("run: x", "prompt: y"),
        task("prompt: x", "repairs: 2"),
        task("run: x", "verify: y", "repairs: 2"),
        task("prompt: x", "reduce: a", "each: [a]"),
        task("run: x", "matrix: {x: [a]}", "vars: {x: b}"),
        task("run: x", "vars: {x: b, x_file: c}"),
        task("run: x", "writes: effect:mail"),
        task("run: x", "writes: effect:report", top=STATE),
        task("run: x", "writes: [out, effect:report]", top="state: {}\n"),
        task("run: x", "matrix: {x: [a]}", "each: u") + "  u:\n    run: y\n    each: [1]\n",
    ],
    "HW002": [
        task("run: x", "needs: aa"),
        task("run: x", "needs: [a, zzz]"),
        task("prompt: x", "reduce: bb"),
    ],
    "HW001": [
        task("run: x", "needs: t"),
        task("run: x", "needs: [a, u]") + "  u:\n    run: y\n    needs: t\n",
        task("run: x", "each: u") + "  u:\n    run: y\n    each: t\n",
        task("run: x", "each: u", "needs: [u, a]") + "  u:\n    run: y\n    each: t\n",
    ],
    "HW011": [task("run: x", "each: tt")],
    "HW009": [
        task("run: echo {{ item }}"),
        task("run: echo '{{ item }}'", "each: [a]"),
        task("run: echo {{ tasks.a.stdout }} {{tasks.a.stdout}}", "needs: a"),
        task("run: echo {{ item.name }}", "each: [{name: 1}]", "vars: {name: y}"),
        task("run: echo {{ tasks.9.output }}"),
        task("prompt: '{{ tasks.a.output }}'"),
        task("prompt: '{{ tasks.t.output }}'"),
        task("prompt: '{{ itm }}'", "each: [a]"),
        task("prompt: '{{ item.nme }}'", "each: [{name: a}, {name: b, x: c}]"),
        task("prompt: '{{ item.x }}'", "each: [{name: a}, {name: b, x: c}]"),
        task("prompt: '{{ a | b }} {{ index }}'", "each: [a]"),
        task("prompt: 'open {{ '"),
        task("prompt: x", "vars: {x: '{{ vars.y }}'}"),
        task("prompt: x", "output: 'out/{{ tasks.a.output }}'", "needs: a"),
        task("prompt: x", "schema: '{{ item }}.json'", "each: a"),
        task("prompt_file: '{{ vars.d }}'", "needs: a", "vars: {d: '{{ tasks.a.output }}'}"),
        task("prompt: x", "model: '{{ tasks.a.output }}'"),
        task("run: x", top="vars: {x: '{{ item }}'}\n"),
        task("run: echo '{{ state.total }}' {{state.total}}", top=STATE),
        task("run: x", "vars: {x: '{{ state.total }}'}", top=STATE),
        task("run: x", "writes: 'state:{{ state.total }}'", top=STATE),
        task("prompt: '{{ state.mail }}'", top=STATE),
        task("prompt: '{{ state.total.x }}'", top=STATE),
        task("prompt: '{{ state }} and {{ state }}'", "reads: data", top=STATE),
        task("prompt: '{{ state }}'", "reads: []"),
        task("prompt: x", "output: 'state:{{ itm }}'", "each: [a]"),
    ],
}  # fmt: skip


@pytest.mark.parametrize(
    ("code", "text"), [(code, text) for code, texts in WRONG.items() for text in texts]
)
def test_what_is_wrong_is_refused_with_its_code_a_place_and_a_hint_that_helps(
    code: str, text: str
) -> None:
    error = only(text)
    assert error.code == code, error.render()
    assert re.fullmatch(r"plan\.yaml:\d+:\d+", error.where or "")
    assert error.hint


@pytest.mark.parametrize(
    ("lines", "hint"),
    [
        (["budget: {tokens: 5M, usd: 6}"], 'write `budget: "$6"`'),
        (["writes: effect:mial"], "write `effect:mail`"),
        (["writes: effect:total"], "write `state:total`"),
        (["writes: state:mail"], "write `effect:mail`"),
        (["reads: effect:mail"], "remove `effect:mail`"),
        (["reads: state:/a/./b/"], "write `state:a/b`"),
        (["output: state:re*ports/*"], "write `state:reports`"),
    ],
)
def test_what_to_write_about_the_state_and_tokens_can_be_pasted(
    lines: list[str], hint: str
) -> None:
    assert only(task("run: x", *lines, top=STATE)).hint == hint


@pytest.mark.parametrize(
    ("written", "budget"),
    [
        ("$6", Budget(microusd=6_000_000)),
        ("5M", Budget(tokens=5_000_000)),
        ("[$6]", Budget(microusd=6_000_000)),
        ("[0.2k, $6]", Budget(200, 6_000_000)),
        ("{usd: 6}", Budget(microusd=6_000_000)),
    ],
)
def test_a_budget_is_dollars_tokens_or_both(written: str, budget: Budget) -> None:
    assert plan(task("run: x", f"budget: {written}")).tasks[2].budget == budget


def test_a_misspelt_version_is_told_once() -> None:
    assert only("headwy: 1\ntasks: {a: {run: x}}").hint == "did you mean `headway`?"


def test_all_that_is_wrong_is_told_at_once_in_the_order_of_the_file() -> None:
    found = errors("headway: 1\nzzz: 1\ntasks:\n  a:\n    run: x\n    timeout: 5\n  b: {}\n")
    assert [error.code for error in found] == ["HW006", "HW007", "HW008"]
    shown = found[0].render()
    assert [line[:13] for line in shown.splitlines() if line.startswith("error")] == [
        "error[HW006]:", "error[HW007]:", "error[HW008]:",
    ]  # fmt: skip


def test_a_hopeless_plan_is_not_told_in_full() -> None:
    lines = "".join(f"  t{n}: {{run: x, zzz: 1}}\n" for n in range(FAULTS_MAX + 5))
    found = errors(f"headway: 1\ntasks:\n{lines}")
    assert len(found) == FAULTS_MAX
    assert found[0].render().endswith(f"and {FAULTS_MAX - 1 - ERRORS_SHOWN_MAX} more")


def test_commands_keep_braces_that_are_not_ours() -> None:
    assert not errors(task("run: docker ps --format '{{.Names}} {{end}}'"))


def test_a_task_that_is_wrong_is_not_blamed_for_its_templates_too() -> None:
    assert only(task("prompt: '{{ item }}'", "each: []")).code == "HW007"


READ_BY_PROGRAMS = {"http_proxy": "my_http", "HTTPS_PROXY": "my_https", "yarn_x": "my_yarn_x"}


@pytest.mark.parametrize(("name", "better"), [*READ_BY_PROGRAMS.items(), ("item", "item_")])
def test_a_variable_that_programs_read_is_refused(name: str, better: str) -> None:
    error = only(f"headway: 1\nvars: {{{name}: x}}\ntasks: {{a: {{run: id}}}}\n")
    assert "cannot be called so" in error.message
    assert f"call it `{better}`" in (error.hint or "")
