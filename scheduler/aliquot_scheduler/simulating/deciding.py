"""What a leader that begins with a snapshot decides next: who is let in, and where; for whom room is made, and how.

The very queues, desk, appraiser, reclaim and consolidation of the centre are told of all objects in the order in which
a leader reads them, and asked once. What only a leader remembers is not in a cluster, and so not in its snapshot: who
rests after a turn that led to nothing, and what was promised a moment ago. Who waits is held to have waited since it
was made, or since the one that leads began; and of pods that may be moved within an hour that one to have moved none.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from aliquot_core.instants import seconds_of
from aliquot_core.names import LEADER_LEASE
from aliquot_core.objects import Pod
from aliquot_core.request import asks
from aliquot_scheduler.deciding.appraiser import Appraiser
from aliquot_scheduler.deciding.desk import Desk
from aliquot_scheduler.picture.hearing import told_all
from aliquot_scheduler.picture.picture import Picture
from aliquot_scheduler.queues.letting_in.register import Register
from aliquot_scheduler.queues.room.clearings import Clearing, GpuKey
from aliquot_scheduler.queues.room.refuges import Refuge
from aliquot_scheduler.queues.said.entry import home_of, specs_of
from aliquot_scheduler.queues.telling.status import read_status
from aliquot_scheduler.queues.turns import Queues
from aliquot_scheduler.reclaim.consolidation import Consolidation
from aliquot_scheduler.reclaim.reclaim import Reclaim
from aliquot_scheduler.reclaim.residents import budgets_of
from aliquot_scheduler.rules.expressions import RuleSettings
from aliquot_scheduler.rules.installed import rules_in_force
from aliquot_scheduler.simulating.snapshot import Snapshot
from aliquot_scheduler.worth.page import decode_page

_NOW = 0.0
_LONG = 86_400.0
_NOBODY = 0.5


class LetIn(msgspec.Struct, frozen=True, kw_only=True):
    """A pod whose turn it is, and its GPUs, as `node/uuid`; none if its queue shows it before there is room."""

    pod: str
    queue: str
    gpus: Sequence[str]


class MakesRoom(msgspec.Struct, frozen=True, kw_only=True):
    """Pods for which room is made, on which GPUs, and who goes for it."""

    pods: Sequence[str]
    gpus: Sequence[str]
    victims: Sequence[str]


class IsMoved(msgspec.Struct, frozen=True, kw_only=True):
    """A pod that has to go, and on which GPUs room is kept for the next of its maker; for whom, or why."""

    pod: str
    gpus: Sequence[str]
    why: str


class Decisions(msgspec.Struct, frozen=True, kw_only=True):
    """All of one look."""

    let_in: Sequence[LetIn]
    room: Sequence[MakesRoom]
    moved: Sequence[IsMoved]
    waiting: int


class Replayed:
    """A leader's parts, told of a snapshot."""

    def __init__(self, snapshot: Snapshot) -> None:
        names, settings = snapshot.names, snapshot.settings
        rules = rules_in_force(settings.rules or RuleSettings())
        self._snapshot = snapshot
        self._picture = picture = Picture(names=names, hearing=told_all())
        self._appraiser = Appraiser(picture=picture, names=names)
        self.queues = Queues(
            names=names, random=lambda: _NOBODY, picture=picture, settings=settings.queues, rules=rules
        )
        self._desk = Desk(picture=picture, names=names, turns=self.queues, look=self._appraiser.look, rules=rules)
        self._reclaim = Reclaim(queues=self.queues, picture=picture)
        self._moving = Consolidation(
            queues=self.queues, picture=picture, reclaim=self._reclaim, per_hour=settings.queues.moves_per_hour
        )
        # What may be moved grows from here on.
        self._moving.anybody(now=_NOW - self._led_for())
        self._read()

    def decide(self) -> Decisions:
        """Once."""
        wall = self._snapshot.wall
        turns = [(turn.pod, turn.promise) for turn in self.queues.turns(self._desk, now=_NOW)]
        register = self.queues.register
        budgets = budgets_of(self._snapshot.budgets, bound=register.inside.bound.values())
        if self._reclaim.anybody(now=_NOW) or self._moving.anybody(now=_NOW):
            self._reclaim.decide(now=_NOW, wall=wall, budgets=budgets)
        if self._moving.anybody(now=_NOW):
            self._moving.decide(now=_NOW, wall=wall, budgets=budgets)
        return Decisions(
            let_in=[
                LetIn(
                    pod=pod.key,
                    queue=self.queues.charged_in(pod.metadata.uid),
                    gpus=_cards(self._picture.holdings.of(pod.metadata.uid)) if promise else [],
                )
                for pod, promise in turns
            ],
            # What the leader before was making is among it.
            room=[makes_room(one) for one in register.clearings],
            moved=[said for one in register.refuges if (said := is_moved(one, register=register))],
            waiting=len(self.queues),
        )

    def _read(self) -> None:
        snapshot, names = self._snapshot, self._snapshot.names
        self._desk.tell_time(_NOW)
        self.queues.queues_seen(specs_of(snapshot.queues))
        for namespace in snapshot.namespaces:
            self.queues.namespace_seen(namespace.metadata.name, queue=home_of(namespace, names=names))
        if snapshot.mix:
            self._appraiser.recall(decode_page(snapshot.mix, now=snapshot.wall))
        told = {queue.metadata.name: read_status(queue.status) for queue in snapshot.queues}
        known = {name: status for name, status in told.items() if status}
        self.queues.recall(known, wall=snapshot.wall, now=_NOW)
        self.queues.register.making_room.drained_before = snapshot.moved
        for node in snapshot.nodes:
            self._picture.node_seen(node)
        for lease in snapshot.leases:
            self._picture.lease_seen(lease, wall=snapshot.wall)
        for pod in snapshot.pods:
            self._see(pod)
        joined, led = self.queues.register.joined, self._led_for()
        for pod in snapshot.pods:
            if pod.metadata.uid in joined:
                made = seconds_of(pod.metadata.creation_timestamp)
                joined[pod.metadata.uid] = _NOW - min(led, snapshot.wall - made if made is not None else 0.0)

    def _led_for(self) -> float:
        """For how long the one has led that leads; for a day, where none says so."""
        leases = (one for one in self._snapshot.leases if one.metadata.name == LEADER_LEASE)
        since = next((seconds_of(one.spec.acquire_time) for one in leases), None)
        return _LONG if since is None else max(0.0, self._snapshot.wall - since)

    def _see(self, pod: Pod) -> None:
        self._appraiser.pod_seen(pod)
        if not asks(pod, names=self._snapshot.names):
            self._picture.pod_lies(pod)
            return
        self._desk.pod_seen(pod)
        self.queues.pod_seen(pod)


def makes_room(clearing: Clearing) -> MakesRoom:
    """In words that can be compared and printed."""
    return MakesRoom(
        pods=[place.waiter.pod.key for place in clearing.places],
        gpus=sorted(card for place in clearing.places for card in _cards(place.room)),
        victims=[victim.pod.key for victim in clearing.victims],
    )


def is_moved(refuge: Refuge, *, register: Register) -> IsMoved | None:
    """The same of one that has to go still; None of who went before."""
    there = register.inside.bound.get(refuge.uid)
    if there is None or there.pod.metadata.deletion_timestamp:
        return None
    whose = next((one.candidate.first.pod.key for one in register.clearings if one.uid == refuge.whose), "")
    why = refuge.drains or f"{whose} comes where it is"
    return IsMoved(pod=there.pod.key, gpus=_cards(refuge.room), why=why)


def _cards(held: Iterable[GpuKey]) -> list[str]:
    return sorted(f"{node}/{gpu}" for node, gpu in held)
