"""`output`: one bad item harms no other member, and nothing leaves the plan's folder."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.promises.user import User, openai_at, provider, user

PLAN = """\
headway: 1
tasks:
  list: {run: cat items.json}
  make:
    each: list
    run: 'printf "got %s" "$item" && echo "$item" >> performed'
    output: "out/{{ item }}"
"""


@pytest.fixture
def someone(tmp_path: Path) -> Iterator[User]:
    with user(tmp_path) as made:
        yield made


BAD = {
    "n" * 300: "too long",
    "nul\0byte": "zero byte",
    "../../up": "leads out",
    "folder": "is a folder",
    "pipe": "not a file",
    "file/below": "is not a folder",
    "way/out": "link leads out",
    "link": "link leads out",
    "x" * 5000: "too long",
}


def test_members_whose_output_cannot_be_written_fail_alone_at_every_resume(someone: User) -> None:
    beyond = someone.root / "beyond"
    beyond.mkdir()
    (someone.folder / "out" / "folder").mkdir(parents=True)
    someone.write("out/file", "a file")
    os.mkfifo(someone.folder / "out" / "pipe")
    (someone.folder / "out" / "way").symlink_to(beyond)
    (someone.folder / "out" / "link").symlink_to(beyond / "new")
    someone.write("items.json", json.dumps(["first", *BAD, "한국어", "sub/last"]))
    someone.write("plan.yaml", PLAN)
    ended = someone.headway("run", "plan.yaml")
    for again in range(3):
        assert ended.returncode == 1, ended.stderr
        assert "Traceback" not in ended.stderr
        assert "a bug in headway" not in ended.stderr
        assert f"4 done, {len(BAD)} failed" in ended.stderr
        ended = someone.headway("resume") if again < 2 else ended
    for item, reason in BAD.items():
        assert reason in ended.stderr, (item, ended.stderr)
    assert (someone.folder / "out" / "first").read_text() == "got first"
    assert (someone.folder / "out" / "한국어").read_text() == "got 한국어"
    assert (someone.folder / "out" / "sub" / "last").read_text() == "got sub/last"
    assert (someone.folder / "performed").read_text().split() == ["first", "한국어", "sub/last"]
    assert not list(beyond.iterdir())
    assert not (someone.root / "up").exists()
    assert not list((someone.folder / "out").rglob("*draft*"))


def test_a_member_that_fails_for_its_output_is_not_paid(tmp_path: Path) -> None:
    with provider() as served, user(tmp_path, openai_at(served, "k")) as someone:
        someone.write("items.json", json.dumps(["a", "n" * 300, "b"]))
        someone.write(
            "plan.yaml",
            "headway: 1\nmodel: openai/gpt-5-mini\ntasks:\n  list: {run: cat items.json}\n"
            "  ask: {each: list, prompt: 'say {{ item }}', output: 'out/{{ item }}'}\n",
        )
        ended = someone.headway("run", "plan.yaml", "--yes")
        assert ended.returncode == 1, ended.stderr
        account = served.account("k")
        assert account is not None
        assert len(os.listdir(someone.folder / "out")) == 2
        assert served.truth("k")["arrivals_total"] == 2


BLOCKING = """\
headway: 1
tasks:
  list: {run: 'printf "a\\nb\\nc\\n"'}
  make:
    each: list
    run: 'if [ "$item" = b ]; then BLOCK; fi; echo "$item" >> performed; echo "got $item"'
    output: "out/{{ item }}/r.txt"
  after: {each: make, run: 'echo after "$item"'}
