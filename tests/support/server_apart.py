"""The embedded API server in a process of its own, with a large cluster in it, counting who writes what."""

from __future__ import annotations

import asyncio
import multiprocessing
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from typing import Any

import msgspec

from aliquot_kube.clock import SystemClock
from aliquot_standalone.apiserver.embedded import system_fresh
from aliquot_standalone.apiserver.exchange import Answer, Request
from aliquot_standalone.apiserver.frontend import Call, Frontend
from aliquot_standalone.apiserver.http import HttpServer
from aliquot_standalone.installed import as_installed
from support.large_cluster import (
    NAMES,
    NAMESPACE,
    Json,
    binding_manifest,
    in_queue,
    lease_manifest,
    lying_pods,
    node_manifest,
    node_names,
    queue_manifests,
)

# Who is who to the server: the token is the name.
CENTRE, TESTER = "centre", "tester"
LEASES = f"/apis/coordination.k8s.io/v1/namespaces/{NAMES.namespace}/leases"
PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
QUEUES = f"/apis/{NAMES.domain}/v1alpha1/queues"
# Loading 5,000 pods takes 5 s of a quiet core.
_LOADED_WITHIN = 120.0


class Size(msgspec.Struct, frozen=True, kw_only=True):
    """How large the cluster is."""

    nodes: int
    cards: int = 8
    pods: int = 0
    queues: int = 0


class Write(msgspec.Struct, frozen=True, kw_only=True):
    """Something that was asked of the server other than to read."""

    user: str
    method: str
    what: str
    name: str


class ServerApart:
    """The server, seen from the process that started it."""

    def __init__(self, *, url: str, connection: Connection) -> None:
        self.url = url
        self._connection = connection

    def writes(self) -> Counter[Write]:
        """What was written since this was asked last."""
        self._connection.send("writes")
        return Counter({msgspec.convert(write, Write): times for write, times in self._connection.recv()})


@contextmanager
def server_apart(size: Size) -> Iterator[ServerApart]:
    """Run it as long as the block does."""
    ours, theirs = multiprocessing.Pipe()
    process = multiprocessing.get_context("spawn").Process(target=_serve, args=(theirs, size), daemon=True)
    process.start()
    theirs.close()  # so that its end is heard of here
    if not ours.poll(_LOADED_WITHIN):
        process.kill()
        raise TimeoutError
    try:
        yield ServerApart(url=ours.recv(), connection=ours)
    finally:
        process.kill()
        process.join()


def _serve(connection: Connection, size: Size) -> None:
    asyncio.run(_served(connection, size))


async def _served(connection: Connection, size: Size) -> None:
    clock, counted = SystemClock(), Counter[Write]()

    def count(call: Call) -> None:
        if call.method != "GET":
            target = call.target
            what = "/".join(part for part in (target.resource.plural, target.subresource) if part)
            counted[Write(user=call.user, method=call.method, what=what, name=target.key)] += 1

    frontend = Frontend(fresh=system_fresh(), now=clock.wall(), guard=count)
    _load(frontend, size, now=clock.wall())
    server = HttpServer(frontend=frontend, clock=clock, tokens={CENTRE: CENTRE, TESTER: TESTER})
    await server.start()
    connection.send(server.url)

    def tell() -> None:
        connection.recv()
        connection.send([(msgspec.to_builtins(write), times) for write, times in counted.items()])
        counted.clear()

    asyncio.get_running_loop().add_reader(connection.fileno(), tell)
    await asyncio.Event().wait()


def _load(frontend: Frontend, size: Size, *, now: float) -> None:
    def create(path: str, body: Json) -> Json:
        request = Request(
            method="POST",
            path=tuple(path.strip("/").split("/")),
            query={},
            content_type="application/json",
            body=msgspec.json.encode(body),
        )
        answer = frontend.handle(request, now=now)
        assert isinstance(answer, Answer)
        assert answer.code == 201, answer.body
        made: dict[str, Any] = msgspec.json.decode(answer.body)
        return made

    for name in (NAMES.namespace, NAMESPACE):
        create("/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    nodes = node_names(size.nodes)
    for name in nodes:
        create("/api/v1/nodes", node_manifest(name, cards=size.cards))
        create(LEASES, lease_manifest(name))
    if size.queues:
        create(DEFINITIONS, next(one for one in as_installed() if one["metadata"]["name"].startswith("queues.")))
    for queue in queue_manifests(size.queues):
        create(QUEUES, queue)
    for number, (plain, node, gpu) in enumerate(lying_pods(size.pods, nodes=nodes, cards=size.cards)):
        manifest = in_queue(plain, number, queues=size.queues)
        pod = create(PODS, manifest)
        binding = binding_manifest(manifest, uid=pod["metadata"]["uid"], node=node, gpu=gpu)
        create(f"{PODS}/{pod['metadata']['name']}/binding", binding)
