"""What a plan written by an agent may contain.

Laws:
- Such a plan asks models and puts their answers into new text files of the project; it executes
  nothing, unless the user's configuration allows that.
- Its agents may do what the user's own settings of them allow, and no configuration gives more.
- It reads no hidden file, no key, and nothing outside of the project; it is judged before any file
  that it names is opened.
- It spends no more than it was given, and is small enough to be read by a person.
- It shows what it is: no text has characters that cannot be seen.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from typing import Final

from msgspec import Struct

from headway.base.values import Budget
from headway.errors import BadValueError, Fix, ForeignPlanError, Place, did_you_mean
from headway.plans.expand import ExpandedPlan, GroupPlan, Member, Members
from headway.plans.grammar import TARGET
from headway.plans.resources import fixed_part, inside
from headway.plans.section import PlanFaults, shown
from headway.plans.spec import (  # fmt: skip
    LOOP,
    CommandSpec,
    PlanSpec,
    Prompt,
    Python,
    TaskSpec,
    Value,
    WorkspaceSpec,
    text_of,
    texts_in,
)
from headway.plans.template import Ref, Template, references, template_of

# Files that a plan by an agent may not touch, by their names alone.

ENDINGS: Final = (".md", ".txt", ".json", ".csv", ".yaml")
"""Of what may be written."""

_KEY: Final = re.compile(
    r".*\.(?:pem|key|p8|p12|pfx|der|jks|keystore|kdbx?|ppk|gpg|asc|age|ovpn|tfstate|tfvars)"
    r"|id_(?:rsa|dsa|ecdsa|ed25519).*"
    r"|_?(?:netrc|htpasswd|pgpass|shadow)",
    re.DOTALL,
)
_PASSWORD: Final = re.compile(
    r".*(?:secret|credential|password|passwd|service[-_]?account|private[-_]?key|api[-_]?key).*"
)
_DATA: Final = re.compile(
    r"[^.]*|.*\.(?:json|ya?ml|txt|ini|cfg|conf|toml|env|xml|csv|properties|bak)", re.DOTALL
)
"""A module about passwords is code; a text of that name may hold one."""

_OBEYED: Final = re.compile(
    r"(?:claude|agents?|gemini|skill|copilot-instructions|llms|warp|qwen|crush)(?:\..*)?\.(?:md|txt)"
    r"|(?:requirements|constraints).*\.txt|cmakelists\.txt"
    r"|(?:package|package-lock|npm-shrinkwrap|composer|bower|deno|jsr|[jt]sconfig.*|project|nx|lerna"
    r"|turbo|rush|vercel|now|firebase|app|manifest|mcp|hooks|settings|tasks|launch|devcontainer"
    r"|angular|[a-z-]+\.config|plugin|cdk|config|import_map|renovate|nodemon|global|vcpkg|wrangler"
    r"|appsettings.*|launchsettings|components|extensions|opencode|crush|gemini-extension|biome|lefthook"
    r"|railway|docker-bake|tslint|api-extractor)\.json"
    r"|(?:plan|.*compose.*|cloudbuild|serverless|skaffold|chart|values|action|.*pipelines?|appveyor"
    r"|buildspec|environment|pubspec|mkdocs|.*playbook.*|site|kustomization|pnpm-.*|main|config"
    r"|workflow|template|taskfile(?:\..*)?|app|stack|deployment|lefthook|dvc|devfile|helmfile|goreleaser"
    r"|meta|render|codemagic|amplify|okteto|garden|snapcraft|molecule|inventory|hosts)\.yaml",
    re.DOTALL,
)
"""What package managers, build tools, services and agents look for and follow."""


def unreadable(path: str) -> str:
    """Why a plan by an agent may not read a path or a pattern; empty if it may."""
    if problem := _astray(path):
        return problem
    name = path.rpartition("/")[2].casefold()
    if _KEY.fullmatch(name) or (_PASSWORD.fullmatch(name) and _DATA.fullmatch(name)):
        return "may hold a key or a password"
    return ""


def unwritable(path: str) -> str:
    """Why a plan by an agent may not write a path; empty if it may."""
    if problem := _astray(path):
        return problem
    name = path.rpartition("/")[2].casefold()
    if not name.endswith(ENDINGS):
        return f"does not end in {', '.join(ENDINGS[:-1])} or {ENDINGS[-1]}"
    return "is a file that programs obey" if _OBEYED.fullmatch(name) else ""


def _astray(path: str) -> str:
    if not path.isprintable() or "\\" in path:
        return "has characters that a path should not have"
    within = inside(path)
    if within is None:
        return "leads out of the project"
    return "is hidden" if within.startswith(".") or "/." in within else ""


TASKS_MAX: Final = 100
"""Declared tasks: as many as a person can read before it runs."""

MEMBERS_MAX: Final = 10_000
"""Tasks of a run. A larger plan has to be the user's own."""

