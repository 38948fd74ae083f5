"""The settings of a node's containerd and kubelet."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cluster.harness.images import PAUSE_IMAGE

# On the node: pods whose manifests lie here run without anybody's leave.
STATIC_PODS = "/var/lib/kubelet/static-pods"
CONTAINERD_SOCKET = "run/containerd/containerd.sock"

# `restrict_oom_score_adj`: the machine may lack CAP_SYS_RESOURCE. The opt plugin would make /opt/containerd.
CONTAINERD = """\
version = 3
disabled_plugins = ["io.containerd.nri.v1.nri"]

[plugins.'io.containerd.internal.v1.opt']
  path = '{folder}/opt'
[plugins.'io.containerd.cri.v1.images'.pinned_images]
  sandbox = '{pause}'
[plugins.'io.containerd.cri.v1.runtime']
  enable_cdi = true
  restrict_oom_score_adj = true
  [plugins.'io.containerd.cri.v1.runtime'.cni]
    bin_dirs = ['{folder}/cni']
    conf_dir = '{folder}/cni'
"""

# containerd calls a node without any network not ready. Our pods use the host's, so no plugin is ever run.
NETWORK = {"cniVersion": "1.0.0", "name": "none", "plugins": [{"type": "loopback"}]}


def write_containerd(folder: Path) -> Path:
    """Write containerd's configuration for the node in this folder."""
    (folder / "cni").mkdir(exist_ok=True)
    (folder / "cni" / "10-none.conflist").write_text(json.dumps(NETWORK))
    config = folder / "containerd.toml"
    config.write_text(CONTAINERD.format(folder=folder, pause=PAUSE_IMAGE))
    return config


def write_kubelet(folder: Path, *, port: int, healthz_port: int, changes: Mapping[str, Any]) -> Path:
    """Write the kubelet's configuration for the node in this folder; `changes` win."""
    (folder / "resolv.conf").touch()
    (folder / STATIC_PODS.lstrip("/")).mkdir(parents=True, exist_ok=True)
    settings = {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "address": "127.0.0.1",
        "port": port,
        "healthzPort": healthz_port,
        "containerRuntimeEndpoint": "unix:///run/containerd/containerd.sock",
        "resolvConf": str(folder / "resolv.conf"),
        "registerNode": True,
        "staticPodPath": STATIC_PODS,
        # Several kubelets share one machine: none of them may rule its cgroups, and each must live with swap and v1.
        "cgroupDriver": "cgroupfs",
        "cgroupsPerQOS": False,
        "enforceNodeAllocatable": [],
        "failCgroupV1": False,
        "failSwapOn": False,
        "localStorageCapacityIsolation": False,
        # A machine that is full for reasons of its own must not evict our pods or remove the only copy of an image.
        "evictionHard": dict.fromkeys(("memory.available", "nodefs.available", "imagefs.available"), "0%"),
        "imageGCHighThresholdPercent": 100,
        "maxPods": 250,
        # Tests wait for what the node says; after the usual 10 s they would mostly wait for that.
        "nodeStatusUpdateFrequency": "1s",
        **changes,
    }
    config = folder / "kubelet.json"
    config.write_text(json.dumps(settings, indent=1))
    return config
