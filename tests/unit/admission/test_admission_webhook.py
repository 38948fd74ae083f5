"""The webhook as the API server sees it: questions over a real socket, answers that it understands, never a 500."""

from __future__ import annotations

import asyncio
import io
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial

import aiohttp
import pytest
from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry

from aliquot_core.grant import ContainerGrant, Grant, Slice, encode_grant
from aliquot_core.objects import Pod
from aliquot_core.quantities import MiB, Percent
from aliquot_kube.clock import SystemClock
from aliquot_kube.errors import ServerTroubleError
from aliquot_scheduler.admission.admission import Admission
from aliquot_scheduler.admission.metrics import AdmissionMetrics, Endpoint, Outcome
from aliquot_scheduler.admission.onlooker import UnseenError
from aliquot_scheduler.admission.review import LONGEST_WARNING, MOST_PROBLEMS, MalformedReviewError
from aliquot_scheduler.admission.routes import LARGEST_BODY, MUTATE, VALIDATE, VALIDATE_QUEUE, admission_routes
from aliquot_scheduler.admission.settings import AdmissionSettings
from aliquot_scheduler.admission.sparing import SPARE, Sparing
from aliquot_scheduler.extender.forwarding import LeadersAnswer, NotSentError
from aliquot_scheduler.picture.there import There
from aliquot_scheduler.web.bodies import SMALL, BodyRoom
from aliquot_scheduler.web.heads import HOP
from support.admitting import NAMES, Json, answered, container, mutated, review, written

ADDRESSES = (MUTATE, VALIDATE)
ASKS = written(container(compute="30", memory="8k"))
BAD = written(container(compute="0", memory="8Gi"))


def admission(*models: tuple[str, ...]) -> Admission:
    """A webhook in a cluster with these models."""
    return Admission(names=NAMES, settings=AdmissionSettings(), there=lambda: There(models=models))


def validated(body: bytes, *, models: tuple[str, ...] = ()) -> bytes:
    """The validating endpoint's answer, where no queues are known."""
    return asyncio.run(admission(*filter(None, [models])).validating(body))


# --- without a socket ------------------------------------------------------------------------------------------------


def test_the_patch_makes_the_pod_what_it_must_be() -> None:
    """Gate, profile, and nothing that the answer does not need."""
    answer = answered(admission().mutating(review(ASKS)))
    assert answer == {
        "allowed": True,
        "patch": [
            {"op": "add", "path": "/spec/schedulerName", "value": "aliquot"},
            {"op": "add", "path": "/spec/schedulingGates", "value": [{"name": "aliquot.dev/queue"}]},
        ],
    }


def test_a_pod_that_asks_for_nothing_passes_unchanged() -> None:
    """Both endpoints let it be, whatever else is in it."""
    for ask in (admission().mutating, validated):
        assert answered(ask(review(written(container(), nodeName="n1")))) == {"allowed": True}


def test_all_problems_are_told_one_a_line_by_both_endpoints() -> None:
    """Kubernetes looks at a pod between the two, and would say less: so the first says it too."""
    for ask in (admission().mutating, validated):
        status = answered(ask(review(BAD)))["status"]
        assert status["code"] == 422
        lines = status["message"].splitlines()
        assert [line.partition(":")[0] for line in lines] == [
            "",
            "- container main, aliquot.dev/compute",
            "- container main, aliquot.dev/memory",
            *(["- scheduling gate aliquot.dev/queue"] if ask is validated else []),
        ]


def test_one_problem_is_one_sentence() -> None:
    """No list of one."""
    message = answered(admission().mutating(review(written(container(compute="0")))))["status"]["message"]
    assert message.startswith("container main, aliquot.dev/compute: 0 is less than 1;")


def test_of_many_problems_the_first_are_told_and_the_rest_counted() -> None:
    """A pod with thousands of containers may have thousands."""
    containers = [{**container(compute="0"), "name": f"c{index}"} for index in range(MOST_PROBLEMS + 5)]
    message = answered(admission().mutating(review(written(*containers))))["status"]["message"]
    lines = message.splitlines()[1:]
    assert len(lines) == MOST_PROBLEMS + 1
    assert lines[MOST_PROBLEMS - 1].startswith(f"- container c{MOST_PROBLEMS - 1}, ")
    assert lines[-1] == "- and 5 more"
    exactly = answered(admission().mutating(review(written(*containers[:MOST_PROBLEMS]))))["status"]["message"]
    assert " more" not in exactly


def test_a_good_pod_comes_in_behind_its_gate_only() -> None:
    """As the mutating endpoint leaves it; without the gate it is refused."""
    assert answered(validated(review(mutated(ASKS)))) == {"allowed": True}
    assert answered(validated(review(ASKS)))["allowed"] is False


def test_a_pod_that_declines_needs_no_gate() -> None:
    """Even if what a LimitRange put on it is still there."""
    declines = {**ASKS, "metadata": {"labels": {"aliquot.dev/use": "none"}}}
    assert answered(validated(review(declines))) == {"allowed": True}


