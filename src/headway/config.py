"""The user's configuration: one file, read once, into one record.

Laws:
- A key that is not known is refused: a misspelt budget is not a budget.
- What is not set has a default; `settings` lists every value with its source.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from msgspec import Struct

from headway.base.folders import RUNTIME_DIR, STATE_DIR, config_folder, folders
from headway.errors import BadValueError, StateFileError, did_you_mean
from headway.plans.spec import LOOP

if TYPE_CHECKING:
    from headway.agents.kinds import AgentSetting
    from headway.agents.tools_mcp import McpServer
    from headway.plans.untrusted import PlanPermissions

NOTICES: Final = (
    "done", "failed", "stopped", "budget", "window", "refilled", "stuck", "answer",
)  # fmt: skip
"""What there can be notices of; `answer`: the run goes on only when its user does something."""


class NoticeReceiver(Struct, frozen=True):
    """Where notices of runs go: one of a command, a webhook and the desktop."""

    name: str
    command: tuple[str, ...] = ()
    webhook: str = ""
    desktop: bool = False
    format: str = "json"
    on: tuple[str, ...] = NOTICES
    texts: bool = False
    """Whether names of tasks and reasons are in them."""


Table: TypeAlias = "AgentSetting | McpServer | NoticeReceiver"
SERVER_KEYS: Final = ("command", "url", "environment")
NAMES: Final = {
    "agents": re.compile(r"[a-z][a-z0-9-]{0,29}"),
    "mcp": re.compile(r"[a-z0-9][a-z0-9_-]{0,63}"),
    "notify": re.compile(r"[a-z0-9][a-z0-9_-]{0,63}"),
}
"""Keys that have tables with names, as a plan can say them."""

FILE_BYTES_MAX: Final = 64 * 1024
"""A configuration is a page; what is larger is another file."""


class Configuration(Struct, frozen=True):
    """What holds for every run, unless its plan or its command line says otherwise: `ABOUT`."""

    ask_above_usd: float = 5.0
    strategy: str = "adaptive"
    wait: str = ""
    window_share: str = ""
    quiet_hours: str = "22-6"
    keep_results: bool = True
    foreign_agents: str = ""
    foreign_works: str = ""
    agents: tuple[AgentSetting, ...] = ()
    mcp: tuple[McpServer, ...] = ()
    notify: tuple[NoticeReceiver, ...] = ()


ABOUT: Final = {
    "ask_above_usd": "ask before a run without a budget that may cost more than this",
    "strategy": "adaptive, fixed:N, waves:N or all-at-once",
    "wait": "for an empty usage window: no, forever, or a time like 2h; a day, if not said",
    "window_share": "the most that a run takes of each usage window, like 30%; if not said, 80% of "
    "one shorter than a day and 50% of a longer one",
    "quiet_hours": "when `--when quiet` starts a run while too few hours of the account are known",
    "keep_results": "keep what tasks gave in the journal; off: only that they gave it",
    "foreign_agents": "agents that plans by agents may use: claude, codex, tools:files",
    "foreign_works": "what plans by agents may execute: run, python",
    "agents": "tables like [agents.hermes]: command, result, resume",
    "mcp": "tables like [mcp.git]: command or url, environment",
    "notify": "tables like [notify.me]: command, webhook or desktop; format, on, texts",
}


class Configured(Struct, frozen=True):
    """The configuration with where it comes from."""

    values: Configuration
    path: str
    is_there: bool
    set_here: frozenset[str] = frozenset()
    """The keys that the file sets; all others have their defaults."""


def configuration_path(environ: Mapping[str, str]) -> str:
    """Where the file is, or would be."""
    return os.path.join(config_folder(environ)[0], "config.toml")


def read_configuration(environ: Mapping[str, str]) -> Configured:
    """The configuration in force; without a file, the defaults."""
    path = configuration_path(environ)
    try:
        with open(path, "rb") as file:
            content = file.read(FILE_BYTES_MAX + 1)
    except FileNotFoundError:
        return Configured(Configuration(), path, is_there=False)
    except OSError as fault:
        raise _refused(path, f"cannot be read: {fault.strerror}", "check who may read it") from None
    if len(content) > FILE_BYTES_MAX:
        raise _refused(path, f"is larger than {FILE_BYTES_MAX} bytes", "it is a few lines of keys")
    return parsed(content, path)


def foreign_allowance(environ: Mapping[str, str]) -> PlanPermissions:
    """What the user lets plans by agents do."""
    from headway.plans.untrusted import allowance_of

    values = read_configuration(environ).values
    return allowance_of(values.foreign_agents, values.foreign_works)


def parsed(content: bytes, path: str) -> Configured:
    """A file's content as a configuration."""
    import tomllib

    try:
        found = tomllib.loads(content.decode())
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as fault:
        hint = "lines are like `ask_above_usd = 5`"
        raise _refused(path, f"is not TOML: {fault}", hint) from None
    known = {name: getattr(Configuration(), name) for name in Configuration.__struct_fields__}
    changes: dict[str, Any] = {}
    for key, value in found.items():
        if key not in known:
            raise _refused(path, f"has a key that there is not: `{key}`", did_you_mean(key, known))
        if key in NAMES:
            changes[key] = _tables(path, key, value)
        else:
            changes[key] = _checked(path, key, value, known[key])
    return Configured(Configuration(**changes), path, is_there=True, set_here=frozenset(found))


