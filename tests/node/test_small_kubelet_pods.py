"""The small kubelet with a tiny plugin: pods come in, get devices, run as processes, are reported."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping
from typing import Any

import grpc
import msgspec
import pytest
from grpc import aio

from aliquot_core.objects import Node, NodeStatus, Pod
from aliquot_proto import deviceplugin_v1beta1_pb2 as api
from aliquot_proto import podresources_v1_pb2 as podresources_api
from aliquot_proto import podresources_v1_pb2_grpc as podresources_rpc
from aliquot_standalone.kubelet import checkpoint
from aliquot_standalone.kubelet.containers import Launch, LocalProcesses
from aliquot_standalone.kubelet.lifecycle import Process
from aliquot_standalone.kubelet.settings import Folders
from support.kubelets import QUICK, RESOURCE, TWO, plugin_on, running
from support.pipes import Pipe
from support.pod_board import PodBoard, container, pod, state_of
from support.tiny_plugin import Refusal, cdi_answer, device


def waits_for(reason: str) -> Any:
    """Whether the main container waits for this reason."""
    return lambda status: state_of(status).get("waiting", {}).get("reason") == reason


async def test_a_pod_gets_devices_cdi_environment_and_runs(folders: Folders, board: PodBoard) -> None:
    """Ids are allocated, PreStart is called before the start, and the CDI spec it writes reaches the process."""
    async with running(folders, board), plugin_on(folders, board, pre_start=True) as plugin:

        async def write_spec(ids: list[str]) -> None:
            named = {"name": "_".join(sorted(ids)), "containerEdits": {"env": [f"SLICE={','.join(sorted(ids))}"]}}
            spec = {"cdiVersion": "0.6.0", "kind": "example.test/slice", "devices": [named]}
            (folders.cdi / "slice.json").write_text(json.dumps(spec))

        plugin.answer, plugin.pre_start = cdi_answer, write_spec
        env = [{"name": "SLICE", "value": "forged"}]
        main = container("main", "sh", "-c", "echo slice=$SLICE", limits=TWO, env=env)
        made = pod("one", containers=[main], restartPolicy="Never")
        board.put(made)
        await board.until_phase("one", "Succeeded")
    assert plugin.asked("allocate") == [["d0", "d1"]]
    assert plugin.asked("pre_start") == [["d0", "d1"]]
    assert folders.log_file(made, "main", 0).read_text() == "slice=d0,d1\n"


async def test_limits_go_to_the_cgroup_of_their_own_container(
    folders: Folders, board: PodBoard, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each start is given what its container may have of CPU and memory."""
    given: dict[str, Mapping[str, str]] = {}
    start = LocalProcesses.start

    def noted(self: LocalProcesses, launch: Launch) -> Process:
        given[launch.id.split(".")[-2]] = launch.bounds
        return start(self, launch)

    monkeypatch.setattr(LocalProcesses, "start", noted)
    containers = [container("main", "true", limits={"cpu": "500m"}), container("free", "true")]
    async with running(folders, board):
        board.put(pod("one", containers=containers, restartPolicy="Never"))
        await board.until_phase("one", "Succeeded")
    assert given == {"main": {"cpu.max": "50000 100000"}, "free": {}}


async def test_init_containers_run_before_and_hand_their_devices_on(folders: Folders, board: PodBoard) -> None:
    """Init, sidecar and app container run in their order; the app container has the init container's ids."""
    async with running(folders, board), plugin_on(folders, board, pre_start=True) as plugin:
        log = folders.root / "order"
        inits = [
            container("side", "sh", "-c", "sleep 1000", restartPolicy="Always"),
            container("init", "sh", "-c", f"echo init >>{log}", limits=TWO),
        ]
        main = container("main", "sh", "-c", f"echo main >>{log}", limits=TWO)
        board.put(pod("one", initContainers=inits, containers=[main], restartPolicy="Never"))
        status = await board.until_phase("one", "Succeeded")
    lines = log.read_text().split()
    assert lines.index("init") < lines.index("main")
    assert plugin.asked("pre_start") == [["d0", "d1"], ["d0", "d1"]]
    assert state_of(status, "side")["terminated"]["exitCode"] == 143


