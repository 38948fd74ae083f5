"""Who may wait where: the one rule by which the webhook refuses a pod, and by which the queues never let it in.

A namespace's label names its own queue, or else that is `default`. Any other queue that a pod names must say in
`spec.namespaces` that it takes pods of that namespace: so it is the queue's owner who decides, and whoever may label
namespaces. Pods wait only in queues that have none below them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase

import msgspec

from aliquot_core.names import Names
from aliquot_core.objects import Namespace, Queue
from aliquot_core.problems import Problems
from aliquot_scheduler.queues.said.spec import QueueSpec, read_queue
from aliquot_scheduler.queues.said.tree import DEFAULT_QUEUE, ROOT, Node, Tree, plant


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """All queues, and which namespace is at home in which."""

    specs: Mapping[str, QueueSpec]
    tree: Tree
    homes: Mapping[str, str] = {}

    def home(self, namespace: str) -> str:
        """The queue of a namespace's pods that name none."""
        return self.homes.get(namespace) or DEFAULT_QUEUE


def specs_of(queues: Iterable[Queue]) -> dict[str, QueueSpec]:
    """Every queue's spec by its name; what can't be read of one is as if left out."""
    return {
        queue.metadata.name: read_queue(queue.spec, name=queue.metadata.name, problems=Problems()) for queue in queues
    }


def home_of(namespace: Namespace, *, names: Names) -> str:
    """The queue that a namespace's label names; empty if it names none."""
    return namespace.metadata.labels.get(names.queue, "")


def plan_of(queues: Iterable[Queue], namespaces: Iterable[Namespace], *, names: Names) -> Plan:
    """Put all together."""
    specs = specs_of(queues)
    homes = {one.metadata.name: home for one in namespaces if (home := home_of(one, names=names))}
    return Plan(specs=specs, tree=plant(specs), homes=homes)


def why_barred(queue: str, *, tree: Tree, namespace: str, home: str) -> str:
    """Why pods of this namespace can't wait in that queue; empty if they can."""
    if queue not in tree.nodes or queue == ROOT:
        return f"there is no queue {queue}"
    if (leaf := tree.leaf(queue)) is None:
        return f"queue {queue} has queues below it, and pods wait only in those that have none"
    if queue != home and not _takes(leaf, namespace):
        return f"queue {queue} does not take pods of namespace {namespace}"
    return ""


def open_to(namespace: str, *, tree: Tree, home: str) -> list[str]:
    """The queues in which pods of this namespace can wait."""
    return [
        name
        for name in sorted(tree.nodes)
        if name != ROOT and not why_barred(name, tree=tree, namespace=namespace, home=home)
    ]


def _takes(leaf: Node, namespace: str) -> bool:
    return any(fnmatchcase(namespace, pattern) for pattern in leaf.spec.namespaces)
