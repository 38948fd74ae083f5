"""Defects planted in the centre on purpose, one at a time, as `planted` does in the agent."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from aliquot_core.objects import Node, Pod
from aliquot_scheduler.centre.gatekeeper import Gatekeeper
from aliquot_scheduler.centre.notice_writer import NoticeWriter
from aliquot_scheduler.deciding.desk import Desk
from aliquot_scheduler.deciding.promises import Ended, Promise, Promises
from aliquot_scheduler.picture.grants import Grants
from aliquot_scheduler.picture.host_room import OWN, UNTOLD, HostRoom
from simulation.universe.planted import Plant
from simulation.universe.town import TownScale
from simulation.universe.workload import Habits

# Pods that crowd two nodes and a network that is bad for the centre above all, so that few seeds are enough.
CROWDED = TownScale(
    again="Town({seed}, CROWDED).run(), the defect being planted",
    seconds=150.0,
    faults_every=45.0,
    centre_faults_every=6.0,
    centre_faults={"bindings get lost": 8.0, "kill leader": 2.0, "stop leader gently": 2.0, "kill all": 0.0},
    habits=Habits(
        between_pods=2.0,
        most_pods=12,
        work=15.0,
        memory=36_000,
        bad=0.0,
        overcommitted=0.0,
        hasty=0.0,
        tampered=0.0,
        forever=0.1,
        stubborn=0.6,
    ),
)


def keep_no_room(patch: pytest.MonkeyPatch) -> None:
    """Room is promised and not held."""

    def make(self: Promises, promise: Promise) -> None:
        self._standing[promise.pod.metadata.uid] = promise

    patch.setattr(Promises, "make", make)


def take_silence_for_a_no(patch: pytest.MonkeyPatch) -> None:
    """A binding whose answer is lost is taken not to be done."""
    real = Desk.bind_ended

    def bind_ended(self: Desk, uid: str, ended: Ended, *, now: float) -> None:
        real(self, uid, Ended.REFUSED if ended is Ended.UNKNOWN else ended, now=now)

    patch.setattr(Desk, "bind_ended", bind_ended)


def take_deletion_for_the_end(patch: pytest.MonkeyPatch) -> None:
    """A pod that is to go holds nothing any more."""
    real = Grants.held

    def held(self: Grants, pod: Pod) -> Any:
        return {} if pod.metadata.deletion_timestamp else real(self, pod)

    patch.setattr(Grants, "held", held)


def tell_nobody_again(patch: pytest.MonkeyPatch) -> None:
    """A pod that gets another turn is not told, since its gate is gone; nor is it when what it says is put right."""
    patch.setattr(NoticeWriter, "_is_let_in", lambda _, uid: not uid)
    real = Gatekeeper._write

    async def write(self: Gatekeeper, turn: Any) -> None:
        if turn.pod.spec.scheduling_gates:
            await real(self, turn)

    patch.setattr(Gatekeeper, "_write", write)


def count_nothing_of_ours(patch: pytest.MonkeyPatch) -> None:
    """What GPUs have free is all there is to it, whatever kube-scheduler counts."""
    real = HostRoom.node_seen

    def node_seen(self: HostRoom, node: Node, *, row: int, rows: int) -> None:
        real(self, node, row=row, rows=rows)
        self.allocatable[row, OWN] = UNTOLD
        self._count(node.metadata.name)

    patch.setattr(HostRoom, "node_seen", node_seen)


PLANTED_IN_CENTRE: Mapping[str, Plant] = {
    plant.__name__: plant
    for plant in (
        keep_no_room,
        take_silence_for_a_no,
        take_deletion_for_the_end,
        tell_nobody_again,
        count_nothing_of_ours,
    )
}
