"""The small kubelet with a tiny plugin: pods come in, get devices, run as processes, are reported."""

from __future__ import annotations

import asyncio
import contextlib
import json
import shutil
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import grpc
import msgspec
import pytest
from grpc import aio

from aliquot_core.objects import Node, NodeStatus, Pod
from aliquot_kube.clock import SystemClock
from aliquot_proto import deviceplugin_v1beta1_pb2 as api
from aliquot_proto import podresources_v1_pb2 as podresources_api
from aliquot_proto import podresources_v1_pb2_grpc as podresources_rpc
from aliquot_standalone.kubelet import checkpoint
from aliquot_standalone.kubelet.containers import Launch, LocalProcesses, marked_at
from aliquot_standalone.kubelet.lifecycle import Life, Process, Starting
from aliquot_standalone.kubelet.memory import Memories
from aliquot_standalone.kubelet.settings import Folders, Settings
from support.kubelets import QUICK, RESOURCE, plugin_on, running, short_folders
from support.pipes import Pipe
from support.pod_board import PodBoard, container, pod
from support.tiny_plugin import Refusal, TinyPlugin, cdi_answer, device

TWO = {RESOURCE: "2"}
SETTLE = 7.0
PATIENCE = 1234.0


@pytest.fixture
def folders() -> Iterator[Folders]:
    """A root with a short path."""
    with short_folders() as made:
        yield made


@pytest.fixture
def board() -> PodBoard:
    """Where pods come from."""
    return PodBoard()


def state(status: dict[str, Any], name: str = "main") -> dict[str, Any]:
    """The state of one container in a pod's status."""
    statuses = [*status["initContainerStatuses"], *status["containerStatuses"]]
    found: dict[str, Any] = next(one["state"] for one in statuses if one["name"] == name)
    return found


def waits_for(reason: str) -> Any:
    """Whether the main container waits for this reason."""
    return lambda status: state(status).get("waiting", {}).get("reason") == reason


@pytest.fixture
def pipe(folders: Folders) -> Iterator[Callable[[str], Pipe]]:
    """Makes named pipes that a pod's process and the test meet at."""
    with contextlib.ExitStack() as stack:

        def make(name: str) -> Pipe:
            made = Pipe(folders.root / name)
            stack.callback(made.close)
            return made

        yield make


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
    assert state(status, "side")["terminated"]["exitCode"] == 143


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
        assert "the GPU is not ready" in state(waiting)["waiting"]["message"]
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
    assert told[0] == ("default/one", state(status)["waiting"]["message"])
    assert words in state(status)["waiting"]["message"]
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
    assert (status["phase"], state(status)["terminated"]["exitCode"]) == ("Failed", 3)
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
        await board.until("one", lambda status: "running" in state(status))
        board.delete("one", grace=0)
        await board.until_removed("one")
    assert state(board.statuses["uid-one"])["terminated"]["exitCode"] == 137


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
    """Of more calls than the burst in one instant, some are turned away with RESOURCE_EXHAUSTED."""
    async with running(folders, board), aio.insecure_channel(f"unix:{folders.pod_resources_socket}") as channel:
        stub: podresources_rpc.PodResourcesListerAsyncStub = podresources_rpc.PodResourcesListerStub(channel)
        calls = [stub.List(podresources_api.ListPodResourcesRequest()) for _ in range(60)]
        answers = await asyncio.gather(*calls, return_exceptions=True)
    refused = [answer for answer in answers if isinstance(answer, aio.AioRpcError)]
    assert 10 <= len(answers) - len(refused) < 60
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
            await board.until_phase("one", "Succeeded")


# --- a kubelet that starts again
async def test_running_pod_survives_a_kubelets_restart(
    folders: Folders, board: PodBoard, pipe: Callable[[str], Pipe]
) -> None:
    """The same process goes on, nobody is asked for devices again, and its end is seen by the new kubelet."""
    ready, go = pipe("ready"), pipe("go")
    async with plugin_after_start(folders, board) as plugin:
        script = f"echo >{ready}; read x <{go}; exit 6"
        main = container("main", "sh", "-c", script, limits=TWO)
        board.put(pod("one", containers=[main], restartPolicy="Never"))
        await ready.heard()
        before = await board.until_phase("one", "Running")
    async with running(folders, board):
        await plugin.register()
        after = await board.until_phase("one", "Running")
        go.tell()
        status = await board.until_phase("one", "Failed")
        await plugin.stop()
    assert before["containerStatuses"][0]["containerID"] == after["containerStatuses"][0]["containerID"]
    assert state(status)["terminated"]["exitCode"] == 6
    assert len(plugin.asked("allocate")) == 1


