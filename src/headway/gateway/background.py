"""The background gateway: one per user, how it is started, found and stopped.

Laws:
- The process that holds the lock is the gateway. A file that was left behind counts for nothing:
  without a holder of the lock it is not read.
- The token outlives the process, so that addresses which were given out stay valid.
- Both files are the user's alone (0600): the token is enough to spend.
"""

from __future__ import annotations

import fcntl
import os
import re
import secrets
import select
import signal
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from http.client import HTTPConnection, HTTPException
from typing import Final
from urllib.parse import urlsplit

from msgspec import Struct, field

from headway.base.codec import decode, encode
from headway.base.folders import Folders, prepare
from headway.errors import GatewayError, StateFileError, WireError
from headway.gateway.settings import upstream_at
from headway.gateway.values import Upstream

FILE_BYTES_MAX: Final = 64 * 1024
START_S_MAX: Final = 15.0
"""A process that does not listen by then does not come up."""
LOCK_S_MAX: Final = 1.0
"""A process that looks for a gateway holds the lock for an instant."""
LOG_BYTES_MAX: Final = 1024 * 1024
"""Then the next gateway begins a new one. A line a minute is less than that in a week."""
PAGE_S_MAX: Final = 10.0
LOOK_S: Final = 0.02
TOKEN_BYTES: Final = 32

_TOKEN: Final = re.compile(r"[A-Za-z0-9_-]{43}")


class RunningGateway(Struct, frozen=True):
    pid: int
    url: str
    """Without its token."""
    token: str
    upstreams: Mapping[str, str] = field(default_factory=dict)
    """The address of each as its clients have it."""
    adds_key: tuple[str, ...] = ()
    """The upstreams whose keys the gateway has."""
    drain_s: float = 0.0
    """How long its calls in flight may take when it ends."""

    def __repr__(self) -> str:
        return f"<RunningGateway {self.pid} {self.url}>"

    def behind(self) -> dict[str, Upstream]:
        """Its upstreams; their keys are not known here, only whether there is one."""
        return {
            name: upstream_at(name, url, "set" if name in self.adds_key else "")
            for name, url in self.upstreams.items()
        }


def state_path(place: Folders) -> str:
    return os.path.join(place.runtime, "gateway.json")


def lock_path(place: Folders) -> str:
    return os.path.join(place.runtime, "gateway.lock")


def log_path(place: Folders) -> str:
    return os.path.join(place.state, "gateway.log")


