"""Models of the simulated provider: real answers, the same everywhere."""

from __future__ import annotations

import json
from hashlib import sha256
from math import sqrt
from pathlib import Path
from statistics import median

import pytest

from headway.errors import BadPresetError, BadValueError
from headway.sim.models import SimulatedModels, is_model, must_be_model, parse_script, read_script
from headway.wire.values import Conversation


def said(text: str, model: str = "echo", system: str = "") -> Conversation:
    return Conversation(model, system, (("user", "before"), ("user", text)), False, None)


def answer(conversation: Conversation, models: SimulatedModels = SimulatedModels()) -> str:
    return "".join(models.reply(conversation).pieces)


def test_hash_is_a_digest_of_the_conversation_and_of_nothing_else() -> None:
    told = json.dumps(["", [["user", "before"], ["user", "x"]]])
    assert answer(said("x", "hash")) == sha256(told.encode()).hexdigest()
    assert answer(said("x", "hash")) != answer(said("x", "hash", system="other"))
    assert answer(said("x", "hash")) != answer(said("y", "hash"))


def test_an_unknown_name_is_the_default_model() -> None:
    assert len(SimulatedModels().reply(said("x", "claude-opus-9")).pieces) == 200
    assert answer(said("x", "claude-opus-9"), SimulatedModels("echo")) == "x"
    assert len(SimulatedModels().reply(said("x", "script")).pieces) == 200


def test_lengths_between_two_numbers_are_lognormal_and_follow_the_text() -> None:
    lengths, again = (
        [len(SimulatedModels().reply(said(f"n {n}", "tokens-50-800")).pieces) for n in range(400)]
        for _ in range(2)
    )
    assert lengths == again
    assert 50 <= min(lengths) < max(lengths) <= 800
    assert median(lengths) == pytest.approx(sqrt(50 * 800), rel=0.15)


@pytest.mark.parametrize("name", ["tokens-0", "tokens-9-3", "tokens-", "tokens-2000000", "gpt"])
def test_names_that_choose_no_model(name: str) -> None:
    assert not is_model(name)
    with pytest.raises(BadValueError):
        must_be_model(name)


SCRIPT = {
    "rules": [
        {
            "contains": "count",
            "within": "<file>\n(.*?)</file>",
            "find": r"^def (\w+)",
            "json": {"words": "words", "lines": "lines", "bytes": "bytes", "names": "found",
                     "how many": "count", "deep": [{"note": "{lines} lines"}, 7]},
        },
        {"regex": r"sum for (?P<who>\w+): (.*)", "answer": "{group.who} has {sum} of {numbers}"},
        {"regex": "largest", "answer": "{largest}"},
        {"contains": "fail", "answer": "no", "faults": ["cut"], "tokens": 30},
        {"contains": "short", "answer": "one two three four", "tokens": 2},
        {"on": "all", "contains": "secret", "answer": "{turns} turns"},
    ]
}  # fmt: skip
MODELS = SimulatedModels("script", parse_script(SCRIPT))
FILE = "<file>\ndef walk():\n    pass\ndef call():\n    é = walk()\ndef walk():\n    pass\n</file>"


def test_a_script_computes_over_the_text_it_was_sent() -> None:
    body = FILE.removeprefix("<file>\n").removesuffix("</file>")
    assert json.loads(answer(said(f"please count this: {FILE}", "script"), MODELS)) == {
        "words": len(body.split()), "lines": 6, "bytes": len(body.encode()),
        "names": ["call", "walk"], "how many": 2, "deep": [{"note": "6 lines"}, 7],
    }  # fmt: skip
    for text, reply in (
        ("sum for ann: 1, 2 and 39", "ann has 42 of 1, 2, 39"),
        ("sum for bob: 0.5 and -1", "bob has -0.5 of 0.5, -1"),
        ("largest of 3, 11, agent-9", "11"),
        ("be short", "one two"),
    ):
        assert answer(said(text, "script"), MODELS) == reply
    assert answer(said("hello", "script", system="a secret"), MODELS) == "2 turns"
    failing = MODELS.reply(said("now fail", "script"))
    assert (len(failing.pieces), failing.faults) == (30, ("cut",))
    # No rule matches: filler.
    assert len(MODELS.reply(said("hello", "script")).pieces) == 50


