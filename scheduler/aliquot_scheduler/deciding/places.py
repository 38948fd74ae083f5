"""Finds places for pods, and keeps each for its pod as a promise."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np

from aliquot_core.names import Names
from aliquot_core.node_rules import discourages
from aliquot_core.objects import Pod
from aliquot_scheduler.deciding.answers import Asked, told
from aliquot_scheduler.deciding.offers import Offer, Offers, takes_any_node
from aliquot_scheduler.deciding.promises import PROMISE, Promise, Promises, Stage
from aliquot_scheduler.extender.decisions import Filtered
from aliquot_scheduler.fit.bounds import Bounds
from aliquot_scheduler.fit.demand import Demand, of_anybody
from aliquot_scheduler.fit.finder import Finder, Look
from aliquot_scheduler.fit.ground import Ground, host_ask
from aliquot_scheduler.fit.layout import Plan
from aliquot_scheduler.fit.survey import Room, Survey
from aliquot_scheduler.picture.picture import Picture
from aliquot_scheduler.rules.judging import NO_RULES, Rules

# So many nodes at the most, each at up to 0.5 ms.
_MOST_TRIED = 8


class Places:
    """What stands of them is in `promises`, what was said of them in `offers`."""

    def __init__(
        self,
        *,
        picture: Picture,
        names: Names,
        promise: float = PROMISE,
        look: Look | None = None,
        rules: Rules = NO_RULES,
    ) -> None:
        """`promise` is how many seconds room is kept for a pod that is not bound yet; `look` values places."""
        self.for_so_long = promise
        self.finder = Finder(picture=picture, names=names, look=look, rules=rules)
        self.promises = Promises(picture=picture)
        self.offers = Offers(picture=picture)
        self._picture = picture
        self._names = names
        self._ground = Ground(picture=picture)

    def best(self, pod: Pod, demand: Demand, bounds: Bounds, *, now: float) -> Promise | None:
        """On the best node of all, for a pod that is about to be let through."""
        self.take_back(pod.metadata.uid)
        demand = bounds.narrowed(demand)
        among = bounds.among([bounds.node] if bounds.node else list(self._picture.nodes))
        nodes, rows = self._picture.rows_of(among)
        if not nodes:
            return None
        found = self._survey(pod, demand, only=bounds.node)
        promise = self._promise(pod, demand, found, Room.among(nodes, rows, found), now=now)
        if promise is not None and promise.alone:
            self.offers.expect(pod.metadata.uid)
        return promise

    def among(
        self, pod: Pod, demand: Demand, bounds: Bounds, nodes: Sequence[str], *, now: float
    ) -> tuple[Filtered, Promise | None]:
        """On the best of those that were named, and what is to be said of all of them."""
        self.take_back(pod.metadata.uid)
        found = self.finder.survey(pod, demand)
        known, rows = self._picture.rows_of(bounds.among(nodes))
        room = Room.among(known, rows, found)
        promise = self._promise(pod, demand, found, room, now=now)
        asked = Asked(demand=demand, bounds=bounds, nodes=nodes)
        return told(asked, known=known, rows=rows, found=found, room=room, finder=self.finder), promise

    def as_found(self, pod: Pod, demand: Demand, nodes: Sequence[str], *, now: float) -> Promise | None:
        """The place that a turn has found, alone: kube-scheduler then neither weighs others nor asks for grades.

        Once: whoever comes again could not be bound there, and is told of all nodes.
        """
        uid = pod.metadata.uid
        promise = self.promises.of(uid)
        if promise is None or not self.offers.was_expected(uid):
            return None
        if promise.node not in nodes or not promise.alone:
            return None
        # In a turn, nobody asks whose the pod is.
        if of_anybody(promise.demand.request) != of_anybody(demand.request):
            return None
        if (plan := self.again(promise, node=promise.node)) is None:
            return None
        renewed = msgspec.structs.replace(promise, plan=plan, until=now + self.for_so_long, nodes=[promise.node])
        self.promises.make(renewed)
        return renewed

    def again(self, promise: Promise, *, node: str) -> Plan | None:
        """The pod on that node as things are now."""
        if node == promise.node and self.promises.holds_still(promise):
            return promise.plan
        return self.finder.plan(promise.pod, promise.demand, node=node)

    def take_back(self, uid: str) -> None:
        """Give up what is offered to a pod; what is being written is not ours to give up."""
        promise = self.promises.of(uid)
        if promise is not None and promise.stage is Stage.OFFERED:
            self.drop(uid)

    def drop(self, uid: str) -> None:
        """Give up whatever is promised to a pod."""
        self.offers.forget(uid)
        self.promises.take_back(uid)

    def _survey(self, pod: Pod, demand: Demand, *, only: str) -> Survey:
        """Where it would have room; if only one node will do, of that alone: a new leader asks so for hundreds."""
        within = self._ground.admits(host_ask(pod, names=self._names))
        if not only:
            return self.finder.survey(pod, demand, within=within)
        return self.finder.survey_one(pod, demand, known=self._picture.nodes[only], within=within)

    def _promise(self, pod: Pod, demand: Demand, found: Survey, room: Room, *, now: float) -> Promise | None:
        """Room on the cheapest of these nodes; of equals on the first that kube-scheduler named."""
        if not room.nodes:
            return None
        best = self._planned(pod, demand, found, room)
        if best is None:
            return None
        until = now + self.for_so_long
        promise = Promise(
            pod=pod,
            demand=demand,
            plan=best,
            stage=Stage.OFFERED,
            until=until,
            nodes=room.nodes,
            alone=takes_any_node(pod) and not self._discourages(pod, best.grant.node),
        )
        self.promises.make(promise)
        self.offers.make(pod.metadata.uid, Offer(survey=found, room=room, best=promise.node))
        return promise

    def _discourages(self, pod: Pod, node: str) -> bool:
        taints = self._picture.nodes[node].node.spec.taints
        return bool(taints) and discourages(taints, pod.spec.tolerations)

    def _planned(self, pod: Pod, demand: Demand, found: Survey, room: Room) -> Plan | None:
        """On the cheapest; a node that says it has room and then none, by a fault of ours, is not all there is."""
        costs = found.cost[room.rows]
        plan = self.finder.plan(pod, demand, node=room.nodes[int(np.argmin(costs))])
        if plan is not None:
            return plan
        others = np.argsort(costs, kind="stable")[1:_MOST_TRIED].tolist()
        plans = (self.finder.plan(pod, demand, node=room.nodes[one]) for one in others)
        return next((plan for plan in plans if plan is not None), None)
