"""Whose turn it is, by queues; where there are none, whoever came first.

Theory of operation. Each pod is in one state: it waits in a line; it rests, because its turn led to nothing; it was
let in, and is on its way or bound (`inside.py`); or it can't wait anywhere, and is told why. Whoever is let in is
charged in the ledger, whoever waits in a line is counted there as asking. A round of turns goes through the candidates
in their order; each is let in if the rules allow it and cards are found, or passed over for this round. What no card
was found for is not asked again until the cards change.

A gate that was lifted can't be put back. So a pod that was let in and found no node within its promise's time (its CPU
is nowhere free, say) loses its turn: room and quota go to others, the extender refuses the pod, and after a while that
grows with each time it gets a new turn. kube-scheduler is told of that by a change of the pod; by itself it would look
again after five minutes.

What must always hold:
 1. A pod is in one state; it is charged exactly if it is let in or bound, and asks exactly if it stands in a line.
 2. By an admission no queue comes over its ceiling, and nothing is taken that is held back for others.
 3. Of a gang all that are needed are let in at the same instant, or none.
 4. The same events make the same decisions, whatever order dictionaries are in.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping

from aliquot_core.backoff import Backoff, Random
from aliquot_core.names import Names
from aliquot_core.objects import Pod
from aliquot_scheduler.deciding.promises import Promise
from aliquot_scheduler.deciding.turns import FOUND, MOST_AT_ONCE, Rooms, Turn
from aliquot_scheduler.fit.bounds import ANYWHERE, Bounds
from aliquot_scheduler.picture.picture import Picture
from aliquot_scheduler.queues.books import Books
from aliquot_scheduler.queues.cards import Cards, Stock
from aliquot_scheduler.queues.enrolment import Enrolment
from aliquot_scheduler.queues.gangs import Placing
from aliquot_scheduler.queues.hall import Hall
from aliquot_scheduler.queues.inside import Inside, Way
from aliquot_scheduler.queues.line import Waiter
from aliquot_scheduler.queues.memory import Memory
from aliquot_scheduler.queues.notices import Notice, notice_of
from aliquot_scheduler.queues.report import recall, statuses
from aliquot_scheduler.queues.rules import Cause, Refusal
from aliquot_scheduler.queues.settings import QueueSettings
from aliquot_scheduler.queues.spec import QueueSpec
from aliquot_scheduler.queues.stale import StaleGangs
from aliquot_scheduler.queues.status import QueueStatus
from aliquot_scheduler.queues.sweep import Sweep
from aliquot_scheduler.queues.tree import Tree, plant
from aliquot_scheduler.queues.usage import Forgetting

_AGAIN = Backoff(first=5.0, longest=300.0)
_TELL_AGAIN = Backoff(first=1.0, longest=60.0)
# A longer number on a pod is not ours.
_LONGEST_COUNT = 10
_MINUTE = 60.0
# Shapes that nobody has any more are forgotten when there are so many.
_MANY_SHAPES = 20_000


class Queues:
    """The order of turns."""

    def __init__(
        self,
        *,
        names: Names,
        random: Random,
        picture: Picture,
        settings: QueueSettings = QueueSettings(),  # noqa: B008 - frozen
    ) -> None:
        self._names = names
        self._random = random
        self._picture = picture
        self._settings = settings
        self._specs: dict[str, QueueSpec] = {}
        self._homes: dict[str, str] = {}
        self._hall = Hall()
        self._inside = Inside(names=names)
        # Found without a gate, and not judged yet: first all is to be known that counts against a limit.
        self._found: dict[str, Pod] = {}
        self._lost: dict[str, int] = {}
        # Since when those wait who do; how many were let in, and how long they waited together, by queue.
        self._joined: dict[str, float] = {}
        self.waits: dict[str, tuple[int, float]] = {}
        self._stale = StaleGangs(after=settings.stale_gang)
        self._untold: deque[Turn] = deque()
        self._untold_times: dict[str, int] = {}
        self._memory = Memory(patience=settings.patience, hold=settings.hold)
        self._now = 0.0
        tree = plant(self._specs)
        self._cards = Cards(picture=picture, dimensions=tree.dimensions)
        self._enrolment = self._enrolling(tree)
        self._forgetting = Forgetting(half_life=settings.half_life, penalty=settings.penalty)
        self.books = Books(tree=tree, forgetting=self._forgetting)

    def __len__(self) -> int:
        """How many wait."""
        return len(self._hall)

    def __contains__(self, uid: str) -> bool:
        """Whether anything is known of a pod."""
        return uid in self._hall or uid in self._inside or uid in self._found or uid in self._lost

    def waiting(self) -> list[Waiter]:
        """All who wait, wherever, and those of whom it is not judged yet whether they do."""
        found = (self._enrolment.waiter(pod) for pod in self._found.values())
        return [*self._hall, *(waiter for waiter in found if waiter)]

    def is_in_line(self, uid: str) -> bool:
        """Whether a pod stands in a line, and so asks."""
        return self._hall.stands(uid)

    def stock(self) -> Stock:
        """What there is, and what of it is free."""
        return self._cards.stock()

    def under_way(self) -> list[Waiter]:
        """All who are let in and not bound yet."""
        return list(self._inside.coming.values())

    # --- queues and namespaces ---------------------------------------------------------------------------------------
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
        for waiter in self._hall.of_namespace(name):
            self._take_as_waiting(waiter.pod)

    # --- pods --------------------------------------------------------------------------------------------------------
    def pod_seen(self, pod: Pod) -> None:
        """A pod is there, or is changed."""
        uid = pod.metadata.uid
        if pod.ended:
            if pod.status.phase == "Succeeded" and (waiter := self._enrolment.waiter(pod)):
                self._stale.done(waiter)
            self.pod_gone(uid)
        elif pod.spec.node_name:
            self._take_as_bound(pod)
        elif uid in self._inside:
            if uid in self._inside.coming:
                self._inside.changed(pod)
        elif pod.metadata.deletion_timestamp:
            self.pod_gone(uid)
        elif self._is_next(pod) or uid in self._hall or uid in self._lost:
            self._take_as_waiting(pod)
        elif not pod.spec.scheduling_gates:
            self._found[uid] = pod

    def pod_gone(self, uid: str) -> None:
        """A pod needs no turn any more, and holds nothing."""
        self._leave(uid)
        self._memory.forget(uid)
        for notes in (self._found, self._lost, self._untold_times, self._joined):
            notes.pop(uid, None)
        if uid in self._inside.bound:
            self._stale.lost(self._inside.bound[uid])
        self._release(uid)

    def promised(self, promise: Promise) -> None:
        """Room was found for a pod that kube-scheduler has in hand, and no longer than it would for a turn of ours."""
        uid = promise.pod.metadata.uid
        if self._inside.way(uid) is Way.ADOPTED:
            self._inside.enter(self._inside.coming[uid], way=Way.THROUGH, until=promise.until)

    def missed(self, pod: Pod, *, now: float) -> None:
        """A turn has led to nothing: no binding in time, or no room any more."""
        uid = pod.metadata.uid
        if self._inside.is_unasked(uid, now=now):
            # kube-scheduler did not come for it, so it lost nothing; it is to be woken.
            self._release(uid)
            self._take_as_waiting(pod)
        elif self._turn_over(uid):
            self._lost[uid] = self._lost.get(uid, 0) + 1
            self._rest(pod, until=now + _AGAIN.delay(failures=self._lost[uid], random=self._random))

    def not_told(self, pod: Pod, *, now: float) -> None:
        """The pod could not be told of its turn: the next try comes later, since others may be told."""
        uid = pod.metadata.uid
        if self._turn_over(uid):
            self._untold_times[uid] = self._untold_times.get(uid, 0) + 1
            wait = _TELL_AGAIN.delay(failures=self._untold_times[uid], random=self._random)
            self._rest(pod, until=now + wait)

    def overdue(self, now: float) -> list[str]:
        """Whose turns have lasted too long (UIDs)."""
        self._now = now
        return self._inside.late(now)

    def why_not(self, pod: Pod) -> str:
        """Why it is not the pod's turn; empty if it is."""
        uid = pod.metadata.uid
        self._judge_found()
        if uid not in self:
            # The watch is behind; or ahead, and the pod is gone.
            return self._adopt(pod)
        if self._inside.way(uid) is Way.SHOWN:
            return "it is let in by its queue, and waits for room on a card"
        if uid not in self._hall:
            return ""
        if uid in self._lost:
            return f"its turn led to no binding ({self._lost[uid]} times); it gets a new one"
        return self._hall.why_nowhere(uid) or "it waits for its turn"

    def bounds(self, pod: Pod) -> Bounds:
        """Where alone a pod may lie whose turn it is."""
        return self._inside.bounds.get(pod.metadata.uid, ANYWHERE)

    def notice(self, waiter: Waiter) -> Notice:
        """Why somebody waits, in a word and a sentence."""
        uid = waiter.uid
        if uid in self._lost and self._hall.rests_until(uid) is not None:
            return Notice(reason="TurnLost", message=self.why_not(waiter.pod))
        if why := self._hall.why_nowhere(uid):
            return Notice(reason="NeverFits", message=why)
        said = self._memory.why(waiter.queue, (waiter.user, waiter.number))
        if said is None and not self._cards.fitting()[waiter.number]:
            said = Refusal(cause=Cause.CARDS)
        return notice_of(waiter, said, ledger=self.books.ledger)

    def statuses(self, *, now: float, at: str) -> dict[str, QueueStatus]:
        """Of every queue."""
        return statuses(self.books, waiting=self._hall, at=at, now=now)

    def recall(self, told: Mapping[str, QueueStatus], *, wall: float, now: float) -> None:
        """What the leader before us has put down of usage."""
        known = {name: status for name, status in told.items() if name in self.books.ledger.tree.nodes}
        recall(self.books, known, forgetting=self._forgetting, wall=wall, now=now)

    def stale_gangs(self, *, now: float) -> list[Pod]:
        """Who is to be sent back, because its gang can't run."""
        return self._stale.due(let_in=self.books.let_in, bound=self._inside.bound, waiting=self._hall, now=now)

    # --- turns -------------------------------------------------------------------------------------------------------
    def turns(self, rooms: Rooms, *, now: float) -> Iterator[Turn]:
        """Let through whoever can be; each turn is to be carried out by the caller, who may stop asking at any time."""
        self._tell_time(now)
        yield from self._untold_turns()
        if self._inside.under_way >= MOST_AT_ONCE:
            return
        sweep = self._sweep(rooms, now=now)
        self._bring_in_shown(sweep, now=now)
        yield from self._untold_turns()
        yield from self._swept(sweep, now=now)
        while sweep.again and self._inside.under_way < MOST_AT_ONCE:
            sweep = self._sweep(rooms, now=now)
            yield from self._swept(sweep, now=now)

    def _swept(self, sweep: Sweep, *, now: float) -> Iterator[Turn]:
        for candidate, promises in sweep.let_in():
            for number, member in enumerate(candidate.members):
                self._let_in(member, promises[number] if promises else None, now=now)
            self._gang_changed(candidate.first)
            yield from self._untold_turns()
            if self._inside.under_way >= MOST_AT_ONCE:
                return

    def _sweep(self, rooms: Rooms, *, now: float) -> Sweep:
        placing = Placing(
            picture=self._picture,
            cards=self._cards,
            rooms=rooms,
            let_in=self.books.let_in,
            bounds=self._inside.bounds,
            now=now,
        )
        return Sweep(
            books=self.books, hall=self._hall, cards=self._cards, memory=self._memory, placing=placing, now=now
        )

    def _bring_in_shown(self, sweep: Sweep, *, now: float) -> None:
        """Those for whom there was no room come first when there is: they were let in before the others."""
        for waiter in self._inside.shown():
            charge = self.books.ledger.of(waiter.uid)
            self.books.release(waiter.uid)
            promise = sweep.bring_in(waiter)
            if promise is not None:
                self._let_in(waiter, promise, now=now)
            elif charge is not None:
                self.books.put(waiter, charge)

    def _let_in(self, waiter: Waiter, promise: Promise | None, *, now: float) -> None:
        uid = waiter.uid
        self._leave(uid)
        self._memory.forget(uid)
        count, waited = self.waits.get(waiter.queue, (0, 0.0))
        self.waits[waiter.queue] = count + 1, waited + max(0.0, now - self._joined.pop(uid, now))
        shown = _MINUTE * self.books.ledger.tree.nodes[waiter.queue].spec.autoscale_minutes
        until, way = (promise.until, Way.THROUGH) if promise else (now + shown, Way.SHOWN)
        self._inside.enter(waiter, way=way, until=until)
        self.books.admit(waiter, self._enrolment.charge(waiter), now=now)
        number = max(self._turns_had(waiter.pod), self._lost.get(uid, 0)) + 1
        self._untold.append(Turn(pod=waiter.pod, promise=promise, number=number))

    def _untold_turns(self) -> Iterator[Turn]:
        """All of a gang are told, even if the caller stops asking in the middle of it."""
        while self._untold:
            turn = self._untold.popleft()
            if turn.pod.metadata.uid in self._inside.coming:
                yield turn

    # --- how pods come and go ----------------------------------------------------------------------------------------
    def _is_next(self, pod: Pod) -> bool:
        """Whether ours is the last gate: a turn is for pods that can use it."""
        return [gate.name for gate in pod.spec.scheduling_gates] == [self._names.gate]

    def _turns_had(self, pod: Pod) -> int:
        """As the pod says: another leader may have given them, and only another number is a change of the pod."""
        text = pod.metadata.annotations.get(self._names.turn, "")
        return int(text) if text.isascii() and text.isdigit() and len(text) < _LONGEST_COUNT else 0

    def _turn_over(self, uid: str) -> Waiter | None:
        """It is let in no more; a pod that is bound meanwhile goes on being charged."""
        return self._release(uid) if uid in self._inside.coming else None

    def _rest(self, pod: Pod, *, until: float) -> None:
        if waiter := self._enrolment.waiter(pod):
            self._hall.rest(waiter, until=until, ledger=self.books.ledger)

    def _take_as_waiting(self, pod: Pod) -> None:
        self._found.pop(pod.metadata.uid, None)
        waiter = self._enrolment.waiter(pod)
        self._joined.setdefault(pod.metadata.uid, self._now)
        until = self._hall.rests_until(pod.metadata.uid)
        if waiter is None:
            self._leave(pod.metadata.uid)
        elif until is not None:
            self._hall.rest(waiter, until=until, ledger=self.books.ledger)
        else:
            self._join(waiter)

    def _take_as_bound(self, pod: Pod) -> None:
        """From now on it is charged with what it was granted, in the queue that let it in."""
        uid = pod.metadata.uid
        self._found.pop(uid, None)
        if self._inside.is_bound_so(pod):
            return
        known = self._inside.coming.get(uid) or self._inside.bound.get(uid)
        waiter = known.of(pod) if known else self._enrolment.waiter(pod)
        self._leave(uid)
        self._memory.forget(uid)
        for notes in (self._lost, self._untold_times, self._joined):
            notes.pop(uid, None)
        if waiter:
            self._inside.bind(waiter)
            self.books.put(waiter, self._enrolment.charge(waiter))
            self._gang_changed(waiter)

    def _judge_found(self) -> None:
        """Who was let in by another leader goes on, as far as limits allow: the one before may have taken it back."""
        for pod in sorted(self._found.values(), key=_age):
            if self._adopt(pod):
                self._take_as_waiting(pod)
        self._found.clear()

    def _adopt(self, pod: Pod) -> str:
        """Take a pod that has no gate as let in; or why not."""
        waiter = self._enrolment.waiter(pod)
        if waiter is None:
            return ""
        ledger = self.books.ledger
        if why := self._enrolment.why_never(waiter, ledger=ledger):
            return why
        if over := ledger.over(waiter.queue, waiter.amounts):
            return f"it would be over the limit of queue {over[0].node.name}"
        self._inside.enter(waiter, way=Way.ADOPTED, until=self._now + FOUND)
        self.books.put(waiter, self._enrolment.charge(waiter))
        self._gang_changed(waiter)
        return ""

    def _join(self, waiter: Waiter) -> None:
        ledger = self.books.ledger
        self._hall.join(waiter, why_never=self._enrolment.why_never(waiter, ledger=ledger), ledger=ledger)

    def _leave(self, uid: str) -> None:
        self._hall.leave(uid, ledger=self.books.ledger)

    def _release(self, uid: str) -> Waiter | None:
        """It is let in no more, and charged with nothing."""
        self._inside.leave(uid)
        waiter = self.books.release(uid)
        if waiter:
            self._gang_changed(waiter)
        return waiter

    def _gang_changed(self, waiter: Waiter) -> None:
        if waiter.group and waiter.queue in self._hall.lines:
            self._hall.lines[waiter.queue].changed(waiter)

    # --- time, and what changes everything ---------------------------------------------------------------------------
    def _tell_time(self, now: float) -> None:
        self._now = now
        if self._enrolment.outdated() or self._cards.registered > _MANY_SHAPES + 4 * len(self._hall):
            self._replant()
        self._judge_found()
        for waiter in self._hall.rested(now):
            self._leave(waiter.uid)
            self._take_as_waiting(waiter.pod)
        self.books.capacity = self._cards.stock().capacity
        self.books.settle(now)

    def _enrolling(self, tree: Tree) -> Enrolment:
        return Enrolment(
            names=self._names,
            cards=self._cards,
            tree=tree,
            homes=self._homes,
            user_label=self._settings.user_label,
            plain=not self._specs,
        )

    def _replant(self) -> None:
        """Other queues or hardware: everybody is put down anew, in the states they are in."""
        tree = plant(self._specs)
        self._cards = Cards(picture=self._picture, dimensions=tree.dimensions)
        self._enrolment = self._enrolling(tree)
        waiting = self._hall.clear()
        self.books.replant(tree)
        for states in (self._inside.coming, self._inside.bound):
            for uid, was in states.items():
                now = self._enrolment.waiter(was.pod) or was
                states[uid] = now.moved(was.queue)
                self.books.put(states[uid], self._enrolment.charge(states[uid]))
        for waiter in waiting:
            self._take_as_waiting(waiter.pod)
        self._memory.somebody_is_impatient = bool(self._specs)
        self._memory.everything_changed()


def _age(pod: Pod) -> tuple[str, str]:
    return pod.metadata.creation_timestamp or "", pod.metadata.uid
