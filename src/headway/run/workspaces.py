"""Performs tasks in workspaces: what they begin with, what they read and wrote, what still holds.

Laws:
- A task begins with the files as those tasks before it have left them that had landed by then.
- What it read is kept with what stood there when it began, what it wrote as entries of files. Both
  are keys of the shared state, which commits them in declared order.
- An attempt whose files have changed since is taken all the same if nothing that it read directly
  is different, its searches give the same answers, and `verify` accepts the merged files.
- Every attempt is kept, with its changes as a commit, before its workspace is removed.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections import Counter
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Collection,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import asynccontextmanager, contextmanager, suppress
from functools import partial, reduce
from typing import TYPE_CHECKING, Final

from msgspec import Struct, field
from msgspec.structs import replace

from headway.agents.shell import Command, perform_command
from headway.base import codec
from headway.base.digest import digest
from headway.base.folders import folders
from headway.base.values import Fault, FaultKind
from headway.engine.engine import RETRIED
from headway.errors import HeadwayError, InternalError, UsageError, WireError
from headway.plans.grammar import REJECTION
from headway.plans.resources import FILES, NAMES, above, file_key, file_path, file_pattern, matches
from headway.plans.spec import LOOP, WorkspaceSpec
from headway.run.agent_tasks import agent_of
from headway.state.folder import in_a_line, in_thread
from headway.state.shared import canonical, scan_digest
from headway.work import AttemptError, Result
from headway.workspaces.collection import Workspace
from headway.workspaces.observation import (
    Observation,
    ObservedCommand,
    probe,
    read_observation,
    write_spec,
)
from headway.workspaces.store import RESUMABLE, WorkspaceStore

if TYPE_CHECKING:
    from headway.journal.reader import JournalReader
    from headway.run.filling import Filling
    from headway.run.objective import Objective
    from headway.run.run_context import Crew

ATTEMPT: Final = "workspace/"
"""What is kept of the last attempt of a task, by its key, is a document of this name."""
ROOTS: Final = "workspaces"
"""The folders that have workspaces in a run."""
OBSERVED: Final = "observed-"
FOLDER: Final = "040000"
NO_FOLDER: Final = "-/"
"""The values of folders that come and go with their files."""
REMOVED: Final = "-"
"""The value of a file that is gone, which is no entry."""
DIRECT_MAX: Final = 4_096
"""Paths that are remembered one by one; of more, that everything was read."""
RENEWED_MAX: Final = 16
"""The most times that one attempt is judged: with `reruns`, at each landing before it."""
SHOWN_MAX: Final = 5
PORTS: Final = 20
FIRST_PORT: Final = 42_000
PORT_BLOCKS: Final = 1_000
"""Blocks of ports, of which each workspace that is open has one: below what systems give to
clients from 61,000 on, above what services use."""
Verify = Callable[["Filling", str], Awaitable[str | None]]
"""What is wrong with a text, in the workspace of this filling."""
Perform = Callable[["Filling"], Awaitable[Result]]


class KeptAttempt(Struct, frozen=True):
    """The last attempt of a task that came to an end."""

    attempt: int
    root: str
    body: bytes
    began: dict[str, str | None]
    """The files that had landed when it began."""
    reads: dict[str, bytes]
    """By key or pattern of what it read directly: the digest of what stood there."""
    changes: dict[str, str | None]
    commit: str
    searches: tuple[ObservedCommand, ...] = ()
    checks: tuple[str, ...] = ()
    """Commands that only checked."""
    is_checked: bool = True
    """Whether they have seen the files that landed."""
    other_refs: dict[str, str] = {}
    outside: tuple[str, ...] = ()
    """Paths that it wrote outside of its workspace."""
    refused: tuple[str, ...] = ()
    """Paths in the user's folder that it could not write to from its copy."""
    left_out: dict[str, str] = {}
    """What it left that cannot be kept, and why."""
    has_verify: bool = False
    """Whether its task has a `verify`, which has seen the files as they were then."""
    is_failed: bool = False
    scores: tuple[float | None, float | None] = (None, None)
    """Of the plan's objective without its work and with it, where that decides."""
    evidence: str = ""
    """Why its work did not land: the objective, before and after."""
    scored_on: tuple[str, str] = ("", "")
    """The files and the state without its work."""
    is_second: bool = False
    """It was given the evidence of the one before."""
    is_complete: bool = True
    """Off where results are not kept."""


