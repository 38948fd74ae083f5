"""The small kubelet's smaller pure parts: CDI, command lines, the fit of a pod, statuses, the limit of calls."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given

from aliquot_core.objects import Node, NodeStatus
from aliquot_standalone.kubelet import launch, nodestatus
from aliquot_standalone.kubelet.cdi import SpecFolder, resolve
from aliquot_standalone.kubelet.devices import Role, Totals
from aliquot_standalone.kubelet.errors import AdmissionError, CdiError, NoCommandError, SocketPathError
from aliquot_standalone.kubelet.lifecycle import Exited, Life, Process, Running, Waiting
from aliquot_standalone.kubelet.podresources import TokenBucket, listed_containers
from aliquot_standalone.kubelet.settings import Folders, Settings, grpc_address
from aliquot_standalone.kubelet.status import Report, pod_status
from support.pod_board import container, pod

KIND = "example.test/slice"


# --- CDI ----------------------------------------------------------------------------------------------------------
def write_spec(folder: Path, file: str, *devices: str, env: list[str] | None = None, **edits: Any) -> None:
    """A spec whose devices set their own name and those edits."""
    content = {
        "cdiVersion": "0.6.0",
        "kind": KIND,
        "containerEdits": {"env": env or []},
        "devices": [{"name": name, "containerEdits": {"env": [f"DEVICE={name}"], **edits}} for name in devices],
    }
    (folder / file).write_text(json.dumps(content))


def test_cdi_environment_wins_and_later_devices_win_over_earlier(tmp_path: Path) -> None:
    """A spec's common edits come once, before its first device's; the pod's own variables lose."""
    write_spec(tmp_path, "a.json", "one", "two", env=["COMMON=1", "DEVICE=common"])
    edits = resolve(SpecFolder(tmp_path).read(), [f"{KIND}=one", f"{KIND}=two", f"{KIND}=one"])
    assert edits.env == ["COMMON=1", "DEVICE=common", "DEVICE=one", "DEVICE=two"]
    assert edits.environment({"DEVICE": "pod", "OTHER": "x"}) == {"DEVICE": "two", "COMMON": "1", "OTHER": "x"}


def test_cdi_mounts_nodes_and_hooks_are_noted(tmp_path: Path) -> None:
    """What a process can't have is still known, to be said."""
    write_spec(
        tmp_path,
        "a.json",
        "one",
        mounts=[{"hostPath": "/h", "containerPath": "/c", "options": ["ro"]}],
        deviceNodes=[{"path": "/dev/nvidia0"}],
        hooks=[{"hookName": "createContainer", "path": "/bin/hook", "args": ["x"]}],
    )
    edits = resolve(SpecFolder(tmp_path).read(), [f"{KIND}=one"])
    assert [mount.container_path for mount in edits.mounts] == ["/c"]
    assert [node.path for node in edits.device_nodes] == ["/dev/nvidia0"]
    assert [hook.path for hook in edits.hooks] == ["/bin/hook"]


def test_a_variable_that_names_what_is_mounted_names_the_hosts(tmp_path: Path) -> None:
    """A process sees the host's own files, so what would lie there in a container is where it lies here."""
    mount = {"hostPath": "/run/host/pipe", "containerPath": "/inside"}
    write_spec(tmp_path, "a.json", "one", env=["PIPE=/inside", "OTHER=/inside/x"], mounts=[mount])
    edits = resolve(SpecFolder(tmp_path).read(), [f"{KIND}=one"])
    found = edits.environment({"POD": "/inside"})
    assert found == {"POD": "/inside", "PIPE": "/run/host/pipe", "OTHER": "/inside/x", "DEVICE": "one"}


def test_cdi_device_that_no_spec_names(tmp_path: Path) -> None:
    """The error names the device and the specs that could not be read."""
    (tmp_path / "broken.json").write_text("{")
    with pytest.raises(CdiError, match=r"slice=gone; broken.json can't be read"):
        resolve(SpecFolder(tmp_path).read(), [f"{KIND}=gone"])


