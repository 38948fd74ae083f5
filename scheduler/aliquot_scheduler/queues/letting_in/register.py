"""In which state each pod is: it waits in a line, rests, can't wait anywhere, is let in, or is bound.

Theory of operation. The watch tells of pods, queues and namespaces, and turns (`turns.py`) of what came of them; each
moves a pod from one state to the next. Whoever is let in is charged in the books, whoever waits in a line is counted
there as asking. When other queues or other hardware make any shape come to something else, everybody is put down anew;
when queues are edited that count the same things, all stay as they were read but those who wait otherwise.

What must always hold: a pod is in one state; it is charged exactly if it is let in or bound, and asks only if it
stands in a line (`hall.py` says when).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from aliquot_core.hosts import host_request
from aliquot_core.names import Names
from aliquot_core.objects import Pod
from aliquot_scheduler.deciding.promises import Promise
from aliquot_scheduler.picture.picture import Picture
from aliquot_scheduler.queues.charged.usage import Forgetting
from aliquot_scheduler.queues.judging.cards import Cards
from aliquot_scheduler.queues.judging.enrolment import Enrolment
from aliquot_scheduler.queues.judging.planting import Change, Planting
from aliquot_scheduler.queues.judging.stayers import Stayers
from aliquot_scheduler.queues.letting_in.growth import Growth
from aliquot_scheduler.queues.letting_in.second_turns import SecondTurns
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
        self.hall = Hall(why_never=self._why_gang_never, patience=settings.patience, hold=settings.hold)
        self.inside = Inside(names=names)
        # Since when those wait who do.
        self.joined: dict[str, float] = {}
        self.lost_turns = LostTurns(hall=self.hall)
        self.standoffs = Standoffs()
        self.settings = settings
        self.stayers = Stayers(picture=picture, after=settings.hold)
        self.memory = SweepMemory(patience=settings.patience, hold=settings.hold, owed=settings.owed)
        self.forgetting = Forgetting(half_life=settings.half_life, penalty=settings.penalty)
        self.books = Books(tree=self._planting.tree, forgetting=self.forgetting)
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
        self.second_turns = SecondTurns(
            lost_turns=self.lost_turns,
            hall=self.hall,
            inside=self.inside,
            clearings=self.clearings,
            memory=self.memory,
            stand_in_line=self._stand_in_line,
        )
        self.growth = Growth(
            names=names,
            planting=self._planting,
            hall=self.hall,
            books=self.books,
            memory=self.memory,
            forgetting=self.forgetting,
        )
        self.showings = self.growth.showings
        self.taking_over = TakingOver(
            names=names,
            planting=self._planting,
            hall=self.hall,
            inside=self.inside,
            books=self.books,
            making_room=self.making_room,
            wait=self._take_as_found,
        )

    def __contains__(self, uid: str) -> bool:
        """Whether anything is known of a pod."""
        return uid in self.hall or uid in self.inside or uid in self.taking_over or uid in self.lost_turns.rests.lost

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
            if self._planting.graft():
                self._graft()
            else:
                self._replant()

    def namespace_seen(self, name: str, *, queue: str) -> None:
        """A namespace's own queue, by its label; empty if it names none, or is gone."""
        if self._planting.home_seen(name, queue=queue):
            for waiter in self.hall.of_namespace(name):
                self.take_as_waiting(waiter.pod)

    def pod_seen(self, pod: Pod) -> None:
        """A pod is there, or is changed."""
        uid = pod.metadata.uid
        if pod.ended:
            self._ended(pod)
        elif pod.spec.node_name:
            self._take_as_bound(pod)
        elif uid in self.inside:
            if uid in self.inside.coming:
                self._changed_on_its_way(pod)
        elif pod.metadata.deletion_timestamp:
            self.pod_gone(uid)
        elif self._is_next(pod) or uid in self.hall or uid in self.lost_turns.rests.lost:
            self.take_as_waiting(pod)
        elif not pod.spec.scheduling_gates:
            self.taking_over.find(pod)

    def _ended(self, pod: Pod) -> None:
        """A pod has run to its end, or failed."""
        waiter = self.enrolment.holder(pod) if pod.status.phase == "Succeeded" else None
        finished = waiter and self.inside.bound.get(waiter.uid, waiter)
        if finished:
            self.stale.done(finished)
        self.pod_gone(pod.metadata.uid)
        if finished:
            self.books.runs.finished(finished)
            self.gang_changed(finished)

    def pod_gone(self, uid: str) -> None:
        """A pod needs no turn any more, and holds nothing."""
        self.leave(uid)
        self.books.runs.gone(uid)
        self._left_unbound(uid)
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

    def tell_time(self, now: float) -> None:
        """It is so late: who has rested long enough joins the line again."""
        self.now = now
        match self._planting.change(waiting=len(self.hall)):
            case Change.EVERYTHING:
                self._replant()
            case Change.LOOKS:
                self._look_anew()
        self.taking_over.complete(now=now)
        self.making_room.tell_time(now)
        self.standoffs.tell_time(now)
        self.stayers.tell_time(now)
        for gang in self.hall.in_vain.tell_time(now):
            self.hall.ask_anew(gang, books=self.books)
        self.books.capacity = self.cards.stock().capacity
        self.growth.tell_time(now)
        self.second_turns.end_rests(books=self.books, now=now)
        self.second_turns.close_lines(books=self.books, now=now)
        self.books.settle(now)

    def scheduler_asks(self, name: str, *, now: float) -> None:
        """A scheduler asks for a pod: if it was never heard before, pods that gave it up need not rest any longer."""
        for waiter in self.lost_turns.rests.woken(name, now=now):
            self._stand_in_line(waiter)

    # --- from state to state -----------------------------------------------------------------------------------------
    def take_as_waiting(self, pod: Pod) -> None:
        """It waits: in its line, or goes on to rest."""
        self.taking_over.forget(pod.metadata.uid)
        waiter = self._read(pod)
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

    def turn_lost(self, waiter: Waiter, *, lasted: float, now: float) -> None:
        """Its turn had room, and led to nothing."""
        self.lost_turns.lost(waiter, lasted=lasted, capacity=self.books.capacity, now=now)

    def let_in(self, waiter: Waiter, promise: Promise, *, now: float) -> Waiter:
        """Its turn has come: it is charged from now on, and waits no more; as what it is held to."""
        self.leave(waiter.uid)
        self.memory.forget(waiter.uid)
        self.growth.forget(waiter.uid)
        held = self.enrolment.held_to(waiter, node=promise.node, gpus=promise.plan.claims)
        self.inside.enter(held, way=Way.THROUGH, until=promise.until)
        self.inside.keep_off(held.uid, held.off)
        self.books.admit(held, self.enrolment.charge(held), now=now)
        self.second_turns.let_in(held, books=self.books)
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

    def _take_as_bound(self, pod: Pod) -> None:
        """From now on it is charged with what it was granted, in the queue that let it in."""
        uid = pod.metadata.uid
        self.taking_over.forget(uid)
        if self.inside.is_bound_so(pod):
            self._changed_where_it_runs(pod)
            return
        known = self.inside.coming.get(uid) or self.inside.bound.get(uid)
        waiter = known.of(pod) if known else self.enrolment.holder(pod)
        self.leave(uid)
        self.memory.forget(uid)
        self.growth.forget(uid)
        self.joined.pop(uid, None)
        self.lost_turns.placed(pod)
        if waiter:
            self.lost_turns.bound(waiter, now=self.now)
            self.inside.bind(waiter)
            self.stayers.runs(pod, now=self.now)
            self.books.put(waiter, self.enrolment.charge(waiter))
            self.gang_changed(waiter)

    def _changed_where_it_runs(self, pod: Pod) -> None:
        """It may be on the way out by now; or it was resized, and is charged with what it takes of its node now."""
        waiter = self.inside.bound[pod.metadata.uid].of(pod)
        if resized := waiter.shape.host.amounts != host_request(pod):
            waiter = self.enrolment.anew(waiter)
        self.inside.bound[waiter.uid] = waiter
        if resized:
            self.books.put(waiter, self.enrolment.charge(waiter))
        self._may_go(waiter)

    def _may_go(self, waiter: Waiter) -> None:
        """Of one that is on its way out the gang lacks somebody from then on, though it holds its card still."""
        if waiter.is_going and self.books.goes(waiter):
            self.gang_changed(waiter)

    def _read(self, pod: Pod) -> Waiter | None:
        """A pod as one that waits, behind its user's others if it has lost turns."""
        waiter, times = self.enrolment.waiter(pod), self.lost_turns.times.get(pod.metadata.uid, 0)
        return msgspec.structs.replace(waiter, lost=times) if waiter and times else waiter

    def _take_as_found(self, pod: Pod) -> None:
        self.lost_turns.claims.found(pod.metadata.uid, now=self.now)
        self.growth.found(pod, now=self.now)
        self.take_as_waiting(pod)

    def _stand_in_line(self, waiter: Waiter) -> None:
        self.leave(waiter.uid)
        self.take_as_waiting(waiter.pod)

    def _changed_on_its_way(self, pod: Pod) -> None:
        """Where it may lie is looked at again at its binding; by another right than it came in by, it waits again."""
        if self.inside.came_by_the_same_right(pod):
            self.inside.changed(pod)
            self._may_go(self.inside.coming[pod.metadata.uid])
            return
        self._left_unbound(pod.metadata.uid)
        self.release(pod.metadata.uid)
        self.take_as_waiting(pod)

    def _left_unbound(self, uid: str) -> None:
        """If its turn had room, that was for nothing."""
        if waiter := self.inside.coming.get(uid):
            lasted = self.inside.lasted(uid, now=self.now)
            self.lost_turns.left(waiter, lasted=lasted, capacity=self.books.capacity, now=self.now)

    def _join(self, waiter: Waiter) -> None:
        if why := self.enrolment.why_never(waiter):
            # It is no head any more, by this tree: no node is kept for it.
            self.memory.forget(waiter.uid)
        if why or not self.making_room.begin_for_substitute(waiter, now=self.now):
            self.hall.join(waiter, why_never=why, books=self.books)

    def _why_gang_never(self, members: Sequence[Waiter]) -> str:
        return self.enrolment.why_gang_never(members)

    def _is_next(self, pod: Pod) -> bool:
        """Whether ours is the last gate: a turn is for pods that can use it."""
        return [gate.name for gate in pod.spec.scheduling_gates] == [self.names.gate]

    def _look_anew(self) -> None:
        """Other hardware: gangs may start that could not, and more may be given for good, or beside what is kept."""
        for waiter in [one for one in self.hall if self.hall.resting(one.uid) is None]:
            if waiter.shape.firm or self.enrolment.why_never(waiter) != self.hall.why_nowhere(waiter.uid):
                self.take_as_waiting(waiter.pod)
        self.hall.look_anew(books=self.books)
        self.growth.look_anew()

    def _graft(self) -> None:
        """Other queues that count the same things: who is in holds what it did, and few wait otherwise."""
        moved = [waiter for waiter in self.hall if self._waits_otherwise(waiter)]
        self.books.graft(self._planting.tree, capacity=self.cards.stock().capacity)
        self.growth.replant(now=self.now)
        self.hall.graft([waiter.uid for waiter in moved], books=self.books)
        for waiter in moved:
            self.take_as_waiting(waiter.pod)
        self._others_may_come()

    def _waits_otherwise(self, waiter: Waiter) -> bool:
        why = self.enrolment.why_never(waiter)
        return why != self.hall.why_nowhere(waiter.uid) or self.enrolment.is_read_otherwise(waiter)

    def _replant(self) -> None:
        """Other queues or hardware: everybody is put down anew, in the states they are in."""
        self._planting.plant_anew()
        waiting = self.hall.clear()
        self.books.replant(self._planting.tree, capacity=self.cards.stock().capacity)
        self.growth.replant(now=self.now)
        for states in (self.inside.coming, self.inside.bound):
            for uid, was in states.items():
                states[uid] = self.enrolment.anew(was)
                self.books.put(states[uid], self.enrolment.charge(states[uid]))
        for waiter in waiting:
            self.take_as_waiting(waiter.pod)
        self._others_may_come()

    def _others_may_come(self) -> None:
        """By other queues: nothing of what was refused, and of what room is made for, need be so any more."""
        self.making_room.call_off_unwanted()
        self.memory.everything_changed(now=self.now)
        self.standoffs.forget()
