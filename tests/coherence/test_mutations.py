"""One declaration deleted, one write that is not declared, one value changed in place: found.

Generated plans, plans written by hand and the examples are changed, checked and really run. Clean
ones must come out without a word.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

import headway
from headway.plans.check import check
from headway.plans.hazards import Remark
from headway.plans.load import plan_from
from headway.report.findings import Finding
from tests.coherence.handwritten import HANDS, Hand
from tests.coherence.mutating import (
    Mutated,
    Verdict,
    alias_of,
    hand_mutants,
    in_words,
    one_of,
    seeded,
    verdict_on,
    verdict_on_hand,
)
from tests.coherence.plans import generated

ROOT = Path(headway.__file__).resolve().parents[2]
SLICE = 24
WHOLE = 1_000
FOUND_MIN = 0.99

Tried = tuple[str, str, Mutated, Verdict]
"""The kind of change, the plan, what was changed, and what was said of it."""


def tried(seed: int, folder: Path) -> Iterator[Tried]:
    """A generated plan as it is, and changed in three ways. Files and keys take turns.

    Needs and queues are deleted among files only: tasks that share keys keep the declared order
    without them, and nothing is wrong then.
    """
    plan = seeded(generated(seed, "state:" if seed % 2 else ""))
    orders = () if plan.scheme else ("needs", "queue")
    yield "clean", f"{seed}", Mutated(""), verdict_on(plan, folder / "clean" / "plan")
    for kind, kinds in (
        ("deleted", ("reads", "writes", *orders)),
        ("undeclared", ("undeclared write",)),
    ):
        mutant = one_of(plan, kinds)
        if mutant is not None:
            verdict = verdict_on(mutant.plan, folder / kind / "plan")
            yield kind, f"{seed}", Mutated(mutant.task, mutant.entry), verdict
    shared = seeded(generated(seed, "state:"))
    task, changes = alias_of(shared)
    verdict = verdict_on(shared, folder / "aliasing" / "plan", task, changes)
    yield "aliasing", f"{seed} {changes}", Mutated(task), verdict


def is_found(kind: str, mutated: Mutated, verdict: Verdict) -> bool:
    """Whether the very thing was found that was done: its task or what is concerned is named."""
    if kind == "aliasing":
        aliasing = (one for one in verdict.findings if one.kind == "aliasing")
        return any(mutated.is_named(f"{one.task} {one.what}") for one in aliasing)
    return any(map(mutated.is_named, verdict.said))


def missed(every: Iterable[Tried]) -> tuple[Counter[str], list[str]]:
    """How many of each kind there were, and what is wrong: not found, or a false alarm."""
    counts: Counter[str] = Counter()
    wrong: list[str] = []
    for kind, name, mutated, verdict in every:
        counts[kind] += 1
        if kind == "clean":
            wrong += [] if verdict.is_clean else [f"false alarm: {name}: {verdict}"]
        elif not is_found(kind, mutated, verdict):
            wrong.append(f"{kind}: {name} {mutated}: {verdict}")
    return counts, wrong


@pytest.mark.parametrize("part", range(4))
def test_a_slice_of_generated_plans(part: int, tmp_path: Path) -> None:
    every = (one for seed in range(part, SLICE, 4) for one in tried(seed, tmp_path / str(seed)))
    counts, wrong = missed(every)
    assert not wrong
    assert counts["clean"] == SLICE / 4


@pytest.mark.soak
def test_a_thousand_generated_plans(tmp_path: Path) -> None:
    counts: Counter[str] = Counter()
    wrong: list[str] = []
    for seed in range(WHOLE):
        folder = tmp_path / str(seed)
        more, bad = missed(tried(seed, folder))
        counts += more
        wrong += bad
        shutil.rmtree(folder)
    print(dict(counts), wrong)
    assert not [one for one in wrong if one.startswith("false alarm")]
    for kind in ("deleted", "undeclared", "aliasing"):
        lost = sum(one.startswith(kind) for one in wrong)
        assert counts[kind] - lost >= FOUND_MIN * counts[kind], wrong


@pytest.mark.parametrize("hand", HANDS, ids=[hand.name for hand in HANDS])
def test_a_plan_written_by_hand(hand: Hand, tmp_path: Path) -> None:
    clean = verdict_on_hand(hand, hand.text, tmp_path / "clean" / "plan")
    assert clean.is_clean, str(clean)
    every = [
        (kind, hand.name, mutated, verdict_on_hand(hand, text, tmp_path / str(number) / "plan"))
        for number, (kind, mutated, text) in enumerate(hand_mutants(hand.text))
    ]
    counts, wrong = missed(every)
    assert not wrong
    assert counts["deleted"] >= 3


def said_of_example(text: str, folder: Path) -> Verdict:
    """What is said of the example whose commands declare files, in a changed copy."""
    shutil.copytree(
        ROOT / "examples" / "plans" / "repos", folder, ignore=shutil.ignore_patterns("build")
    )
    (folder / "plan.yaml").write_text(text)
    create = folder / "create.py"
    create.write_text(create.read_text().replace("COUNT = 50", "COUNT = 5"))
    environment = dict(os.environ) | {
        "PYTHONPATH": str(ROOT / "src"), "HEADWAY_STATE_DIR": str(folder.parent / "state"),
        "NO_COLOR": "1",
    }  # fmt: skip

    def told(*arguments: str) -> dict[str, object]:
        command = [sys.executable, "-m", "headway", *arguments, "--json"]
        ended = subprocess.run(command, cwd=folder, env=environment, capture_output=True,
                               text=True, check=False)  # fmt: skip
        return dict(json.loads(ended.stdout))

    remarks = told("check", "plan.yaml")["remarks"]
    over = told("run", "plan.yaml", "--quiet", "--learn", "--sim", "script.yaml")
    assert isinstance(remarks, list)
    assert isinstance(over["findings"], list)
    warnings = [in_words(Remark(**one)) for one in remarks if one["severity"] == "warning"]
    findings = tuple(Finding(**one) for one in over["findings"])
    return Verdict("", tuple(warnings), (), findings, int(str(over["failed"])))


COMMANDS = (ROOT / "examples" / "plans" / "repos" / "plan.yaml").read_text()
REPOSITORIES, SUMMARY = "build/repositories", "build/summary.json"


def test_an_example_of_commands_is_clean(tmp_path: Path) -> None:
    assert said_of_example(COMMANDS, tmp_path / "plan").is_clean


@pytest.mark.parametrize(
    ("task", "what", "key"),
    [
        ("create", REPOSITORIES, "writes"),
        ("read", REPOSITORIES, "reads"),
        pytest.param("list", REPOSITORIES, "reads", marks=pytest.mark.soak),
        pytest.param("list", SUMMARY, "run", marks=pytest.mark.soak),
        pytest.param("read", SUMMARY, "run", marks=pytest.mark.soak),
    ],
)
def test_mutants_of_an_example_of_commands_are_found(
    task: str, what: str, key: str, tmp_path: Path
) -> None:
    """A declaration is deleted, or a command writes where it should not."""
    plan = yaml.safe_load(COMMANDS)
    if key == "run":
        plan["tasks"][task]["run"] += f"\necho by an intruder > {SUMMARY}"
    else:
        del plan["tasks"][task][key]
    verdict = said_of_example(json.dumps(plan), tmp_path / "plan")
    assert is_found("", Mutated(task, what), verdict), str(verdict)


SHOP = {
    "shop/__init__.py": "",
    "shop/post.py": "def send(payload, key):\n    pass\n",
    "shop/files.py": """\
