"""What commands write is given whole."""

from __future__ import annotations

from pathlib import Path

from tests.promises.user import user

SIZE = 1_048_576
BIG = f"""import fcntl, os
fcntl.fcntl(1, 1031, {SIZE})  # F_SETPIPE_SZ
os.write(1, b"a" * {SIZE})
os._exit(0)
"""


def test_a_command_that_enlarges_its_pipe_loses_no_output(tmp_path: Path) -> None:
    with user(tmp_path) as someone:
        someone.write("big.py", BIG)
        ended = someone.headway("each", "-j1", "python3 big.py {}", ":::", *"012345")
    assert ended.returncode == 0, ended.stderr
    assert len(ended.stdout) == 6 * SIZE
