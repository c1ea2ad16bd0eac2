"""Text with holes: names are filled in, nothing is computed."""

from __future__ import annotations

import pytest

from headway.plans.template import (
    Broken,
    Template,
    parse_template,
)


def parsed(text: str) -> Template:
    found = parse_template(text)
    assert isinstance(found, Template)
    return found


def broken(text: str) -> Broken:
    found = parse_template(text)
    assert isinstance(found, tuple)
    return found


def test_what_was_filled_in_is_not_looked_at_again() -> None:
    assert parsed("{{ item }}").render(lambda _: "{{ vars.x }}") == "{{ vars.x }}"


def test_quoted_text_is_how_braces_are_written() -> None:
    assert parsed('{{ "{{" }} x {{ "}}" }}').render(str) == "{{ x }}"
    assert parsed('a{{ "" }}b').render(str) == "ab"


@pytest.mark.parametrize(
    ("text", "reason", "offset"),
    [
        ("so {{ open", "`{{` is never closed", 3),
        ("{{ a | b }} {{ item }}", "`{{ a | b }}` is not a name: templates have no logic", 0),
        ("{{ item }} {{}}", "`{{}}` is not a name: templates have no logic", 11),
        ("{{{ item }}}", "`{{{ item }}` is not a name: templates have no logic", 0),
    ],
)
def test_what_is_no_name_is_told_and_can_be_escaped(text: str, reason: str, offset: int) -> None:
    *found, repaired = broken(text)
    assert found == [offset, reason]
    assert parsed(repaired).render(lambda ref: f"{{{{ {ref} }}}}") == text