"""


@pytest.mark.parametrize(
    ("block", "reason"),
    [
        ("mkdir -p out && ln -s ../../beyond out/b", "link leads out"),
        ("mkdir -p out/b && ln -s ../../../beyond/file out/b/r.txt", "link leads out"),
        ("mkdir -p out/b/r.txt", "is a folder"),
        ("mkdir -p out && : > out/b", "is not a folder|Not a directory"),
    ],
)
def test_what_blocks_an_output_during_the_run_fails_that_member_and_its_result_is_kept(
    someone: User, block: str, reason: str
) -> None:
    (someone.root / "beyond").mkdir()
    someone.write("plan.yaml", BLOCKING.replace("BLOCK", block))
    ended = someone.headway("run", "plan.yaml")
    assert ended.returncode == 1, ended.stderr
    assert "5 done, 1 failed, 1 skipped" in ended.stderr
    assert any(one in ended.stderr for one in reason.split("|")), ended.stderr
    assert not list((someone.root / "beyond").iterdir())
    out = someone.folder / "out"
    assert (out / "a" / "r.txt").read_text() == (out / "c" / "r.txt").read_text().replace("c", "a")
    assert someone.headway("resume").returncode == 1
    if (out / "b").is_symlink() or (out / "b").is_file():
        (out / "b").unlink()
    elif (out / "b" / "r.txt").is_symlink():
        (out / "b" / "r.txt").unlink()
    else:
        (out / "b" / "r.txt").rmdir()
    ended = someone.headway("resume")
    assert ended.returncode == 0, ended.stderr
    assert (out / "b" / "r.txt").read_text() == "got b\n"
    # Its result was there: it was not performed again.
    assert sorted((someone.folder / "performed").read_text().split()) == ["a", "b", "c"]


@pytest.mark.parametrize("output", ["way/x.md", "file.md", "way/{{ index }}.md", "in/way/x"])
def test_check_and_run_refuse_an_output_behind_a_link_and_outside_allows_it(
    someone: User, output: str
) -> None:
    beyond = someone.root / "beyond"
    beyond.mkdir()
    (someone.folder / "way").symlink_to(beyond)
    (someone.folder / "file.md").symlink_to(beyond / "file.md")
    (someone.folder / "in").mkdir()
    (someone.folder / "in" / "way").symlink_to("../way")
    each = "each: [a], " if "{{" in output else ""
    someone.write(
        "plan.yaml", f'headway: 1\ntasks:\n  t: {{{each}run: echo hi, output: "{output}"}}\n'
    )
    for verb in ("check", "run"):
        ended = someone.headway(verb, "plan.yaml")
        assert ended.returncode == 3, ended.stderr
        assert "plan.yaml:3:" in ended.stderr
        assert "link" in ended.stderr
        assert "--outside" in ended.stderr
        assert not list(beyond.iterdir())
    assert someone.headway("run", "plan.yaml", "--outside").returncode == 0
    assert [one.read_text() for one in beyond.iterdir()] == ["hi\n"]


def test_a_link_that_stays_in_the_folder_is_followed(someone: User) -> None:
    (someone.folder / "real").mkdir()
    (someone.folder / "out").symlink_to("real")
    (someone.folder / "one.md").symlink_to("real/one.md")
    plan = "headway: 1\ntasks:\n  t: {run: echo hi, output: out/t.md}\n"
    someone.write("plan.yaml", plan + "  u: {run: echo ho, output: one.md}\n")
    ended = someone.headway("run", "plan.yaml")
    assert ended.returncode == 0, ended.stderr
    assert (someone.folder / "real" / "t.md").read_text() == "hi\n"
    assert (someone.folder / "real" / "one.md").read_text() == "ho\n"
    assert (someone.folder / "one.md").is_symlink()


@pytest.mark.parametrize(
    ("plan", "where"),
    [
        (r'tasks: {t: {each: ["a", "b\0c"], run: "echo $item"}}', "plan.yaml:2:"),
        (r'tasks: {t: {each: [{"k": "b\0c"}], run: "echo $item"}}', "plan.yaml:2:"),
        (r'tasks: {t: {vars: {v: "b\0c"}, run: "echo $v"}}', "plan.yaml:2:"),
        (r'tasks: {t: {matrix: {m: ["b\0c"]}, run: "echo $m"}}', "plan.yaml:2:"),
        (r"tasks: {t: {each: {lines: items.txt}, run: 'echo $item'}}", "plan.yaml:2:"),
    ],
)
def test_a_zero_byte_in_an_item_is_refused_with_its_place(
    someone: User, plan: str, where: str
) -> None:
    someone.write("items.txt", "a\nb\0c\n")
    someone.write("plan.yaml", f"headway: 1\n{plan}\n")
    for verb in ("check", "run"):
        ended = someone.headway(verb, "plan.yaml")
        assert ended.returncode == 3, ended.stderr
        assert "zero byte" in ended.stderr
        assert where in ended.stderr


def test_a_zero_byte_in_an_item_found_at_run_time_fails_that_member(someone: User) -> None:
    someone.write("items.json", json.dumps(["a", "b\0c", {"k": "\0"}, ["\0"], "d"]))
    someone.write(
        "plan.yaml",
        "headway: 1\ntasks:\n  list: {run: cat items.json}\n"
        "  say: {each: list, run: 'printf %s \"$item\"'}\n",
    )
    ended = someone.headway("run", "plan.yaml")
    assert ended.returncode == 1, ended.stderr
    assert "3 done, 3 failed" in ended.stderr
    assert ended.stderr.count("zero byte") == 3
    assert ended.stdout.split() == ["a", "d"]
    assert someone.headway("resume").returncode == 1


def test_a_result_with_a_zero_byte_is_given_whole_in_a_file(someone: User) -> None:
    someone.write(
        "plan.yaml",
        "headway: 1\ntasks:\n  make: {run: 'printf \"a\\0b\"'}\n"
        "  use: {needs: make, vars: {v: '{{ tasks.make.output }}'}, "
        'run: \'od -An -c < "$v_file"; echo "${v-no variable}"\'}\n',
    )
    ended = someone.headway("run", "plan.yaml")
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.split() == ["a", "\\0", "b", "no", "variable"]
