"""A node whose agent asks NVML: without a driver, with a fake one, its files right and wrong, another plugin beside."""

from __future__ import annotations

import ctypes.util
import json
import os
import signal
import stat
from collections.abc import Callable, Iterator
from datetime import datetime
from functools import partial
from pathlib import Path

import pytest

from aliquot_agent.gpus.known_models import KNOWN_MODELS
from aliquot_agent.isolation.limits_file import GpuLimits, decode_limits
from aliquot_core.grant import ContainerGrant, Grant, Slice, encode_grant
from aliquot_core.inventory import Inventory, decode_inventory
from cluster.centre_half import CentreHalf
from cluster.harness.api import Json
from cluster.harness.cluster import ClusterHarness
from cluster.harness.node import Node
from cluster.harness.pods import pod, shell, stays
from cluster.node_half import NAMES, NodeHalf, asks, sharing_pod, shows
from support.fake_nvml import FakeNvml, build_library

WITH_DRIVER = "node8"
NVIDIA_SPEC = "/var/run/cdi/nvidia.yaml"
OTHERS = "nvidia.com/gpu"
# Seconds, in production a minute; more than pass between two looks of the centre.
OVER_USE_GRACE = 6
# Of a pod's own, to end in.
TO_END = 2

MakeHalf = Callable[..., NodeHalf]


@pytest.fixture(scope="module")
def node(cluster: ClusterHarness) -> Iterator[Node]:
    """A node for this module, on which nothing of ours runs between its tests."""
    yield cluster.add_node(WITH_DRIVER)
    cluster.remove_node(WITH_DRIVER)


@pytest.fixture
def nvml(node: Node, tmp_path_factory: pytest.TempPathFactory, tmp_path: Path) -> FakeNvml:
    """A driver of two GPUs."""
    made = FakeNvml(library=build_library(cache=tmp_path_factory.getbasetemp()), folder=tmp_path, node=node.name)
    made.install([KNOWN_MODELS["A100-40GB"], KNOWN_MODELS["L4"]])
    return made


@pytest.fixture
def make_half(cluster: ClusterHarness, node: Node) -> Iterator[MakeHalf]:
    """Start a node half that asks NVML, with these variables; it ends with the test."""
    made: list[NodeHalf] = []

    def make(**environment: str) -> NodeHalf:
        half = NodeHalf(cluster, node, gpus="nvml", **environment)
        made.append(half)
        half.start_endpoint()
        half.start_agent()
        return half

    yield make
    for half in made:
        half.stop()


def published(cluster: ClusterHarness) -> Inventory:
    """What the node says it has; nothing as long as it says nothing."""
    note = cluster.api.get(f"/api/v1/nodes/{WITH_DRIVER}")["metadata"]["annotations"].get(NAMES.inventory)
    return decode_inventory(note) if note else Inventory()


def offered(cluster: ClusterHarness) -> list[str]:
    """How much of each of our resources the scheduler may give."""
    allocatable = cluster.api.get(f"/api/v1/nodes/{WITH_DRIVER}")["status"]["allocatable"]
    return [allocatable.get(name, "0") for name in (NAMES.compute, NAMES.best_effort, NAMES.memory)]


def wait_out(cluster: ClusterHarness, reason: str) -> None:
    """Wait until nothing is offered, and the inventory says why."""
    cluster.wait_for(f"a problem that names {reason!r}", lambda: reason in published(cluster).problem or None)
    cluster.wait_for("nothing to be offered", lambda: offered(cluster) == ["0", "0", "0"] or None)


@pytest.mark.skipif(ctypes.util.find_library("nvidia-ml") is not None, reason="this machine has a driver")
def test_without_a_driver_the_agent_says_so_and_stays(cluster: ClusterHarness, make_half: MakeHalf) -> None:
    """Nothing is offered, the inventory and the log name the library, and the agent waits for it to come."""
    half = make_half()
    wait_out(cluster, "libnvidia-ml.so.1 is not found")
    assert published(cluster).gpus == ()
    assert any("libnvidia-ml" in line["reason"] for line in half.logged("agent", message="no GPU can be given"))
    assert half.agent.running


