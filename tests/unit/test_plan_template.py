"""Text with holes: names are filled in, nothing is computed."""

from __future__ import annotations

import pytest

from headway.plans.template import (
    NAMES_SHOWN_MAX,
    REFERENCES_MAX,
    Broken,
    Ref,
    Scope,
    Template,
    parse_template,
    references,
)


def parsed(text: str) -> Template:
    found = parse_template(text)
    assert isinstance(found, Template)
    return found


def broken(text: str) -> Broken:
    found = parse_template(text)
    assert isinstance(found, Broken)
    return found


def test_holes_are_filled_and_the_rest_stays() -> None:
    template = parsed("a {{ item }} b {{matrix.view}}c")
    assert [str(ref) for ref in template.refs] == ["item", "matrix.view"]
    assert template.render(lambda ref: f"<{ref}>") == "a <item> b <matrix.view>c"


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
    found = broken(text)
    assert (found.reason, found.offset) == (reason, offset)
    assert parsed(found.repaired).render(lambda ref: f"{{{{ {ref} }}}}") == text


def test_a_template_has_only_so_many_holes() -> None:
    assert len(parsed("{{ index }}" * REFERENCES_MAX).refs) == REFERENCES_MAX
    found = broken("{{ index }}" * (REFERENCES_MAX + 1))
    assert found.reason == f"more than {REFERENCES_MAX} holes"


def test_a_name_says_what_it_is() -> None:
    assert Ref(("tasks", "a", "output")).task == "a"
    assert Ref(("tasks", "a", "stdout")).task == "a"
    assert Ref(("tasks", "a", "exit")).task == ""
    assert Ref(("vars", "x")).var == "x"
    assert Ref(("item",)).var == ""


def test_a_scope_knows_its_names() -> None:
    scope = Scope(("x",), True, True, ("view",), ("tone",), ("diff",))
    known = ["item", "item.x", "index", "matrix.view", "vars.tone", "tasks.diff.output"]
    assert scope.names() == known
    for name in (*known, "tasks.diff.stdout", "item.x.y"):
        assert scope.has(Ref(tuple(name.split("."))))
    for name in ("item.z", "tasks.diff", "tasks.diff.x", "tasks.other.output", "view", "vars.x"):
        assert not scope.has(Ref(tuple(name.split("."))))
    assert Scope(None, True).has(Ref(("item", "anything")))
    assert not Scope(None, False).has(Ref(("item", "anything")))


def test_a_scope_names_the_nearest_or_shows_what_there_is() -> None:
    scope = Scope(vars=tuple(f"v{number}" for number in range(NAMES_SHOWN_MAX + 3)))
    assert scope.nearest(Ref(("vars", "v"))) in scope.names()
    assert scope.nearest(Ref(("completely", "other"))) == ""
    assert scope.shown().endswith("and 3 more")
    assert Scope().shown() == "nothing"


def test_references_pass_over_what_is_no_hole() -> None:
    found = [str(ref) for _, ref in references('{{ item }} {{ "x" }} {{ .Go }} {{vars.x}}')]
    assert found == ["item", "vars.x"]
