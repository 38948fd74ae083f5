"""Labels of namespaces by which pods get more than others', on a real API server: operators set them, and no tenant."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from cluster.guarded import Guarded
from cluster.harness.api import Api, Json
from cluster.harness.cluster import ClusterHarness
from cluster.installed import NAMES
from cluster.refusals import expect_refused

RBAC = "rbac.authorization.k8s.io"
WAYS_ROUND = NAMES.of("ways-round")
GUARD = "aliquot-guard-namespaces"


def labelled(**labels: str | None) -> Json:
    """A patch by our labels, named by what they say."""
    return {"metadata": {"labels": {NAMES.of(name.replace("_", "-")): value for name, value in labels.items()}}}


@pytest.fixture(scope="module")
def tenant(cluster: ClusterHarness, guarded: Guarded) -> Iterator[tuple[Api, str]]:
    """Who may do everything in a namespace of its own, with that itself too, and make others; and its path."""
    user = "owner-of-a-namespace"
    with cluster.namespace("owned") as name:
        subject = {"apiGroup": RBAC, "kind": "User", "name": user}
        rules: list[Json] = [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]
        create: list[Json] = [{"apiGroups": [""], "resources": ["namespaces"], "verbs": ["create"]}]
        for kind, granted in (("Role", rules), ("ClusterRole", create)):
            where = {"name": user} | ({"namespace": name} if kind == "Role" else {})
            about = {"apiVersion": f"{RBAC}/v1", "metadata": where}
            cluster.apply({**about, "kind": kind, "rules": granted})
            role = {"apiGroup": RBAC, "kind": kind, "name": user}
            cluster.apply({**about, "kind": f"{kind}Binding", "roleRef": role, "subjects": [subject]})
        api, path = cluster.api_as(user), f"/api/v1/namespaces/{name}"

        def refused() -> bool:
            # By the guard, and so no more for want of the right.
            return GUARD in guarded.refusal(namespace("owned-too", runs_the_cluster="true"), by=api)

        cluster.wait_for("the rights to count", refused)
        yield api, path


def namespace(name: str, **labels: str | None) -> Json:
    """One that is to be made."""
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, **labelled(**labels)["metadata"]}}


@pytest.mark.parametrize("through", ["", "/status", "/finalize"])
@pytest.mark.parametrize("labels", [{"runs_the_cluster": "true"}, {"ways_round": "allow"}, {"ways_round": "warn"}])
def test_a_tenant_gives_its_own_namespace_no_more_than_others_have(
    tenant: tuple[Api, str], labels: dict[str, str], through: str
) -> None:
    """By every way that its labels are written."""
    api, path = tenant
    there = api.get(path)
    there["metadata"]["labels"] |= labelled(**labels)["metadata"]["labels"]
    expect_refused(lambda: api.request("PUT", f"{path}{through}", body=there, query={"dryRun": "All"}), by=GUARD)


@pytest.mark.parametrize("labels", [{"runs_the_cluster": "true"}, {"ways_round": "allow"}])
def test_who_makes_namespaces_makes_none_that_has_more(
    guarded: Guarded, tenant: tuple[Api, str], labels: dict[str, str]
) -> None:
    """One that asks for less comes in, and so does one with labels of others."""
    api, _ = tenant
    assert GUARD in guarded.refusal(namespace("owned-too", **labels), by=api)
    assert guarded.refusal(namespace("owned-too", ways_round="deny", runs_the_cluster="false"), by=api) == ""


def test_what_an_operator_has_said_stays_until_another_says_otherwise(
    cluster: ClusterHarness, tenant: tuple[Api, str]
) -> None:
    """Meanwhile the tenant works on its namespace as ever, and may ask for less."""
    api, path = tenant
    cluster.api.patch(path, labelled(runs_the_cluster="true", ways_round="warn"))
    api.patch(path, {"metadata": {"labels": {"team": "a"}}})
    expect_refused(lambda: api.patch(path, labelled(ways_round=None)), by=GUARD)
    api.patch(path, labelled(ways_round="deny"))
    api.patch(path, labelled(runs_the_cluster=None))
    expect_refused(lambda: api.patch(path, labelled(runs_the_cluster="true")), by=GUARD)
    expect_refused(lambda: api.patch(path, labelled(ways_round=None)), by=GUARD)
    cluster.api.patch(path, labelled(ways_round=None))
    assert not {WAYS_ROUND, NAMES.runs_the_cluster} & set(api.get(path)["metadata"]["labels"])
