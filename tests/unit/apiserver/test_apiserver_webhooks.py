"""Webhooks as Kubernetes calls them, without a wire: the test answers what the server asks."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from aliquot_standalone.apiserver.consulting import WebhookCall, WebhookResult
from aliquot_standalone.apiserver.exchange import Answer, Request
from aliquot_standalone.apiserver.frontend import Frontend
from support.embedded_api import NOW, make_frontend

Json = dict[str, Any]
ADMISSION = "/apis/admissionregistration.k8s.io/v1"
MAPS = "/api/v1/namespaces/default/configmaps"
Answerer = Callable[[WebhookCall, Json], WebhookResult]


class Stage:
    """A server, and a script of what webhooks say."""

    def __init__(self) -> None:
        self.frontend: Frontend = make_frontend()
        self.asked: list[tuple[str, Json]] = []
        self.answers: dict[str, Answerer] = {}

    def call(self, method: str, path: str, body: Any = None, *, user: str = "anna", **query: str) -> tuple[int, Json]:
        """Send a request and carry its conversation to the end."""
        patching = "application/merge-patch+json" if method == "PATCH" else "application/json"
        request = Request(
            method=method,
            path=tuple(path.strip("/").split("/")),
            query=query,
            content_type=patching,
            body=json.dumps(body).encode() if body is not None else b"",
            user=user,
        )
        conversation = self.frontend.converse(request, now=NOW)
        try:
            calls = next(conversation)
            while True:
                calls = conversation.send(self._answered(calls))
        except StopIteration as end:
            answer = end.value
        assert isinstance(answer, Answer)
        self.warnings = answer.warnings
        return answer.code, json.loads(answer.body)

    def _answered(self, calls: Sequence[WebhookCall]) -> list[WebhookResult]:
        results = []
        for call in calls:
            request = json.loads(call.body)["request"]
            self.asked.append((call.webhook, request))
            results.append(self.answers.get(call.webhook, allowing())(call, request))
        return results

    def configure(self, name: str, *, mutating: bool = False, **fields: Any) -> None:
        """Add a webhook about config maps."""
        rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["*"], "resources": ["configmaps"]}
        webhook = {"name": name, "clientConfig": {"url": "https://here"}, "rules": [rule], "sideEffects": "None"}
        webhook |= {"admissionReviewVersions": ["v1"], **fields}
        kind = "mutating" if mutating else "validating"
        body = {"metadata": {"name": name.replace("/", "-")}, "webhooks": [webhook]}
        code, made = self.call("POST", f"{ADMISSION}/{kind}webhookconfigurations", body)
        assert code == 201, made

    @property
    def names(self) -> list[str]:
        """Who was asked, in order."""
        return [name for name, _ in self.asked]


def reply(request: Json, **response: Any) -> WebhookResult:
    """Spell a webhook's answer."""
    body = {"uid": request["uid"], **response}
    review = {"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "response": body}
    return WebhookResult(body=json.dumps(review).encode())


def allowing(*operations: Json, warnings: Sequence[str] = ()) -> Answerer:
    """Let it pass, changed."""

    def answer(_: WebhookCall, request: Json) -> WebhookResult:
        patch = {"patchType": "JSONPatch", "patch": base64.b64encode(json.dumps(operations).encode()).decode()}
        return reply(request, allowed=True, warnings=list(warnings), **(patch if operations else {}))

    return answer


def refusing(**status: Any) -> Answerer:
    """Refuse it."""
    return lambda _, request: reply(request, allowed=False, status=status)


def silent(_: WebhookCall, __: Json) -> WebhookResult:
    """Do not answer."""
    return WebhookResult(trouble="nobody listens")


@pytest.fixture
def stage() -> Stage:
    """A server without webhooks."""
    return Stage()


def made(name: str = "one", **data: str) -> Json:
    """A config map."""
    return {"metadata": {"name": name, "labels": {"a": "1"}}, "data": data}


def test_a_mutating_webhook_changes_what_is_stored(stage: Stage) -> None:
    """Its patch is of the object as clients see it, and what is stored is the changed one."""
    stage.configure("m", mutating=True)
    stage.answers["m"] = allowing({"op": "add", "path": "/data/b", "value": "2"}, warnings=["mind the gap"])
    code, body = stage.call("POST", MAPS, made(a="1"))
    assert (code, body["data"]) == (201, {"a": "1", "b": "2"})
    assert stage.warnings == ("mind the gap",)
    request = stage.asked[0][1]
    assert (request["operation"], request["userInfo"]["username"], request["namespace"]) == (
        "CREATE",
        "anna",
        "default",
    )
    assert (request["object"]["kind"], request["resource"]["resource"]) == ("ConfigMap", "configmaps")
    assert stage.call("GET", f"{MAPS}/one")[1]["data"] == {"a": "1", "b": "2"}


def test_validating_ones_see_the_finished_object(stage: Stage) -> None:
    """They are asked after all mutating ones, and about an object that has its identity."""
    stage.configure("v")
    stage.configure("m", mutating=True)
    stage.answers["m"] = allowing({"op": "add", "path": "/data/b", "value": "2"})
    stage.call("POST", MAPS, made(a="1"))
    assert stage.names == ["m", "v"]
    seen = stage.asked[1][1]["object"]
    assert seen["data"] == {"a": "1", "b": "2"}
    assert seen["metadata"]["uid"]
    assert "uid" not in stage.asked[0][1]["object"]["metadata"]


def test_one_is_asked_again_when_another_changed_the_object(stage: Stage) -> None:
    """Only where its configuration says `IfNeeded`, and only once."""
    for name, policy in (("a", "IfNeeded"), ("b", "Never"), ("c", "Never")):
        stage.configure(name, mutating=True, reinvocationPolicy=policy)
    stage.answers["b"] = allowing({"op": "add", "path": "/data/b", "value": "2"})
    stage.call("POST", MAPS, made(a="1"))
    assert stage.names == ["a", "b", "c", "a"]


def test_ones_own_change_is_no_reason_to_be_asked_again(stage: Stage) -> None:
    """Who has seen the object as it will be stored is not asked twice."""
    stage.configure("a", mutating=True, reinvocationPolicy="IfNeeded")
    stage.answers["a"] = allowing({"op": "add", "path": "/data/b", "value": "2"})
    stage.call("POST", MAPS, made(a="1"))
    assert stage.names == ["a"]


def test_a_refusal_reaches_the_client(stage: Stage) -> None:
    """With the webhook's name, its words and its code; nothing is stored."""
    stage.configure("v")
    stage.answers["v"] = refusing(message="not today", code=422)
    code, body = stage.call("POST", MAPS, made())
    assert (code, body["reason"]) == (422, "Invalid")
    assert body["message"] == 'admission webhook "v" denied the request: not today'
    assert stage.call("GET", f"{MAPS}/one")[0] == 404


@pytest.mark.parametrize(("policy", "code"), [("Fail", 500), ("Ignore", 201)])
@pytest.mark.parametrize("mutating", [True, False])
def test_a_webhook_that_fails(stage: Stage, policy: str, code: int, *, mutating: bool) -> None:
    """It refuses the write, unless its configuration says that it may be ignored."""
    stage.configure("w", mutating=mutating, failurePolicy=policy)
    stage.answers["w"] = silent
    assert stage.call("POST", MAPS, made())[0] == code


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b'{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","response":{"uid":"x","allowed":true}}',
    ],
)
def test_an_answer_to_another_question_is_none(stage: Stage, body: bytes) -> None:
    """What can't be read, or answers something else, is a failure."""
    stage.configure("v")
    stage.answers["v"] = lambda _, __: WebhookResult(body=body)
    code, answer = stage.call("POST", MAPS, made())
    assert (code, answer["reason"]) == (500, "InternalError")
    assert 'failed calling webhook "v"' in answer["message"]


