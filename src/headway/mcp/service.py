"""What each MCP tool does, without the protocol.

Laws:
- Nothing in an argument is executed or imported, and nothing is started without a budget.
- Every method may run on any thread, at the same time as every other.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from codecs import getincrementaldecoder
from collections.abc import Iterable, Mapping
from contextlib import suppress
from functools import partial
from itertools import islice
from pathlib import Path
from threading import Lock, Thread
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from headway.api import plan_files as planfiles
from headway.base.codec import as_dict
from headway.base.folders import folders
from headway.base.values import DAY_S, Budget
from headway.config import foreign_allowance, read_configuration
from headway.engine.record import Header
from headway.errors import BadValueError, HeadwayError, PlanError, StateFileError, UsageError
from headway.journal.folder import LAST, RunPlace, list_runs, new_run
from headway.journal.journal import Journal
from headway.journal.reader import JournalReader
from headway.plans.check import check
from headway.plans.document import absent
from headway.plans.load import Loaded, load_foreign
from headway.plans.untrusted import PlanPermissions
from headway.report.text.accounts import as_json as accounts_json
from headway.report.text.check import refusal_of
from headway.report.text.results import as_json, harvest
from headway.report.text.run_view import RunView
from headway.report.text.runs import as_json as run_json
from headway.report.text.runs import count_words, state_words
from headway.report.text.terminal import clean
from headway.report.text.words import finite, known_usd
from headway.run.agent_tasks import must_have_providers
from headway.run.launch import tell
from headway.run.plan_run import PlanSource, price_guess, ready_run, with_model

# What the user who starts the server allows, and the arguments of callers, checked.

TOKENS_MIN: Final = 1000
"""A smaller number without a dollar sign is more likely dollars than tokens."""

NEEDS_BUDGET: Final = 'pass the most that this run may spend: "$2" in dollars, "500k" in tokens'

SIMULATED: Final = {
    "ANTHROPIC_API_KEY": "simulated",
    "OPENAI_API_KEY": "simulated",
    "GEMINI_API_KEY": "simulated",
}
"""A run on the simulated provider needs no key; its process starts the provider."""


class McpSettings(Struct, frozen=True):
    """Where the server works and how far its callers may go."""

    root: str
    """The folder that it was started in, without links."""
    sees_every_run: bool = False
    """Also runs that were started in other folders."""
    sim: str | None = None
    """Runs use the simulated provider, with this script; None: the real ones."""
    most: Budget | None = None
    """The most that one run may be given."""

    def folder(self, name: str) -> Path:
        """A plan's folder, which has to be inside."""
        # JSON can hold what no path can.
        if "\0" in name or name != name.encode(errors="replace").decode():
            raise BadValueError("`folder` cannot be the name of a folder", hint="leave it out")
        real = os.path.realpath(os.path.join(self.root, name))
        if not self.holds(real):
            raise BadValueError(
                f"`folder` leads out of {self.root}, where this server was started",
                hint="name a folder inside, or leave it out",
            )
        if not os.path.isdir(real):
            raise BadValueError("`folder` is not a folder that is there", hint="leave it out")
        return Path(real)

    def holds(self, real: str) -> bool:
        """Whether a path without links is inside."""
        return real == self.root or real.startswith(self.root.rstrip("/") + "/")

    def run(self, word: str) -> RunPlace:
        """The run of an id, or the `last` one, of those that callers may see."""
        places = list_runs(folders(os.environ).state)
        for place in places:
            if word in (place.id, LAST) and self._sees(place):
                return place
        seen = [place.id for place in places if self._sees(place)][:5]
        known = f"the newest are {', '.join(seen)}" if seen else "there are none yet"
        raise UsageError(
            f"no run of this folder has the id `{word[:40]}`",
            hint=f"pass what submit_plan returned, or `{LAST}`: {known}",
        )

    def model(self, name: str) -> str:
        """The model for prompts that name none; like those in a plan, it is a name and no more."""
        if "{{" in name or not name.isprintable():
            raise BadValueError("`model` must be the name of a model", hint="provider/model")
        return name

    def allowance(self, budget: Budget | None = None) -> PlanPermissions:
        """What a plan may contain: what the user's configuration allows."""
        return replace(foreign_allowance(os.environ), budget=budget)

    def environment(self) -> Mapping[str, str]:
        """What a run will see of the keys."""
        return {**os.environ, **SIMULATED} if self.sim is not None else dict(os.environ)

    def budget(self, text: str) -> Budget:
        """`$2` is dollars, `500k` tokens; not more than the user allows."""
        budget = budget_in(text)
        most = self.most
        if most is None:
            return budget
        allowed = f"${most.microusd / 1e6:g}" if most.microusd else f"{most.tokens} tokens"
        # A limit in one unit does not bound the other: what cannot be compared is refused.
        is_within = (
            budget.microusd is not None and most.microusd is not None
            and budget.microusd <= most.microusd
        ) or (
            budget.tokens is not None and most.tokens is not None and budget.tokens <= most.tokens
        )  # fmt: skip
        if not is_within:
            raise BadValueError(
                f"a budget of {text} is not within the {allowed} that the user gives one run",
                hint=f"ask for at most {allowed}",
            )
        return budget

    def _sees(self, place: RunPlace) -> bool:
        if self.sees_every_run:
            return True
        try:
            with JournalReader(place.folder) as reader:
                return self.holds(os.path.realpath(reader.header.folder))
        except (StateFileError, OSError):
            return False


