"""What it costs to run short commands under the shim, beside GNU parallel in the same run."""

from __future__ import annotations

import asyncio
import os
import resource
import shutil
import subprocess
import tempfile
import time

from msgspec import Struct

from headway.agents.shell import Command, ShimClient

COMMANDS = 200
AT_ONCE = 8
ROUNDS = 3


class Cost(Struct, frozen=True):
    """Of a batch of commands, with everything that it took to run them."""

    wall_s: float
    cpu_s: float

    def row(self, name: str) -> str:
        rate = COMMANDS / self.wall_s
        return f"{name:<30}{rate:>10.0f}{self.cpu_s / COMMANDS * 1000:>14.2f}"


def _children_cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


async def _under_shim(folder: str) -> None:
    shim = ShimClient(folder)
    places = asyncio.Semaphore(AT_ONCE)

    async def one(number: int) -> None:
        async with places:
            argv = ("/bin/sh", "-c", "echo $1", "sh", str(number))
            await shim.run(Command(number.to_bytes(16, "big"), 1, argv))

    try:
        await asyncio.gather(*map(one, range(COMMANDS)))
    finally:
        await shim.close()


def shim() -> Cost:
    """Start of the shim, client and syncs included; only the interpreter's own start is not."""
    with tempfile.TemporaryDirectory() as folder:
        began, cpu = time.monotonic(), _children_cpu_s() + time.process_time()
        asyncio.run(_under_shim(folder))
        spent = _children_cpu_s() + time.process_time() - cpu
        return Cost(time.monotonic() - began, spent)


def parallel() -> Cost:
    """GNU parallel, which syncs nothing."""
    began, cpu = time.monotonic(), _children_cpu_s()
    command = ["parallel", f"-j{AT_ONCE}", "echo {}", ":::", *map(str, range(COMMANDS))]
    environment = {**os.environ, "PARALLEL_SHELL": "/bin/sh"}
    subprocess.run(command, stdout=subprocess.DEVNULL, env=environment, check=True)
    return Cost(time.monotonic() - began, _children_cpu_s() - cpu)


def main() -> None:
    print(f"{COMMANDS} commands, {AT_ONCE} at once{'':<7}{'commands/s':>10}{'CPU ms each':>14}")
    for _ in range(ROUNDS):
        print(shim().row("headway's shim, durable"))
        if shutil.which("parallel"):
            print(parallel().row("GNU parallel"))


if __name__ == "__main__":
    main()
