"""Prints what a git range changed, every line with its number: `python3 diff.py FOLDER RANGE`.

Reviewers can then name lines instead of counting them. `41 +` is line 41 as it is now, `12 -` was
line 12; lines that did not change have neither.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterable, Iterator

HUNK = re.compile(r"@@ -(\d+)(?:,\d+)? \+(\d+)(?:,\d+)? @@")


def numbered(diff: Iterable[str]) -> Iterator[str]:
    """The lines of a diff, numbered, below a line for each file."""
    old, new, is_inside = 0, 0, False
    for line in diff:
        if found := HUNK.match(line):
            old, new, is_inside = int(found[1]), int(found[2]), True
            yield "..."
        elif line.startswith("diff --git "):
            is_inside = False
        elif not is_inside:
            # Between a file's names and its first hunk: only where it is now, or was.
            if line.startswith(("+++ b/", "rename to ", "Binary files ")):
                yield f"== {line.removeprefix('+++ b/')}"
            elif line.startswith("+++ /dev/null"):
                yield "== (the file is gone)"
        elif line.startswith("-"):
            yield f"{old} - {line[1:]}"
            old += 1
        elif line.startswith("+"):
            yield f"{new} + {line[1:]}"
            new += 1
        elif line.startswith(" "):
            yield f"{new} {line[1:]}"
            old, new = old + 1, new + 1


if __name__ == "__main__":
    command = ["git", "-C", sys.argv[1], "diff", "--no-color", "--no-ext-diff", sys.argv[2], "--"]
    ended = subprocess.run(command, stdout=subprocess.PIPE, check=False)
    if ended.returncode:
        sys.exit(ended.returncode)
    lines = ended.stdout.decode("utf-8", "replace").split("\n")
    sys.stdout.buffer.write("".join(f"{text}\n" for text in numbered(lines)).encode())
