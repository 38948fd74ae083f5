"""All kinds of the server: those that its rules know by name, and those that are only kept for others."""

from __future__ import annotations

from .catalogue import (
    CONFIG_MAPS,
    DEFINITIONS,
    EVENTS,
    LEASES,
    LIMIT_RANGES,
    NAMESPACES,
    NEW_EVENTS,
    NODES,
    PODS,
    PRIORITY_CLASSES,
    RESOURCE_QUOTAS,
    SERVICE_ACCOUNTS,
    Resource,
)

SECRETS = Resource(plural="secrets", singular="secret", kind="Secret")
SERVICES = Resource(
    plural="services",
    singular="service",
    kind="Service",
    short_names=("svc",),
    categories=("all",),
    subresources=("status",),
    returns_deleted=True,
)
JOBS = Resource(
    group="batch",
    plural="jobs",
    singular="job",
    kind="Job",
    categories=("all",),
    subresources=("status",),
    generation=True,
)
CRON_JOBS = Resource(
    group="batch",
    plural="cronjobs",
    singular="cronjob",
    kind="CronJob",
    short_names=("cj",),
    categories=("all",),
    subresources=("status",),
    generation=True,
)
_ADMISSION = "admissionregistration.k8s.io"
MUTATING_WEBHOOKS = Resource(
    group=_ADMISSION,
    plural="mutatingwebhookconfigurations",
    singular="mutatingwebhookconfiguration",
    kind="MutatingWebhookConfiguration",
    namespaced=False,
    categories=("api-extensions",),
    generation=True,
)
VALIDATING_WEBHOOKS = Resource(
    group=_ADMISSION,
    plural="validatingwebhookconfigurations",
    singular="validatingwebhookconfiguration",
    kind="ValidatingWebhookConfiguration",
    namespaced=False,
    categories=("api-extensions",),
    generation=True,
)


def _of_a_cluster(kind: str, short: str) -> Resource:
    singular = kind.lower()
    return Resource(
        group="apps",
        plural=f"{singular}s",
        singular=singular,
        kind=kind,
        short_names=(short,),
        categories=("all",),
        needs_cluster=True,
    )


SERVED = (
    CONFIG_MAPS,
    EVENTS,
    LIMIT_RANGES,
    NAMESPACES,
    NODES,
    PODS,
    RESOURCE_QUOTAS,
    SECRETS,
    SERVICE_ACCOUNTS,
    SERVICES,
    MUTATING_WEBHOOKS,
    VALIDATING_WEBHOOKS,
    DEFINITIONS,
    _of_a_cluster("DaemonSet", "ds"),
    _of_a_cluster("Deployment", "deploy"),
    _of_a_cluster("ReplicaSet", "rs"),
    _of_a_cluster("StatefulSet", "sts"),
    CRON_JOBS,
    JOBS,
    LEASES,
    NEW_EVENTS,
    PRIORITY_CLASSES,
)
