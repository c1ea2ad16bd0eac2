"""What a task depends on, in 16 bytes: the name under which a journal knows its result.

Laws:
- Two tasks of one plan never have one key; the same plan gives the same keys, in every process.
- A key covers what is declared: the work and its texts (those of files too), model, longest answer,
  permissions of an agent, names of what is read, schema, verification, item, matrix values,
  variables, and of the shared state: how the keys combine that it may touch, and the key that its
  result is put under; of a reduction also the items whose results it brings together, and its
  quorum. It covers neither names of tasks nor what they need, so that a result outlives a plan that
  was rearranged, nor how a task is run (queue, timeout, retries, priority, budget).
- Equal tasks are told apart by how many of them stand before.

The part that members share is hashed once; each member adds its own values to a copy.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from hashlib import blake2b
from json import dumps
from typing import Final

from headway.core.digest import DIGEST_BYTES, digest
from headway.core.plan.expand import Expanded, GroupPlan, Members, prompt_texts, stakes_of
from headway.core.plan.resources import Channel, prefix_of
from headway.core.plan.spec import Prompt, Run, Value, plain
from headway.core.plan.stake import Stake
from headway.core.plan.template import Template, parse_template
from headway.core.plan.touches import Prefixes, Touches, covers

VERSION: Final = "headway plan 1"
"""Of the form below; another one makes every key another."""


@dataclass(frozen=True, slots=True)
class Keys:
    """The content keys of one group's members."""

    stem: blake2b
    members: Members
    axes: tuple[tuple[bytes, ...], ...]
    """The values of the matrix, as bytes."""
    extra: Callable[[int], bytes] | None = None
    """What else differs from member to member: the texts of files that a template names."""

    def key(self, index: int) -> bytes:
        """The key of one member."""
        members = self.members
        hasher = self.stem.copy()
        item, places = members.place(index) if self.axes else (index, ())
        if members.items is not None:
            value = members.items[item]
            hasher.update(_framed(_bytes(value)))
            if members.occurrences:
                hasher.update(b"#%d" % members.occurrences[item])
        for values, place in zip(self.axes, places, strict=True):
            hasher.update(values[place])
        if self.extra is not None:
            hasher.update(_framed(self.extra(index)))
        return hasher.digest()


def keys_of(expanded: Expanded, model: str = "") -> tuple[Keys | None, ...]:
    """For every group its keys; `None` where the members are not known. `model` is the default."""
    stems = stems_of(expanded, model)
    return tuple(
        None if group.members is None else _keys(expanded, group, stem)
        for group, stem in zip(expanded.groups, stems, strict=True)
    )


def stems_of(expanded: Expanded, model: str = "") -> tuple[bytes, ...]:
    """For every group the digest of what its members share; no two are equal."""
    seen: dict[bytes, int] = {}
    stems: list[bytes] = []
    channels = {key: one for key, one in expanded.spec.channels.items() if one.kind != "value"}
    for group, stake in zip(expanded.groups, stakes_of(expanded), strict=True):
        shared = _shared(expanded, group, model)
        if stake is not None:
            shared |= _sharing(channels, group, stake)
        form = dumps(shared, sort_keys=True, ensure_ascii=True).encode()
        occurrence = seen.get(form, 0)
        seen[form] = occurrence + 1
        stems.append(digest(form + b"#%d" % occurrence if occurrence else form))
    return tuple(stems)


def _shared(expanded: Expanded, group: GroupPlan, model: str) -> dict[str, object]:
    """What a group's members share."""
    task, files = group.task, expanded.sources.files
    work = task.work
    shared: dict[str, object] = {
        "version": VERSION,
        "kind": type(work).__name__,
        "vars": _variables(expanded, group),
        "reads": task.reads,
        "schema": files.get(task.schema, task.schema),
        "verify": task.verify,
        "reduce": _reduced(expanded, group),
    }
    if isinstance(work, Prompt):
        shared["text"] = files.get(work.file, work.file) or work.text
        shared["model"] = work.model or expanded.spec.model or model
        shared["max_tokens"] = work.max_tokens
        if work.agent is not None:
            shared["agent"] = (work.agent.name, *work.agent.tools)
        if permissions := expanded.spec.permissions_of(task):
            shared["permissions"] = permissions
    else:
        shared["text"] = work.command if isinstance(work, Run) else work.target
    return shared


