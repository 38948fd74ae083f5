"""Which rules hold for which kind."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING

from .pod_rules import PodRules
from .rules import (
    ConfigMapRules,
    EventRules,
    LeaseRules,
    NamespaceRules,
    NodeRules,
    PriorityClassRules,
    ResourceQuotaRules,
    Rules,
)

if TYPE_CHECKING:
    from .catalogue import Resource

_PLAIN = Rules()
_RULES = MappingProxyType(
    {
        "configmaps": ConfigMapRules(),
        "events": EventRules(),
        "leases.coordination.k8s.io": LeaseRules(),
        "namespaces": NamespaceRules(),
        "nodes": NodeRules(),
        "pods": PodRules(),
        "priorityclasses.scheduling.k8s.io": PriorityClassRules(),
        "resourcequotas": ResourceQuotaRules(),
    }
)


def rules_of(resource: Resource) -> Rules:
    """Give the rules of a kind."""
    return _RULES.get(resource.table, _PLAIN)
