"""Workspaces are closed, end with their commands, and leave nothing behind."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from headway.agents.shell import Command, ShimClient
from headway.workspaces.observation import launch_argv, probe, read_observation
from tests.workspaces.entered import WITHOUT_NAMESPACES, Entered, processes_with

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux has namespaces")

IS_ROOT = os.geteuid() == 0
SOON_S = 60.0
USERS = [
    pytest.param(False, id="as we are"),
    pytest.param(
        True, id="as nobody", marks=pytest.mark.skipif(not IS_ROOT, reason="only root can change")
    ),
]
MODES = ("overlay", "copy", "observe")


@pytest.fixture
def entered(tmp_path: Path) -> Entered:
    made = Entered(tmp_path)
    if probe(str(tmp_path)).mode != "overlay":
        pytest.skip("this system allows no overlay")
    return made


def until(is_so: Callable[[], bool]) -> None:
    end_s = time.monotonic() + SOON_S
    while not is_so():
        assert time.monotonic() < end_s
        os.sched_yield()


ESCAPES = {
    "absolute path": "echo bad > {repo}/kept; echo bad > {repo}/new; rm {repo}/kept",
    "cd ..": "cd ../repo; echo bad > kept; cd ..; echo bad > repo/new",
    "symlink": "ln -s {repo}/kept {place}/upper-link; echo bad > {place}/upper-link; "
    "ln -s {repo} in; echo bad > in/new",
    "umount": "umount {repo}; umount -l {repo}; echo bad > {repo}/new",
    "nested unshare": "unshare -rm sh -c 'umount {repo}; umount -l {repo}; echo bad > {repo}/new'; "
    "unshare -rmp --fork sh -c 'mount -t proc proc /proc; echo bad > /proc/1/cwd/new'",
    "processes of others": "for pid in /proc/[0-9]*; do echo bad > $pid/cwd/new; "
    "echo bad > $pid/root{repo}/new; done",
    "bind of the parent": "unshare -rm sh -c 'mkdir -p {place}/to; mount --bind {place} {place}/to;"
    " echo bad > {place}/to/repo/new'",
    "rename of the parent": "mv {repo} {repo}2; mkdir {repo}; echo bad > {repo}/new",
    "background": "(trap '' HUP TERM; sleep 1000; echo bad > {repo}/new) & setsid sleep 1000 &",
}


@pytest.mark.parametrize("is_user", USERS)
@pytest.mark.parametrize("way", ESCAPES)
def test_nothing_in_an_overlay_reaches_the_folder(
    entered: Entered, way: str, is_user: bool
) -> None:
    before = entered.files()
    script = ESCAPES[way].format(repo=entered.repo, place=entered.place)
    ran, observed = entered.run("sh", "-c", f"{script}\nexit 7", is_user=is_user)
    assert (ran.returncode, observed.fault) == (7, ""), ran.stderr
    assert entered.files() == before
    assert processes_with(str(entered.place)) == []


@pytest.mark.skipif(not IS_ROOT, reason="only root can mount")
def test_the_folder_is_covered_wherever_it_is_mounted(entered: Entered) -> None:
    other = entered.place / "other place"
    other.mkdir()
    before = entered.files()
    script = "echo 1 > '../other place/repo/kept'; cat kept"
    argv = entered.launch(["sh", "-c", script])
    bound = [
        "unshare",
        "-m",
        "sh",
        "-c",
        f"mount --bind {entered.place} '{other}'; exec \"$@\"",
        "sh",
    ]
    ran = subprocess.run([*bound, *argv], capture_output=True, text=True, check=False)
    assert (ran.stdout, ran.stderr) == ("1\n", "")
    assert entered.files() == before


@pytest.mark.parametrize("way", ["absolute path", "cd ..", "symlink", "background"])
def test_without_an_overlay_the_same_ways_do_reach_it(entered: Entered, way: str) -> None:
    before = entered.files()
    script = ESCAPES[way].format(repo=entered.repo, place=entered.place).replace("sleep 1000", ":")
    entered.run("sh", "-c", f"{script}\nwait", mode="observe")
    assert entered.files() != before


@pytest.mark.parametrize("is_user", USERS)
def test_descriptors_from_outside_are_closed(entered: Entered, is_user: bool) -> None:
    before = entered.files()
    fd = os.open(entered.repo, os.O_RDONLY)
    script = f"ls /proc/self/fd; echo bad > /proc/self/fd/{fd}/new"
    ran, _ = entered.run("sh", "-c", script, is_user=is_user, fds=[fd])
    os.close(fd)
    assert entered.files() == before
    assert str(fd) not in ran.stdout.split()


@pytest.mark.parametrize("is_user", USERS)
@pytest.mark.parametrize("mode", ["overlay", "copy"])
def test_the_command_sees_and_changes_its_own_view(
    entered: Entered, mode: str, is_user: bool
) -> None:
    script = "cat kept; echo new > kept; cat kept; pwd"
    ran, observed = entered.run("sh", "-c", script, mode=mode, is_user=is_user)
    place = entered.repo if mode == "overlay" else entered.snapshot
    assert ran.stdout.split() == ["kept", "new", str(place)]
    assert (observed.is_observed, observed.is_whole, observed.writes) == (True, True, ("kept",))
    assert (entered.repo / "kept").read_text() == "kept\n"


@pytest.mark.parametrize("is_user", USERS)
def test_a_command_in_a_copy_may_not_write_into_the_folder(entered: Entered, is_user: bool) -> None:
    before = entered.files()
    script = f"echo bad > {entered.repo}/kept; rm -rf {entered.repo}/kept; cat {entered.repo}/kept"
    ran, observed = entered.run("sh", "-c", script, mode="copy", is_user=is_user)
    assert ran.stdout == "kept\n"
    assert entered.files() == before
    assert observed.refused == (f"{entered.repo}/kept",)
    assert set(observed.reads) - {""} == {"kept"}


def test_hidden_folders_are_closed(entered: Entered) -> None:
    (entered.place / "others").mkdir()
    (entered.place / "others/file").write_text("1")
    script = "ls ../others; echo > ../others/new; exit 0"
    for is_user in (False, True)[: 1 + IS_ROOT]:
        ran, _ = entered.run(
            "sh", "-c", script, is_user=is_user, hidden=[f"{entered.place}/others"]
        )
        assert (ran.stdout, ran.stderr.count("Read-only")) == ("", 1), ran.stderr
    assert entered.files(entered.place / "others") == {"file": "1"}


@pytest.mark.parametrize("mode", MODES)
def test_it_ends_as_the_command_does(entered: Entered, mode: str) -> None:
    for script, code in (
        ("exit 0", 0), ("exit 3", 3), ("kill -9 $$", -9), ("kill -TERM $$", -15),
        ("kill -SEGV $$", -11), ("exec not_there", 127),
    ):  # fmt: skip
        ran, _ = entered.run("sh", "-c", script, mode=mode)
        assert ran.returncode == code
    assert entered.run("not_there", mode=mode)[0].returncode == 127
    assert entered.run("/etc/passwd", mode=mode)[0].returncode == 126
    entered.put("no_head", "exit 5\n", 0o755)
    assert entered.run("./no_head", mode=mode)[0].returncode == 5


@pytest.mark.parametrize("mode", MODES)
def test_commands_find_what_they_would_find_without(entered: Entered, mode: str) -> None:
    script = """
