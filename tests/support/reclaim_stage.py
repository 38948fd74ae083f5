"""A small cluster with queues in which pods are sent away for others: decided, asked to go, gone, and let in."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from aliquot_core.instants import second_time, seconds_of
from aliquot_core.objects import Node, OwnerReference, PodCondition
from aliquot_scheduler.queues.room.clearings import Clearing
from aliquot_scheduler.reclaim.consolidation import Consolidation
from aliquot_scheduler.reclaim.reclaim import Reclaim
from aliquot_scheduler.reclaim.residents import Budget
from support.centre import NAMES, WALL, failing, gpus, make_node
from support.queue_scenarios import A_QUARTER_OF_AN_HOUR, Pods, Step
from support.queue_stage import Stage, queue

replace = msgspec.structs.replace

# Whoever fits without anybody going has had its turn by then.
A_WHILE = 11.0
# The second of two.
SPARE = "n1"
# For who waits long enough somebody is moved by then.
LOOKS = 12
# Who takes back what it lent, and who borrows.
OWNER = {"red": queue(guarantee=200), "blue": queue()}


class ReclaimStage(Stage):
    """The stage with somebody who decides who has to go."""

    def __init__(self, *args: Any, moves_per_hour: int = 0, **more: Any) -> None:
        super().__init__(*args, **more)
        self.reclaim = Reclaim(queues=self.queues, picture=self.picture)
        self.evicted: list[str] = []
        # Nodes that may come back.
        self.lost: list[Node] = []
        self.consolidation = Consolidation(
            queues=self.queues, picture=self.picture, reclaim=self.reclaim, per_hour=moves_per_hour
        )

    @property
    def wall(self) -> float:
        """What the clock on the wall says."""
        return WALL + self.now

    def decide(self, *, budgets: Sequence[Budget] = (), after: float = 0.0) -> list[Clearing]:
        """Decide who has to go, if there is anybody to look for, as the evictor does; nobody is asked yet."""
        self.now += after
        self.beat()
        if not self.reclaim.anybody(now=self.now):
            return []
        return self.reclaim.decide(now=self.now, wall=self.wall, budgets=budgets)

    def submit_made(self, uid: str, *args: Any, by: str, **more: Any) -> None:
        """A pod joins that a controller has made, and would make anew."""
        pod = self.submit(uid, *args, **more)
        owner = OwnerReference(kind="Job", name=by, uid=by, controller=True)
        self.see(replace(pod, metadata=replace(pod.metadata, owner_references=[owner])))

    def unpin(self, uid: str) -> None:
        """One that was let in on a GPU of its choice might lie on any, and had lain there by chance."""
        pod = self.pods[uid]
        notes = {key: text for key, text in pod.metadata.annotations.items() if key != NAMES.gpu_uuid}
        self.gone(uid)
        self.see(replace(pod, metadata=replace(pod.metadata, annotations=notes)))

    def consolidate(self, *, budgets: Sequence[Budget] = (), after: float = 0.0) -> list[str]:
        """Decide who is moved; nobody is asked yet. Who that is, as far as it is not told before."""
        self.now += after
        self.beat()
        before = self.queues.register.refuges.movers()
        if self.consolidation.anybody(now=self.now):
            self.consolidation.decide(now=self.now, wall=self.wall, budgets=budgets)
        return sorted(self.queues.register.refuges.movers() - before)

    def evict(self, *, grace: float = 30.0) -> list[str]:
        """Ask all who are to go; the API server takes it, and their time runs."""
        asked = []
        clearings, bound = self.queues.register.clearings, self.queues.register.inside.bound
        for clearing in clearings:
            for victim in clearings.unasked(clearing, bound=bound):
                clearings.asked(victim.uid)
                asked.append(victim.uid)
                self.leave(victim.uid, grace=grace)
        for refuge in self.queues.register.refuges.drained(bound):
            uid = refuge.uid
            if not clearings.was_asked(uid):
                clearings.asked(uid)
                asked.append(uid)
                self.leave(uid, grace=grace)
        self.evicted += asked
        return asked

    def wear(self, *bad: str, count: int = 2) -> None:
        """These cards of the first node's so many fail from now on."""
        self.picture.node_seen(
            make_node("n0", [failing(card) if card.uuid in bad else card for card in gpus("n0", count)])
        )

    def leave(self, uid: str, *, grace: float = 30.0) -> None:
        """A pod is on the way out."""
        meta = replace(
            self.pods[uid].metadata,
            deletion_timestamp=second_time(self.wall + grace),
            deletion_grace_period_seconds=int(grace),
        )
        self.see(replace(self.pods[uid], metadata=meta))

    def note(self, uid: str, notes: Mapping[str, str]) -> None:
        """A pod bears these annotations as well."""
        meta = self.pods[uid].metadata
        self.see(replace(self.pods[uid], metadata=replace(meta, annotations={**meta.annotations, **notes})))

    def reclaimed(self) -> list[str]:
        """Decide, evict, and let all of them go; who was asked."""
        self.decide()
        asked = self.evict()
        for uid in asked:
            self.gone(uid)
        return sorted(asked)

    def victims(self, **more: Any) -> list[str]:
        """Who would have to go now."""
        return sorted(victim.uid for clearing in self.decide(**more) for victim in clearing.victims)