def _checked(path: str, key: str, value: Any, default: object) -> float | str | bool:
    kind, wanted = {
        bool: (bool, "true or false"),
        float: (int | float, "a number, at least 0"),
        str: (str, "text in quotes"),
    }[type(default)]
    is_fit = isinstance(value, kind) and isinstance(value, bool) is isinstance(default, bool)
    if is_fit and value != "" and (isinstance(value, str) or 0 <= value < float("inf")):
        return float(value) if isinstance(default, float) else value
    raise _refused(path, f"sets `{key}` to {value!r}, which has to be {wanted}", ABOUT[key])


def _tables(path: str, key: str, value: object) -> tuple[Table, ...]:
    """What is under `[agents.NAME]`, `[mcp.NAME]` or `[notify.NAME]`."""
    from headway.agents.kinds import KINDS, setting_of

    if not isinstance(value, dict):
        raise _refused(path, f"sets `{key}` to {value!r}, which has to be tables", ABOUT[key])
    taken = (*KINDS, LOOP) if key == "agents" else ()
    found: list[Table] = []
    for name, table in value.items():
        whole = f"[{key}.{name}]"
        if not isinstance(table, dict):
            raise _refused(path, f"has `{key}.{name}`, which is no table", ABOUT[key])
        if not NAMES[key].fullmatch(name) or name in taken:
            hint = "a name is small letters, digits and `-`, and none that is known already"
            raise _refused(path, f"has {whole}, which cannot be named so", hint)
        try:
            if key == "agents":
                found.append(setting_of(name, table))
            else:
                found.append(_server_of(name, table) if key == "mcp" else _receiver_of(name, table))
        except BadValueError as fault:
            raise _refused(path, f"{whole} {fault.message}", fault.hint or ABOUT[key]) from None
    return tuple(found)


def _server_of(name: str, table: Mapping[str, object]) -> McpServer:
    """An MCP server; raises BadValueError."""
    from headway.agents.kinds import words_of
    from headway.agents.tools_mcp import McpServer

    for key in table:
        if key not in SERVER_KEYS:
            hint = did_you_mean(key, SERVER_KEYS)
            raise BadValueError(f"has a key that there is not: `{key}`", hint=hint)
    url, environment = table.get("url", ""), table.get("environment", {})
    if ("command" in table) == ("url" in table):
        raise BadValueError("has either a `command` or a `url`")
    if not isinstance(url, str) or ("url" in table and not url.startswith(("http://", "https://"))):
        raise BadValueError("has a `url` that is no address")
    if not isinstance(environment, dict) or not all(
        isinstance(one, str) for one in environment.values()
    ):
        raise BadValueError("has an `environment` that is not a table of texts")
    command = words_of("command", table["command"], ()) if "command" in table else ()
    return McpServer(name, command, url, tuple(sorted(environment.items())))


