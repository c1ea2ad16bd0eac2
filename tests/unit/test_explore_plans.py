"""Plans that are tried: pairs that are turned around, whole schedules, crashes."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from headway.errors import UsageError
from headway.plans.load import load_unrefused
from headway.report import explore as turning
from headway.report.explore import (
    Difference,
    Explored,
    ExploreOptions,
    Explorer,
    PairVerdict,
    explore,
    subject_of,
)
from headway.report.stage import PROCESS, Going, HashedStage, TrialAttempt, TrialTouch

HEAD = "headway: 1\nname: tried\nmodel: openai/gpt-5-mini\n"


def quiet(what: str, done: int, of: int) -> None:
    """Nobody is told."""


def _written(folder: Path, plan: str) -> Path:
    path = folder / "plan.yaml"
    path.write_text(HEAD + plan)
    return path


def tried(folder: Path, plan: str, **how: object) -> Explored:
    loaded, _ = load_unrefused(_written(folder, plan))
    return explore(subject_of(loaded.expanded), ExploreOptions(**how), quiet)  # type: ignore[arg-type]


def verdicts(found: Explored) -> dict[tuple[str, str], str]:
    return {(pair.first, pair.second): pair.verdict for pair in found.pairs}


def one(found: Explored, first: str, second: str) -> PairVerdict:
    return next(pair for pair in found.pairs if (pair.first, pair.second) == (first, second))


PIPELINE = """\
tasks:
  parse: {run: ./parse.sh, writes: out/parsed.json}
  enrich: {run: ./enrich.sh, reads: out/parsed.json, writes: out/enriched.json}
  validate: {prompt: Validate, reads: out/enriched.json, output: out/verdict.json}
"""


def test_a_well_declared_pipeline_is_blocked_by_its_edges(tmp_path: Path) -> None:
    found = tried(tmp_path, PIPELINE)
    assert set(verdicts(found).values()) == {"blocked"}
    assert one(found, "parse", "enrich").edge == "`enrich` reads what is written by `parse`"
    assert one(found, "parse", "validate").edge == (
        "`validate` reads what is written by `enrich`, `enrich` reads what is written by `parse`"
    )
    assert (found.search, found.schedules, found.is_complete) == ("all", 1, True)
    assert found.crashes > 10
    assert not found.differs


def test_a_plan_that_check_refuses_shows_what_its_hazard_does(tmp_path: Path) -> None:
    plan = """\
tasks:
  validate: {prompt: Validate it, reads: out/enriched.json}
  enrich: {run: ./enrich.sh, writes: out/enriched.json}
"""
    found = tried(tmp_path, plan)
    pair = one(found, "validate", "enrich")
    assert pair.verdict == "differs"
    assert pair.shares == ("file `out/enriched.json`",)
    changed = pair.difference
    assert isinstance(changed, Difference)
    assert (changed.kind, changed.where, changed.line) == ("prompt", "validate", 2)
    assert changed.before == "Validate it"
    assert changed.serial == "reads out/enriched.json: as before the run"
    assert changed.got.startswith("reads out/enriched.json: enrich ")
    assert pair.fix == "enrich:\n  needs: validate"
    assert pair.other_fix == "validate:\n  needs: enrich"
    assert found.differing
    assert found.differs


@pytest.mark.parametrize("schedule", ["pair", "steps"])
def test_every_failure_replays_from_its_line(tmp_path: Path, schedule: str) -> None:
    plan = """\
tasks:
  a: {run: ./a.sh, writes: f}
  b: {run: ./b.sh, writes: f}
"""
    found = tried(tmp_path, plan)
    lines = [found.pairs[0].replay, *(failure.replay for failure in found.failures)]
    line = next(line for line in lines if line.startswith(schedule))
    loaded, refusal = load_unrefused(tmp_path / "plan.yaml")
    assert refusal is not None
    explorer = Explorer(subject_of(loaded.expanded), ExploreOptions(), quiet)
    again = explorer.replay(line)
    assert again.differing == 1
    assert again.failures[0].replay == line
    assert not explorer.replay("serial").differs


def test_two_writers_of_one_file_differ_in_the_file(tmp_path: Path) -> None:
    plan = """\
tasks:
  a: {run: ./a.sh, writes: f}
  b: {needs: c, run: ./b.sh, writes: f}
  c: {run: ./c.sh}
"""
    pair = one(tried(tmp_path, plan, is_pairs_only=True), "a", "b")
    assert pair.difference is not None
    assert (pair.difference.kind, pair.difference.where) == ("file", "f")
    assert pair.fix == "b:\n  needs: [c, a]"
    assert pair.other_fix == ""


def test_a_difference_is_told_of_the_pair_that_makes_it(tmp_path: Path) -> None:
    plan = """\
