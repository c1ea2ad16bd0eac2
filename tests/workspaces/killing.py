"""A run of six tasks in workspaces, killed with -9 at drawn moments and gone on with until done."""

from __future__ import annotations

import os
import random
import signal
import subprocess
from collections import Counter
from contextlib import suppress
from pathlib import Path
from time import monotonic, sleep
from typing import Final

from tests.promises.user import until
from tests.workspaces.orders import FILES, draw
from tests.workspaces.peers import serial
from tests.workspaces.stage import Scene, difference, staged

TASKS: Final = ("one", "two", "three", "four", "five", "six")
VICTIMS: Final = ("headway", "headway", "all", "any", "any", "agent")
RESUMED_AT_MOST: Final = 12
WITHIN_S: Final = 600.0


def mounts() -> list[str]:
    """Where something is mounted, as everyone on this machine sees it."""
    return sorted(line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines())


def killed(root: Path, seed: int, kills: int) -> Counter[str]:
    """One run with so many kills; whom they hit. The end is asserted."""
    chance, hit = random.Random(seed), Counter[str]()
    program = draw(seed, TASKS)
    before = mounts()
    with staged(root) as scene:
        spare = root / "spare"
        spare.mkdir()
        scene.user.env["TMPDIR"] = str(spare)
        alone = {name: scene.script(f"{name}-alone", text) for name, text in program.alone.items()}
        for name, text in program.slow.items():
            scene.script(name, text)
        tasks = "".join(
            f"  {name}:\n    agent: scripted\n    prompt: Please perform {name}.\n"
            for name in TASKS
        )
        scene.repository(FILES, f"headway: 1\nland: exact\nretries: 20\ntasks:\n{tasks}")
        right = serial(scene, root / "serial", alone)
        untouched = scene.tree()
        words: tuple[str, ...] = ("run", "plan.yaml", "--yes", "-j", "6")
        for _ in range(kills):
            process = scene.user.start(*words, stdout=subprocess.DEVNULL)
            whom = _kill(scene, process, chance)
            hit[whom] += 1
            if _has_begun(scene):
                words = ("resume", "last", "--yes")
            assert scene.tree() == untouched, f"{whom} was killed, and the checkout has changed"
        _finish(scene, words)
        applied = scene.apply()
        assert applied.returncode == 0, applied.stderr
        wrong = difference(scene.tree(), right.tree)
        assert not wrong, f"seed {seed}, {hit}: {wrong}"
        until(lambda: mounts() == before)
        until(lambda: not set(scene.user.processes()) - _brokers(scene))
        assert not list(spare.iterdir()), "left behind in the folder for temporary files"
        doctor = scene.headway("doctor")
        assert "stray" not in doctor.stdout or "no stray" in doctor.stdout, doctor.stdout
    return hit


def _kill(scene: Scene, process: subprocess.Popen[str], chance: random.Random) -> str:
    """Kill someone at a drawn moment; whom, or nothing if the run was over before."""
    until_s = monotonic() + chance.uniform(0.0, 4.0)
    while process.poll() is None and monotonic() < until_s:
        sleep(0.01)
    whom = chance.choice(VICTIMS)
    found = scene.user.processes()
    agents = [pid for pid, words in found.items() if " -ec " in words]
    if process.poll() is not None:
        process.communicate()
        return "nothing"
    match whom:
        case "agent" | "any" if others := (agents if whom == "agent" else sorted(found)):
            _kill_one(chance.choice(others))
            sleep(chance.uniform(0.0, 1.0))
        case "all":
            for pid in found:
                _kill_one(pid)
    _kill_one(process.pid)
    process.communicate()
    # What headway alone was running ends with it.
    until(lambda: not [1 for words in scene.user.processes().values() if " -ec " in words])
    return whom


def _kill_one(pid: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def _has_begun(scene: Scene) -> bool:
    return any(Path(scene.user.env["HEADWAY_STATE_DIR"]).glob("runs/*/journal.db"))


def _finish(scene: Scene, words: tuple[str, ...]) -> None:
    said = []
    for _ in range(RESUMED_AT_MOST):
        done = scene.headway(*words, within_s=WITHIN_S)
        if done.returncode == 0:
            return
        said.append(done.stderr)
        words = ("resume", "last", "--yes")
    raise AssertionError(f"never done: {said[-1]}")


def _brokers(scene: Scene) -> set[int]:
    return {pid for pid, words in scene.user.processes().items() if "broker" in words}
