"""What is told of queues to one namespace: of its own queue by label, and of those that its pods are in."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from aliquot_scheduler.queues.said.entry import Plan
from aliquot_scheduler.queues.said.tree import ROOT
from aliquot_scheduler.queues.telling.forms import NO_QUEUE, QueueAnswer, QueueRow
from aliquot_scheduler.queues.telling.standing import Standing


def rows_of_namespace(
    namespace: str, rows: Sequence[QueueRow], plan: Plan, *, standing: Standing | None
) -> list[QueueRow]:
    """Each with those above it, whose limits hold for it too; without a standing pods are known of none."""
    own = {plan.homes[namespace]} if namespace in plan.homes else set()
    if standing is not None:
        own |= {queue for where, queue in standing.books.of_namespaces if where == namespace}
        own |= {one.queue for one in standing.waiting(ROOT) if one.pod.metadata.namespace == namespace}
    wanted = {name for queue in own for name in plan.tree.path(queue)}
    if own - plan.tree.nodes.keys():
        wanted.add(NO_QUEUE)
    return [row for row in rows if row.name in wanted]


def answer_of_namespace(namespace: str, told: QueueAnswer) -> QueueAnswer:
    """One queue with the namespace's pods alone, each at its place among all."""
    ours = f"{namespace}/"
    return msgspec.structs.replace(
        told,
        pods=[one for one in told.pods if one.pod.startswith(ours)],
        charged=[one for one in told.charged if one.pod.startswith(ours)],
    )
