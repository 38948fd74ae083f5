"""Every name that Aliquot writes or reads in a cluster, made from one setting: the domain.

A cluster that already uses `aliquot.dev` for something else, or a fork, changes the domain and nothing else.
"""

from __future__ import annotations

import re
from typing import Annotated

import msgspec

from aliquot_core.errors import ClusterError
from aliquot_core.settings import of_kind

DOMAIN = "aliquot.dev"
NAMESPACE = "aliquot-system"

# Leases of our namespace that are no node's: who leads the centre, and how often nodes are to show that they live.
LEADER_LEASE = "scheduler"
PACE_LEASE = "pace"
# The ConfigMap of our namespace in which the leader keeps what it has learnt of requests.
MIX = "aliquot-mix"
MIX_KEY = "page.json"
# Beside it: where room is kept for those who are moved off degraded GPUs.
MOVED_KEY = "moved.json"
# And which groups go for others.
TORN_KEY = "torn.json"

# Kubernetes' limit for names of objects, nodes among them.
LONGEST_NAME = 253
# What the limit leaves is for the names below the domain.
LONGEST_DOMAIN = 200
# CDI takes the domain as a vendor, which must begin with a letter.
_DOMAIN_PATTERN = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)+")
_NAMESPACE_PATTERN = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")


class DomainError(ClusterError):
    """A name in the settings that Kubernetes would not take."""


def _check_domain(domain: str) -> None:
    if len(domain) > LONGEST_DOMAIN or not _DOMAIN_PATTERN.fullmatch(domain):
        raise DomainError(
            f"{domain[:80]!r} is no DNS name of at most {LONGEST_DOMAIN} characters with at least one dot",
            where="setting names.domain",
            remedy=f"use something like {DOMAIN}",
        )


def _check_namespace(namespace: str) -> None:
    if not _NAMESPACE_PATTERN.fullmatch(namespace):
        raise DomainError(
            f"{namespace[:80]!r} can't be the name of a namespace",
            where="setting names.namespace",
            remedy=f"use something like {NAMESPACE}",
        )


