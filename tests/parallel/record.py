"""Records what GNU parallel does with each case: `python -m tests.parallel.record`."""

from __future__ import annotations

import json
import subprocess
import tempfile
from pathlib import Path
from typing import Final

from headway.base.codec import as_dict
from tests.parallel.cases import CASES, Outcome, run_parallel

RECORDING: Final = Path(__file__).resolve().parent.parent / "data" / "parallel_cases.json"


def recorded() -> dict[str, Outcome]:
    """What was recorded, by the name of the case."""
    cases = json.loads(RECORDING.read_text())["cases"]
    return {name: Outcome(**outcome) for name, outcome in cases.items()}


def main() -> None:
    version = subprocess.run(["parallel", "--version"], capture_output=True, text=True, check=True)
    cases = {}
    for case in CASES:
        with tempfile.TemporaryDirectory() as folder:
            cases[case.name] = as_dict(run_parallel(case, Path(folder)))
    content = {"version": version.stdout.splitlines()[0], "cases": cases}
    RECORDING.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n")
    print(f"{len(cases)} cases of {content['version']}")


if __name__ == "__main__":
    main()
