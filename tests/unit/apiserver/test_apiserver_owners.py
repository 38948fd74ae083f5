"""What goes with its owner, before it, or stays."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import msgspec
import pytest

from aliquot_standalone.apiserver.embedded import seeded_fresh
from aliquot_standalone.apiserver.exchange import Answer, Request
from aliquot_standalone.apiserver.frontend import Frontend
from aliquot_standalone.apiserver.journal import Journal
from aliquot_standalone.apiserver.store import Store
from support.embedded_api import NOW, make_frontend

MAPS = "api/v1/namespaces/default/configmaps"
PODS = "api/v1/namespaces/default/pods"
Json = dict[str, Any]


def ask(server: Frontend, method: str, path: str, body: Any = None, *, kind: str = "", **query: str) -> Json:
    """Send a request and read the answer."""
    raw = b"" if body is None else msgspec.json.encode(body)
    request = Request(method=method, path=tuple(path.split("/")), query=query, body=raw, content_type=kind)
    answer = server.handle(request, now=NOW)
    assert isinstance(answer, Answer)
    return dict(msgspec.json.decode(answer.body))


def owned(server: Frontend, name: str, *owners: Json, block: bool = True, **metadata: Any) -> Json:
    """Create a config map that these own."""
    references = [
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "name": owner["metadata"]["name"],
            "uid": owner["metadata"]["uid"],
            "blockOwnerDeletion": block,
        }
        for owner in owners
    ]
    return ask(server, "POST", MAPS, {"metadata": {"name": name, "ownerReferences": references, **metadata}})


def names(server: Frontend) -> set[str]:
    """Name the config maps that are there."""
    return {one["metadata"]["name"] for one in ask(server, "GET", MAPS)["items"]}


def test_what_an_object_owns_goes_with_it_and_what_that_owns_too() -> None:
    """In the background all go in one write's time, children's children too, and strangers stay."""
    server = make_frontend()
    root = owned(server, "root")
    child = owned(server, "child", root)
    owned(server, "grandchild", child)
    owned(server, "stranger")
    ask(server, "DELETE", f"{MAPS}/root")
    assert names(server) == {"stranger"}


def test_an_object_of_two_owners_goes_with_the_second() -> None:
    """One owner that goes is only forgotten."""
    server = make_frontend()
    one, two = owned(server, "one"), owned(server, "two")
    owned(server, "both", one, two)
    ask(server, "DELETE", f"{MAPS}/one")
    kept = ask(server, "GET", f"{MAPS}/both")
    assert [owner["name"] for owner in kept["metadata"]["ownerReferences"]] == ["two"]
    ask(server, "DELETE", f"{MAPS}/two")
    assert names(server) == set()


def test_what_is_made_for_an_owner_that_is_gone_goes_after_it() -> None:
    """A controller may hear late that its object went; an owner made since under the same name is another one."""
    server = make_frontend()
    late, other = owned(server, "late"), owned(server, "other")
    ask(server, "DELETE", f"{MAPS}/late")
    owned(server, "late")
    assert owned(server, "orphan", late)["metadata"]["name"] == "orphan"
    owned(server, "both", late, other)
    assert names(server) == {"late", "other", "both"}
    kept = ask(server, "GET", f"{MAPS}/both")["metadata"]["ownerReferences"]
    assert [owner["uid"] for owner in kept] == [other["metadata"]["uid"]]


def test_what_is_handed_to_an_owner_that_is_gone_goes_after_it() -> None:
    """Also one that was there before it."""
    server = make_frontend()
    late = owned(server, "late")
    ask(server, "DELETE", f"{MAPS}/late")
    given = owned(server, "given")
    reference = {"apiVersion": "v1", "kind": "ConfigMap", "name": "late", "uid": late["metadata"]["uid"]}
    given["metadata"]["ownerReferences"] = [reference]
    ask(server, "PUT", f"{MAPS}/given", given, dryRun="All")
    assert names(server) == {"given"}
    ask(server, "PUT", f"{MAPS}/given", given)
    assert names(server) == set()


def test_of_an_owner_of_a_kind_that_is_not_served_nobody_knows() -> None:
    """A thing of an operator's is left to the operator."""
    server = make_frontend()
    reference = {"apiVersion": "example.org/v1", "kind": "Robot", "name": "set", "uid": "u"}
    ask(server, "POST", MAPS, {"metadata": {"name": "left", "ownerReferences": [reference]}})
    assert names(server) == {"left"}


