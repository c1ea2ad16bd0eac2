"""A task whose effects can be counted: it says when it starts and when it ends, durably.

    python -I -S effect.py LOG NAME MILLISECONDS

A task whose name begins with `flaky` fails the first time.

Every line is appended and synced on its own, outside of any journal: whatever an engine believes,
this is what really happened. Runs as a file, without anything that takes long to import.
"""

import os
import sys
import time


def say(log: str, what: str) -> None:
    """Append one line; lines are short, so those of several processes never mix."""
    line = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(line, what.encode())
    os.fsync(line)
    os.close(line)


def result_of(name: str) -> str:
    return f"result {name}"


def main(log: str, name: str, milliseconds: str) -> int:
    say(log, f"start {name}\n")
    time.sleep(int(milliseconds) / 1000)
    if name.startswith("flaky") and not os.path.exists(f"{log}.{name}"):
        os.close(os.open(f"{log}.{name}", os.O_WRONLY | os.O_CREAT, 0o600))
        say(log, f"fail {name}\n")
        return 1
    say(log, f"end {name}\n")
    os.write(1, f"{result_of(name)}\n".encode())
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