def test_a_patch_that_can_not_be_carried_out(stage: Stage) -> None:
    """It is the webhook's failure, and changes nothing."""
    stage.configure("m", mutating=True)
    stage.answers["m"] = allowing({"op": "remove", "path": "/data/none"})
    assert stage.call("POST", MAPS, made())[0] == 500


@pytest.mark.parametrize(
    ("fields", "asked"),
    [
        ({}, True),
        ({"objectSelector": {"matchLabels": {"a": "1"}}}, True),
        ({"objectSelector": {"matchLabels": {"a": "2"}}}, False),
        ({"namespaceSelector": {"matchExpressions": [{"key": "x", "operator": "Exists"}]}}, False),
        (
            {
                "namespaceSelector": {
                    "matchExpressions": [
                        {"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": ["default"]}
                    ]
                }
            },
            False,
        ),
        ({"matchConditions": [{"name": "c", "expression": "object.metadata.name == 'one'"}]}, True),
        ({"matchConditions": [{"name": "c", "expression": "request.operation == 'DELETE'"}]}, False),
        ({"matchConditions": [{"name": "c", "expression": "'system:masters' in request.userInfo.groups"}]}, False),
    ],
)
def test_who_is_asked_about_what(stage: Stage, fields: Json, *, asked: bool) -> None:
    """Selectors and conditions narrow the rules."""
    stage.configure("v", **fields)
    assert stage.call("POST", MAPS, made())[0] == 201
    assert stage.names == (["v"] if asked else [])


