"""What a plan says of the state that its tasks share: channels, and who may touch which keys.

Laws:
- A key is read and written as `state:KEY`; an effect is asked for as `effect:CHANNEL`, and only
  where `state` says how it is performed. Effects are not read.
- Nothing that a channel names is imported before a run starts.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from headway.errors import Fix, PlanError, PlanShapeError, PlanValueError, TemplateError, nearest
from headway.plans.grammar import TARGET
from headway.plans.resources import (  # fmt: skip
    ACTS,
    SCHEME,
    Channel,
    Kind,
    Prefixes,
    Touches,
    better_channel,
    better_key,
    channel_in,
    channel_of,
    is_pattern,
    is_well_formed,
    matches,
    prefix_of,
)
from headway.plans.section import PlanFaults, Section, shown, told
from headway.plans.spec import (
    Keyed,
    Leaf,
    Located,
    PlanSpec,
    Prompt,
    Spot,
    StateKey,
    TaskSpec,
)
from headway.plans.template import ALL, Ref, Template, template_of

KEYS_MAX: Final = 200
"""Entries under `state`: whatever is touched is compared with each of them. Patterns help."""

EXPECTS: Final = "value, append, set, counter, max, reduce(module:name) or effect(module:name)"
_HOLE: Final = re.compile(r"\{\{.*?\}\}|\{\{", re.DOTALL)


Flaw = tuple[str, str]
"""What is wrong with an entry, and what could stand there: nothing, if it is to go."""


def state_of(section: Section, faults: PlanFaults) -> tuple[StateKey, ...] | None:
    """What stands under `state`."""
    node = section.node("state")
    if node is None:
        return None
    if not isinstance(node, Keyed) or len(node.pairs) > KEYS_MAX:
        section.wrong("state", node, f"up to {KEYS_MAX:,} keys with a channel each")
        return None
    taken = {key.text for key, _ in node.pairs}
    entries: list[StateKey] = []
    for key, value in node.pairs:
        if not is_well_formed(key.text) or "{{" in key.text:
            _bad_key(key, taken, faults)
        channel = channel_of(value.text) if isinstance(value, Leaf) else ""
        if isinstance(channel, Channel):
            entries.append((key.text, channel, Spot(key.place, value.place)))
        else:
            _bad_channel(key, value, faults)
    return tuple(entries)


def check_sharing(spec: PlanSpec, faults: PlanFaults) -> None:
    """Note every declaration that cannot be meant; those with `{{ }}` are known by member."""
    channels = spec.channels
    for task in spec.tasks:
        if not task.is_sound:
            continue
        for key, texts in entries_of(task):
            for text in dict.fromkeys(texts):
                flaw = None if "{{" in text else flaw_of(channels, key, text)
                if flaw is not None:
                    _note(task, key, text, flaw, faults)


def entries_of(task: TaskSpec) -> Iterator[tuple[str, tuple[str, ...]]]:
    """What a task declares about the state, by key of the plan: `state:` and `effect:` entries."""
    output = SCHEME + task.output_key if task.output_key else task.output
    for key, texts in (("reads", task.reads), ("writes", task.writes), ("output", (output,))):
        found = tuple([text for text in texts if text.startswith((SCHEME, ACTS))])
        if found:
            yield key, found


def flaw_of(channels: Mapping[str, Channel], key: str, text: str) -> Flaw | None:
    """What is wrong with one entry of `reads`, `writes` or `output`, its holes filled."""
    is_act = text.startswith(ACTS)
    what = text.removeprefix(ACTS if is_act else SCHEME)
    if is_act and key != "writes":
        return "effects are for `writes`", ""
    if not is_well_formed(what):
        scheme = ACTS if is_act else SCHEME
        return "a key is names with slashes between them", scheme + better_key(what)
    if key == "output" and is_pattern(what):
        return "a result is put under one key", SCHEME + better_key(re.sub("[*?]", "", what))
    if not is_act:
        if is_pattern(what) or channel_in(channels, what).kind != "effect":
            return None
        return f"`{shown(what)}` is an effect", ACTS + what if key == "writes" else ""
    acts = [one for one, channel in channels.items() if channel.kind == "effect"]
    if channel_in(channels, what).kind == "effect" or (
        is_pattern(what) and any(one == what or matches(what, one) for one in acts)
    ):
        return None
    if what in channels:
        return f"`{shown(what)}` is no effect under `state`", SCHEME + what
    near = nearest(what, [one for one in acts if not is_pattern(one)])
    return "`state` has no such effect", ACTS + near if near else ""


def targets_of(spec: PlanSpec, kind: Kind) -> tuple[str, ...]:
    """The functions of a plan's channels of one kind, as module:name, each once."""
    targets = [one.target for one in spec.channels.values() if one.kind == kind]
    return tuple(dict.fromkeys(filter(TARGET.fullmatch, targets)))