def budget_in(text: str) -> Budget:
    """An amount as callers write it."""
    amount = text.strip()
    try:
        budget = planfiles.budget_in(amount)
    except BadValueError:
        message = f"`budget` is {text[:40]!r}, which is no amount"
        raise BadValueError(message, hint=NEEDS_BUDGET) from None
    if budget.tokens is not None and budget.tokens < TOKENS_MIN:
        message = f'`budget` is {text[:40]!r}: is it "${amount}" or "{amount}k" tokens?'
        raise BadValueError(message, hint=NEEDS_BUDGET)
    return budget


# Hands a plan over to a process of its own, which outlives the server and its client.

LOG: Final = "process.log"
"""In a run's folder: what its process wrote."""

SAID_BYTES_MAX: Final = 2000
"""Of the end of a log."""

NAME: Final = "plan"

ALIVE_MAX: Final = 16
"""Processes of one server at once: each takes some dozens of megabytes, and they share an account,
so that more of them would not be done earlier."""


class SubmittedRuns:
    """Starts processes for runs and remembers them."""

    def __init__(self) -> None:
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._lock = Lock()

    def must_have_room(self) -> None:
        """Refuse a run more than the machine is meant to perform."""
        with self._lock:
            processes = list(self._processes.values())
        if sum(process.returncode is None for process in processes) >= ALIVE_MAX:
            raise UsageError(
                f"{ALIVE_MAX} runs of this server go on already",
                hint="wait for one with run_status, or stop one with cancel_run",
            )

    def start(self, place: RunPlace, folder: str) -> None:
        """Let a process go on with a run that has not begun."""
        # -P: a file in the plan's folder is not a module of ours.
        command = [sys.executable, "-P", "-m", "headway", "resume", place.id]
        command += ["--keep", "--quiet", "--json"]
        try:
            with open(
                os.path.join(place.folder, LOG), "ab", opener=partial(os.open, mode=0o600)
            ) as log:
                process = subprocess.Popen(
                    command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=folder,
                    start_new_session=True,
                )  # fmt: skip
        except OSError as fault:
            raise StateFileError(
                f"no process could be started for {place.id}: {fault.strerror}",
                hint=f"headway resume {place.id}",
            ) from None
        with self._lock:
            self._processes[place.id] = process
        # Its end must be collected, or it would stay in the table of processes.
        Thread(target=process.wait, name=f"wait-{place.id}", daemon=True).start()

    def is_alive(self, run: str) -> bool | None:
        """Whether the process of a run goes on; None if it was not started here."""
        with self._lock:
            process = self._processes.get(run)
        return None if process is None else process.returncode is None

    def end(self, run: str) -> bool:
        """End the process of a run; whether there was one."""
        if not self.is_alive(run):
            return False
        self._processes[run].terminate()  # Does nothing to a later process of its number.
        return True


