"""The files of one run's workspaces: what they begin with, what became of them, what landed.

Laws:
- The user's folder and repository are only read.
- What `collect` returns is on the disk, as a ref of the run's private repository.
- A kill at any step leaves at most folders that the next `open` removes.
- Entries, trees and commits depend on content alone: the same calls give the same names.

An entry is `"<mode> <blob>"`: of a file (100644, 100755), a link (120000), a submodule (160000).
"""

from __future__ import annotations

import bisect
import os
import re
import stat
import tempfile
import threading
import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from typing import Final, Self

import msgspec
from msgspec import Struct

from headway.base.crash import crash_point
from headway.base.digest import digest
from headway.errors import WorkspaceError
from headway.workspaces import repository, snapshot
from headway.workspaces.collection import (
    ATTEMPTS,
    Collected,
    Files,
    Workspace,
    collect,
    name_ref,
)
from headway.workspaces.difference import WHITEOUT, decode_files, encode_files, is_whiteout
from headway.workspaces.repository import GitState, run_git
from headway.workspaces.snapshot import Listing, named_faults

MANIFEST: Final = "store.json"
RESUMABLE: Final = "workspace.json"
"""In the folder of a workspace that an attempt can go on with: what it is."""
NO_MARKS: Final = "no-marks"
LANDED: Final = "refs/headway/landed"
FOLDER: Final = "040000"
"""The entry of a folder, which counts for what was read of it only."""


class _Manifest(Struct, frozen=True):
    """What an interrupted run needs to go on with the same files."""

    folder: str
    inner: str
    is_repository: bool
    base_tree: str
    base_commit: str
    head_commit: str
    branch: str
    created_s: int
    identity: tuple[str, str]
    nested: tuple[str, ...]
    left_out: dict[str, str]


