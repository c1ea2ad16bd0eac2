"""What landed reaches the user: all of it or nothing, and edits of the user are never lost."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from headway.errors import WorkspaceError
from headway.workspaces.apply import (
    apply_files,
    landed_tasks,
    list_stores,
    make_branches,
    patch_of,
)
from headway.workspaces.store import WorkspaceStore
from tests.workspaces.scene import Scene, do, git, make_repository, write

LINES = "".join(f"{number}\n" for number in range(20))
FILES = {"a.txt": LINES, "b.txt": "b\n", "d/c.txt": "c\n", "e/f.txt": "f\n"}


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(tmp_path, make_repository(tmp_path / "repo", FILES))


def land(store: WorkspaceStore, *scripts: str) -> None:
    files: dict[str, str | None] = {}
    tasks = []
    for number, script in enumerate(scripts):
        ws = store.prepare(f"task {number}", files, "copy")
        do(ws, script)
        changes = store.collect(ws).changes
        files |= changes
        tasks.append((f"task {number}", changes))
        store.discard(ws)
    store.land(tasks)


def look(folder: Path) -> dict[str, str]:
    return {str(path.relative_to(folder)): os.readlink(path) if path.is_symlink()
            else path.read_text() for path in folder.rglob("*")
            if ".git" not in path.parts and (path.is_symlink() or path.is_file())}  # fmt: skip


EDITS = (
    "sed -i s/^3$/three/ a.txt; rm b.txt; mkdir b.txt; echo i > b.txt/i; chmod +x d/c.txt",
    "rm -r e; ln -s a.txt l; echo 'n n' > 'new file'; sed -i s/^16$/last/ a.txt",
)


@pytest.mark.parametrize("has_git", [True, False])
def test_what_landed_is_applied_to_a_folder_that_did_not_change(
    tmp_path: Path, has_git: bool
) -> None:
    folder = tmp_path / "repo"
    if has_git:
        make_repository(folder, FILES)
    else:
        write(folder, FILES)
    scene = Scene(tmp_path, folder)
    land(scene.open(), *EDITS)
    (store,) = list_stores(str(scene.run_folder))
    assert [name for name, _ in landed_tasks(store)] == ["task 0", "task 1"]
    written = apply_files(store)
    assert written == ["a.txt", "b.txt", "b.txt/i", "d/c.txt", "e/f.txt", "l", "new file"]
    expected = LINES.replace("\n3\n", "\nthree\n").replace("16", "last")
    assert look(folder) == {
        "a.txt": expected, "b.txt/i": "i\n", "d/c.txt": "c\n", "l": "a.txt", "new file": "n n\n",
    }  # fmt: skip
    assert os.access(folder / "d/c.txt", os.X_OK)
    assert not (folder / "e").exists()
    assert apply_files(store) == []


def test_edits_and_commits_of_the_user_meanwhile_are_merged(scene: Scene) -> None:
    store = scene.open()
    land(store, *EDITS)
    write(scene.folder, {"a.txt": LINES.replace("\n10\n", "\nten\n"), "own.txt": "own\n"})
    git(scene.folder, "commit", "-q", "-am", "meanwhile")
    (scene.folder / "e/f.txt").unlink()
    apply_files(store)
    expected = LINES.replace("\n3\n", "\nthree\n").replace("16", "last").replace("10", "ten")
    assert look(scene.folder)["a.txt"] == expected
    assert look(scene.folder)["own.txt"] == "own\n"


@pytest.mark.parametrize(
    ("edit", "path"),
    [
        ("sed -i s/^3$/THREE/ a.txt", "a.txt"), ("rm a.txt", "a.txt"), ("echo 2 > b.txt", "b.txt"),
        ("echo mine > 'new file'", "new file"), ("mkdir 'new file'; >'new file/x'", "new file"),
        ("echo more >> e/f.txt", "e/f.txt"), ("ln -s b.txt l", "l"), ("mkfifo l", "l"),
        ("mv d o; ln -s o d", "d/c.txt"),
    ],
)  # fmt: skip
def test_a_conflict_is_named_and_nothing_is_changed(scene: Scene, edit: str, path: str) -> None:
    store = scene.open()
    land(store, *EDITS)
    do(store.prepare("unused", {}, "copy"), f"cd {scene.folder}; {edit}")
    before = look(scene.folder)
    with pytest.raises(WorkspaceError, match="nothing was changed") as fault:
        apply_files(store)
    assert f"{path}: " in (fault.value.detail or "")
    assert look(scene.folder) == before
    assert not (scene.folder / ".headway-apply").exists()


def test_a_fault_in_the_middle_leaves_the_folder_as_it_was(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = scene.open()
    land(store, *EDITS)
    before = look(scene.folder)
    # A folder that cannot be made: its name is that of a file which appears at the last moment.
    real = os.replace

    def replace(source: str, target: str) -> None:
        if target.endswith("new file"):
            raise OSError(28, "No space left on device")
        real(source, target)

    monkeypatch.setattr(os, "replace", replace)
    with pytest.raises(WorkspaceError, match="No space left"):
        apply_files(store)
    assert look(scene.folder) == before


def test_a_patch_applies_with_git(scene: Scene, tmp_path: Path) -> None:
    store = scene.open()
    land(store, *EDITS)
    (tmp_path / "patch").write_text(patch_of(store))
    git(scene.folder, "apply", "--index", str(tmp_path / "patch"))
    applied = look(scene.folder)
    git(scene.folder, "reset", "-q", "--hard")
    apply_files(store)
    assert look(scene.folder) == applied


def test_branches_of_tasks_stand_alone_or_on_those_that_wrote_the_same_files(scene: Scene) -> None:
    write(scene.folder, {"d/c.txt": "edited by the user\n"})
    store = scene.open()
    land(store, "echo 1 > one", "echo 2 > two; echo 2 > one", "echo 3 > three")
    before = git(scene.folder, "status", "--porcelain"), git(scene.folder, "rev-parse", "HEAD")
    names = make_branches(store, "r1")
    assert names == ["headway/r1-task-0", "headway/r1-task-1", "headway/r1-task-2", "headway/r1"]
    logs = {name: git(scene.folder, "log", "--format=%s", name).splitlines() for name in names}
    assert logs == {
        "headway/r1-task-0": ["task 0", "first"],
        "headway/r1-task-1": ["task 1", "task 0", "first"],
        "headway/r1-task-2": ["task 2", "first"],
        "headway/r1": ["task 2", "task 1", "task 0", "first"],
    }  # fmt: skip
    assert (git(scene.folder, "status", "--porcelain"),
            git(scene.folder, "rev-parse", "HEAD")) == before  # fmt: skip
    assert make_branches(store, "r1") == names


def test_a_commit_in_a_submodule_can_be_checked_out_there(scene: Scene, tmp_path: Path) -> None:
    inner = make_repository(tmp_path / "inner", {"i.txt": "i\n"})
    git(scene.folder, "submodule", "add", "-q", str(inner), "sub")
    git(scene.folder, "commit", "-q", "-m", "module")
    store = scene.open()
    land(store, "cd sub; echo 1 > i.txt; git commit -qam inside")
    make_branches(store, "r1")
    commit = git(scene.folder, "rev-parse", "headway/r1:sub")
    git(scene.folder / "sub", "checkout", "-q", commit)
    assert (scene.folder / "sub/i.txt").read_text() == "1\n"


def test_a_folder_without_git_has_no_branches(tmp_path: Path) -> None:
    write(tmp_path / "plain", {"a": "a"})
    store = Scene(tmp_path, tmp_path / "plain").open()
    with pytest.raises(WorkspaceError, match="not a git repository"):
        make_branches(store, "r1")


def test_a_file_keeps_its_permissions_beside_what_git_knows(scene: Scene) -> None:
    (scene.folder / "a.txt").chmod(0o600)
    (scene.folder / "d/c.txt").chmod(0o640)
    has_attributes = hasattr(os, "setxattr")
    if has_attributes:
        os.setxattr(scene.folder / "a.txt", "user.kept", b"mine")
    store = scene.open()
    land(store, *EDITS)
    apply_files(store)
    assert not has_attributes or os.getxattr(scene.folder / "a.txt", "user.kept") == b"mine"
    modes = [(scene.folder / path).stat().st_mode & 0o777 for path in ("a.txt", "d/c.txt")]
    assert modes == [0o600, 0o750]
