"""The whole server without a wire: expiry, guards, and that no body makes it fail."""

from __future__ import annotations

import itertools
from typing import Any

import hypothesis.strategies as st
import msgspec
import pytest
from hypothesis import example, given, settings

from aliquot_standalone.apiserver.embedded import system_fresh
from aliquot_standalone.apiserver.exchange import Answer, Request, Result, Stream
from aliquot_standalone.apiserver.failures import forbidden
from aliquot_standalone.apiserver.frontend import Call, Frontend
from aliquot_standalone.apiserver.store import Store
from support.embedded_api import NOW, make_frontend

PODS = "api/v1/namespaces/default/pods"
LEASES = "apis/coordination.k8s.io/v1/namespaces/default/leases"


def ask(server: Frontend, method: str, path: str, body: Any = None, *, kind: str = "", **query: str) -> Result:
    """Send a request."""
    raw = body if isinstance(body, bytes) else b"" if body is None else msgspec.json.encode(body)
    return server.handle(
        Request(method=method, path=tuple(path.split("/")), query=query, body=raw, content_type=kind), now=NOW
    )


def answered(server: Frontend, method: str, path: str, body: Any = None, *, kind: str = "", **query: str) -> Any:
    """Send a request and read the answer."""
    answer = ask(server, method, path, body, kind=kind, **query)
    assert isinstance(answer, Answer)
    return msgspec.json.decode(answer.body)


def pod(name: str) -> dict[str, Any]:
    """Spell a pod."""
    return {"metadata": {"name": name}, "spec": {"containers": [{"name": "main", "image": "none:1"}]}}


def test_the_same_seed_gives_the_same_server() -> None:
    """With identities from a seed and the time handed in, two servers answer byte for byte alike."""
    answers = [
        [ask(server, "POST", PODS, pod("one")), ask(server, "GET", PODS), ask(server, "DELETE", f"{PODS}/one")]
        for server in (make_frontend(), make_frontend())
    ]
    assert answers[0] == answers[1]


def test_a_null_that_a_patch_leaves_is_not_stored() -> None:
    """A JSON Patch may set one, where the other kinds remove by it; for the API it is the same as not there."""
    server = make_frontend()
    answered(server, "POST", PODS, pod("one"))
    patch = [{"op": "add", "path": "/metadata/annotations", "value": {"kept": "null", "gone": None}}]
    made = answered(server, "PATCH", f"{PODS}/one", patch, kind="application/json-patch+json")
    assert made["metadata"]["annotations"] == {"kept": "null"}


def test_a_watch_that_comes_too_late() -> None:
    """From a version that is compacted the stream is one ERROR with a 410, and is over."""
    server = make_frontend()
    version = str(server.store.version)
    answered(server, "POST", LEASES, {"metadata": {"name": "one"}})
    server.store.compact(server.store.version)
    stream = ask(server, "GET", LEASES, watch="1", resourceVersion=version)
    assert isinstance(stream, Stream)
    (line,) = (msgspec.json.decode(each) for each in stream.opening)
    assert stream.finished
    assert (line["type"], line["object"]["code"], line["object"]["reason"]) == ("ERROR", 410, "Expired")


def test_a_list_that_is_turned_too_slowly() -> None:
    """An expired token is a 410 that brings another token, which goes on with things as they are now."""
    server = make_frontend()
    for name in "abcd":
        answered(server, "POST", LEASES, {"metadata": {"name": name}})
    first = answered(server, "GET", LEASES, limit="2")
    answered(server, "DELETE", f"{LEASES}/c")
    server.store.compact(server.store.version)
    late = answered(server, "GET", LEASES, **{"limit": "2", "continue": first["metadata"]["continue"]})
    assert (late["code"], late["reason"]) == (410, "Expired")
    rest = answered(server, "GET", LEASES, **{"limit": "2", "continue": late["metadata"]["continue"]})
    assert [one["metadata"]["name"] for one in rest["items"]] == ["d"]
    assert rest["metadata"]["resourceVersion"] == str(server.store.version)


def test_a_token_of_another_collection() -> None:
    """A token can't be carried to another namespace."""
    server = make_frontend()
    for name in "ab":
        answered(server, "POST", LEASES, {"metadata": {"name": name}})
    token = answered(server, "GET", LEASES, limit="1")["metadata"]["continue"]
    elsewhere = LEASES.replace("default", "kube-system")
    assert answered(server, "GET", elsewhere, **{"continue": token})["code"] == 400


