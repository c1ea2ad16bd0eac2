"""Prints the source of a module of the standard library: `python3 source.py bisect`."""

import sys
import sysconfig
from pathlib import Path

path = Path(sysconfig.get_path("stdlib")) / f"{sys.argv[1]}.py"
sys.stdout.write(path.read_text(encoding="utf-8"))
