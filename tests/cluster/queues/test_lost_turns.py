"""Pods that kube-scheduler can't bind, on the real cluster: what they keep from others."""

from __future__ import annotations

import re
import time
from datetime import datetime, timedelta
from math import ceil

from aliquot_scheduler.deciding.promises import PROMISE
from aliquot_scheduler.queues.lost.doubts import FADES
from cluster.guarded import asking
from cluster.harness.cluster import ClusterHarness
from cluster.installed import NAMES
from cluster.played_centre import PlayedCentre
from cluster.queueing import queue
from cluster.queues.told import condition, events

MISSING = [{"name": "data", "persistentVolumeClaim": {"claimName": "missing"}}]


def test_pods_whose_claim_is_missing_keep_a_cluster_for_one_turn(cluster: ClusterHarness, centre: PlayedCentre) -> None:
    """Without queues, on four cards: 24 of them, a whole card each, and one of somebody else's that asks 10 %."""
    names = [{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}} for name in ("careless", "other")]
    with centre.applied(names):
        for number in range(24):
            cluster.create_pod(asking(f"c{number}", "careless", {"compute": "100", "memory": "1000"}, volumes=MISSING))
        cluster.wait_for("their first turns", lambda: centre.waiting("careless") < 24 or None)
        good = cluster.create_pod(asking("good", "other", {"compute": "10", "memory": "1000"}))
        # One turn and what a busy machine takes; all 24 have their first turns in six.
        cluster.wait_for("it to be bound", lambda: cluster.current(good)["spec"].get("nodeName"), timeout=3 * PROMISE)
        assert centre.held("careless") == 0


IN_DOUBT = re.compile(
    r"turns of its user doubted in queue doubted led to nothing, that of doubted/last last, at (?P<last>\S+), so the"
    r" user's other pods come one at a time.*, until what was kept for nothing is paid: (?P<compute>\d+) GPU-seconds"
    r" and (?P<memory>\d+) GiB-seconds of memory, by pods of theirs that run meanwhile; until (?P<ends>\S+) at the"
    r" latest, if no other turn leads to nothing.*"
)


def test_a_pod_of_a_user_in_doubt_is_told_whose_turn_was_lost_and_what_is_owed(
    cluster: ClusterHarness, centre: PlayedCentre
) -> None:
    """By its condition and an Event; sixteen turns of two seconds and more begin a doubt, though none was lost."""
    name = "doubted"
    home = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": {NAMES.queue: name}}}
    asks = {"compute": "25", "memory": "1024"}
    with centre.applied([queue(name), home]):
        began = time.monotonic()
        bad = [
            cluster.create_pod(asking(each, name, asks, volumes=MISSING))
            for each in (*(f"bad{number}" for number in range(15)), "last")
        ]
        centre.lined_up({name: 0})
        in_since = time.monotonic()
        cluster.wait_for("half a minute of turns", lambda: 16 * (time.monotonic() - in_since) > PROMISE + 2.0)
        for pod in bad:
            centre.api.delete(centre.api.path_of(pod), gracePeriodSeconds=0)
        # It is told in whole seconds, rounded up.
        most = ceil(4 * (time.monotonic() - began))
        # The one turn of its user's is this one's for half a minute.
        cluster.create_pod(asking("stuck", name, asks, volumes=MISSING))
        centre.lined_up({name: 0})
        cluster.create_pod(asking("waits", name, asks))
        cluster.wait_for("it to be told", lambda: condition(centre, "waits", namespace=name))
        told = condition(centre, "waits", namespace=name)
        assert told["reason"] == "InDoubt"
        found = IN_DOUBT.fullmatch(told["message"])
        assert found, told["message"]
        assert PROMISE / 4 <= int(found["compute"]) <= most
        assert PROMISE <= int(found["memory"]) <= 4 * most
        last, ends = (datetime.fromisoformat(found[when]) for when in ("last", "ends"))
        assert ends - last == timedelta(seconds=FADES)
        cluster.wait_for("an Event to say the same", lambda: events(centre, "waits", namespace=name))
        (event,) = events(centre, "waits", namespace=name)
        assert (event["reason"], event["action"], event["note"]) == ("InDoubt", "Queueing", told["message"])
