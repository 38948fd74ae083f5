"""The API server itself, for what the centre takes its disruption budgets to mean (`support/budget_rows.py`)."""

from __future__ import annotations

from functools import partial

from cluster.harness.api import Json
from cluster.harness.cluster import ClusterHarness
from cluster.harness.errors import ApiError
from support.budget_rows import BUDGET_ROWS, BudgetRow

LABEL = "row"


def pod(namespace: str, name: str, row: str) -> Json:
    """One that nobody places."""
    meta = {"name": name, "namespace": namespace, "labels": {LABEL: row}}
    containers = [{"name": "main", "image": "none"}]
    spec = {"schedulerName": "nobody", "automountServiceAccountToken": False, "containers": containers}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec}


def budget(namespace: str, row: str, number: int, *, policy: str | None, least: int) -> Json:
    """Over all of a row."""
    spec: Json = {"minAvailable": least, "selector": {"matchLabels": {LABEL: row}}}
    if policy:
        spec["unhealthyPodEvictionPolicy"] = policy
    meta = {"name": f"{row}-{number}", "namespace": namespace}
    return {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": meta, "spec": spec}


def create(cluster: ClusterHarness, namespace: str, name: str, row: BudgetRow) -> list[Json]:
    """A row's pods, as the kubelet would tell of them, and its budgets, which are given back."""
    told = [(name, row.phase, row.ready), *((f"{name}-mate-{number}", "Running", True) for number in range(row.mates))]
    for each, phase, ready in told:
        made = cluster.create_pod(pod(namespace, each, name))
        conditions = [{"type": "Ready", "status": "True" if ready else "False"}]
        status = {"status": {"phase": phase, "conditions": conditions}}
        cluster.api.patch(f"{cluster.api.path_of(made)}/status", status)
    return [
        cluster.apply(budget(namespace, name, number, policy=policy, least=row.least))
        for number, policy in enumerate(row.policies)
    ]


def is_counted(cluster: ClusterHarness, made: Json, row: BudgetRow) -> bool:
    """Whether the controller manager has counted all of them."""
    status = cluster.current(made).get("status", {})
    healthy = row.mates + (row.ready and row.phase == "Running")
    # Whoever is ready counts by that word alone, whatever the phase.
    return status.get("observedGeneration") == 1 and status.get("currentHealthy") in {healthy, row.mates + row.ready}


def answer(cluster: ClusterHarness, namespace: str, name: str) -> str:
    """What the API server says against an eviction, which it does not carry out; nothing if it would be."""
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name, "namespace": namespace}}
    path = f"/api/v1/namespaces/{namespace}/pods/{name}/eviction"
    try:
        cluster.api.request("POST", path, body=eviction, query={"dryRun": "All"})
    except ApiError as error:
        return str(error)
    return ""


def test_the_api_server_evicts_whom_we_expect_it_to(cluster: ClusterHarness, namespace: str) -> None:
    """Row by row: by phase, readiness, and what a budget says of pods that are not ready."""
    made = {name: create(cluster, namespace, name, row) for name, row in BUDGET_ROWS.items()}
    for name, row in BUDGET_ROWS.items():
        for one in made[name]:
            cluster.wait_for(f"the budget of {name} to be counted", partial(is_counted, cluster, one, row))
    answers = {name: answer(cluster, namespace, name) for name in BUDGET_ROWS}
    goes = {name: row.goes for name, row in BUDGET_ROWS.items()}
    assert {name: not against for name, against in answers.items()} == goes, answers
