"""Why a pod waits, with the numbers: what it asks, what its queue has, what the cards have."""

from __future__ import annotations

from aliquot_scheduler.queues.said.tree import COMPUTE, MEMORY, ROOT, UNLIMITED, Node
from aliquot_scheduler.queues.said.units import bare, spoken
from aliquot_scheduler.queues.telling.standing import Standing
from aliquot_scheduler.queues.waiting.line import Waiter


def why_it_waits(waiter: Waiter, standing: Standing) -> str:
    """What keeps one pod from being let in, were it the first of all; empty if nothing of queues does."""
    if gates := standing.foreign_gates(waiter):
        return f"it joins the line once others have lifted their gates: {', '.join(gates)}"
    if never := standing.why_never(waiter):
        return never
    if held := standing.wording.of_stop(waiter.queue):
        return held
    if lack := standing.gathering(waiter):
        return lack.message
    refusal = standing.refusal(waiter)
    return "" if refusal is None else standing.wording.of_refusal(refusal, waiter)


def quota_of_path(waiter: Waiter, standing: Standing) -> list[str]:
    """What each queue on the way up has of what the pod asks: its use, and what it may have."""
    lines = []
    tree, accounts, dimensions = standing.plan.tree, standing.books.ledger.accounts, standing.plan.tree.dimensions
    for name in tree.path(waiter.queue):
        if name == ROOT or name not in accounts:
            continue
        account = accounts[name]
        for dimension in (COMPUTE, MEMORY):
            ceiling, due = account.node.ceiling[dimension], account.node.guarantee[dimension]
            most = "no limit" if ceiling >= UNLIMITED else f"at most {bare(ceiling, dimension, of=dimensions)}"
            used = spoken(account.used[dimension], dimension, of=dimensions)
            sure = f"{bare(due, dimension, of=dimensions)} guaranteed{_why_guaranteed(account.node, dimension)}"
            lines.append(f"queue {name}: {used} in use, {sure}, {most}")
    return lines


def _why_guaranteed(node: Node, dimension: int) -> str:
    other = "memory" if dimension == COMPUTE else "compute"
    return f" with the {other} that it keeps idle" if node.kept[dimension] and node.implied[dimension] else ""
