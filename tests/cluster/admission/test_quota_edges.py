"""ResourceQuota and LimitRange on a real API server: what they count of slices, and what they do not."""

from __future__ import annotations

from typing import Any

import pytest

from cluster.guarded import Guarded, asking
from cluster.harness.api import Json
from cluster.harness.cluster import ClusterHarness
from cluster.harness.pods import container, pod, shell
from cluster.installed import NAMES

COMPUTE, MEMORY, BEST_EFFORT = NAMES.compute, NAMES.memory, NAMES.best_effort


def limit_by(cluster: ClusterHarness, namespace: str, hard: dict[str, str]) -> None:
    """Make a quota, and wait until it is counted: until then every pod that it is about is refused."""
    meta = {"name": "slices", "namespace": namespace}
    cluster.api.create({"apiVersion": "v1", "kind": "ResourceQuota", "metadata": meta, "spec": {"hard": hard}})
    cluster.wait_for("the quota to be counted", lambda: used(cluster, namespace).keys() >= hard.keys() or None)


def used(cluster: ClusterHarness, namespace: str) -> dict[str, Any]:
    """What is counted."""
    found = cluster.api.get(f"/api/v1/namespaces/{namespace}/resourcequotas/slices")
    return dict(found.get("status", {}).get("used", {}))


def default_to(cluster: ClusterHarness, namespace: str, default: dict[str, str], **more: Any) -> None:
    """Let a LimitRange put this on every container of the namespace."""
    bound_by(cluster, namespace, {"type": "Container", "default": default, "defaultRequest": default, **more})


def bound_by(cluster: ClusterHarness, namespace: str, item: Json) -> None:
    """Make a LimitRange that says this."""
    meta = {"name": "slices", "namespace": namespace}
    cluster.api.create({"apiVersion": "v1", "kind": "LimitRange", "metadata": meta, "spec": {"limits": [item]}})


def limits_of(made: Json) -> dict[str, dict[str, str]]:
    """What the containers of a pod ask of ours, by their names."""
    spec = made["spec"]
    return {
        each["name"]: {
            key: value for key, value in each["resources"].get("limits", {}).items() if key in NAMES.resources()
        }
        for each in (*spec.get("initContainers", []), *spec["containers"])
    }


def test_a_pod_counts_while_it_waits_behind_its_gate(cluster: ClusterHarness, guarded: Guarded, namespace: str) -> None:
    """So a quota caps how much may wait, not only how much may run; what has ended counts no more."""
    limit_by(cluster, namespace, {f"requests.{COMPUTE}": "100"})
    first = cluster.create_pod(asking("first", namespace, {"compute": "70"}))
    assert first["spec"]["schedulingGates"]
    assert used(cluster, namespace) == {f"requests.{COMPUTE}": "70"}
    refusal = guarded.refusal(asking("second", namespace, {"compute": "31"}))
    assert f"exceeded quota: slices, requested: requests.{COMPUTE}=31, used: requests.{COMPUTE}=70" in refusal
    assert guarded.refusal(asking("second", namespace, {"compute": "30"})) == ""
    cluster.api.patch(f"{cluster.api.path_of(first)}/status", {"status": {"phase": "Failed"}})
    cluster.wait_for("the end to be counted", lambda: used(cluster, namespace) == {f"requests.{COMPUTE}": "0"})
    assert guarded.refusal(asking("second", namespace, {"compute": "100"})) == ""


@pytest.mark.parametrize("name", [f"limits.{COMPUTE}", COMPUTE])
def test_only_requests_are_enforced(cluster: ClusterHarness, namespace: str, name: str) -> None:
    """A quota by any other name of the resource is refused or counts nothing, and stops nobody."""
    meta = {"name": "slices", "namespace": namespace}
    wanted = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": meta, "spec": {"hard": {name: "10"}}}
    cluster.api.create(wanted)
    made = cluster.create_pod(asking("large", namespace, {"compute": "100"}))
    assert made["spec"]["schedulingGates"]
    assert used(cluster, namespace).get(name, "0") == "0"


