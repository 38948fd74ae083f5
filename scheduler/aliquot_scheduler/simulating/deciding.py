"""What a leader that begins with a snapshot decides next: who is let in, and where; for whom room is made, and how.

The very queues, desk, appraiser and reclaim of the centre are told of all objects in the order in which a leader reads
them, and asked once. What only a leader remembers is not in a cluster, and so not in its snapshot: who rests after a
turn that led to nothing, who has waited since when, and what was promised a moment ago. Nobody is moved: that takes
waiting, and a leader that begins may not (`reclaim/consolidation.py`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from aliquot_core.objects import Pod
from aliquot_core.request import asks
from aliquot_scheduler.deciding.appraiser import Appraiser
from aliquot_scheduler.deciding.desk import Desk
from aliquot_scheduler.picture.hearing import told_all
from aliquot_scheduler.picture.picture import Picture
from aliquot_scheduler.queues.room.clearings import Clearing, GpuKey
from aliquot_scheduler.queues.said.entry import home_of, specs_of
from aliquot_scheduler.queues.telling.status import read_status
from aliquot_scheduler.queues.turns import Queues
from aliquot_scheduler.reclaim.reclaim import Reclaim
from aliquot_scheduler.reclaim.residents import budgets_of
from aliquot_scheduler.rules.expressions import RuleSettings
from aliquot_scheduler.rules.installed import rules_in_force
from aliquot_scheduler.simulating.snapshot import Snapshot
from aliquot_scheduler.worth.page import decode_page

_NOW = 0.0
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


class Decisions(msgspec.Struct, frozen=True, kw_only=True):
    """All of one look."""

    let_in: Sequence[LetIn]
    room: Sequence[MakesRoom]
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
        self._read()

    def decide(self) -> Decisions:
        """Once."""
        wall = self._snapshot.wall
        turns = [(turn.pod, turn.promise) for turn in self.queues.turns(self._desk, now=_NOW)]
        budgets = budgets_of(self._snapshot.budgets, bound=self.queues.register.inside.bound.values())
        reclaim = Reclaim(queues=self.queues, picture=self._picture)
        if reclaim.anybody(now=_NOW):
            reclaim.decide(now=_NOW, wall=wall, budgets=budgets)
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
            room=[makes_room(one) for one in self.queues.register.clearings],
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
        for node in snapshot.nodes:
            self._picture.node_seen(node)
        for lease in snapshot.leases:
            self._picture.lease_seen(lease, wall=snapshot.wall)
        for pod in snapshot.pods:
            self._see(pod)

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


def _cards(held: Iterable[GpuKey]) -> list[str]:
    return sorted(f"{node}/{gpu}" for node, gpu in held)
