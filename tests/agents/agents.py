"""Four coding agents as they come from npm: how each is started, and how its result is read.

Laws:
- Every launch has a home of its own; nothing of the user's is read or written.
- Nothing leaves the machine: proxies that are not there are set for all but this host.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from msgspec import Struct

ROOT: Final = Path(__file__).resolve().parents[2]
INSTALLED: Final = Path(os.environ.get("HEADWAY_TEST_AGENTS", ROOT / ".venv" / "agents"))

KEYS: Final = {
    "anthropic": "dummy-a",
    "openai-responses": "dummy-r",
    "openai-chat": "dummy-c",
    "gemini": "dummy-g",
}
"""By wire: each client has an account of its own, as each has a provider of its own."""

MODEL: Final = "agent"
NOWHERE: Final = "http://127.0.0.1:9"
"""Port 9 discards; nobody listens there."""

HERE: Final = "127.0.0.1,localhost"


class Urls(Struct, frozen=True):
    """Where each provider is, without a version."""

    anthropic: str
    openai: str
    gemini: str

    @classmethod
    def all_at(cls, url: str) -> Urls:
        return cls(url, url, url)


class Launch(Struct, frozen=True):
    argv: tuple[str, ...]
    env: Mapping[str, str]
    folder: Path


class Client(Struct, frozen=True):
    name: str
    package: str
    wire: str
    arguments: Callable[[str], tuple[str, ...]]
    prepared: Callable[[Path, Urls], Mapping[str, str]]
    """Writes what has to be in its home, and gives the variables to set."""
    said: Callable[[str], Iterator[str]]
    """The texts of the model in its output."""

    def launch(self, home: Path, urls: Urls, prompt: str) -> Launch:
        """Everything that is needed to start it once."""
        folder = home / "project"
        folder.mkdir(parents=True)
        path = os.pathsep.join((str(INSTALLED / "node_modules" / ".bin"), os.environ["PATH"]))
        env = {"PATH": path, "HOME": str(home), "TERM": "dumb", "LANG": "C.UTF-8"}
        env |= {"HTTPS_PROXY": NOWHERE, "HTTP_PROXY": NOWHERE, "NO_PROXY": HERE}
        env |= self.prepared(home, urls)
        return Launch(self.arguments(prompt), env, folder)

    def answer(self, output: str) -> str:
        """The last text of the model; empty if there is none."""
        return next(iter(reversed(list(self.said(output)))), "")

    @property
    def version(self) -> str:
        path = INSTALLED / "node_modules" / self.package / "package.json"
        return str(json.loads(path.read_text())["version"])


def is_installed() -> bool:
    return (INSTALLED / "node_modules" / ".bin" / "codex").exists()


def lines(output: str) -> Iterator[dict[str, Any]]:
    """The JSON objects of an output that has one a line."""
    for line in output.splitlines():
        if line.startswith("{"):
            yield json.loads(line)


def whole(output: str) -> dict[str, Any]:
    """The one JSON object of an output, whatever is before it."""
    found = re.search(r"^\{.*^\}", output, re.DOTALL | re.MULTILINE)
    return dict(json.loads(found[0])) if found else {}


def _claude_command(prompt: str) -> tuple[str, ...]:
    return ("claude", "-p", prompt, "--output-format", "json", "--allowedTools", "Bash")


def _claude_home(home: Path, urls: Urls) -> Mapping[str, str]:
    return {
        "ANTHROPIC_BASE_URL": urls.anthropic,
        "ANTHROPIC_API_KEY": KEYS["anthropic"],
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "DISABLE_AUTOUPDATER": "1",
    }


def _claude_said(output: str) -> Iterator[str]:
    for line in lines(output):
        if line.get("type") == "result" and not line.get("is_error"):
            yield str(line["result"])


def _codex_command(prompt: str) -> tuple[str, ...]:
    flags = ("--json", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox")
    return ("codex", "exec", *flags, prompt)


def _codex_home(home: Path, urls: Urls) -> Mapping[str, str]:
    (home / ".codex").mkdir()
    (home / ".codex" / "config.toml").write_text(
        f'model = "{MODEL}"\nmodel_provider = "sim"\n[analytics]\nenabled = false\n'
        f'[model_providers.sim]\nname = "sim"\nbase_url = "{urls.openai}/v1"\n'
        'env_key = "SIM_KEY"\nwire_api = "responses"\n'
    )
    return {"SIM_KEY": KEYS["openai-responses"]}


def _codex_said(output: str) -> Iterator[str]:
    for line in lines(output):
        item = line.get("item", {})
        if line["type"] == "item.completed" and item.get("type") == "agent_message":
            yield str(item["text"])


def _opencode_command(prompt: str) -> tuple[str, ...]:
    return ("opencode", "run", "--format", "json", prompt)


def _opencode_home(home: Path, urls: Urls) -> Mapping[str, str]:
    provider = {
        "npm": "@ai-sdk/openai-compatible",
        "name": "sim",
        "options": {"baseURL": f"{urls.openai}/v1", "apiKey": KEYS["openai-chat"]},
        "models": {MODEL: {"name": MODEL}},
    }
    settings = {
        "model": f"sim/{MODEL}",
        "provider": {"sim": provider},
        "permission": "allow",
        "autoupdate": False,
        "share": "disabled",
    }
    (home / "project" / "opencode.json").write_text(json.dumps(settings))
    names = ("MODELS_FETCH", "AUTOUPDATE", "DEFAULT_PLUGINS", "LSP_DOWNLOAD")
    return {f"OPENCODE_DISABLE_{name}": "1" for name in names}


def _opencode_said(output: str) -> Iterator[str]:
    for line in lines(output):
        if line["type"] == "text":
            yield str(line["part"]["text"])


def _gemini_command(prompt: str) -> tuple[str, ...]:
    return ("gemini", "-p", prompt, "--output-format", "json", "--yolo")


def _gemini_home(home: Path, urls: Urls) -> Mapping[str, str]:
    # With an address in its environment it takes a way to log in that it then refuses, unless its
    # settings name another one.
    (home / ".gemini").mkdir()
    settings = {
        "security": {"auth": {"selectedType": "gemini-api-key"}},
        "privacy": {"usageStatisticsEnabled": False},
        "general": {"enableAutoUpdate": False},
    }
    (home / ".gemini" / "settings.json").write_text(json.dumps(settings))
    return {
        "GOOGLE_GEMINI_BASE_URL": urls.gemini,
        "GEMINI_API_KEY": KEYS["gemini"],
        "GEMINI_CLI_TRUST_WORKSPACE": "true",
    }


def _gemini_said(output: str) -> Iterator[str]:
    if response := whole(output).get("response"):
        yield str(response)


CLAUDE: Final = Client(
    "Claude Code", "@anthropic-ai/claude-code", "anthropic",
    _claude_command, _claude_home, _claude_said,
)  # fmt: skip
CODEX: Final = Client(
    "Codex", "@openai/codex", "openai-responses", _codex_command, _codex_home, _codex_said
)
OPENCODE: Final = Client(
    "opencode", "opencode-ai", "openai-chat", _opencode_command, _opencode_home, _opencode_said
)
GEMINI: Final = Client(
    "Gemini CLI", "@google/gemini-cli", "gemini", _gemini_command, _gemini_home, _gemini_said
)
CLIENTS: Final = (CLAUDE, CODEX, OPENCODE, GEMINI)
