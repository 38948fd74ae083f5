"""In which state each pod is: it waits in a line, rests, can't wait anywhere, is let in, or is bound.

Theory of operation. The watch tells of pods, queues and namespaces, and turns (`turns.py`) of what came of them; each
moves a pod from one state to the next. Whoever is let in is charged in the books, whoever waits in a line is counted
there as asking. When other queues or other hardware make any shape come to something else, everybody is put down anew.

A pod that is found without a gate was let in by the leader before us, or passed its gate by. It is judged only when
all is known that counts against a limit: the one before us may have taken its turn back.

What must always hold: a pod is in one state; it is charged exactly if it is let in or bound, and asks only if it
stands in a line (`hall.py` says when).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from aliquot_core.names import Names
from aliquot_core.objects import Pod
from aliquot_scheduler.deciding.turns import FOUND
from aliquot_scheduler.fit.bounds import Bounds
from aliquot_scheduler.picture.picture import Picture
from aliquot_scheduler.queues.books import Books
from aliquot_scheduler.queues.cards import Cards, hardware_of
from aliquot_scheduler.queues.clearings import OVERDUE, Clearing, Clearings, longest_grace
from aliquot_scheduler.queues.dues import Hardware
from aliquot_scheduler.queues.enrolment import Enrolment
from aliquot_scheduler.queues.hall import Hall
from aliquot_scheduler.queues.inside import Inside, Way
from aliquot_scheduler.queues.line import Candidate, Waiter
from aliquot_scheduler.queues.recalling import recalled
from aliquot_scheduler.queues.refuges import Refuges
from aliquot_scheduler.queues.settings import QueueSettings
from aliquot_scheduler.queues.spec import QueueSpec
from aliquot_scheduler.queues.stale import StaleGangs
from aliquot_scheduler.queues.stayers import Stayers
from aliquot_scheduler.queues.sweep_memory import SweepMemory
from aliquot_scheduler.queues.tree import Tree, models_of, plant
from aliquot_scheduler.queues.usage import Forgetting
from aliquot_scheduler.rules.judging import Rules

# Shapes that nobody has any more are forgotten when there are so many.
_MANY_SHAPES = 20_000
# Whoever takes the place of one that was moved comes, and is let in, within so long: controllers take seconds.
_COMES = 60.0


class Register:
    """All pods that queues know of, each in its state."""

    def __init__(self, *, names: Names, picture: Picture, settings: QueueSettings, rules: Rules) -> None:
        self._names = names
        self._picture = picture
        self._settings = settings
        self._rules = rules
        self._specs: dict[str, QueueSpec] = {}
        self._homes: dict[str, str] = {}
        self._found: dict[str, Pod] = {}
        self.now = 0.0
        self.hall = Hall(why_never=self._why_gang_never)
        self.inside = Inside(names=names)
        # How often a turn of theirs has led to nothing, or could not be told; since when those wait who do.
        self.lost: dict[str, int] = {}
        self.untold: dict[str, int] = {}
        self.joined: dict[str, float] = {}
        self.stale = StaleGangs(after=settings.stale_gang)
        self.clearings = Clearings(picture=picture)
        self.refuges = Refuges(picture=picture)
        self.stayers = Stayers(picture=picture, after=settings.hold)
        self.memory = SweepMemory(patience=settings.patience, hold=settings.hold, owed=settings.owed)
        self._hardware = Hardware()
        tree = plant(self._specs)
        self.cards = Cards(picture=picture, dimensions=tree.dimensions, rules=rules)
        self.enrolment = self._enrolling(tree)
        self.forgetting = Forgetting(half_life=settings.half_life, penalty=settings.penalty)
        self.books = Books(tree=tree, forgetting=self.forgetting)
        # Whether all was known once, with what the leader before us kept.
        self.has_recalled = False
        # As of which look at the hardware gangs were judged.
        self._looks = 0

    def __contains__(self, uid: str) -> bool:
        """Whether anything is known of a pod."""
        return uid in self.hall or uid in self.inside or uid in self._found or uid in self.lost

    @property
    def plain(self) -> bool:
        """Whether there are no queues, so that nothing that is said of them means anything."""
        return not self._specs

    def waiting(self) -> list[Waiter]:
        """All who wait, wherever, and those of whom it is not judged yet whether they do."""
        found = (self.enrolment.waiter(pod) for pod in self._found.values())
        return [*self.hall, *(waiter for waiter in found if waiter)]

    # --- what is seen ------------------------------------------------------------------------------------------------
    def queues_seen(self, specs: Mapping[str, QueueSpec]) -> None:
        """These are all queues there are now."""
        if dict(specs) != self._specs:
            self._specs = dict(specs)
            self._replant()

    def namespace_seen(self, name: str, *, queue: str) -> None:
        """A namespace's own queue, by its label; empty if it names none, or is gone."""
        if self._homes.get(name, "") == queue:
            return
        self._homes[name] = queue
        if not queue:
            del self._homes[name]
        for waiter in self.hall.of_namespace(name):
            self.take_as_waiting(waiter.pod)

    def pod_seen(self, pod: Pod) -> None:
        """A pod is there, or is changed."""
        uid = pod.metadata.uid
        if pod.ended:
            if pod.status.phase == "Succeeded" and (waiter := self.enrolment.waiter(pod)):
                self.stale.done(waiter)
            self.pod_gone(uid)
        elif pod.spec.node_name:
            self._take_as_bound(pod)
        elif uid in self.inside:
            if uid in self.inside.coming:
                self.inside.changed(pod)
        elif pod.metadata.deletion_timestamp:
            self.pod_gone(uid)
        elif self._is_next(pod) or uid in self.hall or uid in self.lost:
            self.take_as_waiting(pod)
        elif not pod.spec.scheduling_gates:
            self._found[uid] = pod

    def pod_gone(self, uid: str) -> None:
        """A pod needs no turn any more, and holds nothing."""
        self.leave(uid)
        if not self.clearings.was_asked(uid):
            # It has ended by itself, so nobody comes in its place.
            self.refuges.close(uid)
        self.clearings.gone(uid)
        self.stayers.gone(uid)
        self.memory.forget(uid)
        for notes in (self._found, self.lost, self.untold, self.joined):
            notes.pop(uid, None)
        if uid in self.inside.bound:
            self.stale.lost(self.inside.bound[uid])
        self.release(uid)

    def tell_time(self, now: float) -> None:
        """It is so late: who has rested long enough joins the line again."""
        self.now = now
        outdated = self.enrolment.outdated() or self.cards.registered > _MANY_SHAPES + 4 * len(self.hall)
        if outdated or (self._looks != self.enrolment.looks and self._grows_otherwise()):
            self._replant()
        elif self._looks != self.enrolment.looks:
            self._look_anew()
        self._looks = self.enrolment.looks
        if not self.has_recalled:
            self._recall()
        self.judge_found()
        self.refuges.tell_time(now)
        self.stayers.tell_time(now)
        for waiter in self.hall.rested(now):
            self.leave(waiter.uid)
            self.take_as_waiting(waiter.pod)
        self.books.capacity = self.cards.stock().capacity
        self.books.settle(now)

    # --- from state to state -----------------------------------------------------------------------------------------
    def take_as_waiting(self, pod: Pod) -> None:
        """It waits: in its line, or goes on to rest."""
        self._found.pop(pod.metadata.uid, None)
        waiter = self.enrolment.waiter(pod)
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
        if waiter := self.enrolment.waiter(pod):
            self.hall.rest(waiter, until=until, books=self.books)

    def clear(self, clearing: Clearing) -> None:
        """Room is made for some who wait in a line: they rest until it is there."""
        self.clearings.make(clearing)
        self.refuges.open(clearing.moves, until=clearing.until + _COMES)
        for place in clearing.places:
            self.hall.rest(place.waiter, until=clearing.until, books=self.books)

    def why_unwanted(self, clearing: Clearing, *, closely: bool = True) -> str:
        """Why the room is of no use; empty if all for whom it was made rest for it still, and may come.

        With every event it is asked only whether they rest there still: the rest is slower by far.
        """
        nodes, ledger = self.books.ledger.tree.nodes, self.books.ledger
        for place in clearing.places:
            waiter = self.hall.resting(place.waiter.uid)
            if waiter is None:
                return "one of those for whom it was made is gone"
            if waiter.queue != place.waiter.queue:
                return f"it waits in queue {waiter.queue} now"
            if not closely:
                continue
            if why := self.enrolment.why_never(waiter, ledger=ledger):
                return why
            if nodes[waiter.queue].stop:
                return f"queue {waiter.queue} lets nobody in"
        return ""

    def call_off(self, clearing: Clearing) -> None:
        """It is not made any more: whoever rests for it stands in line again. So do those who had counted on it."""
        self._let_stand_in_line(clearing)
        self.call_off_vain()

    def vain(self) -> Iterator[Clearing]:
        """What will not be there though all go who were asked to, or are to be; ask no further once one is dropped."""
        leaving = self._leaving() if len(self.clearings) else frozenset[str]()
        return (one for one in self.clearings if not self.clearings.comes_true(one, leaving=leaving))

    def call_off_vain(self) -> None:
        """Of others and of the leader before us."""
        while (one := next(self.vain(), None)) is not None:
            self._let_stand_in_line(one)

    def _let_stand_in_line(self, clearing: Clearing) -> None:
        self.clearings.drop(clearing)
        for place in clearing.moves:
            if place.waiter.uid in self.inside.bound and not self.clearings.was_asked(place.waiter.uid):
                self.refuges.close(place.waiter.uid)
        for place in clearing.places:
            if (waiter := self.hall.resting(place.waiter.uid)) is not None:
                self.leave(waiter.uid)
                self.take_as_waiting(waiter.pod)

    def _leaving(self) -> set[str]:
        bound = self.inside.bound.items()
        ending = {uid for uid, one in bound if one.pod.metadata.deletion_timestamp or self.clearings.was_asked(uid)}
        return ending | self.clearings.victims() | self.refuges.movers()

    def let_in(self, waiter: Waiter, *, until: float, now: float) -> None:
        """Its turn has come: it is charged from now on, and waits no more."""
        self.leave(waiter.uid)
        self.memory.forget(waiter.uid)
        self.inside.enter(waiter, way=Way.THROUGH, until=until)
        self.books.admit(waiter, self.enrolment.charge(waiter), now=now)

    def show(self, waiter: Waiter, *, until: float) -> None:
        """It is seen by whoever makes clusters larger: charged, since quota has to allow it, and not as used."""
        self.leave(waiter.uid)
        self.inside.enter(waiter, way=Way.SHOWN, until=until)
        self.books.put(waiter, self.enrolment.charge(waiter))

    def unshow(self) -> dict[str, float]:
        """Let those who are shown stand in line with all others; until when each was to be shown."""
        shown = self.inside.shown()
        until = {waiter.uid: self.inside.until(waiter.uid) for waiter in shown}
        for waiter in shown:
            self.release(waiter.uid)
            self._join(waiter)
        return until

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
        """Another number of its gang is in."""
        self.hall.gang_changed(waiter, books=self.books)

    def _recall(self) -> None:
        """Keep what the leader before us kept, now that all is known; nobody had a turn of us yet."""
        self.has_recalled = True
        if self.plain:
            return
        in_line = [waiter for line in self.hall.lines.values() for waiter in line]
        # Without a gate, but not bound: the leader before us died when it had let them in.
        on_their_way = [waiter for pod in self._found.values() if (waiter := self.enrolment.waiter(pod))]
        bound = self.inside.bound.values()
        going = (one for one in bound if one.pod.metadata.deletion_timestamp)
        until = self.now + longest_grace(going) + OVERDUE
        for clearing in recalled([*in_line, *on_their_way], bound=bound, word=self._names.room, until=until):
            for place in clearing.places:
                self._found.pop(place.waiter.uid, None)
            self.clear(clearing)

    def judge_found(self) -> None:
        """Who was let in by another leader goes on, as far as limits allow: the one before may have taken it back."""
        for pod in sorted(self._found.values(), key=_age):
            if self.adopt(pod):
                self.take_as_waiting(pod)
        self._found.clear()

    def adopt(self, pod: Pod) -> str:
        """Take a pod that has no gate as let in; or why not."""
        waiter = self.enrolment.holder(pod)
        if waiter is None:
            return ""
        ledger = self.books.ledger
        was_in = self._names.charged in pod.metadata.annotations
        if why := self.enrolment.why_never(waiter, ledger=ledger, was_in=was_in):
            return why
        if over := ledger.over(waiter.queue, waiter.amounts):
            return f"it would be over the limit of queue {over[0].node.name}"
        self.inside.enter(waiter, way=Way.ADOPTED, until=self.now + FOUND)
        if waiter.off:
            self.inside.bounds[waiter.uid] = Bounds(off=waiter.off)
        self.books.put(waiter, self.enrolment.charge(waiter))
        self.gang_changed(waiter)
        return ""

    def _take_as_bound(self, pod: Pod) -> None:
        """From now on it is charged with what it was granted, in the queue that let it in."""
        uid = pod.metadata.uid
        self._found.pop(uid, None)
        if self.inside.is_bound_so(pod):
            # It may be on the way out by now.
            self.inside.bound[uid] = self.inside.bound[uid].of(pod)
            return
        known = self.inside.coming.get(uid) or self.inside.bound.get(uid)
        waiter = known.of(pod) if known else self.enrolment.holder(pod)
        self.leave(uid)
        self.memory.forget(uid)
        for notes in (self.lost, self.untold, self.joined):
            notes.pop(uid, None)
        if waiter:
            self.inside.bind(waiter)
            self.stayers.runs(pod, now=self.now)
            self.books.put(waiter, self.enrolment.charge(waiter))
            self.gang_changed(waiter)

    def _join(self, waiter: Waiter) -> None:
        why = self.enrolment.why_never(waiter, ledger=self.books.ledger)
        if not why and len(self.refuges) and (place := self.refuges.taken_by(waiter)):
            alone = Candidate(members=(waiter,), amounts=waiter.amounts)
            self.clear(Clearing(candidate=alone, places=(place,), victims=(), until=self.now + _COMES))
            return
        self.hall.join(waiter, why_never=why, books=self.books)

    def _why_gang_never(self, members: Sequence[Waiter]) -> str:
        return self.enrolment.why_gang_never(members, ledger=self.books.ledger)

    def _is_next(self, pod: Pod) -> bool:
        """Whether ours is the last gate: a turn is for pods that can use it."""
        return [gate.name for gate in pod.spec.scheduling_gates] == [self._names.gate]

    def _look_anew(self) -> None:
        """Other hardware: gangs may start that could not, and more may be given for good, or less."""
        for waiter in [one for one in self.hall if one.shape.firm and self.hall.resting(one.uid) is None]:
            self.take_as_waiting(waiter.pod)
        self.hall.look_anew(books=self.books)

    def _hardware_now(self) -> Hardware:
        return hardware_of(self._picture, models_of(self._specs))

    def _grows_otherwise(self) -> bool:
        """Whether of other hardware queues are due something else."""
        hardware = self._hardware_now()
        if hardware == self._hardware:
            return False
        self._hardware = hardware
        return plant(self._specs, hardware=hardware) != self.books.ledger.tree

    # --- what changes everything -------------------------------------------------------------------------------------
    def _enrolling(self, tree: Tree) -> Enrolment:
        return Enrolment(
            names=self._names,
            cards=self.cards,
            tree=tree,
            homes=self._homes,
            user_label=self._settings.user_label,
            plain=self.plain,
        )

    def _replant(self) -> None:
        """Other queues or hardware: everybody is put down anew, in the states they are in."""
        self._hardware = self._hardware_now()
        tree = plant(self._specs, hardware=self._hardware)
        self.cards = Cards(picture=self._picture, dimensions=tree.dimensions, rules=self._rules)
        self.enrolment = self._enrolling(tree)
        waiting = self.hall.clear()
        self.books.replant(tree)
        for states in (self.inside.coming, self.inside.bound):
            for uid, was in states.items():
                states[uid] = self.enrolment.anew(was)
                self.books.put(states[uid], self.enrolment.charge(states[uid]))
        for waiter in waiting:
            self.take_as_waiting(waiter.pod)
        for clearing in self.clearings:
            if self.why_unwanted(clearing):
                self.call_off(clearing)
        self.clearings.read_anew(self.hall.resting)
        self.memory.somebody_is_impatient = not self.plain
        self.memory.everything_changed()


def _age(pod: Pod) -> tuple[str, str]:
    return pod.metadata.creation_timestamp or "", pod.metadata.uid
