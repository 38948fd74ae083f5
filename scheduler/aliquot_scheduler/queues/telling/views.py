"""What a namespace is shown of the queues that its pods are in, so that whoever may look there sees where they stand.

Queues lie in no namespace, and no right in a namespace reaches them. So of each queue that a namespace is at home in,
or has pods in, there is a copy in the namespace: what the queue has and is due, and what of that is the namespace's.
Nothing is told of other namespaces but what they come to together. Where a queue is gone in which pods of a namespace
wait or run on, that is shown there; without any Queue nothing else is.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any

import msgspec

from aliquot_scheduler.queues.said.spec import QUEUE_NAME
from aliquot_scheduler.queues.said.things import ALL_CARDS, KINDS, Thing, quota_of
from aliquot_scheduler.queues.said.tree import ROOT, UNLIMITED, Node
from aliquot_scheduler.queues.telling.each import Attempt, unguarded
from aliquot_scheduler.queues.telling.status import Amounts, QueueStatus
from aliquot_scheduler.queues.waiting.books import Books
from aliquot_scheduler.queues.waiting.waiter import Waiter

# Namespace and queue.
Where = tuple[str, str]


class _Written(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Common settings of what is written into a view."""


class Bounds(_Written, frozen=True, kw_only=True, omit_defaults=True):
    """What a queue is guaranteed, or may have at most; left out, nothing is said of it."""

    compute: int | None = None
    memory: int | None = None


class Own(_Written, frozen=True, kw_only=True):
    """The namespace's part: what its pods hold, how many hold and how many wait."""

    used: Amounts = Amounts()
    running: int = 0
    waiting: int = 0
    # How many of those wait for what, by the word in their conditions.
    reasons: dict[str, int] = {}


class View(_Written, frozen=True, kw_only=True):
    """A queue as one of its namespaces is shown it."""

    # From the top of the tree down to the queue.
    path: tuple[str, ...] = ()
    stop: str = ""
    guarantee: Bounds = Bounds()
    limit: Bounds = Bounds()
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
    words: Iterable[tuple[Waiter, str]] = (),
    attempt: Attempt[Where] = unguarded,
) -> dict[Where, View]:
    """Every view that there is to be; `homes` is each namespace's own queue, `statuses` those of the same instant.

    `words` says why each waits, and `attempt` is each view by itself.
    """
    reasons: defaultdict[Where, Counter[str]] = defaultdict(Counter)
    for waiter, word in words:
        reasons[waiter.pod.metadata.namespace, waiter.queue][word] += 1
    counts = Counter((waiter.pod.metadata.namespace, waiter.queue) for waiter in waiting)
    tree = books.ledger.tree

    def view(where: Where) -> View | None:
        queue, held = where[1], books.of_namespaces.get(where)
        own = _own(held or (0, 0, 0), waiting=counts[where], reasons=reasons.get(where, {}))
        if queue not in tree.nodes:
            is_shown = (held or counts[where]) and re.fullmatch(QUEUE_NAME, queue)
            return View(path=(queue,), waiting=counts[where], own=own, at=at) if is_shown else None
        if queue not in statuses or queue == ROOT or tree.queueless:
            return None
        return _view(tree.nodes[queue], status=statuses[queue], own=own, at=at)

    wanted = sorted({*counts, *books.of_namespaces, *homes.items()})
    found = {where: attempt(where, partial(view, where)) for where in wanted}
    return {where: view for where, view in found.items() if view is not None}


def of_the_moment(view: View) -> View:
    """All but when it was worked out."""
    return msgspec.structs.replace(view, at="")


def _own(held: Iterable[int], *, waiting: int, reasons: Mapping[str, int]) -> Own:
    compute, memory, running = held
    told = dict(sorted(reasons.items()))
    return Own(used=Amounts(compute=compute, memory=memory), running=running, waiting=waiting, reasons=told)


def bounds_of(node: Node, dimension: int, thing: Thing) -> tuple[int | None, int | None]:
    """What the tree makes of the quota: a guarantee is no less than those below, a limit no more than may be had.

    None where nothing is said.
    """
    guarantee, ceiling = node.guarantee[dimension], node.ceiling[dimension]
    says = quota_of(node.spec, thing).guarantee is not None
    return guarantee if says or guarantee else None, None if ceiling >= UNLIMITED else ceiling


def _view(node: Node, *, status: QueueStatus, own: Own, at: str) -> View:
    compute, memory = (bounds_of(node, dim, Thing(ALL_CARDS, kind)) for dim, kind in enumerate(KINDS))
    return View(
        path=tuple(name for name in reversed(node.path) if name != ROOT),
        stop=node.stop,
        guarantee=Bounds(compute=compute[0], memory=memory[0]),
        limit=Bounds(compute=compute[1], memory=memory[1]),
        used=status.used,
        fair_share=status.fair_share,
        asked=status.asked,
        waiting=status.waiting,
        own=own,
        at=at,
    )