tasks:
  validate: {run: ./v.sh, reads: out/enriched.json}
  parse: {run: ./p.sh, writes: out/parsed.json}
  enrich: {run: ./e.sh, reads: out/parsed.json, writes: out/enriched.json}
  other: {run: ./x.sh, writes: out/parsed.json}
"""
    found = verdicts(tried(tmp_path, plan, is_pairs_only=True))
    assert found == {
        ("validate", "parse"): "commutes",
        ("validate", "enrich"): "differs",
        ("validate", "other"): "commutes",
        ("parse", "enrich"): "blocked",
        ("parse", "other"): "differs",
        ("enrich", "other"): "differs",
    }


def test_members_of_a_group_stand_for_all_of_them(tmp_path: Path) -> None:
    plan = """\
tasks:
  read: {each: [a, b, c, d, e], run: ./read.sh, writes: "out/{{ item }}"}
  ask: {each: read, prompt: "Ask {{ tasks.read.output }}"}
  merge: {reduce: ask, prompt: Merge them}
  last: {needs: merge, queue: q, prompt: "{{ tasks.merge.output }}"}
  next: {queue: q, prompt: "Next"}
"""
    found = tried(tmp_path, plan, is_pairs_only=True)
    assert found.tasks == 9
    counts = {(pair.first, pair.second): (pair.verdict, pair.count) for pair in found.pairs}
    assert counts[("read[b]", "read[c]")] == ("commutes", 10)
    assert counts[("read[c]", "ask[c]")] == ("blocked", 5)
    assert counts[("read[c]", "ask[a]")] == ("commutes", 20)
    assert counts[("ask[c]", "merge")] == ("blocked", 5)
    assert one(found, "ask[c]", "merge").edge == "`merge` reduces `ask`"
    assert one(found, "read[c]", "ask[c]").edge == "`ask` has a member for each of `read`"
    assert one(found, "last", "next").edge == "`next` is behind `last` in queue `q`"
    assert one(found, "merge", "last").edge == "`last` needs `merge`"


def test_members_that_write_one_file_need_a_queue(tmp_path: Path) -> None:
    plan = "tasks:\n  fix: {each: [a, b, c, d], run: ./fix.sh, writes: log}\n"
    pair = tried(tmp_path, plan, is_pairs_only=True).pairs[0]
    assert (pair.first, pair.second, pair.verdict) == ("fix[b]", "fix[c]", "differs")
    assert pair.fix == "fix:\n  queue: fix"
    queued = plan.replace("run:", "queue: fix, run:")
    assert tried(tmp_path, queued).pairs[0].verdict == "blocked"


UNDECLARED = """\
state: {total: counter, log: append, best: max, all: set, mail: "effect(post:send)",
        merged: "reduce(join:two)"}
tasks:
  a: {run: ./a.sh, writes: ["state:x", "state:total", "effect:mail", "state:merged"]}
  b: {run: ./b.sh, writes: ["state:y", "state:log", "state:d/*", "effect:mail", "state:merged"]}
  c: {prompt: "Is it {{ state.x }} or {{ state.y }}?", output: "state:z"}
  d: {reads: ["state:d/*", "state:best"], prompt: "All: {{ state }}", output: "state:all"}
"""


def test_what_is_not_declared_is_done_again_and_comes_out_the_same(tmp_path: Path) -> None:
    found = tried(tmp_path, UNDECLARED, schedules=300)
    assert not found.differs
    assert found.failed == ()
    assert verdicts(found)[("a", "b")] == "re-ran"
    assert one(found, "a", "b").reran >= 1
    assert found.reran > 0
    assert found.is_complete


def test_a_plan_that_spreads_at_run_time_is_tried_with_what_is_found(tmp_path: Path) -> None:
    plan = """\
vars: {tone: brief}
tasks:
  list: {run: ls, vars: {x: "{{ item }}"}, matrix: {view: [one]}, each: [a]}
  find: {run: ls, vars: {y: 3}}
  ask: {each: find, prompt: "Ask about {{ item }}", output: "out/{{ item }}.txt"}
  sum: {needs: ask, run: ./sum.sh, vars: {all: "{{ tasks.ask.output }}"}}
