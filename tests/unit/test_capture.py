"""The pipes of commands, when the disk takes nothing for a while."""

from __future__ import annotations

import errno
import os
import select
from pathlib import Path

import pytest

from headway.agents import capture
from headway.agents.capture import Capture


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


def _refuse(_fd: int, _data: bytes) -> int:
    raise OSError(errno.ENOSPC, "full")