def test_nvml_s_gpus_are_published_and_given(
    cluster: ClusterHarness, make_half: MakeHalf, nvml: FakeNvml, namespace: str
) -> None:
    """The inventory says what the driver says, and a granted pod runs on its GPU."""
    half = make_half(ALIQUOT_AGENT_DRIVER_FILES="simulated", **nvml.environment())
    half.wait_ready()
    assert [(gpu.uuid, gpu.model, gpu.memory) for gpu in published(cluster).gpus] == [
        (gpu.uuid, gpu.model.name, gpu.model.memory_total_mib - gpu.model.memory_reserved_mib) for gpu in nvml.gpus
    ]
    made = half.run(sharing_pod(namespace, shows(limits=asks(50, 3_000))), {"main": [(1, 50, 3_000)]})
    done = cluster.wait_for_phase(made, "Succeeded")
    assert cluster.logs(done) == f"{nvml.gpus[1].uuid} 50 3000 void\n"


def test_an_instance_of_a_card_that_is_cut_is_given(
    cluster: ClusterHarness, make_half: MakeHalf, nvml: FakeNvml, namespace: str
) -> None:
    """The kubelet counts ids by what instances are of the card, and a pod that asked for less is told what it holds."""
    _, small = nvml.cut(gpu=0, into=[(3, 20_096), (1, 4_864)])
    half = make_half(ALIQUOT_AGENT_DRIVER_FILES="simulated", **nvml.environment())
    half.wait_ready()
    cluster.wait_for("42, 14 and 100 % on offer", lambda: offered(cluster)[:2] == ["156", "32"] or None)
    card = published(cluster).gpu(small)
    assert card is not None
    made = cluster.create_pod(sharing_pod(namespace, shows(limits=asks(10, 3_000))))
    part = Slice(gpu=small, compute=card.compute, limit=card.compute, memory=card.usable)
    held = ContainerGrant(slices=(part,), isolation="mig")
    grant = Grant(node=half.name, pod=made["metadata"]["uid"], containers={"main": held})
    cluster.bind(made, half.name, {NAMES.grant: encode_grant(grant)})
    done = cluster.wait_for_phase(made, "Succeeded")
    assert cluster.logs(done) == f"{small} 14 4848 void\n"


def lay_driver_files(node: Node, *, gpus: int) -> str:
    """Lay what stands for the driver's files onto the node; answers a spec as nvidia-ctk would write it for them."""
    folder = node.folder / "driver" / "dev"
    if not folder.exists():
        folder.mkdir(parents=True)
        (folder.parent / "libcuda").write_text("libcuda of the node\n")
        for name in ("nvidiactl", *(f"nvidia{minor}" for minor in range(gpus))):
            os.mknod(folder / name, 0o666 | stat.S_IFCHR, os.makedev(1, 3))  # like /dev/null, it does nothing
    library = {
        "hostPath": str(folder.parent / "libcuda"),
        "containerPath": "/usr/lib64/libcuda.so.1",
        "options": ["ro", "nosuid", "nodev", "bind"],
    }

    def edits(name: str) -> dict[str, object]:
        return {"deviceNodes": [{"path": f"/dev/{name}", "hostPath": str(folder / name)}]}

    spec = {
        "cdiVersion": "0.6.0",
        "kind": OTHERS,
        "devices": [{"name": str(minor), "containerEdits": edits(f"nvidia{minor}")} for minor in range(gpus)],
        "containerEdits": {**edits("nvidiactl"), "mounts": [library], "env": ["NVIDIA_VISIBLE_DEVICES=void"]},
    }
    return json.dumps(spec, indent=1)


@pytest.fixture
def real_files(make_half: MakeHalf, node: Node, nvml: FakeNvml) -> Iterator[NodeHalf]:
    """A node half that needs the driver's own files, on a node where a search finds none."""
    (node.folder / "nothing").mkdir(exist_ok=True)
    yield make_half(ALIQUOT_AGENT_DRIVER_ROOT=str(node.folder / "nothing"), **nvml.environment())
    node.path(NVIDIA_SPEC).unlink(missing_ok=True)


def test_gpus_are_offered_as_soon_as_containers_can_use_them(
    cluster: ClusterHarness, real_files: NodeHalf, node: Node, namespace: str
) -> None:
    """No driver files, then a garbled NVIDIA spec, then a good one: a container sees its own GPU's and no other."""
    wait_out(cluster, "libcuda")
    node.path(NVIDIA_SPEC).parent.mkdir(exist_ok=True)
    node.path(NVIDIA_SPEC).write_text("cdiVersion: 0.6.0\nkind: nvidia.com/gpu\ndevices: {")
    wait_out(cluster, "nvidia.yaml")
    node.path(NVIDIA_SPEC).write_text(lay_driver_files(node, gpus=2))
    real_files.wait_ready()
    looks = "ls /dev | grep nvidia; cat /usr/lib64/libcuda.so.1; echo $ALIQUOT_GPUS"
    made = real_files.run(sharing_pod(namespace, shell(looks, limits=asks(50, 300))), {"main": [(1, 50, 300)]})
    done = cluster.wait_for_phase(made, "Succeeded")
    assert cluster.logs(done) == f"nvidia1\nnvidiactl\nlibcuda of the node\n{real_files.gpu(1)}\n"


