"""What landed in a run, brought to the user: into the working tree, as branches, as a patch.

Laws:
- All or nothing: either every path has what landed, or none was touched and conflicts are named.
- What the user changed since the run began is merged or refused, never lost.
- A kill in between leaves each file whole, old or new; the same call again does the rest.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Mapping
from contextlib import suppress
from typing import Final

from headway.base.crash import crash_point
from headway.errors import WorkspaceError
from headway.workspaces import repository, snapshot
from headway.workspaces.collection import Files, compare_index, read_raw
from headway.workspaces.difference import MODULE
from headway.workspaces.repository import run_git
from headway.workspaces.snapshot import named_faults
from headway.workspaces.store import LANDED, MANIFEST, WorkspaceStore

CONFLICTS_SHOWN_MAX: Final = 10
PART: Final = ".headway-apply"
"""A folder beside the files, so that each is put in place by a rename."""


def list_stores(run_folder: str) -> list[WorkspaceStore]:
    """The workspaces' stores of a run, without a change to them."""
    parent = os.path.join(run_folder, "workspaces")
    names = sorted(os.listdir(parent)) if os.path.isdir(parent) else []
    places = [os.path.join(parent, name) for name in names]
    return [WorkspaceStore(place) for place in places
            if os.path.exists(os.path.join(place, MANIFEST))]  # fmt: skip


def landed_tasks(store: WorkspaceStore) -> list[tuple[str, str]]:
    """Name and commit of each task that landed, in order."""
    if LANDED not in repository.read_refs(store.git_dir):
        return []
    said = run_git(["log", "--reverse", "--first-parent", "-z", "--format=%H%n%B",
                    f"{store.base_commit}..{LANDED}"], store.git_dir)  # fmt: skip
    pieces = (os.fsdecode(piece).partition("\n") for piece in said.split(b"\0") if piece)
    return [(name.strip("\n"), commit) for commit, _, name in pieces]


def patch_of(store: WorkspaceStore) -> str:
    """All that landed, as text for `git apply`."""
    tasks = landed_tasks(store)
    return store.patch(store.base_commit, tasks[-1][1]) if tasks else ""


def apply_files(store: WorkspaceStore) -> list[str]:
    """Bring what landed into the user's folder; returns the paths that were written.

    WorkspaceError names the conflicts; nothing was written then. The index stays as it is.
    """
    tasks = landed_tasks(store)
    if not tasks:
        return []
    with named_faults(store.folder):
        landed = _changes_between(store, store.base_commit, tasks[-1][1])
        modules = {path: entry for path, entry in landed.items() if entry and MODULE in entry}
        plain = {path: entry for path, entry in landed.items() if path not in modules}
        part = os.path.join(store.folder, PART)
        snapshot.remove(part)
        current, seen, conflicts = _look(store, plain)
        wanted: dict[str, str | None] = {}
        for path, entry in plain.items():
            if path in conflicts or current.get(path) == entry:
                continue
            merges, merged = store.merge_text(store.entry(path), current.get(path), entry)
            if not merges:
                conflicts[path] = "changed in the folder and in the run"
            elif merged != current.get(path):
                wanted[path] = merged
        if conflicts:
            raise _refused(conflicts)
        _write(store, part, wanted, seen)
        for path, entry in modules.items():
            _fetch_module(store, path, entry.removeprefix(MODULE))
        return sorted(wanted)


def _changes_between(store: WorkspaceStore, before: str, after: str) -> dict[str, str | None]:
    return read_raw(run_git(["diff-tree", "-r", "-z", "--raw", "--no-renames", "--no-abbrev",
                             before, after], store.git_dir))  # fmt: skip


def _look(
    store: WorkspaceStore, landed: Files
) -> tuple[dict[str, str | None], dict[str, snapshot.Entry | None], dict[str, str]]:
    """What stands at these paths in the user's folder now: entries, times, and why it cannot be."""
    seen: dict[str, snapshot.Entry | None] = {}
    conflicts: dict[str, str] = {}
    for path in landed:
        try:
            found = os.lstat(os.path.join(store.folder, path))
        except (FileNotFoundError, NotADirectoryError):
            seen[path] = None
        else:
            seen[path] = snapshot.entry_of(found)
        if above := _obstacle(store.folder, path, landed):
            conflicts[path] = f"{above} is not a folder"
        elif (entry := seen[path]) and not stat.S_ISREG(entry[0]) and not stat.S_ISLNK(entry[0]):
            if landed[path] and not _goes(store.folder, path, landed):
                conflicts[path] = "something else is in its place"
            seen[path] = None
    present = [path for path, entry in seen.items() if entry and path not in conflicts]
    index = os.path.join(store.place, "parts", "apply-index")
    run_git(["read-tree", store.base_commit], store.git_dir, GIT_INDEX_FILE=index)
    removed = [path for path, entry in seen.items() if not entry and store.entry(path)]
    changed = compare_index(store, store.folder, index, present, removed, store.base_commit)
    current = {path: changed[path] if path in changed else store.entry(path) for path in landed}
    return current, seen, conflicts


