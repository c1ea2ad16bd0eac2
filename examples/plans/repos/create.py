"""Makes fifty small repositories, the same ones every time: `python3 create.py FOLDER`."""

import random
import sys
from pathlib import Path

COUNT = 50
PACKAGES = ("aiohttp", "numpy", "pyyaml", "requests", "rich", "sqlalchemy")


def create(folder: Path, number: int) -> None:
    """One repository; what it lacks depends on its number only."""
    chance = random.Random(number)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "README.md").write_text(f"# Repository {number}\n")
    if chance.random() < 0.7:
        (folder / "LICENSE").write_text("Apache-2.0\n")
    wanted = chance.sample(PACKAGES, chance.randint(0, 4))
    lines = [name if chance.random() < 0.3 else f"{name}==1.{chance.randint(0, 9)}"
             for name in wanted]  # fmt: skip
    (folder / "requirements.txt").write_text("".join(f"{line}\n" for line in lines))
    for module in range(chance.randint(1, 4)):
        functions = chance.randint(1, 5)
        text = "".join(f"def f{n}():\n    return {n}\n\n\n" for n in range(functions))
        (folder / f"module_{module}.py").write_text(text)


if __name__ == "__main__":
    for number in range(COUNT):
        create(Path(sys.argv[1]) / f"repository-{number:02}", number)
