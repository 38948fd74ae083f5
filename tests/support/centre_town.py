"""Nodes, an API server with its watch, and time, round one desk."""

from __future__ import annotations

import random

from aliquot_core.held_on_sick import Held, held_on_sick
from aliquot_core.inventory import Inventory
from aliquot_core.objects import Pod
from aliquot_core.request import asks
from aliquot_scheduler.deciding.desk import Desk
from aliquot_scheduler.deciding.promises import Ended
from aliquot_scheduler.picture.hearing import told_all
from aliquot_scheduler.picture.picture import Picture
from aliquot_scheduler.queues.turns import Queues
from support.centre import NAMES, WALL, counting, gpus, make_lease, make_node, sick
from support.centre_api import Api, Write

NODES = ("n1", "n2")
CARDS = {"n1": gpus("n1", 1), "n2": gpus("n2", 2)}
# No write lands later than this after its sender has given it up.
LANDS_WITHIN = 60.0


class Town:
    """One centre's desk among them; `chance` decides whatever a step leaves open."""

    def __init__(self) -> None:
        self.chance = random.Random(0)
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
        self.picture = Picture(names=NAMES, hearing=told_all())
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
        picture = Picture(names=NAMES, hearing=told_all())
        for known in self.picture.nodes.values():
            picture.node_seen(known.node)
        for pod in self.api.pods.values():
            picture.pod_seen(pod)
        return picture

    def tell(self, pod: Pod) -> None:
        """Hand a word of the watch on, as the reign does."""
        self.known[pod.metadata.uid] = pod
        if not asks(pod, names=NAMES):
            self.picture.pod_lies(pod)
            return
        self.desk.pod_seen(pod)
        self.turns.pod_seen(pod)

    def tell_node(self, name: str) -> None:
        """Hand on what the node's object says."""
        cards = list(CARDS[name])
        if (bad := self.bad[name]) is not None:
            cards[bad] = sick(cards[bad])
        there = [pod for pod in self.api.pods.values() if pod.spec.node_name == name]
        on_sick = held_on_sick(there, inventory=Inventory(gpus=tuple(cards)), names=NAMES).values()
        node = make_node(name, cards, cordoned=name in self.cordoned)
        self.picture.node_seen(counting(node, held=Held().beside(*on_sick)))

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

    # --- writes on their way -----------------------------------------------------------------------------------------
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

    # --- whom it is about --------------------------------------------------------------------------------------------
    def somebody(self) -> Pod | None:
        """Any pod that asks for slices, which alone our centre is asked about."""
        theirs = sorted(name for name, pod in self.api.pods.items() if asks(pod, names=NAMES))
        return self.api.pods[self.chance.choice(theirs)] if theirs else None

    def flip(self) -> bool:
        """Yes or no."""
        return self.chance.random() < 0.5
