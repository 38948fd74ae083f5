"""What the verbs put on the wire, and what the small pure parts decide."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given

from aliquot_core.backoff import Backoff
from aliquot_core.objects import Lease, LeaseSpec, ObjectMeta
from aliquot_kube.client import KubeClient
from aliquot_kube.errors import ConflictError, GarbledError, InvalidError, TooManyError
from aliquot_kube.lines import LineSplitter
from aliquot_kube.patches import Operation, add, expect, json_patch, merge_patch, pointer, remove, replace
from aliquot_kube.resources import LEASES, NODES, PODS
from aliquot_kube.transport import Question, Response


class Recorder:
    """A transport that keeps what is asked and answers from a list."""

    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)
        self.asked: list[Question] = []

    async def request(self, question: Question) -> Response:
        """Answer the next, or raise it."""
        self.asked.append(question)
        answer = self.answers.pop(0) if self.answers else {"metadata": {"name": "x"}}
        if isinstance(answer, Exception):
            raise answer
        return Response(status=200, headers={}, body=json.dumps(answer).encode())

    def stream(self, question: Question) -> Any:
        """Not used here."""
        raise NotImplementedError(question)

    @property
    def body(self) -> Any:
        """What the last question carried."""
        return json.loads(self.asked[-1].body or b"null")


@pytest.fixture
def wire() -> Recorder:
    """What the client sends."""
    return Recorder()


@pytest.fixture
def client(wire: Recorder) -> KubeClient:
    """A client over the recorder."""
    return KubeClient(transport=wire)


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        (PODS.collection(), "/api/v1/pods"),
        (PODS.path(namespace="a", name="b", subresource="status"), "/api/v1/namespaces/a/pods/b/status"),
        (NODES.path(name="n/../x"), "/api/v1/nodes/n%2F..%2Fx"),
        (NODES.collection("ignored"), "/api/v1/nodes"),
        (LEASES.path(namespace="s", name="l"), "/apis/coordination.k8s.io/v1/namespaces/s/leases/l"),
    ],
)
def test_paths_are_those_of_the_api(path: str, expected: str) -> None:
    """Group, version, namespace and name make the path; a name can't leave its place in it."""
    assert path == expected


def test_patches_carry_their_type_and_escape_names() -> None:
    """A JSON Patch is a list of steps with escaped paths, a merge patch an object with nulls."""
    place = pointer("metadata", "annotations", "aliquot.dev/a~b")
    assert place == "/metadata/annotations/aliquot.dev~1a~0b"
    patch = json_patch(expect(place, None), add(place, {"x": 1}), replace("/spec", []), remove("/status"))
    assert patch.content_type == "application/json-patch+json"
    assert patch.tests
    assert json.loads(patch.body) == [
        {"op": "test", "path": place, "value": None},
        {"op": "add", "path": place, "value": {"x": 1}},
        {"op": "replace", "path": "/spec", "value": []},
        {"op": "remove", "path": "/status"},
    ]
    merge = merge_patch({"metadata": {"annotations": {"a": None}}})
    assert merge.content_type == "application/merge-patch+json"
    assert not merge.tests
    assert json.loads(merge.body) == {"metadata": {"annotations": {"a": None}}}


async def test_list_follows_the_pages() -> None:
    """All pages are read, by the selectors, with the token of each for the next."""
    pages = [
        {"metadata": {"resourceVersion": "1", "continue": "t"}, "items": [{"metadata": {"name": "a"}}]},
        {"metadata": {"resourceVersion": "1"}, "items": [{"metadata": {"name": "b"}}]},
    ]
    wire = Recorder(*pages)
    pods = await KubeClient(transport=wire).list(PODS, namespace="n", label_selector="x=y")
    assert [pod.metadata.name for pod in pods] == ["a", "b"]
    assert [question.query for question in wire.asked] == [
        {"labelSelector": "x=y", "limit": "500"},
        {"labelSelector": "x=y", "limit": "500", "continue": "t"},
    ]


_PAGES: list[dict[str, Any]] = [
    {
        "metadata": {"resourceVersion": "1", "continue": "t"},
        "items": [{"metadata": {"name": "a"}}, {"metadata": {"name": "b"}}],
    },
    {"metadata": {"resourceVersion": "1"}, "items": [{"metadata": {"name": "c"}}]},
]


@pytest.mark.parametrize(("most", "asked"), [(2, 1), (3, 2), (4, 2)])
async def test_a_list_that_is_too_long_is_read_no_further(most: int, asked: int) -> None:
    """It is said how many are too many; three of two pages are not more than three."""
    wire = Recorder(*_PAGES)
    listing = KubeClient(transport=wire).list(PODS, most=most)
    if most < 3:
        with pytest.raises(TooManyError, match=f"more than {most} pods"):
            await listing
    else:
        assert [pod.metadata.name for pod in await listing] == ["a", "b", "c"]
    assert [question.query["limit"] for question in wire.asked] == [str(most)] * asked


