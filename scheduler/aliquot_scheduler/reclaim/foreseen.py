"""Of which pods all is known of where they may lie: for no others is anybody sent away, or moved; and who may be moved.

Whether one may go at all (`lodgers.py`), and by whose right (`rights.py`), is another question.
"""

from __future__ import annotations

from aliquot_scheduler.queues.room.refuges import controller_of
from aliquot_scheduler.queues.waiting.waiter import Waiter

_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_STRICT = "DoNotSchedule"


def is_foreseen(waiter: Waiter) -> bool:
    """Whether all is known of where it may lie: kube-scheduler alone knows of affinity between pods, and of spread."""
    spec = waiter.pod.spec
    affinity = spec.affinity or {}
    between_pods = any((affinity.get(kind) or {}).get(_REQUIRED) for kind in ("podAffinity", "podAntiAffinity"))
    spread = any(one.get("whenUnsatisfiable", _STRICT) == _STRICT for one in spec.topology_spread_constraints)
    return not (between_pods or spread)


def why_not_elsewhere(waiter: Waiter, *, orphans: bool = False) -> str:
    """Why one who may go is not sent to come again elsewhere, be there room or not; empty if it may be.

    With `orphans` it may be one that no controller makes anew.
    """
    if waiter.group is not None:
        return "it is of a group, and of those nobody is moved"
    if not orphans and not controller_of(waiter.pod):
        return "no controller would make it anew"
    return "" if is_foreseen(waiter) else "only kube-scheduler knows where else it may lie"