def test_a_condition_that_can_not_be_evaluated_refuses(stage: Stage) -> None:
    """As a webhook that fails would; a configuration that can't be understood is refused itself."""
    stage.configure("v", matchConditions=[{"name": "c", "expression": "object.none == 1"}])
    assert stage.call("POST", MAPS, made())[0] == 403
    body = {"metadata": {"name": "bad"}, "webhooks": [{"name": "b", "clientConfig": {"url": "https://x"}}]}
    body["webhooks"][0]["matchConditions"] = [{"name": "c", "expression": "explode()"}]  # type: ignore[index]  # JSON
    code, answer = stage.call("POST", f"{ADMISSION}/validatingwebhookconfigurations", body)
    assert (code, answer["reason"]) == (422, "Invalid")


def test_updates_and_deletions_are_asked_about(stage: Stage) -> None:
    """An update shows both states, a deletion the old one; who refuses it keeps the object."""
    stage.call("POST", MAPS, made(a="1"))
    stage.configure("v")
    stage.call("PATCH", f"{MAPS}/one", {"data": {"a": "2"}})
    stage.answers["v"] = refusing(message="stays", code=403)
    assert stage.call("DELETE", f"{MAPS}/one")[0] == 403
    update, deletion = (request for _, request in stage.asked)
    assert (update["oldObject"]["data"], update["object"]["data"]) == ({"a": "1"}, {"a": "2"})
    assert (deletion["operation"], deletion["object"], deletion["oldObject"]["data"]) == ("DELETE", None, {"a": "2"})
    assert stage.call("GET", f"{MAPS}/one")[0] == 200


def test_who_writes_meanwhile_is_not_overwritten(stage: Stage) -> None:
    """A patch is made once more of what is there after the webhook has answered."""
    stage.call("POST", MAPS, made(a="1"))
    stage.configure("v")
    others = iter([{"data": {"other": "x"}}])

    def slow(_: WebhookCall, request: Json) -> WebhookResult:
        for change in others:
            stage.call("PATCH", f"{MAPS}/one", change)
        return reply(request, allowed=True)

    stage.answers["v"] = slow
    stage.call("PATCH", f"{MAPS}/one", {"data": {"a": "2"}})
    assert stage.call("GET", f"{MAPS}/one")[1]["data"] == {"a": "2", "other": "x"}


@pytest.mark.parametrize("mutating", [True, False])
def test_a_namespace_that_goes_meanwhile_takes_nothing_in(stage: Stage, *, mutating: bool) -> None:
    """What were stored there after all would be deleted by nobody, and the namespace never go."""
    stage.call("POST", "/api/v1/namespaces", {"metadata": {"name": "going"}})
    stage.configure("slow", mutating=mutating)

    def deleting(_: WebhookCall, request: Json) -> WebhookResult:
        if request["operation"] == "CREATE":
            assert stage.call("DELETE", "/api/v1/namespaces/going")[0] == 200
        return reply(request, allowed=True)

    stage.answers["slow"] = deleting
    code, told = stage.call("POST", "/api/v1/namespaces/going/configmaps", {"metadata": {"name": "late"}})
    assert (code, told["reason"]) == (404, "NotFound")
    assert stage.call("GET", "/api/v1/namespaces/going/configmaps")[1]["items"] == []
    assert stage.call("GET", "/api/v1/namespaces/going")[0] == 404


def test_webhooks_are_told_of_a_dry_run(stage: Stage) -> None:
    """Only those without side effects can be configured, so all are asked."""
    stage.configure("v", sideEffects="NoneOnDryRun")
    assert stage.call("POST", MAPS, made(), dryRun="All")[0] == 201
    assert stage.asked[0][1]["dryRun"] is True
    assert stage.call("GET", f"{MAPS}/one")[0] == 404


def test_configurations_are_never_asked_about(stage: Stage) -> None:
    """A webhook that is gone could otherwise never be mended."""
    rule = {"apiGroups": ["*"], "apiVersions": ["*"], "operations": ["*"], "resources": ["*"]}
    stage.configure("v", rules=[rule])
    stage.answers["v"] = silent
    assert stage.call("DELETE", f"{ADMISSION}/validatingwebhookconfigurations/v")[0] == 200
    assert stage.call("POST", MAPS, made())[0] == 201