async def test_running_container_needs_no_plugin_after_a_restart(
    folders: Folders, board: PodBoard, pipe: Callable[[str], Pipe]
) -> None:
    """With the plugin away a running pod goes on; one that would have to start is failed for good."""
    ready, go = pipe("ready"), pipe("go")
    async with plugin_after_start(folders, board) as plugin:
        main = container("main", "sh", "-c", f"echo >{ready}; read x <{go}", limits=TWO)
        board.put(pod("one", containers=[main], restartPolicy="Never"))
        await ready.heard()
        await board.until_phase("one", "Running")
    await plugin.stop()
    board.put(pod("late", containers=[container("main", "true", limits=TWO)]))
    async with running(folders, board):
        late = await board.until_phase("late", "Failed")
        go.tell()
        await board.until_phase("one", "Succeeded")
    assert "has no healthy device" in late["message"]


async def test_process_that_ended_while_nobody_looked(
    folders: Folders, board: PodBoard, pipe: Callable[[str], Pipe]
) -> None:
    """Its exit code is known to the next kubelet; one whose leader vanished without a word is lost and said so."""
    ready, go = pipe("ready"), pipe("go")
    async with running(folders, board):
        main = container("main", "sh", "-c", f"echo >{ready}; read x <{go}; exit 4")
        board.put(pod("one", containers=[main], restartPolicy="Never"))
        await ready.heard()
        await board.until_phase("one", "Running")
    go.tell()
    async with running(folders, board):
        status = await board.until_phase("one", "Failed")
    assert state(status)["terminated"]["exitCode"] == 4


async def test_pod_deleted_while_the_kubelet_was_away_is_ended(
    folders: Folders, board: PodBoard, pipe: Callable[[str], Pipe]
) -> None:
    """A process whose pod is gone from the API server is terminated by the next kubelet."""
    ready, ended = pipe("ready"), pipe("ended")
    async with running(folders, board):
        script = f"trap 'echo >{ended}; exit' TERM; echo >{ready}; while :; do sleep 0.01; done"
        board.put(pod("one", containers=[container("main", "sh", "-c", script)]))
        await ready.heard()
        await board.until_phase("one", "Running")
    board.force_delete("one")
    board.history.clear()
    async with running(folders, board):
        await ended.heard()
        await asyncio.gather(*[task for task in asyncio.all_tasks() if task.get_name() == "pod default/one"])
    assert board.history == []
    assert not (folders.containers / "uid-one").exists()


async def test_pod_marked_for_deletion_while_the_kubelet_was_away_goes(
    folders: Folders, board: PodBoard, pipe: Callable[[str], Pipe]
) -> None:
    """A deletion that nobody carried out yet is carried out by the next kubelet."""
    ready = pipe("ready")
    async with running(folders, board):
        script = f"trap 'exit 0' TERM; echo >{ready}; while :; do sleep 0.01; done"
        board.put(pod("one", containers=[container("main", "sh", "-c", script)]))
        await ready.heard()
        await board.until_phase("one", "Running")
    board.delete("one", grace=30)
    async with running(folders, board):
        await board.until_removed("one")
    assert state(board.statuses["uid-one"])["terminated"]["exitCode"] == 0


