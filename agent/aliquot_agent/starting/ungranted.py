"""Pods that were bound here without a grant that can be honoured, and told so for two minutes in vain.

Each start is refused with the reason, but a start's Event passes. A condition stays: it says what is wrong to whoever
looks at the pod, and lets the centre find what it has to evict.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from aliquot_core.claims import check_grant
from aliquot_core.errors import AliquotError
from aliquot_core.grant import decode_grant
from aliquot_core.names import Names
from aliquot_core.objects import Pod
from aliquot_core.request import parse_request

PATIENCE = 120.0
REASON = "NoValidGrant"


class Complaint(msgspec.Struct, frozen=True, kw_only=True):
    """What is wrong with a pod's grant."""

    pod: Pod
    what: str


def trouble(pod: Pod, *, names: Names) -> str:
    """Why a pod bound here will never get its slices; empty if it may, asks for none, or has ended."""
    if pod.ended or not pod.spec.node_name:
        return ""
    try:
        if not parse_request(pod, names=names).containers:
            return ""
        text = pod.metadata.annotations.get(names.grant)
        if text is None:
            return f"bound to {pod.spec.node_name} without a grant; delete it and let Aliquot's scheduler place it"
        check_grant(decode_grant(text), pod=pod, names=names)
    except AliquotError as error:
        return str(error)
    return ""


class Patience:
    """Remembers since when each pod has been in trouble; complains once about each."""

    def __init__(self, *, names: Names) -> None:
        self._names = names
        self._since: dict[str, float] = {}
        self._told: set[str] = set()

    def look(self, pods: Iterable[Pod], *, now: float) -> list[Complaint]:
        """The pods whose time is over now and about whom nobody was told yet."""
        found = {pod.metadata.uid: Complaint(pod=pod, what=what) for pod in pods if (what := self._trouble(pod))}
        self._since = {uid: self._since.get(uid, now) for uid in found}
        self._told &= found.keys()
        due = [uid for uid, since in self._since.items() if now - since >= PATIENCE and uid not in self._told]
        return [found[uid] for uid in due]

    def told(self, complaint: Complaint) -> None:
        """The API server has the complaint."""
        self._told.add(complaint.pod.metadata.uid)

    def _trouble(self, pod: Pod) -> str:
        return trouble(pod, names=self._names)


def condition(
    pod: Pod, *, names: Names, now: str, reason: str, message: str, status: str = "False"
) -> Mapping[str, Any]:
    """The change of a pod's status, as a strategic merge patch: conditions of others stay."""
    told = {
        "type": names.of("granted"),
        "status": status,
        "reason": reason,
        "message": message,
        "lastTransitionTime": now,
    }
    # The uid is a precondition: a pod made anew under the name is another.
    return {"metadata": {"uid": pod.metadata.uid}, "status": {"conditions": [told]}}