def written(loaded: Loaded, source: PlanSource, name: str) -> RunPlace:
    """A new run with a journal in which nothing has happened."""
    now_s = time.time()
    keeps = read_configuration(os.environ).values.keep_results
    folder = str(loaded.folder)
    place = new_run(folders(os.environ).state, now_s)
    # There is no such file: the text that is kept is the plan, and no file of the user's is.
    source = replace(source, path=os.path.join(folder, f"{place.id}.yaml"))
    header = Header(
        place.id, name or loaded.expanded.spec.name or NAME, "plan", source.encoded(), folder,
        loaded.expanded.count, now_s, keeps,
    )  # fmt: skip
    Journal.create(place.folder, header).close()
    return place


def last_words(place: RunPlace) -> str:
    """The last line that a run's process wrote."""
    try:
        with open(os.path.join(place.folder, LOG), "rb") as file:
            file.seek(0, os.SEEK_END)
            file.seek(max(0, file.tell() - SAID_BYTES_MAX))
            lines = file.read().decode(errors="replace").strip().splitlines()
            last = lines[-1] if lines else ""
    except OSError:
        return ""
    with suppress(ValueError, LookupError, TypeError):
        # With --json, errors are JSON as well.
        return str(json.loads(last)["errors"][0]["message"])
    return last


def last_detail(place: RunPlace) -> str:
    """What a run's process wrote at its end that its journal does not have: a failed output."""
    try:
        found = json.loads(last_words(place))
    except ValueError:
        return ""
    return str(found.get("detail", "")) if isinstance(found, dict) else ""


# Results in pages that fit a reader's context, with what was left out stated.

BYTES: Final = 20_000
"""Of results on a page, if the caller does not say: about 5,000 tokens."""

BYTES_MIN: Final = 100
BYTES_MAX: Final = 400_000
LIMIT: Final = 50
LIMIT_MAX: Final = 1000

Result = dict[str, object]


def page(
    found: Iterable[tuple[Result, bytes | None]],
    offset: int = 0,
    limit: int = LIMIT,
    max_bytes: int = BYTES,
    from_byte: int = 0,
) -> tuple[list[Result], str, dict[str, int] | None]:
    """The results from an offset on, as far as they fit; what is left out, in words; and the
    arguments for the next page, None after the last. `from_byte` is within the first result.
    """
    shown: list[Result] = []
    room, start = max_bytes, from_byte
    for index, (result, body) in islice(enumerate(found), offset, None):
        data = (body or b"")[start:]
        if len(shown) == limit or (shown and len(data) > room):
            more = f"only results {index - len(shown)} to {index - 1} are here; there are more"
            return shown, more, {"offset": index, "from_byte": 0}
        if len(data) > room:
            # Without the beginning of a character at the end.
            decoder = getincrementaldecoder("utf-8")("replace")
            cut_result = {**result, "output": decoder.decode(data[:room])}
            end, size = start + room - len(decoder.getstate()[0]), len(body or b"")
            cut = f"{result['task']} is cut: bytes {start:,} to {end:,} of {size:,} are here"
            after = {"offset": index, "from_byte": end}
            return [{**cut_result, "bytes": [start, end, size]}], cut, after
        shown.append(result)
        if start:  # The last piece of a result that was cut.
            end = start + len(data)
            last = {"output": data.decode(errors="replace"), "bytes": [start, end, end]}
            shown[-1] = {**result, **last}
        room, start = room - len(data), 0
    return shown, "", None


Answer = dict[str, object]
"""What JSON can hold."""

ASK_AGAIN_S: Final = (2, 60)
"""The least and the most time between two questions about one run that are worth their tokens."""

START_S_MAX: Final = 60.0
"""A process that has not come to its run by then never will."""

REMARKS_MAX: Final = 50
REASON_CHARS_MAX: Final = 500

