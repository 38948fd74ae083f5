"""What goes wrong while pods go for others, beside the leader's death, on the real API server and kube-scheduler."""

from __future__ import annotations

from collections import Counter

from cluster.harness.cluster import ClusterHarness
from cluster.played_centre import PlayedCentre
from cluster.queueing import queue
from cluster.queues.test_decide import home, nodes_of, submit
from cluster.queues.test_leader_dies import names
from support.queue_scenarios import Pods

# Cards of the node that is always there.
CARDS = 4
# Namespaces that no other test has: the centre's log is of all of them.
OWNER, BORROWER = "mine", "theirs"


def asked(centre: PlayedCentre) -> Counter[str]:
    """How often each of the borrowers was."""
    return Counter(line["pod"] for line in centre.centre.logged("evicted") if line["pod"].startswith(BORROWER))


def test_whoever_is_deleted_leaves_its_room_to_the_next(cluster: ClusterHarness, centre: PlayedCentre) -> None:
    """Its victim is on the way out already, and another borrower comes in its place; nobody else is asked."""
    queues = [queue(OWNER, compute={"guarantee": 200}), queue(BORROWER)]
    made = {OWNER: 0, BORROWER: 0}
    with centre.applied([*queues, home(OWNER), home(BORROWER)]):
        submit(cluster, Pods(queue=BORROWER, count=CARDS, compute=100), made)
        centre.settled({f"{BORROWER}-1": 100 * CARDS})
        before = asked(centre)
        submit(cluster, Pods(queue=OWNER, count=1, compute=100), made)
        cluster.wait_for("one to be asked to go", lambda: len(centre.leaving(f"{BORROWER}-1")) == 1)
        submit(cluster, Pods(queue=BORROWER, count=1, compute=100), made)
        centre.lined_up({f"{BORROWER}-1": 1})
        (owner,) = centre.pods(f"{OWNER}-1")
        centre.api.delete(centre.api.path_of(owner))
        centre.let_go(f"{BORROWER}-1")
        centre.lined_up({f"{BORROWER}-1": 0})
        centre.settled({f"{BORROWER}-1": 100 * CARDS})
        # Whoever decides has looked at it by then: the next owner gets room in its turn.
        submit(cluster, Pods(queue=OWNER, count=1, compute=100), made)
        cluster.wait_for("one to be asked to go", lambda: len(centre.leaving(f"{BORROWER}-1")) == 1)
        centre.let_go(f"{BORROWER}-1")
        centre.settled({f"{OWNER}-1": 100, f"{BORROWER}-1": 100 * (CARDS - 1)})
        assert sorted((asked(centre) - before).values()) == [1, 1]


def test_a_node_that_is_lost_in_the_middle_calls_a_plan_off(cluster: ClusterHarness, centre: PlayedCentre) -> None:
    """A pair that wants a node each waits, and nobody more goes for it; when the node is back, one more goes."""
    queues = [queue(OWNER, compute={"guarantee": 200}), queue(BORROWER)]
    made = {OWNER: 0, BORROWER: 0}
    notes = {"group-size": "2", "group-topology": "spread"}
    with centre.applied([*queues, home(OWNER), home(BORROWER)]):
        before = asked(centre)
        with centre.one_more_node("gpu2", gpus=1):
            submit(cluster, Pods(queue=BORROWER, count=CARDS + 1, compute=100), made)
            centre.settled({f"{BORROWER}-1": 100 * (CARDS + 1)})
            submit(cluster, Pods(queue=OWNER, count=2, compute=100, gang="pair", notes=notes), made)
            cluster.wait_for("two to be asked to go", lambda: len(centre.leaving(f"{BORROWER}-1")) == 2)
            first = names(centre.leaving(f"{BORROWER}-1"))
        # Those who ran there are gone with it, and the other victim goes by itself.
        centre.let_go(f"{BORROWER}-1")
        submit(cluster, Pods(queue=BORROWER, count=1, compute=100), made)
        centre.settled({f"{OWNER}-1": 0, f"{BORROWER}-1": 100 * CARDS})
        assert centre.leaving(f"{BORROWER}-1") == []
        with centre.one_more_node("gpu2", gpus=1):
            cluster.wait_for("one more to be asked", lambda: len(centre.leaving(f"{BORROWER}-1")) == 1)
            assert not set(names(centre.leaving(f"{BORROWER}-1"))) & set(first)
            centre.let_go(f"{BORROWER}-1")
            centre.settled({f"{OWNER}-1": 200, f"{BORROWER}-1": 100 * (CARDS - 1)})
            assert nodes_of(centre, f"{OWNER}-1") == ["gpu1", "gpu2"]
            assert centre.leaving(f"{BORROWER}-1") == []
        assert sorted((asked(centre) - before).values()) == [1, 1, 1]
