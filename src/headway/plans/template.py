"""Templates: `{{ name }}` stands for a value and computes nothing.

Laws:
- A template is read once; filling it joins pieces and looks at no piece again, so that a value
  that contains `{{ }}` is only text.
- `{{ "{{" }}` is how two braces are written: whatever stands between quotes is taken as it is.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from headway.errors import Fix, InternalError, Place, TemplateError, nearest
from headway.plans.grammar import REJECTION, VARIABLE_NAME, variable_name
from headway.plans.links import links_of
from headway.plans.resources import SCHEME
from headway.plans.section import PlanFaults, shown
from headway.plans.spec import CommandSpec, Keyed, Leaf, Located, PlanSpec, Prompt, TaskSpec

REFERENCES_MAX: Final = 1_000
"""Holes of one template: more are a mistake and slow to fill."""

NAMES_SHOWN_MAX: Final = 12
ESCAPED: Final = '{{ "{{" }}'
RESULTS: Final = ("output", "stdout")
"""What can be asked of a task: both are its result."""

_BRACES: Final = re.compile(
    r'\{\{(?P<hole>\s*(?:"(?P<text>[^"\n]*)"|(?P<name>[A-Za-z_][\w-]*(?:\.[\w-]+|\["[^"\n]+"\])*))'
    r"\s*\}\})?",
    re.ASCII,
)
"""Two braces, and all of the hole that they begin, if they begin one."""


_NAMES: Final = re.compile(r'\["([^"\n]+)"\]|([\w-]+)', re.ASCII)
_PLAIN: Final = re.compile(r"[\w-]+", re.ASCII)


class Ref(Struct, frozen=True):
    """The name in a hole: `matrix.view` is (`matrix`, `view`), `item["a b"]` (`item`, `a b`)."""

    names: tuple[str, ...]

    @classmethod
    def of(cls, text: str) -> Ref:
        return cls(tuple(quoted or plain for quoted, plain in _NAMES.findall(text)))

    def __str__(self) -> str:
        rest = (f".{one}" if _PLAIN.fullmatch(one) else f'["{one}"]' for one in self.names[1:])
        return self.names[0] + "".join(rest)

    @property
    def task(self) -> str:
        """The task whose result it is; empty if it is not a result."""
        is_result = len(self.names) == 3 and self.names[0] == "tasks" and self.names[2] in RESULTS
        return self.names[1] if is_result else ""

    @property
    def var(self) -> str:
        """The variable that it is; empty if it is none."""
        return self.names[1] if len(self.names) == 2 and self.names[0] == "vars" else ""


class Template(Struct, frozen=True):
    """Text and holes in turn."""

    source: str
    parts: tuple[str | Ref, ...]

    @property
    def refs(self) -> tuple[Ref, ...]:
        return tuple(part for part in self.parts if isinstance(part, Ref))

    def render(self, fill: Callable[[Ref], str]) -> str:
        return "".join([part if isinstance(part, str) else fill(part) for part in self.parts])


Broken = tuple[int, str, str]
"""Where and why a text is no template, and the text without that fault."""


class Scope(Struct, frozen=True):
    """The names that one task's templates can use."""

    fields: tuple[str, ...] | None = ()
    """Of an item; `None` if any may be there."""
    has_item: bool = False
    has_index: bool = False
    matrix: tuple[str, ...] = ()
    vars: tuple[str, ...] = ()
    tasks: tuple[str, ...] = ()
    """Whose results it is given, because it needs them."""
    state: tuple[str, ...] | None = None
    """Keys of the shared state that the plan names; others can be used too. `None`: none can."""
    effects: tuple[str, ...] = ()
    """Keys that cannot be read."""

    def names(self) -> list[str]:
        """All of them, as they are written."""
        fields = (str(Ref(("item", field))) for field in self.fields or ())
        item = ["item", *fields] if self.has_item else []
        return [
            *item,
            *(["index"] if self.has_index else []),
            *(f"matrix.{name}" for name in self.matrix),
            *(f"vars.{name}" for name in self.vars),
            *(f"tasks.{name}.output" for name in self.tasks),
            *(["state", *(f"state.{key}" for key in self.state)] if self.state else []),
        ]

    def has(self, ref: Ref) -> bool:
        """Whether the name can be filled."""
        match ref.names:
            case ("item", first, *_) if self.has_item:
                return self.fields is None or first in self.fields
            case ("tasks", name, last):
                return name in self.tasks and last in RESULTS
            case ("state",):
                return self.state is not None
            case ("state", key):
                return self.state is not None and key not in self.effects
        return str(ref) in self.names()

    def shown(self) -> str:
        """What there is, for a hint."""
        names = self.names()
        more = [f"and {len(names) - NAMES_SHOWN_MAX} more"] if len(names) > NAMES_SHOWN_MAX else []
        return ", ".join([*names[:NAMES_SHOWN_MAX], *more]) or "nothing"


