"""Users, kube-scheduler, an API server, its watch and time round one desk, each doing what it likes, step by step."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field

import msgspec

from aliquot_core.claims import Claim, claims
from aliquot_core.grant import decode_grant
from aliquot_core.objects import Pod
from aliquot_scheduler.deciding.desk import Desk
from aliquot_scheduler.deciding.promises import Ended, Promise
from aliquot_scheduler.deciding.turns import Turn
from aliquot_scheduler.picture.picture import Picture
from aliquot_scheduler.queues.turns import Queues
from support.centre import NAMES, WALL, asks, gpus, make_lease, make_node, sick, with_grant

NODES = ("n1", "n2")
# Few of each: what goes wrong needs two who meet.
SLOTS = "abc"
CARDS = {"n1": gpus("n1", 1), "n2": gpus("n2", 2)}
ASKED: tuple[tuple[int | None, int | None], ...] = (
    (60, 30_000),
    (60, 30_000),
    (100, None),
    (None, 60_000),
    (150, None),
)
# No write lands later than this after its sender has given it up.
LANDS_WITHIN = 60.0
replace = msgspec.structs.replace
Held = dict[str, dict[tuple[str, str], Claim]]


@dataclass(eq=False)
class Write:
    """A binding on its way; `told` is when its sender stopped waiting."""

    promise: Promise
    landed: bool = False
    dead: bool = False
    told: float | None = None

    @property
    def uid(self) -> str:
        """Of the pod."""
        return self.promise.pod.metadata.uid


@dataclass
class Api:
    """The API server: one pod per name, each bound at most once, and what its watch has still to tell."""

    pods: dict[str, Pod] = field(default_factory=dict)
    news: list[tuple[bool, Pod]] = field(default_factory=list)

    def put(self, pod: Pod) -> None:
        """Write a pod."""
        self.pods[pod.metadata.name] = pod
        self.news.append((True, pod))

    def delete(self, name: str) -> None:
        """Delete a pod for good."""
        self.news.append((False, self.pods.pop(name)))

    def of(self, uid: str) -> Pod | None:
        """The very pod."""
        return next((pod for pod in self.pods.values() if pod.metadata.uid == uid), None)

    def bind(self, promise: Promise) -> bool:
        """Do a binding, if it may be done."""
        pod = self.of(promise.pod.metadata.uid)
        if pod is None or pod.spec.node_name or pod.spec.scheduling_gates or pod.metadata.deletion_timestamp:
            return False
        self.put(with_grant(pod, promise.plan.grant))
        return True

    def granted(self) -> Held:
        """Who holds what by the API server's word."""
        held: Held = {}
        for pod in self.pods.values():
            text = pod.metadata.annotations.get(NAMES.grant)
            if text and not pod.ended:
                grant = decode_grant(text)
                held[pod.metadata.uid] = {(grant.node, gpu): claim for gpu, claim in claims(pod, grant).items()}
        return held