"""
    found = tried(tmp_path, plan)
    assert not found.differs
    asked = [pair.second for pair in found.pairs if pair.second.startswith("ask[find ")]
    assert asked


class Hidden(HashedStage):
    """Functions that share what nobody sees: every task reads and changes one value."""

    seen = ""
    hidden_from: tuple[str, ...] = ()

    def begin(self, asked: TrialAttempt) -> Going:
        if asked.label not in self.hidden_from:
            self.files.put("memory", self.seen + asked.label)
            type(self).seen += asked.label
        return super().begin(asked)

    def touched(self) -> list[TrialTouch]:
        return [*super().touched(), TrialTouch(PROCESS, "", True)]

    def close(self) -> None:
        type(self).seen = ""


def test_functions_that_share_what_nobody_sees_differ(tmp_path: Path) -> None:
    plan = "tasks:\n  a: {run: ./a.sh}\n  b: {run: ./b.sh}\n  c: {run: ./c.sh}\n"
    loaded, _ = load_unrefused(_written(tmp_path, plan))
    subject = subject_of(loaded.expanded)

    class OnlyTwo(Hidden):
        hidden_from = ("c",)

    cast = replace(subject.cast, stage=lambda: OnlyTwo(subject.play), is_copied=False)
    found = explore(replace(subject, cast=cast), ExploreOptions(is_pairs_only=True), quiet)
    assert verdicts(found) == {
        ("a", "b"): "differs", ("a", "c"): "commutes", ("b", "c"): "commutes",
    }  # fmt: skip
    assert one(found, "a", "b").shares == ()
    assert one(found, "a", "b").replay.endswith(":late")


def test_a_difference_that_another_pair_makes_is_not_told_of_this_one(tmp_path: Path) -> None:
    plan = """\
tasks:
  a: {run: ./a.sh, writes: f}
  m: {run: ./m.sh, reads: h}
  b: {run: ./b.sh, writes: [f, h]}
  c: {run: ./c.sh, writes: f}
"""
    found = verdicts(tried(tmp_path, plan, is_pairs_only=True))
    assert found[("a", "b")] == "commutes"
    assert found[("m", "b")] == "differs"


def test_a_large_plan_is_reduced_and_then_drawn(tmp_path: Path) -> None:
    lines = [f"  t{n}: {{run: ./t.sh, writes: f{n}}}" for n in range(7)]
    apart = tried(tmp_path, "tasks:\n" + "\n".join(lines) + "\n")
    assert (apart.search, apart.schedules, apart.is_complete) == ("reduced", 1, True)
    lines = [f"  t{n}: {{run: ./t.sh, writes: f}}" for n in range(7)]
    told: list[tuple[str, int, int]] = []
    path = _written(tmp_path, "tasks:\n" + "\n".join(lines) + "\n")
    loaded, _ = load_unrefused(path)
    options = ExploreOptions(schedules=64, seed=3)
    found = explore(subject_of(loaded.expanded), options, lambda *news: told.append(news))
    assert (found.search, found.schedules, found.is_complete) == ("drawn", 128, False)
    assert len(found.failures) == 20
    assert {what for what, _, _ in told} == {"pairs", "schedules", "crashes"}


def test_more_pairs_than_can_be_turned_are_judged_by_what_they_share(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(turning, "PAIRS_MAX", 1)
    plan = """\
tasks:
  a: {run: ./a.sh, writes: f}
  b: {run: ./b.sh, writes: f}
  c: {run: ./c.sh, writes: f}
  d: {run: ./d.sh}
"""
    found = tried(tmp_path, plan, is_pairs_only=True)
    # Whoever writes first is overwritten by the last one, whatever the order of the first two.
    assert verdicts(found) == {
        ("a", "b"): "commutes", ("a", "c"): "untried", ("b", "c"): "untried",
    }  # fmt: skip
    assert found.apart == 4


def test_a_crash_that_changes_the_end_is_told_with_its_line(tmp_path: Path) -> None:
    loaded, _ = load_unrefused(_written(tmp_path, "tasks:\n  a: {run: ./a.sh}\n"))
    subject = subject_of(loaded.expanded)

    class Forgetful(HashedStage):
        def restart(self) -> None:
            self.write("lost", "something")

    cast = replace(subject.cast, stage=lambda: Forgetful(subject.play))
    found = explore(replace(subject, cast=cast), ExploreOptions(), quiet)
    assert found.failures[0].replay == "serial:crash=1"
    assert found.differing == found.crashes


def test_a_schedule_of_another_plan_and_a_crash_that_never_comes_are_refused(
    tmp_path: Path,
) -> None:
    loaded, _ = load_unrefused(_written(tmp_path, PIPELINE))
    explorer = Explorer(subject_of(loaded.expanded), ExploreOptions(), quiet)
    with pytest.raises(UsageError, match="step 1 of the schedule cannot be taken: it is of ano"):
        explorer.replay("steps:2.2")
    with pytest.raises(UsageError, match="kills nothing: only") as raised:
        explorer.replay("random:seed=1:crash=999")
    last = str(raised.value.hint).rpartition("=")[2]
    assert not explorer.replay(f"random:seed=1:crash={last}").differs
    with pytest.raises(UsageError, match="kills nothing"):
        explorer.replay(f"random:seed=1:crash={int(last) + 1}")
