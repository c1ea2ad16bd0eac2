"""What commands read and write is observed, whatever they are written in."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from headway.workspaces.observation import Observation, read_observation
from tests.workspaces.entered import Entered

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux has seccomp")

LOOKS = Path(__file__).with_name("looks.c")

PYTHON = """
import mmap, os, subprocess, sys
kind = sys.argv[1]
if kind == "open": open("opened").read()
if kind == "mmap":
    with open("mapped", "rb") as file: mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)[0]
if kind == "stat": os.stat("inner/../looked_at")
if kind == "missing": os.path.exists("not_there")
if kind == "listing": os.listdir("listed")
if kind == "readlink": os.readlink("link")
if kind == "exec": subprocess.run(["./executed"])
"""
NODE = """
const fs = require("fs"), kind = process.argv[1];
if (kind == "open") fs.readFileSync("opened");
if (kind == "mmap") require("./mapped.js");
if (kind == "stat") fs.statSync("inner/../looked_at");
if (kind == "missing") fs.existsSync("not_there");
if (kind == "listing") fs.readdirSync("listed");
if (kind == "readlink") fs.readlinkSync("link");
if (kind == "exec") require("child_process").execFileSync("./executed");
"""
"""Node maps no files; it loads a module instead."""

KINDS = {
    "open": "opened", "mmap": "mapped", "stat": "looked_at", "missing": "not_there",
    "listing": "listed", "readlink": "link", "exec": "executed",
}  # fmt: skip


@pytest.fixture
def entered(tmp_path: Path) -> Entered:
    return Entered(tmp_path)


@pytest.fixture(scope="module")
def binary(tmp_path_factory: pytest.TempPathFactory) -> str:
    if shutil.which("gcc") is None:
        pytest.skip("there is no C compiler")
    path = tmp_path_factory.mktemp("binary") / "looks"
    subprocess.run(["gcc", "-static", "-o", str(path), str(LOOKS)], check=True)
    return str(path)


def program(name: str, request: pytest.FixtureRequest) -> list[str]:
    if name == "python":
        return [sys.executable, "-c", PYTHON]
    if name == "binary":
        return [request.getfixturevalue("binary")]
    if (node := shutil.which("node")) is None:
        pytest.skip("node is not installed")
    return [node, "-e", NODE]


def with_kinds(entered: Entered) -> None:
    for name in ("opened", "mapped", "looked_at", "listed/one"):
        entered.put(name, "m" + name)
    entered.put("mapped.js", "1")
    entered.put("inner/file", "")
    entered.put("executed", "#!/bin/sh\nexit 0\n", 0o755)
    entered.link("link", "opened")


def seen(observation: Observation) -> set[str]:
    assert observation.is_whole, observation.why
    return {*observation.reads, *observation.listed}


@pytest.mark.parametrize(
    "mode", ["overlay", *(pytest.param(one, marks=pytest.mark.soak) for one in ("copy", "observe"))]
)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["python", "node", "binary"])
def test_each_kind_of_read_is_seen(
    entered: Entered, request: pytest.FixtureRequest, name: str, kind: str, mode: str
) -> None:
    with_kinds(entered)
    if mode == "observe" and kind in ("stat", "missing", "readlink"):
        pytest.skip("without isolation only what reads content counts")
    ran, observed = entered.run(*program(name, request), kind, mode=mode)
    assert ran.returncode == 0, ran.stderr
    wanted = "mapped.js" if (name, kind) == ("node", "mmap") else KINDS[kind]
    assert wanted in (observed.listed if kind == "listing" else observed.reads)
    others = {*KINDS.values(), "mapped.js"} - {wanted}
    assert not others & seen(observed)


CALL = re.compile(r'^(?:\d+ +)?(\w+)\((?:(?:AT_FDCWD|\d+)<([^>]*)>, )?(?:"([^"]*)")?')


def judged(text: str, folder: str) -> set[str]:
    """The paths in a folder that strace has seen, relative to it."""
    paths = set()
    for line in text.splitlines():
        if (found := CALL.match(line)) and found[1] not in ("chdir", "getcwd", "statfs"):
            base, path = found[2] or folder, found[3] or ""
            if found[1].startswith("getdents") or path or "AT_EMPTY_PATH" not in line:
                whole = os.path.normpath(os.path.join(base, path))
                if whole == folder or whole.startswith(folder + "/"):
                    paths.add(os.path.relpath(whole, folder) if whole != folder else "")
    return paths


@pytest.mark.parametrize("name", ["python", "node", "binary"])
def test_what_strace_sees_is_seen(
    entered: Entered, request: pytest.FixtureRequest, name: str
) -> None:
    if (strace := shutil.which("strace")) is None:
        pytest.skip("strace is not installed")
    with_kinds(entered)
    folder = str(entered.repo)
    for kind in KINDS:
        argv = [*program(name, request), kind]
        log = entered.place / "strace"
        options = ["-f", "-y", "-e", "trace=%file,getdents64", "-o", str(log)]
        subprocess.run([strace, *options, *argv], cwd=folder, check=True, capture_output=True)
        _, observed = entered.run(*argv)
        found = judged(log.read_text(), folder)
        assert found
        assert seen(observed) >= found
        assert seen(observed) - found <= {"", "opened"}  # The target of a link.


def test_writes_are_reads_unless_they_are_blind(entered: Entered) -> None:
    for name in "abcdef":
        entered.put(name, name)
    script = "echo > a; echo >> b; rm c; mv d d2; chmod +x e; : > new; cat new a; mkdir made"
    _, observed = entered.run("sh", "-c", script)
    assert set(observed.writes) == {"a", "b", "c", "d", "d2", "e", "new", "made"}
    assert {"b", "c", "d", "e"} <= seen(observed)
    assert not {"a", "new"} & seen(observed)
    assert sorted(path.name for path in entered.upper.iterdir()) == sorted(
        ["a", "b", "c", "d", "d2", "e", "made", "new"]
    )


def test_a_renamed_folder_counts_with_all_that_is_in_it(entered: Entered) -> None:
    entered.put("from/one", "1")
    entered.put("from/deep/two", "2")
    script = "import os; os.rename('from', 'to')"
    _, observed = entered.run(sys.executable, "-c", script, mode="copy")
    assert {"from/one", "from/deep/two", "to/one", "to/deep/two"} <= set(observed.writes)
    assert {"from/one", "from/deep/two"} <= seen(observed)


def test_links_count_with_their_targets(entered: Entered) -> None:
    entered.put("real/file", "1")
    entered.link("folder", "real")
    entered.link("twice", "folder/file")
    os.symlink(entered.repo, entered.place / "elsewhere")
    _, observed = entered.run("cat", "twice", f"{entered.place}/elsewhere/kept")
    assert {"twice", "folder", "real/file", "kept"} <= seen(observed)
    assert "folder/file" not in seen(observed)


def test_paths_through_descriptors_and_proc_are_resolved(entered: Entered) -> None:
    entered.put("a/one", "1")
    entered.put("a/two", "2")
    entered.put("three", "3")
    script = """
