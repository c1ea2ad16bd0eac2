"""Who may use the gateway, which program it is, and which headers are forwarded.

Laws:
- Nothing is let in without a token, and a wrong token reads the same as one that has ended.
- No web page gets in: not by a name that points here, not from another origin, not by a form.
- What two readers could understand differently is refused, not repaired.
- A key that the gateway adds reaches the listed paths of its own upstream and nothing else.
- A call is let in only if its body can be read: none passes unpaced.
- A refusal quotes nothing of the path, the query or the headers: keys are in them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from hmac import compare_digest
from hmac import digest as keyed_digest
from secrets import token_bytes, token_urlsafe
from typing import Final
from urllib.parse import unquote

from msgspec.structs import replace

from headway.errors import BadValueError
from headway.gateway.settings import OWN_PAGES
from headway.gateway.values import Caller, GatewayKey, Pairs, Passed, Payer, Turned, Upstream
from headway.wire import read
from headway.wire.stream import Inflater
from headway.wire.values import REQUEST_BYTES_MAX, WireName

# The keys that open the gateway: made here, found here, ended here.

TOKEN_BYTES: Final = 32

KEYS_MAX: Final = 65_536
"""One for each attempt that runs, and a machine runs fewer processes than that."""
_TOKEN: Final = re.compile(r"[A-Za-z0-9_-]{22,128}")
"""Characters that stand for themselves in a URL; 22 of them are 128 bits."""


class Keyring:
    def __init__(self, keys_max: int = KEYS_MAX) -> None:
        self._keys_max = keys_max
        self._keys: dict[bytes, GatewayKey] = {}
        """By a keyed digest: the time of a lookup reveals nothing about the tokens."""
        self._secret = token_bytes(TOKEN_BYTES)

    def __iter__(self) -> Iterator[GatewayKey]:
        return iter(tuple(self._keys.values()))

    def issue(
        self, name: str, path: tuple[str, ...] = (), *, token: str | None = None,
        payer: Payer | None = None, is_interactive: bool = False,
    ) -> GatewayKey:  # fmt: skip
        """A new key; with `token` one that is known already, as that of a gateway that restarts."""
        if len(self._keys) >= self._keys_max:
            raise BadValueError(
                "the gateway has no room for another key",
                detail=f"{len(self._keys)} keys are in use",
                hint="end the keys of attempts that are over",
            )
        found = token_urlsafe(TOKEN_BYTES) if token is None else token
        if not _TOKEN.fullmatch(found):
            raise BadValueError(
                "a token of the gateway has 22 to 128 letters, digits, `-` and `_`",
                detail=f"got {len(found)} characters",
                hint='make one with `python -c "import secrets; print(secrets.token_urlsafe())"`',
            )
        place = self._place(found)
        if place in self._keys:
            raise BadValueError("two keys of the gateway have one token", where=name)
        key = self._keys[place] = GatewayKey(
            found, name, path, payer=payer, is_interactive=is_interactive
        )
        return key

    def find(self, token: str) -> GatewayKey | None:
        key = self._keys.get(self._place(token))
        # A second look, in constant time: a digest is not the token itself.
        if key is None or not compare_digest(_bytes(key.token), _bytes(token)):
            return None
        return key

    def end(self, key: GatewayKey) -> None:
        """From now on it opens nothing. What is under way with it is its caller's to stop."""
        key.is_over = True
        place = self._place(key.token)
        if self._keys.get(place) is key:
            del self._keys[place]

    def _place(self, token: str) -> bytes:
        return keyed_digest(self._secret, _bytes(token), "sha256")


def _bytes(token: str) -> bytes:
    return token.encode("utf-8", "surrogatepass")


_Named = dict[bytes, list[bytes]]
"""The values of each header by its name in lower case: every rule is about a few of them."""

OWN_KEY: Final = (b"x-api-key", b"authorization", b"api-key", b"x-goog-api-key")
"""Headers in which a client sends its provider's key; Gemini's also go in the query, `?key=`."""
_METHODS: Final = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"})
"""Not OPTIONS: there is no CORS. Not CONNECT and not TRACE: there is no tunnel and no echo."""

