"""Bodies of every kind with anything at any place: the answer is an object or a refusal, never a defect."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import hypothesis.strategies as st
import msgspec
from hypothesis import given, settings

from aliquot_standalone.apiserver.exchange import Answer, Request
from aliquot_standalone.apiserver.frontend import Frontend
from aliquot_standalone.installed import as_installed
from support.embedded_api import NOW, make_frontend

Json = dict[str, Any]
_HOME = "api/v1/namespaces/default"
_POD_SPEC = {"restartPolicy": "Never", "containers": [{"name": "main", "image": "none:1"}]}
_JOB = {"template": {"metadata": {"labels": {"a": "b"}}, "spec": _POD_SPEC}, "backoffLimit": 2, "completions": 3}
DEFINITION, _, MUTATING, VALIDATING = as_installed()
_ITEM = {"type": "Container", "default": {"cpu": "1"}, "defaultRequest": {"cpu": "1"}, "max": {"cpu": "2"}}
_SCOPES = {"matchExpressions": [{"scopeName": "PriorityClass", "operator": "In", "values": ["high"]}]}
BODIES: dict[str, Json] = {
    "apis/apiextensions.k8s.io/v1/customresourcedefinitions": DEFINITION,
    "apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations": MUTATING,
    "apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations": VALIDATING,
    "apis/aliquot.dev/v1alpha1/queues": {
        "metadata": {"name": "team"},
        "spec": {"parent": "p", "compute": {"limit": 5}, "hosts": {"cpu": 1}, "namespaces": ["a"]},
        "status": {"waiting": 1},
    },
    "apis/batch/v1/namespaces/default/jobs": {
        "metadata": {"name": "job"},
        "spec": _JOB,
        "status": {"succeeded": 1, "startTime": "2026-01-01T00:00:00Z", "conditions": [{"type": "Failed"}]},
    },
    f"{_HOME}/events": {
        "metadata": {"name": "e"},
        "involvedObject": {"kind": "Pod", "namespace": "default", "name": "x"},
        "lastTimestamp": "2026-01-01T00:00:00Z",
        "series": {"count": 2, "lastObservedTime": "2026-01-01T00:00:00Z"},
    },
    "apis/batch/v1/namespaces/default/cronjobs": {
        "metadata": {"name": "cron"},
        "spec": {"schedule": "* * * * *", "jobTemplate": {"spec": _JOB}, "timeZone": "UTC"},
        "status": {"lastScheduleTime": "2026-01-01T00:00:00Z", "active": [{"name": "x"}]},
    },
    f"{_HOME}/limitranges": {
        "metadata": {"name": "l"},
        "spec": {"limits": [{**_ITEM, "min": {"cpu": "1m"}, "maxLimitRequestRatio": {"cpu": "4"}}]},
    },
    f"{_HOME}/resourcequotas": {
        "metadata": {"name": "q"},
        "spec": {"hard": {"pods": "5", "requests.cpu": "2"}, "scopes": ["BestEffort"], "scopeSelector": _SCOPES},
    },
    f"{_HOME}/secrets": {"metadata": {"name": "s"}, "data": {"a": "YQ=="}, "type": "Opaque"},
    f"{_HOME}/services": {"metadata": {"name": "v"}, "spec": {"ports": [{"port": 1}]}, "status": {}},
    f"{_HOME}/pods": {
        "metadata": {
            "name": "pod",
            "labels": {"a": "b"},
            "annotations": {"c": "d"},
            "managedFields": [{"manager": "m"}],
        },
        "spec": {"containers": [{"name": "main", "image": "none:1", "resources": {"limits": {"cpu": "1"}}}]},
    },
}
_TEXTS = ["", "x", "9" * 300, "\ud7ff", "1e99", "(", "a.b[", "2026-01-01T00:00:00Z"]
_OTHERS: list[Any] = [None, True, 0, -1, 1.5, 10**30, [], [None], [1], ["x"], {}, {"x": 1}, {"": {}}]
ANYTHING: st.SearchStrategy[Any] = st.sampled_from([*_TEXTS, *_OTHERS])
CODES = {200, 201, 400, 403, 404, 405, 409, 415, 422, 500}
APPLY = "application/apply-patch+yaml"
MERGE = "application/merge-patch+json"


def places(value: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Every place of a body."""
    if at:
        yield at
    steps = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for step, inner in steps:
        yield from places(inner, (*at, step))