class World:
    """One centre's desk among all of them; `chance` decides whatever a step leaves open."""

    def __init__(self) -> None:
        self.chance = random.Random(0)  # noqa: S311 - repeats itself, guards nothing
        self.api = Api()
        self.now = 1_000.0
        self.made = 0
        self.beats = 0
        self.cordoned: set[str] = set()
        self.silent: set[str] = set()
        self.bad: dict[str, int | None] = dict.fromkeys(NODES)
        self.writes: list[Write] = []
        self.offered: dict[str, set[str]] = {}
        self.known: dict[str, Pod] = {}
        self.start()

    # --- the centre --------------------------------------------------------------------------------------------------
    def start(self) -> None:
        """Know nothing, and read all."""
        self.picture = Picture(names=NAMES)
        self.turns = Queues(names=NAMES, random=lambda: 0.5, picture=self.picture)
        self.desk = Desk(picture=self.picture, names=NAMES, turns=self.turns)
        self.desk.tell_time(self.now)
        self.known.clear()
        self.api.news.clear()
        self.offered.clear()
        for name in NODES:
            self.tell_node(name)
            self.beat(name)
        for pod in self.api.pods.values():
            self.tell(pod)

    def read_anew(self) -> Picture:
        """The picture of somebody who begins now, and knows only what the API server has."""
        picture = Picture(names=NAMES)
        for known in self.picture.nodes.values():
            picture.node_seen(known.node)
        for pod in self.api.pods.values():
            picture.pod_seen(pod)
        return picture

    def tell(self, pod: Pod) -> None:
        """Hand a word of the watch on, as the reign does."""
        self.known[pod.metadata.uid] = pod
        self.desk.pod_seen(pod)
        self.turns.pod_seen(pod)

    def tell_node(self, name: str) -> None:
        """Hand on what the node's object says."""
        cards = list(CARDS[name])
        if (bad := self.bad[name]) is not None:
            cards[bad] = sick(cards[bad])
        self.picture.node_seen(make_node(name, cards, cordoned=name in self.cordoned))

    def beat(self, name: str) -> None:
        """A heart-beat, if the agent is there."""
        if name not in self.silent:
            self.beats += 1
            renewed = f"2026-11-21T10:00:00.{self.beats:06d}Z"
            self.picture.lease_seen(make_lease(name, renewed=renewed), wall=WALL)

    def restart(self) -> None:
        """Another leader begins. What lands later than its first list is for the agents to refuse."""
        for write in self.writes:
            if self.flip():
                self.land(write)
        self.writes.clear()
        self.start()

    def settle_doubts(self) -> None:
        """The binder looks up what is in doubt."""
        for promise in self.desk.doubts(self.now):
            self.desk.looked_up(promise, self.api.of(promise.pod.metadata.uid), now=self.now)

    def let_through(self) -> None:
        """The gatekeeper tells pods of their turns; an answer may get lost, or the write fail."""
        for turn in self.due():
            how = self.chance.choice(("told", "told", "answer lost", "answer late", "not done"))
            done = how != "not done" and self.tell_turn(turn)
            if how == "answer late":
                # Everybody else is faster.
                self.deliver_all()
                self.place()
            if how != "told" or not done:
                self.not_told(turn)

    def due(self) -> list[Turn]:
        """Whose turn it is, with room promised to all of them at once."""
        due = list(self.turns.turns(self.desk, now=self.now))
        self.offered |= {turn.pod.metadata.uid: set(turn.promise.nodes) for turn in due if turn.promise}
        return due

    def tell_turn(self, turn: Turn) -> bool:
        """Lift the gate, or wake kube-scheduler by a change."""
        pod = self.api.of(turn.pod.metadata.uid)
        if pod is None:
            return False
        if not turn.pod.spec.scheduling_gates:
            notes = pod.metadata.annotations | {NAMES.turn: str(turn.number)}
            assert notes != pod.metadata.annotations or self.api.news, "a write that changes nothing wakes nobody"
            self.api.put(replace(pod, metadata=replace(pod.metadata, annotations=notes)))
            return True
        if [gate.name for gate in pod.spec.scheduling_gates] != [NAMES.gate]:
            return False
        self.api.put(ungated(pod))
        return True

    def not_told(self, turn: Turn) -> None:
        """As the gatekeeper does."""
        uid = turn.pod.metadata.uid
        latest = self.desk.pods.get(uid)
        if latest is not None and turn.pod.spec.scheduling_gates and not latest.spec.scheduling_gates:
            return
        self.desk.take_back(uid)
        if latest is not None and self.desk.promises.of(uid) is None:
            self.turns.not_told(latest, now=self.now)

    # --- users -------------------------------------------------------------------------------------------------------
    def create(self) -> None:
        """A pod comes, maybe under the name of one that went; with our gate, without, or with another's too."""
        slot = self.chance.choice(SLOTS)
        if slot in self.api.pods:
            return
        self.made += 1
        gates = [{"name": NAMES.gate}, {"name": "example.com/theirs"}][: self.chance.choice((0, 0, 1, 1, 2))]
        stamp = f"2026-11-21T10:00:{self.made % 60:02d}Z"
        asked = self.chance.choice(ASKED)
        pod = asks(f"{slot}{self.made}", *asked, spec={"schedulingGates": gates}, creationTimestamp=stamp)
        self.api.put(replace(pod, metadata=replace(pod.metadata, name=slot)))

    def delete(self) -> None:
        """A pod goes for good."""
        if pod := self.somebody():
            self.api.delete(pod.metadata.name)

    def change(self) -> None:
        """A pod ends, is about to go, loses gates by another's hand, or is bound by a stranger."""
        pod = self.somebody()
        if pod is None:
            return
        what = self.chance.choice(("end", "end", "leave", "foreign gate", "all gates", "stranger"))
        if what == "end" and pod.spec.node_name:
            self.api.put(replace(pod, status=replace(pod.status, phase="Succeeded")))
        elif what == "leave":
            self.api.put(replace(pod, metadata=replace(pod.metadata, deletion_timestamp="2026-11-21T10:00:00Z")))
        elif what == "foreign gate":
            gates = [gate for gate in pod.spec.scheduling_gates if gate.name == NAMES.gate]
            self.api.put(replace(pod, spec=replace(pod.spec, scheduling_gates=gates)))
        elif what == "all gates":
            self.api.put(ungated(pod))
        elif what == "stranger" and wants_a_place(pod) and not pod.spec.scheduling_gates:
            self.api.put(replace(pod, spec=replace(pod.spec, node_name=self.chance.choice(NODES))))

    # --- nodes -------------------------------------------------------------------------------------------------------
    def node(self) -> None:
        """GPUs fall sick and recover, nodes are cordoned and opened, agents fall silent, objects are made again."""
        name = self.chance.choice(NODES)
        what = self.chance.choice(("sick", "cordon", "silent", "again"))
        on = self.chance.random() < 0.3
        if what == "sick":
            self.bad[name] = 0 if on else None
        elif what == "again":
            self.picture.node_gone(name)
        else:
            chosen = self.cordoned if what == "cordon" else self.silent
            (chosen.add if on else chosen.discard)(name)
        self.tell_node(name)
        self.beat(name)

    # --- the watch and time ------------------------------------------------------------------------------------------
    def deliver(self) -> None:
        """The watch tells a little, in order, as late as it likes."""
        self._deliver(self.chance.randint(1, 3))

    def deliver_all(self) -> None:
        """The watch tells all."""
        self._deliver(len(self.api.news))

    def _deliver(self, count: int) -> None:
        for there, pod in self.api.news[:count]:
            if there:
                self.tell(pod)
            else:
                self.known.pop(pod.metadata.uid, None)
                self.desk.pod_gone(pod)
                self.turns.pod_gone(pod.metadata.uid)
        del self.api.news[:count]

    def repeat(self) -> None:
        """The watch tells again what it told last of a pod."""
        if self.known:
            self.tell(self.known[self.chance.choice(sorted(self.known))])

    def time_passes(self) -> None:
        """No sender waits longer than a few seconds, and no write lands a minute later."""
        self.pass_time(self.chance.choice((0.5, 0.5, 3.0, 11.0, 31.0, 70.0)))

    def pass_time(self, seconds: float) -> None:
        """So much of it."""
        for write in self.writes:
            if write.told is None:
                self.give_up(write)
        self.now += seconds
        for write in self.writes:
            write.dead |= write.told is not None and self.now >= write.told + LANDS_WITHIN
        self.writes = [write for write in self.writes if write.told is None or not (write.landed or write.dead)]
        for name in NODES:
            self.beat(name)
        self.desk.tell_time(self.now)

    # --- kube-scheduler ----------------------------------------------------------------------------------------------
    def ask(self) -> None:
        """It asks which of some nodes will do, and how good each is."""
        if pod := self.somebody():
            nodes = self.chance.sample((*NODES, "n9"), self.chance.randint(1, 3))
            self.filter(pod, nodes)
            graded = self.desk.prioritize(pod, nodes)
            assert len(graded) == len(nodes)
            assert all(0 <= grade <= 900 for grade in graded)

    def filter(self, pod: Pod, nodes: list[str]) -> None:
        """About a pod as kube-scheduler knows it, which may be from before it was bound."""
        if pod.spec.scheduling_gates or pod.ended:
            return
        asked = replace(pod, spec=replace(pod.spec, node_name=""))
        answer = self.desk.filter(asked, nodes, now=self.now)
        assert not answer.error
        uid = pod.metadata.uid
        said = {*answer.nodes, *answer.failed, *answer.unresolvable}
        # The node of a turn's promise is answered alone, once.
        assert said == set(nodes) or (said == set(answer.nodes) <= set(nodes) and len(said) == 1)
        if answer.nodes:
            self.offered[uid] = set(answer.nodes)
            promise = self.desk.promises.of(uid)
            assert promise is not None
            assert promise.node in answer.nodes

    def place(self) -> None:
        """It goes all the way, as it mostly does."""
        if pod := self.somebody():
            self.filter(pod, list(NODES))
            if write := self.begin(pod.metadata.uid, self.chance.choice(NODES)):
                if self.flip():
                    self.land(write)
                if self.flip():
                    self.answer(write)

    def bind(self) -> None:
        """It, or somebody who replays it, calls bind for any pod that ever was."""
        if uids := sorted({*self.offered, *self.known}):
            self.begin(self.chance.choice(uids), self.chance.choice(NODES))

    def begin(self, uid: str, node: str) -> Write | None:
        """Call bind."""
        under_way = any(write.told is None and write.uid == uid for write in self.writes)
        promise = self.desk.begin_bind(uid=uid, node=node)
        if isinstance(promise, str):
            assert promise
            return None
        assert not under_way, "one write at a time"
        assert node in self.offered[uid]
        assert promise.node == node
        self.writes.append(Write(promise=promise))
        return self.writes[-1]

    def writing(self) -> None:
        """A write reaches the API server, or its answer its sender."""
        if self.writes:
            write = self.chance.choice(self.writes)
            (self.land if self.flip() else self.answer)(write)

    def land(self, write: Write) -> None:
        """Do it, if it may be done and was not."""
        if not (write.dead or write.landed):
            write.landed = self.api.bind(write.promise)
            write.dead = not write.landed

    def answer(self, write: Write) -> None:
        """Tell the sender what came of it, or nothing."""
        if write.told is not None:
            return
        if (write.landed or write.dead) and self.flip():
            write.told = self.now
            self.desk.bind_ended(write.uid, Ended.TAKEN if write.landed else Ended.REFUSED, now=self.now)
        else:
            self.give_up(write)

    def give_up(self, write: Write) -> None:
        """No word came."""
        write.told = self.now
        self.desk.bind_ended(write.uid, Ended.UNKNOWN, now=self.now)

    # --- at the end --------------------------------------------------------------------------------------------------
    def calm(self) -> None:
        """Let every write and word arrive, and every promise grow old."""
        for _ in range(3):
            self.pass_time(70.0)
            self.deliver_all()
            self.settle_doubts()
        self.desk.tell_time(self.now)

    def go_on(self) -> None:
        """Nodes that are well, and a kube-scheduler that does its work, for ten minutes."""
        self.silent.clear()
        self.cordoned.clear()
        self.bad = dict.fromkeys(NODES)
        for name in NODES:
            self.tell_node(name)
        for _ in range(60):
            self.pass_time(10.0)
            for turn in self.due():
                assert self.tell_turn(turn)
                self.deliver_all()
                self._goes_all_the_way(turn.pod.metadata.uid)

    def _goes_all_the_way(self, uid: str) -> None:
        pod = self.api.of(uid)
        assert pod is not None
        nodes = self.desk.filter(pod, NODES, now=self.now).nodes
        grades = dict(zip(nodes, self.desk.prioritize(pod, nodes), strict=True))
        best = max(grades, key=grades.__getitem__)
        write = self.begin(uid, best)
        assert write is not None
        self.land(write)
        assert write.landed
        self.desk.bind_ended(uid, Ended.TAKEN, now=self.now)
        self.deliver_all()

    # --- whom it is about --------------------------------------------------------------------------------------------
    def somebody(self) -> Pod | None:
        """Any pod that there is."""
        return self.api.pods[self.chance.choice(sorted(self.api.pods))] if self.api.pods else None

    def flip(self) -> bool:
        """Yes or no."""
        return self.chance.random() < 0.5


def ungated(pod: Pod) -> Pod:
    """The pod without its gates."""
    return replace(pod, spec=replace(pod.spec, scheduling_gates=[]))


def wants_a_place(pod: Pod) -> bool:
    """Whether it is a pod that a place is still to be found for."""
    return not (pod.spec.node_name or pod.metadata.deletion_timestamp or pod.ended)


# How often each is done; most of all the ordinary way.
STEPS: dict[Callable[[World], None], int] = {
    World.create: 4,
    World.place: 6,
    World.let_through: 4,
    World.writing: 4,
    World.deliver: 5,
    World.deliver_all: 2,
    World.time_passes: 3,
    World.settle_doubts: 2,
    World.ask: 2,
    World.bind: 2,
    World.delete: 2,
    World.change: 2,
    World.repeat: 1,
    World.node: 1,
    World.restart: 1,
}
