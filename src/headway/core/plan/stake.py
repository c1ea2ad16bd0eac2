"""What a declared task may touch of the shared state: its declarations, and what its texts read.

Laws:
- Whoever declares `reads` reads of the state what it says there, and no more; so with `writes`,
  effects included. Whoever does not may touch anything.
- A prompt touches nothing but what its text and its declarations name.
- What all members may touch is the folder before the first `{{ }}`; each member's own lies in it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from headway.core.plan.resources import ACTS, SCHEME, prefix_of
from headway.core.plan.scope import ALL
from headway.core.plan.spec import Prompt, Python, Run, TaskSpec
from headway.core.plan.template import Ref, Template, parse_template
from headway.core.plan.touches import Prefixes, Touches
from headway.errors import TemplateError

Fill = Callable[[Template, int], str]
"""A template with the values of a member."""

Whats = tuple[Template, ...] | None
"""Keys and patterns, with holes; None is everything."""


@dataclass(frozen=True, slots=True)
class Stake:
    """What the members of one task may touch."""

    reads: Whats = None
    writes: Whats = None
    acts: Whats = None

    def touches(self, fill: Fill | None) -> Touches:
        """The same for the engine; without `fill`, what one member touches all of them may."""
        shared = Touches(_folders(self.reads), _folders(self.writes), _folders(self.acts))
        every = (*(self.reads or ()), *(self.writes or ()), *(self.acts or ()))
        if fill is None or not any(one.refs for one in every):
            return shared

        def of_member(member: int) -> Touches:
            try:
                return Touches(
                    _filled(self.reads, fill, member),
                    _filled(self.writes, fill, member),
                    _filled(self.acts, fill, member),
                )
            except TemplateError:
                # An item that was found at run time lacks a field: the task fails when it starts.
                return shared

        return replace(shared, by_member=of_member)


def state_refs(text: str) -> tuple[Ref, ...]:
    """What a prompt's text reads of the state: `{{ state.KEY }}`, or `{{ state }}` for all."""
    if "state" not in text:
        return ()
    parsed = parse_template(text)
    refs = parsed.refs if isinstance(parsed, Template) else ()
    return tuple(dict.fromkeys(ref for ref in refs if ref.names[0] == "state"))


def is_stateful(task: TaskSpec, texts: Iterable[str]) -> bool:
    """Whether a task says itself that it touches the state; `texts` are those of its prompt."""
    if task.output_key or any(map(state_refs, texts)):
        return True
    is_read = any(text.startswith(SCHEME) for text in task.reads)
    return is_read or any(text.startswith((SCHEME, ACTS)) for text in task.writes)


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


def may_touch(task: TaskSpec, texts: Iterable[str], has_section: bool) -> bool:
    """Whether a task of a plan that shares a state may touch it.

    A function may have an argument for it. A command finds it if the plan has the key `state`.
    """
    match task.work:
        case Python():
            return True
        case Run():
            return has_section or is_stateful(task, ())
    return is_stateful(task, texts)


def _templates(texts: tuple[str, ...] | None) -> Whats:
    if texts is None:
        return None
    parsed = (parse_template(text) for text in dict.fromkeys(texts))
    return tuple(one for one in parsed if isinstance(one, Template))


def _filled(whats: Whats, fill: Fill, member: int) -> Prefixes:
    if whats is None:
        return None
    return tuple(dict.fromkeys(prefix_in(fill(one, member)) for one in whats))


def _folders(whats: Whats) -> Prefixes:
    if whats is None:
        return None
    return tuple(dict.fromkeys(folder_of(one) for one in whats))


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