class LandedFiles(Struct, frozen=True):
    """What of a folder has landed, as one task may see it."""

    root: str
    found: list[tuple[str, bytes | None, bytes]]
    """Keys of files and names, with their values and digests, in order."""

    @property
    def files(self) -> dict[str, str | None]:
        """Entries by path; None for what is gone."""
        prefix = file_key(self.root, "") + "/"
        every: dict[str, str | None] = {}
        for key, data, _ in self.found:
            if key.startswith(prefix) and data is not None:
                entry = json.loads(data)
                if entry not in (FOLDER, NO_FOLDER):
                    every[file_path(key, self.root)] = None if entry == REMOVED else entry
        return every

    def digests(self, whats: Iterable[str]) -> dict[str, bytes]:
        """What stands under keys and patterns."""
        by_key = {key: name for key, _, name in self.found}
        return {what: self._scan(what) if "*" in what else by_key.get(what, b"") for what in whats}

    def _scan(self, pattern: str) -> bytes:
        return scan_digest(one for one in self.found if matches(pattern, one[0]))


def kind_of(entry: str | None) -> str:
    """What a listing of its folder says of an entry: the value of its name."""
    return entry[:3] if entry else REMOVED


def is_as_begun(store: WorkspaceStore, root: str, found: tuple[str, bytes | None, bytes]) -> bool:
    """Whether a key says what the base says: its file was written, and is what it was."""
    key, data, _ = found
    if data is None:
        return False
    scheme = NAMES if key.startswith(NAMES) else FILES
    before, entry = store.entry(file_path(key, root)), json.loads(data)
    if entry == REMOVED:
        return before is None
    return bool(entry == (kind_of(before) if scheme == NAMES else before))


class OpenWorkspace(Struct):
    """The workspace of an attempt that goes on: its commands are started through it."""

    store: WorkspaceStore
    place: Workspace
    spec: WorkspaceSpec
    aside: str
    """A folder for files that commands are given or give, outside of all workspaces."""
    port: int
    make: Callable[[], Workspace]
    """Makes it anew."""
    is_resumed: bool = False
    """It is that of an attempt that was cut off, as that one left it."""
    rejected: str = ""
    """The patch of an attempt that was not taken."""
    is_kept: bool = False
    """It is not removed: the next attempt goes on in it."""
    is_blind: bool = False
    """Some of what it reads is not observed: then everything counts as read."""
    logs: list[str] = field(default_factory=list)

    @property
    def environment(self) -> dict[str, str]:
        told = {"HEADWAY_PORT": str(self.port), "HEADWAY_PORTS": str(PORTS)}
        return {**told, "HEADWAY_REJECTED": self.rejected} if self.rejected else told

    @property
    def start(self) -> str:
        """Where commands start, as they see it."""
        return os.path.normpath(os.path.join(self.place.place, self.store.inner))

    def reset(self) -> None:
        """Begin anew, if it has what an earlier attempt left: that one does not go on."""
        if self.is_resumed:
            self.store.discard(self.place)
            self.place, self.logs, self.is_resumed = self.make(), [], False

    def file(self, kind: str) -> str:
        """The path of a file of this attempt, which its commands may read and write."""
        os.makedirs(self.aside, mode=0o700, exist_ok=True)
        return os.path.join(self.aside, f"{os.path.basename(self.place.home)}.{kind}")

    def command(self, command: Command, *, is_observed: bool = True) -> Command:
        """The same command, in the workspace."""
        place = self.place
        number = len(os.listdir(place.home))
        path = os.path.join(place.home, f"spec-{number}.json")
        log = os.path.join(place.home, f"{OBSERVED}{number}")
        spec = {
            "mode": place.mode, "folder": place.folder, "place": place.place,
            "lower": list(place.lower), "upper": place.upper, "work": place.work,
            "cwd": self.start, "log": log,
            "checks": list(self.spec.checks or ()),
            "observe": is_observed,
            "own": [os.path.dirname(self.aside), "/run/user"],
            "hidden": [os.path.dirname(place.home)],
        }  # fmt: skip
        write_spec(path, spec)
        if is_observed:
            self.logs.append(log)
        environment = {**command.environment, **self.environment}
        return replace(command, spec=path, environment=environment)

    def observed(self) -> Observation:
        """What all of its commands have read and written."""
        every = [read_observation(path) for path in self.logs]
        return reduce(together, every, Observation(is_whole=not self.is_blind))


