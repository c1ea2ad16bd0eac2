"""Sums up what the checks found, as JSON: `python3 summary.py FILE`."""

import json
import sys
from pathlib import Path


def summary(checks: list[dict[str, object]]) -> dict[str, object]:
    """Over all repositories."""
    return {
        "repositories": len(checks),
        "without_license": sum(not one["has_license"] for one in checks),
        "with_unpinned": sum(bool(one["unpinned"]) for one in checks),
        "lines": sum(int(str(one["lines"])) for one in checks),
    }


if __name__ == "__main__":
    print(json.dumps(summary(json.loads(Path(sys.argv[1]).read_text()))))
