"""May this container start? The decision of PreStartContainer, pure: what is known in, one decision out.

The kubelet is about to create a container and says only which device ids it holds. What must hold at every start:

1. The container is known for certain. The kubelet's record names pod UID, container and the CDI name of every set of
   ids. An init and an app container may share ids; each has a CDI name of its own there, so nobody needs to know which
   of the two is about to run: both specs are written. Without the record, PodResources will do where it is unambiguous.
2. Its pod is bound here with a grant that is its own, and that is what it asked for; it reaches for nobody else's.
3. Every GPU of the grant is on this node and not sick, and holds the isolation that was promised.
4. With the claims of all other pods that the kubelet holds here, no GPU is over-granted. A pod that has started counts
   as it stood then, until its last process has ended; one that has not, as its grant says, if that is good and the
   pod is the older of the two.

What may still come true (the API server lags) is a `Wait`; what can't is a `Refuse`, with the reason for the pod's
author or the operator. Neither fails the pod: the kubelet asks again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import msgspec

from aliquot_agent.pods.standing import Standing
from aliquot_agent.starting.kubelet_view import Listed, Recorded
from aliquot_core.claims import NOTHING, Claim, check_grant, claims, overdrawn
from aliquot_core.door import PreStart
from aliquot_core.errors import AliquotError, ClusterError
from aliquot_core.grant import ContainerGrant, Grant, decode_grant
from aliquot_core.impostors import names_our_device
from aliquot_core.inventory import Health, Inventory
from aliquot_core.names import Names
from aliquot_core.objects import Pod
from aliquot_core.request import Kind, kinds

# A mirror pod stands in the API server for a static pod, whose UID on the node is this annotation's value.
STATIC_POD_HASH = "kubernetes.io/config.hash"


class Known(msgspec.Struct, frozen=True, kw_only=True):
    """All that the decision rests on, gathered at one instant."""

    node: str
    names: Names
    inventory: Inventory
    pods: Mapping[str, Pod]
    recorded: tuple[Recorded, ...] | None
    listed: tuple[Listed, ...] = ()
    standing: Mapping[str, Standing] = {}
    record_problem: str = ""
    # Whether `pods` are all: an agent that starts does not know yet who else is here.
    complete: bool = True
    # Of `standing`, pods that are gone and of which nothing lives, but something may come within seconds.
    coming: frozenset[str] = frozenset()
    # Whether `standing` has what agents before this one gave.
    remembered: bool = True


class Spec(msgspec.Struct, frozen=True, kw_only=True):
    """One CDI spec to be written: under this full name, this container's slices."""

    cdi_name: str
    container: str
    grant: ContainerGrant


class Start(msgspec.Struct, frozen=True, kw_only=True):
    """The container may start once these specs are written."""

    pod: Pod
    specs: tuple[Spec, ...]
    claims: dict[str, Claim]


class Wait(msgspec.Struct, frozen=True, kw_only=True):
    """Not yet: what is missing may still come."""

    reason: str


class Refuse(msgspec.Struct, frozen=True, kw_only=True):
    """Not so: somebody has to mend something first."""

    reason: str
    pod: Pod | None = None


Decision = Start | Wait | Refuse


class _Held(msgspec.Struct, frozen=True, kw_only=True):
    """The containers of one pod that hold exactly the ids of a call, with their CDI names."""

    uid: str
    containers: tuple[tuple[str, str], ...]


def decide(call: PreStart, *, known: Known) -> Decision:
    """Say whether the container that holds these ids may start."""
    if not known.complete:
        return Wait(reason="the API server has not told this node's agent of all pods here yet")
    if not known.remembered:
        return Wait(reason="the CDI folder, which tells what was given before this agent started, can't be read")
    held = _who(call, known=known)
    if isinstance(held, Wait | Refuse):
        return held
    pod = known.pods.get(held.uid)
    return _unknown_pod(held.uid, known=known) if pod is None else _judge(pod, held, known=known)