def _reduced(expanded: Expanded, group: GroupPlan) -> object:
    """Whose results a reduction brings together, which it is told, and how many it has to have.

    Items that are found at run time are left out: a key does not change while a plan runs.
    """
    task = group.task
    if not task.reduce:
        return False
    source = expanded.groups[group.source]
    each = expanded.groups[source.leader].task.each
    is_found = each is not None and each.kind == "task"
    of = b"" if is_found else items_digest(source.known, range(source.known.count))
    quorum = (task.quorum.count, task.quorum.percent) if task.quorum is not None else ()
    return of.hex(), *quorum


def items_digest(members: Members, chosen: range) -> bytes:
    """What these members are told apart by."""
    every = map(members.member, chosen)
    values = [[plain(one.item), *(plain(value) for _, value in one.matrix)] for one in every]
    return digest(dumps(values).encode())


def _sharing(channels: Mapping[str, Channel], group: GroupPlan, stake: Stake) -> dict[str, object]:
    """What decides which state they see, and what becomes of what they put there."""
    task, touches = group.task, stake.touches(None)
    met = {
        key: str(channel) if channel.kind == "reduce" else channel.kind
        for key, channel in channels.items()
        if _meets(prefix_of(key), touches)
    }
    return {"channels": met, "output_key": task.output_key, "sees": task.state_reads}


def _meets(prefix: str, touches: Touches) -> bool:
    """Whether a channel may have to do with what is touched: one lies within the other."""
    return any(_overlap(prefix, every) for every in (touches.reads, touches.writes, touches.acts))


def _overlap(prefix: str, every: Prefixes) -> bool:
    return covers(every, prefix) or any(covers((prefix,), one) for one in every or ())


def _variables(expanded: Expanded, group: GroupPlan) -> Mapping[str, object]:
    """All variables for a command or a function; for a prompt those that it uses."""
    every: dict[str, Value] = {**dict(expanded.spec.vars), **dict(group.task.vars)}
    if isinstance(group.task.work, Prompt):
        # A variable of the plan that no text of this task names does not change what it asks for.
        own = dict(group.task.vars)
        used = used_variables(expanded, group)
        every = {name: value for name, value in every.items() if name in own or name in used}
    return {name: plain(value) for name, value in every.items()}


def used_variables(expanded: Expanded, group: GroupPlan) -> frozenset[str]:
    """The variables that the texts of a task name, those of its prompt's files included."""
    task = group.task
    texts = [task.output, task.output_key, task.schema, *task.reads, *task.writes]
    texts += [value for _, value in task.vars if isinstance(value, str)]
    if isinstance(task.work, Prompt):
        texts += [task.work.file, task.work.model, *prompt_texts(expanded, group)]
    templates = (parse_template(text) for text in dict.fromkeys(texts) if "{{" in text)
    return frozenset(
        ref.var
        for template in templates
        if isinstance(template, Template)
        for ref in template.refs
        if ref.var
    )


def _keys(expanded: Expanded, group: GroupPlan, stem: bytes) -> Keys:
    members = group.known
    axes = tuple(tuple(_framed(_bytes(value)) for value in values) for _, values in members.matrix)
    names = [name for name, _ in members.matrix]
    hasher = blake2b(stem + dumps(names).encode(), digest_size=DIGEST_BYTES)
    return Keys(hasher, members, axes, _extra(expanded, group))


def _extra(expanded: Expanded, group: GroupPlan) -> Callable[[int], bytes] | None:
    """The texts of files that are different from member to member."""
    work = group.task.work
    texts = (work.file if isinstance(work, Prompt) else "", group.task.schema)
    parsed = (parse_template(text) for text in texts)
    templates = [one for one in parsed if isinstance(one, Template) and one.refs]
    if not templates:
        return None
    digests = {path: digest(text.encode()) for path, text in expanded.sources.files.items()}

    def extra(index: int) -> bytes:
        member = group.known.member(index)
        paths = (group.fill(template, member) for template in templates)
        return b"".join(digests.get(path, path.encode()) for path in paths)

    return extra


def _bytes(value: Value) -> bytes:
    if isinstance(value, str):
        return b"s" + value.encode()
    return b"j" + dumps(plain(value), sort_keys=True).encode()


def _framed(data: bytes) -> bytes:
    """Bytes with their length, so that no two sequences of them are alike."""
    return b"%d:%b" % (len(data), data)
