"""Pods that kube-scheduler can't bind, on the real cluster: what they keep from others."""

from __future__ import annotations

from aliquot_scheduler.deciding.promises import PROMISE
from cluster.guarded import asking
from cluster.harness.cluster import ClusterHarness
from cluster.played_centre import PlayedCentre


def test_pods_whose_claim_is_missing_keep_a_cluster_for_one_turn(cluster: ClusterHarness, centre: PlayedCentre) -> None:
    """Without queues, on four cards: 24 of them, a whole card each, and one of somebody else's that asks 10 %."""
    names = [{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}} for name in ("careless", "other")]
    missing = [{"name": "data", "persistentVolumeClaim": {"claimName": "missing"}}]
    with centre.applied(names):
        for number in range(24):
            cluster.create_pod(asking(f"c{number}", "careless", {"compute": "100", "memory": "1000"}, volumes=missing))
        cluster.wait_for("their first turns", lambda: centre.waiting("careless") < 24 or None)
        good = cluster.create_pod(asking("good", "other", {"compute": "10", "memory": "1000"}))
        # One turn and what a busy machine takes; all 24 have their first turns in six.
        cluster.wait_for("it to be bound", lambda: cluster.current(good)["spec"].get("nodeName"), timeout=3 * PROMISE)
        assert centre.held("careless") == 0
