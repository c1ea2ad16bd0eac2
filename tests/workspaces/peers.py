"""Other ways to let scripted agents edit one repository, with plain git.

- serial: one after the other in declared order, which is what a result is judged by;
- text merge: a worktree each, all from the same commit, merged in declared order;
- merge queue: a worktree each, merged in order of finish or as declared, each merge tested; a task
  that conflicts or fails is sent back to the new tip, as often as it takes.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from threading import Condition, Thread

from msgspec import Struct, field

from tests.workspaces.stage import Scene, Tree, git, perform, tree_of

BACK_AT_MOST = 20
"""More often than this no task is sent back: a queue that cannot end is one that fails."""


class Outcome(Struct):
    """What a way made of its tasks."""

    tree: Tree = field(default_factory=dict)
    is_merged: bool = True
    attempts: int = 0


def serial(scene: Scene, folder: Path, scripts: Mapping[str, str]) -> Outcome:
    """Perform scripts one after the other in a copy of the repository as it is now."""
    _clone(scene, folder)
    for command in scripts.values():
        _perform(scene, folder, command)
    return Outcome(tree_of(folder), True, len(scripts))


def text_merge(scene: Scene, folder: Path, scripts: Mapping[str, str]) -> Outcome:
    """All at once from one commit, then merged; a conflict ends it."""
    _clone(scene, folder)
    threads = []
    for name, command in scripts.items():
        _worktree(folder, name)
        threads.append(Thread(target=_attempt, args=(scene, folder / ".trees" / name, command)))
    _all_of(threads)
    merged = all(_is_merged(folder, name) for name in scripts)
    return Outcome(tree_of(folder, (".trees", "plan.yaml")), merged, len(scripts))


def merge_queue(
    scene: Scene, folder: Path, scripts: Mapping[str, str], test: str, is_ordered: bool = False
) -> Outcome:
    """All at once; each is merged and tested when it has finished, and sent back if that fails."""
    _clone(scene, folder)
    found, turn, merged = Outcome(), Condition(), set[str]()
    names = list(scripts)

    def is_next(name: str) -> bool:
        return not is_ordered or merged.issuperset(names[: names.index(name)])

    def carry_out(name: str, command: str) -> None:
        for number in range(BACK_AT_MOST):
            branch = f"{name}-{number}"
            with turn:
                _worktree(folder, branch)
                found.attempts += 1
            _attempt(scene, folder / ".trees" / branch, command)
            with turn:
                turn.wait_for(lambda: is_next(name))
                before = git(folder, "rev-parse", "HEAD")
                if _is_merged(folder, branch) and _passes(scene, folder, test):
                    break
                git(folder, "reset", "-q", "--hard", before)
        else:
            found.is_merged = False
        with turn:
            merged.add(name)
            turn.notify_all()

    _all_of([Thread(target=carry_out, args=one) for one in scripts.items()])
    found.tree = tree_of(folder, (".trees", "plan.yaml"))
    return found


def passes(scene: Scene, folder: Path, tree: Tree, test: str) -> bool:
    """Whether a test passes on a tree, in a new folder."""
    shutil.rmtree(folder, ignore_errors=True)
    for name, (kind, content) in tree.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if kind == "link":
            path.symlink_to(content)
        else:
            path.write_text(content)
            path.chmod(0o755 if kind == "exec" else 0o644)
    for words in (["init"], ["add", "-A"], ["commit", "-m", "Judged"]):
        git(folder, *words, env=scene.user.env)
    return _passes(scene, folder, test)


def _clone(scene: Scene, folder: Path) -> None:
    git(scene.folder, "clone", "-q", str(scene.folder), str(folder), env=scene.user.env)
    (folder / ".git" / "info" / "exclude").write_text(".trees\n")
    for key in ("name", "email"):
        value = git(scene.folder, "config", f"user.{key}", env=scene.user.env)
        git(folder, "config", f"user.{key}", value)


def _worktree(folder: Path, name: str) -> None:
    git(folder, "worktree", "add", "-q", "-b", name, f".trees/{name}", "HEAD")


def _attempt(scene: Scene, tree: Path, command: str) -> None:
    _perform(scene, tree, command)
    git(tree, "add", "-A")
    perform(["git", "commit", "-qm", "Work"], tree)


def _perform(scene: Scene, folder: Path, command: str) -> None:
    done = perform(command, folder, scene.user.env)
    assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"


def _is_merged(folder: Path, branch: str) -> bool:
    """Merge a branch; whether there was no conflict."""
    command = ["git", "merge", "-q", "--no-edit", "-m", f"Merge {branch}", branch]
    if perform(command, folder).returncode == 0:
        return True
    perform(["git", "merge", "--abort"], folder)
    return False


def _passes(scene: Scene, folder: Path, test: str) -> bool:
    return perform(test, folder, scene.user.env).returncode == 0


def _all_of(threads: list[Thread]) -> None:
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
