"""Policies that let an account write one field of a status name all the others: those of the Kubernetes that runs."""

from __future__ import annotations

import re

import pytest

from cluster.guarded import Guarded
from cluster.harness.api import Json
from cluster.harness.cluster import ClusterHarness

_NAMED = re.compile(r"\bobject\.\?status\.\?(\w+)")
# Each policy by the kind whose status it keeps: which is known by a field that only that kind has.
KINDS = {"Pod": "containerStatuses", "Node": "nodeInfo"}
# What is written as a whole by whom each policy is for; of conditions and amounts, which all name, only one's own.
WRITTEN: dict[str, set[str]] = {
    "aliquot-agent-node": set(),
    "aliquot-agent-pods": set(),
    "aliquot-centre-pods": {"nominatedNodeName"},
}


def named_in(policy: Json) -> set[str]:
    """The fields of the status that its expressions look at."""
    spec = policy["spec"]
    said = [*spec.get("variables", ()), *spec.get("validations", ())]
    return {field for one in said for field in _NAMED.findall(one["expression"])}


@pytest.mark.parametrize("kind", KINDS)
def test_a_policy_that_keeps_a_status_as_it_is_keeps_all_of_it(
    cluster: ClusterHarness, guarded: Guarded, kind: str
) -> None:
    """A field that a new Kubernetes brings is anybody's who may write the status, until it is named too."""
    schemas = cluster.api.get("/openapi/v3/api/v1")["components"]["schemas"]
    fields = set(schemas[f"io.k8s.api.core.v1.{kind}Status"]["properties"])
    assert KINDS[kind] in fields
    keeping = {one["metadata"]["name"]: named_in(one) for one in guarded.policies()}
    keeping = {name: named for name, named in keeping.items() if KINDS[kind] in named}
    assert keeping
    assert {name: fields - named for name, named in keeping.items()} == {name: WRITTEN[name] for name in keeping}
    # One that is gone may be another's name tomorrow.
    assert not set().union(*keeping.values()) - fields
