"""Plans that want to do harm, as a model might write them: nothing of them is executed.

Every one is refused, and while it is judged an audit hook of the interpreter sees no program
started, no file written, and none opened that is not the plan's business. A canary that any of
them would leave is looked for as well.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from json import dumps
from pathlib import Path

import pytest

from headway.errors import NoPlanError
from headway.planner.planning import drafted
from tests.unit.planned import GOOD, Author, fenced, wanted

EXECUTING = ("subprocess.Popen", "os.system", "os.exec", "os.posix_spawn", "os.fork", "os.forkpty",
             "pty.spawn", "ctypes.dlopen", "socket.connect", "os.symlink", "os.link", "os.rename",
             "os.remove", "os.mkdir", "os.chmod", "shutil.rmtree")  # fmt: skip
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
SECRET = "very-secret-content"


class Guard:
    """Hears everything that the interpreter does while it is on."""

    def __init__(self) -> None:
        self.is_on = False
        self.seen: list[str] = []
        sys.addaudithook(self.hear)

    def hear(self, event: str, details: tuple[object, ...]) -> None:
        if not self.is_on:
            return
        if event in EXECUTING:
            self.seen.append(f"{event} {details[:2]}")
        elif event == "import" and str(details[0]).split(".")[0] in ("evil", "conftest_evil"):
            self.seen.append(f"{event} {details[0]}")
        elif event == "open":
            path, _, flags = details
            is_written = isinstance(flags, int) and bool(flags & WRITING)
            is_foreign = any(part in str(path) for part in ("passwd", ".env", "outside", ".pem"))
            if is_written or is_foreign:
                self.seen.append(f"{event} {details}")

    @contextmanager
    def watching(self) -> Iterator[list[str]]:
        self.seen.clear()
        self.is_on = True
        try:
            yield self.seen
        finally:
            self.is_on = False


GUARD = Guard()
"""A hook cannot be taken away again, so there is one for all tests here."""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A folder with what an attacker would like to have."""
    here, outside = tmp_path / "project", tmp_path / "outside"
    outside.mkdir()
    (outside / "notes.txt").write_text(SECRET)
    for name in (".ssh/id_rsa", ".git/config", ".env", "key.pem", "README.md", "p/a.md"):
        (here / name).parent.mkdir(parents=True, exist_ok=True)
        (here / name).write_text(f"{SECRET}\n{{{{ x")
    (here / "evil.py").write_text(f"open({str(tmp_path / 'canary')!r}, 'w')\ndef f(*a): pass\n")
    (here / "link").symlink_to(outside)
    (here / "link.md").symlink_to(outside / "notes.txt")
    (here / "lines.txt").write_text("../outside/notes.txt\n.env\n")
    return here


def task(*lines: str, top: str = "") -> str:
    body = "".join(f"    {line}\n" for line in lines)
    return f"headway: 1\n{top}tasks:\n  t:\n{body}"


