"""What became of a workspace: its changes as a commit, its other commits as refs.

Laws:
- What is returned is on the disk; the same workspace collected twice gives the same.
- Rules about ignored files are those that stand in the workspace at its end.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

import msgspec
from msgspec import Struct

from headway.base.crash import crash_point
from headway.errors import WorkspaceError
from headway.workspaces import repository, snapshot
from headway.workspaces.difference import (
    MODULE,
    FileDifference,
    compare_copy,
    git_folder,
    new_commits,
    read_upper,
    start_commits,
)
from headway.workspaces.repository import run_git
from headway.workspaces.snapshot import Entry

if TYPE_CHECKING:
    from headway.workspaces.store import WorkspaceStore

Files = Mapping[str, str | None]
"""Entries by path; None if there is nothing."""

ATTEMPTS: Final = "refs/headway/attempts"
KEPT: Final = "refs/headway/kept"
APART: Final = "a repository of its own: its commits are not kept"


class Workspace(Struct, frozen=True):
    """A task's own view of the folder."""

    name: str
    number: int
    """Of the workspace among those of this name, from 1."""
    mode: str
    """`overlay` or `copy`."""
    folder: str
    """The top of the view, as the user knows it."""
    place: str
    """Where the copy is; in overlay mode the folder itself."""
    home: str
    """What belongs to this workspace alone, outside of the view."""
    lower: tuple[str, ...]
    """Layers of an overlay, topmost first."""
    upper: str
    work: str
    state: str
    """The key of the state that it begins with."""

    @property
    def written(self) -> str:
        """The folder that holds what the task wrote, with what it had if that is a copy."""
        return self.upper if self.mode == "overlay" else self.place


class Collected(Struct, frozen=True):
    """What became of a workspace."""

    changes: dict[str, str | None]
    commit: str
    """Of all changes, on top of what it began with."""
    ref: str
    """Under which the commit is kept in the run's repository."""
    other_refs: dict[str, str]
    """Commits that the files do not show: other branches, stashes, detached heads."""
    submodules: dict[str, str]
    """By path: commits made in submodules, and uncommitted changes there as a commit."""
    left_out: dict[str, str]
    """What cannot be kept, and why: sockets, devices."""


def name_ref(name: str, safe: str = "") -> str:
    """A part of a ref, and of a path, for any name."""
    return quote(name, safe=safe).replace(".", "%2E").replace("~", "%7E")


def collect(store: WorkspaceStore, ws: Workspace, written: Collection[str] = ()) -> Collected:
    files = store.files(ws)
    found = _difference(store, ws, files)
    plain, inner = _by_repository(store, found, files)
    rules = _rules(store, ws, found, files)
    untracked = [path for path in plain.present if not store.at(path, files)]
    ignored = _ignored(store, rules, untracked)
    made = _new_repositories(store, ws, found)
    for root in {*made} - _ignored(store, rules, made):
        found.left_out[root] = APART
    present = [path for path in plain.present if path not in ignored]
    index = os.path.join(ws.home, "index")
    start_index, start = store.start(ws)
    snapshot.replace_by_copy(start_index, index)
    changes = compare_index(store, ws.written, index, present, plain.removed, start)
    crash_point("workspace-collect")
    other_refs, _ = _keep_commits(store, ws, ".git", "", found.left_out)
    submodules: dict[str, str] = {}
    for root, part in inner.items():
        kept, current = _keep_submodule(store, ws, root, part, found.left_out)
        submodules |= kept
        if current and f"{MODULE}{current}" != store.at(root, files):
            changes[root] = MODULE + current
    ref = f"{ATTEMPTS}/{name_ref(ws.name)}/{ws.number}"
    commit = store.make_commits(ref, [(start, ws.name, changes)])[0]
    crash_point("workspace-attempt")
    for path in written:
        if path not in ignored and (entry := store.at(path, files)):
            changes.setdefault(path, entry)
    return Collected(changes, commit, ref, other_refs, submodules, found.left_out)


def _difference(store: WorkspaceStore, ws: Workspace, files: Files) -> FileDifference:
    if ws.mode == "overlay":
        return read_upper(ws.upper, lambda path: store.at(path, files),
                          lambda path: store.below(path, files))  # fmt: skip
    with open(os.path.join(ws.home, "listing"), "rb") as file:
        listed = msgspec.msgpack.decode(file.read(), type=list[tuple[bytes, Entry]])
    found = compare_copy(ws.place, dict(listed))
    gone = [path for path in found.removed if store.at(path, files) or path.startswith(".git/")]
    return FileDifference(found.present, gone, found.left_out)


