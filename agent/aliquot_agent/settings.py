"""The agent's settings; defaults are those of a node with an NVIDIA driver."""

from __future__ import annotations

import re
import socket
from functools import partial
from typing import Annotated, Literal

import msgspec

from aliquot_agent.isolation.contexts import MOST, ContextOf, check_context, check_contexts, context_of
from aliquot_agent.isolation.offering import check_lines
from aliquot_core.settings import FilePath, MountedPath, Seconds, SocketPath, UnusableValueError, of_kind

NVML = "nvml"


# Kubernetes' rule for names of nodes.
_NODE_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")


def _check_node_name(name: str) -> None:
    if not _NODE_NAME.fullmatch(name):
        raise UnusableValueError("no node is called that", remedy="write the name that `kubectl get nodes` shows")


def _check_gpus(text: str) -> None:
    if text == NVML:
        return
    from aliquot_agent.gpus.spec import GpuSpecError, parse_gpu_spec  # noqa: PLC0415 - only where GPUs are simulated

    try:
        nodes = sum(group.nodes for group in parse_gpu_spec(text))
    except GpuSpecError as error:
        raise UnusableValueError(error.what, remedy=f'write "{NVML}", or GPUs to simulate ({error.remedy})') from error
    if nodes > 1:
        raise UnusableValueError(f"these are {nodes} nodes, an agent has one", remedy="leave the first number out")


class AgentSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Section `[agent]`."""

    # The node's name in Kubernetes; in the DaemonSet it comes from the downward API.
    node_name: Annotated[str, of_kind(_check_node_name)] = socket.gethostname().lower()
    # Empty: the variable KUBECONFIG, else the service account of the pod; never a person's ~/.kube/config.
    kubeconfig: str = ""
    # "nvml", or GPUs that do not exist, such as "8xA100-80GB".
    gpus: Annotated[str, of_kind(_check_gpus)] = NVML
    # Where the agent sees the node's own files: in a container they are mounted somewhere else.
    node_root: FilePath = "/"
    # Where on the node the driver lies: "/", or "/run/nvidia/driver" where a container brings it.
    driver_root: FilePath = "/"
    # "driver": the node's own files; "simulated": a mark instead, for GPUs that do not exist.
    driver_files: Literal["driver", "simulated"] = "driver"
    # "observe": use is measured, nothing is held back; "interposer": a library of ours in front of the driver's; "mps":
    # NVIDIA's MPS, by a daemon for each GPU that `aliquot mps` keeps.
    isolation: Literal["observe", "interposer", "mps"] = "observe"
    # Where single GPUs differ: lines such as "*L40S*=interposer" (model), "0=observe" (index), "GPU-4a1b*=observe"
    # (uuid); the first that names a GPU counts.
    isolation_of: Annotated[tuple[str, ...], of_kind(check_lines)] = ()
    # Whether containers see what CDI mounts for them. Under `aliquot up` they are processes that see the host's own
    # files, so there no library of ours stands in front of the driver's.
    mounts: bool = True
    # Its `libnvidia-ml.so.1`, by which tools in a container see its slice, lies beside it.
    interposer: FilePath = "/opt/aliquot/lib/libcuda.so.1"
    # Limits and accounts of containers, which mount them from here.
    isolation_folder: MountedPath = "/var/lib/aliquot/isolation"
    # How large the file system is that `aliquot agent --make-room` mounts there, in MiB, 0.3 for each container;
    # 0: none, and who enlarges an account takes room on the disk.
    accounts_mib: Annotated[int, msgspec.Meta(ge=0, le=1024)] = 64
    # Where the agent and `aliquot mps` meet, which containers mount from too: [mps] folder must be the same.
    mps_folder: MountedPath = "/run/aliquot/mps"
    # What a CUDA context takes on this node's GPUs, in MiB: measure it with `nvidia-smi` and an idle program.
    context_mib: Annotated[int, msgspec.Meta(ge=0, le=MOST), of_kind(check_context)] = 512
    # Where single GPUs differ: lines such as "*T4*=300", named as those of `isolation_of` are.
    context_mib_of: Annotated[tuple[str, ...], of_kind(check_contexts)] = ()
    # How far it goes with who uses more than granted: only noted (log, metric), warned (Event), throttled (no idle
    # compute; where the interposer holds the slice), given up for eviction (memory alone). In seconds, after how long:
    # each rung no sooner than the one below it.
    over_use: Literal["note", "warn", "throttle", "evict"] = "warn"
    over_use_warn: Seconds = 30.0
    over_use_throttle: Seconds = 60.0
    over_use_evict: Seconds = 120.0
    # Processes of pods that use a GPU without a grant: told of (Event, metric), or ended too (SIGTERM, then SIGKILL).
    ungranted: Literal["report", "stop"] = "report"
    # Namespaces whose pods are let be: those of the driver, of monitoring, and the like. Aliquot's own is too.
    ungranted_spared: tuple[str, ...] = ("kube-system", "gpu-operator", "nvidia-gpu-operator")
    # The door to the endpoint.
    door: SocketPath = "/run/aliquot/endpoint/door.sock"
    pod_resources: SocketPath = "/var/lib/kubelet/pod-resources/kubelet.sock"
    kubelet_record: FilePath = "/var/lib/kubelet/device-plugins/kubelet_internal_checkpoint"
    cdi_folder: FilePath = "/var/run/cdi"
    best_effort_slots: Annotated[int, msgspec.Meta(ge=1, le=1000)] = 32
    heartbeat: Seconds = 5.0
    # How long an agent that was told to stop waits for pods that are bound but not admitted; below the pod's own grace.
    drain: Seconds = 10.0
    # How often the GPUs are asked what they do; a driver has nothing new more often than every second or so.
    sample: Seconds = 10.0
    # Metrics and probes. The agent lives on the node's own network, where an open port is open to everybody who reaches
    # the node, and metrics name pods: so it is open to the node alone until an address is given. 0: any free port.
    http_address: Annotated[str, msgspec.Meta(min_length=1)] = "127.0.0.1"
    http_port: Annotated[int, msgspec.Meta(ge=0, le=65535)] = 10940
    # Specs of pods that are gone are collected so often.
    collect: Seconds = 60.0

    def __post_init__(self) -> None:
        """Refuse a ladder whose rungs do not rise: a pod would be evicted before it was warned."""
        if not self.over_use_warn <= self.over_use_throttle <= self.over_use_evict:
            times = f"{self.over_use_warn:g}, {self.over_use_throttle:g} and {self.over_use_evict:g} s"
            raise UnusableValueError(
                f"over_use_warn, over_use_throttle and over_use_evict do not rise: {times}",
                remedy="give each no less than the one before it",
            )

    def contexts(self) -> ContextOf:
        """What a CUDA context takes of each GPU."""
        return partial(context_of, lines=self.context_mib_of, otherwise=self.context_mib)

    def wants(self, mode: str) -> bool:
        """Whether some GPU of the node is to hold slices so."""
        return any(line.rpartition("=")[2] == mode for line in (self.isolation, *self.isolation_of))