@pytest.fixture
def interposing(make_half: MakeHalf, node: Node, nvml: FakeNvml) -> Iterator[NodeHalf]:
    """A node half that puts a library of ours in front of the driver's, and samples often."""
    (node.folder / "ours").write_text("libcuda of ours\n")
    node.path(NVIDIA_SPEC).parent.mkdir(exist_ok=True)
    node.path(NVIDIA_SPEC).write_text(lay_driver_files(node, gpus=2))
    half = make_half(
        ALIQUOT_AGENT_ISOLATION_OF="0=observe,*=interposer",
        ALIQUOT_AGENT_INTERPOSER=str(node.folder / "ours"),
        ALIQUOT_AGENT_ISOLATION_FOLDER=str(node.folder / "isolation"),
        ALIQUOT_AGENT_SAMPLE="0.2",
        ALIQUOT_AGENT_OVER_USE="evict",
        ALIQUOT_AGENT_OVER_USE_WARN="0.2",
        ALIQUOT_AGENT_OVER_USE_THROTTLE="0.3",
        ALIQUOT_AGENT_OVER_USE_EVICT="0.4",
        **nvml.environment(),
    )
    half.wait_ready()
    yield half
    node.path(NVIDIA_SPEC).unlink()


# It finds ours in the driver's place, the driver's beside it, its limits, which it can't write, and its account.
INSIDE = "/run/aliquot/isolation"
LOOKS = (
    f"cat /usr/lib64/libcuda.so.1 {INSIDE}/driver/libcuda.so; wc -c < {INSIDE}/limits; "
    f"echo more 2>/dev/null >> {INSIDE}/limits || echo kept; "
    f"printf ALIQACC1 | dd of={INSIDE}/account conv=notrunc 2>/dev/null && echo opened"
)


def granted(cluster: ClusterHarness, made: Json) -> tuple[str, str] | None:
    """What the agent says of a pod, and why."""
    found = cluster.current(made)["status"]["conditions"]
    return next(((one["status"], one["reason"]) for one in found if one["type"] == NAMES.of("granted")), None)


def test_a_container_is_held_by_a_library_in_front_of_the_driver_s(
    cluster: ClusterHarness, interposing: NodeHalf, node: Node, nvml: FakeNvml, namespace: str
) -> None:
    """Mounted by the real runtime, with its slice's limits, to which comes what the driver sees beyond its account."""
    assert [gpu.isolation for gpu in published(cluster).gpus] == [["observe"], ["observe", "interposer"]]
    wanted = sharing_pod(namespace, stays(LOOKS, limits=asks(50, 3_000)))
    made = interposing.run(wanted, {"main": [(1, 50, 3_000)]}, isolation="interposer")
    pid = pid_of(cluster, node, made)
    told = "libcuda of ours\nlibcuda of the node\n2304\nkept\nopened\n"
    cluster.wait_for("the container to have looked", lambda: cluster.logs(made) == told or None)
    held = "isolation interposer: compute held, memory held"
    cluster.wait_for("the Event of its start", lambda: held in interposing.told_of(made))
    limits = partial(limits_of, pid)
    now = limits()
    assert (now.uuid, now.memory, now.guarantee, now.unaccounted) == (nvml.gpus[1].uuid, 3_000 << 20, 500_000, 0)
    nvml.start_process(gpu=1, pid=pid, memory_mib=700)
    cluster.wait_for("what is beyond its account", lambda: limits().unaccounted == 700 << 20 or None)
    nvml.start_process(gpu=1, pid=pid, memory_mib=4_000)
    cluster.wait_for("the pod to be given up", lambda: granted(cluster, made) == ("False", "OverUse") or None)
    told = "uses 4000 of 3000 MiB"
    cluster.wait_for("the Event of that", lambda: told in interposing.told_of(made) or None)
    cluster.api.patch(cluster.api.path_of(made), {"metadata": {"annotations": {NAMES.over_use: "throttle"}}})
    cluster.wait_for("its queue's word to count", lambda: granted(cluster, made) == ("True", "OverUseLetBe") or None)
    cluster.api.patch(cluster.api.path_of(made), {"metadata": {"annotations": {NAMES.over_use: None}}})
    cluster.wait_for("the node's word to count", lambda: granted(cluster, made) == ("False", "OverUse") or None)
    nvml.stop_process(pid=pid)
    cluster.wait_for("nothing to be beyond it", lambda: limits().unaccounted == 0 or None)
    cluster.wait_for("the word to be taken back", lambda: granted(cluster, made) == ("True", "InsideSlice") or None)


