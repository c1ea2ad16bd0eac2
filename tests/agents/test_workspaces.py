"""Eight real agents at once on one repository: everything lands, and the user's checkout stays."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from tests.agents.agents import is_installed
from tests.agents.planned import MODELS, Machine, machine
from tests.workspaces.stage import GIT_CONFIG, Tree, lay_out, tree_of

pytestmark = [
    pytest.mark.agents,
    pytest.mark.skipif(not is_installed(), reason="`make test-agents` installs the agents"),
]

TASKS = 8
TEST = """\
for n in $(cat registry.txt); do [ -e part_$n.txt ] || exit 1; done
[ $(sort registry.txt | uniq -d | wc -l) = 0 ]
"""
PROMPT = """\
Please run `ls; grep -rn part . | head -n 5; cat registry.txt`, then
`echo {{ item }} > part_{{ item }}.txt; echo {{ item }} >> registry.txt`, then
`git add -A && git commit -qm 'Part {{ item }}'`, then `sh test.sh && echo passed`.
"""


def plan_of(agent: str) -> str:
    return (
        f"headway: 1\npermissions: all\nretries: 5\nchecks: ['sh test.sh*']\ntasks:\n  part:\n"
        f"    agent: {agent}\n    model: {MODELS[agent]}\n    each: {list(range(1, TASKS + 1))}\n"
        f"    verify: sh test.sh\n    prompt: >-\n"
        + "".join(f"      {line}\n" for line in PROMPT.splitlines())
    )


@contextmanager
def repository(agent: str) -> Iterator[tuple[Machine, Callable[[], Tree]]]:
    with machine(agent, TASKS) as where:
        (where.folder.parent / ".gitconfig").write_text(GIT_CONFIG)
        files = {"registry.txt": "", "test.sh": TEST, "plan.yaml": plan_of(agent)}
        lay_out(where.folder, files)
        for words in (["init", "-q"], ["add", "-A"], ["commit", "-qm", "Begin"]):
            subprocess.run(["git", *words], cwd=where.folder, env=where.env, check=True)
        yield where, lambda: tree_of(where.folder)


def must_have_landed(where: Machine, before: Tree, said: str) -> None:
    assert tree_of(where.folder) == before, "the checkout has changed before it was applied"
    where.headway("results", "--apply")
    after = tree_of(where.folder)
    numbers = [str(n) for n in range(1, TASKS + 1)]
    assert after["registry.txt"][1].split() == numbers, said
    assert {f"part_{n}.txt" for n in numbers} <= after.keys(), said
    subprocess.run(["sh", "test.sh"], cwd=where.folder, check=True)


@pytest.mark.parametrize("agent", ["claude", "codex"])
def test_eight_agents_on_one_repository_land_everything(agent: str) -> None:
    with repository(agent) as (where, tree):
        before = tree()
        _, said = where.headway("run", "plan.yaml", "--yes", "-j", str(TASKS))
        must_have_landed(where, before, said)


@pytest.mark.parametrize("agent", ["claude", "codex"])
def test_eight_agents_killed_three_times_land_everything(agent: str) -> None:
    with repository(agent) as (where, tree):
        before = tree()
        where.killed_after(TASKS, "run", "plan.yaml", "--yes", "-j", str(TASKS))
        for more in (8, 12):
            where.killed_after(where.calls + more, "resume", "last", "--yes")
        _, said = where.headway("resume", "last", "--yes")
        must_have_landed(where, before, said)
