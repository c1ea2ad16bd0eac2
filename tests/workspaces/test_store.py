"""A workspace shows the folder as it was, keeps what an agent did, and touches nothing else."""

from __future__ import annotations

import os
import socket
import stat
import time
from pathlib import Path

import pytest

from headway.errors import WorkspaceError
from headway.workspaces.snapshot import prune_caches
from headway.workspaces.store import WorkspaceStore
from tests.workspaces.scene import Scene, do, git, has_overlay, make_repository, write

FILES = {
    ".gitignore": "*.log\nbuild/\n.env\n", "a.txt": "a\n", "d/b.txt": "b\n", "d/c.txt": "c\n",
    "run.sh": "echo run\n", "x/y/z.txt": "z\n", "with space/ä\n.txt": "odd\n",
}  # fmt: skip
MODES = pytest.mark.parametrize(
    "mode",
    ["copy", pytest.param("overlay", marks=pytest.mark.skipif(
        not has_overlay(), reason="no overlay without privileges here"))],
)  # fmt: skip


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(tmp_path, make_repository(tmp_path / "repo", FILES))


def look(folder: Path) -> dict[str, tuple[int, int, bytes]]:
    """Everything in a folder: what nothing of ours may change."""
    found = {}
    for path in sorted(folder.rglob("*")):
        about = path.lstat()
        data = path.read_bytes() if stat.S_ISREG(about.st_mode) else b""
        # Git renews the time of an object that it would write once more.
        is_object = ".git" in path.parts and "objects" in path.parts
        time_ns = 0 if is_object else about.st_mtime_ns
        found[str(path.relative_to(folder))] = (about.st_mode, time_ns, data)
    return found


def text(store: WorkspaceStore, entry: str | None) -> str:
    assert entry is not None
    return git(store.git_dir, "cat-file", "blob", entry.split(" ")[1])


@MODES
def test_tracked_untracked_and_ignored_files_are_there_and_git_status_is_the_users(
    scene: Scene, mode: str
) -> None:
    write(scene.folder, {"new.txt": "new\n", ".env": "KEY=1\n", "build/o": "o", "a.txt": "mine\n"})
    git(scene.folder, "add", "d")
    expected = git(scene.folder, "status", "--porcelain")
    ws = scene.open().prepare("t", {}, mode)
    assert do(ws, "git status --porcelain") == expected
    assert do(ws, "cat new.txt .env build/o a.txt") == "new\nKEY=1\nomine"
    assert do(ws, "git log --format=%s && git symbolic-ref HEAD") == "first\nrefs/heads/main"


@MODES
def test_every_kind_of_change_is_collected_by_content_and_mode(scene: Scene, mode: str) -> None:
    os.symlink("a.txt", scene.folder / "link")
    git(scene.folder, "add", "-A")
    git(scene.folder, "commit", "-q", "-m", "link")
    before = look(scene.folder)
    store = scene.open()
    ws = store.prepare("t", {}, mode)
    do(ws, "printf more >> a.txt; rm d/b.txt; chmod +x run.sh; ln -sf d/c.txt link; rm -r x;"
           "echo file > x; mv d/c.txt moved.txt; rmdir d; echo n > n.txt; mkdir -p e/f;"
           "echo g > e/f/g; touch .gitignore; rm 'with space'/*; mkdir 'with space/ä'")  # fmt: skip
    changes = store.collect(ws, ["run.sh", ".gitignore"]).changes
    assert {path: text(store, entry) if entry else None for path, entry in changes.items()} == {
        "a.txt": "a\nmore", "d/b.txt": None, "d/c.txt": None, "run.sh": "echo run",
        "link": "d/c.txt", "x": "file", "x/y/z.txt": None, "moved.txt": "c", "n.txt": "n",
        "e/f/g": "g", ".gitignore": "*.log\nbuild/\n.env", "with space/ä\n.txt": None,
    }  # fmt: skip
    assert str(changes["run.sh"]).startswith("100755 ")
    assert str(changes["link"]).startswith("120000 ")
    assert changes[".gitignore"] == store.entry(".gitignore")
    assert look(scene.folder) == before


