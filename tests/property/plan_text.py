"""Plans for tests: texts near the grammar, and what their errors promise."""

from __future__ import annotations

import json
from pathlib import Path

import yaml
from hypothesis import strategies as st

from headway.errors import PlanError
from headway.plans.grammar import KEYS
from headway.plans.load import plan_from
from tests.unit.plan_texts import apply_fixes

VALID = """\
headway: 1
name: review-pr  # for people
budget: [$6, 5M]
strategy: waves(4)
vars:
  tone: brief
state:
  total: counter
  records/*: value
  best: reduce(package.module:better)
  mail: effect(./send.sh)
tasks:
  files:
    run: git ls-files
    writes: out/files.txt
  parse:
    each: [a.py, b.py, {path: c.py}]
    run: parse "$item"
    timeout: 90s
    queue: parsers
    writes: ["out/{{ index }}.json", log/parse]
  review:
    each: parse
    matrix_free: no
    prompt: |
      Review {{ item }} as {{ vars.tone }}:
      {{ tasks.parse.output }}
    model: openai/gpt-5-mini
    reads: "out/{{ index }}.json"
    max_tokens: 4k
    verify: grep -q .
    repairs: 2
  look:
    matrix: {view: [code, security], depth: [1, 2]}
    needs: [files, parse]
    prompt: "{{ matrix.view }} at {{ matrix.depth }}"
    reads: out
    budget: $2
  found:
    each: files
    python: package.module:function
    vars:
      line: "{{ item.name }}"
    priority: 5
    retries: 0
  verdict:
    reduce: review
    context: 120k
    prompt: Merge the findings.
    output: REVIEW.md
  enrich:
    each: [a, b]
    prompt: "{{ item }} of {{ state.total }}: {{ state }}"
    reads: [state:records/*, data]
    output: state:enriched/{{ item }}
  notify:
    run: ./notify
    reads: []
    writes: [effect:mail, "state:sent/{{ vars.tone }}"]
""".replace("    matrix_free: no\n", "")

WORDS = st.sampled_from(
    (
        "a", "b", "files", "parse", "fil", "1", "90", "10m", "120k", "$6", "", "true", "null", "-1",
        "{{ item }}", "{{ itme }}", "{{ item.x }}", "{{ tasks.a.output }}", "{{ vars.x }}", "{{ x",
        "{{ a | b }}", 'echo "{{ item }}" {{ tasks.b.stdout }}', "out/{{ index }}", "out", "out/a",
        "../x", "/etc/passwd", "~", "waves(4)", "module:name", "*.md", "no-such-file", "\t", "a\nb",
        "{{ index }}{{ index }}", "é…", "src/**", "PATH", "item", "{{ matrix.x }}", "./b/../c",
        "{{ vars.item }}", "'{{ item }}'", "{{ tasks.a }}", "{{.Names}}", "lines.txt", "prompt.md",
        "state:a", "state:", "state:a/*", "state:{{ item }}", "state:a//b", "state:mail",
        "{{ state }}", "effect:mail", "effect:maill", "effect:", "effect:a", "effect:{{ item }}",
        "{{ state.a }}", "{{ state.mail }}", "{{ state.a.b }}", "state:../a", "effect:a b",
    )
)  # fmt: skip
NAMES = st.sampled_from(("a", "b", "c", "my task", "9", "files", "x", "é", ""))
SCALARS = st.one_of(WORDS, st.integers(-2, 200), st.floats(allow_nan=False), st.booleans())
VALUES = st.recursive(
    st.one_of(SCALARS, st.none()),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(NAMES, inner, max_size=3)),
    max_leaves=5,
)
STATE_KEYS = st.one_of(NAMES, st.sampled_from(("mail", "a/*", "**", "a//b", "..", "x/{{ item }}")))
CHANNELS = st.one_of(
    st.sampled_from(
        ("counter", "cuonter", "append", "value", "reduce(m:f)", "reduce(f)", "reduce",
         "effect(m:f)", "effect(./x y)", "effect()", "Effect(m:f)", "max", "set(1)")
    ),
    SCALARS, VALUES,
)  # fmt: skip
KEY_NAMES = st.sampled_from([key.name for key in KEYS] + ["promt", "need", "x", "timeouts"])


def _fitting(name: str) -> st.SearchStrategy[object]:
    """Mostly what a key takes, sometimes anything."""
    example = {key.name: json.loads(key.example) for key in KEYS}.get(name)
    near: dict[str, st.SearchStrategy[object]] = {
        "needs": st.one_of(NAMES, st.lists(NAMES, max_size=3)),
        "each": st.one_of(WORDS, NAMES, st.lists(VALUES, max_size=3)),
        "reads": st.one_of(WORDS, st.lists(WORDS, max_size=2)),
        "writes": st.one_of(WORDS, st.lists(WORDS, max_size=2)),
        "state": st.dictionaries(STATE_KEYS, CHANNELS, max_size=3),
        "output": WORDS,
        "vars": st.dictionaries(NAMES, WORDS, max_size=3),
        "matrix": st.dictionaries(NAMES, st.lists(SCALARS, max_size=3), max_size=2),
        "reduce": NAMES,
        "prompt": st.lists(WORDS, min_size=1, max_size=3).map(" ".join),
        "run": st.lists(WORDS, min_size=1, max_size=3).map(" ".join),
    }
    return st.one_of(st.just(example), near.get(name, WORDS), VALUES)


def _mapping(names: st.SearchStrategy[str], most: int) -> st.SearchStrategy[dict[str, object]]:
    return st.lists(names, unique=True, max_size=most).flatmap(
        lambda keys: st.fixed_dictionaries({key: _fitting(key) for key in keys})
    )


TASKS = st.dictionaries(NAMES, st.one_of(_mapping(KEY_NAMES, 6), VALUES), max_size=4)
PLANS = st.builds(
    lambda top, tasks, has: {**top, **({"headway": 1} if has else {}), "tasks": tasks},
    _mapping(KEY_NAMES, 4),
    TASKS,
    st.booleans(),
)


def as_yaml(plan: object, flow: bool | None) -> str:
    """A plan as YAML, in block style, in flow style, or in both."""
    return str(yaml.safe_dump(plan, default_flow_style=flow, sort_keys=False, allow_unicode=True))


def errors_of(text: str, folder: Path, name: str = "plan.yaml") -> list[PlanError]:
    """All errors of a plan; anything but a plan's error is a failure of the test."""
    found: list[PlanError] = []
    try:
        plan_from(text, folder, name)
    except PlanError as error:
        found = [error, *error.others]
    assert all(error.code != "HW000" for error in found)
    return found


def assert_hints_help(text: str, folder: Path, name: str = "plan.yaml") -> None:
    """Every hint, carried out, ends the error that it belongs to."""
    for error in errors_of(text, folder, name):
        assert (error.hint is None) == (error.fixes == ()), error.render()
        if not error.fixes:
            continue
        if error.fixes[0].kind == "text":
            continue
        repaired = apply_fixes(text, error.fixes)
        after = [(other.code, other.message) for other in errors_of(repaired, folder)]
        told = f"{error.render()}\n{error.fixes}\n--- before\n{text}\n--- after\n{repaired}"
        assert (error.code, error.message) not in after, told
