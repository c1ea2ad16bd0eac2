"""A coding agent by script: it performs what its prompt names, as a shell script, and answers.

`agent.py FOLDER [NAME]` performs `FOLDER/NAME`; without a name, that of `perform NAME` in the
prompt on stdin. A script may call `mark`, `await` and `meet`, which go to the gate of the test by a
socket: no file of a handshake is among those that a task reads or writes. The process holds a
connection as long as it runs.
"""

import os
import re
import socket
import sys


def ask(port: int, words: str) -> tuple[socket.socket, str]:
    connection = socket.create_connection(("127.0.0.1", port))
    connection.sendall(f"{words}\n".encode())
    return connection, connection.makefile().readline().strip()


def main() -> None:
    folder = sys.argv[1]
    if folder == "--ask":
        _, answer = ask(int(sys.argv[2]), " ".join(sys.argv[3:]))
        sys.exit(answer != "yes")
    if len(sys.argv) > 2:
        name = sys.argv[2]
    else:
        found = re.search(r"perform ([\w-]+)", sys.stdin.read())
        name = found[1] if found else "none"
    with open(f"{folder}/port") as file:
        port = int(file.read())
    held, _ = ask(port, f"hold {name}")
    held.set_inheritable(True)
    with open(f"{folder}/{name}") as file:
        script = file.read()
    gate = f"{sys.executable} -I -S {__file__} --ask {port}"
    head = "".join(
        f'{one}() {{ {gate} {one} "$@" || true; }}\n' for one in ("mark", "await", "meet")
    )
    os.execvp("sh", ["sh", "-ec", f"{head}{script}\necho done\n"])


main()
