"""A template is read as a shell reads it, so that values never become part of its text."""

from __future__ import annotations

import pytest

from headway.errors import UsageError
from headway.plans.shell import NESTING_MAX, part_of, quoted, read
from tests.promises.templates import EXECUTING, HARMLESS


def script(template: str, count: int = 1) -> str:
    """The text for a shell, without the line that takes the parameters."""
    return read(template).script(count).rpartition("set --; ")[2]


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        ("echo {}; x", 'echo "${_hw1}"; x'),
        ('echo "a {} b"; x', 'echo "a ${_hw1} b"; x'),
        ("echo 'a {} b'; x", "echo 'a '\"${_hw1}\"' b'; x"),
        ("echo \\{}; x", 'echo "${_hw1}"; x'),
        ("echo \\\\{}; x", 'echo \\\\"${_hw1}"; x'),
        ('echo "\\{}"', 'echo "\\\\${_hw1}"'),
        ("echo {} {.} {}; x", 'echo "${_hw1}" "${_hw2}" "${_hw1}"; x'),
        ("echo $(wc {})", 'echo $(wc "${_hw1}")'),
        ('echo "$(wc "{}") {}"', 'echo "$(wc "${_hw1}") ${_hw1}"'),
        ("(cd {}; ls) | wc", '(cd "${_hw1}"; ls) | wc'),
        ("echo x # don't {}", "echo x # don't {}"),
        ("echo x # don't\necho {}", 'echo x # don\'t\necho "${_hw1}"'),
        ("echo x#{};", 'echo x#"${_hw1}";'),
        ("echo $((1 + {#})) {}", 'echo $((1 + ${_hw1})) "${_hw2}"'),
        ('echo "$HOME {}"', 'echo "$HOME ${_hw1}"'),
        ("echo \"$'{}'\"", "echo \"$'${_hw1}'\""),
        ("echo ${x:-${y}\\}} {}", 'echo ${x:-${y}\\}} "${_hw1}"'),
        ("echo `ls \\`pwd\\`` {}", 'echo `ls \\`pwd\\`` "${_hw1}"'),
        ("wc {} <<E\ndon't\nE", None),
        ("x=$(case {} in a) echo 1;; esac) y", 'x=$(case "${_hw1}" in a) echo 1;; esac) y'),
        ("if true; then echo {}; fi", 'if true; then echo "${_hw1}"; fi'),
        ("echo {3}x; y", "echo x; y"),
    ],
)
def test_a_value_is_quoted_for_the_place_it_is_in(template: str, expected: str | None) -> None:
    assert script(template) == (expected or 'wc "${_hw1}" <<E\ndon\'t\nE')


def test_several_arguments_are_several_words_unless_quoted() -> None:
    expected = 'echo x"${_hw1}" "${_hw2}"y "${_hw1} ${_hw2}" \'\'"${_hw1} ${_hw2}"\'\'; z'
    assert script("echo x{}y \"{}\" '{}'; z", count=2) == expected


def test_parameters_are_taken_and_then_forgotten() -> None:
    text = read("f() { echo $1; }; f {} {.} {#}")
    assert text.argv(["a.b"], 7) == (
        "/bin/sh",
        "-c",
        '_hw1=${1} _hw2=${2} _hw3=${3}; set --; f() { echo $1; }; f "${_hw1}" "${_hw2}" "${_hw3}"',
        "sh",
        "a.b",
        "a",
        "7",
    )


@pytest.mark.parametrize(
    ("template", "argv"),
    [
        ("wc -l {}", ("wc", "-l", "a b", "c")),
        ("wc x{}y", ("wc", "xa b", "cy")),
        ("wc 'x {}' \"{2}\" ''", ("wc", "x a b c", "c", "")),
        ("wc \\$ {3} '{3}' z{3}", ("wc", "$", "", "z")),
        ("wc {2}{1}", ("wc", "ca b")),
    ],
)
def test_a_plain_call_needs_no_shell(template: str, argv: tuple[str, ...]) -> None:
    assert read(template).argv(["a b", "c"], 1) == argv


@pytest.mark.parametrize(
    "template",
    ["echo {}", "X=1 wc {}", "{} x", "wc *{}", "wc {} \\\n", "wc {} \\", "wc {} # x", "wc ~{}"],
)
def test_what_a_shell_gives_a_meaning_to_is_left_to_a_shell(template: str) -> None:
    assert read(template).words is None
    assert read(template).argv(["a"], 1)[0] == "/bin/sh"


@pytest.mark.parametrize(
    ("template", "message"),
    [
        ("echo ${}", "variable's name"),
        ('echo "${1}"', "variable's name"),
        ("echo $(({} + 1))", "arithmetic"),
        ("echo $((1 + 1", "not closed"),
        ("echo ${x:-{}}", "within"),
        ("echo ${x", "not closed"),
        ("echo `wc {}`", "backticks"),
        ("echo `wc", "not closed"),
        ("echo $'a' {}", "different shells"),
        ("cat <<E\n{}\nE", "here-document"),
        ("echo 'a {}", "single quote"),
        ('echo "a {}', "double quote"),
        ("echo $(wc {}", "parenthesis"),
        ("echo {%}", "not known"),
        ("echo \0 {}", "zero byte"),
        ("(" * (NESTING_MAX + 1), "too deep"),
    ],
)
def test_what_cannot_be_kept_apart_is_refused(template: str, message: str) -> None:
    with pytest.raises(UsageError, match=message) as refused:
        read(template)
    assert refused.value.hint
    assert refused.value.where


@pytest.mark.parametrize(
    ("value", "part", "expected"),
    [
        ("d/a.b.c", "", "d/a.b.c"),
        ("d/a.b.c", ".", "d/a.b"),
        ("d.e/f", ".", "d.e/f"),
        ("d/a.b", "/", "a.b"),
        ("d/a.b", "/.", "a"),
        ("d/e/a.b", "//", "d/e"),
        ("a", "//", "."),
        ("/a", "//", "/"),
        ("/", "//", "/"),
        ("", "//", "."),
        ("a//b/", "//", "a"),
    ],
)
def test_parts_of_a_value(value: str, part: str, expected: str) -> None:
    assert part_of(value, part) == expected


@pytest.mark.parametrize(
    ("value", "expected"),
    [("a-b_c.d+/1", "a-b_c.d+/1"), ("", "''"), ("a b", "'a b'"), ("it's", "'it'\"'\"'s'")],
)
def test_a_value_is_shown_as_parallel_shows_it(value: str, expected: str) -> None:
    assert quoted(value) == expected


@pytest.mark.parametrize("template", [template for template, _ in EXECUTING])
def test_a_value_is_refused_where_it_would_be_executed(template: str) -> None:
    with pytest.raises(UsageError) as refused:
        read(template)
    assert refused.value.hint


@pytest.mark.parametrize("template", HARMLESS)
def test_harmless_templates_are_accepted(template: str) -> None:
    assert read(template).argv(["a"], 1)
