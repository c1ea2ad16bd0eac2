"""What a command or a shell gets, so that all its agents find the gateway; and cleaning up after.

Laws:
- A command does not get the keys that its gateway adds: no variable of it holds one.
- What a killed process left behind is removed by the next.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Final

from headway.gateway.agents import base_urls, environment, write_homes
from headway.gateway.daemon import Running
from headway.gateway.links import remove_home
from headway.gateway.values import Upstream
from headway.runtime.folders import Folders, prepare

SHARED: Final = "shared"
"""The home of whatever is started from a shell that was pointed at the user's gateway."""


@contextmanager
def made_home(place: Folders) -> Iterator[str]:
    """A path for the throw-away home of one command; gone with the block."""
    prepare(place)
    _sweep(place)
    # Not below a folder for temporary files: Codex warns of homes there.
    home = os.path.join(_homes(place), str(os.getpid()))
    try:
        yield home
    finally:
        remove_home(home)


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
    shared = os.path.join(_homes(place), SHARED)
    # In a shell that was told before, the homes to be made would be those to be linked.
    if not environ.get("CODEX_HOME", "").startswith(shared):
        urls = base_urls(running.url, running.token, upstreams)
        found |= write_homes(shared, urls, upstreams, environ)
    return found


def _homes(place: Folders) -> str:
    return os.path.join(place.state, "homes")


def _sweep(place: Folders) -> None:
    """Remove the homes of processes that are gone."""
    try:
        names = os.listdir(_homes(place))
    except OSError:
        return
    for name in names:
        if name.isdecimal() and not _is_alive(int(name)):
            shutil.rmtree(os.path.join(_homes(place), name), ignore_errors=True)


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):
        return True
    return True
