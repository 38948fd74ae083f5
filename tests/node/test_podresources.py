"""The PodResources client against a scripted server: who shares which answer, what is tried again, what errors say."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import random
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from aliquot_agent.starting.kubelet_view import Listed
from aliquot_deviceplugin.podresources import PodResources, PodResourcesError, PodResourcesMissingError, merged
from aliquot_kube.clock import SystemClock
from aliquot_proto import podresources_v1_pb2 as pb
from aliquot_proto import podresources_v1_pb2_grpc as pb_grpc
from support.endpoints import COMPUTE, short_folder


def pod(name: str, **devices: list[list[str]]) -> pb.PodResources:
    """A pod with one container, whose resource comes in these pieces."""
    pieces = [
        pb.ContainerDevices(resource_name=COMPUTE if key == "compute" else key, device_ids=ids)
        for key, some in devices.items()
        for ids in some
    ]
    return pb.PodResources(name=name, namespace="team", containers=[pb.ContainerResources(name="main", devices=pieces)])


class Lister(pb_grpc.PodResourcesListerServicer):
    """Answers as a test says; counts and holds calls."""

    def __init__(self) -> None:
        self.calls = 0
        self.failures: list[grpc.StatusCode] = []
        self.gate = asyncio.Semaphore(1_000)
        self.called = asyncio.Semaphore(0)

    async def List(self, _request: pb.ListPodResourcesRequest, context: Any) -> pb.ListPodResourcesResponse:
        """List one pod, named for the number of the call at whose *start* it was recorded."""
        self.calls += 1
        number = self.calls
        self.called.release()
        await self.gate.acquire()
        if self.failures:
            await context.abort(self.failures.pop(0), "not today")
        return pb.ListPodResourcesResponse(pod_resources=[pod(f"p{number}", compute=[["a-00"]])])


@pytest.fixture
def socket() -> Iterator[Path]:
    """Where the kubelet would serve."""
    with short_folder() as folder:
        yield folder / "kubelet.sock"


@contextlib.asynccontextmanager
async def served_at(socket: Path) -> AsyncIterator[Lister]:
    """Serve for a while."""
    served = Lister()  # type: ignore[abstract]  # its other calls are not asked
    server = grpc.aio.server()
    pb_grpc.add_PodResourcesListerServicer_to_server(served, server)
    server.add_insecure_port(f"unix:{socket}")
    await server.start()
    yield served
    await server.stop(grace=None)


@pytest.fixture
async def lister(socket: Path) -> AsyncIterator[Lister]:
    """A server that runs."""
    async with served_at(socket) as served:
        yield served


@pytest.fixture
async def client(socket: Path) -> AsyncIterator[PodResources]:
    """A client of it."""
    made = PodResources(socket=str(socket), clock=SystemClock(), random=random.random)
    yield made
    await made.close()


def names(listed: tuple[Listed, ...]) -> list[str]:
    """The pods of an answer."""
    return [entry.name for entry in listed]


def test_pieces_are_merged() -> None:
    """A resource in several pieces is one set of ids; a container that holds nothing is listed all the same."""
    response = pb.ListPodResourcesResponse(
        pod_resources=[pod("a", compute=[["a-00", "a-01"], ["b-00"]], other=[["x"]]), pod("b")]
    )

    assert merged(response) == (
        Listed(
            namespace="team",
            name="a",
            container="main",
            ids={COMPUTE: frozenset({"a-00", "a-01", "b-00"}), "other": frozenset({"x"})},
        ),
        Listed(namespace="team", name="b", container="main", ids={}),
    )


async def test_a_burst_shares_one_call(client: PodResources, lister: Lister) -> None:
    """A hundred who ask in one turn of the loop get the answer of one call."""
    answers = await asyncio.gather(*(client.list(patience=60) for _ in range(100)))

    assert lister.calls == 1
    assert {id(answer) for answer in answers} == {id(answers[0])}


async def test_never_an_answer_older_than_the_question(client: PodResources, lister: Lister) -> None:
    """Who asks while a call is under way gets the next call's answer, and all of them the same."""
    lister.gate = asyncio.Semaphore(0)
    first = asyncio.ensure_future(client.list(patience=60))
    await lister.called.acquire()
    late = [asyncio.ensure_future(client.list(patience=60)) for _ in range(50)]
    await asyncio.sleep(0)
    lister.gate.release()
    assert names(await first) == ["p1"]
    lister.gate.release()

    assert {tuple(names(answer)) for answer in await asyncio.gather(*late)} == {("p2",)}
    assert lister.calls == 2


@pytest.mark.parametrize("code", [grpc.StatusCode.RESOURCE_EXHAUSTED, grpc.StatusCode.UNAVAILABLE])
async def test_passing_trouble(client: PodResources, lister: Lister, code: grpc.StatusCode) -> None:
    """The rate limit, and a kubelet that is just starting, are waited out."""
    lister.failures = [code, code]

    assert names(await client.list(patience=60)) == ["p3"]


class TriedAgain(SystemClock):
    """Tells when the client has waited between two tries, and counts it."""

    def __init__(self) -> None:
        self.waits = asyncio.Semaphore(0)
        self.waited = 0

    async def sleep(self, seconds: float) -> None:
        """Count the short waits; the long one is the caller's patience."""
        if seconds < 1:
            self.waits.release()
            self.waited += 1
        await super().sleep(seconds)


