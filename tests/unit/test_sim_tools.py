"""Models of the simulated provider that use tools: `agent`, and rules of scripts."""

from __future__ import annotations

import json

import pytest
from msgspec.structs import replace

from headway.errors import BadPresetError
from headway.sim.models import COMMAND, SHELLS, ModelReply, SimulatedModels, parse_script
from headway.wire.values import Conversation

PROMPT = ("user", "Use `x` as a name.\nPlease run `echo 1`, then `pwd`.")
ASKED = ("assistant", "I run echo 1.")
GAVE = ("tool", "1\n")
REMINDER = ("user", "Remember your tasks.")


def said(*turns: tuple[str, str], tools: tuple[str, ...] = ("Read", "Bash")) -> Conversation:
    return Conversation("agent", "", turns, True, None, tools=tools)


def reply(*turns: tuple[str, str], tools: tuple[str, ...] = ("Read", "Bash")) -> ModelReply:
    return SimulatedModels("agent").reply(said(*turns, tools=tools))


def command(found: ModelReply) -> object:
    (use,) = found.tool_uses
    return json.loads(use.arguments)["command"]


def test_an_agent_runs_one_command_after_the_other_and_then_tells_what_they_gave() -> None:
    first = reply(PROMPT)
    assert (command(first), "".join(first.pieces)) == ("echo 1", "I run echo 1.")
    turns = [PROMPT, ASKED, GAVE, REMINDER]
    assert command(reply(*turns)) == "pwd"
    found = reply(*turns, ("assistant", "I run pwd."), ("tool", "/home"))
    assert found.tool_uses == ()
    assert "".join(found.pieces) == "The commands gave:\n1\n\n/home"
    # A second prompt begins anew.
    over = [PROMPT, ASKED, GAVE, ("assistant", "It gave 1.")]
    assert command(reply(*over, ("user", "Now `date`"))) == "date"
    assert command(reply(*over, ("user", "And now?"))) == COMMAND


def test_who_was_interrupted_goes_on_and_does_again_what_was_cut_off() -> None:
    begun = (("user", "Run `a`, then `b`."), ("assistant", "I run a."), ("tool", "A"))
    cut = (*begun, ("assistant", "I run b."), ("tool", "[Tool call interrupted: it ended]"))
    for turns in (begun, cut, (*cut, ("assistant", "No response requested."))):
        found = reply(*turns, ("user", "You were interrupted. Go on where you were."))
        assert command(found) == "b"


@pytest.mark.parametrize("shell", SHELLS)
def test_every_shell_is_given_the_command_in_its_own_form(shell: str) -> None:
    (use,) = reply(PROMPT, tools=("other", shell)).tool_uses
    assert use.name == shell
    assert "echo 1" in use.arguments
    assert isinstance(json.loads(use.arguments), dict)


def test_tools_count_as_tokens_and_are_not_asked_for_without_room() -> None:
    found = reply(PROMPT)
    assert found.tokens > len(found.pieces) + 5
    assert found.within(found.tokens) is found
    assert found.within(None) is found
    cut = found.within(found.tokens - 1)
    assert (cut.tool_uses, cut.pieces) == ((), found.pieces)
    assert len(found.within(2).pieces) == 2


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ({"type": "OBJECT", "properties": {"n": {"type": "INTEGER"}}}, {"n": 1}),
        ({"type": ["array", "null"], "items": {"type": "string"}}, ["plain"]),
        ({"enum": ["b", "a"]}, "b"),
        ({"const": None}, None),
        ({"anyOf": [{"type": "number", "minimum": 2.5}, {"type": "null"}]}, 2.5),
        ({"properties": {"ok": {"type": "boolean"}, "any": {}}}, {"ok": False, "any": None}),
    ],
)
def test_an_agent_that_must_follow_a_schema_does(schema: object, value: object) -> None:
    asked = replace(said(PROMPT), schema=json.dumps(schema))
    assert json.loads("".join(SimulatedModels("agent").reply(asked).pieces)) == value


SCRIPT = [
    {"on": "result", "regex": r"(\d+)", "answer": "It is {group.1}."},
    {"regex": "add (.*)", "use": {"sum": {"all": "{group.1}", "n": "words"}, "shell": "expr {sum}"},
     "answer": "A moment."},
    {"answer": "no"},
]  # fmt: skip


def scripted(*turns: tuple[str, str], tools: tuple[str, ...] = ()) -> ModelReply:
    script = parse_script({"rules": SCRIPT})
    return SimulatedModels("script", script).reply(
        Conversation("x", "", turns, False, None, tools=tools)
    )


def test_a_rule_uses_the_first_of_its_tools_that_is_offered() -> None:
    (use,) = scripted(("user", "add 1 2"), tools=("bash", "sum")).tool_uses
    assert (use.name, json.loads(use.arguments)) == ("sum", {"all": "1 2", "n": 3})
    (use,) = scripted(("user", "add 1 2"), tools=("read", "exec_command")).tool_uses
    assert (use.name, json.loads(use.arguments)) == ("exec_command", {"cmd": "expr 3"})


def test_a_rule_matches_if_its_tools_are_offered_and_its_results_are_there() -> None:
    before = [("user", "add 1 2"), ("assistant", "A moment.")]
    for turns, tools, said in (
        (before[:1], ("read",), "no"),
        ([*before, ("tool", "gave 3")], ("sum",), "It is 3."),
        ([*before, ("tool", "add")], ("sum",), "no"),
    ):
        found = scripted(*turns, tools=tools)
        assert ("".join(found.pieces), found.tool_uses) == (said, ())


@pytest.mark.parametrize("use", [{"shell": 1}, {"Read": "a.txt"}])
def test_a_use_that_gives_a_tool_nothing_it_can_take_is_refused(use: object) -> None:
    with pytest.raises(BadPresetError, match="what each tool is given"):
        parse_script({"rules": [{"use": use}]})


def test_an_agent_uses_a_tool_that_the_prompt_names_if_it_is_offered() -> None:
    prompt = ("user", 'Please `Read {"path": "a"}`.')
    (use,) = reply(prompt, tools=("Read",)).tool_uses
    assert (use.name, json.loads(use.arguments)) == ("Read", {"path": "a"})
    assert command(reply(prompt, tools=("Bash",))) == 'Read {"path": "a"}'
    assert reply(("user", "`Read a`"), tools=("Read",)).tool_uses == ()
