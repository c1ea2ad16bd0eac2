"""A small agent that speaks as `claude -p --output-format stream-json` does; calls its provider.

    fake_claude.py -p --output-format stream-json ... --session-id ID | --resume ID   < prompt

It keeps its session where Claude Code does, a line for each message, so that it can go on. What its
model wants run is run by a shell, in the folder where it was started. The tokens that it tells are
those of its process, the cost that of the session, as Claude Code has it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import Request, urlopen

REPLY_USD = 0.0625

TOOLS = [{"name": "Bash", "description": "a shell", "input_schema": {"type": "object"}}]


def say(event: dict[str, object]) -> None:
    print(json.dumps(event), flush=True)


def ask(model: str, messages: list[dict[str, object]]) -> dict[str, object]:
    """One call."""
    body = {"model": model, "max_tokens": 500, "messages": messages, "tools": TOOLS}
    headers = {
        "content-type": "application/json",
        "x-api-key": os.environ.get("ANTHROPIC_API_KEY", ""),
        "anthropic-version": "2023-06-01",
        "user-agent": "fake-claude/1.0",
    }
    url = f"{os.environ['ANTHROPIC_BASE_URL']}/v1/messages"
    with urlopen(Request(url, json.dumps(body).encode(), headers), timeout=60) as response:
        found: dict[str, object] = json.loads(response.read())
    return found


def results_of(message: dict[str, object]) -> list[dict[str, object]]:
    """Run what a reply asks for."""
    results: list[dict[str, object]] = []
    content = message["content"]
    assert isinstance(content, list)
    for part in content:
        if part["type"] == "tool_use":
            done = subprocess.run(
                part["input"]["command"], shell=True, capture_output=True, text=True, check=False
            )
            said = done.stdout or "(no output)"
            results.append({"type": "tool_result", "tool_use_id": part["id"], "content": said})
    return results


def main(words: list[str]) -> int:
    goes_on = "--resume" in words
    session = words[words.index("--resume" if goes_on else "--session-id") + 1]
    model = words[words.index("--model") + 1] if "--model" in words else "agent"
    path = Path(os.environ["CLAUDE_CONFIG_DIR"], "projects", "here", f"{session}.jsonl")
    if goes_on and not path.exists():
        print(f"No conversation found with session ID: {session}", file=sys.stderr)
        return 1
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = path.read_text().splitlines() if goes_on else []
    messages = [{key: one[key] for key in ("role", "content")}
                for one in (json.loads(line)["message"] for line in lines)]  # fmt: skip
    usage = {"input_tokens": 0, "output_tokens": 0}
    say({"type": "system", "subtype": "init", "session_id": session, "model": model})
    said: object = ""
    with path.open("a") as file:

        def keep(message: dict[str, object]) -> None:
            file.write(json.dumps({"type": message["role"], "message": message}) + "\n")
            file.flush()
            messages.append({"role": message["role"], "content": message["content"]})

        keep({"role": "user", "content": sys.stdin.read()})
        while True:
            try:
                reply = ask(model, messages)
            except HTTPError as error:
                say({"type": "result", "subtype": "success", "is_error": True,
                     "result": f"API Error: {error.code}", "session_id": session})  # fmt: skip
                return 1
            keep({key: reply[key] for key in ("role", "content", "id")})
            used = reply["usage"]
            assert isinstance(used, dict)
            for name in usage:
                usage[name] += used[name]
            say({"type": "assistant", "message": reply, "session_id": session})
            content = reply["content"]
            assert isinstance(content, list)
            said = next((part["text"] for part in content if part["type"] == "text"), said)
            results = results_of(reply)
            if not results:
                break
            keep({"role": "user", "content": results})
    cost = REPLY_USD * sum(one["role"] == "assistant" for one in messages)
    say({"type": "result", "subtype": "success", "is_error": False, "result": said,
         "session_id": session, "total_cost_usd": cost, "usage": usage})  # fmt: skip
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
