"""Our own client against any API server: what it relies on must hold."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest
from kubernetes.client import Configuration

from aliquot_core.objects import ObjectReference, Pod
from aliquot_kube.changes import Added, Change, Deleted, Modified, Synced
from aliquot_kube.client import KubeClient
from aliquot_kube.clock import SystemClock
from aliquot_kube.credentials import Credentials
from aliquot_kube.errors import AlreadyExistsError, ConflictError, InvalidError, NotFoundError
from aliquot_kube.event_ledger import EventLedger, Limits
from aliquot_kube.events import EventRecorder
from aliquot_kube.heartbeat import HeartBeat
from aliquot_kube.lease import LeaseKeeper
from aliquot_kube.mirror import Mirror
from aliquot_kube.patches import add, expect, json_patch, merge_patch, pointer, remove, strategic_patch
from aliquot_kube.reflector import Tuning
from aliquot_kube.resources import EVENTS, LEASES, PODS
from aliquot_kube.transport import HttpTransport
from conformance.contracts.space import Space
from support.http_api import LONG_S

GRANT = pointer("metadata", "annotations", "aliquot.dev/grant")


@pytest.fixture
async def transport(space: Space) -> AsyncIterator[HttpTransport]:
    """The real transport to the server under test."""
    configuration = Configuration(host=space.api.url)
    if space.api.token:
        configuration.api_key["BearerToken"] = f"Bearer {space.api.token}"
        configuration.ssl_ca_cert = str(space.api.certificate)
    made = HttpTransport(credentials=Credentials(lambda: configuration))
    yield made
    await made.close()


@pytest.fixture
def client(transport: HttpTransport) -> KubeClient:
    """Our client of the server under test."""
    return KubeClient(transport=transport)


class Told:
    """What a mirror told, and a way to wait for more."""

    def __init__(self) -> None:
        self.changes: list[Change[Pod]] = []
        self._more = asyncio.Event()

    def take(self, change: Change[Pod]) -> None:
        """Consume a change."""
        self.changes.append(change)
        self._more.set()

    async def until(self, reached: Callable[[], bool]) -> None:
        """Wait until what was told has brought a state about."""
        async with asyncio.timeout(LONG_S):
            while not reached():
                self._more.clear()
                await self._more.wait()


@asynccontextmanager
async def running(work: asyncio.Task[None]) -> AsyncIterator[None]:
    """Let something run for the time of a block."""
    try:
        yield
    finally:
        work.cancel()
        await asyncio.gather(work, return_exceptions=True)


class KubeClientContract:
    """What `aliquot_kube` does and relies on."""

    async def test_mirror_tells_each_change_once(
        self, space: Space, transport: HttpTransport, client: KubeClient
    ) -> None:
        """A list in pages, then every creation, change and deletion, each once and in order."""
        for number in range(5):
            space.create_pod(f"old-{number}")
        mirror = Mirror(
            transport=transport,
            clock=SystemClock(),
            random=lambda: 0.5,
            resource=PODS,
            namespace=space.name,
            tuning=Tuning(page_limit=2),
        )
        told = Told()
        mirror.subscribe(told.take)
        async with running(asyncio.create_task(mirror.run())):
            await mirror.synced()
            space.create_pod("new")
            await client.patch(
                PODS, namespace=space.name, name="new", patch=merge_patch({"metadata": {"labels": {"a": "b"}}})
            )
            await client.delete(PODS, namespace=space.name, name="new", grace_seconds=0)
            await told.until(lambda: isinstance(told.changes[-1], Deleted))
        kinds = [type(change) for change in told.changes]
        # A deletion may show as a last change (the deletion timestamp) before the pod is gone.
        assert kinds[:8] == [*[Added] * 5, Synced, Added, Modified]
        assert set(kinds[8:-1]) <= {Modified}
        assert kinds[-1] is Deleted
        labels = [change.new.metadata.labels for change in told.changes[6:8] if isinstance(change, Added | Modified)]
        assert labels == [{}, {"a": "b"}]
        assert sorted(mirror.objects) == [f"{space.name}/old-{number}" for number in range(5)]

    async def test_selectors_choose(self, space: Space, transport: HttpTransport, client: KubeClient) -> None:
        """A mirror of one node's pods gets a pod when it is bound there, and none of the others."""
        space.create_pod("here")
        space.create_pod("elsewhere")
        mirror = Mirror(
            transport=transport,
            clock=SystemClock(),
            random=lambda: 0.5,
            resource=PODS,
            namespace=space.name,
            field_selector="spec.nodeName=here",
        )
        told = Told()
        mirror.subscribe(told.take)
        async with running(asyncio.create_task(mirror.run())):
            await mirror.synced()
            await client.bind(namespace=space.name, name="elsewhere", node="there")
            await client.bind(namespace=space.name, name="here", node="here", annotations={"aliquot.dev/grant": "{}"})
            await told.until(lambda: isinstance(told.changes[-1], Added))
        (pod,) = mirror.objects.values()
        assert (pod.metadata.name, pod.metadata.annotations) == ("here", {"aliquot.dev/grant": "{}"})
        await client.delete(PODS, namespace=space.name, name="here", grace_seconds=0)
        await client.delete(PODS, namespace=space.name, name="elsewhere", grace_seconds=0)

    async def test_writes_are_guarded(self, space: Space, client: KubeClient) -> None:
        """Names, uids, bindings and expectations that do not hold are conflicts, and nothing is written."""
        first = space.create_pod("one")
        pod = await client.get(PODS, namespace=space.name, name="one")
        assert pod.metadata.uid == first["metadata"]["uid"]
        with pytest.raises(AlreadyExistsError):
            await client.create(PODS, pod_like(pod))
        with pytest.raises(ConflictError):
            await client.delete(PODS, namespace=space.name, name="one", uid="other")
        with pytest.raises(ConflictError):
            await client.bind(namespace=space.name, name="one", node="n", uid="other")
        await client.bind(namespace=space.name, name="one", node="n", uid=pod.metadata.uid, annotations={"a": "1"})
        with pytest.raises(ConflictError):
            await client.bind(namespace=space.name, name="one", node="m", annotations={"a": "2"})
        for subresource in ("", "status"):
            meant_for_another = strategic_patch({"metadata": {"uid": "other"}, "status": {"message": "x"}})
            with pytest.raises(ConflictError):
                await client.patch(
                    PODS, namespace=space.name, name="one", patch=meant_for_another, subresource=subresource
                )
        with pytest.raises(NotFoundError):
            await client.get(PODS, namespace=space.name, name="two")
        after = await client.get(PODS, namespace=space.name, name="one")
        assert (after.spec.node_name, after.metadata.annotations) == ("n", {"a": "1"})
        await client.delete(PODS, namespace=space.name, name="one", grace_seconds=0)

    async def test_json_patch_compares_and_sets(self, space: Space, client: KubeClient) -> None:
        """A patch whose expectation fails is a conflict; one that is nonsense is our own fault."""
        space.create_pod("one")
        at = {"namespace": space.name, "name": "one"}
        set_grant = json_patch(add("/metadata/annotations", {"aliquot.dev/grant": "a"}))
        assert (await client.patch(PODS, **at, patch=set_grant)).metadata.annotations == {"aliquot.dev/grant": "a"}
        with pytest.raises(ConflictError):
            await client.patch(PODS, **at, patch=json_patch(expect(GRANT, "b"), add(GRANT, "c")))
        swapped = await client.patch(PODS, **at, patch=json_patch(expect(GRANT, "a"), add(GRANT, "c")))
        assert swapped.metadata.annotations == {"aliquot.dev/grant": "c"}
        with pytest.raises(InvalidError):
            await client.patch(PODS, **at, patch=json_patch(remove("/metadata/nothing/here")))
        with pytest.raises(InvalidError):
            await client.patch(PODS, **at, patch=json_patch(expect(GRANT, "c"), add("/metadata/labels", {"-": "?"})))

    async def test_lease_beats_and_a_rival_is_seen(self, space: Space, client: KubeClient) -> None:
        """The heart-beat creates and renews its lease, says what is announced, and sees who else writes."""
        beat = HeartBeat(
            keeper=LeaseKeeper(client=client, namespace=space.name, name="node1"),
            clock=SystemClock(),
            random=lambda: 0.5,
            holder="me",
            interval=60.0,
        )
        async with running(asyncio.create_task(beat.run())):
            for word in ["ready", "draining"]:
                await beat.announce({"aliquot.dev/state": word})
                lease = await client.get(LEASES, namespace=space.name, name="node1")
                assert lease.metadata.annotations == {"aliquot.dev/state": word}
                assert (lease.spec.holder_identity, lease.spec.lease_duration_seconds) == ("me", 120)
            theirs = merge_patch({"spec": {"holderIdentity": "other"}})
            await client.patch(LEASES, namespace=space.name, name="node1", patch=theirs)
            await beat.announce({"aliquot.dev/state": "ready"})
        assert beat.rival == "other"
        last = await client.get(LEASES, namespace=space.name, name="node1")
        assert (last.spec.holder_identity, last.spec.lease_transitions) == ("me", 1)

    async def test_events_are_taken_and_counted(self, space: Space, client: KubeClient) -> None:
        """The server takes our Events, counts their series, and shows them to those who ask the older way too."""
        created = space.create_pod("one")["metadata"]
        recorder = EventRecorder(
            client=client,
            clock=SystemClock(),
            random=lambda: 0.5,
            controller="aliquot.dev/agent",
            instance="node1",
            ledger=EventLedger(limits=Limits(first_repeat_after=0.0)),
        )
        regarding = ObjectReference(api_version="v1", kind="Pod", namespace=space.name, name="one", uid=created["uid"])
        events = Mirror(
            transport=client.transport,
            clock=SystemClock(),
            random=lambda: 0.5,
            resource=EVENTS,
            namespace=space.name,
        )
        counted = asyncio.Event()
        events.subscribe(lambda change: counted.set() if _count(change) == 2 else None)
        async with running(asyncio.create_task(events.run())), running(asyncio.create_task(recorder.run())):
            await events.synced()
            for _ in range(2):
                recorder.tell(regarding=regarding, reason="Sick", action="Hold", note="the GPU is sick", warning=True)
            async with asyncio.timeout(LONG_S):
                await counted.wait()
        (old_way,) = [event for event in space.listed(f"{space.path}/events") if event["reason"] == "Sick"]
        assert (old_way["message"], old_way["involvedObject"]["uid"]) == ("the GPU is sick", created["uid"])


def pod_like(pod: Pod) -> Pod:
    """Another pod of the same name."""
    return Pod(metadata=type(pod.metadata)(name=pod.metadata.name, namespace=pod.metadata.namespace), spec=pod.spec)


def _count(change: object) -> int:
    if isinstance(change, Added | Modified) and change.new.series is not None:
        return int(change.new.series.count)
    return 0