def _by_repository(
    store: WorkspaceStore, found: FileDifference, files: Files
) -> tuple[FileDifference, dict[str, FileDifference]]:
    """What belongs to this repository and to each submodule; other repositories are named."""
    plain, inner = FileDifference([], [], {}), dict[str, FileDifference]()
    roots = sorted(store.nested, key=len, reverse=True)
    modules = [root for root in roots if (store.at(root, files) or "").startswith(MODULE)]
    for number, paths in enumerate((found.present, found.removed)):
        for path in paths:
            root = next((root for root in roots if path.startswith(f"{root}/")), "")
            if path.startswith(".git/"):
                if path.startswith(".git/modules/"):
                    inner |= {root: inner.get(root, FileDifference([], [], {})) for root in modules}
            elif root in modules:
                part = inner.setdefault(root, FileDifference([], [], {}))
                if f"/{path}/".find("/.git/") < 0:
                    (part.present, part.removed)[number].append(path[len(root) + 1 :])
            elif root:
                if not path.endswith("/.git/index"):  # Written by `git status`.
                    found.left_out[root] = APART
            elif f"/{path}/".find("/.git/") < 0:
                (plain.present, plain.removed)[number].append(path)
    return plain, inner


def _new_repositories(store: WorkspaceStore, ws: Workspace, found: FileDifference) -> list[str]:
    """Those with commits: their files land, their history does not."""
    roots = [path.removesuffix("/.git/HEAD") for path in found.present
             if path.endswith("/.git/HEAD")]  # fmt: skip
    return [root for root in roots if root not in store.nested
            and repository.read_refs(os.path.join(ws.written, root, ".git"))]  # fmt: skip


def _rules(store: WorkspaceStore, ws: Workspace, found: FileDifference, files: Files) -> str:
    """A folder with the `.gitignore` files of a workspace and nothing else."""
    changed = [path for path in (*files, *found.present, *found.removed)
               if os.path.basename(path) == ".gitignore"]  # fmt: skip
    if not changed:
        return store.rules
    own = os.path.join(ws.home, "rules")
    snapshot.remove(own)
    snapshot.link_tree(store.rules, own)
    for path in changed:
        target = os.path.join(own, path)
        snapshot.remove(target)
        for top in (ws.written, *ws.lower) if path not in found.removed else ():
            source = os.path.join(top, path)
            if os.path.isfile(source) and not os.path.islink(source):
                os.makedirs(os.path.dirname(target), exist_ok=True)
                snapshot.copy_file(os.fsencode(source), os.fsencode(target))
                break
    return own


def _ignored(store: WorkspaceStore, rules: str, paths: Sequence[str]) -> set[str]:
    """Those of untracked paths that git ignores."""
    if not paths:
        return set()
    said = run_git(["check-ignore", "--no-index", "-z", "--stdin"], store.git_dir,
                   stdin=_lines(paths), allowed=(0, 1), GIT_WORK_TREE=rules,
                   GIT_INDEX_FILE=os.path.join(store.place, "no-index"))  # fmt: skip
    return {os.fsdecode(path) for path in said.split(b"\0")[:-1]}


def _lines(paths: Sequence[str]) -> bytes:
    return b"".join(os.fsencode(path) + b"\0" for path in paths)


def compare_index(
    store: WorkspaceStore, top: str, index: str, present: Sequence[str], removed: Sequence[str],
    start: str,
) -> dict[str, str | None]:  # fmt: skip
    """Store files of a folder, and compare them with a commit by means of an index of it."""
    if removed:
        lines = repository.index_lines(dict.fromkeys(removed), len(start))
        run_git(["update-index", "-z", "--index-info"], store.git_dir, stdin=lines,
                GIT_INDEX_FILE=index)  # fmt: skip
    if present:
        run_git(["update-index", "-z", "--add", "--replace", "--stdin"], store.git_dir,
                stdin=_lines(present), GIT_INDEX_FILE=index, GIT_WORK_TREE=top)  # fmt: skip
    if not present and not removed:
        return {}
    return read_raw(run_git(["diff-index", "--cached", "--raw", "-z", "--no-renames", "--no-abbrev",
                             "--ignore-submodules=none", start], store.git_dir,
                            GIT_INDEX_FILE=index))  # fmt: skip


