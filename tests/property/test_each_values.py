"""Whatever the values are, the text that a shell reads is the same."""

from __future__ import annotations

import subprocess

from hypothesis import example, given, settings
from hypothesis import strategies as st

from headway.errors import UsageError
from headway.plans.each import arrange
from headway.plans.shell import SHELL, read

VALUES = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=12)
REPLACED = st.sampled_from(("{}", "{.}", "{/}", "{//}", "{/.}", "{1}", "{-1}", "{#}"))
SPECIAL = st.sampled_from((*"'\"\\$`();|&<#x \n}", "$(", "$((", "${", "<<"))
WORDS = st.sampled_from(("sh ", " -c ", "eval ", "ssh ", "case ", "esac", "then ", "wc "))
PIECES = REPLACED | SPECIAL | WORDS
TEMPLATES = st.lists(PIECES, max_size=12).map("".join)
QUOTED = st.lists(
    st.sampled_from(["{}", "'{}'", '"{}"', "x", "'y z'", '"$(printf %s {})"', "\\{}", " "]),
    min_size=1,
    max_size=6,
).map("".join)


@given(TEMPLATES, VALUES, VALUES)
def test_a_script_does_not_depend_on_values(template: str, one: str, other: str) -> None:
    try:
        text = read(template)
    except UsageError:
        return
    if text.words is None:
        first, second = text.argv([one], 1), text.argv([other], 1)
        assert first[:4] == second[:4] == (SHELL, "-c", text.script(1), "sh")


@given(TEMPLATES, st.lists(VALUES, max_size=3))
def test_a_plan_is_refused_with_a_hint_or_every_task_can_be_shown(
    template: str, values: list[str]
) -> None:
    try:
        plan = arrange([template], [(values, False)], 2)
    except UsageError as refused:
        hint = refused.hint
    else:
        hint = "none is needed"
        for i in range(plan.count()):
            assert plan.argv(i)
            assert plan.display(i) is not None
    assert hint


@settings(max_examples=60, deadline=None)
@given(QUOTED, VALUES)
@example("'{}'", "'; exit 3; '")
@example('"{}"', "$(exit 3)")
@example("{}", "a\nb")
def test_a_shell_gives_programs_the_values_as_they_are(template: str, value: str) -> None:
    if not template.strip() or "{}" not in template:
        return
    text = read(f"printf '[%s]' {template}; :")
    done = subprocess.run(text.argv([value], 1), capture_output=True, check=False, timeout=20)
    assert done.returncode == 0
    assert done.stderr == b""
    if "$(" not in template:
        # A substitution loses newlines at its end; everything else arrives as it is.
        assert done.stdout.count(value.encode()) >= template.count("{}") or not value
