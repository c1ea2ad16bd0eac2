"""The `sim` verb: workloads against a simulated provider, in virtual time."""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import Sequence
from contextlib import suppress
from importlib.util import find_spec
from io import TextIOWrapper
from json import dumps
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from headway.base.codec import as_dict
from headway.base.numbers import number_of, share_of
from headway.base.values import MINUTE_S, Charging, Limit, LimitKind, Resource
from headway.cli.main import Body, Commands, add_command, add_commands, add_json
from headway.errors import BadValueError, UsageError, did_you_mean
from headway.report.text.terminal import progress_line
from headway.report.text.words import console_for, finite

if TYPE_CHECKING:
    import asyncio

    from headway.sim.account import Terms, UsageWindow
    from headway.sim.compare import Comparison, Contender, Experiment
    from headway.sim.provider import ProviderSpec
    from headway.sim.server import ServeOptions, SimServer


VIRTUAL: Final = "Virtual time, simulated provider: no key, nothing is sent."

DEMO: Final = (
    ("all at once, aggressive retries", "all-at-once+aggressive"),
    ("all at once, SDK retries", "all-at-once+sdk"),
    ("waves of 4", "waves:4"),
    ("pool of 5", "fixed:5"),
    ("headway, cold", "headway"),
    ("headway, known limits", "headway+known"),
)
DRAWN: Final = (0, 2, 5)

DEMO_EXAMPLES: Final = """\
examples:
  headway sim demo                      22 agents on a congested account
  headway sim demo --preset slots       the same figures through a concurrency limit
  headway sim demo --seed 7 --json      other draws, for a program
"""

COMPARE_EXAMPLES: Final = """\
strategies:
  all-at-once, waves:N, fixed:N         unpaced; retries as the SDKs do, until it works
  fixed:1..22                           one row for each width
  ...+sdk, ...+aggressive               two retries; waits that grow without end
  aimd, cubic                           one law moves how many are in flight
  headway                               nothing known beforehand
  headway+profile, +limits, +known      learned on other seeds, configured, or both
  headway+seen                          what is left of each limit is known from a moment ago
  headway+hidden                        the provider sends no headers

examples:
  headway sim compare --provider trap --strategy fixed:1..22 headway
  headway sim compare --provider burst-3s --workload tasks-1000 --seeds 3 --json
  headway sim compare --provider my-account.yaml --workload my-agents.yaml
  headway sim compare --provider neighbour --strategy headway --share 50% --pace smooth
"""

PRESETS_EXAMPLES: Final = """\
examples:
  headway sim presets
  headway sim presets --json
"""

SEED_MAX: Final = 2**62

SERVE_ABOUT: Final = (
    "A simulated provider behind real HTTP, in real time: Anthropic Messages, OpenAI Chat "
    "Completions and OpenAI Responses, with limits, latency, faults and a record of the truth. "
    "Any API key is accepted; each has an account of its own. No real provider is called."
)

SERVE_EXAMPLES: Final = """\
models, by the name in the request: echo, hash, tokens-N, tokens-A-B, agent, script
faults, by --fault KIND=SHARE or per request by the header `x-sim-fault: KIND`:
  429-bare 429-misleading 429-text 500 503-html 529 billing spend-cap
  error-event cut hang stall malformed slow-start gzip

examples:
  headway sim serve --rpm 500 --tpm 100k --concurrent 20
  headway sim serve --provider burst-3s --port 8080
  headway sim serve --provider my-account.yaml --dialect groq --fault cut=2% --seed 7
  curl -s localhost:8080/v1/messages -H 'x-api-key: any' \\
    -d '{"model": "echo", "max_tokens": 99, "messages": [{"role": "user", "content": "hello"}]}'
  curl -s localhost:8080/truth
"""


