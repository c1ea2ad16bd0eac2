"""Commands run under a shim: what ended is durable, what runs is ended, nothing is left behind."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path
from typing import Any, NoReturn

import pytest
from msgspec.structs import replace

from headway.agents.shell import (
    Adopted,
    Command,
    CommandEnded,
    ShimClient,
    judged,
    perform_command,
    read_shim_log,
    shim_key,
)
from headway.journal.shim_log import LOG_NAME
from headway.work import Attempt, AttemptError, Result

SOON_S = 60.0
KEY = b"\x01" * 16


@contextlib.asynccontextmanager
async def opened(folder: Path) -> AsyncIterator[ShimClient]:
    shim = ShimClient(str(folder))
    try:
        yield shim
    finally:
        await shim.close()


def with_shim(folder: Path, work: Callable[[ShimClient], Coroutine[Any, Any, Any]]) -> Any:
    async def main() -> Any:
        async with opened(folder) as shim:
            return await asyncio.wait_for(work(shim), 60)

    return asyncio.run(main())


def sh(script: str, *words: str, key: bytes = KEY, **more: Any) -> Command:
    return Command(key, more.pop("attempt", 1), ("/bin/sh", "-c", script, "sh", *words), **more)


def run(folder: Path, command: Command) -> CommandEnded:
    ended: CommandEnded = with_shim(folder, lambda shim: shim.run(command))
    return ended


def until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + SOON_S
    while not condition():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.01)


def processes(mark: str) -> list[int]:
    """The processes that have this text in their command line."""
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            words = Path(f"/proc/{name}/cmdline").read_bytes().split(b"\0")
            if mark.encode() in words:
                found.append(int(name))
    return found


def test_output_exit_code_and_consumption_are_told(tmp_path: Path) -> None:
    ended = run(tmp_path, sh("echo out; echo err >&2; exit 3"))
    assert (ended.reason, ended.code) == ("exit", 3)
    assert (ended.stdout.read(), ended.stderr.read()) == (b"out\n", b"err\n")
    assert ended.cpu_us > 0
    assert ended.memory_kb > 0
    assert read_shim_log(str(tmp_path)) == {(KEY, 1): ended}
    assert os.listdir(tmp_path / "out") == []


def test_environment_folder_and_stdin_are_given(tmp_path: Path) -> None:
    (tmp_path / "here").mkdir()
    command = sh(
        'cat; pwd; echo "$item $HOME"',
        environment={"item": "ein ü\n"},
        folder=str(tmp_path / "here"),
        stdin=b"\0\xff" * 50_000,
    )
    expected = b"\0\xff" * 50_000 + f"{tmp_path}/here\nein ü\n {os.environ['HOME']}\n".encode()
    assert run(tmp_path, command).stdout.read() == expected


def test_a_command_inherits_three_files_and_default_signals(tmp_path: Path) -> None:
    script = "ls /proc/self/fd; grep -E 'Sig(Ign|Blk)' /proc/self/status; umask; tty"
    with (tmp_path / "open").open("w") as file:
        os.set_inheritable(file.fileno(), True)
        words = run(tmp_path, sh(script)).stdout.read().decode().split()
    # The fourth file is the folder that ls itself reads.
    assert words[:4] == ["0", "1", "2", "3"]
    assert words[4:7] == ["SigBlk:", "0" * 16, "SigIgn:"]
    ignored = {number for number in signal.Signals if int(words[7], 16) >> (number - 1) & 1}
    assert not ignored & {signal.SIGINT, signal.SIGQUIT, signal.SIGPIPE, signal.SIGTERM}
    assert words[9:] == ["not", "a", "tty"]


def test_a_missing_program_and_one_that_is_no_program(tmp_path: Path) -> None:
    plain = tmp_path / "plain"
    plain.write_text("echo read by a shell: $1\n")

    async def work(shim: ShimClient) -> list[CommandEnded]:
        one = await shim.run(Command(KEY, 1, ("no-such-program",)))
        two = await shim.run(Command(KEY, 2, (str(plain), "x")))
        plain.chmod(0o755)
        three = await shim.run(Command(KEY, 3, (str(plain), "x")))
        four = await shim.run(Command(KEY, 4, ("true",), folder=str(tmp_path / "gone")))
        return [one, two, three, four]

    ended = with_shim(tmp_path, work)
    assert [one.code for one in ended] == [127, 126, 0, 127]
    assert b"no-such-program: No such file" in ended[0].stderr.read()
    assert ended[2].stdout.read() == b"read by a shell: x\n"


def test_fifty_megabytes_arrive_whole(tmp_path: Path) -> None:
    ended = run(tmp_path, sh("yes 0123456789abcde | head -c 50000000; head -c 9 /dev/zero >&2"))
    assert ended.stdout.text is None
    assert ended.stdout.size_bytes == 50_000_000
    whole = (b"0123456789abcde\n" * 3_125_000)[:50_000_000]
    assert hashlib.blake2b(ended.stdout.read()).digest() == hashlib.blake2b(whole).digest()
    assert ended.stdout.tail(3) == whole[-3:]
    assert ended.stderr.read() == b"\0" * 9
    assert read_shim_log(str(tmp_path))[KEY, 1].stdout.path == ended.stdout.path


def test_a_command_that_closes_its_output_is_waited_for(tmp_path: Path) -> None:
    ended = run(tmp_path, sh("exec >&- 2>&-; sleep 0.1; exit 4"))
    assert ended.code == 4
    assert ended.took_ms >= 100


def test_output_that_is_too_long_for_a_result_is_refused_clearly(tmp_path: Path) -> None:
    command = sh("head -c 70000000 /dev/zero")
    with pytest.raises(AttemptError, match="70000000 bytes of output"):
        with_shim(tmp_path, lambda shim: perform_command(shim, command))


def test_a_timeout_ends_every_process_and_says_so(tmp_path: Path) -> None:
    mark = f"31{os.getpid()}"
    command = sh(f"sleep {mark} & timeout 99 sleep {mark}; sleep {mark}", timeout_s=0.2)
    with pytest.raises(AttemptError, match="ended after") as lost:
        with_shim(tmp_path, lambda shim: perform_command(shim, command))
    assert lost.value.fault.kind == "timeout"
    assert processes(mark) == []


def test_children_that_ignore_term_are_killed(tmp_path: Path) -> None:
    mark = f"32{os.getpid()}"
    script = f"trap '' TERM; setsid sleep {mark} & sleep {mark}; sleep {mark}"
    ended = run(tmp_path, sh(script, timeout_s=0.2))
    assert ended.reason == "timeout"
    assert ended.took_ms >= 2_000
    assert processes(mark) == []


def test_cancelling_ends_the_command_first(tmp_path: Path) -> None:
    mark = f"33{os.getpid()}"

    async def work(shim: ShimClient) -> None:
        running = asyncio.create_task(shim.run(sh(f"sleep {mark} & sleep {mark}")))
        while len(processes(mark)) < 2:
            await asyncio.sleep(0.01)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        assert processes(mark) == []

    with_shim(tmp_path, work)
    assert [ended.reason for ended in read_shim_log(str(tmp_path)).values()] == ["cancelled"]


PARENT = """
import asyncio, sys
from headway.agents.shell import Command, ShimClient
async def main(folder, mark):
    shim = ShimClient(folder)
    scripts = ["echo done", "echo begun; trap '' TERM; sleep %s; sleep %s" % (mark, mark),
               "sleep %s & timeout 99 sleep %s" % (mark, mark)]
    async def one(i):
        await shim.run(Command(bytes([i]) * 16, 1, ("/bin/sh", "-c", scripts[i])))
        print("ended", flush=True)
    await asyncio.gather(*map(one, range(3)))