PROMPT_CHARS_MAX: Final = 400_000
"""Of one prompt with its known values: a variable can be used a thousand times."""

CONTEXT_TOKENS_MAX: Final = 2_000_000
ANSWER_TOKENS_MAX: Final = 128_000
AGAIN_MAX: Final = 10
"""Retries and repairs."""

REDUCERS: Final = frozenset(f"headway.reducers:{name}" for name in ("concat", "json_merge", "vote"))
"""Functions of headway itself, which only put results together."""

READER: Final = "headway.files:text"
"""Gives the text of a file that such a plan could name as well; what it opens it judges itself."""

WORKS: Final = ("run", "python")
"""What the user can allow: commands (also `verify` and effects), functions (also of `state`)."""

ONLY_USER: Final = "remove `permissions`: only users give rights, in plans that they run themselves"

_HOLE: Final = re.compile(r"\{\{.*?\}\}", re.DOTALL)
_UNSEEN: Final = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u180e\u200b\u202a-\u202e\u2060-\u206f\ufeff"
    "\ufff9-\ufffb\U000e0000-\U000e01ef]"
)
"""Control characters, those that turn the direction of text around, and invisible letters. What
joins letters and emojis stays: languages are written with it."""


_Touched = tuple[str, tuple[str, ...], Callable[[str], str]]
"""A key, its paths, and what is wrong with one of them."""


class PlanPermissions(Struct, frozen=True):
    """What the user lets such plans do beyond asking models."""

    agents: frozenset[str] = frozenset()
    """Names of agents; `tools` with any tool, `tools:files` with this one."""
    works: frozenset[str] = frozenset()
    """Of `WORKS`."""
    models: frozenset[str] = frozenset()
    """Models that it may ask; without any, all."""
    budget: Budget | None = None
    """The most that its own budgets may say."""


def allowance_of(agents: str, works: str) -> PlanPermissions:
    """What a configuration allows: names with commas between them."""
    for word in _words(works):
        if word not in WORKS:
            hint = did_you_mean(word, WORKS)
            raise BadValueError(f"`foreign_works` has `{shown(word)}`", hint=hint)
    return PlanPermissions(_words(agents), _words(works))


class Disk(Struct, frozen=True):
    """What is asked about paths of the project; nothing is opened for it."""

    exists: Callable[[str], bool]
    """Whether something is at a path already, or whether a link leads away from it."""
    leads: Callable[[str], str] = str
    """Where a path leads when all links are followed, seen from the project."""

    def unreadable(self, path: str) -> str:
        """What is wrong with a path that is read: its own name, or that of the file it leads to."""
        problem = unreadable(path)
        if not problem and (behind := unreadable(self.leads(path))):
            return f"is a link to what {behind}"
        return problem

    def unwritable(self, path: str) -> str:
        """What is wrong with a path that is written; a pattern has a new folder to itself."""
        # In its shortest form, as it is written: `new/../old.md` is there if `old.md` is.
        is_taken = self.exists(fixed_part(inside(path) or ""))
        return unwritable(path) or ("is there already, or behind a link" if is_taken else "")


def check_foreign(spec: PlanSpec, allowance: PlanPermissions, disk: Disk) -> None:
    """Raise a `ForeignPlanError` with all that such a plan may not have; opens nothing."""
    faults = PlanFaults(spec.file)
    judge = _Judge(spec, allowance, disk, faults)
    judge.plan()
    for task in spec.tasks[:TASKS_MAX]:
        judge.task(task)
    faults.check()