def arguments(parser: argparse.ArgumentParser) -> Body:
    commands = add_commands(parser)
    demo = _command(commands, "demo", "22 agents on one account, six ways", DEMO_EXAMPLES, _demo)
    demo.add_argument("--preset", metavar="P", default="trap", help="a provider (default: trap)")
    demo.add_argument("--no-timeline", action="store_true", help="only the table")
    _add_seeds(demo)

    about = "one workload, one provider, any strategies"
    compare = _command(commands, "compare", about, COMPARE_EXAMPLES, _compare)
    add = compare.add_argument
    add("--provider", metavar="P", default="trap", help="a preset or a file")
    add("--workload", metavar="W", help="a preset or a file")
    add("--strategy", metavar="S", nargs="+", action="extend",
        help="see below (default: several)")  # fmt: skip
    add("--share", metavar="50%", default="100%", help="headway takes at most this of each limit")
    add("--pace", choices=("fast", "smooth"), default="fast", help="smooth: evenly, no bursts")
    _add_seeds(compare)

    presets = _command(commands, "presets", "what can be named", PRESETS_EXAMPLES, _presets)
    add_json(presets, "for programs")
    _add_serve(commands)
    return _demo


def _command(
    commands: Commands, name: str, summary: str, examples: str, run: Body
) -> argparse.ArgumentParser:
    about = f"{summary[0].upper()}{summary[1:]}. {VIRTUAL}"
    return add_command(commands, name, summary, examples, run, about)


