"""The file system on which accounts lie, as the chart's init containers make it on a real node, and take it away."""

from __future__ import annotations

from pathlib import Path

import yaml

from aliquot_agent.isolation.accounts_room import Mounted, mounted_at
from cluster.charts import template
from cluster.harness.api import Json
from cluster.harness.cluster import ClusterHarness
from cluster.harness.pods import pod, shell
from cluster.installed import AGENT, SYSTEM, WITHDRAW, Installed

NODE = "node1"
FOLDER = "/var/lib/aliquot/isolation"
MIB = 8
TRIED = 4 * MIB
VALUES = {"node": {"isolation": "interposer", "accountsMib": MIB}}
# As a tenant who makes his account larger, until there is no room; what the last one left, and something that stays.
LOOKS = (
    f"dd if=/dev/zero of={FOLDER}/much bs=1M count={TRIED} 2>/dev/null; wc -c < {FOLDER}/much; rm {FOLDER}/much;"
    f" cat {FOLDER}/mark 2>/dev/null; echo mark > {FOLDER}/mark"
)


def rooms() -> tuple[Json, Json]:
    """What the chart makes of the agent's pods, and of those that withdraw: each begins with such an init container."""
    objects = {(one["kind"], one["metadata"]["name"]): one for one in template(VALUES)}
    withdraws = objects["ConfigMap", WITHDRAW.rpartition("/")[2]]["data"]["pod.yaml"]
    return objects["DaemonSet", AGENT]["spec"]["template"]["spec"], yaml.safe_load(withdraws)["spec"]


def begun(cluster: ClusterHarness, name: str, like: Json) -> tuple[str, str]:
    """Let a pod begin as that one does, and then look at the folder as the agent sees it; what both say. It is gone."""
    (room,) = like["initContainers"]
    (above,) = (each for each in like["volumes"] if each["name"] == room["volumeMounts"][0]["name"])
    looks = shell(LOOKS) | {"volumeMounts": [{"name": "isolation", "mountPath": FOLDER}]}
    wanted = pod(
        name,
        looks,
        namespace=SYSTEM,
        node=NODE,
        init_containers=[{**room, "imagePullPolicy": "Never"}],
        volumes=[above, {"name": "isolation", "hostPath": {"path": FOLDER, "type": "DirectoryOrCreate"}}],
    )
    made = cluster.wait_for_phase(cluster.create_pod(wanted), "Succeeded", timeout=120)
    said = cluster.logs(made, room["name"]), cluster.logs(made)
    cluster.delete(made)
    return said


def on_the_node(cluster: ClusterHarness) -> Mounted | None:
    """What lies at the folder on the node itself, where the kubelet finds what it mounts into containers."""
    return mounted_at(Path(FOLDER), cluster.node(NODE).run_inside(["cat", "/proc/self/mountinfo"]).stdout)


def test_accounts_have_room_of_their_own_until_it_is_taken_away(cluster: ClusterHarness, installed: Installed) -> None:
    """Bounded from the first agent on, found by the next one with all that lies there, gone with who withdraws."""
    installed.wait_ready(NODE)
    agents, withdrawn = rooms()
    assert on_the_node(cluster) is None
    told, seen = begun(cluster, "room-first", agents)
    assert f"{FOLDER} is a file system of {MIB} MiB" in told
    assert seen.split() == [str(MIB << 20)]
    assert on_the_node(cluster) == Mounted("/", "tmpfs")
    told, seen = begun(cluster, "room-next", agents)
    assert f"{FOLDER} is a file system of its own already" in told
    assert seen.split()[1:] == ["mark"]
    assert on_the_node(cluster) == Mounted("/", "tmpfs")
    told, seen = begun(cluster, "room-away", withdrawn)
    assert f"{FOLDER} is unmounted" in told
    assert seen.split() == [str(TRIED << 20)]
    assert on_the_node(cluster) is None
