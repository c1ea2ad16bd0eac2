"""Git folders of our own: the private repository of a run, and the `.git` of every workspace.

Laws:
- The user's repository is only read; its objects are hard links here, which its gc does not touch.
- Nothing that an agent can write (config, hooks, attributes of its `.git`) is run by headway.
- What was stored is on the disk when the function returns.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Final

from msgspec import Struct

from headway.errors import WorkspaceError
from headway.workspaces.snapshot import (
    copy_tree,
    link_tree,
    make_folder,
    refresh_cache,
    remove,
    replace_by_copy,
)

GIT: Final = (
    "git", "-c", "gc.auto=0", "-c", "maintenance.auto=false", "-c", "core.hooksPath=/dev/null",
    "-c", "core.fsync=committed,reference", "-c", "core.fsyncMethod=batch",
    "-c", "core.looseCompression=1", "-c", "core.fsmonitor=false", "-c", "safe.directory=*",
    "-c", "diff.ignoreSubmodules=dirty", "-c", "advice.addEmbeddedRepo=false",
    "-c", "core.quotePath=false", "-c", "core.safecrlf=false",
)  # fmt: skip

DROPPED_KEYS: Final = re.compile(
    r"core\.(bare|worktree|fsmonitor|untrackedcache|splitindex|checkstat|trustctime|logallrefupdates"
    r"|sharedrepository|alternaterefscommand)|gc\..*|maintenance\..*|include(if)?\..*"
    r"|extensions\.(worktreeconfig|refstorage)"
)
"""What reaches outside of the folder, or depends on where it is."""

OWN_CONFIG: Final = (
    "[core]\n\tbare = false\n\tlogAllRefUpdates = true\n\ttrustctime = false\n"
    "\tcheckStat = minimal\n\tfsmonitor = false\n\tuntrackedCache = false\n\tsplitIndex = false\n"
    "[gc]\n\tauto = 0\n[maintenance]\n\tauto = false\n"
)
"""Copies and overlays keep size and time of a file, and neither its inode nor its device: with
`minimal` an index that was refreshed once is right in all of them."""

IDENTITY: Final = ("headway", "headway@localhost")
"""Of commits, for users who have told git no name of theirs."""


class GitState(Struct, frozen=True):
    """What one repository of the user looks like: enough to make another of it."""

    git_dir: str
    common_dir: str
    head: str
    """A commit; empty before the first one."""
    branch: str
    """`refs/heads/main`; empty if HEAD is detached."""
    refs: Mapping[str, str]
    config: tuple[tuple[str, str], ...]
    identity: tuple[str, str] = IDENTITY


KEPT_VARIABLES: Final = ("GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM", "GIT_CONFIG_NOSYSTEM")
"""The user's settings; the others say which repository is meant, for a hook that runs headway."""


def _environment(more: Mapping[str, str]) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items()
            if not name.startswith("GIT_") or name in KEPT_VARIABLES}  # fmt: skip
    return {**kept, "LC_ALL": "C", "GIT_TERMINAL_PROMPT": "0", **more}


def run_git(
    arguments: Sequence[str | bytes], git_dir: str = "", *, stdin: bytes = b"", cwd: str = "/",
    allowed: Iterable[int] = (0,), variables: Mapping[str, str] | None = None, **more: str,
) -> bytes:  # fmt: skip
    """What git says; WorkspaceError if it fails. `more` are variables: `GIT_INDEX_FILE=...`."""
    more |= {**(variables or {}), **({"GIT_DIR": git_dir} if git_dir else {})}
    try:
        done = subprocess.run(
            [*GIT, *arguments], input=stdin, capture_output=True, check=False,
            cwd=more.get("GIT_WORK_TREE", cwd), env=_environment(more),
        )  # fmt: skip
    except FileNotFoundError:
        raise WorkspaceError("workspaces need git, and there is none", hint="install git") from None
    if done.returncode not in allowed:
        said = done.stderr.decode(errors="replace").strip().splitlines() or [f"{done.returncode}"]
        name = os.fsdecode(arguments[0])
        raise WorkspaceError(f"`git {name}` failed: {said[-1][:300]}", where=git_dir or cwd)
    return done.stdout


