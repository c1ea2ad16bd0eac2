"""What a plan says of the state that its tasks share, and what the engine is told of it."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headway.errors import InternalError, PlanError
from headway.plans.expand import ExpandedPlan, Sources, found, graph_of, keys_of
from headway.plans.hazards import examined
from headway.plans.resources import (
    VALUE,
    Channel,
    Touches,
    channel_in,
    covers,
    is_pattern,
    matches,
    prefix_of,
)
from headway.plans.sharing import Stake
from headway.plans.spec import Value
from headway.plans.template import Template, parse_template
from tests.unit.plan_texts import expanded_of

STATE = (
    "state: {total: counter, records/*: value, best: 'reduce(m.n:better)', "
    "mail: effect(m.n:send), log: 'effect(./log now)', posts/*: effect(m.n:send)}\n"
)


def expanded(tasks: str, top: str = "", **files: str) -> ExpandedPlan:
    sources = Sources(files={f"{name}.md": text for name, text in files.items()})
    return expanded_of(tasks, top, sources)


def touches(tasks: str, top: str = "", **files: str) -> list[Touches | None]:
    return [group.touches for group in graph_of(expanded(tasks, top, **files)).groups]


def refused(tasks: str, top: str = STATE) -> list[str]:
    with pytest.raises(PlanError) as caught:
        examined(expanded(tasks, top))
    return [error.message for error in (caught.value, *caught.value.others)]


def test_a_key_has_the_channel_of_the_longest_pattern_that_it_matches() -> None:
    declared = {"a/**": Channel("append"), "a/b/*": Channel("set"), "a/b/c": Channel("max")}
    kinds = [channel_in(declared, key).kind for key in ("a/x", "a/b/x", "a/b/c", "b")]
    assert kinds == ["append", "set", "max", "value"]
    assert channel_in({}, "a") == VALUE


KEYS = st.lists(st.text("ab", min_size=1, max_size=2), min_size=1, max_size=3).map("/".join)
PATTERNS = st.lists(st.text("ab*?", min_size=1, max_size=3), min_size=1, max_size=3).map("/".join)


@settings(max_examples=300)
@given(pattern=PATTERNS, key=KEYS)
def test_whatever_a_pattern_matches_lies_within_its_prefix(pattern: str, key: str) -> None:
    assert not is_pattern(key)
    if matches(pattern, key):
        assert covers((prefix_of(pattern),), key)
    assert is_pattern(pattern) or matches(pattern, key) is (pattern == key)


def test_whoever_declares_touches_what_it_says_and_no_more() -> None:
    tasks = (
        "  a: {run: x, reads: [data, state:records/*], writes: [out, state:a/b, effect:mail]}\n"
        "  b: {python: 'm:f', reads: data}\n"
        "  c: {python: 'm:f', writes: []}\n"
        "  d: {run: x, reads: [], output: state:d}\n"
        "  e: {run: x, writes: out/e, output: state:e}\n"
    )
    assert touches(tasks, STATE) == [
        Touches(("records",), ("a/b",), ("mail",)),
        Touches((), None, None),
        Touches(None, (), ()),
        Touches((), None, None),
        Touches(None, ("e",), ()),
    ]


def test_a_prompt_touches_what_its_text_names_and_where_its_result_goes() -> None:
    tasks = (
        "  a: {prompt: '{{ state.x }} {{ state.y }} {{ state.x }}', output: state:sum}\n"
        "  b: {prompt: '{{ state }} {{ state.x }}'}\n"
        "  c: {prompt: '{{ state }} {{ state.x }}', reads: ['state:r/*', data]}\n"
        "  d: {prompt: hello, output: out}\n"
        "  e: {prompt: hello, reads: state:total}\n"
        "  f: {prompt_file: f.md}\n"
        "  g: {prompt: '{{ \"{{\" }} state.x }}'}\n"
        "  h: {prompt: '{{ state.x }}', reads: data}\n"
    )
    assert touches(tasks, f="Say {{ state.z }}") == [
        Touches(("x", "y"), ("sum",), ()),
        Touches(None, (), ()),
        Touches(("r", "x"), (), ()),
        None,
        Touches(("total",), (), ()),
        Touches(("z",), (), ()),
        None,
        Touches(("x",), (), ()),
    ]
    assert touches(tasks)[5] is None


def test_members_have_their_own_keys_within_those_of_their_group() -> None:
    tasks = (
        "  a:\n    each: [p, q]\n    matrix: {v: [1, 2]}\n    python: m:f\n"
        "    reads: ['state:in/x-{{ item }}/*', 'state:k{{ index }}']\n"
        "    writes: ['state:out/{{ matrix.v }}/{{ item }}', 'effect:posts/{{ item }}']\n"
    )
    (found_,) = touches(tasks, STATE)
    assert found_ is not None
    assert (found_.reads, found_.writes, found_.acts) == (("in", ""), ("out",), ("posts",))
    assert found_.of(1) == Touches(("in/x-p", "k1"), ("out/2/p",), ("posts/p",))
    assert found_.of(2) == Touches(("in/x-q", "k2"), ("out/1/q",), ("posts/q",))
    tasks = "  a: {each: [p, q], python: 'm:f', writes: 'state:{{ item }}'}\n"
    (free,) = touches(tasks)
    assert free is not None
    assert (free.writes, free.of(1)) == (("",), Touches(None, ("q",), ()))


TEMPLATES = st.lists(
    st.sampled_from(("a", "b/", "/", "{{ item }}", "*", "{{ item.x }}", "?")), max_size=6
).map("".join)


@settings(max_examples=300)
@given(text=TEMPLATES, item=st.text("a/*?.", max_size=5))
def test_what_a_member_touches_lies_within_what_is_said_of_all(text: str, item: str) -> None:
    template = parse_template(text)
    assert isinstance(template, Template)
    whole = Stake((template,), (), ()).touches(lambda one, _: one.render(lambda _: item))
    assert whole.reads is not None
    for prefix in whole.of(0).reads or ():
        assert covers(whole.reads, prefix)


def test_members_that_are_found_at_run_time_are_known_to_a_graph_that_is_told() -> None:
    tasks = (
        "  l: {run: ls, writes: []}\n"
        "  a: {run: x, each: l, reads: [], writes: 'state:out/{{ item.name }}'}\n"
    )
    plan = expanded(tasks, STATE)
    alone = graph_of(plan).groups[1].touches
    assert alone == Touches((), ("out",), ())
    now = [plan]
    told = graph_of(plan, lambda: now[0]).groups[1].touches
    assert told is not None
    with pytest.raises(InternalError):
        told.of(0)
    items: list[Value] = [{"name": name} for name in ("p", "q/", "*")]
    now[0] = found(plan, 1, (*items, "none"))
    assert [told.of(member).writes for member in range(4)] == [
        ("out/p",), ("out/q",), ("out",), ("out",),
    ]  # fmt: skip
    assert told.of(3) == alone


def test_a_member_whose_value_makes_no_key_is_named() -> None:
    tasks = "  a: {run: x, each: [p, '', 'q//r'], writes: ['state:o/{{ item }}', out]}\n"
    tasks += "  b: {run: x, each: [mail, maill], writes: 'effect:{{ item }}', reads: []}\n"
    tasks += "  c: {run: x, each: [a, 'b*'], output: 'state:{{ item }}', needs: [a, b]}\n"
    tasks += "  d: {run: x, each: [a, total], reads: 'state:{{ item }}', needs: c}\n"
    said = refused(tasks.replace(", out]", "]"))
    assert said == [
        "`state:o/` in `writes` of `a[ #2]`: a key is names with slashes between them",
        "`effect:maill` in `writes` of `b[maill]`: `state` has no such effect",
        "`state:b*` in `output` of `c[b*]`: a result is put under one key",
    ]


def key(tasks: str, top: str = "") -> bytes:
    made = keys_of(expanded(tasks, top))[0]
    assert made is not None
    return made.key(0)


def test_a_key_covers_the_channels_that_a_task_may_touch() -> None:
    task = "  a: {run: x, reads: 'state:r/*', writes: [state:w, effect:m]}\n"
    before = key(task, "state: {other: append, r/1: value, w: set, m: effect(m:f)}\n")
    assert before == key(task, "state: {w: set, m: effect(m:g), z: reduce(m:f)}\n")
    assert before != key(task, "state: {w: append, m: effect(m:f)}\n")
    assert before != key(task, "state: {w: set, m: effect(m:f), r/1: append}\n")
    assert before != key(task, "state: {w: set, m: effect(m:f), '**': append}\n")
    free = "  a: {run: x}\n"
    assert key(free, "state: {a: reduce(m:f)}\n") != key(free, "state: {a: reduce(m:g)}\n")


def test_a_key_covers_what_is_seen_of_the_state_and_where_the_result_goes() -> None:
    base = key("  a: {run: x}\n", "state: {}\n")
    assert base != key("  a: {run: x}\n")
    assert base != key("  a: {run: x, reads: []}\n", "state: {}\n")
    assert base != key("  a: {run: x, output: state:y}\n", "state: {}\n")
    assert base == key("  a: {run: x, writes: state:y}\n", "state: {}\n")
    assert base == key("  a: {run: x, output: y}\n", "state: {}\n")
    prompt = "  a: {prompt: hello, output: 'state:o/{{ vars.v }}'}\n"
    assert key(prompt, "vars: {v: 1}\n") != key(prompt, "vars: {v: 2}\n")
