"""Labels of namespaces by which pods get more than others', on a real API server: operators set them, and no tenant."""

from __future__ import annotations

import pytest

from cluster.guarded import Guarded
from cluster.harness.api import Api, Json
from cluster.harness.cluster import ClusterHarness
from cluster.harness.errors import ApiError
from cluster.installed import NAMES
from cluster.refusals import expect_refused

RBAC = "rbac.authorization.k8s.io"
WAYS_ROUND = NAMES.of("ways-round")
GUARD = "aliquot-guard-namespaces"
USER = "owner-of-a-namespace"


def labelled(**labels: str | None) -> Json:
    """A patch by our labels, named by what they say."""
    return {"metadata": {"labels": {NAMES.of(name.replace("_", "-")): value for name, value in labels.items()}}}


@pytest.fixture(scope="module")
def user(cluster: ClusterHarness, guarded: Guarded) -> Api:
    """Whoever may make namespaces, and has no right to those of others."""
    granted: list[Json] = [{"apiGroups": [""], "resources": ["namespaces"], "verbs": ["create"]}]
    give(cluster, granted, kind="ClusterRole")
    api = cluster.api_as(USER)

    def refused() -> bool:
        # By the guard, and so no more for want of the right.
        return GUARD in guarded.refusal(made("owned-too", runs_the_cluster="true"), by=api)

    cluster.wait_for("the right to make namespaces to count", refused)
    return api


@pytest.fixture
def tenant(cluster: ClusterHarness, user: Api, namespace: str) -> tuple[Api, str]:
    """The same, who may do everything in a namespace, with that itself too; and its path. Each test has another one."""
    give(cluster, [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}], kind="Role", namespace=namespace)
    path = f"/api/v1/namespaces/{namespace}"

    def may() -> bool:
        try:
            return bool(user.get(path))
        except ApiError:
            return False

    cluster.wait_for("the rights to count", may)
    return user, path


def give(cluster: ClusterHarness, rules: list[Json], *, kind: str, **where: str) -> None:
    """Rights of the user, everywhere or in a namespace."""
    subject = {"apiGroup": RBAC, "kind": "User", "name": USER}
    about = {"apiVersion": f"{RBAC}/v1", "metadata": {"name": USER, **where}}
    cluster.apply({**about, "kind": kind, "rules": rules})
    role = {"apiGroup": RBAC, "kind": kind, "name": USER}
    cluster.apply({**about, "kind": f"{kind}Binding", "roleRef": role, "subjects": [subject]})


def made(name: str, **labels: str | None) -> Json:
    """A namespace that is to be made."""
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
def test_who_makes_namespaces_makes_none_that_has_more(guarded: Guarded, user: Api, labels: dict[str, str]) -> None:
    """One that asks for less comes in, and so does one with labels of others."""
    assert GUARD in guarded.refusal(made("owned-too", **labels), by=user)
    assert guarded.refusal(made("owned-too", ways_round="deny", runs_the_cluster="false"), by=user) == ""


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
