"""Tools of MCP servers that the configuration names: `[mcp.NAME]`.

Laws:
- Every attempt has sessions of its own, which end with it; a server that is a program ends too.
- A server is given the environment that its table says, and nothing that opens an account.
"""

from __future__ import annotations

import asyncio
import logging
import re
import shlex
import tempfile
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from importlib import import_module
from typing import TYPE_CHECKING, Final, TextIO, cast

from msgspec import Struct

from headway.agents.tools import Given, LoopTool, ToolError, missing
from headway.base.digest import digest
from headway.base.values import Fault
from headway.errors import UsageError, did_you_mean
from headway.work import AttemptError

if TYPE_CHECKING:
    from mcp import Client
    from mcp_types import CallToolResult

CALL_S_MAX: Final = 300.0
START_S_MAX: Final = 30.0
"""How long a server may take for a call, and to begin."""

PAGES_MAX: Final = 20

NAME_CHARS_MAX: Final = 64

WORDS_CHARS: Final = 500

_SILENT: Final = logging.NullHandler()


class McpServer(Struct, frozen=True):
    name: str
    command: tuple[str, ...] = ()
    url: str = ""
    environment: tuple[tuple[str, str], ...] = ()

    def __str__(self) -> str:
        return self.url or shlex.join(self.command)


async def opened(server: McpServer, folder: str, stack: AsyncExitStack) -> list[LoopTool]:
    """A session with a server: its tools. The stack ends it. Raises AttemptError."""
    try:
        await asyncio.to_thread(import_module, "mcp.client.stdio")
        from mcp import Client, StdioServerParameters
        from mcp.client.stdio import stdio_client
    except ImportError:
        raise AttemptError(Fault("request", detail=missing("mcp").render())) from None
    # What a server writes beside the protocol is its own affair: without a handler, every such
    # line would be a traceback in the user's terminal.
    logging.getLogger("mcp").addHandler(_SILENT)
    errors = stack.enter_context(_scratch())
    if server.command:
        program, *words = server.command
        how = StdioServerParameters(
            command=program, args=words, env=dict(server.environment), cwd=folder
        )
        client = Client(stdio_client(how, errlog=errors), read_timeout_seconds=START_S_MAX)
    else:
        client = Client(server.url, read_timeout_seconds=START_S_MAX)
    try:
        await stack.enter_async_context(client)
        return await _tools(server, client)
    except Exception as error:
        # The boundary: a server is a foreign program, and may fail in any way.
        why = f"the MCP server `{server.name}` does not answer: {_in_words(error)}{_last(errors)}"
        raise AttemptError(Fault("command", detail=why[:WORDS_CHARS])) from error


async def _tools(server: McpServer, client: Client) -> list[LoopTool]:
    tools: list[LoopTool] = []
    cursor: str | None = None
    for _ in range(PAGES_MAX):
        page = await client.list_tools(cursor=cursor)
        for one in page.tools:
            tools.append(
                LoopTool(
                    tool_name(server.name, one.name),
                    one.description or one.name,
                    one.input_schema,
                    _using(client, one.name),
                    is_doubtful=True,
                )
            )
        cursor = page.next_cursor
        if not cursor:
            break
    # In one order, whatever that of the server is: equal requests are read from prompt caches.
    return sorted(tools, key=lambda tool: tool.name)


def _using(client: Client, name: str) -> Callable[[Given], Awaitable[str]]:
    async def use(given: Given) -> str:
        try:
            found = await client.call_tool(name, dict(given), read_timeout_seconds=CALL_S_MAX)
        except Exception as error:
            # The boundary again: what the server cannot do is for the model to know.
            raise ToolError(_in_words(error)) from error
        return _text(found)

    return use


def tool_name(server: str, tool: str) -> str:
    """A name that no other tool has, in the letters that providers take."""
    whole = f"{server}__{tool}"
    name = re.sub(r"[^A-Za-z0-9_-]", "_", whole)
    if name == whole and len(name) <= NAME_CHARS_MAX:
        return name
    return f"{name[: NAME_CHARS_MAX - 9]}_{digest(whole.encode()).hex()[:8]}"


def _text(found: CallToolResult) -> str:
    parts = [
        one.text if one.type == "text" else f"[{one.type}: it cannot be shown]"
        for one in found.content
    ]
    words = "\n".join(parts) or "[it gave nothing]"
    if found.is_error:
        raise ToolError(words)
    return words


def _in_words(error: BaseException) -> str:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return f"{type(error).__name__}: {error}"[:WORDS_CHARS]


def _scratch() -> TextIO:
    return cast(TextIO, tempfile.TemporaryFile("w+", errors="replace"))


def _last(errors: TextIO) -> str:
    errors.seek(0)
    text = errors.read(100_000).strip()
    return f"; its stderr: {text[-WORDS_CHARS:]}" if text else ""


def must_be_known(tools: tuple[str, ...], servers: Mapping[str, McpServer]) -> list[McpServer]:
    """The servers that a task's tools name. Raises AttemptError."""
    wanted = [tool.removeprefix("mcp:") for tool in tools if tool.startswith("mcp:")]
    for name in wanted:
        if name not in servers:
            hint = (
                did_you_mean(name, servers) if servers
                else f'add to your configuration: [mcp.{name}] and command = ["PROGRAM"]'
            )  # fmt: skip
            error = UsageError(f"there is no MCP server `{name}`", hint=hint)
            raise AttemptError(Fault("request", detail=error.render()))
    return [servers[name] for name in wanted]
