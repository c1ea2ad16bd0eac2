"""The live page: the same page over HTTP, on this machine, with a token.

Laws:
- Without the token in the path nothing is answered but "not found", for reading too: other users
  of the machine can reach its loopback.
- A request by another name than this machine's, or from another page, is refused.
- It reads, and controls only if asked to; then only what `stop`, `pause` and `resume` do.
- A run is folded once for all readers, and only while one is connected. A reader that is too slow
  is disconnected, and begins anew.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from hmac import compare_digest
from secrets import token_urlsafe
from typing import Any, Final, TypeVar

from aiohttp import web
from msgspec import Struct, field

from headway.base.codec import as_dict
from headway.base.folders import folders, prepare
from headway.base.values import DAY_S
from headway.client.overview import overview
from headway.errors import BadValueError, HeadwayError
from headway.journal.folder import find_run
from headway.journal.reader import JournalReader
from headway.report.page.data import TaskRows, head, limits_since, report_json, run_data
from headway.report.page.details import TaskTexts
from headway.report.page.document import as_bytes, document, policy, without_content
from headway.report.text.accounts import account_tables, budget_lines
from headway.report.text.report import report_of
from headway.report.text.run_view import state_folder
from headway.report.text.runs import count_words, last_runs
from headway.report.text.words import duration
from headway.run.launch import SIGNALS, tell

T = TypeVar("T")

TICK_S: Final = 0.5
"""Between looks at a journal: an event is on the page after a second at most."""
REST: Final = 8.0
"""After a look, nothing is done for this many times as long as it took: at most a ninth of a core
for each run that is looked at."""
REPORT_REST: Final = 30.0
"""The same for the report of a run, which reads all of it anew."""
LANES_S: Final = 2.0
QUEUE_MAX: Final = 16
"""Messages that a reader may be behind."""
TEXT_MAX: Final = 200_000
"""Characters of one text of the task that is looked at."""
BODY_MAX: Final = 4_096
"""Of a request: a run and a word."""
NAMES: Final = ("127.0.0.1", "localhost", "[::1]")


class Feed(Struct):
    """One run, as it is followed for all who look at it."""

    run: str
    readers: set[asyncio.Queue[bytes | None]] = field(default_factory=set)
    task: asyncio.Task[None] | None = None
    whole: bytes = b""


def message(kind: str, shown: object) -> bytes:
    """A server-sent event; JSON has no line breaks."""
    return f"event: {kind}\ndata: ".encode() + as_bytes(shown) + b"\n\n"


class PageServer:
    def __init__(self, *, controls: bool = False, has_content: bool = True, port: int = 0) -> None:
        self.controls, self.has_content, self.port = controls, has_content, port
        self.token: Final = token_urlsafe(32)
        self.feeds: dict[str, Feed] = {}

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/{self.token}/"

    @asynccontextmanager
    async def served(self) -> AsyncIterator[PageServer]:
        """Listens on loopback, and nowhere else, for as long as the block lasts."""
        application = web.Application(middlewares=[self._guard], client_max_size=BODY_MAX)
        for name in ("home", "data", "events", "task", "metrics"):
            application.router.add_get(f"/{{token}}/{name}", getattr(self, f"_{name}"))
        application.router.add_get("/{token}/", self._page)
        application.router.add_post("/{token}/control", self._control)
        # A reader that leaves ends its handler: else it would wait for news for ever.
        runner = web.AppRunner(
            application, access_log=None, shutdown_timeout=1.0, handler_cancellation=True
        )
        await runner.setup()
        try:
            site = web.TCPSite(runner, "127.0.0.1", self.port)
            try:
                await site.start()
            except OSError as fault:
                hint = "another --port, or none: any that is free"
                raise BadValueError(
                    f"port {self.port} cannot be used: {fault.strerror}", hint=hint
                ) from None
            self.port = runner.addresses[0][1]
            yield self
        finally:
            for feed in self.feeds.values():
                if feed.task is not None:
                    feed.task.cancel()
            await runner.cleanup()

    @web.middleware
    async def _guard(
        self, request: web.Request, handler: Callable[[web.Request], Any]
    ) -> web.StreamResponse:
        """Lets in who has the token and comes from this page, or from no page at all."""
        host = request.headers.get("Host", "")
        names = [f"{name}:{self.port}" for name in NAMES]
        origin = request.headers.get("Origin")
        token = request.path.split("/")[1]
        site = request.headers.get("Sec-Fetch-Site", "none")
        is_allowed = (
            host in names
            and (origin is None or origin in [f"http://{name}" for name in names])
            and site in ("none", "same-origin")
            and len(request.headers.getall("Host", [])) == 1
        )
        if not is_allowed or not compare_digest(
            token.encode("utf-8", "surrogatepass"), self.token.encode()
        ):
            return web.Response(status=404, text="not found\n")
        answer: web.StreamResponse
        try:
            answer = await handler(request)
        except HeadwayError as error:
            answer = web.json_response({"words": error.message}, status=400)
        except ConnectionResetError:
            answer = web.Response()  # The reader has left: it is not sent.
        except web.HTTPException as error:
            answer = web.Response(status=error.status, text=f"{error.reason}\n")
        if not answer.prepared:
            answer.headers.update(SAFE)
        return answer

    async def _page(self, _: web.Request) -> web.Response:
        given = {"live": True, "control": self.controls, "hides_content": not self.has_content}
        return web.Response(
            body=document(given, is_live=True), content_type="text/html", charset="utf-8",
            headers={"Content-Security-Policy": f"{policy(is_live=True)}; frame-ancestors 'none'"},
        )  # fmt: skip

    async def _home(self, request: web.Request) -> web.StreamResponse:
        """All runs and accounts of the user, every two seconds."""
        answer = await _stream(request)
        last = b""
        while True:
            shown = message("home", await asyncio.to_thread(self._home_json))
            await answer.write(shown if shown != last else b": same\n\n")
            last = shown
            await asyncio.sleep(LANES_S)

    def _home_json(self) -> dict[str, Any]:
        runs: list[dict[str, Any]] = []
        for run, age_s, view in last_runs():
            shown: dict[str, Any] = {"run": run, "age": duration(age_s)}
            if isinstance(view, HeadwayError):
                shown |= {"state": "unreadable", "reason": view.message}
            else:
                shown |= {"name": view.header.name, "state": view.verdict.state,
                          "count_words": count_words(view)}  # fmt: skip
            runs.append(shown)
        accounts: list[Any] = []
        lines: list[str] = []
        source = ""
        try:
            seen = overview(os.environ)
            accounts = [as_dict(one) for one in account_tables(seen)]
            lines, source = list(budget_lines(seen, time.time() % DAY_S / DAY_S)), seen.source
        except HeadwayError as error:
            source = error.message
        return {"runs": runs, "accounts": accounts, "lines": lines, "source": source}

    async def _data(self, request: web.Request) -> web.Response:
        shown = await asyncio.to_thread(self._whole, request.query.get("run", ""))
        return web.Response(body=as_bytes(shown), content_type="application/json")

    def _whole(self, run: str) -> dict[str, Any]:
        with JournalReader(find_run(state_folder(), run).folder) as reader:
            shown, _, _ = run_data(reader)
        if not self.has_content:
            without_content(shown)
        return shown

    async def _task(self, request: web.Request) -> web.Response:
        """The texts of one task."""
        if not self.has_content:
            raise web.HTTPForbidden(reason="this page shows no contents")
        number = request.query.get("task", "")
        if not number.isdecimal():
            raise web.HTTPBadRequest(reason="no task")
        shown = await asyncio.to_thread(_texts, request.query.get("run", ""), int(number))
        return web.Response(body=as_bytes(shown), content_type="application/json")

    async def _control(self, request: web.Request) -> web.Response:
        """Tell a run's process a word, or start one that resumes it."""
        if not self.controls:
            raise web.HTTPForbidden(reason="this page only reads: headway ui --control")
        if request.content_type != "application/json" or "Origin" not in request.headers:
            raise web.HTTPForbidden(reason="only this page may ask for this")
        try:
            asked = await request.json()
            run, word = str(asked["run"]), str(asked["word"])
        except (ValueError, KeyError, TypeError):
            raise web.HTTPBadRequest(reason="no run, or no word") from None
        place = find_run(state_folder(), run)
        with JournalReader(place.folder) as reader:
            if word == "resume":
                words = _resume(place.id, reader.header.folder)
            elif word in SIGNALS:
                _, _, words = tell(reader, place.id, word)
            else:
                raise web.HTTPBadRequest(reason="no such word")
        return web.json_response({"words": words})

    async def _metrics(self, _: web.Request) -> web.Response:
        """Prometheus text: the newest runs."""
        text = await asyncio.to_thread(metrics_text)
        return web.Response(text=text, content_type="text/plain")

    # Runs that go on.

    async def _events(self, request: web.Request) -> web.StreamResponse:
        run = find_run(state_folder(), request.query.get("run", "")).id
        answer = await _stream(request)
        queue: asyncio.Queue[bytes | None] = asyncio.Queue(QUEUE_MAX)
        feed = self.feeds.get(run)
        if feed is None:
            feed = self.feeds[run] = Feed(run)
            feed.task = asyncio.create_task(self._follow(feed))
        feed.readers.add(queue)
        if feed.whole:
            # It has begun: all of it, as it is now, and from then on what changes.
            await answer.write(message("whole", await asyncio.to_thread(self._whole, run)))
        try:
            while (shown := await queue.get()) is not None:
                await answer.write(shown)
        finally:
            feed.readers.discard(queue)
            if not feed.readers and self.feeds.get(run) is feed:
                del self.feeds[run]
                if feed.task is not None:
                    feed.task.cancel()
        return answer

    async def _follow(self, feed: Feed) -> None:
        try:
            with JournalReader(find_run(state_folder(), feed.run).folder) as reader:
                follower = await _whole_call(Follower, reader, self.has_content)
                feed.whole = b"begun"
                _hand(feed, message("whole", follower.first))
                follower.first = {}
                while True:
                    began_s = time.process_time()
                    more = await _whole_call(follower.more)
                    if more:
                        _hand(feed, message("more", more))
                    took_s = time.process_time() - began_s
                    await asyncio.sleep(max(TICK_S, REST * took_s))
        except HeadwayError as error:
            _hand(feed, message("gone", error.message))
        finally:
            for queue in feed.readers:
                with suppress(asyncio.QueueFull):
                    queue.put_nowait(None)