def _goes(folder: str, path: str, landed: Files) -> bool:
    """Whether all that is in a folder is removed by what landed."""
    left_out: dict[str, str] = {}
    below = snapshot.list_files(os.path.join(folder, path), left_out, ())
    files = (f"{path}/{os.fsdecode(name)}" for name, entry in below.items()
             if not stat.S_ISDIR(entry[0]))  # fmt: skip
    return not left_out and all(landed.get(file, "") is None for file in files)


def _obstacle(folder: str, path: str, landed: Files) -> str:
    """The file or link above a path that is in its way and does not go."""
    above = os.path.dirname(path)
    while above:
        full = os.path.join(folder, above)
        if os.path.lexists(full) and (os.path.islink(full) or not os.path.isdir(full)):
            return "" if above in landed and landed[above] is None else above
        above = os.path.dirname(above)
    return ""


def _refused(conflicts: Mapping[str, str]) -> WorkspaceError:
    lines = [f"{path}: {why}" for path, why in sorted(conflicts.items())]
    more = len(lines) - CONFLICTS_SHOWN_MAX
    shown = lines[:CONFLICTS_SHOWN_MAX] + ([f"and {more} more"] if more > 0 else [])
    return WorkspaceError(
        f"{len(lines)} {'files conflict' if len(lines) > 1 else 'file conflicts'}; nothing was "
        "changed", detail="\n  ".join(shown),
        hint="commit or undo these changes first, or take the branches: `--branches`",
    )  # fmt: skip


def _write(
    store: WorkspaceStore, part: str, wanted: Files, seen: Mapping[str, snapshot.Entry | None]
) -> None:
    """Put files in place; after a fault what was there stands again."""
    if not wanted:
        return
    new, old = os.path.join(part, "new"), os.path.join(part, "old")
    done: list[str] = []
    os.makedirs(new)
    try:
        index = os.path.join(store.place, "parts", "apply-index")
        there = {path: entry for path, entry in wanted.items() if entry}
        lines = repository.index_lines(wanted, len(store.base_commit))
        run_git(["update-index", "-z", "--add", "--replace", "--index-info"], store.git_dir,
                stdin=lines, GIT_INDEX_FILE=index)  # fmt: skip
        run_git(["checkout-index", "-z", "-f", "--stdin"], store.git_dir,
                stdin=b"".join(os.fsencode(path) + b"\0" for path in there),
                GIT_INDEX_FILE=index, GIT_WORK_TREE=new)  # fmt: skip
        crash_point("workspace-apply")
        gone = sorted((path for path in wanted if path not in there), reverse=True)
        for path in (*gone, *sorted(there)):
            target = os.path.join(store.folder, path)
            _keep_old(target, os.path.join(old, path), seen[path])
            done.append(path)
            if path in there:
                _inherit(os.path.join(new, path), target)
                _put(os.path.join(new, path), target)
            elif seen[path]:
                os.unlink(target)
                snapshot.remove_empty(store.folder, path)
            crash_point("workspace-applied")
    except (OSError, WorkspaceError):
        for path in reversed(done):
            _put_back(store.folder, path, os.path.join(old, path))
        raise
    finally:
        snapshot.remove(part)


def _keep_old(target: str, old: str, expected: snapshot.Entry | None) -> None:
    """A second name of what is at a path, if it is still what was merged."""
    try:
        found: snapshot.Entry | None = snapshot.entry_of(os.lstat(target))
    except (FileNotFoundError, NotADirectoryError):
        found = None
    if found and stat.S_ISDIR(found[0]):
        os.rmdir(target)
        return
    if found != expected:
        raise WorkspaceError(f"{target} was changed meanwhile; nothing was changed",
                             hint="try it again")  # fmt: skip
    if found:
        os.makedirs(os.path.dirname(old), exist_ok=True)
        snapshot.link_or_copy(os.fsencode(target), os.fsencode(old))