@MODES
def test_a_folder_replaced_by_another_of_the_same_name_loses_what_it_had(
    scene: Scene, mode: str
) -> None:
    store = scene.open()
    ws = store.prepare("t", {}, mode)
    do(ws, "rm -r d x; mkdir d x; echo n > d/new; rm a.txt; mkdir a.txt; echo i > a.txt/i")
    changes = store.collect(ws).changes
    assert {path for path, entry in changes.items() if entry is None} == {
        "a.txt", "d/b.txt", "d/c.txt", "x/y/z.txt",
    }  # fmt: skip
    assert {path for path, entry in changes.items() if entry} == {"a.txt/i", "d/new"}


@MODES
def test_writes_to_ignored_files_are_dropped(scene: Scene, mode: str) -> None:
    write(scene.folder, {".env": "KEY=1\n", "cache/.gitignore": "*\n", "cache/old": "o"})
    store = scene.open()
    ws = store.prepare("t", {}, mode)
    do(ws, "echo 2 > .env; mkdir build; echo o > build/o; echo l > a.log; echo c > cache/new;"
           "echo '*.tmp' >> .gitignore; echo t > a.tmp; echo k > kept")  # fmt: skip
    found = store.collect(ws, [".env", "kept"])
    assert set(found.changes) == {".gitignore", "kept"}


@MODES
def test_a_tracked_file_that_is_ignored_is_collected(scene: Scene, mode: str) -> None:
    write(scene.folder, {"kept.log": "1\n"})
    git(scene.folder, "add", "-f", "kept.log")
    git(scene.folder, "commit", "-q", "-m", "log")
    store = scene.open()
    ws = store.prepare("t", {}, mode)
    do(ws, "echo 2 > kept.log")
    assert set(store.collect(ws).changes) == {"kept.log"}


@MODES
def test_a_workspace_begins_with_what_landed_and_collects_only_its_own(
    scene: Scene, mode: str
) -> None:
    store = scene.open()
    first = store.prepare("one", {}, mode)
    do(first, "echo 1 >> a.txt; rm -r x d/b.txt; echo '*.o' >> .gitignore; ln -s a.txt l;"
              "chmod +x run.sh")  # fmt: skip
    landed = store.collect(first).changes
    second = store.prepare("two", landed, mode)
    assert do(second, "git status --porcelain; cat a.txt; ls; ls d") == (
        "a\n1\na.txt\nd\nl\nrun.sh\nwith space\nc.txt"
    )
    do(second, "test -x run.sh; echo o > x.o; mkdir x; echo new > x/y; rm d/c.txt; echo 2 >> a.txt")
    found = store.collect(second)
    assert set(found.changes) == {"x/y", "d/c.txt", "a.txt"}
    assert git(store.git_dir, "diff", "--name-only", f"{found.commit}^", found.commit) == (
        "a.txt\nd/c.txt\nx/y"
    )


@MODES
def test_commits_of_an_agent_stay_in_its_workspace_and_those_elsewhere_are_kept_and_named(
    scene: Scene, mode: str
) -> None:
    before = look(scene.folder)
    store = scene.open()
    ws = store.prepare("t", {}, mode)
    do(ws, "echo 1 > a.txt; git commit -qam mine; git checkout -qb feature; echo f > f;"
           "git add f; git commit -qm feature; git checkout -q --detach; echo h > h; git add h;"
           "git commit -qm detached; git checkout -q main; echo s > a.txt; git stash -q;"
           "git branch merged HEAD; git gc -q; git pack-refs --all")  # fmt: skip
    found = store.collect(ws)
    assert set(found.changes) == {"a.txt"}
    subjects = {name.split("/")[0] if "detached" in name else name:
                git(store.git_dir, "log", "-1", "--format=%s", commit)
                for name, commit in found.other_refs.items()}  # fmt: skip
    assert subjects == {
        "refs/heads/feature": "feature", "stash@{0}": subjects["stash@{0}"], "detached": "detached",
    }  # fmt: skip
    assert not found.left_out
    store.discard(ws)
    git(store.git_dir, "fsck", "--strict")
    assert git(store.git_dir, "show", f"{found.other_refs['stash@{0}']}:a.txt") == "s"
    assert look(scene.folder) == before


