"""Every error that headway raises on purpose, split by whose fault it is.

HeadwayError
├── InputError                 the plan's or the user's: change what was asked for
│   ├── PlanError              the plan is refused before anything is spent (exit 3)
│   │   ├── CycleError                 HW001  tasks need each other in a circle
│   │   ├── UnknownNeedError           HW002  a task needs one that is not there
│   │   └── DuplicateTaskError         HW003  two tasks have one name
│   ├── UsageError             a command line, preset or workload is wrong (exit 2)
│   │   │                              HW100  the command line cannot be understood
│   │   ├── UnknownPresetError         HW101  no preset has this name
│   │   ├── BadPresetError             HW102  a preset or workload file cannot be used
│   │   └── BadValueError              HW103  a value is outside what is allowed
│   ├── DemandTooLargeError            HW201  one call exceeds what a limit ever allows (exit 3)
│   ├── QueueDeadlineError             HW204  a call waited for as long as it was allowed to
│   ├── BudgetReachedError             HW205  the user's budget has no room for a call (exit 4)
│   └── StateFileError                 HW208  a file that headway keeps cannot be used
├── ProviderError              the provider's: it failed and waiting did not help (exit 1)
│   │                                  HW300  a call failed for good
│   ├── WireError                      HW301  bytes are not in the format they should be in
│   └── AccountClosedError             HW206  the provider refuses the account: credit or spend cap
└── InternalError              ours: a bug in headway or in code that drives it (exit 70)
    │                                  HW901  something that cannot happen did
    ├── BrokerUnavailableError         HW207  the broker is gone and does not come back (exit 69)
    └── UnknownPermitError             HW202  a permit was settled twice or never granted

A class's docstring is its default message. Codes are never reused for another meaning.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar


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
        self.message = message if message is not None else _first_line(type(self))
        self.where = where
        self.detail = detail
        self.hint = hint
        super().__init__(self.message)

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


class CycleError(PlanError):
    """Tasks need each other in a circle, so none of them can start."""

    code = "HW001"


class UnknownNeedError(PlanError):
    """A task needs a task that the plan does not have."""

    code = "HW002"


class DuplicateTaskError(PlanError):
    """Two tasks have the same name."""

    code = "HW003"


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


class QueueDeadlineError(InputError):
    """A call waited for as long as it was allowed to and was not sent."""

    code = "HW204"
    exit_code = 1


class BudgetReachedError(InputError):
    """The budget has no room for this call."""

    code = "HW205"
    exit_code = 4


class StateFileError(InputError):
    """A file that headway keeps cannot be used."""

    code = "HW208"


class ProviderError(HeadwayError):
    """The provider failed, and waiting did not help."""

    code = "HW300"


class WireError(ProviderError):
    """Bytes are not in the format that they should be in."""

    code = "HW301"


class AccountClosedError(ProviderError):
    """The provider refuses every call of this account until somebody pays or raises its limit."""

    code = "HW206"


class InternalError(HeadwayError):
    """Something happened in headway that cannot happen."""

    code = "HW901"
    exit_code = 70


class BrokerUnavailableError(InternalError):
    """The broker is gone and could not be started again."""

    code = "HW207"
    exit_code = 69


class UnknownPermitError(InternalError):
    """A permit was settled that is not held: it was never granted, or was settled before."""

    code = "HW202"


def did_you_mean(word: str, choices: Iterable[str]) -> str:
    """A hint that names the nearest choice, or all of them when none is near."""
    from difflib import get_close_matches

    known = sorted(choices)
    near = get_close_matches(word, known, n=1)
    return f"did you mean `{near[0]}`?" if near else f"choose from: {', '.join(known)}"


def _first_line(kind: type[HeadwayError]) -> str:
    """The class docstring, or an ancestor's when a user's own subclass has none."""
    docs = (base.__doc__ for base in kind.__mro__)
    return next(doc for doc in docs if doc).splitlines()[0].rstrip(".")
