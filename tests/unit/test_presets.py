"""Presets by name and from files: what is read, and what every mistake says."""

from __future__ import annotations

import json
from collections.abc import Callable
from math import inf
from pathlib import Path

import pytest
import yaml
from msgspec import Struct
from msgspec.structs import fields

from headway.base.values import Limit
from headway.errors import BadPresetError, HeadwayError, UnknownPresetError
from headway.sim.presets import NOT_READ, PROVIDERS, WORKLOADS, find_provider, find_workload

Write = Callable[..., str]

ROOT = Path(__file__).resolve().parent.parent.parent


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Write:
    """Put a file into an empty working directory, so that messages name it shortly."""
    monkeypatch.chdir(tmp_path)

    def put(content: str, name: str = "mine.yaml") -> str:
        Path(name).write_text(content, encoding="utf-8")
        return name

    return put


def _plain(value: object) -> object:
    """A record as a user would write it down."""
    if isinstance(value, Struct):
        # A gauge has no period; nobody writes one.
        left_out = {*NOT_READ, *(("period_s",) if getattr(value, "kind", "") == "gauge" else ())}
        return {
            field.name: _plain(getattr(value, field.name))
            for field in fields(value)
            if field.name not in left_out and getattr(value, field.name) != field.default
        }
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    return "inf" if value == inf else value


@pytest.mark.parametrize("name", PROVIDERS)
def test_every_provider_can_be_written_as_a_file(name: str, write: Write) -> None:
    spec = PROVIDERS[name].spec
    plain = _plain(spec)
    assert find_provider(write(yaml.safe_dump(plain))).spec == spec
    assert find_provider(write(json.dumps(plain, indent="\t"), "mine.json")).spec == spec


@pytest.mark.parametrize("name", WORKLOADS)
def test_every_workload_can_be_written_as_a_file(name: str, write: Write) -> None:
    preset = WORKLOADS[name]
    plain = _plain(preset.spec)
    assert isinstance(plain, dict)
    whole = plain | {
        "about": preset.about,
        "agents": _plain(preset.agents),
        "client": _plain(preset.client),
    }
    assert find_workload(write(yaml.safe_dump(whole))) == preset


def test_the_documentation_has_every_preset_and_files_that_can_be_read(write: Write) -> None:
    text = (ROOT / "docs" / "presets.md").read_text(encoding="utf-8")
    assert [name for name in (*PROVIDERS, *WORKLOADS) if f"`{name}`" not in text] == []
    provider, workload = (block.partition("```")[0] for block in text.split("```yaml\n")[1:])
    assert find_provider(write(provider)).spec.terms.limits
    assert find_workload(write(workload)).agents


def test_a_file_is_named_after_itself_unless_it_says_otherwise(write: Write) -> None:
    assert find_provider(write("latency: {kappa: 0.1}", "my-account.yaml")).name == "my-account"
    assert find_provider(write("name: other", "my-account.yaml")).name == "other"


def test_numbers_have_suffixes_and_concurrency_is_a_gauge_without_saying_so(write: Write) -> None:
    limits = "{resource: tokens, amount: 100k}, {resource: input, amount: 2_000}"
    content = f"terms: {{limits: [{limits}, {{resource: concurrency, amount: 4}}]}}"
    assert find_provider(write(content)).spec.terms.limits == (
        Limit("tokens", 100_000), Limit("input", 2000), Limit("concurrency", 4, 0.0, "gauge"),
    )  # fmt: skip


def test_an_unknown_preset_names_the_nearest_one() -> None:
    with pytest.raises(UnknownPresetError) as caught:
        find_provider("trp")
    assert caught.value.render() == (
        "error[HW101]: there is no provider preset `trp`\nhint: did you mean `trap`?"
    )
    with pytest.raises(UnknownPresetError, match="no workload preset"):
        find_workload("x" * 5000)


