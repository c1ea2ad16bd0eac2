"""The `sim` verb: workloads against a simulated provider, in virtual time."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from io import TextIOWrapper
from json import dumps
from math import inf
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from headway.base.codec import as_dict
from headway.base.numbers import share_of
from headway.cli.main import Body, Commands, add_command, add_commands, add_json
from headway.cli.serve import SEED_MAX, add_serve, whole_number
from headway.errors import BadValueError

if TYPE_CHECKING:
    from headway.report.tables import StrategyRow
    from headway.sim.compare import Comparison, Contender, Experiment


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
"""The rows of the demo that are drawn as timelines."""

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
    add_serve(commands)
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
    from headway.sim.preset_file import find_provider, find_workload

    provider = find_provider(parsed.preset)
    experiment = Experiment(provider.spec, find_workload(provider.workload), _seeds(parsed))
    contenders = [replace(parse_contenders(strategy)[0], name=name) for name, strategy in DEMO]
    compared = _run(experiment, contenders)
    if parsed.json:
        return _print_json(compared.rows)
    _show(experiment, compared, () if parsed.no_timeline else DRAWN, provider.about)
    return 0


def _compare(parsed: argparse.Namespace) -> int:
    from headway.sim.compare import Experiment, parse_contenders
    from headway.sim.preset_file import find_provider, find_workload

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
    compared = _run(experiment, contenders)
    if parsed.json:
        return _print_json(compared.rows)
    _show(experiment, compared, (), provider.about)
    return 0


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


def _run(experiment: Experiment, contenders: Sequence[Contender]) -> Comparison:
    from headway.report.text.terminal import progress_line
    from headway.sim.compare import compare

    with progress_line(sys.stderr) as say:
        return compare(
            experiment, contenders, lambda name, over, total: say(f"{over}/{total} {name}")
        )


def _show(experiment: Experiment, compared: Comparison, drawn: Sequence[int], about: str) -> None:
    from headway.report.text.table import caption, conclusion, draw_table
    from headway.report.text.timeline import Picture, draw_timelines
    from headway.report.text.words import console_for

    if isinstance(sys.stdout, TextIOWrapper):
        # A name may be in a script that the output cannot encode: better a `?` than no table.
        sys.stdout.reconfigure(errors="replace")
    labels, rows = experiment.workload.labels, compared.rows
    names = dict.fromkeys((experiment.provider.name, experiment.workload.name))
    print(f"{len(labels)} agents on one account ({', '.join(names)}): {about}")
    print(VIRTUAL, end="\n\n", flush=True)
    console = console_for(sys.stdout)
    draw_table(console, rows, (caption(rows, compared.binding),))
    pictures = [
        Picture(f"{rows[i].strategy}, seed {experiment.seeds[0]}", compared.first[i], labels)
        for i in drawn
    ]
    ends = [compared.first[i].makespan_s for i in drawn if compared.first[i].makespan_s < inf]
    if ends:
        draw_timelines(console, pictures, max(ends))
    print(f"\n{conclusion(rows)}")


def _print_json(rows: Sequence[StrategyRow]) -> int:
    """Rows for programs. JSON has no infinity: what never ended is null."""
    from headway.report.text.words import finite

    print(dumps(finite([as_dict(row) for row in rows]), indent=2, allow_nan=False))
    return 0
