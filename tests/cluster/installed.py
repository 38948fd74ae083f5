"""Aliquot in the test cluster as its manifests install it: created by the real controllers, run by the real kubelets.

What is changed of the manifests is what this cluster lacks: a pod network and ClusterIPs (the API server's address goes
into the environment), a registry, NVIDIA's runtime and GPUs. Everything else stands as an operator would apply it.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from functools import partial

import yaml

from aliquot_agent.gpus.simulated import simulated_uuid
from aliquot_core.grant import ContainerGrant, Grant, Slice, encode_grant
from aliquot_core.names import Names
from aliquot_core.quantities import MiB, Percent
from cluster.harness.api import Api, Json
from cluster.harness.cluster import ENDED, ClusterHarness
from cluster.harness.component import Component
from cluster.harness.controlplane import LOOPBACK
from cluster.harness.errors import ApiError
from cluster.harness.images import Image
from cluster.harness.pods import BY_HAND, pod, shell, stays
from cluster.harness.ports import free_port
from cluster.harness.waiting import wait_until
from cluster.node_half import COMMAND
from cluster.product_image import HOME, ROOT, product_image

NAMES = Names()
MANIFESTS = ROOT / "daemonset" / "manifests"
SERVICE = ROOT / "daemonset" / "systemd" / "aliquot-endpoint.service"
DOOR = "/run/aliquot/endpoint/door.sock"
WITHDRAW = f"/api/v1/namespaces/{NAMES.namespace}/configmaps/aliquot-withdraw"
# The node's half; the centre's comes on top.
NODE_HALF = ("00-namespace", "10-access", "20-policies", "30-endpoint", "40-agent")
SYSTEM = NAMES.namespace
SCHEDULER = f"system:serviceaccount:{SYSTEM}:aliquot-scheduler"
AGENT = "aliquot-agent"
ENDPOINT = "aliquot-endpoint"
JOINS = "node.aliquot.dev/share"
ENDPOINT_BY = "node.aliquot.dev/endpoint"
DAEMONSETS = f"/apis/apps/v1/namespaces/{SYSTEM}/daemonsets"
AGENTS = f"{DAEMONSETS}/{AGENT}"
PODS_OF = f"/api/v1/namespaces/{SYSTEM}/pods"
LINES = 10  # of each of our containers, with a failure
_numbers = itertools.count(1)


def manifests(*files: str) -> Iterator[Json]:
    """The objects of these files, or of the node's half, in the order in which they are applied."""
    for stem in files or NODE_HALF:
        yield from (found for found in yaml.safe_load_all((MANIFESTS / f"{stem}.yaml").read_text()) if found)


def service_command() -> list[str]:
    """What systemd would start, with this machine's Aliquot in place of the node's."""
    (line,) = (line for line in SERVICE.read_text().splitlines() if line.startswith("ExecStart="))
    program, *arguments = line.removeprefix("ExecStart=").split()
    assert program == f"{HOME}/bin/aliquot"
    return [COMMAND, *arguments]


