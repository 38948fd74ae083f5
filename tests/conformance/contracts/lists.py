"""Lists on any API server: selectors, pages that show one instant, versions, tables."""

from __future__ import annotations

import pytest

from conformance.contracts.space import Space
from support.http_api import TABLE

LABELS = {"red": {"colour": "red", "size": "1"}, "blue": {"colour": "blue"}, "plain": {}}


def names(items: list[dict[str, dict[str, str]]]) -> list[str]:
    """Give the names of listed objects."""
    return [one["metadata"]["name"] for one in items]


def create(space: Space, name: str, **labels: str) -> None:
    """Store a lease: nothing else makes leases in the test's namespace."""
    space.api.post(space.leases, {"metadata": {"name": name, "labels": labels}}).ok()


class ListsContract:
    """What a list shows."""

    @pytest.mark.parametrize(
        ("selector", "found"),
        [
            ("", ["blue", "plain", "red"]),
            ("colour=red", ["red"]),
            ("colour==red", ["red"]),
            (" colour = red , size=1", ["red"]),
            ("colour!=red", ["blue", "plain"]),
            ("colour", ["blue", "red"]),
            ("!colour", ["plain"]),
            ("colour in (red, blue)", ["blue", "red"]),
            ("colour in (red,blue),!size", ["blue"]),
            ("colour notin (red)", ["blue", "plain"]),
            ("colour in ()", []),
            ("colour=", []),
            ("size>0", ["red"]),
            ("size<1", []),
        ],
    )
    def test_label_selectors(self, space: Space, selector: str, found: list[str]) -> None:
        """Every form of label selector means what Kubernetes says."""
        for name, labels in LABELS.items():
            create(space, name, **labels)
        assert names(space.listed(space.leases, labelSelector=selector)) == found

    @pytest.mark.parametrize(
        "query",
        [
            {"labelSelector": "a b"},
            {"labelSelector": "a in (b"},
            {"labelSelector": "=a"},
            {"labelSelector": "a=b=c"},
            {"fieldSelector": "spec.holderIdentity=x"},
            {"fieldSelector": "metadata.name"},
            {"limit": "many"},
            {"continue": "nonsense"},
        ],
    )
    def test_what_is_no_selection_is_a_bad_request(self, space: Space, query: dict[str, str]) -> None:
        """Selectors, limits and tokens that can't be read are refused."""
        reply = space.api.get(space.leases, **query)
        assert (reply.code, reply.reason) == (400, "BadRequest")

    def test_field_selectors(self, space: Space) -> None:
        """Pods are found by name, by node and by phase."""
        for name in ("one", "two", "three"):
            space.create_pod(name)
        space.bind("two", "node-a")
        space.api.patch(f"{space.pods}/three/status", {"status": {"phase": "Succeeded"}}).ok()
        for selector, found in (
            ("metadata.name=one", ["one"]),
            ("spec.nodeName=node-a", ["two"]),
            ("spec.nodeName=", ["one", "three"]),
            ("spec.nodeName!=node-a,status.phase!=Succeeded", ["one"]),
            ("status.phase=Succeeded", ["three"]),
            (f"metadata.namespace={space.name},metadata.name!=one", ["three", "two"]),
            ("spec.schedulerName=nobody,spec.restartPolicy=Always", ["one", "three", "two"]),
        ):
            assert names(space.listed(space.pods, fieldSelector=selector)) == found, selector

    def test_a_list_says_its_kind_once(self, space: Space) -> None:
        """The list has a kind and a version; its items carry neither kind nor apiVersion."""
        create(space, "one")
        listed = space.api.get(space.leases).ok()
        assert (listed["kind"], listed["apiVersion"]) == ("LeaseList", "coordination.k8s.io/v1")
        assert listed["metadata"]["resourceVersion"].isdecimal()
        assert [{"kind", "apiVersion"} & set(item) for item in listed["items"]] == [set()]

    def test_a_list_of_all_namespaces(self, space: Space) -> None:
        """Without a namespace in the address the list shows all of them."""
        create(space, "one")
        found = space.listed("/apis/coordination.k8s.io/v1/leases", fieldSelector="metadata.name=one")
        assert (space.name, "one") in {(one["metadata"]["namespace"], one["metadata"]["name"]) for one in found}

    def test_pages_show_one_instant(self, space: Space) -> None:
        """What is written while a client turns pages changes none of them."""
        for name in ("a", "b", "c", "d", "e"):
            create(space, name)
        first = space.api.get(space.leases, limit="2").ok()
        assert (names(first["items"]), first["metadata"]["remainingItemCount"]) == (["a", "b"], 3)
        space.api.delete(f"{space.leases}/d").ok()
        create(space, "cc")
        space.api.patch(f"{space.leases}/c", {"metadata": {"labels": {"late": "yes"}}}).ok()
        second = space.api.get(space.leases, limit="2", **{"continue": first["metadata"]["continue"]}).ok()
        third = space.api.get(space.leases, limit="2", **{"continue": second["metadata"]["continue"]}).ok()
        assert (names(second["items"]), names(third["items"])) == (["c", "d"], ["e"])
        assert "labels" not in second["items"][0]["metadata"]
        assert "continue" not in third["metadata"]
        versions = {page["metadata"]["resourceVersion"] for page in (first, second, third)}
        assert len(versions) == 1

    def test_pages_of_a_selection(self, space: Space) -> None:
        """A limit counts what the selector means; the whole is not counted then."""
        for name in ("a", "b", "c", "d"):
            create(space, name, kept="no" if name == "b" else "yes")
        first = space.api.get(space.leases, limit="2", labelSelector="kept=yes").ok()
        assert names(first["items"]) == ["a", "c"]
        assert "remainingItemCount" not in first["metadata"]
        token = first["metadata"]["continue"]
        rest = space.api.get(space.leases, limit="2", labelSelector="kept=yes", **{"continue": token}).ok()
        assert names(rest["items"]) == ["d"]

    def test_a_version_of_the_past(self, space: Space) -> None:
        """With resourceVersionMatch=Exact the list is as it was."""
        create(space, "a")
        then = space.api.get(space.leases).version
        create(space, "b")
        past = space.api.get(space.leases, resourceVersion=then, resourceVersionMatch="Exact")
        newer = space.api.get(space.leases, resourceVersion=then, resourceVersionMatch="NotOlderThan")
        assert (names(past.ok()["items"]), past.version) == (["a"], then)
        assert names(newer.ok()["items"]) == ["a", "b"]
        assert names(space.listed(space.leases, resourceVersion="0")) == ["a", "b"]

    def test_a_version_of_the_future(self, space: Space) -> None:
        """A version that has not happened is not waited for for ever: try again."""
        reply = space.api.get(space.leases, resourceVersion="999999999", resourceVersionMatch="NotOlderThan")
        assert (reply.code, reply.reason) == (504, "Timeout")
        assert reply.body["details"]["causes"][0]["reason"] == "ResourceVersionTooLarge"
        assert reply.body["details"]["retryAfterSeconds"] == 1

    @pytest.mark.parametrize(
        "query",
        [
            {"resourceVersionMatch": "Exact"},
            {"resourceVersionMatch": "Exact", "resourceVersion": "0"},
            {"resourceVersionMatch": "Roughly", "resourceVersion": "1"},
        ],
    )
    def test_matches_that_contradict_themselves(self, space: Space, query: dict[str, str]) -> None:
        """A match without a version, or one that is none, is invalid."""
        reply = space.api.get(space.leases, **query)
        assert (reply.code, reply.reason, reply.fields) == (422, "Invalid", {"resourceVersionMatch"})

    def test_pods_as_a_table(self, space: Space) -> None:
        """A client that asks for a table gets the columns that people know, and each row's metadata."""
        space.create_pod("one")
        table = space.api.call("GET", space.pods, accept=TABLE).ok()
        assert (table["kind"], table["apiVersion"]) == ("Table", "meta.k8s.io/v1")
        titles = [column["name"] for column in table["columnDefinitions"] if column["priority"] == 0]
        assert titles == ["Name", "Ready", "Status", "Restarts", "Age"]
        (row,) = table["rows"]
        assert row["cells"][:3] == ["one", "0/1", "Pending"]
        assert (row["object"]["kind"], row["object"]["metadata"]["name"]) == ("PartialObjectMetadata", "one")
        assert len(row["cells"]) == len(table["columnDefinitions"])

    @pytest.mark.parametrize(
        ("path", "titles"),
        [
            ("/api/v1/nodes", ["Name", "Status", "Roles", "Age", "Version"]),
            ("/api/v1/namespaces", ["Name", "Status", "Age"]),
            ("/apis/coordination.k8s.io/v1/leases", ["Name", "Holder", "Age"]),
            ("/api/v1/configmaps", ["Name", "Data", "Age"]),
            ("/api/v1/events", ["Last Seen", "Type", "Reason", "Object", "Message"]),
        ],
    )
    def test_tables_of_other_kinds(self, space: Space, path: str, titles: list[str]) -> None:
        """Each kind has the columns that people know."""
        table = space.api.call("GET", path, accept=TABLE).ok()
        assert [column["name"] for column in table["columnDefinitions"] if column["priority"] == 0] == titles

    def test_what_the_server_says_of_itself(self, space: Space) -> None:
        """Groups, kinds with their verbs and short names, version and health are told."""
        api = space.api
        assert api.get("/api").ok()["versions"] == ["v1"]
        groups = {one["name"]: one["preferredVersion"]["groupVersion"] for one in api.get("/apis").ok()["groups"]}
        assert groups["coordination.k8s.io"] == "coordination.k8s.io/v1"
        kinds = {one["name"]: one for one in api.get("/api/v1").ok()["resources"]}
        assert (kinds["pods"]["kind"], kinds["pods"]["namespaced"], kinds["pods"]["shortNames"]) == (
            "Pod",
            True,
            ["po"],
        )
        assert {"create", "get", "list", "watch", "patch", "update", "delete"} <= set(kinds["pods"]["verbs"])
        assert kinds["pods/binding"]["verbs"] == ["create"]
        assert api.get("/apis/coordination.k8s.io/v1").ok()["groupVersion"] == "coordination.k8s.io/v1"
        assert api.get("/version").ok()["major"] == "1"
        assert api.get("/readyz").body == "ok"
