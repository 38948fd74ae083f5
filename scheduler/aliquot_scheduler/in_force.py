"""The leader's settings by which the order of turns and the fit of nodes come about, told to those who explain them.

They lie on the Lease that says how often nodes are to beat: whoever may read heart-beats, without which nothing can be
explained, reads them in the same list, and nobody but Aliquot writes there. Rules that are installed as packages are
code and can't be told.

What must always hold: whatever stands there, reading it gives settings that can be used, the reader's own at worst.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable

import msgspec

from aliquot_core.errors import AliquotError
from aliquot_core.names import PACE_LEASE, Names
from aliquot_core.objects import Lease
from aliquot_scheduler.queues.said.settings import QueueSettings
from aliquot_scheduler.rules.expressions import RuleSettings, check

log = logging.getLogger(__name__)

# All annotations of an object are 256 KiB at the most, and every agent reads this one's once a minute.
_LONGEST = 64 * 1024


class InForce(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Sections of the settings; without rules where they are too long to be told."""

    queues: QueueSettings = QueueSettings()
    rules: RuleSettings | None = None


def encode_in_force(settings: InForce) -> str:
    """As it is told."""
    text = msgspec.json.encode(settings)
    if len(text) > _LONGEST:
        text = msgspec.json.encode(msgspec.structs.replace(settings, rules=None))
    return text.decode()


def read_in_force(leases: Iterable[Lease], *, names: Names, own: InForce) -> InForce:
    """What the leader has told; what it has not, and all that is not understood, is as the reader has it."""
    told = told_in_force(leases, names=names)
    if told is None:
        return own
    return told if told.rules is not None else msgspec.structs.replace(told, rules=own.rules)


def told_in_force(leases: Iterable[Lease], *, names: Names) -> InForce | None:
    """What the leader has told; None if it has told nothing, or nothing that is understood."""
    lease = next((one for one in leases if one.metadata.name == PACE_LEASE), None)
    text = lease.metadata.annotations.get(names.settings) if lease else None
    if text is None:
        return None
    try:
        told = msgspec.json.decode(text, type=InForce)
        check(told.rules.expressions if told.rules else ())
    except (msgspec.DecodeError, AliquotError, ValueError, RecursionError) as error:
        # Of another version.
        log.info("the leader's settings are not understood", extra={"error": str(error)})
        return None
    return told