def find_repository(folder: str) -> tuple[str, str] | None:
    """The top level and the git folder of the repository that the folder is part of, if any."""
    try:
        said = run_git(["rev-parse", "--show-toplevel", "--absolute-git-dir"], cwd=folder)
    except WorkspaceError as fault:
        if "need git" in fault.message:
            raise
        return None
    top, git_dir = os.fsdecode(said).splitlines()
    top = os.path.realpath(top)
    if top != os.path.realpath(folder):
        inner = os.path.relpath(os.path.realpath(folder), top)
        code = ["check-ignore", "-q", "--", inner]
        with suppress(WorkspaceError):
            # A project of its own in a folder that the repository around it ignores.
            run_git(code, git_dir, GIT_WORK_TREE=top)
            return None
    return top, git_dir


def read_state(git_dir: str) -> GitState:
    """Look at a repository of the user without changing it."""
    common = git_dir
    with suppress(FileNotFoundError), open(os.path.join(git_dir, "commondir"), "rb") as file:
        common = os.path.realpath(os.path.join(git_dir, os.fsdecode(file.read().strip())))
    said = run_git(["rev-parse", "-q", "--verify", "HEAD^{commit}"], git_dir, allowed=(0, 1, 128))
    branch = run_git(["symbolic-ref", "-q", "HEAD"], git_dir, allowed=(0, 1))
    listed = run_git(["for-each-ref", "--format=%(objectname) %(refname) %(symref)"], git_dir)
    refs: dict[str, str] = {}
    for line in os.fsdecode(listed).splitlines():
        commit, name, symbolic = line.split(" ")
        refs[name] = f"ref: {symbolic}" if symbolic else commit
    config: list[tuple[str, str]] = []
    identity = dict(zip(("user.name", "user.email"), IDENTITY, strict=True))
    scoped = run_git(["config", "--list", "--includes", "--show-scope", "-z"], git_dir)
    pieces = scoped.decode(errors="surrogateescape").split("\0")
    for scope, text in zip(pieces[::2], pieces[1::2], strict=False):
        key, has_value, value = text.partition("\n")
        if scope in ("local", "worktree"):
            config.append((key, value if has_value else "true"))
        if key in identity and scope != "command":
            identity[key] = value
    author = (identity["user.name"], identity["user.email"])
    head = said.decode().strip()
    return GitState(git_dir, common, head, branch.decode().strip(), refs, tuple(config), author)


def write_git_dir(place: str, state: GitState | None, config: str = "") -> None:
    """A standalone git folder like the user's, still without objects."""
    for name in ("objects/info", "objects/pack", "refs/heads", "refs/tags", "info"):
        os.makedirs(os.path.join(place, name), exist_ok=True)
    head = "ref: refs/heads/main"
    if state is not None:
        head = f"ref: {state.branch}" if state.branch else state.head
        config = _config_text(state.config) + config
        _copy_parts(place, state)
        packed = sorted(ref for ref in state.refs.items() if not ref[1].startswith("ref:"))
        lines = "".join(f"{commit} {name}\n" for name, commit in packed)
        _write(place, "packed-refs", f"# pack-refs with: sorted \n{lines}")
        for name, target in state.refs.items():
            if target.startswith("ref:"):
                _write(place, name, f"{target}\n")
    _write(place, "config", config + OWN_CONFIG)
    _write(place, "HEAD", f"{head}\n")


def _copy_parts(place: str, state: GitState) -> None:
    for source, names in (
        (state.common_dir, ("info", "hooks")),
        (state.git_dir, ("info",) if state.git_dir != state.common_dir else ()),
    ):
        for name in names:
            if os.path.isdir(part := os.path.join(source, name)):
                copy_tree(part, os.path.join(place, name))
    hooks = os.path.join(place, "hooks")
    for name in os.listdir(hooks) if os.path.isdir(hooks) else ():
        if name.endswith(".sample"):
            os.unlink(os.path.join(hooks, name))
    replace_by_copy(os.path.join(state.git_dir, "index"), os.path.join(place, "index"))
    files = [(state.common_dir, "shallow"),
             (state.common_dir, "logs/refs/stash")]  # fmt: skip
    files += [(state.git_dir, name) for name in os.listdir(state.git_dir)
              if name.startswith("sharedindex.")]  # fmt: skip
    for folder, name in files:
        with suppress(FileNotFoundError), open(os.path.join(folder, name), "rb") as file:
            _write(place, name, os.fsdecode(file.read()))


