"""A cluster at one instant, as far as decisions depend on it, in a file that may be handed on.

Only what is named here is taken: what a pod asks for and where it lies, no image, command, environment or message; of
annotations Aliquot's own, and of pods those that rules of the settings read by name. Names and labels stay, since
queues, budgets and places are told by them. What decisions may depend on and is not taken is said, in words.

What must always hold: nothing of a pod's containers gets into the file but their names, what they ask for and what
they have of it.
"""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Collection, Sequence
from typing import TypeVar

import msgspec

from aliquot_core.disruptions import PodDisruptionBudget
from aliquot_core.errors import AliquotError, UserError
from aliquot_core.hosts import RESIZE_PENDING
from aliquot_core.names import Names
from aliquot_core.objects import (
    Container,
    ContainerStatus,
    Lease,
    Namespace,
    Node,
    ObjectMeta,
    Pod,
    PodCondition,
    PodSpec,
    PodStatus,
    Queue,
)
from aliquot_scheduler.in_force import InForce
from aliquot_scheduler.reclaim.standoff import SETTING
from aliquot_scheduler.rules.expressions import RuleSettings, check, expression_rules
from aliquot_scheduler.rules.judging import Rules

VERSION = 1
# 5,000 pods are 5 MiB unpacked.
_LARGEST = 512 * 1024 * 1024
_ANNOTATIONS = "annotations of pods, of which a rule may read others than those that it names"


class SnapshotError(UserError):
    """A file that is no snapshot."""


class Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    """All of it.

    As the leader writes it: `mix` is what it has learnt of requests, `moved` where room is kept for those who come in
    the place of pods that went for nobody who waits.
    """

    version: int = VERSION
    wall: float
    names: Names
    settings: InForce
    nodes: Sequence[Node] = ()
    leases: Sequence[Lease] = ()
    pods: Sequence[Pod] = ()
    queues: Sequence[Queue] = ()
    namespaces: Sequence[Namespace] = ()
    budgets: Sequence[PodDisruptionBudget] = ()
    mix: str = ""
    moved: str = ""
    # What whoever took it may not read, in words: decisions that depend on it may be others.
    unread: Sequence[str] = ()
    # What is not in the file though decisions may depend on it, in words.
    left_out: Sequence[str] = ()


def without_secrets(snapshot: Snapshot) -> Snapshot:
    """The same, with nothing in it that decisions do not depend on."""
    names = snapshot.names
    known = names.known()
    read = _read_by_rules(snapshot)
    return msgspec.structs.replace(
        snapshot,
        left_out=_left_out(snapshot, known={*known, *read}) if "" in read else snapshot.left_out,
        nodes=[_kept(one, known=known) for one in snapshot.nodes],
        leases=[_kept(one, known=known) for one in snapshot.leases],
        pods=[_pod(one, known={*known, *read}, names=names) for one in snapshot.pods],
        queues=[_kept(one, known=known) for one in snapshot.queues],
        namespaces=[_kept(one, known=known) for one in snapshot.namespaces],
        budgets=[_kept(one, known=known) for one in snapshot.budgets],
    )


def _read_by_rules(snapshot: Snapshot) -> set[str]:
    """Which annotations of pods rules of the settings read, and an empty one where they may read any."""
    rules = Rules(expression_rules(snapshot.settings.rules or RuleSettings()))
    return {key for field, key in rules.reads if field == "annotations"}


def _left_out(snapshot: Snapshot, *, known: Collection[str]) -> Sequence[str]:
    """Where rules may read any annotation, all would have to be handed on, tokens and all."""
    strange = any(key not in known for pod in snapshot.pods for key in pod.metadata.annotations)
    return [_ANNOTATIONS] if strange or _ANNOTATIONS in snapshot.left_out else []


def packed(snapshot: Snapshot) -> bytes:
    """As it lies in a file: JSON, compressed, without secrets; the same snapshot makes the same bytes."""
    return gzip.compress(msgspec.json.encode(without_secrets(snapshot)), mtime=0)


