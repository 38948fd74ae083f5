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
5. Where MPS is to hold the slice, the GPU is shared by its daemon, or is this container's alone.

What may still come true (the API server lags) is a `Wait`; what can't is a `Refuse`, with the reason for the pod's
author or the operator. Neither fails the pod: the kubelet asks again.
"""

from __future__ import annotations

from aliquot_agent.starting.decision import Decision, Known, Refuse, Spec, Start, Wait
from aliquot_agent.starting.identity import Held, unknown_pod, who
from aliquot_agent.starting.misfit import misfit, unready
from aliquot_agent.starting.room import over
from aliquot_core.claims import Claim, claims, own_grant
from aliquot_core.door import PreStart
from aliquot_core.errors import AliquotError
from aliquot_core.grant import Grant
from aliquot_core.impostors import names_our_device
from aliquot_core.objects import Pod


def decide(call: PreStart, *, known: Known) -> Decision:
    """Say whether the container that holds these ids may start."""
    if not known.complete:
        return Wait(reason="the API server has not told this node's agent of all pods here yet")
    if not known.remembered:
        return Wait(reason="the CDI folder, which tells what was given before this agent started, can't be read")
    held = who(call, known=known)
    if isinstance(held, Wait | Refuse):
        return held
    pod = known.pods.get(held.uid)
    return unknown_pod(held.uid, known=known) if pod is None else _judge(pod, held, known=known)


def _judge(pod: Pod, held: Held, *, known: Known) -> Decision:
    """The container is known: say whether its pod's grant is good, and whether there is room."""
    if reached := names_our_device(pod, names=known.names):
        return Refuse(reason=_impostor(reached), pod=pod)
    try:
        grant = own_grant(pod, names=known.names)
    except AliquotError as error:
        return Refuse(reason=str(error), pod=pod)
    wanted = claims(pod, grant)
    if problem := _altered(pod, wanted, known=known) or misfit(grant, known=known):
        return Refuse(reason=problem, pod=pod)
    if strangers := [name for name, _ in held.containers if name not in grant.containers]:
        return Refuse(reason=f"no slice is granted to container {', '.join(strangers)}", pod=pod)
    if problem := over(pod, wanted, known=known):
        soon = not over(pod, wanted, known=known, without=known.coming)
        return Wait(reason=problem) if soon else Refuse(reason=problem, pod=pod)
    return _start(pod, held, grant=grant, wanted=wanted, known=known)


def _start(pod: Pod, held: Held, *, grant: Grant, wanted: dict[str, Claim], known: Known) -> Decision:
    """There is room: now, or once the GPUs are as the container needs them."""
    if problem := unready(grant, known=known):
        return Wait(reason=problem)
    specs = tuple(
        Spec(cdi_name=cdi_name, container=name, grant=grant.containers[name]) for name, cdi_name in held.containers
    )
    return Start(pod=pod, specs=specs, claims=wanted)


def _impostor(reached: list[str]) -> str:
    return f"the pod names slices by annotation ({'; '.join(reached)}), which only a grant gives; remove the annotation"


def _altered(pod: Pod, wanted: dict[str, Claim], *, known: Known) -> str:
    """A grant is written once, with the binding; containers that run under the first one would not be counted."""
    standing = known.standing.get(pod.metadata.uid)
    if standing is None or standing.claims == wanted:
        return ""
    return "the grant is another than the one under which the pod's containers started; delete the pod"
