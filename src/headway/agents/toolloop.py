"""Performs tool-loop tasks: the model calls tools until it has a result.

Laws:
- The laws of prompts hold for every call: paid from what was set aside, in doubt at its ceiling.
- A reply is durable before it is acted on. After an interruption the loop says the same again from
  what was kept, pays nothing twice, and repeats no tool of which it cannot know what it did.
- Whatever goes wrong with a tool is something that the model observes, and not the loop's end.
- An attempt has a conversation, sessions and an environment of its own: nothing is in them that its
  prompt, its tools and its own replies did not put there.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from math import ceil, isfinite
from typing import TYPE_CHECKING, Final

from msgspec import Struct, field
from msgspec.structs import replace

from headway.agents.prompt import (
    DETAIL_CHARS,
    MAX_TOKENS,
    PromptCall,
    asked_for,
    complaint,
    fitting,
)
from headway.agents.tools import (
    ConfinedFolder,
    FileTools,
    Given,
    LoopTool,
    ToolError,
    cut,
    shell_tool,
    state_tools,
)
from headway.agents.tools_mcp import McpServer, must_be_known, opened
from headway.agents.tools_models import Ended, LoopModels, Outlay, load
from headway.base.digest import DIGEST_BYTES, digest
from headway.base.values import Fault
from headway.plans.references import Fitting, Misfit
from headway.work import Attempt, AttemptError, Result, charged, with_spent

if TYPE_CHECKING:
    from pydantic_ai.messages import ModelMessage, ModelResponse, ToolCallPart, ToolReturnPart

    from headway.agents.shell import PerformCommand
    from headway.state.folder import AttemptState


ENTRIES_MAX: Final = 250
"""A row is written whole with every entry: with many more a journal would grow by their square."""

TURN_ENTRIES: Final = 3
"""What a turn needs at least: its reply, that its tools begin, and what they gave."""

REPLY: Final = b"r"
BEGUN: Final = b"b"
OBSERVED: Final = b"o"


class LoopMemory:
    """The part of a conversation that survives its attempt: paid replies, and results of tools."""

    def __init__(self, attempt: Attempt, start: bytes, turns: int) -> None:
        """`start` is all that the conversation begins with; `turns` how long it may become."""
        self._attempt = attempt
        self._at = digest(start)
        self._turns_left = turns
        self._before: dict[bytes, list[bytes]] = {}
        for entry in attempt.kept:
            place = entry[: 1 + DIGEST_BYTES]
            self._before.setdefault(place, []).append(entry[len(place) :])
        self._entries = len(attempt.kept)
        self._begin_turn()

    def reply(self) -> bytes | None:
        found = self._before.get(REPLY + self._at)
        return found[0] if found else None

    async def replied(self, data: bytes, *, is_new: bool) -> None:
        """The conversation goes on from this reply, which is durable then."""
        if is_new:
            await self._keep(REPLY, data)
        self._at = digest(self._at + data)
        self._turns_left -= 1
        self._begin_turn()

    def observed(self, use: int) -> str | None:
        return self._texts.get(use)

    def is_in_doubt(self, use: int) -> bool:
        """Whether an interrupted attempt may have done it, and its result was not recorded."""
        return use in self._in_doubt

    async def begin(self, use: int, doubtful: Sequence[int]) -> None:
        """A doubtful use is about to be done; `doubtful` are all such uses of this turn."""
        if use not in self._begun:
            uses = [use] if self._has_room() else [one for one in doubtful if one >= use]
            self._begun.update(uses)
            await self._keep(BEGUN, json.dumps(uses).encode())

    async def observe(self, use: int, text: str, *, is_doubtful: bool = False) -> None:
        """What a use gave; of a doubtful one durable at once, if there is room."""
        self._new[use] = text
        if is_doubtful and self._has_room():
            await self._flush()

    async def observed_all(self, texts: Sequence[str]) -> None:
        await self._flush()
        self.follow("\0".join(texts))

    def follow(self, text: str) -> None:
        """The conversation goes on with a text that is not kept: earlier entries determine it."""
        self._at = digest(self._at + text.encode("utf-8", "surrogatepass"))
        self._begin_turn()

    def _begin_turn(self) -> None:
        begun = self._before.get(BEGUN + self._at, [])
        self._begun: set[int] = set()
        self._in_doubt = {use for uses in begun for use in json.loads(uses)}
        self._new: dict[int, str] = {}
        self._texts: dict[int, str] = {}
        for found in self._before.get(OBSERVED + self._at, []):
            self._texts |= {int(use): str(text) for use, text in json.loads(found).items()}
        self._in_doubt -= self._texts.keys()

    def _has_room(self) -> bool:
        """Whether one more entry leaves enough to end this turn, and for all that may follow."""
        return self._entries + TURN_ENTRIES <= ENTRIES_MAX - TURN_ENTRIES * self._turns_left

    async def _flush(self) -> None:
        new, self._new = self._new, {}
        if new:
            await self._keep(OBSERVED, json.dumps(new).encode())

    async def _keep(self, kind: bytes, data: bytes) -> None:
        if self._entries >= ENTRIES_MAX:
            detail = f"more than {ENTRIES_MAX} replies and observations would have to be kept"
            raise AttemptError(Fault("unfit", detail=detail))
        self._entries += 1
        await self._attempt.keep(kind + self._at + data)


TURNS_MAX: Final = 50
"""Replies of one attempt: a task that takes more is several tasks."""

USES_MAX: Final = 64
"""Tools that one reply may ask for."""

INSTRUCTIONS: Final = (
    "You work on one task with the tools that you are given, and no question will be answered. "
    "Paths are relative to the folder of the task. "
    "When the task is done, answer with its result and with nothing else."
)

IN_DOUBT: Final = (
    "[in doubt: headway was interrupted while this was being done. It may have been done, in part "
    "or entirely, and was not done again. Look at what is there before you repeat it.]"
)
NOT_DONE: Final = "[not done: your reply was cut off at max_tokens. Ask for less at once.]"
TOO_MANY: Final = f"[not done: a reply may ask for {USES_MAX} tools. Ask for the rest again.]"


class LoopCall(PromptCall, frozen=True, kw_only=True):
    tools: tuple[str, ...]
    """As the plan has them: `shell`, `files`, `mcp:NAME`."""
    folder: str
    """Where commands run and paths begin: the plan's."""
    timeout_s: float | None = None
    """Of all of it. The driver must not end it itself: what was paid would not be known."""
    turns: int = TURNS_MAX
    writes: tuple[str, ...] | None = None
    """Paths that the task declares to write, filled in; None is everything in the folder."""
    state_writes: tuple[str, ...] | None = None
    """Keys and patterns of the shared state that it declares to write; None is everything."""
    is_foreign: bool = False
    """Whether an agent wrote the plan."""


