"""The agent's settings; defaults are those of a node with an NVIDIA driver."""

from __future__ import annotations

import socket
from typing import Annotated

import msgspec

Seconds = Annotated[float, msgspec.Meta(gt=0)]


class AgentSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Section `[agent]`."""

    # The node's name in Kubernetes; in the DaemonSet it comes from the downward API.
    node_name: Annotated[str, msgspec.Meta(min_length=1, max_length=253)] = socket.gethostname()
    # Empty: the variable KUBECONFIG, else the service account of the pod; never a person's ~/.kube/config.
    kubeconfig: str = ""
    # "nvml", or GPUs that do not exist, such as "8xA100-80GB".
    gpus: str = "nvml"
    # Where the agent sees the node's own files: in a container they are mounted somewhere else.
    node_root: str = "/"
    # Where on the node the driver lies: "/", or "/run/nvidia/driver" where a container brings it.
    driver_root: str = "/"
    # "driver": the node's own files; "simulated": a mark instead, for GPUs that do not exist.
    driver_files: Annotated[str, msgspec.Meta(pattern="^(driver|simulated)$")] = "driver"
    # The door to the endpoint.
    door: str = "/run/aliquot/endpoint/door.sock"
    pod_resources: str = "/var/lib/kubelet/pod-resources/kubelet.sock"
    kubelet_record: str = "/var/lib/kubelet/device-plugins/kubelet_internal_checkpoint"
    cdi_folder: str = "/var/run/cdi"
    best_effort_slots: Annotated[int, msgspec.Meta(ge=1, le=1000)] = 32
    heartbeat: Seconds = 5.0
    # How long an agent that was told to stop waits for pods that are bound but not admitted; below the pod's own grace.
    drain: Seconds = 10.0
    # How often the GPUs are asked what they do; a driver has nothing new more often than every second or so.
    sample: Seconds = 10.0
    # Metrics and probes. The agent lives on the node's own network, where an open port is open to everybody who reaches
    # the node, and metrics name pods: so it is open to the node alone until an address is given. 0: any free port.
    http_address: str = "127.0.0.1"
    http_port: Annotated[int, msgspec.Meta(ge=0, le=65535)] = 10940
    # Specs of pods that are gone are collected so often.
    collect: Seconds = 60.0