import os, signal
is_default = [int(signal.getsignal(n) is signal.SIG_DFL) for n in (1, 2, 13, 15)]
print(is_default, os.getpgrp() == os.getpid())
print(sorted(os.listdir("/proc/self/fd"))[:3], os.environ["WORD"], oct(os.umask(0)), os.getuid())
"""
    plain = subprocess.run(
        ["setsid", sys.executable, "-c", script.replace("== os.getpid()", "> 0")],
        capture_output=True, text=True, env={**os.environ, "WORD": "1"}, check=True,
    )  # fmt: skip
    os.environ["WORD"] = "1"
    try:
        ran, _ = entered.run(sys.executable, "-c", script, mode=mode)
    finally:
        del os.environ["WORD"]
    assert ran.stdout.splitlines()[1] == plain.stdout.splitlines()[1], ran.stderr
    assert ran.stdout.splitlines()[0] == "[1, 0, 0, 1] True"  # What Python changes itself.


def test_a_second_command_goes_on_where_the_first_ended(entered: Entered) -> None:
    entered.run("sh", "-c", "echo 1 > new")
    ran, _ = entered.run("cat", "new")
    assert ran.stdout == "1\n"


def test_what_hinders_a_workspace_is_said(entered: Entered) -> None:
    ran, observed = entered.run("true", lower=[f"{entered.place}/nowhere"])
    assert ran.returncode == 125
    assert "overlay" in observed.fault
    assert observed.fault in ran.stderr
    _, observed = entered.run("true", cwd=f"{entered.repo}/nowhere")
    assert "nowhere" in observed.fault


LIVING = "(trap '' TERM HUP; while :; do sleep 1000; done) & echo started; cat kept; sleep 1000"


def start(entered: Entered, mode: str) -> subprocess.Popen[str]:
    argv = entered.launch(["sh", "-c", LIVING], mode)
    process = subprocess.Popen(
        argv, stdout=subprocess.PIPE, text=True, start_new_session=True, cwd=entered.place
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "started\n"
    return process


@pytest.mark.parametrize("mode", ["overlay", "copy", "observe"])
@pytest.mark.parametrize("whom", ["the process", "its init"])
def test_nothing_stays_when_a_process_is_killed(entered: Entered, mode: str, whom: str) -> None:
    process = start(entered, mode)
    assert process.stdout is not None
    pid = process.pid
    if whom == "its init":
        pid = int(Path(f"/proc/{pid}/task/{pid}/children").read_text().split()[0])
    os.kill(pid, signal.SIGKILL)
    process.communicate(timeout=SOON_S)  # Until no process has its output.
    until(lambda: not processes_with(str(entered.place)))
    assert not read_observation(str(entered.log)).is_whole


@pytest.mark.parametrize("mode", ["overlay", "copy", "observe"])
@pytest.mark.parametrize("whom", ["shim", "headway", "cancelled"])
def test_nothing_stays_when_the_shim_or_headway_is_killed(
    entered: Entered, tmp_path: Path, mode: str, whom: str
) -> None:
    (tmp_path / "run").mkdir()
    argv = entered.launch(["sh", "-c", f"echo > started; {LIVING}"], mode)
    is_started = (entered.upper if mode == "overlay" else entered.snapshot) / "started"
    if mode == "observe":
        is_started = entered.repo / "started"

    async def main() -> None:
        shim = ShimClient(str(tmp_path / "run"))
        running = asyncio.create_task(
            shim.run(Command(b"\1" * 16, 1, tuple(argv), folder=str(entered.repo)))
        )
        while not is_started.exists():
            assert not running.done()
            await asyncio.sleep(0)
        assert shim._link is not None
        if whom == "shim":
            shim._link.process.kill()
        elif whom == "headway":
            shim._link.hang_up()
        else:
            running.cancel()
        await asyncio.wait([running])
        await shim.close()

    asyncio.run(main())
    until(lambda: not processes_with(str(entered.place / "spec")))


@pytest.mark.parametrize("mode", ["overlay", "copy"])
def test_background_processes_end_with_the_command(entered: Entered, mode: str) -> None:
    script = "(trap '' TERM HUP; sleep 1000) & setsid sleep 1000 & exit 4"
    ran, observed = entered.run("sh", "-c", script, mode=mode)
    assert ran.returncode == 4
    assert observed.is_whole
    assert processes_with(str(entered.place)) == []


def test_a_process_that_outlives_an_observed_command_goes_on(entered: Entered) -> None:
    fifo = entered.place / "fifo"
    os.mkfifo(fifo)
    script = f"(read word < {fifo}; cat kept > copied) > /dev/null 2>&1 & exit 4"
    ran, observed = entered.run("sh", "-c", script, mode="observe")
    assert (ran.returncode, observed.is_whole) == (4, False)
    assert "outlived" in observed.why
    fifo.write_text("go\n")
    until(
        lambda: (entered.repo / "copied").exists() and (entered.repo / "copied").stat().st_size == 5
    )
    until(lambda: not processes_with(str(entered.place / "spec")))


def test_the_shim_ends_a_command_gracefully(entered: Entered, tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    script = "trap 'echo ended >> ended; exit 9' TERM; echo > started; while :; do sleep 0.01; done"
    argv = tuple(entered.launch(["sh", "-c", script]))

    async def main() -> int:
        shim = ShimClient(str(tmp_path / "run"))
        running = asyncio.create_task(shim.run(Command(b"\1" * 16, 1, argv)))
        while not (entered.upper / "started").exists():
            await asyncio.sleep(0)
        assert shim._link is not None
        shim._link.send(("timeout", 1))
        ended = await running
        await shim.close()
        return ended.code

    assert asyncio.run(main()) == 9
    assert (entered.upper / "ended").read_text() == "ended\n"
    assert read_observation(str(entered.log)).writes


def test_where_user_namespaces_are_forbidden_the_probe_says_copy(
    entered: Entered, tmp_path: Path
) -> None:
    script = (
        "from headway.workspaces.observation import probe\n"
        f"found = probe({str(tmp_path)!r})\n"
        "print(found.mode, found.is_observed, found.words)"
    )
    argv = [sys.executable, "-c", WITHOUT_NAMESPACES, sys.executable, "-c", script]
    ran = subprocess.run(argv, capture_output=True, text=True, check=False)
    if ran.returncode == 77:
        pytest.skip("user namespaces are forbidden already")
    mode, is_observed, *words = ran.stdout.split()
    assert (mode, is_observed) == ("copy", "True"), ran.stderr
    assert " ".join(words).startswith("workspaces are copies at other paths on this system (no ")


def test_where_user_namespaces_are_forbidden_copies_work(entered: Entered) -> None:
    before = entered.files()
    script = f"cat kept; echo 1 > new; echo bad > {entered.repo}/kept"
    inner = entered.launch(["sh", "-c", script], "copy")
    argv = [sys.executable, "-c", WITHOUT_NAMESPACES, *inner]
    ran = subprocess.run(argv, capture_output=True, text=True, check=False)
    if ran.returncode == 77:
        pytest.skip("user namespaces are forbidden already")
    observed = read_observation(str(entered.log))
    assert (ran.stdout, entered.files()) == ("kept\n", before)
    assert (observed.is_whole, observed.writes) == (True, ("new",))


@pytest.mark.skipif(not IS_ROOT, reason="only root needs no user namespace")
def test_root_needs_no_user_namespace(entered: Entered) -> None:
    inner = entered.launch(["sh", "-c", "cat kept; umount $PWD; echo 1 > new"])
    forbid = WITHOUT_NAMESPACES.replace(
        "for number in range(64):\n    libc.prctl(24, number, 0, 0, 0)\n", ""
    )
    ran = subprocess.run(
        [sys.executable, "-c", forbid, *inner], capture_output=True, text=True, check=False
    )
    observed = read_observation(str(entered.log))
    assert (ran.stdout, observed.fault) == ("kept\n", ""), ran.stderr
    assert (entered.upper / "new").exists()
    assert not (entered.repo / "new").exists()


def test_a_workspace_in_an_observed_command_is_not_observed(entered: Entered) -> None:
    """A process can have one listener only; of the inner command everything counts as read."""
    outer = entered.place / "outer"
    outer.mkdir()
    other = Entered(outer)
    inner = other.launch(["cat", "kept"])
    ran, observed = entered.run(*inner, mode="observe")
    assert ran.returncode == 0, ran.stderr
    within = read_observation(str(other.log))
    assert (within.is_observed, within.is_whole) == (False, False)
    assert "not observed" in within.why
    # The init process of the inner command lets only root read its memory.
    assert observed.is_whole is IS_ROOT


def test_it_imports_nothing_that_takes_long(entered: Entered) -> None:
    """Imports are most of the time to start; which they are does not depend on the load."""
    argv = launch_argv("", [])
    code = argv[4].replace("main(spec, argv)", "print(*sys.modules)")
    ran = subprocess.run([*argv[:4], code, *argv[5:]], capture_output=True, text=True, check=True)
    assert "headway.workspaces.enter" in ran.stdout
    assert not {"json", "re", "subprocess", "typing", "dataclasses", "enum"} & {*ran.stdout.split()}
