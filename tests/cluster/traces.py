"""What is left of Aliquot in a cluster."""

from __future__ import annotations

from collections.abc import Iterator

from cluster.harness.cluster import ClusterHarness


def traces(cluster: ClusterHarness, *, spared: str = "") -> Iterator[str]:
    """Every object of whatever kind that bears our name; Events are over by themselves."""
    groups = [group["preferredVersion"]["groupVersion"] for group in cluster.api.get("/apis")["groups"]]
    for root in ("/api/v1", *(f"/apis/{group}" for group in groups)):
        # A kind may be going at this instant, and with the last of a group the group.
        for resource in (cluster.api.find(root) or {"resources": []})["resources"]:
            if "list" not in resource["verbs"] or resource["kind"] == "Event":
                continue
            for each in (cluster.api.find(f"{root}/{resource['name']}") or {"items": []})["items"]:
                about = each["metadata"]
                said = [about["name"], *about.get("labels", {}), *about.get("annotations", {})]
                if about.get("namespace") != spared and any("aliquot" in word for word in said):
                    yield f"{resource['name']} {about['name']}"