class Workspaces:
    """The workspaces of one run."""

    def __init__(self, crew: Crew) -> None:
        self.crew = crew
        self._mode = ""
        self.records: dict[bytes, KeptAttempt] = {}
        """The last attempts of tasks, by their keys."""
        self.answers: dict[tuple[str, ...], str] = {}
        """Digests of what searches answered: by store, state of the files, folder and words."""
        self.objective: Objective | None = None
        if crew.ratchet:
            from headway.run.objective import Objective

            self.objective = Objective(crew.ratchet, crew.environment, crew.run_folder)
        self.renewed: Counter[bytes] = Counter()
        """How often attempts of tasks were taken again without running: no re-runs."""
        self._stores: dict[str, asyncio.Task[tuple[WorkspaceStore, str]]] = {}
        self._ports: set[int] = set()
        self._roots: dict[str, tuple[str, str]] = {}

    async def perform(
        self, spec: WorkspaceSpec, filling: Filling, work: Perform, verify: Verify | None
    ) -> Result:
        """Perform a task in a workspace of its own. Raises AttemptError."""
        try:
            root = root_of(filling.text(spec.path))
            store, layer = await self._store(root, spec)
            task = _TaskWorkspace(self, spec, filling, store, layer, root, verify)
            return await task.renewed() or await task.performed(work)
        except HeadwayError as error:
            raise AttemptError(Fault("request", detail=in_a_line(error))) from error

    @contextmanager
    def port(self) -> Iterator[int]:
        """The first of a block of ports that no other open workspace has."""
        block = next(one for one in range(PORT_BLOCKS) if one not in self._ports)
        self._ports.add(block)
        try:
            yield FIRST_PORT + PORTS * block
        finally:
            self._ports.discard(block)

    def mode_of(self, spec: WorkspaceSpec, *, is_loop: bool = False) -> str:
        """The file tool of a loop works in this process, which sees no overlay."""
        if is_loop:
            return "copy"
        if spec.mode == "overlay" and self._mode != "overlay":
            raise UsageError(
                "this system allows no overlay for workspaces", hint="write `mode: copy`"
            )
        return self._mode if spec.mode == "auto" else spec.mode

    def open(
        self, store: WorkspaceStore, make: Callable[[], Workspace], spec: WorkspaceSpec, port: int
    ) -> OpenWorkspace:
        aside = os.path.join(self.crew.run_folder, "values")
        return OpenWorkspace(store, make(), spec, aside, port, make)

    async def _store(self, root: str, spec: WorkspaceSpec) -> tuple[WorkspaceStore, str]:
        """The files of a folder's workspaces, and the layer of its setup."""
        name = "\0".join((root, spec.base, spec.setup))
        opening = self._stores.get(name)
        if opening is None:
            opening = self._stores[name] = asyncio.create_task(self._open_store(root, spec))
        return await asyncio.shield(opening)

    async def _open_store(self, root: str, spec: WorkspaceSpec) -> tuple[WorkspaceStore, str]:
        crew = self.crew
        folder = os.path.join(crew.folder, root)
        state = folders(crew.environment).state
        if not self._mode:
            found = await in_thread(partial(probe, crew.run_folder))
            self._mode = found.mode
            if found.words:
                crew.notes.append(found.words)
        store = await in_thread(
            partial(WorkspaceStore.open, folder, crew.run_folder, state, spec.base)
        )
        if store.left_out:
            crew.notes.append(f"{root}: not in workspaces: {few(store.left_out)}")
        await in_thread(partial(store.entry, ""))  # Reads the base, which takes a moment.
        self._roots[root] = folder, spec.base
        if crew.journal is not None:
            crew.journal.keep(ROOTS, codec.encode(self._roots))
        layer = await self._setup(store, spec) if spec.setup else ""
        return store, layer

    async def _setup(self, store: WorkspaceStore, spec: WorkspaceSpec) -> str:
        """Run the setup once for all workspaces; after an interruption, its layer is there."""
        name = f"setup-{digest(spec.setup.encode()).hex()}"
        with suppress(FileNotFoundError):
            for layer in os.listdir(os.path.join(store.place, "layers")):
                if layer.startswith(name):
                    return os.path.join(store.place, "layers", layer)
        make = partial(store.prepare, name, {}, self.mode_of(spec))
        opened = await in_thread(partial(self.open, store, make, spec, FIRST_PORT))
        await self.run_setup(spec.setup, opened)
        return await in_thread(partial(store.as_layer, opened.place))

    async def run_setup(
        self, script: str, opened: OpenWorkspace, *, is_observed: bool = False
    ) -> None:
        crew = self.crew
        command = Command(crew.part_key(), 1, ("/bin/sh", "-c", script), {}, crew.folder)
        try:
            await perform_command(crew.shim(), opened.command(command, is_observed=is_observed))
        except AttemptError as lost:
            detail = f"the setup of its workspace failed: {lost.fault.detail}"
            raise AttemptError(Fault("request", detail=detail)) from None


