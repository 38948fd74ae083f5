"""The desk under every order of events: what lands never over-grants, and nothing is kept for nobody."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import msgspec
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from aliquot_core.claims import NOTHING, Claim, claims, overdrawn
from aliquot_core.grant import decode_grant
from aliquot_core.objects import Pod
from aliquot_core.quantities import MiB
from aliquot_scheduler.deciding.desk import Desk, Ended
from aliquot_scheduler.deciding.first_come import FirstCome, Turn
from aliquot_scheduler.deciding.promises import Promise
from aliquot_scheduler.picture.picture import Picture
from support.centre import MEMORY, NAMES, WALL, asks, gpus, make_lease, make_node, sick, with_grant

NODES = ("n1", "n2")
SLOTS = "abcdef"
CARDS = {name: gpus(name, 2) for name in NODES}
ASKED: tuple[tuple[int | None, int | None], ...] = (
    (50, 30_000),
    (100, None),
    (30, 10_000),
    (None, 30_000),
    (150, None),
    (50, 30_000),
)
# No write lands later than this after its sender has given it up.
LANDS_WITHIN = 60.0
replace = msgspec.structs.replace


def ungated(pod: Pod) -> Pod:
    """The pod without its gates."""
    return replace(pod, spec=replace(pod.spec, scheduling_gates=[]))


def ended(pod: Pod) -> Pod:
    """The pod when its containers are done."""
    return replace(pod, status=replace(pod.status, phase="Succeeded"))


def leaving(pod: Pod) -> Pod:
    """The pod when somebody has deleted it and a finalizer keeps it."""
    return replace(pod, metadata=replace(pod.metadata, deletion_timestamp="2026-11-21T10:00:00Z"))


@dataclass
class Write:
    """A binding on its way; `told` is when its sender stopped waiting."""

    promise: Promise
    landed: bool = False
    dead: bool = False
    told: float | None = None


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

    def granted(self) -> dict[str, dict[tuple[str, str], Claim]]:
        """Who holds what by the API server's word."""
        held = {}
        for pod in self.pods.values():
            text = pod.metadata.annotations.get(NAMES.grant)
            if text and not pod.ended:
                grant = decode_grant(text)
                held[pod.metadata.uid] = {(grant.node, gpu): claim for gpu, claim in claims(pod, grant).items()}
        return held