@contextmanager
def claimed(place: Folders) -> Iterator[None]:
    """Be the one gateway for as long as the block lasts; `GatewayError` if there is one."""
    prepare(place)
    try:
        handle = os.open(lock_path(place), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as fault:
        raise _unusable(lock_path(place), fault) from None
    try:
        until_s = time.monotonic() + LOCK_S_MAX
        while not _locks(handle, fcntl.LOCK_EX):
            if time.monotonic() >= until_s:
                raise _runs_already(find(place))
            time.sleep(LOOK_S)
        try:
            yield
        finally:
            with suppress(FileNotFoundError):
                os.unlink(state_path(place))
    finally:
        os.close(handle)


def publish(place: Folders, running: RunningGateway) -> None:
    """Write where the gateway is, for other processes of this user. Only within `claimed`."""
    _write(state_path(place), encode(running).decode())


def find(place: Folders) -> RunningGateway | None:
    try:
        handle = os.open(lock_path(place), os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    except OSError as fault:
        raise _unusable(lock_path(place), fault) from None
    try:
        if _locks(handle, fcntl.LOCK_SH):
            return None
        return _read(state_path(place))
    finally:
        os.close(handle)


def kept_token(place: Folders) -> str:
    """The token of this user's gateway: the same at every start. Only within `claimed`."""
    path = os.path.join(place.state, "gateway.token")
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        with open(handle, encoding="ascii", errors="replace") as file:
            found = os.fstat(handle)
            kept = file.read(FILE_BYTES_MAX).strip()
        # One that others could read or could have written opens nothing any more.
        is_own = found.st_uid == os.geteuid() and not found.st_mode & 0o077
        if is_own and _TOKEN.fullmatch(kept):
            return kept
    except OSError:
        kept = ""
    token = secrets.token_urlsafe(TOKEN_BYTES)
    # Without a state folder the token lasts as long as the process.
    with suppress(StateFileError):
        _write(path, f"{token}\n")
    return token


def end_now(running: RunningGateway) -> None:
    """The first of two signals; the second is of another kind."""
    with suppress(ProcessLookupError):
        os.kill(running.pid, signal.SIGINT)


def stop(place: Folders, running: RunningGateway, within_s: float) -> bool:
    """Ask the gateway to end, and wait until it has; whether it did in time."""
    with suppress(ProcessLookupError):
        os.kill(running.pid, signal.SIGTERM)
    until_s = time.monotonic() + within_s
    while find(place) is not None:
        if time.monotonic() >= until_s:
            return False
        time.sleep(LOOK_S)
    return True


def page(base_url: str, name: str) -> bytes | None:
    """One of a gateway's own pages, without a proxy; `None` if it does not answer."""
    at = urlsplit(base_url)
    if at.scheme != "http" or not at.hostname:
        return None
    connection = HTTPConnection(at.hostname, at.port, timeout=PAGE_S_MAX)
    try:
        connection.request("GET", f"{at.path}/{name}")
        answer = connection.getresponse()
        content = answer.read()
        return content if answer.status == 200 else None
    except (OSError, HTTPException):
        return None
    finally:
        connection.close()


def detach(place: Folders) -> int | None:
    """Fork. The child gets a pipe to report that it listens; the parent waits for the report, and
    gets `None` or raises the reported error."""
    prepare(place)
    running = find(place)
    if running is not None:
        raise _runs_already(running)
    reader, writer = os.pipe()
    sys.stdout.flush()
    sys.stderr.flush()
    child = os.fork()
    if child:
        os.close(writer)
        os.waitpid(child, 0)
        _await_ready(place, reader)
        return None
    os.close(reader)
    os.setsid()
    if os.fork():
        os._exit(0)
    os.chdir("/")
    from headway.broker.election import BrokerLog

    log = log_path(place)
    with suppress(OSError):
        if os.path.getsize(log) > LOG_BYTES_MAX:
            os.replace(log, f"{log}.1")
    BrokerLog(log)  # Takes over the standard streams.
    return writer


def ready(writer: int, fault: str = "") -> None:
    with suppress(OSError):
        os.write(writer, (fault or "ready").encode("utf-8", "replace"))
        os.close(writer)


def _await_ready(place: Folders, reader: int) -> None:
    told = b""
    until_s = time.monotonic() + START_S_MAX
    try:
        while time.monotonic() < until_s:
            if select.select([reader], [], [], max(0.0, until_s - time.monotonic()))[0]:
                piece = os.read(reader, 4096)
                told += piece
                if not piece:
                    break
    finally:
        os.close(reader)
    if told == b"ready":
        return
    fault = told.decode("utf-8", "replace").strip()
    raise GatewayError(
        fault or "the gateway did not come up", hint=f"its last words are in {log_path(place)}"
    )


def _locks(handle: int, how: int) -> bool:
    try:
        fcntl.flock(handle, how | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _read(path: str) -> RunningGateway | None:
    """The file of the gateway; `None` in the moment before it is written."""
    try:
        with open(path, "rb") as file:
            return decode(RunningGateway, file.read(FILE_BYTES_MAX))
    except FileNotFoundError:
        return None
    except OSError as fault:
        raise _unusable(path, fault) from None
    except WireError:
        raise StateFileError(f"{path} is not what a gateway writes") from None


def _write(path: str, text: str) -> None:
    """Atomically, and readable by the user only."""
    half = f"{path}.{os.getpid()}"
    try:
        with suppress(FileNotFoundError):
            os.unlink(half)
        handle = os.open(half, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with open(handle, "w", encoding="utf-8") as file:
            file.write(text)
        os.replace(half, path)
    except OSError as fault:
        raise _unusable(path, fault) from None


def _unusable(path: str, fault: OSError) -> StateFileError:
    return StateFileError(f"{path} cannot be used: {fault.strerror}")


def _runs_already(running: RunningGateway | None) -> GatewayError:
    where = "" if running is None else f" at {running.url}, process {running.pid}"
    return GatewayError(
        f"a gateway of yours runs already{where}",
        hint="use it with `headway gateway env`, or end it with `headway gateway stop`",
    )