class _TaskWorkspace:
    """One task that begins to work in a workspace."""

    def __init__(
        self, every: Workspaces, spec: WorkspaceSpec, filling: Filling, store: WorkspaceStore,
        layer: str, root: str, verify: Verify | None,
    ) -> None:  # fmt: skip
        self._every, self._spec, self._filling = every, spec, filling
        self._store, self._layer, self._verify = store, layer, verify
        self._attempt = attempt = filling.attempt
        snapshot, found = attempt.snapshot, []
        if snapshot is not None:
            with attempt.lock:
                for scheme in (FILES, NAMES):
                    found += snapshot.files(file_pattern(root, scheme=scheme))
        self._stands = LandedFiles(root, found)
        """With what was written and is as it was: that makes no difference to what a task reads."""
        changed = [one for one in found if not is_as_begun(store, root, one)]
        self._landed = LandedFiles(root, changed)
        journal = every.crew.journal
        self._kept = every.records.get(attempt.key)
        if self._kept is None and journal is not None:
            self._kept = kept_attempt(journal.reader, attempt.key)

    def _state(self) -> dict[str, bytes]:
        """The shared state as this attempt sees it now."""
        attempt = self._attempt
        if self._every.objective is None or attempt.snapshot is None:
            return {}
        with attempt.lock:
            return dict(attempt.snapshot.scan("**"))

    async def _scored(self, kept: KeptAttempt, state: Mapping[str, bytes]) -> KeptAttempt:
        """An attempt with what the objective says of the files that its work would land on, and of
        them with its work; `state` is the shared state without it."""
        from headway.run.objective import bounce_words, is_lower

        objective, store, began = self._every.objective, self._store, kept.began
        if objective is None or kept.is_failed:
            return kept
        files, own = {**began, **kept.changes}, self._state()
        before = await in_thread(partial(objective.score, store, began, state))
        after = await in_thread(partial(objective.score, store, files, own))
        is_bounced = is_lower(after, before)
        return replace(
            kept, scores=(before.value, after.value), is_failed=is_bounced,
            evidence=bounce_words(before, after) if is_bounced else "",
            scored_on=objective.key(store, began, state),
        )  # fmt: skip

    def _bounced(self, kept: KeptAttempt, result: Result) -> AttemptError:
        """The first time its task tries once more, with the evidence."""
        kind: FaultKind = "rejected" if kept.is_second else "bounced"
        return AttemptError(Fault(kind, detail=kept.evidence), result)

    async def performed(self, work: Perform) -> Result:
        kept, landed, state = self._kept, self._landed, self._state()
        objective, group = self._every.objective, self._filling.group
        is_second = (
            kept is not None and objective is not None and bool(kept.evidence)
            and kept.scored_on == objective.key(self._store, landed.files, state)
        )  # fmt: skip
        if is_second and kept is not None:
            group = replace(group, vars={**group.vars, REJECTION: kept.evidence})
        async with self._opened(landed.files, resumes=True) as opened:
            filling = replace(self._filling, workspace=opened, group=group)
            if kept is not None and kept.commit and (is_second or not kept.is_failed):
                opened.rejected = await in_thread(partial(_write_patch, opened, kept))
            if self._spec.setup_each and not opened.is_resumed:
                is_exact = self._spec.land == "exact"
                await self._every.run_setup(self._spec.setup_each, opened, is_observed=is_exact)
            try:
                result, lost = await work(filling), None
            except AttemptError as error:
                result, lost = error.result or Result(b""), error
            seen = await in_thread(opened.observed)
            if seen.fault:
                raise AttemptError(Fault("broken", detail=f"its workspace: {seen.fault}"))
            collected = await in_thread(partial(self._store.collect, opened.place, seen.writes))
            reads = read_keys(landed.root, self._spec, seen, collected.changes)
            kept = KeptAttempt(
                self._attempt.number,
                landed.root,
                result.body,
                landed.files,
                landed.digests(reads),
                collected.changes,
                collected.commit,
                seen.searches,
                tuple(" ".join(one.argv) for one in seen.checks),
                other_refs={**collected.other_refs, **collected.submodules},
                # Temporary files are gone by now.
                outside=tuple(filter(os.path.lexists, seen.outside)),
                refused=seen.refused,
                left_out=collected.left_out,
                has_verify=self._verify is not None,
                is_failed=lost is not None,
                is_second=is_second,
            )
            kept = await self._scored(kept, state)
            if kept.evidence:
                lost = self._bounced(kept, result)
            self._keep(kept)
            if lost is not None and lost.fault.kind in RETRIED:
                opened.is_kept = not self._attempt.is_last
        if lost is not None:
            raise lost
        return result

    async def renewed(self) -> Result | None:
        """What a kept attempt gave, if it would do the same with the files as they are now."""
        kept, landed = self._kept, self._landed
        if kept is None or kept.is_failed or not kept.is_complete or kept.root != landed.root:
            return None
        now, changes, state = landed.files, kept.changes, self._state()
        objective = self._every.objective
        if (
            objective
            and kept.is_second
            and kept.scored_on != objective.key(self._store, now, state)
        ):
            return None  # What it was told is not so any more.
        if self._spec.land == "merge":
            found = await in_thread(partial(merged_changes, self._store, kept, now))
            if found is None:
                return None
            changes = found
        elif landed.digests(kept.reads) != kept.reads:
            return None
        is_checked = kept.is_checked
        if now != kept.began:
            if not await self._holds(kept, {**now, **changes}):
                return None
            is_checked = self._verify is not None
            self._every.renewed[self._attempt.key] += 1
            if self._every.renewed[self._attempt.key] > RENEWED_MAX:
                raise InternalError(f"the work of `{self._attempt.name}` held, and did not land")
        reads = landed.digests(kept.reads)
        number = self._attempt.number
        kept = replace(
            kept, attempt=number, began=now, reads=reads, changes=changes, is_checked=is_checked
        )
        kept = await self._scored(kept, state)
        self._keep(kept)
        if kept.evidence:
            raise self._bounced(kept, Result(kept.body))
        return Result(kept.body, is_renewed=True)

    async def _holds(self, kept: KeptAttempt, merged: Mapping[str, str | None]) -> bool:
        """Whether searches answer as before, and `verify` accepts the merged files."""
        if self._spec.land != "merge":
            before, after = await asyncio.gather(
                self._answers(kept.searches, kept.began),
                self._answers(kept.searches, self._landed.files),
            )
            if before != after:
                return False
        if self._verify is None or self._spec.land == "exact":
            return True
        async with self._opened(merged) as opened:
            text = kept.body.decode("utf-8", "replace")
            return await self._verify(replace(self._filling, workspace=opened), text) is None

    async def _answers(
        self, searches: Sequence[ObservedCommand], files: Mapping[str, str | None]
    ) -> list[str]:
        """What searches answer with these files; what they have answered before is remembered."""
        crew, known = self._every.crew, self._every.answers
        state = self._store.place, self._store.state_key(files)
        every = [(*state, one.cwd, *one.argv) for one in searches]
        missing = [one for one, key in zip(searches, every, strict=True) if key not in known]
        if missing:
            async with self._opened(files) as opened:
                path = opened.file("searches")
                with open(path, "w", encoding="utf-8") as file:
                    json.dump([[one.argv, one.cwd] for one in missing], file)
                argv = (sys.executable, "-I", "-S", "-c", REPEAT, path, opened.place.place)
                environment = self._filling.environment(crew.run)
                command = Command(crew.part_key(), 1, argv, environment, crew.folder)
                command = opened.command(command, is_observed=False)
                result = await perform_command(crew.shim(), command, self._attempt.clock)
            for one, answer in zip(missing, json.loads(result.body), strict=True):
                known[*state, one.cwd, *one.argv] = answer
        return [known[key] for key in every]

    @asynccontextmanager
    async def _opened(
        self, files: Mapping[str, str | None], *, resumes: bool = False
    ) -> AsyncIterator[OpenWorkspace]:
        """A workspace with these files; `resumes`: that of an attempt that was cut off, if it
        began with the same. It stays as it is if this attempt is cut off too."""
        every, store, attempt = self._every, self._store, self._attempt
        name = f"{attempt.name}.{attempt.key.hex()[:8]}{'' if resumes else '.again'}"

        def make() -> Workspace:
            agent = agent_of(self._filling.group.task)
            mode = every.mode_of(self._spec, is_loop=agent is not None and agent.name == LOOP)
            place = store.prepare(name, files, mode, self._layer)
            if resumes:
                with open(os.path.join(place.home, RESUMABLE), "wb") as file:
                    file.write(codec.encode(place))
            return place

        with every.port() as port:
            plain = partial(every.open, store, make, self._spec, port)
            opened = await in_thread(partial(self._resumed, make, port) if resumes else plain)
            try:
                yield opened
            except AttemptError:
                raise
            except BaseException:
                opened.is_kept = resumes
                raise
            finally:
                if not opened.is_kept:
                    await in_thread(partial(store.discard, opened.place))

    def _resumed(self, make: Callable[[], Workspace], port: int) -> OpenWorkspace:
        left = [one for one in left_over(self._store) if one.name.startswith(self._name)]
        state = self._store.state_key(self._landed.files)
        place = next((one for one in left if one.state == state), None)
        for one in left:
            if one is not place:
                self._store.discard(one)
        opened = self._every.open(self._store, make if place is None else lambda: place,
                                  self._spec, port)  # fmt: skip
        if place is not None:
            opened.make, opened.is_resumed = make, True
            names = sorted(os.listdir(place.home))
            opened.logs = [os.path.join(place.home, one.replace("spec-", OBSERVED, 1)[:-5])
                           for one in names if one.startswith("spec-")]  # fmt: skip
        return opened

    @property
    def _name(self) -> str:
        return f"{self._attempt.name}.{self._attempt.key.hex()[:8]}"

    def _keep(self, kept: KeptAttempt) -> None:
        """Tell the shared state of an attempt, and keep it."""
        crew, landed, attempt = self._every.crew, self._landed, self._attempt
        root, seen, files = landed.root, self._stands.digests(kept.reads), landed.files
        is_checked = self._spec.land == "verified" and (kept.checks or kept.has_verify)
        if kept.searches or is_checked or self._every.objective is not None:
            seen |= self._stands.digests([file_pattern(root)])
        written = written_keys(self._store, root, kept.changes, files)
        if attempt.snapshot is not None:
            with attempt.lock:
                attempt.snapshot.touched(seen, written)
        self._every.records[attempt.key] = kept
        if crew.journal is not None:
            if not crew.keeps_results:
                # Another process has to run it again: what it gave is kept nowhere.
                kept = replace(kept, body=b"", is_complete=False)
            crew.journal.keep(f"{ATTEMPT}{attempt.key.hex()}", codec.encode(kept))