def parse_template(text: str) -> Template | Broken:
    """A text as text and holes, or what is wrong with it."""
    parts: list[str | Ref] = []
    place = 0
    for number, found in enumerate(_BRACES.finditer(text), 1):
        start, name = found.start(), found["name"]
        if not found["hole"]:
            return start, _reason(text, start), text[:start] + _BRACES.sub(_escaped, text[start:])
        if number > REFERENCES_MAX:
            repaired = text[:start] + text[start:].replace("{{", ESCAPED)
            return start, f"more than {REFERENCES_MAX} holes", repaired
        parts += [text[place:start], Ref.of(name) if name else found["text"]]
        place = found.end()
    parts.append(text[place:])
    return Template(text, tuple(part for part in parts if part))


def template_of(text: str) -> Template:
    """A text of a plan that was checked, as a template."""
    parsed = parse_template(text)
    if isinstance(parsed, tuple):
        raise InternalError(f"a template was not checked: {parsed[1]}")
    return parsed


def references(text: str) -> Iterator[tuple[str, Ref]]:
    """Every hole of a text as it is written, with its name; what is no hole is passed over."""
    for found in _BRACES.finditer(text):
        if found["name"]:
            yield found[0], Ref.of(found["name"])


def _escaped(found: re.Match[str]) -> str:
    return found[0] if found["hole"] else ESCAPED


def _reason(text: str, start: int) -> str:
    end = text.find("}}", start)
    if end < 0:
        return "`{{` is never closed"
    hole = text[start : min(end + 2, start + 40)]
    return f"`{hole}` is not a name: templates have no logic"


# Which names each task's templates can use, and whether they use others.

ROOTS: Final = ("item", "index", "matrix", "vars", "tasks")
ALL: Final = Ref(("state",))
"""Everything that a task declares to read of the shared state."""

STATE: Final = "HEADWAY_STATE"
"""The folder in which a command finds the shared state: a file for each key."""

Scopes = tuple[Scope, Scope, Scope, Scope]
"""What the templates of one task can use: a prompt; a variable of the task; what is known before
the task starts (a path); what is known before the run starts (a file)."""


class Text(Struct, frozen=True):
    """A text that is to be a template, and where it stands."""

    text: str
    place: Place
    key: str
    is_path: bool = False
    file: str = ""
    """The file that it is the content of, if it does not stand in the plan."""
    owner: str = ""
    """The task that it belongs to."""

    @property
    def path(self) -> str:
        return f"tasks.{self.owner}.{self.key}" if self.owner else self.key

    def at(self, words: str) -> Place:
        """Where words of it stand: in a plan, where the text begins."""
        if not self.file:
            return self.place
        before = self.text[: max(self.text.find(words), 0)]
        return Place(before.count("\n") + 1, len(before) - before.rfind("\n"))

    def fix(self, repaired: str) -> Fix:
        """The edit that puts another text in its place."""
        if self.file:
            return Fix("text", Place(1, 1), value=repaired, file=self.file)
        return Fix("replace", self.place, value=repaired or "out")


def leaders_of(spec: PlanSpec) -> Mapping[str, TaskSpec]:
    """For every task, the one whose items and matrix it has: itself, unless it follows a group."""
    named = {task.name: task for task in spec.tasks}
    leaders: dict[str, TaskSpec] = {}
    for task in spec.tasks:
        path: list[str] = []
        seen: set[str] = set()
        while task.name not in leaders and task.name not in seen:
            path.append(task.name)
            seen.add(task.name)
            each = task.each
            if each is None or each.kind != "task" or not named[each.source].is_group:
                break
            task = named[each.source]  # noqa: PLW2901
        leader = leaders.get(task.name, task)
        leaders.update((name, leader) for name in path)
    return leaders


def scopes_of(spec: PlanSpec, some: Iterable[TaskSpec] | None = None) -> Mapping[str, Scopes]:
    """For every task, or for some of a plan's, the names that its templates can use."""
    leaders = leaders_of(spec)
    judged = {task.revise.task for task in spec.tasks if task.revise is not None}
    channels = [(key, one.kind) for key, one in spec.channels.items() if _PLAIN.fullmatch(key)]
    every = Scope(
        vars=tuple(name for name, _ in spec.vars),
        state=tuple(key for key, kind in channels if kind != "effect"),
        effects=tuple(key for key, kind in channels if kind == "effect"),
    )
    asked = spec.tasks if some is None else some
    return {
        task.name: _scopes(
            task,
            leaders[task.name],
            replace(every, vars=(*every.vars, REJECTION))
            if task.name in judged or spec.is_ratchet
            else every,
        )
        for task in asked
    }