class WorkspaceStore:
    """The workspaces of one folder in one run, in RUN_FOLDER/workspaces/<name>/."""

    def __init__(self, place: str) -> None:
        with open(os.path.join(place, MANIFEST), "rb") as file:
            self._manifest = msgspec.json.decode(file.read(), type=_Manifest)
        self.place = place
        self.folder = self._manifest.folder
        """The top of every view: the top level of the repository, if there is one."""
        self.inner = self._manifest.inner
        """Where the folder that was asked for is in it; `.` if it is the top itself."""
        self.git_dir = os.path.join(place, "git")
        self.snapshot = os.path.join(place, "snapshot")
        self.base_tree = self._manifest.base_tree
        self.base_commit = self._manifest.base_commit
        self.head_commit = self._manifest.head_commit
        self.left_out = self._manifest.left_out
        self.nested = self._manifest.nested
        """Repositories within the folder: submodules and others."""
        self.rules = os.path.join(place, "ignores")
        """A folder with all `.gitignore` files."""
        self._base: dict[str, str] | None = None
        self._paths: list[str] = []
        self._lock = threading.Lock()

    @classmethod
    def open(cls, folder: str, run_folder: str, state_folder: str, base: str = "") -> Self:
        """Take the snapshot of a run, or find that of an interrupted one and clean up after it."""
        folder = os.path.realpath(folder)
        if not os.path.isdir(folder):
            raise WorkspaceError(f"{folder} is not a folder")
        name = digest(os.fsencode(f"{folder}\0{base}")).hex()
        place = os.path.join(os.path.realpath(run_folder), "workspaces", name)
        with named_faults(folder):
            if not os.path.exists(os.path.join(place, MANIFEST)):
                _take(folder, place, os.path.realpath(state_folder), base)
            store = cls(place)
            repository.remove_locks(store.git_dir)
            for name in ("trash", "parts"):
                snapshot.remove(os.path.join(place, name))
            for name in ("attempts", "trash", "parts"):
                os.makedirs(os.path.join(place, name), exist_ok=True)
            with os.scandir(os.path.join(place, "attempts")) as found:
                for home in found:
                    if not os.path.exists(os.path.join(home.path, RESUMABLE)):
                        snapshot.remove(home.path)
        return store

    # What the workspaces begin with.

    def entry(self, path: str) -> str | None:
        """What stands at a path in the base."""
        return self._entries().get(path)

    def _entries(self) -> dict[str, str]:
        with self._lock:
            if self._base is None:
                self._base = repository.read_tree(self.git_dir, self.base_tree)
                self._paths = sorted(self._base)
            return self._base

    def at(self, path: str, files: Files) -> str | None:
        """What stands at a path in the base with these changes."""
        return files[path] if path in files else self._entries().get(path)

    def below(self, folder: str, files: Files) -> Iterator[str]:
        """The paths in a folder, in the base with these changes."""
        self._entries()
        first = bisect.bisect_left(self._paths, f"{folder}/")
        last = bisect.bisect_left(self._paths, f"{folder}0")  # The character after the slash.
        found = dict.fromkeys(self._paths[first:last])
        found |= {path: None for path in files if path.startswith(f"{folder}/")}
        yield from (path for path in found if self.at(path, files))

    def tree(self, files: Files) -> str:
        """The base with these changes."""
        said = run_git(["rev-parse", f"{self.commit(files)}^{{tree}}"], self.git_dir)
        return said.decode().strip()

    def commit(self, files: Files) -> str:
        """The base with these changes, as a commit on top of it."""
        changes = _of_files(files)
        if not changes:
            return self.base_commit
        ref = f"refs/headway/states/{_key(changes)}"
        found = run_git(["rev-parse", "-q", "--verify", ref], self.git_dir, allowed=(0, 1))
        if found:
            return found.decode().strip()
        commit = (self.base_commit, "what landed before", changes)
        return self.make_commits(ref, [commit])[0]

    def make_commits(self, ref: str, commits: Sequence[tuple[str, str, Files]]) -> list[str]:
        """Commits of (parent, message, changes), the last one under a ref."""
        about = self._manifest
        return repository.import_commits(
            self.git_dir, ref, commits, about.identity, about.created_s
        )

    def _state(self, files: Files) -> str:
        """The folder with layer and index of the base with these changes; made once."""
        changes = _of_files(files)
        place = os.path.join(self.place, "states", _key(changes))
        with self._lock:
            if not os.path.isdir(place):
                part = os.path.join(self.place, "parts", _key(changes))
                self._make_state(part, changes)
                crash_point("workspace-state")
                os.makedirs(os.path.dirname(place), exist_ok=True)
                os.rename(part, place)
        return place

    def _make_state(self, part: str, changes: dict[str, str | None]) -> None:
        snapshot.remove(part)
        layer, index = os.path.join(part, "layer"), os.path.join(part, "index")
        os.makedirs(layer)
        snapshot.replace_by_copy(os.path.join(self.place, "index"), index)
        start = self.commit(changes)
        with open(os.path.join(part, "commit"), "w", encoding="utf-8") as file:
            file.write(start)
        with open(os.path.join(part, "files"), "wb") as kept:
            kept.write(encode_files(changes))
        if not changes:
            return
        lines = repository.index_lines(changes, len(start))
        update = ["update-index", "-z", "--add", "--replace", "--index-info"]
        run_git(update, self.git_dir, stdin=lines, GIT_INDEX_FILE=index)
        inner = os.path.join(layer, ".git")
        own = os.path.join(part, "view-index")
        has_git = self._manifest.is_repository
        snapshot.replace_by_copy(os.path.join(self.snapshot, ".git/index"), own)
        run_git(update, self.git_dir, stdin=lines, GIT_INDEX_FILE=own)
        there = b"".join(os.fsencode(path) + b"\0" for path, entry in changes.items()
                         if entry and not entry.startswith("160000"))  # fmt: skip
        run_git(["checkout-index", "-z", "-f", "-u", "--stdin"], self.git_dir, stdin=there,
                GIT_INDEX_FILE=own, GIT_WORK_TREE=layer)  # fmt: skip
        try:
            self._hide(layer, changes)
        except PermissionError as fault:
            # Copies need no marks of what is gone.
            snapshot.write_file(os.path.join(part, NO_MARKS), str(fault.strerror).encode())
        if has_git:
            ref = f"refs/headway/heads/{_key(changes)}"
            head = self.make_commits(ref, [(self.head_commit, "what landed before", changes)])[0]
            branch = self._manifest.branch or "HEAD"
            os.makedirs(os.path.dirname(os.path.join(inner, branch)), exist_ok=True)
            with open(os.path.join(inner, branch), "w", encoding="utf-8") as file:
                file.write(f"{head}\n")
            os.rename(own, os.path.join(inner, "index"))

    def _hide(self, layer: str, changes: Files) -> None:
        """Whiteouts of what is gone, and of folders that are empty without it."""
        for gone in sorted((path for path in changes if changes[path] is None), reverse=True):
            path = gone
            while path:
                target = os.path.join(layer, path)
                if os.path.lexists(target) or not os.path.lexists(
                    os.path.join(self.snapshot, path)
                ):
                    break
                try:
                    os.makedirs(os.path.dirname(target), exist_ok=True)
                except (FileExistsError, NotADirectoryError):
                    break  # A folder above has become a file.
                os.mknod(target, 0o600 | stat.S_IFCHR, WHITEOUT)
                path = os.path.dirname(path)
                if path and not self._is_emptied(path, os.path.join(layer, path)):
                    break
                if path:
                    snapshot.remove(os.path.join(layer, path))

    def _is_emptied(self, path: str, layer: str) -> bool:
        """Whether the layer hides all that the snapshot has in a folder, and adds nothing."""
        with os.scandir(layer) as found:
            marks = {entry.name: is_whiteout(entry.stat(follow_symlinks=False)) for entry in found}
        return all(marks.values()) and marks.keys() >= set(
            os.listdir(os.path.join(self.snapshot, path))
        )

    # Workspaces.

    def prepare(self, name: str, files: Files, mode: str, setup_layer: str = "") -> Workspace:
        """A new workspace: the base with these changes, on top of the layer of the setup."""
        with named_faults(self.folder):
            state = self._state(files)
            number, home = self._new_home(name)
            layer = os.path.join(state, "layer")
            below = tuple(part for part in (setup_layer, self.snapshot) if part)
            ws = Workspace(
                name, number, mode, self.folder,
                self.folder if mode == "overlay" else os.path.join(home, "copy"), home,
                ((layer,) if os.listdir(layer) else ()) + below,
                os.path.join(home, "upper"), os.path.join(home, "work"), os.path.basename(state),
            )  # fmt: skip
            if mode == "overlay":
                if os.path.exists(os.path.join(state, NO_MARKS)):
                    raise WorkspaceError("removed files cannot be marked in an overlay here",
                                         hint="use `mode: copy`")  # fmt: skip
                os.mkdir(ws.upper)
                os.mkdir(ws.work)
                # What is seen of the folder itself is the folder of the topmost layer.
                os.chmod(ws.upper, os.stat(self.snapshot).st_mode & 0o777)
            else:
                self._copy(ws, below[0], layer)
            return ws

    def state_key(self, files: Files) -> str:
        """What `Workspace.state` is of a workspace that begins with these changes."""
        return _key(_of_files(files))

    def _new_home(self, name: str) -> tuple[int, str]:
        """The number and the folder of a new workspace, which no kept attempt has."""
        refs = os.path.join(self.git_dir, ATTEMPTS, name_ref(name))
        there = [int(ref) for ref in os.listdir(refs)] if os.path.isdir(refs) else []
        number = max(there, default=0)
        while True:
            number += 1
            home = os.path.join(self.place, "attempts", f"{name_ref(name)}-{number}")
            with suppress(FileExistsError):
                os.mkdir(home)
                return number, home

    def _copy(self, ws: Workspace, source: str, layer: str) -> None:
        snapshot.copy_tree(source, ws.place)
        for path, entry in self.files(ws).items():
            if entry is None:
                snapshot.remove(os.path.join(ws.place, path))
                snapshot.remove_empty(ws.place, path)
        snapshot.copy_tree(layer, ws.place)
        listing = snapshot.list_files(ws.place, {}, ())
        with open(os.path.join(ws.home, "listing"), "wb") as file:
            file.write(msgspec.msgpack.encode(list(listing.items())))

    def start(self, ws: Workspace) -> tuple[str, str]:
        """The index and the commit of what a workspace began with."""
        state = os.path.join(self.place, "states", ws.state)
        with open(os.path.join(state, "commit"), encoding="utf-8") as file:
            return os.path.join(state, "index"), file.read()

    def files(self, ws: Workspace) -> dict[str, str | None]:
        with open(os.path.join(self.place, "states", ws.state, "files"), "rb") as file:
            return decode_files(file.read())

    def as_layer(self, ws: Workspace) -> str:
        """What a setup wrote, as a layer for `prepare`; the workspace is gone then."""
        place = os.path.join(self.place, "layers", f"{name_ref(ws.name)}-{ws.number}")
        os.makedirs(os.path.dirname(place), exist_ok=True)
        source = ws.upper if ws.mode == "overlay" else ws.place
        if ws.mode == "overlay":
            snapshot.remove(os.path.join(source, ".git"))
        os.rename(source, place)
        self.discard(ws)
        return place

    def discard(self, ws: Workspace) -> None:
        """Remove a workspace; its attempt stays."""
        trash = os.path.join(self.place, "trash", os.path.basename(ws.home))
        try:
            os.rename(ws.home, trash)
        except OSError:
            trash = ws.home  # It is gone, or another of its name is being removed.
        snapshot.remove(trash)

    # What became of a workspace, and what landed.

    def collect(self, ws: Workspace, written: Collection[str] = ()) -> Collected:
        """The difference to what it began with, kept; `written` paths count even if unchanged."""
        with named_faults(self.folder):
            return collect(self, ws, written)

    def land(self, tasks: Sequence[tuple[str, Files]]) -> str:
        """One commit per task, in this order, on top of the base; returns the last one.

        The same tasks give the same commits, so that a call after a kill changes nothing.
        """
        commits = [(f":{number}" if number else self.base_commit, name, _of_files(changes))
                   for number, (name, changes) in enumerate(tasks)]  # fmt: skip
        made = self.make_commits(LANDED, commits)
        if not made:
            run_git(["update-ref", LANDED, self.base_commit], self.git_dir)
        crash_point("workspace-landed")
        return made[-1] if made else self.base_commit

    def diff(self, before: Files, after: Files, form: str = "--binary") -> str:
        """The patch between two states of the files."""
        return self.patch(self.commit(before), self.commit(after), form)

    def patch(self, before: str, after: str, form: str = "--binary") -> str:
        """The patch between two commits."""
        said = run_git(["diff", form, "--no-renames", "--no-ext-diff", "--no-textconv",
                        "--no-color", before, after], self.git_dir)  # fmt: skip
        return said.decode(errors="surrogateescape")

    def diffstat(self, before: Files, after: Files) -> str:
        """The files between two states, with the number of changed lines."""
        return self.diff(before, after, "--stat=100")

    def merge_text(
        self, base: str | None, ours: str | None, theirs: str | None
    ) -> tuple[bool, str | None]:
        """Whether two changes of a file merge as text, and the entry that has both."""
        if theirs in (ours, base):
            return True, ours
        if ours == base:
            return True, theirs
        if not base or not ours or not theirs:
            return False, None
        modes, blobs = zip(*(entry.split(" ") for entry in (base, ours, theirs)), strict=True)
        if not all(mode.startswith("100") for mode in modes):
            return False, None
        mode = modes[1] if modes[2] == modes[0] else modes[2]
        with tempfile.TemporaryDirectory(dir=os.path.join(self.place, "parts")) as folder:
            paths = [os.path.join(folder, name) for name in ("ours", "base", "theirs")]
            for path, blob in zip(paths, (blobs[1], blobs[0], blobs[2]), strict=True):
                with open(path, "wb") as file:
                    file.write(run_git(["cat-file", "blob", blob], self.git_dir))
            try:
                merged = run_git(["merge-file", "-p", "-q", *paths], self.git_dir)
            except WorkspaceError:
                return False, None
        stored = run_git(["hash-object", "-w", "--stdin"], self.git_dir, stdin=merged)
        return True, f"{mode} {stored.decode().strip()}"


