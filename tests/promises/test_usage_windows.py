"""Usage windows over HTTP, as a user meets them: `headway sim serve --window`."""

from __future__ import annotations

import time
from pathlib import Path

from tests.promises.user import provider, until, user

SERVED = ("--window", "1d=1000", "--first-byte-s", "0.02", "--per-token-s", "0",
          "--model", "tokens-100")  # fmt: skip
PLAN = f"""\
headway: 1
model: anthropic/tokens-100
tasks:
  ask:
    each: {[*range(120)]}
    prompt: "Say {{{{ item }}}}."
    max_tokens: 200
"""


def test_a_run_that_waits_for_a_reset_tries_the_window_after_limits_refresh(tmp_path: Path) -> None:
    with provider(*SERVED) as served, user(tmp_path) as someone:
        someone.env |= {"ANTHROPIC_BASE_URL": served.url, "ANTHROPIC_API_KEY": "k"}
        someone.write("plan.yaml", PLAN)
        run = someone.start("run", "plan.yaml", "--yes", "-q", "--window-share", "100%",
                            "--wait", "2d")  # fmt: skip
        until(lambda: "waiting, process" in someone.headway("status").stdout)
        before = len(served.truth()["arrivals"])
        assert someone.headway("limits", "refresh").returncode == 0
        until(lambda: len(served.truth()["arrivals"]) > before)
        until(lambda: "waiting, process" in someone.headway("status").stdout)
        assert len(served.truth()["arrivals"]) == before + 1, "one call finds out"
        assert run.poll() is None


QUIET_S = 25.0
"""From the start of a run to the quiet hours, as a user's clock shows them."""


def test_a_run_waits_for_quiet_hours_and_begins_then(tmp_path: Path) -> None:
    with provider("--first-byte-s", "0.02", "--per-token-s", "0") as served, user(tmp_path) as one:
        quiet_s = time.time() + QUIET_S
        west_s = round(quiet_s) % 86_400 - 22 * 3_600
        west = f"{abs(west_s) // 3_600}:{abs(west_s) % 3_600 // 60}:{abs(west_s) % 60}"
        one.env |= {"TZ": f"LMT{'-' if west_s < 0 else '+'}{west}",
                    "ANTHROPIC_BASE_URL": served.url, "ANTHROPIC_API_KEY": "k"}  # fmt: skip
        one.write("plan.yaml", PLAN)
        words = ("run", "plan.yaml", "--yes", "--when", "quiet", "--finish-by", "in 2h")
        run = one.start(*words)
        until(lambda: "waiting" in one.headway("status").stdout)
        while time.time() < quiet_s - 1.0:
            assert not served.truth()["arrivals"]
            time.sleep(0.5)
        _, said = run.communicate(timeout=60.0)
        assert "quiet hours begin then" in said
        assert run.returncode == 0
        assert len(served.truth()["arrivals"]) == 120
