"""Runs the cases by headway, to be compared with what GNU parallel did."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import headway
from headway.plans.each import ArgumentPlan, arrange, lines, parse
from tests.parallel.cases import Case, Outcome, joblog_of, prepare, probed


def plan_of(case: Case, here: Path) -> ArgumentPlan:
    """The tasks of a case; its files are read from the folder in which it runs."""
    options = dict(_options(case.options))
    template, named = parse(case.words)
    if "-a" in options:
        named.insert(0, ("file", (options["-a"],), False))

    def read(name: str) -> tuple[str, ...]:
        text = case.stdin if name == "-" else (here / name).read_text()
        return lines(text or "", "-0" in options, "-r" in options)

    sources = [
        (words if kind == "values" else read(words[0]), is_linked)
        for kind, words, is_linked in named or [("file", ("-",), False)]
    ]
    number = options.get("-n", options.get("-N"))
    most = None if number is None else int(number)
    return arrange(template, sources, most, options.get("--colsep"), "-q" in options)


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

    def one(numbered: tuple[int, Case]) -> tuple[str, Outcome]:
        number, case = numbered
        place = folder / str(number)
        place.mkdir()
        return case.name, run_ours(case, place)

    with ThreadPoolExecutor(2) as pool:
        return dict(pool.map(one, enumerate(cases)))
