"""Whose turn it is, by queues; where there are none, all wait in one, and its users share what there is.

Theory of operation. Each pod is in one state (`register.py`), and rounds of turns (`rounds.py`) let in who waits. Here
is what others ask and tell: what was seen, what came of turns, and why a pod waits.

A gate that was lifted can't be put back. So a pod that was let in and found no node within its promise's time (its CPU
is nowhere free, say) loses its turn: room and quota go to others, the extender refuses the pod, and after a while that
grows with each time it gets a new turn (`lost/lost_turns.py`). kube-scheduler is told of that by a change of the
pod; by itself it would look again after five minutes. Where it has not looked at the pod, and asked for no other either
lately, the first new turn comes at once; where the pod's scheduler has never asked for any, the next one comes late.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial

from aliquot_core.backoff import Random
from aliquot_core.names import Names
from aliquot_core.objects import Pod
from aliquot_scheduler.deciding.promises import Promise
from aliquot_scheduler.deciding.turns import Rooms, Turn
from aliquot_scheduler.fit.bounds import ANYWHERE, Bounds
from aliquot_scheduler.picture.picture import Picture
from aliquot_scheduler.queues.judging.cards import Stock
from aliquot_scheduler.queues.letting_in.register import Register
from aliquot_scheduler.queues.letting_in.rounds import Rounds
from aliquot_scheduler.queues.letting_in.seen import Seen
from aliquot_scheduler.queues.said.settings import QueueSettings
from aliquot_scheduler.queues.said.spec import QueueSpec
from aliquot_scheduler.queues.telling.each import Attempt, unguarded
from aliquot_scheduler.queues.telling.notices import Gist, Notice, Notices, making_room, turn_lost, why_nowhere
from aliquot_scheduler.queues.telling.report import recall, statuses
from aliquot_scheduler.queues.telling.status import QueueStatus
from aliquot_scheduler.queues.waiting.books import Books
from aliquot_scheduler.queues.waiting.inside import Way
from aliquot_scheduler.queues.waiting.waiter import Waiter
from aliquot_scheduler.queues.waiting.waits import WaitsSoFar
from aliquot_scheduler.rules.judging import NO_RULES, Rules


class Queues:
    """The order of turns."""

    def __init__(
        self,
        *,
        names: Names,
        random: Random,
        picture: Picture,
        settings: QueueSettings = QueueSettings(),
        rules: Rules = NO_RULES,
    ) -> None:
        self._random = random
        self._register = Register(names=names, picture=picture, settings=settings, rules=rules)
        self._seen = Seen(self._register)
        self._notices = Notices(self._register, names=names)
        self._rounds = Rounds(self._register, picture=picture, names=names)

    def __len__(self) -> int:
        """How many wait."""
        return len(self._register.hall)

    def __contains__(self, uid: str) -> bool:
        """Whether anything is known of a pod."""
        return uid in self._register

    @property
    def waits(self) -> WaitsSoFar:
        """How long those waited who were let in."""
        return self._rounds.waits

    @property
    def books(self) -> Books:
        """Who is charged with what."""
        return self._register.books

    def waiting(self) -> list[Waiter]:
        """All who wait, wherever, and those of whom it is not judged yet whether they do."""
        return self._register.waiting()

    def is_in_line(self, uid: str) -> bool:
        """Whether a pod stands in a line, and so asks."""
        return self._register.hall.stands(uid)

    def stock(self) -> Stock:
        """What there is, and what of it is free."""
        return self._register.cards.stock()

    def charged_in(self, uid: str) -> str:
        """The queue that a pod is charged in; empty if it is in none, or if there are no queues to say so of."""
        charge = None if self.books.ledger.tree.queueless else self.books.ledger.of(uid)
        return charge.queue if charge else ""

    def under_way(self) -> list[Waiter]:
        """All who are let in and not bound yet."""
        return list(self._register.inside.coming.values())

    # --- what is seen ------------------------------------------------------------------------------------------------
    def queues_seen(self, specs: Mapping[str, QueueSpec]) -> None:
        """These are all queues there are now."""
        self._register.queues_seen(specs)
        self.waits.keep(self.books.ledger.tree.nodes)

    def namespace_seen(self, name: str, *, queue: str) -> None:
        """A namespace's own queue, by its label; empty if it names none, or is gone."""
        self._register.namespace_seen(name, queue=queue)

    def pod_seen(self, pod: Pod) -> None:
        """A pod is there, or is changed."""
        self._seen.pod(pod)

    def pod_gone(self, uid: str) -> None:
        """A pod needs no turn any more, and holds nothing."""
        self._seen.gone(uid)

    def take_over(self, rooms: Rooms, *, now: float) -> None:
        """Before anybody is given room: who was let in by the leader before us has its own, where it is there."""
        taking_over = self._register.taking_over
        if not taking_over.is_complete:
            self._register.tell_time(now)
        taking_over.keep_room(rooms, now=now)

    # --- what came of turns ------------------------------------------------------------------------------------------
    def promised(self, promise: Promise) -> None:
        """Room was found for a pod that kube-scheduler has in hand, and no longer than it would for a turn of ours."""
        uid, inside = promise.pod.metadata.uid, self._register.inside
        if inside.was_adopted(uid):
            inside.enter(inside.coming[uid], way=Way.THROUGH, until=promise.until)

    def missed(self, pod: Pod, *, now: float) -> None:
        """A turn has led to nothing: no binding in time, or no room any more."""
        uid, register = pod.metadata.uid, self._register
        if uid not in register.inside.coming:
            return
        until = register.lost_turns.missed(pod, random=self._random, now=now)
        register.release(uid)
        if until is None:
            register.take_as_waiting(pod)
        else:
            register.rest(pod, until=until)

    def asked(self, pod: Pod, *, now: float) -> None:
        """A scheduler asks for a pod, whoever's turn it is."""
        self._register.scheduler_asks(pod.spec.scheduler_name, now=now)

    def not_told(self, pod: Pod, *, now: float) -> None:
        """The pod could not be told of its turn: the next try comes later, since others may be told."""
        uid, register = pod.metadata.uid, self._register
        if not register.let_out(uid) and uid not in register.showings:
            return
        if pod.metadata.deletion_timestamp:
            # It was on its way when the watch told that it is to go.
            self._seen.gone(uid)
            return
        register.growth.not_told(pod, now=now)
        register.rest(pod, until=register.lost_turns.untold(uid, random=self._random, now=now))

    def overdue(self, now: float) -> list[str]:
        """Whose turns have lasted too long (UIDs)."""
        self._register.now = now
        return self._register.inside.late(now)

    # --- what is asked -----------------------------------------------------------------------------------------------
    @property
    def register(self) -> Register:
        """Who is in which state: for whoever decides who has to go for others."""
        return self._register

    def why_not(self, pod: Pod) -> str:
        """Why it is not the pod's turn; empty if it is."""
        uid, register = pod.metadata.uid, self._register
        register.taking_over.judge(now=register.now)
        if uid not in register:
            # The watch is behind; of who is gone the desk does not ask.
            return register.taking_over.adopt(pod, now=register.now)
        if uid in register.showings.shown:
            return "it is let in by its queue, and waits for room on a card"
        if (waiter := register.hall.find(uid)) is None:
            return ""
        if clearing := register.clearings.whose(uid):
            return making_room(clearing)
        if why := why_nowhere(register, waiter):
            return why
        return turn_lost(register, pod) if register.lost_turns.missed_by(uid) else "it waits for its turn"

    def bounds(self, pod: Pod) -> Bounds:
        """Where alone a pod may lie whose turn it is."""
        return self._register.inside.bounds.get(pod.metadata.uid, ANYWHERE)

    def word(self, waiter: Waiter) -> str:
        """Why somebody waits, in a word."""
        return self._notices.word(waiter)

    def words(self, *, attempt: Attempt[Waiter] = unguarded) -> Iterator[tuple[Waiter, str]]:
        """All who wait, each with that word; without those for whom there is none."""
        for waiter in self._register.hall:
            if word := attempt(waiter, partial(self.word, waiter)):
                yield waiter, word

    def gist(self, waiter: Waiter, word: str, *, said: Gist) -> Gist:
        """What of that word is to be told to somebody who says this."""
        return self._notices.gist(waiter, word, said=said)

    def notice(self, waiter: Waiter) -> Notice:
        """The same with a sentence."""
        return self._notices.of(waiter)

    def statuses(self, *, now: float, at: str, attempt: Attempt[str] = unguarded) -> dict[str, QueueStatus]:
        """Of every queue; `attempt` by its name, and by that of the root what all have together."""
        register = self._register
        reach = register.cards.reach()
        return statuses(self.books, reach=reach, waiting=register.hall, at=at, now=now, attempt=attempt)

    def recall(
        self, told: Mapping[str, QueueStatus], *, wall: float, now: float, attempt: Attempt[str] = unguarded
    ) -> None:
        """What the leader before us has put down of usage; before any pod is seen, since pods say when by the wall."""
        self._register.growth.wall_ahead = wall - now
        known = {name: status for name, status in told.items() if name in self.books.ledger.tree.nodes}
        recall(self.books, known, forgetting=self._register.forgetting, wall=wall, now=now, attempt=attempt)

    def stale_gangs(self, *, now: float) -> list[Pod]:
        """Who is to be sent back, because its gang can't run."""
        register = self._register
        return register.stale.due(
            let_in=self.books.let_in,
            bound=register.inside.bound,
            waiting=register.hall,
            is_kept_waiting=register.lost_turns.keeps_waiting,
            now=now,
        )

    # --- turns -------------------------------------------------------------------------------------------------------
    def turns(self, rooms: Rooms, *, now: float) -> Iterator[Turn]:
        """Let through whoever can be; each turn is to be carried out by the caller, who may stop asking at any time."""
        return self._rounds.given_out(rooms, now=now)