_HOPS: Final = frozenset(
    {b"connection", b"keep-alive", b"proxy-authenticate", b"proxy-authentication-info",
     b"proxy-authorization", b"proxy-connection", b"te", b"trailer", b"transfer-encoding",
     b"upgrade", b"http2-settings"}
)  # fmt: skip
"""Headers that are for the next hop only (RFC 9110, 7.6.1)."""

_OURS: Final = frozenset({b"host", b"content-length", b"expect"})
"""Headers of a request that are written anew upstream; the body is already here."""

_OVERRIDES: Final = (
    b"x-http-method", b"x-http-method-override", b"x-method-override",
    b"x-original-url", b"x-rewrite-url",
)  # fmt: skip
"""Headers by which some servers answer another request than the one that they got."""

_NAME: Final = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_UNSAFE: Final = re.compile(rb"[\x00-\x08\x0a-\x1f\x7f]")
_PATH: Final = re.compile(r"(?:/(?:[A-Za-z0-9._~:@!$&'()*+,=-]|%[0-9A-Fa-f]{2})*)+")
_QUERY: Final = re.compile(r"(?:[A-Za-z0-9._~:@!$&'()*+,;=/?\[\]|-]|%[0-9A-Fa-f]{2})*")
_CODED: Final = re.compile(r"[\x00-\x20\x7f-\U0010ffff/\\%?#]")
"""Not allowed in a decoded segment of a path. Some servers would decode `%25` twice."""

_LISTED: Final = re.compile(
    r"(?:/v\d[a-z0-9]*)?(?:"
    r"/messages|/messages/count_tokens|/chat/completions|/responses|/responses/input_tokens"
    r"|/models/[A-Za-z0-9._@-]+:(?:generateContent|streamGenerateContent|countTokens)"
    r")/?"
)
_LISTED_TO_READ: Final = re.compile(r"(?:/v\d[a-z0-9]*)?/models(?:/[A-Za-z0-9._:@-]+)?/?")
_BASE: Final = re.compile(r"/|(?:/v\d[a-z0-9]*)/?")
"""Where clients send a HEAD to see whether anybody is there."""

_UNREADABLE: Final = Turned(
    400, "request", "the gateway does not take a request that can be understood in two ways"
)
TOO_LARGE: Final = Turned(
    413, "size", f"a request has at most {REQUEST_BYTES_MAX // 1024**2} MiB, also when decompressed"
)
_NO_TOKEN: Final = Turned(
    401,
    "token",
    "the path does not begin with a token that opens this gateway now",
    "take the base URL from `headway gateway env`",
)


def hosts_of(port: int) -> frozenset[str]:
    """All that the header `Host` may say to a gateway at this port of this machine."""
    names = ("127.0.0.1", "[::1]", "localhost")
    # A client leaves the port out where it is that of HTTP itself.
    return frozenset(f"{name}:{port}" for name in names) | frozenset(names if port == 80 else ())


def examine(
    method: str, target: str, headers: Pairs, keys: Keyring, upstreams: Mapping[str, Upstream],
    own_hosts: frozenset[str],
) -> Passed | Turned:  # fmt: skip
    """Let a request in, or refuse it; `target` is path and query as they were sent."""
    named = _by_name(headers)
    turned = _malformed(method, headers, named) or _browser(named, own_hosts)
    if turned:
        return turned
    path, mark, query = target.partition("?")
    turned = _twisted(path, query)
    if turned:
        return turned
    _, token, *rest = path.split("/", 3)
    key = keys.find(token)
    if key is None:
        return _NO_TOKEN
    name = rest[0] if rest else ""
    if name in OWN_PAGES:
        return _page(method, key, rest)
    upstream = upstreams.get(name)
    if upstream is None:
        known = ", ".join(sorted(upstreams))
        message = f"the path names no upstream of the gateway; it has {known}"
        return Turned(404, "path", message, "take the base URL from `headway gateway env`")
    asked = f"/{rest[1]}" if len(rest) > 1 else "/"
    # By the path as it is meant, so that no spelling of a call goes past its pacing.
    route = read.route(method, unquote(asked))
    turned = _unreadable_body(named, is_call=route is not None)
    if turned:
        return turned
    if upstream.key:
        turned = _with_our_key(method, asked, query, named)
        query = "&".join(part for part in query.split("&") if _own_key(part) is None)
    elif route is None:
        turned = _with_own_key(method, asked, query, named)
    if turned:
        return turned
    return Passed(key, upstream, f"{asked}{mark}{query}", route)