def left_over(store: WorkspaceStore) -> list[Workspace]:
    """Workspaces of attempts that were cut off."""
    found = []
    parent = os.path.join(store.place, "attempts")
    for name in os.listdir(parent):
        with (
            suppress(OSError, WireError),
            open(os.path.join(parent, name, RESUMABLE), "rb") as file,
        ):
            found.append(codec.decode(Workspace, file.read()))
    return found


def _write_patch(opened: OpenWorkspace, kept: KeptAttempt) -> str:
    path = opened.file("patch")
    with open(path, "w", encoding="utf-8", errors="surrogateescape") as file:
        file.write(opened.store.diff(kept.began, {**kept.began, **kept.changes}))
    return path


REPEAT: Final = """\
import hashlib, json, os, subprocess, sys
answers = []
for argv, cwd in json.load(open(sys.argv[1])):
    try:
        ran = subprocess.run(argv, cwd=os.path.join(sys.argv[2], cwd), stdin=subprocess.DEVNULL,
                             stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        answer = hashlib.sha256(b"%d " % ran.returncode + ran.stdout).hexdigest()
    except OSError as fault:
        answer = str(fault.errno)
    answers.append(answer)
print(json.dumps(answers))
"""
"""The program that repeats searches in a workspace."""


def together(one: Observation, other: Observation) -> Observation:
    """What two commands of one attempt have read and written."""
    return replace(
        one,
        is_whole=one.is_whole and other.is_whole,
        why=one.why or other.why,
        fault=one.fault or other.fault,
        reads=(*one.reads, *other.reads),
        listed=(*one.listed, *other.listed),
        writes=(*one.writes, *other.writes),
        outside=tuple(dict.fromkeys((*one.outside, *other.outside))),
        refused=tuple(dict.fromkeys((*one.refused, *other.refused))),
        searches=(*one.searches, *other.searches),
        checks=(*one.checks, *other.checks),
    )


