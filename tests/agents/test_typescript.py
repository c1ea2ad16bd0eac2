"""The TypeScript example through the gateway: compiled by `tsc`, run by this machine's node."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

from tests.promises.user import openai_at, provider, user

ROOT = Path(__file__).parents[2]
TSC = ROOT / ".venv" / "agents" / "node_modules" / "typescript" / "bin" / "tsc"
LIMITS = ("--rpm", "600", "--concurrent", "8", "--first-byte-s", "0.3", "--per-token-s", "0.005")


@pytest.mark.agents
def test_run_in_waves_meets_no_refusal_through_the_gateway(tmp_path: Path) -> None:
    out = tmp_path / "out"
    compile_ = ("node", str(TSC), "-p", str(ROOT / "examples/typescript"), "--outDir", str(out))
    subprocess.run(compile_, check=True)
    program = (out / "run_in_waves.js").rename(out / "run_in_waves.mjs")
    with provider(*LIMITS) as account, user(tmp_path / "u", openai_at(account, "waves")) as someone:
        someone.env["MODEL"] = "echo"
        alone = subprocess.run(
            ["node", str(program)], env=someone.env, capture_output=True, text=True, check=False
        )
        assert "429" in alone.stderr
        someone.env |= openai_at(account, "paced")
        paced = subprocess.run(
            [sys.executable, "-m", "headway", "gateway", "--", "node", str(program)],
            env=someone.env, cwd=someone.folder, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert paced.returncode == 0, paced.stderr
        assert re.findall(r"(\d+) agents", paced.stdout) == ["22", "22"]
        with urllib.request.urlopen(f"{account.url}/truth") as answer:
            accounts = json.load(answer)["accounts"].values()
        assert 44 in [one["accepted"] for one in accounts]
