"""What `aliquot simulate` is asked to do, and which options mean something then.

An option that changes nothing is refused: who gave it believes that it was heeded.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import Any

import click
from click.core import ParameterSource

from aliquot_cli.simulate_time import TIME_NAMES
from aliquot_scheduler.simulating.timed.contest import TimedPolicy


class Mode(StrEnum):
    """What is done, by the option that asks for it."""

    PLACES = "without --time"
    TIME = "with --time"
    MIX = "with --print-mix"
    RECORD = "with --record"


_ANY = frozenset(Mode)
_REPLAYS = frozenset({Mode.PLACES, Mode.TIME})
# By parameter; of those that are not here all are for runs in time.
_MEANT: Mapping[str, frozenset[Mode]] = MappingProxyType(
    {
        "nodes": _ANY,
        "pods": _ANY,
        "seed": _ANY,
        "order": frozenset({Mode.PLACES, Mode.RECORD}),
        "noderank": frozenset({Mode.PLACES}),
        "policy": _REPLAYS,
        "mix": frozenset({Mode.PLACES}),
        "print_mix": frozenset({Mode.MIX}),
        "record": frozenset({Mode.RECORD}),
        "in_time": frozenset({Mode.TIME}),
        "file": _REPLAYS | {Mode.RECORD},
        "kubeconfig": frozenset({Mode.RECORD}),
        "plot": _REPLAYS,
        "form": _REPLAYS | {Mode.MIX},
    }
    | dict.fromkeys(TIME_NAMES, frozenset({Mode.TIME}))
)
# In time: what only our own policy heeds.
_OURS = frozenset({"file", "queues", "users", "patience", "hold", "grace", "moves"})
_OTHERS = frozenset(TimedPolicy) - {TimedPolicy.ALIQUOT}


def mode_of(context: click.Context) -> Mode:
    """What is asked for; whatever was given beside it must mean something there, and to the policy that is named."""
    given: Mapping[str, Any] = context.params
    asked = {"record": Mode.RECORD, "in_time": Mode.TIME, "print_mix": Mode.MIX}
    mode = next((mode for name, mode in asked.items() if given[name]), Mode.PLACES)
    for parameter in context.command.params:
        name = str(parameter.name)
        typed = context.get_parameter_source(name) is ParameterSource.COMMANDLINE
        if typed and mode not in _MEANT.get(name, _ANY):
            meant = " or ".join(one for one in Mode if one in _MEANT[name])
            raise click.UsageError(f"{parameter.opts[0]} says nothing {mode}; it is for runs {meant}", ctx=context)
        if typed and mode is Mode.TIME and name in _OURS and given["policy"] in _OTHERS:
            told = f"{parameter.opts[0]} says nothing to policy {given['policy']}; it is for {TimedPolicy.ALIQUOT}"
            raise click.UsageError(told, ctx=context)
    return mode
