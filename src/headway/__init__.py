"""Headway runs many agents on one account as fast as its limits allow.

A provider gives an account so many requests and tokens per minute. Sending everything at once
is refused, sending in waves wastes time; headway admits each call the moment that it fits:

    $ headway sim demo

Layers, each importing only those below it (`make lint` holds this):

    cli                                 one short function per verb
    planner, simulator, watch, mcp      what stands around a run
    api                                 the Python front door
    gateway                             a local endpoint that paces any client
    runtime                             performs effects: clock, files, network
    planfile, wire                      bytes <-> values
    core                                decides; pure: `now` is an argument
    errors                              every error, by whose fault it is

Public names are imported when first used, so that `import headway` stays instant.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headway.errors import HeadwayError

__version__ = "0.1.0"

__all__ = ["HeadwayError", "__version__"]

_HOMES = {"HeadwayError": "headway.errors"}
"""Where each public name lives; at most 20 of them."""


def __getattr__(name: str) -> object:
    """Import a public name from its home on first use (PEP 562)."""
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'headway' has no attribute {name!r}")
    from importlib import import_module

    value: object = getattr(import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """The public names and the module's own, imported or not."""
    return sorted({*globals(), *__all__})
