"""Queues that are gone: who is still charged to them and runs on, and who waits and names them.

A queue that hangs on nothing is left out of the tree, so that pods of it are counted for no queue either.
"""

from __future__ import annotations

from collections.abc import Iterator

from aliquot_scheduler.queues.telling.forms import NO_QUEUE, ChargedPod, GoneQueue, QueueAnswer
from aliquot_scheduler.queues.telling.reasons import Due
from aliquot_scheduler.queues.telling.rows import row_of_strays
from aliquot_scheduler.queues.telling.standing import Standing, Strays
from aliquot_scheduler.queues.telling.whole import told_of


def answer_of_gone(name: str, standing: Standing, *, due: Due) -> QueueAnswer | None:
    """All pods of one that is gone, or of all such (`NO_QUEUE`); None if there are none.

    The standing can't be asked anything afterwards.
    """
    strays = standing.strays() if name == NO_QUEUE else _of_one(name, standing.strays())
    if not any(strays):
        return None
    return QueueAnswer(
        row=row_of_strays(name, strays, standing),
        path=[name],
        namespaces=(),
        home_of=(),
        gone=list(_gone(strays, standing)),
        charged=sorted(_charged(strays, standing), key=lambda one: (one.queue, one.pod)),
        pods=told_of(strays.waiting, standing, due=due),
    )


def _of_one(name: str, strays: Strays) -> Strays:
    return Strays(*([waiter for waiter in waiters if waiter.queue == name] for waiters in strays))


def _gone(strays: Strays, standing: Standing) -> Iterator[GoneQueue]:
    for name in sorted({waiter.queue for waiters in strays for waiter in waiters}):
        let_in, waiting = _of_one(name, strays)
        hangs = name in standing.plan.specs
        yield GoneQueue(name=name, hangs=hangs, running=len(let_in), waiting=len(waiting))


def _charged(strays: Strays, standing: Standing) -> Iterator[ChargedPod]:
    for waiter in strays.let_in:
        compute, memory = standing.charged(waiter)
        pod = waiter.pod
        yield ChargedPod(pod=pod.key, queue=waiter.queue, node=pod.spec.node_name, compute=compute, memory=memory)
