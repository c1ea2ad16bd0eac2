"""A plan's file is read within bounds, its folder is not left, and its hints can be carried out."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from headway.errors import Fix, Place, PlanError, PlanFileError
from headway.plans import document as document_module
from headway.plans import load as load_module
from headway.plans.document import parse_document
from headway.plans.load import load_plan, plan_from
from headway.plans.spec import DocumentList, Leaf, Located, Scalar


def plain(node: Located) -> object:
    match node:
        case Leaf():
            return node.value
        case DocumentList():
            return [plain(item) for item in node.items]
    return {key.text: plain(value) for key, value in node.pairs}


def read(text: str, name: str = "plan.yaml") -> Located:
    return parse_document(text, name, is_json=name.endswith(".json")).root


def refused(text: str, name: str = "plan.yaml") -> PlanError:
    with pytest.raises(PlanFileError) as caught:
        read(text, name)
    return caught.value


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1", 1), ("-5", -5), ("0.5", 0.5), ("1e3", 1000.0), ("1e999", "1e999"), ("007", 7),
        ("true", True), ("False", False), ("yes", "yes"), ("no", "no"), ("on", "on"),
        ("null", None), ("~", None), ("'null'", "null"), ('"5"', "5"), ("0x10", "0x10"),
        ("1_000", "1_000"), ("2026-11-16", "2026-11-16"), (".5", 0.5), ("1.", 1.0), (".", "."),
    ],
)  # fmt: skip
def test_words_are_text_unless_they_are_numbers_truths_or_nothing(text: str, value: Scalar) -> None:
    assert plain(read(text)) == value


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "empty"),
        ("# nothing", "empty"),
        ("a: *x", "`x` is an anchor"),
        ("a: &x 1", "`x` is an anchor"),
        ("a: &x [1]\nb: *x", "`x` is an anchor"),
        ("a: !!python/object/apply:os.system [x]", "is a tag"),
        ("a: !mine 1", "is a tag"),
        ("a: {<<: b}", "merges mappings"),
        ("? [a]\n: b", "a key is a word"),
        ("a: 1\n---\nb: 2", "one document"),
        ("a: [", "not YAML"),
        ("a: b: c", "not YAML"),
        ("a:\n\tb: 1", "begins with a tab"),
        ("\0", "neither YAML nor JSON"),
        ("a: \x07", "neither YAML nor JSON"),
        ("[" * 40 + "]" * 40, "nested more than"),
        ("[" * 100_000, "nested more than"),
        ('a: "\\ud83d"', "half of a character"),
        ("a: 1\na: 2", "`a` is there twice"),
    ],
)
def test_what_a_plan_does_not_need_is_refused_with_its_place(text: str, message: str) -> None:
    error = refused(text)
    assert message in error.message
    assert (error.where or "").startswith("plan.yaml")


def test_broken_json_is_refused_with_its_place() -> None:
    error = refused('{"a": 1,\n}', "plan.json")
    assert (error.where, "not JSON" in error.message) == ("plan.json:2:1", True)


def test_a_file_has_only_so_many_values(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(document_module, "NODES_MAX", 10)
    assert "more than 10 values" in refused("[1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11]").message


def test_keys_that_are_there_twice_are_told_together_and_can_go() -> None:
    error = refused("a: 1\nb: {c: 1, c: 2}\na:\n  x: 1\nd: 1\n")
    fixes = [fix for one in (error, *error.others) for fix in one.fixes]
    assert fixes == [Fix("remove", Place(2, 11)), Fix("remove", Place(3, 1))]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A project with files of all kinds, inside a folder with a secret."""
    made = tmp_path / "project"
    for name in ("src/a.py", "src/deep/er/b.py", "src/.hidden.py", "src/c.txt", "src/[id].py"):
        (made / name).parent.mkdir(parents=True, exist_ok=True)
        (made / name).write_text("x")
    (tmp_path / "secret.md").write_text("secret")
    os.symlink(tmp_path / "secret.md", made / "link.md")
    os.symlink(tmp_path, made / "out")
    os.symlink(made / "src" / "a.py", made / "src" / "again.py")
    (made / "lines.txt").write_text("\ufeffone\n\n two \r\nthree")
    (made / "prompt.md").write_text("Review {{ item }}\n and {{ vars.tone }}")
    (made / "schema.json").write_text("{}")
    (made / "bad.json").write_text("[")
    (made / "empty.txt").write_text("\n")
    (made / "binary.md").write_bytes(b"\xff\xfe\x00")
    return made


def plan(folder: Path, *lines: str, top: str = "") -> list[str]:
    """The labels of the last task of a plan."""
    body = "".join(f"    {line}\n" for line in lines)
    text = f"headway: 1\n{top}tasks:\n  one: {{run: x}}\n  t:\n{body}"
    group = plan_from(text, folder).expanded.groups[-1]
    return [group.label(index) for index in range(group.count or 0)]


def fault(folder: Path, *lines: str, top: str = "") -> PlanError:
    with pytest.raises(PlanError) as caught:
        plan(folder, *lines, top=top)
    assert (caught.value.hint is None) == (not caught.value.fixes)
    return caught.value