def check_members(expanded: ExpandedPlan, disk: Disk) -> None:
    """The same for paths that differ from member to member, before any of them is opened."""
    faults = PlanFaults(expanded.spec.file)
    if expanded.count > MEMBERS_MAX:
        task = max(expanded.groups, key=lambda group: group.count or 0).task
        spot = task.spot("each" if task.each is not None else "matrix")
        message = f"the plan has {expanded.count:,} tasks, most of them in `{task.name}`"
        hint = f"narrow its pattern: there can be {MEMBERS_MAX:,}"
        faults.add(ForeignPlanError, spot.key, message, hint)
        faults.check()
    for group in expanded.groups:
        for key, texts, problem_of in _touched(group.task, disk):
            for text in texts:
                paths = _filled_paths(expanded, group, text)
                if paths is None:
                    message = f"`tasks.{group.name}.{key}` is a path that an answer would choose"
                    hint = "use {{ index }} instead of {{ item }}"
                    faults.add(ForeignPlanError, group.task.spot(key).value, message, hint)
                    continue
                wrong = ((path, problem_of(path)) for path in paths)
                path, problem = next((pair for pair in wrong if pair[1]), ("", ""))
                if problem:
                    message = f"`{shown(path)}` in `tasks.{group.name}.{key}` {problem}"
                    faults.add(ForeignPlanError, group.task.spot(key).value, message, _better(key))
    faults.check()


