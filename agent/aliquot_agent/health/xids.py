"""What the driver's error numbers mean for a GPU: a table, and the settings that change it.

An XID is the driver's word for something that went wrong. Many are a program's own fault (13 and 31 are what a wrong
pointer makes); some say that the GPU needs a reset; the rest is worth a look. Which is which an operator may know
better for their cards and drivers, so each line can be changed: `xids = ["31=degraded", "other=sick"]`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated

import msgspec

from aliquot_core.names import Names
from aliquot_core.settings import UnusableValueError, of_kind


class Effect(StrEnum):
    """What an XID does to its GPU."""

    SICK = "sick"
    DEGRADED = "degraded"
    IGNORED = "ignored"


# The line of the table for every number that it does not name.
OTHER = "other"

_MEANINGS = {
    13: "a program made the compute engine fault",
    31: "a program touched memory that is not its own",
    43: "a program's work was stopped",
    45: "a program's work was cleared away",
    46: "the GPU stopped processing",
    48: "uncorrectable memory error",
    62: "the GPU's own controller halted",
    63: "a memory row waits to be remapped",
    64: "a memory row could not be remapped",
    68: "a program made the video engine fault",
    69: "a program gave the compute engine a wrong command",
    74: "NVLink error",
    79: "the GPU fell off the bus",
    92: "many corrected memory errors",
    94: "contained memory error",
    95: "uncontained memory error",
    109: "a program's work took too long to switch",
    119: "the GPU's system processor did not answer",
    120: "the GPU's system processor failed",
    140: "uncorrected memory errors",
    154: "what the GPU needs has changed",
}
_SICK = (46, 48, 62, 64, 74, 79, 95, 119, 120, 140)
_DEGRADED = (63, 92, 94)
# Of the card's memory, its links and itself, whatever the table makes of them: no program brings these about, and a
# number that is not named may be any program's fault.
_OF_CARD = frozenset({48, 63, 64, 74, 79, 92, 94, 95, 140})
# 154 comes with an event of its own, which says more.
_IGNORED = (13, 31, 43, 45, 68, 69, 109, 154)

_LINE = re.compile(r"([0-9]{1,6}|other)=(sick|degraded|ignored)")
_Duration = Annotated[float, msgspec.Meta(ge=0, le=10**9)]


def _check_lines(lines: tuple[str, ...]) -> None:
    for line in lines:
        if not _LINE.fullmatch(line):
            raise UnusableValueError(
                f"{line[:40]!r} is no line of the table",
                remedy="write lines such as 79=sick, 31=degraded, other=ignored",
            )


class HealthSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Section `[health]`; durations in seconds."""

    # Changes to the table, such as "79=degraded" or "other=ignored".
    xids: Annotated[tuple[str, ...], of_kind(_check_lines)] = ()
    # A GPU that an XID made sick is trusted again so long after the last one; 0: not before it was reset or cleared.
    sick_for: _Duration = 0.0
    # The same for an XID that only degrades; 0: not before it was reset or cleared.
    degraded_for: _Duration = 3600.0
    # Slowed down by heat or power for so long makes a GPU degraded, as long without makes it well.
    throttled_for: _Duration = 300.0
    # XIDs are remembered here over a restart of the agent. A folder that a reboot empties: a reboot resets the GPUs.
    memory: str = "/run/aliquot/agent/health.json"


class Policy(msgspec.Struct, frozen=True, kw_only=True):
    """How what happens to a GPU is judged."""

    xids: Mapping[int, Effect]
    other: Effect
    sick_for: float
    degraded_for: float
    throttled_for: float
    # What an operator does once the GPU was looked after.
    remedy: str

    def effect(self, xid: int) -> Effect:
        """What this XID does to its GPU."""
        return self.xids.get(xid, self.other)


def policy(settings: HealthSettings, *, names: Names) -> Policy:
    """The table with the operator's changes."""
    table = {
        **dict.fromkeys(_SICK, Effect.SICK),
        **dict.fromkeys(_DEGRADED, Effect.DEGRADED),
        **dict.fromkeys(_IGNORED, Effect.IGNORED),
    }
    other = Effect.DEGRADED
    for line in settings.xids:
        number, _, effect = line.partition("=")
        if number == OTHER:
            other = Effect(effect)
        else:
            table[int(number)] = Effect(effect)
    return Policy(
        xids=table,
        other=other,
        sick_for=settings.sick_for,
        degraded_for=settings.degraded_for,
        throttled_for=settings.throttled_for,
        remedy=f"reset it if need be, then name it in the node annotation {names.clear_health}",
    )


def is_of_card(xid: int) -> bool:
    """Whether it is the card that fails, and not a program."""
    return xid in _OF_CARD


def meaning(xid: int) -> str:
    """What went wrong, in a few words."""
    return _MEANINGS.get(xid, "see the driver's list of XIDs")
