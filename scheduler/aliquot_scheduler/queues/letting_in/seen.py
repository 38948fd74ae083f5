"""What the watch tells of a pod, and to which state that moves it (`register.py`).

| it has | it is |
|---|---|
| run to its end, or failed | gone; of its group it counts as one that is there, if it did what it had to |
| a node | bound, and charged with what it was granted in the queue that let it in |
| our gate alone, or lost its turn | to wait, if it is not let in |
| no gate, and nobody here knows it | found: the leader before us has let it in, or it passed its gate by |
"""

from __future__ import annotations

from aliquot_core.hosts import host_request
from aliquot_core.objects import Pod
from aliquot_scheduler.queues.letting_in.register import Register
from aliquot_scheduler.queues.waiting.waiter import Waiter


class Seen:
    """Tells the register."""

    def __init__(self, register: Register) -> None:
        self._register = register

    def pod(self, pod: Pod) -> None:
        """A pod is there, or is changed."""
        uid, register = pod.metadata.uid, self._register
        if pod.ended:
            self._ended(pod)
        elif pod.spec.node_name:
            self._bound(pod)
        elif uid in register.inside:
            if uid in register.inside.coming:
                self._changed_on_its_way(pod)
        elif pod.metadata.deletion_timestamp:
            self.gone(uid)
        elif self._is_next(pod) or uid in register.hall or register.lost_turns.missed_by(uid):
            register.take_as_waiting(pod)
        elif not pod.spec.scheduling_gates:
            register.taking_over.find(pod)

    def gone(self, uid: str) -> None:
        """There is no such pod any more."""
        self._register.take_as_gone(uid)
        self._register.books.runs.finished.gone(uid)

    def _ended(self, pod: Pod) -> None:
        register = self._register
        waiter = register.enrolment.holder(pod) if pod.status.phase == "Succeeded" else None
        finished = waiter and register.inside.bound.get(waiter.uid, waiter)
        if finished:
            # Before its place is counted as empty: else its group would lack one at that instant.
            register.books.runs.finished.add(finished)
        register.take_as_gone(pod.metadata.uid)
        if finished:
            register.gang_changed(finished)

    def _bound(self, pod: Pod) -> None:
        uid, register = pod.metadata.uid, self._register
        register.taking_over.forget(uid)
        if register.inside.is_bound_so(pod):
            self._changed_where_it_runs(pod)
            return
        known = register.inside.coming.get(uid) or register.inside.bound.get(uid)
        waiter = known.of(pod) if known else register.enrolment.holder(pod)
        register.leave(uid)
        register.memory.forget(uid)
        register.growth.forget(uid)
        register.joined.pop(uid, None)
        register.lost_turns.placed(pod, now=register.now)
        if waiter:
            register.lost_turns.bound(waiter, now=register.now)
            register.inside.bind(waiter)
            register.stayers.runs(pod, now=register.now)
            register.books.put(waiter, register.enrolment.charge(waiter))
            register.gang_changed(waiter)

    def _changed_where_it_runs(self, pod: Pod) -> None:
        """It may be on the way out by now; or it was resized, and is charged with what it takes of its node now."""
        register = self._register
        waiter = register.inside.bound[pod.metadata.uid].of(pod)
        if resized := waiter.shape.host.amounts != host_request(pod):
            waiter = register.enrolment.anew(waiter)
        register.inside.bound[waiter.uid] = waiter
        if resized:
            register.books.put(waiter, register.enrolment.charge(waiter))
        self._may_go(waiter)

    def _changed_on_its_way(self, pod: Pod) -> None:
        """Where it may lie is looked at again at its binding; by another right than it came in by, it waits again."""
        uid, register = pod.metadata.uid, self._register
        if register.inside.came_by_the_same_right(pod):
            register.inside.changed(pod)
            self._may_go(register.inside.coming[uid])
            return
        register.lost_turns.left(uid, now=register.now)
        register.release(uid)
        register.take_as_waiting(pod)

    def _may_go(self, waiter: Waiter) -> None:
        """Of one that is on its way out the gang lacks somebody from then on, though it holds its card still."""
        if waiter.is_going and self._register.books.goes(waiter):
            self._register.gang_changed(waiter)

    def _is_next(self, pod: Pod) -> bool:
        """Whether ours is the last gate: a turn is for pods that can use it."""
        return [gate.name for gate in pod.spec.scheduling_gates] == [self._register.names.gate]