PLACES = [(path, place) for path, body in BODIES.items() for place in places(body)]


def replaced(body: Json, place: tuple[Any, ...], value: Any) -> Json:
    """Put something else at a place."""
    copy: Json = msgspec.json.decode(msgspec.json.encode(body))
    at: Any = copy
    for step in place[:-1]:
        at = at[step]
    at[place[-1]] = value
    return copy


def ask(server: Frontend, method: str, path: str, body: Any = None, *, kind: str = "", **query: str) -> Answer:
    """Send a request and take the answer."""
    request = Request(
        method=method,
        path=tuple(path.split("/")),
        query=query,
        content_type=kind,
        body=b"" if body is None else msgspec.json.encode(body),
        user="anna",
        accept=query.pop("accept", ""),
    )
    answer = server.handle(request, now=NOW)
    assert isinstance(answer, Answer)
    return answer


def check_all_is_well(server: Frontend, path: str) -> None:
    """What is stored can be shown, and something else can still be written."""
    for accept in ("", "application/json;as=Table;v=v1;g=meta.k8s.io"):
        assert ask(server, "GET", path, accept=accept).code in {200, 404}
    assert ask(server, "POST", "api/v1/namespaces", {"metadata": {"generateName": "n-"}}).code == 201
    assert ask(server, "GET", "openapi/v3/apis/aliquot.dev/v1alpha1").code in {200, 404}
    pod = replaced(BODIES[f"{_HOME}/pods"], ("metadata", "name"), "another")
    # A webhook that nobody answers, a bound or a default may refuse it in words.
    answer = ask(server, "POST", f"{_HOME}/pods", pod)
    assert answer.code in {201, 403, 422, 500}
    assert answer.code != 500 or b"failed calling webhook" in answer.body


@settings(max_examples=600, deadline=None)
@given(where=st.sampled_from(PLACES), value=ANYTHING)
def test_no_new_object_makes_the_server_fail(where: tuple[str, tuple[Any, ...]], value: Any) -> None:
    """Created with anything at any place, it is stored or refused; either way the server goes on."""
    path, place = where
    server = make_frontend()
    if "aliquot.dev/v1alpha1" in path:
        ask(server, "POST", next(iter(BODIES)), DEFINITION)
    answer = ask(server, "POST", path, replaced(BODIES[path], place, value))
    assert answer.code in CODES
    assert answer.code != 500 or b"failed calling webhook" in answer.body
    check_all_is_well(server, path)


@settings(max_examples=600, deadline=None)
@given(
    where=st.sampled_from(PLACES),
    value=ANYTHING,
    how=st.sampled_from([("PUT", ""), ("PATCH", MERGE), ("PATCH", APPLY), ("PUT/status", ""), ("PATCH/status", APPLY)]),
)
def test_no_change_makes_the_server_fail(where: tuple[str, tuple[Any, ...]], value: Any, how: tuple[str, str]) -> None:
    """Changed to anything at any place, in every way."""
    path, place = where
    server = make_frontend()
    if "aliquot.dev/v1alpha1" in path:
        ask(server, "POST", next(iter(BODIES)), DEFINITION)
    ask(server, "POST", path, BODIES[path], fieldManager="first")
    method, _, part = how[0].partition("/")
    address = "/".join(filter(None, (path, BODIES[path]["metadata"]["name"], part)))
    query = {"fieldManager": "m", "force": "true"} if how[1] == APPLY else {}
    answer = ask(server, method, address, replaced(BODIES[path], place, value), kind=how[1], **query)
    assert answer.code in CODES
    assert answer.code != 500 or b"failed calling webhook" in answer.body
    check_all_is_well(server, path)
