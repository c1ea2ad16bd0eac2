"""A model goes to the provider that it names; a provider that headway does not know is refused."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.promises.user import Provider, User, openai_at, provider, user

PLAN = """
headway: 1
tasks:
  free: {run: touch started}
  ask: {prompt: hello, model: %s, max_tokens: 20}
"""


@pytest.fixture(scope="module")
def openai() -> Iterator[Provider]:
    with provider("--model", "echo") as one:
        yield one


@pytest.fixture
def someone(tmp_path: Path, openai: Provider) -> Iterator[User]:
    """A user with OpenAI's key, and an address that stands for OpenAI's."""
    with user(tmp_path, openai_at(openai, f"key of {tmp_path.name}")) as one:
        yield one


def must_be_refused(someone: User, openai: Provider, *words: str) -> str:
    ended = someone.headway(*words)
    said = ended.stdout + ended.stderr
    assert ended.returncode in (2, 3), said
    assert "`mistral`" in said
    assert "openai/" in said, said
    assert "Traceback" not in said
    assert not (someone.folder / "started").exists()
    assert openai.account(someone.env["OPENAI_API_KEY"]) is None
    return said


VERBS = [("check", "plan.yaml"), ("run", "plan.yaml"), ("advise", "plan.yaml")]


@pytest.mark.parametrize("words", VERBS, ids=" ".join)
def test_a_plan_of_an_unknown_provider_is_refused(
    someone: User, openai: Provider, words: tuple[str, ...]
) -> None:
    someone.write("plan.yaml", PLAN % "mistral/large")
    assert "plan.yaml:5" in must_be_refused(someone, openai, *words)


@pytest.mark.parametrize(
    "plan",
    [
        "headway: 1\nmodel: mistral/large\ntasks: {ask: {prompt: hello}}\n",
        "headway: 1\ntasks: {ask: {prompt: '{{ matrix.m }}', model: '{{ matrix.m }}',"
        " matrix: {m: [openai/echo, mistral/large]}}}\n",
        "headway: 1\ntasks: {ask: {prompt: '{{ item }}', model: 'mistral/{{ item }}',"
        " each: [large, small]}}\n",
        "headway: 1\nmodel: openai/echo\ntasks: {ask: {each: [a, b], prompt: '{{ item }}'},"
        " sum: {reduce: ask, prompt: sum, model: mistral/large}}\n",
        "headway: 1\ntasks: {ask: {agent: tools(files), prompt: hello, model: mistral/large}}\n",
    ],
    ids=["for all", "matrix", "each", "reduce", "agent"],
)
def test_wherever_the_plan_names_it(someone: User, openai: Provider, plan: str) -> None:
    someone.write("plan.yaml", plan)
    must_be_refused(someone, openai, "check", "plan.yaml")
    must_be_refused(someone, openai, "run", "plan.yaml")


def test_options_that_name_a_model(someone: User, openai: Provider) -> None:
    someone.write("plan.yaml", "headway: 1\ntasks: {ask: {prompt: hello}}\n")
    must_be_refused(someone, openai, "run", "plan.yaml", "--model", "mistral/large")
    must_be_refused(
        someone, openai, "plan", "Say hello", "-o", "a.yaml", "--model", "mistral/large"
    )
    must_be_refused(someone, openai, "advise", "--model", "mistral/large", "--agents", "3")


def test_python_refuses_it_too(someone: User, openai: Provider) -> None:
    script = "import headway; headway.summarize(['a', 'b'], model='mistral/large')"
    ended = subprocess.run(
        [sys.executable, "-c", script], cwd=someone.folder, env=someone.env,
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert ended.returncode != 0
    assert "`mistral`" in ended.stderr
    assert openai.account(someone.env["OPENAI_API_KEY"]) is None


@pytest.mark.parametrize("model", ["large", "gemini-2.5-pro", "mistral-large", "gpt-oss:20b"])
def test_a_bare_name_that_could_be_any_providers_is_refused(tmp_path: Path, model: str) -> None:
    with user(tmp_path, {"OPENAI_API_KEY": "key"}) as someone:
        someone.write("plan.yaml", PLAN % model)
        for verb in ("check", "run"):
            ended = someone.headway(verb, "plan.yaml")
            assert ended.returncode == 3, ended.stdout + ended.stderr
            assert f"openai/{model}" in ended.stderr


def test_the_hint_can_be_pasted(tmp_path: Path) -> None:
    with user(tmp_path, {"OPENAI_API_KEY": "key"}) as someone:
        someone.write("plan.yaml", PLAN % "mistral/large")
        said = someone.headway("check", "plan.yaml").stderr
        assert "openai/large" in said
        assert "export OPENAI_BASE_URL=https://api.mistral.ai/v1 OPENAI_API_KEY=..." in said
        refused = json.loads(someone.headway("check", "plan.yaml", "--json").stdout)["refused"]
        assert len(refused) == 1


def test_known_providers_and_slashes_in_names_go_where_they_are_named(
    someone: User, openai: Provider
) -> None:
    for model in ("openai/echo", "openai/meta/llama", "echo", "gpt-5-mini"):
        someone.write("plan.yaml", PLAN % model)
        ended = someone.headway("run", "plan.yaml")
        assert ended.returncode == 0, ended.stderr
    account = openai.account(someone.env["OPENAI_API_KEY"])
    assert account is not None


def test_the_other_name_of_an_address_is_used_by_prompts_too(
    someone: User, openai: Provider
) -> None:
    someone.env["OPENAI_API_BASE"] = someone.env.pop("OPENAI_BASE_URL")
    for model in ("openai/echo", "echo"):
        someone.write("plan.yaml", PLAN % model)
        ended = someone.headway("run", "plan.yaml")
        assert ended.returncode == 0, ended.stderr
    assert openai.account(someone.env["OPENAI_API_KEY"]) is not None
