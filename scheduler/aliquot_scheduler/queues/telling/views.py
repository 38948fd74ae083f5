"""What a namespace is shown of the queues that its pods are in, so that whoever may look there sees where they stand.

Queues lie in no namespace, and no right in a namespace reaches them. So of each queue that a namespace is at home in,
or has pods in, there is a copy in the namespace: what the queue has and is due, and what of that is the namespace's.
Nothing is told of other namespaces but what they come to together.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from aliquot_scheduler.queues.said.tree import COMPUTE, MEMORY, ROOT, UNLIMITED, Node
from aliquot_scheduler.queues.telling.status import Amounts, QueueStatus
from aliquot_scheduler.queues.waiting.books import Books
from aliquot_scheduler.queues.waiting.line import Waiter

# Namespace and queue.
Where = tuple[str, str]


class _Written(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Common settings of what is written into a view."""


class Limits(_Written, frozen=True, kw_only=True, omit_defaults=True):
    """What a queue may have at most; left out, there is no limit."""

    compute: int | None = None
    memory: int | None = None


class Own(_Written, frozen=True, kw_only=True):
    """The namespace's part: what its pods hold, how many hold and how many wait."""

    used: Amounts = Amounts()
    running: int = 0
    waiting: int = 0


class View(_Written, frozen=True, kw_only=True):
    """A queue as one of its namespaces is shown it."""

    # From the top of the tree down to the queue.
    path: tuple[str, ...] = ()
    stop: str = ""
    guarantee: Amounts = Amounts()
    limit: Limits = Limits()
    used: Amounts = Amounts()
    fair_share: Amounts = Amounts()
    asked: Amounts = Amounts()
    waiting: int = 0
    own: Own = Own()
    # When this was worked out, as Kubernetes writes instants.
    at: str = ""


def read_view(raw: Mapping[str, Any]) -> View | None:
    """A view as it was written; None if nobody has written one, or not this version of us."""
    try:
        return msgspec.convert(raw, View) if raw else None
    except msgspec.ValidationError:
        # Another version leads, and writes it in another way.
        return None


def views(
    books: Books,
    *,
    waiting: Iterable[Waiter],
    statuses: Mapping[str, QueueStatus],
    homes: Mapping[str, str],
    at: str,
    shown: Sequence[Waiter] = (),
) -> dict[Where, View]:
    """Every view that there is to be; `homes` is each namespace's own queue, `statuses` those of the same instant.

    Who is `shown` to an autoscaler is charged, and told as who waits.
    """
    counts = Counter((waiter.pod.metadata.namespace, waiter.queue) for waiter in (*waiting, *shown))
    held = _without(books, shown)
    wanted = {*counts, *books.of_namespaces, *homes.items()}
    nodes = books.ledger.tree.nodes
    return {
        (namespace, queue): _view(
            nodes[queue],
            status=statuses[queue],
            own=_own(held.get((namespace, queue), (0, 0, 0)), waiting=counts[namespace, queue]),
            at=at,
        )
        for namespace, queue in sorted(wanted)
        if queue in nodes and queue in statuses and queue != ROOT
    }


def _without(books: Books, shown: Iterable[Waiter]) -> dict[Where, Sequence[int]]:
    """What namespaces hold in queues, and how many of their pods do, but for these."""
    held: dict[Where, Sequence[int]] = dict(books.of_namespaces)
    for waiter in shown:
        if charge := books.ledger.of(waiter.uid):
            where = waiter.pod.metadata.namespace, charge.queue
            own = charge.amounts[COMPUTE], charge.amounts[MEMORY], 1
            held[where] = [amount - less for amount, less in zip(held[where], own, strict=True)]
    return held


def of_the_moment(view: View) -> View:
    """All but when it was worked out."""
    return msgspec.structs.replace(view, at="")


def _own(held: Iterable[int], *, waiting: int) -> Own:
    compute, memory, running = held
    return Own(used=Amounts(compute=compute, memory=memory), running=running, waiting=waiting)


def _view(node: Node, *, status: QueueStatus, own: Own, at: str) -> View:
    most = {thing: node.ceiling[dim] for thing, dim in (("compute", COMPUTE), ("memory", MEMORY))}
    return View(
        path=tuple(name for name in reversed(node.path) if name != ROOT),
        stop=node.stop,
        guarantee=Amounts(compute=node.guarantee[COMPUTE], memory=node.guarantee[MEMORY]),
        limit=Limits(**{thing: ceiling for thing, ceiling in most.items() if ceiling < UNLIMITED}),
        used=status.used,
        fair_share=status.fair_share,
        asked=status.asked,
        waiting=status.waiting,
        own=own,
        at=at,
    )
