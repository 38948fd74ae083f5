"""A disruption budget that says no when its pod is asked: it stays, and another one goes instead."""

from __future__ import annotations

import socketserver
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from cluster.guarded import asking
from cluster.harness.api import Json
from cluster.harness.cluster import ClusterHarness
from cluster.harness.controlplane import LOOPBACK
from cluster.played_centre import PlayedCentre
from cluster.queueing import queue
from cluster.queues.test_decide import home
from cluster.queues.test_leader_dies import names, never_answers

MINE = {"of": "the-budget"}


class Door(socketserver.ThreadingTCPServer):
    """Whoever comes is kept waiting while it is shut, and is sent away without an answer once it is open."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__((LOOPBACK, 0), socketserver.BaseRequestHandler)
        self.open = threading.Event()
        self.came = threading.Event()

    def finish_request(self, request: object, client_address: object) -> None:
        """One of them."""
        del request, client_address
        self.came.set()
        self.open.wait()


@contextmanager
def kept_waiting(centre: PlayedCentre, pod: str, namespace: str) -> Iterator[Door]:
    """Who evicts this pod comes to a door before budgets are looked at; in force, and shut."""
    meta = {"name": pod, "namespace": namespace}
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": meta}
    with Door() as door:
        serving = threading.Thread(target=door.serve_forever, daemon=True)
        serving.start()
        config = never_answers(pod, port=door.server_address[1])
        # Who is sent away there comes to the budgets.
        config["webhooks"][0] |= {"failurePolicy": "Ignore", "timeoutSeconds": 30}

        def is_there() -> bool:
            path = f"/api/v1/namespaces/{namespace}/pods/{pod}/eviction"
            centre.api.request("POST", path, body=eviction, query={"dryRun": "All"})
            return door.came.is_set()

        try:
            door.open.set()
            with centre.applied([config]):
                centre.cluster.wait_for("evictions to come to the door", is_there)
                door.open.clear()
                door.came.clear()
                yield door
        finally:
            door.open.set()
            door.shutdown()
            serving.join()


def budget(namespace: str, *, least: int) -> Json:
    """Of its pods so many have to be there."""
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "mine", "namespace": namespace},
        "spec": {"minAvailable": least, "selector": {"matchLabels": MINE}},
    }


def allows(centre: PlayedCentre, namespace: str) -> int:
    """How many may go, as the controller manager has written."""
    now = centre.cluster.current(budget(namespace, least=0))
    return int(now.get("status", {}).get("disruptionsAllowed", 0))


def test_an_eviction_that_a_budget_refuses_takes_another_instead(cluster: ClusterHarness, centre: PlayedCentre) -> None:
    """It allowed one when that was decided, and none when it was asked: the next in harm goes, and nobody else."""
    lends, borrows = "lends-1", "borrows-1"
    queues = [queue("lends", compute={"guarantee": 100}), queue("borrows")]
    with centre.applied([*queues, home("lends"), home("borrows"), budget(borrows, least=0)]):
        # The first is the least harm by far.
        for number, compute in enumerate((40, 100, 100, 100)):
            asks = {"compute": str(compute), "memory": "1000"}
            cluster.create_pod(asking(f"b{number}", borrows, asks, labels={} if number else MINE))
            centre.settled({borrows: 40 + 100 * number})
            centre.runs(borrows)
        cluster.wait_for("the budget to allow one", lambda: allows(centre, borrows) == 1)
        with kept_waiting(centre, "b0", borrows) as door:
            cluster.create_pod(asking("owner", lends, {"compute": "100", "memory": "1000"}))
            cluster.wait_for("the first to be asked", door.came.is_set)
            centre.api.apply(budget(borrows, least=1))
            door.open.set()
            cluster.wait_for("another to be asked", lambda: names(centre.leaving(borrows)))
        asked = [line for line in centre.centre.logged("not evicted") if line["pod"] == f"{borrows}/b0"]
        # It is left alone from then on.
        (kept,) = [line for line in asked if line["answer"] == "kept"]
        assert "disruption budget" in kept["error"]
        assert len(names(centre.leaving(borrows))) == 1
        assert "b0" not in names(centre.leaving(borrows))
        centre.let_go(borrows)
        centre.settled({lends: 100, borrows: 240})
        assert centre.leaving(borrows) == []