async def test_start_under_way_when_the_kubelet_died_is_not_made_twice(
    folders: Folders, board: PodBoard, pipe: Callable[[str], Pipe]
) -> None:
    """A process that came to be after the last word in the memory is found by its mark and taken over."""
    ready, go = pipe("ready"), pipe("go")
    async with running(folders, board):
        script = f"echo x >>{folders.root}/runs; echo >{ready}; read x <{go}; exit 2"
        board.put(pod("one", containers=[container("main", "sh", "-c", script)], restartPolicy="Never"))
        await ready.heard()
        await board.until_phase("one", "Running")
    memories = Memories(folders.containers)
    memory = memories.read_all()["uid-one"]
    memories.write(msgspec.structs.replace(memory, lives={"main": Life(state=Starting())}))
    board.statuses.clear()
    async with running(folders, board):
        await board.until_phase("one", "Running")
        go.tell()
        status = await board.until_phase("one", "Failed")
    assert state(status)["terminated"]["exitCode"] == 2
    assert (folders.root / "runs").read_text() == "x\n"


async def test_refused_pod_stays_refused_after_a_restart(folders: Folders, board: PodBoard) -> None:
    """A pod that failed at its admission is Failed for ever, and nothing else is ever said of it."""
    async with running(folders, board), plugin_on(folders, board, count=1):
        board.put(pod("one", containers=[container("main", "true", limits=TWO)]))
        await board.until_phase("one", "Failed")
    async with running(folders, board), plugin_on(folders, board, count=2):
        board.put(pod("two", containers=[container("main", "true", limits=TWO)], restartPolicy="Never"))
        await board.until_phase("two", "Succeeded")
    assert {status["phase"] for uid, status in board.history if uid == "uid-one"} == {"Failed"}


async def test_pod_that_somebody_else_ended_is_stopped(
    folders: Folders, board: PodBoard, pipe: Callable[[str], Pipe]
) -> None:
    """A running pod whose phase is set to Failed from outside has its processes ended and stays Failed."""
    ready = pipe("ready")
    async with running(folders, board):
        script = f"trap 'exit 0' TERM; echo >{ready}; while :; do sleep 0.01; done"
        board.put(pod("one", containers=[container("main", "sh", "-c", script)]))
        await ready.heard()
        await board.until_phase("one", "Running")
        known = board.pods["uid-one"]
        board.put(msgspec.structs.replace(known, status=msgspec.structs.replace(known.status, phase="Failed")))
        status = await board.until("one", lambda status: "terminated" in state(status))
    assert (status["phase"], state(status)["terminated"]["exitCode"]) == ("Failed", 0)


async def test_ended_pod_stays_ended_after_a_restart(folders: Folders, board: PodBoard) -> None:
    """A pod that is Succeeded does not run again; deleted, it is removed."""
    async with running(folders, board):
        board.put(pod("one", containers=[container("main", "sh", "-c", "echo x >>runs")], restartPolicy="Never"))
        await board.until_phase("one", "Succeeded")
    async with running(folders, board):
        board.put(pod("two", containers=[container("main", "true")], restartPolicy="Never"))
        await board.until_phase("two", "Succeeded")
        assert (folders.containers / "uid-one" / "work" / "runs").read_text() == "x\n"
        board.delete("one", grace=30)
        await board.until_removed("one")


async def test_ended_pod_stays_ended_without_any_memory(folders: Folders, board: PodBoard) -> None:
    """The API server's word is enough: a kubelet that has lost its files does not run an ended pod again."""
    script = f"echo x >>{folders.root}/runs"
    async with running(folders, board):
        board.put(pod("one", containers=[container("main", "sh", "-c", script)], restartPolicy="Never"))
        await board.until_phase("one", "Succeeded")
    shutil.rmtree(folders.containers)
    async with running(folders, board):
        board.put(pod("two", containers=[container("main", "true")], restartPolicy="Never"))
        await board.until_phase("two", "Succeeded")
    assert (folders.root / "runs").read_text() == "x\n"


class _SettlesWhenTold(SystemClock):
    """The time that plugins have to register is over when the test says so."""

    def __init__(self) -> None:
        self.settled = asyncio.Event()

    async def sleep(self, seconds: float) -> None:
        """Sleep as long as asked, but for that one time."""
        if seconds == SETTLE:
            await self.settled.wait()
        else:
            await super().sleep(seconds)


