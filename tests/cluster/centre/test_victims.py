"""Victims as real processes: one that ignores SIGTERM is killed by its kubelet, and keeps its slice until then.

The node has other GPUs, and the owner asks for the victim's: so kube-scheduler, which counts who is on the way out by
its node, would bind it at once, and the centre alone keeps it waiting.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from functools import partial

from cluster.centre.asked import asking, slice_of
from cluster.centre_half import NAMES, CentreHalf
from cluster.harness.api import Json
from cluster.harness.cluster import ClusterHarness
from cluster.harness.errors import ApiError
from cluster.harness.pods import shell
from cluster.installed import manifests
from cluster.node_half import asks
from cluster.queueing import queue

GRACE = 2
ONE_GPU = (100, 20_000)
OWNER = queue("victims-owner", compute={"guarantee": 100}, namespaces=["*"])
BORROWER = queue("victims-borrower", namespaces=["*"])
# Nor does what it waits for hear of it.
DEAF = shell("trap '' TERM; sleep 100000", limits=asks(*ONE_GPU))
# While somebody holds this, what came of a pod can be read once it has ended.
HELD = "example.com/read-first"
KILLED = 137


def instant(text: str) -> datetime:
    """As the API server writes them."""
    return datetime.fromisoformat(text)


def ended(cluster: ClusterHarness, made: Json) -> Json | None:
    """How its container has, as its kubelet says; None while it runs."""
    (status,) = cluster.current(made)["status"].get("containerStatuses") or [{}]
    found: Json | None = status.get("state", {}).get("terminated")
    return found


def bound_at(pod: Json) -> datetime:
    """When it was."""
    conditions = {one["type"]: one for one in pod["status"]["conditions"]}
    return instant(conditions["PodScheduled"]["lastTransitionTime"])


def deaf(name: str, namespace: str) -> Json:
    """A borrower that takes a whole GPU and ignores what it is asked."""
    labels = {NAMES.queue: "victims-borrower"}
    wanted = asking(name, namespace, *ONE_GPU, labels=labels, terminationGracePeriodSeconds=GRACE)
    wanted["spec"]["containers"] = [DEAF]
    wanted["metadata"]["finalizers"] = [HELD]
    return wanted


def owning(name: str, namespace: str, *, gpu: str) -> Json:
    """An owner that wants this GPU and no other."""
    notes, labels = {NAMES.of("gpu-uuid"): gpu}, {NAMES.queue: "victims-owner"}
    return asking(name, namespace, *ONE_GPU, annotations=notes, labels=labels)


@contextmanager
def queues(cluster: ClusterHarness, *wanted: Json) -> Iterator[None]:
    """They are there for a while, and so is their kind; the centre knows of them."""
    kind = next(manifests("05-queue"))
    cluster.apply(kind)
    try:
        for one in wanted:
            cluster.wait_for("a queue to be known", partial(_is_known, cluster, one))
        yield
    finally:
        cluster.delete(kind)


def _is_known(cluster: ClusterHarness, wanted: Json) -> bool:
    try:
        return bool(cluster.apply(wanted).get("status"))
    except ApiError:
        # Their kind is not served yet.
        return False


def test_a_victim_that_ignores_sigterm_keeps_its_slice_until_it_is_killed(
    cluster: ClusterHarness, centre: CentreHalf, namespace: str
) -> None:
    """It is asked once, killed after its grace, and only then is the owner bound, though other GPUs are free."""
    with queues(cluster, OWNER, BORROWER):
        victim = cluster.create_pod(deaf("deaf", namespace))
        try:
            cluster.wait_for_phase(victim, "Running")
            before, gpu = len(centre.logged("evicted")), slice_of(cluster, victim).gpu
            owner = cluster.create_pod(owning("owner", namespace, gpu=gpu))
            done = cluster.wait_for_phase(owner, "Succeeded")
            state = ended(cluster, victim)
            assert state is not None
            assert state["exitCode"] == KILLED
            assert bound_at(done) >= instant(state["finishedAt"])
            assert len(centre.logged("evicted")) == before + 1
        finally:
            cluster.api.patch(cluster.api.path_of(victim), {"metadata": {"finalizers": None}})
