"""Sub-agents in threads, on one account: a pattern of "Architectural Limits and Parallel Patterns".

Every task is one call, sixteen threads make them as fast as they can. The one line that headway
adds is `headway.pace(client)`; `--unpaced` leaves it out, to compare.

    headway sim serve --rpm 120 --concurrent 10 --port 8080 &   # a provider; needs no key
    OPENAI_BASE_URL=http://127.0.0.1:8080/v1 python examples/threads.py --tasks 60
    OPENAI_BASE_URL=http://127.0.0.1:8080/v1 python examples/threads.py --tasks 60 --unpaced

With `--anthropic` the same goes to Claude, and ANTHROPIC_BASE_URL says where it is.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import anthropic
import openai

import headway

VIEWS = ("security", "error handling", "performance", "naming", "test coverage")


def ask_claude(client: anthropic.Anthropic, task: str) -> str:
    """One sub-agent."""
    answer = client.messages.create(
        model="claude-haiku-4-5", max_tokens=300, messages=[{"role": "user", "content": task}]
    )
    return "".join(block.text for block in answer.content if block.type == "text")


def ask_gpt(client: openai.OpenAI, task: str) -> str:
    """The same with another provider."""
    answer = client.chat.completions.create(
        model="gpt-5-mini", max_tokens=300, messages=[{"role": "user", "content": task}]
    )
    return answer.choices[0].message.content or ""


def sub_agent(options: argparse.Namespace) -> Callable[[str], str]:
    """A function that performs one task; any number of threads may share it."""
    if options.anthropic:
        claude = anthropic.Anthropic(api_key=os.environ.get("ANTHROPIC_API_KEY", "none"))
        if not options.unpaced:
            headway.pace(claude)
        return lambda task: ask_claude(claude, task)
    gpt = openai.OpenAI(api_key=os.environ.get("OPENAI_API_KEY", "none"))
    if not options.unpaced:
        headway.pace(gpt)
    return lambda task: ask_gpt(gpt, task)


def main() -> None:
    """Perform all tasks in threads, wait for all of them, and say how it went."""
    parser = argparse.ArgumentParser(description="Many sub-agents at once, in threads.")
    parser.add_argument("--tasks", type=int, default=40)
    parser.add_argument("--threads", type=int, default=16)
    parser.add_argument("--anthropic", action="store_true", help="ask Claude")
    parser.add_argument("--unpaced", action="store_true", help="the same without headway")
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    options = parser.parse_args()

    perform = sub_agent(options)
    tasks = [
        f"Look at module {n} for {VIEWS[n % len(VIEWS)]} problems." for n in range(options.tasks)
    ]
    failures = 0
    started_s = time.monotonic()
    with ThreadPoolExecutor(max_workers=options.threads) as threads:
        for future in [threads.submit(perform, task) for task in tasks]:
            try:
                future.result()
            except (openai.OpenAIError, anthropic.AnthropicError) as error:
                failures += 1
                print(f"failed: {error}", file=sys.stderr)
    makespan_s = round(time.monotonic() - started_s, 2)
    if options.json:
        print(json.dumps({"tasks": len(tasks), "failures": failures, "makespan_s": makespan_s}))
    else:
        print(f"{len(tasks) - failures} of {len(tasks)} tasks done in {makespan_s} s")


if __name__ == "__main__":
    main()