class _Judge(Struct, frozen=True):
    """Looks at one plan and notes what it may not have."""

    spec: PlanSpec
    allowance: PlanPermissions
    disk: Disk
    faults: PlanFaults

    def plan(self) -> None:
        spec = self.spec
        if len(spec.tasks) > TASKS_MAX:
            message = f"the plan declares {len(spec.tasks):,} tasks: it takes {TASKS_MAX}"
            self._note(spec.tasks[TASKS_MAX].place, message, "use `each` or `matrix`")
        self._budget("budget", spec.budget, spec.body)
        self._model("model", spec.model, spec.body)
        if spec.permissions:
            self._note(spec.body, "`permissions` raises what agents may do", ONLY_USER)
        self._workspace(spec.workspace, "workspace", spec.body, None)
        if spec.objective and "run" not in self.allowance.works:
            self._note(spec.body, "`objective` is a command to execute", "remove `objective`")
        self._at_most("retries", spec.retries, AGAIN_MAX, spec.body)
        self._seen("vars", [value for _, value in spec.vars], spec.body)
        for key, channel, spot in spec.state or ():
            target, place = channel.target, spot.value
            work = "python" if TARGET.fullmatch(target) else "run"
            if target and work not in self.allowance.works:
                message = f"`state.{shown(key)}` names what is to be executed"
                hint = "use value, append, set, counter or max"
                self._note(place, message, hint, Fix("replace", place, value="value"))

    def task(self, task: TaskSpec) -> None:
        path = f"tasks.{task.name}"
        self._work(task, path)
        self._paths(task, path)
        self._budget(f"{path}.budget", task.budget, task.spot("budget").value)
        spot = task.spot("workspace").key
        self._workspace(task.workspace, f"{path}.workspace", spot, Fix("remove", spot))
        for key, value, most in (
            ("retries", task.retries, AGAIN_MAX),
            ("repairs", task.repairs, AGAIN_MAX),
            ("at_most", None if task.revise is None else task.revise.at_most, AGAIN_MAX),
            ("context", task.context_tokens, CONTEXT_TOKENS_MAX),
            ("max_tokens", getattr(task.work, "max_tokens", None), ANSWER_TOKENS_MAX),
        ):
            self._at_most(f"{path}.{key}", value, most, task.spot(key).value)
        values: list[Value] = [value for _, value in task.vars]
        values += [value for _, axis in task.matrix for value in axis]
        values += () if task.each is None else task.each.items
        self._seen(path, values, task.place)

    def _workspace(
        self, workspace: WorkspaceSpec, path: str, place: Place, fix: Fix | None
    ) -> None:
        """It may not lead agents out of their workspaces, nor execute anything."""
        made = workspace.path, workspace.base, workspace.setup, workspace.setup_each
        if workspace.is_on is False or any(made):
            message = f"`{path}` decides where agents work, or what is executed there"
            self._note(place, message, "remove `workspace`", *(() if fix is None else (fix,)))

    def _work(self, task: TaskSpec, path: str) -> None:
        work, works = task.work, self.allowance.works
        if isinstance(work, CommandSpec) and "run" not in works:
            hint = "ask a model with `prompt` instead"
            self._note(task.spot("run").key, f"`{path}.run` is a command to execute", hint)
        is_ours = isinstance(work, Python) and work.target in (*REDUCERS, READER)
        if isinstance(work, Python) and not is_ours and "python" not in works:
            hint = (
                f"ask a model with `prompt`; to reduce, also {', '.join(sorted(REDUCERS))}; "
                f"for the text of files {READER} beside `each`"
            )
            self._note(task.spot("python").key, f"`{path}.python` is code to execute", hint)
        if task.verify and "run" not in works:
            place = task.spot("verify").key
            message = f"`{path}.verify` is a command to execute"
            self._note(place, message, "remove `verify`", Fix("remove", place))
        if isinstance(work, Prompt):
            self._agent(task, work, path)
            self._model(f"{path}.model", work.model, task.spot("model").value)
            self._seen(f"{path}.prompt", [work.text], task.spot("prompt").value)
            self._size(task, work)

    def _agent(self, task: TaskSpec, work: Prompt, path: str) -> None:
        agent, allowed = work.agent, self.allowance.agents
        if agent is None:
            return
        if work.permissions:
            given = task.spot("permissions").key
            message = f"`{path}.permissions` raises what its agent may do"
            self._note(given, message, ONLY_USER, Fix("remove", given))
        place = task.spot("agent").key
        is_each = agent.tools and all(f"{agent.name}:{tool}" in allowed for tool in agent.tools)
        if agent.name in allowed or is_each:
            if _is_loop(task) and task.state_writes is None:
                fix = Fix("add", task.body, "writes", "out/*.md")
                message = f"`{path}` does not say what its agent may write"
                self._note(place, message, "add `writes: out/*.md`, or `writes: []`", fix)
            return
        message = f"`{path}.agent` is `{agent.name}`, which the user has not allowed"
        known = sorted(name for name in allowed if ":" not in name)
        hint = f"use {', '.join(known)}, or remove `agent`" if known else "remove `agent`"
        self._note(place, message, hint, Fix("remove", place))

    def _paths(self, task: TaskSpec, path: str) -> None:
        """What is read and written, with something harmless in place of values."""
        for key, texts, problem_of in _touched(task, self.disk):
            for text in texts:
                if problem := problem_of(_HOLE.sub("x", text)):
                    message = f"`{shown(text)}` in `{path}.{key}` {problem}"
                    self._note(task.spot(key).value, message, _better(key))

    def _budget(self, path: str, budget: Budget | None, place: Place) -> None:
        most = self.allowance.budget
        if budget is None or most is None:
            return
        # What the user gave in dollars is no budget in tokens for the plan as a whole.
        is_whole = budget is self.spec.budget
        pairs = ((budget.microusd, most.microusd), (budget.tokens, most.tokens))
        if any(
            own is not None and (is_whole if given is None else own > given) for own, given in pairs
        ):
            hint = f"write `budget: {written_budget(most)}` or less, or leave it out"
            self._note(place, f"`{path}` is more than the user gives", hint)

    def _model(self, path: str, model: str, place: Place) -> None:
        if not model:
            return
        models = self.allowance.models
        if "{{" in model or not model.isprintable():
            self._note(place, f"`{path}` must be the name of a model", "write it out")
        elif models and model not in models:
            hint = f"choose from: {', '.join(sorted(models))}"
            self._note(place, f"`{path}` is `{shown(model)}`, which may not be asked", hint)

    def _at_most(self, path: str, value: int | None, most: int, place: Place) -> None:
        if value is not None and value > most:
            message = f"`{path}` is {value:,}: it takes up to {most:,}"
            self._note(place, message, f"write {most} or less")

    def _seen(self, path: str, values: list[Value], place: Place) -> None:
        if any(_UNSEEN.search(text) for value in values for text in texts_in(value)):
            message = f"`{path}` has characters that cannot be seen"
            self._note(place, message, "write plain text, without control characters")

    def _size(self, task: TaskSpec, work: Prompt) -> None:
        """A prompt with the longest of all values that are known already."""
        chars = _filled_chars(work.text, self._lengths(task))
        if chars > PROMPT_CHARS_MAX:
            message = f"the prompt of `{task.name}` has up to {chars:,} characters"
            hint = f"shorten it: it can have {PROMPT_CHARS_MAX:,}"
            self._note(task.spot("prompt").value, message, hint)

    def _lengths(self, task: TaskSpec) -> dict[str, int]:
        """By the first name of a hole, or `vars.NAME`: how long its value can be."""
        tasks = self.spec.tasks
        items = [item for one in tasks if one.each is not None for item in one.each.items]
        values = [value for one in tasks for _, axis in one.matrix for value in axis]
        lengths = {
            "item": max((len(text_of(one)) for one in items), default=0),
            "matrix": max((len(text_of(one)) for one in values), default=0),
        }
        lengths |= {f"vars.{name}": len(text_of(value)) for name, value in self.spec.vars}
        own = {f"vars.{name}": _filled_chars(text_of(one), lengths) for name, one in task.vars}
        return {**lengths, **own}

    def _note(self, place: Place, message: str, hint: str, *fixes: Fix) -> None:
        self.faults.add(ForeignPlanError, place, message, hint, *fixes)