def _add_seeds(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--seed", metavar="N", default="1", help="the first seed (default: 1)")
    parser.add_argument("--seeds", metavar="N", default="5", help="how many (default: 5)")
    add_json(parser, "rows for programs, on stdout")


def _demo(parsed: argparse.Namespace) -> int:
    from headway.sim.compare import Experiment, parse_contenders
    from headway.sim.presets import find_provider, find_workload

    provider = find_provider(parsed.preset)
    experiment = Experiment(provider.spec, find_workload(provider.workload), _seeds(parsed))
    contenders = [replace(parse_contenders(strategy)[0], name=name) for name, strategy in DEMO]
    drawn = () if parsed.no_timeline else DRAWN
    return _perform(parsed, experiment, contenders, drawn, provider.about)


def _compare(parsed: argparse.Namespace) -> int:
    from headway.sim.compare import Experiment, parse_contenders
    from headway.sim.presets import find_provider, find_workload

    words = parsed.strategy or [strategy for _, strategy in DEMO]
    contenders = [contender for word in words for contender in parse_contenders(word)]
    provider = find_provider(parsed.provider)
    workload = find_workload(parsed.workload or provider.workload)
    share = share_of(parsed.share)
    if share is None:
        raise BadValueError(
            f"`--share` is {parsed.share!r}: it must be more than 0 and at most 100%",
            hint="write `--share 50%`",
        )
    experiment = Experiment(provider.spec, workload, _seeds(parsed), share, parsed.pace)
    return _perform(parsed, experiment, contenders, (), provider.about)


def _presets(parsed: argparse.Namespace) -> int:
    from headway.sim.presets import PROVIDERS, WORKLOADS

    found = [
        *(("provider", preset.name, preset.about) for preset in PROVIDERS.values()),
        *(("workload", preset.name, preset.about) for preset in WORKLOADS.values()),
    ]
    if parsed.json:
        keys = ("kind", "name", "about")
        print(dumps([dict(zip(keys, preset, strict=True)) for preset in found], indent=2))
        return 0
    above = ""
    for kind, name, about in found:
        if kind != above:
            print(f"{kind}s:")
        print(f"  {name:18} {about}")
        above = kind
    return 0


def _seeds(parsed: argparse.Namespace) -> tuple[int, ...]:
    first = whole_number("--seed", parsed.seed, SEED_MAX)
    count = whole_number("--seeds", parsed.seeds, 1000, least=1)
    return tuple(range(first, first + count))


def _perform(
    parsed: argparse.Namespace, experiment: Experiment, contenders: Sequence[Contender],
    drawn: Sequence[int], about: str,
) -> int:  # fmt: skip
    from headway.sim.compare import compare

    with progress_line(sys.stderr) as say:
        compared = compare(
            experiment, contenders, lambda name, over, total: say(f"{over}/{total} {name}")
        )
    if parsed.json:
        # JSON has no infinity: what never ended is null.
        rows = [as_dict(row) for row in compared.rows]
        print(dumps(finite(rows), indent=2, allow_nan=False))
    else:
        _show(experiment, compared, drawn, about)
    return 0


def _show(experiment: Experiment, compared: Comparison, drawn: Sequence[int], about: str) -> None:
    from headway.report.tables import lanes_of
    from headway.report.text.table import caption, conclusion, draw_table
    from headway.report.text.timeline import draw_legend, draw_timeline

    if isinstance(sys.stdout, TextIOWrapper):
        # A name may be in a script that the output cannot encode: better a `?` than no table.
        sys.stdout.reconfigure(errors="replace")
    labels, rows = experiment.workload.labels, compared.rows
    names = dict.fromkeys((experiment.provider.name, experiment.workload.name))
    print(f"{len(labels)} agents on one account ({', '.join(names)}): {about}")
    print(VIRTUAL, end="\n\n", flush=True)
    console = console_for(sys.stdout)
    draw_table(console, rows, (caption(rows, compared.binding, compared.fair_binding),))
    ends = [compared.first[i].makespan_s for i in drawn if compared.first[i].makespan_s < inf]
    for i in drawn if ends else ():
        title = f"{rows[i].strategy}, seed {experiment.seeds[0]}"
        lanes = lanes_of(compared.first[i], len(labels))
        draw_timeline(console, title, lanes, labels, max(ends))
    if ends:
        draw_legend(console)
    print(f"\n{conclusion(rows)}")


# `headway sim serve`: a simulated provider that real clients can call.


def _add_serve(commands: Commands) -> None:
    about = "a provider for real clients, over HTTP, in real time"
    serve = add_command(commands, "serve", about, SERVE_EXAMPLES, _serve, SERVE_ABOUT)
    serve.add_argument("--provider", metavar="P", help="a preset or a file; see `sim presets`")
    limits = serve.add_argument_group("limits, instead of the preset's")
    add = limits.add_argument
    add("--rpm", metavar="N", help="requests a minute")
    add("--tpm", metavar="N", help="tokens a minute, input and output: 100k")
    add("--itpm", metavar="N", help="input tokens a minute")
    add("--otpm", metavar="N", help="output tokens a minute")
    add("--concurrent", metavar="N", help="calls at once")
    add("--kind", choices=("bucket", "sliding", "fixed"), help="how limits count (default: bucket)")
    add(
        "--charging", choices=("reserved", "kept", "produced"),
        help="of output: max_tokens at admission, the rest back at the end, as OpenAI does "
        "(default with --tpm), or nothing back, or as it is produced, as Anthropic does",
    )  # fmt: skip
    add("--burst-s", metavar="S", help="buckets hold S seconds (default: 60)")
    add(
        "--window", metavar="5h=N", action="append", default=[],
        help="tokens in a usage window, in Anthropic's headers; 5h=200k/30s: one "
        "that lasts only 30 seconds; 5h=200k+: calls beyond it are let in; 7d_oi=200k@M: of the "
        "model M only; may be repeated",
    )  # fmt: skip
    speed = serve.add_argument_group("speed, instead of the preset's")
    speed.add_argument("--first-byte-s", metavar="S", help="to the first byte, alone")
    speed.add_argument("--per-token-s", metavar="S", help="for each token of output, alone")
    speed.add_argument("--sigma", metavar="X", help="what company costs, in proportion")
    speed.add_argument("--kappa", metavar="X", help="what company costs, by pairs")
    answers = serve.add_argument_group("answers")
    answers.add_argument("--model", metavar="M", help="for other names (default: tokens-200)")
    answers.add_argument("--script", metavar="FILE", help="rules of the model `script`")
    answers.add_argument("--dialect", metavar="D", help="of headers and errors, on every wire")
    answers.add_argument("--fault", metavar="KIND=SHARE", action="append", default=[],
                         help="may be repeated")  # fmt: skip
    answers.add_argument("--seed", metavar="N", default="1", help="of faults (default: 1)")
    where = serve.add_argument_group("where")
    where.add_argument("--host", metavar="H", default="127.0.0.1", help="default: this machine")
    where.add_argument("--port", metavar="N", default="0", help="default: 0, any that is free")
    where.add_argument("--ready-file", metavar="FILE", help="written with the URL when ready")
    add_json(where, "say where as a line of JSON")
    where.add_argument("--parent", type=int, metavar="PID",
                       help="end when this process, which started it, is gone")  # fmt: skip


def _serve(parsed: argparse.Namespace) -> int:
    import asyncio

    if find_spec("aiohttp") is None:
        hint = "pip install aiohttp"
        raise UsageError("`headway sim serve` needs the package aiohttp", hint=hint)
    spec, options = _spec(parsed), _options(parsed)
    with suppress(KeyboardInterrupt):
        asyncio.run(_serving(spec, options, parsed))
    return 0


async def _serving(spec: ProviderSpec, options: ServeOptions, parsed: argparse.Namespace) -> None:
    import asyncio

    from headway.sim.server import SimServer

    server, over = SimServer(spec, options), asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        # Where loops cannot take signals, the interpreter's own handling ends the command.
        with suppress(NotImplementedError):
            loop.add_signal_handler(number, over.set)
    await server.start()
    watch = loop.create_task(_outlive(parsed.parent, over)) if parsed.parent else None
    try:
        _announce(server, spec, parsed)
        await over.wait()
    finally:
        if watch is not None:
            watch.cancel()
        await server.stop()


async def _outlive(parent: int, over: asyncio.Event) -> None:
    """Set `over` when the parent is gone: this process then has another parent."""
    import asyncio

    while os.getppid() == parent:
        await asyncio.sleep(0.5)
    over.set()


def _announce(server: SimServer, spec: ProviderSpec, parsed: argparse.Namespace) -> None:
    if parsed.ready_file:
        try:
            # A reader must not see half of the file.
            half = Path(f"{parsed.ready_file}.tmp")
            half.write_text(f"{server.url}\n", encoding="utf-8")
            half.replace(parsed.ready_file)
        except OSError as error:
            message = f"cannot write `--ready-file`: {error.strerror}"
            raise BadValueError(message, where=parsed.ready_file) from error
    if parsed.json:
        print(dumps({"url": server.url, "port": server.port, "provider": spec.name}), flush=True)
        return
    shown = [
        f"{one.amount:,.0f} at once" if one.kind == "gauge"
        else f"{one.amount:,.0f} {one.resource}/{one.period_s:g}s"
        for one in spec.terms.limits
    ]  # fmt: skip
    shown += [f"{one.tokens:,.0f} tokens in a usage window" for one in spec.terms.windows]
    limits = ", ".join(shown) or "no limits"
    print(
        f"{server.url}  {spec.name}: {limits}",
        f"ANTHROPIC_BASE_URL={server.url}",
        f"OPENAI_BASE_URL={server.url}/v1",
        f"GOOGLE_GEMINI_BASE_URL={server.url}",
        f"what really happened: {server.url}/truth",
        sep="\n  ", flush=True,
    )  # fmt: skip


def _spec(parsed: argparse.Namespace) -> ProviderSpec:
    from headway.sim.presets import find_provider
    from headway.sim.provider import ProviderSpec

    spec = find_provider(parsed.provider).spec if parsed.provider else ProviderSpec("served")
    latency = spec.latency
    if not parsed.provider:
        latency = replace(latency, first_byte_s=0.2, per_output_token_s=0.005)
    given = {
        "first_byte_s": _number("--first-byte-s", parsed.first_byte_s),
        "per_output_token_s": _number("--per-token-s", parsed.per_token_s),
        "sigma": _number("--sigma", parsed.sigma),
        "kappa": _number("--kappa", parsed.kappa),
    }
    latency = replace(latency, **{key: one for key, one in given.items() if one is not None})
    return replace(spec, terms=_terms(spec.terms, parsed), latency=latency)


def _terms(terms: Terms, parsed: argparse.Namespace) -> Terms:
    burst_s = _number("--burst-s", parsed.burst_s, above=True)
    kind: LimitKind = parsed.kind or "bucket"
    if burst_s is not None and kind != "bucket":
        raise BadValueError("only a bucket has a burst", hint="leave out `--burst-s` or `--kind`")
    resources: tuple[tuple[Resource, str, str | None], ...] = (
        ("requests", "--rpm", parsed.rpm), ("tokens", "--tpm", parsed.tpm),
        ("input", "--itpm", parsed.itpm), ("output", "--otpm", parsed.otpm),
    )  # fmt: skip
    limits = []
    for resource, option, text in resources:
        amount = _number(option, text, above=True)
        if amount is not None:
            burst = None if burst_s is None else amount / MINUTE_S * burst_s
            limits.append(Limit(resource, amount, MINUTE_S, kind, burst))
    slots = _number("--concurrent", parsed.concurrent, above=True)
    if slots is not None:
        limits.append(Limit("concurrency", slots, 0.0, "gauge"))
    if not limits and (burst_s is not None or parsed.kind or parsed.charging):
        raise BadValueError("there is no limit to change", hint="add `--rpm 500`")
    if parsed.window:
        terms = replace(terms, windows=tuple(_window(text) for text in parsed.window))
    if not limits:
        return terms
    charging: Charging = parsed.charging or ("reserved" if parsed.tpm else "produced")
    return replace(terms, limits=tuple(limits), charging=charging)


def _window(text: str) -> UsageWindow:
    """`5h=200k`, `5h=200k+` for one beyond which calls are let in, `7d_oi=200k@M` for one of a
    model, or `5h=200k/30s` for one that lasts only 30 seconds."""
    from headway.sim.account import UsageWindow

    name, _, rest = text.partition("=")
    rest, _, model = rest.partition("@")
    tokens, slash, lasts = rest.partition("/")
    if not name or not rest or (slash and not lasts.endswith("s")):
        hint = "write `--window 5h=200k` or `--window 7d=2M`, or `5h=200k/30s` for a short one"
        raise BadValueError(f"`--window` is {text!r}", hint=hint)
    amount = _number("--window", tokens.removesuffix("+"), above=True) or 0.0
    lasts_s = _number("--window", lasts[:-1], above=True) if slash else None
    return UsageWindow(amount, name, lasts_s, model, tokens.endswith("+"))


def _options(parsed: argparse.Namespace) -> ServeOptions:
    from headway.sim.delivery import parse_shares
    from headway.sim.headers import DIALECT_NAMES
    from headway.sim.models import DEFAULT_MODEL, SimulatedModels, must_be_model, read_script
    from headway.sim.server import ServeOptions

    if parsed.dialect is not None and parsed.dialect not in DIALECT_NAMES:
        raise BadValueError(
            f"`--dialect` is {parsed.dialect!r}", hint=did_you_mean(parsed.dialect, DIALECT_NAMES)
        )
    script = read_script(parsed.script) if parsed.script else ()
    name = must_be_model(parsed.model or ("script" if script else DEFAULT_MODEL))
    if name == "script" and not script:
        raise BadValueError("the model `script` needs rules", hint="add `--script rules.yaml`")
    seed, models = whole_number("--seed", parsed.seed, SEED_MAX), SimulatedModels(name, script)
    return ServeOptions(
        seed, parsed.dialect, models,
        parse_shares(parsed.fault), parsed.host, whole_number("--port", parsed.port, 65_535),
    )  # fmt: skip


def _number(option: str, text: str | None, above: bool = False) -> float | None:
    if text is None:
        return None
    number = number_of(text)
    if number is None or not 0.0 <= number <= 1e12 or (above and number == 0.0):
        least = "more than 0" if above else "at least 0"
        raise BadValueError(f"`{option}` is {text!r}: it must be a number, {least}")
    return number


def whole_number(option: str, text: str, most: int, least: int = 0) -> int:
    is_number = text.isascii() and text.isdigit() and len(text) <= len(str(most))
    if not is_number or not least <= int(text) <= most:
        message = f"`{option}` is {text!r}: it must be a whole number from {least} to {most}"
        raise BadValueError(message)
    return int(text)