@pytest.fixture
def centre(cluster: ClusterHarness) -> Iterator[CentreHalf]:
    """A centre beside the node, which gives pods less time than in production; kube-scheduler doesn't ask it."""
    half = CentreHalf(cluster, ALIQUOT_SCHEDULER_OVER_USE_GRACE=str(OVER_USE_GRACE))
    half.replicas[0].start()
    yield half
    half.stop()


def test_a_pod_that_its_node_has_given_up_is_evicted_by_the_centre(
    cluster: ClusterHarness, make_half: MakeHalf, nvml: FakeNvml, centre: CentreHalf, namespace: str
) -> None:
    """Not before the grace of over-use is over, by the subresource, with its own time to end; its neighbour stays."""
    half = make_half(
        ALIQUOT_AGENT_DRIVER_FILES="simulated",
        ALIQUOT_AGENT_SAMPLE="0.2",
        ALIQUOT_AGENT_OVER_USE="evict",
        ALIQUOT_AGENT_OVER_USE_WARN="0.2",
        ALIQUOT_AGENT_OVER_USE_THROTTLE="0.3",
        ALIQUOT_AGENT_OVER_USE_EVICT="0.4",
        **nvml.environment(),
    )
    half.wait_ready()
    ends_late = shell("trap 'echo asked to end' TERM; while :; do sleep 0.1; done", limits=asks(50, 3_000))
    wanted = sharing_pod(namespace, ends_late, terminationGracePeriodSeconds=TO_END)
    goes = half.run(wanted, {"main": [(1, 50, 3_000)]})
    stays_inside = half.run(sharing_pod(namespace, stays(limits=asks(30, 3_000))), {"main": [(1, 30, 3_000)]})
    for made, mib in ((goes, 4_000), (stays_inside, 2_000)):
        nvml.start_process(gpu=1, pid=pid_of(cluster, half.node, made), memory_mib=mib)
    cluster.wait_for("the pod to be given up", lambda: granted(cluster, goes) == ("False", "OverUse") or None)
    asked = cluster.wait_for("it to be asked to go", lambda: leaving(cluster, goes))
    assert asked["metadata"]["deletionGracePeriodSeconds"] == TO_END
    (since,) = (one["lastTransitionTime"] for one in asked["status"]["conditions"] if one.get("reason") == "OverUse")
    ends = asked["metadata"]["deletionTimestamp"]
    passed = datetime.fromisoformat(ends) - datetime.fromisoformat(since)
    assert passed.total_seconds() - TO_END >= OVER_USE_GRACE
    cluster.wait_for("its process to be told", lambda: cluster.logs(goes) == "asked to end\n" or None)
    (line,) = centre.logged("evicted")
    assert (line["pod"], line["reason"]) == (f"{namespace}/{goes['metadata']['name']}", "OverUse")
    assert "uses 4000 of 3000 MiB" in line["why"]
    cluster.wait_for("it to be gone", lambda: cluster.api.find(cluster.api.path_of(goes)) is None)
    assert leaving(cluster, stays_inside) is None


def leaving(cluster: ClusterHarness, made: Json) -> Json | None:
    """A pod that was asked to go, and is there still."""
    found = cluster.current(made)
    return found if "deletionTimestamp" in found["metadata"] else None


def pid_of(cluster: ClusterHarness, node: Node, made: Json) -> int:
    """The process of a pod's container, once that runs."""
    status = cluster.wait_for_phase(made, "Running")["status"]["containerStatuses"][0]
    return node.pids_of_containers()[status["containerID"].removeprefix("containerd://")]


def limits_of(pid: int) -> GpuLimits:
    """What a process's container finds of its slice."""
    (found,) = decode_limits(Path(f"/proc/{pid}/root{INSIDE}/limits").read_bytes())
    return found


