"""A desk to which kube-scheduler and the watch talk, and a promise that has come as far as a test wants."""

from __future__ import annotations

from aliquot_core.objects import Pod
from aliquot_scheduler.deciding.desk import Desk
from aliquot_scheduler.deciding.promises import Ended, Promise, Stage
from aliquot_scheduler.queues.turns import Queues
from support.centre import NAMES, WALL, asks, gpus, make_lease, make_node, picture_with, with_grant


class Office:
    """A desk with one node of one GPU, or more nodes if asked; heart-beats never age."""

    def __init__(self, *nodes: str, cards: int = 1) -> None:
        self.now = 100.0
        self.nodes = nodes or ("n1",)
        self.picture = picture_with(*(make_node(name, gpus(name, cards)) for name in self.nodes), now=self.now)
        self.turns = Queues(names=NAMES, random=lambda: 0.5, picture=self.picture)
        self.desk = Desk(picture=self.picture, names=NAMES, turns=self.turns)
        self.desk.tell_time(self.now)

    def sees(self, *pods: Pod) -> None:
        """The watch tells of pods."""
        for pod in pods:
            self.desk.pod_seen(pod)
            self.turns.pod_seen(pod)

    def loses(self, pod: Pod) -> None:
        """The watch tells that a pod is gone."""
        self.desk.pod_gone(pod)
        self.turns.pod_gone(pod.metadata.uid)

    def passes(self, seconds: float) -> None:
        """Time passes, and the agents beat."""
        self.now += seconds
        self.picture.tell_time(self.now)
        for name in self.nodes:
            self.picture.lease_seen(make_lease(name, renewed=f"beat {self.now}"), wall=WALL)
        self.desk.tell_time(self.now)

    def filter(self, pod: Pod, *nodes: str) -> list[str]:
        """Which of the nodes will do."""
        return list(self.desk.filter(pod, nodes or self.nodes, now=self.now).nodes)

    def why_not(self, pod: Pod) -> str:
        """What kube-scheduler is told of the first node that will not do."""
        return self.desk.filter(pod, self.nodes, now=self.now).unresolvable[self.nodes[0]]

    def begin(self, pod: Pod, node: str = "n1") -> Promise:
        """Call bind, which is begun."""
        begun = self.desk.begin_bind(uid=pod.metadata.uid, node=node, now=self.now)
        assert isinstance(begun, Promise), begun
        return begun

    def refused(self, pod: Pod, node: str = "n1") -> str:
        """Call bind, which is refused."""
        begun = self.desk.begin_bind(uid=pod.metadata.uid, node=node, now=self.now)
        assert isinstance(begun, str)
        return begun

    def ends(self, pod: Pod, ended: Ended) -> None:
        """The write is over."""
        self.desk.bind_ended(pod.metadata.uid, ended, now=self.now)

    def stage(self, pod: Pod) -> Stage | None:
        """How far the promise has come."""
        promise = self.desk.promises.of(pod.metadata.uid)
        return promise.stage if promise else None

    def held(self) -> set[str]:
        """Who holds room."""
        return set(self.picture.holdings.everything())

    def turn(self) -> list[str]:
        """Who is let through now."""
        turns = self.turns.turns(self.desk, now=self.now)
        return [turn.pod.metadata.uid for turn in turns]


A, B = asks("a", 60, 1_000), asks("b", 60, 1_000)


def at(stage: Stage | None) -> Office:
    """Pod A with a promise that has come so far; B is there too."""
    office = Office()
    office.sees(A, B)
    if stage is None:
        return office
    assert office.filter(A) == ["n1"]
    if stage is not Stage.OFFERED:
        office.begin(A)
    if stage in {Stage.WRITTEN, Stage.DOUBTFUL}:
        office.ends(A, Ended.TAKEN if stage is Stage.WRITTEN else Ended.UNKNOWN)
    assert office.stage(A) is stage
    return office


def granted(office: Office, pod: Pod) -> Pod:
    """The pod as the write leaves it."""
    promise = office.desk.promises.of(pod.metadata.uid)
    assert promise is not None
    return with_grant(pod, promise.plan.grant)
