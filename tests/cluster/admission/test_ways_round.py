"""Ways round Aliquot on a real API server: devices and folders of a node that a pod takes without asking."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from cluster.guarded import Guarded, privileged
from cluster.harness.api import Api, Json
from cluster.harness.cluster import ClusterHarness
from cluster.harness.pods import BY_HAND, pod, shell
from cluster.installed import NAMES, binding
from cluster.refusals import annotated, expect_refused

# What a policy of Audit puts to a request in the API server's log.
AUDIT_ANNOTATION = "validation.policy.admission.k8s.io/validation_failure"


def mounts(path: str) -> Json:
    """Settings of a pod that mounts a path of its node."""
    return {"volumes": [{"name": "v", "hostPath": {"path": path}}]}


def mounting(at: str) -> Json:
    """A container that has a volume there."""
    return {**shell("true"), "volumeMounts": [{"name": "v", "mountPath": at}]}


def sees(value: str, **limits: str) -> Json:
    """A container that sets NVIDIA's variable."""
    named = {NAMES.of(short): amount for short, amount in limits.items()}
    return shell("true", env={"NVIDIA_VISIBLE_DEVICES": value}, limits=named)


def says(**variables: str) -> Json:
    """A container that sets variables."""
    return shell("true", env=variables)


def able(*capabilities: str) -> Json:
    """A container with more capabilities than others."""
    return {**shell("true"), "securityContext": {"capabilities": {"add": list(capabilities)}}}


