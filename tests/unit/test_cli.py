"""The command line's boundary: every way out has its exit code and its words."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

import headway
from headway.cli.main import VERBS, main
from headway.errors import BadValueError

VerbBody = Callable[[argparse.Namespace], int]
WithSim = Callable[[VerbBody], None]


@pytest.fixture
def with_sim(monkeypatch: pytest.MonkeyPatch) -> WithSim:
    """Put a verb's module in place that does what the test says."""

    def install(body: VerbBody) -> None:
        def arguments(parser: argparse.ArgumentParser) -> VerbBody:
            parser.add_argument("number", metavar="NUMBER", type=int)
            return body

        module = ModuleType("headway.cli.sim")
        vars(module).update(arguments=arguments, EXAMPLES="examples:\n  headway sim 3")
        monkeypatch.setitem(sys.modules, "headway.cli.sim", module)

    return install


def test_without_a_command_there_are_runs_or_how_to_begin(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HEADWAY_STATE_DIR", str(tmp_path))
    assert main([]) == 0
    out, err = capsys.readouterr()
    assert out.startswith("No runs yet.")
    assert "headway --help" in out
    assert err == ""


def test_a_verb_adds_its_arguments_and_has_examples(
    with_sim: WithSim, capsys: pytest.CaptureFixture[str]
) -> None:
    with_sim(lambda parsed: int(parsed.number))
    assert main(["sim", "4"]) == 4
    assert main(["sim"]) == 2
    assert "NUMBER" in capsys.readouterr().err
    assert main(["sim", "--help"]) == 0
    assert "headway sim 3" in capsys.readouterr().out


@pytest.mark.parametrize("verb", [verb.name for verb in VERBS])
def test_every_verb_has_help_with_examples(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([verb, "--help"]) == 0
    out = capsys.readouterr().out
    assert f"usage: headway {verb}" in out
    assert "examples:" in out or "COMMAND" in out
    assert main(["--help"]) == 0
    assert f"  {verb}" in capsys.readouterr().out


def test_an_unknown_command_names_the_nearest_one(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["smi"]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err == "error[HW100]: `headway` has no command `smi`\nhint: did you mean `sim`?\n"


def _raising(error: BaseException) -> VerbBody:
    def stumble(parsed: argparse.Namespace) -> int:
        raise error

    return stumble


def test_an_error_of_headway_is_rendered_on_stderr(
    with_sim: WithSim, capsys: pytest.CaptureFixture[str]
) -> None:
    with_sim(_raising(BadValueError("`--width` is 0", hint="use at least 1")))
    assert main(["sim", "3"]) == 2
    out, err = capsys.readouterr()
    assert (out, err) == ("", "error[HW103]: `--width` is 0\nhint: use at least 1\n")


def test_an_interrupt_ends_with_130_and_no_traceback(
    with_sim: WithSim, capsys: pytest.CaptureFixture[str]
) -> None:
    with_sim(_raising(KeyboardInterrupt()))
    assert main(["sim", "3"]) == 130
    assert "Traceback" not in capsys.readouterr().err


def test_a_bug_is_one_line_and_how_to_report_it_and_a_traceback_on_request(
    with_sim: WithSim, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("HEADWAY_DEBUG", raising=False)
    with_sim(_raising(ZeroDivisionError("no calls at all")))
    assert main(["sim", "3"]) == 70
    first, second = capsys.readouterr().err.splitlines()
    assert first == "error[HW901]: ZeroDivisionError: no calls at all"
    assert "`HEADWAY_DEBUG=1 headway sim 3`" in second
    monkeypatch.setenv("HEADWAY_DEBUG", "1")
    assert main(["sim", "3"]) == 70
    err = capsys.readouterr().err
    assert "Traceback" in err
    assert "in stumble" in err


def test_a_name_that_is_not_public_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="nonsense"):
        _ = headway.nonsense
