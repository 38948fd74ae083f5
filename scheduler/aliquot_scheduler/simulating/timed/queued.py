"""Aliquot's own policy in time: the very queues, desk and appraiser of the centre, told of simulated events.

kube-scheduler's part is played as simply as it can be. Whoever is let in is bound at that instant, to the node that the
desk has found. Pods without GPUs are placed at once where their cores and memory are free, or wait, oldest first,
passing each other.

To ask for turns takes a millisecond or more, so it is done when somebody who waits has room somewhere (from a table).
Where heads of lines may lose patience it is done at every arrival too: from then on the head counts as passed over.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from aliquot_core.names import Names
from aliquot_core.objects import Pod
from aliquot_scheduler.deciding.appraiser import Appraiser
from aliquot_scheduler.deciding.desk import Desk
from aliquot_scheduler.deciding.promises import Promise
from aliquot_scheduler.deciding.turns import MOST_IN_VAIN
from aliquot_scheduler.fit.bounds import Bounds
from aliquot_scheduler.fit.demand import Demand
from aliquot_scheduler.picture.hearing import told_all
from aliquot_scheduler.picture.picture import Picture
from aliquot_scheduler.queues.said.settings import QueueSettings
from aliquot_scheduler.queues.said.spec import QueueSpec
from aliquot_scheduler.queues.turns import Queues
from aliquot_scheduler.rules.judging import NO_RULES, Rules
from aliquot_scheduler.simulating.timed.clockwork import NEVER
from aliquot_scheduler.simulating.timed.ground import Ground, Start, Stop
from aliquot_scheduler.simulating.timed.job import Job, Timetable
from aliquot_scheduler.simulating.timed.kubernetes import bound, lease_of, leaving, node_name, node_of, pod_of
from aliquot_scheduler.simulating.timed.openings import Openings
from aliquot_scheduler.simulating.timed.reclaiming import Reclaiming
from aliquot_scheduler.worth.mix import Mix

# Heads lose patience, and others may pass again, without any event: so often turns are looked at at least.
_LOOK = 300.0


class Queued:
    """The policy."""

    def __init__(
        self,
        timetable: Timetable,
        *,
        ground: Ground,
        specs: Mapping[str, QueueSpec],
        settings: QueueSettings,
        rules: Rules = NO_RULES,
        grace: float = 0.0,
        mix: Mix | None = None,
    ) -> None:
        """`grace` is for how many seconds pods go on that were asked to go; without a mix it is learnt."""
        self._names = names = Names()
        self._needs = timetable.needs
        self._ground = ground
        self._picture = Picture(names=names, hearing=told_all())
        self._appraiser = Appraiser(picture=self._picture, names=names, given=mix)
        # No turn is ever lost, so what would be drawn for a back-off never is.
        self._queues = Queues(names=names, random=lambda: 0.5, picture=self._picture, settings=settings, rules=rules)
        self._desk = Desk(
            picture=self._picture, names=names, turns=self._queues, look=self._appraiser.look, rules=rules
        )
        self._rows = {node_name(row): row for row in range(len(timetable.machines))}
        self._machines = timetable.machines
        self._see_machines()
        self._queues.queues_seen(specs)
        self._jobs: dict[str, Job] = {}
        self._pods: dict[str, Pod] = {}
        self._plain: list[Job] = []
        self._openings = Openings(fleet=ground.fleet, needs=ground.needs)
        # How many wait behind their gates, by what they need.
        self._gated = np.zeros(len(ground.needs), dtype=np.int64)
        # Whether somebody has come since turns were asked for.
        self._has_news = False
        # Without a hold nobody ever loses patience.
        self._patient = settings.hold > 0.0
        self._where: dict[str, int] = {}
        self._reclaiming = Reclaiming(
            queues=self._queues, picture=self._picture, moves_per_hour=settings.moves_per_hour
        )
        self._grace = grace
        # A pod that was sent away is made anew, as another one: which it is, by the number of its job.
        self._uids: dict[int, str] = {}
        # Searches of a round that found nothing: a round that has too many is broken off, and to be gone on with.
        self._in_vain = 0

    def _see_machines(self) -> None:
        for row, machine in enumerate(self._machines):
            node = node_of(machine, row=row, names=self._names)
            self._picture.node_seen(node)
            lease, wall = lease_of(row, names=self._names)
            self._picture.lease_seen(lease, wall=wall)

    # --- what happens ------------------------------------------------------------------------------------------------
    def arrived(self, job: Job, *, now: float) -> None:
        """It waits behind its gate, or, without GPUs, for cores."""
        need = self._needs[job.need]
        before = self._uids.get(job.number)
        uid = f"{before}-" if before else str(job.number)
        pod = pod_of(job, need, uid=uid, now=now, names=self._names)
        self._uids[job.number] = uid
        self._reclaiming.happened(now)
        self._jobs[uid], self._pods[uid] = job, pod
        self._see(pod)
        if need.gpus:
            self._gated[job.need] += 1
            self._has_news = True
        else:
            self._plain.append(job)
        if (work := self._appraiser.due()) is not None:
            self._appraiser.renew(work())

    def ended(self, job: Job, *, now: float) -> None:
        """It is gone, and all it held is free."""
        uid = self._uids[job.number]
        self._reclaiming.happened(now)
        del self._jobs[uid]
        pod, row = self._pods.pop(uid), self._where.pop(uid)
        self._appraiser.pod_gone(pod)
        self._desk.pod_gone(pod)
        self._queues.pod_gone(uid)
        self._openings.changed(row)

    def look_again(self, now: float) -> float:
        """While anybody waits who has room: who has lost patience may keep others from it for a while."""
        soon = now + _LOOK if self._patient and self._has_room() else NEVER
        return min(soon, self._reclaiming.look_again())

    def _has_room(self) -> bool:
        return bool(self._openings.able[self._gated > 0].any())

    # --- decisions ---------------------------------------------------------------------------------------------------
    def actions(self, now: float) -> Iterator[Start | Stop]:
        """Whoever can be let in; then whoever has to go for others."""
        self._desk.tell_time(now)
        self._queues.books.settle(now)
        yield from self._plain_starts(now)
        yield from self._turns(now)
        for victim in self._reclaiming.victims(now):
            yield Stop(job=self._jobs[victim.uid], grace=self._grace)
            self._see(leaving(self._pods[victim.uid], by=now + self._grace))

    def _turns(self, now: float) -> Iterator[Start]:
        """A round that was broken off goes on."""
        if not self._has_room() and not (self._patient and self._has_news):
            return
        self._has_news = False
        found, self._in_vain = True, MOST_IN_VAIN
        while (found and self._has_room()) or self._in_vain >= MOST_IN_VAIN:
            found, self._in_vain = False, 0
            for turn in self._queues.turns(self, now=now):
                if turn.promise is not None:
                    found = True
                    start = self._bind(turn.pod, turn.promise, now=now)
                    yield start
                    self._gated[start.job.need] -= 1
                    self._openings.changed(start.row)

    def promise_best(self, pod: Pod, demand: Demand, bounds: Bounds, *, now: float) -> Promise | None:
        """The desk's own answer, if the table does not say at once that there is no room."""
        room = self._openings.able[self._jobs[pod.metadata.uid].need].any()
        promise = self._desk.promise_best(pod, demand, bounds, now=now) if room else None
        self._in_vain += promise is None
        return promise

    def narrow(self, promise: Promise, demand: Demand) -> Promise:
        """As the desk does it."""
        return self._desk.narrow(promise, demand)

    def take_back(self, uid: str) -> None:
        """As the desk does it."""
        self._desk.take_back(uid)

    def _plain_starts(self, now: float) -> Iterator[Start]:
        waiting, self._plain = self._plain, []
        for job in waiting:
            room = self._ground.hosts_room(self._needs[job.need])
            if not room.any():
                self._plain.append(job)
                continue
            # kube-scheduler spreads by what is requested least; of equals the first.
            row = int((self._ground.fleet.cores * room).argmax())
            uid = self._uids[job.number]
            pod = bound(self._pods[uid], node=node_name(row), grant=None, now=now, names=self._names)
            self._take(uid, row=row, pod=pod)
            yield Start(job=job, row=row, gpus=())
            self._openings.changed(row)

    def _bind(self, pod: Pod, promise: Promise, *, now: float) -> Start:
        grant = promise.plan.grant
        row = self._rows[grant.node]
        uid = pod.metadata.uid
        self._take(uid, row=row, pod=bound(pod, node=grant.node, grant=grant, now=now, names=self._names))
        index = {gpu.uuid: gpu.index for gpu in self._picture.nodes[grant.node].inventory.gpus}
        gpus = {index[part.gpu] for held in grant.containers.values() for part in held.slices}
        return Start(job=self._jobs[uid], row=row, gpus=tuple(sorted(gpus)))

    def _take(self, uid: str, *, row: int, pod: Pod) -> None:
        self._pods[uid], self._where[uid] = pod, row
        self._see(pod)

    def _see(self, pod: Pod) -> None:
        self._desk.pod_seen(pod)
        self._appraiser.pod_seen(pod)
        self._queues.pod_seen(pod)