asyncio.run(main(*sys.argv[1:]))
"""


def parent(folder: Path, mark: str) -> subprocess.Popen[bytes]:
    """A process that runs three commands, of which the first has ended."""
    started = subprocess.Popen(
        [sys.executable, "-c", PARENT, str(folder), mark], stdout=subprocess.PIPE
    )
    assert started.stdout is not None
    assert started.stdout.readline() == b"ended\n"
    until(lambda: len(processes(mark)) >= 4)
    return started


def shim_of(pid: int) -> int:
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return int(children[0])


@pytest.mark.parametrize("victim", ["headway", "shim", "both"])
def test_nothing_is_left_behind_by_a_kill(tmp_path: Path, victim: str) -> None:
    mark = f"34{os.getpid()}{len(victim)}"
    with parent(tmp_path, mark) as started:
        shim = shim_of(started.pid)
        for pid in {"headway": [started.pid], "shim": [shim], "both": [shim, started.pid]}[victim]:
            os.kill(pid, signal.SIGKILL)
        until(lambda: not processes(mark))
        started.kill()
    until(lambda: not os.path.exists(f"/proc/{shim}"))
    found = read_shim_log(str(tmp_path))
    assert found[b"\0" * 16, 1].stdout.read() == b"done\n"
    ended = {key[0]: ended.reason for (key, _), ended in found.items()}
    others = {1: "orphaned", 2: "orphaned"} if victim == "headway" else {}
    assert ended == {0: "exit", **others}
    assert list(Adopted(str(tmp_path))._ends) == [b"\0" * 16]


def test_what_finishes_in_the_grace_is_an_end_by_the_shim_and_not_adopted(tmp_path: Path) -> None:
    async def work(shim: ShimClient) -> None:
        script = f"trap 'exit 0' TERM; echo x > {tmp_path}/begun; sleep 9 & wait"
        running = asyncio.create_task(shim.run(sh(script)))
        while not (tmp_path / "begun").exists():
            await asyncio.sleep(0.01)
        await shim.close()
        ended = await running
        assert (ended.reason, ended.code) == ("orphaned", 0)

    with_shim(tmp_path, work)
    assert not Adopted(str(tmp_path))._ends


def test_a_killed_shim_is_replaced_and_its_commands_are_in_doubt(tmp_path: Path) -> None:
    async def work(shim: ShimClient) -> None:
        running = asyncio.create_task(perform_command(shim, sh("sleep 60")))
        while (link := shim._link) is None:
            await asyncio.sleep(0.01)
        link.process.kill()
        with pytest.raises(AttemptError) as lost:
            await running
        assert lost.value.is_in_doubt
        assert await perform_command(shim, sh("echo again", attempt=2)) == Result(
            b"again\n", exit_code=0
        )
        assert shim._link is not link

    with_shim(tmp_path, work)


def test_a_torn_or_damaged_line_is_left_out_and_the_log_goes_on(tmp_path: Path) -> None:
    run(tmp_path, sh("echo 1"))
    run(tmp_path, sh("echo 2", attempt=2))
    log = tmp_path / LOG_NAME
    whole = log.read_bytes()
    damaged = whole.replace(b" exit 0 ", b" exit 1 ", 1)
    log.write_bytes(damaged[:-9])
    assert read_shim_log(str(tmp_path)) == {}
    run(tmp_path, sh("echo 3", attempt=3))
    assert [attempt for _, attempt in read_shim_log(str(tmp_path))] == [3]
    log.write_bytes(whole)
    assert [attempt for _, attempt in read_shim_log(str(tmp_path))] == [1, 2]
    assert read_shim_log(str(tmp_path / "none")) == {}


def tried(journalled: int, inputs: bytes = b"") -> Attempt:
    """An attempt after those that the journal knows; none of its verbs is used."""

    def unused(*_: object) -> NoReturn:
        raise AssertionError

    number = journalled + 1
    return Attempt(
        0, 0, number, KEY, "task", unused, unused, unused, unused, unused, inputs, journalled
    )


def test_a_good_end_is_adopted_by_the_same_work_on_the_same_results_alone(tmp_path: Path) -> None:
    attempt = tried(0, b"given")
    run(tmp_path, replace(sh("echo good"), key=shim_key(attempt)))
    assert Adopted(str(tmp_path)).take(tried(0, b"others")) is None
    adopted = Adopted(str(tmp_path))
    ended = adopted.take(tried(3, b"given"))
    assert ended is not None
    assert ended.stdout.read() == b"good\n"
    assert adopted.take(attempt) is None, "an end is taken once"


def test_failed_attempts_say_why_and_are_adopted_unless_they_were_counted(tmp_path: Path) -> None:
    script = "echo partial; for i in 1 2 3 4 5 6; do echo line $i >&2; done; exit 9"
    command = replace(sh(script), key=shim_key(tried(0)))
    with pytest.raises(AttemptError) as lost:
        with_shim(tmp_path, lambda shim: perform_command(shim, command))
    assert lost.value.fault.kind == "command"
    assert lost.value.fault.detail == "exit code 9: line 2\nline 3\nline 4\nline 5\nline 6"
    assert lost.value.result == Result(b"partial\n", exit_code=9)
    ended = Adopted(str(tmp_path)).take(tried(0))
    assert ended is not None
    with pytest.raises(AttemptError) as again:
        judged(ended)
    assert again.value.fault == lost.value.fault
    assert Adopted(str(tmp_path)).take(tried(1)) is None


def test_a_full_disk_loses_no_result(tmp_path: Path) -> None:
    """Nothing can be appended to /dev/full; the answer comes all the same."""
    (tmp_path / LOG_NAME).symlink_to("/dev/full")
    ended = run(tmp_path, sh("echo kept"))
    assert ended.stdout.read() == b"kept\n"