def test_a_guard_refuses() -> None:
    """A guard sees who wants what and may refuse it."""
    seen: list[Call] = []

    def guard(call: Call) -> None:
        seen.append(call)
        if call.method == "DELETE":
            raise forbidden(call.target.resource, call.target.name, "not by you")

    server = Frontend(fresh=system_fresh(), now=NOW, guard=guard)
    answered(server, "POST", PODS, pod("one"))
    refused = answered(server, "DELETE", f"{PODS}/one")
    assert (refused["code"], refused["reason"]) == (403, "Forbidden")
    assert [(call.method, call.target.resource.plural, call.target.name) for call in seen] == [
        ("POST", "pods", ""),
        ("DELETE", "pods", "one"),
    ]


@pytest.mark.parametrize("way", ["exec", "attach", "portforward", "proxy", "proxy/some/page"])
@pytest.mark.parametrize("method", ["GET", "POST"])
def test_nobody_is_led_into_a_pod(way: str, method: str) -> None:
    """Whoever asks for it is told why, and what to do instead; what is no such way is still no page."""
    server = make_frontend()
    answered(server, "POST", PODS, pod("one"))
    told = answered(server, method, f"{PODS}/one/{way}")
    assert told["code"] == 405
    assert told["message"].startswith(f"{way.partition('/')[0]} needs a cluster")
    assert answered(server, method, f"{PODS}/one/other")["code"] == 404


def test_a_server_is_furnished_once() -> None:
    """A server over a store that is furnished already leaves it as it is."""
    store = Store()
    make_frontend(store=store)
    version = store.version
    make_frontend(store=store)
    assert store.version == version


def test_a_namespace_waits_for_its_pods() -> None:
    """A namespace whose pod must still be ended by a kubelet is Terminating, takes nothing new, and then goes."""
    server = make_frontend()
    answered(server, "POST", "api/v1/namespaces", {"metadata": {"name": "mine"}})
    path = PODS.replace("default", "mine")
    answered(server, "POST", path, pod("one"))
    answered(server, "POST", f"{path}/one/binding", {"target": {"name": "n"}})
    assert answered(server, "DELETE", "api/v1/namespaces/mine")["status"] == {"phase": "Terminating"}
    refused = answered(server, "POST", path, pod("two"))
    assert (refused["code"], refused["reason"]) == (403, "Forbidden")
    assert answered(server, "GET", "api/v1/namespaces/mine")["status"]["phase"] == "Terminating"
    answered(server, "DELETE", f"{path}/one", gracePeriodSeconds="0")
    assert answered(server, "GET", "api/v1/namespaces/mine")["code"] == 404


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
PLACES = st.sampled_from(
    [
        ("metadata",),
        ("metadata", "labels"),
        ("metadata", "annotations", "a"),
        ("metadata", "finalizers"),
        ("metadata", "ownerReferences"),
        ("metadata", "generateName"),
        ("metadata", "resourceVersion"),
        ("spec",),
        ("spec", "containers"),
        ("spec", "containers", 0),
        ("spec", "containers", 0, "name"),
        ("spec", "containers", 0, "image"),
        ("spec", "containers", 0, "env"),
        ("spec", "containers", 0, "ports"),
        ("spec", "containers", 0, "resources"),
        ("spec", "containers", 0, "resources", "limits"),
        ("spec", "containers", 0, "volumeMounts"),
        ("spec", "initContainers"),
        ("spec", "volumes"),
        ("spec", "affinity"),
        ("spec", "affinity", "nodeAffinity"),
        ("spec", "affinity", "nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution"),
        ("spec", "tolerations"),
        ("spec", "schedulingGates"),
        ("spec", "nodeSelector"),
        ("spec", "readinessGates"),
        ("spec", "priority"),
        ("status",),
        ("status", "phase"),
        ("status", "conditions"),
        ("status", "containerStatuses"),
        ("status", "containerStatuses", 0),
        ("status", "initContainerStatuses"),
        ("status", "podIP"),
        ("status", "initContainerStatuses", 0, "state"),
        ("status", "initContainerStatuses", 0, "state", "terminated"),
        ("status", "containerStatuses", 0, "state", "waiting"),
        ("status", "containerStatuses", 0, "restartCount"),
        ("spec", "affinity", "nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution", "nodeSelectorTerms"),
        ("target",),
        ("deleteOptions",),
        ("kind",),
    ]
)
CODES = {200, 201, 400, 403, 404, 405, 409, 415, 422}


