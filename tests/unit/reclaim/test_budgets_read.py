"""Disruption budgets as the API server reads them: who is not counted goes, whatever they have left."""

from __future__ import annotations

import msgspec
import pytest

from aliquot_core.disruptions import PodDisruptionBudget
from aliquot_core.objects import PodCondition
from aliquot_scheduler.reclaim.residents import budgets_of
from support.budget_rows import BUDGET_ROWS, BudgetRow
from support.queue_stage import queue
from support.reclaim_stage import ReclaimStage

replace = msgspec.structs.replace


def budget(row: BudgetRow, number: int) -> PodDisruptionBudget:
    """One of a row's, as the controller manager has written it."""
    spec = {"selector": {"matchLabels": {"app": "served"}}, "unhealthyPodEvictionPolicy": row.policies[number]}
    counts = {"disruptionsAllowed": 0, "currentHealthy": row.mates + row.ready, "desiredHealthy": row.least}
    said = {"metadata": {"namespace": "team", "name": f"budget-{number}"}, "spec": spec, "status": counts}
    return msgspec.convert(said, PodDisruptionBudget)


@pytest.mark.parametrize("name", BUDGET_ROWS)
def test_an_owner_has_from_a_borrower_what_the_api_server_would_evict(name: str) -> None:
    """And waits where it would not."""
    row = BUDGET_ROWS[name]
    stage = ReclaimStage({"owner": queue(guarantee=100), "borrower": queue()}, nodes=(1,))
    stage.submit("served", 100, queue="borrower", labels={"app": "served"})
    assert stage.run() == ["served"]
    conditions = [PodCondition(type="Ready", status="True" if row.ready else "False")]
    pod = stage.pods["served"]
    # Who has ended holds nothing that could be had.
    phase = row.phase if row.phase != "Failed" else "Pending"
    stage.see(replace(pod, status=replace(pod.status, phase=phase, conditions=conditions)))
    stage.submit("owner", 100, queue="owner")
    stage.run(after=1)
    found = budgets_of(
        [budget(row, number) for number in range(len(row.policies))],
        bound=stage.queues.register.inside.bound.values(),
    )
    assert stage.victims(budgets=found) == (["served"] if row.goes else [])
