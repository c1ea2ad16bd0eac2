"""The gateway's books: what is told is what happened, in a format that Prometheus reads."""

from __future__ import annotations

import json
import re
from math import inf

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from headway.base.values import Fault, Tally
from headway.gateway import counters
from headway.gateway.values import CallEnded, Turned

CALL = CallEnded(
    key="default", caller="codex", upstream="openai", model="gpt-5", status=200,
    tally=Tally(100.0, 50.0, 7.0), fault=None, microusd=1_500_000, queued_s=3.0,
    first_byte_s=0.4, resends=2, was_committed=True,
)  # fmt: skip

LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\\\|\\"|\\n)*)"(?:,|$)')
LINE = re.compile(r"([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(.*)\})? (\S+)")

Series = dict[tuple[str, tuple[tuple[str, str], ...]], float]


def unescaped(text: str) -> str:
    return re.sub(r"\\(.)", lambda match: "\n" if match[1] == "n" else match[1], text)


def parsed(text: str) -> tuple[dict[str, str], Series]:
    """The text exposition format, as its specification has it: types by name, and series."""
    types: dict[str, str] = {}
    series: Series = {}
    helped: set[str] = set()
    assert text.endswith("\n")
    for line in text.split("\n")[:-1]:
        if line.startswith("# HELP "):
            name = line.split(" ", 3)[2]
            assert name not in helped
            helped.add(name)
        elif line.startswith("# TYPE "):
            _, _, name, kind = line.split(" ")
            assert name not in types
            assert kind in ("counter", "gauge", "histogram")
            types[name] = kind
        else:
            match = LINE.fullmatch(line)
            assert match, line
            base = re.sub(r"_(bucket|sum|count)$", "", match[1])
            # A metric's series come together, after its type.
            assert list(types)[-1] in (match[1], base)
            labels = match[2] or ""
            assert LABEL.sub("", labels) == "", labels
            found = tuple((name, unescaped(value)) for name, value in LABEL.findall(labels))
            assert (match[1], found) not in series
            series[match[1], found] = float(match[3].replace("Inf", "inf"))
    assert helped == set(types)
    return types, series


def booked(*calls: CallEnded) -> counters.GatewayLedger:
    ledger = counters.GatewayLedger(0.0)
    for call in calls:
        ledger.ended(ledger.entered(call.key, call.caller, 0.0), call, 10.0)
    return ledger


def table(value: object) -> dict[str, object]:
    assert isinstance(value, dict)
    return value


def test_a_call_is_held_then_in_flight_then_booked() -> None:
    ledger = counters.GatewayLedger(100.0)
    number = ledger.entered("default", "codex", 101.0)
    ledger.entered("default", "codex", 104.0)
    told = ledger.status(109.0)
    assert (told["held"], told["in_flight"], told["held_longest_s"]) == (2, 0, 8.0)
    assert told["live_by_caller"] == {"codex": 2}
    ledger.sent(number, 109.0)
    told = ledger.status(110.0)
    assert (told["held"], told["in_flight"], told["held_longest_s"]) == (1, 1, 6.0)
    ledger.refused(number, 110.0)
    assert (ledger.held, ledger.in_flight) == (2, 0)
    ledger.ended(number, CALL, 112.0)
    told = ledger.status(115.0)
    assert (told["held"], told["in_flight"], told["up_s"], told["quiet_s"]) == (1, 0, 15.0, 3.0)
    assert table(told["total"])["calls"] == 1