def _touched(task: TaskSpec, disk: Disk) -> Iterator[_Touched]:
    """Every path and pattern of a task by its key, with what is asked of it."""
    work, each = task.work, task.each
    file = work.file if isinstance(work, Prompt) else ""
    source = each.source if each is not None and each.kind in ("glob", "lines", "rows") else ""
    read = {"prompt_file": (file,), "schema": (task.schema,), "each": (source,)}
    for key, texts in {**read, "reads": task.paths_read}.items():
        yield key, tuple(filter(None, texts)), disk.unreadable
    # What a loop declares is what its tools let it write; for all others it is only an order.
    yield "writes", task.paths_written, disk.unwritable if _is_loop(task) else unreadable
    yield "output", tuple(filter(None, (task.output,))), disk.unwritable


def _is_loop(task: TaskSpec) -> bool:
    work = task.work
    return isinstance(work, Prompt) and work.agent is not None and work.agent.name == LOOP


def _filled_paths(expanded: ExpandedPlan, group: GroupPlan, text: str) -> Iterable[str] | None:
    """What a path becomes, with `*` for an unknown number; None if an answer would choose it."""
    if "{{" not in text:
        return ()
    template = template_of(text)
    members = group.members
    if members is not None:
        return (group.fill(template, members.member(n)) for n in range(members.count))
    # What an answer gives is a stranger's: it was not judged before it is a path.
    if any(ref.names[0] == "item" for ref in _refs(group, template)):
        return None
    members = Members(None, expanded.groups[group.leader].task.matrix)
    return (_pattern(group, template, members.member(n)) for n in range(members.count))


def _refs(group: GroupPlan, template: Template) -> Iterator[Ref]:
    """The names in a template, and in the variables that it names."""
    for ref in template.refs:
        value = group.vars.get(ref.var)
        yield from _refs(group, value) if isinstance(value, Template) else (ref,)


def _pattern(group: GroupPlan, template: Template, member: Member) -> str:
    def value(ref: Ref) -> str:
        inner = group.vars.get(ref.var)
        if isinstance(inner, Template):
            return inner.render(value)
        return "*" if ref.names[0] == "index" else group.fill(Template("", (ref,)), member)

    return template.render(value)


def written_budget(budget: Budget) -> str:
    """A budget as a plan says it."""
    dollars = [] if budget.microusd is None else [f"${budget.microusd / 1e6:.6f}".rstrip("0")]
    tokens = [] if budget.tokens is None else [f"{budget.tokens / 1e3:.15g}k"]
    amounts = [text.rstrip(".") for text in (*dollars, *tokens)]
    return f"[{', '.join(amounts)}]" if len(amounts) > 1 else "".join(amounts)


def _better(key: str) -> str:
    if key == "output":
        return "name a new text file of the project, such as `out/report.md`"
    return "name files of the project that are not hidden and hold no keys"


def _filled_chars(text: str, lengths: dict[str, int]) -> int:
    found = (ref for _, ref in references(text))
    return len(text) + sum(lengths.get(str(ref) if ref.var else ref.names[0], 0) for ref in found)


def _words(text: str) -> frozenset[str]:
    return frozenset(word.strip() for word in text.split(",") if word.strip())
