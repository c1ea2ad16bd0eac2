"""Every error that headway raises on purpose, by whose fault it is.

`InputError` is the fault of the plan or the user, `ProviderError` of the provider, `InternalError`
of headway or of code that drives it. A class's docstring is its default message. Codes are never
reused for another meaning.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import ClassVar, Final, Literal, NamedTuple

ERRORS_SHOWN_MAX: Final = 20
"""Errors of one plan that are shown at once; the others are counted."""

CHOICES_MAX: Final = 50
"""Names that a hint chooses from."""


class Place(NamedTuple):
    """Where something stands in a file, counted from 1; line 0 is nowhere."""

    line: int
    column: int


class Fix(NamedTuple):
    """A hint that a program can carry out: one edit of the plan's text."""

    kind: Literal["rename", "replace", "source", "add", "remove", "text", "spaces"]
    """A key; a value by another, or by one in JSON; a key with its value, twice; words; tabs."""
    place: Place
    """Of the key, of the value, or of the mapping to which something is added."""
    key: str = ""
    """What is added, or the words that go; `vars.x` is a key within a key."""
    value: str | int | tuple[str, ...] = ""
    file: str = ""
    """The file, if it is not the plan itself."""


class HeadwayError(Exception):
    """Headway cannot go on."""

    code: ClassVar[str] = "HW000"
    exit_code: ClassVar[int] = 1

    def __init__(
        self,
        message: str | None = None,
        *,
        where: str | None = None,
        detail: str | None = None,
        hint: str | None = None,
    ) -> None:
        """Say what is wrong, `where` (a place), in which way (`detail`), and the fix (`hint`)."""
        if message is None:
            # A user's own subclass may have no docstring.
            docs = (base.__doc__ for base in type(self).__mro__)
            message = next(doc for doc in docs if doc).splitlines()[0].rstrip(".")
        self.message = message
        self.where = where
        self.detail = detail
        self.hint = hint
        super().__init__(self.message)

    def as_dict(self) -> dict[str, object]:
        """The error for a program."""
        return {
            "code": self.code, "message": self.message, "where": self.where,
            "detail": self.detail, "hint": self.hint,
        }  # fmt: skip

    def render(self) -> str:
        """The error as people read it: what, then where, then what to do about it."""
        lines = [f"error[{self.code}]: {self.message}"]
        place = "  ".join(part for part in (self.where, self.detail) if part)
        if place:
            lines.append(f"  {place}")
        if self.hint:
            lines.append(f"hint: {self.hint}")
        return "\n".join(lines)


class InputError(HeadwayError):
    """What was asked for cannot be done."""

    exit_code = 2


class PlanError(InputError):
    """The plan is refused."""

    exit_code = 3

    def __init__(
        self, message: str | None = None, *, fixes: tuple[Fix, ...] = (), **more: str | None
    ) -> None:
        """As every error; `fixes` are what the hint says, as edits of the plan."""
        super().__init__(message, **more)
        self.fixes = fixes
        self.others: tuple[PlanError, ...] = ()
        """What else is wrong with the same plan, independently of this."""

    def as_dict(self) -> dict[str, object]:
        return {**super().as_dict(), "fixes": list(self.fixes)}

    def render(self) -> str:
        """This error and then the others, so that a plan is corrected in one go."""
        shown = [super().render(), *(other.render() for other in self.others[:ERRORS_SHOWN_MAX])]
        if hidden := len(self.others[ERRORS_SHOWN_MAX:]):
            shown.append(f"and {hidden} more")
        return "\n".join(shown)

    @staticmethod
    def together(errors: Sequence[PlanError]) -> PlanError:
        """One error for all that is wrong: the first, which brings the others along."""
        first = errors[0]
        first.others = (*first.others, *errors[1:])
        return first


class CycleError(PlanError):
    """Tasks need each other in a circle, so none of them can start."""

    code = "HW001"


class UnknownNeedError(PlanError):
    """A task needs a task that the plan does not have."""

    code = "HW002"


class DuplicateTaskError(PlanError):
    """Two tasks have the same name."""

    code = "HW003"


class QueueOrderError(PlanError):
    """A task of a queue needs one whose turn comes after its own, so neither can start."""

    code = "HW004"