def unpacked(data: bytes, *, where: str) -> Snapshot:
    """What lies in a file."""
    try:
        opened = zlib.decompressobj(wbits=zlib.MAX_WBITS | 16)
        text = opened.decompress(data, _LARGEST)
        if not opened.eof:
            raise SnapshotError("it is cut off, or too large", where=where, remedy="take one anew")
        found = msgspec.json.decode(text, type=Snapshot)
    except (zlib.error, msgspec.DecodeError, RecursionError) as error:
        raise SnapshotError(f"it is no snapshot: {error}", where=where, remedy="take one anew") from None
    if found.version != VERSION:
        told = f"it is of version {found.version}, and {VERSION} is what is understood"
        raise SnapshotError(told, where=where, remedy="replay it with the version that took it")
    if nameless := _nameless(found):
        told = f"it is no snapshot: it has a {nameless} without a name"
        raise SnapshotError(told, where=where, remedy="take one anew")
    try:
        check(found.settings.rules.expressions if found.settings.rules else ())
    except AliquotError as error:
        told = f"its rules are not understood: {error}"
        raise SnapshotError(told, where=where, remedy="replay it with the version that took it") from None
    return found


def _nameless(found: Snapshot) -> str:
    """Of which kind something has no name; what the API server has always has one."""
    kinds: dict[str, Sequence[Node | Lease | Pod | Queue | Namespace | PodDisruptionBudget]] = {
        "node": found.nodes,
        "lease": found.leases,
        "pod": found.pods,
        "queue": found.queues,
        "namespace": found.namespaces,
        "disruption budget": found.budgets,
    }
    return next((kind for kind, things in kinds.items() if not all(one.metadata.name for one in things)), "")


_Kind = TypeVar("_Kind", Node, Lease, Queue, Namespace, PodDisruptionBudget)


def _kept(one: _Kind, *, known: Collection[str]) -> _Kind:
    return msgspec.structs.replace(one, metadata=_meta(one.metadata, known=known))


def _meta(meta: ObjectMeta, *, known: Collection[str]) -> ObjectMeta:
    # Whoever writes what nobody reads may write anything, in Aliquot's own domain too.
    ours = {key: text for key, text in meta.annotations.items() if key in known}
    return ObjectMeta(
        name=meta.name,
        namespace=meta.namespace,
        uid=meta.uid,
        creation_timestamp=meta.creation_timestamp,
        deletion_timestamp=meta.deletion_timestamp,
        deletion_grace_period_seconds=meta.deletion_grace_period_seconds,
        labels=meta.labels,
        annotations=ours,
        owner_references=meta.owner_references,
    )


def _pod(pod: Pod, *, known: Collection[str], names: Names) -> Pod:
    spec, status = pod.spec, pod.status
    return Pod(
        metadata=_meta(pod.metadata, known=known),
        spec=PodSpec(
            node_name=spec.node_name,
            scheduler_name=spec.scheduler_name,
            containers=[_container(one) for one in spec.containers],
            init_containers=[_container(one) for one in spec.init_containers],
            node_selector=spec.node_selector,
            affinity=spec.affinity,
            tolerations=spec.tolerations,
            resources=spec.resources,
            overhead=spec.overhead,
            topology_spread_constraints=spec.topology_spread_constraints,
            scheduling_gates=spec.scheduling_gates,
            priority=spec.priority,
            restart_policy=spec.restart_policy,
            termination_grace_period_seconds=spec.termination_grace_period_seconds,
            active_deadline_seconds=spec.active_deadline_seconds,
        ),
        status=PodStatus(
            phase=status.phase,
            nominated_node_name=status.nominated_node_name,
            conditions=[_condition(one, names=names) for one in status.conditions],
            container_statuses=_resized(status.container_statuses),
            init_container_statuses=_resized(status.init_container_statuses),
            resources=status.resources,
            allocated_resources=status.allocated_resources,
        ),
    )


def _container(one: Container) -> Container:
    return Container(name=one.name, resources=one.resources, restart_policy=one.restart_policy)


def _resized(statuses: Sequence[ContainerStatus]) -> list[ContainerStatus]:
    """What they have, which counts beside what they ask."""
    return [
        ContainerStatus(name=one.name, resources=one.resources, allocated_resources=one.allocated_resources)
        for one in statuses
        if one.resources
    ]


def _condition(one: PodCondition, *, names: Names) -> PodCondition:
    """Of our own messages that one word by which the next leader knows for how long budgets are in an owner's way."""
    ours = one.type == names.admitted
    return PodCondition(
        type=one.type,
        status=one.status,
        reason=one.reason if ours or one.type == RESIZE_PENDING else "",
        message=SETTING if ours and SETTING in one.message else "",
        last_transition_time=one.last_transition_time,
    )