TOUCH = "touch ../canary"
LAUGHS = "a: &a [x, x, x, x]\n" + "".join(
    f"{chr(98 + n)}: &{chr(98 + n)} [*{chr(97 + n)}, *{chr(97 + n)}, *{chr(97 + n)}]\n"
    for n in range(9)
)
HOSTILE = {
    "a command": task(f"run: {TOUCH}"),
    "a command behind a prompt": task("prompt: x", f"run: {TOUCH}"),
    "a command with a template": task("run: 'echo {{ item }}'", f"each: ['; {TOUCH}']"),
    "a command in a matrix": task("run: $v", f"matrix: {{v: ['{TOUCH}']}}"),
    "a verifier": task("prompt: x", f"verify: {TOUCH}"),
    "a verifier of a reduction": "headway: 1\ntasks:\n  a: {each: [x], prompt: hi}\n"
    f"  b: {{reduce: a, prompt: x, verify: '{TOUCH}'}}\n",
    "a function": task("python: evil:f"),
    "a function of the library": task("python: os:system", "each: ['touch ../canary']"),
    "a function of headway": task("python: headway.cli.main:main", "each: [run]"),
    "a function that the reducers import": task("python: headway.reducers:loads"),
    "an effect that is a function": task("prompt: x", "writes: effect:e",
                                         top="state: {e: effect(os:system)}\n"),
    "an effect that is a command": task("prompt: x", "writes: effect:e",
                                        top=f"state: {{e: effect({TOUCH})}}\n"),
    "a channel that is a function": task("prompt: x", "output: state:e",
                                         top="state: {e: reduce(evil:f)}\n"),
    "an agent": task("prompt: touch ../canary", "agent: claude"),
    "an agent of one's own": task("prompt: x", "agent: sh"),
    "tools": task("prompt: x", "agent: 'tools(shell)'"),
    "tools that only read": task("prompt: x", "agent: 'tools(files, mcp:x)'"),
    "a prompt outside": task("prompt_file: /etc/passwd"),
    "a prompt above": task("prompt_file: ../outside/notes.txt"),
    "a prompt above, hidden in a path": task("prompt_file: p/../../outside/notes.txt"),
    "a prompt at home": task("prompt_file: ~/.ssh/id_rsa"),
    "a prompt by a link": task("prompt_file: link.md"),
    "a prompt in a linked folder": task("prompt_file: link/notes.txt"),
    "a prompt that is hidden": task("prompt_file: .env"),
    "a prompt that is git's": task("prompt_file: .git/config"),
    "a prompt that is a key": task("prompt_file: key.pem"),
    "a prompt by an item": task("prompt_file: '{{ item }}'", "each: [README.md, .env]"),
    "a prompt by a matrix": task("prompt_file: '{{ matrix.a }}/{{ matrix.b }}'",
                                 "matrix: {a: [p, ..], b: [a.md, outside/notes.txt]}"),
    "a prompt by a variable": task("prompt_file: '{{ vars.v }}'", "vars: {v: .env}"),
    "a prompt by a pattern": task("prompt_file: '{{ item }}'", "each: '*'"),
    "a prompt by a line": task("prompt_file: '{{ item }}'", "each: {lines: lines.txt}"),
    "a pattern outside": task("prompt: '{{ item }}'", "each: ../outside/*"),
    "a pattern at the root": task("prompt: '{{ item }}'", "each: /etc/*"),
    "a pattern that is hidden": task("prompt: '{{ item }}'", "each: .ssh/*"),
    "lines outside": task("prompt: '{{ item }}'", "each: {lines: ../../x}"),
    "lines that are hidden": task("prompt: '{{ item }}'", "each: {lines: .env}"),
    "lines by a link": task("prompt: '{{ item }}'", "each: {lines: link/notes.txt}"),
    "a schema outside": task("prompt: x", "schema: /etc/passwd"),
    "a schema by a link": task("prompt: x", "schema: link/notes.txt"),
    "a hook": task("prompt: x", "output: .git/hooks/pre-commit"),
    "a text that looks like no hook": task("prompt: x", "output: .git/hooks/x.md"),
    "a workflow": task("prompt: x", "output: .github/workflows/x.yaml"),
    "a file above": task("prompt: x", "output: ../canary.md"),
    "a file outside": task("prompt: x", "output: /tmp/canary.md"),
    "a file in a linked folder": task("prompt: x", "output: link/canary.md"),
    "a file that is a link": task("prompt: x", "output: link.md"),
    "a file that is there": task("prompt: x", "output: README.md"),
    "a file by an item": task("prompt: x", "output: '{{ item }}.md'", "each: [../canary]"),
    "a file by an answer": "headway: 1\ntasks:\n  a: {prompt: list}\n"
    "  b: {each: a, prompt: x, output: '{{ item }}.md'}\n",
    "a file by a variable": task("prompt: x", "output: '{{ vars.v }}/x.md'", "vars: {v: ..}"),
    "a Makefile": task("prompt: x", "output: Makefile"),
    "a module": task("prompt: x", "output: conftest.py"),
    "a shell script": task("prompt: x", "output: run.sh"),
    "a package": task("prompt: x", "output: package.json"),
    "orders for agents": task("prompt: x", "output: CLAUDE.md"),
    "orders for agents in another case": task("prompt: x", "output: docs/Agents.MD"),
    "orders for agents by quotes": task("prompt: x", """output: '{{ "CLAUDE" }}.md'"""),
    "orders for agents by a variable": "headway: 1\ntasks:\n  a: {prompt: names}\n"
    "  b: {each: a, vars: {v: CLAUDE}, prompt: x, output: '{{ vars.v }}.md'}\n",
    "a path by an answer's variable": "headway: 1\ntasks:\n  a: {prompt: names}\n"
    "  b: {each: a, vars: {v: '{{ item }}'}, prompt: x, output: 'o/{{ vars.v }}.md'}\n",
    "what is there by a detour": task("prompt: x", "output: new/../README.md"),
    "what is there by a number": "headway: 1\ntasks:\n  a: {prompt: names}\n"
    "  b: {each: a, prompt: x, output: '{{ index }}.md'}\n",
    "servers for agents": task("prompt: x", "output: opencode.json"),
    "requirements": task("prompt: x", "output: requirements.txt"),
    "a plan": task("prompt: x", "output: plan.yaml"),
    "a template with logic": task("prompt: '{{ __import__(\"os\").system(\"id\") }}'"),
    "a template of another language": task("prompt: '{% if x %}{{ x.__class__ }}{% endif %}'"),
    "a template in a name": "headway: 1\ntasks:\n  '{{ item }}': {prompt: x}\n",
    "a model by a value": task("prompt: x", "model: 'openai/{{ item }}'", "each: [gold]"),
    "a model that is an address": task("prompt: x", "model: 'http://evil.test/v1'"),
    "another model": task("prompt: x", "model: openai/gold"),
    "laughs": f"headway: 1\n{LAUGHS}tasks: {{t: {{prompt: x, each: *j}}}}\n",
    "laughs by templates": task("prompt: '" + "{{ vars.b }}" * 900 + "'",
                                "vars: {b: '" + "{{ vars.a }}" * 900 + "'}",
                                top=f"vars: {{a: '{'ha' * 99}'}}\n"),
    "a merge": "headway: 1\nx: &x {run: id}\ntasks: {t: {<<: *x}}\n",
    "a million members": task("prompt: x", f"matrix: {{a: {list(range(999))}, "
                                           f"b: {list(range(999))}}}"),
    "too many members": task("prompt: x", f"matrix: {{a: {list(range(200))}, "
                                          f"b: {list(range(99))}}}"),
    "too many tasks": "headway: 1\ntasks:\n" + "".join(
        f"  t{n}: {{prompt: x}}\n" for n in range(101)),
    "a deep nest": "headway: 1\ntasks: " + "[" * 5000 + "]" * 5000 + "\n",
    "a long plan": task(f"prompt: '{'x' * 200_001}'"),
    "a tag": "!!python/object/apply:os.system ['touch ../canary']\n",
    "a tag on a value": "headway: 1\ntasks: !!python/name:os.system\n",
    "a tag on a key": task("? !!python/object/new:os.system [id]\n    : x"),
    "two documents": f"{GOOD}---\n{task('run: id')}",
    "a key twice": task("prompt: x", "prompt: y"),
    "NUL": task("prompt: \"a\\0b\""),
    "NUL in a path": task('prompt_file: "README.md\\0.env"'),
    "raw NUL": task("prompt: a\0b"),
    "an escape sequence": task('prompt: "\\e]0;x\\a"'),
    "a name that is turned around": "headway: 1\nname: \"a\\u202eb\"\ntasks: {t: {prompt: x}}\n",
    "a prompt that is turned around": task('prompt: "a\\u202eb"'),
    "a path that is turned around": task("prompt: x", 'output: "a\\u202edm.hs"'),
    "letters that nobody sees": task('prompt: "hi\\U000e0072\\U000e006d"'),
    "a name with a line break": "headway: 1\ntasks:\n  \"a\\nb\": {prompt: x}\n",
    "a budget beyond all": task("prompt: x", top="budget: $1000000\n"),
    "a context beyond all": "headway: 1\ntasks:\n  a: {each: [x], prompt: hi}\n"
    "  b: {reduce: a, context: 900M, prompt: x}\n",
    "an answer beyond all": task("prompt: x", "max_tokens: 900M"),
    "retries beyond all": task("prompt: x", "retries: 100"),
    "keys from elsewhere": dumps({"headway": 1, "jobs": {"x": {"runs-on": "x", "steps": []}}}),
    "a shell in the reply": "```sh\ntouch ../canary\n```\n",
    "nothing": "",
}  # fmt: skip


def test_the_guard_hears_what_it_is_for(project: Path) -> None:
    with GUARD.watching() as seen:
        (project / "new.md").write_text("x")
        (project.parent / "outside" / "notes.txt").read_text()
        os.posix_spawn("/bin/true", ["true"], {})
        os.system("true")
    assert len(seen) == 4
    os.wait()


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_plan_executes_reads_and_writes_nothing(project: Path, name: str) -> None:
    text = HOSTILE[name]
    Author([fenced(GOOD)]).plan(project)  # What has to be imported is imported now.
    before = sorted(str(path) for path in project.parent.rglob("*"))
    author = Author([text if text.startswith("```") else fenced(text)])
    goal = wanted(project, budget="5M")  # It asks git for the names of files.
    with GUARD.watching() as seen, pytest.raises(NoPlanError) as caught:
        asyncio.run(drafted(goal, author.settings()))
    assert seen == []
    assert caught.value.exit_code == 3
    assert sorted(str(path) for path in project.parent.rglob("*")) == before
    assert "evil" not in sys.modules
    told = dumps(author.sent) + caught.value.render()
    assert SECRET not in told.replace(dumps(text), "")
    assert caught.value.render().isascii() or "\u202e" not in caught.value.render()