def must_be_apart(folder: str, state_folder: str) -> None:
    """Refuse a folder that has headway's own files in it: a snapshot would contain itself."""
    found = repository.find_repository(os.path.realpath(folder))
    top = os.path.realpath(folder) if found is None else found[0]
    if f"{os.path.realpath(state_folder)}/".startswith(f"{top}/"):
        raise WorkspaceError(
            f"{top} cannot have workspaces: headway's own files are in it", where=state_folder,
            hint="run the plan in a folder of its own, set HEADWAY_STATE_DIR to a folder outside "
            "of this one, or write `workspace: off`",
        )  # fmt: skip


def _take(folder: str, place: str, state_folder: str, base: str) -> None:
    """The frozen snapshot of a run and its private repository; complete with its manifest."""
    found = repository.find_repository(folder)
    top, git_dir = found or (folder, "")
    must_be_apart(folder, state_folder)
    cache = os.path.join(state_folder, "workspaces", digest(os.fsencode(top)).hex())
    snapshot.remove(place)
    snapshot.make_own_folder(place)
    view, git = os.path.join(place, "snapshot"), os.path.join(place, "git")
    state = repository.read_state(git_dir) if git_dir else None
    with snapshot.locked(cache):
        listing, left_out = snapshot.refresh_cache(top, cache)
        crash_point("workspace-cache")
        snapshot.link_tree(os.path.join(cache, "tree"), view)
        repository.write_git_dir(git, state)
        objects = os.path.join(git, "objects")
        if state:
            repository.link_objects(state, objects, cache)
            repository.write_git_dir(os.path.join(view, ".git"), state)
            repository.add_alternate(os.path.join(view, ".git/objects"), objects)
        nested = []
        for path, entry in listing.items():
            if path.endswith(b"/.git"):
                nested.append(os.fsdecode(os.path.dirname(path)))
                if stat.S_ISREG(entry[0]):
                    repository.adopt_inner(top, view, os.fsdecode(path), objects, cache)
    crash_point("workspace-snapshot")
    created_s = int(time.time())
    identity = state.identity if state else repository.IDENTITY
    about = _make_base(place, state, base, nested, identity, created_s)
    rules = snapshot.list_files(view, {}) if base else listing
    _link_rules(view, os.path.join(place, "ignores"), rules)
    manifest = _Manifest(top, os.path.relpath(folder, top), state is not None, *about, created_s,
                         identity, tuple(nested), left_out)  # fmt: skip
    crash_point("workspace-manifest")
    snapshot.write_file(os.path.join(place, MANIFEST), msgspec.json.encode(manifest))


