"""A command whose agent calls a model: it knows nothing of headway, only the usual variables.

    metered_caller.py MODEL MAX_TOKENS [CALLS] [EXIT_CODE]

Calls one after another, as streams; what it was answered goes to stdout, refusals to stderr.
"""

import json
import os
import sys
from urllib.error import HTTPError
from urllib.request import Request, urlopen


def request(model: str, tokens: int, text: str) -> Request:
    """OpenAI's Chat where that is configured, else Anthropic's Messages."""
    turn = [{"role": "user", "content": text}]
    if "OPENAI_API_KEY" in os.environ:
        url = f"{os.environ['OPENAI_BASE_URL']}/chat/completions"
        body = {"model": model, "max_tokens": tokens, "messages": turn, "stream": True,
                "stream_options": {"include_usage": True}}  # fmt: skip
        headers = {"authorization": f"Bearer {os.environ['OPENAI_API_KEY']}"}
    else:
        url = f"{os.environ['ANTHROPIC_BASE_URL']}/v1/messages"
        body = {"model": model, "max_tokens": tokens, "messages": turn, "stream": True}
        headers = {"x-api-key": os.environ["ANTHROPIC_API_KEY"], "anthropic-version": "2023-06-01"}
    return Request(url, json.dumps(body).encode(), {"content-type": "application/json", **headers})


def main() -> int:
    model, tokens, *more = sys.argv[1:]
    calls, code = [*more, "1", "0"][:2] if not more else [*more, "0"][:2]
    for number in range(int(calls)):
        text = f"{os.environ.get('HEADWAY_TASK', '')} {number} " * 20
        try:
            with urlopen(request(model, int(tokens), text), timeout=60) as answer:
                said = answer.read()
        except HTTPError as refusal:
            sys.stderr.write(f"refused {refusal.code}: {refusal.read().decode()}\n")
            return 3
        if b"error" in said:
            sys.stderr.write(f"broke off: {said[-300:].decode()}\n")
            return 4
        print(len(said), flush=True)
    return int(code)


if __name__ == "__main__":
    sys.exit(main())