def _bad_key(key: Leaf, taken: set[str], faults: PlanFaults) -> None:
    better = better_key(_HOLE.sub("*", key.text))
    while better in taken:
        better += "-x"
    taken.add(better)
    message = f"`state.{shown(key.text)}` is no key: names with slashes between them, `*` and `**`"
    fix = Fix("rename", key.place, value=better)
    faults.add(PlanValueError, key.place, message, f"call it `{shown(better)}`", fix)


def _bad_channel(key: Leaf, value: Located, faults: PlanFaults) -> None:
    better = better_channel(value.text if isinstance(value, Leaf) else "")
    message = f"`state.{shown(key.text)}` is {told(value)}: it takes {EXPECTS}"
    fix = Fix("replace", value.place, value=better)
    faults.add(PlanValueError, value.place, message, f"write `{shown(key.text)}: {better}`", fix)


def _note(task: TaskSpec, key: str, text: str, flaw: Flaw, faults: PlanFaults) -> None:
    problem, better = flaw
    texts = {"reads": task.reads, "writes": task.writes}.get(key, (text,))
    place = task.spot(f"{key}.{texts.index(text)}", key).value
    message = f"`{shown(text)}` in `{key}` of `{task.name}`: {problem}"
    kind: type[PlanError] = PlanValueError
    hint = f"write `{shown(better)}`" if better else f"remove `{shown(text)}`"
    if not better and key == "writes":
        kind = PlanShapeError
        hint += ", or declare it under `state` as effect(package.module:function)"
    faults.add(kind, place, message, hint, task.exchange(key, text, better))


# What a declared task may touch of the shared state: its declarations, and what its texts read.

Fill = Callable[[Template, int], str]
"""A template with the values of a member."""

Whats = tuple[Template, ...] | None
"""Keys and patterns, with holes; None is everything."""


class Stake(Struct, frozen=True):
    """What the members of one task may touch."""

    reads: Whats = None
    writes: Whats = None
    acts: Whats = None

    def touches(self, fill: Fill | None) -> Touches:
        """The same for the engine; without `fill`, what one member touches all of them may."""
        shared = self._touches(folder_of)
        every = (*(self.reads or ()), *(self.writes or ()), *(self.acts or ()))
        if fill is None or not any(one.refs for one in every):
            return shared

        def of_member(member: int) -> Touches:
            try:
                return self._touches(lambda one: prefix_in(fill(one, member)))
            except TemplateError:
                # An item that was found at run time lacks a field: the task fails when it starts.
                return shared

        return replace(shared, by_member=of_member)

    def _touches(self, of: Callable[[Template], str]) -> Touches:
        return Touches(
            _prefixes(self.reads, of), _prefixes(self.writes, of), _prefixes(self.acts, of)
        )


def state_refs(text: str) -> tuple[Ref, ...]:
    """What a prompt's text reads of the state: `{{ state.KEY }}`, or `{{ state }}` for all."""
    if "state" not in text:
        return ()
    refs = template_of(text).refs
    return tuple(dict.fromkeys(ref for ref in refs if ref.names[0] == "state"))


def is_stateful(task: TaskSpec, texts: Iterable[str]) -> bool:
    """Whether a task says itself that it touches the state; `texts` are those of its prompt."""
    declared = (*task.reads, *task.writes)
    is_declared = any(text.startswith((SCHEME, ACTS)) for text in declared)
    return bool(task.output_key) or is_declared or any(map(state_refs, texts))


def stake_of(task: TaskSpec, texts: Iterable[str]) -> Stake:
    """The stake of a task that touches the state; `texts` are those of its prompt."""
    reads, writes, acts = task.state_reads, task.state_writes, task.effects
    if isinstance(task.work, Prompt):
        refs = dict.fromkeys(ref for text in texts for ref in state_refs(text))
        if reads is not None or ALL not in refs:
            named = (ref.names[1] for ref in refs if ref != ALL)
            reads = (*(reads or ()), *named)
        writes, acts = writes or (), acts or ()
    if writes is not None and task.output_key:
        writes = (*writes, task.output_key)
    return Stake(_templates(reads), _templates(writes), _templates(acts))


def _templates(texts: tuple[str, ...] | None) -> Whats:
    return None if texts is None else tuple(map(template_of, dict.fromkeys(texts)))


def _prefixes(whats: Whats, of: Callable[[Template], str]) -> Prefixes:
    return None if whats is None else tuple(dict.fromkeys(map(of, whats)))


def folder_of(template: Template) -> str:
    """What all members of a template lie in."""
    text = ""
    for part in template.parts:
        if isinstance(part, Ref):
            return prefix_in(text.rpartition("/")[0])
        text += part
    return prefix_in(text)


def prefix_in(what: str) -> str:
    """As overlaps are judged; a value that is found at run time may lack a name between slashes."""
    return prefix_of("/".join([part for part in what.split("/") if part]))