def put_at(obj: dict[str, Any], place: tuple[Any, ...], value: Any) -> None:
    """Set something deep in an object, making the way as needed."""
    at: Any = obj
    for step, then in itertools.pairwise(place):
        at = at[step] if isinstance(at, list) else at.setdefault(step, [{}] if then == 0 else {})
    at[place[-1]] = value


def prepared() -> Frontend:
    """Make a server with a gated pod, whose affinity may be written to."""
    server = make_frontend()
    body = pod("one")
    body["spec"]["schedulingGates"] = [{"name": "gate"}]
    answered(server, "POST", PODS, body)
    return server


@settings(max_examples=300)
@example(place=("spec", "containers", 0, "resources", "limits"), value={"": 1e100}, how=("POST", PODS, ""))
@given(
    place=PLACES,
    value=JSON,
    how=st.sampled_from(
        [
            ("POST", PODS, ""),
            ("PUT", f"{PODS}/one", ""),
            ("PUT", f"{PODS}/one/status", ""),
            ("PATCH", f"{PODS}/one", "application/merge-patch+json"),
            ("PATCH", f"{PODS}/one", "application/strategic-merge-patch+json"),
            ("PATCH", f"{PODS}/one/status", "application/merge-patch+json"),
            ("PATCH", f"{PODS}/one/status", "application/strategic-merge-patch+json"),
            ("POST", f"{PODS}/one/binding", ""),
            ("POST", f"{PODS}/one/eviction", ""),
            ("DELETE", f"{PODS}/one", ""),
        ]
    ),
)
def test_no_body_makes_the_server_fail(place: tuple[Any, ...], value: Any, how: tuple[str, str, str]) -> None:
    """Whatever stands at whatever place of a body, the answer is an object or a refusal, and the server goes on."""
    server = prepared()
    method, path, kind = how
    body: dict[str, Any] = pod("one") if method != "POST" else pod("two")
    put_at(body, place, value)
    answer = ask(server, method, path, body, kind=kind)
    assert isinstance(answer, Answer)
    assert answer.code in CODES, answer.body
    table = "application/json;as=Table;v=v1;g=meta.k8s.io"
    for accept in ("", table):
        listed = server.handle(Request(method="GET", path=tuple(PODS.split("/")), accept=accept), now=NOW)
        assert isinstance(listed, Answer)
        assert listed.code == 200, listed.body


@given(st.binary(max_size=40), st.sampled_from(["application/json", "application/yaml", "", "x/y"]))
def test_no_bytes_make_the_server_fail(body: bytes, kind: str) -> None:
    """Bytes that are no object are refused."""
    answer = ask(make_frontend(), "POST", PODS, body, kind=kind)
    assert isinstance(answer, Answer)
    assert answer.code in {400, 415, 422}


@pytest.mark.parametrize(
    "body",
    [
        b"[" * 100_000,
        b'{"a":' * 100_000,
        b'{"metadata":{"name":"x","labels":{"a":"\\ud800"}}}',
        b'{"metadata":{"name":"x"},"spec":{"priority":1e400}}',
        b'{"metadata":{"name":"x"},"spec":{"priority":99999999999999999999999999}}',
        b'{"metadata":{"name":"x"},"extra":99999999999999999999999999}',
    ],
)
def test_hostile_json(body: bytes) -> None:
    """Deep nesting, lone surrogates and huge numbers are refused or stored, and never more than that."""
    server = make_frontend()
    answer = ask(server, "POST", PODS, body)
    assert isinstance(answer, Answer)
    assert answer.code in {400, 403, 422}


def test_yaml_with_anchors_is_refused() -> None:
    """A few lines of YAML may unfold to gigabytes; they are not unfolded."""
    bomb = b"a: &a [x, x]\nb: &b [*a, *a]\nc: [*b, *b]\n"
    refused = answered(make_frontend(), "POST", PODS, bomb, kind="application/yaml")
    assert (refused["code"], refused["reason"]) == (400, "BadRequest")


def test_a_body_in_yaml() -> None:
    """Objects may be sent as YAML."""
    body = b"metadata: {name: one}\nspec: {containers: [{name: main, image: 'none:1'}]}\n"
    created = answered(make_frontend(), "POST", PODS, body, kind="application/yaml")
    assert created["metadata"]["name"] == "one"
