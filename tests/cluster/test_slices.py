"""A granted pod on a real kubelet runs on exactly the slice that its grant names, and no other pod starts at all."""

from __future__ import annotations

import pytest

from aliquot_core.inventory import decode_inventory
from cluster.harness.cluster import ClusterHarness
from cluster.harness.pods import shell
from cluster.node_half import NAMES, SHOW, NodeHalf, asks, sharing_pod, shows


def test_the_node_says_what_it_has(cluster: ClusterHarness, half: NodeHalf) -> None:
    """Percent and slots from the device plugin, MiB and inventory from the agent."""
    node = cluster.api.get("/api/v1/nodes/node1")
    inventory = decode_inventory(node["metadata"]["annotations"][NAMES.inventory])
    assert [gpu.uuid for gpu in inventory.gpus] == [half.gpu(index) for index in range(8)]
    allocatable = node["status"]["allocatable"]
    assert (allocatable[NAMES.compute], allocatable[NAMES.best_effort]) == ("800", "256")
    assert node["metadata"]["labels"]["aliquot.dev/gpu.count"] == "8"
    assert node["status"]["capacity"][NAMES.memory] == allocatable[NAMES.memory]


def test_the_heart_beat_says_ready_and_goes_on(cluster: ClusterHarness, half: NodeHalf) -> None:
    """Who binds to this node looks at its lease: written every five seconds, with the node's state."""
    cluster.wait_for("ready", lambda: half.lease()["metadata"]["annotations"].get(NAMES.state) == "ready" or None)
    before = half.lease()["spec"]["renewTime"]
    cluster.wait_for("the next beat", lambda: half.lease()["spec"]["renewTime"] > before or None)
    assert half.lease()["metadata"]["annotations"][NAMES.state] == "ready"


def test_a_container_prints_its_slice(cluster: ClusterHarness, half: NodeHalf, namespace: str) -> None:
    """The GPU, the percent and the MiB of the grant are what the container finds."""
    made = half.run(sharing_pod(namespace, shows(limits=asks(30, 8_000))), {"main": [(3, 30, 8_000)]})
    done = cluster.wait_for_phase(made, "Succeeded")
    assert cluster.logs(done) == f"{half.gpu(3)} 30 8000 void\n"


def test_init_and_app_containers_that_share_ids_get_their_own(
    cluster: ClusterHarness, half: NodeHalf, namespace: str
) -> None:
    """The kubelet hands the init container's ids on to the app container; the memory differs all the same."""
    made = half.run(
        sharing_pod(
            namespace,
            shows(limits=asks(30, 16_000)),
            init_containers=[shows(name="prepare", limits=asks(30, 8_000))],
        ),
        {"prepare": [(2, 30, 8_000)], "main": [(2, 30, 16_000)]},
    )
    done = cluster.wait_for_phase(made, "Succeeded")
    assert cluster.logs(done, "prepare") == f"{half.gpu(2)} 30 8000 void\n"
    assert cluster.logs(done) == f"{half.gpu(2)} 30 16000 void\n"


def test_an_init_container_alone_gets_its_gpu(cluster: ClusterHarness, half: NodeHalf, namespace: str) -> None:
    """PodResources does not list it; the kubelet's record does."""
    made = half.run(
        sharing_pod(namespace, shell("true"), init_containers=[shows(name="prepare", limits=asks(50, 1_000))]),
        {"prepare": [(5, 50, 1_000)]},
    )
    done = cluster.wait_for_phase(made, "Succeeded")
    assert cluster.logs(done, "prepare") == f"{half.gpu(5)} 50 1000 void\n"


def test_several_containers_a_sidecar_and_several_gpus(cluster: ClusterHarness, half: NodeHalf, namespace: str) -> None:
    """Each container of a pod has its own slice, wherever it lies."""
    made = half.run(
        sharing_pod(
            namespace,
            shows(name="one", limits=asks(250, 9_000)),
            shows(name="two", limits=asks(0, 500)),
            init_containers=[
                shell(f"{SHOW}; trap exit TERM; sleep 1000 & wait", name="side", limits=asks(10, 100), sidecar=True)
            ],
        ),
        {
            "one": [(0, 100, 3_600), (1, 100, 3_600), (4, 50, 1_800)],
            "two": [(6, 0, 500)],
            "side": [(6, 10, 100)],
        },
    )
    done = cluster.wait_for_phase(made, "Succeeded")
    assert cluster.logs(done, "one") == f"{half.gpu(0)},{half.gpu(1)},{half.gpu(4)} 250 9000 void\n"
    assert cluster.logs(done, "two") == f"{half.gpu(6)} 0 500 void\n"
    assert cluster.logs(done, "side") == f"{half.gpu(6)} 10 100 void\n"


