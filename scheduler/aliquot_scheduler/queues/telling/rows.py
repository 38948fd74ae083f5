"""Rows for a table of all queues.

With rights to read pods and nodes everything is worked out (`told_by`: "computed"); with rights to read queues alone
the numbers are those that the leader has written into their status ("status").
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from aliquot_scheduler.queues.said.contradictions import problems_by_queue
from aliquot_scheduler.queues.said.entry import Plan
from aliquot_scheduler.queues.said.things import ALL_CARDS, KINDS, Thing, quota_of
from aliquot_scheduler.queues.said.tree import ROOT, Dimensions, Node
from aliquot_scheduler.queues.telling.forms import NO_QUEUE, ModelParts, Part, QueueRow
from aliquot_scheduler.queues.telling.standing import Standing, Strays
from aliquot_scheduler.queues.telling.status import QueueStatus
from aliquot_scheduler.queues.telling.views import bounds_of


def rows(plan: Plan, *, statuses: Mapping[str, QueueStatus], standing: Standing | None) -> list[QueueRow]:
    """Every queue, each parent before its children."""
    if standing is not None:
        statuses = _with_problems(standing.statuses(), plan)
    found: list[QueueRow] = []
    pending = [(name, 0) for name in reversed(plan.tree.nodes[ROOT].children)]
    while pending:
        name, depth = pending.pop()
        node = plan.tree.nodes[name]
        row = _row(node, depth=depth, status=statuses.get(name), standing=standing)
        if plan.tree.nodes.keys() == {ROOT, name}:
            # There is nobody from whom anything could be borrowed.
            row = msgspec.structs.replace(row, compute=_own(row.compute), memory=_own(row.memory))
        found.append(msgspec.structs.replace(row, models=_models(node, plan.tree.dimensions, standing=standing)))
        pending += [(child, depth + 1) for child in reversed(node.children)]
    strays = standing.strays() if standing else None
    return [*found, row_of_strays(NO_QUEUE, strays, standing)] if standing and strays and any(strays) else found


def _own(part: Part) -> Part:
    return msgspec.structs.replace(part, borrowed=None)


def row_of_strays(name: str, strays: Strays, standing: Standing) -> QueueRow:
    """Those whose queue is gone."""
    nothing = Part(guarantee=None, limit=None, weight=None, lending_limit=None, borrowing_limit=None)
    held = [standing.charged(waiter) for waiter in strays.let_in]
    compute, memory = (msgspec.structs.replace(nothing, used=sum(one[dim] for one in held)) for dim in (0, 1))
    return QueueRow(
        name=name,
        parent=ROOT,
        depth=0,
        leaf=False,
        compute=compute,
        memory=memory,
        running=len(strays.let_in),
        waiting=len(strays.waiting),
        priority=None,
        stop="",
        told_by="computed",
    )


def _with_problems(statuses: Mapping[str, QueueStatus], plan: Plan) -> dict[str, QueueStatus]:
    """The leader writes what is wrong with the queues together before what is wrong with one beside the hardware."""
    found = problems_by_queue(plan.specs)
    return {
        name: msgspec.structs.replace(status, problems=(*found.get(name, ()), *status.problems))
        for name, status in statuses.items()
    }


def _row(node: Node, *, depth: int, status: QueueStatus | None, standing: Standing | None) -> QueueRow:
    return QueueRow(
        name=node.name,
        parent=node.path[1],
        depth=depth,
        leaf=not node.children,
        compute=_part(node, "compute", status),
        memory=_part(node, "memory", status),
        running=standing.running(node.name) if standing else None,
        waiting=status.waiting if status else None,
        priority=node.priority,
        stop=node.stop,
        told_by="computed" if standing else "status",
        problems=status.problems if status else (),
    )


def _models(node: Node, dimensions: Dimensions, *, standing: Standing | None) -> dict[str, ModelParts]:
    account = standing.books.ledger.accounts[node.name] if standing else None
    found: dict[str, ModelParts] = {}
    for dimension in range(dimensions.cards):
        if (model := dimensions.model_of(dimension)) not in node.spec.models or model in found:
            continue
        parts = [_said_of(node, dim, Thing(model, kind)) for dim, kind in enumerate(KINDS, start=dimension)]
        if account is not None:
            parts = [
                msgspec.structs.replace(part, used=account.used[dim], asked=account.asked[dim])
                for dim, part in enumerate(parts, start=dimension)
            ]
        found[model] = ModelParts(compute=parts[0], memory=parts[1])
    return found


def _part(node: Node, kind: str, status: QueueStatus | None) -> Part:
    told = _said_of(node, KINDS.index(kind), Thing(ALL_CARDS, kind))
    if status is None:
        return told
    parts = {field: getattr(getattr(status, field), kind) for field in ("used", "borrowed", "fair_share", "asked")}
    return msgspec.structs.replace(told, **parts)


def _said_of(node: Node, dimension: int, thing: Thing) -> Part:
    quota, (guarantee, limit) = quota_of(node.spec, thing), bounds_of(node, dimension, thing)
    return Part(
        guarantee=guarantee,
        limit=limit,
        weight=quota.weight,
        lending_limit=quota.lending_limit,
        borrowing_limit=quota.borrowing_limit,
    )
