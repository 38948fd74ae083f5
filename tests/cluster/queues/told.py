"""What tests read of the centre's word on pods, of namespace `one` if nothing else is said, and on queues."""

from __future__ import annotations

from cluster.harness.api import Json
from cluster.installed import NAMES
from cluster.played_centre import PlayedCentre
from cluster.queueing import QUEUES


def condition(centre: PlayedCentre, pod: str, *, namespace: str = "one") -> Json:
    """The condition in which a pod says why it waits."""
    conditions = next(
        one["status"].get("conditions", []) for one in centre.pods(namespace) if one["metadata"]["name"] == pod
    )
    return next((one for one in conditions if one["type"] == NAMES.admitted), {})


def said(centre: PlayedCentre, pod: str) -> str:
    """The reason in it; empty if there is none."""
    reason: str = condition(centre, pod).get("reason", "")
    return reason


def events(centre: PlayedCentre, pod: str, *, namespace: str = "one") -> list[Json]:
    """Those of a pod that are the centre's."""
    found = centre.api.items(f"/apis/events.k8s.io/v1/namespaces/{namespace}/events")
    ours = [event for event in found if event.get("reportingController") == NAMES.of("scheduler")]
    return [event for event in ours if event["regarding"]["name"] == pod]


def used(centre: PlayedCentre, name: str) -> int:
    """How much compute a queue's status says that it uses; -1 if it says nothing."""
    return tells(centre, name)[0]


def tells(centre: PlayedCentre, name: str) -> tuple[int, int]:
    """How much compute a queue's status says that it uses, and how many wait; -1 of what it does not say."""
    status = centre.api.get(f"{QUEUES}/{name}").get("status", {})
    return int(status.get("used", {}).get("compute", -1)), int(status.get("waiting", -1))