@MODES
def test_a_commit_costs_a_workspace_little_beside_a_large_pack(scene: Scene, mode: str) -> None:
    (scene.folder / "large").write_bytes(os.urandom(3_000_000))
    git(scene.folder, "add", "-A")
    git(scene.folder, "commit", "-q", "-m", "large")
    git(scene.folder, "rm", "-q", "large")
    git(scene.folder, "commit", "-q", "-m", "gone")
    git(scene.folder, "gc", "-q")
    store = scene.open()
    ws = store.prepare("t", {}, mode)
    do(ws, "echo 1 > a.txt; git commit -qam mine; git gc -q")
    assert store.collect(ws).changes.keys() == {"a.txt"}
    size = sum(path.lstat().st_size for path in Path(ws.home).rglob("*"))
    assert size < 1_000_000


def test_locks_of_git_processes_that_were_killed_are_removed(scene: Scene) -> None:
    store = scene.open()
    landed = store.land([("t", {})])
    refs = Path(store.git_dir, "refs", "headway")
    for lock in (refs / "landed.lock", Path(store.git_dir, "HEAD.lock")):
        lock.touch()
    with pytest.raises(WorkspaceError):
        store.land([("t", {})])
    assert scene.open().land([("t", {})]) == landed


def test_the_users_gc_does_not_hurt_a_run(scene: Scene) -> None:
    store = scene.open()
    git(scene.folder, "checkout", "-q", "--orphan", "other")
    git(scene.folder, "commit", "-q", "-m", "other")
    git(scene.folder, "branch", "-D", "main")
    git(scene.folder, "-c", "gc.reflogExpire=now", "gc", "-q", "--prune=now")
    ws = store.prepare("t", {}, "copy")
    assert do(ws, "git log --format=%s && git fsck --strict") == "first"


def test_edits_of_the_user_during_a_run_are_not_seen_by_it(scene: Scene) -> None:
    store = scene.open()
    write(scene.folder, {"a.txt": "later\n", "later.txt": "later\n"})
    (scene.folder / "d/b.txt").unlink()
    again = scene.open(run="two")
    assert (
        do(store.prepare("t", {}, "copy"), "cat a.txt; ls d later.txt || true")
        == "a\nd:\nb.txt\nc.txt"
    )
    assert (
        do(again.prepare("t", {}, "copy"), "cat a.txt; ls d later.txt")
        == "later\nlater.txt\n\nd:\nc.txt"
    )


def test_a_change_of_equal_size_and_time_is_seen_by_the_next_run(scene: Scene) -> None:
    scene.open()
    path = scene.folder / "a.txt"
    about = path.stat()
    path.write_text("b\n")
    os.utime(path, ns=(about.st_atime_ns, about.st_mtime_ns))
    assert do(scene.open(run="two").prepare("t", {}, "copy"), "cat a.txt") == "b"


@MODES
def test_a_linked_worktree_stays_as_it_is(scene: Scene, mode: str, tmp_path: Path) -> None:
    git(scene.folder, "worktree", "add", "-q", "-b", "side", str(tmp_path / "side"))
    linked = Scene(tmp_path, tmp_path / "side")
    before = look(linked.folder), look(scene.folder)
    store = linked.open()
    ws = store.prepare("t", {}, mode)
    do(ws, "test -d .git; echo 1 > a.txt; git commit -qam mine; git checkout -qb other")
    assert store.collect(ws).changes.keys() == {"a.txt"}
    assert (look(linked.folder), look(scene.folder)) == before


@MODES
def test_a_linked_worktree_within_the_folder_is_not_reached(scene: Scene, mode: str) -> None:
    git(scene.folder, "worktree", "add", "-q", "-b", "side", ".trees/side")
    before = look(scene.folder)
    store = scene.open()
    ws = store.prepare("t", {}, mode)
    do(ws, "echo 1 > .trees/side/a.txt; cd .trees/side; git commit -qam mine; cd ../..; echo 2 > n")
    found = store.collect(ws)
    assert found.changes.keys() == {"n"}
    assert found.left_out.keys() == {".trees/side"}
    assert look(scene.folder) == before


