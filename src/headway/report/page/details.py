"""The texts of tasks for the page: prompt, result, output, changes, events.

Laws:
- A text is what the journal has, cut where it is long, with a mark where it was cut.
- What cannot be read is left out; the page names the command that says why.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from contextlib import suppress
from heapq import nlargest
from typing import TYPE_CHECKING, Any, Final

from headway.agents.shell import read_shim_log, shim_name
from headway.errors import HeadwayError
from headway.report.text.logs import event_words
from headway.report.text.results import prompts_of
from headway.report.text.terminal import clean
from headway.report.text.words import clock
from headway.workspaces.apply import landed_tasks, list_stores

if TYPE_CHECKING:
    from headway.journal.reader import JournalReader
    from headway.report.text.run_view import RunView
    from headway.workspaces.store import WorkspaceStore

EVENTS_MAX: Final = 60
"""Of one task: the first ones; `headway logs` prints the others."""

Landed = dict[str, tuple["WorkspaceStore", str]]


class TaskTexts:
    """Reads the texts of tasks, each at most `cut` characters long."""

    def __init__(self, reader: JournalReader, cut: int) -> None:
        self.reader, self.cut = reader, cut
        self._prompt: Callable[[str], str] | None = None
        self._landed: Landed = {}
        with suppress(HeadwayError, OSError):
            self._prompt = prompts_of(reader)
        with suppress(HeadwayError, OSError):
            for store in list_stores(reader.folder):
                self._landed |= {name: (store, commit) for name, commit in landed_tasks(store)}

    def of(self, keys: Collection[bytes]) -> dict[bytes, dict[str, Any]]:
        """The texts of these tasks; one pass over the events for all of them."""
        found: dict[bytes, dict[str, Any]] = {key: {"events": []} for key in keys}
        names: dict[bytes, bytes] = {}
        one = next(iter(keys), None) if len(keys) == 1 else None
        for recorded in self.reader.events(key=one):
            if recorded.key in found:
                event, lines = recorded.event, found[recorded.key]["events"]
                ending = getattr(event, "ending", None)
                shim = shim_name(recorded.key, b"" if ending is None else ending.inputs)
                names[shim] = recorded.key
                if len(lines) < EVENTS_MAX:
                    lines.append(f"{clock(event.at_s, event.at_s)}  {event_words(event, '')}")
        for (name, number), ended in sorted(self._ended(names).items(), key=lambda one: one[0][1]):
            texts = found[names[name]]
            said = f"attempt {number}: {ended.reason} {ended.code}\n"
            for output in (ended.stdout, ended.stderr):
                with suppress(OSError):
                    said += clean(output.tail(self.cut).decode("utf-8", "replace"))
            texts["log"] = self._cut(texts.get("log", "") + said + "\n")
        for key, texts in found.items():
            with suppress(HeadwayError):
                self._add(key, texts)
        return found

    def _ended(self, names: Collection[bytes]) -> dict[tuple[bytes, int], Any]:
        with suppress(OSError, ValueError, IndexError):
            return dict(read_shim_log(self.reader.folder, lambda name, _: name in names))
        return {}

    def _add(self, key: bytes, texts: dict[str, Any]) -> None:
        row = self.reader.row(key)
        if row is None:
            return
        texts["fault"] = self._cut(clean(row.fault))
        if row.name in self._landed:
            store, commit = self._landed[row.name]
            with suppress(HeadwayError, OSError):
                texts["diff"] = self._cut(clean(store.patch(f"{commit}^", commit)))
                texts["landed"] = commit[:12]
        with suppress(HeadwayError, OSError):
            body = self.reader.body(row.ending.body) if row.ending.body else None
            texts["output"] = self._cut(clean((body or b"").decode("utf-8", "replace")))
        with suppress(HeadwayError, OSError):
            if self._prompt is not None:
                texts["prompt"] = self._cut(clean(self._prompt(row.name)))

    def _cut(self, text: str) -> str:
        if len(text) <= self.cut:
            return text
        return f"{text[: self.cut]}\n… {len(text) - self.cut:,} more characters"


def first_keys(run: RunView, many: int) -> list[bytes]:
    """The tasks whose texts come first: those that failed, then the slowest."""

    def rank(key: bytes) -> tuple[bool, float]:
        task = run.history.tasks[key]
        return task.state == "failed", (task.ended_s or run.elapsed_s) - task.first_s

    return nlargest(many, run.history.tasks, key=rank)