def _config_text(pairs: Iterable[tuple[str, str]]) -> str:
    text = []
    for key, value in pairs:
        if DROPPED_KEYS.fullmatch(key):
            continue
        section, _, rest = key.partition(".")
        inner, _, name = rest.rpartition(".")
        inner, plain = (
            part.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
            for part in (inner, value)
        )
        text.append(f'[{section} "{inner}"]' if inner else f"[{section}]")
        text.append(f'\n\t{name} = "{plain}"\n')
    return "".join(text)


def _write(place: str, name: str, text: str) -> None:
    path = os.path.join(place, name)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb") as file:
        file.write(os.fsencode(text))


def link_objects(state: GitState, objects: str, cache: str) -> None:
    """The user's objects as hard links; from another file system, as links to copies in a cache."""
    source = os.path.join(state.common_dir, "objects")
    if os.stat(source).st_dev != os.stat(objects).st_dev:
        kept = os.path.join(cache, "objects-" + re.sub(r"[^\w.-]", "_", state.common_dir))
        refresh_cache(source, kept, skip=(b"info",))
        link_tree(os.path.join(kept, "tree"), objects)
    else:
        link_tree(source, objects, skip=(b"info",))
    with suppress(FileNotFoundError), open(os.path.join(source, "info/alternates"), "rb") as file:
        for line in os.fsdecode(file.read()).splitlines():
            if line and not line.startswith("#"):
                add_alternate(objects, os.path.normpath(os.path.join(source, line)))


def add_alternate(objects: str, other: str) -> None:
    os.makedirs(os.path.join(objects, "info"), exist_ok=True)
    with open(os.path.join(objects, "info/alternates"), "ab") as file:
        file.write(os.fsencode(other) + b"\n")


def adopt_inner(top: str, snapshot: str, path: str, objects: str, cache: str) -> None:
    """Give a submodule, or a linked worktree within the folder, a git folder of the workspace.

    `path` is that of its file `.git`, which leads to a folder of the user's.
    """
    with open(os.path.join(top, path), "rb") as file:
        target = os.fsdecode(file.read().strip()).removeprefix("gitdir: ")
    inner = os.path.dirname(path)
    git_dir = os.path.realpath(os.path.join(top, inner, target))
    pointer = os.path.join(snapshot, path)
    remove(pointer)
    if not os.path.isdir(git_dir):
        return
    state = read_state(git_dir)
    _, is_module, name = git_dir.partition("/modules/")
    own = os.path.join(".git/modules", name if is_module else inner)
    place = os.path.join(snapshot, own)
    # The file leads to its folder, and back.
    back = os.path.relpath(os.path.join(snapshot, inner), place)
    write_git_dir(place, state, f'[core]\n\tworktree = "{back}"\n')
    with open(pointer, "w", encoding="utf-8", errors="surrogateescape") as file:
        file.write(f"gitdir: {os.path.relpath(place, os.path.join(snapshot, inner))}\n")
    link_objects(state, objects, cache)
    add_alternate(os.path.join(place, "objects"), objects)


# Commits out of entries ("100644 <blob>"), by one process for many.


def remove_locks(git_dir: str) -> None:
    """Remove what a git process that was killed left: each later one would refuse to write."""
    folders = [(git_dir, os.listdir(git_dir))]
    folders += [(folder, names) for folder, _, names in os.walk(os.path.join(git_dir, "refs"))]
    for folder, names in folders:
        for name in names:
            if name.endswith(".lock"):
                with suppress(FileNotFoundError):
                    os.unlink(os.path.join(folder, name))


