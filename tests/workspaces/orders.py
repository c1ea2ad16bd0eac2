"""Programs of five tasks on one repository, with the order in which their steps happen drawn.

A project has values (`v/NAME`), files that use them (`u/TASK`, lines `NAME=VALUE`), and files that
say what there is (`said/TASK`). A step reads, searches or lists and writes what follows from it, so
that one stale read changes the final tree. After every serial run each use has its value.
"""

from __future__ import annotations

import random
from typing import Final

from msgspec import Struct

from tests.workspaces.pairs import COMMIT

TASKS: Final = ("one", "two", "three", "four", "five")
NAMES: Final = tuple("abcdefgh")
WAIT_S: Final = 3
"""A step whose predecessor does not come, because its task is held, goes on after this time."""

FILES: Final = {
    **{f"v/{name}": f"{number}\n" for number, name in enumerate(NAMES)},
    **{f"u/base/{name}": f"{name}={number}\n" for number, name in enumerate(NAMES)},
    "said/base": "nothing\n",
    "log": "begin\n",
}

VERIFY: Final = """\
for f in $(find u -type f); do
  while read -r line; do
    [ "${line#*=}" = "$(cat v/${line%=*})" ] || { echo "$f: $line"; exit 1; }
  done < $f
done
"""


class Program(Struct, frozen=True):
    alone: dict[str, str]
    """The script of each task."""
    at_once: dict[str, str]
    """The same with handshakes, so that steps happen in the drawn order."""
    slow: dict[str, str]
    """The same with pauses, so that there is something to be killed."""


def draw(seed: int, tasks: tuple[str, ...] = TASKS) -> Program:
    chance = random.Random(seed)
    steps = {task: [_step(chance, task) for _ in range(chance.randint(2, 4))] for task in tasks}
    order = [task for task in tasks for _ in steps[task]]
    chance.shuffle(order)
    at_once = dict.fromkeys(tasks, "")
    for number, task in enumerate(order):
        step = steps[task][at_once[task].count("mark ")]
        before = f"await step-{number - 1} {WAIT_S}\n" if number else ""
        at_once[task] += f"{before}{step}mark step-{number}\n"
    end = COMMIT if chance.random() < 0.5 else ""
    alone = {task: "".join(steps[task]) + end for task in tasks}
    slow = {task: "sleep 0.2\n".join(steps[task]) + f"{end}sleep 0.1\n" for task in tasks}
    return Program(alone, {task: text + end for task, text in at_once.items()}, slow)


def _step(chance: random.Random, task: str) -> str:
    name, other = chance.choice(NAMES), chance.choice(TASKS)
    log = f"echo {task} >> log\n" if chance.random() < 0.3 else f"touch v/{name}\n"
    return chance.choice((
        f'echo "{name}=$(cat v/{name})" > u/{task}\n',
        f'echo "{name}=$(cat v/{name})" > u/{task}\n',
        # A new value, and every use of it that a search finds.
        f"x=$(( $(cat v/{name}) * 3 + {chance.randint(1, 9)} ))\necho $x > v/{name}\n"
        f'for f in $(grep -rl "^{name}=" u); do sed -i "s/^{name}=.*/{name}=$x/" $f; done\n',
        f"mkdir -p said/{task}\nLC_ALL=C ls u > said/{task}/names\n",
        f'mkdir -p said/{task}\ngrep -rl "^{name}=" u | LC_ALL=C sort > said/{task}/uses || true\n',
        f"mkdir -p said/{task}\n[ -e u/{other} ] && x=yes || x=no\necho $x > said/{task}/{other}\n",
        f"mkdir -p said/{task}\ncat v/* | cksum > said/{task}/sum\n",
        f"rm -f u/{other}\n",
        log,
    ))  # fmt: skip
