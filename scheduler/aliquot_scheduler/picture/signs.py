"""Is a node there? Its object says what may be bound to it, its heart-beat that somebody is there to start it.

A beat's age is counted from when we saw it, by our own clock: the node's may be wrong. Only a beat that we find when we
start may be old already; its own time then decides, and a node whose clock is wrong is in again with its next beat.
"""

from __future__ import annotations

from collections import Counter

import msgspec

from aliquot_core.counting import agreed
from aliquot_core.instants import seconds_of
from aliquot_core.inventory import Gpu, Health, Inventory
from aliquot_core.life import State
from aliquot_core.names import Names
from aliquot_core.objects import Lease, Node

# A clock may be off by so much before a beat that we find at our start is taken for old.
_SKEW = 30.0
_DURATION = 10


SILENT = "its agent is not heard of any more"
# Nothing is bound there either, but the node may be well.
UNHEARD = "no heart-beat of anybody is heard just now, nor that of its agent"
CORDONED = "the node is cordoned"
LEAVING = "its agent is leaving"


class Beat(msgspec.Struct, frozen=True, kw_only=True):
    """The last heart-beat of a node as we saw it, and when; `until` is when it is too old."""

    renewed: str
    state: str
    seen: float
    until: float


def beat_seen(lease: Lease, *, before: Beat | None, names: Names, now: float, wall: float) -> Beat:
    """Take in a lease; one that was seen before does not grow younger by being told of again."""
    renewed = lease.spec.renew_time or ""
    state = lease.metadata.annotations.get(names.state, "")
    duration = lease.spec.lease_duration_seconds or _DURATION
    if before is not None and before.renewed == renewed:
        return msgspec.structs.replace(before, state=state)
    # What is no time is as old as can be.
    old = before is None and wall - (seconds_of(renewed) or 0.0) > duration + _SKEW
    return Beat(renewed=renewed, state=state, seen=now, until=now if old else now + duration)


def why_out(node: Node, *, beat: Beat | None, problem: str, now: float, deaf: bool = False) -> str:
    """Why no pod may be bound to a node now; empty if pods may. `deaf`: nobody is heard."""
    if node.spec.unschedulable:
        return CORDONED
    if problem:
        return problem
    if silent := _silence(beat, now=now, deaf=deaf):
        return silent
    unready = any(sign.type == "Ready" and sign.status != "True" for sign in node.status.conditions)
    return "the node is not ready" if unready else ""


def is_fault(out: str) -> bool:
    """Whether what keeps a node out is a fault of its own, and nobody's will."""
    return out not in {"", CORDONED, LEAVING, UNHEARD}


def lost_gpus(inventory: Inventory) -> str:
    """Which of a node's GPUs can't be given, and why: `2 more are sick (XID 79)`; empty if all can."""
    kinds = Counter(why for gpu in inventory.gpus if (why := _why_lost(gpu)))
    more = " more" if kinds.total() < len(inventory.gpus) else ""
    return ", ".join(f"{count}{more} {agreed(count, 'is', 'are')} {why}" for why, count in kinds.most_common())


def _why_lost(gpu: Gpu) -> str:
    if gpu.health is Health.SICK:
        return f"sick ({gpu.reason})" if gpu.reason else "sick"
    return "in MIG mode" if gpu.mig else ""


def _silence(beat: Beat | None, *, now: float, deaf: bool) -> str:
    """Why its agent can't be counted on to start a pod."""
    if beat is None:
        return "its agent has not been heard of"
    if now >= beat.until:
        return UNHEARD if deaf else SILENT
    if beat.state == State.DRAINING:
        return LEAVING
    return "" if beat.state == State.READY else "the kubelet there does not know Aliquot's device plugin now"
