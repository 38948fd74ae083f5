"""A small API server for one desk's world: pods, bindings on their way, and what its watch has still to tell."""

from __future__ import annotations

from dataclasses import dataclass, field

import msgspec

from aliquot_core.claims import Claim, claims
from aliquot_core.grant import decode_grant
from aliquot_core.objects import Pod
from aliquot_scheduler.deciding.promises import Promise
from support.centre import NAMES, with_grant

replace = msgspec.structs.replace
Held = dict[str, dict[tuple[str, str], Claim]]


@dataclass(eq=False)
class Write:
    """A binding on its way; `told` is when its sender stopped waiting."""

    promise: Promise
    landed: bool = False
    dead: bool = False
    told: float | None = None

    @property
    def uid(self) -> str:
        """Of the pod."""
        return self.promise.pod.metadata.uid


@dataclass
class Api:
    """The API server: one pod per name, each bound at most once, and what its watch has still to tell."""

    pods: dict[str, Pod] = field(default_factory=dict)
    news: list[tuple[bool, Pod]] = field(default_factory=list)

    def put(self, pod: Pod) -> None:
        """Write a pod."""
        self.pods[pod.metadata.name] = pod
        self.news.append((True, pod))

    def delete(self, name: str) -> None:
        """Delete a pod for good."""
        self.news.append((False, self.pods.pop(name)))

    def of(self, uid: str) -> Pod | None:
        """The very pod."""
        return next((pod for pod in self.pods.values() if pod.metadata.uid == uid), None)

    def bind(self, promise: Promise) -> bool:
        """Do a binding, if it may be done."""
        pod = self.of(promise.pod.metadata.uid)
        if pod is None or pod.spec.node_name or pod.spec.scheduling_gates or pod.metadata.deletion_timestamp:
            return False
        self.put(with_grant(pod, promise.plan.grant))
        return True

    def granted(self) -> Held:
        """Who holds what by the API server's word."""
        held: Held = {}
        for pod in self.pods.values():
            text = pod.metadata.annotations.get(NAMES.grant)
            if text and not pod.ended:
                grant = decode_grant(text)
                held[pod.metadata.uid] = {(grant.node, gpu): claim for gpu, claim in claims(pod, grant).items()}
        return held


def ungated(pod: Pod) -> Pod:
    """The pod without its gates."""
    return replace(pod, spec=replace(pod.spec, scheduling_gates=[]))


def wants_a_place(pod: Pod) -> bool:
    """Whether it is a pod that a place is still to be found for."""
    return not (pod.spec.node_name or pod.metadata.deletion_timestamp or pod.ended)
