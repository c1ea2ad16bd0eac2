"""Which of the paths that a plan reads are there before its run; none of them is opened."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path


def absent(folder: Path, paths: Sequence[str]) -> frozenset[str]:
    """Those of some paths, relative to the plan's folder, at which nothing is."""
    root = os.fspath(folder)
    return frozenset(path for path in paths if not os.path.lexists(os.path.join(root, path)))