class LoopDependencies(Struct, frozen=True):
    """What a loop works with: `models` and `servers` are the run's, the rest is its own."""

    models: LoopModels
    """`Models(prompt_agent)`, one for a run; to be closed before its prompt agent."""
    perform: PerformCommand
    servers: Mapping[str, McpServer] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    """Variables of commands, beside those of headway's process: `filling.environment(run)`."""
    share: AttemptState | None = None
    """Its view of the shared state, if it has one."""


async def perform_loop(call: LoopCall, attempt: Attempt, means: LoopDependencies) -> Result:
    """One attempt. Raises AttemptError, WindowEmptyError or OverBudgetError; nothing else."""
    outlay = Outlay(attempt)
    ended: Exception | None = None
    result = Result(b"")
    try:
        async with attempt.clock.limit(call.timeout_s):
            await load()
            # Sessions wrap what is raised within them: it is raised when they have ended.
            async with AsyncExitStack() as stack:
                try:
                    tools = await _toolbox(call, attempt, means, stack)
                    result = await _Loop(call, attempt, means, tools, outlay).performed()
                except Ended as error:
                    ended = error
                except Exception as bug:
                    # The boundary: what was paid is known here, and a later handler
                    # would not know.
                    detail = f"a bug in headway: {type(bug).__name__}: {bug}"[:DETAIL_CHARS]
                    ended = AttemptError(Fault("request", detail=detail))
    except TimeoutError:
        raise _late(call, outlay) from None
    if ended is not None:
        raise with_spent(ended, outlay.spent) from ended
    return result