ROUND: dict[str, Json] = {
    **{
        f"mounts {path}": mounts(path)
        for path in (
            *("/", "/dev", "/dev/", "//dev/./nvidia0", "/dev/nvidia0", "/dev/nvidia-caps/x", "/run", "/var", "/etc"),
            *("/var/run/cdi", "/run/cdi", "/run/cdi/x", "/etc/cdi", "/var/run", "/var/lib", "/var/lib/kubelet"),
            *("/var/lib/kubelet/device-plugins", "/run/nvidia/driver", "/run/aliquot", "/var/lib/aliquot/isolation"),
            *(
                "/dev/char",
                "/dev/char/195:0",
                "/run/containerd",
                "/run/containerd/containerd.sock",
                "/run/k3s/containerd",
            ),
            *(
                "/var/run/docker.sock",
                "/run/docker.sock",
                "/run/crio/crio.sock",
                "/proc",
                "/proc/1/root",
                "/sys/fs/cgroup",
            ),
            *("/dev/mem", "/dev/vfio/1", "/etc/kubernetes/manifests", "/opt/cni/bin", "/etc/containerd"),
            *("/var/lib/containerd", "/var/lib/docker/x", "/var/run/cri-dockerd.sock", "/run/podman/podman.sock"),
            *("/run/systemd/private", "/var/run/dbus", "/etc/systemd/system", "/var/lib/rancher/k3s"),
            *("/run/nri", "/var/run/nri/nri.sock", "/opt/nri/plugins", "/etc/nri/conf.d"),
            "/etc/nvidia-container-runtime/config.toml",
            *(
                "/run/k0s/containerd.sock",
                "/var/lib/k0s",
                "/var/snap/microk8s/common",
                "/var/snap",
                "/etc/docker/daemon.json",
            ),
            *("/dev/dri", "/dev/dri/renderD128"),
            *("/etc/crio/crio.conf.d", "/etc/containers/oci/hooks.d", "/usr/share/containers/oci/hooks.d"),
            *("/var/lib/containers/storage", "/etc/cni/net.d", "/etc/rancher", "/usr/lib/systemd/system"),
            *("/usr/libexec/kubernetes/kubelet-plugins/volume/exec", "/usr/libexec/oci", "/usr", "/lib/systemd"),
        )
    },
    **{
        f"is able to {'+'.join(names)}": {"containers": [able(*names)]}
        for names in (
            *(("ALL",), ("SYS_ADMIN",), ("NET_ADMIN", "SYS_ADMIN"), ("cap_sys_admin",)),
            *(("SYS_MODULE",), ("SYS_RAWIO",), ("DAC_READ_SEARCH",)),
        )
    },
    "has an init container that is able to ALL": {"initContainers": [{**able("ALL"), "name": "init"}]},
    "sees the processes of its node": {"hostPID": True},
    "shares memory with its node": {"hostIPC": True},
    "is privileged": {"containers": [privileged()]},
    "has a privileged init container": {"initContainers": [{**privileged(), "name": "init"}]},
    "sees all": {"containers": [sees("all")]},
    "sees one": {"containers": [sees("0")]},
    "sees what a field says": {
        "containers": [
            {
                **shell("true"),
                "env": [{"name": "NVIDIA_VISIBLE_DEVICES", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}],
            }
        ]
    },
    **{
        f"is run by {name}, with what its image says": {"runtimeClassName": name}
        for name in ("nvidia", "nvidia-cdi", "nvidia-legacy")
    },
    "is run by nvidia beside a container with a slice": {
        "runtimeClassName": "nvidia",
        "containers": [shell("true"), {**sees("all", compute="30"), "name": "slice"}],
    },
    "is run by nvidia in an init container": {
        "runtimeClassName": "nvidia",
        "containers": [sees("void")],
        "initContainers": [{**shell("true"), "name": "init"}],
    },
    "says CUDA_VERSION": {"containers": [says(CUDA_VERSION="11.0")]},
    "says CUDA_VERSION and what it needs": {"containers": [says(CUDA_VERSION="11.0", NVIDIA_REQUIRE_CUDA="cuda>=9")]},
    "says CUDA_VERSION in an init container": {"initContainers": [{**says(CUDA_VERSION="11.0"), "name": "init"}]},
    "says CUDA_VERSION by a field": {
        "containers": [
            {
                **shell("true"),
                "env": [{"name": "CUDA_VERSION", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}],
            }
        ]
    },
    "sees all beside a container with a slice": {
        "containers": [sees("all"), {**sees("all", compute="30"), "name": "slice"}]
    },
    **{
        f"mounts something at {at}": {"containers": [mounting(at)], "volumes": [{"name": "v", "emptyDir": {}}]}
        for at in ("/var/run/nvidia-container-devices/all", "/run//nvidia-container-devices/0")
    },
    **{
        f"names a device in {key}": {"metadata": {"annotations": {key: "nvidia.com/gpu=all"}}}
        for key in (
            *("cdi.k8s.io/gpu", "devices.nri.io/container.main", "cdi-devices.nri.io/pod"),
            *("io.kubernetes.cri-o.Devices", "io.kubernetes.cri-o.Devices/main"),
        )
    },
}
HARMLESS: dict[str, Json] = {
    **{
        f"mounts {path}": mounts(path)
        for path in (
            *("/data", "/device", "/dev/shm", "/var/log", "/var/lib/kubelets", "/run/cdix", "/var/run/user"),
            *("/dev/charm", "/run/containerds", "/process", "/system", "/run/docker"),
            *("/dev/memory", "/opt/data", "/etc/kubernetes.d", "/run/systemd-x", "/var/lib/dockers"),
            *(
                "/run/nrix",
                "/opt/nria",
                "/etc/nvidia-container-runtimes",
                "/run/k0sx",
                "/dev/drivers",
                "/var/snap/other",
            ),
        )
    },
    "is able to do what leads to no GPU": {"containers": [able("NET_ADMIN", "SYS_PTRACE", "IPC_LOCK")]},
    "is able among users of its own": {"containers": [able("SYS_ADMIN")], "hostUsers": False, "hostNetwork": False},
    "drops all": {"containers": [{**shell("true"), "securityContext": {"capabilities": {"drop": ["ALL"]}}}]},
    "mounts something elsewhere": {
        "containers": [mounting("/opt/nvidia-container-devices-of-mine")],
        "volumes": [{"name": "v", "emptyDir": {}}],
    },
    "mounts nothing of its node": {"volumes": [{"name": "v", "emptyDir": {}}]},
    "is not privileged": {"containers": [{**shell("true"), "securityContext": {"privileged": False}}]},
    "sees nothing": {"containers": [sees("void"), {**sees("none"), "name": "b"}, {**sees(""), "name": "c"}]},
    **{
        f"says CUDA_VERSION and sees {value or 'the empty name'}": {
            "containers": [says(CUDA_VERSION="11.0", NVIDIA_VISIBLE_DEVICES=value)]
        }
        for value in ("void", "none", "")
    },
    "is run by nvidia, and sees nothing": {"runtimeClassName": "nvidia", "containers": [sees("void")]},
    "is run by nvidia, with a slice": {"runtimeClassName": "nvidia", "containers": [sees("all", compute="30")]},
    "is run by another class": {"runtimeClassName": "sandboxed"},
    "says no CUDA_VERSION": {"containers": [says(CUDA_VERSION="")]},
    "says CUDA_VERSION with a slice": {
        "containers": [{**sees("void", compute="30"), "env": [{"name": "CUDA_VERSION", "value": "11.0"}]}]
    },
    "is able to make devices": {"containers": [able("MKNOD")]},
    "has a slice": {"containers": [sees("all", compute="30")]},
    "has other annotations": {
        "metadata": {
            "annotations": {"accidi.io/cdi": "x", "cdi": "x", "io.kubernetes.cri-o.userns-mode": "x", "nria.io/x": "x"}
        }
    },
}


