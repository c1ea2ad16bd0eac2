"""Many processes, one account: each has a client of its own, and `headway.pace` in each is enough.

They share one broker, so that together they stay within the account's limits. The work is one of
plan, execute and summarise, all by hand; `plan_execute_summarize.py` leaves that to headway.

    headway sim serve --rpm 120 --concurrent 10 --port 8080 &   # a provider; needs no key
    OPENAI_BASE_URL=http://127.0.0.1:8080/v1 python examples/processes.py
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from functools import cache

import openai

import headway


@cache
def client(unpaced: bool) -> openai.OpenAI:
    """The one client of this process."""
    own = openai.OpenAI(api_key=os.environ.get("OPENAI_API_KEY", "none"))
    return own if unpaced else headway.pace(own)


def ask(prompt: str, unpaced: bool) -> str:
    """One call to the model."""
    answer = client(unpaced).chat.completions.create(
        model="gpt-5-mini", max_tokens=300, messages=[{"role": "user", "content": prompt}]
    )
    return answer.choices[0].message.content or ""


def plan(goal: str, count: int, unpaced: bool) -> list[str]:
    """The agent cuts the goal into tasks, one a line; where it gives too few, by number."""
    lines = ask(f"Cut this into {count} tasks, one a line: {goal}", unpaced).splitlines()
    tasks = [line.strip() for line in lines if line.strip()][:count]
    return tasks + [f"{goal} (part {part + 1})" for part in range(len(tasks), count)]


def execute(task: str, unpaced: bool) -> str | None:
    """One task, in a process of the pool; `None` if it failed for good."""
    try:
        return ask(f"Do this and report in one paragraph: {task}", unpaced)
    except openai.OpenAIError as error:
        print(f"failed: {error}", file=sys.stderr)
        return None


def main() -> None:
    """Plan, execute, summarise, and say how it went."""
    parser = argparse.ArgumentParser(description="Plan with a model, execute in processes.")
    parser.add_argument("goal", nargs="?", default="Check all repositories for old dependencies")
    parser.add_argument("--tasks", type=int, default=30)
    parser.add_argument("--processes", type=int, default=8)
    parser.add_argument("--unpaced", action="store_true", help="the same without headway")
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    options = parser.parse_args()

    started_s = time.monotonic()
    tasks = plan(options.goal, options.tasks, options.unpaced)
    # An open connection cannot be shared with a forked process, so each makes its own client.
    with ProcessPoolExecutor(options.processes, initializer=client.cache_clear) as processes:
        results = list(processes.map(execute, tasks, [options.unpaced] * len(tasks)))
    done = [result for result in results if result is not None]
    summary = ask("Summarise these reports:\n" + "\n".join(done), options.unpaced)
    failures = len(tasks) - len(done)
    makespan_s = round(time.monotonic() - started_s, 2)
    if options.json:
        print(json.dumps({"tasks": len(tasks), "failures": failures, "makespan_s": makespan_s}))
    else:
        print(f"{summary}\n{len(done)} of {len(tasks)} tasks done in {makespan_s} s")


if __name__ == "__main__":
    main()
