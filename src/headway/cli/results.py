"""The `results` verb: the results of a run's tasks."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from typing import Final

EXAMPLES: Final = """\
examples:
  headway results                              JSON Lines of the last run, in declared order
  headway results RUN --parse | jq .output     results that are JSON as such, not as text
  headway results RUN --format csv > out.csv   a table; formulas in it are made harmless
  headway results RUN --folder out             one file per result
  headway results RUN --task review verdict    only these tasks or groups
  headway results RUN --trace verdict          what a reduction was made of, down to its tasks
  headway results RUN --trace verdict 'no index on orders'     only where this is from
  headway results RUN --state                  what its tasks have put into the shared state
  headway results RUN --state 'records/*' --json

Of a run that is not complete, what there is; stderr says how many are missing. Exits with 1 then.
"""


def arguments(parser: argparse.ArgumentParser) -> Callable[[argparse.Namespace], int]:
    """What `headway results` takes."""
    parser.add_argument("name", metavar="RUN", nargs="?", default="last", help="default: the last")
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--format", choices=("jsonl", "csv"), help="default: jsonl")
    form.add_argument("--folder", metavar="DIR", help="one file per result, in this folder")
    parser.add_argument("--parse", action="store_true", help="results that are JSON, as JSON")
    parser.add_argument("--task", metavar="NAME", nargs="+", action="extend", default=[],
                        help="only these tasks, or all of these groups")  # fmt: skip
    parser.add_argument("--json", action="store_const", dest="format", const="jsonl",
                        help="the same as --format jsonl")  # fmt: skip
    form.add_argument("--state", nargs="?", const="**", metavar="PATTERN",
                      help="the shared state instead, or its keys of a pattern")  # fmt: skip
    form.add_argument("--trace", nargs="+", metavar=("TASK", "TEXT"),
                      help="what a reduction was made of, or where a text is from")  # fmt: skip
    return _results


def _results(parsed: argparse.Namespace) -> int:
    from headway.report.text.results import harvest, write_folder, write_lines, write_table
    from headway.report.text.runs import accounts_by_key, look, opened
    from headway.run.declared import declared

    if parsed.state is not None:
        return _state(parsed)
    if parsed.trace is not None:
        return _trace(parsed)
    with opened(parsed.name) as (place, reader):
        plan = declared(reader, place.folder)
        found = harvest(reader, parsed.task, None if plan is None else plan[0])
        if parsed.folder is not None:
            done = write_folder(parsed.folder, found)
            print(f"{done} files in {parsed.folder}", file=sys.stderr)
        elif parsed.format == "csv":
            done = write_table(sys.stdout, found)
        else:
            agents = accounts_by_key(place.folder)
            done = write_lines(sys.stdout, found, is_parsed=parsed.parse, agents=agents)
        glance = look(reader)
    # Tasks that only bring results together for a reduction are no results of their own.
    total = glance.total - sum(of for _, of in glance.inner.values())
    done = glance.of("finished") - sum(done for done, _ in glance.inner.values())
    missing = 0 if parsed.task else total - done
    if missing:
        again = f"headway resume {glance.header.run}"
        print(f"{missing} of {total} results are missing: {glance.verdict.state}. "
              f"See `headway status {glance.header.run}`, or go on with `{again}`",
              file=sys.stderr)  # fmt: skip
    return 1 if missing else 0


def _trace(parsed: argparse.Namespace) -> int:
    from headway.report.text.results import json_line
    from headway.report.text.runs import opened
    from headway.report.text.trace import as_json, draw_trace, trace_of

    task, *words = parsed.trace
    with opened(parsed.name) as (place, reader):
        found = trace_of(reader, place.folder, task, " ".join(words))
    if parsed.format:
        print(json_line(as_json(found)))
        return 0
    for line in draw_trace(found):
        print(line)
    if words and not found.below:
        print("no result contains that, or shares a rare word with it", file=sys.stderr)
        return 1
    return 0


def _state(parsed: argparse.Namespace) -> int:
    """What was committed, and its digest, by which two runs can be compared."""
    import json

    from headway.report.text.runs import look, opened
    from headway.run.declared import committed

    with opened(parsed.name) as (place, reader):
        values, digest = committed(reader, place.folder, parsed.state)
        verdict = look(reader).verdict
    if parsed.format:
        parsed_values = {key: json.loads(data) for key, data in values.items()}
        print(json.dumps(parsed_values, ensure_ascii=False))
    else:
        cells = max(map(len, values), default=0)
        for key, data in values.items():
            print(f"{key.ljust(cells)}  {data.decode()}")
    count = f"{len(values)} keys" if len(values) != 1 else "1 key"
    print(f"{count}, digest {digest.hex()}; the run is {verdict.state}", file=sys.stderr)
    return 0
