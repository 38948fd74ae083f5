"""Whether a pod may go to a node, how much it would like to, and in one phrase why not. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from aliquot_core.node_rules import barrier, matches, tolerated, why_unsuited
from aliquot_core.objects import Taint
from aliquot_standalone.scheduling.amounts import PODS
from aliquot_standalone.scheduling.demands import Demand
from aliquot_standalone.scheduling.picture import Seat

# A cordoned node counts as one with this taint.
_CORDON = Taint(key="node.kubernetes.io/unschedulable", effect="NoSchedule")
_BEST = 100


def obstacle(demand: Demand, seat: Seat) -> str:
    """Say why the pod can't go there; empty if it can."""
    unsuited = why_unsuited(demand.wanted, name=seat.name, labels=seat.labels)
    return _closed(demand, seat) or unsuited or _short(demand, seat)


def _closed(demand: Demand, seat: Seat) -> str:
    if not seat.ready:
        return "not ready"
    if seat.cordoned and not tolerated(_CORDON, demand.tolerations):
        return "cordoned"
    taint = barrier(seat.taints, demand.tolerations)
    return f"tainted {taint}, which the pod does not tolerate" if taint else ""


def _short(demand: Demand, seat: Seat) -> str:
    for name, amount in demand.amounts.items():
        if amount > seat.room.get(name, 0) - seat.used.get(name, 0) and amount:
            return "full of pods" if name == PODS else f"too little {name}"
    return ""


def liking(demand: Demand, seats: Sequence[Seat]) -> list[int]:
    """Say how much the pod would like each node, 0 to 100 for what it prefers and as much for taints it would mind."""
    wanted = [
        sum(one.weight for one in demand.preferences if matches(one.preference, name=seat.name, labels=seat.labels))
        for seat in seats
    ]
    minded = [
        sum(one.effect == "PreferNoSchedule" and not tolerated(one, demand.tolerations) for one in seat.taints)
        for seat in seats
    ]
    most_wanted, most_minded = max(wanted, default=0), max(minded, default=0)
    return [
        (_BEST * good // most_wanted if most_wanted else 0) + (_BEST - _BEST * bad // most_minded if most_minded else 0)
        for good, bad in zip(wanted, minded, strict=True)
    ]


def idleness(demand: Demand, seat: Seat) -> int:
    """Say how much of the node would stay free, 0 to 100: plain pods keep out of each other's way."""
    shares = [
        _BEST * (seat.room[name] - seat.used.get(name, 0) - demand.amounts.get(name, 0)) // seat.room[name]
        for name in ("cpu", "memory", PODS)
        if seat.room.get(name)
    ]
    return sum(shares) // len(shares) if shares else 0