class Installed:
    """An installation, and what tests ask of it."""

    files: tuple[str, ...] = NODE_HALF

    def __init__(self, cluster: ClusterHarness) -> None:
        self.cluster = cluster
        self.scheduler: Api = cluster.api_as(SCHEDULER)
        # All nodes share one loopback interface: one agent has the port, and answers the probes of all.
        self._http_port = free_port()
        self._has_images = False
        self._objects: list[Json] = []

    def install(self) -> None:
        """Unless it is there: apply the manifests, let every node join; and wait until all of them offer slices."""
        if not self._objects:
            self._apply()
        for node in self.cluster.nodes:
            self.wait_ready(node)
        self.cluster.wait_for("the policies to be in force", self._guards)

    def _apply(self) -> None:
        if not self._has_images:
            for image in self.images():
                self.cluster.add_image(image)
            self._has_images = True
        for obj in self._wanted():
            self._objects.append(self.cluster.apply(self._for_this_cluster(obj)))
        for node in self.cluster.nodes:
            self.label(node, JOINS, "true")

    def images(self) -> list[Image]:
        """What a registry would have."""
        return [product_image()]

    def _wanted(self) -> Iterator[Json]:
        yield from manifests(*self.files)
        if "50-centre" not in self.files:
            # Tests bind as the centre.
            yield from (obj for obj in manifests("50-centre") if obj["apiVersion"].startswith("rbac"))

    def uninstall(self) -> None:
        """Delete what was applied, the newest first, and wait until the pods are gone."""
        for obj in reversed(self._objects):
            if obj["kind"] == "DaemonSet":
                self.cluster.delete(obj)
                self.cluster.wait_for(f"{obj['metadata']['name']} to be gone", partial(self._gone, obj))
        for obj in reversed(self._objects):
            if obj["kind"] != "DaemonSet":
                self.cluster.delete(obj)
        self.forget()

    def forget(self) -> None:
        """Somebody else has uninstalled it."""
        self._objects.clear()

    def label(self, node: str, name: str, value: str | None) -> None:
        """Put a label on a node, or take it away."""
        self.cluster.api.patch(f"/api/v1/nodes/{node}", {"metadata": {"labels": {name: value}}})

    def start_service(self, node: str) -> Component:
        """Start the endpoint as systemd does, with the settings of a node in production; its door is opened last."""
        door = self.cluster.node(node).path(DOOR)
        return self.cluster.node(node).start_inside("endpoint-service", service_command(), ready=door.is_socket)

    def leave(self, node: str) -> None:
        """Let a node leave: no agent, no endpoint."""
        self.label(node, JOINS, None)
        for name in (AGENT, ENDPOINT):
            self.cluster.wait_for(f"{name} to leave {node}", lambda name=name: not self.pods(name, node=node))  # type: ignore[misc]

    def withdraw(self, node: str) -> Json:
        """Where it has left, a pod takes back what was written, as the README says."""
        wanted = yaml.safe_load(self.cluster.api.get(WITHDRAW)["data"]["pod.yaml"].replace("NODE", node))
        return self.cluster.wait_for_phase(self.cluster.create_pod(wanted), "Succeeded", timeout=120)

    def restart_agents(self) -> None:
        """What `kubectl rollout restart` does."""
        template = {"metadata": {"annotations": {"kubectl.kubernetes.io/restartedAt": "now"}}}
        self.cluster.api.patch(AGENTS, {"spec": {"template": template}})

    def rolled_out(self) -> bool:
        """Whether every agent is of the newest template, and there."""
        found = self.cluster.api.get(AGENTS)
        status = found["status"]
        seen = status["observedGeneration"] == found["metadata"]["generation"]
        counts = [status.get(name, 0) for name in ("updatedNumberScheduled", "numberAvailable")]
        return seen and counts == [len(self.cluster.nodes)] * 2

    def has_ended(self, made: Json) -> bool:
        """Whether a pod has run, or failed."""
        return self.cluster.current(made)["status"].get("phase") in ENDED

    def pods(self, name: str, *, node: str = "") -> list[Json]:
        """The pods of a DaemonSet, on one node or on all."""
        query = {"labelSelector": f"app.kubernetes.io/name={name}"}
        if node:
            query["fieldSelector"] = f"spec.nodeName={node}"
        # What a list holds does not say what it is.
        return [{"apiVersion": "v1", "kind": "Pod", **each} for each in self.cluster.api.items(PODS_OF, **query)]

    def runs(self, name: str, *, node: str) -> bool:
        """Whether a DaemonSet has just one pod on a node, and that runs."""
        states = [each["status"]["containerStatuses"][0]["state"] for each in self.pods(name, node=node)]
        return len(states) == 1 and "running" in states[0]

    def agent_of(self, node: str) -> Json:
        """The agent's running pod."""
        (found,) = (each for each in self.pods(AGENT, node=node) if "deletionTimestamp" not in each["metadata"])
        return found

    def process_of(self, name: str, *, node: str) -> int:
        """The process id of a DaemonSet's container on a node."""
        (found,) = self.pods(name, node=node)
        container_id = found["status"]["containerStatuses"][0]["containerID"].removeprefix("containerd://")
        return self.cluster.node(node).pids_of_containers()[container_id]

    def lease(self, node: str) -> Json:
        """The node's heart-beat."""
        return self.cluster.api.get(f"/apis/coordination.k8s.io/v1/namespaces/{SYSTEM}/leases/{NAMES.lease(node)}")

    def wait_ready(self, node: str) -> None:
        """Wait until pods may be bound to the node."""
        wait_until(f"{node} to offer slices", partial(self.offers, node), timeout=150, explain=self.explain)

    def offers(self, node: str) -> bool:
        """Whether the kubelet has our resources, and the heart-beat says `ready`."""
        status = self.cluster.api.get(f"/api/v1/nodes/{node}")["status"]["allocatable"]
        offered = all(status.get(name, "0") != "0" for name in (NAMES.compute, NAMES.best_effort, NAMES.memory))
        return offered and self.lease(node)["metadata"]["annotations"].get(NAMES.state) == "ready"

    def token_api(self, token: str) -> Api:
        """Speak to the API server with a token."""
        plane = self.cluster.control_plane
        certificate = self.cluster.credentials.certificate
        return Api(host=LOOPBACK, port=plane.port, token=token, certificate=certificate)

    def agent_api(self, node: str) -> Api:
        """Speak as whoever stole the token of a node's agent."""
        return self.token_api(self.cluster.service_account_token(SYSTEM, AGENT, pod=self.agent_of(node)))

    def explain(self) -> str:
        """What our own containers said last, and what the cluster has to say."""
        files = [
            file
            for node in self.cluster.nodes.values()
            for file in node.path("/var/log/pods").glob(f"{SYSTEM}_*/*/*.log")
        ]
        tails = [f"--- {file} ---\n" + "\n".join(file.read_text().splitlines()[-LINES:]) for file in sorted(files)]
        return "\n".join([self.cluster.explain(), *tails])

    def gpu(self, node: str, index: int) -> str:
        """A GPU's uuid."""
        return simulated_uuid(node=node, index=index)

    def run(self, namespace: str, node: str, *, gpu: int, lasting: bool = False) -> Json:
        """Create a pod that prints its slice, and bind it with its grant as the scheduler will."""
        compute, memory = 5, 100
        limits = {NAMES.compute: str(compute), NAMES.memory: str(memory)}
        script = 'echo "$ALIQUOT_GPUS $ALIQUOT_COMPUTE $ALIQUOT_MEMORY"'
        wanted = pod(
            f"slice-{next(_numbers)}",
            stays(script, limits=limits) if lasting else shell(script, limits=limits),
            namespace=namespace,
            scheduler=BY_HAND,
            restart="Always" if lasting else "Never",
        )
        made = self.cluster.create_pod(wanted)
        part = Slice(
            gpu=self.gpu(node, gpu),
            compute=Percent(compute),
            limit=Percent(compute),
            memory=MiB(memory),
        )
        grant = Grant(
            node=node,
            pod=made["metadata"]["uid"],
            containers={"main": ContainerGrant(slices=(part,), isolation="observe")},
        )
        self.bind(made, node, {NAMES.grant: encode_grant(grant)})
        return made

    def bind(self, made: Json, node: str, annotations: Mapping[str, str]) -> None:
        """Bind a pod as Aliquot's scheduler."""
        self.scheduler.post(f"{self.cluster.api.path_of(made)}/binding", binding(made, node, annotations))

    def _guards(self) -> bool:
        """Whether a forged grant is refused; the API server reads its policies about once a second."""
        forged = pod("forged", shell("true"), namespace="default", annotations={NAMES.grant: "{}"})
        try:
            self.cluster.api.request("POST", "/api/v1/namespaces/default/pods", body=forged, query={"dryRun": "All"})
        except ApiError as error:
            return "aliquot-guard-grants" in str(error)
        return False

    def _gone(self, obj: Json) -> bool:
        return not self.pods(obj["metadata"]["name"])

    def _for_this_cluster(self, obj: Json) -> Json:
        """Put in what this cluster lacks; the agent's GPUs are simulated."""
        if obj["kind"] in {"DaemonSet", "Deployment"}:
            spec = obj["spec"]["template"]["spec"]
        elif obj["kind"] == "Pod":
            spec = obj["spec"]
        elif obj["metadata"]["name"] == "aliquot-withdraw":
            made = self._for_this_cluster(yaml.safe_load(obj["data"]["pod.yaml"]))
            return obj | {"data": {"pod.yaml": yaml.safe_dump(made)}}
        else:
            return obj
        (container,) = spec["containers"]
        spec["hostNetwork"] = True
        spec.pop("runtimeClassName", None)
        container["imagePullPolicy"] = "Never"
        api = {"KUBERNETES_SERVICE_HOST": LOOPBACK, "KUBERNETES_SERVICE_PORT": str(self.cluster.control_plane.port)}
        set_variables(container, api)
        if obj["metadata"].get("name") == AGENT:
            self._simulate(container)
        for volume in spec.get("volumes", []):
            # /etc is the machine's own here, not the node's.
            if volume.get("hostPath", {}).get("path", "").startswith("/etc/"):
                volume["hostPath"]["path"] = f"/var/lib{volume['hostPath']['path']}"
        return obj

    def _simulate(self, agent: Json) -> None:
        where = {"ALIQUOT_AGENT_HTTP_ADDRESS": LOOPBACK, "ALIQUOT_AGENT_HTTP_PORT": str(self._http_port)}
        set_variables(agent, {"ALIQUOT_AGENT_GPUS": "8xA100-80GB", **where})
        agent["ports"] = []
        for probe in ("readinessProbe", "livenessProbe"):
            agent[probe]["httpGet"] |= {"host": LOOPBACK, "port": self._http_port}


