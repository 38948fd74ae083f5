"""Played nodes that have GPUs, for tests and measurements of scale: kube-scheduler and centre are real.

There is no kubelet and no agent: each node bears the inventory that its agent would publish, and a heart-beat that is
good for an hour.
"""

from __future__ import annotations

import http.client
import re
import ssl
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any

from aliquot_core.grant import Slice, decode_grant
from cluster.centre_half import NAMES, Replica
from cluster.harness.api import Json
from cluster.harness.cluster import ClusterHarness
from cluster.harness.controlplane import LOOPBACK
from cluster.harness.credentials import ADMIN
from cluster.harness.played import TOLERATED
from support.large_cluster import capacity, inventory_note, lease_manifest, pod_manifest

GATES = [{"name": NAMES.gate}]
_CALLERS = 4
# Seconds without a word after which a watch is asked for anew.
_SILENCE = 5.0
_VERSION = re.compile(rb'"resourceVersion":"(\d+)"')


def add_gpu_nodes(cluster: ClusterHarness, count: int, *, cards: int = 8) -> list[str]:
    """Add so many nodes; the namespace of the heart-beats must be there."""
    names = cluster.played_nodes.add(count, capacity(cards), notes=lambda name: inventory_note(name, cards=cards))
    for name in names:
        cluster.api.create(lease_manifest(name))
    return names


def sharing(name: str, namespace: str, *, compute: int, memory: int, gated: bool, **spec: Any) -> Json:
    """A pod for our scheduler and for played nodes, behind its gate as the webhook leaves it, or without one."""
    gates = {"schedulingGates": GATES} if gated else {}
    return pod_manifest(
        name, compute=compute, memory=memory, namespace=namespace, tolerations=TOLERATED, **gates, **spec
    )


def create_all(cluster: ClusterHarness, pods: Sequence[Json]) -> None:
    """Create them, a few at a time."""
    with ThreadPoolExecutor(_CALLERS) as pool:
        list(pool.map(cluster.create_pod, pods))


def delete_all(cluster: ClusterHarness, namespace: str) -> None:
    """Delete all pods of a namespace, and wait until they are gone."""
    path = f"/api/v1/namespaces/{namespace}/pods"
    pods = [f"{path}/{pod['metadata']['name']}" for pod in cluster.api.items(path)]
    with ThreadPoolExecutor(_CALLERS) as pool:
        # One by one: thousands in one request take longer than any client waits.
        list(pool.map(partial(cluster.api.delete, gracePeriodSeconds=0), pods))
    cluster.wait_for(f"no pods in {namespace}", lambda: not cluster.api.items(path, limit="1"), timeout=120)


def slices_by_gpu(cluster: ClusterHarness, namespace: str) -> dict[tuple[str, str], list[Slice]]:
    """What all pods of a namespace were granted, by node and GPU."""
    found: dict[tuple[str, str], list[Slice]] = {}
    for pod in cluster.api.items(f"/api/v1/namespaces/{namespace}/pods"):
        if text := pod["metadata"].get("annotations", {}).get(NAMES.grant):
            grant = decode_grant(text)
            for _, part in grant.slices():
                found.setdefault((grant.node, part.gpu), []).append(part)
    return found


def slices_per_gpu(cluster: ClusterHarness, namespace: str) -> dict[int, int]:
    """How many GPUs bear how many slices."""
    return dict(Counter(len(parts) for parts in slices_by_gpu(cluster, namespace).values()))


def free_gpus(replica: Replica) -> float:
    """How many GPUs' compute nobody holds, as the leader tells."""
    return replica.gauge("aliquot_centre_compute_free_gpus")


class BindingsSeen:
    """When the pods of a namespace were bound: a watch on those that are, which tells of each pod once."""

    def __init__(self, cluster: ClusterHarness, namespace: str) -> None:
        self._cluster = cluster
        self._path = f"/api/v1/namespaces/{namespace}/pods"
        # From now on: a watch from anywhere begins with what its cache holds, be it deleted by now.
        self._version = cluster.api.get(self._path, limit="1")["metadata"]["resourceVersion"]
        self._grew = threading.Condition()
        self._over = False
        self._connection = self._connected()
        self.times: list[float] = []

    def wait(self, count: int, *, seconds: float) -> bool:
        """Wait until so many are bound; whether they are."""
        with self._grew:
            return self._grew.wait_for(lambda: len(self.times) >= count, timeout=seconds)

    def read(self) -> None:
        """Note what comes until it is over; an API server short of time ends watches before."""
        while not self._over:
            try:
                self._read_on()
            except (http.client.HTTPException, OSError):
                # From the last version on nothing is missed, and nothing told twice.
                continue
            finally:
                self._connection.close()

    def stop(self) -> None:
        """Let the reader end, within `_SILENCE` at the most."""
        self._over = True
        # Closing alone would wait for the reader's lock.
        if (sock := self._connection.sock) is not None:
            with suppress(OSError):
                sock.shutdown(2)

    def _read_on(self) -> None:
        query = f"watch=1&timeoutSeconds=3600&fieldSelector=spec.nodeName%21%3D&resourceVersion={self._version}"
        headers = {"Authorization": f"Bearer {self._cluster.control_plane.credentials.tokens[ADMIN]}"}
        self._connection.request("GET", f"{self._path}?{query}", headers=headers)
        with self._connection.getresponse() as response:
            while line := response.readline():
                if line.startswith(b'{"type":"ADDED"'):
                    with self._grew:
                        self.times.append(time.monotonic())
                        self._grew.notify()
                if version := _VERSION.search(line):
                    self._version = version[1].decode()

    def _connected(self) -> http.client.HTTPSConnection:
        plane = self._cluster.control_plane
        context = ssl.create_default_context(cafile=str(plane.credentials.certificate))
        return http.client.HTTPSConnection(LOOPBACK, plane.port, context=context, timeout=_SILENCE)


@contextmanager
def bindings_seen(cluster: ClusterHarness, namespace: str) -> Iterator[BindingsSeen]:
    """Watch as long as the block lasts."""
    seen = BindingsSeen(cluster, namespace)
    reading = threading.Thread(target=seen.read)
    reading.start()
    try:
        yield seen
    finally:
        seen.stop()
        reading.join()
