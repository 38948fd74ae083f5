"""The whole cluster: start it, speak to it, wait for things in it, stop it."""

from __future__ import annotations

import secrets
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Self, TypeVar

from cluster.harness import leftovers
from cluster.harness.api import Api, Json
from cluster.harness.controlplane import ControlPlane
from cluster.harness.credentials import Credentials
from cluster.harness.errors import HarnessError
from cluster.harness.images import Image, busybox_image, pause_image
from cluster.harness.node import Node, says_ready
from cluster.harness.played import PlayedNodes
from cluster.harness.pods import has_ended, read_log
from cluster.harness.waiting import PATIENCE_SECONDS, wait_until

T = TypeVar("T")

# Tokens are fixed when the API server starts: nodes that a test adds later take their names from here.
SPARE_NODES = tuple(f"node{number}" for number in range(1, 10))
ENDED = ("Succeeded", "Failed")


@dataclass(frozen=True, kw_only=True)
class Options:
    """What can be different from cluster to cluster."""

    nodes: Sequence[str] = ("node1", "node2")
    kubelet: Mapping[str, Any] = field(default_factory=dict)
    scheduler: Mapping[str, Any] = field(default_factory=dict)
    api_server_flags: Sequence[str] = ()
    # Seconds from a pod's binding to a played node until it is said to run.
    played_pods_run_after: float = 0.0