def test_what_an_author_wrote_is_not_taken_off_without_a_word() -> None:
    """What a LimitRange put there is: on which containers Kubernetes notes, by kind and name."""
    ranged = (
        "LimitRanger plugin set: cpu, aliquot.dev/compute request for container main; "
        "cpu, aliquot.dev/compute limit for container main; aliquot.dev/memory limit for container early"
    )
    pod = written(container(compute="30", memory="8000"), labels={"use": "none"})
    pod["metadata"]["annotations"] = {"kubernetes.io/limit-ranger": ranged}
    pod["spec"]["initContainers"] = [container("early", memory="8000")]
    answer = answered(admission().mutating(review(pod)))
    assert answer["patch"]
    assert answer["warnings"] == [
        f"{where}: aliquot.dev/memory is taken off, since label aliquot.dev/use: none declines slices"
        for where in ("init container early", "container main")
    ]


def test_what_a_limit_range_wrote_is_taken_off_silently() -> None:
    """Its pod's author knows of none of it."""
    pod = written(container(compute="30"), labels={"use": "none"})
    wrote = "LimitRanger plugin set: aliquot.dev/compute limit for container main"
    pod["metadata"]["annotations"] = {"kubernetes.io/limit-ranger": wrote}
    answer = answered(admission().mutating(review(pod)))
    assert answer["patch"]
    assert "warnings" not in answer


@pytest.mark.parametrize(
    ("pod", "told"),
    [
        (written(container(compute="30"), nodeName="n1"), True),
        (written(container(compute="30")), False),
        (written(container(), nodeName="n1"), False),
        (written(container(compute="30"), labels={"use": "none"}, nodeName="n1"), False),
    ],
)
def test_whoever_copies_a_pod_that_runs_is_told_that_it_waits_for_its_node(pod: Json, *, told: bool) -> None:
    """It is held there, as its author has written, and by an affinity that nobody has written."""
    warnings = answered(admission().mutating(review(pod))).get("warnings", [])
    said = "spec.nodeName: the pod waits for node n1 and starts on no other; leave it out of a copy"
    assert (said in warnings) is told


def test_warnings_come_with_the_answer_and_are_cut() -> None:
    """The API server complains about longer ones."""
    pod = mutated(written(container(compute="30"), notes={"gpu-model": "H100"}))
    (warning,) = answered(validated(review(pod), models=("A" * 300,)))["warnings"]
    assert len(warning) == LONGEST_WARNING
    assert warning.startswith("annotation aliquot.dev/gpu-model: no GPU of this cluster will do; there are A")


def test_a_kubelet_s_mirror_pods_are_left_alone() -> None:
    """They stand for static pods, which run already; to hold them would only hide what the agent says of them."""
    mirror = written(container(compute="30"), nodeName="n1")
    for ask in (admission().mutating, validated):
        asked = review(mirror, user="system:node:n1", groups=["system:nodes", "system:authenticated"])
        assert answered(ask(asked)) == {"allowed": True}


def change(old: Json, **notes: str) -> bytes:
    """Somebody changes a pod's annotations."""
    notes = {NAMES.of(short.replace("_", "-")): text for short, text in notes.items()}
    return review({**old, "metadata": {**old["metadata"], "annotations": notes}}, old=old)


def test_a_waiting_pod_may_be_mended_but_not_broken() -> None:
    """A change is judged as a new pod is, and never patched."""
    waiting = mutated(ASKS)
    assert answered(validated(change(waiting, placement="pack"))) == {"allowed": True}
    assert answered(validated(change(waiting, placement="near")))["allowed"] is False
    assert answered(admission().mutating(change(waiting, placement="near"))) == {"allowed": True}


def test_a_bound_pod_keeps_what_its_grant_was_made_from() -> None:
    """What else is in it was judged when it came, perhaps by other settings."""
    bound = written(container(compute="30", memory="1"), nodeName="n1")
    assert answered(validated(change(bound, note="x"))) == {"allowed": True}
    part = Slice(gpu="GPU-1", compute=Percent(30), limit=Percent(30), memory=MiB(900))
    grant = Grant(node="n1", pod="u", containers={"main": ContainerGrant(slices=(part,), isolation="interposer")})
    (told,) = answered(validated(change(bound, memory_now="901", grant=encode_grant(grant))))["warnings"]
    assert "901 MiB are more than the 900 that it was granted" in told
    status = answered(validated(change(bound, gpus="2", placement="pack")))["status"]
    assert status["message"].count("can't change any more") == 2


# --- what no API server sends ----------------------------------------------------------------------------------------

GOOD = json.loads(review(mutated(ASKS)))


def with_request(**changes: object) -> bytes:
    """A review with some of its request changed."""
    return json.dumps({**GOOD, "request": {**GOOD["request"], **changes}}).encode()


