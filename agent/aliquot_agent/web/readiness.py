"""Is the agent ready, and if not, for what does it wait? Pure: one line for each thing that must hold."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from aliquot_core.door import KubeletSeen
from aliquot_core.inventory import NOT_ASKED
from aliquot_kube.reflector import Freshness

# The API server sends a sign of life about once a minute: what is older by two of them may be wrong.
FRESH = 180.0


class Condition(msgspec.Struct, frozen=True, kw_only=True):
    """What readiness rests on, at one instant."""

    at_door: bool
    kubelet: KubeletSeen | None
    resources: tuple[str, ...]
    pods: Freshness
    driver: bool
    trouble: str


def waits_for(condition: Condition) -> dict[str, str]:
    """What must hold, and what is missing of it; empty text for what holds."""
    return {
        "endpoint": "" if condition.at_door else "the endpoint has not let the agent in",
        "kubelet": _kubelet(condition.kubelet, resources=condition.resources),
        "pods": _pods(condition.pods),
        "driver": condition.trouble or ("" if condition.driver else NOT_ASKED),
    }


def page(found: Mapping[str, str]) -> str:
    """The same to read."""
    return "".join(
        f"{'no' if missing else 'ok'} {name}{missing and f': {missing}'}\n" for name, missing in found.items()
    )


def _kubelet(kubelet: KubeletSeen | None, *, resources: tuple[str, ...]) -> str:
    if kubelet is None:
        return "what the kubelet listens to is not known"
    missing = [resource for resource in resources if resource not in kubelet.listening]
    return f"the kubelet does not listen to {', '.join(missing)}" if missing else ""


def _pods(pods: Freshness) -> str:
    if not pods.synced or pods.contact_age is None:
        return "the API server has not told all pods of the node yet"
    if pods.contact_age > FRESH:
        return f"the API server was not heard for {pods.contact_age:.0f} s"
    return ""