def test_metrics_are_in_prometheus_format_and_say_what_the_status_says() -> None:
    ledger = booked(CALL, CALL, replace(CALL, fault=Fault("server"), status=502))
    ledger.turned(Turned(401, "token", "no"))
    ledger.passed("openai", 200)
    ledger.entered("default", "codex", 4.0)
    types, series = parsed(ledger.metrics(9.0))
    row = (("upstream", "openai"), ("model", "gpt-5"), ("caller", "codex"))
    assert all(name.startswith("headway_gateway_") for name in types)
    assert {name for name, kind in types.items() if kind == "counter"} == {
        name for name in types if name.endswith("_total")
    }
    assert types["headway_gateway_queued_seconds"] == "histogram"
    assert series["headway_gateway_calls_total", row] == 3
    assert series["headway_gateway_tokens_total", (*row, ("kind", "output"))] == 21
    assert series["headway_gateway_spend_usd_total", row] == 4.5
    assert series["headway_gateway_held", ()] == 1
    assert series["headway_gateway_held_longest_seconds", ()] == 5
    assert series["headway_gateway_turned_away_total", (("code", "token"),)] == 1
    upstream = ("upstream", "openai")
    assert series["headway_gateway_faults_total", (upstream, ("kind", "server"))] == 1
    assert series["headway_gateway_queued_seconds_bucket", (upstream, ("le", "2"))] == 0
    assert series["headway_gateway_queued_seconds_bucket", (upstream, ("le", "5"))] == 3
    assert series["headway_gateway_queued_seconds_bucket", (upstream, ("le", "+Inf"))] == 3
    assert series["headway_gateway_queued_seconds_count", (upstream,)] == 3
    assert series["headway_gateway_queued_seconds_sum", (upstream,)] == 9


@settings(max_examples=60, deadline=None)
@given(st.text(max_size=150), st.text(max_size=150))
def test_whatever_a_client_calls_its_model_the_metrics_can_be_read(model: str, code: str) -> None:
    ledger = booked(replace(CALL, model=model))
    ledger.turned(Turned(400, code, ""))
    text = ledger.metrics(1.0)
    _, series = parsed(text)
    assert text.encode()
    assert json.loads(json.dumps(ledger.status(1.0), allow_nan=False))
    assert sum(name == "headway_gateway_calls_total" for name, _ in series) == 1


def test_ten_thousand_made_up_models_take_the_room_of_a_hundred() -> None:
    ledger = booked(*(replace(CALL, model=f"made-up-{i}") for i in range(10_000)))
    models = table(ledger.status(1.0)["by_model"])
    assert len(models) == counters.NAMES_MAX["model"] + 1
    assert table(models[counters.OTHER])["calls"] == 10_000 - counters.NAMES_MAX["model"]
    assert len(ledger.metrics(1.0)) < 200_000


def test_rows_are_bounded_and_no_call_is_lost() -> None:
    names = ((f"model-{i}", f"caller-{j}") for i in range(100) for j in range(50))
    ledger = booked(*(replace(CALL, model=model, caller=caller) for model, caller in names))
    _, series = parsed(ledger.metrics(1.0))
    calls = [value for (name, _), value in series.items() if name == "headway_gateway_calls_total"]
    assert (len(calls), sum(calls)) == (counters.ROWS_MAX + 1, 5000)


def test_the_keys_that_called_last_are_told_one_by_one() -> None:
    ledger = booked(*(replace(CALL, key=f"task-{i}") for i in range(3 * counters.KEYS_MAX)))
    keys = table(ledger.status(1.0)["by_key"])
    assert len(keys) == counters.KEYS_MAX + 1
    assert f"task-{3 * counters.KEYS_MAX - 1}" in keys
    assert "task-0" not in keys
    assert sum(int(str(table(sums)["calls"])) for sums in keys.values()) == 3 * counters.KEYS_MAX


def test_counts_by_code_are_bounded() -> None:
    ledger = counters.GatewayLedger()
    for i in range(10_000):
        ledger.turned(Turned(400, f"code-{i}", ""))
    turned = table(ledger.status(1.0)["turned_away"])
    assert len(turned) <= 201
    assert sum(int(str(count)) for count in turned.values()) == 10_000


@settings(max_examples=100, deadline=None)
@given(st.lists(st.floats(0.0, 10_000.0), min_size=1, max_size=60), st.floats(0.01, 1.0))
def test_a_quantile_is_within_the_bucket_of_the_true_one(times: list[float], share: float) -> None:
    spread = counters.Histogram()
    for time_s in times:
        spread.add(time_s)
    ordered = sorted(times)
    true_s = next(time_s for i, time_s in enumerate(ordered, 1) if i >= share * len(times) - 1e-9)
    high_s = next(bound_s for bound_s in counters.BOUNDS_S if true_s <= bound_s)
    low_s = max((bound_s for bound_s in counters.BOUNDS_S if bound_s < true_s), default=0.0)
    assert low_s <= spread.quantile(share) <= min(high_s, ordered[-1]) + 1e-9
    assert spread.summary()["longest_s"] == ordered[-1]
    assert list(spread.buckets())[-1] == (inf, len(times))