def import_commits(
    git_dir: str, ref: str, commits: Iterable[tuple[str, str, Mapping[str, str | None]]],
    who: tuple[str, str], when_s: int,
) -> list[str]:  # fmt: skip
    """Make commits of (parent, message, changes) and move the ref to the last one.

    An empty parent begins a history; `:1` is the first commit of this call. The same commits have
    the same names each time.
    """
    name, email = (re.sub(r"[<>\n]", "", text) for text in who)
    stream: list[bytes] = []
    count = 0
    for parent, message, changes in commits:
        count += 1
        text = os.fsencode(message)
        stream += [
            b"reset %s\n\n" % ref.encode() if not parent else b"",
            b"commit %s\nmark :%d\n" % (ref.encode(), count),
            os.fsencode(f"committer {name} <{email}> {when_s} +0000\n"),
            b"data %d\n%s\n" % (len(text), text),
            b"from %s\n" % parent.encode() if parent else b"",
        ]
        # First what goes: a file may become a folder.
        for path in sorted(path for path, entry in changes.items() if entry is None):
            stream.append(b"D %s\n" % _quoted(path))
        for path, entry in sorted(changes.items()):
            if entry is not None:
                mode, blob = entry.split(" ")
                stream.append(f"M {mode} {blob} ".encode() + _quoted(path) + b"\n")
        stream.append(b"\n")
    if not count:
        return []
    stream += [b"get-mark :%d\n" % number for number in range(1, count + 1)]
    stream.append(b"done\n")
    said = run_git(
        ["fast-import", "--quiet", "--done", "--force", "--cat-blob-fd=1", "--date-format=raw"],
        git_dir, stdin=b"".join(stream),
    )  # fmt: skip
    return said.decode().split()


def _quoted(path: str) -> bytes:
    plain = os.fsencode(path)
    return b'"%s"' % plain.replace(b"\\", b"\\\\").replace(b'"', b'\\"').replace(b"\n", b"\\n")


def index_lines(changes: Mapping[str, str | None], id_length: int) -> bytes:
    """Changes for `git update-index -z --index-info`; what goes comes first."""
    gone = [b"0 %s\t%s\0" % (b"0" * id_length, os.fsencode(path))
            for path, entry in changes.items() if entry is None]  # fmt: skip
    there = [os.fsencode(f"{entry}\t{path}\0") for path, entry in changes.items() if entry]
    return b"".join(gone + there)


def read_tree(git_dir: str, tree: str) -> dict[str, str]:
    """The entries of a tree by path: `"100644 <blob>"`."""
    entries: dict[str, str] = {}
    for line in run_git(["ls-tree", "-r", "-z", tree], git_dir).split(b"\0")[:-1]:
        about, _, path = line.partition(b"\t")
        mode, _, blob = about.split(b" ")
        entries[os.fsdecode(path)] = f"{mode.decode()} {blob.decode()}"
    return entries


def read_refs(git_dir: str) -> dict[str, str]:
    """The refs that stand in the files of a git folder, without running git in it."""
    refs: dict[str, str] = {}
    with suppress(FileNotFoundError), open(os.path.join(git_dir, "packed-refs"), "rb") as file:
        for line in os.fsdecode(file.read()).splitlines():
            commit, _, name = line.partition(" ")
            if name.startswith("refs/"):
                refs[name] = commit
    for folder, _, names in os.walk(os.path.join(git_dir, "refs")):
        for name in names:
            path = os.path.join(folder, name)
            with suppress(OSError), open(path, "rb") as file:
                text = os.fsdecode(file.read(100)).strip()
                if re.fullmatch(r"[0-9a-f]{40}(?:[0-9a-f]{24})?", text):
                    refs[os.path.relpath(path, git_dir)] = text
    return refs


def keep_objects(
    git_dir: str, others: Sequence[str], tips: Iterable[str], known: Iterable[str]
) -> None:
    """Store commits and what they need beside known ones, out of other object folders."""
    pack = os.path.join(git_dir, "objects/pack")
    make_folder(pack)
    run_git(
        ["pack-objects", "--revs", "--quiet", os.path.join(pack, "pack")], git_dir,
        stdin="".join(f"{commit}\n" for commit in (*tips, "--not", *known)).encode(),
        GIT_ALTERNATE_OBJECT_DIRECTORIES=os.pathsep.join(map(_quoted_folder, others)),
    )  # fmt: skip


def _quoted_folder(path: str) -> str:
    return os.fsdecode(_quoted(path)) if ":" in path or path.startswith('"') else path