def check_templates(spec: PlanSpec, shared: Located | None, faults: PlanFaults) -> None:
    """Note every name that cannot be filled."""
    if isinstance(shared, Keyed):
        for key, value in shared.pairs:
            if isinstance(value, Leaf) and isinstance(value.value, str):
                text = Text(value.value, value.place, f"vars.{key.text}")
                check_text(spec.tasks, None, Scope(), text, faults)
            elif "{{" in repr(dict(spec.vars).get(key.text)):
                message = f"`vars.{key.text}`: only a text of its own can contain `{{{{ }}}}`"
                faults.add(TemplateError, value.place, message)
    doubtful = [task for task in spec.tasks if task.is_sound and _has_braces(task)]
    scopes = scopes_of(spec, doubtful) if doubtful else {}
    for task in doubtful:
        for scope, text in _texts(task, scopes[task.name]):
            check_text(spec.tasks, task, scope, text, faults)
        _check_commands(task, scopes[task.name][0], faults)


def check_text(
    tasks: tuple[TaskSpec, ...], task: TaskSpec | None, scope: Scope, text: Text, faults: PlanFaults
) -> Template | None:
    """The template that a text is, or a note of what is wrong with it."""
    found = parse_template(text.text)
    if isinstance(found, tuple):
        offset, reason, repaired = found
        hint = f"write `{ESCAPED}` for the braces themselves"
        place, message = text.at(text.text[offset:]), f"{reason} (`{text.path}`)"
        faults.add(TemplateError, place, message, hint, text.fix(repaired))
        return None
    # `{{ state }}` is what a task declares to read: everything if it declares nothing.
    is_blind = task is not None and task.state_reads == () and ALL in found.refs
    if task is not None and scope.state is not None and is_blind:
        message = f"`{{{{ state }}}}` in `{text.path}` would be empty: `reads` names no key"
        fix = Fix("replace", task.spot("reads").value, value=(*task.reads, f"{SCHEME}**"))
        place = text.at(next(hole for hole, ref in references(text.text) if ref == ALL))
        faults.add(TemplateError, place, message, f"add `{SCHEME}**` to `reads`", fix)
    wrong = [ref for ref in dict.fromkeys(found.refs) if not scope.has(ref)]
    for ref in wrong:
        written = [hole for hole, other in references(text.text) if other == ref]
        place = text.at(written[0])
        if task is not None and _is_forgotten(ref, task, tasks, text):
            message = (
                f"`{{{{ {ref} }}}}` in `{text.path}`: `{task.name}` does not need `{ref.task}`"
            )
            fix = task.extend("needs", ref.task)
            faults.add(TemplateError, place, message, f"add `needs: {ref.task}`", fix)
            continue
        near = nearest(str(ref), scope.names())
        message = f"`{{{{ {shown(str(ref))} }}}}` in `{text.path}` is not known there"
        gone = "" if text.is_path else f"{ESCAPED} {ref} }}}}"
        new = f"{{{{ {near} }}}}" if near else gone
        hint = "leave it out" if text.is_path else f"write `{ESCAPED}` for the braces themselves"
        hint += f"; what is known there: {scope.shown()}"
        hint = f"did you mean `{near}`?" if near else hint
        repaired = text.text
        for hole in dict.fromkeys(written):
            repaired = repaired.replace(hole, new)
        faults.add(TemplateError, place, message, hint, text.fix(repaired))
    return None if wrong else found


def _scopes(task: TaskSpec, leader: TaskSpec, shared: Scope) -> Scopes:
    """What a task's texts can use; `shared` is what those of every task can."""
    each = leader.each
    own = dict(task.vars)
    late = {
        name
        for name, value in own.items()
        if isinstance(value, str) and any(ref.task for _, ref in references(value))
    }
    base = Scope(
        fields=_fields(leader),
        has_item=each is not None,
        has_index=task.is_group,
        matrix=tuple(name for name, _ in leader.matrix),
        vars=tuple(dict.fromkeys((*shared.vars, *own))),
        tasks=tuple(dict.fromkeys(name for name, _ in links_of(task))),
    )
    path = replace(base, tasks=(), vars=tuple(name for name in base.vars if name not in late))
    is_late = each is not None and each.kind == "task"
    file = replace(path, has_item=path.has_item and not is_late, has_index=False)
    text = replace(base, state=shared.state, effects=shared.effects)
    return text, replace(base, vars=shared.vars), path, file


