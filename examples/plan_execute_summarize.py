"""An agent plans, headway executes, an agent summarises: the program of "Architectural Limits
and Parallel Patterns", where the model writes the parallel program and never touches its loop.

One call writes a plan, which is checked before anything of it runs. The plan's calls are paced side
by side, and every result is kept. The summary takes as many calls as its context needs.

    python examples/plan_execute_summarize.py --sim          # free of charge: a scripted model
    python examples/plan_execute_summarize.py 'My goal' --model openai/gpt-5-mini --budget '$1'
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import headway

GOAL = "Check our 30 repositories, repo-1 to repo-30, for dependencies that are out of date."


@contextmanager
def provider(is_simulated: bool) -> Iterator[None]:
    """The simulated provider, if it is wanted, for as long as the block lasts."""
    if not is_simulated:
        yield
        return
    from headway.sim.server import launched

    script = Path(__file__).with_name("plan_execute_summarize.script.yaml")
    with launched("--script", str(script)) as url:
        os.environ.update(OPENAI_BASE_URL=f"{url}/v1", OPENAI_API_KEY="simulated")
        yield


def main() -> None:
    """Plan, execute, summarise, and say how it went."""
    parser = argparse.ArgumentParser(description="Plan with a model, execute, summarise.")
    parser.add_argument("goal", nargs="?", default=GOAL)
    parser.add_argument("--model", default="openai/script")
    parser.add_argument("--budget", default="2M", help="of the plan's run: '$1', or tokens")
    parser.add_argument("--context", default="4k", help="the most tokens of one call")
    parser.add_argument("--sim", action="store_true", help="ask a scripted model")
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    options = parser.parse_args()

    started_s = time.monotonic()
    with provider(options.sim):
        draft = headway.plan(options.goal, model=options.model)
        done = draft.run(budget=options.budget)
        summary = headway.summarize(done, model=options.model, context=options.context)
    told = {
        "tasks": draft.loaded.expanded.count,
        "calls": {"plan": draft.took.calls, "execute": done.calls, "summarise": summary.calls},
        "sources": len(summary.trace.results),
        "makespan_s": round(time.monotonic() - started_s, 2),
    }
    if options.json:
        print(json.dumps({**told, "summary": summary.text}))
    else:
        print(f"{draft.text}\n{summary.text}\n{told}")


if __name__ == "__main__":
    main()