@pytest.mark.parametrize(
    ("pattern", "names"),
    [
        ("src/*.py", ["src/[id].py", "src/a.py", "src/again.py"]),
        ("src/**/*.py", ["src/[id].py", "src/a.py", "src/again.py", "src/deep/er/b.py"]),
        ("**/b.py", ["src/deep/er/b.py"]),
        ("src/**/**/b.py", ["src/deep/er/b.py"]),
        ("src/.*.py", ["src/.hidden.py"]),
        ("./src//c.*", ["src/c.txt"]),
        ("src/deep/**", ["src/deep/er/b.py"]),
        ("**/er/?.py", ["src/deep/er/b.py"]),
        ("schema.json", ["schema.json"]),
    ],
)
def test_a_pattern_gives_files_in_order(folder: Path, pattern: str, names: list[str]) -> None:
    assert plan(folder, f"each: '{pattern}'", "run: x") == [f"t[{name}]" for name in names]


@pytest.mark.parametrize(
    "pattern", ["../*", "/etc/*", "src/*.rs", "out/*", "link*", "**/*secret*", "src/../../*"]
)
def test_a_pattern_does_not_leave_the_folder(folder: Path, pattern: str) -> None:
    assert fault(folder, f"each: '{pattern}'", "run: x").code == "HW011"


def test_lines_are_items(folder: Path) -> None:
    assert plan(folder, "each: {lines: lines.txt}", "run: x") == ["t[one]", "t[two]", "t[three]"]


@pytest.mark.parametrize(
    ("lines", "message", "hint"),
    [
        (("each: {lines: line.txt}", "run: x"), "is not there", "did you mean `lines.txt`?"),
        (("each: {lines: empty.txt}", "run: x"), "has 0 lines", None),
        (("each: {lines: src}", "run: x"), "is not a file", None),
        (("each: 'oe*'", "run: x"), "is no task, and matches no file", "did you mean `one`?"),
        (("prompt_file: promt.md",), "is not there", "did you mean `prompt.md`?"),
        (("prompt_file: ../secret.md",), "leads out", "did you mean `secret.md`?"),
        (("prompt_file: link.md",), "leads out", None),
        (("prompt_file: out/secret.md",), "leads out", None),
        (("prompt_file: binary.md",), "is not UTF-8", None),
        (('prompt_file: "a\\u0001"',), "is not there", None),
        (("prompt: x", "schema: bad.json"), "not a JSON Schema", None),
        (("prompt: x", "schema: lines.txt"), "not a JSON Schema", None),
    ],
)
def test_what_cannot_be_read_is_told_with_the_nearest_name(
    folder: Path, lines: tuple[str, ...], message: str, hint: str | None
) -> None:
    error = fault(folder, *lines)
    assert message in error.message
    assert error.hint == hint


def test_texts_have_a_bound(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "p").mkdir()
    for name in "ab":
        (folder / "p" / name).write_text("x" * 50)
    lines = ("prompt_file: 'p/{{ item }}'", "each: [a, b]")
    assert len(plan(folder, *lines)) == 2
    monkeypatch.setattr(load_module, "TEXTS_MAX", 1)
    assert "one too many" in fault(folder, *lines).message
    monkeypatch.setattr(load_module, "TEXT_BYTES_MAX", 10)
    assert "larger than 10 bytes" in fault(folder, *lines).message


def test_the_template_of_a_prompts_file_is_checked_there(folder: Path) -> None:
    error = fault(folder, "prompt_file: prompt.md", "each: [a]", top="vars: {tune: x}\n")
    assert (error.code, error.where) == ("HW009", "prompt.md:2:6")
    assert error.hint == "did you mean `vars.tune`?"
    (fix,) = error.fixes
    assert fix.file == "prompt.md"
    (folder / fix.file).write_text(str(fix.value))
    assert plan(folder, "prompt_file: prompt.md", "each: [a]", top="vars: {tune: x}\n")
    (folder / "prompt.md").write_text("\n  {{ open")
    broken = fault(folder, "prompt_file: prompt.md")
    assert broken.where == "prompt.md:2:3"
    (folder / "prompt.md").write_text("{{ tasks.one.output }}")
    assert fault(folder, "prompt_file: prompt.md").hint == "add `needs: one`"


def test_a_plan_is_loaded_from_its_file(folder: Path) -> None:
    path = folder / "plan.json"
    path.write_text(json.dumps({"headway": 1, "tasks": {"a": {"run": "x"}}}))
    loaded = load_plan(path, "plan.json")
    assert (loaded.expanded.spec.name, loaded.folder) == ("plan", folder)
    assert loaded.text == path.read_text()


def test_a_file_that_is_no_plan_is_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, message in (
        ("nothing.yaml", "cannot be read"),
        ("src", "cannot be read"),
        ("binary.md", "not UTF-8"),
        ("x\0", "name of a file"),
    ):
        with pytest.raises(PlanFileError, match=message):
            load_plan(folder / name, "plan.yaml")
    monkeypatch.setattr(document_module, "FILE_BYTES_MAX", 1)
    with pytest.raises(PlanFileError, match="larger than 1 bytes"):
        load_plan(folder / "lines.txt")


def test_json_is_read_with_places_too() -> None:
    root = read('{\t"a": ["\\ud83d\\ude00", "\\/"]}', "plan.json")
    assert plain(root) == {"a": ["\N{GRINNING FACE}", "/"]}
