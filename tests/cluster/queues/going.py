"""Pods that go, in tests before the real centre: who was asked, who leaves at once, and who when its time is over."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta

from cluster.harness.api import Json
from cluster.harness.cluster import ClusterHarness
from cluster.played_centre import PlayedCentre
from support.queue_scenarios import A_QUARTER_OF_AN_HOUR, Step

# Whoever is moved has to be worth it, which is looked at once a minute.
UNTIL_IT_PAYS = 120.0


def controller(cluster: ClusterHarness, name: str, namespace: str) -> Json:
    """Whoever makes pods, as each of them names it: something that is there, else they would be taken away."""
    owner = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": namespace}}
    uid = cluster.api.apply(owner)["metadata"]["uid"]
    return {"apiVersion": "v1", "kind": "ConfigMap", "name": name, "uid": uid, "controller": True}


def pass_time(centre: PlayedCentre, step: Step, leaves: Iterable[str]) -> None:
    """What has come to pass when a step begins."""
    if step.kills:
        kill(centre, [f"{name}-1" for name in leaves])
    for name in step.ran:
        for pod in centre.holding(f"{name}-1"):
            ran_for(centre, pod, A_QUARTER_OF_AN_HOUR)


def see_off(centre: PlayedCentre, step: Step) -> None:
    """Wait until so many are asked to go as the step says; all but those who ignore it are gone then."""
    asked = {f"{name}-1": count for name, count in {**step.goes, **step.ignores}.items()}
    centre.cluster.wait_for(
        f"{asked} to be asked to go",
        lambda: {name: len(centre.leaving(name)) for name in asked} == asked,
        timeout=UNTIL_IT_PAYS,
    )
    for name in step.goes:
        centre.let_go(f"{name}-1")


def evicted(centre: PlayedCentre) -> Counter[str]:
    """How often each pod was; others of its name may have been before."""
    return Counter(line["pod"] for line in centre.centre.logged("evicted"))


def leaving(centre: PlayedCentre, leaves: Iterable[str]) -> list[Json]:
    """Who was asked to go, and is there still."""
    return [pod for name in leaves for pod in centre.leaving(f"{name}-1")]


def kill(centre: PlayedCentre, namespaces: Iterable[str]) -> None:
    """The time of all who ignore it runs out, and their kubelet kills them: not before."""
    for name in namespaces:
        ends = [pod["metadata"]["deletionTimestamp"] for pod in centre.leaving(name)]
        centre.cluster.wait_for("their grace to be over", lambda ends=ends: all(map(is_past, ends)))  # type: ignore[misc]
        centre.let_go(name)


def is_past(instant: str) -> bool:
    """Whether it is, by the clock on the wall."""
    return datetime.fromisoformat(instant) <= datetime.now(UTC)


def ran_for(centre: PlayedCentre, pod: Json, seconds: float) -> None:
    """Say of a pod that it has: whoever has run for less than ten minutes is not moved."""
    since = (datetime.now(UTC) - timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%SZ")
    conditions = [
        {**one, **({"lastTransitionTime": since} if one["type"] == "PodScheduled" else {})}
        for one in pod["status"]["conditions"]
    ]
    centre.api.patch(f"{centre.api.path_of(pod)}/status", {"status": {"conditions": conditions}})
