"""Whatever order the steps of tasks happen in, what lands is what the serial run leaves behind."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.workspaces.orders import FILES, TASKS, VERIFY, draw
from tests.workspaces.peers import passes, serial
from tests.workspaces.stage import difference, staged

ORDERS = 200


def judge(root: Path, seed: int, land: str) -> None:
    program = draw(seed)
    with staged(root) as scene:
        verify = scene.script("verify", VERIFY)
        alone = {name: scene.script(f"{name}-alone", text) for name, text in program.alone.items()}
        for name, text in program.at_once.items():
            scene.script(name, text)
        line = f"    verify: {verify}\n" if land == "verified" else ""
        tasks = "".join(
            f"  {name}:\n    agent: scripted\n    prompt: Please perform {name}.\n{line}"
            for name in TASKS
        )
        scene.repository(FILES, f"headway: 1\nland: {land}\ntasks:\n{tasks}")
        right = serial(scene, root / "serial", alone)
        assert passes(scene, root / "judged", right.tree, verify)
        done = scene.run("-j", "5")
        said = done.stdout + done.stderr
        assert done.returncode == 0, said
        assert scene.apply().returncode == 0, scene.ran[-1].stderr
        assert passes(scene, root / "judged", scene.tree(), verify), said
        if land == "exact":
            wrong = difference(scene.tree(), right.tree)
            assert not wrong, f"{wrong}\n{said}"
        starts = {name: scene.gate.starts()[name] for name in TASKS}
        assert max(starts.values()) <= 2, starts


@pytest.mark.soak
@pytest.mark.parametrize("land", ["exact", "verified"])
@pytest.mark.parametrize("seed", range(1, ORDERS))
def test_every_order_of_steps_ends_as_the_serial_run(tmp_path: Path, seed: int, land: str) -> None:
    judge(tmp_path, seed, land)


@pytest.mark.parametrize("land", ["exact", "verified"])
def test_one_order_of_steps_ends_as_the_serial_run(tmp_path: Path, land: str) -> None:
    judge(tmp_path, 0, land)