@MODES
def test_commits_in_a_repository_that_a_task_makes_are_named(scene: Scene, mode: str) -> None:
    store = scene.open()
    ws = store.prepare("t", {}, mode)
    do(
        ws,
        "git init -q new; git init -q bare; echo build >> .gitignore; git init -q build; "
        "echo 1 > new/x; cd new; git add x; git commit -qm mine; rm x; "
        "cd ../build; git commit -qm b --allow-empty",
    )
    found = store.collect(ws)
    assert found.changes.keys() == {".gitignore"}
    assert found.left_out.keys() == {"new"}


@MODES
def test_commits_and_edits_in_a_submodule_are_kept_and_named(
    scene: Scene, mode: str, tmp_path: Path
) -> None:
    inner = make_repository(tmp_path / "inner", {"i.txt": "i\n", "j.txt": "j\n"})
    git(scene.folder, "submodule", "add", "-q", str(inner), "lib/sub")
    git(scene.folder, "commit", "-q", "-m", "module")
    before = look(scene.folder)
    store = scene.open()
    ws = store.prepare("t", {}, mode)
    assert do(ws, "git status --porcelain; git submodule status").startswith(" ")
    do(
        ws,
        "cd lib/sub; echo 1 > i.txt; git commit -qam inside; echo 2 > j.txt; cd ../..; echo n > n",
    )
    found = store.collect(ws)
    commit = found.submodules["lib/sub"]
    assert found.changes == {"lib/sub": f"160000 {commit}", "n": found.changes["n"]}
    assert git(store.git_dir, "show", f"{commit}:i.txt") == "1"
    assert git(store.git_dir, "show", f"{found.submodules['lib/sub: uncommitted']}:j.txt") == "2"
    assert look(scene.folder) == before


@MODES
def test_a_repository_without_commits_and_a_detached_one(tmp_path: Path, mode: str) -> None:
    folder = tmp_path / "empty"
    folder.mkdir()
    git(folder, "init", "-q")
    write(folder, {"a.txt": "a\n"})
    store = Scene(tmp_path, folder).open()
    ws = store.prepare("t", {}, mode)
    do(ws, "echo b > b.txt; git add -A; git commit -qm mine")
    landed = store.collect(ws).changes
    assert landed.keys() == {"b.txt"}
    assert do(store.prepare("u", landed, mode), "git status --porcelain; git log --format=%s") == (
        "?? a.txt\nwhat landed before"
    )
    git(folder, "add", "-A")
    git(folder, "commit", "-q", "-m", "one")
    git(folder, "checkout", "-q", "--detach")
    store = Scene(tmp_path, folder).open(run="two")
    assert text(store, store.entry("a.txt")) == "a"
    ws = store.prepare("t", {"c.txt": store.entry("a.txt")}, mode)
    assert do(ws, "git status --porcelain; git log --format=%s; git symbolic-ref -q HEAD || true"
              ) == "what landed before\none"  # fmt: skip


@MODES
def test_a_folder_without_git_has_workspaces_too(tmp_path: Path, mode: str) -> None:
    folder = tmp_path / "plain"
    write(folder, {"a.txt": "a\n", ".gitignore": "*.log\n", "x.log": "x", "in/b": "b"})
    before = look(folder)
    store = Scene(tmp_path, folder).open()
    ws = store.prepare("t", {}, mode)
    do(ws, "test ! -e .git; echo 1 > a.txt; echo l > y.log; rm in/b")
    found = store.collect(ws)
    assert set(found.changes) == {"a.txt", "in/b"}
    assert do(store.prepare("u", found.changes, mode), "cat a.txt; ls -A") == (
        "1\n.gitignore\na.txt\nx.log"
    )
    assert look(folder) == before


