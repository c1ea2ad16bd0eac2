"""Hands a plan over to a process of its own, which outlives the server and whoever asked for it.

Laws:
- A run has its id and its journal before its process is started: whatever becomes of the process,
  the run is there, says how far it came, and can be resumed.
- The process belongs to no terminal and to no process group of the server's.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from threading import Lock, Thread
from typing import Final

from headway.core.engine.record import Header
from headway.errors import StateFileError, UsageError
from headway.planfile import Loaded
from headway.runtime.configuration import read_configuration
from headway.runtime.crew import Crew
from headway.runtime.folders import folders
from headway.runtime.journal import Journal
from headway.runtime.planrun import PlanSource, must_be_possible, plan_run
from headway.runtime.runs import RunPlace, new_run

LOG: Final = "process.log"
"""In a run's folder: what its process said."""

SAID_BYTES_MAX: Final = 2000
"""Of the end of a log."""

NAME: Final = "plan"

ALIVE_MAX: Final = 16
"""Processes of one server at once: each takes some dozens of megabytes, and they share an account,
so that more of them would not be done earlier."""


@dataclass(frozen=True, slots=True)
class HandoverStatistics:
    """How many processes were started, and how many of them are still there."""

    started: int
    alive: int


class Handover:
    """Starts processes for runs and remembers them."""

    def __init__(self) -> None:
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._lock = Lock()

    def __repr__(self) -> str:
        return f"<Handover {self.statistics()}>"

    def statistics(self) -> HandoverStatistics:
        with self._lock:
            processes = list(self._processes.values())
        alive = sum(process.returncode is None for process in processes)
        return HandoverStatistics(len(processes), alive)

    def must_have_room(self) -> None:
        """Refuse a run more than the machine is meant to perform."""
        if self.statistics().alive >= ALIVE_MAX:
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
            with open(_log(place), "ab", opener=partial(os.open, mode=0o600)) as log:
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
        # Somebody has to hear of its end, or it would stay in the table of processes.
        Thread(target=process.wait, name=f"wait-{place.id}", daemon=True).start()

    def is_starting(self, run: str) -> bool:
        """Whether the process of a run was started here and has not ended."""
        with self._lock:
            process = self._processes.get(run)
        return process is not None and process.returncode is None

    def end(self, run: str) -> bool:
        """End the process of a run; whether there was one."""
        with self._lock:
            process = self._processes.get(run)
        if process is None or process.returncode is not None:
            return False
        process.terminate()  # Nothing happens to whoever has its number after it.
        return True

    def has_ended(self, run: str) -> bool:
        """Whether it was started here and has ended."""
        with self._lock:
            process = self._processes.get(run)
        return process is not None and process.returncode is not None


def must_be_runnable(
    loaded: Loaded, source: PlanSource, environment: Mapping[str, str]
) -> None:  # fmt: skip
    """Refuse what cannot work before there is a run: a model or a key that is missing."""
    crew = Crew(str(loaded.folder), "", "", environment)
    must_be_possible(plan_run(loaded.expanded, source, crew), environment)


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
    """The last line that a run's process said."""
    try:
        with open(_log(place), "rb") as file:
            file.seek(0, os.SEEK_END)
            file.seek(max(0, file.tell() - SAID_BYTES_MAX))
            lines = file.read().decode(errors="replace").strip().splitlines()
            return lines[-1] if lines else ""
    except OSError:
        return ""


def last_detail(place: RunPlace) -> str:
    """What a run's process said at its end that its journal does not: an output not written."""
    try:
        told = json.loads(last_words(place))
    except ValueError:
        return ""
    return str(told.get("detail", "")) if isinstance(told, dict) else ""


def _log(place: RunPlace) -> str:
    return os.path.join(place.folder, LOG)