def merged_changes(
    store: WorkspaceStore, kept: KeptAttempt, now: Mapping[str, str | None]
) -> dict[str, str | None] | None:
    """The changes of an attempt on top of what has landed since; None if they conflict."""
    changes: dict[str, str | None] = {}
    for path, entry in kept.changes.items():
        before = kept.began[path] if path in kept.began else store.entry(path)
        current = now[path] if path in now else store.entry(path)
        is_merged, changes[path] = store.merge_text(before, entry, current)
        if not is_merged:
            return None
    return changes


def few(words: Collection[str]) -> str:
    """The first of some words, each with its reason if it has one."""
    every = [*words]
    if isinstance(words, Mapping):
        every = [f"{path} ({why})" for path, why in words.items()]
    more = f" and {len(every) - SHOWN_MAX:,} more" if len(every) > SHOWN_MAX else ""
    return ", ".join(every[:SHOWN_MAX]) + more


def root_of(path: str) -> str:
    return os.path.normpath(path) if path else "."


def read_keys(
    root: str, spec: WorkspaceSpec, seen: Observation, changes: Mapping[str, str | None]
) -> list[str]:
    """The keys and patterns of what counts as read directly."""
    if spec.land == "merge":
        return [file_key(root, path) for path in changes]
    reads, listed = [*seen.reads], [*seen.listed]
    if spec.land == "exact":
        reads += [path for one in seen.checks for path in one.reads]
        listed += [path for one in seen.checks for path in one.listed]
    if not seen.is_whole or len(reads) > DIRECT_MAX:
        return [file_pattern(root), file_pattern(root, scheme=NAMES)]
    keys = [file_key(root, path) for path in reads]
    keys += [file_pattern(root, folder, "*", NAMES) for folder in listed]
    # A file can be written where no folder stands, and no file above it.
    names = {name for path in changes for name in (path, *above(path))} - {""}
    keys += [file_key(root, name, NAMES) for name in sorted(names)]
    return list(dict.fromkeys(keys))


