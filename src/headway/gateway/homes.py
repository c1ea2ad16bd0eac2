"""What a command or a shell gets, so that all its agents find the gateway; and cleaning up after.

Laws:
- A command does not get the keys that its gateway adds: no variable of it holds one.
- The home of a command has the same path each time, since agents tell it to the model: the first
  that is free, or the one in which a recording was made.
- What a killed process left behind is replaced by the next.
"""

from __future__ import annotations

import fcntl
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Final

from headway.errors import StateFileError
from headway.gateway.agents import base_urls, environment, write_homes
from headway.gateway.daemon import Running
from headway.gateway.links import remove_home
from headway.gateway.values import Upstream
from headway.runtime.folders import Folders, prepare

SHARED: Final = "shared"

HOMES_MAX: Final = 10_000
"""Commands with a gateway of their own at a time."""

_NAME: Final = re.compile(r"[1-9][0-9]{0,4}")


@contextmanager
def made_home(place: Folders, wanted: str = "") -> Iterator[str]:
    """A path for the throw-away home of one command; gone with the block.

    `wanted` is the home of a recording. It is taken if it is of this state folder and no other
    command has it.
    """
    prepare(place)
    folder, name = os.path.split(wanted)
    is_here = folder == os.path.realpath(_homes(place)) and _NAME.fullmatch(name)
    names = [name] if is_here else []
    try:
        # Not below a folder for temporary files: Codex warns of homes there.
        os.makedirs(_homes(place), mode=0o700, exist_ok=True)
        lock, home = _taken(place, (*names, *map(str, range(1, HOMES_MAX))))
    except OSError as fault:
        raise StateFileError(
            f"{_homes(place)} cannot be written to: {fault.strerror}",
            hint="agents need a home of their own",
        ) from None
    try:
        yield home
    finally:
        remove_home(home)
        os.close(lock)


def _taken(place: Folders, names: Iterable[str]) -> tuple[int, str]:
    """The first home of these that no other command has, and its lock."""
    for name in names:
        home = os.path.join(_homes(place), name)
        lock = os.open(f"{home}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lock)
            continue
        return lock, home
    raise StateFileError(
        f"{HOMES_MAX} commands run under a gateway of their own",
        hint="start one for all of them: `headway gateway --detach`",
    )


def command_environment(
    url: str, token: str, upstreams: Mapping[str, Upstream], environ: Mapping[str, str], home: str
) -> dict[str, str]:
    """All variables of a command that runs under a gateway."""
    keys = {one.key for one in upstreams.values() if one.key}
    own = {name: value for name, value in environ.items() if value.strip() not in keys}
    found = own | environment(url, token, upstreams, environ)
    return found | write_homes(home, base_urls(url, token, upstreams), upstreams, environ)


def shared_environment(
    running: Running, place: Folders, environ: Mapping[str, str]
) -> dict[str, str]:
    """What to set in a shell, so that whatever it starts finds the gateway that runs."""
    upstreams = running.behind()
    found = environment(running.url, running.token, upstreams, environ)
    shared = shared_home(place)
    # In a shell that was told before, the homes to be made would be those to be linked.
    if not environ.get("CODEX_HOME", "").startswith(shared):
        urls = base_urls(running.url, running.token, upstreams)
        found |= write_homes(shared, urls, upstreams, environ)
    return found


def shared_home(place: Folders) -> str:
    """The home of whatever is started from a shell that leads to the user's gateway."""
    return os.path.join(_homes(place), SHARED)


def _homes(place: Folders) -> str:
    return os.path.join(place.state, "homes")
