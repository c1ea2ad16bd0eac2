"""Many coding agents at once: started together, waited for, and what became of each."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import tempfile
from collections.abc import Sequence
from pathlib import Path
from time import monotonic
from typing import Final

from msgspec import Struct

from tests.agents.agents import Client, Urls

OUTPUT_CHARS_SHOWN: Final = 2000


class Turn(Struct, frozen=True):
    """One agent's turn, from the start of its process to its end."""

    client: str
    number: int
    took_s: float
    status: int | None
    """None: it was still running when the time was over."""
    answer: str
    missing: tuple[str, ...]
    """Outputs of tools that should be in the answer and are not."""
    output: str

    @property
    def is_finished(self) -> bool:
        """Every tool ran, and the model saw what it gave."""
        return self.status == 0 and not self.missing


class Task(Struct, frozen=True):
    """What an agent is asked to do: some commands, one after the other."""

    number: int
    steps: int

    @property
    def prompt(self) -> str:
        """The results are not in it: whoever tells them has run the commands."""
        named = ", then ".join(f"`expr {self.number}000 + {step}`" for step in self._steps)
        return f"Please run {named}."

    @property
    def results(self) -> tuple[str, ...]:
        return tuple(f"{self.number}{step:03d}" for step in self._steps)

    @property
    def _steps(self) -> range:
        return range(42, 42 + self.steps)


def crowd(
    clients: Sequence[Client], urls: Urls, steps: int = 1, within_s: float = 120.0
) -> list[Turn]:
    """Start one process for each, all at once, and wait for all of them."""
    folder = Path(tempfile.mkdtemp(prefix="hw-agents-"))
    try:
        return asyncio.run(_all(clients, urls, steps, within_s, folder))
    finally:
        shutil.rmtree(folder, ignore_errors=True)


async def _all(
    clients: Sequence[Client], urls: Urls, steps: int, within_s: float, folder: Path
) -> list[Turn]:
    until_s = monotonic() + within_s
    turns = (
        _turn(client, Task(number, steps), urls, folder / str(number), until_s)
        for number, client in enumerate(clients, 101)
    )
    return list(await asyncio.gather(*turns))


async def _turn(client: Client, task: Task, urls: Urls, home: Path, until_s: float) -> Turn:
    launch = client.launch(home, urls, task.prompt)
    began_s = monotonic()
    with (home / "output").open("wb") as output, (home / "errors").open("wb") as errors:
        process = await asyncio.create_subprocess_exec(
            *launch.argv,
            cwd=launch.folder,
            env=launch.env,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=output,
            stderr=errors,
            start_new_session=True,
        )
        try:
            status: int | None = await asyncio.wait_for(process.wait(), until_s - monotonic())
        except TimeoutError:
            status = None
        finally:
            if process.returncode is None:
                os.killpg(process.pid, signal.SIGKILL)
                await process.wait()
    took_s = monotonic() - began_s
    said = (home / "output").read_text(errors="replace")
    answer = client.answer(said)
    missing = tuple(result for result in task.results if result not in answer)
    shown = (said + (home / "errors").read_text(errors="replace"))[-OUTPUT_CHARS_SHOWN:]
    return Turn(client.name, task.number, took_s, status, answer, missing, shown)
