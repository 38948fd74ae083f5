"""The extender's real routes over one desk and a slow API server, and callers enough to crowd them: on loopback."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import msgspec
from prometheus_client import CollectorRegistry

from aliquot_core.grant import decode_grant
from aliquot_core.names import Names
from aliquot_core.objects import Pod
from aliquot_kube.clock import SystemClock
from aliquot_kube.errors import ConflictError, NotFoundError, UnreachableError
from aliquot_kube.transport import Question, Response
from aliquot_scheduler.centre.binder import Binder
from aliquot_scheduler.deciding.desk import Desk
from aliquot_scheduler.extender.calling import PREFIX, ExtenderCalls
from aliquot_scheduler.extender.decisions import Filtered
from aliquot_scheduler.extender.forwarding import Forwarder
from aliquot_scheduler.extender.metrics import CallMetrics
from aliquot_scheduler.queues.turns import Queues
from aliquot_scheduler.web.idle import IdleConnections
from aliquot_scheduler.web.short_way import ShortWay
from support.centre import NAMES, WALL, gpus, make_lease, make_node, picture_with, with_grant
from support.centre_means import means

Json = dict[str, Any]
_OK = b"{}"


class SlowApi:
    """Binds each pod once, after a time that chance says, and may lose the answer."""

    def __init__(self, pods: Sequence[Pod], *, chance: random.Random, lost: float = 0.0) -> None:
        self._pods = {f"/api/v1/namespaces/team/pods/{pod.metadata.name}": pod for pod in pods}
        self._chance = chance
        self._lost = lost
        self.bound: list[str] = []
        # What was bound with each, last.
        self.notes: dict[str, dict[str, str]] = {}

    def is_bound_already(self, pod: Pod) -> None:
        """Somebody else has bound a pod, and this is how."""
        self._pods[f"/api/v1/namespaces/team/pods/{pod.metadata.name}"] = pod
        self.bound.append(pod.metadata.uid)

    async def request(self, question: Question) -> Response:
        """Answer late."""
        await self._while()
        path, _, verb = question.path.partition("/binding")
        pod = self._pods.get(path)
        if pod is None:
            raise NotFoundError("no such pod", where=path, status=404)
        if question.method == "GET":
            self._lose(path)
            return Response(status=200, headers={}, body=msgspec.json.encode(pod))
        assert verb == ""
        binding = json.loads(question.body or b"")
        uid = binding["metadata"]["uid"]
        if uid != pod.metadata.uid or uid in self.bound:
            raise ConflictError("is already assigned", where=path, status=409)
        self.bound.append(uid)
        self.notes[uid] = binding["metadata"]["annotations"]
        self._pods[path] = with_grant(pod, decode_grant(binding["metadata"]["annotations"][NAMES.grant]))
        await self._while()
        self._lose(path)
        return Response(status=201, headers={}, body=_OK)

    def stream(self, question: Question) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        """Nobody watches here."""
        raise NotImplementedError(question.path)

    def _lose(self, path: str) -> None:
        if self._chance.random() < self._lost:
            raise UnreachableError("the connection broke", where=path)

    async def _while(self) -> None:
        for _ in range(self._chance.randrange(6)):
            await asyncio.sleep(0)


class LeapingTime:
    """A clock that a test sets."""

    def __init__(self) -> None:
        self.now = 1_000.0

    def monotonic(self) -> float:
        """As it was set."""
        return self.now

    def wall(self) -> float:
        """The same."""
        return self.now

    async def sleep(self, seconds: float) -> None:
        """Nobody sleeps here."""
        raise NotImplementedError(seconds)


class Trial:
    """One node with one GPU, a desk, and pods that all want it."""

    def __init__(self, pods: Sequence[Pod], *, api: SlowApi) -> None:
        self.api = api
        self.clock = LeapingTime()
        self.picture = picture_with(make_node("n1", gpus("n1", 1)), now=self.clock.now)
        self.turns = Queues(names=NAMES, random=lambda: 0.0, picture=self.picture)
        self.desk = Desk(picture=self.picture, names=NAMES, turns=self.turns)
        for pod in pods:
            self.desk.pod_seen(pod)
            self.turns.pod_seen(pod)
        self.binder = Binder(
            desk=self.desk, means=means(api, clock=self.clock), charged_in=self.turns.charged_in, labels_of=lambda _: {}
        )

    def leap(self, seconds: float) -> None:
        """Let so much time pass; the agent beats on."""
        self.clock.now += seconds
        self.picture.tell_time(self.clock.now)
        self.picture.lease_seen(make_lease("n1", renewed=f"beat {self.clock.now}"), wall=WALL)
        self.desk.tell_time(self.clock.now)

    def next_turn(self) -> Pod:
        """Whom the gatekeeper would let through now."""
        now = self.clock.now
        return next(self.turns.turns(self.desk, now=now)).pod


class CurrentTrial:
    """`Decisions` of whichever trial is on."""

    def __init__(self) -> None:
        self.trial: Trial

    def filter(self, pod: Pod, nodes: Sequence[str]) -> Filtered:
        """Pass it on."""
        return self.trial.binder.filter(pod, nodes)

    def prioritize(self, pod: Pod, nodes: Sequence[str]) -> Sequence[int]:
        """Pass it on."""
        return self.trial.binder.prioritize(pod, nodes)

    def prioritize_plain(self, pod: Pod, nodes: Sequence[str]) -> Sequence[int]:
        """Pass it on."""
        return self.trial.binder.prioritize_plain(pod, nodes)

    def preempt(self, pod: Pod, offered: Mapping[str, Sequence[str]]) -> dict[str, list[str]]:
        """Pass it on."""
        return self.trial.binder.preempt(pod, offered)

    async def bind(self, *, namespace: str, name: str, uid: str, node: str) -> str:
        """Pass it on."""
        return await self.trial.binder.bind(namespace=namespace, name=name, uid=uid, node=node)


class Crowd:
    """Callers over connections that are kept: as many calls at once as there are connections."""

    def __init__(self, connections: Sequence[tuple[asyncio.StreamReader, asyncio.StreamWriter]]) -> None:
        self._free: asyncio.Queue[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = asyncio.Queue()
        for connection in connections:
            self._free.put_nowait(connection)

    async def post(self, verb: str, body: bytes) -> Json:
        """Ask, and read the answer."""
        reader, writer = connection = await self._free.get()
        try:
            writer.write(
                f"POST {PREFIX}/{verb} HTTP/1.1\r\nHost: centre\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body
            )
            head = await reader.readuntil(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 200 "), head
            length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
            return dict(json.loads(await reader.readexactly(length)))
        finally:
            self._free.put_nowait(connection)

    async def filter(self, pod: Pod) -> list[str]:
        """Which of the nodes will do."""
        asked = {"Pod": msgspec.to_builtins(pod), "Nodes": None, "NodeNames": ["n1"]}
        return (await self.post("filter", json.dumps(asked).encode()))["NodeNames"] or []

    async def bind(self, pod: Pod, node: str) -> str:
        """Empty, or why not."""
        meta = pod.metadata
        asked = {"PodName": meta.name, "PodNamespace": meta.namespace, "PodUID": meta.uid, "Node": node}
        return str((await self.post("bind", json.dumps(asked).encode())).get("Error") or "")


@asynccontextmanager
async def crowd(decisions: CurrentTrial, *, connections: int = 64) -> AsyncIterator[Crowd]:
    """Serve the extender's routes on loopback, and connect so often."""
    clock = SystemClock()
    forwarder = Forwarder(
        identity="one", leads=lambda: True, leader_address=lambda: None, clock=clock, tls=_no_tls, server_name=""
    )
    metrics = CallMetrics(CollectorRegistry())
    calls = ExtenderCalls(
        decisions=decisions, leads=lambda: True, forwarder=forwarder, metrics=metrics, clock=clock, names=Names()
    )
    short = ShortWay(
        offered=calls.offered(stranger=lambda _: ""), long_way=asyncio.Protocol, idle=IdleConnections(clock=clock)
    )
    server = await asyncio.get_running_loop().create_server(short, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    opened = [await asyncio.open_connection("127.0.0.1", port) for _ in range(connections)]
    try:
        yield Crowd(opened)
    finally:
        for _, writer in opened:
            writer.close()
        server.close()
        await forwarder.close()


def _no_tls() -> Any:
    raise NotImplementedError