def _inherit(new: str, target: str) -> None:
    """The new file gets owner, permissions and extended attributes (access lists) of the old one,
    beside what git keeps of them."""
    with suppress(OSError):
        before, mode = os.lstat(target), os.lstat(new).st_mode
        if stat.S_ISREG(before.st_mode) and stat.S_ISREG(mode):
            is_program = bool(mode & 0o100)
            readers = before.st_mode & 0o444
            kept = (before.st_mode & ~0o111) | (readers >> 2 if is_program else 0)
            os.chmod(new, stat.S_IMODE(kept))
            os.chown(new, before.st_uid, before.st_gid)
            for name in os.listxattr(target) if hasattr(os, "listxattr") else ():
                os.setxattr(new, name, os.getxattr(target, name))


def _put(new: str, target: str) -> None:
    os.makedirs(os.path.dirname(target), exist_ok=True)
    os.replace(new, target)


def _put_back(folder: str, path: str, old: str) -> None:
    target = os.path.join(folder, path)
    with suppress(FileNotFoundError):
        os.unlink(target)
    snapshot.remove_empty(folder, path)
    if os.path.lexists(old):
        _put(old, target)


def make_branches(
    store: WorkspaceStore, run: str, others: Mapping[str, str] | None = None
) -> list[str]:
    """One branch per task and one with all, in the user's repository; all of them or none.

    The branch of a task stands alone, unless an earlier task wrote the same files. `others` are
    commits by name that the files do not show.
    """
    found = repository.find_repository(store.folder)
    if not found:
        raise WorkspaceError(f"{store.folder} is not a git repository: it has no branches",
                             hint="`--apply` or `--patch`")  # fmt: skip
    tasks = landed_tasks(store)
    dirty = _changes_between(store, store.head_commit, store.base_commit) \
        if store.head_commit != store.base_commit else {}  # fmt: skip
    steps: list[tuple[str, dict[str, str | None]]] = []
    parent = store.base_commit
    for name, commit in tasks:
        steps.append((name, _changes_between(store, parent, commit)))
        parent = commit
    touched = {path for _, changes in steps for path in changes}
    first = store.base_commit if dirty.keys() & touched else store.head_commit
    chain = store.make_commits(
        "refs/headway/branches/all",
        [(f":{number}" if number else first, name, changes)
         for number, (name, changes) in enumerate(steps)],
    )  # fmt: skip
    branches: dict[str, str] = {}
    earlier: set[str] = set()
    for (name, changes), stacked in zip(steps, chain, strict=True):
        branch = f"headway/{run}-{_branch_name(name)}"
        while branch in branches:
            branch += "+"
        if earlier.isdisjoint(changes):
            start = store.base_commit if dirty.keys() & changes.keys() else store.head_commit
            ref = "refs/headway/branches/one"
            stacked = store.make_commits(ref, [(start, name, changes)])[0]  # noqa: PLW2901
        branches[branch] = stacked
        earlier |= changes.keys()
    if chain:
        branches[f"headway/{run}"] = chain[-1]
    for name, commit in (others or {}).items():
        branches[f"headway/{run}-{_branch_name(name)}"] = commit
    if branches:
        lines = [f"{commit}:refs/heads/{branch}" for branch, commit in branches.items()]
        run_git(["fetch", "--quiet", "--no-tags", "--atomic", "--no-write-fetch-head",
                 "--no-recurse-submodules", store.git_dir, *lines], found[1])  # fmt: skip
        for path, entry in _changes_between(store, first, chain[-1] if chain else first).items():
            if (entry or "").startswith(MODULE):
                _fetch_module(store, path, str(entry).removeprefix(MODULE))
    return list(branches)


def _branch_name(name: str) -> str:
    plain = re.sub(r"[^A-Za-z0-9_/-]+", "-", name)
    return re.sub(r"/[/-]*", "/", plain).strip("/-") or "task"


def _fetch_module(store: WorkspaceStore, path: str, commit: str) -> None:
    """Bring a commit that was made in a submodule into the user's, for `git checkout` there."""
    found = repository.find_repository(os.path.join(store.folder, path))
    if found and found[0] == os.path.join(store.folder, path):
        ref = f"refs/headway/{commit[:12]}"
        run_git(["fetch", "--quiet", "--no-tags", "--no-write-fetch-head", store.git_dir,
                 f"{commit}:{ref}"], found[1])  # fmt: skip
