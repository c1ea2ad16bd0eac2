"""An agent that headway knows nothing of: no sessions, a prompt in a file, JSON as its last line.

    fake_hermes.py --prompt FILE --model NAME

It asks its model three times in one conversation and says what came of it.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from urllib.request import Request, urlopen


def ask(model: str, messages: list[dict[str, str]]) -> str:
    body = {"model": model, "max_tokens": 50, "messages": messages}
    key = os.environ.get("OPENAI_API_KEY", "")
    headers = {"content-type": "application/json", "authorization": f"Bearer {key}"}
    url = f"{os.environ['OPENAI_BASE_URL']}/chat/completions"
    with urlopen(Request(url, json.dumps(body).encode(), headers), timeout=60) as response:
        return str(json.loads(response.read())["choices"][0]["message"]["content"])


def main(words: list[str]) -> int:
    prompt = Path(words[words.index("--prompt") + 1]).read_text()
    model = words[words.index("--model") + 1]
    messages = [{"role": "user", "content": prompt}]
    for turn in range(3):
        said = ask(model, messages)
        messages += [{"role": "assistant", "content": said}, {"role": "user", "content": "And?"}]
        print(f"turn {turn}: {said}")
        if turn == 1 and (fails := os.environ.get("HERMES_FAILS")) and Path(fails).exists():
            Path(fails).unlink()
            return 1
        if turn == 1 and (wait := os.environ.get("HERMES_WAITS")) and Path(wait).exists():
            # The first time it hangs here, until it is killed with whoever started it.
            time.sleep(600)
    print(json.dumps({"data": {"text": said}, "done": True}))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
