"""The centre's HTTP on loopback with real TLS: certificates, a scripted desk, callers."""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import ssl
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
from aiohttp import web
from prometheus_client import CollectorRegistry

from aliquot_core.clock import Clock
from aliquot_core.names import Names
from aliquot_core.objects import Pod
from aliquot_kube.clock import SystemClock
from aliquot_scheduler.certificates.issuing import DAY, Pair, Use, issue, make_authority
from aliquot_scheduler.certificates.settings import CENTRE
from aliquot_scheduler.extender.calling import ExtenderCalls
from aliquot_scheduler.extender.decisions import Decisions, Filtered
from aliquot_scheduler.extender.forwarding import Forwarder
from aliquot_scheduler.extender.metrics import CallMetrics
from aliquot_scheduler.extender.routes import extender_routes
from aliquot_scheduler.web.bodies import BodyRoom
from aliquot_scheduler.web.handshakes import FailedHandshakes
from aliquot_scheduler.web.pages import StatusPages
from aliquot_scheduler.web.server import CentreServer, strangers
from aliquot_scheduler.web.settings import WebSettings
from aliquot_scheduler.web.tls import Tls, TlsFiles

SCHEDULER = "system:kube-scheduler"
Json = dict[str, Any]


class Authority:
    """One that signs whatever a test needs, in a folder."""

    def __init__(self, folder: Path, *, name: str = "test authority") -> None:
        self.pair = make_authority(name=name, now=time.time(), life=100 * DAY)
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self.path = folder / "ca.crt"
        self.path.write_bytes(self.pair.certificate)

    def signs(
        self, name: str, *, hosts: Sequence[str] = (), uses: Sequence[Use] = (Use.CLIENT,), since: float = 0.0
    ) -> Pair:
        """A certificate that is good for a day, and was made `since` seconds before now."""
        return issue(self.pair, name=name, hosts=hosts, uses=uses, now=time.time() - since, life=DAY)

    def server_files(self, name: str = CENTRE, *, folder: str = "server") -> TlsFiles:
        """What a replica serves and calls with."""
        at = self._folder / folder
        at.mkdir(exist_ok=True)
        files = TlsFiles(certificate=str(at / "tls.crt"), key=str(at / "tls.key"), authority=str(at / "ca.crt"))
        write_pair(files, self.signs(name, hosts=[CENTRE, "127.0.0.1"], uses=[Use.SERVER, Use.CLIENT]))
        Path(files.authority).write_bytes(self.pair.certificate)
        return files

    def caller(self, client: Pair | None = None) -> ssl.SSLContext:
        """Somebody who trusts this authority, and shows this certificate."""
        context = ssl.create_default_context(cafile=str(self.path))
        context.verify_flags |= ssl.VERIFY_X509_STRICT  # as it is from Python 3.13 on
        if client is not None:
            place = self._folder / "client.pem"
            place.write_bytes(client.certificate + client.key)
            context.load_cert_chain(place)
        return context


def write(path: str, data: bytes) -> None:
    """Put something into a file, as the kubelet does behind a server's back."""
    Path(path).write_bytes(data)


def write_pair(files: TlsFiles, pair: Pair) -> None:
    """Put another certificate where a server has its own."""
    write(files.certificate, pair.certificate)
    write(files.key, pair.key)


@dataclass
class ScriptedDesk:
    """Decides as a test says, and remembers what it was asked."""

    filtered: Filtered = field(default_factory=Filtered)
    grades: list[int] = field(default_factory=list)
    victims: dict[str, list[str]] = field(default_factory=dict)
    bound: str = ""
    raises: Exception | None = None
    asked: list[tuple[str, Any]] = field(default_factory=list)
    # Called while a decision is made.
    during: Callable[[], None] | None = None
    # Set: bind waits for it.
    hold: asyncio.Event | None = None
    holding: asyncio.Event = field(default_factory=asyncio.Event)

    def filter(self, pod: Pod, nodes: Sequence[str]) -> Filtered:
        """Answer with what was set."""
        self._note("filter", (pod, list(nodes)))
        return self.filtered

    def prioritize(self, pod: Pod, nodes: Sequence[str]) -> Sequence[int]:
        """Answer with what was set."""
        self._note("prioritize", (pod, list(nodes)))
        return self.grades

    def prioritize_plain(self, pod: Pod, nodes: Sequence[str]) -> Sequence[int]:
        """Answer with what was set."""
        self._note("prioritize-plain", (pod, list(nodes)))
        return self.grades

    def preempt(self, pod: Pod, offered: Mapping[str, Sequence[str]]) -> dict[str, list[str]]:
        """Answer with what was set."""
        self._note("preempt", (pod, dict(offered)))
        return self.victims

    async def bind(self, *, namespace: str, name: str, uid: str, node: str) -> str:
        """Answer with what was set, when it is time."""
        self._note("bind", (namespace, name, uid, node))
        self.holding.set()
        if self.hold is not None:
            await self.hold.wait()
        return self.bound

    def _note(self, verb: str, what: Any) -> None:
        self.asked.append((verb, what))
        if self.during is not None:
            self.during()
        if self.raises is not None:
            raise self.raises


