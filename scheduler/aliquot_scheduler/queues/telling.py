"""What people are told of queues: rows for a table, and all of one queue with who is before whom.

With rights to read pods and nodes everything is worked out (`told_by`: "computed"); with rights to read queues alone
the numbers are those that the leader has written into their status ("status"), and lines can't be told. With rights in
a namespace alone they are those of its views ("view"): queues that it is at home in or has pods in, and its own part.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import msgspec

from aliquot_scheduler.queues.contradictions import ALL_MODELS, Thing, problems_by_queue, quota_of
from aliquot_scheduler.queues.entry import Plan
from aliquot_scheduler.queues.line import Waiter
from aliquot_scheduler.queues.reasons import why_it_waits
from aliquot_scheduler.queues.settings import QueueSettings
from aliquot_scheduler.queues.standing import SiblingStanding, Standing, Strays, UserStanding, amounts_of
from aliquot_scheduler.queues.status import QueueStatus
from aliquot_scheduler.queues.tree import ROOT, UNLIMITED, Dimensions, Node
from aliquot_scheduler.queues.views import View

# Whose queue was deleted. In parentheses, which no queue's name has.
NO_QUEUE = "(no queue)"
_THINGS = ("compute", "memory")

# What one that waits is told of what it is guaranteed; empty if it is not.
Due = Callable[[Waiter], str]


def _nothing_due(waiter: Waiter) -> str:
    del waiter
    return ""


class _Told(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Common settings of what is printed as JSON."""


class Part(_Told, frozen=True, kw_only=True):
    """One of compute and memory; None is nothing said, or not known."""

    guarantee: int | None
    limit: int | None
    weight: int | None
    lending_limit: int | None
    borrowing_limit: int | None
    used: int | None = None
    borrowed: int | None = None
    fair_share: int | None = None
    asked: int | None = None


class OwnPart(_Told, frozen=True, kw_only=True):
    """What a namespace has of a queue."""

    namespace: str
    compute: int
    memory: int
    running: int
    waiting: int


class ModelParts(_Told, frozen=True, kw_only=True):
    """What a queue says of GPUs of a model, and has of them."""

    compute: Part
    memory: Part


class QueueRow(_Told, frozen=True, kw_only=True):
    """A queue in a table, below its parent."""

    name: str
    parent: str
    depth: int
    leaf: bool
    compute: Part
    memory: Part
    running: int | None
    waiting: int | None
    priority: int | None
    stop: str
    told_by: str
    # Where it is told by the view of a namespace.
    own: OwnPart | None = None
    # What is wrong with it.
    problems: Sequence[str] = ()
    # By pattern, of models of which it says anything.
    models: Mapping[str, ModelParts] = {}


class WaitingPod(_Told, frozen=True, kw_only=True):
    """A pod that waits: `place` counts all queues' pods, and is 0 where it is in no line."""

    pod: str
    queue: str
    user: str
    place: int
    # It could not be let in whatever others do, as queues and nodes are.
    never: bool
    priority: int
    since: str
    compute: int
    memory: int
    why: str


class QueueAnswer(_Told, frozen=True, kw_only=True):
    """All of one queue."""

    row: QueueRow
    path: Sequence[str]
    namespaces: Sequence[str]
    home_of: Sequence[str]
    siblings: Sequence[SiblingStanding] = ()
    users: Sequence[UserStanding] = ()
    pods: Sequence[WaitingPod] = ()
    # By which shares were worked out; and whose they are: the "leader"'s, or if it has told none those of who asks.
    settings: QueueSettings | None = None
    settings_of: str = ""


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
        found.append(msgspec.structs.replace(row, models=_models(node, plan.tree.dimensions, standing=standing)))
        pending += [(child, depth + 1) for child in reversed(node.children)]
    return found + ([] if standing is None else _of_no_queue(standing.strays()))


def _of_no_queue(strays: Strays) -> list[QueueRow]:
    """Those whose queue is gone, if there are any."""
    if not strays.running and not strays.waiting:
        return []
    nothing = Part(guarantee=None, limit=None, weight=None, lending_limit=None, borrowing_limit=None)
    compute, memory = (msgspec.structs.replace(nothing, used=used) for used in strays.used)
    row = QueueRow(
        name=NO_QUEUE,
        parent=ROOT,
        depth=0,
        leaf=False,
        compute=compute,
        memory=memory,
        running=strays.running,
        waiting=strays.waiting,
        priority=None,
        stop="",
        told_by="computed",
    )
    return [row]


def _with_problems(statuses: Mapping[str, QueueStatus], plan: Plan) -> dict[str, QueueStatus]:
    """The leader writes what is wrong with the queues together before what is wrong with one beside the hardware."""
    found = problems_by_queue(plan.specs)
    return {
        name: msgspec.structs.replace(status, problems=(*found.get(name, ()), *status.problems))
        for name, status in statuses.items()
    }


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
    waiting = sorted(standing.waiting(name), key=lambda waiter: waiter.place)
    reasons = {waiter.uid: _why(waiter, standing, due=due) for waiter in waiting}
    never = {waiter.uid for waiter in waiting if standing.why_never(waiter)}
    places: dict[str, int] = {}
    missing = set(reasons)
    for place, waiter in enumerate(standing.order(), start=1):
        if waiter.uid in missing:
            missing.remove(waiter.uid)
            places[waiter.uid] = place
        if not missing:
            break
    found = [
        _pod(waiter, place=places.get(waiter.uid, 0), never=waiter.uid in never, why=reasons[waiter.uid])
        for waiter in waiting
    ]
    return sorted(found, key=lambda one: (one.place == 0, one.place))


def _why(waiter: Waiter, standing: Standing, *, due: Due) -> str:
    why = why_it_waits(waiter, standing) or _cards(waiter, standing)
    return "; ".join([why, *([said] if (said := due(waiter)) else [])])


def _cards(waiter: Waiter, standing: Standing) -> str:
    return standing.why_no_node(waiter) if standing.may_fit(waiter) else "no GPU has room for it now"


def _pod(waiter: Waiter, *, place: int, never: bool, why: str) -> WaitingPod:
    compute, memory = amounts_of(waiter)
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
        why=why,
    )


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
        parts = [_said_of(node, dim, (model, thing)) for dim, thing in enumerate(_THINGS, start=dimension)]
        if account is not None:
            parts = [
                msgspec.structs.replace(part, used=account.used[dim], asked=account.asked[dim])
                for dim, part in enumerate(parts, start=dimension)
            ]
        found[model] = ModelParts(compute=parts[0], memory=parts[1])
    return found


def _part(node: Node, thing: str, status: QueueStatus | None) -> Part:
    told = _said_of(node, _THINGS.index(thing), (ALL_MODELS, thing))
    if status is None:
        return told
    parts = {field: getattr(getattr(status, field), thing) for field in ("used", "borrowed", "fair_share", "asked")}
    return msgspec.structs.replace(told, **parts)


def _said_of(node: Node, dimension: int, thing: Thing) -> Part:
    """What the tree makes of the quota: a guarantee is no less than those below, a limit no more than may be had."""
    quota, ceiling = quota_of(node.spec, thing), node.ceiling[dimension]
    return Part(
        guarantee=node.guarantee[dimension] if quota.guarantee is not None or node.guarantee[dimension] else None,
        limit=None if ceiling >= UNLIMITED else ceiling,
        weight=quota.weight,
        lending_limit=quota.lending_limit,
        borrowing_limit=quota.borrowing_limit,
    )
