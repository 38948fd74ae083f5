"""The webhook as the API server sees it: questions over a real socket, answers that it understands."""

from __future__ import annotations

import asyncio
import io
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import aiohttp
import pytest
from aiohttp import web
from prometheus_client import CollectorRegistry

from aliquot_core.objects import Pod
from aliquot_kube.clock import SystemClock
from aliquot_kube.errors import ServerTroubleError
from aliquot_scheduler.admission.admission import Admission
from aliquot_scheduler.admission.metrics import AdmissionMetrics, Endpoint, Outcome
from aliquot_scheduler.admission.onlooker import UnseenError
from aliquot_scheduler.admission.routes import LARGEST_BODY, MUTATE, VALIDATE, VALIDATE_QUEUE, admission_routes
from aliquot_scheduler.admission.settings import AdmissionSettings
from aliquot_scheduler.admission.sparing import SPARE, Sparing
from aliquot_scheduler.extender.forwarding import LeadersAnswer, NotSentError
from aliquot_scheduler.web.bodies import SMALL, BodyRoom
from aliquot_scheduler.web.heads import HOP
from support.admitting import NAMES, Json, container, mutated, review, written
from support.reviews_asked import ASKS, MALFORMED, admission

ADDRESSES = (MUTATE, VALIDATE)
BAD = written(container(compute="0", memory="8Gi"))


@pytest.fixture
def registry() -> CollectorRegistry:
    """What Prometheus reads of the server."""
    return CollectorRegistry()


@pytest.fixture
async def base(registry: CollectorRegistry) -> AsyncIterator[str]:
    """Where the webhook is served."""
    async with served(admission(), registry) as address:
        yield address


async def no_leader(path: str, _: bytes) -> LeadersAnswer | None:
    """Stands for a way to the leader, where there is none."""
    raise NotSentError("no replica of the centre leads just now", where=path)


async def nobody_waits(_: Pod) -> Pod | None:
    """Stands for a leader that knows nobody who runs the cluster and waits."""
    return None


async def unseen(_: Pod) -> Pod | None:
    """Stands for an API server that does not say who waits."""
    raise UnseenError("who waits could not be read", where="admission", remedy="see why")


NOBODY_LEADS = Sparing(names=NAMES, leads=lambda: False, one_for=nobody_waits, one_seen=unseen, forward=no_leader)


@asynccontextmanager
async def served(
    answering: Admission,
    registry: CollectorRegistry,
    *,
    sparing: Sparing = NOBODY_LEADS,
    is_replica: bool = False,
    room: BodyRoom | None = None,
) -> AsyncIterator[str]:
    """A server on a free port of loopback; its own limit on bodies is far lower than the webhook's."""
    app = web.Application(client_max_size=1024)
    metrics = AdmissionMetrics(registry)
    app.add_routes(
        admission_routes(
            answering,
            sparing=sparing,
            metrics=metrics,
            clock=SystemClock(),
            is_replica=lambda _: is_replica,
            room=room,
        )
    )
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    await runner.cleanup()


async def post(url: str, body: bytes | AsyncIterator[bytes]) -> tuple[int, Json]:
    """Ask, and read the answer as JSON."""
    data = io.BytesIO(body) if isinstance(body, bytes) else body
    async with aiohttp.ClientSession() as session, session.post(url, data=data) as response:
        return response.status, await response.json()


async def test_the_two_addresses_answer(base: str) -> None:
    """Each with its own half."""
    status, answer = await post(f"{base}{MUTATE}", review(ASKS))
    assert (status, "patch" in answer["response"]) == (200, True)
    status, answer = await post(f"{base}{VALIDATE}", review(ASKS))
    assert (status, answer["response"]["allowed"]) == (200, False)