def written_keys(
    store: WorkspaceStore, root: str, changes: Mapping[str, str | None],
    landed: Mapping[str, str | None],
) -> dict[str, bytes | None]:  # fmt: skip
    """The keys of what was written, and of names that have come or gone, of folders too."""
    keys: dict[str, bytes | None] = {}
    merged = {**landed, **changes}
    folders: set[str] = set()
    for path, entry in changes.items():
        keys[file_key(root, path)] = canonical(REMOVED if entry is None else entry)
        if kind_of(store.at(path, landed)) != kind_of(entry):
            keys[file_key(root, path, NAMES)] = canonical(kind_of(entry))
            folders.update(above(path))
    for folder in folders - {""}:
        was, is_there = (any(True for _ in store.below(folder, one)) for one in (landed, merged))
        if was is not is_there:
            entry = FOLDER if is_there else NO_FOLDER
            keys[file_key(root, folder)] = keys[file_key(root, folder, NAMES)] = canonical(entry)
    return keys


def kept_attempt(reader: JournalReader, key: bytes) -> KeptAttempt | None:
    """The last attempt of a task that came to an end; None if there is none, or it is spoilt."""
    with suppress(HeadwayError):
        data = reader.document(f"{ATTEMPT}{key.hex()}")
        return None if data is None else codec.decode(KeptAttempt, data)
    return None
