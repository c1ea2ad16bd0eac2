"""How long `headway check` takes for 10,000 tasks, in CPU seconds: `python -m bench.check`."""

from __future__ import annotations

import json
from collections.abc import Callable
from time import process_time
from typing import Final

from headway.plans.check import check
from headway.plans.document import parse_document
from headway.plans.expand import Sources, expand
from headway.plans.hazards import examined
from headway.plans.load import in_one_go
from headway.plans.schema import plan_of

TASKS: Final = 10_000
ROUNDS: Final = 3


def groups(count: int = TASKS) -> str:
    """A plan of chains of five, every task declared by itself."""
    lines = ["headway: 1", "tasks:"]
    for n in range(count):
        before = f", o/{n - 1}" if n % 5 else ""
        lines += (f"  t{n}:", "    run: x", f"    reads: [in/{n}{before}]", f"    writes: o/{n}")
    return "\n".join(lines) + "\n"


def members(count: int = TASKS) -> str:
    """A plan of two groups whose members have paths of their own, and one task that reads all."""
    items = json.dumps([f"f{n}" for n in range(count // 2)])
    return (
        f"headway: 1\ntasks:\n  a:\n    each: {items}\n    run: x\n"
        "    reads: 'in/{{ item }}'\n    writes: 'o/{{ item }}'\n"
        "  b: {run: y, each: a, reads: 'o/{{ item }}', writes: 'p/{{ item }}'}\n"
        "  c: {run: z, reads: p, output: done}\n"
    )


def measured(text: str) -> tuple[float, float]:
    """CPU seconds to read the file, and to expand, order and judge the plan, as the verb does."""
    with in_one_go():
        start = process_time()
        spec = plan_of(parse_document(text, "plan.yaml"))
        read = process_time()
        check(examined(expand(spec, Sources())))
        return read - start, process_time() - read


def main() -> None:
    """The best of some rounds, each."""
    made: tuple[tuple[str, Callable[[], str]], ...] = (
        ("declared one by one", groups),
        ("members of groups", members),
    )
    for name, make in made:
        rounds = [measured(make()) for _ in range(ROUNDS)]
        read, judged = min(rounds, key=sum)
        print(
            f"{TASKS:,} tasks, {name}: {read + judged:.2f} s, "
            f"of which {read:.2f} s to read the file and {judged:.2f} s to check it"
        )


if __name__ == "__main__":
    main()
