"""Which pods the API server evicts whatever their disruption budgets have left: rows for the core and for itself."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

# As many ready pods as a budget needs, so that none of them may go.
MATES = 1


class BudgetRow(msgspec.Struct, frozen=True, kw_only=True):
    """One pod, the budgets over it, how many others of them are ready, and whether it is evicted."""

    phase: str = "Running"
    ready: bool = False
    policies: tuple[str | None, ...] = (None,)
    mates: int = 0
    # How many have to be ready, by each of the budgets.
    least: int = MATES
    goes: bool


BUDGET_ROWS: Mapping[str, BudgetRow] = {
    "ready": BudgetRow(ready=True, goes=False),
    "ready-always-allow": BudgetRow(ready=True, policies=("AlwaysAllow",), goes=False),
    "not-begun": BudgetRow(phase="Pending", goes=True),
    "not-begun-two-budgets": BudgetRow(phase="Pending", policies=(None, None), goes=True),
    "not-begun-but-ready": BudgetRow(phase="Pending", ready=True, goes=True),
    "failed": BudgetRow(phase="Failed", goes=True),
    "unready": BudgetRow(goes=False),
    "unready-if-healthy": BudgetRow(policies=("IfHealthyBudget",), goes=False),
    "unready-beside-enough": BudgetRow(mates=MATES, goes=True),
    "unready-if-healthy-beside-enough": BudgetRow(policies=("IfHealthyBudget",), mates=MATES, goes=True),
    "unready-none-needed": BudgetRow(least=0, goes=False),
    "unready-always-allow": BudgetRow(policies=("AlwaysAllow",), goes=True),
    "unready-two-budgets": BudgetRow(policies=("AlwaysAllow", "AlwaysAllow"), goes=False),
}
