"""ResourceQuota and LimitRange on any API server, with the edges that they have for slices."""

from __future__ import annotations

from typing import Any

import pytest

from conformance.contracts.space import Space, pod
from support.http_api import Json, Reply

COMPUTE, MEMORY = "aliquot.dev/compute", "aliquot.dev/memory"
LIMIT_RANGER = "kubernetes.io/limit-ranger"


def asking(name: str, **spec: Any) -> Json:
    """A pod whose container has these limits."""
    limits = spec.pop("limits", {})
    return pod(name, container={"resources": {"limits": limits}}, **spec)


def used(space: Space, name: str = "q") -> Json:
    """What is counted of a quota."""
    found: Json = space.api.get(f"{space.path}/resourcequotas/{name}").ok().get("status", {}).get("used", {})
    return found


def expect_used(space: Space, wanted: Json, name: str = "q") -> None:
    """A quota's status says so in time: on a cluster, a controller counts."""
    with space.api.watch(f"{space.path}/resourcequotas", fieldSelector=f"metadata.name={name}") as watch:
        while watch.next()["object"].get("status", {}).get("used", {}) != wanted:
            pass


def limit(space: Space, hard: Json, **spec: Any) -> None:
    """Make a quota, and wait until nothing is counted of it."""
    body = {"metadata": {"name": "q"}, "spec": {"hard": hard, **spec}}
    space.api.post(f"{space.path}/resourcequotas", body).ok()
    expect_used(space, dict.fromkeys(hard, "0"))


def give(space: Space, **item: Any) -> Reply:
    """Make a limit range of one item."""
    item = {"type": "Container", **item}
    return space.api.post(f"{space.path}/limitranges", {"metadata": {"name": "l"}, "spec": {"limits": [item]}})


def until_defaulted(space: Space, name: str) -> Json:
    """Try pods until a limit range is known to admission (a cluster's watch takes a moment); give what came out."""
    while True:
        tried: Json = space.api.post(space.pods, pod(name), dryRun="All").ok()
        if tried["metadata"].get("annotations", {}).get(LIMIT_RANGER):
            return tried