def test_a_folder_below_the_top_level_gets_the_whole_repository(scene: Scene) -> None:
    store = scene.open(inner="x/y")
    assert (store.folder, store.inner) == (str(scene.folder), "x/y")
    write(scene.folder, {"build/own/a": "a"})
    store = scene.open(inner="build/own")
    assert (store.folder, store.inner) == (str(scene.folder / "build/own"), ".")


def test_sockets_are_left_out_and_named_and_hard_links_are_separate_files(scene: Scene) -> None:
    os.link(scene.folder / "a.txt", scene.folder / "same.txt")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(scene.folder / "sock"))
        store = scene.open()
    assert store.left_out == {"sock": "socket"}
    ws = store.prepare("t", {}, "copy")
    do(ws, "echo 1 > a.txt; mkfifo p; cat same.txt")
    found = store.collect(ws)
    assert (set(found.changes), found.left_out) == ({"a.txt"}, {"p": "pipe"})
    assert (scene.folder / "same.txt").read_text() == "a\n"


def test_what_an_agent_made_unreadable_is_collected_and_removed(scene: Scene) -> None:
    store = scene.open()
    ws = store.prepare("t", {}, "copy")
    do(
        ws,
        "echo s > secret; chmod 0 secret; mkdir -p p/q; echo q > p/q/q; chmod 0 p/q p;"
        "mkdir r; echo r > r/r; chmod 400 r",
    )
    assert store.collect(ws).changes.keys() == {"secret", "p/q/q", "r/r"}
    store.discard(ws)
    assert not os.path.exists(ws.home)


@MODES
def test_hooks_and_attributes_of_a_workspace_are_never_run_by_headway(
    scene: Scene, mode: str, tmp_path: Path
) -> None:
    store = scene.open()
    ws = store.prepare("t", {}, mode)
    trap = f"touch {tmp_path}/trapped"
    do(ws, f"git config filter.f.clean '{trap}; cat'; git config core.fsmonitor '{trap}';"
           f"echo '* filter=f' > .gitattributes; mkdir -p .git/hooks; echo 1 > a.txt;"
           f"printf '#!/bin/sh\\n{trap}' > .git/hooks/post-index-change;"
           "chmod +x .git/hooks/post-index-change")  # fmt: skip
    (tmp_path / "trapped").unlink(missing_ok=True)
    assert store.collect(ws).changes.keys() == {".gitattributes", "a.txt"}
    assert not (tmp_path / "trapped").exists()


def test_line_ends_are_stored_as_the_users_git_does(tmp_path: Path) -> None:
    folder = make_repository(tmp_path / "repo", {".gitattributes": "* text=auto eol=crlf\n"})
    (folder / "a.txt").write_bytes(b"a\r\nb\r\n")
    git(folder, "add", "-A")
    git(folder, "commit", "-q", "-m", "crlf")
    store = Scene(tmp_path, folder).open()
    assert store.base_commit == store.head_commit
    ws = store.prepare("t", {}, "copy")
    (Path(ws.place) / "a.txt").write_bytes(b"a\r\nc\r\n")
    changes = store.collect(ws).changes
    assert text(store, changes["a.txt"]) == "a\nc"
    again = store.prepare("u", changes, "copy")
    assert (Path(again.place) / "a.txt").read_bytes() == b"a\r\nc\r\n"
    assert do(again, "git status --porcelain") == ""


@MODES
def test_a_run_can_begin_with_another_commit(scene: Scene, mode: str) -> None:
    write(scene.folder, {"a.txt": "2\n", "new.txt": "n\n", ".env": "k"})
    git(scene.folder, "add", "-A")
    git(scene.folder, "commit", "-q", "-m", "second")
    write(scene.folder, {"a.txt": "3\n"})
    store = scene.open("HEAD~1")
    ws = store.prepare("t", {}, mode)
    assert do(ws, "git status --porcelain; cat a.txt .env; ls new.txt || true") == "a\nk"
    assert (scene.folder / "a.txt").read_text() == "3\n"
    with pytest.raises(WorkspaceError, match="is not a commit"):
        scene.open("nowhere", run="two")


