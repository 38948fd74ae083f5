"""What an earlier version of Aliquot wrote is read by this one, and replicas of both ask each other: as in an upgrade.

As it was written; and with more beside it everywhere, as a later version may write it of which this is the rollback.
Where the files come from: tests/support/earlier/README.md.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest

from aliquot_core.grant import decode_grant
from aliquot_core.instants import seconds_of
from aliquot_core.inventory import Health
from aliquot_core.names import MIX_KEY
from aliquot_core.objects import ConfigMap, Lease, Namespace, Node, Pod, Queue
from aliquot_kube.changes import Added
from aliquot_kube.clock import SystemClock
from aliquot_kube.election import ElectionSettings
from aliquot_kube.transport import Transport
from aliquot_scheduler.centre.reign import Reign
from aliquot_scheduler.centre.settings import CentreSettings
from aliquot_scheduler.certificates.settings import CENTRE
from aliquot_scheduler.extender.forwarding import Forwarder
from aliquot_scheduler.in_force import told_in_force
from aliquot_scheduler.queues.said.entry import specs_of
from aliquot_scheduler.queues.said.settings import QueueSettings
from aliquot_scheduler.queues.telling.status import read_status
from aliquot_scheduler.web.tls import Tls
from aliquot_scheduler.worth.page import decode_page
from support.centre import NAMES
from support.centre_http import Authority, replica
from support.clocks import VirtualClock

FOLDERS = sorted(path for path in (Path(__file__).parents[2] / "support" / "earlier").iterdir() if path.is_dir())
LATER: dict[str, Any] = {"later": {"more": [1]}}
KINDS: dict[str, Any] = {one.__name__: one for one in (ConfigMap, Lease, Namespace, Node, Pod, Queue)}


class Cluster:
    """All that was written, by kind and name."""

    def __init__(self, folder: Path, *, more: bool) -> None:
        self.of: dict[str, dict[str, Any]] = {kind: {} for kind in KINDS}
        for found in msgspec.json.decode((folder / "objects.json").read_bytes()):
            name, one = found["metadata"]["name"], with_more(found) if more else found
            self.of[found["kind"]][name] = msgspec.convert(one, KINDS[found["kind"]])
        # The instant of the last beat.
        self.at = max(_instant(lease.spec.renew_time) for lease in self.of["Lease"].values())

    def taken_over(self) -> Reign:
        """A leader of this version that has read it all."""
        clock = VirtualClock(start=self.at)
        made = Reign(
            transport=cast("Transport", None),  # nothing is asked
            clock=clock,
            random=lambda: 0.5,
            names=NAMES,
            settings=CentreSettings(),
            queues=QueueSettings(),
            leads=lambda: True,
            settled=lambda: None,
            led_until=None,
            renew=ElectionSettings().renew,
        )
        for namespace in self.of["Namespace"].values():
            made._namespace_changed(Added(new=namespace))
        made.turns.queues_seen(specs_of(self.of["Queue"].values()))
        told = {name: read_status(queue.status) for name, queue in self.of["Queue"].items()}
        made.turns.recall({name: one for name, one in told.items() if one}, wall=self.at, now=0.0)
        for kind, take in (("Node", made._node_changed), ("Pod", made._pod_changed), ("Lease", made._lease_changed)):
            for one in self.of[kind].values():
                take(Added(new=one))
        # Those who were let in before anybody else.
        assert list(made.turns.turns(made.desk, now=0.0)) == []
        return made

    def pods(self, *, bound: bool) -> Iterator[Pod]:
        """Those that are bound, or that wait."""
        yield from (pod for pod in self.of["Pod"].values() if bool(pod.spec.node_name) is bound)

    def uid(self, name: str) -> str:
        """Of a pod."""
        return str(self.of["Pod"][name].metadata.uid)


@pytest.fixture(params=FOLDERS, ids=lambda folder: folder.name)
def folder(request: pytest.FixtureRequest) -> Path:
    """Of each version."""
    return cast("Path", request.param)


@pytest.fixture(params=[False, True], ids=["as it was", "with more"])
def cluster(folder: Path, request: pytest.FixtureRequest) -> Cluster:
    """As that version left it."""
    return Cluster(folder, more=request.param)


def test_what_pods_were_granted_they_hold(cluster: Cluster) -> None:
    """Each part of each grant, in the queue that is charged; and nodes are in, with all of their GPUs."""
    reign = cluster.taken_over()
    assert [known.out for known in reign.picture.nodes.values()] == ["", "", ""]
    for pod in cluster.pods(bound=True):
        parts = [part for _, part in decode_grant(pod.metadata.annotations[NAMES.grant]).slices()]
        held = reign.picture.holdings.of(pod.metadata.uid)
        assert {gpu: (claim.compute.value, claim.memory.value) for (_, gpu), claim in held.items()} == {
            part.gpu: (part.compute.value, part.memory.value) for part in parts
        }
        assert reign.turns.charged_in(pod.metadata.uid) == pod.metadata.annotations[NAMES.charged]
    cards = [gpu for known in reign.picture.nodes.values() for gpu in known.inventory.gpus]
    assert [(gpu.health, gpu.isolation) for gpu in cards] == [(Health.HEALTHY, ["observe"])] * 6


def test_room_that_is_being_made_is_made_on(cluster: Cluster) -> None:
    """For the same pod, on the same card; its victim is on the way out, and nobody else is asked."""
    reign = cluster.taken_over()
    (clearing,) = reign.turns.register.clearings
    assert clearing.uid == cluster.uid("r2")
    assert clearing.nodes == ["a100-80gb-2"]
    assert reign.turns.register.refuges.movers() == set()
    waiting = {waiter.uid for waiter in reign.turns.register.hall}
    assert waiting == {pod.metadata.uid for pod in cluster.pods(bound=False)}


def test_what_it_kept_for_the_next_leader_is_read(cluster: Cluster) -> None:
    """How queues stood, what was learnt of requests, and by which settings it led."""
    queues = {name: read_status(queue.status) for name, queue in cluster.of["Queue"].items()}
    assert all(queues.values())
    page = decode_page(cluster.of["ConfigMap"]["aliquot-mix"].data[MIX_KEY], now=cluster.at)
    assert page.requests > 0
    told = told_in_force(cluster.of["Lease"].values(), names=NAMES)
    assert told is not None
    assert told.queues.half_life == 86_400.0


async def test_a_call_that_its_follower_passes_on_is_answered(folder: Path, tmp_path: Path) -> None:
    """By a leader of this version."""
    authority = Authority(tmp_path)
    async with replica(authority.server_files()) as centre:
        context = _client(authority)
        reader, writer = await asyncio.open_connection(
            "127.0.0.1", centre.server.port, ssl=context, server_hostname=CENTRE
        )
        writer.write((folder / "call.http").read_bytes())
        assert await reader.readline() == b"HTTP/1.1 200 OK\r\n"
        assert [verb for verb, _ in centre.desk.asked] == ["filter"]
        writer.close()


async def test_a_call_that_is_passed_on_to_it_is_one_that_it_knows(folder: Path, tmp_path: Path) -> None:
    """Of what its own followers say to it, a follower of this version says all that has a meaning."""
    authority = Authority(tmp_path)
    head, body = (folder / "call.http").read_bytes().split(b"\r\n\r\n")
    before = _meant(head)
    async with _overheard(authority) as (port, heard):
        tls = Tls(files=authority.server_files(), clock=SystemClock(), look_every=3600.0)
        follower = Forwarder(
            identity="earlier",
            leads=lambda: False,
            leader_address=lambda: f"https://127.0.0.1:{port}",
            clock=SystemClock(),
            tls=tls.client,
            server_name=CENTRE,
        )
        await follower.forward(before["address"].split()[1], body)
        await follower.close()
    assert _meant(heard[0]) == before


def with_more(found: dict[str, Any]) -> dict[str, Any]:
    """An object as a later version might write it, or a later API server give it."""
    meta = found["metadata"]
    notes = {name: _text_with_more(name, text) for name, text in meta.get("annotations", {}).items()}
    more: dict[str, Any] = {part: _beside(found[part]) for part in ("spec", "status") if part in found}
    more["metadata"] = {**meta, **LATER, "annotations": {**notes, NAMES.of("later"): "yes"}}
    if "data" in found:
        more["data"] = {**{name: _json_with_more(text) for name, text in found["data"].items()}, "later.json": "{"}
    return {**found, **LATER, **more}


def _beside(part: Any) -> Any:
    """The same in each object of a list, and not in maps: their keys are names of things."""
    if not isinstance(part, dict):
        return part
    lists = {key: [_beside(one) for one in there] for key, there in part.items() if isinstance(there, list)}
    return {**part, **lists, **LATER}


def _text_with_more(name: str, text: str) -> str:
    """Grants are not half understood, nor the leader's settings: what is more than they say says so by its version."""
    return _json_with_more(text) if name in {NAMES.inventory, NAMES.room} else text


def _json_with_more(text: str) -> str:
    return msgspec.json.encode({**msgspec.json.decode(text), **LATER}).decode()


def _meant(head: bytes) -> dict[str, str]:
    """What a leader reads of a call's head."""
    first, *lines = head.decode().split("\r\n")
    fields = dict(line.split(": ", 1) for line in lines if line)
    read = ("Aliquot-Forwarded-By", "Content-Type", "Content-Length")
    return {"address": first} | {name: fields[name] for name in read}


def _client(authority: Authority) -> ssl.SSLContext:
    return authority.caller(authority.signs(CENTRE))


@asynccontextmanager
async def _overheard(authority: Authority) -> AsyncIterator[tuple[int, list[bytes]]]:
    """A leader that writes down how it is called."""
    heard: list[bytes] = []
    files = authority.server_files()
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(files.certificate, files.key)

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heard.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}")
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0, ssl=context)
    async with server:
        yield server.sockets[0].getsockname()[1], heard


def _instant(text: str | None) -> float:
    found = seconds_of(text)
    assert found is not None
    return found
