"""LangGraph as a subject of kills: one node for each task by `Send`, checkpoints in SQLite.

python -m bench.chaos_langgraph run FOLDER WIDTH COMMANDS
python -m bench.chaos_langgraph read FOLDER
"""

from __future__ import annotations

import asyncio
import json
import operator
import sys
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, TypedDict

CONFIG: dict[str, Any] = {"configurable": {"thread_id": "chaos"}}


class Results(TypedDict):
    """What the graph keeps."""

    commands: dict[str, list[str]]
    results: Annotated[dict[str, str], operator.or_]


async def perform(state: dict[str, Any]) -> dict[str, Any]:
    """A node: run the command of one task."""
    process = await asyncio.create_subprocess_exec(
        *state["command"], stdout=asyncio.subprocess.PIPE
    )
    said, _ = await process.communicate()
    if process.returncode != 0:
        raise RuntimeError(f"exit {process.returncode}")
    return {"results": {state["name"]: said.decode().strip()}}


def spread(state: Results) -> list[Any]:
    """To a node for each task."""
    send = import_module("langgraph.types").Send
    return [send("perform", {"name": name, "command": command})
            for name, command in state["commands"].items()]  # fmt: skip


def saver(folder: Path) -> Any:
    """The checkpointer of the folder."""
    kind = import_module("langgraph.checkpoint.sqlite.aio").AsyncSqliteSaver
    return kind.from_conn_string(str(folder / "checkpoints.db"))


async def run(folder: Path, width: int, commands: dict[str, list[str]]) -> None:
    """Begin, or go on where the last checkpoint is."""
    graphs, types = import_module("langgraph.graph"), import_module("langgraph.types")
    builder = graphs.StateGraph(Results)
    builder.add_node("perform", perform, retry_policy=types.RetryPolicy(
        max_attempts=3, initial_interval=0.01, retry_on=RuntimeError))  # fmt: skip
    builder.add_conditional_edges(graphs.START, spread, ["perform"])
    builder.add_edge("perform", graphs.END)
    async with saver(folder) as checkpointer:
        graph = builder.compile(checkpointer=checkpointer)
        is_begun = await checkpointer.aget_tuple(CONFIG) is not None
        given = None if is_begun else {"commands": commands, "results": {}}
        await graph.ainvoke(given, CONFIG | {"max_concurrency": width}, durability="sync")


async def read(folder: Path) -> dict[str, str]:
    """The results that the checkpoints hold, also of a graph that is not complete."""
    async with saver(folder) as checkpointer:
        found = await checkpointer.aget_tuple(CONFIG)
    if found is None:
        return {}
    results = dict(found.checkpoint["channel_values"].get("results", {}))
    for _, channel, value in found.pending_writes or ():
        if channel == "results":
            results |= value
    return results


def main(verb: str, folder: str, *more: str) -> None:
    """The command."""
    if verb == "read":
        print(json.dumps(asyncio.run(read(Path(folder)))))
    else:
        asyncio.run(run(Path(folder), int(more[0]), json.loads(more[1])))


if __name__ == "__main__":
    main(*sys.argv[1:])
