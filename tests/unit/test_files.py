"""The text of a file for a plan: whole, a text, from the plan's folder, and no key."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from headway.errors import ForeignPlanError
from headway.files import TEXT_BYTES_MAX, text, within
from headway.plans.untrusted import READER, Disk, PlanPermissions, check_foreign
from headway.work import AttemptError
from tests.unit.plan_texts import spec_of


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    here = tmp_path / "plan"
    (here / "src").mkdir(parents=True)
    (here / "src" / "a.py").write_text("print('ä')\n", encoding="utf-8")
    return here


def problem_of(folder: Path, path: object) -> str:
    with within(str(folder)), pytest.raises(AttemptError) as raised:
        text(path)
    assert raised.value.fault.kind == "request"
    return str(raised.value.fault.detail)


def test_a_file_is_given_as_it_is(folder: Path) -> None:
    with within(str(folder)):
        assert text("src/a.py") == "print('ä')\n"


@pytest.mark.parametrize("path", ["../secret.md", "/etc/hostname", "src/../../secret.md"])
def test_nothing_outside_of_the_folder_is_read(folder: Path, path: str) -> None:
    (folder.parent / "secret.md").write_text("secret")
    assert "leads out" in problem_of(folder, path)


def test_no_link_leads_out_of_the_folder(folder: Path) -> None:
    (folder.parent / "secret.md").write_text("secret")
    os.symlink("../secret.md", folder / "link.md")
    os.symlink("..", folder / "up")
    assert "by a link" in problem_of(folder, "link.md")
    assert "by a link" in problem_of(folder, "up/secret.md")


@pytest.mark.parametrize("path", [".env", ".git/config", "deploy/id_rsa", "secrets.json"])
def test_what_may_hold_a_key_is_not_read_by_its_name_nor_by_another(
    folder: Path, path: str
) -> None:
    (folder / path).parent.mkdir(exist_ok=True)
    (folder / path).write_text("key")
    os.symlink(folder / path, folder / "harmless.md")
    said = problem_of(folder, path)
    assert said.endswith(("is hidden", "may hold a key or a password"))
    assert problem_of(folder, "harmless.md").endswith(("is hidden", "may hold a key or a password"))


def test_what_is_no_text_is_a_fault(folder: Path) -> None:
    (folder / "picture.png").write_bytes(b"\x89PNG\0\0")
    (folder / "latin.txt").write_bytes(b"gr\xfc\xdfe")
    assert "not a text" in problem_of(folder, "picture.png")
    assert "not a text in UTF-8" in problem_of(folder, "latin.txt")
    assert "folder" in problem_of(folder, "src")
    assert problem_of(folder, "nowhere.md")
    assert "no path of a file, but dict" in problem_of(folder, {"path": "a"})


def test_a_plan_that_an_agent_wrote_may_use_it() -> None:
    plan = f"headway: 1\ntasks:\n  read: {{each: 'src/*.py', python: '{READER}'}}\n"
    disk = Disk(lambda path: False)
    check_foreign(spec_of(plan), PlanPermissions(), disk)
    with pytest.raises(ForeignPlanError):
        check_foreign(spec_of(plan.replace(":text", ":within")), PlanPermissions(), disk)


def test_what_is_too_large_is_not_cut_but_refused(folder: Path) -> None:
    (folder / "large.txt").write_text("x" * (TEXT_BYTES_MAX + 1))
    assert "1,000,001 bytes: a text has at most 1,000,000" in problem_of(folder, "large.txt")
