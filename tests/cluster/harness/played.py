"""Nodes that are only played: kwok says of them, and of the pods on them, what a kubelet would say.

For tests of scale: five hundred of these cost less than one real node. They have no files, so nothing that reads a
node's files can be tested on them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from cluster.harness import binaries
from cluster.harness.api import Api, Json
from cluster.harness.component import Component, answers
from cluster.harness.leftovers import MARK
from cluster.harness.node import says_ready
from cluster.harness.ports import free_port
from cluster.harness.waiting import PATIENCE_SECONDS, wait_until

PLAYED = "aliquot.test/played"  # the label of a played node, and the taint that keeps other tests' pods off it
TOLERATED = [{"key": PLAYED, "operator": "Exists"}]
LEASE_SECONDS = 40  # the kubelet's

# kwok's own templates: what a status becomes is text in which only `{{ }}` is filled in.
NODE_IS_READY = """
conditions:
- type: Ready
  status: "True"
  reason: Played
  lastHeartbeatTime: {{ Now | Quote }}
  lastTransitionTime: {{ Now | Quote }}
"""
POD_RUNS = """
phase: Running
startTime: {{ Now | Quote }}
conditions:
{{ range $type := list "Initialized" "ContainersReady" "Ready" }}
- {type: {{ $type }}, status: "True", lastTransitionTime: {{ Now | Quote }}}
{{ end }}
containerStatuses:
{{ range .spec.containers }}
- name: {{ .name | Quote }}
  image: {{ .image | Quote }}
  imageID: ""
  ready: true
  restartCount: 0
  state: {running: {startedAt: {{ Now | Quote }}}}
{{ end }}
"""


def _stage(name: str, kind: str, when: list[Json], then: Json) -> Json:
    return {
        "apiVersion": "kwok.x-k8s.io/v1alpha1",
        "kind": "Stage",
        "metadata": {"name": name},
        "spec": {
            "resourceRef": {"apiGroup": "v1", "kind": kind},
            "selector": {"matchExpressions": when},
            "next": then,
        },
    }


def _is(key: str, operator: str, *values: str) -> Json:
    return {"key": key, "operator": operator, **({"values": list(values)} if values else {})}


def stages(*, pods_run_after: float) -> list[Json]:
    """What is played: nodes become ready, pods run after so many seconds, and go when they are deleted."""
    runs = _stage(
        "pod-runs",
        "Pod",
        [_is(".metadata.deletionTimestamp", "DoesNotExist"), _is(".status.phase", "In", "Pending")],
        {"statusTemplate": POD_RUNS},
    )
    runs["spec"]["delay"] = {"durationMilliseconds": round(pods_run_after * 1000)}
    return [
        _stage(
            "node-is-ready",
            "Node",
            [_is('.status.conditions.[] | select( .type == "Ready" ) | .status', "NotIn", "True")],
            {"statusTemplate": NODE_IS_READY},
        ),
        runs,
        _stage(
            "pod-goes",
            "Pod",
            [_is(".metadata.deletionTimestamp", "Exists")],
            {"finalizers": {"empty": True}, "delete": True},
        ),
    ]


class PlayedNodes:
    """The played nodes of a cluster; their player is started with the first of them."""

    def __init__(self, *, folder: Path, api: Api, kubeconfig: Path, pods_run_after: float = 0.0) -> None:
        self.names: list[str] = []
        self._api = api
        self._player = _player(folder, kubeconfig, pods_run_after=pods_run_after)

    def add(
        self,
        count: int,
        capacity: Mapping[str, Any] | Callable[[str], Mapping[str, Any]] | None = None,
        *,
        notes: Callable[[str], Mapping[str, str]] = lambda _: {},
    ) -> list[str]:
        """Add nodes; they are tainted, so that only pods that tolerate them (`TOLERATED`) come there.

        `notes` are the annotations of the node of that name; its capacity may hang on that too.
        """
        if not self._player.running:
            self._player.start()
            self._player.wait_ready()
        new = [f"played{number}" for number in range(len(self.names), len(self.names) + count)]
        self.names.extend(new)
        for name in new:
            has = capacity(name) if callable(capacity) else capacity or {}
            self._api.create(_played_node(name, has, notes(name)))
        wait_until(
            f"{count} played nodes to be ready",
            lambda: self._are_ready(new),
            timeout=PATIENCE_SECONDS,
            explain=self._player.tail,
        )
        return new

    def remove(self) -> None:
        """Take them all out of the cluster, with their pods, which nobody else would end."""
        for name in self.names:
            for pod in self._api.items("/api/v1/pods", fieldSelector=f"spec.nodeName={name}"):
                self._api.delete(self._api.path_of({"apiVersion": "v1", "kind": "Pod", **pod}), gracePeriodSeconds=0)
            self._api.delete(f"/api/v1/nodes/{name}")
        self.names.clear()
        self.stop()

    def stop(self) -> None:
        """End the player."""
        self._player.stop()

    def _are_ready(self, names: list[str]) -> bool:
        found = self._api.items("/api/v1/nodes", labelSelector=PLAYED)
        return {node["metadata"]["name"] for node in found if says_ready(node)} >= set(names)


def _player(folder: Path, kubeconfig: Path, *, pods_run_after: float) -> Component:
    """The kwok process that plays every node labelled as played, where kwok is built."""
    written = folder / "stages.yaml"
    written.write_text("\n---\n".join(json.dumps(stage) for stage in stages(pods_run_after=pods_run_after)))
    port = free_port()
    argv = [
        str(binaries.folder_of("kwok") / "kwok"),
        f"--config={written}",
        f"--kubeconfig={kubeconfig}",
        f"--manage-nodes-with-label-selector={PLAYED}",
        f"--node-lease-duration-seconds={LEASE_SECONDS}",
        f"--server-address=127.0.0.1:{port}",
    ]
    return Component(
        name="kwok",
        argv=argv,
        log=folder / "logs" / "kwok.log",
        ready=lambda: answers(f"http://127.0.0.1:{port}/healthz"),
        env={MARK: str(folder)},
    )


def _played_node(name: str, capacity: Mapping[str, Any], notes: Mapping[str, str]) -> Json:
    """A played node with this capacity, all of it allocatable."""
    amounts = {"cpu": "64", "memory": "512Gi", "pods": "250", **capacity}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {PLAYED: "", "kubernetes.io/hostname": name}, "annotations": notes},
        "spec": {"taints": [{"key": PLAYED, "effect": "NoSchedule"}]},
        "status": {"capacity": amounts, "allocatable": amounts},
    }