async def test_plugins_have_a_second_before_pods_are_taken(folders: Folders, board: PodBoard) -> None:
    """Between kubelet.sock and the first admission there is time to register: a pod bound meanwhile runs."""
    board.put(pod("one", containers=[container("main", "true", limits=TWO)], restartPolicy="Never"))
    folders.checkpoint.write_bytes(checkpoint.encode([], {RESOURCE: []}))
    settings, clock = msgspec.structs.replace(QUICK, settle=SETTLE), _SettlesWhenTold()
    async with running(folders, board, settings=settings, clock=clock), plugin_on(folders, board):
        assert board.statuses == {}
        clock.settled.set()
        await board.until_phase("one", "Succeeded")


class _Hears(SystemClock):
    """Notes that somebody began to wait for so many seconds, and lets them pass when the test says so."""

    def __init__(self, seconds: float) -> None:
        self.begun, self.over = asyncio.Event(), asyncio.Event()
        self._seconds = seconds

    async def sleep(self, seconds: float) -> None:
        """Sleep as long as asked, but for that one wait, which the clock's own run has shortened a little."""
        if self._seconds - 10 < seconds <= self._seconds:
            self.begun.set()
            await self.over.wait()
            self._seconds = 0.0
        else:
            await super().sleep(seconds)

    def monotonic(self) -> float:
        """Time, with what the test has let pass."""
        return super().monotonic() + (PATIENCE if self.over.is_set() else 0.0)


@pytest.fixture
def patient() -> Settings:
    """Settings of a kubelet that waits for plugins to come back."""
    return msgspec.structs.replace(QUICK, plugin_patience=PATIENCE, node_status_every=3600.0)


def bind_three(board: PodBoard) -> None:
    """Pods that were bound while no kubelet was there, two of them for a plugin's devices."""
    board.put(pod("one", containers=[container("main", "true", limits=TWO)], restartPolicy="Never"))
    board.put(pod("two", containers=[container("main", "true", limits=TWO)], restartPolicy="Never"))
    board.put(pod("plain", containers=[container("main", "true")], restartPolicy="Never"))


async def test_pods_wait_for_a_plugin_that_is_to_come_back(
    folders: Folders, board: PodBoard, patient: Settings
) -> None:
    """However late it registers, pods that ask for its devices run; who asks for none does not wait for it."""
    bind_three(board)
    folders.checkpoint.write_bytes(checkpoint.encode([], {RESOURCE: [], "example.test/never-back": []}))
    clock = _Hears(PATIENCE)
    plugin = TinyPlugin(
        resource=RESOURCE,
        devices=[device(f"d{number}") for number in range(4)],
        folder=folders.device_plugins,
        socket="sub/tiny.sock",
    )
    async with running(folders, board, settings=patient, clock=clock):
        await clock.begun.wait()
        await board.until_phase("plain", "Succeeded")
        await board.until_node(lambda status: status["allocatable"].get(RESOURCE) == "0")
        assert set(board.statuses) == {"uid-plain"}
        await plugin.serve()
        await plugin.register()
        await board.until_phase("one", "Succeeded")
        await board.until_phase("two", "Succeeded")
        await plugin.stop()


async def test_nobody_waits_with_those_who_wait_for_a_plugin(
    folders: Folders, board: PodBoard, patient: Settings
) -> None:
    """Meanwhile pods come that need none, pods that wait are deleted, and others come to wait too."""
    bind_three(board)
    folders.checkpoint.write_bytes(checkpoint.encode([], {RESOURCE: []}))
    clock = _Hears(PATIENCE)
    plugin = TinyPlugin(
        resource=RESOURCE,
        devices=[device(f"d{number}") for number in range(2)],
        folder=folders.device_plugins,
        socket="sub/tiny.sock",
    )
    async with running(folders, board, settings=patient, clock=clock):
        await clock.begun.wait()
        board.put(pod("late", containers=[container("main", "true", limits=TWO)], restartPolicy="Never"))
        board.delete("two", grace=0)
        await board.until_removed("two")
        board.force_delete("one")
        board.put(pod("new", containers=[container("main", "true")], restartPolicy="Never"))
        await board.until_phase("new", "Succeeded")
        assert not board.statuses.keys() & {"uid-one", "uid-late"}
        await plugin.serve()
        await plugin.register()
        await board.until_phase("late", "Succeeded")
        await plugin.stop()
    assert "uid-one" not in board.statuses