def test_orphans_stay_and_forget_their_owner() -> None:
    """With the policy Orphan nothing is taken along."""
    server = make_frontend()
    root = owned(server, "root")
    owned(server, "child", root)
    ask(server, "DELETE", f"{MAPS}/root", {"propagationPolicy": "Orphan"})
    assert names(server) == {"child"}
    assert "ownerReferences" not in ask(server, "GET", f"{MAPS}/child")["metadata"]


def test_in_the_foreground_the_owner_waits_for_those_that_block_it() -> None:
    """It is marked and held until the last of them is gone; who does not block it is not waited for."""
    server = make_frontend()
    root = owned(server, "root")
    owned(server, "held", root, finalizers=["example.org/wait"])
    owned(server, "loose", root, block=False, finalizers=["example.org/wait"])
    ask(server, "DELETE", f"{MAPS}/root", propagationPolicy="Foreground")
    waiting = ask(server, "GET", f"{MAPS}/root")["metadata"]
    assert waiting["finalizers"] == ["foregroundDeletion"]
    assert waiting["deletionTimestamp"]
    assert ask(server, "GET", f"{MAPS}/held")["metadata"]["deletionTimestamp"]
    no_finalizers = [{"op": "remove", "path": "/metadata/finalizers"}]
    ask(server, "PATCH", f"{MAPS}/held", no_finalizers, kind="application/json-patch+json")
    assert names(server) == {"loose"}


@pytest.mark.parametrize("policy", ["Foreground", "Background", "Orphan"])
def test_an_owner_of_nothing_goes_at_once(policy: str) -> None:
    """Nobody is left marked who has nobody to wait for."""
    server = make_frontend()
    owned(server, "alone")
    ask(server, "DELETE", f"{MAPS}/alone", {"propagationPolicy": policy})
    assert names(server) == set()


def test_a_pod_that_runs_is_given_its_grace_when_its_owner_goes() -> None:
    """It is marked, for the kubelet to end; the owner is gone already."""
    server = make_frontend()
    root = owned(server, "root")
    pod = {
        "metadata": {
            "name": "run",
            "ownerReferences": [
                {"apiVersion": "v1", "kind": "ConfigMap", "name": "root", "uid": root["metadata"]["uid"]}
            ],
        },
        "spec": {"containers": [{"name": "main", "image": "none:1"}], "nodeName": "somewhere"},
    }
    ask(server, "POST", PODS, pod)
    ask(server, "DELETE", f"{MAPS}/root")
    assert names(server) == set()
    assert ask(server, "GET", f"{PODS}/run")["metadata"]["deletionGracePeriodSeconds"] == 30


def test_a_namespace_takes_owners_and_owned_in_any_order() -> None:
    """What has gone with its owner is not missed when the namespace empties itself."""
    server = make_frontend()
    ask(server, "POST", "api/v1/namespaces", {"metadata": {"name": "team"}})
    maps = "api/v1/namespaces/team/configmaps"
    root = ask(server, "POST", maps, {"metadata": {"name": "a"}})
    reference = {"apiVersion": "v1", "kind": "ConfigMap", "name": "a", "uid": root["metadata"]["uid"]}
    ask(server, "POST", maps, {"metadata": {"name": "b", "ownerReferences": [reference]}})
    ask(server, "DELETE", "api/v1/namespaces/team")
    assert ask(server, "GET", "api/v1/namespaces/team")["code"] == 404


def test_what_a_journal_brings_back_is_owned_as_before(tmp_path: Path) -> None:
    """After a restart the owner still takes its own along."""
    journal, store = Journal(tmp_path), Store()
    journal.recover(store)
    server = make_frontend(store=store)
    root = owned(server, "root")
    owned(server, "child", root)
    journal.close()
    journal, store = Journal(tmp_path), Store()
    journal.recover(store)
    server = Frontend(fresh=seeded_fresh(random.Random(8)), now=NOW, store=store)
    ask(server, "DELETE", f"{MAPS}/root")
    journal.close()
    assert names(server) == set()


def test_a_policy_that_nobody_knows_is_refused() -> None:
    """A mistyped policy deletes nothing."""
    server = make_frontend()
    owned(server, "root")
    answer = ask(server, "DELETE", f"{MAPS}/root", {"propagationPolicy": "Perhaps"})
    assert (answer["code"], names(server)) == (422, {"root"})