class LimitsContract:
    """What a namespace's limits do to its pods."""

    def test_what_waits_behind_a_gate_counts(self, space: Space) -> None:
        """A pod counts from its creation to its end, and one too many is refused with the sums."""
        limit(space, {f"requests.{COMPUTE}": "100", "pods": "2"})
        gates = [{"name": "aliquot.dev/queue"}]
        space.api.post(space.pods, asking("one", limits={COMPUTE: "70"}, schedulingGates=gates)).ok()
        expect_used(space, {f"requests.{COMPUTE}": "70", "pods": "1"})
        refused = space.api.post(space.pods, asking("two", limits={COMPUTE: "31"}))
        assert (refused.code, refused.reason) == (403, "Forbidden")
        sums = f"requested: requests.{COMPUTE}=31, used: requests.{COMPUTE}=70, limited: requests.{COMPUTE}=100"
        assert f'pods "two" is forbidden: exceeded quota: q, {sums}' in refused.body["message"]
        space.api.post(space.pods, asking("two", limits={COMPUTE: "30"})).ok()
        assert space.api.post(space.pods, asking("three")).code == 403
        expect_used(space, {f"requests.{COMPUTE}": "100", "pods": "2"})
        space.api.patch(f"{space.pods}/one/status", {"status": {"phase": "Failed"}}).ok()
        expect_used(space, {f"requests.{COMPUTE}": "30", "pods": "1"})
        space.api.delete(f"{space.pods}/two", gracePeriodSeconds="0").ok()
        expect_used(space, {f"requests.{COMPUTE}": "0", "pods": "0"})

    @pytest.mark.parametrize("name", [f"limits.{COMPUTE}", COMPUTE])
    def test_only_requests_of_extended_resources_count(self, space: Space, name: str) -> None:
        """A quota by any other name of them stops nobody."""
        body = {"metadata": {"name": "q"}, "spec": {"hard": {name: "10"}}}
        space.api.post(f"{space.path}/resourcequotas", body).ok()
        space.api.post(space.pods, asking("one", limits={COMPUTE: "100"})).ok()
        assert used(space).get(name, "0") == "0"

    def test_cpu_must_be_said_where_it_is_limited(self, space: Space) -> None:
        """By every container."""
        limit(space, {"requests.cpu": "1", "limits.cpu": "2"})
        refused = space.api.post(space.pods, pod("one"))
        assert "failed quota: q: must specify" in refused.body["message"]
        assert "requests.cpu for: main" in refused.body["message"]
        both = {"requests": {"cpu": "500m"}, "limits": {"cpu": "1500m"}}
        space.api.post(space.pods, pod("one", container={"resources": both})).ok()
        expect_used(space, {"requests.cpu": "500m", "limits.cpu": "1500m"})
        assert "exceeded quota" in space.api.post(space.pods, pod("two", container={"resources": both})).body["message"]

    def test_what_a_pod_asks_for_all_its_containers_counts_in_their_place(self, space: Space) -> None:
        """A quota counts as kube-scheduler does."""
        limit(space, {"requests.cpu": "1", "limits.cpu": "2"})
        each = {"requests": {"cpu": "500m"}, "limits": {"cpu": "1500m"}}
        of_all = {"requests": {"cpu": "800m"}, "limits": {"cpu": "1800m"}}
        space.api.post(space.pods, pod("one", container={"resources": each}, resources=of_all)).ok()
        expect_used(space, {"requests.cpu": "800m", "limits.cpu": "1800m"})

    def test_init_containers_count_by_the_most_at_once(self, space: Space) -> None:
        """One that ends counts beside the sidecars before it; sidecars count beside the pod's own containers."""
        limit(space, {f"requests.{COMPUTE}": "1k"})
        first = {"name": "first", "image": "none:1", "resources": {"limits": {COMPUTE: "90"}}}
        side: Json = {"name": "side", "image": "none:1", "restartPolicy": "Always"}
        side["resources"] = {"limits": {COMPUTE: "20"}}
        space.api.post(space.pods, asking("one", limits={COMPUTE: "30"}, initContainers=[side, first])).ok()
        expect_used(space, {f"requests.{COMPUTE}": "110"})

    def test_scopes_choose_pods(self, space: Space) -> None:
        """A quota of best effort does not count the others."""
        limit(space, {"pods": "1"}, scopes=["BestEffort"])
        busy = {"resources": {"limits": {"cpu": "1", "memory": "1Gi"}}}
        for name in ("one", "two"):
            space.api.post(space.pods, pod(name, container=busy)).ok()
        space.api.post(space.pods, pod("three")).ok()
        assert space.api.post(space.pods, pod("four")).code == 403

    def test_objects_are_counted(self, space: Space) -> None:
        """By `count/` and the kind."""
        space.api.post(space.config_maps, {"metadata": {"name": "zero"}}).ok()
        count = len(space.listed(space.config_maps))
        body = {"metadata": {"name": "q"}, "spec": {"hard": {"count/configmaps": str(count + 1)}}}
        space.api.post(f"{space.path}/resourcequotas", body).ok()
        expect_used(space, {"count/configmaps": str(count)})
        space.api.post(space.config_maps, {"metadata": {"name": "one"}}).ok()
        refused = space.api.post(space.config_maps, {"metadata": {"name": "two"}})
        assert "exceeded quota: q, requested: count/configmaps=1" in refused.body["message"]

    def test_a_limit_range_reaches_every_container(self, space: Space) -> None:
        """Init containers too; what a container says itself stays, and the pod's annotation tells."""
        give(space, default={COMPUTE: "10", MEMORY: "800"}, defaultRequest={COMPUTE: "10", MEMORY: "800"}).ok()
        until_defaulted(space, "try")
        init = {"name": "first", "image": "none:1"}
        made = space.api.post(space.pods, asking("one", limits={COMPUTE: "50"}, initContainers=[init])).ok()
        assert made["spec"]["containers"][0]["resources"]["limits"] == {COMPUTE: "50", MEMORY: "800"}
        assert made["spec"]["initContainers"][0]["resources"]["requests"] == {COMPUTE: "10", MEMORY: "800"}
        told = made["metadata"]["annotations"][LIMIT_RANGER]
        assert f"{MEMORY} limit for container main" in told
        assert f"{COMPUTE}, {MEMORY} request for init container first" in told

    def test_what_follows_from_a_limit_range(self, space: Space) -> None:
        """A `max` is the default where none is said, and the default is the default request."""
        made = give(space, max={"cpu": "2"}, min={"memory": "1Mi"}).ok()
        item = made["spec"]["limits"][0]
        assert item["default"] == {"cpu": "2"}
        assert item["defaultRequest"] == {"cpu": "2", "memory": "1Mi"}
        tried = until_defaulted(space, "one")["spec"]["containers"][0]["resources"]
        assert tried == {"limits": {"cpu": "2"}, "requests": {"cpu": "2", "memory": "1Mi"}}

    def test_bounds_of_a_container(self, space: Space) -> None:
        """More than `max` or less than `min` is refused with both numbers."""
        give(space, max={COMPUTE: "50"}, min={COMPUTE: "5"}).ok()
        until_defaulted(space, "try")
        large = space.api.post(space.pods, asking("large", limits={COMPUTE: "60"}))
        assert (large.code, large.reason) == (403, "Forbidden")
        assert f"maximum {COMPUTE} usage per Container is 50, but limit is 60" in large.body["message"]
        small = space.api.post(space.pods, asking("small", limits={COMPUTE: "4"}))
        assert f"minimum {COMPUTE} usage per Container is 5, but request is 4" in small.body["message"]

    def test_a_limit_range_that_contradicts_itself(self, space: Space) -> None:
        """A minimum above the maximum is refused."""
        reply = give(space, max={"cpu": "1"}, min={"cpu": "2"})
        assert (reply.code, reply.reason) == (422, "Invalid")
        assert "spec.limits[0].min[cpu]" in reply.fields