@dataclass
class Rule:
    """Who leads, as a test says."""

    mine: bool = True
    address: str | None = None

    def follow(self, leader: Replica) -> None:
        """Another one leads."""
        self.mine, self.address = False, leader.address


@dataclass(kw_only=True)
class Replica:
    """One running centre's HTTP."""

    desk: ScriptedDesk
    rule: Rule
    server: CentreServer
    tls: Tls
    registry: CollectorRegistry

    @property
    def address(self) -> str:
        """As other replicas call it."""
        return f"https://127.0.0.1:{self.server.port}"

    def url(self, path: str) -> str:
        """Of something behind TLS."""
        return f"{self.address}{path}"

    def calls(self, verb: str, outcome: str) -> float:
        """How many calls ended so."""
        labels = {"verb": verb, "outcome": outcome}
        return self.registry.get_sample_value("aliquot_centre_extender_duration_seconds_count", labels) or 0.0


@asynccontextmanager
async def replica(
    files: TlsFiles,
    *,
    identity: str = "replica",
    ready: Callable[[], Sequence[str]] = list,
    resting: Clock | None = None,
    seeing: Clock | None = None,
    idling: Clock | None = None,
    decisions: Decisions | None = None,
    also: Sequence[web.RouteDef] = (),
    room: BodyRoom | None = None,
    listens: str = "127.0.0.1",
    port: int = 0,
) -> AsyncIterator[Replica]:
    """Serve on free ports until the end of the block.

    `resting` is the clock by which it waits between two tries, `seeing` the one that says what is out of
    date, `idling` the one by which it closes connections on which nothing is asked; `room` is for large bodies.
    """
    clock, desk, rule, registry = SystemClock(), ScriptedDesk(), Rule(), CollectorRegistry()
    tls = Tls(files=files, clock=clock, look_every=3600.0)
    forwarder = Forwarder(
        identity=identity,
        leads=lambda: rule.mine,
        leader_address=lambda: rule.address,
        clock=resting or clock,
        tls=tls.client,
        server_name=CENTRE,
    )
    metrics, stranger = CallMetrics(registry), strangers(allowed=[SCHEDULER, CENTRE], clock=seeing or clock)
    calls = ExtenderCalls(
        decisions=decisions or desk,
        leads=lambda: rule.mine,
        forwarder=forwarder,
        metrics=metrics,
        clock=clock,
        names=Names(),
    )
    server = CentreServer(
        settings=WebSettings(address=listens, port=port, status_port=0, leave=5.0),
        tls=tls,
        routes=[*extender_routes(calls, stranger=stranger, metrics=metrics, clock=clock, room=room), *also],
        offered=calls.offered(stranger=stranger),
        pages=StatusPages(registry=registry, alive=list, ready=ready),
        clock=idling or clock,
        failed=FailedHandshakes(registry=registry, clock=clock),
    )
    running = asyncio.create_task(server.run())
    waiting = asyncio.create_task(server.serving.wait())
    await asyncio.wait({running, waiting}, return_when=asyncio.FIRST_COMPLETED)
    try:
        if running.done():
            running.result()
        yield Replica(desk=desk, rule=rule, server=server, tls=tls, registry=registry)
    finally:
        for task in (waiting, running):
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
        await forwarder.close()


class Caller:
    """A kube-scheduler, as far as HTTP goes."""

    def __init__(self, session: aiohttp.ClientSession) -> None:
        self.session = session

    async def post(self, url: str, body: Any, **headers: str) -> tuple[int, Any]:
        """Ask; the status and the answer's JSON."""
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        async with self.session.post(url, data=io.BytesIO(data), headers=headers) as response:
            return response.status, json.loads(await response.read())


@asynccontextmanager
async def caller(context: ssl.SSLContext | None, *, keep: bool = True) -> AsyncIterator[Caller]:
    """Somebody who calls with this TLS; `keep` holds connections open between calls."""
    connector = aiohttp.TCPConnector(ssl=True if context is None else context, force_close=not keep)
    async with aiohttp.ClientSession(connector=connector) as session:
        yield Caller(session)


POD: Json = {
    "metadata": {"name": "p", "namespace": "team", "uid": "u-1", "creationTimestamp": None},
    "spec": {"containers": [{"name": "main", "resources": {"limits": {"aliquot.dev/compute": "30"}}}]},
    "status": {},
}


def args(*names: str, pod: Json | None = None) -> Json:
    """What filter and prioritize are asked."""
    return {"Pod": pod or POD, "Nodes": None, "NodeNames": list(names)}


BINDING: Json = {"PodName": "p", "PodNamespace": "team", "PodUID": "u-1", "Node": "n1"}