async def _toolbox(
    call: LoopCall, attempt: Attempt, means: LoopDependencies, stack: AsyncExitStack
) -> list[LoopTool]:
    servers = must_be_known(call.tools, means.servers)
    tools: list[LoopTool] = []
    if "shell" in call.tools:
        tools.append(shell_tool(attempt, means.perform, call.folder, means.environment))
    if "files" in call.tools:
        tools += FileTools(ConfinedFolder(call.folder, call.writes, call.is_foreign)).tools()
        if means.share is not None:
            tools += state_tools(means.share, call.state_writes)
    for server in servers:
        tools += await opened(server, call.folder, stack)
    return tools


class _Loop:
    def __init__(
        self,
        call: LoopCall,
        attempt: Attempt,
        means: LoopDependencies,
        tools: Sequence[LoopTool],
        outlay: Outlay,
    ) -> None:
        self._call = call
        self._models = means.models
        self._outlay = outlay
        self._tools = {tool.name: tool for tool in tools}
        start = [call.prompt, call.model, list(call.tools), call.schema and call.schema.text]
        self._memory = LoopMemory(attempt, json.dumps(start).encode(), call.turns)
        self._messages: list[ModelMessage] = []

    async def performed(self) -> Result:
        from pydantic_ai.messages import ModelRequest, SystemPromptPart, UserPromptPart

        call = self._call
        asked = asked_for(call.prompt, call.schema)
        self._messages.append(
            ModelRequest(parts=[SystemPromptPart(INSTRUCTIONS), UserPromptPart(asked)])
        )
        repairs = max(0, call.repairs) if call.schema or call.verify else 0
        text = ""
        for turn in range(1, call.turns + 1):
            response = await self._reply()
            texts = [part.content for part in response.parts if part.part_kind == "text"]
            text = "".join(texts).strip()
            uses = [part for part in response.parts if part.part_kind == "tool-call"]
            if uses and turn < call.turns:
                self._messages.append(ModelRequest(parts=await self._observed(response, uses)))
                continue
            if uses:
                break
            fit = await self._examined(response, text)
            if isinstance(fit, Fitting):
                body = fit.text.encode("utf-8", "replace")
                return replace(self._outlay.spent, body=body, value=fit.value)
            if not repairs:
                raise self._unfit(fit.reason, text)
            repairs -= 1
            words = complaint(fit.reason)
            self._memory.follow(words)
            self._messages.append(ModelRequest(parts=[UserPromptPart(words)]))
        raise self._unfit(f"it took all of {call.turns} turns and came to no answer", text)

    async def _reply(self) -> ModelResponse:
        """What the model says next: kept, or paid for now and kept then."""
        from pydantic_ai.messages import ModelMessagesTypeAdapter

        data = self._memory.reply()
        found = None if data is None else _response(data)
        is_new = found is None
        if data is None or found is None:
            call, tools = self._call, list(self._tools.values())
            longest = call.max_tokens or MAX_TOKENS
            found = _whole(
                await self._models.reply(call.model, self._messages, tools, longest, self._outlay)
            )
            data = ModelMessagesTypeAdapter.dump_json([found], exclude_none=True)
        await self._memory.replied(data, is_new=is_new)
        self._messages.append(found)
        return found

    async def _observed(
        self, response: ModelResponse, uses: Sequence[ToolCallPart]
    ) -> list[ToolReturnPart]:
        from pydantic_ai.messages import ToolReturnPart

        memory = self._memory
        found = [self._tools.get(use.tool_name) for use in uses]
        doubtful = [n for n, tool in enumerate(found) if tool is not None and tool.is_doubtful]
        is_cut = response.finish_reason == "length"
        texts: list[str] = []
        for number, use in enumerate(uses):
            tool, text = found[number], memory.observed(number)
            if text is None or (tool is not None and tool.is_live):
                if is_cut or number >= USES_MAX:
                    text = NOT_DONE if is_cut else TOO_MANY
                elif memory.is_in_doubt(number):
                    text = IN_DOUBT
                else:
                    if number in doubtful:
                        await memory.begin(number, doubtful)
                    text = await self._used(tool, use)
                if tool is None or not tool.is_live:
                    await memory.observe(number, text, is_doubtful=number in doubtful)
            texts.append(text)
        await memory.observed_all(texts)
        return [
            ToolReturnPart(use.tool_name, text, use.tool_call_id)
            for use, text in zip(uses, texts, strict=True)
        ]

    async def _used(self, tool: LoopTool | None, use: ToolCallPart) -> str:
        try:
            if tool is None:
                known = ", ".join(sorted(self._tools))
                raise ToolError(f"there is no tool `{use.tool_name}`; there are: {known}")
            text = await tool.use(_given(use))
        except ToolError as error:
            text = f"error: {error}"
        return cut(text.encode("utf-8", "replace").decode())

    async def _examined(self, response: ModelResponse, text: str) -> Fitting | Misfit:
        call, reason = self._call, response.finish_reason
        if reason == "content_filter" or not (text or reason == "length"):
            raise self._unfit(f"the model gave no answer ({reason})", text)
        cut_at = (call.max_tokens or MAX_TOKENS) if reason == "length" else None
        return await fitting(text, call.schema, call.verify, cut_at)

    def _unfit(self, why: str, text: str) -> AttemptError:
        answer = Result(text.encode("utf-8", "replace"))
        return AttemptError(Fault("unfit", detail=why[:DETAIL_CHARS]), answer)


