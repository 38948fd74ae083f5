"""Whose turn it is, by queues: the same questions and answers as first come, first served.

Theory of operation. Each pod is in one state: it waits in a line; it rests, because its turn led to nothing; it is let
in, and not bound yet; it is bound; or it can't wait anywhere, and is told why. Whoever is let in or bound is charged in
the ledger, whoever waits in a line is counted there as asking. A round of turns goes through the candidates in their
order; each is let in if the rules allow it and cards are found, or passed over for this round. What no card was found
for is not asked again until the cards change.

What must always hold:
 1. A pod is in one state; it is charged exactly if it is let in or bound, and asks exactly if it stands in a line.
 2. By an admission no queue comes over its ceiling, and nothing is taken that is held back for others.
 3. Of a gang all that are needed are let in at the same instant, or none.
 4. The same events make the same decisions, whatever order dictionaries are in.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from typing import Annotated

import msgspec

from aliquot_core.backoff import Backoff, Random
from aliquot_core.names import Names
from aliquot_core.objects import Pod
from aliquot_scheduler.deciding.first_come import FOUND, MOST_AT_ONCE, Promising, Turn
from aliquot_scheduler.deciding.promises import Promise
from aliquot_scheduler.picture.picture import Picture
from aliquot_scheduler.queues.books import Books
from aliquot_scheduler.queues.cards import Cards
from aliquot_scheduler.queues.enrolment import Enrolment
from aliquot_scheduler.queues.hall import Hall
from aliquot_scheduler.queues.line import Waiter
from aliquot_scheduler.queues.spec import QueueSpec
from aliquot_scheduler.queues.sweep import Memory, Sweep
from aliquot_scheduler.queues.tree import Tree, plant
from aliquot_scheduler.queues.usage import Forgetting

_AGAIN = Backoff(first=5.0, longest=300.0)
_TELL_AGAIN = Backoff(first=1.0, longest=60.0)
# A longer number on a pod is not ours.
_LONGEST_COUNT = 10


class QueueSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What an operator may set."""

    # How long those behind may pass the head of a line that does not fit.
    patience: Annotated[float, msgspec.Meta(ge=0, le=7 * 86_400)] = 300.0
    half_life: Annotated[float, msgspec.Meta(gt=0, le=366 * 86_400)] = 86_400.0
    penalty: Annotated[float, msgspec.Meta(gt=0, le=86_400)] = 60.0
    # The label that says whose a pod is; without it, the namespace is the user.
    user_label: str = ""


