"""The shared state as a folder: every key has a file, and what was changed there comes back."""

import os
import shutil
from pathlib import Path
from threading import RLock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headway.base import locks as owner
from headway.errors import StateError
from headway.plans.resources import KEY_CHARS_MAX, Channel, above, is_well_formed
from headway.state.context import LocalReach
from headway.state.folder import (
    VIEWS,
    StateFolder,
    UnfitError,
    key_of,
    names_of,
    seen_by,
    sweep,
)
from headway.state.shared import Channels, Shared, Snapshot, StateLook, canonical

CHANNELS = Channels({
    "total": Channel("counter"), "log/*": Channel("append"), "mail": Channel("effect", "m:f"),
})  # fmt: skip

ODD = st.sampled_from(["%", "%+", "%25", ".", "..", "a", "%2E", "é", "\N{GRINNING FACE}" * 120])
SEGMENTS = st.lists(ODD, min_size=1, max_size=8).map("".join)
KEYS = st.lists(SEGMENTS, min_size=1, max_size=4).map(lambda parts: "/".join(parts)[:KEY_CHARS_MAX])


def laid_out(folder: Path, values: dict[str, object], channels: Channels = CHANNELS) -> StateFolder:
    view = StateFolder(str(folder), "task", channels)
    view.lay_out(sorted((key, canonical(value)) for key, value in values.items()))
    return view


def reach(snapshot: Snapshot) -> LocalReach:
    return LocalReach(snapshot, RLock())


def file_of(view: StateFolder, name: str) -> Path:
    return Path(view.state) / name


@given(KEYS.filter(lambda key: not key.endswith("/")), st.booleans())
@settings(max_examples=300)
def test_every_key_has_a_path_of_its_own_that_leads_back_to_it(key: str, is_folder: bool) -> None:
    names = names_of(key, is_folder)
    assert key_of(names) == key
    for name in names:
        assert name not in ("", ".", "..")
        assert "/" not in name
        assert len(name.encode()) <= 255


@given(st.lists(st.text("%+2E5a.", min_size=1, max_size=6), min_size=1, max_size=4))
def test_a_path_that_leads_to_a_key_is_that_keys_or_an_alias_of_it(names: list[str]) -> None:
    key = key_of(names)
    if key is not None:
        assert key_of(names_of(key)) == key
        assert "" not in key.split("/")


@given(
    st.dictionaries(
        KEYS.filter(is_well_formed),
        st.one_of(st.text(st.characters(codec="utf-8"), max_size=20), st.integers(), st.none()),
        max_size=8,
    )
)
@settings(max_examples=60, deadline=None)
def test_what_nobody_changed_is_no_change(
    tmp_path_factory: pytest.TempPathFactory, values: dict[str, object]
) -> None:
    view = laid_out(tmp_path_factory.mktemp("run"), values, Channels())
    assert view.changes() == ([], [], [])
    view.remove()
    assert not os.path.exists(view.state)


STATES = st.dictionaries(
    st.sampled_from(["a", "a/b", "a/b/c", "%", "5%/x", "n", "n/%", "x" * 300, "y" * 240 + ".."]),
    st.text(st.characters(codec="utf-8"), max_size=8),
    max_size=6,
)


@given(STATES, STATES)
@settings(max_examples=80, deadline=None)
def test_whatever_a_command_makes_of_the_folder_comes_back_as_that(
    tmp_path_factory: pytest.TempPathFactory, before: dict[str, str], after: dict[str, str]
) -> None:
    view = laid_out(tmp_path_factory.mktemp("run"), dict(before), Channels())
    shutil.rmtree(view.state)
    folders = {folder for key in after for folder in above(key)}
    for key, value in after.items():
        path = Path(view.state, *names_of(key, key in folders))
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(value.encode() + b"\n")
    os.makedirs(view.state, exist_ok=True)
    put, removed, _ = view.changes()
    made = before | dict(put)
    assert {key: value for key, value in made.items() if key not in removed} == after
    view.remove()


def test_what_is_written_created_and_deleted_comes_back(tmp_path: Path) -> None:
    view = laid_out(tmp_path, {"kept": "x", "text": "old", "data": {"n": 1}, "gone": True})
    file_of(view, "text").write_text("new")
    file_of(view, "data").write_text('{\n  "n": 2\n}\n')
    os.remove(file_of(view, "gone"))
    os.mkdir(file_of(view, "more"))
    file_of(view, "more/6").write_text("6\n")
    file_of(view, "more/empty").touch()
    put, removed, _ = view.changes()
    assert put == [("data", {"n": 2}), ("more/6", "6"), ("more/empty", ""), ("text", "new")]
    assert removed == ["gone"]


def test_the_same_value_in_another_form_is_no_change(tmp_path: Path) -> None:
    view = laid_out(tmp_path, {"data": {"n": 1, "m": 2}, "text": "old"})
    file_of(view, "data").write_text('{ "m": 2, "n": 1 }')
    file_of(view, "text").write_text("old")
    assert view.changes() == ([], [], [])


def test_a_file_that_was_json_and_is_not_any_more_is_refused(tmp_path: Path) -> None:
    view = laid_out(tmp_path, {"data": [1]})
    for text in ("[1,", "NaN", '"\\ud800"', "[" * 100_000):
        file_of(view, "data").write_text(text)
        with pytest.raises(UnfitError, match=r"HEADWAY_STATE/data was JSON and is not any more"):
            view.changes()