def test_cdi_device_in_two_specs_is_refused(tmp_path: Path) -> None:
    """Two specs that name the same device contradict each other."""
    write_spec(tmp_path, "a.json", "one")
    write_spec(tmp_path, "b.json", "one")
    with pytest.raises(CdiError, match=r"a\.json, b\.json"):
        resolve(SpecFolder(tmp_path).read(), [f"{KIND}=one"])


def test_cdi_specs_are_seen_as_soon_as_they_change(tmp_path: Path) -> None:
    """A spec that was rewritten, added or removed shows at the next look."""
    folder = SpecFolder(tmp_path)
    write_spec(tmp_path, "a.json", "one")
    assert resolve(folder.read(), [f"{KIND}=one"]).env == ["DEVICE=one"]
    (tmp_path / "a.json").unlink()
    write_spec(tmp_path, "new", "one", env=["X=1"])
    (tmp_path / "new").rename(tmp_path / "a.json")
    assert resolve(folder.read(), [f"{KIND}=one"]).env == ["X=1", "DEVICE=one"]
    (tmp_path / "a.json").unlink()
    assert folder.read().by_file == {}


# --- command lines ------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("text", "expanded"),
    [
        ("$(A)", "1"),
        ("x$(A)y$(B)", "x1y2"),
        ("$(UNKNOWN)", "$(UNKNOWN)"),
        ("$$(A)", "$(A)"),
        ("$A ${A}", "$A ${A}"),
        ("$(A", "$(A"),
        ("$$$(A)", "$1"),
    ],
)
def test_references_are_expanded_as_kubernetes_does(text: str, expanded: str) -> None:
    """Only `$(NAME)` of a known name is replaced; `$$` escapes."""
    assert launch.expand(text, {"A": "1", "B": "2"}) == expanded


def test_pods_variables_win_over_plugins_and_see_earlier_ones() -> None:
    """Plugins' variables win over the node's, the pod's over the plugins', and a value may name an earlier one."""
    env = [{"name": "A", "value": "pod"}, {"name": "B", "value": "$(A)-$(P)"}]
    made = pod("one", containers=[container("main", "run", "$(B)", env=env)])
    main = made.spec.containers[0]
    values = launch.environment(made, main, base={"PATH": "/bin"}, plugins=[{"A": "plugin", "P": "p"}, {"P": "late"}])
    assert values == {"PATH": "/bin", "HOSTNAME": "one", "A": "pod", "P": "p", "B": "pod-p"}
    assert launch.argv(made, main, values) == ["run", "pod-p"]


def test_container_without_a_command_is_told_so() -> None:
    """An image's own command is not known here, since no image is pulled."""
    made = pod("one", containers=[container("main", image="pytorch")])
    with pytest.raises(NoCommandError, match="names no command, and its image 'pytorch' is not pulled"):
        launch.argv(made, made.spec.containers[0], {})


def test_long_socket_path_is_refused(tmp_path: Path) -> None:
    """The system would cut it off and listen elsewhere."""
    with pytest.raises(SocketPathError, match="at most 107"):
        grpc_address(Folders(root=tmp_path / ("x" * 100)).registration_socket)


# --- the node -----------------------------------------------------------------------------------------------------
NO_PLUGINS = Totals(capacity={}, allocatable={}, removed=frozenset())


def node(**capacity: str) -> Node:
    """A node with this capacity; `_` stands for `/`."""
    return Node(status=NodeStatus(capacity={key.replace("_", "/"): value for key, value in capacity.items()}))