class ClusterHarness:
    """A running cluster inside a `with` block."""

    def __init__(self, options: Options | None = None) -> None:
        self.options = options or Options()
        self.nodes: dict[str, Node] = {}
        self.archives: list[Path] = []

    def __enter__(self) -> Self:
        for folder in leftovers.abandoned_folders():
            leftovers.sweep(folder)
        self.folder, self._owner = leftovers.make_folder()
        self._guardian = leftovers.start_guardian(self.folder)
        try:
            self._start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _start(self) -> None:
        (self.folder / "logs").mkdir()
        names = dict.fromkeys((*self.options.nodes, *SPARE_NODES))
        self.credentials = Credentials(folder=self.folder / "credentials", node_names=names)
        self.control_plane = ControlPlane(
            folder=self.folder,
            credentials=self.credentials,
            api_server_flags=self.options.api_server_flags,
            scheduler_config=self.options.scheduler,
        )
        self.api: Api = self.control_plane.api
        self.played_nodes = PlayedNodes(
            folder=self.folder,
            api=self.api,
            kubeconfig=self.kubeconfig(),
            pods_run_after=self.options.played_pods_run_after,
        )
        self.archives = [self._archive(image) for image in (pause_image(), busybox_image())]
        nodes = [self._make_node(name) for name in self.options.nodes]
        with ThreadPoolExecutor() as pool:
            preparing = [pool.submit(node.start, self.archives) for node in nodes]
            self.control_plane.start()
            self.control_plane.wait_ready()
            for prepared in preparing:
                prepared.result()
        for node in nodes:
            node.start_kubelet()
        for node in nodes:
            self._wait_ready(node)

    def stop(self) -> None:
        """Stop all of it and leave nothing behind, however far it had come."""
        for node in self.nodes.values():
            node.kubelet.stop()
        for node in self.nodes.values():
            node.stop()
        if hasattr(self, "control_plane"):
            self.played_nodes.stop()
            self.control_plane.stop()
        leftovers.sweep(self.folder)
        self._guardian.communicate()  # closes its pipe, and it finds nothing left to do
        self._owner.close()

    # -- nodes -------------------------------------------------------------------------------------------------

    def node(self, name: str) -> Node:
        """A node by its name."""
        return self.nodes[name]

    def add_node(self, name: str, **kubelet: Any) -> Node:
        """Start one more node, with these kubelet settings on top, and wait until it is ready."""
        if name not in SPARE_NODES:
            raise HarnessError(f"{name} has no token; take one of {', '.join(SPARE_NODES)}")
        node = self._make_node(name, **kubelet)
        node.start(self.archives)
        node.start_kubelet()
        self._wait_ready(node)
        return node

    def remove_node(self, name: str) -> None:
        """Stop a node and take it, and what is recorded of it, out of the cluster."""
        node = self.nodes.pop(name)
        node.stop()
        shutil.rmtree(node.folder)
        self.api.delete(f"/api/v1/nodes/{name}")

    def add_image(self, image: Image) -> None:
        """Make an image known to every node, also to those that come later."""
        archive = self._archive(image)
        self.archives.append(archive)
        with ThreadPoolExecutor() as pool:
            for imported in [pool.submit(node.import_image, archive) for node in self.nodes.values()]:
                imported.result()

    def _archive(self, image: Image) -> Path:
        archive = self.folder / f"image-{len(list(self.folder.glob('image-*')))}.tar"
        image.write(archive)
        return archive

    def _make_node(self, name: str, **kubelet: Any) -> Node:
        folder = self.folder / leftovers.NODES / name
        folder.mkdir(parents=True)
        self.nodes[name] = Node(
            name=name,
            folder=folder,
            kubeconfig=self.kubeconfig(f"system:node:{name}"),
            kubelet_settings={**self.options.kubelet, **kubelet},
        )
        return self.nodes[name]

    def _wait_ready(self, node: Node) -> None:
        node.kubelet.wait_ready()
        self.wait_for(f"{node.name} to be ready and untainted", lambda: self.node_is_ready(node.name))

    def node_is_ready(self, name: str) -> bool:
        """Whether the node says Ready and nothing keeps pods away."""
        node = self.api.find(f"/api/v1/nodes/{name}")
        return node is not None and says_ready(node) and not node["spec"].get("taints")

    # -- objects -----------------------------------------------------------------------------------------------

    def apply(self, obj: Mapping[str, Any]) -> Json:
        """Create or change any object."""
        return self.api.apply(obj)

    def create_pod(self, pod: Mapping[str, Any]) -> Json:
        """Create a pod."""
        return self.api.create(pod)

    def bind(self, pod: Mapping[str, Any], node: str, annotations: Mapping[str, str] | None = None) -> None:
        """Bind a pod to a node as a scheduler does, with annotations in the same write."""
        metadata = {"name": pod["metadata"]["name"], "annotations": dict(annotations or {})}
        target = {"apiVersion": "v1", "kind": "Node", "name": node}
        body = {"apiVersion": "v1", "kind": "Binding", "metadata": metadata, "target": target}
        self.api.post(f"{self.api.path_of(pod)}/binding", body)

    def current(self, obj: Mapping[str, Any]) -> Json:
        """The object as it is now."""
        return self.api.get(self.api.path_of(obj))

    def delete(self, obj: Mapping[str, Any], *, timeout: float = PATIENCE_SECONDS, **options: Any) -> None:
        """Delete an object and wait until it is gone."""
        path, uid = self.api.path_of(obj), obj["metadata"].get("uid")
        self.api.delete(path, **options)

        def gone() -> bool:
            now = self.api.find(path)
            return now is None or (uid is not None and now["metadata"]["uid"] != uid)

        self.wait_for(f"{path} to be gone", gone, timeout=timeout)

    def make_namespace(self, prefix: str = "test") -> str:
        """Make a namespace in which pods can be created."""
        name = f"{prefix}-{secrets.token_hex(3)}"
        self.api.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
        # Pods are refused before the controller manager has made these two.
        for made in ("serviceaccounts/default", "configmaps/kube-root-ca.crt"):
            path = f"/api/v1/namespaces/{name}/{made}"
            self.wait_for(path, partial(self.api.find, path))
        return name

    @contextmanager
    def namespace(self, prefix: str = "test") -> Iterator[str]:
        """Lend a namespace; at the end its pods are gone, so that no node goes on running them."""
        name = self.make_namespace(prefix)
        try:
            yield name
        finally:
            path = f"/api/v1/namespaces/{name}"
            self.api.delete(f"{path}/pods", gracePeriodSeconds=1)
            self.wait_for(f"the pods of {name} to be gone", lambda: not self.api.items(f"{path}/pods"))
            self.api.delete(path)

    def wait_for_phase(self, pod: Mapping[str, Any], *phases: str, timeout: float = PATIENCE_SECONDS) -> Json:
        """Wait until the pod is in one of the phases and return it; ending otherwise is told at once."""
        path = self.api.path_of(pod)

        def reached() -> Json | None:
            now = self.api.get(path)
            phase = now["status"].get("phase")
            return now if phase in phases or phase in ENDED else None

        now = self.wait_for(f"{path} to be {' or '.join(phases)}", reached, timeout=timeout)
        if now["status"]["phase"] not in phases:
            raise HarnessError(f"{path} is {now['status']['phase']}, not {' or '.join(phases)}: {now['status']}")
        return now

    def logs(self, pod: Mapping[str, Any], container: str = "main") -> str:
        """What the container's latest run has printed, read on its node (no API server can reach a kubelet here).

        That a container runs does not say that it has spoken: `logs` is for those that have ended. What one printed is
        written beside its end, and on a busy machine after it: until that is done, it is waited for.
        """
        now = self.current(pod)
        metadata, node = now["metadata"], self.nodes[now["spec"]["nodeName"]]
        folder = f"pods/{metadata['namespace']}_{metadata['name']}_{metadata['uid']}/{container}"
        if has_ended(now, container):
            self.wait_for(f"all to be written that {container} printed", lambda: not node.still_logs(folder))
        return read_log(node.path(f"/var/log/{folder}"))

    def first_words(self, pod: Mapping[str, Any], container: str = "main") -> str:
        """Wait for the first whole line of a container that has only just been started, and return it."""

        def whole_line() -> str | None:
            line, end, _rest = self.logs(pod, container).partition("\n")
            return line + end if end else None

        return self.wait_for(f"{container} of {pod['metadata']['name']} to say something", whole_line)

    def exec(self, pod: Mapping[str, Any], argv: Sequence[str], *, container: str = "main") -> str:
        """Run a command in a running container and return what it prints."""
        now = self.current(pod)
        status = next(each for each in now["status"]["containerStatuses"] if each["name"] == container)
        container_id = status["containerID"].removeprefix("containerd://")
        node = self.nodes[now["spec"]["nodeName"]]
        return node.ctr("tasks", "exec", "--exec-id", secrets.token_hex(4), container_id, *argv).stdout

    # -- users -------------------------------------------------------------------------------------------------

    def api_as(self, user: str) -> Api:
        """Speak to the API server as somebody else."""
        return self.control_plane.api_as(user)

    def kubeconfig(self, user: str = "admin", *, groups: Sequence[str] = (), token: str = "") -> Path:
        """Write a kubeconfig for a user: fixed tokens for the admin and nodes, impersonation for everybody else."""
        return self.credentials.kubeconfig(self.control_plane.server, user=user, groups=groups, token=token)

    def service_account_token(self, namespace: str, name: str, *, pod: Mapping[str, Any] | None = None) -> str:
        """Ask for a token of a service account; bound to a pod, it names the pod's node too."""
        bound = {}
        if pod is not None:
            metadata = pod["metadata"]
            reference = {"apiVersion": "v1", "kind": "Pod", "name": metadata["name"], "uid": metadata["uid"]}
            bound = {"boundObjectRef": reference}
        body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": bound}
        path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{name}/token"
        return str(self.api.post(path, body)["status"]["token"])

    # -- waiting -----------------------------------------------------------------------------------------------

    def wait_for(self, description: str, predicate: Callable[[], T | None], timeout: float = PATIENCE_SECONDS) -> T:
        """Wait for the predicate's first truthy answer; a failure shows warnings, dead components and kubelet logs."""
        return wait_until(description, predicate, timeout=timeout, explain=self.explain)

    def explain(self) -> str:
        """What a person would look at first when something did not happen."""
        nodes = list(self.nodes.values())
        everything = [*self.control_plane.components, *(each for node in nodes for each in node.components)]
        dead = [f"{each.name} is dead\n{each.tail()}" for each in everything if each.died]
        tails = [node.kubelet.tail(10) for node in nodes]
        return "\n".join([*self._warnings(), *dead, *tails])

    def _warnings(self, most: int = 15) -> list[str]:
        try:
            events = self.api.items("/api/v1/events", fieldSelector="type=Warning")
        except (HarnessError, OSError) as error:
            return [f"no events: {error}"]
        lines = [f"{e['involvedObject'].get('name')}: {e.get('reason')}: {e.get('message')}" for e in events]
        return ["--- warnings ---", *lines[-most:]]