async def test_failed_allocate_fails_the_pod_for_good(folders: Folders, board: PodBoard) -> None:
    """The pod is Failed with UnexpectedAdmissionError and never starts; its devices are free for the next one."""
    async with running(folders, board), plugin_on(folders, board, count=2) as plugin:

        def refuse(_ids: list[str]) -> api.ContainerAllocateResponse:
            raise Refusal("no")

        plugin.answer = refuse
        board.put(pod("one", containers=[container("main", "true", limits=TWO)]))
        status = await board.until_phase("one", "Failed")
        assert status["reason"] == "UnexpectedAdmissionError"
        assert "Allocate of example.test/part failed: UNAVAILABLE: no" in status["message"]
        plugin.answer = lambda _: api.ContainerAllocateResponse()
        board.put(pod("two", containers=[container("main", "true", limits=TWO)], restartPolicy="Never"))
        await board.until_phase("two", "Succeeded")
    assert not list(folders.logs.glob("*one*"))


async def test_refused_pre_start_is_tried_again(folders: Folders, board: PodBoard) -> None:
    """The container waits with CreateContainerConfigError and the plugin's words, then starts; that is no restart."""
    async with running(folders, board), plugin_on(folders, board, pre_start=True) as plugin:
        allowed = asyncio.Event()

        async def refuse(_ids: list[str]) -> None:
            if not allowed.is_set():
                raise Refusal("the GPU is not ready")

        plugin.pre_start = refuse
        board.put(pod("one", containers=[container("main", "true", limits=TWO)], restartPolicy="Never"))
        waiting = await board.until("one", waits_for("CreateContainerConfigError"))
        assert "the GPU is not ready" in state_of(waiting)["waiting"]["message"]
        assert waiting["phase"] == "Pending"
        await plugin.until_called("pre_start", times=3)
        allowed.set()
        status = await board.until_phase("one", "Succeeded")
    assert status["containerStatuses"][0]["restartCount"] == 0
    assert len(plugin.asked("allocate")) == 1


async def test_restart_calls_pre_start_and_not_allocate(folders: Folders, board: PodBoard) -> None:
    """Each restart of a container is announced with the ids it holds; it is counted and its last end is kept."""
    async with running(folders, board), plugin_on(folders, board, pre_start=True) as plugin:
        script = f"echo x >>{folders.root}/runs; test $(wc -l <{folders.root}/runs) = 3"
        board.put(pod("one", containers=[container("main", "sh", "-c", script, limits=TWO)], restartPolicy="OnFailure"))
        status = await board.until_phase("one", "Succeeded")
    assert plugin.asked("pre_start") == [["d0", "d1"]] * 3
    assert len(plugin.asked("allocate")) == 1
    assert status["containerStatuses"][0]["restartCount"] == 2
    assert status["containerStatuses"][0]["lastState"]["terminated"]["exitCode"] == 1


@pytest.mark.parametrize(
    ("main", "reason", "words"),
    [
        ({"name": "main", "image": "cuda"}, "NoCommand", "its image 'cuda' is not pulled"),
        (container("main", "no-such-program"), "RunContainerError", "no program"),
        (container("main", "true", limits=TWO), "CreateContainerError", "no CDI spec names"),
    ],
)
async def test_container_that_cannot_start_says_why(
    folders: Folders, board: PodBoard, main: dict[str, Any], reason: str, words: str
) -> None:
    """The reason and the words are the container's waiting state, and told of the pod; it stays Pending."""
    told: list[tuple[str, str]] = []

    def warn(about: Pod, why: str) -> None:
        told.append((about.key, why))

    async with running(folders, board, warn=warn), plugin_on(folders, board) as plugin:
        plugin.answer = cdi_answer
        board.put(pod("one", containers=[main]))
        status = await board.until("one", waits_for(reason))
    assert told[0] == ("default/one", state_of(status)["waiting"]["message"])
    assert words in state_of(status)["waiting"]["message"]
    assert status["phase"] == "Pending"


