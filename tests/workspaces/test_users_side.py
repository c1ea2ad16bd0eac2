"""What a user keeps of their own while agents work: checkout, commits, hooks, links, disk."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.promises.user import kill_group, until
from tests.workspaces.stage import PLAN, Scene, git, lay_out, staged

SOON_S = 60.0
FILES = {
    "a.txt": "a\n",
    "b.txt": "b\n",
    "list.txt": "1\n2\n3\n4\n5\n6\n7\n",
    ".gitignore": "ignored/\n.env\n",
}
MODES = ["workspace: on", "workspace: {mode: copy}"]

soak = pytest.mark.soak


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    with staged(tmp_path) as found:
        yield found


def plan_of(scene: Scene, scripts: dict[str, str], top: str = "") -> str:
    for name, text in scripts.items():
        scene.script(name, text)
    tasks = "".join(
        f"  {name}:\n    agent: scripted\n    prompt: Please perform {name}.\n" for name in scripts
    )
    return f"headway: 1\n{top}\ntasks:\n{tasks}"


def begin(scene: Scene, scripts: dict[str, str], top: str = "") -> None:
    scene.repository(FILES, plan_of(scene, scripts, top))


def done(scene: Scene, *words: str) -> str:
    """What a command says, which ends with 0."""
    ended = scene.headway(*words)
    assert ended.returncode == 0, ended.stderr + ended.stdout
    return ended.stdout + ended.stderr


def text(scene: Scene, name: str) -> str | None:
    path = scene.folder / name
    return path.read_text() if path.exists() else None


def begun(scene: Scene) -> subprocess.Popen[str]:
    """A run whose task `a` has started, and waits for the mark `user`."""
    process = scene.user.start("run", PLAN, "--yes")
    assert scene.gate.is_marked("a.start", SOON_S)
    return process


def ended(scene: Scene, process: subprocess.Popen[str]) -> str:
    scene.gate.mark("user")
    out, err = process.communicate(timeout=SOON_S * 2)
    assert process.returncode == 0, err + out
    return out + err


@soak
@pytest.mark.parametrize("mode", MODES)
def test_a_user_edits_and_commits_meanwhile_and_keeps_both(scene: Scene, mode: str) -> None:
    begin(scene, {"a": "echo agent >> a.txt\nawait user 60\necho more >> a.txt\n"}, mode)
    process = begun(scene)
    (scene.folder / "new.txt").write_text("mine\n")
    scene.commit("Mine")
    (scene.folder / "b.txt").write_text("edited\n")
    head = scene.git("rev-parse", "HEAD")
    ended(scene, process)
    assert (text(scene, "a.txt"), text(scene, "b.txt")) == ("a\n", "edited\n")
    assert scene.git("rev-parse", "HEAD") == head
    done(scene, "results", "--apply")
    found = [text(scene, name) for name in ("a.txt", "b.txt", "new.txt")]
    assert found == ["a\nagent\nmore\n", "edited\n", "mine\n"]


@soak
def test_what_a_user_changed_on_other_lines_of_the_same_file_is_merged(scene: Scene) -> None:
    begin(scene, {"a": "sed -i 's/^7/seven/' list.txt\n"})
    done(scene, "run", PLAN, "--yes")
    (scene.folder / "list.txt").write_text("one\n2\n3\n4\n5\n6\n7\n")
    applied = scene.apply()
    found = text(scene, "list.txt")
    assert found is not None
    assert found.startswith("one\n"), "the user's edit is lost"
    assert applied.returncode != 0 or found == "one\n2\n3\n4\n5\n6\nseven\n", found


@soak
def test_what_a_user_changed_on_the_same_line_is_not_overwritten(scene: Scene) -> None:
    begin(scene, {"a": "echo agent > a.txt\necho new > c.txt\n"})
    done(scene, "run", PLAN, "--yes")
    (scene.folder / "a.txt").write_text("mine\n")
    applied = scene.apply()
    found = text(scene, "a.txt") or ""
    assert "mine" in found, "the user's edit is lost"
    assert applied.returncode != 0, "two texts for one line, and nothing said"
    assert "a.txt" in applied.stderr + applied.stdout
    assert "agent" in found + done(scene, "results", "--patch"), "the agent's edit is lost"


@soak
def test_applying_twice_changes_nothing_more(scene: Scene) -> None:
    begin(scene, {"a": "echo agent >> a.txt\nrm b.txt\n"})
    done(scene, "run", PLAN, "--yes")
    done(scene, "results", "--apply")
    before = scene.tree()
    assert before["a.txt"] == ("file", "a\nagent\n")
    assert "b.txt" not in before
    scene.apply()
    assert scene.tree() == before


@soak
def test_branches_have_the_work_of_one_task_each_and_a_patch_applies(scene: Scene) -> None:
    begin(scene, {"a": "echo agent >> a.txt\n", "b": "echo agent >> b.txt\n"})
    done(scene, "run", PLAN, "--yes")
    head, before = scene.git("rev-parse", "HEAD"), scene.tree()
    patch = scene.headway("results", "--patch").stdout
    subprocess.run(
        ["git", "apply", "--check"], cwd=scene.folder, input=patch, text=True, check=True
    )
    old = set(scene.git("branch", "--format=%(refname:short)").split())
    done(scene, "results", "--branches")
    new = set(scene.git("branch", "--format=%(refname:short)").split()) - old
    changed = sorted(scene.git("diff", "--name-only", "main", branch).split() for branch in new)
    assert changed == [["a.txt"], ["a.txt", "b.txt"], ["b.txt"]]
    assert (scene.git("rev-parse", "HEAD"), scene.tree()) == (head, before)


@soak
@pytest.mark.parametrize("mode", MODES)
def test_a_linked_worktree_keeps_its_head_and_so_does_its_repository(
    scene: Scene, mode: str
) -> None:
    origin = scene.user.root / "origin"
    origin.mkdir()
    script = (
        "git checkout -qb side\necho 1 > side.txt\ngit add -A\ngit commit -qm Side\n"
        "git checkout -q -\necho agent >> a.txt\ngit commit -qam Agent\ngit gc -q\n"
    )
    lay_out(origin, {**FILES, PLAN: plan_of(scene, {"a": script}, mode)})
    for words in (["init", "-q"], ["add", "-A"], ["commit", "-qm", "Begin"]):
        git(origin, *words, env=scene.user.env)
    scene.folder.rmdir()
    git(origin, "worktree", "add", "-qb", "feature", str(scene.folder), env=scene.user.env)
    refs = ("for-each-ref", "--format=%(refname) %(objectname)", "refs/heads", "refs/stash")
    before = [
        git(origin, *refs),
        scene.git("status", "--porcelain", "-b"),
        git(origin, "rev-parse", "HEAD"),
    ]
    said = done(scene, "run", PLAN, "--yes")
    after = [
        git(origin, *refs),
        scene.git("status", "--porcelain", "-b"),
        git(origin, "rev-parse", "HEAD"),
    ]
    assert after == before
    assert "side" in said
    done(scene, "results", "--apply")
    assert text(scene, "a.txt") == "a\nagent\n"


@soak
def test_edits_in_a_submodule_are_landed_or_named(scene: Scene) -> None:
    lib = scene.user.root / "lib"
    lay_out(lib, {"lib.txt": "lib\n"})
    for words in (["init", "-q"], ["add", "-A"], ["commit", "-qm", "Begin"]):
        git(lib, *words, env=scene.user.env)
    begin(scene, {"a": "echo agent >> sub/lib.txt\necho agent >> a.txt\n"})
    scene.git("-c", "protocol.file.allow=always", "submodule", "--quiet", "add", str(lib), "sub")
    scene.commit("Submodule")
    said = done(scene, "run", PLAN, "--yes")
    assert text(scene, "sub/lib.txt") == "lib\n"
    done(scene, "results", "--apply")
    assert text(scene, "a.txt") == "a\nagent\n"
    assert text(scene, "sub/lib.txt") == "lib\nagent\n" or "sub" in said, said


@soak
def test_hooks_of_the_user_neither_stop_nor_see_what_lands(scene: Scene) -> None:
    begin(scene, {"a": "echo agent >> a.txt\n"})
    record = scene.user.root / "hooked"
    for name in ("pre-commit", "post-commit", "post-checkout", "pre-push", "reference-transaction"):
        hook = scene.folder / ".git" / "hooks" / name
        status = 1 if name == "pre-commit" else 0
        hook.write_text(f"#!/bin/sh\necho {name} >> {record}\nexit {status}\n")
        hook.chmod(0o755)
    done(scene, "run", PLAN, "--yes")
    done(scene, "results", "--apply")
    assert text(scene, "a.txt") == "a\nagent\n"
    seen = record.read_text().split() if record.exists() else []
    assert not {"pre-commit", "post-commit", "post-checkout"} & set(seen), seen


@pytest.mark.parametrize("mode", MODES)
def test_files_with_two_names_are_not_written_through(scene: Scene, mode: str) -> None:
    begin(scene, {"a": "echo agent >> twin.txt\nawait user 60\n"}, mode)
    os.link(scene.folder / "a.txt", scene.folder / "twin.txt")
    scene.commit("Twins")
    process = begun(scene)
    ended(scene, process)
    assert (text(scene, "a.txt"), text(scene, "twin.txt")) == ("a\n", "a\n")
    done(scene, "results", "--apply")
    assert text(scene, "twin.txt") == "a\nagent\n"


@soak
def test_a_large_file_is_there_and_is_copied_at_most_once(scene: Scene) -> None:
    scripts = {name: f"stat -c %s ignored/large > {name}.txt\n" for name in "abcd"}
    begin(scene, scripts)
    (scene.folder / "ignored").mkdir()
    size = 256 << 20
    with (scene.folder / "ignored" / "large").open("wb") as file:
        file.write(os.urandom(1 << 20) * 256)
    done(scene, "run", PLAN, "--yes", "-j", "4")
    kept = subprocess.run(
        ["du", "-sk", scene.user.env["HEADWAY_STATE_DIR"]],
        capture_output=True,
        text=True,
        check=True,
    )
    assert int(kept.stdout.split()[0]) << 10 < size * 1.5
    done(scene, "results", "--apply")
    assert {text(scene, f"{name}.txt") for name in scripts} == {f"{size}\n"}


@soak
@pytest.mark.parametrize("mode", MODES)
def test_untracked_and_ignored_files_are_there_and_writable(scene: Scene, mode: str) -> None:
    begin(scene, {"a": "cat .env > said.txt\necho x > ignored/x\necho x >> .env\n"
                       "echo agent >> mine.txt\nls ignored >> said.txt\n"}, mode)  # fmt: skip
    lay_out(scene.folder, {".env": "KEY=1\n", "ignored/y": "y\n", "mine.txt": "mine\n"})
    done(scene, "run", PLAN, "--yes")
    assert (text(scene, ".env"), text(scene, "mine.txt")) == ("KEY=1\n", "mine\n")
    done(scene, "results", "--apply")
    assert text(scene, "said.txt") == "KEY=1\nx\ny\n"
    assert text(scene, "mine.txt") == "mine\nagent\n"
    assert (text(scene, ".env"), text(scene, "ignored/x")) == ("KEY=1\n", None)


@soak
@pytest.mark.parametrize("mode", MODES)
def test_a_folder_that_is_no_repository_stays_none(scene: Scene, mode: str) -> None:
    scripts = {
        "a": "await b.end 10\necho 2 > a.txt\n",
        "b": "await a.start 10\ncat a.txt > b.txt\nls > names.txt\n",
    }
    lay_out(scene.folder, {"a.txt": "1\n", PLAN: plan_of(scene, scripts, f"{mode}\nland: exact")})
    done(scene, "run", PLAN, "--yes", "-j", "2")
    assert set(scene.tree()) == {"a.txt"}
    done(scene, "results", "--apply")
    assert [text(scene, name) for name in ("a.txt", "b.txt")] == ["2\n", "2\n"]
    assert not (scene.folder / ".git").exists()


@soak
@pytest.mark.parametrize("mode", MODES)
def test_commits_on_other_branches_and_stashes_are_named_and_kept(scene: Scene, mode: str) -> None:
    begin(scene, {"a": "git checkout -qb side\necho 1 > side.txt\ngit add -A\ngit commit -qm Side\n"
                       "git checkout -q main\necho stashed > b.txt\ngit stash -q\n"
                       "echo agent >> a.txt\n"}, mode)  # fmt: skip
    refs = scene.git("for-each-ref", "refs/heads", "refs/stash")
    said = done(scene, "run", PLAN, "--yes")
    assert "side" in said
    assert "stash" in said
    assert scene.git("for-each-ref", "refs/heads", "refs/stash") == refs
    done(scene, "results", "--apply")
    assert (text(scene, "a.txt"), text(scene, "b.txt")) == ("a\nagent\n", "b\n")
    done(scene, "results", "--branches")
    kept = scene.git("log", "--all", "--name-only", "--format=")
    assert "side.txt" in kept, "the commit on the other branch cannot be found"


@soak
def test_a_full_disk_loses_nothing(scene: Scene) -> None:
    if os.geteuid():
        pytest.skip("mounts a small disk")
    state = Path(scene.user.env["HEADWAY_STATE_DIR"])
    state.mkdir()
    small = ["mount", "-t", "tmpfs", "-o", "size=24m", "tmpfs", str(state)]
    subprocess.run(small, check=True)
    try:
        begin(
            scene,
            {
                "a": "head -c 60000000 /dev/zero > zeros\necho agent >> a.txt\n",
                "b": "echo b >> b.txt\n",
            },
        )
        before = scene.tree()
        process = scene.user.start("run", PLAN, "--yes")
        assert scene.gate.is_marked("a.end", SOON_S)
        assert scene.tree() == before
        # The run either waits for room, or has ended with the task that failed.
        subprocess.run(["mount", "-o", "remount,size=400m", str(state)], check=True)
        out, err = process.communicate(timeout=SOON_S * 2)
        assert "Traceback" not in out + err
        if process.returncode:
            done(scene, "resume", "last", "--yes")
        done(scene, "results", "--apply")
        assert (text(scene, "a.txt"), text(scene, "b.txt")) == ("a\nagent\n", "b\nb\n")
    finally:
        scene.user.close()
        subprocess.run(["umount", "-l", str(state)], check=True)


@soak
def test_a_result_that_waits_is_there_after_a_kill_and_is_said_to_be(scene: Scene) -> None:
    begin(scene, {"a": "await user 60\necho agent >> a.txt\n", "b": "echo agent >> b.txt\n"})
    process = begun(scene)
    until(lambda: "1 held" in scene.user.headway("status", "last").stdout)
    kill_group(process)
    scene.gate.mark("user")
    said = done(scene, "resume", "last", "--yes")
    assert "b has answered already" in said, said
    assert scene.gate.starts()["b"] == 1
    done(scene, "results", "--apply")
    assert (text(scene, "a.txt"), text(scene, "b.txt")) == ("a\nagent\n", "b\nagent\n")


ESCAPES = """\
echo 1 > "$FOLDER/absolute.txt"
(cd .. && echo 2 > project/upwards.txt)
ln -s "$FOLDER" "$SPARE/link" && echo 3 > "$SPARE/link/linked.txt"
umount -l "$FOLDER" 2> "$SPARE/err" && echo 4 > "$FOLDER/umounted.txt"
unshare -m sh -c "umount -l '$FOLDER'; echo 5 > '$FOLDER/unshared.txt'" 2> "$SPARE/err"
unshare -Urm sh -c "umount -l '$FOLDER'; echo 6 > '$FOLDER/nested.txt'" 2> "$SPARE/err"
for p in /proc/[0-9]*; do echo 7 > "$p/root$FOLDER/through-root.txt"; done 2> "$SPARE/err"
for p in /proc/[0-9]*; do echo 8 > "$p/cwd/through-cwd.txt"; done 2> "$SPARE/err"
nsenter -t 1 -m sh -c "echo 9 > '$FOLDER/entered.txt'" 2> "$SPARE/err"
for n in 3 4 5 6 7 8 9; do echo 10 > "/proc/self/fd/$n/descriptor.txt"; done 2> "$SPARE/err"
setsid sh -c "sleep 1; echo 11 > '$FOLDER/late.txt'; echo 11 > late-too.txt" < /dev/null >&0 2>&0 &
echo agent >> a.txt
"""

OF_OTHERS = ("for p in /proc", "nsenter")


@soak
@pytest.mark.parametrize("mode", MODES)
def test_no_way_out_of_a_workspace_changes_the_checkout(scene: Scene, mode: str) -> None:
    scene.user.env |= {"FOLDER": str(scene.folder), "SPARE": str(scene.user.root / "spare")}
    (scene.user.root / "spare").mkdir()
    ways = ESCAPES
    if "copy" in mode:  # It has the processes of the machine: theirs are not to be written to.
        ways = "".join(one for one in ESCAPES.splitlines(True) if not one.startswith(OF_OTHERS))
    begin(scene, {"a": ways.replace("\n", " || true\n").replace("& || true", "&")}, mode)
    before = scene.tree()
    said = done(scene, "run", PLAN, "--yes")
    assert scene.gate.is_marked("a.end", SOON_S)
    scene.gate.is_marked("nothing", 1.5)  # Longer than what goes on in the background.
    assert scene.tree() == before
    if "copy" in mode:
        assert "was kept from writing into your folder" in said, said
    done(scene, "results", "--apply")
    assert text(scene, "a.txt") == "a\nagent\n"


@soak
def test_writes_elsewhere_on_the_machine_are_reported_once(scene: Scene) -> None:
    elsewhere = scene.user.root / "elsewhere"
    elsewhere.mkdir()
    script = f"mkdir -p {elsewhere}\necho 1 > {elsewhere}/out\n"
    begin(
        scene, {"a": script, "b": script, "c": f"mkdir {elsewhere}/new; echo > {elsewhere}/new/1"}
    )
    said = done(scene, "run", PLAN, "--yes")
    assert f"a, b wrote outside of theirs: {elsewhere}/out\n" in said, said
    assert f"c wrote outside of its workspace: {elsewhere}/new\n" in said, said


@soak
def test_what_the_last_run_did_in_another_folder_is_not_applied_from_here(scene: Scene) -> None:
    begin(scene, {"a": "echo agent >> a.txt\n"})
    done(scene, "run", PLAN, "--yes")
    elsewhere = scene.user.root / "elsewhere"
    elsewhere.mkdir()
    refused = scene.headway("results", "--apply", cwd=elsewhere)
    assert refused.returncode == 2
    assert f"the last run worked in {scene.folder}, not here" in refused.stderr
    assert text(scene, "a.txt") == "a\n"
    done(scene, "results", "--apply")
    assert text(scene, "a.txt") == "a\nagent\n"


@soak
def test_an_edge_that_was_learned_spares_the_second_attempt(scene: Scene) -> None:
    scripts = {
        "a": "await b.end 3\necho 2 > a.txt\n", "b": "await a.start 3\ncat a.txt > b.txt\n",
    }  # fmt: skip
    begin(scene, scripts, "land: exact")
    said = done(scene, "run", PLAN, "--yes", "-j", "2")
    assert scene.gate.starts()["b"] == 2, said
    why = done(scene, "why", "b")
    assert "a.txt" in why, why
    done(scene, "run", PLAN, "--yes", "-j", "2")
    assert scene.gate.starts()["b"] == 3, "it ran twice although the edge was learned"
    done(scene, "results", "--apply")
    assert text(scene, "b.txt") == "2\n"


@soak
@pytest.mark.parametrize(("land", "starts"), [("verified", 1), ("exact", 2)])
def test_a_check_that_read_everything_runs_a_task_again_only_if_all_must_be_exact(
    scene: Scene, land: str, starts: int
) -> None:
    scripts = {
        "a": "await b.end 10\necho 2 > a.txt\n",
        "b": "await a.start 10\nsh test.sh\necho b >> b.txt\n",
    }
    begin(scene, scripts, f"land: {land}\nchecks: ['sh test.sh']")
    lay_out(scene.folder, {"test.sh": "cat *.txt > /dev/null\n"})
    scene.commit("Test")
    said = done(scene, "run", PLAN, "--yes", "-j", "2")
    assert scene.gate.starts()["b"] == starts, said
    done(scene, "results", "--apply")
    assert (text(scene, "a.txt"), text(scene, "b.txt")) == ("2\n", "b\nb\n")


@soak
def test_a_file_that_is_touched_and_stays_as_it_was_makes_nobody_run_again(scene: Scene) -> None:
    scripts = {
        "a": "await b.end 10\ntouch list.txt\necho a >> a.txt\n",
        "b": "await a.start 10\ntouch list.txt\ncat list.txt >> b.txt\n",
    }
    begin(scene, scripts, "land: exact")
    said = done(scene, "run", PLAN, "--yes", "-j", "2")
    assert scene.gate.starts()["b"] == 1, said
    assert "landed: 2 tasks; 2 files" in said


@soak
def test_the_shell_gives_each_item_a_workspace(scene: Scene) -> None:
    begin(scene, {name: f"echo agent >> {name}.txt\n" for name in ("a", "b")})
    before = scene.tree()
    words = ("each", "--agent", "scripted", "--workspace", "Please perform {}.", ":::", "a", "b")
    done(scene, *words)
    assert scene.tree() == before
    done(scene, "results", "--apply")
    assert (text(scene, "a.txt"), text(scene, "b.txt")) == ("a\nagent\n", "b\nagent\n")


@soak
def test_a_workspace_for_each_of_several_repositories(scene: Scene) -> None:
    for name in ("one", "two"):
        folder = scene.folder / name
        lay_out(folder, FILES)
        for words in (["init", "-q"], ["add", "-A"], ["commit", "-qm", "Begin"]):
            git(folder, *words, env=scene.user.env)
    scene.script("same", "echo agent >> a.txt\n")
    (scene.folder / PLAN).write_text(
        "headway: 1\ntasks:\n  fix:\n    each: [one, two]\n    agent: scripted\n"
        "    prompt: Please perform same.\n    workspace: {path: '{{ item }}'}\n"
    )
    done(scene, "run", PLAN, "--yes")
    assert {text(scene, f"{name}/a.txt") for name in ("one", "two")} == {"a\n"}
    done(scene, "results", "--apply")
    assert {text(scene, f"{name}/a.txt") for name in ("one", "two")} == {"a\nagent\n"}
