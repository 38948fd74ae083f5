"""What a bound pod holds of its node, and what speaks against its start: the second half of `explaining`.

A grant counts only if it names the very pod and its node: with any other the pod holds nothing, and its agent starts
none of it. What else is the matter does not take its slices away, so it is told beside them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from aliquot_core.claims import check_grant
from aliquot_core.errors import AliquotError
from aliquot_core.grant import Grant, GrantError, LaterGrantError, decode_grant
from aliquot_core.inventory import Health
from aliquot_core.names import Names
from aliquot_core.objects import Pod
from aliquot_scheduler.picture.picture import KnownNode, Picture

# So a container is called that is about to start.
_ON_THE_WAY = frozenset({"ContainerCreating", "PodInitializing"})
BEING_DELETED = "it is being deleted"


class HeldSlice(msgspec.Struct, frozen=True, kw_only=True):
    """What a container holds of one GPU, and how many pods share it."""

    container: str
    gpu: str
    model: str
    compute: int
    limit: int
    memory: int
    isolation: str
    others: int
    # Why the GPU offers less isolation than its node was told to, and what to do about it.
    lack: str = ""


class Residence(msgspec.Struct, frozen=True, kw_only=True):
    """How a bound pod fares: `placed`, or `stuck` if it will not start as things are."""

    state: str
    why: str
    slices: Sequence[HeldSlice] = ()


def residence(pod: Pod, *, picture: Picture, names: Names) -> Residence:
    """What a pod that asks for slices and is bound holds there."""
    node, text = pod.spec.node_name, pod.metadata.annotations.get(names.grant)
    if text is None:
        return Residence(
            state="stuck", why=f"somebody bound it to node {node} without a grant: it will not start; delete it"
        )
    try:
        grant = decode_grant(text)
    except LaterGrantError as error:
        # What it holds only that version can say.
        why = f"it is bound to node {node}; {error}{deletion(pod)}"
        return Residence(state="placed" if _has_run(pod) else "stuck", why=why)
    except AliquotError as error:
        return Residence(state="stuck", why=f"it is bound to node {node}, but {error}")
    mistake = _mistake(grant, pod, names=names)
    if grant.node != node or grant.pod != pod.metadata.uid:
        return Residence(state="stuck", why=f"it is bound to node {node} and holds nothing there: {mistake}")
    known = picture.nodes.get(node)
    against = [*filter(None, [mistake]), *_lost(grant, known), *agents_word(pod, names=names), *kubelets_word(pod)]
    if known is not None and known.out and not known.node.spec.unschedulable and not _has_run(pod):
        against.append("it does not start before that is over")
    return Residence(
        state="stuck" if against and not _has_run(pod) else "placed",
        why="; ".join([_where(pod, known), *against]),
        slices=_held(pod, grant, picture=picture),
    )


def agents_word(pod: Pod, *, names: Names) -> Iterator[str]:
    """What the node's agent has against the pod, as it wrote it on it."""
    for one in pod.status.conditions:
        if one.type == names.of("granted") and one.status == "False":
            yield f"its node's agent says: {one.message or one.reason}" + (f" ({one.reason})" if one.message else "")


def kubelets_word(pod: Pod) -> Iterator[str]:
    """What keeps its containers from running, as the kubelet wrote it on the pod."""
    for one in (*pod.status.init_container_statuses, *pod.status.container_statuses):
        waiting = one.state.get("waiting") or {}
        reason, message = str(waiting.get("reason", "")), str(waiting.get("message", ""))
        if reason and reason not in _ON_THE_WAY:
            yield f"container {one.name} waits: {message or reason}" + (f" ({reason})" if message else "")


def deletion(pod: Pod) -> str:
    """Whether it is being deleted, and that this frees nothing yet."""
    return f"; {BEING_DELETED}, and keeps them until it is gone" if pod.metadata.deletion_timestamp else ""


def _mistake(grant: Grant, pod: Pod, *, names: Names) -> str:
    try:
        check_grant(grant, pod=pod, names=names)
    except GrantError as error:
        return str(error)
    return ""


def _where(pod: Pod, known: KnownNode | None) -> str:
    why = f"it holds its slices on node {pod.spec.node_name}"
    if known is None:
        why += ", which is gone: it is lost unless the node comes back"
    elif known.out:
        why += f"; no more pods are bound there: {known.out}"
    return why + deletion(pod)


def _lost(grant: Grant, known: KnownNode | None) -> Iterator[str]:
    """Its GPUs that fell sick or went away; of a node that tells of none `out` says why."""
    if known is None or known.inventory.problem:
        return
    for uuid in sorted({part.gpu for _, part in grant.slices()}):
        card = known.inventory.gpu(uuid)
        if card is None:
            yield f"{uuid} is not among the node's GPUs any more"
        elif card.health is Health.SICK:
            yield f"{uuid} is sick" + (f" ({card.reason})" if card.reason else "")


def _held(pod: Pod, grant: Grant, *, picture: Picture) -> list[HeldSlice]:
    node = pod.spec.node_name
    known = picture.nodes.get(node)
    cards = {gpu.uuid: gpu for gpu in known.inventory.gpus} if known else {}
    return [
        HeldSlice(
            container=name,
            gpu=part.gpu,
            model=cards[part.gpu].model if part.gpu in cards else "unknown",
            compute=part.compute.value,
            limit=part.limit.value,
            memory=part.memory.value,
            isolation=grant.containers[name].isolation,
            others=len(picture.holdings.on((node, part.gpu)).keys() - {pod.metadata.uid}),
            lack=cards[part.gpu].isolation_lack if part.gpu in cards else "",
        )
        for name, part in grant.slices()
    ]


def _has_run(pod: Pod) -> bool:
    """Whether a container of it has: the phase stays Pending while one of several is still to be made."""
    statuses = (*pod.status.init_container_statuses, *pod.status.container_statuses)
    return pod.status.phase == "Running" or any({"running", "terminated"} & one.state.keys() for one in statuses)
