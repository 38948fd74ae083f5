"""Where everybody stands at one instant, worked out from what the API server has, by the code that decides.

The same books, lines and order that the leader keeps are made anew of pods, nodes and queues. What only it knows is
taken from the queues' status (decayed usage) or left out: who rests after a turn that led to nothing, and who has lost
patience. Who may read everything gets all of it, without asking the leader.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import NamedTuple

import msgspec

from aliquot_core.names import Names
from aliquot_core.objects import Pod, PodCondition
from aliquot_scheduler.deciding.places import Places
from aliquot_scheduler.fit.bounds import ANYWHERE
from aliquot_scheduler.picture.picture import Picture
from aliquot_scheduler.queues.charged.usage import Forgetting
from aliquot_scheduler.queues.judging.cards import Cards, Stock
from aliquot_scheduler.queues.judging.elsewhere import admissible
from aliquot_scheduler.queues.judging.enrolment import Enrolment
from aliquot_scheduler.queues.judging.hardware import hardware_of
from aliquot_scheduler.queues.judging.rules import Refusal, Rules
from aliquot_scheduler.queues.room.recalling import room_said
from aliquot_scheduler.queues.said.entry import Plan
from aliquot_scheduler.queues.said.settings import QueueSettings
from aliquot_scheduler.queues.said.tree import COMPUTE, MEMORY, ROOT, models_of, plant
from aliquot_scheduler.queues.telling.forms import SiblingStanding, UserStanding
from aliquot_scheduler.queues.telling.report import recall, statuses
from aliquot_scheduler.queues.telling.shown import Holder, Shown
from aliquot_scheduler.queues.telling.status import QueueStatus
from aliquot_scheduler.queues.telling.succession import succession
from aliquot_scheduler.queues.telling.wording import Promised, Wording
from aliquot_scheduler.queues.waiting.books import Books
from aliquot_scheduler.queues.waiting.gathering import Gathering
from aliquot_scheduler.queues.waiting.hall import Hall
from aliquot_scheduler.queues.waiting.showings import Showing, read, told
from aliquot_scheduler.queues.waiting.states import State, promised_to, said_of, state_of
from aliquot_scheduler.queues.waiting.waiter import Candidate, Waiter, summed
from aliquot_scheduler.queues.waiting.waits import UsualWait, usual_wait
from aliquot_scheduler.rules.judging import NO_RULES
from aliquot_scheduler.rules.judging import Rules as OwnRules

# Everything is of one instant, and only what lies between two would count.
_NOW = 0.0


class Strays(NamedTuple):
    """Pods whose queue is gone or hangs on nothing: those that are let in, and those that wait."""

    let_in: Sequence[Waiter]
    waiting: Sequence[Waiter]


class Standing:
    """Everybody's standing."""

    def __init__(
        self,
        *,
        picture: Picture,
        plan: Plan,
        pods: Iterable[Pod],
        names: Names,
        wall: float,
        told: Mapping[str, QueueStatus] | None = None,
        settings: QueueSettings = QueueSettings(),
        rules: OwnRules = NO_RULES,
        but: str = "",
    ) -> None:
        """`told` is what the leader wrote last, and `wall` the time by which that has aged.

        Into the picture comes what is promised to pods that are let in and not bound, as the leader has it in its own;
        but for one of them (`but`, its UID), which is asked about: its own room stands in nobody's way but others'.
        """
        self._but = but
        self._wall = wall
        hardware = hardware_of(picture, models_of(plan.specs))
        self.plan = plan = msgspec.structs.replace(plan, tree=plant(plan.specs, hardware=hardware))
        self.settings = settings
        self._names = names
        self.picture = picture
        self.cards = Cards(picture=picture, dimensions=plan.tree.dimensions, names=names, rules=rules)
        self._places = Places(picture=picture, names=names, rules=rules)
        forgetting = Forgetting(half_life=settings.half_life, penalty=settings.penalty)
        self.books = Books(tree=plan.tree, forgetting=forgetting)
        self.books.capacity = self.cards.stock().capacity
        self.enrolment = Enrolment(
            names=names,
            cards=self.cards,
            tree=plan.tree,
            homes=plan.homes,
            user_label=settings.user_label,
        )
        self._hall = Hall(why_never=self.enrolment.why_gang_never, awaits_node=self.enrolment.awaits_node)
        # Who has a place.
        self.bound: list[Waiter] = []
        self._promised: list[Waiter] = []
        self._waiting: dict[str, list[Waiter]] = {}
        self._running: dict[str, int] = {}
        self._members: dict[str, list[Pod]] = {}
        self._take_in(pods)
        self.stock: Stock = self.cards.stock()
        known = {name: status for name, status in (told or {}).items() if name in plan.tree.nodes}
        recall(self.books, known, forgetting=forgetting, wall=wall, now=_NOW)

    def _take_in(self, pods: Iterable[Pod]) -> None:
        waiting: list[Waiter] = []
        for pod in pods:
            waiter = self.waiter(pod)
            if waiter is None:
                continue
            self._members.setdefault(waiter.queue, []).append(pod)
            if pod.ended:
                continue
            if self.state(waiter).is_in:
                self.books.put(waiter, self.enrolment.charge(waiter))
                self._running[waiter.queue] = self._running.get(waiter.queue, 0) + 1
                (self.bound if pod.spec.node_name else self._promised).append(waiter)
            else:
                waiting.append(waiter)
        for waiter in self._promised:
            if waiter.uid != self._but:
                bounds = promised_to(waiter.pod, names=self._names) or ANYWHERE
                self._places.best(waiter.pod, waiter.demand, bounds, now=_NOW)
        for waiter in waiting:
            self._waiting.setdefault(waiter.queue, []).append(waiter)
            if self.foreign_gates(waiter):
                continue
            self._hall.join(waiter, why_never=self.why_never(waiter), books=self.books)

    # --- queues ------------------------------------------------------------------------------------------------------
    def running(self, queue: str) -> int:
        """How many pods of a queue, or of those below it, are let in."""
        return sum(count for name, count in self._running.items() if queue in self.plan.tree.path(name))

    def waiting(self, queue: str) -> list[Waiter]:
        """Who waits in a queue, or in those below it; it may be gone."""
        found = [name for name in self._waiting if name == queue or queue in self.plan.tree.path(name)]
        return [waiter for name in found for waiter in self._waiting[name]]

    def strays(self) -> Strays:
        """Those who are counted for no queue."""
        nodes = self.plan.tree.nodes
        return Strays(
            let_in=[waiter for waiter in (*self.bound, *self._promised) if waiter.queue not in nodes],
            waiting=[waiter for queue, found in self._waiting.items() if queue not in nodes for waiter in found],
        )

    def charged(self, waiter: Waiter) -> tuple[int, int]:
        """What one that is let in holds, in compute and memory."""
        charge = self.books.ledger.of(waiter.uid)
        return (charge.amounts[COMPUTE], charge.amounts[MEMORY]) if charge else (0, 0)

    def usual_wait(self, queue: str) -> UsualWait | None:
        """How long the last pods of a queue waited."""
        return usual_wait(self._members.get(queue, ()))

    def statuses(self) -> dict[str, QueueStatus]:
        """Of every queue what its leader would write now."""
        ours = [waiter for waiter in self.waiting(ROOT) if not self.foreign_gates(waiter)]
        return statuses(self.books, reach=self.cards.reach(), waiting=ours, at="", now=_NOW)

    def siblings(self, queue: str) -> list[SiblingStanding]:
        """The queues that hang where this one does, who goes first first."""
        tree, by_shares = self.plan.tree, self.books.shares(now=_NOW)
        parent = tree.nodes[queue].path[1] if queue != ROOT else ROOT
        standings = sorted(by_shares.standing(name) for name in tree.nodes[parent].children)
        return [
            SiblingStanding(name=name, priority=-behind, beyond=beyond, of_all=of_all)
            for behind, beyond, of_all, name in standings
        ]

    def users(self, queue: str) -> list[UserStanding]:
        """Who waits in a queue, who goes first first."""
        waiting: dict[str, int] = {}
        for waiter in self._waiting.get(queue, ()):
            waiting[waiter.user] = waiting.get(waiter.user, 0) + 1
        by_shares = self.books.shares(now=_NOW)
        found = [
            UserStanding(user=user, share=by_shares.of_user(queue, user), waiting=n) for user, n in waiting.items()
        ]
        return sorted(found, key=lambda one: (one.share, one.user))

    # --- pods --------------------------------------------------------------------------------------------------------
    def waiter(self, pod: Pod) -> Waiter | None:
        """The pod as one that waits, or as one that was let in."""
        is_in = state_of(pod, names=self._names).is_in
        return self.enrolment.holder(pod) if is_in else self.enrolment.waiter(pod)

    @cached_property
    def names_by_uid(self) -> Mapping[str, str]:
        """Of all pods that ask for slices, `namespace/name`."""
        return {pod.metadata.uid: pod.key for pods in self._members.values() for pod in pods}

    def state(self, waiter: Waiter) -> State:
        """By what is written on it."""
        return state_of(waiter.pod, names=self._names)

    def leaders_word(self, waiter: Waiter) -> PodCondition | None:
        """What the leader wrote last on a pod that waits, if anything."""
        said = said_of(waiter.pod, names=self._names)
        return said if said and said.status == "False" else None

    def going_for(self, waiter: Waiter) -> list[Waiter]:
        """Who was asked to go, and holds slices of GPUs on which room is kept for a pod, by what is written on it."""
        room, holdings = room_said(waiter, word=self._names.room), self.picture.holdings
        if not room:
            return []
        leaving = (one for one in self.bound if one.pod.metadata.deletion_timestamp)
        return [one for one in leaving if not room.isdisjoint(holdings.of(one.uid))]

    @cached_property
    def shown(self) -> Shown:
        """Who is shown to a cluster autoscaler, and who not since others are."""
        without_gate = [one for found in self._waiting.values() for one in found if self.waits_without_gate(one)]
        said = ((one, read(one.pod.metadata.annotations.get(self._names.shown, ""))) for one in without_gate)
        holders = [Holder(waiter=one, said=words) for one, words in said if words]
        return Shown(holders, books=self.books, wall=self._wall)

    def showing(self, waiter: Waiter) -> Showing | None:
        """Since when it was shown so, and whether that is over, as it is written on a pod that waits."""
        node, pod = self.plan.tree.nodes.get(waiter.queue), waiter.pod
        if node is None or not node.spec.autoscale or self.state(waiter) is not State.LET_IN_NO_MORE:
            return None
        said = pod.metadata.annotations.get(self._names.shown, "")
        return told(said, minutes=node.spec.autoscale_minutes, wall=self._wall)

    def has_lost_its_turn(self, waiter: Waiter) -> bool:
        """Whether a pod waits that was let in before; who was only shown was charged nowhere."""
        notes = waiter.pod.metadata.annotations
        was_let_in = self.plan.tree.queueless or self._names.charged in notes
        return was_let_in and self.waits_without_gate(waiter) and self._names.shown not in notes

    def waits_without_gate(self, waiter: Waiter) -> bool:
        """Whether a pod waits that has no gate any more."""
        return self.state(waiter) is State.LET_IN_NO_MORE

    def foreign_gates(self, waiter: Waiter) -> list[str]:
        """The gates of others that a pod waits behind: it joins no line before they are lifted."""
        gates = waiter.pod.spec.scheduling_gates
        return sorted(gate.name for gate in gates if gate.name != self._names.gate)

    def why_never(self, waiter: Waiter) -> str:
        """Why a pod can't be let in, whatever others do; empty if it could."""
        why = self.enrolment.why_never(waiter)
        return why or self._hall.why_nowhere(waiter.uid)

    def is_barred(self, waiter: Waiter) -> bool:
        """Whether a pod may not wait in its queue, whatever it asks."""
        return self.enrolment.is_barred(waiter)

    def may_fit(self, waiter: Waiter) -> bool:
        """Whether some card may have room for a pod; never wrongly no."""
        return self.cards.fitting()[waiter.number]

    def has_room(self, waiter: Waiter) -> bool:
        """Whether a node has room for a pod, on its GPUs and beside them."""
        return bool(self.cards.roomy(waiter.demand).any()) and not self.why_no_node(waiter)

    def why_no_node(self, waiter: Waiter) -> str:
        """Why no node takes a pod that has room on its GPUs, in numbers; empty if one does, or none has."""
        return self.cards.why_no_node(waiter.pod, waiter.demand, host=waiter.shape.host)

    def candidate(self, waiter: Waiter) -> Candidate:
        """Who is let in together with a pod, or not at all."""
        together, line = self.books.runs.still_needed(waiter), self._hall.lines.get(waiter.queue)
        mates = line.mates(waiter)[:together] if line and together > 1 else []
        members = tuple(mates or [waiter])
        return Candidate(members=members, amounts=summed(members))

    def refusal(self, waiter: Waiter) -> Refusal | None:
        """What the numbers say against letting a pod in, were it the first of all."""
        candidate = self.candidate(waiter)
        rules = Rules(ledger=self.books.ledger, cards=self.cards)
        dimensions, without = self.plan.tree.dimensions, self.enrolment.without
        return admissible(candidate, rules=rules, dimensions=dimensions, without=without)[1]

    def gathering(self, waiter: Waiter) -> Gathering | None:
        """What the gang of a pod lacks to be let in as a whole; None if nothing, or if it is in none."""
        return self._hall.gathering(waiter, books=self.books, names=self._names)

    @property
    def wording(self) -> Wording:
        """What is said of it all, by the numbers of now."""
        promised = Promised.of(self._promised, ledger=self.books.ledger)
        return Wording(ledger=self.books.ledger, stock=self.stock, promised=promised, away=self.cards.away())

    def order(self) -> Iterator[Waiter]:
        """Everybody in a line, in the order of their turns; afterwards nothing of this standing may be asked."""
        return succession(books=self.books, hall=self._hall, enrolment=self.enrolment, now=_NOW)

    def before(self, waiter: Waiter) -> list[Waiter] | None:
        """Whose turns come before a pod's; None if it is in no line. Nothing may be asked afterwards."""
        found: list[Waiter] = []
        for one in self.order():
            if one.uid == waiter.uid:
                return found
            found.append(one)
        return None