class Queues:
    """The order of turns by queues."""

    def __init__(
        self,
        *,
        names: Names,
        random: Random,
        picture: Picture,
        take_back: Callable[[str], None],
        settings: QueueSettings = QueueSettings(),  # noqa: B008 - frozen
    ) -> None:
        """`take_back` gives up what was promised to a pod of a gang that is not let in after all."""
        self._names = names
        self._random = random
        self._picture = picture
        self._take_back = take_back
        self._settings = settings
        self._specs: dict[str, QueueSpec] = {}
        self._homes: dict[str, str] = {}
        self._hall = Hall()
        self._lost: dict[str, int] = {}
        # Let in and not bound yet; bound.
        self._through: dict[str, Waiter] = {}
        self._bound: dict[str, Waiter] = {}
        # Until when those have to be bound who are not.
        self._until: dict[str, float] = {}
        self._untold: deque[Turn] = deque()
        self._untold_times: dict[str, int] = {}
        self._memory = Memory(patience=settings.patience)
        self._now = 0.0
        tree = plant(self._specs)
        self._cards = Cards(picture=picture, dimensions=tree.dimensions)
        self._enrolment = self._enrolling(tree)
        forgetting = Forgetting(half_life=settings.half_life, penalty=settings.penalty)
        self.books = Books(tree=tree, forgetting=forgetting)

    def __len__(self) -> int:
        return len(self._hall)

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
        self._replant()

    # --- pods --------------------------------------------------------------------------------------------------------
    def pod_seen(self, pod: Pod) -> None:
        """A pod is there, or is changed."""
        uid = pod.metadata.uid
        if pod.ended:
            self.pod_gone(uid)
        elif pod.spec.node_name:
            self._take_as_bound(pod)
        elif uid in self._through:
            return
        elif pod.metadata.deletion_timestamp:
            self.pod_gone(uid)
        elif self._is_next(pod) or uid in self._hall or uid in self._lost:
            self._take_as_waiting(pod)
        elif not pod.spec.scheduling_gates:
            self._adopt(pod, until=self._now + FOUND)

    def pod_gone(self, uid: str) -> None:
        """A pod needs no turn any more, and holds nothing."""
        self._leave(uid)
        self._memory.forget(uid)
        self._lost.pop(uid, None)
        self._untold_times.pop(uid, None)
        self._release(uid)

    def promised(self, promise: Promise) -> None:
        """Room was found for a pod that kube-scheduler has in hand."""
        uid = promise.pod.metadata.uid
        if uid not in self._through and uid not in self._bound and uid not in self._hall:
            self._adopt(promise.pod, until=promise.until)

    def missed(self, pod: Pod, *, now: float) -> None:
        """A turn has led to nothing: no binding in time, or no room any more."""
        uid = pod.metadata.uid
        if waiter := self._turn_over(uid):
            self._lost[uid] = self._lost.get(uid, 0) + 1
            wait = _AGAIN.delay(failures=self._lost[uid], random=self._random)
            self._hall.rest(waiter, until=now + wait, ledger=self.books.ledger)

    def not_told(self, pod: Pod, *, now: float) -> None:
        """The pod could not be told of its turn: the next try comes later, since others may be told."""
        uid = pod.metadata.uid
        if waiter := self._turn_over(uid):
            self._untold_times[uid] = self._untold_times.get(uid, 0) + 1
            wait = _TELL_AGAIN.delay(failures=self._untold_times[uid], random=self._random)
            self._hall.rest(waiter, until=now + wait, ledger=self.books.ledger)

    def overdue(self, now: float) -> list[str]:
        """Whose turns have lasted too long (UIDs)."""
        self._now = now
        return [uid for uid, until in self._until.items() if until <= now]

    def why_not(self, pod: Pod) -> str:
        """Why it is not the pod's turn; empty if it is."""
        uid = pod.metadata.uid
        if uid not in self._hall:
            return ""
        if uid in self._lost:
            return f"its turn led to no binding ({self._lost[uid]} times); it gets a new one"
        return self._hall.why_nowhere(uid) or "it waits for its turn"

    def next_chance(self) -> float | None:
        """When the first pod that rests may have another turn."""
        return self._hall.next_alarm()

    # --- turns -------------------------------------------------------------------------------------------------------
    def turns(self, promising: Promising, *, now: float) -> Iterator[Turn]:
        """Let through whoever can be; each turn is to be carried out by the caller, who may stop asking at any time."""
        self._tell_time(now)
        yield from self._untold_turns()
        sweep = Sweep(
            books=self.books,
            hall=self._hall,
            cards=self._cards,
            memory=self._memory,
            promising=promising,
            take_back=self._take_back,
            now=now,
        )
        if len(self._through) >= MOST_AT_ONCE:
            return
        for candidate, promises in sweep.let_in():
            for member, promise in zip(candidate.members, promises, strict=True):
                self._let_in(member, promise, now=now)
            self._gang_changed(candidate.first)
            yield from self._untold_turns()
            if len(self._through) >= MOST_AT_ONCE:
                return

    def _let_in(self, waiter: Waiter, promise: Promise, *, now: float) -> None:
        uid = waiter.uid
        self._leave(uid)
        self._memory.forget(uid)
        self._through[uid] = waiter
        self._until[uid] = promise.until
        self.books.admit(waiter, self._enrolment.charge(waiter), now=now)
        number = max(self._turns_had(waiter.pod), self._lost.get(uid, 0)) + 1
        self._untold.append(Turn(pod=waiter.pod, promise=promise, number=number))

    def _untold_turns(self) -> Iterator[Turn]:
        """All of a gang are told, even if the caller stops asking in the middle of it."""
        while self._untold:
            turn = self._untold.popleft()
            if turn.pod.metadata.uid in self._through:
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
        return self._release(uid) if uid in self._through else None

    def _take_as_waiting(self, pod: Pod) -> None:
        waiter = self._enrolment.waiter(pod)
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
        known = self._through.pop(uid, None) or self._bound.get(uid)
        self._leave(uid)
        self._until.pop(uid, None)
        if uid in self._bound and known and self._grant(known.pod) == self._grant(pod):
            return
        waiter = msgspec.structs.replace(known, pod=pod) if known else self._enrolment.waiter(pod)
        if waiter:
            self._bound[uid] = waiter
            self.books.put(waiter, self._enrolment.charge(waiter))

    def _grant(self, pod: Pod) -> str | None:
        return pod.metadata.annotations.get(self._names.grant)

    def _adopt(self, pod: Pod, *, until: float) -> None:
        """Another leader has let it in: it is charged, and has as long to be bound as kube-scheduler may need."""
        waiter = self._enrolment.waiter(pod)
        if waiter is not None:
            self._through[waiter.uid] = waiter
            self._until[waiter.uid] = until
            self.books.put(waiter, self._enrolment.charge(waiter))

    def _join(self, waiter: Waiter) -> None:
        ledger = self.books.ledger
        self._hall.join(waiter, why_never=self._enrolment.why_never(waiter, ledger=ledger), ledger=ledger)

    def _leave(self, uid: str) -> None:
        self._hall.leave(uid, ledger=self.books.ledger)

    def _release(self, uid: str) -> Waiter | None:
        """It is let in no more, and charged with nothing."""
        for states in (self._through, self._bound, self._until):
            states.pop(uid, None)
        waiter = self.books.release(uid)
        if waiter:
            self._gang_changed(waiter)
        return waiter

    def _gang_changed(self, waiter: Waiter) -> None:
        if waiter.group and waiter.queue in self._hall.lines:
            self._hall.lines[waiter.queue].changed(waiter.user)

    # --- time, and what changes everything ---------------------------------------------------------------------------
    def _tell_time(self, now: float) -> None:
        self._now = now
        if self._enrolment.outdated():
            self._replant()
        for waiter in self._hall.rested(now):
            self._leave(waiter.uid)
            self._take_as_waiting(waiter.pod)
        self.books.capacity = self._cards.stock().capacity
        self.books.settle(now)

    def _enrolling(self, tree: Tree) -> Enrolment:
        return Enrolment(
            names=self._names, cards=self._cards, tree=tree, homes=self._homes, user_label=self._settings.user_label
        )

    def _replant(self) -> None:
        """Other queues, namespaces or hardware: everybody is put down anew, in the states they are in."""
        tree = plant(self._specs)
        self._cards = Cards(picture=self._picture, dimensions=tree.dimensions)
        self._enrolment = self._enrolling(tree)
        standing = self._hall.clear()
        self.books.replant(tree)
        for states in (self._through, self._bound):
            for uid, was in states.items():
                now = self._enrolment.waiter(was.pod) or was
                states[uid] = msgspec.structs.replace(now, queue=was.queue)
                self.books.put(states[uid], self._enrolment.charge(states[uid]))
        for waiter in standing:
            self._take_as_waiting(waiter.pod)
        self._memory.everything_changed()
