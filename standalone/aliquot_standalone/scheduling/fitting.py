"""Whether a pod may go to a node, how much it would like to, and in one phrase why not. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from aliquot_standalone.scheduling.amounts import PODS
from aliquot_standalone.scheduling.demands import Demand
from aliquot_standalone.scheduling.objects import Requirement, Taint, Term, Toleration
from aliquot_standalone.scheduling.picture import Seat

_HARD = frozenset({"NoSchedule", "NoExecute"})
# A cordoned node counts as one with this taint.
_CORDON = Taint(key="node.kubernetes.io/unschedulable", effect="NoSchedule")
_BEST = 100


def obstacle(demand: Demand, seat: Seat) -> str:
    """Say why the pod can't go there; empty if it can."""
    return _closed(demand, seat) or _unsuited(demand, seat) or _short(demand, seat)


def _closed(demand: Demand, seat: Seat) -> str:
    if not seat.ready:
        return "not ready"
    if seat.cordoned and not tolerated(_CORDON, demand.tolerations):
        return "cordoned"
    taint = next((one for one in seat.taints if one.effect in _HARD and not tolerated(one, demand.tolerations)), None)
    return f"tainted {taint}, which the pod does not tolerate" if taint else ""


def _unsuited(demand: Demand, seat: Seat) -> str:
    if any(seat.labels.get(name) != value for name, value in demand.selector.items()):
        return "without the labels of the pod's nodeSelector"
    if demand.terms is not None and not any(matches(term, seat) for term in demand.terms):
        return "not what the pod's node affinity requires"
    return ""


def _short(demand: Demand, seat: Seat) -> str:
    for name, amount in demand.amounts.items():
        if amount > seat.room.get(name, 0) - seat.used.get(name, 0) and amount:
            return "full of pods" if name == PODS else f"too little {name}"
    return ""


def tolerated(taint: Taint, tolerations: Sequence[Toleration]) -> bool:
    """Tell whether any toleration covers a taint."""
    return any(
        (not one.effect or one.effect == taint.effect)
        and (one.key == taint.key or (not one.key and one.operator == "Exists"))
        and (one.operator == "Exists" or one.value == taint.value)
        for one in tolerations
    )


def matches(term: Term, seat: Seat) -> bool:
    """Tell whether all tests of a term hold; a term without any matches nothing, as on a cluster."""
    if not (term.match_expressions or term.match_fields):
        return False
    fields = {"metadata.name": seat.name}
    return all(_holds(one, seat.labels) for one in term.match_expressions) and all(
        _holds(one, fields) for one in term.match_fields
    )


def _holds(test: Requirement, labels: Mapping[str, str]) -> bool:
    found = labels.get(test.key)
    if test.operator == "In":
        return found in test.values
    if test.operator == "NotIn":
        return found not in test.values
    if test.operator in {"Exists", "DoesNotExist"}:
        return (found is not None) is (test.operator == "Exists")
    if test.operator in {"Gt", "Lt"}:
        return _compares(found, test)
    return False


def _compares(found: str | None, test: Requirement) -> bool:
    try:
        value, bound = int(found or ""), int(test.values[0])
    except (ValueError, IndexError):
        return False
    return value > bound if test.operator == "Gt" else value < bound


def liking(demand: Demand, seats: Sequence[Seat]) -> list[int]:
    """Say how much the pod would like each node, 0 to 100 for what it prefers and as much for taints it would mind."""
    wanted = [sum(one.weight for one in demand.preferences if matches(one.preference, seat)) for seat in seats]
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
