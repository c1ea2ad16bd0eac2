"""An effect's command reads its whole payload, at whatever moment headway is killed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.promises.disk import mounted
from tests.promises.user import until, user

LARGE = 300_000
"""More bytes than a pipe holds: who writes them needs a reader."""

KILLS_HEADWAY = """\
got="$PROJECT/got/$HEADWAY_EFFECT_KEY.$$"
if [ -e "$PROJECT/killed" ]; then cat > "$got.part"; else
touch "$PROJECT/killed"; kill -9 $PPID; cat > "$got.part"; fi
mv "$got.part" "$got"
"""


@pytest.mark.parametrize("size", [10, LARGE])
def test_a_kill_at_the_start_of_an_effect_leaves_its_payload_whole(
    tmp_path: Path, size: int
) -> None:
    with user(tmp_path) as ada:
        (ada.folder / "got").mkdir()
        ada.env["PROJECT"] = str(ada.folder)
        ada.write("send.sh", KILLS_HEADWAY)
        ada.write(
            "plan.yaml",
            "headway: 1\nname: shop\nstate:\n  mail: effect(. ./send.sh)\ntasks:\n  tell:\n"
            f"    writes: effect:mail\n    run: printf '\"%0{size}d\"' 0 > $HEADWAY_PUT/mail\n",
        )
        got = ada.folder / "got"
        assert ada.headway("run", "plan.yaml").returncode == -9
        until(lambda: len(received(got)) == 1)
        ended = ada.headway("resume", "last")
        assert ended.returncode == 0, ended.stderr
        files = received(got)
        assert len(files) == 2, "the effect in doubt is performed again"
        assert len({path.name.partition(".")[0] for path in files}) == 1, "under the same key"
        assert [json.loads(path.read_text() or '"empty"') for path in files] == ["0" * size] * 2


def test_an_effect_without_room_for_its_payload_names_the_disk(
    tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    with mounted(tmp_path / "disk", 1, request) as disk, user(tmp_path / "user") as ada:
        ada.env["TMPDIR"] = str(disk)
        ada.write(
            "plan.yaml",
            "headway: 1\nstate:\n  mail: effect(cat)\ntasks:\n  tell:\n"
            "    writes: effect:mail\n    run: printf '\"%02000000d\"' 0 > $HEADWAY_PUT/mail\n",
        )
        ended = ada.headway("run", "plan.yaml")
        assert ended.returncode == 1, ended.stderr
        assert f"the disk of {disk} is full" in ended.stderr
        ada.env["TMPDIR"] = str(tmp_path)
        assert ada.headway("resume").returncode == 0


def received(folder: Path) -> list[Path]:
    return [path for path in folder.iterdir() if not path.name.endswith(".part")]
