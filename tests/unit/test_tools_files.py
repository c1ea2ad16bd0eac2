"""The tools `files` never leave their folder, and write only what may be written."""

from __future__ import annotations

import asyncio
import os
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headway.agents import tools as tools_box
from headway.agents import tools as tools_files
from headway.agents.tools import ConfinedFolder, FileTools, ToolError, cut, must_be_installed
from headway.errors import UsageError

ESCAPES = (
    "..", "../secret", "a/../../secret", "/etc/passwd", "~/x", "out/secret", "out", "loop/x",
    "a/out/secret", "deep/../out/secret", "a\0b",
)  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a few files, and links that lead out of it."""
    (tmp_path / "secret").write_text("s3cret")
    here = tmp_path / "here"
    (here / "a").mkdir(parents=True)
    (here / "a" / "b.py").write_text("one\ntwo = 1\nthree\n")
    (here / "c.txt").write_text("two\n")
    (here / "out").symlink_to(tmp_path)
    (here / "a" / "out").symlink_to("../..")
    (here / "inner").symlink_to("a")
    (here / "loop").symlink_to("loop")
    return here


def use(folder: Path, name: str, writes: tuple[str, ...] | None = None, **given: object) -> str:
    return used(ConfinedFolder(str(folder), writes), name, **given)


def used(place: ConfinedFolder, name: str, **given: object) -> str:
    tools = {tool.name: tool for tool in FileTools(place).tools()}

    async def main() -> str:
        return await tools[name].use(given)

    return asyncio.run(main())


@pytest.mark.parametrize("path", ESCAPES)
def test_no_path_leads_out(folder: Path, path: str) -> None:
    given = {"path": path, "content": "x", "old": "s3cret", "new": "x", "text": "s3cret"}
    for name in ("read_file", "write_file", "list_files", "edit_file", "search"):
        with pytest.raises(ToolError):
            use(folder, name, None, **given)
    assert (folder.parent / "secret").read_text() == "s3cret"
    assert sorted(one.name for one in folder.parent.iterdir()) == ["here", "secret"]


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(st.lists(st.sampled_from(["..", ".", "a", "out", "inner", "new", "", "~"]), max_size=6))
def test_whatever_is_written_lies_within_the_folder(folder: Path, parts: list[str]) -> None:
    place = ConfinedFolder(str(folder))
    with suppress(ToolError):
        place.write("/".join(parts), "mine")
    assert (folder.parent / "secret").read_text() == "s3cret"
    outside = [one for one in folder.parent.rglob("new") if folder not in one.parents]
    assert outside == []


def test_a_link_that_stays_within_is_followed(folder: Path) -> None:
    assert use(folder, "read_file", path="inner/b.py") == "one\ntwo = 1\nthree\n"
    use(folder, "write_file", path="inner/b.py", content="x")
    assert (folder / "a" / "b.py").read_text() == "x"
    assert (folder / "inner").is_symlink()


def test_a_folder_that_becomes_a_link_meanwhile_is_not_followed(folder: Path) -> None:
    """The path was found to lie within; the folder is exchanged before it is opened."""
    place = ConfinedFolder(str(folder))
    parts = place.resolved("a/b.py")
    (folder / "a").rename(folder / "was-a")
    (folder / "a").symlink_to(folder.parent)
    with pytest.raises(OSError, match="a"), place.opened(parts[:-1]):
        pass


def test_only_what_is_declared_is_written(folder: Path) -> None:
    writes = ("a", "notes/*.md", "./c.txt")
    for path in ("a/new.py", "a/b/c", "notes/x.md", "c.txt"):
        use(folder, "write_file", writes, path=path, content="x")
        assert (folder / path).read_text() == "x"
    use(folder, "write_file", ("notes/**/*.md",), path="notes/deep/er/x.md", content="x")
    for path in ("b.py", "notes/x.py", "notes/deep/x.md", "ab", "../here/d"):
        with pytest.raises(ToolError):
            use(folder, "write_file", writes, path=path, content="x")
    with pytest.raises(ToolError, match="may write nothing"):
        use(folder, "edit_file", (), path="c.txt", old="x", new="y")
    # What is written is where a link leads, not what it is called.
    with pytest.raises(ToolError, match="not declared"):
        use(folder, "write_file", ("inner",), path="inner/b.py", content="x")


def test_a_plan_of_an_agent_meets_no_key_and_writes_nothing_that_programs_obey(
    folder: Path,
) -> None:
    (folder / ".env").write_text("KEY=1")
    (folder / "server.pem").write_text("KEY=2")
    (folder / "link.txt").symlink_to(folder / ".env")
    (folder / "notes.txt").write_text("KEY=3")
    place = ConfinedFolder(str(folder), is_foreign=True)
    for path in (".env", "server.pem", "link.txt"):
        with pytest.raises(ToolError, match="may not read it"):
            place.read(path)
    for path in (".env", "CLAUDE.md", "Makefile", "new/run.py"):
        with pytest.raises(ToolError, match="may not change it"):
            place.write(path, "x")
    assert place.read("notes.txt") == "KEY=3"
    assert place.write("new/notes.md", "x") is False
    assert used(place, "search", text="KEY") == "notes.txt:1: KEY=3"
    assert ConfinedFolder(str(folder)).read(".env") == "KEY=1"


def test_git_is_not_written_listed_or_searched(folder: Path) -> None:
    hooks = folder / ".git" / "hooks"
    hooks.mkdir(parents=True)
    (hooks / "sample").write_text("two")
    with pytest.raises(ToolError, match="git's own"):
        use(folder, "write_file", path=".git/hooks/pre-commit", content="#!/bin/sh")
    with pytest.raises(ToolError, match="git's own"):
        use(folder, "write_file", path="a/.Git/hooks/pre-commit", content="#!/bin/sh")
    assert ".git" not in use(folder, "list_files")
    assert ".git" not in use(folder, "search", text="two")


def test_folders_without_end_are_listed_and_searched_as_far_as_it_goes(folder: Path) -> None:
    here = os.open(folder, os.O_RDONLY)
    for _ in range(tools_files.FOLDERS_DEEP_MAX + 5):
        os.mkdir("n", dir_fd=here)
        below = os.open("n", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = below
    os.close(here)
    last = use(folder, "list_files", path="n").splitlines()[-1]
    assert last.endswith("/[what is further down is left out]")
    assert use(folder, "search", text="one").startswith("a/b.py:1")


def test_lines_of_a_file_are_read_and_what_is_left_out_is_said(folder: Path) -> None:
    assert use(folder, "read_file", path="a/b.py", from_line=2, lines=1) == (
        "two = 1\n\n[lines 2 to 2 of 3]"
    )
    (folder / "empty").touch()
    assert use(folder, "read_file", path="empty") == "[the file is empty]"
    (folder / "latin").write_bytes(b"caf\xe9")
    assert use(folder, "read_file", path="latin") == "caf\N{REPLACEMENT CHARACTER}"
    (folder / "binary").write_bytes(b"\0\1")
    os.mkfifo(folder / "pipe")
    for path, why in (
        ("binary", "not a text"), ("pipe", "not a file"), ("a", "folder"), (".", "folder"),
        ("none", "No such file"), ("c.txt/x", "no folder"),
    ):  # fmt: skip
        with pytest.raises(ToolError, match=why):
            use(folder, "read_file", path=path)


def test_a_file_is_replaced_whole_and_keeps_its_mode(folder: Path) -> None:
    path = folder / "run.sh"
    path.write_text("old")
    path.chmod(0o755)
    assert (
        use(folder, "write_file", path="run.sh", content="new") == "replaced run.sh: 3 characters"
    )
    assert (path.read_text(), path.stat().st_mode & 0o777) == ("new", 0o755)
    assert use(folder, "write_file", path="x/y/z", content="é") == "made x/y/z: 1 characters"
    assert not list(folder.rglob("*.draft"))
    with pytest.raises(ToolError, match="folder"):
        use(folder, "write_file", path="a", content="x")


def test_an_edit_replaces_what_occurs_once(folder: Path) -> None:
    (folder / "latin").write_bytes(b"caf\xe9 one\r\n")
    use(folder, "edit_file", path="latin", old="one", new="two")
    assert (folder / "latin").read_bytes() == b"caf\xe9 two\r\n"
    (folder / "twice").write_text("x x y")
    with pytest.raises(ToolError, match="occurs 2 times"):
        use(folder, "edit_file", path="twice", old="x", new="z")
    with pytest.raises(ToolError, match="there already"):
        use(folder, "edit_file", path="twice", old="q", new="y")
    with pytest.raises(ToolError, match="another one"):
        use(folder, "edit_file", path="twice", old="", new="y")


def test_files_are_listed_and_searched(folder: Path) -> None:
    assert use(folder, "list_files").splitlines() == [
        "a/", "a/b.py", "a/out", "c.txt", "inner", "loop", "out",
    ]  # fmt: skip
    assert use(folder, "list_files", path="a").splitlines() == ["a/b.py", "a/out"]
    assert use(folder, "search", text="two").splitlines() == ["a/b.py:2: two = 1", "c.txt:1: two"]
    assert use(folder, "search", text="two", files="*.txt") == "c.txt:1: two"
    assert use(folder, "search", text="s3cret") == "[nothing is found]"


def test_listings_and_searches_are_cut_and_say_so(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tools_files, "ENTRIES_MAX", 2)
    monkeypatch.setattr(tools_files, "MATCHES_MAX", 1)
    monkeypatch.setattr(tools_files, "FILE_BYTES_MAX", 10)
    assert use(folder, "list_files").splitlines()[2].startswith("[there are more than 2")
    (folder / "large").write_text("two" * 10)
    (folder / "d.txt").write_text("two")
    assert use(folder, "search", text="two").splitlines() == [
        "c.txt:1: two", "[there may be more: search in a folder, or in fewer files]",
    ]  # fmt: skip
    with pytest.raises(ToolError, match="larger than 10 bytes"):
        use(folder, "read_file", path="large")
    with pytest.raises(ToolError, match="too many"):
        use(folder, "write_file", path="new", content="x" * 11)


def test_a_text_that_is_cut_says_how_much_is_left_out() -> None:
    text = cut("a" * 50 + "b" * 100, 100)
    assert text.startswith("a" * 25 + "\n[... 50 of 150 characters are left out here ...]\n")
    assert text.endswith("b" * 75)
    assert cut("short") == "short"


def test_a_loop_whose_library_is_missing_is_refused_with_how_to_get_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    must_be_installed(("shell", "mcp:docs"))
    monkeypatch.setattr(tools_box, "find_spec", lambda name: None if name == "mcp" else object())
    must_be_installed(("shell", "files"))
    with pytest.raises(UsageError) as caught:
        must_be_installed(("shell", "mcp:docs"))
    assert caught.value.hint == "pip install 'headway[mcp]'"