def filled(stage: ReclaimStage, name: str, count: int, compute: int = 100, **more: Any) -> None:
    """So many pods of a queue run."""
    for number in range(count):
        stage.submit(f"{name}{number}", compute, queue=name, **more)
    while stage.run(after=1.0):
        pass
    assert all(stage.pods[f"{name}{number}"].spec.node_name for number in range(count))


def followed(before: ReclaimStage, stage: ReclaimStage) -> ReclaimStage:
    """Whoever leads next sees all pods that are there, and knows nothing else of what the one before did."""
    stage.now = before.now
    stage.beat()
    for pod in before.pods.values():
        stage.see(pod)
    return stage


def submit(stage: ReclaimStage, pods: Pods, made: Counter[str]) -> None:
    """They join, one after the other."""
    for _ in range(pods.count):
        uid = f"{pods.queue}{made[pods.queue]}"
        made[pods.queue] += 1
        more: dict[str, Any] = {
            "queue": pods.queue,
            "group": pods.gang,
            "notes": pods.notes,
            "priority": pods.priority,
        }
        if pods.by:
            stage.submit_made(uid, pods.compute, pods.memory, by=pods.by, **more)
        else:
            stage.submit(uid, pods.compute, pods.memory, **more)


def gone(stage: ReclaimStage, step: Step) -> Counter[str]:
    """Who has to go until all is quiet, by queue; whoever can come in does, and some ignore that they are asked."""
    wanted, ignores = Counter(step.goes) + Counter(step.ignores), Counter(step.ignores)
    found, asked, looks = Counter[str](), ["somebody"], 0
    while stage.run(after=A_WHILE) or asked or (found != wanted and looks < LOOKS):
        # As the centre does: how long somebody runs is read at the first look at all who do.
        stage.decide()
        stage.consolidate()
        looks, asked = looks + 1, stage.evict()
        for uid in asked:
            queue = stage.pods[uid].metadata.labels[NAMES.queue]
            found[queue] += 1
            if found[queue] > ignores[queue]:
                stage.gone(uid)
    return found


def begun(stage: ReclaimStage, step: Step) -> None:
    """What has come to pass when a step begins."""
    if step.kills:
        _kill(stage)
    for name in step.ran:
        ran_for(stage, name, A_QUARTER_OF_AN_HOUR)
    for name, count in step.deletes.items():
        for waiter in [one for one in stage.queues.waiting() if one.queue == name][:count]:
            stage.gone(waiter.uid)
    if step.loses:
        _lose(stage)
    if step.returns:
        stage.picture.node_seen(stage.lost.pop())


def _lose(stage: ReclaimStage) -> None:
    """The spare node is gone, and with it those who ran there."""
    stage.lost.append(stage.picture.nodes[SPARE].node)
    stage.picture.node_gone(SPARE)
    for uid in [uid for uid, pod in stage.pods.items() if pod.spec.node_name == SPARE]:
        stage.gone(uid)


def _kill(stage: ReclaimStage) -> None:
    """The time of all who ignored it runs out, and their kubelet kills them."""
    left = {uid: seconds_of(pod.metadata.deletion_timestamp) for uid, pod in stage.pods.items()}
    late = {uid: at for uid, at in left.items() if at is not None}
    stage.now = max(late.values()) - WALL
    for uid in late:
        stage.gone(uid)


def ran_for(stage: ReclaimStage, queue: str, seconds: float) -> None:
    """Kubernetes says so of all pods of a queue that run."""
    at = second_time(stage.wall - seconds)
    scheduled = PodCondition(type="PodScheduled", status="True", last_transition_time=at)
    for pod in list(stage.pods.values()):
        if pod.spec.node_name and pod.metadata.labels[NAMES.queue] == queue:
            stage.see(replace(pod, status=replace(pod.status, conditions=[scheduled])))
