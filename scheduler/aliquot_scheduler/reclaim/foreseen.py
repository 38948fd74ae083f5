"""Of which pods all is known of where they may lie: for no others is anybody sent away, or moved."""

from __future__ import annotations

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