import os
folder = os.open("a", os.O_RDONLY)
open(f"/proc/self/fd/{folder}/one").read()
os.close(os.open("two", os.O_RDONLY, dir_fd=folder))
os.chdir("a")
open("/proc/self/cwd/../three").read()
"""
    _, observed = entered.run(sys.executable, "-c", script)
    assert {"a", "a/one", "a/two", "three"} <= seen(observed)


def test_searches_and_checks_are_told_apart_from_direct_reads(entered: Entered) -> None:
    entered.put("sub/found", "needle")
    entered.put("read", "1")
    entered.put("tested", "2")
    entered.put("run_tests", "#!/bin/sh\ncat tested; ls sub\n", 0o755)
    script = "cd sub; grep -r needle . ; cd ..; cat read; ./run_tests --all"
    _, observed = entered.run("sh", "-c", script, checks=["run_tests *"])
    (search,) = observed.searches
    assert (search.argv, search.cwd) == (("grep", "-r", "needle", "."), "sub")
    (check,) = observed.checks
    assert check.argv == ("./run_tests", "--all")
    assert {"tested", "sub", "run_tests"} <= {*check.reads, *check.listed}
    assert "read" in seen(observed)
    assert not {"tested", "sub/found"} & seen(observed)
    _, observed = entered.run("find", ".", "-exec", "true", ";")
    assert {"sub", ""} <= set(observed.listed)  # It could do anything.


def test_a_search_that_writes_is_none(entered: Entered) -> None:
    entered.put("sub/one", "1")
    for words in (["find", "sub", "-delete"], ["git", "diff", "--output=x"], ["tree", "-o", "x"]):
        _, observed = entered.run(*words)
        assert observed.searches == ()


def git(folder: Path, *words: str) -> None:
    names = ("-c", "user.name=a", "-c", "user.email=a@b.c")
    subprocess.run(["git", *names, *words], cwd=folder, check=True, capture_output=True)


def test_git_at_work_reads_nothing_but_its_hooks_do(entered: Entered) -> None:
    entered.put("one", "1")
    entered.put("two", "2")
    git(entered.snapshot, "init")
    git(entered.snapshot, "add", "-A")
    git(entered.snapshot, "commit", "-m", "first")
    hook = entered.snapshot / ".git/hooks/pre-commit"
    hook.write_text("#!/bin/sh\ncat one\n")
    hook.chmod(0o755)
    script = (
        "echo 3 > three; git add -A; git -c user.name=a -c user.email=b commit -qm x; git status"
    )
    ran, observed = entered.run("sh", "-c", script)
    assert "nothing to commit" in ran.stdout
    assert seen(observed) - {""} == {"one"}
    assert [search.argv for search in observed.searches] == [("git", "status")]
    assert observed.writes == ("three",)
    assert observed.outside == ()


def test_a_script_counts_with_its_interpreter_in_the_folder(entered: Entered) -> None:
    entered.put("tool", "#!/bin/sh\nexit 0\n", 0o755)
    entered.put("script", f"#!{entered.repo}/tool\n", 0o755)
    _, observed = entered.run("sh", "-c", "./script || true")
    assert {"script", "tool"} <= seen(observed)


def test_writes_outside_are_reported_if_they_happened(entered: Entered) -> None:
    there = entered.place / "there"
    there.write_text("1")
    (entered.place / "own").mkdir()
    script = "cd ..; echo > new; rm there; rm not_there; echo > /dev/null; echo > own/file"
    _, observed = entered.run("sh", "-c", script, own=[str(entered.place / "own")])
    assert set(observed.outside) == {f"{entered.place}/new", str(there)}
    _, observed = entered.run("sh", "-c", "cat ../new > /dev/null", own=[])
    assert observed.outside == ()


def test_of_a_home_only_what_agents_keep_there_is_not_reported(
    entered: Entered, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = entered.place / "home"
    for name in (".cache", ".claude", ".ssh"):
        (home / name).mkdir(parents=True)
    monkeypatch.setenv("HOME", str(home))
    names = (".cache/x", ".claude/x", ".claude.json", ".ssh/config", ".profile", "x")
    _, observed = entered.run("sh", "-c", "; ".join(f"echo > ~/{name}" for name in names), own=[])
    assert set(observed.outside) == {str(home / name) for name in names[3:]}


def test_an_observation_that_is_lost_or_spoilt_is_not_whole(entered: Entered) -> None:
    entered.run("cat", "kept")
    data = entered.log.read_bytes()
    assert read_observation(str(entered.log)).is_whole
    for size in range(0, len(data) - 1):
        entered.log.write_bytes(data[:size])
        assert not read_observation(str(entered.log)).is_whole
    for place in range(0, len(data) - 1):
        entered.log.write_bytes(data[:place] + b"\xff" + data[place + 1 :])
        assert not read_observation(str(entered.log)).is_whole
    assert not read_observation(str(entered.place / "nowhere")).is_whole