def test_a_container_that_restarts_finds_its_slice_again(
    cluster: ClusterHarness, half: NodeHalf, namespace: str
) -> None:
    """A restart asks nobody but us, with the ids it had."""
    script = f"{SHOW}; test -e /slice/again || {{ touch /slice/again; exit 1; }}"
    wanted = sharing_pod(namespace, shell(script, limits=asks(20, 700)), restart="OnFailure")
    wanted["spec"]["volumes"] = [{"name": "slice", "emptyDir": {}}]
    wanted["spec"]["containers"][0]["volumeMounts"] = [{"name": "slice", "mountPath": "/slice"}]
    done = cluster.wait_for_phase(half.run(wanted, {"main": [(7, 20, 700)]}), "Succeeded")
    assert done["status"]["containerStatuses"][0]["restartCount"] == 1
    assert cluster.logs(done).endswith(f"{half.gpu(7)} 20 700 void\n")


def test_a_pod_can_not_rename_its_gpu(cluster: ClusterHarness, half: NodeHalf, namespace: str) -> None:
    """What the CDI spec says wins over the pod's own environment."""
    env = {"ALIQUOT_GPUS": "GPU-mine", "ALIQUOT_MEMORY": "999999", "NVIDIA_VISIBLE_DEVICES": "all"}
    made = half.run(sharing_pod(namespace, shows(limits=asks(10, 100), env=env)), {"main": [(0, 10, 100)]})
    done = cluster.wait_for_phase(made, "Succeeded")
    assert cluster.logs(done) == f"{half.gpu(0)} 10 100 void\n"


BAD_GRANTS = {
    "none at all": (None, "bound without a grant"),
    "not JSON": ("{", "not readable"),
    "of a later version": ('{"v":2}', "its format is 2, and 1 is all that is read here"),
    "for another pod": (
        '{"v":1,"node":"node1","pod":"u","containers":{"main":{"slices":[{"gpu":"GPU-1","compute":10,"memory":1}]}}}',
        "belongs to another pod",
    ),
}


@pytest.mark.parametrize("row", BAD_GRANTS)
def test_a_pod_with_a_bad_grant_is_held_and_told_why(
    cluster: ClusterHarness, half: NodeHalf, namespace: str, row: str
) -> None:
    """It neither runs nor fails: its Events name the reason, and whoever mends it sees it start."""
    grant, reason = BAD_GRANTS[row]
    made = cluster.create_pod(sharing_pod(namespace, shows(limits=asks(10, 100))))
    cluster.bind(made, half.name, {} if grant is None else {NAMES.grant: grant})
    cluster.wait_for(f"an Event that says {reason!r}", lambda: reason in half.told_of(made) or None)
    assert cluster.current(made)["status"]["phase"] == "Pending"


def test_the_node_never_gives_more_than_a_gpu_has(cluster: ClusterHarness, half: NodeHalf, namespace: str) -> None:
    """Two grants that do not fit together: the first runs, the second is held until the first has ended."""
    stays = "trap exit TERM; sleep 1000 & wait"
    first = half.run(sharing_pod(namespace, shell(stays, limits=asks(60, 100))), {"main": [(1, 60, 100)]})
    cluster.wait_for_phase(first, "Running")
    second = half.run(sharing_pod(namespace, shows(limits=asks(60, 100))), {"main": [(1, 60, 100)]})
    cluster.wait_for("an Event that says so", lambda: "would be over-granted" in half.told_of(second) or None)
    assert cluster.current(second)["status"]["phase"] == "Pending"
    cluster.delete(first)
    cluster.wait_for_phase(second, "Succeeded")
