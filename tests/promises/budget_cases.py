"""Random cases for budgets: who spends, what is sent, what is killed; judged by the provider.

A provider may charge a call that was cut off for its whole input and all of its `max_tokens`. So
that is what such a call counts here; a whole answer counts what the provider reported of it.
"""

from __future__ import annotations

import base64
import json
import os
import random
import signal
import string
import subprocess
import sys
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from decimal import Decimal
from pathlib import Path
from typing import Any, Final

from genai_prices import Usage, calc_price
from msgspec import Struct, field

from tests.promises.user import SOON_S, Provider, User, kill_group, until, user

MODELS: Final = {"openai": "gpt-4o-mini", "anthropic": "claude-haiku-4-5",
                 "gemini": "gemini-2.5-flash", "responses": "gpt-5-mini"}  # fmt: skip
WORDS: Final = ("the", "of", "a", "budget", "is", "never", "more", "than", "its", "user", "allows")
KILLED: Final = ("run", "broker", "both")

SERVED: Final = ("--rpm", "60000", "--tpm", "1000M", "--first-byte-s", "0.2", "--per-token-s",
                 "0.002", "--model", "tokens-5-200", "--fault", "cut=0.03", "--fault",
                 "error-event=0.03", "--seed", "15")  # fmt: skip
"""A few answers break off: what they took is not known."""

CLIENT: Final = """\
import json, sys
from concurrent.futures import ThreadPoolExecutor
import headway, httpx2

client = headway.pace(httpx2.Client(timeout=60))

def send(call):
    url, headers, body, is_left = call
    try:
        with client.stream("POST", url, headers=headers, content=body.encode()) as answer:
            for _ in answer.iter_bytes():
                if is_left:
                    break
            return answer.status_code
    except httpx2.HTTPError:
        return 0

with ThreadPoolExecutor(4) as pool:
    list(pool.map(send, json.load(open(sys.argv[1]))))
"""


