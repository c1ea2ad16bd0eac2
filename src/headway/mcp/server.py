"""The MCP server on stdin and stdout; the only importer of `mcp`.

Laws:
- Nothing but the protocol is on stdout.
- A wrong argument is one tool error with what to do instead; the server goes on.
- Calls run on threads: a slow one keeps no other waiting.
"""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from collections.abc import Mapping
from typing import Any, Final

import mcp_types as types
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server

from headway import __version__
from headway.errors import HeadwayError, InternalError, UsageError, did_you_mean
from headway.mcp.service import McpSettings, Service
from headway.mcp.tools import INSTRUCTIONS, TOOLS, McpTool

NAME: Final = "headway"


def serve(settings: McpSettings) -> None:
    """Serve until the client closes stdin."""
    # A thread waits for a line of stdin and cannot be woken: a signal ends this process as it is,
    # and not the runs, which are processes of their own.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL)
    asyncio.run(_serve(server_of(Service(settings))))


def server_of(service: Service) -> Server[dict[str, Any]]:
    """The server, not yet connected to anything."""

    async def list_tools(_context: object, _asked: object) -> types.ListToolsResult:
        return types.ListToolsResult(tools=[_described(tool) for tool in TOOLS])

    async def call_tool(
        _context: object, asked: types.CallToolRequestParams
    ) -> types.CallToolResult:  # fmt: skip
        return await asyncio.to_thread(answer, service, asked.name, asked.arguments or {})

    return Server(
        NAME, version=__version__, title="Headway", instructions=INSTRUCTIONS,
        on_list_tools=list_tools, on_call_tool=call_tool,
    )  # fmt: skip


def answer(service: Service, name: str, given: Mapping[str, object]) -> types.CallToolResult:
    """The result of a tool, or its error."""
    try:
        result = _tool(name).call(service, given)
    except HeadwayError as error:
        return _failed(error)
    except Exception as error:
        # The boundary: whatever else comes up is a bug of ours, costs this call and no other.
        print(f"{name}: {type(error).__name__}: {error}", file=sys.stderr, flush=True)
        return _failed(InternalError(f"{name} failed: {type(error).__name__}"))
    # Twice: as a value, and as text for clients that know no values.
    text = _sendable(json.dumps(result, ensure_ascii=False))
    content = types.TextContent(type="text", text=text)
    return types.CallToolResult(content=[content], structured_content=json.loads(text))


async def _serve(server: Server[dict[str, Any]]) -> None:
    async with stdio_server() as (from_client, to_client):
        await server.run(from_client, to_client, server.create_initialization_options())


def _tool(name: str) -> McpTool:
    known = {tool.name: tool for tool in TOOLS}
    if name not in known:
        raise UsageError(f"there is no tool `{name[:40]}`", hint=did_you_mean(name, known))
    return known[name]


def _described(tool: McpTool) -> types.Tool:
    return types.Tool(
        name=tool.name,
        title=tool.title,
        description=tool.about,
        input_schema=tool.input_schema(),
        output_schema=tool.output_schema(),
        annotations=types.ToolAnnotations(
            title=tool.title,
            read_only_hint=tool.is_read_only,
            destructive_hint=tool.is_destructive,
            idempotent_hint=tool.is_idempotent,
            open_world_hint=tool.is_open,
        ),
    )


def _failed(error: HeadwayError) -> types.CallToolResult:
    content = types.TextContent(type="text", text=_sendable(error.render()))
    return types.CallToolResult(content=[content], is_error=True)


def _sendable(text: str) -> str:
    """Without what UTF-8 cannot hold, like bytes in the name of a file: it would end the server."""
    return text.encode(errors="replace").decode()