async def test_deleted_pod_is_terminated_and_removed(
    folders: Folders, board: PodBoard, pipe: Callable[[str], Pipe]
) -> None:
    """SIGTERM first; the last status says how it ended, then the pod is removed and nothing of it is left."""
    ready = pipe("ready")
    async with running(folders, board), plugin_on(folders, board, count=2) as plugin:
        script = f"trap 'exit 3' TERM; echo >{ready}; while :; do sleep 0.01; done"
        made = pod("one", containers=[container("main", "sh", "-c", script, limits=TWO)])
        board.put(made)
        await ready.heard()
        board.delete("one", grace=30)
        await board.until_removed("one")
        board.put(pod("two", containers=[container("main", "true", limits=TWO)], restartPolicy="Never"))
        await board.until_phase("two", "Succeeded")
    status = board.statuses["uid-one"]
    assert (status["phase"], state_of(status)["terminated"]["exitCode"]) == ("Failed", 3)
    assert len(plugin.asked("allocate")) == 2
    assert not folders.pod_logs(made).exists()
    assert not (folders.containers / "uid-one").exists()


async def test_grace_ends_with_sigkill(folders: Folders, board: PodBoard, pipe: Callable[[str], Pipe]) -> None:
    """Who ignores SIGTERM is killed when its grace is over; a shorter grace given later counts at once."""
    ready = pipe("ready")
    async with running(folders, board):
        script = f"trap '' TERM; echo >{ready}; while :; do sleep 0.01; done"
        board.put(pod("one", containers=[container("main", "sh", "-c", script)]))
        await ready.heard()
        board.delete("one", grace=1000)
        await board.until("one", lambda status: "running" in state_of(status))
        board.delete("one", grace=0)
        await board.until_removed("one")
    assert state_of(board.statuses["uid-one"])["terminated"]["exitCode"] == 137


async def test_pod_forgotten_by_the_server_frees_its_devices_and_ends(
    folders: Folders, board: PodBoard, pipe: Callable[[str], Pipe]
) -> None:
    """After a forced deletion the ids are free at once, as with the kubelet, and the process is ended in its grace."""
    ready, ended = pipe("ready"), pipe("ended")
    async with running(folders, board), plugin_on(folders, board, count=2) as plugin:
        script = f"trap 'echo >{ended}; exit' TERM; echo >{ready}; while :; do sleep 0.01; done"
        board.put(pod("one", containers=[container("main", "sh", "-c", script, limits=TWO)]))
        await ready.heard()
        board.force_delete("one")
        board.put(pod("two", containers=[container("main", "true", limits=TWO)], restartPolicy="Never"))
        await board.until_phase("two", "Succeeded")
        await ended.heard()
        await asyncio.gather(*[task for task in asyncio.all_tasks() if task.get_name() == "pod default/one"])
        assert not (folders.containers / "uid-one").exists()
    assert plugin.asked("allocate") == [["d0", "d1"]] * 2
    assert board.removed == []


async def test_pod_resources_show_who_holds_what(folders: Folders, board: PodBoard) -> None:
    """Also from inside Allocate, where the pod being admitted is the one with nothing recorded yet."""
    seen: list[podresources_api.ListPodResourcesResponse] = []
    async with running(folders, board), plugin_on(folders, board, pre_start=True) as plugin:
        options = [("grpc.use_local_subchannel_pool", 1)]
        async with aio.insecure_channel(f"unix:{folders.pod_resources_socket}", options=options) as channel:
            stub: podresources_rpc.PodResourcesListerAsyncStub = podresources_rpc.PodResourcesListerStub(channel)

            async def look(_ids: list[str]) -> None:
                seen.append(await stub.List(podresources_api.ListPodResourcesRequest()))

            plugin.pre_start = look
            init = container("init", "true", limits={RESOURCE: "1"})
            board.put(pod("one", initContainers=[init], containers=[container("main", "sleep", "1000", limits=TWO)]))
            await board.until_phase("one", "Running")
            one = await stub.Get(podresources_api.GetPodResourcesRequest(pod_name="one", pod_namespace="default"))
            with pytest.raises(aio.AioRpcError, match="no pod default/two") as missing:
                await stub.Get(podresources_api.GetPodResourcesRequest(pod_name="two", pod_namespace="default"))
            everything = await stub.GetAllocatableResources(podresources_api.AllocatableResourcesRequest())
    assert missing.value.code() is grpc.StatusCode.UNKNOWN
    assert [entry.name for entry in one.pod_resources.containers] == ["main"]
    assert [list(held.device_ids) for held in one.pod_resources.containers[0].devices] == [["d0"], ["d1"]]
    assert seen[0].pod_resources[0] == one.pod_resources
    assert sorted(held.device_ids[0] for held in everything.devices) == ["d0", "d1", "d2", "d3"]