def unpacked(body: bytes, headers: Pairs) -> bytes | Turned:
    """The body of a call as it was meant, for reading; what is sent on stays as it came."""
    encoding = b"".join(values_of(headers, b"content-encoding")[:1]).decode("latin-1")
    inflater = Inflater(encoding)
    pieces: list[bytes] = []
    size_bytes = 0
    for piece in inflater.feed(body):
        size_bytes += len(piece)
        if size_bytes > REQUEST_BYTES_MAX:
            return TOO_LARGE
        pieces.append(piece)
    if inflater.state == "unreadable":
        return TOO_LARGE
    if inflater.state == "corrupt":
        return Turned(400, "body", f"the body of the call is not the {encoding} that it says it is")
    return b"".join(pieces)


def values_of(headers: Pairs, name: bytes) -> list[bytes]:
    return [value.strip(b" \t") for found, value in headers if found.lower() == name]


def onward(headers: Pairs, upstream: Upstream, wire: WireName | None) -> list[tuple[bytes, bytes]]:
    """The headers of a request as they are sent upstream, without host, length and framing."""
    dropped = _hops(headers) | _OURS
    if not upstream.key:
        return [pair for pair in headers if pair[0].lower() not in dropped]
    own = _key_header(headers, upstream, wire)
    sent: list[tuple[bytes, bytes]] = []
    is_placed = False
    for pair in headers:
        name = pair[0].lower()
        if name in OWN_KEY:
            if not is_placed:
                sent.append(own)
                is_placed = True
        elif name not in dropped:
            sent.append(pair)
    return sent if is_placed else [*sent, own]


