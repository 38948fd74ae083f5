"""A new authority of the centre's, and the real kube-scheduler that runs meanwhile."""

from __future__ import annotations

from cluster.centre.asked import asking
from cluster.centre_half import CentreHalf
from cluster.harness.cluster import ClusterHarness

UNTRUSTED = 'aliquot_centre_tls_failures_total{wrong="our-certificate"}'


def test_kube_scheduler_trusts_a_new_authority_once_it_is_restarted(
    cluster: ClusterHarness, centre: CentreHalf, namespace: str
) -> None:
    """Its own certificate it reads again, `caFile` only when it starts, whatever lies there: as docs/centre.md says."""
    leader = centre.replicas[0]
    cluster.wait_for_phase(cluster.create_pod(asking("before", namespace, 30, 1_000)), "Succeeded")
    centre.renew_authority()
    # Shown at once; and no connection of before is left.
    leader.process.restart()
    scheduler = cluster.control_plane.scheduler
    try:
        waits = cluster.create_pod(asking("waits", namespace, 30, 1_000))
        cluster.wait_for("kube-scheduler not to trust it", lambda: leader.gauge(UNTRUSTED) > 0)
        assert "nodeName" not in cluster.current(waits)["spec"]
    finally:
        scheduler.restart()
    cluster.wait_for_phase(waits, "Succeeded")
    failed = leader.gauge(UNTRUSTED)
    cluster.wait_for_phase(cluster.create_pod(asking("after", namespace, 30, 1_000)), "Succeeded")
    assert leader.gauge(UNTRUSTED) == failed
