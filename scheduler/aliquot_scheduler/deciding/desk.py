"""The desk where every decision about a pod's place is made, one after the other.

kube-scheduler asks three times: which nodes have room (`filter`), how good is each (`prioritize`), bind it there. The
first answer names all that have room, so that affinity, spread and whatever else kube-scheduler weighs still decide;
room is promised on the best of them, and moves to another one if that is chosen. At bind all is looked at once more,
so what is written is true at that instant, whatever happened since.

Pure: it is told the time, and what comes of a write (`bind_ended`). All is done on one loop, so nothing happens
between two lines of a method; what lies between two calls may be anything.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence

import msgspec

from aliquot_core.errors import AliquotError
from aliquot_core.hosts import own_request
from aliquot_core.names import Names
from aliquot_core.objects import Pod
from aliquot_core.request import parse_request
from aliquot_scheduler.deciding.departed import Departed
from aliquot_scheduler.deciding.missed import MissedTurns
from aliquot_scheduler.deciding.places import Places
from aliquot_scheduler.deciding.plain import plain_grades
from aliquot_scheduler.deciding.promises import DOUBT, NEVER, PROMISE, Ended, Promise, Stage
from aliquot_scheduler.deciding.turns import Turns
from aliquot_scheduler.deciding.unchanged import asks_the_same
from aliquot_scheduler.extender.decisions import Filtered
from aliquot_scheduler.fit.bounds import ANYWHERE, Bounds
from aliquot_scheduler.fit.demand import Demand, demand_of
from aliquot_scheduler.fit.finder import Look
from aliquot_scheduler.picture.picture import Picture
from aliquot_scheduler.rules.judging import NO_RULES, Rules

log = logging.getLogger(__name__)


class Desk:
    """All decisions about places."""

    def __init__(
        self,
        *,
        picture: Picture,
        names: Names,
        turns: Turns,
        promise: float = PROMISE,
        look: Look | None = None,
        rules: Rules = NO_RULES,
    ) -> None:
        """`promise` is how many seconds room is kept for a pod that is not bound yet; `look` values places."""
        self._picture = picture
        self._names = names
        self._turns = turns
        self._look = look
        self._places = Places(picture=picture, names=names, promise=promise, look=look, rules=rules)
        self.finder, self.promises = self._places.finder, self._places.promises
        self._pods: dict[str, Pod] = {}
        self._departed = Departed()
        self.missed = MissedTurns(turns=turns)

    # --- what the API server tells -----------------------------------------------------------------------------------
    def pod_seen(self, pod: Pod) -> None:
        """A pod is there, or is changed."""
        uid = pod.metadata.uid
        held = self._picture.grants.held(pod)
        if held is not None:
            self.promises.kept(uid)
            self._places.offers.forget(uid)
            self._picture.hold(uid, held)
        elif pod.spec.node_name:
            self._bound_without_grant(pod)
        elif pod.metadata.deletion_timestamp:
            self.take_back(uid)
        # After a promise is dropped, which held the same.
        self._picture.pod_lies(pod, granted=held is not None)
        if pod.ended:
            self._pods.pop(uid, None)
            self._departed.gone(uid)
        else:
            self._pods[uid] = pod
            self._departed.seen(uid)

    def pod_gone(self, pod: Pod) -> None:
        """A pod is gone, and with it all that was kept for it."""
        uid = pod.metadata.uid
        self._pods.pop(uid, None)
        self._departed.gone(uid)
        self._places.offers.forget(uid)
        self.promises.kept(uid)
        self._picture.pod_gone(pod)

    def tell_time(self, now: float) -> None:
        """Let time pass: promises and heart-beats grow old."""
        self._picture.tell_time(now)
        self._departed.tell_time(now)
        for promise in self.promises.overdue(now):
            if promise.stage is Stage.OFFERED:
                why = f"not bound within {self._places.for_so_long:g} s"
                log.info("room taken back", extra={"pod": promise.pod.key, "node": promise.node, "reason": why})
                self._places.drop(promise.pod.metadata.uid)
                self._missed(promise.pod.metadata.uid, now=now)
        for uid in self._turns.overdue(now):
            # Its binding was refused, and it was not asked for again.
            if self.promises.of(uid) is None:
                self._missed(uid, now=now)

    def take_back(self, uid: str) -> None:
        """Give up what is offered to a pod; what is being written is not ours to give up."""
        self._places.take_back(uid)

    # --- what kube-scheduler asks ------------------------------------------------------------------------------------
    def filter(self, pod: Pod, nodes: Sequence[str], *, now: float) -> Filtered:
        """Which of these nodes have room; room on the best of them is promised."""
        # Between two looks at the clock a heart-beat may have grown too old.
        self._picture.tell_time(now)
        try:
            request = parse_request(pod, names=self._names)
        except AliquotError as error:
            return Filtered(unresolvable=dict.fromkeys(nodes, str(error)))
        if not request.containers:
            return Filtered(nodes=nodes)
        self._turns.take_over(self, now=now)
        self._turns.asked(pod, now=now)
        uid = pod.metadata.uid
        gone = self._departed.why_not(uid, known=self._pods.get(uid))
        if why := gone or self._busy(pod) or self._turns.why_not(pod):
            return Filtered(unresolvable=dict.fromkeys(nodes, why))
        bounds = self._turns.bounds(pod)
        demand = bounds.narrowed(demand_of(request))
        return self._filtered(pod, demand, bounds, nodes, now=now)

    def prioritize(self, pod: Pod, nodes: Sequence[str]) -> Sequence[int]:
        """How good each node is; the one with the promised room is a little better than its equals."""
        return self._places.offers.grades(pod.metadata.uid, nodes)

    def prioritize_plain(self, pod: Pod, nodes: Sequence[str]) -> Sequence[int]:
        """How little the GPUs of each node lose by a pod that asks for none."""
        return plain_grades(pod, nodes, picture=self._picture, names=self._names, look=self._look)

    def begin_bind(self, *, uid: str, node: str, now: float) -> Promise | str:
        """Look at all once more; the promise to be written, or why it can't be."""
        self._picture.tell_time(now)
        promise = self.promises.of(uid)
        if promise is None:
            return "no room is promised to this pod (its time was over, or it was never filtered); it is placed anew"
        if why := self._why_no_bind(promise, node=node):
            if uid not in self._pods:
                # Most likely it was gone when it was filtered, and nobody will ever tell us so.
                self.take_back(uid)
            return why
        if not asks_the_same(self._pods[uid], promise.pod, names=self._names):
            self._places.drop(uid)
            return "what it asks for has changed since room was promised to it; it is placed anew"
        plan = self._places.again(promise, node=node)
        if plan is None:
            self._places.drop(uid)
            return self._why_lost(promise.pod, node=node)
        final = msgspec.structs.replace(promise, plan=plan, stage=Stage.WRITING, until=NEVER)
        self.promises.make(final)
        return final

    def bind_ended(self, uid: str, ended: Ended, *, now: float) -> None:
        """What came of the write."""
        promise = self.promises.of(uid)
        if promise is None or promise.stage is not Stage.WRITING:
            # The watch was faster, or the pod is gone.
            return
        if ended is Ended.TAKEN:
            self.promises.move_on(uid, Stage.WRITTEN, until=NEVER)
        elif ended is Ended.UNKNOWN:
            self.promises.move_on(uid, Stage.DOUBTFUL, until=now + DOUBT)
        else:
            self._places.drop(uid)

    def doubts(self, now: float) -> list[Promise]:
        """Promises of which no write can land any more: whether one has is to be looked up now."""
        return [promise for promise in self.promises.overdue(now) if promise.stage is Stage.DOUBTFUL]

    def heard(self, promise: Promise, pod: Pod) -> None:
        """The API server's own word on a pod; none that came late may speak for one that is gone."""
        if self.promises.of(promise.pod.metadata.uid) is promise:
            self.pod_seen(pod)

    def looked_up(self, promise: Promise, pod: Pod | None, *, now: float) -> None:
        """What the API server says of a pod in doubt: the very pod, or that it is not there any more."""
        uid = promise.pod.metadata.uid
        if pod is not None:
            self.heard(promise, pod)
        if self.promises.of(uid) is promise:
            self._places.drop(uid)
            self._missed(uid, now=now)

    # --- a turn comes with room --------------------------------------------------------------------------------------
    def promise_best(self, pod: Pod, demand: Demand, bounds: Bounds = ANYWHERE, *, now: float) -> Promise | None:
        """Find the best node of all and keep room there, for a pod that is about to be let through."""
        if self._busy(pod):
            return None
        return self._places.best(pod, demand, bounds, now=now)

    def narrow(self, promise: Promise, demand: Demand) -> Promise:
        """Keep the same room for a pod that may have fewer GPUs than when it was found."""
        return self.promises.narrow(promise.pod.metadata.uid, demand)

    # --- how it is done ----------------------------------------------------------------------------------------------
    def _busy(self, pod: Pod) -> str:
        """Why a new place can't be looked for while an old one may still come true."""
        uid = pod.metadata.uid
        promise = self.promises.of(uid)
        if promise is not None:
            return "" if promise.stage is Stage.OFFERED else f"its binding to node {promise.node} is being written"
        known = self._pods.get(uid)
        # The grant may be seen before an older word on the pod is.
        if self._picture.holdings.of(uid) or (known and known.spec.node_name):
            return "it is bound already"
        return ""

    def _filtered(self, pod: Pod, demand: Demand, bounds: Bounds, nodes: Sequence[str], *, now: float) -> Filtered:
        if promise := self._places.as_found(pod, demand, nodes, now=now):
            self._turns.promised(promise)
            return Filtered(nodes=[promise.node])
        filtered, promise = self._places.among(pod, demand, bounds, nodes, now=now)
        if promise is not None:
            self._turns.promised(promise)
        else:
            self._missed(pod.metadata.uid, now=now)
        return filtered

    def _why_no_bind(self, promise: Promise, *, node: str) -> str:
        if promise.stage is not Stage.OFFERED:
            return f"its binding to node {promise.node} is being written already"
        if node not in promise.nodes:
            return f"node {node} was not among those that had room for this pod"
        pod = self._pods.get(promise.pod.metadata.uid)
        if pod is None:
            # If it were deleted before we ever see it, nobody would tell us.
            return "Aliquot has not been told of this pod yet, or it is gone"
        return self._turns.why_not(promise.pod)

    def _why_lost(self, pod: Pod, *, node: str) -> str:
        """Why a node has no room any more for one that was promised it."""
        known = self._picture.nodes.get(node)
        why = known.out or self.finder.counted.why_not(pod, node=node) if known else "the node is gone"
        return why or "its GPUs were given to others meanwhile"

    def _bound_without_grant(self, pod: Pod) -> None:
        """A pod is bound once: no write of ours can land any more. One that has, says the grant that is taken off."""
        uid, node = pod.metadata.uid, pod.spec.node_name
        if uid not in self._picture.hosts.ungranted.get(node, ()) and not self._picture.grants.is_of_later(pod):
            # Once, and not by every command that draws a picture of its own.
            compute, memory, _ = own_request(pod, names=self._names)
            about = {"pod": pod.key, "node": node, "compute": compute, "memory": memory}
            log.warning("a pod is bound without a grant", extra=about)
        if why := self._picture.grants.why_none(pod):
            log.error("the grant of %s counts for nothing: %s", pod.key, why)
        promise = self.promises.of(uid)
        if promise is None:
            # What it was granted before it lost that: the next leader would not know of it either.
            self._picture.hold(uid, {})
        elif promise.stage is not Stage.WRITTEN:
            log.warning("bound, and not by us", extra={"pod": pod.key})
            self._places.drop(uid)

    def _missed(self, uid: str, *, now: float) -> None:
        self.missed.note(uid, self._pods.get(uid), now=now)

    @property
    def pods(self) -> Mapping[str, Pod]:
        """All pods that have not ended, by UID."""
        return self._pods

    @property
    def nodes(self) -> int:
        """How many nodes there are, whatever they have."""
        return len(self._picture.nodes)