def _judge(pod: Pod, held: _Held, *, known: Known) -> Decision:
    """The container is known: say whether its pod's grant is good, and whether there is room."""
    if reached := names_our_device(pod, names=known.names):
        return Refuse(reason=_impostor(reached), pod=pod)
    try:
        grant = _grant(pod, known=known)
        check_grant(grant, pod=pod, names=known.names)
    except AliquotError as error:
        return Refuse(reason=str(error), pod=pod)
    wanted = claims(pod, grant)
    if problem := _altered(pod, wanted, known=known) or _misfit(grant, known=known):
        return Refuse(reason=problem, pod=pod)
    if strangers := [name for name, _ in held.containers if name not in grant.containers]:
        return Refuse(reason=f"no slice is granted to container {', '.join(strangers)}", pod=pod)
    if problem := _over(pod, wanted, known=known):
        soon = not _over(pod, wanted, known=known, without=known.coming)
        return Wait(reason=problem) if soon else Refuse(reason=problem, pod=pod)
    specs = tuple(
        Spec(cdi_name=cdi_name, container=name, grant=grant.containers[name]) for name, cdi_name in held.containers
    )
    return Start(pod=pod, specs=specs, claims=wanted)


# --- 1. who is it ----------------------------------------------------------------------------------------------------
def _who(call: PreStart, *, known: Known) -> _Held | Wait | Refuse:
    ids = frozenset(call.ids)
    if known.recorded is not None:
        matches = [entry for entry in known.recorded if entry.resource == call.resource and entry.ids == ids]
        if len({entry.uid for entry in matches}) == 1:
            return _from_record(matches, names=known.names)
        if matches:
            return Wait(reason="the kubelet's record gives these device ids to two pods; it will settle")
    return _from_list(call, ids=ids, known=known)


def _from_record(matches: list[Recorded], *, names: Names) -> _Held | Refuse:
    containers = []
    for entry in matches:
        ours = [name for name in entry.names if name.startswith(f"{names.cdi_kind}=")]
        if len(ours) != 1:
            return Refuse(
                reason=f"the kubelet recorded {', '.join(ours) or 'no CDI name'} for container {entry.container}: "
                "this is not an answer of Aliquot's endpoint; delete the pod"
            )
        containers.append((entry.container, ours[0]))
    return _Held(uid=matches[0].uid, containers=tuple(containers))


def _from_list(call: PreStart, *, ids: frozenset[str], known: Known) -> _Held | Wait | Refuse:
    """Find the container by PodResources, where that leaves no doubt."""
    problem = known.record_problem or "the kubelet's record does not have these device ids"
    holders = [entry for entry in known.listed if entry.ids.get(call.resource) == ids]
    if len(holders) != 1:
        return Wait(reason=f"{problem}, and PodResources names {len(holders)} containers for them")
    holder = holders[0]
    pods = [pod for pod in known.pods.values() if pod.key == f"{holder.namespace}/{holder.name}" and not pod.ended]
    if len(pods) != 1:
        return Wait(reason=f"pod {holder.namespace}/{holder.name} is not known from the API server yet")
    if any(kind is Kind.INIT and _asks(container.resources.limits, known.names) for kind, container in kinds(pods[0])):
        return Wait(reason=f"{problem}; without it an init container can't be told from an app container")
    if len(call.names) != 1:
        return Wait(reason=f"{problem}; without it the container's CDI name is not known")
    return _Held(uid=pods[0].metadata.uid, containers=((holder.container, call.names[0]),))


def _asks(limits: Mapping[str, object], names: Names) -> bool:
    return any(name in limits for name in (names.compute, names.memory, names.best_effort))


def _unknown_pod(uid: str, *, known: Known) -> Wait | Refuse:
    for pod in known.pods.values():
        if pod.metadata.annotations.get(STATIC_POD_HASH) == uid:
            return Refuse(
                reason="static pods get no slice: no scheduler places them; make it a Deployment or a DaemonSet",
                pod=pod,
            )
    return Wait(reason=f"the pod (uid {uid}) is not known from the API server yet")


# --- 2. and 3. is its grant good --------------------------------------------------------------------------------------
def _grant(pod: Pod, *, known: Known) -> Grant:
    text = pod.metadata.annotations.get(known.names.grant)
    if text is None:
        raise _NoGrantError(known.names.grant)
    return decode_grant(text)


class _NoGrantError(ClusterError):
    """The pod was bound by somebody who does not know of slices."""

    def __init__(self, annotation: str) -> None:
        super().__init__(
            f"bound without a grant (annotation {annotation})",
            remedy="let Aliquot's scheduler place it: leave spec.nodeName empty and use its scheduler profile",
        )


def _impostor(reached: list[str]) -> str:
    return f"the pod names slices by annotation ({'; '.join(reached)}), which only a grant gives; remove the annotation"


def _altered(pod: Pod, wanted: dict[str, Claim], *, known: Known) -> str:
    """A grant is written once, with the binding; containers that run under the first one would not be counted."""
    standing = known.standing.get(pod.metadata.uid)
    if standing is None or standing.claims == wanted:
        return ""
    return "the grant is another than the one under which the pod's containers started; delete the pod"