def parse(item, ctx):
    ctx.put(f"records/{item}", {"name": item})
    ctx.add("total", 1)
""",
    "notify": """\
#!/bin/sh
echo "enriched: $(wc -c < "$HEADWAY_STATE/enriched")" > "$HEADWAY_PUT/mail"
""",
}


def said_of_page(plan: dict[str, Any], folder: Path) -> list[str]:
    """What is found in a run of the plan that the documentation shows, with a simulated model."""
    for name, text in SHOP.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    (folder / "notify").chmod(0o755)
    (folder / "plan.yaml").write_text(json.dumps(plan))
    environment = dict(os.environ) | {
        "PYTHONPATH": str(ROOT / "src"), "HEADWAY_STATE_DIR": str(folder.parent / "state"),
    }  # fmt: skip
    command = [sys.executable, "-m", "headway", "run", "plan.yaml", "--json", "--sim"]
    ended = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    told = json.loads(ended.stdout)
    assert told["exit_code"] == 0, ended.stderr
    return [f"{one['kind']} {one['what']}" for one in told["findings"]]


@pytest.mark.soak
def test_the_documented_plan_is_clean_and_its_mutants_are_found(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "plan.md").read_text().partition("## What tasks share")[2]
    plan = yaml.safe_load(page.partition("```yaml\n")[2].partition("```")[0])
    assert said_of_page(plan, tmp_path / "clean" / "plan") == []
    assert not check(plan_from(json.dumps(plan), tmp_path).survey).remarks

    def without(task: str, **keys: object) -> list[str]:
        new = {key: one for key, one in {**plan["tasks"][task], **keys}.items() if one is not None}
        folder = tmp_path / f"{task}{'-'.join(keys)}{len(str(new))}" / "plan"
        return said_of_page({**plan, "tasks": {**plan["tasks"], task: new}}, folder)

    assert without("parse", writes=["state:total"]) == ["undeclared-write state:records/a.csv"]
    assert without("parse", writes=None)
    assert without("enrich", reads=None)
    assert without("notify", writes=None) == ["undeclared-effect effect:mail"]
    # A command without `reads` is given everything, and what it does takes effect in its turn: the
    # result is the same, and the detector is right to be silent. It may run twice: `check` says so.
    assert without("notify", reads=None) == []
    del plan["tasks"]["notify"]["reads"]
    loaded = plan_from(json.dumps(plan), tmp_path)
    assert [(one.kind, one.task) for one in check(loaded.survey).remarks] == [
        ("runs again", "notify")
    ]