class PlanFileError(PlanError):
    """The plan's file cannot be used."""

    code = "HW005"


class UnknownKeyError(PlanError):
    """There is no such key."""

    code = "HW006"


class PlanValueError(PlanError):
    """A value is not one that its key can have."""

    code = "HW007"


class PlanShapeError(PlanError):
    """Keys do not go together, or one is missing."""

    code = "HW008"


class TemplateError(PlanError):
    """A template cannot be filled."""

    code = "HW009"


class HazardError(PlanError):
    """Tasks touch the same path in no fixed order, so that a value can be stale or lost."""

    code = "HW010"


class SourceError(PlanError):
    """A file or a pattern that the plan names cannot be used."""

    code = "HW011"


class PlanTooLargeError(PlanError):
    """The plan is too large: for a run, or for the time that it is given."""

    code = "HW012"


class ContextTooSmallError(PlanError):
    """The text of a reduction does not fit into its context."""

    code = "HW013"


class ForeignPlanError(PlanError):
    """A plan by an agent asks for what only the user's own plans may have."""

    code = "HW014"


class NoPlanError(PlanError):
    """A model was asked for a plan and gave none that can be used."""

    code = "HW015"
    draft: str = ""
    """What it gave last."""


class UsageError(InputError):
    """The command line cannot be understood."""

    code = "HW100"


class UnknownPresetError(UsageError):
    """There is no preset of this name."""

    code = "HW101"


class BadPresetError(UsageError):
    """A preset or workload file cannot be used."""

    code = "HW102"


class BadValueError(UsageError):
    """A value is outside what is allowed."""

    code = "HW103"


class DemandTooLargeError(InputError):
    """One call needs more than a limit ever allows, so waiting does not help."""

    code = "HW201"
    exit_code = 3


class TasksFailedError(InputError):
    """Tasks failed; the results of the others are in `results`."""

    code = "HW203"
    exit_code = 1
    results: object = None
    """In the order of the items, with the errors in their places."""


class QueueDeadlineError(InputError):
    """A call waited for as long as it was allowed to and was not sent."""

    code = "HW204"
    exit_code = 1


class BudgetReachedError(InputError):
    """The budget has no room for this call."""

    code = "HW205"
    exit_code = 4


class GatewayError(InputError):
    """The gateway cannot be started, reached or stopped."""

    code = "HW210"
    exit_code = 69


class StateError(InputError):
    """The shared state cannot be used like this."""

    code = "HW211"


class EffectFailedError(InputError):
    """An effect on the world was not performed, as far as is known."""

    code = "HW213"
    exit_code = 1


class WorkspaceError(InputError):
    """The files of a task cannot be kept apart, collected or applied."""

    code = "HW214"


class StateFileError(InputError):
    """A file that headway keeps cannot be used."""

    code = "HW208"


class JournalError(StateFileError):
    """A run's journal cannot be read or written."""

    code = "HW209"


class ProviderError(HeadwayError):
    """The provider failed, and waiting did not help."""

    code = "HW300"


class WireError(ProviderError):
    """Bytes are not in the format that they should be in."""

    code = "HW301"


class AccountClosedError(ProviderError):
    """The provider refuses every call of this account until it is paid or its limit is raised."""

    code = "HW206"


class InternalError(HeadwayError):
    """Something happened in headway that cannot happen."""

    code = "HW901"
    exit_code = 70


class BrokerUnavailableError(InternalError):
    """The broker is gone and could not be started again."""

    code = "HW207"
    exit_code = 69


def nearest(word: str, choices: Iterable[str], cutoff: float = 0.6) -> str:
    """The choice that was probably meant, or empty; of many, one that begins alike."""
    from difflib import get_close_matches

    known = list(choices)
    if len(known) > CHOICES_MAX:
        known = [choice for choice in known if choice[:2] == word[:2]][:CHOICES_MAX]
    return next(iter(get_close_matches(word, known, n=1, cutoff=cutoff)), "")


def did_you_mean(word: str, choices: Iterable[str]) -> str:
    """A hint that names the nearest choice, or all of them when none is near."""
    known = sorted(choices)
    near = nearest(word, known)
    return f"did you mean `{near}`?" if near else f"choose from: {', '.join(known)}"