def text_of(kind: str, size: int, chance: random.Random) -> str:
    if kind == "words":
        return " ".join(chance.choices(WORDS, k=size // 5 + 1))
    if kind == "base64":
        return base64.b64encode(chance.randbytes(size * 3 // 4)).decode()
    alphabets = {
        "hex": "0123456789abcdef",
        "symbols": string.punctuation,
        "emoji": "".join(map(chr, range(0x1F600, 0x1F640))) + "👩🏽‍🚀🇪🇺",
        "cjk": "".join(map(chr, range(0x4E00, 0x4F00))) + "한국어かな",
        "marks": 'ﷺ﷽ﬃ①½é\u0301\u200d\ufeff\t"\\',
        "digits": string.digits,
    }
    return "".join(chance.choices(alphabets[kind], k=size))


KINDS: Final = ("words", "hex", "symbols", "emoji", "cjk", "base64", "marks", "digits")


class Share(Struct, frozen=True):
    """What one process sends: a plan's run, or a client of `headway.pace`."""

    door: str
    """`run` or `client`."""
    wire: str
    texts: tuple[str, ...]
    max_tokens: int


class Case(Struct, frozen=True):
    """One budget, and all that draws on it."""

    seed: int
    keeper: str
    """`month`, `run` or `task`."""
    unit: str
    """`tokens` or `dollars`."""
    amount: int
    """Tokens or micro-dollars; of each run where the budget is a run's or a task's."""
    shares: tuple[Share, ...]
    kills: tuple[tuple[str, int], ...] = ()
    """What is killed, and after how many more calls have reached the provider."""

    def __str__(self) -> str:
        shares = " ".join(f"{one.door}:{one.wire}x{len(one.texts)}" for one in self.shares)
        kills = " ".join(f"{what}@{calls}" for what, calls in self.kills) or "none"
        return f"case {self.seed}: {self.keeper} {self.amount} {self.unit}; {shares}; kills {kills}"


def case_of(seed: int) -> Case:
    """The case of this number, always the same."""
    chance = random.Random(seed)
    keeper = chance.choice(("month", "run", "task"))
    unit = chance.choice(("tokens", "dollars"))
    count = chance.choice((1, 1, 1, 2, 2, 3, 4)) if keeper == "month" else chance.choice((1, 1, 2))
    shares = tuple(_share(keeper, chance) for _ in range(count))
    whole = sum(_size(one, unit) for one in shares) / (1 if keeper == "month" else count)
    amount = round(whole * chance.uniform(0.25, 1.1))
    kills = tuple(
        (chance.choice(KILLED), chance.randint(1, 6)) for _ in range(chance.choice((0, 1, 1, 2, 3)))
    )
    return Case(seed, keeper, unit, amount, shares, kills)


def _share(keeper: str, chance: random.Random) -> Share:
    door = chance.choice(("run", "client")) if keeper == "month" else "run"
    wire = chance.choice(tuple(MODELS) if door == "client" else ("openai", "anthropic"))
    size = round(10 ** chance.uniform(0.5, 3.7))
    kind = chance.choice(KINDS)
    texts = tuple(
        text_of(kind, chance.randint(1, size), chance) for _ in range(chance.randint(4, 12))
    )
    return Share(door, wire, texts, chance.choice((1, 20, 100, 300)))


def _size(share: Share, unit: str) -> float:
    """About what a share's calls take if every byte is a token."""
    tokens = [(len(text.encode()), share.max_tokens) for text in share.texts]
    if unit == "tokens":
        return sum(map(sum, tokens)) + 300.0 * len(tokens)
    return sum(float(_price(MODELS[share.wire], one + 300, most)) for one, most in tokens)


def _price(model: str, input_tokens: int, output_tokens: int, read: int = 0, written: int = 0
           ) -> Decimal:  # fmt: skip
    """The list price in micro-dollars; tokens that the cache gave are part of the input."""
    usage = Usage(input_tokens=input_tokens, output_tokens=output_tokens,
                  cache_read_tokens=read, cache_write_tokens=written)  # fmt: skip
    return calc_price(usage, model).total_price * 1_000_000


def charged(visits: Iterable[dict[str, Any]], unit: str, most: int) -> Decimal:
    """What the provider may charge for these calls, each of at most so many tokens of answer."""
    total = Decimal(0)
    for one in visits:
        if not one["is_accepted"]:
            continue
        read, written = one["cache_read_tokens"], one["cache_write_tokens"]
        given = one["input_tokens"] + read
        gave = one["output_tokens"] if one["how"] == "whole" else most
        if unit == "tokens":
            total += given + gave
        else:
            total += _price(one["model"], given, gave, read, written)
    return total


class Judged(Struct):
    """How a case ended: what may be charged of each budget, and how its processes ended."""

    charged: list[Decimal]
    codes: list[int | None]
    cut: int
    said: list[str] = field(default_factory=list)


class _Process(Struct):
    """One share and the process that performs it."""

    share: Share
    key: str
    folder: str
    run: str = ""
    """The id of its run, once that is known."""
    process: subprocess.Popen[str] | None = None
    code: int | None = None
    said: str = ""


class Scene:
    """A case at work, in folders of its own and with keys of its own."""

    def __init__(self, case: Case, provider: Provider, someone: User, name: str) -> None:
        self.case = case
        self.provider = provider
        self.user = someone
        self.processes = [
            _Process(share, f"{name}-{number}", f"p{number}")
            for number, share in enumerate(case.shares)
        ]

    def perform(self) -> Judged:
        case, url = self.case, self.provider.url
        if case.keeper == "month":
            ended = self.user.headway("limits", "budget", f"{self._amount()}/month")
            assert ended.returncode == 0, ended.stderr
        for one in self.processes:
            self._prepare(one, url)
            self._start(one)
        for what, calls in case.kills:
            seen = self._calls() + calls
            until(lambda: self._calls() >= seen or not self._running())  # noqa: B023 - used at once
            self._kill(what)
            self._go_on()
        for one in self._running():
            self._end(one)
        return self._judged()

    def _amount(self) -> str:
        amount = self.case.amount
        return f"{amount / 1e3:.3f}k" if self.case.unit == "tokens" else f"${amount / 1e6:.6f}"

    def _prepare(self, one: _Process, url: str) -> None:
        share = one.share
        if share.door == "client":
            calls = [_call(share, text, one.key, url, number)
                     for number, text in enumerate(share.texts)]  # fmt: skip
            self.user.write(f"{one.folder}/calls.json", json.dumps(calls))
            self.user.write("client.py", CLIENT)
            return
        budget = f"    budget: '{self._amount()}'\n" if self.case.keeper == "task" else ""
        items = [{"n": number, "text": text} for number, text in enumerate(share.texts)]
        self.user.write(
            f"{one.folder}/plan.yaml",
            f"headway: 1\ntasks:\n  ask:\n    each: {json.dumps(items, ensure_ascii=False)}\n"
            "    prompt: '{{ item.text }}'\n"
            f"    model: {share.wire}/{MODELS[share.wire]}\n"
            f"    max_tokens: {share.max_tokens}\n    retries: 1\n{budget}",
        )

    def _env(self, one: _Process) -> dict[str, str]:
        url = self.provider.url
        return self.user.env | {
            "OPENAI_BASE_URL": f"{url}/v1", "OPENAI_API_KEY": one.key,
            "ANTHROPIC_BASE_URL": url, "ANTHROPIC_API_KEY": one.key,
        }  # fmt: skip

    def _start(self, one: _Process, run: str = "") -> None:
        known = self._runs()
        if one.share.door == "client":
            words = ["client.py", f"{one.folder}/calls.json"]
        else:
            goes_on = ["resume", run] if run else ["run", f"{one.folder}/plan.yaml"]
            words = ["-m", "headway", *goes_on, "--yes", "--quiet", "--json"]
            words += ["--budget", self._amount()] if self.case.keeper == "run" else []
        one.process = subprocess.Popen(
            [sys.executable, *words], cwd=self.user.folder, env=self._env(one), text=True,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            start_new_session=True,
        )  # fmt: skip
        self.user.started.append(one.process)
        if one.share.door == "run" and not run:
            until(lambda: self._runs() - known or (one.process and one.process.poll() is not None))
            one.run = "".join(self._runs() - known)

    def _runs(self) -> set[str]:
        folder = Path(self.user.env["HEADWAY_STATE_DIR"], "runs")
        return set(os.listdir(folder)) if folder.exists() else set()

    def _running(self) -> list[_Process]:
        return [one for one in self.processes if one.process is not None and one.code is None
                and (one.process.poll() is None or self._end(one))]  # fmt: skip

    def _end(self, one: _Process) -> bool:
        assert one.process is not None
        said, _ = one.process.communicate(timeout=3 * SOON_S)
        one.code, one.said = one.process.returncode, said
        return False

    def _visits(self, one: _Process) -> list[dict[str, Any]]:
        account = self.provider.account(one.key)
        if account is None:
            return []
        found: list[dict[str, Any]] = self.provider.truth(one.key)["arrivals"]
        return found

    def _calls(self) -> int:
        accounts = (self.provider.account(one.key) for one in self.processes)
        return sum(account["calls"] for account in accounts if account is not None)

    def _kill(self, what: str) -> None:
        if what in ("broker", "both"):
            for pid in self._brokers():
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        if what in ("run", "both"):
            for one in self._running():
                assert one.process is not None
                kill_group(one.process)
                one.process = None

    def _brokers(self) -> list[int]:
        """Processes of this user that outlive the commands which started them."""
        own = {process.pid for process in self.user.started}
        found = []
        for pid in self.user.processes():
            with suppress(ProcessLookupError):  # It has ended meanwhile.
                if os.getsid(pid) not in own:
                    found.append(pid)
        return found

    def _go_on(self) -> None:
        """Resume the runs that were killed, and start clients again."""
        for one in self.processes:
            if one.process is None:
                # Killed before it sent anything, it may have no journal yet.
                self._start(one, one.run if self._visits(one) else "")

    def _judged(self) -> Judged:
        visits = [self._visits(one) for one in self.processes]
        parts = [charged(found, self.case.unit, one.share.max_tokens)
                 for found, one in zip(visits, self.processes, strict=True)]  # fmt: skip
        cut = sum(one["is_accepted"] and one["how"] != "whole" for found in visits for one in found)
        amounts = [sum(parts, Decimal(0))] if self.case.keeper == "month" else parts
        return Judged(amounts, [one.code for one in self.processes], cut,
                      [one.said for one in self.processes])  # fmt: skip


def _call(share: Share, text: str, key: str, url: str, number: int) -> list[object]:
    """A request in a wire's format: some stream, and of some the answer is not read to its end."""
    model, streams = MODELS[share.wire], number % 3 > 0
    turn = {"role": "user", "content": text}
    body: dict[str, object] = {"model": model, "stream": streams, "messages": [turn]}
    headers = {"authorization": f"Bearer {key}", "content-type": "application/json"}
    path = "/v1/chat/completions"
    if share.wire == "openai":
        body["max_completion_tokens"] = share.max_tokens
        body |= {"stream_options": {"include_usage": True}} if number % 2 and streams else {}
    elif share.wire == "anthropic":
        path, headers = "/v1/messages", headers | {"x-api-key": key}
        cached = {"type": "text", "text": text, "cache_control": {"type": "ephemeral"}}
        body |= {"max_tokens": share.max_tokens}
        if number % 2:
            body["system"] = [cached]
    elif share.wire == "responses":
        path = "/v1/responses"
        body = {"model": model, "input": text, "max_output_tokens": max(16, share.max_tokens),
                "stream": streams}  # fmt: skip
    else:
        verb = "streamGenerateContent?alt=sse" if streams else "generateContent"
        path, headers = f"/v1beta/models/{model}:{verb}", headers | {"x-goog-api-key": key}
        body = {"contents": [{"parts": [{"text": text}]}],
                "generationConfig": {"maxOutputTokens": share.max_tokens}}  # fmt: skip
    said = json.dumps(body, ensure_ascii=number % 2 == 0)
    return [url + path, headers, said, streams and number % 5 == 0]


def judged(case: Case, provider: Provider, root: Path, name: str = "") -> Judged:
    """Perform a case and fail if its budget was exceeded."""
    with user(root) as someone:
        found = Scene(case, provider, someone, name or f"case-{case.seed}").perform()
    for amount in found.charged:
        assert amount <= case.amount, f"{case}: the provider may charge {amount}\n{found}"
    for share, code in zip(case.shares, found.codes, strict=True):
        expected = (0,) if share.door == "client" else (0, 1, 4)
        assert code in expected, f"{case}: {found}"
    return found


def tell(cases: Sequence[tuple[Case, Judged]], say: Callable[[str], object]) -> None:
    budgets = sum(len(found.charged) for _, found in cases)
    used = [float(amount) / case.amount for case, found in cases for amount in found.charged]
    kills = sum(len(case.kills) for case, _ in cases)
    cut = sum(found.cut for _, found in cases)
    ended = [code for _, found in cases for code in found.codes]
    say(f"{len(cases)} cases, {budgets} budgets, {kills} kills, {cut} calls cut off, "
        f"{ended.count(4)} ended by budget, fullest {max(used):.4f}, "
        f"mean {sum(used) / len(used):.2f}, over 0")  # fmt: skip