@pytest.mark.parametrize("by_force", [True, False])
async def test_what_still_runs_of_a_pod_that_waits_ends_with_it(
    folders: Folders, board: PodBoard, pipe: Callable[[str], Pipe], patient: Settings, *, by_force: bool
) -> None:
    """It waits for the plugin of a container that has ended, and is deleted: no process of it is left."""
    ready = pipe("ready")
    async with plugin_after_start(folders, board) as plugin:
        goes_on = container("main", "sh", "-c", f"echo >{ready}; exec sleep 1000")
        over = container("over", "true", limits=TWO)
        board.put(pod("one", containers=[goes_on, over], restartPolicy="Never", terminationGracePeriodSeconds=0))
        await ready.heard()
        await board.until(
            "one", lambda status: any("terminated" in one["state"] for one in status["containerStatuses"])
        )
    await plugin.stop()
    clock = _Hears(PATIENCE)
    async with running(folders, board, settings=patient, clock=clock):
        await clock.begun.wait()
        assert marked_at(folders.place)
        if by_force:
            board.force_delete("one")
        else:
            board.delete("one", grace=0)
            await board.until_removed("one")
        async with asyncio.timeout(50):
            while marked_at(folders.place):  # noqa: ASYNC110 - a process that is nobody's child tells nobody of its end
                await asyncio.sleep(0.02)


async def test_running_pod_does_not_wait_for_its_plugin(
    folders: Folders, board: PodBoard, pipe: Callable[[str], Pipe], patient: Settings
) -> None:
    """A patient kubelet finds it again at once, though its plugin is away."""
    ready, go = pipe("ready"), pipe("go")
    async with plugin_after_start(folders, board) as plugin:
        main = container("main", "sh", "-c", f"echo >{ready}; read x <{go}", limits=TWO)
        board.put(pod("one", containers=[main], restartPolicy="Never"))
        await ready.heard()
        await board.until_phase("one", "Running")
    await plugin.stop()
    clock = _Hears(PATIENCE)
    async with running(folders, board, settings=patient, clock=clock):
        go.tell()
        await board.until_phase("one", "Succeeded")
    assert not clock.begun.is_set()


async def test_plugin_that_never_comes_back_is_not_waited_for_for_ever(
    folders: Folders, board: PodBoard, patient: Settings
) -> None:
    """When patience ends the pods that ask for its devices fail and say why."""
    bind_three(board)
    folders.checkpoint.write_bytes(checkpoint.encode([], {RESOURCE: []}))
    clock = _Hears(PATIENCE)
    async with running(folders, board, settings=patient, clock=clock):
        await clock.begun.wait()
        await board.until_phase("plain", "Succeeded")
        assert set(board.statuses) == {"uid-plain"}
        clock.over.set()
        status = await board.until_phase("one", "Failed")
    assert "has no healthy device" in status["message"]


async def test_resource_that_no_plugin_ever_had_is_not_waited_for(
    folders: Folders, board: PodBoard, patient: Settings
) -> None:
    """A patient kubelet starts a pod at once whose resource is in no checkpoint."""
    bind_three(board)
    clock = _Hears(PATIENCE)
    async with running(folders, board, settings=patient, clock=clock):
        await board.until_phase("one", "Succeeded")
    assert not clock.begun.is_set()


def plugin_after_start(folders: Folders, board: PodBoard) -> Any:
    """A kubelet for the length of the block, and a plugin that outlives it."""
    return _PluginAfterStart(folders, board)


class _PluginAfterStart:
    def __init__(self, folders: Folders, board: PodBoard) -> None:
        self._kubelet = running(folders, board)
        self._board = board
        devices = [device(f"d{number}") for number in range(2)]
        self._plugin = TinyPlugin(
            resource=RESOURCE, devices=devices, folder=folders.device_plugins, socket="sub/tiny.sock"
        )

    async def __aenter__(self) -> TinyPlugin:
        await self._kubelet.__aenter__()
        await self._plugin.serve()
        await self._plugin.register()
        await self._board.until_node(lambda status: status["allocatable"].get(RESOURCE) == "2")
        return self._plugin

    async def __aexit__(self, *error: object) -> None:
        await self._kubelet.__aexit__(None, None, None)