async def test_create_names_the_kind_and_leaves_defaults_out(client: KubeClient, wire: Recorder) -> None:
    """What we did not set is not sent, so that the server's defaults hold."""
    await client.create(
        LEASES, Lease(metadata=ObjectMeta(name="n", namespace="s"), spec=LeaseSpec(lease_duration_seconds=5))
    )
    assert (wire.asked[-1].method, wire.asked[-1].content_type) == ("POST", "application/json")
    assert wire.asked[-1].path == "/apis/coordination.k8s.io/v1/namespaces/s/leases"
    assert wire.body == {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": "n", "namespace": "s"},
        "spec": {"leaseDurationSeconds": 5},
    }


async def test_patch_goes_to_the_subresource_with_its_type(client: KubeClient, wire: Recorder) -> None:
    """A patch of node status is sent there as what it is."""
    await client.patch(NODES, name="n", patch=merge_patch({"status": {}}), subresource="status")
    question = wire.asked[-1]
    assert (question.method, question.path) == ("PATCH", "/api/v1/nodes/n/status")
    assert question.content_type == "application/merge-patch+json"


@pytest.mark.parametrize(
    ("status", "words", "operation", "kind"),
    [
        (422, "the server rejected our request due to an error in our request", expect, ConflictError),
        (422, "the server rejected our request due to an error in our request", add, InvalidError),
        (422, 'Pod "x" is invalid: metadata.labels: Invalid value', expect, InvalidError),
        (400, "the body of the request was in an unknown format", expect, InvalidError),
    ],
)
async def test_failed_expectation_is_a_conflict_and_other_refusals_are_not(
    status: int, words: str, operation: Callable[[str, Any], Operation], kind: type[Exception]
) -> None:
    """A 422 to a patch that expects something means that somebody else wrote, unless the object made is at fault."""
    patch = json_patch(operation("/a", 1))
    with pytest.raises(kind):
        await KubeClient(transport=Recorder(InvalidError(words, status=status))).patch(NODES, name="n", patch=patch)


async def test_binding_carries_node_uid_and_annotations_in_one_write(client: KubeClient, wire: Recorder) -> None:
    """Bind and grant are one write, to the very pod that was decided on."""
    await client.bind(namespace="n", name="p", node="node1", uid="u", annotations={"aliquot.dev/grant": "{}"})
    assert wire.asked[-1].path == "/api/v1/namespaces/n/pods/p/binding"
    assert wire.body == {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": "p", "namespace": "n", "uid": "u", "annotations": {"aliquot.dev/grant": "{}"}},
        "target": {"apiVersion": "v1", "kind": "Node", "name": "node1"},
    }


async def test_delete_and_evict_are_guarded_by_uid(client: KubeClient, wire: Recorder) -> None:
    """Only the very pod that was meant goes, with the grace that was given, zero too."""
    await client.delete(PODS, namespace="n", name="p", uid="u", grace_seconds=0)
    options = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": "u"}, "gracePeriodSeconds": 0}
    assert (wire.asked[-1].method, wire.body) == ("DELETE", options)
    await client.evict(namespace="n", name="p", uid="u", grace_seconds=0)
    assert wire.asked[-1].path == "/api/v1/namespaces/n/pods/p/eviction"
    assert (wire.body["kind"], wire.body["deleteOptions"]) == ("Eviction", options)
    await client.delete(PODS, namespace="n", name="p")
    assert wire.body == {"apiVersion": "v1", "kind": "DeleteOptions"}


async def test_answer_that_is_no_such_object_is_garbled() -> None:
    """A 200 with something else in it is not taken for the object."""
    with pytest.raises(GarbledError):
        await KubeClient(transport=Recorder([1, 2])).get(PODS, namespace="n", name="p")


@given(failures=st.integers(1, 10_000), chance=st.floats(0, 1, exclude_max=True), asked=st.floats(0, 1e9))
def test_waits_stay_within_their_bounds(failures: int, chance: float, asked: float) -> None:
    """A wait is never shorter than half the first nor than what was asked, nor longer than both limits."""
    backoff = Backoff()
    wait = backoff.delay(failures=failures, random=lambda: chance, asked=asked)
    assert max(0.25, min(asked, 120.0)) <= wait <= 150.0
    assert backoff.delay(failures=failures, random=lambda: chance) <= 30.0


@given(lines=st.lists(st.binary(min_size=1).filter(lambda b: b.strip() and b"\n" not in b)), data=st.data())
def test_lines_come_whole_however_they_were_cut(lines: list[bytes], data: st.DataObject) -> None:
    """Any way of cutting a stream into chunks gives the same lines."""
    stream = b"".join(line + b"\n" for line in lines)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=10)))
    splitter = LineSplitter()
    pieces = [stream[a:b] for a, b in zip([0, *cuts], [*cuts, len(stream)], strict=True)]
    assert [line for piece in pieces for line in splitter.feed(piece)] == lines