def readable(headers: Iterable[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    """The headers of a call, without those that ask for an answer that cannot be read here."""
    return [
        (name, _understood(value) if name.lower() == b"accept-encoding" else value)
        for name, value in headers
    ]


@lru_cache(maxsize=256)
def _understood(accepted: bytes) -> bytes:
    """Which of these encodings can be read here; as it came if all can."""
    parts = accepted.split(b",")
    kept = [
        part
        for part in parts
        if Inflater(part.partition(b";")[0].decode("latin-1")).state == "reading"
    ]
    return accepted if len(kept) == len(parts) else b",".join(kept).strip() or b"identity"


def homeward(headers: Pairs) -> list[tuple[bytes, bytes]]:
    """The headers of an answer for the client; what is not one line of text is left out."""
    dropped = _hops(headers)
    if values_of(headers, b"transfer-encoding"):
        dropped |= {b"content-length"}
    return [
        (name, value)
        for name, value in headers
        if name.lower() not in dropped and _is_sound(name, value)
    ]


def _hops(headers: Pairs) -> frozenset[bytes]:
    listed = b",".join(values_of(headers, b"connection")).lower().split(b",")
    return _HOPS | {name.strip(b" \t") for name in listed}


def _by_name(headers: Pairs) -> _Named:
    named: _Named = {}
    for name, value in headers:
        named.setdefault(name.lower(), []).append(value.strip(b" \t"))
    return named


def _malformed(method: str, headers: Pairs, named: _Named) -> Turned | None:
    """A request whose framing, headers or method another server may read in another way."""
    if method not in _METHODS:
        return Turned(405, "method", "the gateway does not take this method")
    for name, value in headers:
        if not _is_sound(name, value):
            return _UNREADABLE
    lengths = named.get(b"content-length", [])
    codings = named.get(b"transfer-encoding", [])
    # Python would take signs, spaces and underscores too; more digits than these are no size.
    is_sized = all(re.fullmatch(rb"[0-9]{1,15}", each) for each in lengths)
    if len(lengths) + len(codings) > 1 or not is_sized:
        return _UNREADABLE
    if codings and codings[0].lower() != b"chunked":
        return _UNREADABLE
    if method in ("GET", "HEAD") and (codings or any(int(each) for each in lengths)):
        return _UNREADABLE
    upgrades = named.get(b"upgrade", [])
    # Java's own client offers HTTP/2 with every first request; not to answer is to decline.
    if upgrades and [each.lower() for each in upgrades] != [b"h2c"]:
        return Turned(426, "upgrade", "the gateway speaks HTTP/1.1 only", "use HTTP streaming")
    expected = named.get(b"expect", [])
    if any(each.lower() != b"100-continue" for each in expected):
        return Turned(417, "request", "the gateway cannot do what the header Expect asks for")
    return None


def _browser(named: _Named, own_hosts: frozenset[str]) -> Turned | None:
    """A web page that makes its reader's browser send requests here."""
    hosts = [value.decode("latin-1").lower() for value in named.get(b"host", [])]
    if len(hosts) != 1:
        return _UNREADABLE
    if hosts[0] not in own_hosts:
        message = "the header Host does not name this gateway"
        hint = "use the address 127.0.0.1 itself: other names can be made to point here"
        return Turned(403, "host", message, hint)
    origins = named.get(b"origin", [])
    if any(each.decode("latin-1").lower() != f"http://{hosts[0]}" for each in origins):
        return Turned(403, "origin", "the gateway takes no requests from web pages")
    sites = named.get(b"sec-fetch-site", [])
    if any(each.lower() not in (b"none", b"same-origin") for each in sites):
        return Turned(403, "origin", "the gateway takes no requests from web pages")
    return None


def _twisted(path: str, query: str) -> Turned | None:
    """A target that is not a plain path, or one that leads somewhere else once it is resolved."""
    first, *rest = path.split("/")
    # `*`, `host:port` and `http://host/` (RFC 9112, 3.2) have something before their first slash.
    is_plain = not first and _PATH.fullmatch(path) and _QUERY.fullmatch(query)
    # One slash at the end is usual, a slash after a slash is not.
    if is_plain and all(rest[:-1]) and not any(_leads_astray(each) for each in rest):
        return None
    return Turned(400, "path", "the path of the request is not a plain one")


def _leads_astray(segment: str) -> bool:
    decoded = unquote(segment, errors="replace")
    return decoded in (".", "..") or _CODED.search(decoded) is not None


def _page(method: str, key: GatewayKey, rest: list[str]) -> Passed | Turned:
    if len(rest) > 1:
        return Turned(404, "path", f"the gateway has no page below {rest[0]!r}")
    if method not in ("GET", "HEAD"):
        return Turned(405, "method", f"the page {rest[0]!r} can only be read")
    return Passed(key, None, f"/{rest[0]}")


def _unreadable_body(named: _Named, is_call: bool) -> Turned | None:
    """The body of a call is JSON and says so: a form of a web page cannot."""
    lengths = named.get(b"content-length", [])
    if lengths and int(lengths[0]) > REQUEST_BYTES_MAX:
        return TOO_LARGE
    if not is_call:
        return None
    kinds = named.get(b"content-type", [])
    if [kind.partition(b";")[0].strip(b" \t").lower() for kind in kinds] != [b"application/json"]:
        message = "the body of a call has the content type application/json"
        return Turned(415, "type", message)
    encodings = named.get(b"content-encoding", [])
    if len(encodings) > 1:
        return _UNREADABLE
    for encoding in encodings:
        if Inflater(encoding.decode("latin-1")).state == "unreadable":
            message = "the gateway cannot read a body in this encoding"
            hint = "Codex: `-c features.enable_request_compression=false`"
            return Turned(415, "type", message, hint)
    return None


def _with_our_key(method: str, path: str, query: str, named: _Named) -> Turned | None:
    """With a key that is not the client's: calls, counts, the list of models, a sign of life."""
    is_other = any(name in named for name in _OVERRIDES) or any(
        # Google's servers take a method and headers from the query, under such names.
        unquote(part).startswith("$")
        for part in query.split("&")
    )
    if _is_listed(method, path) and not is_other:
        return None
    hint = "start the gateway without a key of its own, and give yours to the client"
    return Turned(403, "path", "with the gateway's own key only calls are let through", hint)


def _with_own_key(method: str, path: str, query: str, named: _Named) -> Turned | None:
    """Everything else goes only where the client could go by itself, with a key that it has."""
    has_key = any(any(named.get(name, ())) for name in OWN_KEY)
    if has_key or _is_listed(method, path) or any(map(_own_key, query.split("&"))):
        return None
    return Turned(403, "path", "what is not a call is let through only with the client's own key")


def _is_listed(method: str, path: str) -> bool:
    if method == "POST":
        return _LISTED.fullmatch(path) is not None
    if method == "HEAD" and (_BASE.fullmatch(path) or _LISTED.fullmatch(path)):
        return True
    return method in ("GET", "HEAD") and _LISTED_TO_READ.fullmatch(path) is not None


def _own_key(part: str) -> str | None:
    name, _, value = part.partition("=")
    return value if unquote(name) == "key" else None


def _is_sound(name: bytes, value: bytes) -> bool:
    """A header that all readers understand alike: a token, and one line of text."""
    if not _is_token(name):
        return False
    try:
        text = value.decode()
    except UnicodeDecodeError:
        return False
    return text.isprintable() or _UNSAFE.search(value) is None


@lru_cache(maxsize=1024)
def _is_token(name: bytes) -> bool:
    return _NAME.fullmatch(name) is not None


def _key_header(headers: Pairs, upstream: Upstream, wire: WireName | None) -> tuple[bytes, bytes]:
    key = upstream.key.encode()
    brought = next((name.lower() for name, _ in headers if name.lower() in OWN_KEY), b"")
    speaks = wire or _habit(headers, upstream, brought)
    if speaks == "anthropic":
        return b"x-api-key", key
    if speaks == "gemini":
        return b"x-goog-api-key", key
    # Azure takes its keys in a header of its own, and its clients send it.
    if brought == b"api-key":
        return b"api-key", key
    return b"authorization", b"Bearer " + key


def _habit(headers: Pairs, upstream: Upstream, brought: bytes) -> str:
    """Whose format is probably spoken where the path does not tell, as for a list of models."""
    if upstream.name in ("anthropic", "gemini"):
        return upstream.name
    if values_of(headers, b"anthropic-version"):
        return "anthropic"
    return "gemini" if brought == b"x-goog-api-key" else ""


# Which program sends a request and how long it waits, by its headers.
#
# A caller never waits in silence for as long as its own timeout, stated or measured; a program that
# is not known is taken to be impatient. The figures of the coding agents were measured on the real
# programs, held by a server that says nothing or only keeps alive (docs/agents.md has the table);
# those of libraries follow from their default timeouts.

SESSION_CHARACTERS_MAX: Final = 80
VERSION_CHARACTERS_MAX: Final = 24
"""Sessions have 30 to 36 characters, versions 5 to 8. Both are labels of flows and counters."""
AGENT_BYTES_MAX: Final = 256
"""As much of a User-Agent as is looked at: the program comes first."""
SILENT_SHARE: Final = 0.9
SILENT_SHARE_MIN: Final = 0.5
MARGIN_S: Final = 2.0
"""The share of its own timeout for which a caller is left in silence: all but a tenth, and all but
two seconds if that leaves half of it. The clock of a busy client starts before its request
arrives, and a busy gateway is late with its beats."""

BEAT_SHARE: Final = 1 / 3
"""Two beats may be late or lost before a caller gives up."""
SILENT_S_MIN: Final = 0.5
BEAT_S_MIN: Final = 0.5
"""A held client hears no more often than this that its call is alive."""
TIMEOUT_S_MAX: Final = 86_400.0
"""A stated timeout that is longer means nothing."""

SESSIONS: Final = (
    b"x-claude-code-session-id", b"session-id", b"session_id", b"x-session-id",
    b"x-session-affinity", b"x-gemini-session-id", b"x-conversation-id",
)  # fmt: skip
"""What programs call their conversations, the surest first. Claude Code sends the first, Codex
`session-id`, opencode both `x-session-id` and `x-session-affinity`; the others are spellings that
programs may use. Gemini CLI and the SDKs say nothing."""

TIMEOUTS: Final = (b"x-stainless-read-timeout", b"x-stainless-timeout", b"x-server-timeout")
"""Where SDKs state their own timeout, in seconds. OpenAI's and Anthropic's for Python say the
first, Claude Code, which uses Anthropic's for JavaScript, the second, Google's the third when its
user sets one."""


_CLAUDE_CODE: Final = Caller("claude-code", silent_s=240.0, beat_s=60.0)
"""Without a byte it gives up after 360 s. Of pings alone it has enough 600 s after the first when
they come every 5 s, after 740 to 760 s when every 15 s, and not yet after 795 s when every 30, 60
or 100 s: so they come slowly."""

_CODEX: Final = Caller("codex", silent_s=240.0)
_OPENCODE: Final = Caller("opencode", silent_s=200.0)
_GEMINI_CLI: Final = Caller("gemini-cli", silent_s=35.0, beat_s=10.0)

_BY_PRODUCT: Final = {
    b"claude-cli": _CLAUDE_CODE,
    b"claude-code": _CLAUDE_CODE,
    b"opencode": _OPENCODE,
    # The SDKs' timeout is 600 s between two reads, and they state another one.
    b"openai": Caller("openai-python", silent_s=540.0),
    b"asyncopenai": Caller("openai-python", silent_s=540.0),
    b"anthropic": Caller("anthropic-python", silent_s=540.0),
    b"asyncanthropic": Caller("anthropic-python", silent_s=540.0),
    # Google's has no timeout unless it states one.
    b"google-genai-sdk": Caller("google-genai", silent_s=540.0),
    b"pydantic-ai": Caller("pydantic-ai", silent_s=540.0),
    b"litellm": Caller("litellm", silent_s=540.0),
    # The AI SDK uses its runtime's own fetch.
    b"ai-sdk": Caller("ai-sdk", silent_s=200.0),
    b"ai": Caller("ai-sdk", silent_s=200.0),
    # Both wait for ever, like most who use them.
    b"curl": Caller("curl", silent_s=240.0),
    b"python-requests": Caller("requests", silent_s=240.0),
    # Without a setting of the client, the timeout is 300 s in all, and 5 s between two reads.
    b"python": Caller("aiohttp", silent_s=200.0),
    b"python-httpx": Caller("httpx", silent_s=4.0, beat_s=1.5),
    b"python-httpx2": Caller("httpx", silent_s=4.0, beat_s=1.5),
}
"""By the first product of a User-Agent, in lower case."""

_NODE_SILENT_S: Final = 240.0
"""The fetch of Node, unless told otherwise, gives up 300 s after the request or the last byte,
whatever timeout an SDK that runs on it states."""
_UNKNOWN: Final = Caller("unknown", silent_s=20.0, beat_s=10.0)

_PRODUCT: Final = re.compile(rb"([A-Za-z0-9_.-]{1,40})/(?:([A-Za-z]{1,12}) )?([A-Za-z0-9_.+-]*)")
"""`claude-cli/2.1.325 (external)`, `OpenAI/Python 3.49.0`, `GeminiCLI-tui/0.61.0/model (linux)`."""
_UNPRINTABLE: Final = re.compile(r"[^!-~]+")

_CLAUDE_ENTRY: Final = re.compile(rb"claude-[a-z]+/\S* \(external, ([a-z_-]+)")
"""`(external, cli)` is Claude Code at a terminal, `(external, sdk-cli)` is `claude -p`."""

_UNATTENDED: Final = (b"sdk", b"mcp", b"remote_trigger", b"claude-code-github-action")
"""How the entry points of Claude Code begin that no person watches."""

_CODEX_UNATTENDED: Final = (b"codex_exec", b"codex_sdk", b"codex_mcp")
"""How `codex exec` and the SDK call themselves; Codex at a terminal is `codex-tui` (0.166) or
`codex_cli_rs`, in an editor `codex_vscode`."""

_OPENCODE_ASKS: Final = re.compile(rb'"name"\s*:\s*"question"')
"""opencode sends the same headers at a terminal and as `opencode run`; only at a terminal the model
has the tool that asks the user (1.18). Its titles and sub-agents have not."""


def caller_of(headers: Pairs, body: bytes = b"") -> Caller:
    """The program that sends a request with these headers."""
    said: dict[bytes, bytes] = {}
    for name, value in headers:
        said.setdefault(name.lower(), value.strip())
    program, version = _program(said)
    is_interactive = _is_interactive(program.name, said.get(b"user-agent", b"").lower(), body)
    timeout_s = min(_timeouts(said), default=TIMEOUT_S_MAX)
    bearable_s = min(SILENT_SHARE * timeout_s, timeout_s - MARGIN_S)
    bearable_s = max(SILENT_SHARE_MIN * timeout_s, bearable_s)
    sessions = (_clean(said.get(name, b""))[:SESSION_CHARACTERS_MAX] for name in SESSIONS)
    return replace(
        program,
        version=version,
        session=next(filter(None, sessions), ""),
        silent_s=max(SILENT_S_MIN, min(program.silent_s, bearable_s)),
        beat_s=max(BEAT_S_MIN, min(program.beat_s, BEAT_SHARE * timeout_s)),
        is_interactive=is_interactive,
    )


def _is_interactive(program: str, agent: bytes, body: bytes) -> bool | None:
    """Whether a person sits before a coding agent; `None` for other programs."""
    if program == "claude-code":
        entry = _CLAUDE_ENTRY.match(agent[:AGENT_BYTES_MAX])
        return entry is not None and not entry[1].startswith(_UNATTENDED)
    if program == "codex":
        return not agent.startswith(_CODEX_UNATTENDED)
    if program == "opencode":
        return True if _OPENCODE_ASKS.search(body) else None
    return None


def _program(said: dict[bytes, bytes]) -> tuple[Caller, str]:
    agent = said.get(b"user-agent", b"")[:AGENT_BYTES_MAX]
    found = _PRODUCT.match(agent)
    if found is None:
        return _UNKNOWN, ""
    product, language, version = found[1].lower(), found[2], _clean(found[3])
    version = version[:VERSION_CHARACTERS_MAX]
    # Codex is named after its front: codex_cli_rs, codex_exec, codex_vscode...
    if product.startswith(b"codex"):
        return _CODEX, version
    if product.startswith(b"geminicli"):
        return _GEMINI_CLI, version
    program = _BY_PRODUCT.get(product, _UNKNOWN)
    if language == b"JS" and program.name.endswith("-python"):
        name = program.name.replace("-python", "-js")
        program = replace(program, name=name, silent_s=_NODE_SILENT_S)
    return program, version


def _timeouts(said: dict[bytes, bytes]) -> list[float]:
    stated: list[float] = []
    for name in TIMEOUTS:
        text = said.get(name, b"")[:16]
        try:
            timeout_s = float(text)
        except ValueError:
            continue
        if 0.0 < timeout_s <= TIMEOUT_S_MAX:
            stated.append(timeout_s)
    return stated


def _clean(value: bytes) -> str:
    """Printable characters only, without spaces."""
    return _UNPRINTABLE.sub("", value.decode("ascii", "ignore"))