def _make_base(
    place: str, state: GitState | None, base: str, nested: Sequence[str],
    identity: tuple[str, str], created_s: int,
) -> tuple[str, str, str, str]:  # fmt: skip
    """Base tree and commit of what is in the snapshot, the commit at its head, and the branch."""
    git, view, index = (os.path.join(place, name) for name in ("git", "snapshot", "index"))
    shown = os.path.join(view, ".git/index")
    if os.path.exists(own := os.path.join(git, "index")):
        # Sizes and times are those of the user's files: most entries are right already.
        # Written anew: what changed within the second of the index is marked then.
        run_git(["update-index", "-q", "--refresh", "--force-write-index"], git, allowed=(0, 1),
                GIT_INDEX_FILE=own, GIT_WORK_TREE=view)  # fmt: skip
        snapshot.replace_by_copy(own, index)
        snapshot.replace_by_copy(own, shown)
    if nested:
        _exclude(git, nested, index)
    run_git(["add", "-A"], git, GIT_INDEX_FILE=index, GIT_WORK_TREE=view)
    head, branch = (state.head, state.branch) if state else ("", "")
    if base:
        if not state:
            raise WorkspaceError(f"there is no `{base}`: the folder is not a git repository")
        said = run_git(
            ["rev-parse", "-q", "--verify", f"{base}^{{commit}}"], git, allowed=(0, 1, 128)
        )
        if not said:
            raise WorkspaceError(f"`{base}` is not a commit of this repository")
        head = said.decode().strip()
        branch = f"refs/heads/{base}" if f"refs/heads/{base}" in state.refs else ""
        run_git(["read-tree", "--reset", "-u", head], git, GIT_INDEX_FILE=index, GIT_WORK_TREE=view)
        snapshot.replace_by_copy(index, shown)
        with open(os.path.join(view, ".git/HEAD"), "w", encoding="utf-8") as file:
            file.write(f"ref: {branch}\n" if branch else f"{head}\n")
    tree = run_git(["write-tree"], git, GIT_INDEX_FILE=index).decode().strip()
    # Without sizes and times: what is collected is compared by content.
    run_git(["read-tree", tree], git, GIT_INDEX_FILE=index)
    if head:
        at_head = run_git(["rev-parse", f"{head}^{{tree}}"], git).decode().strip()
        if at_head == tree:
            return tree, head, head, branch
    who = {f"GIT_{role}_{part}": text for role in ("AUTHOR", "COMMITTER")
           for part, text in zip(("NAME", "EMAIL", "DATE"), (*identity, f"{created_s} +0000"),
                                 strict=True)}  # fmt: skip
    parents = ["-p", head] if head else []
    commit = ["commit-tree", tree, *parents, "-m", "files at the start of the run"]
    return tree, run_git(commit, git, variables=who).decode().strip(), head, branch


