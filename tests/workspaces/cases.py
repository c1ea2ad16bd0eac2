"""Plans that share files without saying so: what naive users write, and what it should end with."""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from tests.workspaces.stage import AGENT, Scene

TICKS: Final = 10
FEATURES: Final = 4
MEET_S: Final = 4
"""Tasks that are to read before the first one writes wait so long for each other."""


class Case(Struct, frozen=True):
    """A naive plan: its tasks in declared order, and what the serial run leaves behind."""

    name: str
    files: dict[str, str]
    tasks: dict[str, str]
    """The script of each task, or the function that performs it."""
    right: dict[str, str]
    """The content that files end with."""
    needs: dict[str, list[str]] = {}
    is_python: bool = False

    def plan(self, scene: Scene, style: str, top: str = "") -> str:
        """The plan's text: `run` (or `python`) or `agent` performs its tasks."""
        lines = ["headway: 1", *top.splitlines(), "tasks:"]
        for name, work in self.tasks.items():
            lines.append(f"  {name}:")
            if self.is_python and style == "run":
                lines.append(f"    python: {work}")
            else:
                command = scene.script(name, _as_script(work) if self.is_python else work)
                lines.append(f"    run: {command}" if style == "run" else f"    agent: scripted\n"
                             f"    prompt: Please perform {name} now.")  # fmt: skip
            if name in self.needs:
                lines.append(f"    needs: {self.needs[name]}")
        return "\n".join(lines) + "\n"


def _as_script(work: str) -> str:
    module, _, function = work.partition(":")
    return f"python3 -c 'import {module}; {module}.{function}()'\n"


def ticks() -> Case:
    """Each agent reads the list, thinks, and writes it back with its own item done."""
    tasks = {}
    for n in range(1, TICKS + 1):
        tasks[f"tick-{n}"] = (
            f"text=$(cat TODO.md)\nmeet read {TICKS} {MEET_S}\n"
            f"printf '%s\\n' \"$text\" | sed 's/\\[ \\] item {n}$/[x] item {n}/' > TODO.md\n"
        )
    begun = "".join(f"- [ ] item {n}\n" for n in range(1, TICKS + 1))
    right = {"TODO.md": begun.replace("[ ]", "[x]")}
    return Case("ten ticks in one list", {"TODO.md": begun}, tasks, right)


def features() -> Case:
    """Each agent writes a module, registers it in one list, and commits."""
    tasks = {}
    for n in range(1, FEATURES + 1):
        tasks[f"feature-{n}"] = (
            f"names=$(cat registry.txt)\nmeet read {FEATURES} {MEET_S}\n"
            f"echo 'def run(): return {n}' > feature_{n}.py\n"
            f"printf '%s\\n' \"$names\" feature_{n} > registry.txt\n"
            f"git add -A\ngit commit -qm 'Feature {n}'\n"
        )
    names = [f"feature_{n}" for n in range(1, FEATURES + 1)]
    tasks["test"] = (
        "for name in $(cat registry.txt); do [ $name = begin ] || python3 -c 'import '$name; done\n"
        f"[ $(grep -c feature_ registry.txt) = {FEATURES} ]\n"
    )
    right = {"registry.txt": "\n".join(["begin", *names]) + "\n"}
    right |= {f"feature_{n}.py": f"def run(): return {n}\n" for n in range(1, FEATURES + 1)}
    files = {".gitignore": "__pycache__/\n", "registry.txt": "begin\n"}
    needs = {"test": [f"feature-{n}" for n in range(1, FEATURES + 1)]}
    return Case("four features in one repository", files, tasks, right, needs)


def pipeline(has_run_before: bool) -> Case:
    """Three steps by redirects, whose order no key of the plan says."""
    tasks = {
        "parse": f"await validate.end {MEET_S}\ntr , ' ' < raw.csv > parsed.txt\n",
        "enrich": f"await parse.start {MEET_S}\nsed 's/$/ EUR/' < parsed.txt > enriched.txt\n",
        "validate": f"await enrich.end {MEET_S}\ngrep -c EUR < enriched.txt > report.txt\n",
    }
    right = {
        "parsed.txt": "a 1\nb 2\nc 3\n", "enriched.txt": "a 1 EUR\nb 2 EUR\nc 3 EUR\n",
        "report.txt": "3\n",
    }  # fmt: skip
    files = {"raw.csv": "a,1\nb,2\nc,3\n"}
    if has_run_before:
        files |= {"parsed.txt": "a 1\n", "enriched.txt": "a 1 EUR\n", "report.txt": "1\n"}
    name = "redirects, files of an earlier run" if has_run_before else "redirects, no files yet"
    return Case(name, files, tasks, right)


TALLY: Final = f"""\
import json, os, subprocess, sys

def _add(name):
    with open("tally.json") as file:
        found = json.load(file)
    with open(os.environ["SCRIPTS"] + "/port") as file:
        port = file.read()
    words = ["--ask", port, "meet", "tally", "2", "{MEET_S}"]
    subprocess.run([sys.executable, "-I", "-S", {str(AGENT)!r}, *words])
    found[name] = 1
    with open("tally.json", "w") as file:
        json.dump(found, file, indent=1, sort_keys=True)

def first():
    _add("first")

def second():
    _add("second")
"""


def tally() -> Case:
    """Two functions add to one JSON file."""
    right = {"tally.json": '{\n "first": 1,\n "second": 1\n}'}
    files = {".gitignore": "__pycache__/\n", "tally.py": TALLY, "tally.json": "{}"}
    tasks = {"first": "tally:first", "second": "tally:second"}
    name = "two functions, one JSON file"
    return Case(name, files, tasks, right, is_python=True)


CASES: Final = (ticks(), features(), pipeline(True), pipeline(False), tally())