def test_each_resource_is_counted_by_itself_and_best_effort_too(
    cluster: ClusterHarness, guarded: Guarded, namespace: str
) -> None:
    """The one id of a container with memory alone is added before the quota is asked."""
    hard = {f"requests.{resource}": "1" for resource in (COMPUTE, BEST_EFFORT)} | {f"requests.{MEMORY}": "5000"}
    limit_by(cluster, namespace, hard)
    cluster.create_pod(asking("idle", namespace, {"memory": "2001"}))
    assert used(cluster, namespace) == {
        f"requests.{COMPUTE}": "0",
        f"requests.{BEST_EFFORT}": "1",
        f"requests.{MEMORY}": "2001",
    }
    assert f"requests.{BEST_EFFORT}=1" in guarded.refusal(asking("more", namespace, {"memory": "2001"}))
    assert f"requests.{MEMORY}=4001" in guarded.refusal(asking("more", namespace, {"compute": "1", "memory": "4001"}))


def test_memory_left_out_is_refused_where_a_quota_counts_it(
    cluster: ClusterHarness, guarded: Guarded, namespace: str
) -> None:
    """Kubernetes itself would count it as none, and the pod would get its part of the whole card's."""
    assert guarded.refusal(asking("open", namespace, {"compute": "30"})) == ""
    limit_by(cluster, namespace, {f"requests.{MEMORY}": "5000"})
    cluster.wait_for(
        "the quota to be seen by the policy", lambda: guarded.refusal(asking("open", namespace, {"compute": "30"}))
    )
    refusal = guarded.refusal(asking("open", namespace, {"compute": "30"}))
    assert f"container main must say {MEMORY}" in refusal
    assert guarded.refusal(asking("said", namespace, {"compute": "30", "memory": "5000"})) == ""
    assert guarded.refusal(pod("other", shell("true"), namespace=namespace)) == ""


def test_a_limit_range_reaches_every_container_but_of_a_pod_that_declines(
    cluster: ClusterHarness, guarded: Guarded, namespace: str
) -> None:
    """Sidecars and pods that want no GPU ask for slices too, unless they carry `use: none`; then they cost no quota."""
    limit_by(cluster, namespace, {f"requests.{COMPUTE}": "30"})
    default_to(cluster, namespace, {COMPUTE: "10", MEMORY: "800"})
    both = {COMPUTE: "10", MEMORY: "800"}
    plain = pod("plain", shell("true"), container(name="proxy"), namespace=namespace)
    plain["spec"]["initContainers"] = [{**container(name="log", sidecar=True)}]
    cluster.wait_for("the LimitRange", lambda: guarded.tried(plain)["spec"].get("schedulingGates"))
    made = cluster.create_pod(plain)
    assert limits_of(made) == {"log": both, "main": both, "proxy": both}
    assert used(cluster, namespace) == {f"requests.{COMPUTE}": "30"}
    declines = pod("declines", shell("true"), namespace=namespace, labels={NAMES.use: "none"})
    assert limits_of(cluster.create_pod(declines)) == {"main": {}}
    assert used(cluster, namespace) == {f"requests.{COMPUTE}": "30"}
    assert "exceeded quota" in guarded.refusal(pod("plain2", shell("true"), namespace=namespace))


def test_a_limit_range_reaches_init_containers_too_and_a_quota_counts_the_most_at_a_time(
    cluster: ClusterHarness, guarded: Guarded, namespace: str
) -> None:
    """One that ends before the others start costs quota only as far as it asks more than they do together."""
    limit_by(cluster, namespace, {f"requests.{COMPUTE}": "60"})
    default_to(cluster, namespace, {COMPUTE: "10"})
    wanted = pod("fetches", shell("true"), container(name="proxy"), namespace=namespace)
    wanted["spec"]["initContainers"] = [container(name="fetch")]
    cluster.wait_for("the LimitRange", lambda: guarded.tried(wanted)["spec"].get("schedulingGates"))
    made = cluster.create_pod(wanted)
    assert limits_of(made) == {name: {COMPUTE: "10"} for name in ("fetch", "main", "proxy")}
    assert used(cluster, namespace) == {f"requests.{COMPUTE}": "20"}
    larger = pod("builds", shell("true"), namespace=namespace)
    larger["spec"]["initContainers"] = [container(name="build", limits={COMPUTE: 40})]
    cluster.create_pod(larger)
    assert used(cluster, namespace) == {f"requests.{COMPUTE}": "60"}