def test_memory_that_lacks_is_taken_from_best_effort_first(
    cluster: ClusterHarness, interposing: NodeHalf, node: Node, nvml: FakeNvml, namespace: str
) -> None:
    """A card is sold out, and a stranger holds 1,000 MiB beyond what is let pass; then somebody holds itself back."""
    model = nvml.gpus[1].model
    rest = model.memory_total_mib - model.memory_reserved_mib - 3_000
    opens = f"printf ALIQACC1 | dd of={INSIDE}/account conv=notrunc 2>/dev/null"
    firm = interposing.run(
        sharing_pod(namespace, stays(opens, limits=asks(50, 3_000))), {"main": [(1, 50, 3_000)]}, isolation="interposer"
    )
    loose = interposing.run(
        sharing_pod(namespace, stays(opens, limits=asks(memory=rest))), {"main": [(1, 0, rest)]}, isolation="interposer"
    )
    pids = [pid_of(cluster, node, made) for made in (firm, loose)]

    def wait(*mib: int) -> None:
        wanted = [each << 20 for each in mib]
        cluster.wait_for(f"{mib} MiB", lambda: [limits_of(pid).memory for pid in pids] == wanted or None)

    nvml.start_process(gpu=1, pid=os.getpid(), memory_mib=1_064)
    wait(3_000, rest - 1_000)
    cluster.wait_for("the Event of that", lambda: "while others hold" in interposing.told_of(loose) or None)
    cluster.api.patch(cluster.api.path_of(firm), {"metadata": {"annotations": {NAMES.memory_now: "2000"}}})
    cluster.api.patch(cluster.api.path_of(loose), {"metadata": {"annotations": {NAMES.compute_now: "60"}}})
    wait(2_000, rest)
    cluster.wait_for("less bursting", lambda: [limits_of(pid).limit for pid in pids] == [500_000, 600_000] or None)
    cluster.api.patch(cluster.api.path_of(firm), {"metadata": {"annotations": {NAMES.memory_now: None}}})
    wait(3_000, rest - 1_000)
    nvml.stop_process(pid=os.getpid())
    wait(3_000, rest)


def test_a_process_that_uses_a_gpu_without_a_grant_is_ended_where_that_is_said(
    cluster: ClusterHarness, make_half: MakeHalf, node: Node, nvml: FakeNvml, namespace: str
) -> None:
    """It is asked to end, and told of; the pod beside it, which was granted that GPU, is let be."""
    half = make_half(
        ALIQUOT_AGENT_DRIVER_FILES="simulated",
        ALIQUOT_AGENT_UNGRANTED="stop",
        ALIQUOT_AGENT_SAMPLE="0.2",
        **nvml.environment(),
    )
    half.wait_ready()
    rightful = half.run(sharing_pod(namespace, stays(limits=asks(50, 3_000))), {"main": [(1, 50, 3_000)]})
    intruder = cluster.create_pod(pod("intruder", stays(), namespace=namespace, node=node.name))
    for made in (rightful, intruder):
        nvml.start_process(gpu=1, pid=pid_of(cluster, node, made), memory_mib=700)
    told = f"uses GPU {nvml.gpus[1].uuid} without a grant; it is asked to end"
    cluster.wait_for("the Event of that", lambda: told in half.told_of(intruder) or None)
    ended = cluster.wait_for_phase(intruder, "Failed")["status"]["containerStatuses"][0]["state"]["terminated"]
    assert ended["exitCode"] == 128 + signal.SIGTERM
    assert cluster.current(rightful)["status"]["phase"] == "Running"
    assert "without a grant" not in half.told_of(rightful)


@pytest.fixture
def another_plugin(cluster: ClusterHarness) -> Iterator[Callable[[str | None], None]]:
    """Let the node say that somebody else offers its GPUs; None, and after the test, that nobody does."""

    def say(count: str | None) -> None:
        change = {"capacity": {OTHERS: count}, "allocatable": {OTHERS: count}}
        cluster.api.patch(f"/api/v1/nodes/{WITH_DRIVER}/status", {"status": change})

    yield say
    say(None)


def test_gpus_that_another_plugin_offers_are_out(
    cluster: ClusterHarness, make_half: MakeHalf, nvml: FakeNvml, another_plugin: Callable[[str | None], None]
) -> None:
    """All of them, with the reason, and back by themselves when it is gone."""
    half = make_half(ALIQUOT_AGENT_DRIVER_FILES="simulated", **nvml.environment())
    half.wait_ready()
    another_plugin("2")
    wait_out(cluster, f"another device plugin offers this node's GPUs as {OTHERS}")
    assert {gpu.health.value for gpu in published(cluster).gpus} == {"sick"}
    another_plugin(None)
    cluster.wait_for("our GPUs to be offered again", lambda: "0" not in offered(cluster) or None)
    assert published(cluster).problem == ""
