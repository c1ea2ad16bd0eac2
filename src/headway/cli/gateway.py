"""The `gateway` verb: a local endpoint that paces any unmodified agent or SDK."""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from shlex import quote
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from headway.base.folders import Folders, folders
from headway.cli.main import Body, HelpText, Parser, add_json
from headway.errors import GatewayError, HeadwayError, UsageError

if TYPE_CHECKING:
    from headway.gateway.background import RunningGateway
    from headway.gateway.counters import Sums
    from headway.gateway.settings import GatewayOptions, GatewaySettings

SHELLS: Final = ("sh", "fish", "json")

DRAIN: Final = "30s"
STOP_MORE_S: Final = 10.0
"""Beyond its drain, a gateway has so long to end."""

EXAMPLES: Final = """\
examples:
  headway gateway -- claude                 a gateway of its own for one command
  headway gateway -- codex exec 'fix the tests'
  headway gateway                           your gateway, until Ctrl-C; --detach: in the background
  eval "$(headway gateway env)"             point what this shell starts at it
  headway gateway env --shell fish | source
  headway gateway status                    clients, held calls, absorbed refusals
  headway gateway stop                      calls in flight may end
  headway gateway --upstream http://127.0.0.1:8080 -- claude -p hello
  headway gateway --upstream groq=https://api.groq.com/openai/v1 --key groq=GROQ_API_KEY
  headway gateway --record calls.hwr -- claude -p hello
  headway gateway --interactive -- my-agent  you wait for it: its calls go before those of runs

Calls are held until the account has room for them, and are never refused for being many.
"""


def main(arguments: Sequence[str]) -> int:
    """Words after `--` are a command to run under a gateway of its own."""
    words = list(arguments)
    at = words.index("--") if "--" in words else len(words)
    own, command = words[:at], words[at + 1 :]
    parser = Parser(
        prog="headway gateway",
        description="A local endpoint that paces any unmodified agent or SDK.",
        epilog=EXAMPLES,
        formatter_class=HelpText,
    )
    options(parser)
    try:
        parsed = parser.parse_args(own)
    except SystemExit:
        return 0
    except UsageError as error:
        if "has no command" not in error.message:
            raise
        hint = f"{error.hint}; a command to run comes after `--`, like `headway gateway -- claude`"
        raise UsageError(error.message, hint=hint) from None
    if at < len(words) and not command:
        raise UsageError("there is no command after `--`", hint="headway gateway -- claude")
    if parsed.command is not None:
        if command:
            raise UsageError(f"`headway gateway {parsed.command}` takes no command after `--`")
        run: Body = parsed.run
        return run(parsed)
    if parsed.interactive and not command:
        hint = "headway gateway --interactive -- my-agent"
        raise UsageError("`--interactive` is for a command after `--`", hint=hint)
    return _accompany(parsed, command) if command else _serve(parsed)


def options(parser: argparse.ArgumentParser) -> None:
    """Everything before `--`; also for completion."""
    add = parser.add_argument
    add("--upstream", metavar="[NAME=]URL", action="append", default=[],
        help="a provider; without NAME: where all calls go; may be repeated")  # fmt: skip
    add("--key", metavar="NAME=VARIABLE", action="append", default=[],
        help="the gateway adds the key that this variable holds")  # fmt: skip
    add("--wait", metavar="TIME",
        help="hold a call at most this long (default: as its client's timeout allows)")  # fmt: skip
    add("--silent", metavar="TIME", help="send keep-alives after so long "
        "(default: before their client would time out)")  # fmt: skip
    add("--record", metavar="FILE", help="add calls and their answers to it")
    add("--replay", metavar="FILE", help="answer recorded calls from this file")
    add("--host", metavar="H", default="127.0.0.1", help="of this machine only")
    add("--port", metavar="N", help="0: any (default: 4929; for a command: 0)")
    add("--drain", metavar="TIME", default=DRAIN,
        help=f"how long calls in flight may take at the end (default: {DRAIN})")  # fmt: skip
    add("--detach", action="store_true", help="return when it listens")
    add("--interactive", action="store_true",
        help="you wait for the command: its calls go before those of runs")  # fmt: skip
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", dest="command")
    env = commands.add_parser("env", help="the variables that point clients at your gateway")
    env.add_argument("--shell", choices=SHELLS, default="sh", help=f"{', '.join(SHELLS)}")
    add_json(env)
    env.set_defaults(run=_env)
    status = commands.add_parser("status", help="clients, held calls, absorbed refusals")
    add_json(status)
    status.set_defaults(run=_status)
    stop = commands.add_parser("stop", help="end your gateway; calls in flight may end")
    stop.add_argument("--now", action="store_true", help="and those in flight are cut off")
    stop.set_defaults(run=_stop)


def _serve(parsed: argparse.Namespace) -> int:
    from headway.gateway import background
    from headway.gateway.environment import shared_home

    place = folders(os.environ)
    settings = replace(_settings(parsed, None), home=os.path.realpath(shared_home(place)))
    if not parsed.detach:
        from headway.gateway.server import run, serve

        with background.claimed(place):
            run(serve(settings, place, _say, lambda running: _say(_where(running))))
        return 0
    ready = background.detach(place)
    if ready is None:
        found = background.find(place)
        if found is not None:
            print(_where(found), file=sys.stderr)
        return 0
    return _alone(settings, place, ready)


