"""Which rules hold for which kind."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING

from .definitions import CustomRules, DefinitionRules
from .hooks import WebhookRules
from .job_rules import CronJobRules, JobRules
from .limit_ranges import LimitRangeRules
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
        "cronjobs.batch": CronJobRules(),
        "customresourcedefinitions.apiextensions.k8s.io": DefinitionRules(),
        "events": EventRules(),
        "jobs.batch": JobRules(),
        "leases.coordination.k8s.io": LeaseRules(),
        "limitranges": LimitRangeRules(),
        "mutatingwebhookconfigurations.admissionregistration.k8s.io": WebhookRules(),
        "namespaces": NamespaceRules(),
        "nodes": NodeRules(),
        "pods": PodRules(),
        "priorityclasses.scheduling.k8s.io": PriorityClassRules(),
        "resourcequotas": ResourceQuotaRules(),
        "validatingwebhookconfigurations.admissionregistration.k8s.io": WebhookRules(),
    }
)


def rules_of(resource: Resource) -> Rules:
    """Give the rules of a kind."""
    if resource.definition is not None:
        return CustomRules(definition=resource.definition, has_status="status" in resource.subresources)
    return _RULES.get(resource.table, _PLAIN)
