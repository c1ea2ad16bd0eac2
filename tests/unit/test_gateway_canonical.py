"""Which calls are the same call: what is masked, and that nothing else is."""

from __future__ import annotations

import json
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from headway.gateway.request_match import MASKS, mask_of, without_secrets
from tests.unit.recorded_calls import (
    CLIENTS,
    Run,
    Sent,
    asked,
    form,
    leaves,
    sent,
    with_body,
)

RUNS = st.builds(Run, st.integers(0, 10**9), st.integers(10, 30))


@given(RUNS, RUNS, st.sampled_from(CLIENTS))
def test_two_runs_of_a_client_that_does_the_same_send_the_same_forms(
    first: Run, second: Run, client: str
) -> None:
    assert form(client, first).form == form(client, second).form


def mutated(call: Sent, draw: random.Random) -> Sent:
    """The same call but for one thing that a model or a provider could notice."""
    body = json.loads(call.body)
    path = draw.choice([path for path in leaves(body) if path])
    owner = body
    for step in path[:-1]:
        owner = owner[step]
    value, how = owner[path[-1]], draw.randrange(4)
    if how == 0:
        del owner[path[-1]]
    elif how == 1 and isinstance(owner, dict):
        owner["another"] = draw.choice([None, 0, "", "x", [], {}])
    elif isinstance(value, str):
        at = draw.randint(0, len(value))
        # A bracket is in no id, date or number: wherever it stands, the shape is gone.
        owner[path[-1]] = f"{value[:at]}({value[at:]}"
    elif isinstance(value, bool):
        owner[path[-1]] = not value
    else:
        owner[path[-1]] = [value] if how == 2 else value + draw.choice([-1, 1, 0.5])
    return with_body(call, body)


def mutated_around(call: Sent, draw: random.Random) -> Sent:
    """The same body, sent elsewhere or otherwise."""
    who = call.caller
    return draw.choice(
        [
            replace(call, path=call.path.replace("/v1", "/v2")),
            replace(call, path=call.path + "&x=1"),
            replace(call, upstream="another"),
            replace(call, wire="gemini" if call.wire != "gemini" else "anthropic"),
            replace(call, caller=replace(who, name="unknown")),
            replace(call, caller=replace(who, version="0.1")),
            replace(call, headers=(*call.headers, (b"anthropic-beta", b"context-1m"))),
            replace(call, headers=call.headers[:1]),
            replace(call, body=call.body[:-1]),
            replace(call, body=call.body + b"x"),
            replace(call, body=b"[" + call.body + b"]"),
        ]
    )


@given(st.integers(0, 10**9))
def test_a_thousand_mutated_calls_have_a_thousand_other_forms(seed: int) -> None:
    draw = random.Random(seed)
    for client in CLIENTS:
        call = sent(client, Run(seed))
        for mutate in (mutated, mutated_around):
            assert asked(mutate(call, draw)).form != form(client).form


@pytest.mark.parametrize(
    ("client", "was", "becomes"),
    [
        ("claude-code", "Today's date is 2026-11-16.", "Today's date is the sixteenth."),
        ("claude-code", "device_id", "another_id"),
        ("codex", "Process exited with code 0", "Process running with session ID 7"),
        ("codex", "Process exited with code 0", "Process exited with code 1"),
        ("codex", '\\"sandbox\\":\\"none\\"', '\\"sandbox\\":\\"full\\"'),
        ("gemini-cli", "Output: a.txt", "Output: a.txt\\nBackground PIDs: 7"),
    ],
)
def test_beside_what_is_masked_everything_counts(client: str, was: str, becomes: str) -> None:
    call = sent(client)
    body = call.body.replace(was.encode(), becomes.encode())
    assert body != call.body
    assert asked(replace(call, body=body)).form != asked(call).form


@pytest.mark.parametrize(
    ("client", "date"),
    [
        ("claude-code", "Today's date is 2026-11-{}."),
        ("claude-code-4", "<system-reminder>Today's date is 2026-11-{}.</system-reminder>"),
        ("codex", "  <current_date>2026-11-{}</current_date>\n"),
        ("opencode", "  Today's date: Mon Nov {} 2026\n</env>"),
        ("gemini-cli", "Today's date is Monday {} (formatted according to the user's locale)"),
    ],
)
def test_a_date_in_the_words_of_the_user_is_not_masked(client: str, date: str) -> None:
    first, second = (form(client, prompt="\n\n" + date.format(day)) for day in (16, 17))
    assert first.form != second.form


def test_a_mask_written_by_hand_is_not_taken_for_one() -> None:
    call = sent("opencode")
    by_hand = call.body.replace(b"Today's date: Mon Nov 16 2026", b"<date>")
    assert by_hand != call.body
    assert asked(replace(call, body=by_hand)).form != asked(call).form


def test_ids_keep_which_is_the_same_as_which() -> None:
    call = sent("gemini-cli", Run(1))
    body = json.loads(call.body)
    body["contents"][2]["parts"][0]["functionResponse"]["id"] = "run_shell_command_1794815239999_0"
    assert asked(with_body(call, body)).form != asked(call).form


@pytest.mark.parametrize(
    "body",
    [
        b'{"a": 1, "a": 2}', b'{"a": 1e999}', b'{"a": NaN}', b"[1]", b"\xff", b"", b"[" * 100_000,
        b'{"a": ' + b"9" * 5000 + b"}",
        json.dumps({str(number): 0 for number in range(100)}).encode(),
    ],
    ids=range(9),
)  # fmt: skip
def test_a_body_that_values_do_not_tell_apart_is_compared_byte_by_byte(body: bytes) -> None:
    call = replace(sent("codex"), body=body)
    assert [name for name, _ in asked(call).parts][-1] == "body"
    assert asked(call).form != asked(replace(call, body=body + b" ")).form


def test_versions_before_the_measured_one_are_not_masked_and_later_ones_are() -> None:
    for mask in MASKS:
        before = ".".join(map(str, (*mask.since[:-1], mask.since[-1] - 1, 999)))
        assert mask_of(mask.caller, before) is None
        assert mask_of(mask.caller, "") is None
        for later in ("999", f"{'.'.join(map(str, mask.since))}.1-beta.2"):
            assert mask_of(mask.caller, later) == mask
    assert mask_of("unknown", "999") is None


def test_keys_are_not_kept() -> None:
    assert without_secrets("/v1/m:generate?alt=sse&key=AIza&k%65y=2") == "/v1/m:generate?alt=sse"
    assert without_secrets("/v1/messages") == "/v1/messages"
    call = replace(sent("gemini-cli"), path="/v1beta/models/m:generateContent?key=secret")
    told = asked(call)
    assert "secret" not in repr(told)
    assert told.form == asked(replace(call, path=call.path.replace("secret", "other"))).form