class Names(msgspec.Struct, frozen=True, kw_only=True):
    """The names of one installation."""

    domain: Annotated[str, of_kind(_check_domain)] = DOMAIN
    namespace: Annotated[str, of_kind(_check_namespace)] = NAMESPACE

    def __post_init__(self) -> None:
        _check_domain(self.domain)
        _check_namespace(self.namespace)

    def of(self, short: str) -> str:
        """`compute` → `aliquot.dev/compute`."""
        return f"{self.domain}/{short}"

    # --- resources ---------------------------------------------------------------------------------------------------
    @property
    def compute(self) -> str:
        """Percent of a GPU: the device-plugin resource."""
        return self.of("compute")

    @property
    def memory(self) -> str:
        """MiB of GPU memory: an extended resource on node status."""
        return self.of("memory")

    @property
    def best_effort(self) -> str:
        """One id for a container that asks memory only, so that the kubelet calls us."""
        return self.of("best-effort")

    def resources(self) -> tuple[str, ...]:
        """All three: a container that names none of them has nothing to do with us."""
        return (self.compute, self.memory, self.best_effort)

    # --- what users write on pods ------------------------------------------------------------------------------------
    @property
    def gpus(self) -> str:
        """Annotation: spread evenly over so many GPUs."""
        return self.of("gpus")

    @property
    def gpu_model(self) -> str:
        """Annotation: models allowed, or forbidden with `!`."""
        return self.of("gpu-model")

    @property
    def gpu_uuid(self) -> str:
        """Annotation: uuids allowed, or forbidden with `!`."""
        return self.of("gpu-uuid")

    @property
    def placement(self) -> str:
        """Annotation: `pack` or `spread`."""
        return self.of("placement")

    @property
    def compute_limit(self) -> str:
        """Annotation: may burst up to so many percent."""
        return self.of("compute-limit")

    @property
    def compute_now(self) -> str:
        """Annotation of a pod that runs: may burst no further than to so many percent now."""
        return self.of("compute-now")

    @property
    def memory_now(self) -> str:
        """Annotation of a pod that runs: may take no more than so many MiB now."""
        return self.of("memory-now")

    @property
    def preemptible(self) -> str:
        """Annotation: `"false"` means never evicted for others."""
        return self.of("preemptible")

    @property
    def isolation(self) -> str:
        """Annotation: the least isolation that will do."""
        return self.of("isolation")

    @property
    def use(self) -> str:
        """Label: `none` means that the pod wants no slice, whatever a LimitRange puts on its containers."""
        return self.of("use")

    @property
    def queue(self) -> str:
        """Label, of a pod or as a default of its namespace: where it waits its turn."""
        return self.of("queue")

    @property
    def group(self) -> str:
        """Label: pods that start together or not at all."""
        return self.of("group")

    @property
    def group_size(self) -> str:
        """Annotation: how many pods the group has."""
        return self.of("group-size")

    @property
    def group_min(self) -> str:
        """Annotation: with how many of them it may start."""
        return self.of("group-min")

    @property
    def group_topology(self) -> str:
        """Annotation: `node`, `nvlink` or `spread`."""
        return self.of("group-topology")

    # --- what operators write on namespaces --------------------------------------------------------------------------
    @property
    def runs_the_cluster(self) -> str:
        """Label: `"true"` means that the cluster's network, storage or drivers live there; slices go for their pods."""
        return self.of("runs-the-cluster")

    # --- what operators write on nodes -------------------------------------------------------------------------------
    @property
    def degraded_gpus(self) -> str:
        """Annotation: uuids of GPUs that are to be used last."""
        return self.of("degraded-gpus")

    @property
    def cordoned_gpus(self) -> str:
        """Annotation: uuids of GPUs that are not to be used."""
        return self.of("cordoned-gpus")

    @property
    def clear_health(self) -> str:
        """Annotation: uuids of GPUs that were looked after; the agent takes it in and removes it."""
        return self.of("clear-health")

    # --- nodes that are only played (`aliquot up`) ------------------------------------------------------------------
    @property
    def played(self) -> str:
        """The domain of all that says how a pod is to be played."""
        return f"sim.{self.domain}"

    @property
    def simulated(self) -> str:
        """Node label, and a taint where other nodes run pods for real: nothing that runs here is real."""
        return f"{self.played}/simulated"

    @property
    def real(self) -> str:
        """A taint of nodes that run commands, where there are simulated ones: it keeps off what has none to run."""
        return f"{self.played}/real"

    # --- what Aliquot writes -----------------------------------------------------------------------------------------
    @property
    def grant(self) -> str:
        """Pod annotation: which slices of which GPUs each container holds."""
        return self.of("grant")

    @property
    def charged(self) -> str:
        """Pod annotation: the queue that let it in, and is charged with it as long as it runs."""
        return self.of("charged-to")

    @property
    def gate(self) -> str:
        """Scheduling gate: the pod waits for its queue; only the centre lifts it."""
        return self.of("queue")

    @property
    def room(self) -> str:
        """Pod annotation: where room is being made for it, while others go; whoever leads next keeps it."""
        return self.of("room")

    @property
    def promised(self) -> str:
        """Pod annotation: the node, and after blanks its GPUs, where room was kept for it when it was let in."""
        return self.of("promised-to")

    @property
    def shown(self) -> str:
        """Pod annotation: since when it is shown to a cluster autoscaler, how often it was, and by whose quota."""
        return self.of("shown")

    @property
    def turn(self) -> str:
        """Pod annotation: how many turns it had; a change of it wakes kube-scheduler."""
        return self.of("turn")

    @property
    def group_run(self) -> str:
        """Pod annotation: of which run of its group it was let in."""
        return self.of("group-run")

    @property
    def over_use(self) -> str:
        """Pod annotation: how far up the ladder of over-use its queue lets it climb."""
        return self.of("over-use")

    @property
    def admitted(self) -> str:
        """Pod condition: whether its queue has let it in, and why not."""
        return self.of("admitted")

    @property
    def inventory(self) -> str:
        """Node annotation: the node's GPUs."""
        return self.of("inventory")

    @property
    def state(self) -> str:
        """Lease annotation: `ready`, `draining` or `away`."""
        return self.of("state")

    @property
    def address(self) -> str:
        """Lease annotation: where the leader is asked, such as `https://10.0.0.5:10943`."""
        return self.of("address")

    @property
    def told_until(self) -> str:
        """Lease annotation: until when all is told: when the last leader beat last that had read what there is."""
        return self.of("told-until")

    @property
    def heartbeat_interval(self) -> str:
        """Lease annotation: seconds between two signs of life of a node."""
        return self.of("heartbeat-interval")

    @property
    def settings(self) -> str:
        """Lease annotation, beside the interval: the leader's settings by which its decisions are explained."""
        return self.of("settings")

    @property
    def context(self) -> str:
        """Lease annotation, beside the interval: MiB that a CUDA context takes of a GPU where it takes least."""
        return self.of("context")

    @property
    def models(self) -> str:
        """Lease annotation, beside the interval: which models of GPUs there are, with MiB of the largest of each."""
        return self.of("models")

    @property
    def cdi_kind(self) -> str:
        """Vendor and class of the slices' CDI devices."""
        return self.of("slice")

    def cdi_name(self, token: str) -> str:
        """The full CDI name of one slice."""
        return f"{self.cdi_kind}={token}"

    def known(self) -> frozenset[str]:
        """Every one that is read or written under a name of its own."""
        return frozenset(getattr(self, name) for name, kind in vars(type(self)).items() if isinstance(kind, property))

    def lease(self, node: str) -> str:
        """The name of a node's heart-beat Lease; where the node's own name leaves no room, it is that."""
        marked = f"node-{node}"
        # Not shortened with a digest: the policy that holds agents to their own lease can't compute one.
        return marked if len(marked) <= LONGEST_NAME else node