async def _whole_call(function: Callable[..., T], *arguments: Any) -> T:
    """Call a function in a thread. When it is cancelled, it ends first: the journal that it reads
    is closed afterwards."""
    work = asyncio.ensure_future(asyncio.to_thread(function, *arguments))
    try:
        return await asyncio.shield(work)
    except asyncio.CancelledError:
        while not work.done():
            with suppress(asyncio.CancelledError):
                await asyncio.wait([work])
        if not work.cancelled():
            work.exception()
        raise


SAFE: Final = {
    "Cache-Control": "no-store", "Referrer-Policy": "no-referrer", "X-Frame-Options": "DENY",
    "X-Content-Type-Options": "nosniff", "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
}  # fmt: skip


async def _stream(request: web.Request) -> web.StreamResponse:
    answer = web.StreamResponse(headers={"Content-Type": "text/event-stream", **SAFE})
    await answer.prepare(request)
    return answer


def _hand(feed: Feed, shown: bytes) -> None:
    """To every reader; one that is behind is let go: its browser comes back."""
    for queue in tuple(feed.readers):
        if queue.full():
            feed.readers.discard(queue)
            queue.get_nowait()
            queue.put_nowait(None)
        else:
            queue.put_nowait(shown)


class Follower:
    """Reads on in a run, and says what has changed."""

    def __init__(self, reader: JournalReader, has_content: bool) -> None:
        self.reader, self.has_content = reader, has_content
        self.first, self.report, rows = run_data(reader)
        if not has_content:
            without_content(self.first)
        self.view = type(rows.run)(reader, is_whole=True)
        self.rows = TaskRows(self.view)
        # Places of tasks and of what they waited for are those of the first look.
        self.rows.changed()
        self.rows.whats, self.rows.what = rows.whats, rows.what
        self._limits = {key: len(points) for key, points in self.view.history.limits.items()}
        self._refused = len(self.first["refused"])
        self._lanes: Any = ()
        self._lanes_s = self._report_s = 0.0
        self._is_over = not self.view.is_live

    def more(self) -> dict[str, Any]:
        """What has changed since it was last asked; nothing, if nothing has."""
        view, now_s = self.view, time.monotonic()
        has_changed = self.reader.has_changed()
        if not has_changed and self._is_over:
            return {}
        view.refresh()
        if view.is_live and now_s >= self._lanes_s:
            self._lanes, self._lanes_s = _lanes(view), now_s + LANES_S
        is_end = view.is_live is self._is_over
        keys = view.touched | view.history.active if is_end else view.touched
        refused = view.history.refused_at[self._refused :]
        self._refused += len(refused)
        shown: dict[str, Any] = {
            "head": head(view, self._lanes), "tasks": self.rows.changed(keys),
            "whats": self.rows.whats, "limits": limits_since(view, self._limits),
            "refused": [[round(at_s, 3), why] for at_s, why in refused],
        }  # fmt: skip
        if now_s >= self._report_s or is_end:
            began_s = time.process_time()
            shown["report"] = report_json(report_of(self.reader))
            if not self.has_content:
                without_content(shown)
            took_s = time.process_time() - began_s
            self._report_s = time.monotonic() + max(LANES_S, REPORT_REST * took_s)
        self._is_over = not view.is_live
        return shown


