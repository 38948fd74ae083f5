"""All of one queue, with who is before whom.

Lines can't be told without rights to read pods and nodes. With rights in a namespace alone the numbers are those of its
views (`told_by`: "view"): queues that it is at home in or has pods in, and its own part.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from aliquot_scheduler.queues.said.entry import Plan
from aliquot_scheduler.queues.said.tree import COMPUTE, MEMORY, ROOT
from aliquot_scheduler.queues.telling.forms import OwnPart, Part, QueueAnswer, QueueRow, WaitingPod
from aliquot_scheduler.queues.telling.reasons import Due, why_it_waits
from aliquot_scheduler.queues.telling.rows import rows
from aliquot_scheduler.queues.telling.standing import Standing
from aliquot_scheduler.queues.telling.status import QueueStatus
from aliquot_scheduler.queues.telling.views import View
from aliquot_scheduler.queues.telling.why import NOBODY_GOES, TURN_LOST, WAITING, Why, as_shown
from aliquot_scheduler.queues.waiting.waiter import Waiter


def _nothing_due(waiter: Waiter) -> str:
    del waiter
    return ""


def answer(
    name: str,
    plan: Plan,
    *,
    statuses: Mapping[str, QueueStatus],
    standing: Standing | None,
    led: bool = False,
    due: Due = _nothing_due,
) -> QueueAnswer:
    """All of one queue; the standing can't be asked anything afterwards.

    `led`: its settings are the leader's. `due` is what one is told who waits for what it is guaranteed, or nothing.
    """
    (row,) = (one for one in rows(plan, statuses=statuses, standing=standing) if one.name == name)
    node = plan.tree.nodes[name]
    told = QueueAnswer(
        row=row,
        path=[one for one in reversed(node.path) if one != ROOT],
        namespaces=node.spec.namespaces,
        home_of=sorted(namespace for namespace, queue in plan.homes.items() if queue == name),
    )
    if standing is None:
        return told
    return msgspec.structs.replace(
        told,
        siblings=standing.siblings(name),
        users=standing.users(name),
        pods=waiting_pods(name, standing, due=due),
        settings=standing.settings,
        settings_of="leader" if led else "reader",
    )


def shown(name: str, view: View, *, namespace: str) -> QueueAnswer:
    """A queue as a namespace is shown it."""
    parent = view.path[-2] if len(view.path) > 1 else ROOT
    own = OwnPart(
        namespace=namespace,
        compute=view.own.used.compute,
        memory=view.own.used.memory,
        running=view.own.running,
        waiting=view.own.waiting,
        reasons=view.own.reasons,
    )
    row = QueueRow(
        name=name,
        parent=parent,
        depth=0,
        leaf=True,
        compute=_shown(view, "compute"),
        memory=_shown(view, "memory"),
        running=None,
        waiting=view.waiting,
        priority=None,
        stop=view.stop,
        told_by="view",
        own=own,
    )
    return QueueAnswer(row=row, path=view.path, namespaces=(), home_of=())


def _shown(view: View, thing: str) -> Part:
    return Part(
        guarantee=getattr(view.guarantee, thing),
        limit=getattr(view.limit, thing),
        weight=None,
        lending_limit=None,
        borrowing_limit=None,
        used=getattr(view.used, thing),
        fair_share=getattr(view.fair_share, thing),
        asked=getattr(view.asked, thing),
    )


def waiting_pods(name: str, standing: Standing, *, due: Due = _nothing_due) -> list[WaitingPod]:
    """Who waits in a queue and below it, in the order of their places; those in no line last."""
    return told_of(standing.waiting(name), standing, due=due)


def told_of(waiters: Iterable[Waiter], standing: Standing, *, due: Due = _nothing_due) -> list[WaitingPod]:
    """The same of these who wait."""
    waiting = sorted(waiters, key=lambda waiter: waiter.place)
    reasons = {waiter.uid: why_it_waits(waiter, standing) for waiter in waiting}
    sentences = {waiter.uid: _sentence(waiter, reasons[waiter.uid], standing, due=due) for waiter in waiting}
    # Who may not wait in its queue is in no line either, whatever it asks.
    never = {one.uid for one in waiting if standing.why_never(one) and not standing.is_barred(one)}
    places: dict[str, int] = {}
    missing = set(reasons)
    for place, waiter in enumerate(standing.order(), start=1):
        if waiter.uid in missing:
            missing.remove(waiter.uid)
            places[waiter.uid] = place
        if not missing:
            break
    found = [
        _pod(
            waiter,
            place=places.get(waiter.uid, 0),
            never=waiter.uid in never,
            reason=reasons[waiter.uid].word,
            why=sentences[waiter.uid],
        )
        for waiter in waiting
    ]
    return sorted(found, key=lambda one: (one.place == 0, one.place))


def _sentence(waiter: Waiter, why: Why, standing: Standing, *, due: Due) -> str:
    sentence = why.sentence()
    if waiter.uid in standing.shown:
        sentence = as_shown(sentence)
    elif standing.has_lost_its_turn(waiter) and why.word != TURN_LOST:
        sentence = "its turn led to no binding" + ("" if why.word == WAITING else f": {sentence}")
    # The leader's word says that too.
    more = "" if why.word == NOBODY_GOES else due(waiter)
    return "; ".join(filter(None, (sentence, standing.shown.instead_of(waiter), more)))


def _pod(waiter: Waiter, *, place: int, never: bool, reason: str, why: str) -> WaitingPod:
    # Left out, the most that it may come to.
    compute, memory = waiter.amounts[COMPUTE], waiter.amounts[MEMORY]
    return WaitingPod(
        pod=waiter.pod.key,
        queue=waiter.queue,
        user=waiter.user,
        place=place,
        never=never,
        priority=waiter.priority,
        since=waiter.pod.metadata.creation_timestamp or "",
        compute=compute,
        memory=memory,
        reason=reason,
        why=why,
    )
