"""From a pod to its place in a queue: which queue, whose, and what it may come to; or why it can't wait anywhere.

A pod that can never be let in (over a limit by itself, larger than any card) is told so, and does not stand in line:
it would be the head of it for ever, and what is held back for it would never be lent.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from aliquot_core.errors import AliquotError
from aliquot_core.names import Names
from aliquot_core.objects import Pod
from aliquot_core.request import parse_request
from aliquot_scheduler.fit.demand import Demand, demand_of
from aliquot_scheduler.fit.ground import host_ask
from aliquot_scheduler.queues.cards import Cards
from aliquot_scheduler.queues.entry import why_barred
from aliquot_scheduler.queues.ledger import Charge, Ledger
from aliquot_scheduler.queues.line import Shape, Waiter
from aliquot_scheduler.queues.tree import DEFAULT_QUEUE, Tree, Vector


class _Known(msgspec.Struct, frozen=True, kw_only=True):
    """What is worked out once for each shape."""

    demand: Demand
    amounts: Vector
    could_fit: bool


class Enrolment:
    """Reads pods, by the tree and the cards of the moment."""

    def __init__(
        self, *, names: Names, cards: Cards, tree: Tree, homes: Mapping[str, str], user_label: str, plain: bool
    ) -> None:
        """`homes` is each namespace's own queue; `user_label` says whose a pod is, else its namespace is the user.

        `plain`: there are no queues, so nothing that is said of them means anything, and all are served by age.
        """
        self._names = names
        self._plain = plain
        self._cards = cards
        self._tree = tree
        self._homes = homes
        self._user_label = user_label
        self._known: dict[Shape, _Known] = {}
        self._numbers: dict[Shape, int] = {}
        self._hardware = cards.hardware()

    def outdated(self) -> bool:
        """Whether the hardware has changed so that any shape comes to something else now."""
        hardware = self._cards.hardware()
        if hardware == self._hardware:
            return False
        self._hardware = hardware
        before = self._known
        self._known = {}
        return any(self._of_shape(shape) != known for shape, known in before.items())

    def waiter(self, pod: Pod) -> Waiter | None:
        """The pod as one that waits; None if it asks for nothing that can be read."""
        try:
            request = parse_request(pod, names=self._names)
        except AliquotError:
            # The webhook refuses it; who came past it waits, and `aliquot explain` says why.
            return None
        if not request.containers:
            return None
        plain = msgspec.structs.replace(request, queue="", group=None, preemptible=True)
        shape = Shape(
            request=plain, host=host_ask(pod, names=self._names), firm=not (request.preemptible or self._plain)
        )
        known = self._of_shape(shape)
        return Waiter(
            pod=pod,
            demand=known.demand,
            shape=shape,
            number=self._number(shape, known.demand),
            amounts=known.amounts,
            queue=self._queue(pod, named=request.queue),
            user=self._user(pod),
            priority=0 if self._plain else pod.spec.priority,
            group=request.group,
        )

    def charge(self, waiter: Waiter) -> Charge:
        """What the pod is to be charged with: what it was granted, or the most that it may come to."""
        granted = self._cards.granted(waiter.pod)
        amounts = waiter.amounts if granted is None else (*granted, *waiter.shape.host.amounts)
        return Charge(queue=waiter.queue, amounts=amounts, firm=waiter.shape.firm)

    def why_never(self, waiter: Waiter, *, ledger: Ledger) -> str:
        """Why the pod can't be let in, whatever others do; empty if it could."""
        name, namespace = waiter.queue, waiter.pod.metadata.namespace
        if barred := why_barred(name, tree=self._tree, namespace=namespace, home=self._home(waiter.pod)):
            return barred
        if broken := ledger.never(name, waiter.amounts, firm=waiter.shape.firm):
            account, dimension = broken
            what = self._tree.dimensions.names[dimension]
            return (
                f"it asks {waiter.amounts[dimension]} of {what}, more than queue {account.node.name} may ever give it"
            )
        if self._tree.nodes[name].spec.autoscale or self._of_shape(waiter.shape).could_fit:
            return ""
        return "no node could take it, even if it were empty"

    def _queue(self, pod: Pod, *, named: str) -> str:
        """Who waits goes where its namespace goes; who is bound stays where it was let in, whatever is named now."""
        if self._plain:
            return DEFAULT_QUEUE
        let_in = pod.metadata.annotations.get(self._names.charged) if pod.spec.node_name else None
        return let_in or named or self._home(pod)

    def _home(self, pod: Pod) -> str:
        home = "" if self._plain else self._homes.get(pod.metadata.namespace)
        return home or DEFAULT_QUEUE

    def _user(self, pod: Pod) -> str:
        if self._plain:
            return ""
        by_label = pod.metadata.labels.get(self._user_label) if self._user_label else None
        return by_label or pod.metadata.namespace

    def _number(self, shape: Shape, demand: Demand) -> int:
        if shape not in self._numbers:
            self._numbers[shape] = self._cards.register(demand)
        return self._numbers[shape]

    def _of_shape(self, shape: Shape) -> _Known:
        if shape not in self._known:
            demand = demand_of(shape.request)
            amounts = (*self._cards.amounts(demand), *shape.host.amounts)
            self._known[shape] = _Known(demand=demand, amounts=amounts, could_fit=self._cards.could_fit(demand))
        return self._known[shape]
