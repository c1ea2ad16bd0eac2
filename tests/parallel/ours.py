"""Runs the cases by headway, to be compared with what GNU parallel did."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import headway
from headway.plans.each import (
    ArgumentPlan,
    Arrangement,
    NamedSource,
    ValueSource,
    arrange,
    lines,
    parse,
)
from tests.parallel.cases import Case, Outcome, joblog_of, prepare, probed


def plan_of(case: Case, here: Path) -> ArgumentPlan:
    """The tasks of a case; its files are read from the folder in which it runs."""
    options = dict(_options(case.options))
    asked = parse(case.words)
    named = list(asked.sources)
    if "-a" in options:
        named.insert(0, NamedSource("file", (options["-a"],)))
    if not named:
        named.append(NamedSource("file", ("-",)))

    def source(name: NamedSource) -> ValueSource:
        if name.kind == "values":
            return ValueSource(name.words, name.is_linked)
        text = case.stdin if name.words == ("-",) else (here / name.words[0]).read_text()
        return ValueSource(lines(text or "", "-0" in options, "-r" in options), name.is_linked)

    number = options.get("-n", options.get("-N"))
    arrangement = Arrangement(
        arguments_max=None if number is None else int(number),
        column_separator=options.get("--colsep"),
        is_quoted="-q" in options,
    )
    return arrange(asked.template, [source(name) for name in named], arrangement)


def _options(words: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    rest = iter(words)
    for word in rest:
        if word in ("-r", "-0", "-q"):
            yield word, ""
        elif word.startswith("--") or len(word) == 2:
            yield word, next(rest)
        else:
            yield word[:2], word[2:]


def run_ours(case: Case, folder: Path) -> Outcome:
    """Run a case by `headway each`, as a user would."""
    environment = prepare(case, folder) | {
        "HEADWAY_STATE_DIR": str(folder / "state"),
        "HEADWAY_RUNTIME_DIR": str(folder / "runtime"),
        "PYTHONPATH": str(Path(headway.__file__).parents[1]),
    }
    here = folder / "here"
    joblog = folder / "joblog"
    options = ("-j4", "-k", "--joblog", str(joblog), *case.options)
    ran = subprocess.run(
        [sys.executable, "-m", "headway", "each", *options, *case.words],
        cwd=here, env=environment, input=case.stdin or "", capture_output=True, text=True,
        timeout=60, check=False,
    )  # fmt: skip
    plan = plan_of(case, here)
    columns, types = joblog_of(joblog)
    return Outcome(
        argv=probed(folder),
        stdout=ran.stdout,
        is_zero=ran.returncode == 0,
        joblog=columns,
        joblog_types=types,
        shown="".join(f"{plan.display(i)}\n" for i in range(plan.count())),
    )


def run_all(cases: tuple[Case, ...], folder: Path) -> dict[str, Outcome]:
    """Run cases, two at a time."""

    def one(numbered: tuple[int, Case]) -> tuple[str, Outcome]:
        number, case = numbered
        place = folder / str(number)
        place.mkdir()
        return case.name, run_ours(case, place)

    with ThreadPoolExecutor(2) as pool:
        return dict(pool.map(one, enumerate(cases)))