def _response(data: bytes) -> ModelResponse | None:
    from pydantic_ai.messages import ModelMessagesTypeAdapter

    try:
        (found,) = ModelMessagesTypeAdapter.validate_json(data)
    except ValueError:
        return None
    return found if found.kind == "response" else None


def _whole(response: ModelResponse) -> ModelResponse:
    """A reply without half characters and numbers that JSON does not have."""
    from pydantic_ai.messages import ModelMessagesTypeAdapter

    plain = ModelMessagesTypeAdapter.dump_python([response])
    whole = _made_whole(plain)
    if whole == plain:
        return response
    (found,) = ModelMessagesTypeAdapter.validate_python(whole)
    return found if found.kind == "response" else response


def _made_whole(value: object) -> object:
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    if isinstance(value, dict):
        return {_made_whole(key): _made_whole(one) for key, one in value.items()}
    if isinstance(value, float) and not isfinite(value):
        return None
    return [_made_whole(one) for one in value] if isinstance(value, list) else value


def _given(use: ToolCallPart) -> Given:
    """What a model hands to a tool. Half of a character and what is no number are no JSON."""
    given: object = use.args
    try:
        if isinstance(given, str):
            given = json.loads(given or "{}")
        json.dumps(given, ensure_ascii=False, allow_nan=False).encode()
    except (ValueError, RecursionError) as error:
        raise ToolError(f"what it is given is not JSON: {error}") from None
    if given is None:
        return {}
    if not isinstance(given, dict):
        raise ToolError("what it is given has to be a JSON object")
    return given


def _late(call: LoopCall, outlay: Outlay) -> AttemptError:
    """The time is over; a call that is in flight may have been answered, and costs the most."""
    spent, ceiling = outlay.spent, outlay.lost()
    if ceiling is not None:
        lost = Result(
            b"", spend_microusd=ceiling.microusd, calls=1, extra_tokens=ceil(ceiling.tokens),
            unpriced=ceiling.unpriced,
        )  # fmt: skip
        spent = charged(spent, lost)
    fault = Fault("timeout", detail=f"it took more than {call.timeout_s} s")
    return AttemptError(fault, spent, is_in_doubt=ceiling is not None)