def _fields(leader: TaskSpec) -> tuple[str, ...] | None:
    each = leader.each
    if each is not None and each.kind == "task":
        return None
    if each is not None and each.kind == "rows":
        return each.columns
    items = each.items if each is not None else ()
    mappings = [item for item in items if isinstance(item, dict)]
    if not items or len(mappings) < len(items):
        return ()
    return tuple(name for name in mappings[0] if all(name in other for other in mappings))


def _texts(task: TaskSpec, scopes: Scopes) -> Iterator[tuple[Scope, Text]]:
    of_text, of_var, of_path, of_file = scopes
    found: list[tuple[Scope, str, str]] = [
        (of_var, f"vars.{name}", value) for name, value in task.vars if isinstance(value, str)
    ]
    for key, paths in (("reads", task.reads), ("writes", task.writes)):
        for number, path in enumerate(paths):
            inner = f"{key}.{number}"
            found.append((of_path, inner if inner in task.spots else key, path))
    output = SCHEME + task.output_key if task.output_key else task.output
    found += ((of_path, "output", output), (of_file, "schema", task.schema))
    if isinstance(task.work, Prompt):
        found += (
            (of_text, "prompt", task.work.text),
            (of_path, "model", task.work.model),
            (of_file, "prompt_file", task.work.file),
        )
    for scope, key, text in found:
        is_path = scope is of_path or scope is of_file
        if "{{" in text:
            yield scope, Text(text, task.spot(key).value, key, is_path, owner=shown(task.name))


def _has_braces(task: TaskSpec) -> bool:
    """Whether any text of a task can be a template, or a command that is taken for one."""
    work = task.work
    texts = (*task.reads, *task.writes, task.output, task.output_key, task.schema, task.verify)
    if isinstance(work, CommandSpec):
        own: tuple[str, ...] = (work.command,)
    else:
        own = (work.text, work.model, work.file) if isinstance(work, Prompt) else ()
    return bool(task.vars) or "{{" in "\n".join((*texts, *own))


def _is_forgotten(ref: Ref, task: TaskSpec, tasks: tuple[TaskSpec, ...], text: Text) -> bool:
    """A result of a task that is there, and is not needed."""
    can = text.key == "prompt" or text.key.startswith("vars.") or text.file
    return bool(can and ref.task and ref.task != task.name) and any(
        other.name == ref.task for other in tasks
    )


def _check_commands(task: TaskSpec, scope: Scope, faults: PlanFaults) -> None:
    commands = [("verify", task.verify)]
    if isinstance(task.work, CommandSpec):
        commands.append(("run", task.work.command))
    for key, command in commands:
        seen: set[str] = set()
        for hole, ref in references(command):
            is_ours = ref.names[0] == "state" or nearest(ref.names[0], ROOTS, 0.7)
            if is_ours and str(ref) not in seen:
                seen.add(str(ref))
                _no_template(task, key, command, hole, ref, scope, faults)


def _no_template(
    task: TaskSpec, key: str, command: str, hole: str, ref: Ref, scope: Scope, faults: PlanFaults
) -> None:
    """Values never meet a shell as text: the variable to use instead is the hint."""
    place = task.spot(key).value
    name, is_new = _variable(ref, scope)
    message = f"`{shown(hole)}` in `tasks.{task.name}.{key}`: a command is no template, and values "
    message += "never meet a shell"
    fixed = _quoted(command, hole, name)
    for other, same in references(fixed):
        fixed = _quoted(fixed, other, name) if same == ref else fixed
    fixes = [Fix("replace", place, value=fixed)]
    hint = f'write `"${name}"`'
    if is_new:
        hint = f'add `vars: {{{name}: "{{{{ {ref} }}}}"}}` and {hint}'
        text = f"{{{{ {ref} }}}}"
        inner = Fix("add", task.spot("vars").value, name, text)
        fixes.append(inner if task.vars else Fix("add", task.body, f"vars.{name}", text))
    faults.add(TemplateError, place, message, hint, *fixes)


def _variable(ref: Ref, scope: Scope) -> tuple[str, bool]:
    """The environment variable that has the value, and whether it must be declared first."""
    match ref.names:
        case ("item",) | ("index",):
            return ref.names[0], False
        case ("matrix" | "vars", name) if VARIABLE_NAME.fullmatch(name):
            return name, False
        case ("state", key):
            return f'(cat "${STATE}/{key}")', False
        case ("state", *_):
            return STATE, False
    last = ref.task or ref.names[-1]
    return variable_name(last, (*scope.vars, *scope.matrix)), True


def _quoted(command: str, hole: str, name: str) -> str:
    """The command with the variable in place of the hole, in quotes exactly once."""
    for quotes in (f"'{hole}'", f'"{hole}"', hole):
        command = command.replace(quotes, f'"${name}"')
    return command
