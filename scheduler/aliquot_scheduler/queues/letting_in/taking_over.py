"""What the leader before us did and did not finish: pods without a gate that are not bound, and room that it kept.

A pod that is found without a gate was let in by the leader before us, or passed its gate by. It is judged only when
all is known that counts against a limit: the one before us may have taken its turn back.

Who was let in with room says where that was (`aliquot.dev/promised-to`), and has it again (`room_again.py`).
"""

from __future__ import annotations

from collections.abc import Callable

from aliquot_core.names import Names
from aliquot_core.objects import Pod
from aliquot_scheduler.deciding.turns import FOUND, Rooms
from aliquot_scheduler.queues.judging.planting import Planting
from aliquot_scheduler.queues.letting_in.room_again import RoomAgain
from aliquot_scheduler.queues.room.making_room import MakingRoom
from aliquot_scheduler.queues.waiting.books import Books
from aliquot_scheduler.queues.waiting.hall import Hall
from aliquot_scheduler.queues.waiting.inside import Inside, Way
from aliquot_scheduler.queues.waiting.stale import StaleGangs
from aliquot_scheduler.queues.waiting.states import promised_to, state_of
from aliquot_scheduler.queues.waiting.waiter import Waiter


class TakingOver:
    """Pods that were found, until they are judged; `wait` is for one that was not let in rightly."""

    def __init__(
        self,
        *,
        names: Names,
        planting: Planting,
        hall: Hall,
        inside: Inside,
        books: Books,
        making_room: MakingRoom,
        stale: StaleGangs,
        room_again: RoomAgain,
        wait: Callable[[Pod], None],
    ) -> None:
        self._names = names
        self._planting = planting
        self._hall = hall
        self._inside = inside
        self._books = books
        self._making_room = making_room
        self._stale = stale
        self._room_again = room_again
        self._wait = wait
        self._found: dict[str, Pod] = {}
        # Whether all was known once, with what the leader before us kept.
        self.has_recalled = False

    def __contains__(self, uid: str) -> bool:
        return uid in self._found

    @property
    def is_complete(self) -> bool:
        """Whether all are judged who were found, and all is known that was kept."""
        return self.has_recalled and not self._found

    def find(self, pod: Pod) -> None:
        """It has no gate, and is not bound: to be judged once all is known."""
        self._found[pod.metadata.uid] = pod

    def forget(self, uid: str) -> None:
        """It is known by now in which state it is."""
        self._found.pop(uid, None)

    def waiters(self) -> list[Waiter]:
        """Those who are not judged yet."""
        found = map(self._planting.enrolment.waiter, self._found.values())
        return [waiter for waiter in found if waiter]

    def complete(self, *, now: float) -> None:
        """All is known."""
        if not self.has_recalled:
            self._recall(now=now)
        self.judge(now=now)

    def judge(self, *, now: float) -> None:
        """Who was let in by another leader goes on, as far as limits allow: the one before may have taken it back."""
        for pod in sorted(self._found.values(), key=_age):
            if self.adopt(pod, now=now):
                self._wait(pod)
        self._found.clear()

    def adopt(self, pod: Pod, *, now: float) -> str:
        """Take a pod that has no gate as let in; or why not."""
        enrolment = self._planting.enrolment
        waiter = enrolment.holder(pod)
        if waiter is None:
            return ""
        if not state_of(pod, names=self._names).is_in:
            return "its turn was taken back by the leader before"
        was_in = self._names.charged in pod.metadata.annotations
        if why := enrolment.why_never(waiter, was_in=was_in):
            return why
        if over := self._books.ledger.over(waiter.queue, waiter.amounts):
            return f"it would be over the limit of queue {over[0].node.name}"
        self._inside.enter(waiter, way=Way.ADOPTED, until=now + FOUND)
        self._inside.keep_off(waiter.uid, waiter.off)
        self._books.put(waiter, enrolment.charge(waiter))
        self._hall.gang_changed(waiter, books=self._books)
        if (where := promised_to(pod, names=self._names)) is not None:
            self._room_again.expect(waiter, where)
        return ""

    def keep_room(self, rooms: Rooms, *, now: float) -> None:
        """For those who were adopted."""
        self._room_again.keep(rooms, now=now)

    def _recall(self, *, now: float) -> None:
        """Keep what the leader before us kept; nobody had a turn of us yet."""
        self.has_recalled = True
        if self._planting.tree.queueless:
            return
        waiters, word = [waiter for line in self._hall.lines.values() for waiter in line], self._names.room
        waiters += self.waiters()
        self._stale.lost_before(self._making_room.torn_before())
        for waiter in self._making_room.recall(waiters, word=word, now=now):
            self.forget(waiter.uid)


def _age(pod: Pod) -> tuple[str, str]:
    return pod.metadata.creation_timestamp or "", pod.metadata.uid