def _exclude(git: str, nested: Sequence[str], index: str) -> None:
    """Repositories within the folder that are no submodules are seen, and not collected."""
    listed = run_git(["ls-files", "-z", "--stage"], git, GIT_INDEX_FILE=index).split(b"\0")
    modules = {os.fsdecode(line.partition(b"\t")[2]) for line in listed
               if line.startswith(b"160000")}  # fmt: skip
    with open(os.path.join(git, "info/exclude"), "ab") as file:
        for path in nested:
            if path not in modules:
                plain = re.sub(r"([\\*?\[\] ])", r"\\\1", path)
                file.write(os.fsencode(f"\n/{plain}/\n"))


def _link_rules(view: str, target: str, listing: Listing) -> None:
    os.makedirs(target)
    for path, entry in listing.items():
        if os.path.basename(path) == b".gitignore" and stat.S_ISREG(entry[0]):
            rules = os.path.join(os.fsencode(target), path)
            os.makedirs(os.path.dirname(rules), exist_ok=True)
            os.link(os.path.join(os.fsencode(view), path), rules)


def _of_files(files: Files) -> dict[str, str | None]:
    """Without folders, which git does not keep."""
    return {path: entry for path, entry in sorted(files.items()) if entry != FOLDER}


def _key(files: Files) -> str:
    return digest(encode_files(files)).hex()