def set_variables(container: Json, variables: Mapping[str, str]) -> None:
    """Give a container environment variables."""
    environment = {each["name"]: each for each in container.get("env", [])}
    environment |= {name: {"name": name, "value": value} for name, value in variables.items()}
    container["env"] = list(environment.values())


def binding(made: Json, node: str, annotations: Mapping[str, str]) -> Json:
    """A binding that carries annotations."""
    return {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": made["metadata"]["name"], "annotations": dict(annotations)},
        "target": {"apiVersion": "v1", "kind": "Node", "name": node},
    }


def nothing_left(cluster: ClusterHarness, node: str) -> bool:
    """Whether nothing of ours is on the node's object."""
    found = cluster.api.get(f"/api/v1/nodes/{node}")
    metadata, status = found["metadata"], found["status"]
    named = {*metadata.get("annotations", {}), *metadata.get("labels", {}), *status["capacity"], *status["allocatable"]}
    return not any(name.startswith(f"{NAMES.domain}/") for name in named)


def restarts_without_a_record(cluster: ClusterHarness, name: str) -> int:
    """Let a node have a kubelet that knows of no plugin; how much its log had said before."""
    node = cluster.node(name)
    node.kubelet.stop()
    node.path("/var/lib/kubelet/device-plugins/kubelet_internal_checkpoint").unlink()
    before = len(node.kubelet.log.read_text())
    node.kubelet.start()
    registered = "Successfully registered node"
    cluster.wait_for("it to register", lambda: registered in node.kubelet.log.read_text()[before:] or None)
    return before


def forgets_its_plugin(cluster: ClusterHarness, name: str) -> None:
    """What a kubelet does five minutes after a plugin has left: it writes 0 once, and knows nothing of it any more."""
    restarts_without_a_record(cluster, name)
    zero = {"status": {"capacity": {NAMES.compute: "0", NAMES.best_effort: "0"}}}
    cluster.api_as(f"system:node:{name}").patch(f"/api/v1/nodes/{name}/status", zero)
