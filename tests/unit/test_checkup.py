"""What the doctor looks at: every finding has a judgement, and what is wrong has a fix."""

from __future__ import annotations

import io
import socket
import sqlite3
from pathlib import Path

import pytest

from headway.report.text.check import draw_findings
from headway.report.text.words import console_for
from headway.run.doctor import DoctorFinding, check_up


def found(environ: dict[str, str]) -> dict[str, DoctorFinding]:
    return {finding.about: finding for finding in check_up(environ)}


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    return {
        "HEADWAY_STATE_DIR": str(tmp_path / "state"),
        "HEADWAY_RUNTIME_DIR": str(tmp_path / "runtime"),
        "XDG_CONFIG_HOME": str(tmp_path / "config"),
    }


def test_a_fit_machine_has_nothing_to_mend(environ: dict[str, str]) -> None:
    findings = found(environ)
    assert not [one for one in findings.values() if one.judgement == "fail"]
    assert findings["Python"].judgement == "ok"
    assert findings["broker"].detail == "not running; the first call starts it"
    assert all(one.fix for one in findings.values() if one.judgement != "ok")


def test_keys_are_told_by_name_and_never_by_value(environ: dict[str, str]) -> None:
    assert found(environ)["keys"].judgement == "warn"
    findings = found(environ | {"OPENAI_API_KEY": "sk-secret-1234"})
    assert findings["keys"].detail == "set: OPENAI_API_KEY; not set: ANTHROPIC_API_KEY"
    assert "secret" not in repr(findings)


def test_a_folder_or_a_configuration_that_cannot_be_used_is_a_failure(
    environ: dict[str, str], tmp_path: Path
) -> None:
    folder = tmp_path / "config" / "headway"
    folder.mkdir(parents=True)
    (folder / "config.toml").write_text("strategi = 'waves:4'")
    findings = found(environ | {"HEADWAY_STATE_DIR": str(folder / "config.toml" / "state")})
    assert findings["folders"].judgement == "fail"
    assert "HEADWAY_STATE_DIR" in findings["folders"].fix
    wrong = findings["configuration"]
    assert (wrong.judgement, wrong.fix) == ("fail", "did you mean `strategy`?")
    (tmp_path / "runtime").mkdir(exist_ok=True)
    (tmp_path / "runtime").chmod(0o755)
    assert found(environ)["folders"].fix == f"chmod 700 {tmp_path / 'runtime'}"


def test_a_broker_that_listens_is_found_and_one_that_is_gone_is_no_harm(
    environ: dict[str, str], tmp_path: Path
) -> None:
    (tmp_path / "runtime").mkdir(mode=0o700)
    path = str(tmp_path / "runtime" / "broker.sock")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as server:
        server.bind(path)
        server.listen()
        assert found(environ)["broker"].detail == f"running at {path}"
    assert found(environ)["broker"].judgement == "ok"


def test_an_old_sqlite_is_warned_of(
    environ: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite3, "sqlite_version_info", (3, 51, 2))
    assert found(environ)["SQLite"].judgement == "warn"
    monkeypatch.setattr(sqlite3, "sqlite_version_info", (3, 51, 3))
    assert found(environ)["SQLite"].judgement == "ok"


def test_findings_are_drawn_with_their_fixes() -> None:
    stream = io.StringIO()
    findings = [
        DoctorFinding("disk", "fail", "3 MB free", "make room"),
        DoctorFinding("clock", "ok", "fine"),
    ]
    draw_findings(console_for(stream), findings)
    assert stream.getvalue() == (
        "fail  disk   3 MB free\n             fix: make room\nok    clock  fine\n\n"
        "1 fault to correct first.\n"
    )
    for judgement, words in (("warn", "Fit, with 1 warning."), ("ok", "Fit.")):
        stream = io.StringIO()
        draw_findings(console_for(stream), [DoctorFinding("disk", judgement, "90 MB")])  # type: ignore[arg-type]
        assert stream.getvalue().endswith(f"\n{words}\n")
