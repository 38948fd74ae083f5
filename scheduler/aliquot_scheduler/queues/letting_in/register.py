"""In which state each pod is: it waits in a line, rests, can't wait anywhere, is let in, or is bound.

Theory of operation. The watch tells of pods (`seen.py`), queues and namespaces, and turns (`turns.py`) of what came of
them; each moves a pod from one state to the next. Whoever is let in is charged in the books, whoever waits in a line is
counted there as asking. By other queues or other hardware many are put down anew (`replanting.py`).

What must always hold: a pod is in one state; it is charged exactly if it is let in or bound, and asks only if it
stands in a line (`hall.py` says when).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from aliquot_core.names import Names
from aliquot_core.objects import Pod
from aliquot_scheduler.deciding.promises import Promise
from aliquot_scheduler.picture.picture import Picture
from aliquot_scheduler.queues.charged.usage import Forgetting
from aliquot_scheduler.queues.judging.cards import Cards
from aliquot_scheduler.queues.judging.enrolment import Enrolment
from aliquot_scheduler.queues.judging.planting import Planting
from aliquot_scheduler.queues.judging.stayers import Stayers
from aliquot_scheduler.queues.letting_in.growth import Growth
from aliquot_scheduler.queues.letting_in.replanting import Replanting
from aliquot_scheduler.queues.letting_in.room_again import RoomAgain
from aliquot_scheduler.queues.letting_in.sound_first import SoundFirst
from aliquot_scheduler.queues.letting_in.standing_behind import StandingBehind
from aliquot_scheduler.queues.letting_in.sweep_memory import SweepMemory
from aliquot_scheduler.queues.letting_in.taking_over import TakingOver
from aliquot_scheduler.queues.lost.lost_turns import LostTurns
from aliquot_scheduler.queues.room.making_room import MakingRoom
from aliquot_scheduler.queues.room.standoffs import Standoffs
from aliquot_scheduler.queues.said.settings import QueueSettings
from aliquot_scheduler.queues.said.spec import QueueSpec
from aliquot_scheduler.queues.waiting.books import Books
from aliquot_scheduler.queues.waiting.hall import Hall
from aliquot_scheduler.queues.waiting.inside import Inside, Way
from aliquot_scheduler.queues.waiting.stale import StaleGangs
from aliquot_scheduler.queues.waiting.waiter import Waiter
from aliquot_scheduler.rules.judging import Rules


class Register:
    """All pods that queues know of, each in its state."""

    def __init__(self, *, names: Names, picture: Picture, settings: QueueSettings, rules: Rules) -> None:
        self.names = names
        self._planting = Planting(names=names, picture=picture, user_label=settings.user_label, rules=rules)
        self.now = 0.0
        self.hall = Hall(
            why_never=self._why_gang_never,
            awaits_node=self._awaits_node,
            patience=settings.patience,
            hold=settings.hold,
        )
        self.inside = Inside(names=names)
        # Since when those wait who do.
        self.joined: dict[str, float] = {}
        self.standoffs = Standoffs()
        self.settings = settings
        self.stayers = Stayers(picture=picture, after=settings.hold)
        self.memory = SweepMemory(patience=settings.patience, hold=settings.hold, owed=settings.owed)
        self.forgetting = Forgetting(half_life=settings.half_life, penalty=settings.penalty)
        self.books = Books(tree=self._planting.tree, forgetting=self.forgetting)
        self._standing_behind = StandingBehind(memory=self.memory, hall=self.hall, books=self.books)
        self.lost_turns = LostTurns(
            hall=self.hall, inside=self.inside, books=self.books, stand_in_line=self._stand_in_line
        )
        self.stale = StaleGangs(after=settings.stale_gang, runs=self.books.runs, musters=self.hall.musters)
        self.making_room = MakingRoom(
            picture=picture,
            planting=self._planting,
            hall=self.hall,
            inside=self.inside,
            books=self.books,
            wait_anew=self.take_as_waiting,
            max_grace=settings.max_grace,
        )
        self.clearings, self.refuges = self.making_room.clearings, self.making_room.refuges
        self.growth = Growth(
            names=names,
            planting=self._planting,
            hall=self.hall,
            books=self.books,
            memory=self.memory,
            forgetting=self.forgetting,
            patience=settings.patience,
        )
        self.showings = self.growth.showings
        self.sound_first = SoundFirst(picture=picture)
        self._replanting = Replanting(
            planting=self._planting,
            hall=self.hall,
            inside=self.inside,
            books=self.books,
            growth=self.growth,
            memory=self.memory,
            making_room=self.making_room,
            standoffs=self.standoffs,
            wait_anew=self.take_as_waiting,
            wait_again=self._wait_again,
        )
        self.taking_over = TakingOver(
            names=names,
            planting=self._planting,
            hall=self.hall,
            inside=self.inside,
            books=self.books,
            making_room=self.making_room,
            stale=self.stale,
            room_again=RoomAgain(
                planting=self._planting, inside=self.inside, books=self.books, stayers=self.stayers, picture=picture
            ),
            wait=self._take_as_found,
        )

    def __contains__(self, uid: str) -> bool:
        """Whether anything is known of a pod."""
        return uid in self.hall or uid in self.inside or uid in self.taking_over or self.lost_turns.missed_by(uid) > 0

    @property
    def cards(self) -> Cards:
        """The cards, as the tree of the moment counts them."""
        return self._planting.cards

    @property
    def enrolment(self) -> Enrolment:
        """How pods are read by the tree of the moment."""
        return self._planting.enrolment

    def waiting(self) -> list[Waiter]:
        """All who wait, wherever, and those of whom it is not judged yet whether they do."""
        return [*self.hall, *self.taking_over.waiters()]

    # --- what is seen ------------------------------------------------------------------------------------------------
    def queues_seen(self, specs: Mapping[str, QueueSpec]) -> None:
        """These are all queues there are now."""
        if self._planting.queues_seen(specs):
            self._replanting.queues_changed(now=self.now)

    def namespace_seen(self, name: str, *, queue: str) -> None:
        """A namespace's own queue, by its label; empty if it names none, or is gone."""
        if self._planting.home_seen(name, queue=queue):
            for waiter in self.hall.of_namespace(name):
                self.take_as_waiting(waiter.pod)

    def tell_time(self, now: float) -> None:
        """It is so late: who has rested long enough joins the line again."""
        self.now = now
        self._replanting.look_at_hardware(now=now)
        self.taking_over.complete(now=now)
        self.making_room.tell_time(now)
        self.standoffs.tell_time(now)
        self.sound_first.tell_time(now)
        self.stayers.tell_time(now)
        for gang in self.hall.in_vain.tell_time(now):
            self.hall.asked.anew(gang, books=self.books)
        self.books.capacity = self.cards.stock().capacity
        self.growth.tell_time(now)
        self.lost_turns.tell_time(now, is_cleared_for=self.clearings.__contains__)
        self.memory.stand_still(self.lost_turns.close_lines(heads=self.memory.patience.since, now=now), now=now)
        self.books.settle(now)

    def scheduler_asks(self, name: str, *, now: float) -> None:
        """A scheduler asks for a pod: if it was never heard before, pods that gave it up need not rest any longer."""
        for waiter in self.lost_turns.heard(name, now=now):
            self._stand_in_line(waiter)

    def line_up(self, *, now: float) -> None:
        """Before anybody is looked at: what is kept for a head is whose turn comes first of those that ask the same."""
        self._standing_behind.line_up(shown=self.growth.showings.shown, now=now)

    # --- from state to state -----------------------------------------------------------------------------------------
    def take_as_waiting(self, pod: Pod) -> None:
        """It waits: in its line, or goes on to rest."""
        self._take(pod, self._read(pod))

    def _wait_again(self, was: Waiter) -> None:
        """The same by other queues, or other hardware: to read thousands of pods once more took a second."""
        self._take(was.pod, self._behind_others(self.enrolment.waits_again(was)))

    def _take(self, pod: Pod, waiter: Waiter | None) -> None:
        self.taking_over.forget(pod.metadata.uid)
        self.growth.waits(pod, waiter)
        self.joined.setdefault(pod.metadata.uid, self.now)
        until = self.hall.rests_until(pod.metadata.uid)
        if waiter is None:
            self.leave(pod.metadata.uid)
        elif until is not None:
            self.hall.rest(waiter, until=until, books=self.books)
        else:
            self._join(waiter)

    def rest(self, pod: Pod, *, until: float) -> None:
        """Its turn has led to nothing: it may have another one then."""
        if waiter := self._read(pod):
            self.hall.rest(waiter, until=until, books=self.books)

    def let_in(self, waiter: Waiter, promise: Promise, *, now: float) -> Waiter:
        """Its turn has come: it is charged from now on, and waits no more; as what it is held to."""
        self.leave(waiter.uid)
        self.memory.let_in(waiter.uid)
        self.growth.forget(waiter.uid)
        held = self.enrolment.held_to(waiter, node=promise.node, gpus=promise.plan.claims)
        self.inside.enter(held, way=Way.THROUGH, until=promise.until)
        self.inside.keep_off(held.uid, held.off)
        self.books.runs.comes_in(held)
        self.books.admit(held, self.enrolment.charge(held), now=now)
        self.lost_turns.let_in(held)
        return held

    def let_out(self, uid: str) -> Waiter | None:
        """It is let in no more; a pod that is bound meanwhile goes on being charged."""
        return self.release(uid) if uid in self.inside.coming else None

    def leave(self, uid: str) -> None:
        """It waits no more."""
        self.hall.leave(uid, books=self.books)

    def release(self, uid: str) -> Waiter | None:
        """It is let in no more, and charged with nothing."""
        self.inside.leave(uid)
        waiter = self.books.release(uid)
        if waiter:
            self.gang_changed(waiter)
        return waiter

    def gang_changed(self, waiter: Waiter) -> None:
        """Another number of its gang is in; of one that can't start any more none is a head, and no node is kept."""
        self.hall.gang_changed(waiter, books=self.books)
        for mate in self.hall.too_few(waiter, books=self.books):
            self.memory.forget(mate.uid)

    def take_as_gone(self, uid: str) -> None:
        """It needs no turn any more, and holds nothing."""
        if mate := self.hall.next_of_gang(uid):
            # Its group waits on, whoever comes in its place.
            self.memory.patience.hand_on(uid, to=mate.uid)
        self.leave(uid)
        self.lost_turns.left(uid, now=self.now)
        if uid in self.inside.bound and not self.clearings.was_asked(uid):
            # It has ended by itself, so nobody comes in its place; of one that was asked both its end and that its pod
            # is gone are told, and no more at the second word.
            self.refuges.close(uid)
        self.clearings.gone(uid)
        self.stayers.gone(uid)
        self.memory.forget(uid)
        self.taking_over.forget(uid)
        self.lost_turns.gone(uid, now=self.now)
        self.growth.forget(uid)
        self.joined.pop(uid, None)
        if uid in self.inside.bound:
            self.stale.lost(self.inside.bound[uid])
        self.release(uid)

    def _read(self, pod: Pod) -> Waiter | None:
        """A pod as one that waits."""
        return self._behind_others(self.enrolment.waiter(pod))

    def _behind_others(self, waiter: Waiter | None) -> Waiter | None:
        """Of its user's, if it has lost turns."""
        times = self.lost_turns.times.get(waiter.uid, 0) if waiter else 0
        return msgspec.structs.replace(waiter, lost=times) if waiter and times else waiter

    def _take_as_found(self, pod: Pod) -> None:
        self.lost_turns.found(pod.metadata.uid, now=self.now)
        self.growth.found(pod, now=self.now)
        self.take_as_waiting(pod)

    def _stand_in_line(self, waiter: Waiter) -> None:
        self.leave(waiter.uid)
        self.take_as_waiting(waiter.pod)

    def _join(self, waiter: Waiter) -> None:
        if why := self.enrolment.why_never(waiter):
            # It is no head any more, by this tree: no node is kept for it.
            self.memory.forget(waiter.uid)
        if why or not self.making_room.begin_for_substitute(waiter, now=self.now):
            self.hall.join(waiter, why_never=why, books=self.books)

    def _why_gang_never(self, members: Sequence[Waiter]) -> str:
        return self.enrolment.why_gang_never(members)

    def _awaits_node(self, members: Sequence[Waiter]) -> bool:
        return self.enrolment.awaits_node(members)