SPENT: Final = ("usd", "known_usd", "reserved_usd", "input_tokens", "output_tokens")
"""Of a run's status: what it has spent."""


class Service:
    """The work behind the tools, for one folder."""

    def __init__(self, settings: McpSettings) -> None:
        self.settings = settings
        self._handover = SubmittedRuns()

    def check_plan(self, plan: str, folder: str = "", model: str = "") -> Answer:
        """All that is wrong with a plan, or what it would do."""
        place, model = self.settings.folder(folder), self.settings.model(model)
        try:
            loaded = load_foreign(plan, place, self.settings.allowance())
            must_have_providers(loaded.expanded, self.settings.environment())
        except PlanError as error:
            return {
                "accepted": False,
                "refused": [refusal_of(one) for one in (error, *error.others)],
            }
        report = check(loaded.survey, partial(absent, loaded.folder))
        remarks = [finite(as_dict(remark)) for remark in report.remarks]
        return {
            "accepted": True,
            "refused": [],
            "tasks": report.tasks,
            "groups": [as_dict(group) for group in report.groups],
            "levels": report.levels,
            "width": report.width,
            "longest_chain": report.critical_path,
            "input_tokens": round(report.input_tokens),
            "remarks": remarks[:REMARKS_MAX],
            "remarks_left_out": max(0, len(remarks) - REMARKS_MAX),
            "answers": report.answers,
            **self._price(loaded, model),
        }

    def submit_plan(
        self, plan: str, budget: str, folder: str = "", model: str = "", name: str = ""
    ) -> Answer:
        """Start a run in a process of its own; its id, at once."""
        if not budget:
            raise BadValueError("submit_plan needs a `budget`", hint=NEEDS_BUDGET)
        self._handover.must_have_room()
        settings, amount = self.settings, self.settings.budget(budget)
        place, model = settings.folder(folder), settings.model(model)
        loaded = load_foreign(plan, place, settings.allowance(amount))
        strategy = read_configuration(os.environ).values.strategy
        source = PlanSource(
            "", loaded.text, strategy, budget=amount, model=model, sim=settings.sim,
            is_foreign=True,
        )  # fmt: skip
        ready_run(loaded, source, settings.environment())
        run = written(loaded, source, clean(name).strip())
        self._handover.start(run, str(place))
        return {
            "run": run.id,
            "tasks": loaded.expanded.count,
            "budget": as_dict(amount),
            "folder": os.path.relpath(place, settings.root),
            "next": f"It goes on by itself. Ask run_status({run.id!r}) now and then, and at the "
            "end run_results.",
        }

    def run_status(self, run: str) -> Answer:
        """How far a run is, what it took, and what it waits for: a part of `status --json`."""
        place = self.settings.run(run)
        with JournalReader(place.folder) as reader:
            view = RunView(reader)
            found = run_json(view)
            state, reason = self._state(place, view)
            is_over = self._is_over(place, state, view)
            words = state if state == "starting" else state_words(view)
            budget = view.budget()
            counts = count_words(view)
        failed = [
            {"task": clean(row["task"]), "reason": clean(row["reason"])[:REASON_CHARS_MAX]}
            for row in found["failed"]
        ]
        return _plain({
            **{name: found[name] for name in ("run", "until_s", "tasks", "elapsed_s")},
            **{name: found.get(name) for name in ("eta_s", "bound_s", "bound_by", "fair_s")},
            "name": clean(view.header.name),
            "state": state,
            "is_over": is_over,
            "in_words": f"{words}; {counts}",
            "waits_for": reason or found.get("waits_for", ""),
            "spent": {name: found[name] for name in SPENT},
            "budget": None if budget is None else {
                "usd": None if budget.microusd is None else budget.microusd / 1e6,
                "tokens": budget.tokens,
            },
            "failed": failed,
            "ask_again_in_s": None if is_over else _pause_s(found.get("eta_s"), view.elapsed_s),
            "next": _next(place.id, state, is_over),
        })  # fmt: skip

    def run_results(
        self, run: str, task: str = "", offset: int = 0, limit: int = LIMIT,
        max_bytes: int = BYTES, from_byte: int = 0,
    ) -> Answer:  # fmt: skip
        """A page of what the tasks gave, in declared order."""
        place = self.settings.run(run)
        with JournalReader(place.folder) as reader:
            view = RunView(reader)
            tasks = harvest(reader, [task] if task else [])
            pairs = ((as_json(one, is_parsed=False), one[1]) for one in tasks)
            results, left_out, after = page(pairs, offset, limit, max_bytes, from_byte)
        state, _ = self._state(place, view)
        words = (
            f"{view.total - view.left} of {view.total} tasks of the run have ended; it is {state}"
        )
        found = {
            "run": place.id,
            "state": state,
            "results": results,
            "left_out": left_out,
            "next": after,
            "in_words": f"{words}. {left_out}" if left_out else words,
        }
        return _plain(found)

    def cancel_run(self, run: str, now: bool = False) -> Answer:
        """Let a run end early; what is finished is kept."""
        place = self.settings.run(run)
        with JournalReader(place.folder) as reader:
            view = RunView(reader)
            if view.verdict.state == "stopping" and not now:
                # A second word would mean: now.
                words = f"{place.id} is stopping already"
                return {"run": place.id, "accepted": True, "in_words": words}
            was_accepted, _, words = tell(reader, place.id, "end" if now else "stop")
        if not was_accepted and view.verdict.state == "new":
            was_accepted = self._handover.end(place.id)
            words = f"{place.id} has not begun, and no process is on its way to it"
            if was_accepted:
                words = f"{place.id} was stopped before it began"
        return {"run": place.id, "accepted": was_accepted, "in_words": words}

    def quota(self) -> Answer:
        """What the accounts allow and use now: `limits --json`, without what the user set."""
        from headway.client.overview import overview

        found = accounts_json(overview(os.environ), time.time() % DAY_S / DAY_S)
        return _plain({name: found[name] for name in ("month", "accounts", "health", "budgets")})

    def _state(self, place: RunPlace, view: RunView) -> tuple[str, str]:
        """A run's state and why; the process of a new one may be on its way."""
        state, reason = view.verdict.state, clean(view.verdict.reason)
        if state == "done":
            return state, clean(last_detail(place))
        if state != "new":
            return state, reason
        if self._handover.is_alive(place.id):
            return "starting", ""
        return state, clean(last_words(place))

    def _is_over(self, place: RunPlace, state: str, view: RunView) -> bool:
        """Whether nothing more will happen by itself."""
        if state != "new":
            return state != "starting" and not view.verdict.is_live
        # Another server of this folder may have started it just now.
        age_s = view.now_s - view.header.created_s
        return age_s > START_S_MAX or self._handover.is_alive(place.id) is False

    def _price(self, loaded: Loaded, model: str) -> Answer:
        source = PlanSource("", loaded.text, model=model)
        try:
            guess = price_guess(with_model(loaded.expanded, source), self.settings.environment())
        except HeadwayError as error:
            return {"price_unknown": error.message}
        return {
            "calls": guess.calls,
            "expected_usd": known_usd(guess.expected_microusd, len(guess.unpriced)),
            "ceiling_usd": known_usd(guess.ceiling_microusd, len(guess.unpriced)),
            "unpriced_models": guess.unpriced,
        }


def _pause_s(eta_s: float | None, elapsed_s: float) -> int:
    """A quarter of what is left; of a run whose speed is not known, of what has passed."""
    least, most = ASK_AGAIN_S
    return round(min(most, max(least, (elapsed_s if eta_s is None else eta_s) / 4)))


def _next(run: str, state: str, is_over: bool) -> str:
    if not is_over:
        return "It goes on by itself; do something else meanwhile."
    if state == "done":
        return f"Read run_results({run!r})."
    return (
        f"What there is: run_results({run!r}). The rest is done by `headway resume {run}` in a "
        "shell: finished tasks are not paid for again."
    )


def _plain(found: object) -> Answer:
    found = finite(found)
    return found if isinstance(found, dict) else {}