def test_who_comes_while_a_recount_is_behind_is_let_in_beyond_the_quota(
    cluster: ClusterHarness, guarded: Guarded, namespace: str
) -> None:
    """Admission adds to what is written, and never counts; the next recount tells what is used, and sends nobody away.

    A recount that does not know of a pod yet is played: what it writes is written, since it can't be made to come late.
    """
    limit_by(cluster, namespace, {f"requests.{COMPUTE}": "70"})
    first = cluster.create_pod(asking("first", namespace, {"compute": "70"}))
    assert "exceeded quota" in guarded.refusal(asking("second", namespace, {"compute": "70"}))
    quota = f"/api/v1/namespaces/{namespace}/resourcequotas/slices"
    cluster.api.patch(f"{quota}/status", {"status": {"used": {f"requests.{COMPUTE}": "0"}}})
    second = cluster.create_pod(asking("second", namespace, {"compute": "70"}))
    assert used(cluster, namespace) == {f"requests.{COMPUTE}": "70"}
    cluster.api.patch(quota, {"spec": {"hard": {f"requests.{COMPUTE}": "71"}}})
    cluster.wait_for("a recount", lambda: used(cluster, namespace) == {f"requests.{COMPUTE}": "140"})
    assert all(cluster.current(one)["spec"]["schedulingGates"] for one in (first, second))


def test_a_default_of_compute_ends_best_effort(cluster: ClusterHarness, guarded: Guarded, namespace: str) -> None:
    """A container that asks memory alone is given the default compute before we see it."""
    default_to(cluster, namespace, {COMPUTE: "10"})
    wanted = asking("idle", namespace, {"memory": "2001"})
    cluster.wait_for("the LimitRange", lambda: COMPUTE in limits_of(guarded.tried(wanted))["main"])
    assert limits_of(guarded.tried(wanted)) == {"main": {COMPUTE: "10", MEMORY: "2001"}}


def test_a_limit_range_bounds_what_one_container_asks(
    cluster: ClusterHarness, guarded: Guarded, namespace: str
) -> None:
    """Its `max` and `min` hold for our resources; of a pod in all they do not, unless type Pod says so."""
    default_to(cluster, namespace, {}, max={COMPUTE: "50"}, min={COMPUTE: "5"})
    large = asking("large", namespace, {"compute": "60"})
    cluster.wait_for("the LimitRange", lambda: guarded.refusal(large))
    assert f"maximum {COMPUTE} usage per Container is 50, but limit is 60" in guarded.refusal(large)
    assert f"minimum {COMPUTE} usage per Container is 5, but request is 4" in guarded.refusal(
        asking("small", namespace, {"compute": "4"})
    )
    two = asking("two", namespace, {"compute": "50"})
    two["spec"]["containers"].append({**two["spec"]["containers"][0], "name": "second"})
    assert guarded.refusal(two) == ""


def test_a_limit_range_of_type_pod_bounds_the_sum(cluster: ClusterHarness, guarded: Guarded, namespace: str) -> None:
    """Of containers that run beside each other; one that ends before they start is counted by itself."""
    bound_by(cluster, namespace, {"type": "Pod", "max": {COMPUTE: "90"}})
    two = pod("two", *(container(name=name, limits={COMPUTE: 50}) for name in ("main", "second")), namespace=namespace)
    cluster.wait_for("the LimitRange", lambda: guarded.refusal(two))
    assert f"maximum {COMPUTE} usage per Pod is 90, but limit is 100" in guarded.refusal(two)
    one = asking("one", namespace, {"compute": "90"})
    one["spec"]["initContainers"] = [container(name="first", limits={COMPUTE: 90})]
    assert guarded.refusal(one) == ""
