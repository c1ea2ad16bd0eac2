"""Starts `headway sim serve` as a process of its own, for benches and tests."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from json import loads
from pathlib import Path
from typing import Final

import headway
from headway.errors import ProviderError

STOP_S_MAX: Final = 10.0
"""How long a process may take to stop when it is asked to, before it is killed."""


@contextmanager
def launched(*options: str) -> Iterator[str]:
    """Serve with the options of `headway sim serve` for as long as the block lasts: the URL."""
    command = [sys.executable, "-m", "headway", "sim", "serve", "--json", *options]
    command += ["--parent", str(os.getpid())]
    # The same headway as this one, also where it is not installed.
    found = [str(Path(headway.__file__).parents[1]), os.environ.get("PYTHONPATH", "")]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, found))}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        try:
            line = process.stdout.readline() if process.stdout is not None else ""
            if not line:
                raise ProviderError("the simulated provider did not start")
            yield str(loads(line)["url"])
        finally:
            process.terminate()
            try:
                process.wait(STOP_S_MAX)
            except subprocess.TimeoutExpired:
                process.kill()
