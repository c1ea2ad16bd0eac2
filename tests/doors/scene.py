"""One run with every kind of task, and what each verb prints of it with `--json`."""

from __future__ import annotations

import json
import re
from typing import Any, Final

from tests.promises.user import User

PLAN: Final = """\
headway: 1
name: doors
model: openai/gpt-5-mini
state: {total: counter, notes/*: value}
tasks:
  list:
    run: printf 'alpha\\nbeta\\ngamma\\n'
  ask:
    each: list
    prompt: "count the words of: {{ item }}"
    max_tokens: 50
  size:
    matrix: {letter: [a, b]}
    python: work:size
    writes: ["state:total", "state:notes/{{ matrix.letter }}"]
  total:
    reads: "state:total"
    prompt: "total is {{ state.total }}"
    max_tokens: 20
  broken:
    run: exit 3
  behind:
    needs: broken
    run: echo never
  merged:
    reduce: ask
    prompt: Merge.
    max_tokens: 60
    output: out/merged.txt
  final:
    needs: [merged, size]
    run: cat out/merged.txt
    reads: out/merged.txt
"""

WORK: Final = """\
def size(ctx, letter):
    ctx.add("total", 1)
    ctx.put(f"notes/{letter}", letter * 3)
    return {"letter": letter}
"""

SCRIPT: Final = """\
rules:
  - contains: count the words
    answer: '{words} words'
  - answer: done
"""

GOOD_PLAN: Final = 'headway: 1\ntasks:\n  a:\n    each: [x, y]\n    run: echo "$item"\n'

BAD_PLANS: Final = {
    "cycle": "tasks: {a: {run: x, needs: b}, b: {run: x, needs: a}}",
    "need": "tasks: {a: {run: x, needs: b}}",
    "key": "tasks: {a: {runn: x}}",
    "value": "tasks: {a: {run: x, retries: many}}",
    "shape": "tasks: {a: {run: x, prompt: y}}",
    "template": "tasks: {a: {prompt: '{{ item }}', model: openai/m}}",
    "hazard": "tasks: {a: {run: x, writes: f}, b: {run: y, writes: f}}",
    "source": "tasks: {a: {each: 'none/*.py', run: x}}",
    "context": "model: openai/m\ntasks: {a: {run: y}, b: {reduce: a, context: 1, prompt: z}}",
    "queue": "tasks: {a: {run: x, queue: q, needs: b}, b: {run: x, queue: q}}",
    "empty": "tasks: {}",
    "list": "[1, 2]",
    "tabs": "tasks:\n\ta: {run: x}",
    "alias": "tasks: {a: &x {run: x}, b: *x}",
    "outside": "tasks: {a: {run: x, output: ../x}}",
}
BAD_WORDS: Final = (
    "", "nonsense", "run", "run missing.yaml", "run good.yaml -j 0", "run good.yaml --budget x",
    "run good.yaml --strategy x", "status nothing", "why last", "results --format x",
    "logs nothing", "resume nothing", "limits set rpm=x", "limits set nothing=1",
    "limits ceiling 500%", "limits budget x", "sim compare --provider nothing",
    "sim compare --strategy nothing", "doctor --salvage nothing", "gateway env", "gateway stop",
    "each", "skill", "completion x",
    "explore missing.yaml", "advise missing.yaml", "report nothing", "stop nothing",
)  # fmt: skip


def refusals(someone: User) -> dict[str, str]:
    """For every bad plan and command line: the exit code and the codes of the errors."""
    someone.write("good.yaml", GOOD_PLAN)
    found: dict[str, str] = {}
    for name, text in BAD_PLANS.items():
        someone.write(f"{name}.yaml", text if text.startswith("[") else f"headway: 1\n{text}\n")
    for words in (*(f"check {name}.yaml" for name in BAD_PLANS), *BAD_WORDS):
        ended = someone.headway(*words.split())
        assert "Traceback" not in ended.stderr, ended.stderr
        codes = sorted(set(re.findall(r"error\[(HW\d+)\]", ended.stderr)))
        found[words] = " ".join([f"exit {ended.returncode}", *codes])
    return found


def json_answers(someone: User) -> dict[str, list[Any]]:
    """Every verb that reads, after one run of the plan; lines of JSON Lines are values."""
    someone.write("plan.yaml", PLAN)
    someone.write("work.py", WORK)
    someone.write("script.yaml", SCRIPT)
    someone.write("good.yaml", GOOD_PLAN)
    someone.write("bad.yaml", "headway: 1\ntasks:\n  a:\n    runn: x\n")
    verbs = (
        "run plan.yaml --sim script.yaml --yes --json", "status --json",
        "why last broken --json", "why last behind --json", "timeline --json", "results --json",
        "results --state --json", "logs --json", "report --json",
        "check plan.yaml --forecast --json", "check bad.yaml --json",
        "explore good.yaml --yes --json",
        "advise --preset trap --agents 4 --json", "limits --json", "config --json",
        "doctor --json", "sim presets --json", "each --json echo ::: a b",
        "resume --sim script.yaml --json", "stop --json", "gateway env --json", "--json",
    )  # fmt: skip
    found: dict[str, list[Any]] = {}
    for verb in verbs:
        ended = someone.headway(*verb.split())
        assert "Traceback" not in ended.stderr, ended.stderr
        text = ended.stdout if ended.stdout.strip() else ended.stderr
        found[f"{verb} -> {ended.returncode}"] = _values(text)
    return found


def _values(text: str) -> list[Any]:
    """One JSON value, or one a line; text where it is neither."""
    try:
        return [json.loads(text)]
    except ValueError:
        lines = text.splitlines()
    try:
        return [json.loads(line) for line in lines]
    except ValueError:
        return ["text"]
