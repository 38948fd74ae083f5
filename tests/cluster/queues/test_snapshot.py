"""`aliquot snapshot` of a real API server between two leaders: its replay says what the next one does."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable
from pathlib import Path

from aliquot_core.grant import decode_grant
from cluster.guarded import asking
from cluster.harness.api import Json
from cluster.harness.cluster import ClusterHarness
from cluster.installed import NAMES
from cluster.played_centre import PlayedCentre
from cluster.queueing import queue
from cluster.queues.test_command import asked
from cluster.queues.test_decide import home

# It is lifted while no leader is there, which webhooks have no say in.
LATER = {"name": "example.com/later"}
HUSH = "hush"
SECRET = {
    "apiVersion": "v1",
    "kind": "Secret",
    "metadata": {"name": "token", "namespace": "red-1", "annotations": {"example.com/token": HUSH}},
    "stringData": {HUSH: HUSH},
}


def telling(name: str, namespace: str) -> Json:
    """A pod that asks for a card, with what people put where they should not."""
    notes = {"vault.example.com/token": HUSH, HUSH: "1"}
    wanted = asking(name, namespace, {"compute": "100", "memory": "1000"}, annotations=notes)
    (container,) = wanted["spec"]["containers"]
    container |= {"image": HUSH, "args": [f"--token={HUSH}"], "env": [{"name": "TOKEN", "value": HUSH}]}
    return wanted


def lie(centre: PlayedCentre, namespace: str) -> dict[str, list[str]]:
    """On which GPUs the pods of a namespace lie, as a replay names both."""
    return {
        f"{namespace}/{pod['metadata']['name']}": gpus_of(pod) for pod in centre.holding(namespace) if is_granted(pod)
    }


def is_granted(pod: Json) -> bool:
    """Whether a pod bears its grant."""
    return NAMES.grant in pod["metadata"]["annotations"]


def gpus_of(pod: Json) -> list[str]:
    """Those that a pod was granted."""
    grant = decode_grant(pod["metadata"]["annotations"][NAMES.grant])
    return sorted(f"{grant.node}/{part.gpu}" for _, part in grant.slices())


def names_of(pods: Iterable[Json]) -> set[str]:
    """As a replay names them."""
    return {f"{pod['metadata']['namespace']}/{pod['metadata']['name']}" for pod in pods}


def test_a_real_cluster_replays_off_line_to_what_its_next_leader_does(
    cluster: ClusterHarness, centre: PlayedCentre, tmp_path: Path
) -> None:
    """Who is let in and on which card, who goes for whom and what is kept; of what people hide nothing is written."""
    file, replica = tmp_path / "cluster.json.gz", centre.centre.replicas[0]
    queues = [queue("red", compute={"guarantee": 300}), queue("blue")]
    with centre.applied([*queues, home("red"), home("blue"), SECRET]):
        for number in range(3):
            cluster.create_pod(telling(f"b{number}", "blue-1"))
            centre.settled({"blue-1": 100 * (number + 1)})
        for name in ("red-1/r0", "red-1/r1", "red-1/r2", "blue-1/waits"):
            namespace, _, pod = name.partition("/")
            wanted = telling(pod, namespace)
            wanted["spec"]["schedulingGates"] = [LATER]
            cluster.create_pod(wanted)
        replica.process.stop()
        try:
            for one in (*centre.pods("red-1"), *centre.pods("blue-1")):
                if one["spec"].get("schedulingGates"):
                    ours = {"schedulingGates": [{"name": NAMES.gate}]}
                    centre.api.patch(centre.api.path_of(one), {"spec": ours})
            asked(centre, "snapshot", str(file))
        finally:
            replica.start()
        told = json.loads(asked(centre, "snapshot", "--replay", str(file), "-o", "json"))
        (let_in,) = told["let_in"]
        victims = {one for room in told["room"] for one in room["victims"]}
        cluster.wait_for("as many to be asked to go", lambda: names_of(centre.leaving("blue-1")) == victims)
        cluster.wait_for("one to be let in", lambda: lie(centre, "red-1") == {let_in["pod"]: let_in["gpus"]})
        assert (len(victims), told["waiting"]) == (2, 3)
        centre.let_go("blue-1")
        centre.settled({"red-1": 300, "blue-1": 100})
        kept = {room["pods"][0]: room["gpus"] for room in told["room"]}
        assert lie(centre, "red-1") == {let_in["pod"]: let_in["gpus"], **kept}
        assert centre.leaving("blue-1") == []
    text = gzip.decompress(file.read_bytes()).decode()
    assert HUSH not in text
    assert text.count('"r0"') == 1