def _lanes(view: Any) -> Any:
    with suppress(HeadwayError):
        return view.lanes()
    return ()


def _texts(run: str, number: int) -> dict[str, Any]:
    with JournalReader(find_run(state_folder(), run).folder) as reader:
        key = next((key for row, key, _ in reader.names(number) if row == number + 1), None)
        return {} if key is None else TaskTexts(reader, TEXT_MAX).of([key])[key]


def _resume(run: str, folder: str) -> str:
    """A process of its own that goes on with a run."""
    with open(os.devnull, "r+b") as nothing:
        process = subprocess.Popen(
            [sys.executable, "-m", "headway", "resume", run, "--quiet"], cwd=folder,
            stdin=nothing, stdout=nothing, stderr=nothing, start_new_session=True,
        )  # fmt: skip
    # Its end has to be read by its parent, whenever that is.
    threading.Thread(target=process.wait, name="headway-resume", daemon=True).start()
    return f"{run} is being resumed; if nothing happens: headway resume {run}"


def metrics_text() -> str:
    lines = ["# TYPE headway_run_tasks gauge", "# TYPE headway_run_tokens counter"]
    for run, _, view in last_runs():
        if isinstance(view, HeadwayError):
            continue
        history, taken = view.history, view.history.taken
        label = f'run="{run}"'
        for word, many in sorted(view.words().items()):
            state = word.replace(" ", "_")
            lines.append(f'headway_run_tasks{{{label},state="{state}"}} {many}')
        for kind, tokens in (("input", taken.input_tokens), ("output", taken.output_tokens)):
            lines.append(f'headway_run_tokens{{{label},kind="{kind}"}} {tokens:.0f}')
        for name, value in (
            ("calls", taken.calls), ("microusd", taken.microusd), ("refused", history.refused),
            ("lost_tokens", round(history.lost.tokens)), ("elapsed_seconds", view.elapsed_s),
        ):  # fmt: skip
            lines.append(f"headway_run_{name}{{{label}}} {value}")
    return "\n".join(lines) + "\n"


# Where the page of this user is, so that `run` can print its link.


def announce(server: PageServer, environ: Mapping[str, str]) -> str:
    """Write the page's address, for its user alone; the path that was written."""
    place = folders(environ)
    prepare(place)
    path = os.path.join(place.runtime, "page.json")
    with suppress(FileNotFoundError):
        os.unlink(path)
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(handle, "w") as file:
        json.dump({"pid": os.getpid(), "url": server.url}, file)
    return path
