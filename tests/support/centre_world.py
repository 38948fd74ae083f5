"""Users, kube-scheduler, an API server, its watch and time round one desk, each doing what it likes, step by step."""

from __future__ import annotations

from collections.abc import Callable

from aliquot_core.hosts import own_request
from aliquot_core.objects import Pod
from aliquot_core.request import parse_request
from aliquot_scheduler.deciding.promises import Ended, Promise
from aliquot_scheduler.deciding.turns import Turn
from support.centre import NAMES, asks
from support.centre_api import Write, replace, ungated, wants_a_place
from support.centre_plain import PlainTown
from support.centre_town import NODES

# Few of each: what goes wrong needs two who meet.
SLOTS = "abc"
ASKED: tuple[tuple[int | None, int | None], ...] = (
    (60, 30_000),
    (60, 30_000),
    (100, None),
    (None, 60_000),
    (150, None),
)
# Each may be asked by all of those.
SAID: tuple[dict[str, str], ...] = (
    {},
    {NAMES.gpu_model: "!H100*"},
    {NAMES.gpu_uuid: f"!GPU-{NODES[0]}-0"},
    {NAMES.placement: "spread"},
)


class World(PlainTown):
    """A town with users and a kube-scheduler."""

    # --- turns -------------------------------------------------------------------------------------------------------
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
        for turn in due:
            if turn.promise:
                self.check_counts(turn.promise)
        return due

    def check_counts(self, promise: Promise) -> None:
        """kube-scheduler adds up what is asked by who lies there or is assumed to, with a grant or without."""
        told = self.picture.nodes[promise.node].node.status.allocatable
        assumed = {one.pod.metadata.uid: one.pod for one in self.desk.promises if one.node == promise.node}
        lying = {uid: pod for uid, pod in self.known.items() if pod.spec.node_name == promise.node and not pod.ended}
        asked = [own_request(pod, names=NAMES) for pod in (assumed | lying).values()]
        for at, name in enumerate(NAMES.resources()):
            if own_request(promise.pod, names=NAMES)[at]:
                assert sum(one[at] for one in asked) <= int(told[name]), (promise.node, name, [*assumed], [*lying])

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

    def annotate(self) -> None:
        """Somebody changes what a pod asks for, as anybody may until it is bound."""
        pod = self.somebody()
        if pod is not None and not pod.spec.node_name:
            others = {
                name: text for name, text in pod.metadata.annotations.items() if not any(name in one for one in SAID)
            }
            notes = others | self.chance.choice(SAID)
            self.api.put(replace(pod, metadata=replace(pod.metadata, annotations=notes)))

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
        promise = self.desk.begin_bind(uid=uid, node=node, now=self.now)
        if isinstance(promise, str):
            assert promise
            return None
        assert not under_way, "one write at a time"
        assert node in self.offered[uid]
        assert promise.node == node
        known = self.desk.pods[uid]
        assert parse_request(known, names=NAMES) == parse_request(promise.pod, names=NAMES), "as it asks now"
        self.check_counts(promise)
        self.writes.append(Write(promise=promise))
        return self.writes[-1]

    # --- at the end --------------------------------------------------------------------------------------------------
    def calm(self) -> None:
        """Let every write and word arrive, and every promise grow old."""
        for _ in range(3):
            self.pass_time(70.0)
            self.deliver_all()
            self.settle_doubts()
        self.desk.tell_time(self.now)

    def check_to_the_end(self) -> None:
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
    World.plain: 3,
    World.annotate: 1,
    World.repeat: 1,
    World.node: 1,
    World.restart: 1,
}