WRONG = (
    ("", "the file is empty", None),
    ("[]", "the file must have keys and values", 1),
    ("latency:\n  kapa: 1", "there is no key `latency.kapa`", 2),
    ("latency:\n  kappa: -1", "`latency.kappa` is `-1`: it must be at least 0", 2),
    ("latency: {first_byte_s: inf}", "`latency.first_byte_s` is `inf`", 1),
    ("latency: {per_output_token_s: 0}", "it must be more than 0", 1),
    ("latency: {background: 1.5}", "it must be a whole number", 1),
    ("latency: {kappa: 1, kappa: 2}", "`latency.kappa` is there twice", 1),
    ("latency: {kappa: [1]}", "`latency.kappa` must be one value", 1),
    (
        "terms:\n  limits:\n  - {resource: requests, amount: 0}",
        "`terms.limits[0].amount` is `0`",
        3,
    ),
    ("terms:\n  limits:\n  - {amount: 1}", "`terms.limits[0].resource` is missing", 3),
    ("terms:\n  limits: 5", "`terms.limits` must be a list", 2),
    ("terms: {limits: [{resource: rpm, amount: 1}]}", "`terms.limits[0].resource` is `rpm`", 1),
    (
        "terms:\n  limits:\n  - {resource: input, amount: 1}\n  - {resource: input, amount: 2}",
        "`terms.limits` has `input/60s` twice",
        3,
    ),
    ("terms:\n  hidden: [{resource: input, amount: 1, kind: gauge}]", "cannot be a gauge", 2),
    ("terms: {refusals_charged: maybe}", "`terms.refusals_charged` is `maybe`", 1),
    ("terms: {changes: [[60, 0]]}", "`terms.changes[0][1]` is `0`", 1),
    ("terms: {changes: [[60]]}", "`terms.changes[0]` must have 2 values, not 1", 1),
    ("dialect: antropic", "`dialect` is `antropic`", 1),
    ("faults:\n  kinds: []", "`faults.kinds` is empty", 2),
    ("faults:\n  outages: [[5, 3]]", "ends at 3, before it begins at 5", 2),
    ("faults: {share: 2}", "it must be from 0 to 1", 1),
    ('name: "\\e[31m"', "`name` must be 1 to 200 printable characters", 1),
    ("a: [", "this is not YAML", 1),
    ("\0", "this is neither YAML nor JSON", None),
    ('{\n "name": "x"\n "about": "y"}', "this is not JSON", 3),
    ('{\n\t"latency": {"kappa": -1}}', "`latency.kappa` is `-1`", 2),
    ('{"name": "x", "name": "y"}', "`name` is there twice", 1),
)


@pytest.mark.parametrize(("content", "message", "line"), WRONG)
def test_a_wrong_provider_names_file_line_and_value(
    content: str, message: str, line: int | None, write: Write
) -> None:
    name = "mine.json" if content.startswith("{") else "mine.yaml"
    with pytest.raises(BadPresetError) as caught:
        find_provider(write(content, name))
    assert message in caught.value.message
    assert caught.value.where == (name if line is None else f"{name}:{line}")
    assert caught.value.exit_code == 2


WRONG_WORKLOADS = (
    ("tasks: 0", "`tasks` is `0`: it must be from 1 to 100000", 1),
    ("tasks: 100000\ncalls: 100", "10,000,000 calls are more than 1,000,000", 1),
    ("name: x\nagents: [{name: a, needs: [b]}]", "`a` needs `b`", 2),
    ("agents: [{name: a}, {name: a}]", "two tasks have the name `a`", 1),
    ("agents: [{calls: 1}]", "`agents[0].name` is missing", 1),
)


@pytest.mark.parametrize(("content", "message", "line"), WRONG_WORKLOADS)
def test_a_wrong_workload_names_file_line_and_value(
    content: str, message: str, line: int, write: Write
) -> None:
    with pytest.raises(BadPresetError) as caught:
        find_workload(write(content))
    assert message in caught.value.message
    assert caught.value.where == f"mine.yaml:{line}"


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("nowhere.yaml", "cannot read the file: No such file"),
        ("./", "cannot read the file: Is a directory"),
        ("a\0b.yaml", "this cannot be the name of a file"),
        ("binary.yaml", "the file is not UTF-8 text"),
        ("large.yaml", "the file is larger than 100,000 bytes"),
    ],
)
def test_a_file_that_cannot_be_read_says_why(name: str, message: str, write: Write) -> None:
    Path("binary.yaml").write_bytes(b"\xff\xfe")
    write("#" * 100_001, "large.yaml")
    with pytest.raises(HeadwayError) as caught:
        find_provider(name)
    assert message in caught.value.message
    assert "\0" not in caught.value.render()
