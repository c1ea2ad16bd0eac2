"""Reads one mapping of a plan and collects its errors.

Law: what is wrong is noted, never raised, and reading goes on; so one look at a plan finds all
that can be found.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeVar

from headway.base.numbers import number_of, seconds_of
from headway.errors import Fix, Place, PlanError, PlanValueError, UnknownKeyError, nearest
from headway.plans.grammar import TEXT_CHARS_MAX, Holder, keys_of
from headway.plans.spec import DocumentList, Keyed, Leaf, Located, Spot, Value

T = TypeVar("T")

SHOWN_CHARS_MAX: Final = 60
FAULTS_MAX: Final = 1_000
"""Errors of one plan that are kept; behind so many it is not a plan."""

TOKENS_MAX: Final = 10**12
COUNT_MAX: Final = 100
MONEY_MAX_USD: Final = 1e9
PRIORITY_MAX: Final = 1e6
DURATION_MAX_S: Final = 30 * 86400.0

ELSEWHERE: Final = {
    "depends_on": "needs", "dependsOn": "needs", "dependencies": "needs", "after": "needs",
    "for_each": "each", "foreach": "each", "items": "each", "command": "run", "script": "run",
}  # fmt: skip
"""What other tools call a key."""


class PlanFaults:
    """What is wrong with one plan."""

    def __init__(self, file: str) -> None:
        self.file: Final = file
        self.found: Final[list[tuple[Place, PlanError]]] = []

    def add(
        self,
        kind: type[PlanError],
        place: Place,
        message: str,
        hint: str | None = None,
        *fixes: Fix,
        detail: str | None = None,
    ) -> None:
        """Note one error. What its hint says, its fixes do; `detail` is what would go wrong."""
        if len(self.found) < FAULTS_MAX:
            at = where(self.file, place)
            error = kind(message, where=at, detail=detail, hint=hint, fixes=fixes)
            self.found.append((place, error))

    def check(self) -> None:
        """Raise what was found: all of it at once, in the order of the file."""
        if self.found:
            raise self.error()

    def error(self) -> PlanError:
        """All that was found as one error."""
        self.found.sort(key=lambda found: found[0])
        return PlanError.together([error for _, error in self.found])


def where(file: str, place: Place) -> str:
    """A place as people read it."""
    return f"{file}:{place.line}:{place.column}" if place.line else file


class Section:
    """One mapping: a plan, a task, a budget."""

    __slots__ = ("_faults", "_keys", "_pairs", "_path", "place")

    def __init__(self, node: Keyed, holder: Holder, path: str, faults: PlanFaults) -> None:
        self._keys: Final = keys_of(holder)
        self._path: Final = path
        self._faults: Final = faults
        self._pairs: Final = {str(key.text): (key, value) for key, value in node.pairs}
        self.place: Final = node.place
        for name, (key, _) in self._pairs.items():
            if name not in self._keys:
                self._unknown(name, key)

    def node(self, name: str) -> Located | None:
        return self._pairs[name][1] if name in self._pairs else None

    def spots(self) -> dict[str, Spot]:
        """Where its keys stand, and within some of them each value."""
        found: dict[str, Spot] = {}
        for name, (key, value) in self._pairs.items():
            found[name] = Spot(key.place, value.place)
            if name in ("reads", "writes") and isinstance(value, DocumentList):
                for n, item in enumerate(value.items):
                    found[f"{name}.{n}"] = Spot(key.place, item.place)
            elif name == "vars" and isinstance(value, Keyed):
                found |= {f"vars.{k.text}": Spot(k.place, v.place) for k, v in value.pairs}
        return found

    def read(
        self, name: str, of: Callable[[str], T | None], expects: str, unit: str = ""
    ) -> T | None:
        """One value, as `of` understands it; what it does not understand is `None`."""
        node = self.node(name)
        if node is None:
            return None
        value = of(node.text) if isinstance(node, Leaf) and node.value is not None else None
        if value is None:
            better = node.text + unit if isinstance(node, Leaf) and unit else ""
            self.wrong(name, node, expects, better if better and of(better) is not None else "")
        return value

    def text(
        self, name: str, pattern: Callable[[str], object] = bool, expects: str = "text"
    ) -> str:
        """A text that is not empty; empty if there is none or it is wrong."""
        if name not in self._pairs:
            return ""
        return self.read(name, lambda text: _text(text) if pattern(text) else None, expects) or ""

    def whole(self, name: str, least: int, most: int) -> int | None:
        """A whole number: `4000`, `120k`."""
        if name not in self._pairs:
            return None
        expects = f"a whole number from {least} to {most:,}"
        return self.read(name, lambda text: _whole(text, least, most), expects)

    def number(self, name: str, most: float) -> float:
        """A number of either sign."""
        found = self.read(name, lambda text: _within(number_of(text), -most, most), "a number")
        return found or 0.0

    def duration(self, name: str) -> float | None:
        """A time with its unit: `90s`, `10m`, `2h`."""
        expects = "a duration above 0 with its unit"
        return self.read(
            name, lambda text: _within(seconds_of(text), 1e-3, DURATION_MAX_S), expects, "s"
        )

    def leaves(self, name: str) -> tuple[Leaf, ...]:
        """One text or a list of them."""
        node = self.node(name)
        if node is None:
            return ()
        listed = node.items if isinstance(node, DocumentList) else (node,)
        good = tuple(
            [
                leaf
                for leaf in listed
                if isinstance(leaf, Leaf) and leaf.value is not None and _text(leaf.text)
            ]
        )
        # `reads: []` has a meaning, `needs: []` has none.
        is_empty = not listed and self._keys[name].takes != "paths"
        if len(good) < len(listed) or is_empty:
            self.wrong(name, node, "a text or a list of texts")
            return ()
        return good

    def wrong(self, name: str, node: Located, expects: str, better: str = "") -> None:
        """Note a value that its key cannot have."""
        key = self._keys[name]
        hint = f"write `{name}: {better or key.example}`"
        fix = Fix("source", node.place, value=key.example)
        if better:
            fix = Fix("replace", node.place, value=better)
        if key.takes in ("needs", "group", "permissions"):
            # An example cannot know which tasks there are, and a fix gives no rights.
            hint, fix = f"remove `{name}`", Fix("remove", self._pairs[name][0].place)
        message = f"`{self._joined(name)}` is {told(node)}: it takes {expects}"
        self._faults.add(PlanValueError, node.place, message, hint, fix)

    def _unknown(self, name: str, key: Leaf) -> None:
        free = [known for known in self._keys if known not in self._pairs]
        near = ELSEWHERE.get(name)
        near = near if near in free else nearest(name, free)
        message = f"there is no key `{self._joined(shown(name))}`"
        if near:
            fix = Fix("rename", key.place, value=near)
            self._faults.add(UnknownKeyError, key.place, message, f"did you mean `{near}`?", fix)
            return
        hint = f"remove it; the keys here are: {', '.join(self._keys)}"
        self._faults.add(UnknownKeyError, key.place, message, hint, Fix("remove", key.place))

    def _joined(self, name: str) -> str:
        return f"{self._path}.{name}" if self._path else name


def shown(text: str) -> str:
    """Text of a stranger, cut to length and without what a terminal would obey."""
    cut = text if len(text) <= SHOWN_CHARS_MAX else text[: SHOWN_CHARS_MAX - 1] + "…"
    if cut.isprintable():
        return cut
    return "".join(char if char.isprintable() else "?" for char in cut)


def told(node: Located) -> str:
    """What stands there, for a message."""
    match node:
        case Leaf(value=None):
            return "empty"
        case Leaf():
            return f"`{shown(node.text)}`"
        case DocumentList():
            return "a list"
    return "a mapping"


def value_of(node: Located) -> Value:
    """What stands there, without its place."""
    match node:
        case Leaf():
            return node.value
        case DocumentList():
            return [value_of(item) for item in node.items]
    return {key.text: value_of(value) for key, value in node.pairs}


def money_of(text: str) -> int | None:
    """`6`, `$6`, `$0.50`, `$1k`: micro-dollars."""
    usd = _within(number_of(text.removeprefix("$")), 1e-6, MONEY_MAX_USD)
    return None if usd is None else round(usd * 1e6)


def _text(text: str) -> str | None:
    return text if text and len(text) <= TEXT_CHARS_MAX and "\0" not in text else None


def _within(number: float | None, least: float, most: float) -> float | None:
    return number if number is not None and least <= number <= most else None


def _whole(text: str, least: int, most: int) -> int | None:
    number = _within(number_of(text), least, most)
    return int(number) if number is not None and number == int(number) else None
