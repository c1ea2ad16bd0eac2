"""The pipes of commands: when the disk takes nothing for a while, when their numbers are reused."""

from __future__ import annotations

import errno
import os
import select
from pathlib import Path

import pytest

from headway.agents import shim as capture
from headway.agents.shim import Capture


def test_what_an_ended_command_wrote_goes_to_no_other_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(capture, "HELD_BYTES_MAX", 100)
    pipes = Capture(select.poll())
    (stream,) = pipes.open([str(tmp_path / "stdout")])
    os.write(stream.theirs, b"a" * 20_000)
    with monkeypatch.context() as full:
        full.setattr(os, "write", _refuse)
        pipes.hear(stream.fd)
        assert pipes.waiting == [stream]
        assert pipes.end(stream) == (20_000, b"a" * 20_000)
    other = os.open(tmp_path / "other", os.O_WRONLY | os.O_CREAT)
    pipes.retry()
    assert (tmp_path / "other").read_bytes() == b""
    # A background process of the command writes on, and is heard.
    os.write(stream.theirs, b"later")
    assert [fd for fd, _ in pipes.poll.poll(0)] == [stream.fd]
    pipes.hear(stream.fd)
    pipes.drop(stream)
    os.close(other)


def test_a_command_that_closed_its_pipe_takes_nothing_of_the_next_with_the_same_number() -> None:
    pipes = Capture(select.poll())
    (first,) = pipes.open(["first"])
    fd = first.fd
    pipes.started(os.getpid(), [first])
    pipes.hear(fd)
    (second,) = pipes.open(["second"])
    assert second.fd == fd
    os.write(second.theirs, b"of the second")
    assert pipes.end(first) == (0, b"")
    assert pipes.end(second) == (13, b"of the second")
    pipes.drop(second)


def _refuse(_fd: int, _data: bytes) -> int:
    raise OSError(errno.ENOSPC, "full")
