"""What is observed of plans that are really run: functions in threads and processes, commands."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from threading import Barrier
from typing import Any

import pytest

import headway
from headway.errors import BadValueError
from headway.workspaces.observation import launch_argv, write_spec

ROOT = Path(headway.__file__).resolve().parents[2]

WORK = """\
import os
def parse(item, ctx):
    ctx.put(f"records/{item}", {"n": item})
    os.makedirs("out", exist_ok=True)
    with open(f"out/{item}.json.tmp", "w") as file:
        file.write(item)
    os.replace(f"out/{item}.json.tmp", f"out/{item}.json")
def read(ctx):
    return [ctx.get("records/a"), open("out/a.json").read()]
def last(item):
    with open("last.txt", "w") as file:
        file.write(str(item))
"""

PARSE = {"each": ["a", "b"], "python": "work:parse"}


def run(
    folder: Path, tasks: dict[str, Any], *options: str, within: Sequence[str] = (), **told: str
) -> tuple[dict[str, Any], str]:
    """A plan as a user runs it: the summary, and what is said beside it."""
    folder.mkdir(exist_ok=True)
    (folder / "work.py").write_text(WORK)
    plan = {"headway": 1, "name": "watched", "tasks": tasks}
    (folder / "plan.yaml").write_text(json.dumps(plan))
    ended = call(folder, "run", "plan.yaml", "--json", *options, within=within, **told)
    return json.loads(ended.stdout), ended.stderr


def call(
    folder: Path, *arguments: str, within: Sequence[str] = (), **told: str
) -> subprocess.CompletedProcess[str]:
    environment = dict(os.environ) | {
        "PYTHONPATH": str(ROOT / "src"), "HEADWAY_STATE_DIR": str(folder.parent / "state"),
        "NO_COLOR": "1", **told,
    }  # fmt: skip
    command = [*within, sys.executable, "-m", "headway", *arguments]
    return subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False
    )


def kinds(told: dict[str, Any]) -> list[tuple[str, str]]:
    return [(one["kind"], one["what"]) for one in told["findings"]]


def test_learn_proposes_what_to_declare(tmp_path: Path) -> None:
    folder = tmp_path / "plan"
    tasks = {
        "parse": PARSE | {"writes": ["state:records/{{ item }}"]},
        "read": {"python": "work:read", "needs": "parse"},
        "count": {"run": "ls out > count.txt; cat out/b.json", "needs": "parse"},
    }
    (folder).mkdir()
    (folder / "work.py").write_text(WORK.replace("def read(ctx)", "def read(given, ctx)"))
    (folder / "plan.yaml").write_text(json.dumps({"headway": 1, "tasks": tasks}))
    said = call(folder, "run", "plan.yaml", "-q", "--learn").stderr
    assert '    writes: ["out/{{ item }}.json", "state:records/{{ item }}"]' in said
    assert "    reads: [out/a.json, state:records/a]" in said
    assert '    reads: ["out/*"' in said
    assert "    writes: [count.txt]" in said


def test_members_that_race_are_told_a_remedy_that_a_plan_can_have(tmp_path: Path) -> None:
    folder = tmp_path / "plan"
    race = {"each": [1, 2], "python": "work:last"}
    told, _ = run(folder, {"race": race}, "-j", "1")
    assert kinds(told) == [("hazard", "last.txt")]
    key, _, value = told["findings"][0]["fix"].partition(": ")
    told, _ = run(folder, {"race": {**race, key: value}})
    assert (told["exit_code"], told["findings"]) == (0, [])


def test_functions_of_a_python_plan_are_observed_where_they_run_in_this_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    both = Barrier(2)

    def save(number: int) -> None:
        both.wait()
        Path("saved").write_text(str(number))
        both.wait()

    plan = headway.Plan("watched")
    plan.task("save", save, each=[1, 2])
    (found,) = plan.run().findings
    assert (found.kind, found.what, found.fix) == ("lost-update", "saved", "queue: save")
    run = plan.run(observe="enforce", return_exceptions=True)
    assert run.outcome is not None
    assert (run.outcome.cause, run.findings[0].kind) == ("halt", "lost-update")
    assert plan.run(observe="off").findings == ()


def test_a_mode_that_does_not_exist_is_refused() -> None:
    plan = headway.Plan("watched")
    plan.task("print", print, each=["1"])
    with pytest.raises(BadValueError, match="observe"):
        plan.run(observe="loud")  # type: ignore[arg-type]


# Files that tasks share in no order: ten ticks, a pipeline by redirects, two functions, agents.

TICK = """\
until [ -e go$turn ]; do sleep 0.01; done
content=$(cat TODO.md)
touch go$((turn + 1))
until [ -e all ]; do sleep 0.01; done
printf '%s\n' "$content" | sed "s/^- \\[ \\] $item$/- [x] $item/" > TODO.md
"""
"""Each one has read before any one writes."""
AGENT = """\
cat > /dev/null
cat TODO.md > seen.$HEADWAY_TASK; touch read.$HEADWAY_TASK
until [ $(ls read.* | wc -l) -eq 4 ]; do sleep 0.01; done
(cat seen.$HEADWAY_TASK; echo "done by $HEADWAY_TASK") > TODO.md
echo done
"""
STORE = """\
import json
from pathlib import Path
from threading import Barrier
both = Barrier(2)
def add(name):
    found = json.loads(Path("db.json").read_text())
    both.wait()
    Path("db.json").write_text(json.dumps({**found, name: 1}))