def _alone(settings: GatewaySettings, place: Folders, ready: int) -> int:
    from headway.gateway import background
    from headway.gateway.server import run, serve

    def announce(running: RunningGateway) -> None:
        _say(_where(running))
        background.ready(ready)

    code = 1
    try:
        with background.claimed(place):
            run(serve(settings, place, _say, announce))
            code = 0
    except HeadwayError as error:
        background.ready(ready, error.message)
    sys.stderr.flush()
    # What the first process has buffered is not written twice.
    os._exit(code)


def _accompany(parsed: argparse.Namespace, command: Sequence[str]) -> int:
    if parsed.detach:
        raise UsageError("a command and `--detach` do not go together")
    from headway.gateway.environment import command_environment, made_home
    from headway.gateway.replay import home_in
    from headway.gateway.server import NOT_STARTED, accompany, last_line, perform, run

    place = folders(os.environ)
    asked = _options(parsed, "0")
    before = None if asked.needs_own else _came_by()
    if before is not None:
        code = run(perform(command, os.environ))
        after = _came_by()
        if after is not None and code not in NOT_STARTED:
            _say(last_line(command[0], after.since(before) if after.calls > before.calls else None))
        return code
    settings = _settings(parsed, "0")
    recording = settings.replay or settings.record
    wanted = home_in(recording) if recording else ""
    with made_home(place, wanted) as home:
        now = os.path.realpath(home)
        folder, number = os.path.split(wanted)
        if wanted != now and folder == os.path.dirname(now) and number.isdigit():
            name = os.path.basename(recording or "")
            _say(
                f"another command uses home {number} of {name}; calls that contain its path will "
                "be sent and paid"
            )

        def variables(url: str, token: str) -> Mapping[str, str]:
            return command_environment(url, token, settings.upstreams, os.environ, home)

        return run(accompany(replace(settings, home=now), _say, command, variables))


def _env(parsed: argparse.Namespace) -> int:
    from headway.gateway.environment import shared_environment

    place = folders(os.environ)
    running = _found(place)
    variables = shared_environment(running, place, os.environ)
    shell = "json" if parsed.json else parsed.shell
    if shell == "json":
        print(json.dumps(variables, indent=2))
        return 0
    for name, value in variables.items():
        fish = value.replace("\\", "\\\\").replace("'", "\\'")
        print(f"set -gx {name} '{fish}'" if shell == "fish" else f"export {name}={quote(value)}")
    return 0


def _status(parsed: argparse.Namespace) -> int:
    from headway.gateway import background

    running = _found(folders(os.environ))
    content = background.page(f"{running.url}/{running.token}", "status")
    if content is None:
        raise GatewayError(
            f"the gateway at {running.url} does not answer", hint="headway gateway stop --now"
        )
    found = json.loads(content)
    if parsed.json:
        shown = {"url": running.url, "pid": running.pid, "upstreams": dict(running.upstreams),
                 "adds_key": list(running.adds_key), **found}  # fmt: skip
        print(json.dumps(shown, ensure_ascii=False))
        return 0
    from headway.report.text.accounts import gateway_lines

    print(f"gateway at {running.url}, process {running.pid}")
    for line in gateway_lines(found):
        print(line)
    return 0


def _stop(parsed: argparse.Namespace) -> int:
    from headway.gateway import background

    place = folders(os.environ)
    running = background.find(place)
    if running is None:
        print("no gateway runs", file=sys.stderr)
        return 0
    if parsed.now:
        background.end_now(running)
    ended = background.stop(place, running, running.drain_s + STOP_MORE_S)
    if not ended:
        raise GatewayError(
            f"the gateway, process {running.pid}, has not ended", hint="headway gateway stop --now"
        )
    return 0


def _found(place: Folders) -> RunningGateway:
    from headway.gateway import background

    running = background.find(place)
    if running is None:
        raise GatewayError("no gateway of yours runs", hint="headway gateway --detach")
    return running


def _settings(parsed: argparse.Namespace, port: str | None) -> GatewaySettings:
    from headway.gateway.environment import whole_settings

    if find_spec("aiohttp") is None:
        raise UsageError("the gateway needs the package aiohttp", hint="pip install aiohttp")
    return whole_settings(_options(parsed, port), os.environ, os.getcwd())


def _options(parsed: argparse.Namespace, port: str | None) -> GatewayOptions:
    from headway.gateway.settings import GatewayOptions

    return GatewayOptions(
        tuple(parsed.upstream), tuple(parsed.key), parsed.host, parsed.port or port,
        parsed.wait, parsed.silent, parsed.record, parsed.replay, parsed.drain,
        parsed.interactive,
    )  # fmt: skip


def _came_by() -> Sums | None:
    """What has come by the gateway to which this shell's clients go; `None` if none answers."""
    from headway.client.accounts import GATEWAY_VARIABLE
    from headway.gateway.background import page
    from headway.gateway.counters import Sums

    content = page(os.environ.get(GATEWAY_VARIABLE, ""), "status")
    return None if content is None else Sums(**json.loads(content)["total"])


def _where(running: RunningGateway) -> str:
    return f'gateway at {running.url}; point clients at it with: eval "$(headway gateway env)"'


def _say(line: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} headway {line}", file=sys.stderr, flush=True)