def test_capacity_of_others_is_carried_over() -> None:
    """What somebody patched into capacity stays and is copied to allocatable; plugins' own amounts are kept apart."""
    totals = Totals(capacity={"a/compute": 200}, allocatable={"a/compute": 100}, removed=frozenset({"b/old"}))
    before = node(a_memory="80k", a_compute="5", b_old="7", cpu="1")
    status = nodestatus.node_status(before, totals, own={"cpu": "2"}, ready_since=0.0, now=0.0, reset=False)
    assert status["capacity"] == {"a/memory": "80k", "a/compute": "200", "b/old": "0", "cpu": "2"}
    assert status["allocatable"] == {"a/memory": "80k", "a/compute": "100", "b/old": "0", "cpu": "2"}


def test_node_made_anew_starts_with_nothing_of_others() -> None:
    """Without a checkpoint, extended resources of earlier are set to 0 once."""
    status = nodestatus.node_status(
        node(a_memory="80k", pods="9"), NO_PLUGINS, own={}, ready_since=0.0, now=0.0, reset=True
    )
    assert status["capacity"] == {"a/memory": "0", "pods": "9"}


def test_fit_counts_what_pods_have_at_once() -> None:
    """App containers and sidecars add up, or an ordinary init container and the sidecars before it, if that is more."""
    made = pod(
        "one",
        initContainers=[
            container("before", "x", limits={"a/m": "7"}),
            container("side", "x", limits={"a/m": "2"}, restartPolicy="Always"),
            container("after", "x", limits={"a/m": "6"}),
        ],
        containers=[
            container("main", "x", limits={"a/m": "1", "cpu": "500m"}),
            container("b", "x", limits={"a/m": "1"}),
        ],
    )
    counted = nodestatus.requests_of(made)
    assert {name: float(amount) for name, amount in counted.items()} == {"a/m": 8, "cpu": 0.5, "pods": 1}
    assert [need.role for need in nodestatus.needs_of(made)] == [Role.INIT, Role.SIDECAR, Role.INIT, Role.APP, Role.APP]


@pytest.mark.parametrize(
    ("asked", "allocatable", "held", "reason"),
    [
        ("6", {"a/m": "10"}, 0, "OutOfa/m"),
        ("5", {"a/m": "10"}, 0, None),
        ("99", {"b/m": "10"}, 0, None),
        ("5", {"a/m": "0"}, 10, None),
        ("1", {"pods": "1"}, 0, "OutOfpods"),
        ("1k", {"a/m": "1M"}, 0, None),
    ],
)
def test_fit_refuses_what_the_node_does_not_have(
    asked: str, allocatable: dict[str, str], held: int, reason: str | None
) -> None:
    """Names that the node lacks are not checked; devices given out already count as there."""
    other = pod("other", containers=[container("main", "x", limits={"a/m": "5"})])
    made = pod("one", containers=[container("main", "x", limits={"a/m": asked})])
    try:
        nodestatus.check_fit(made, others=[other], allocatable=allocatable, held={"a/m": held})
        found = None
    except AdmissionError as error:
        found = error.reason
    assert found == reason


# --- statuses -----------------------------------------------------------------------------------------------------
def status_of(life: Life, **spec: Any) -> dict[str, Any]:
    """The status of a pod with one container in this life."""
    made = pod("one", containers=[container("main", "x")], **spec)
    report = Report(pod=made, lives={"main": life}, started_at=0.0, now=100.0)
    return pod_status(report, devices_of=lambda _: {"a/c": [("d0", True), ("d1", False)]}, settings=Settings())


def test_status_of_a_running_pod() -> None:
    """Phase, conditions, container state and one health entry per device id, as a 1.36 kubelet writes them."""
    life = Life(state=Running(process=Process(id="p.0", pid=7, born="b"), since=50.0), starts=2)
    status = status_of(life)
    main = status["containerStatuses"][0]
    assert status["phase"] == "Running"
    assert {one["type"]: one["status"] for one in status["conditions"]} == {
        "PodReadyToStartContainers": "True",
        "Initialized": "True",
        "Ready": "True",
        "ContainersReady": "True",
    }
    assert main["state"] == {"running": {"startedAt": "1970-01-01T00:00:50Z"}}
    assert (main["restartCount"], main["containerID"], main["ready"]) == (1, "process://p.0", True)
    assert main["allocatedResourcesStatus"] == [
        {
            "name": "a/c",
            "resources": [{"resourceID": "d0", "health": "Healthy"}, {"resourceID": "d1", "health": "Unhealthy"}],
        }
    ]