def test_files_that_are_no_text_or_have_no_keys_name_are_refused(tmp_path: Path) -> None:
    cases = {b"bin": b"\xff", b"caf\xe9": b"x", b"50%": b"x", b"a*": b"x", b"a%+": b"x"}
    for name, data in cases.items():
        view = laid_out(tmp_path, {})
        with open(os.path.join(os.fsencode(view.state), name), "wb") as file:
            file.write(data)
        with pytest.raises(UnfitError):
            view.changes()
        view.remove()


def test_two_files_of_one_key_are_refused(tmp_path: Path) -> None:
    view = laid_out(tmp_path, {"a.b": "x"})
    file_of(view, "a%2Eb").write_text("y")
    with pytest.raises(UnfitError, match=r"two files are both `a.b`"):
        view.changes()


def test_links_and_pipes_are_refused_and_not_followed(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.mkdir()
    (secret / "key").write_text("s3cret")
    view = laid_out(tmp_path, {"a": "x"})
    for target in (secret / "key", secret):
        os.symlink(target, file_of(view, "link"))
        with pytest.raises(UnfitError, match="link is a symbolic link"):
            view.changes()
        os.remove(file_of(view, "link"))
    os.mkfifo(file_of(view, "pipe"))
    with pytest.raises(UnfitError, match="pipe is neither a file nor a folder"):
        view.changes()
    view.remove()
    assert (secret / "key").read_text() == "s3cret"


def test_a_folder_that_was_replaced_by_a_link_is_not_read(tmp_path: Path) -> None:
    view = laid_out(tmp_path, {"a": "x"})
    os.rename(view.state, f"{view.state}.away")
    os.symlink(f"{view.state}.away", view.state)
    with pytest.raises(UnfitError, match="cannot be read"):
        view.changes()


def test_what_is_too_long_or_too_deep_is_refused(tmp_path: Path) -> None:
    view = laid_out(tmp_path, {})
    with open(file_of(view, "big"), "wb") as file:
        file.truncate(17 * 1024 * 1024)
    with pytest.raises(UnfitError, match="has more than 16,777,216 bytes"):
        view.changes()
    os.remove(file_of(view, "big"))
    os.makedirs(file_of(view, "/".join("d" * 230)))
    with pytest.raises(UnfitError, match="220 folders within each other"):
        view.changes()


def test_more_than_a_folder_holds_asks_for_a_declaration(tmp_path: Path) -> None:
    view = StateFolder(str(tmp_path), "task", CHANNELS)
    with pytest.raises(StateError, match="cannot be shown") as caught:
        view.lay_out([(f"k/{n}", b"0") for n in range(100_001)])
    assert "reads: state:KEY" in str(caught.value.hint)


def test_lines_are_added_as_json_or_as_text(tmp_path: Path) -> None:
    view = laid_out(tmp_path, {"total": 3})
    (Path(view.put) / "total").write_text("2\n5")
    (Path(view.put) / "log" / "a").write_text('{"n": 1}\n\nplain words\nNaN\n')
    (Path(view.put) / "mail").write_text('"hello"\n')
    assert view.changes()[2] == [
        ("log/a", {"n": 1}), ("log/a", "plain words"), ("log/a", "NaN"), ("mail", "hello"),
        ("total", 2), ("total", 5),
    ]  # fmt: skip


def test_values_are_not_added_and_channels_that_combine_are_not_written(tmp_path: Path) -> None:
    view = laid_out(tmp_path, {"total": 3, "name": "x"})
    (Path(view.put) / "name").write_text("y\n")
    with pytest.raises(UnfitError, match=r"write it to \$HEADWAY_STATE/name"):
        view.changes()
    os.remove(Path(view.put) / "name")
    os.remove(file_of(view, "total"))
    with pytest.raises(UnfitError, match=r"write a line to \$HEADWAY_PUT/total"):
        view.changes()


def test_a_command_sees_what_it_declares_and_that_is_what_it_has_read() -> None:
    shared = Shared(CHANNELS, {"a": b"1", "b": b"2", "r/1": b"3", "r/1/x": b"4", "s/1": b"5"})
    declared = Snapshot(shared, 5)
    assert seen_by(reach(declared), ("a", "r/*", "missing")) == [("a", b"1"), ("r/1", b"3")]
    assert [seen.what for seen in declared.access().reads] == [
        "a", "a/**", "r/*", "missing", "missing/**",
    ]  # fmt: skip
    folder = Snapshot(shared, 5)
    assert [key for key, _ in seen_by(reach(folder), ("r",))] == ["r/1", "r/1/x"]
    whole = Snapshot(shared, 5)
    assert len(seen_by(reach(whole), None)) == 5
    (seen,) = whole.access().reads
    assert isinstance(seen, StateLook)
    assert seen.what == "**"


def test_a_folder_goes_whatever_its_command_did_to_it(tmp_path: Path) -> None:
    view = laid_out(tmp_path, {"a/b": "x"})
    os.chmod(file_of(view, "a"), 0)
    view.remove()
    assert os.listdir(tmp_path / VIEWS) == []


def test_what_killed_processes_left_is_removed_and_what_lives_is_left_alone(tmp_path: Path) -> None:
    names = ("mine", "dead", "alive", "no run at all")
    mine, dead, alive, stranger = every = tuple(tmp_path / name for name in names)
    for run in every:
        run.mkdir()
        laid_out(run, {"a": "x"})
    owner.drop(owner.take(str(dead)))
    handles = [owner.take(str(run)) for run in (mine, alive)]
    sweep(str(mine))
    sweep(str(mine))
    assert [run.name for run in every if os.path.exists(run / VIEWS)] == [alive.name, stranger.name]
    for handle in handles:
        owner.drop(handle)
