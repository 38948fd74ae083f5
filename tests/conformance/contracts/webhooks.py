"""Admission webhooks on any API server: who is asked about what, in which order, and what answers do."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from conformance.contracts.space import Space
from support.http_api import Json, Reply
from support.scripted_webhook import ScriptedWebhook, allowing, scripted_webhook

ADMISSION = "/apis/admissionregistration.k8s.io/v1"
PROBE = "probe"


class Hooks:
    """Webhooks about the config maps of one namespace."""

    def __init__(self, space: Space, webhook: ScriptedWebhook) -> None:
        self.api = space.api
        self.space = space
        self.webhook = webhook
        self.made: list[str] = []

    def configure(self, *names: str, mutating: bool = False, where: Json | None = None, **fields: Any) -> None:
        """Have webhooks of these names called, and wait until they are: a cluster takes a moment."""
        rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["*"], "resources": ["configmaps"]}
        selector = {"matchLabels": {"kubernetes.io/metadata.name": self.space.name}}
        hooks = [
            {
                "name": f"{name}.example.dev",
                "clientConfig": where or self.webhook.client_config(name),
                "rules": [rule],
                "namespaceSelector": selector,
                "sideEffects": "None",
                "admissionReviewVersions": ["v1"],
                "timeoutSeconds": 2,
                **fields,
            }
            for name in names
        ]
        kind = "mutating" if mutating else "validating"
        name = f"{self.space.name}-{kind}-{names[0]}"
        path = f"{ADMISSION}/{kind}webhookconfigurations"
        self.api.post(path, {"metadata": {"name": name}, "webhooks": hooks}).ok()
        self.made.append(f"{path}/{name}")
        if where is None and "matchConditions" not in fields:
            while names[-1] not in self.webhook.names(PROBE):
                self.create(PROBE, dryRun="All")

    def create(self, name: str = "one", data: Json | None = None, **query: str) -> Reply:
        """Create a config map."""
        return self.api.post(self.space.config_maps, {"metadata": {"name": name}, "data": data or {}}, **query)


class WebhooksContract:
    """What webhooks see and do."""

    @pytest.fixture
    def hooks(self, space: Space, tmp_path: Path) -> Iterator[Hooks]:
        """A webhook that answers, and configurations that are taken away again."""
        with scripted_webhook(tmp_path / "hook") as webhook:
            hooks = Hooks(space, webhook)
            yield hooks
            for path in hooks.made:
                space.api.delete(path)

    def test_a_mutating_webhook_changes_what_is_stored(self, hooks: Hooks) -> None:
        """Its patch is carried out on the object as clients see it."""
        hooks.webhook.scripts["m"] = lambda _: allowing({"op": "add", "path": "/data", "value": {"b": "2"}})
        hooks.configure("m", mutating=True)
        assert hooks.create().ok()["data"] == {"b": "2"}
        request = next(request for _, request in hooks.webhook.asked if request["name"] == "one")
        assert (request["operation"], request["namespace"], request["oldObject"]) == ("CREATE", hooks.space.name, None)
        assert (request["object"]["kind"], request["object"]["apiVersion"]) == ("ConfigMap", "v1")
        assert request["resource"] == {"group": "", "version": "v1", "resource": "configmaps"}
        assert "uid" not in request["object"]["metadata"]

    def test_one_that_needs_it_is_asked_again(self, hooks: Hooks) -> None:
        """Where one after it has changed the object; validating ones come last and see the finished object."""
        hooks.webhook.scripts["b"] = lambda _: allowing({"op": "add", "path": "/data", "value": {"b": "2"}})
        hooks.configure("v")
        hooks.configure("a", "b", mutating=True, reinvocationPolicy="IfNeeded")
        hooks.create().ok()
        assert hooks.webhook.names("one") == ["a", "b", "a", "v"]
        seen = hooks.webhook.asked[-1][1]["object"]
        assert seen["data"] == {"b": "2"}
        assert seen["metadata"]["uid"]

    @pytest.mark.parametrize("mutating", [True, False])
    def test_a_refusal_reaches_the_client(self, hooks: Hooks, *, mutating: bool) -> None:
        """In its own words and with its code; nothing is stored."""
        status = {"code": 422, "message": "not today"}
        hooks.webhook.scripts["v"] = lambda _: {"allowed": False, "status": status}
        hooks.configure("v", mutating=mutating)
        refused = hooks.create()
        assert refused.code == 422
        assert refused.body["message"] == 'admission webhook "v.example.dev" denied the request: not today'
        assert hooks.api.get(f"{hooks.space.config_maps}/one").code == 404

    def test_a_refusal_without_words(self, hooks: Hooks) -> None:
        """It is said who refuses."""
        hooks.webhook.scripts["v"] = lambda _: {"allowed": False}
        hooks.configure("v")
        refused = hooks.create()
        assert refused.code in {400, 403}
        assert refused.body["message"] == 'admission webhook "v.example.dev" denied the request without explanation'

    def test_a_webhook_that_is_dead(self, hooks: Hooks) -> None:
        """It refuses, unless its configuration lets it be ignored."""
        nowhere = {"url": "https://127.0.0.1:1/"}
        hooks.configure("ignored", where=nowhere, failurePolicy="Ignore")
        hooks.configure("seen")
        hooks.create("one").ok()
        hooks.configure("fatal", where=nowhere)
        hooks.configure("last")
        refused = hooks.create("two")
        assert (refused.code, refused.reason) == (500, "InternalError")
        assert 'failed calling webhook "fatal.example.dev"' in refused.body["message"]

    def test_updates_and_deletions(self, hooks: Hooks) -> None:
        """An update shows both states, a deletion the old one, and may be refused."""
        path = f"{hooks.space.config_maps}/one"
        hooks.create(data={"a": "1"}).ok()
        hooks.configure("v")
        hooks.api.patch(path, {"data": {"a": "2"}}).ok()
        update = hooks.webhook.asked[-1][1]
        assert (update["oldObject"]["data"], update["object"]["data"]) == ({"a": "1"}, {"a": "2"})
        hooks.webhook.scripts["v"] = lambda _: {"allowed": False, "status": {"message": "stays", "code": 403}}
        assert hooks.api.delete(path).code == 403
        deletion = hooks.webhook.asked[-1][1]
        assert (deletion["operation"], deletion["object"], deletion["name"]) == ("DELETE", None, "one")
        assert deletion["oldObject"]["data"] == {"a": "2"}
        hooks.webhook.scripts.clear()
        hooks.api.delete(path).ok()

    def test_conditions_narrow_what_is_asked(self, hooks: Hooks) -> None:
        """In CEL, all of them; the real installation's are of this kind."""
        conditions = [
            {"name": "says", "expression": "object.?data.orValue({}).exists(k, k.startsWith('ask'))"},
            {"name": "not-a-node", "expression": "!('system:nodes' in request.userInfo.?groups.orValue([]))"},
            {
                "name": "new",
                "expression": "request.operation == 'CREATE' || object.?data[?'x'] != oldObject.?data[?'x']",
            },
        ]
        hooks.configure("v", matchConditions=conditions)
        hooks.configure("last")
        hooks.create("none").ok()
        hooks.create("some", data={"ask-me": "1"}).ok()
        path = f"{hooks.space.config_maps}/some"
        hooks.api.patch(path, {"data": {"y": "1"}}).ok()
        hooks.api.patch(path, {"data": {"x": "1"}}).ok()
        told = [request["operation"] for path, request in hooks.webhook.asked if path == "v"]
        assert told == ["CREATE", "UPDATE"]

    @pytest.mark.parametrize(
        ("fields", "code"),
        [
            ({"matchConditions": [{"name": "c", "expression": "object.("}]}, 422),
            ({"failurePolicy": "Sometimes"}, 422),
            ({"timeoutSeconds": 31}, 422),
            ({"clientConfig": {}}, 422),
            ({"sideEffects": "Some"}, 422),
        ],
    )
    def test_a_configuration_that_is_none(self, hooks: Hooks, fields: Json, code: int) -> None:
        """It is refused when it is written."""
        webhook = {"name": "a.b.c", "clientConfig": {"url": "https://x"}, "sideEffects": "None"}
        webhook |= {"admissionReviewVersions": ["v1"], **fields}
        body = {"metadata": {"name": hooks.space.name}, "webhooks": [webhook]}
        assert hooks.api.post(f"{ADMISSION}/validatingwebhookconfigurations", body).code == code