@pytest.mark.parametrize("is_replica", [True, False])
async def test_an_eviction_that_nobody_could_judge_is_counted_apart(
    registry: CollectorRegistry, *, is_replica: bool
) -> None:
    """And who is told by a replica that it was asked first asks no other; of others that word is worth nothing."""
    forwarded: list[str] = []

    async def refusing(path: str, _: bytes) -> LeadersAnswer | None:
        forwarded.append(path)
        said = {"response": {"uid": "u", "allowed": False}}
        return LeadersAnswer(status=200, body=json.dumps(said).encode(), content_type="application/json")

    follower = Sparing(names=NAMES, leads=lambda: False, one_for=nobody_waits, one_seen=unseen, forward=refusing)
    asked: Json = {"uid": "u", "operation": "DELETE", "oldObject": ASKS}
    body = json.dumps({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": asked}).encode()
    async with (
        served(admission(), registry, sparing=follower, is_replica=is_replica) as base,
        aiohttp.ClientSession() as session,
    ):
        allowed = []
        for heads in ({}, {HOP: "another"}):
            async with session.post(f"{base}{SPARE}?timeout=3s", data=body, headers=heads) as response:
                allowed.append((await response.json())["response"]["allowed"])
    assert (allowed, forwarded) == (([False, True], [SPARE]) if is_replica else ([False, False], [SPARE, SPARE]))
    counts = [ended(registry, Endpoint.SPARE, one) for one in (Outcome.REFUSED, Outcome.UNJUDGED, Outcome.ALLOWED)]
    assert counts == ([1, 1, 0] if is_replica else [2, 0, 0])


@pytest.mark.parametrize("address", ADDRESSES)
@pytest.mark.parametrize("row", ["nothing", "no JSON", "deep", "no pod"])
async def test_a_malformed_body_is_a_400_in_json(base: str, address: str, row: str) -> None:
    """The API server then refuses the pod, and whoever else called learns why."""
    status, answer = await post(f"{base}{address}", MALFORMED[row])
    assert status == 400
    assert answer["error"].startswith("AdmissionReview: ")


@pytest.mark.parametrize("address", ADDRESSES)
async def test_the_largest_body_is_read_and_a_larger_one_is_not(base: str, address: str) -> None:
    """Whether it says its length or comes in pieces."""
    largest = review(ASKS).ljust(LARGEST_BODY)
    assert (await post(f"{base}{address}", largest))[0] == 200

    async def pieces() -> AsyncIterator[bytes]:
        for _ in range(4):
            yield b" " * (LARGEST_BODY // 3)

    for body in (largest + b" ", pieces()):
        status, answer = await post(f"{base}{address}", body)
        assert (status, answer) == (413, {"error": f"more than {LARGEST_BODY} bytes"})


def as_sent(body: bytes) -> bytes:
    """A review in the order, and as close, as API servers write it."""
    asked = json.loads(body)
    request = {"uid": "1b2-c3", **{key: value for key, value in asked["request"].items() if key != "uid"}}
    sent = {"kind": asked["kind"], "apiVersion": asked["apiVersion"], "request": request}
    return json.dumps(sent, separators=(",", ":")).encode()


@pytest.mark.parametrize("address", [*ADDRESSES, VALIDATE_QUEUE])
async def test_who_writes_too_large_a_pod_is_told_so(base: str, registry: CollectorRegistry, address: str) -> None:
    """Of an HTTP status the API server would tell the number alone."""
    status, answer = await post(f"{base}{address}", as_sent(review(ASKS)).ljust(LARGEST_BODY + 1))
    response = answer["response"]
    assert (status, response["uid"], response["allowed"]) == (200, "1b2-c3", False)
    assert f"more than {LARGEST_BODY} bytes; make it smaller" in response["status"]["message"]
    assert ended(registry, Endpoint(address[1:]), Outcome.REFUSED) == 1.0


class Troubled(Admission):
    """A webhook that the API server does not answer, or that has a defect."""

    async def validating_queue(self, body: bytes) -> bytes:
        """Nothing is known of queues."""
        raise ServerTroubleError("asked for queues", status=503) if body == b"503" else ZeroDivisionError

    validating = validating_queue


async def test_a_question_without_an_answer_is_counted_as_failed(registry: CollectorRegistry) -> None:
    """Whoever's fault it is."""
    async with served(Troubled(names=NAMES, settings=AdmissionSettings()), registry) as base:
        for address in (VALIDATE, VALIDATE_QUEUE):
            assert (await post(f"{base}{address}", b"503"))[0] == 503
            async with aiohttp.ClientSession() as session, session.post(f"{base}{address}", data=b"?") as response:
                assert response.status == 500
            assert ended(registry, Endpoint(address[1:]), Outcome.FAILED) == 2.0


class Thinking(Admission):
    """Answers when it is told to."""

    def __init__(self) -> None:
        super().__init__(names=NAMES, settings=AdmissionSettings())
        self.asked, self.go_on = asyncio.Event(), asyncio.Event()

    async def validating(self, body: bytes) -> bytes:
        """Later."""
        self.asked.set()
        await self.go_on.wait()
        return await super().validating(body)


async def test_large_bodies_share_one_room_and_small_ones_need_none(registry: CollectorRegistry) -> None:
    """Until they are answered: anybody could fill all memory with them; usual pods are judged all the while."""
    large, thinking = review(mutated(ASKS)).ljust(3 * SMALL), Thinking()
    async with served(thinking, registry, room=BodyRoom(2 * SMALL)) as base:
        held = asyncio.create_task(post(f"{base}{VALIDATE}", large))
        await thinking.asked.wait()
        status, answer = await post(f"{base}{MUTATE}", large)
        assert (status, answer["error"].split(";")[0]) == (503, "too many large bodies are coming at once")
        assert (await post(f"{base}{MUTATE}", large[:SMALL]))[0] == 200
        thinking.go_on.set()
        assert (await held)[0] == 200
        assert (await post(f"{base}{MUTATE}", large))[0] == 200
    assert ended(registry, Endpoint.MUTATE, Outcome.CROWDED) == 1.0


def ended(registry: CollectorRegistry, endpoint: Endpoint, outcome: Outcome) -> float:
    """How many questions ended so."""
    labels: dict[str, str] = {"endpoint": endpoint, "outcome": outcome}
    return registry.get_sample_value("aliquot_centre_admission_duration_seconds_count", labels) or 0.0


@pytest.mark.parametrize("address", ADDRESSES)
async def test_each_question_is_counted_by_how_it_ended(base: str, registry: CollectorRegistry, address: str) -> None:
    """Once, and only so; what takes long is seen by the same."""
    endpoint = Endpoint(address[1:])
    for body in (review(mutated(ASKS)), review(BAD), b"{", b" " * (LARGEST_BODY + 1)):
        await post(f"{base}{address}", body)
    counts = {outcome: ended(registry, endpoint, outcome) for outcome in Outcome}
    assert counts == {
        Outcome.ALLOWED: 1.0,
        Outcome.REFUSED: 1.0,
        Outcome.MALFORMED: 2.0,
        Outcome.FAILED: 0.0,
        Outcome.CROWDED: 0.0,
        Outcome.UNJUDGED: 0.0,
    }