def going_round(settings: Json, namespace: str) -> Json:
    """A pod with these settings of its spec, or of its metadata."""
    made = pod("round", shell("true"), namespace=namespace)
    made["metadata"] |= settings.get("metadata", {})
    made["spec"] |= {key: value for key, value in settings.items() if key != "metadata"}
    return made


DEVICE = {"cdi.k8s.io/gpu": "nvidia.com/gpu=all"}
# Each is given an API, a pod and its path, and writes metadata.
LATER: dict[str, Callable[[Api, Json, str, Json], object]] = {
    "pods": lambda api, _, path, meta: api.patch(path, {"metadata": meta}),
    "pods/status": lambda api, _, path, meta: api.patch(f"{path}/status", {"metadata": meta}),
    "pods/binding": lambda api, made, path, meta: api.post(f"{path}/binding", bound(made, meta)),
    "bindings": lambda api, made, path, meta: api.post(f"{path.rpartition('/pods/')[0]}/bindings", bound(made, meta)),
}


def bound(made: Json, meta: Json) -> Json:
    """A binding that writes metadata."""
    return binding(made, "node1", {}) | {"metadata": {"name": made["metadata"]["name"], **meta}}


@pytest.mark.parametrize("way", LATER)
def test_a_device_is_named_no_later_either(
    cluster: ClusterHarness, guarded: Guarded, denying: str, namespace: str, way: str
) -> None:
    """Containers are given what their pod says when they start; what others write is theirs."""
    made = cluster.create_pod(pod(f"later-{namespace}", shell("true"), namespace=denying, scheduler=BY_HAND))
    path = cluster.api.path_of(made)
    expect_refused(
        lambda: LATER[way](cluster.api, made, path, {"annotations": DEVICE}), by="annotations that name devices"
    )
    LATER[way](cluster.api, made, path, {"annotations": {"example.org/a": "b"}})
    assert cluster.api.get(path)["metadata"]["annotations"] == {"example.org/a": "b"}
    cluster.api.delete(path, gracePeriodSeconds=0)
    assert guarded.webhook.running


def test_who_is_there_already_can_still_be_worked_on(cluster: ClusterHarness, guarded: Guarded, namespace: str) -> None:
    """What a pod was let in with is not asked about again: it is labelled, and ended, though ways round are refused."""
    there = going_round(
        {"containers": [privileged()], "metadata": {"annotations": DEVICE}, **mounts("/dev")}, namespace
    )
    path = cluster.api.path_of(cluster.create_pod(there))
    cluster.api.patch(path, {"metadata": {"finalizers": ["a.b/c"]}})
    cluster.api.patch(f"/api/v1/namespaces/{namespace}", label("deny"))
    probe = going_round(ROUND["is privileged"], namespace)
    cluster.wait_for("the label to count", lambda: "aliquot-ways-round" in guarded.refusal(probe))
    cluster.api.patch(path, annotated({"example.org/a": "b"}))
    expect_refused(
        lambda: cluster.api.patch(path, annotated({"cdi.k8s.io/gpu": "nvidia.com/gpu=0"})), by="aliquot-ways-round"
    )
    cluster.api.patch(path, annotated({"cdi.k8s.io/gpu": None}))
    cluster.api.patch(f"{path}/status", {"status": {"phase": "Failed"}})
    cluster.api.patch(path, {"metadata": {"finalizers": None}})


# As nodes' administrators make them; "sandboxed" stands for any other.
RUNTIME_CLASSES = ("nvidia", "nvidia-cdi", "nvidia-legacy", "sandboxed")


@pytest.fixture(scope="module")
def denying(cluster: ClusterHarness, guarded: Guarded) -> str:
    """A namespace in which ways round are refused."""
    name = cluster.make_namespace()
    cluster.api.patch(f"/api/v1/namespaces/{name}", label("deny"))
    probe = going_round(ROUND["is privileged"], name)
    cluster.wait_for("the label to count", lambda: "aliquot-ways-round" in guarded.refusal(probe))
    for runtime in RUNTIME_CLASSES:
        # Pods that name one which is not there are refused by Kubernetes itself.
        kind = {"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": {"name": runtime}}
        cluster.apply({**kind, "handler": "runc"})
        run_by = going_round({"runtimeClassName": runtime, "containers": [sees("void")]}, name)
        cluster.wait_for(f"the class {runtime} to count", lambda run_by=run_by: guarded.refusal(run_by) == "")  # type: ignore[misc]
    return name


