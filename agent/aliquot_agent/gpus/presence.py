"""Which GPUs answer: a state per GPU, and the events its changes make.

    from       seen well    lost         silent       failed
    well       -            → lost       → silent     → failed
    lost       → recovered  -            stays lost   stays lost
    silent     → recovered  → lost       -            → failed
    failed     → recovered  → lost       → silent     -

What must always hold: one event per change and none without a change; a lost GPU is only ever left by answering (a
timeout on a lost GPU says nothing new); no transition of one GPU touches another.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from aliquot_agent.gpus.model import EventKind, Fault

_EVENT = {Fault.LOST: EventKind.LOST, Fault.SILENT: EventKind.SILENT, Fault.FAILED: EventKind.FAILED}


class Presence(msgspec.Struct, frozen=True):
    """The GPUs of which we know that they don't answer, and why; whatever is not named is well."""

    faults: Mapping[str, Fault] = {}

    def of(self, uuid: str) -> Fault | None:
        """What is the matter with this GPU, None if it is well."""
        return self.faults.get(uuid)

    @property
    def lost(self) -> frozenset[str]:
        """The GPUs that fell off the bus."""
        return frozenset(uuid for uuid, fault in self.faults.items() if fault is Fault.LOST)


def observe(presence: Presence, *, uuid: str, fault: Fault | None) -> tuple[Presence, EventKind | None]:
    """Take in that a GPU answered (None) or what was the matter; tell what that changes."""
    before = presence.of(uuid)
    if fault is Fault.UNWATCHED:
        fault = None
    if fault is before or (before is Fault.LOST and fault is not None):
        return presence, None
    others = {other: trouble for other, trouble in presence.faults.items() if other != uuid}
    if fault is None:
        return Presence(others), EventKind.RECOVERED
    return Presence({**others, uuid: fault}), _EVENT[fault]
