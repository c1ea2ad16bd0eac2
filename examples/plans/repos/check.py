"""Checks one repository and says what it found, as JSON: `python3 check.py FOLDER`."""

import json
import sys
from pathlib import Path


def check(folder: Path) -> dict[str, object]:
    """Whether it has a licence, which dependencies are not pinned, how long its code is."""
    wanted = (folder / "requirements.txt").read_text().split()
    return {
        "repository": folder.name,
        "has_license": (folder / "LICENSE").exists(),
        "unpinned": sorted(name for name in wanted if "==" not in name),
        "lines": sum(len(path.read_text().splitlines()) for path in folder.glob("*.py")),
    }


if __name__ == "__main__":
    print(json.dumps(check(Path(sys.argv[1]))))