@MODES
def test_a_setup_runs_once_below_all_workspaces(scene: Scene, mode: str) -> None:
    store = scene.open()
    setup = store.prepare("setup", {}, mode)
    do(setup, "mkdir tool build; echo '*' > tool/.gitignore; echo t > tool/t; echo o > build/o")
    layer = store.as_layer(setup)
    ws = store.prepare("t", {}, mode, layer)
    assert do(ws, "cat tool/t build/o; git status --porcelain") == "t\no"
    do(ws, "echo 2 > tool/t; echo 2 > build/o; rm tool/.gitignore; echo n > n")
    assert store.collect(ws).changes.keys() <= {"n", "tool/t"}


def test_landed_tasks_are_commits_in_order_and_the_same_each_time(scene: Scene) -> None:
    store = scene.open()
    tasks = []
    for number in range(3):
        ws = store.prepare(f"t{number}", {}, "copy")
        do(ws, f"echo {number} > n{number}; rm {['a.txt', 'd/b.txt', 'run.sh'][number]}")
        tasks.append((f"t{number}", store.collect(ws).changes))
    steps = [store.land(tasks[: number + 1]) for number in range(3)]
    assert git(store.git_dir, "log", "--format=%s", "refs/headway/landed") == "t2\nt1\nt0\nfirst"
    again = scene.open()
    assert (again.land(tasks), again.land(tasks[:2])) == (steps[2], steps[1])
    whole = {path: entry for _, changes in tasks for path, entry in changes.items()}
    assert again.tree(whole) == git(again.git_dir, "rev-parse", f"{steps[2]}^{{tree}}")
    assert "6 files changed" in again.diffstat({}, whole)
    assert again.diff({}, whole).count("diff --git") == 6


def test_text_merges_or_conflicts(tmp_path: Path) -> None:
    lines = [f"{number}\n" for number in range(20)]
    folder = make_repository(tmp_path / "repo", {"a": "".join(lines)})
    store = Scene(tmp_path, folder).open()
    versions = []
    for name, number in (("one", 0), ("two", 19), ("three", 0)):
        ws = store.prepare(name, {}, "copy")
        edited = [f"{name}\n" if place == number else line for place, line in enumerate(lines)]
        (Path(ws.place) / "a").write_text("".join(edited))
        versions.append(store.collect(ws).changes["a"])
    base = store.entry("a")
    merges, both = store.merge_text(base, versions[0], versions[1])
    assert merges
    assert text(store, both).splitlines()[0::19] == ["one", "two"]
    assert store.merge_text(base, versions[0], versions[2]) == (False, None)
    assert store.merge_text(base, None, versions[0]) == (False, None)
    assert store.merge_text(base, None, base) == (True, None)


def test_the_folder_of_headways_own_files_cannot_have_workspaces(tmp_path: Path) -> None:
    with pytest.raises(WorkspaceError, match="own files are in it"):
        Scene(tmp_path, tmp_path).open()


@MODES
def test_edits_in_a_submodule_alone_leave_its_commit_as_it_is(
    scene: Scene, mode: str, tmp_path: Path
) -> None:
    inner = make_repository(tmp_path / "inner", {"i.txt": "i\n"})
    git(scene.folder, "submodule", "add", "-q", str(inner), "sub")
    git(scene.folder, "commit", "-q", "-m", "module")
    store = scene.open()
    ws = store.prepare("t", {}, mode)
    do(ws, "echo 1 > sub/i.txt")
    found = store.collect(ws)
    assert not found.changes
    assert git(store.git_dir, "show", f"{found.submodules['sub: uncommitted']}:i.txt") == "1"


def test_the_cache_of_a_folder_can_go_while_runs_have_its_files(scene: Scene) -> None:
    store, state = scene.open(), str(scene.home / "state")
    caches = scene.home / "state/workspaces"
    prune_caches(state, 0.0)
    assert list(caches.iterdir())
    prune_caches(state, time.time() + 10.0)
    assert not list(caches.iterdir())
    ws = store.prepare("t", {}, "copy")
    assert do(ws, "cat a.txt; git log --format=%s") == "a\nfirst"
    assert scene.open(run="two").base_tree == store.base_tree
