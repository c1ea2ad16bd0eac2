"""Functions that share a state, for other processes, where tests cannot follow them."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time
from pathlib import Path

import headway


def count_up(item: int, ctx: headway.Context) -> object:
    seen = ctx.get("count", 0)
    assert isinstance(seen, int)
    if item % 7 == 0:
        time.sleep(0.001)
    ctx.put("count", seen + 1)
    return seen


async def count_up_async(item: int, ctx: headway.Context) -> object:
    seen = ctx.get("count", 0)
    assert isinstance(seen, int)
    if item % 7 == 0:
        await asyncio.sleep(0.001)
    ctx.put("count", seen + 1)
    return seen


def transfer(item: tuple[str, str, int], ctx: headway.Context) -> object:
    """Reads both, writes both: the sum stays, whoever runs beside it."""
    source, target, amount = item
    left, right = ctx.get(f"accounts/{source}", 100), ctx.get(f"accounts/{target}", 100)
    assert isinstance(left, int)
    assert isinstance(right, int)
    if left >= amount:
        ctx.put(f"accounts/{source}", left - amount)
        ctx.put(f"accounts/{target}", right + amount)
    whole = ctx.scan("accounts/*")
    ctx.add("log", [source, target, sum(v for v in whole.values() if isinstance(v, int))])
    ctx.add("moves", 1)
    return ctx.random.randrange(1000)


def own_pid(ctx: headway.Context) -> int:
    ctx.put("pid", os.getpid())
    return os.getpid()


def put_and_die(marker: str, ctx: headway.Context) -> str:
    """The first time its process is ended in the middle; the second time it is not."""
    ctx.put("half", "done")
    ctx.add("moves", 1)
    if not Path(marker).exists():
        Path(marker).touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return "lived"


def put_and_hang(item: int, ctx: headway.Context) -> None:
    ctx.put(f"hung/{item}", os.getpid())
    ctx.add("moves", 1)
    while True:
        time.sleep(0.01)
        ctx.get("anything")


def threads_inside(item: int, ctx: headway.Context) -> object:
    """Threads of the function's own use its context, and one lives on."""

    def work(number: int) -> None:
        for turn in range(10):
            ctx.put(f"deep/{item}/{number}/{turn}", turn)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return len(ctx.scan(f"deep/{item}/**"))


def wrong(ctx: headway.Context) -> None:
    ctx.add("plain", 1)