def test_a_condition_keeps_the_time_that_was_said_of_it_last() -> None:
    """The pod may be older than what was written of it: two times that take turns would be written for ever."""
    life = Life(state=Running(process=Process(id="p.0", pid=7, born="b"), since=50.0), starts=1)
    behind = pod("one", containers=[container("main", "x")])
    said = {"Ready": ("True", "then"), "Initialized": ("False", "before")}
    report = Report(pod=behind, lives={"main": life}, started_at=0.0, now=100.0, said=said)
    status = pod_status(report, devices_of=lambda _: {}, settings=Settings())
    since = {one["type"]: one["lastTransitionTime"] for one in status["conditions"]}
    assert (since["Ready"], since["Initialized"]) == ("then", "1970-01-01T00:01:40Z")


@pytest.mark.parametrize(
    ("life", "state", "word"),
    [
        (
            Life(state=Waiting(reason="NoCommand", message="m")),
            {"waiting": {"reason": "NoCommand", "message": "m"}},
            None,
        ),
        (Life(), {"waiting": {"reason": "PodInitializing"}}, None),
    ],
)
def test_status_of_a_waiting_container(life: Life, state: dict[str, Any], word: str | None) -> None:
    """The reason of a refused start shows as the waiting reason, and the pod is Pending."""
    status = status_of(life)
    assert status["containerStatuses"][0]["state"] == state
    assert (status["phase"], status.get("reason")) == ("Pending", word)


@pytest.mark.parametrize(
    ("policy", "shown"), [("Always", "waiting"), ("OnFailure", "waiting"), ("Never", "terminated")]
)
def test_crash_loop_shows_until_the_next_start(policy: str, shown: str) -> None:
    """A container that has ended and waits for its next start is waiting; its end moves to the last state."""
    ended = Exited(id="p.1", since=80.0, until=95.0, code=9, reason="Error")
    main = status_of(Life(state=ended, starts=2, ends=2), restartPolicy=policy)["containerStatuses"][0]
    assert list(main["state"]) == [shown]
    if shown == "waiting":
        assert main["state"]["waiting"]["reason"] == "CrashLoopBackOff"
        assert main["lastState"]["terminated"]["exitCode"] == 9


# --- PodResources -------------------------------------------------------------------------------------------------
def test_ordinary_init_containers_are_not_listed() -> None:
    """PodResources names sidecars and app containers only."""
    inits = [container("init", "x"), container("side", "x", restartPolicy="Always")]
    made = pod("one", initContainers=inits, containers=[container("main", "x")])
    assert [one.name for one in listed_containers(made)] == ["side", "main"]


@given(st.lists(st.floats(min_value=0, max_value=0.5), max_size=60))
def test_limit_of_calls_holds_over_any_time(pauses: list[float]) -> None:
    """At most burst + rate x time calls pass, and one that waits long enough always passes."""
    bucket = TokenBucket(rate=10, burst=3, now=0.0)
    now, passed = 0.0, 0
    for pause in pauses:
        now += pause
        passed += bucket.take(now)
        assert passed <= 3 + 10 * now + 1e-6
    assert bucket.take(now + 0.2)


def test_limit_lets_the_burst_pass_at_once() -> None:
    """Ten calls in one instant pass, the eleventh does not."""
    bucket = TokenBucket(rate=100, burst=10, now=0.0)
    assert [bucket.take(0.0) for _ in range(11)] == [True] * 10 + [False]
