"""All that a run does with files, from the snapshot to the user's folder, in one process.

Tests kill it on the way and start it again. It says what is on the disk as soon as it is told so.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

from headway.workspaces.apply import apply_files
from tests.workspaces.scene import Scene

TASKS: Final[dict[str, dict[str, str | None]]] = {
    "one": {"a.txt": "one\n", "new/one": "1\n", "old.txt": None},
    "two": {"a.txt": "two\n", "b.txt": "two\n"},
}


def main(home: Path) -> None:
    store = Scene(home, home / "repo").open()
    files: dict[str, str | None] = {}
    tasks: list[tuple[str, dict[str, str | None]]] = []
    for name, edits in TASKS.items():
        ws = store.prepare(name, files, "copy")
        for path, text in edits.items():
            target = Path(ws.place, path)
            target.parent.mkdir(exist_ok=True)
            if text is None:
                target.unlink()
            else:
                target.write_text(text)
        found = store.collect(ws)
        print("kept", found.ref, found.commit, flush=True)
        store.discard(ws)
        tasks.append((name, found.changes))
        files |= found.changes
        print("landed", store.land(tasks), flush=True)
    apply_files(store)
    print("applied", flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