def one(): add("one")
def two(): add("two")
"""


def wrong(told: dict[str, Any]) -> list[tuple[str, str]]:
    return [(one["kind"], one["what"]) for one in told["findings"]
            if one["kind"] in ("lost-update", "stale-read")]  # fmt: skip


def test_ten_ticks_in_one_file_are_a_lost_update(tmp_path: Path) -> None:
    folder = tmp_path / "plan"
    folder.mkdir()
    (folder / "TODO.md").write_text("".join(f"- [ ] {n}\n" for n in range(10)))
    (folder / "go0").touch()
    tick = {"each": list(range(10)), "run": TICK, "vars": {"turn": "{{ item }}"}}
    last = {"run": "until [ -e go10 ]; do sleep 0.01; done; touch all"}
    told, _ = run(folder, {"tick": tick, "last": last}, "-j", "11")
    assert told["exit_code"] == 1
    assert ("lost-update", "TODO.md") in wrong(told)
    assert (folder / "TODO.md").read_text().count("[x]") < 10, "nothing was lost"
    text = call(folder, "status").stdout
    assert "error[lost-update]: `tick[" in text
    assert "`TODO.md`" in text
    assert "queue: tick" in text


def test_a_pipeline_by_redirects_reads_what_stood_there_before(tmp_path: Path) -> None:
    folder = tmp_path / "plan"
    folder.mkdir()
    (folder / "parsed.json").write_text("old")
    tasks = {
        "parse": {"run": "until [ -s enriched.json ]; do sleep 0.01; done; echo 1 > parsed.json"},
        "enrich": {"run": "cat parsed.json > enriched.json"},
        "validate": {"run": "until [ -s enriched.json ]; do sleep 0.01; done; cat enriched.json"},
    }
    told, _ = run(folder, tasks, "-j", "3")
    assert told["exit_code"] == 1
    assert ("stale-read", "parsed.json") in wrong(told)
    (found,) = [one for one in told["findings"] if one["what"] == "parsed.json"]
    assert (found["other"], found["task"], found["fix"]) == ("parse", "enrich", "needs: parse")
    tasks["enrich"]["needs"], tasks["validate"]["needs"] = "parse", "enrich"
    tasks["parse"]["run"] = "echo 1 > parsed.json"
    told, _ = run(folder, tasks, "-j", "3")
    assert (told["exit_code"], told["findings"]) == (0, [])


def test_two_functions_that_change_one_file_lose_an_update(tmp_path: Path) -> None:
    folder = tmp_path / "plan"
    folder.mkdir()
    (folder / "store.py").write_text(STORE)
    (folder / "db.json").write_text("{}")
    told, _ = run(folder, {"one": {"python": "store:one"}, "two": {"python": "store:two"}})
    assert told["exit_code"] == 1
    assert wrong(told) == [("lost-update", "db.json")]
    assert len(json.loads((folder / "db.json").read_text())) == 1


def test_four_agents_in_one_folder_lose_updates(tmp_path: Path) -> None:
    folder, configuration = tmp_path / "plan", tmp_path / "config"
    folder.mkdir()
    configuration.mkdir()
    (folder / "TODO.md").write_text("")
    script = tmp_path / "agent.sh"
    script.write_text(AGENT)
    (configuration / "config.toml").write_text(
        f'[agents.scripted]\ncommand = ["/bin/sh", "{script}"]\n'
    )
    agents = {
        f"a{n}": {"prompt": f"Do {n}", "agent": "scripted", "workspace": "off"} for n in range(4)
    }
    told, _ = run(folder, agents, "-j", "4", "--no-gateway", HEADWAY_CONFIG_DIR=str(configuration))
    assert told["exit_code"] == 1
    assert ("lost-update", "TODO.md") in wrong(told)


def test_enforce_stops_a_run_at_its_first_lost_update(tmp_path: Path) -> None:
    folder = tmp_path / "plan"
    folder.mkdir()
    (folder / "store.py").write_text(STORE)
    (folder / "db.json").write_text("{}")
    tasks = {
        "one": {"python": "store:one"}, "two": {"python": "store:two"},
        "after": {"run": "touch after", "needs": ["one", "two"]},
    }  # fmt: skip
    told, _ = run(folder, tasks, "--observe", "enforce")
    assert told["exit_code"] == 1
    assert wrong(told) == [("lost-update", "db.json")]
    assert not (folder / "after").exists()


def test_what_happened_to_be_in_order_is_a_hazard_and_no_error(tmp_path: Path) -> None:
    tasks = {"one": {"run": "echo 1 > a"}, "two": {"run": "cat a"}}
    told, _ = run(tmp_path / "plan", tasks, "-j", "1")
    assert told["exit_code"] == 0
    assert kinds(told) == [("hazard", "a")]
    assert told["findings"][0]["words"].endswith("nothing orders them: right this time")


def test_appends_at_the_same_time_need_no_order(tmp_path: Path) -> None:
    wait = "touch go.$HEADWAY_TASK; until [ -e go.one -a -e go.two ]; do sleep 0.01; done; "
    tasks = {name: {"run": wait + "echo 1 >> log"} for name in ("one", "two")}
    told, _ = run(tmp_path / "plan", tasks, "-j", "2")
    assert (told["exit_code"], told["findings"]) == (0, [])


def test_tasks_that_use_files_of_their_own_are_left_alone(tmp_path: Path) -> None:
    make = "mkdir -p out && echo 1 > out/$item.tmp && mv out/$item.tmp out/$item"
    make += " && sed -i s/1/2/ out/$item"
    told, said = run(tmp_path / "plan", {"make": {"each": [1, 2, 3, 4], "run": make}}, "-j", "4")
    assert (told["exit_code"], told["findings"]) == (0, []), said


def test_a_temporary_file_of_one_name_for_all_is_a_lost_update(tmp_path: Path) -> None:
    both = "until [ -e NAME.1 -a -e NAME.2 ]; do sleep 0.01; done; "
    go, wrote = (f"touch {name}.$item; {both.replace('NAME', name)}" for name in ("go", "wrote"))
    make = f"{go}echo $item > draft; {wrote}mv draft out.$item || true"
    told, _ = run(tmp_path / "plan", {"make": {"each": [1, 2], "run": make}}, "-j", "2")
    assert ("lost-update", "draft") in wrong(told)


def test_a_resumed_run_knows_what_was_used_before(tmp_path: Path) -> None:
    folder = tmp_path / "plan"
    wait = "touch go.$HEADWAY_TASK; until [ -e go.one -a -e go.two ]; do sleep 0.01; done; "
    tasks = {name: {"run": "cat a;" + wait + "echo 1 > a"} for name in ("one", "two")}
    told, _ = run(folder, {**tasks, "fail": {"run": "test -e done"}}, "-j", "3")
    assert wrong(told) == [("lost-update", "a")]
    (folder / "done").touch()
    again = json.loads(call(folder, "resume", "--json").stdout)
    assert (again["exit_code"], again["failed"]) == (1, 0)
    assert wrong(again) == [("lost-update", "a")]


def test_where_nothing_can_be_observed_the_run_says_so(tmp_path: Path) -> None:
    tasks = {"one": {"run": "echo 1 > a"}, "two": {"run": "cat a"}}
    told, said = run(tmp_path / "plan", tasks, "-j", "1", PATH=os.environ["PATH"],
                     within=launch_argv_without_seccomp(tmp_path))  # fmt: skip
    assert said.startswith("the files that commands use cannot be observed here")
    assert {one["kind"] for one in told["findings"]} == {"unobserved"}


def launch_argv_without_seccomp(folder: Path) -> list[str]:
    """A command that runs another one where no second listener is allowed: it has one already."""
    spec = folder / "spec"
    write_spec(str(spec), {"mode": "observe", "folder": str(folder), "cwd": str(folder / "plan")})
    return launch_argv(str(spec), [])
