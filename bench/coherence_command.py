"""A task of the catalogue as a command, which finds the state in a folder.

    python -S coherence_command.py begin CASE
    python -S coherence_command.py open DOOR NUMBER
    python -S coherence_command.py play DOOR NUMBER CASE TASK

It reads what is there when it starts, and what it leaves is taken when it ends; so it has two steps
only, which `open`, the task before it, and its own end ask for.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from fnmatch import fnmatchcase
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))


class Folder:
    """$HEADWAY_STATE, by the verbs that programs use."""

    def __init__(self) -> None:
        self._state = Path(os.environ["HEADWAY_STATE"])
        self._put = Path(os.environ["HEADWAY_PUT"])

    def get(self, key: str) -> object:
        path = self._state / key
        return json.loads(path.read_text()) if path.is_file() else None

    def scan(self, pattern: str) -> Mapping[str, object]:
        paths = (path for path in self._state.rglob("*") if path.is_file())
        keys = (path.relative_to(self._state).as_posix() for path in paths)
        return {key: self.get(key) for key in keys if fnmatchcase(key, pattern)}

    def put(self, key: str, value: object) -> None:
        path = self._state / key
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(value))

    def add(self, key: str, value: object) -> None:
        with (self._put / key).open("a") as lines:
            lines.write(json.dumps(value) + "\n")

    def remove(self, key: str) -> None:
        (self._state / key).unlink(missing_ok=True)


def ask(door: str, number: int) -> None:
    """Wait for one's turn."""
    import socket

    with socket.socket(socket.AF_UNIX) as line:
        line.connect(door)
        line.sendall(b"%d\n" % number)
        line.recv(3)


def begin(case: str) -> None:
    """What the state begins with."""
    from tests.coherence import catalogue, catalogue_isolation

    every = {one.name: one for one in (*catalogue.CASES, *catalogue_isolation.CASES)}
    view = Folder()
    for key, value in every[case].start.items():
        view.put(key, value)


def play(door: str, number: int, name: str, task: int) -> int:
    """Perform a task; what it has seen is left beside the door."""
    from tests.coherence import catalogue, catalogue_isolation
    from tests.coherence.catalogue_plays import Play

    every = {one.name: one for one in (*catalogue.CASES, *catalogue_isolation.CASES)}
    played, view = Play(every[name].tasks[task]), Folder()
    while played.operation is not None:
        played.step(view)
    (Path(door).parent / f"observed-{task}").write_text(played.observed)
    ask(door, number)
    return 1 if played.is_failed else 0


def main(verb: str, *arguments: str) -> int:
    """The command."""
    if verb == "begin":
        begin(*arguments)
    elif verb == "open":
        ask(arguments[0], int(arguments[1]))
    else:
        door, number, name, task = arguments
        return play(door, int(number), name, int(task))
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