def label(value: str) -> Json:
    """What a namespace says of ways round."""
    return {"metadata": {"labels": {NAMES.of("ways-round"): value}}}


@pytest.mark.parametrize("row", ROUND)
def test_a_way_round_is_refused_where_so_labelled(guarded: Guarded, denying: str, row: str) -> None:
    """With what it is that goes round."""
    assert "aliquot-ways-round" in guarded.refusal(going_round(ROUND[row], denying))


@pytest.mark.parametrize("row", HARMLESS)
def test_what_leads_to_no_gpu_is_let_be(guarded: Guarded, denying: str, row: str) -> None:
    """Also where ways round are refused."""
    assert guarded.refusal(going_round(HARMLESS[row], denying)) == ""


def test_a_way_round_is_only_warned_of_elsewhere(guarded: Guarded, namespace: str) -> None:
    """The author reads all of it, and the pod comes in."""
    settings = {**mounts("/var/run/cdi"), "containers": [privileged()]}
    said = guarded.warnings(going_round(settings, namespace))
    assert len(said) == 2
    assert "mounts /run/cdi of its node" in said[0]
    assert "privileged containers have every GPU of their node: main" in said[1]


def test_what_is_warned_of_stands_in_the_audit_log(
    cluster: ClusterHarness, guarded: Guarded, namespace: str, audit_log: Path
) -> None:
    """With the policy's name and its message: an operator finds there who would be refused by Deny."""
    for settings in (ROUND["is privileged"], HARMLESS["mounts /data"]):
        guarded.tried(going_round(settings, namespace))

    def audited() -> list[Json]:
        """What came in to this namespace; a line is written as a whole."""
        lines = [json.loads(line) for line in audit_log.read_text().splitlines() if line.endswith("}")]
        return [line for line in lines if line["objectRef"].get("namespace") == namespace]

    cluster.wait_for("both to be written", lambda: len(audited()) == 2 or None)
    warned, harmless = (line.get("annotations", {}) for line in audited())
    (told,) = json.loads(warned[AUDIT_ANNOTATION])
    assert told["policy"] == "aliquot-ways-round"
    assert told["validationActions"] == ["Warn", "Audit"]
    assert "privileged containers have every GPU of their node" in told["message"]
    assert AUDIT_ANNOTATION not in harmless


def test_exempt_namespaces_and_the_system_s_own_go_round(
    cluster: ClusterHarness, guarded: Guarded, namespace: str
) -> None:
    """Drivers, exporters and storage plugins live there; a label does not make kube-system ours."""
    settings = ROUND["is privileged"]
    cluster.api.patch("/api/v1/namespaces/kube-system", label("deny"))
    # Labelled later, and seen later: when it counts, the other does too.
    cluster.api.patch(f"/api/v1/namespaces/{namespace}", label("allow"))
    cluster.wait_for("the label to count", lambda: not guarded.warnings(going_round(settings, namespace)) or None)
    assert guarded.warnings(going_round(settings, "kube-system")) == []


def test_an_ephemeral_container_goes_no_way_round(cluster: ClusterHarness, guarded: Guarded, denying: str) -> None:
    """What `kubectl debug` adds to a pod counts as well."""
    made = cluster.create_pod(pod("debugged", shell("true"), namespace=denying))
    path = f"{cluster.api.path_of(made)}/ephemeralcontainers"
    debug = {key: value for key, value in privileged().items() if key != "resources"} | {"name": "debug"}
    strategic = "application/strategic-merge-patch+json"
    patch = {"spec": {"ephemeralContainers": [debug]}}
    expect_refused(lambda: cluster.api.patch(path, patch, kind=strategic), by="aliquot-ways-round")
    capable = {
        "spec": {"ephemeralContainers": [{**debug, "securityContext": {"capabilities": {"add": ["SYS_ADMIN"]}}}]}
    }
    expect_refused(lambda: cluster.api.patch(path, capable, kind=strategic), by="with such capabilities")
    harmless = {"spec": {"ephemeralContainers": [{**debug, "securityContext": {"privileged": False}}]}}
    assert cluster.api.patch(path, harmless, kind=strategic)["spec"]["ephemeralContainers"]
    assert guarded.webhook.running