def read_raw(raw: bytes) -> dict[str, str | None]:
    """The entries in git's raw form of a difference."""
    pieces = raw.split(b"\0")[:-1]
    changes: dict[str, str | None] = {}
    for about, path in zip(pieces[::2], pieces[1::2], strict=True):
        _, mode, _, blob, kind = about.decode().split(" ")
        changes[os.fsdecode(path)] = None if kind == "D" else f"{mode} {blob}"
    return changes


def _keep_commits(
    store: WorkspaceStore, ws: Workspace, inner: str, label: str, left_out: dict[str, str]
) -> tuple[dict[str, str], str]:
    """Keep the commits of a git folder of the workspace; those to name, and the current one."""
    own = os.path.join(ws.written, inner)
    lower = tuple(os.path.join(layer, inner) for layer in ws.lower)
    start = start_commits(lower)
    made, current, told = new_commits(own, lower if ws.mode == "overlay" else (), start)
    folders = [os.path.join(folder, "objects") for folder in (own, *lower)]
    folders = [folder for folder in folders if os.path.isdir(folder)]
    made = _keep_objects(store, folders, made, label, start, left_out)
    if made:
        place = f"{KEPT}/{name_ref(ws.name)}/{ws.number}"
        lines = [f"update {place}/{name_ref(label + name, '/')} {commit}\n"
                 for name, commit in made.items()]  # fmt: skip
        run_git(["update-ref", "--stdin"], store.git_dir, stdin="".join(lines).encode())
    named = {label + name: made[name] for name in sorted(told & made.keys())
             if not current or not _is_ancestor(store, made[name], current)}  # fmt: skip
    return named, current


def _keep_objects(
    store: WorkspaceStore, folders: list[str], made: dict[str, str], label: str,
    known: Collection[str], left_out: dict[str, str],
) -> dict[str, str]:  # fmt: skip
    """Those of the commits that can be read; they are stored then."""
    with suppress(WorkspaceError):
        if made:
            repository.keep_objects(store.git_dir, folders, sorted(set(made.values())), known)
        return made
    # Something is missing or broken: each by itself, with all that it needs.
    whole: dict[str, str] = {}
    for name, commit in made.items():
        try:
            repository.keep_objects(store.git_dir, folders, [commit], ())
            whole[name] = commit
        except WorkspaceError as fault:
            left_out[label + name] = f"commit {commit} cannot be read: {fault.message}"
    return whole


def _is_ancestor(store: WorkspaceStore, commit: str, other: str) -> bool:
    try:
        run_git(["merge-base", "--is-ancestor", commit, other], store.git_dir)
    except WorkspaceError:
        return False
    return True


def _keep_submodule(
    store: WorkspaceStore, ws: Workspace, root: str, found: FileDifference, left_out: dict[str, str]
) -> tuple[dict[str, str], str]:
    """Commits made in a submodule, with what is not committed there as a commit of its own."""
    inner = git_folder((ws.written, *ws.lower), root)
    if not inner:
        return {}, ""
    kept, current = _keep_commits(store, ws, inner, f"{root}: ", left_out)
    before = store.at(root, store.files(ws))
    if not current:
        return kept, ""
    if f"{MODULE}{current}" != before:
        kept[root] = current
    there = repository.read_tree(store.git_dir, current)
    rules = os.path.join(store.rules, root)
    os.makedirs(rules, exist_ok=True)
    ignored = _ignored(store, rules, [path for path in found.present if path not in there])
    present = [path for path in found.present if path not in ignored]
    index = os.path.join(ws.home, "module-index")
    run_git(["read-tree", current], store.git_dir, GIT_INDEX_FILE=index)
    removed = [path for path in found.removed if path in there]
    top = os.path.join(ws.written, root)
    changes = compare_index(store, top, index, present, removed, current)
    if changes:
        name = f"{root}: uncommitted"
        ref = f"{KEPT}/{name_ref(ws.name)}/{ws.number}/{name_ref(name, '/')}"
        kept[name] = store.make_commits(ref, [(current, f"{ws.name}: {name}", changes)])[0]
    return kept, current
