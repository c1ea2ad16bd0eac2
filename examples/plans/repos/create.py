"""Makes fifty small repositories, the same ones every time: `python3 create.py FOLDER`.

Which of their dependencies are out of date is what `outdated` says.
"""

from __future__ import annotations

import random
import sys
from pathlib import Path

COUNT = 50
LATEST = {
    "aiohttp": "3.14.1", "attrs": "26.1.0", "boto": "2.49.0", "click": "9.0.2", "django": "6.1.3",
    "fastapi": "0.140.0", "flask": "4.0.1", "jinja": "3.2.0", "numpy": "2.5.1", "pandas": "3.1.0",
    "pillow": "13.0.0", "pydantic": "2.15.4", "pyyaml": "6.1.0", "redis": "8.0.1",
    "requests": "3.0.2", "rich": "15.0.1", "sqlalchemy": "2.2.3", "urllib": "2.9.0",
}  # fmt: skip
"""What `latest.txt` says, too."""


def pins(number: int) -> dict[str, str]:
    """What one repository has pinned, by package; about a third of it is old."""
    chance = random.Random(number)
    wanted = sorted(chance.sample(sorted(LATEST), chance.randint(4, 12)))
    return {
        name: LATEST[name] if chance.random() < 0.65
        else f"{chance.randint(0, 1)}.{chance.randint(0, 9)}.{chance.randint(0, 9)}"
        for name in wanted
    }  # fmt: skip


def outdated(number: int) -> dict[str, str]:
    """Of its packages those that are not the latest, and what they are."""
    return {name: pin for name, pin in pins(number).items() if pin != LATEST[name]}


def create(folder: Path, number: int) -> None:
    """One repository."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "README.md").write_text(f"# Repository {number}\n")
    lines = [f"{name}=={pin}\n" for name, pin in pins(number).items()]
    (folder / "requirements.txt").write_text("".join(lines))


if __name__ == "__main__":
    count = int(sys.argv[2]) if len(sys.argv) > 2 else COUNT
    for number in range(count):
        create(Path(sys.argv[1]) / f"repository-{number:02}", number)