def _misfit(grant: Grant, *, known: Known) -> str:
    if grant.node != known.node:
        return f"the grant is for node {grant.node}, this is {known.node}"
    for name, container in grant.containers.items():
        for part in container.slices:
            gpu = known.inventory.gpu(part.gpu)
            if gpu is None:
                return f"container {name}: GPU {part.gpu} is not on node {known.node}"
            if gpu.health is Health.SICK:
                return f"container {name}: GPU {part.gpu} is sick: {gpu.reason or 'no reason known'}"
            if container.isolation and container.isolation not in gpu.isolation:
                return f"container {name}: GPU {part.gpu} does not hold isolation {container.isolation}"
    return ""


# --- 4. does it fit beside the others --------------------------------------------------------------------------------
def in_force(known: Known, *, but: str = "") -> Iterator[tuple[str, dict[str, Claim]]]:
    """Claims of every other pod here that counts: as it stood when it started, or as it may yet start."""
    for uid in sorted(_held_uids(known)):
        if uid == but:
            continue
        if uid in known.standing:
            # Not by its grant: whoever writes a smaller one over it does not make the containers that run smaller.
            yield uid, known.standing[uid].claims
        elif (pod := known.pods.get(uid)) is not None and not pod.ended and (wanted := _rightful(pod, known=known)):
            yield uid, wanted


def _rightful(pod: Pod, *, known: Known) -> dict[str, Claim] | None:
    """What a pod that has not started may hold; nothing where it will be refused for its grant."""
    try:
        grant = _grant(pod, known=known)
        check_grant(grant, pod=pod, names=known.names)
    except AliquotError:
        return None
    parts = (part for container in grant.containers.values() for part in container.slices)
    startable = grant.node == known.node and all(known.inventory.gpu(part.gpu) for part in parts)
    return claims(pod, grant) if startable else None


def _held_uids(known: Known) -> set[str]:
    if known.recorded is not None:
        # The kubelet drops a pod deleted by force from its record while processes of it may live.
        return {entry.uid for entry in known.recorded} | set(known.standing)
    listed = {f"{entry.namespace}/{entry.name}" for entry in known.listed if any(entry.ids.values())}
    return {uid for uid, pod in known.pods.items() if pod.key in listed} | set(known.standing)


def totals(claims_of_pods: Iterable[Mapping[str, Claim]]) -> dict[str, tuple[Claim, int]]:
    """Per GPU the sum of claims, and of how many pods."""
    sums: dict[str, tuple[Claim, int]] = {}
    for pod_claims in claims_of_pods:
        for gpu, claim in pod_claims.items():
            total, holders = sums.get(gpu, (NOTHING, 0))
            sums[gpu] = (total.beside(claim), holders + 1)
    return sums


def _over(pod: Pod, wanted: dict[str, Claim], *, known: Known, without: frozenset[str] = frozenset()) -> str:
    others = totals(
        held
        for other, held in in_force(known, but=pod.metadata.uid)
        if other not in without and _goes_before(other, pod, known=known)
    )
    for gpu, claim in wanted.items():
        total, holders = others.get(gpu, (NOTHING, 0))
        card = known.inventory.gpu(gpu)
        together = total.beside(claim)
        if card and (why := overdrawn(together, memory=card.usable, holders=holders + 1)):
            others_hold = "1 other pod holds" if holders == 1 else f"{holders} other pods hold"
            return f"GPU {gpu} would be over-granted: {why}, {others_hold} slices of it"
    return ""


def _goes_before(other: str, pod: Pod, *, known: Known) -> bool:
    """Whether another pod's claims keep this one out: those of who was let start always, else each in its turn.

    Two grants for one place are a scheduler's mistake; without an order each would wait for the other for ever.
    """
    return other in known.standing or _turn(known.pods[other], known=known) < _turn(pod, known=known)


def _turn(pod: Pod, *, known: Known) -> tuple[int, str, str]:
    """First who has our word; then who runs by its status, which tells where our word was lost; then by age."""
    meta = pod.metadata
    place = 0 if meta.uid in known.standing else 1 if _has_started(pod) else 2
    return place, meta.creation_timestamp or "", meta.uid


def _has_started(pod: Pod) -> bool:
    """Whether a container of it has run; the phase stays Pending while one of several is still to be made."""
    statuses = (*pod.status.init_container_statuses, *pod.status.container_statuses)
    return pod.status.phase == "Running" or any({"running", "terminated"} & one.state.keys() for one in statuses)
