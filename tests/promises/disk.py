"""A small disk of its own, and how it becomes full: a tmpfs, no mock."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest

NESTED: Final = "HEADWAY_TEST_NAMESPACE"
"""Set in the environment of a test that runs in a mount namespace of its own."""

FILLER: Final = """
import os, sys, time
handle = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
is_said = False
while True:
    try:
        os.write(handle, b"x" * 4096)
    except OSError:
        if not is_said:
            print("full", flush=True)
            is_said = True
        time.sleep(0.001)
"""
"""Takes whatever becomes free, for as long as it runs."""


@contextmanager
def mounted(place: Path, size_mb: int, request: pytest.FixtureRequest) -> Iterator[Path]:
    """A file system of this size.

    A user who may not mount runs the test again in a namespace of its own, where they may; where
    that is forbidden too, the test is skipped.
    """
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={size_mb}m", "tmpfs", str(place)]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        _in_namespace(request)
    try:
        yield place
    finally:
        subprocess.run(["umount", "-l", str(place)], check=True)


def _in_namespace(request: pytest.FixtureRequest) -> None:
    if NESTED in os.environ:
        pytest.skip("no file system can be mounted here")
    inside = ["unshare", "--user", "--map-root-user", "--mount"]
    if subprocess.run([*inside, "true"], capture_output=True, check=False).returncode:
        pytest.skip("no file system can be mounted here, nor a namespace made")
    again = subprocess.run(
        [*inside, sys.executable, "-m", "pytest", "-q", "-n", "0", request.node.nodeid],
        cwd=request.config.rootpath, env=os.environ | {NESTED: "1"},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert again.returncode == 0, again.stdout
    pytest.skip("passed in a namespace of its own")


def filling(place: Path) -> subprocess.Popen[str]:
    """A process that takes all room of a file system; it has done so when this returns."""
    filler = subprocess.Popen(
        [sys.executable, "-S", "-c", FILLER, str(place / "ballast")],
        stdout=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip
    assert filler.stdout is not None
    assert filler.stdout.readline() == "full\n"
    return filler


@contextmanager
def filled(place: Path) -> Iterator[None]:
    """Take all room of a file system, and what becomes free, until the end of the block."""
    filler = filling(place)
    try:
        yield
    finally:
        filler.kill()
        filler.communicate()
        (place / "ballast").unlink()