class Interleavings(RuleBasedStateMachine):
    """Users, kube-scheduler, the API server, its watch and time, each doing what it likes."""

    def __init__(self) -> None:
        super().__init__()
        self.api = Api()
        self.now = 1_000.0
        self.made = 0
        self.beats = 0
        self.cordoned: set[str] = set()
        self.silent: set[str] = set()
        self.bad: dict[str, int | None] = dict.fromkeys(NODES)
        self.writes: list[Write] = []
        self.turned: dict[str, Turn] = {}
        self.offered: dict[str, set[str]] = {}
        self.start()

    # --- the centre, begun anew --------------------------------------------------------------------------------------
    def start(self) -> None:
        """Know nothing, and read all."""
        self.picture = Picture(names=NAMES)
        self.turns = FirstCome(names=NAMES, random=lambda: 0.5)
        self.desk = Desk(picture=self.picture, names=NAMES, turns=self.turns)
        self.desk.tell_time(self.now)
        self.known: dict[str, Pod] = {}
        self.api.news.clear()
        self.turned.clear()
        self.offered.clear()
        for name in NODES:
            self.tell_node(name)
            self.beat(name)
        for pod in self.api.pods.values():
            self.tell(pod)

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

    @precondition(lambda self: self.api.pods)
    @rule(lands=st.lists(st.booleans(), min_size=4, max_size=4))
    def restart(self, lands: list[bool]) -> None:
        """Another leader begins. What lands later than its first list is for the agents to refuse."""
        for write, now in zip(self.writes, lands, strict=False):
            if now and not write.landed and not write.dead:
                self.api.bind(write.promise)
        self.writes.clear()
        self.start()

    # --- users -------------------------------------------------------------------------------------------------------
    @rule(slot=st.sampled_from(SLOTS), asked=st.sampled_from(ASKED), gates=st.sampled_from([1, 1, 1, 0, 2]))
    def create(self, slot: str, asked: tuple[int | None, int | None], gates: int) -> None:
        """A pod comes, maybe under the name of one that went; with our gate, without, or with another's too."""
        if slot in self.api.pods:
            return
        self.made += 1
        names = [{"name": NAMES.gate}, {"name": "example.com/theirs"}][:gates]
        spec = {"schedulingGates": names}
        stamp = f"2026-11-21T10:00:{self.made % 60:02d}Z"
        pod = asks(f"{slot}{self.made}", *asked, spec=spec, creationTimestamp=stamp)
        self.api.put(replace(pod, metadata=replace(pod.metadata, name=slot)))

    @rule(slot=st.sampled_from(SLOTS), what=st.sampled_from(["delete", "end", "leave", "foreign gate", "all gates"]))
    def change(self, slot: str, what: str) -> None:
        """A pod goes, ends, is about to go, or loses gates by another's hand."""
        pod = self.api.pods.get(slot)
        if pod is None:
            return
        match what:
            case "delete":
                self.api.delete(slot)
            case "end" if pod.spec.node_name:
                self.api.put(ended(pod))
            case "leave":
                self.api.put(leaving(pod))
            case "foreign gate":
                gates = [gate for gate in pod.spec.scheduling_gates if gate.name == NAMES.gate]
                self.api.put(replace(pod, spec=replace(pod.spec, scheduling_gates=gates)))
            case "all gates":
                self.api.put(ungated(pod))

    @rule(slot=st.sampled_from(SLOTS), node=st.sampled_from(NODES))
    def bound_by_a_stranger(self, slot: str, node: str) -> None:
        """Somebody binds a pod without a grant."""
        pod = self.api.pods.get(slot)
        if pod is not None and not (pod.spec.node_name or pod.spec.scheduling_gates or pod.metadata.deletion_timestamp):
            self.api.put(replace(pod, spec=replace(pod.spec, node_name=node)))

    # --- nodes -------------------------------------------------------------------------------------------------------
    @rule(name=st.sampled_from(NODES), bad=st.sampled_from([None, None, 0, 1]), cordoned=st.booleans())
    def node(self, name: str, bad: int | None, cordoned: bool) -> None:  # noqa: FBT001 - drawn by hypothesis
        """GPUs fall sick and recover, nodes are cordoned and opened."""
        self.bad[name] = bad
        (self.cordoned.add if cordoned else self.cordoned.discard)(name)
        self.tell_node(name)

    @rule(name=st.sampled_from(NODES), silent=st.booleans())
    def agent(self, name: str, silent: bool) -> None:  # noqa: FBT001 - drawn by hypothesis
        """An agent falls silent, or beats."""
        (self.silent.add if silent else self.silent.discard)(name)
        self.beat(name)

    @rule(name=st.sampled_from(NODES))
    def node_gone_and_back(self, name: str) -> None:
        """A node's object is deleted, and made again."""
        self.picture.node_gone(name)
        self.tell_node(name)

    # --- the watch ---------------------------------------------------------------------------------------------------
    @rule(count=st.integers(1, 4))
    def deliver(self, count: int) -> None:
        """The watch tells, in order, as late as it likes."""
        for there, pod in self.api.news[:count]:
            if there:
                self.tell(pod)
            else:
                self.known.pop(pod.metadata.uid, None)
                self.desk.pod_gone(pod)
                self.turns.pod_gone(pod.metadata.uid)
        del self.api.news[:count]

    @precondition(lambda self: self.known)
    @rule(data=st.data())
    def repeat(self, data: st.DataObject) -> None:
        """The watch tells again what it told last of a pod."""
        self.tell(self.known[data.draw(st.sampled_from(sorted(self.known)))])

    # --- time --------------------------------------------------------------------------------------------------------
    @rule(seconds=st.sampled_from([0.5, 3.0, 11.0, 31.0, 70.0]))
    def time_passes(self, seconds: float) -> None:
        """No sender waits longer than a few seconds, and no write lands a minute later."""
        for write in self.writes:
            if write.told is None:
                self.give_up(write)
        self.now += seconds
        for write in self.writes:
            write.dead |= write.told is not None and self.now >= write.told + LANDS_WITHIN
        for name in NODES:
            self.beat(name)
        self.desk.tell_time(self.now)

    @rule()
    def settle_doubts(self) -> None:
        """The binder looks up what is in doubt."""
        for promise in self.desk.doubts(self.now):
            self.desk.looked_up(promise, self.api.of(promise.pod.metadata.uid), now=self.now)

    # --- turns -------------------------------------------------------------------------------------------------------
    @rule(told=st.lists(st.sampled_from(["yes", "lost", "no"]), min_size=6, max_size=6))
    def let_through(self, told: list[str]) -> None:
        """The gatekeeper lifts gates; an answer may get lost, or the write fail."""
        turns = self.turns.turns(
            lambda pod, asks_for: self.desk.promise_best(pod, asks_for, now=self.now), now=self.now
        )
        for turn, how in zip(list(turns), told, strict=False):
            uid = turn.pod.metadata.uid
            self.offered[uid] = set(turn.promise.nodes)
            pod = self.api.of(uid)
            done = how != "no" and pod is not None and self.tell_turn(pod, turn)
            if how != "yes" or not done:
                self.not_told(turn)

    def tell_turn(self, pod: Pod, turn: Turn) -> bool:
        """Lift the gate, or wake kube-scheduler by a change."""
        if turn.pod.spec.scheduling_gates:
            if [gate.name for gate in pod.spec.scheduling_gates] != [NAMES.gate]:
                return False
            self.api.put(ungated(pod))
            return True
        notes = pod.metadata.annotations | {NAMES.turn: str(turn.number)}
        assert notes != pod.metadata.annotations or self.api.news, "a wake that changes nothing wakes nobody"
        self.api.put(replace(pod, metadata=replace(pod.metadata, annotations=notes)))
        return True

    def not_told(self, turn: Turn) -> None:
        """As the gatekeeper does."""
        uid = turn.pod.metadata.uid
        latest = self.desk.pods.get(uid)
        if latest is not None and turn.pod.spec.scheduling_gates and not latest.spec.scheduling_gates:
            return
        self.desk.take_back(uid)
        if latest is not None:
            self.turns.not_told(latest, now=self.now)

    # --- kube-scheduler ----------------------------------------------------------------------------------------------
    @rule(slot=st.sampled_from(SLOTS), nodes=st.sets(st.sampled_from((*NODES, "n9")), min_size=1), stale=st.booleans())
    def filter(self, slot: str, nodes: set[str], stale: bool) -> None:  # noqa: FBT001 - drawn by hypothesis
        """It asks about a pod as it knows it, which may be long ago."""
        pod = self.api.pods.get(slot)
        if pod is None or (pod.spec.scheduling_gates or (pod.spec.node_name and not stale)):
            return
        pod = replace(pod, spec=replace(pod.spec, node_name=""))
        answer = self.desk.filter(pod, sorted(nodes), now=self.now)
        assert not answer.error
        assert {*answer.nodes, *answer.failed, *answer.unresolvable} == nodes
        uid = pod.metadata.uid
        if answer.nodes:
            self.offered[uid] = set(answer.nodes)
        promise = self.desk.promises.of(uid)
        assert not answer.nodes or (promise is not None and promise.node in answer.nodes)

    @rule(slot=st.sampled_from(SLOTS), nodes=st.lists(st.sampled_from((*NODES, "n9")), unique=True))
    def prioritize(self, slot: str, nodes: list[str]) -> None:
        """It asks for grades, whatever has become of the offer."""
        if pod := self.api.pods.get(slot):
            graded = self.desk.prioritize(pod, nodes)
            assert [node for node, _ in graded] == nodes
            assert all(0 <= grade <= 900 for _, grade in graded)

    @rule(data=st.data(), node=st.sampled_from(NODES))
    def bind(self, data: st.DataObject, node: str) -> None:
        """It, or somebody who replays it, calls bind for any pod that ever was."""
        uids = sorted({*self.offered, *self.known})
        if not uids:
            return
        uid = data.draw(st.sampled_from(uids))
        under_way = any(write.told is None and write.promise.pod.metadata.uid == uid for write in self.writes)
        promise = self.desk.begin_bind(uid=uid, node=node)
        if isinstance(promise, str):
            assert promise
            return
        assert not under_way, "one write at a time"
        assert node in self.offered[uid]
        assert promise.node == node
        self.writes.append(Write(promise=promise))

    @precondition(lambda self: self.writes)
    @rule(data=st.data())
    def lands(self, data: st.DataObject) -> None:
        """A write reaches the API server."""
        write = data.draw(st.sampled_from(self.writes))
        if not (write.dead or write.landed):
            write.landed = self.api.bind(write.promise)
            write.dead = not write.landed

    @precondition(lambda self: self.writes)
    @rule(data=st.data(), told=st.booleans())
    def answered(self, data: st.DataObject, told: bool) -> None:  # noqa: FBT001 - drawn by hypothesis
        """The sender learns what came of it, or gives up."""
        write = data.draw(st.sampled_from(self.writes))
        if write.told is not None:
            return
        if told and (write.landed or write.dead):
            write.told = self.now
            uid = write.promise.pod.metadata.uid
            self.desk.bind_ended(uid, Ended.TAKEN if write.landed else Ended.REFUSED, now=self.now)
        else:
            self.give_up(write)

    def give_up(self, write: Write) -> None:
        """No word came."""
        write.told = self.now
        self.desk.bind_ended(write.promise.pod.metadata.uid, Ended.UNKNOWN, now=self.now)

    # --- what must hold ----------------------------------------------------------------------------------------------
    @invariant()
    def nothing_is_over_granted(self) -> None:
        """By what has really landed, and by what the picture holds."""
        for held in (self.api.granted(), self.picture.holdings.everything()):
            on: dict[Any, list[Claim]] = {}
            for one in held.values():
                for gpu, claim in one.items():
                    on.setdefault(gpu, []).append(claim)
            for gpu, parts in on.items():
                total = NOTHING
                for part in parts:
                    total = total.beside(part)
                assert overdrawn(total, memory=MiB(MEMORY), holders=len(parts)) is None, (gpu, held)

    @invariant()
    def every_holder_is_somebody(self) -> None:
        """Each that holds room has a promise, or is a pod that we were told of."""
        for uid in self.picture.holdings.everything():
            assert self.desk.promises.of(uid) is not None or uid in self.known, uid

    def teardown(self) -> None:
        """When all has calmed down nothing is kept for nobody, and everybody who fits is bound."""
        self.calm()
        held = {uid: dict(claims) for uid, claims in self.picture.holdings.everything().items()}
        assert held == self.api.granted()
        assert len(self.desk.promises) == 0
        assert not self.desk._offers
        assert not self.turns._through
        everybody = {pod.metadata.uid for pod in self.api.pods.values() if self.needs_a_place(pod)}
        assert set(self.turns._waiting) == everybody
        assert set(self.turns._later) <= everybody
        self.go_on_until_all_are_bound()

    def calm(self) -> None:
        """Let every write and word arrive, and every promise grow old."""
        for write in self.writes:
            if write.told is None:
                self.give_up(write)
        for _ in range(3):
            self.time_passes(70.0)
            self.deliver(len(self.api.news))
            self.settle_doubts()
        self.desk.tell_time(self.now)

    def needs_a_place(self, pod: Pod) -> bool:
        """Whether it is a pod that we have to find a place for."""
        foreign = any(gate.name != NAMES.gate for gate in pod.spec.scheduling_gates)
        return not (foreign or pod.spec.node_name or pod.metadata.deletion_timestamp or pod.ended)

    def go_on_until_all_are_bound(self) -> None:
        """A kube-scheduler that does its work, for ten minutes."""
        for name in NODES:
            self.silent.clear()
            self.cordoned.clear()
            self.bad[name] = None
            self.tell_node(name)
        for _ in range(60):
            self.time_passes(10.0)
            self.deliver(len(self.api.news))
            self.let_through(["yes"] * 6)
            self.deliver(len(self.api.news))
            for pod in list(self.api.pods.values()):
                self.schedule(pod)
        for pod in self.api.pods.values():
            if self.needs_a_place(pod):
                demand = self.turns._waiting[pod.metadata.uid].demand
                assert not self.desk.finder.survey(pod, demand).fits.any(), pod.key

    def schedule(self, pod: Pod) -> None:
        """One pod's way through kube-scheduler, if it was woken for it."""
        if pod.spec.scheduling_gates or pod.spec.node_name or pod.metadata.uid not in self.turns._through:
            return
        nodes = self.desk.filter(pod, NODES, now=self.now).nodes
        if nodes:
            best = max(self.desk.prioritize(pod, nodes), key=lambda one: one[1])[0]
            promise = self.desk.begin_bind(uid=pod.metadata.uid, node=best)
            if isinstance(promise, Promise):
                ending = Ended.TAKEN if self.api.bind(promise) else Ended.REFUSED
                self.desk.bind_ended(pod.metadata.uid, ending, now=self.now)
                self.deliver(len(self.api.news))


TestInterleavings = Interleavings.TestCase
TestInterleavings.settings = settings(max_examples=150, stateful_step_count=50, deadline=None)