def _receiver_of(name: str, table: Mapping[str, object]) -> NoticeReceiver:
    """A receiver of notices; raises BadValueError."""
    from headway.agents.kinds import words_of

    known = [one for one in NoticeReceiver.__struct_fields__ if one != "name"]
    for key in table:
        if key not in known:
            raise BadValueError(
                f"has a key that there is not: `{key}`", hint=did_you_mean(key, known)
            )
    if sum(map(bool, (table.get("command"), table.get("webhook"), table.get("desktop")))) != 1:
        raise BadValueError("has one of `command`, `webhook` and `desktop = true`")
    webhook, form, on = table.get("webhook", ""), table.get("format", "json"), table.get("on")
    if not isinstance(webhook, str) or (
        webhook and not webhook.startswith(("http://", "https://"))
    ):
        raise BadValueError("has a `webhook` that is no address")
    if form not in ("json", "slack"):
        raise BadValueError(f"has the format {form!r}", hint='format = "json", or "slack"')
    kinds = NOTICES if on is None else on
    if not isinstance(kinds, list | tuple) or not set(kinds) <= set(NOTICES):
        raise BadValueError(f"has `on` with {kinds!r}", hint=f"a list of {', '.join(NOTICES)}")
    for key in ("desktop", "texts"):
        if not isinstance(table.get(key, False), bool):
            raise BadValueError(f"has `{key}` that is neither true nor false")
    command = words_of("command", table["command"], ()) if "command" in table else ()
    return NoticeReceiver(
        name, command, webhook, bool(table.get("desktop")), str(form), tuple(kinds),
        bool(table.get("texts")),
    )  # fmt: skip


def _refused(path: str, why: str, hint: str) -> StateFileError:
    return StateFileError(f"{path} {why}", hint=hint)


SWITCHES: Final = ("HEADWAY_UNPACED", "HEADWAY_DEBUG", "NO_COLOR")


def settings(environ: Mapping[str, str]) -> list[tuple[str, object, str]]:
    """Key, value and source of every setting."""
    configured = read_configuration(environ)
    found: list[tuple[str, object, str]] = []
    values = configured.values
    for key in values.__struct_fields__:
        value = getattr(values, key)
        shown = str(value).lower() if isinstance(value, bool) else value
        if key not in NAMES:
            found.append((key, shown, configured.path if key in configured.set_here else "default"))
    # Of a server's environment nothing is shown: keys are in it.
    for agent in values.agents:
        found.append((f"agents.{agent.name}", str(agent), configured.path))
    for server in values.mcp:
        how = shlex.join(server.command) or server.url
        found.append((f"mcp.{server.name}", how, configured.path))
    for receiver in values.notify:  # An address of a webhook is a key to it.
        how = shlex.join(receiver.command) or ("webhook" if receiver.webhook else "desktop")
        found.append((f"notify.{receiver.name}", how, configured.path))
    place = folders(environ)
    for name, path, variable, shared in (
        ("state", place.state, STATE_DIR, "XDG_STATE_HOME"),
        ("runtime", place.runtime, RUNTIME_DIR, "XDG_RUNTIME_DIR"),
    ):
        source = variable if environ.get(variable) else shared if environ.get(shared) else "default"
        found.append((f"{name} folder", path, source))
    for variable in SWITCHES:
        if environ.get(variable):
            found.append((variable, environ[variable], "environment"))
    return found