MALFORMED = {
    "nothing": b"",
    "no JSON": b"{",
    "no object": b"[]",
    "not UTF-8": review(ASKS).replace(b"team", b"\xff"),
    "half a surrogate": review(ASKS).replace(b"team", b"\\ud800"),
    "deep": b"[" * 100_000,
    "NaN": review(ASKS).replace(b'"30"', b"NaN"),
    "no request": json.dumps({key: value for key, value in GOOD.items() if key != "request"}).encode(),
    "another version": json.dumps({**GOOD, "apiVersion": "admission.k8s.io/v1beta1"}).encode(),
    "another kind": with_request(kind={"kind": "Node"}),
    "a deletion": with_request(operation="DELETE"),
    "no pod": with_request(object=None),
    "a pod that is a list": with_request(object=[]),
    "a change from nothing": with_request(operation="UPDATE"),
    "containers that are none": with_request(object={"spec": {"containers": [5]}}),
    "an amount that is null": with_request(
        object={"spec": {"containers": [{"resources": {"limits": {"aliquot.dev/compute": None}}}]}}
    ),
    "a container that is null": with_request(object={"spec": {"containers": [None]}}),
    "a deep pod": review(ASKS).replace(b'"30"', b"[" * 5_000 + b"]" * 5_000),
}


@pytest.mark.parametrize("row", MALFORMED)
def test_what_is_no_review_is_malformed(row: str) -> None:
    """One kind of error, which becomes a 400."""
    for ask in (admission().mutating, validated):
        with pytest.raises(MalformedReviewError):
            ask(MALFORMED[row])


NULLS: dict[str, Json] = {
    "labels": {"metadata": {"name": "train", "labels": None, "annotations": None, "ownerReferences": None}},
    "gates": {"schedulingGates": None},
    "no init containers": {"initContainers": None},
    "affinity": {"affinity": None, "nodeSelector": None, "tolerations": None},
    "resources": {"containers": [{**container(compute="30", memory="8k"), "resources": None}]},
    "limits": {
        "containers": [
            container(memory="8k"),
            {**container(), "name": "b", "resources": {"limits": None, "requests": {"aliquot.dev/memory": "8k"}}},
        ]
    },
}


@pytest.mark.parametrize("row", NULLS)
def test_what_is_null_is_read_as_left_out(row: str) -> None:
    """Both endpoints say what they say of the same pod without it, old or new; and so of who asks."""
    changes = NULLS[row]
    pod = written(container(compute="30", memory="8k"))
    pod["metadata"] |= {"creationTimestamp": None}
    nulled = {**pod, **{key: changes[key] for key in changes if key == "metadata"}}
    nulled["spec"] = {**pod["spec"], **{key: value for key, value in changes.items() if key != "metadata"}}
    bare = json.loads(json.dumps(nulled), object_hook=lambda found: {k: v for k, v in found.items() if v is not None})
    for ask in (admission().mutating, validated):
        for old in (None, nulled):
            expected = answered(ask(review(bare, old=bare if old else None)))
            assert answered(ask(review(nulled, old=old))) == expected
        asked = json.loads(review(nulled))
        asked["request"]["userInfo"]["groups"] = None
        assert answered(ask(json.dumps(asked).encode())) == answered(ask(review(bare)))


@pytest.mark.parametrize("amount", [b"1e999999", b"-0.0", b"9" * 400, b'"' + b"9" * 1_000_000 + b'"', b"1E-400"])
def test_huge_numbers_are_refused_or_malformed(amount: bytes) -> None:
    """Never computed with."""
    for ask in (admission().mutating, validated):
        try:
            answer = answered(ask(review(ASKS).replace(b'"30"', amount)))
        except MalformedReviewError:
            continue
        assert answer["allowed"] is False
        assert len(answer["status"]["message"]) < 500


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
PATHS = [
    ["metadata"],
    ["metadata", "labels"],
    ["metadata", "annotations"],
    ["spec"],
    ["spec", "nodeName"],
    ["spec", "affinity"],
    ["spec", "affinity", "nodeAffinity"],
    ["spec", "schedulingGates"],
    ["spec", "schedulerName"],
    ["spec", "containers"],
    ["spec", "containers", 0],
    ["spec", "containers", 0, "resources"],
    ["spec", "containers", 0, "resources", "limits"],
    ["spec", "containers", 0, "resources", "limits", "aliquot.dev/compute"],
    ["spec", "initContainers"],
]


@given(changes=st.lists(st.tuples(st.sampled_from(PATHS), JSON), min_size=1, max_size=2), update=st.booleans())
def test_whatever_stands_in_a_pod_there_is_an_answer(
    *, changes: list[tuple[list[str | int], object]], update: bool
) -> None:
    """Allowed, refused or malformed; no other exception leaves the code."""
    pod = json.loads(json.dumps(written(container(memory="800"), nodeName="n1", affinity={"nodeAffinity": {}})))
    for path, value in changes:
        place = pod
        try:
            for step in path[:-1]:
                place = place[step]
            place[path[-1]] = value
        except (KeyError, IndexError, TypeError):
            continue
    for ask in (admission(("L4",)).mutating, partial(validated, models=("L4",))):
        try:
            answer = answered(ask(review(pod, old=ASKS if update else None)))
        except MalformedReviewError:
            continue
        assert answer["allowed"] in (True, False)


# --- over a socket ---------------------------------------------------------------------------------------------------


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
