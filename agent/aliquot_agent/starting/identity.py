"""Whose container is about to start? Rule 1 of `starts`: it must be known for certain. Pure."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from aliquot_agent.starting.decision import Known, Refuse, Wait
from aliquot_agent.starting.kubelet_view import Recorded
from aliquot_core.door import PreStart
from aliquot_core.names import Names
from aliquot_core.request import Kind, kinds

# A mirror pod stands in the API server for a static pod, whose UID on the node is this annotation's value.
STATIC_POD_HASH = "kubernetes.io/config.hash"


class Held(msgspec.Struct, frozen=True, kw_only=True):
    """The containers of one pod that hold exactly the ids of a call, with their CDI names."""

    uid: str
    containers: tuple[tuple[str, str], ...]


def who(call: PreStart, *, known: Known) -> Held | Wait | Refuse:
    """Find the one pod whose containers hold exactly these ids."""
    ids = frozenset(call.ids)
    if known.recorded is not None:
        matches = [entry for entry in known.recorded if entry.resource == call.resource and entry.ids == ids]
        if len({entry.uid for entry in matches}) == 1:
            return _from_record(matches, names=known.names)
        if matches:
            return Wait(reason="the kubelet's record gives these device ids to two pods; it will settle")
    return _from_list(call, ids=ids, known=known)


def _from_record(matches: list[Recorded], *, names: Names) -> Held | Refuse:
    containers = []
    for entry in matches:
        ours = [name for name in entry.names if name.startswith(f"{names.cdi_kind}=")]
        if len(ours) != 1:
            return Refuse(
                reason=f"the kubelet recorded {', '.join(ours) or 'no CDI name'} for container {entry.container}: "
                "this is not an answer of Aliquot's endpoint; delete the pod"
            )
        containers.append((entry.container, ours[0]))
    return Held(uid=matches[0].uid, containers=tuple(containers))


def _from_list(call: PreStart, *, ids: frozenset[str], known: Known) -> Held | Wait | Refuse:
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
    return Held(uid=pods[0].metadata.uid, containers=((holder.container, call.names[0]),))


def _asks(limits: Mapping[str, object], names: Names) -> bool:
    return any(name in limits for name in (names.compute, names.memory, names.best_effort))


def unknown_pod(uid: str, *, known: Known) -> Wait | Refuse:
    """Say why the API server may not know a pod that the kubelet runs."""
    for pod in known.pods.values():
        if pod.metadata.annotations.get(STATIC_POD_HASH) == uid:
            return Refuse(
                reason="static pods get no slice: no scheduler places them; make it a Deployment or a DaemonSet",
                pod=pod,
            )
    return Wait(reason=f"the pod (uid {uid}) is not known from the API server yet")
