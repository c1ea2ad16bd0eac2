"""The page as one HTML file.

Laws:
- Nothing in the file is fetched, and no script of it runs but ours: its policy names their digests.
- Data are JSON in which no character can end the element that they are in.
- Texts of tasks have a size in all: those that failed come first, then the slowest.
"""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Sequence
from contextlib import ExitStack
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

import msgspec

from headway.errors import StateFileError
from headway.journal.folder import find_run
from headway.journal.reader import JournalReader
from headway.report.page.data import TaskRows, run_data
from headway.report.page.details import TaskTexts, first_keys
from headway.report.text.run_view import state_folder
from headway.report.text.words import finite

TEXTS_BYTES_MAX: Final = 2_000_000
FILE_BYTES_MAX: Final = 4_000_000
"""A report is to be sent by mail. Tasks have their rows, however many; texts take what is left."""
TEXT_MAX: Final = 8_000
"""Characters of one text of one task."""
TASKS_MAX: Final = 2_000
"""Tasks whose texts are looked at: at a kilobyte each they fill what texts may take."""

HERE: Final = Path(__file__).parent
ESCAPES: Final = ((b"<", b"\\u003c"), (b">", b"\\u003e"), (b"&", b"\\u0026"),
                  ("\u2028".encode(), b"\\u2028"), ("\u2029".encode(), b"\\u2029"))  # fmt: skip


def as_bytes(shown: object) -> bytes:
    """JSON; what is infinite is null, and what UTF-8 cannot have is a question mark."""
    try:
        return msgspec.json.encode(shown)
    except UnicodeEncodeError:
        text = json.dumps(finite(shown), ensure_ascii=False, separators=(",", ":"))
        return text.encode("utf-8", "replace")


def document(data: object, *, is_live: bool = False) -> bytes:
    """The page with these data in it."""
    script, style = (HERE / "page.js").read_text(), (HERE / "page.css").read_text()
    shown = as_bytes(data)
    for character, escape in ESCAPES:
        shown = shown.replace(character, escape)
    page = (HERE / "page.html").read_text()
    # The data last: nothing in them is taken for a mark of ours.
    for mark, text in (("policy", policy(is_live)), ("css", style), ("js", script)):
        page = page.replace(f"{{{{{mark}}}}}", text)
    before, _, after = page.partition("{{data}}")
    return before.encode() + shown + after.encode()


def policy(is_live: bool) -> str:
    """What the page may do: run its own script, and ask its own server where there is one."""
    script, style = (_digest(HERE / name) for name in ("page.js", "page.css"))
    asks = "connect-src 'self'; " if is_live else ""
    return (
        f"default-src 'none'; script-src {script}; style-src {style}; {asks}"
        "base-uri 'none'; form-action 'none'"
    )


def _digest(path: Path) -> str:
    return f"'sha256-{b64encode(sha256(path.read_bytes()).digest()).decode()}'"


def write_report(words: Sequence[str], path: str, *, has_content: bool = True) -> int:
    """Write the page of these runs; how many bytes it has."""
    with ExitStack() as stack:
        places = [find_run(state_folder(), word) for word in words]
        readers = [stack.enter_context(JournalReader(place.folder)) for place in places]
        page = document({"runs": runs_data(readers, has_content), "hides_content": not has_content})
    try:
        Path(path).write_bytes(page)
    except OSError as fault:
        raise StateFileError(
            f"{path} cannot be written: {fault.strerror}", hint="choose another -o FILE"
        ) from None
    return len(page)


def runs_data(readers: Sequence[JournalReader], has_content: bool) -> list[dict[str, Any]]:
    found = []
    for reader in readers:
        shown, _, rows = run_data(reader)
        if has_content and len(readers) == 1:
            # Escapes make JSON longer: by a tenth, of usual texts.
            left = min(
                TEXTS_BYTES_MAX, int(0.9 * (FILE_BYTES_MAX - len(as_bytes(shown)) - 100_000))
            )
            shown["texts"] = _texts(reader, rows, left)
        elif not has_content:
            without_content(shown)
        found.append(shown)
    return found


def without_content(shown: dict[str, Any]) -> None:
    """Leave out what tasks and providers wrote; names of tasks stay."""
    report = shown["report"]
    report["failures"] = ["its reason is not shown here"] * bool(report["failures"])


def _texts(reader: JournalReader, rows: TaskRows, left: int) -> dict[str, Any]:
    keys = first_keys(rows.run, TASKS_MAX)
    texts, found = TaskTexts(reader, TEXT_MAX).of(keys), dict[str, Any]()
    for key in keys:
        left -= len(as_bytes(texts[key])) + 12
        if left < 0:
            break
        found[str(rows.names[key][0])] = texts[key]
    return found