def test_a_script_says_how_often_what_adds_up_by_name_and_seals_what_it_saw() -> None:
    rules = [
        {"contains": "tally", "within": "<(.*)>", "find": "#.*?$|(def|class)",
         "json": {"counted": "tally", "seal": "seal"}},
        {"contains": "sums", "json": "sums"},
        {"answer": "{tally}; {sums}", "find": r"\bdef\b"},
    ]  # fmt: skip
    models = SimulatedModels("script", parse_script({"rules": rules}))
    text = "def def class # def"
    assert json.loads(answer(said(f"tally <{text}>", "script"), models)) == {
        "counted": {"class": 1, "def": 2},
        "seal": sha256(text.encode()).hexdigest(),
    }
    told = 'sums {"b": 2, "a": 1, "seal": "12"} and {"a": 0.5, "in": {"b": -7}}'
    assert json.loads(answer(said(told, "script"), models)) == {"a": 1.5, "b": -5}
    assert answer(said('def "x": 3 def', "script"), models) == "def: 2; x: 3"


def test_a_script_gives_the_named_groups_of_each_place_under_their_heading() -> None:
    find = r"^== (?P<file>\S+)|^(?P<line>\d+) bad (?P<quote>\w+)"
    rules = [
        {"contains": "json", "find": find, "json": {"rows": "rows"}},
        {"contains": "none", "find": "bad", "json": "rows"},
        {"find": find, "answer": "{rows}"},
    ]
    models = SimulatedModels("script", parse_script({"rules": rules}))
    text = "== a.py\n1 good\n2 bad x\n3 bad y\n== b.py\n== c.py\n1 bad z"
    assert json.loads(answer(said(f"json\n{text}", "script"), models)) == {"rows": [
        {"file": "a.py", "line": 2, "quote": "x"}, {"file": "a.py", "line": 3, "quote": "y"},
        {"file": "c.py", "line": 1, "quote": "z"},
    ]}  # fmt: skip
    assert answer(said(f"\n{text}", "script"), models) == "- a.py: 2: x\n- a.py: 3: y\n- c.py: 1: z"
    assert json.loads(answer(said(f"none\n{text}", "script"), models)) == []


@pytest.mark.parametrize(
    ("rule", "words"),
    [
        ({"answer": "{wrods}"}, "nothing is called `{wrods}`"),
        ({"answer": "{group.1}"}, "no group"),
        ({"regex": "(", "answer": "x"}, "not a regular expression"),
        ({"answr": "x"}, "no key `answr`"),
        ({"answer": 7}, "Expected `str`, got `int` - at `answer`"),
        ({"answer": "x", "faults": ["bang"]}, "no fault `bang`"),
        ({"answer": "x", "faults": "cut"}, "Expected `array`"),
        ({"answer": "x", "tokens": 0}, "Expected `int` >= 1"),
        ({"answer": "x", "on": "first"}, "'first' - at `on`"),
        ("x", "Expected `object`"),
    ],
)
def test_a_wrong_rule_is_refused_with_its_number(rule: object, words: str) -> None:
    with pytest.raises(BadPresetError) as caught:
        parse_script({"rules": [{"answer": "fine"}, rule]})
    assert words in caught.value.message
    assert caught.value.where == "script, rule 2"


def test_a_script_file_is_read_or_refused_in_one_sentence(tmp_path: Path) -> None:
    path = tmp_path / "rules.yaml"
    # YAML reads `on` as true.
    path.write_text("rules:\n  - on: all\n    contains: before\n    answer: seen\n")
    models = SimulatedModels("script", read_script(str(path)))
    assert answer(said("after", "script"), models) == "seen"
    for text, message in (("rules: [\n", "not YAML"), ("{}", "list of rules")):
        path.write_text(text)
        with pytest.raises(BadPresetError, match=message):
            read_script(str(path))
    with pytest.raises(BadPresetError, match="cannot read"):
        read_script(str(tmp_path / "none.yaml"))