async def test_kubelet_comes_up(socket: Path) -> None:
    """A kubelet that begins to serve while we ask is found by one of the next tries, not at gRPC's own leisure."""
    clock = TriedAgain()
    client = PodResources(socket=str(socket), clock=clock, random=random.random)
    asked = asyncio.ensure_future(client.list(patience=60))
    for _ in range(3):
        await clock.waits.acquire()
    async with served_at(socket):
        before = clock.waited
        assert names(await asked) == ["p1"]
        assert clock.waited - before <= 5
        await client.close()


async def test_lasting_trouble(client: PodResources, lister: Lister) -> None:
    """What another try can't mend is said at once, with the kubelet's words; the next question is asked anew."""
    lister.failures = [grpc.StatusCode.UNIMPLEMENTED]
    with pytest.raises(PodResourcesError, match="UNIMPLEMENTED: not today"):
        await client.list(patience=60)

    assert names(await client.list(patience=60)) == ["p2"]


class OnlyRestsTakeTime(SystemClock):
    """However long tries take, only the rests between them count; a caller's patience ends when a test says so."""

    def __init__(self, *, patience: float) -> None:
        self._patience = patience
        self._rested = 0.0
        self.over = asyncio.Event()

    def monotonic(self) -> float:
        """Seconds rested."""
        return self._rested

    async def sleep(self, seconds: float) -> None:
        """Take no time, but for the caller's patience."""
        if seconds == self._patience:
            await self.over.wait()
        self._rested += seconds


async def test_trouble_beyond_the_deadline(socket: Path, lister: Lister) -> None:
    """Trouble that outlasts the caller's patience is its answer, in time."""
    lister.failures = [grpc.StatusCode.RESOURCE_EXHAUSTED] * 1_000
    client = PodResources(socket=str(socket), clock=OnlyRestsTakeTime(patience=2), random=random.random)
    with pytest.raises(PodResourcesError, match="RESOURCE_EXHAUSTED"):
        await client.list(patience=2)
    await client.close()

    assert 2 < lister.calls < 60


async def test_trouble_is_told_where_the_last_try_is_still_under_way(socket: Path, lister: Lister) -> None:
    """Silence at the end of one's patience is not all that is known."""
    lister.failures = [grpc.StatusCode.RESOURCE_EXHAUSTED]
    lister.gate = asyncio.Semaphore(1)
    clock = OnlyRestsTakeTime(patience=60)
    client = PodResources(socket=str(socket), clock=clock, random=random.random)
    asked = asyncio.ensure_future(client.list(patience=60))
    for _ in range(2):
        await lister.called.acquire()
    clock.over.set()
    with pytest.raises(PodResourcesError, match="RESOURCE_EXHAUSTED"):
        await asked
    await client.close()


async def test_slow_kubelet(client: PodResources, lister: Lister) -> None:
    """Each caller waits as long as it said, whatever others do who share the call."""
    lister.gate = asyncio.Semaphore(0)
    patient = asyncio.ensure_future(client.list(patience=60))
    with pytest.raises(PodResourcesError, match=r"no answer within 0\.1 s"):
        await client.list(patience=0.1)
    lister.gate.release()

    assert names(await patient) == ["p1"]


class TimeForOneTry(SystemClock):
    """Each look at it is an hour after the last."""

    def __init__(self) -> None:
        self._hours = 0

    def monotonic(self) -> float:
        """Seconds."""
        self._hours += 1
        return 3600.0 * self._hours


async def test_no_socket(socket: Path) -> None:
    """A kubelet that serves nothing there is an error that names the place and the remedy."""
    client = PodResources(socket=str(socket), clock=TimeForOneTry(), random=random.random)
    with pytest.raises(PodResourcesMissingError, match=f"{socket}.*mount"):
        await client.list(patience=60)
    await client.close()


async def test_the_impatient_do_not_hurry_the_patient(client: PodResources, lister: Lister) -> None:
    """Who shares a call with an impatient caller still gets all the tries it has time for."""
    lister.failures = [grpc.StatusCode.RESOURCE_EXHAUSTED] * 6
    patient, impatient = await asyncio.gather(
        client.list(patience=60), client.list(patience=0.05), return_exceptions=True
    )

    assert isinstance(impatient, PodResourcesError)
    assert not isinstance(patient, BaseException)
    assert names(patient) == ["p7"]


async def test_nobody_is_left_to_hear_of_trouble(
    client: PodResources, lister: Lister, caplog: pytest.LogCaptureFixture
) -> None:
    """An error that comes when all callers have gone is nobody's, and no complaint in the log."""
    lister.gate = asyncio.Semaphore(0)
    lister.failures = [grpc.StatusCode.UNIMPLEMENTED]
    asked = asyncio.ensure_future(client.list(patience=60))
    await lister.called.acquire()
    asked.cancel()
    lister.gate.release()
    again = asyncio.ensure_future(client.list(patience=60))
    await lister.called.acquire()
    lister.gate.release()
    assert names(await again) == ["p2"]
    del asked
    gc.collect()

    assert "never retrieved" not in caplog.text


async def test_closing_while_asked(socket: Path, lister: Lister) -> None:
    """A client that is closed leaves no caller waiting, neither of this call nor of the next."""
    client = PodResources(socket=str(socket), clock=SystemClock(), random=random.random)
    lister.gate = asyncio.Semaphore(0)
    first = asyncio.ensure_future(client.list(patience=60))
    await lister.called.acquire()
    second = asyncio.ensure_future(client.list(patience=60))
    await asyncio.sleep(0)
    await client.close()

    for asked in (first, second):
        with pytest.raises(PodResourcesError, match="closed"):
            await asked