async def test_pod_resources_are_limited(folders: Folders, board: PodBoard) -> None:
    """Of more calls than the burst in one instant, the rest are turned away with RESOURCE_EXHAUSTED."""
    # Else a slow machine takes so long for the calls that all of them may pass.
    settings = msgspec.structs.replace(QUICK, pod_resources_rate=0.0)
    async with (
        running(folders, board, settings=settings),
        aio.insecure_channel(f"unix:{folders.pod_resources_socket}") as channel,
    ):
        stub: podresources_rpc.PodResourcesListerAsyncStub = podresources_rpc.PodResourcesListerStub(channel)
        calls = [stub.List(podresources_api.ListPodResourcesRequest()) for _ in range(60)]
        answers = await asyncio.gather(*calls, return_exceptions=True)
    refused = [answer for answer in answers if isinstance(answer, aio.AioRpcError)]
    assert len(answers) - len(refused) == settings.pod_resources_burst
    assert {error.code() for error in refused} == {grpc.StatusCode.RESOURCE_EXHAUSTED}


async def test_node_says_what_it_has(folders: Folders, board: PodBoard) -> None:
    """The node is created, Ready, with the plugin's devices, without sick ones; others' capacity is copied."""
    async with running(folders, board), plugin_on(folders, board) as plugin:
        await board.until_node(lambda status: status["allocatable"].get(RESOURCE) == "4")
        assert board.node
        capacity = {**board.node.status.capacity, "aliquot.dev/memory": "80k"}
        board.node = Node(metadata=board.node.metadata, status=NodeStatus(capacity=capacity))
        await plugin.change([device("d0"), device("d1", healthy=False)])
        status = await board.until_node(lambda status: status["allocatable"].get("aliquot.dev/memory") == "80k")
        status = await board.until_node(lambda status: status["allocatable"][RESOURCE] == "1")
    assert board.created_nodes[0]["metadata"]["name"] == "node"
    assert status["capacity"][RESOURCE] == "2"
    assert status["conditions"][0]["type"] == "Ready"


async def test_pod_beyond_the_nodes_amounts_is_refused(folders: Folders, board: PodBoard) -> None:
    """What somebody patched into capacity is enforced: OutOf with its name, though devices were given."""
    board.node = Node(status=NodeStatus(capacity={"aliquot.dev/memory": "8k"}))
    folders.checkpoint.write_bytes(checkpoint.encode([], {}))
    async with running(folders, board), plugin_on(folders, board, count=2):
        await board.until_node(lambda status: status["allocatable"].get("aliquot.dev/memory") == "8k")
        limits = {**TWO, "aliquot.dev/memory": "8001"}
        board.put(pod("one", containers=[container("main", "true", limits=limits)]))
        status = await board.until_phase("one", "Failed")
        board.put(pod("two", containers=[container("main", "true", limits=TWO)], restartPolicy="Never"))
        await board.until_phase("two", "Succeeded")
    assert status["reason"] == "OutOfaliquot.dev/memory"


async def test_health_of_devices_shows_on_the_pod(folders: Folders, board: PodBoard) -> None:
    """A device that turns sick is said on the status of the pod that holds it, and the pod goes on."""
    async with running(folders, board), plugin_on(folders, board, count=2) as plugin:
        board.put(pod("one", containers=[container("main", "sleep", "1000", limits=TWO)]))
        await board.until_phase("one", "Running")
        await plugin.change([device("d0"), device("d1", healthy=False)])
        status = await board.until(
            "one",
            lambda status: "Unhealthy" in str(status["containerStatuses"][0].get("allocatedResourcesStatus")),
        )
    assert status["phase"] == "Running"


async def test_pod_admitted_before_its_plugin_gets_devices_at_its_next_start(folders: Folders, board: PodBoard) -> None:
    """A name that no plugin had registered asks nothing at admission; once it has, a start makes up for it."""
    async with running(folders, board):
        script = container("main", "sh", "-c", 'test "$GOT" = yes', limits=TWO)
        board.put(pod("one", containers=[script], restartPolicy="OnFailure"))
        await board.until("one", lambda status: status["containerStatuses"][0]["restartCount"] > 0)
        async with plugin_on(folders, board, env={"GOT": "yes"}):
            status = await board.until_phase("one", "Succeeded")
    assert status["containerStatuses"][0]["restartCount"] > 0
