"""What plans with loops leave behind when one who works alone performs them, without a graph."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from headway.base.digest import digest
from headway.run.revise import SENT_BACK

Plan = dict[str, dict[str, Any]]
"""The tasks of a plan, as they are written."""
Left = tuple[dict[str, str], dict[str, object]]
"""The results of declared tasks and members, as far as they have one; the shared state."""


def answer(prompt: str, *, is_judge: bool) -> str:
    """What the model of these tests says to a prompt."""
    name = digest(prompt.encode()).hex()
    return json.dumps({"ok": name[0] in "0123456", "note": name}) if is_judge else f"h{name}"


class SerialRun:
    def __init__(self, tasks: Plan) -> None:
        self.tasks = tasks
        self.state: dict[str, object] = {}
        self.done: dict[str, str] = {}
        self.loops = {
            judge: [one for one in tasks if one in self._above(judge)
                    and task["revise"] in self._above(one)]
            for judge, task in tasks.items()
            if "revise" in task
        }  # fmt: skip
        self.judges = {one: judge for judge, body in self.loops.items() for one in body}

    def left(self) -> Left:
        waiting = list(self.tasks)
        while waiting:
            name = next(one for one in waiting if not self._awaited(one) & {*waiting})
            waiting.remove(name)
            self._attempt(name, self._members(name), {})
            if name in self.loops:
                self._revise(name)
        return self.done, self.state

    def _awaited(self, name: str) -> set[str]:
        """What comes before a task: of a loop that it is no part of, the end."""
        before = {*self._needs(name)}
        own = self.judges.get(name)
        others = {self.judges.get(one) for one in before} - {None, own}
        return before.union(one for one in others if one is not None)

    def _revise(self, judge: str) -> None:
        task, body, is_own = self.tasks[judge], self.loops[judge], self._is_memberwise(judge)
        for number in range(1, task["at_most"] + 2):
            is_last = number > task["at_most"]
            judged = [one for one in self._members(judge) if self._label(judge, one) in self.done]
            if len(judged) < len(self._members(judge)) and not (is_own or is_last):
                for name in body:  # Of what nothing is said, there is no result.
                    self._forget(name, self._members(name))
                return
            said = {one: self.done[self._label(judge, one)] for one in judged}
            rejected = {one: text for one, text in said.items() if not json.loads(text)["ok"]}
            if is_last or not rejected:
                if task["then"] == "fail":
                    self._forget(judge, [*rejected])
                return
            reasons = rejected
            if not is_own:
                named = [
                    (self._label(judge, one).replace(judge, f"{judge}@{number}", 1), text)
                    for one, text in rejected.items()
                ]
                reason = "\n\n".join(f"{who}:\n{text}" for who, text in named)
                reason = reason if len(named) > 1 else named[0][1]
                reasons = dict.fromkeys(("", *self._members(task["revise"])), reason)
            for name in body:
                members = [*rejected] if is_own else self._members(name)
                self._forget(name, members)
                self._attempt(name, members, reasons if name == task["revise"] else {})

    def _forget(self, name: str, members: Sequence[str]) -> None:
        for one in members:
            self.done.pop(self._label(name, one), None)

    def _attempt(self, name: str, members: Sequence[str], reasons: Mapping[str, str]) -> None:
        for item in members:
            if all(one in self.done for one in self._asked(name, item)):
                text = self._perform(name, item, reasons.get(item, ""))
                self.done[self._label(name, item)] = text
                if output := self.tasks[name].get("output"):
                    key = output.removeprefix("state:").replace("{{ item }}", item)
                    self.state[key] = text

    def _asked(self, name: str, item: str) -> Iterator[str]:
        """All whose results a member needs; of a loop that it is no part of, the verdict too."""
        for one in self._needs(name):
            is_own = one == self.tasks[name].get("each")
            yield from self._some(one, item if is_own else None)
            judge = self.judges.get(one)
            if judge not in (None, one, self.judges.get(name)):
                assert judge is not None
                yield from self._some(
                    judge, item if is_own and self._is_memberwise(judge) else None
                )

    def _some(self, name: str, item: str | None) -> list[str]:
        return [self._label(name, one) for one in self._members(name) if item in (None, one)]

    def _perform(self, name: str, item: str, reason: str) -> str:
        task = self.tasks[name]

        def value(found: re.Match[str]) -> str:
            match found[1].split("."):
                case ["item"]:
                    return item
                case ["state"]:
                    return json.dumps(dict(sorted(self.state.items())))
                case ["vars", _]:
                    return reason
                case [_, other, _] if other == task.get("each"):
                    return self.done[self._label(other, item)]
                case [_, other, _]:
                    every = [self.done[one] for one in self._some(other, None)]
                    if "each" not in self.tasks[other]:
                        return every[0]
                    return json.dumps([json.loads(one) if one[0] == "{" else one for one in every])
            raise AssertionError(found[0])

        template = task["prompt"]
        if reason and "vars.rejection" not in template:
            template += SENT_BACK
        text = re.sub(r"\{\{ ([\w.]+) \}\}", value, template)
        return answer(text, is_judge="revise" in task)

    def _members(self, name: str) -> Sequence[str]:
        each = self.tasks[name].get("each", [""])
        return self._members(each) if isinstance(each, str) else each

    def _label(self, name: str, item: str) -> str:
        return f"{name}[{item}]" if "each" in self.tasks[name] else name

    def _needs(self, name: str) -> list[str]:
        each = self.tasks[name].get("each")
        return [*self.tasks[name].get("needs", ()), *([each] if isinstance(each, str) else ())]

    def _above(self, name: str) -> set[str]:
        return {name}.union(*map(self._above, self._needs(name)))

    def _is_memberwise(self, judge: str) -> bool:
        """Whether each member is judged by itself: nothing in the loop brings them together."""
        body = self.loops[judge]
        edges = [(one, other) for one in body for other in self._needs(one) if other in body]
        is_alike = "each" in self.tasks[judge] and len({*map(self._leader, body)}) == 1
        return is_alike and all(self.tasks[one].get("each") == other for one, other in edges)

    def _leader(self, name: str) -> str:
        each = self.tasks[name].get("each")
        return self._leader(each) if isinstance(each, str) else name
